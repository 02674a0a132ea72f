//! Why packets cannot be steered.

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
        /// Those that there are.
        have: Vec<String>,
    },
    /// The device was there when it was looked up, and is no more.
    #[error("interface {name} vanished: nothing of it is steered any more")]
    Vanished {
        /// The name that it had.
        name: String,
    },
    /// No device was named.
    #[error("name a device: none is touched without that")]
    NoDevice,
    /// The policy needs to know what a program at a device does not.
    #[error(
        "{policy} cannot run at a device, where the loads of the cores are not known: choose one of {}",
        IN_KERNEL.map(|policy| policy.entry().name).join(", ")
    )]
    NotInKernel {
        /// The policy.
        policy: PolicyName,
    },
    /// A core is not there, or is switched off.
    #[error("core {core} is not online: choose among {online}")]
    NotOnline {
        /// The core.
        core: Core,
        /// Those that are, as the kernel lists them.
        online: String,
    },
    /// No packet could be steered.
    #[error("a filter that admits nothing steers nothing: name one of {} at least", Filter::NAMES.join(", "))]
    NothingToSteer,
    /// A number is out of its range.
    #[error("{setting} cannot be {value}: use {range}")]
    Setting {
        /// The field of the configuration.
        setting: &'static str,
        /// Its value.
        value: u64,
        /// What it may be.
        range: &'static str,
    },
    /// The process may not load programs.
    #[error(
        "steering packets of {name} needs the capabilities CAP_BPF and CAP_NET_ADMIN, and CAP_SYS_ADMIN to look at what is attached: run it as root, whom a container or user namespace may leave without them"
    )]
    NoCapability {
        /// The device.
        name: String,
    },
    /// The kernel has no programs at devices, or no maps of cores.
    #[error(
        "this kernel cannot hand frames of {name} to other cores: it takes XDP and CPUMAP (Linux 5.15, CONFIG_BPF_SYSCALL)"
    )]
    NoCoreMap {
        /// The device.
        name: String,
    },
    /// The device's driver takes no program.
    #[error(
        "interface {name} takes no XDP program in its driver (its MTU is {mtu}; of a veth the other end's counts): use the generic mode, which any device has"
    )]
    NoNative {
        /// The device.
        name: String,
        /// Its MTU in bytes.
        mtu: usize,
    },
    /// The device runs a program already.
    #[error("interface {name} runs the XDP program {program} already, and takes one only: {remedy}")]
    ProgramAttached {
        /// The device.
        name: String,
        /// Name and id of the program, as far as the kernel tells them.
        program: String,
        /// How to get rid of it.
        remedy: String,
    },
    /// Nothing steers the device's packets.
    #[error("interface {name} is not steered: `homa steer attach {name}` has its packets steered")]
    NotSteered {
        /// The device.
        name: String,
    },
    /// The device runs a program of somebody else.
    #[error("interface {name} is not steered: it runs the XDP program {program}, which is not ours")]
    OtherProgram {
        /// The device.
        name: String,
        /// Name and id of the program.
        program: String,
    },
    /// The program is one of another version of this library.
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
    /// Anything else.
    #[error("cannot steer packets of {name}: {step} failed: {source}")]
    System {
        /// The device.
        name: String,
        /// The step that failed.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}
