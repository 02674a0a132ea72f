//! Errors of steering packets.

use std::io;

use homa_steer::{Core, PolicyName, SteerError};

use crate::config::{Filter, IN_KERNEL};

/// Why packets of a device cannot be steered, or are not steered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SteeringError {
    /// There is no device with this name.
    #[error("there is no interface {name}: choose one of {}", .have.join(", "))]
    NoSuchDevice {
        /// The name.
        name: String,
        /// The existing devices.
        have: Vec<String>,
    },
    /// The device existed when it was looked up, but is gone now.
    #[error("interface {name} was removed: choose another one")]
    Vanished {
        /// The former name.
        name: String,
    },
    /// No device was named.
    #[error("no device is named: name a device")]
    NoDevice,
    /// The policy needs information that a program on a device does not have.
    #[error(
        "{policy} needs the loads of the cores, which a device does not know: choose one of {}",
        IN_KERNEL.map(|policy| policy.entry().name).join(", ")
    )]
    NotInKernel {
        /// The policy.
        policy: PolicyName,
    },
    /// A core does not exist, or is offline.
    #[error("core {core} is not online: choose among {online}")]
    NotOnline {
        /// The core.
        core: Core,
        /// The online cores, in the kernel's format.
        online: String,
    },
    /// The filter admits no packets.
    #[error("the filter admits nothing: name at least one of {}", Filter::NAMES.join(", "))]
    NothingToSteer,
    /// A number is out of range.
    #[error("{setting} cannot be {value}: use {range}")]
    Setting {
        /// The field of the configuration.
        setting: &'static str,
        /// Its value.
        value: u64,
        /// The permitted values.
        range: &'static str,
    },
    /// The process may not load programs.
    #[error(
        "steering packets of {name} needs the capabilities CAP_BPF and CAP_NET_ADMIN, and CAP_SYS_ADMIN to \
         inspect programs: run it as the host's root, not in a user namespace"
    )]
    NoCapability {
        /// The device.
        name: String,
    },
    /// The kernel does not support programs on devices, or maps of cores.
    #[error(
        "steering packets of {name} needs XDP and CPUMAP: use Linux 5.15 or later with CONFIG_BPF_SYSCALL"
    )]
    NoCoreMap {
        /// The device.
        name: String,
    },
    /// The device's driver does not support programs.
    #[error(
        "interface {name} accepts no XDP program in its driver (MTU {mtu}; for a veth, the peer's counts, too): use the generic mode"
    )]
    NoNative {
        /// The device.
        name: String,
        /// Its MTU in bytes.
        mtu: usize,
    },
    /// The device already runs a program.
    #[error("interface {name} already runs the XDP program {program}: {remedy}")]
    ProgramAttached {
        /// The device.
        name: String,
        /// Name and id of the program, as far as the kernel reports them.
        program: String,
        /// How to remove it.
        remedy: String,
    },
    /// The device's packets are not steered.
    #[error("interface {name} is not steered: `homa steer attach {name}` steers its packets")]
    NotSteered {
        /// The device.
        name: String,
    },
    /// The device runs a foreign program.
    #[error("interface {name} is not steered: its XDP program {program} is not one of homa steer")]
    OtherProgram {
        /// The device.
        name: String,
        /// Name and id of the program.
        program: String,
    },
    /// The program is of another version of this library.
    #[error("interface {name} is steered by another version of this program: use that version to detach it")]
    OtherVersion {
        /// The device.
        name: String,
    },
    /// The policy cannot be created.
    #[error(transparent)]
    Policy(#[from] SteerError),
    /// Any other error.
    #[error("cannot steer packets of {name}: {step} failed: {source}")]
    System {
        /// The device.
        name: String,
        /// The step that failed.
        step: &'static str,
        /// The error of the kernel.
        source: io::Error,
    },
}
