//! Errors of steering packets.

use std::io;

use homa_steer::{Core, PolicyName, SteerError};

use crate::config::{Filter, IN_KERNEL};

/// Why packets of a device cannot be steered, or are not.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SteeringError {
    /// There is no device of this name.
    #[error("there is no interface {name}: choose one of {}", .have.join(", "))]
    NoSuchDevice {
        /// The name.
        name: String,
        /// The existing devices.
        have: Vec<String>,
    },
    /// The device existed when it was looked up, and is gone now.
    #[error("interface {name} vanished: nothing of it is steered any more")]
    Vanished {
        /// The former name.
        name: String,
    },
    /// No device was named.
    #[error("name a device: none is touched without that")]
    NoDevice,
    /// The policy needs information that a program at a device does not have.
    #[error(
        "{policy} cannot run at a device, where the loads of the cores are not known: choose one of {}",
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
    #[error("a filter that admits nothing steers nothing: name one of {} at least", Filter::NAMES.join(", "))]
    NothingToSteer,
    /// A number is out of its range.
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
        "steering packets of {name} needs the capabilities CAP_BPF and CAP_NET_ADMIN, and CAP_SYS_ADMIN to inspect attached programs: run it as root; in a container or user namespace, root may lack them"
    )]
    NoCapability {
        /// The device.
        name: String,
    },
    /// The kernel does not support programs at devices, or maps of cores.
    #[error(
        "this kernel cannot pass frames of {name} to other cores: that needs XDP and CPUMAP (Linux 5.15, CONFIG_BPF_SYSCALL)"
    )]
    NoCoreMap {
        /// The device.
        name: String,
    },
    /// The device's driver does not support programs.
    #[error(
        "interface {name} accepts no XDP program in its driver (its MTU is {mtu}; for a veth, that of the other end matters): use the generic mode, which any device has"
    )]
    NoNative {
        /// The device.
        name: String,
        /// Its MTU in bytes.
        mtu: usize,
    },
    /// The device already runs a program.
    #[error("interface {name} already runs the XDP program {program}, and supports only one: {remedy}")]
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
    #[error(
        "interface {name} is not steered: it runs the XDP program {program}, which is not one of homa steer"
    )]
    OtherProgram {
        /// The device.
        name: String,
        /// Name and id of the program.
        program: String,
    },
    /// The program is of another version of this library.
    #[error(
        "interface {name} is steered by another version of this program: attach and detach with the same"
    )]
    OtherVersion {
        /// The device.
        name: String,
    },
    /// The policy cannot be made.
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
