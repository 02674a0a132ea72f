//! The status of a steering program.

use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use homa_bpf::{link, map, program};
use homa_driver::netdev;
use homa_steer::{Core, PolicyName, Reason};
use rustix::time::{ClockId, clock_gettime};

use crate::attach::{COUNTERS, STATE, is_online, online_cores};
use crate::config::Filter;
use crate::device::{self, AttachedProgram, attached, failed};
use crate::error::SteeringError;
use crate::state::{self, SteeringRequest, counter, u64_at};

/// The packets of a core.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreStatus {
    /// The core.
    pub core: Core,
    /// Whether the core is online. The kernel lets another core do the work of an offline core.
    pub is_online: bool,
    /// Packets for this core, handed over or not.
    pub packets: u64,
    /// The part of `packets` that arrived on another core and was handed over.
    pub handed_over: u64,
    /// The part of `handed_over` that never arrived, because too many packets were queued. While packets
    /// arrive without a pause, this includes the few in transit.
    pub drops: u64,
    /// Approximate number of flows of this core in the last one or two seconds.
    pub flows: f64,
}

/// The steering of a device, and its counters.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The device.
    pub device: String,
    /// The policy.
    pub policy: PolicyName,
    /// Number of levels, if the policy has levels.
    pub levels: Option<u32>,
    /// The packets that are steered.
    pub filter: Filter,
    /// Whether the program runs in the device's driver.
    pub is_native: bool,
    /// Whether the program ends with the process that attached it.
    pub held_by_process: bool,
    /// The cores that the policy selects from.
    pub cores: Vec<CoreStatus>,
    /// Decisions by reason. Reasons without a decision are omitted.
    pub decisions: Vec<(Reason, u64)>,
    /// Packets that are not steered.
    pub others: u64,
}

impl Status {
    /// Returns the number of packets that were steered.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.cores.iter().map(|core| core.packets).sum()
    }

    /// Returns the number of packets lost on the way to their core.
    #[must_use]
    pub fn drops(&self) -> u64 {
        self.cores.iter().map(|core| core.drops).sum()
    }
}

/// A snapshot of the counters of all cores.
struct PerCoreCounters(Vec<u8>);

impl PerCoreCounters {
    /// Returns the sum of this counter over all cores.
    fn sum(&self, at: usize) -> u64 {
        self.0.chunks_exact(counter::BYTES).map(|values| u64_at(values, at)).sum()
    }

    /// Returns the number of packets that arrived at a core from other cores.
    fn packets_from_others(&self, core: Core) -> u64 {
        self.sum(counter::CAME + 8 * usize::from(core))
    }

    fn packets_to_others(&self, core: Core) -> u64 {
        self.sum(counter::HANDED + 8 * usize::from(core))
    }

    fn kept(&self, core: Core) -> u64 {
        self.sum(counter::KEPT + 8 * usize::from(core))
    }
}

/// Number of samples of the packets in transit to a core, and milliseconds between samples. The minimum is
/// the number of packets that never arrive.
const LOOKS: usize = 5;
const PAUSE_MS: u64 = 1;

/// Returns the steering status of a device. All devices that were attached together have the same status.
///
/// # Errors
/// See [`SteeringError`].
pub fn status(name: &str) -> Result<Status, SteeringError> {
    let device = device::find(name)?;
    let ours = AttachedProgram::at(&device)?;
    let read = |map: &std::os::fd::OwnedFd| map::get(map.as_fd(), 0).map_err(failed(name, "reading a map"));
    let state = read(&ours.map(name, STATE)?)?;
    let asked =
        SteeringRequest::read(&state).ok_or_else(|| SteeringError::OtherVersion { name: name.to_owned() })?;
    let counters = ours.map(name, COUNTERS)?;
    let cores = asked.cores.as_slice();
    let mut under_way = vec![u64::MAX; cores.len()];
    let mut counted = PerCoreCounters(read(&counters)?);
    for look in 0..LOOKS {
        for (least, &core) in under_way.iter_mut().zip(cores) {
            *least = (*least)
                .min(counted.packets_to_others(core).saturating_sub(counted.packets_from_others(core)));
        }
        if look + 1 < LOOKS && under_way.iter().any(|&packets| packets > 0) {
            thread::sleep(Duration::from_millis(PAUSE_MS));
            counted = PerCoreCounters(read(&counters)?);
        }
    }
    let online = online_cores();
    let flows = state::flows(&state, &asked.cores, now_ns());
    let core = |((&core, flows), drops)| CoreStatus {
        core,
        is_online: is_online(online.as_deref(), core),
        packets: counted.packets_to_others(core) + counted.kept(core),
        handed_over: counted.packets_to_others(core),
        drops,
        flows,
    };
    let decisions = Reason::ALL.map(|reason| (reason, counted.sum(counter::REASONS + 8 * reason as usize)));
    let link = link::find(ours.info.id, device.index).map_err(failed(name, "looking for its link"))?;
    Ok(Status {
        device: name.to_owned(),
        policy: asked.policy,
        levels: (asked.policy == PolicyName::Sparse).then_some(asked.levels),
        filter: asked.filter,
        is_native: ours.native,
        held_by_process: link.is_some(),
        cores: cores.iter().zip(flows).zip(under_way).map(core).collect(),
        decisions: decisions.into_iter().filter(|&(_, count)| count > 0).collect(),
        others: counted.sum(counter::OTHERS),
    })
}

/// Returns the names of the steered devices in this thread's network namespace.
///
/// # Errors
/// The kernel cannot list its devices, or a capability is missing.
pub fn steered() -> Result<Vec<String>, SteeringError> {
    let names = netdev::names().map_err(failed("any device", "listing interfaces"))?;
    let mut steered = Vec::new();
    for name in names {
        // A device that has been removed in the meantime is not steered.
        let Ok(device) = device::find(&name) else { continue };
        if attached(&device)?.is_none() {
            continue;
        }
        match AttachedProgram::at(&device) {
            Ok(_) => steered.push(name),
            Err(SteeringError::OtherProgram { .. } | SteeringError::NotSteered { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(steered)
}

/// The cost of decisions, including classification and counting, but without the hand-over itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Number of measured decisions.
    pub runs: u64,
    /// Total time of the measured decisions, by the kernel's clock. About 10 to 20 ns of each are the
    /// overhead of the measurement.
    pub run_ns: u64,
}

/// Makes the kernel measure the program of a device for a while (BPF run statistics). All other programs are
/// measured during that time, too.
///
/// # Errors
/// See [`SteeringError`].
pub fn cost(name: &str, time: Duration) -> Result<Cost, SteeringError> {
    let ours = AttachedProgram::at(&device::find(name)?)?;
    let step = failed(name, "measuring");
    let info = || program::info(ours.program.as_fd());
    let before = info().map_err(&step)?;
    let statistics = program::enable_statistics().map_err(&step)?;
    thread::sleep(time);
    drop(statistics);
    let after = info().map_err(step)?;
    Ok(Cost { runs: after.runs - before.runs, run_ns: after.run_ns - before.run_ns })
}

/// Reads the clock that the program uses.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
