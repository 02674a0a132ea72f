//! What only AF_XDP wants to know of a device: its receive queues, and what program is attached.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::link::netlink::Netlink;

/// Of linux/ethtool.h: tells how many queues a device has.
const ETHTOOL_GET_CHANNELS: u32 = 0x3c;

#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    max_receive: u32,
    max_send: u32,
    max_other: u32,
    max_combined: u32,
    receive: u32,
    send: u32,
    other: u32,
    combined: u32,
}

/// Number of receive queues of a device, asked through any socket of its network namespace. 1 where it does not tell.
pub(super) fn receive_queues(socket: BorrowedFd<'_>, device: &str) -> u32 {
    channels(socket, device).map_or(1, |channels| (channels.receive + channels.combined).max(1))
}

fn channels(socket: BorrowedFd<'_>, name: &str) -> io::Result<Channels> {
    let mut channels = Channels { command: ETHTOOL_GET_CHANNELS, ..Channels::default() };
    // SAFETY: all-zero bytes are a value of the structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, &from) in request.ifr_name.iter_mut().zip(name.as_bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut channels).cast();
    // SAFETY: the descriptor is open while it is borrowed, the name ends with a zero byte, and the data is the structure of the
    // command that it begins with.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &raw mut request) };
    if result == 0 { Ok(channels) } else { Err(io::Error::last_os_error()) }
}

/// Id of the XDP program that is attached to a device.
pub(super) fn attached_program(interface: u32) -> Option<u32> {
    Netlink::open().ok()?.xdp_program(interface).ok()?
}
