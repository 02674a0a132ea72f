//! Attaches a steering program from a configuration, and detaches it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use homa_bpf::attach::{self, Attachment, is_taken};
use homa_bpf::link::{self, Place};
use homa_bpf::map::{self, MapKind};
use homa_bpf::program::{self, AttachPoint};
use homa_bpf::{Name, is_no_permission};
use homa_driver::netdev::{self, NamedInterface};
use homa_steer::{Core, Cores};

use crate::config::{Filter, IN_KERNEL, SteerConfig};
use crate::device::{self, AttachedProgram, NAME, failed};
use crate::error::SteeringError;
use crate::{program as steering, state};

/// Name of the map that contains the state.
pub(crate) const STATE: Name = Name::new("homa_steer_st");
/// Name of the map that contains the counters.
pub(crate) const COUNTERS: Name = Name::new("homa_steer_ct");
const CORES: Name = Name::new("homa_steer_co");
const ON_CORE: Name = Name::new("homa_steer_on");

/// Maximum number of frames that the kernel queues for a core.
const QUEUE_MAX: u32 = 16_384;

/// How long a program steers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachLifetime {
    /// Until the program is detached, or the device is removed.
    Device,
    /// Until the [`Steering`] is dropped or the process ends, however it ends, if the program is not detached
    /// earlier.
    Process,
}

/// Steered devices. With [`AttachLifetime::Process`], dropping this ends the steering.
#[derive(Debug)]
pub struct Steering {
    /// A link for each device, if the process holds them.
    links: Vec<Attachment>,
    devices: Vec<NamedInterface>,
    cores: Cores,
    native: bool,
}

impl Steering {
    /// Returns whether the program runs in the device's driver, on all devices.
    #[must_use]
    pub fn is_native(&self) -> bool {
        self.native
    }

    /// Returns the first device that is no longer steered, because the program was detached or the device is
    /// gone.
    #[must_use]
    pub fn lost(&self) -> Option<&str> {
        let lost = |device: &&NamedInterface| AttachedProgram::at(device).is_err();
        self.devices.iter().find(lost).map(|device| device.name.as_str())
    }

    /// Returns the offline cores in ascending order. Their packets are not lost: the kernel lets other cores
    /// do their work.
    #[must_use]
    pub fn offline(&self) -> Vec<Core> {
        let online = online_cores();
        self.cores.as_slice().iter().copied().filter(|&core| !is_online(online.as_deref(), core)).collect()
    }

    /// Ends the steering immediately, including that of programs held by devices. A program that cannot be
    /// detached stays.
    ///
    /// # Errors
    /// A [`SteeringError`] for the first device that is still steered.
    pub fn detach(self) -> Result<(), SteeringError> {
        let held = !self.links.is_empty();
        // Dropping a link detaches its program.
        drop(self.links);
        let steered = self.devices.iter().filter(|_| !held);
        steered.map(|device| detach(&device.name)).fold(Ok(()), Result::and)
    }

    /// Returns the number of programs that this process holds.
    #[must_use]
    pub fn held(&self) -> usize {
        self.links.len()
    }
}

/// Steers the packets of these devices with one program that has one state. With `sparse`, the same flow
/// through two devices counts as two flows. Either all devices are steered or, on an error, none.
///
/// # Errors
/// See [`SteeringError`].
pub fn attach(
    names: &[String],
    config: &SteerConfig,
    hold: AttachLifetime,
) -> Result<Steering, SteeringError> {
    let first = names.first().ok_or(SteeringError::NoDevice)?;
    check(config)?;
    let devices = names.iter().map(|name| device::find(name)).collect::<Result<Vec<_>, _>>()?;
    let program = load(first, config)?;
    let mut steering =
        Steering { links: Vec::new(), devices: Vec::new(), cores: config.cores.clone(), native: true };
    for device in devices {
        match attach_at_place(&program, &device, config, hold) {
            Ok((link, place)) => {
                steering.native &= place == Place::Native;
                steering.links.extend(link);
                steering.devices.push(device);
            }
            Err(error) => {
                // An additional steered device is no worse than the error that is returned.
                let _ = steering.detach();
                return Err(error);
            }
        }
    }
    Ok(steering)
}

fn check(config: &SteerConfig) -> Result<(), SteeringError> {
    if !IN_KERNEL.contains(&config.policy) {
        return Err(SteeringError::NotInKernel { policy: config.policy });
    }
    config.settings.check()?;
    if config.filter == Filter::NONE {
        return Err(SteeringError::NothingToSteer);
    }
    if !(1..=QUEUE_MAX).contains(&config.queue_packets) {
        let (setting, value) = ("queue_packets", config.queue_packets.into());
        return Err(SteeringError::Setting { setting, value, range: "1 to 16384" });
    }
    let online = online_cores();
    match config.cores.as_slice().iter().find(|&&core| !is_online(online.as_deref(), core)) {
        Some(&core) => Err(SteeringError::NotOnline { core, online: online.unwrap_or_default() }),
        None => Ok(()),
    }
}

