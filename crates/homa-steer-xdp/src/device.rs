//! Devices, and the steering programs attached to them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use homa_bpf::{Name, is_no_permission, map, program};
use homa_driver::netdev::{self, NamedInterface, XdpProgram};

use crate::error::SteeringError;

/// Name of the programs attached to devices.
pub(crate) const NAME: Name = Name::new("homa_steer");

/// Returns a closure that makes the error of a failed step for a device.
pub(crate) fn failed<'a>(name: &'a str, step: &'static str) -> impl Fn(io::Error) -> SteeringError + 'a {
    move |source| {
        let name = name.to_owned();
        match source.raw_os_error() {
            _ if is_no_permission(&source) => SteeringError::NoCapability { name },
            Some(libc::ENODEV) => SteeringError::Vanished { name },
            _ => SteeringError::System { name, step, source },
        }
    }
}

/// Finds the device with this name in this thread's network namespace.
pub(crate) fn find(name: &str) -> Result<NamedInterface, SteeringError> {
    netdev::by_name(name).map_err(|source| match source.raw_os_error() {
        Some(libc::ENODEV) => {
            let have = netdev::names().unwrap_or_default();
            SteeringError::NoSuchDevice { name: name.to_owned(), have }
        }
        _ => failed(name, "looking it up")(source),
    })
}

/// A steering program attached to a device.
#[derive(Debug)]
pub(crate) struct AttachedProgram {
    pub(crate) program: OwnedFd,
    pub(crate) info: program::ProgramInfo,
    pub(crate) native: bool,
}

impl AttachedProgram {
    /// Returns the program that steers a device.
    pub(crate) fn at(device: &NamedInterface) -> Result<AttachedProgram, SteeringError> {
        let name = &device.name;
        let Some(XdpProgram { id, native }) = attached(device)? else {
            return Err(SteeringError::NotSteered { name: name.clone() });
        };
        let program = program::with_id(id).map_err(failed(name, "opening its program"))?;
        let info = program::info(program.as_fd()).map_err(failed(name, "asking about its program"))?;
        if info.name != NAME {
            let program = shown(id);
            return Err(SteeringError::OtherProgram { name: name.clone(), program });
        }
        Ok(AttachedProgram { program, info, native })
    }

    /// Opens the program's map with this name.
    pub(crate) fn map(&self, device: &str, name: Name) -> Result<OwnedFd, SteeringError> {
        for &id in &self.info.maps {
            let map = map::with_id(id).map_err(failed(device, "opening a map"))?;
            if map::name(map.as_fd()).map_err(failed(device, "asking about a map"))? == name {
                return Ok(map);
            }
        }
        Err(SteeringError::OtherVersion { name: device.to_owned() })
    }
}

/// Returns the program that a device runs.
pub(crate) fn attached(device: &NamedInterface) -> Result<Option<XdpProgram>, SteeringError> {
    netdev::xdp_program(device.index).map_err(failed(&device.name, "asking for its program"))
}

/// Formats the name and ID of a program, as far as the kernel reports them.
fn shown(id: u32) -> String {
    program::name_of(id).map_or_else(|| format!("id {id}"), |name| format!("{name} (id {id})"))
}

/// Returns the error for a device that already has a program.
pub(crate) fn taken(device: &NamedInterface) -> SteeringError {
    let name = device.name.clone();
    let id = attached(device).ok().flatten().map(|program| program.id);
    let remedy = match id.and_then(program::name_of) {
        Some(other) if other == NAME.to_string() => format!("`homa steer detach {name}` detaches it"),
        _ => format!("end the process that attached it, or detach it (ip link set {name} xdp off)"),
    };
    let program = id.map_or_else(|| "of another owner".to_owned(), shown);
    SteeringError::ProgramAttached { name, program, remedy }
}

/// Returns whether the kernel's own packet steering (RPS) is on for a device of this thread's network
/// namespace, according to /sys. If /sys is mounted for another namespace, this is unknown, and the result is
/// false.
#[must_use]
pub fn kernel_steers(name: &str) -> bool {
    let directory = std::path::Path::new("/sys/class/net").join(name);
    let Ok(device) = find(name) else { return false };
    let index = std::fs::read_to_string(directory.join("ifindex"));
    if !index.is_ok_and(|index| index.trim() == device.index.to_string()) {
        return false;
    }
    let queues = std::fs::read_dir(directory.join("queues")).into_iter().flatten().flatten();
    let masks = queues.filter_map(|queue| std::fs::read_to_string(queue.path().join("rps_cpus")).ok());
    masks.into_iter().any(|mask| names_a_core(&mask))
}

/// Returns whether a mask has a set bit. The kernel writes masks as hexadecimal words separated by commas.
fn names_a_core(mask: &str) -> bool {
    mask.trim().chars().any(|digit| !matches!(digit, '0' | ','))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_names_a_core_if_it_has_a_bit() {
        assert!(names_a_core("2\n") && names_a_core("00000001,00000000\n"));
        assert!(!names_a_core("0\n") && !names_a_core("00000000,00000000\n") && !names_a_core(""));
    }
}
