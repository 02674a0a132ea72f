//! Network devices of the calling thread's network namespace: names, state, attached XDP programs, and the
//! programs that configure them.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::BorrowedFd;
use std::process::Command;

use homa_bpf::link::Place;

use crate::l2::netlink::Netlink;

pub use crate::l2::interface::{InterfaceState, NamedInterface, by_name, names};
pub use crate::l2::netlink::XdpProgram;

/// Returns the XDP program that the device with this index runs, however it was attached; `None` if it has no
/// program.
///
/// # Errors
/// The error of the kernel; ENODEV if there is no such device.
pub fn xdp_program(device: u32) -> io::Result<Option<XdpProgram>> {
    Netlink::open()?.xdp_program(device)
}

/// Attaches an XDP program, which stays attached until it is detached or the device is removed. With `None`,
/// detaches such a program.
///
/// # Errors
/// The error of the kernel: EBUSY or EEXIST if the device already runs a program.
pub fn set_xdp_program(device: u32, program: Option<BorrowedFd<'_>>, place: Place) -> io::Result<()> {
    Netlink::open()?.set_xdp_program(device, program, place.flag())
}

/// Returns a command that runs a program for network administration, such as `tc` or `nft`. The program is
/// looked up in `PATH`, then in `/usr/sbin` and `/sbin`: Debian installs these programs there, and leaves both
/// directories out of the `PATH` of ordinary users.
#[must_use]
pub fn admin_command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", with_sbin(std::env::var_os("PATH").as_deref()));
    command
}

/// Appends `/usr/sbin` and `/sbin` to a list of directories. Without a list, adds the directories that the C
/// library searches if there is no `PATH`, because it no longer does so once `PATH` is set.
fn with_sbin(path: Option<&OsStr>) -> OsString {
    let mut path = path.unwrap_or(OsStr::new("/bin:/usr/bin")).to_owned();
    path.push(":/usr/sbin:/sbin");
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_up_in_sbin_last() {
        assert_eq!(with_sbin(Some(OsStr::new("/opt/bin:/usr/bin"))), "/opt/bin:/usr/bin:/usr/sbin:/sbin");
        assert_eq!(with_sbin(None), "/bin:/usr/bin:/usr/sbin:/sbin");
    }
}