/// Returns the online cores in the kernel's format; `None` if /sys does not list them.
pub(crate) fn online_cores() -> Option<String> {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    Some(online.trim().to_owned())
}

/// Returns whether a core is online, according to a list in the kernel's format. Without a list this is
/// unknown, and the result is true.
pub(crate) fn is_online(online: Option<&str>, core: Core) -> bool {
    let Some(list) = online else { return true };
    list.split(',').any(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        matches!((first.parse::<Core>(), last.parse::<Core>()), (Ok(first), Ok(last)) if (first..=last).contains(&core))
    })
}

/// Loads the program, with maps that live as long as it does.
fn load(name: &str, config: &SteerConfig) -> Result<OwnedFd, SteeringError> {
    // These errors mean that the kernel does not support the map type, a helper, or bpf(2) at all.
    let step = |step| {
        move |source: io::Error| match source.raw_os_error() {
            Some(libc::EINVAL | libc::ENOSYS) => SteeringError::NoCoreMap { name: name.to_owned() },
            _ => failed(name, step)(source),
        }
    };
    let make =
        |kind, map, bytes, entries| map::create(kind, map, bytes, entries).map_err(step("making a map"));
    let last = config.cores.as_slice().last().map_or(0, |&core| u32::from(core));
    let state = make(MapKind::Array, STATE, state::shared_state::BYTES, 1)?;
    let counters = make(MapKind::ArrayPerCore, COUNTERS, state::counter::BYTES, 1)?;
    let cores = make(MapKind::Cores, CORES, 8, last + 1)?;
    map::put(state.as_fd(), 0, &state::initial(config)).map_err(failed(name, "filling in the state"))?;
    let load =
        |name_of, code: &[_], runs| program::load(name_of, code, runs).map_err(step("loading the program"));
    for &core in config.cores.as_slice() {
        let on_core = load(ON_CORE, &steering::build_on_core(counters.as_raw_fd(), core), AttachPoint::Core)?;
        let [a, b, c, d] = config.queue_packets.to_ne_bytes();
        let [e, f, g, h] = program::descriptor(on_core.as_fd());
        map::put(cores.as_fd(), core.into(), &[a, b, c, d, e, f, g, h])
            .map_err(failed(name, "entering a core into the map"))?;
    }
    let maps =
        steering::Maps { state: state.as_raw_fd(), counters: counters.as_raw_fd(), cores: cores.as_raw_fd() };
    load(NAME, &steering::build(config, maps), AttachPoint::Device)
}

/// Attaches the program to a device at the configured place. Returns the link, if the process is to hold one.
fn attach_at_place(
    program: &OwnedFd,
    device: &NamedInterface,
    config: &SteerConfig,
    hold: AttachLifetime,
) -> Result<(Option<Attachment>, Place), SteeringError> {
    let mut error = None;
    for &place in attach::places(config.mode) {
        let put = match hold {
            AttachLifetime::Process => attach::attach(program, device.index, place).map(Some),
            AttachLifetime::Device => attach_to(program, device, place).map(|()| None),
        };
        match put {
            Ok(link) => return Ok((link, place)),
            Err(error) if is_taken(&error) => return Err(device::taken(device)),
            Err(source) => error = Some((place, source)),
        }
    }
    let (place, source) = error.expect("at least one place was tried");
    let refused =
        place == Place::Native && !is_no_permission(&source) && source.raw_os_error() != Some(libc::ENODEV);
    Err(if refused {
        SteeringError::NoNative { name: device.name.clone(), mtu: device.state.mtu }
    } else {
        failed(&device.name, "attaching the program")(source)
    })
}

/// Attaches the program so that the device keeps it.
fn attach_to(program: &OwnedFd, device: &NamedInterface, place: Place) -> io::Result<()> {
    netdev::set_xdp_program(device.index, Some(program.as_fd()), place)
}

/// Detaches this library's program from a device, no matter which process holds it. The device's packets then
/// continue into the kernel as before.
///
/// # Errors
/// See [`SteeringError`]. A program of another origin stays.
pub fn detach(name: &str) -> Result<(), SteeringError> {
    let device = device::find(name)?;
    let ours = AttachedProgram::at(&device)?;
    let step = failed(name, "detaching the program");
    match link::find(ours.info.id, device.index).map_err(&step)? {
        Some(link) => link::detach(link.as_fd()).map_err(step),
        None => {
            let place = if ours.native { Place::Native } else { Place::Generic };
            netdev::set_xdp_program(device.index, None, place).map_err(step)
        }
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn a_core_is_online_if_the_list_has_it_or_there_is_none() {
        let on = |list, core| is_online(Some(list), core);
        assert!(on("0-3,6", 0) && on("0-3,6", 3) && on("0-3,6", 6));
        assert!(!on("0-3,6", 4) && !on("", 0) && !on("x", 0));
        assert!(is_online(None, 7));
    }
}
