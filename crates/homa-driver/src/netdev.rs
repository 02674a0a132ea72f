//! Network devices of the calling thread's network namespace: names, state, and attached XDP programs.

use std::io;
use std::os::fd::BorrowedFd;

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
