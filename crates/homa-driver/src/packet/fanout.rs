//! Several rings at one address (PACKET_FANOUT), and the program with which the kernel selects a ring for a
//! frame.
//!
//! The program selects by the RPC ID, like the program for sockets at one address. It sees every frame of the
//! device, from its IP header on. Foreign frames may go to any ring, since each ring's filter drops them.
//! Frames too short to have an ID go to the first ring. The kernel numbers the sockets in the order in which
//! they join.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use homa_bpf::classic::{
    self, Instruction, LOAD_WORD_X, MODULO, Purpose, RETURN_A, SHIFT_RIGHT, X_HEADER, X_NUMBER, plain,
};

use super::{PacketDriver, failed};
use crate::carrier::Carrier;
use crate::l2::LinkError;
use crate::raw::program::ID_LOW_AT;
use crate::socket::option;

/// Builds a program that returns the index of the ring for a frame to this driver: (lower 32 bits of the RPC
/// ID / 2) modulo the number of rings.
fn build(carrier: Carrier, local: SocketAddr, rings: u32) -> [Instruction; 5] {
    let udp_bytes = if carrier == Carrier::Udp { 8 } else { 0 };
    [
        if local.is_ipv4() { plain(X_HEADER, 0) } else { plain(X_NUMBER, 40) },
        plain(LOAD_WORD_X, udp_bytes + ID_LOW_AT),
        plain(SHIFT_RIGHT, 1),
        plain(MODULO, rings),
        plain(RETURN_A, 0),
    ]
}

/// Makes the kernel select among the rings of these drivers, which are bound to one address of one device.
pub(super) fn join(group: &[PacketDriver]) -> Result<(), LinkError> {
    let Some(first) = group.first() else { return Ok(()) };
    let refused = |step| {
        move |source: io::Error| match source.raw_os_error() {
            Some(libc::EINVAL | libc::ENOPROTOOPT) => {
                LinkError::NoSteering { name: first.device.interface().name.clone() }
            }
            _ => failed(&first.device, step)(source),
        }
    };
    let level = libc::SOL_PACKET;
    // Kernels that do not support the flag for outgoing frames ignore it; the filter of each ring then drops
    // these frames.
    let kind = libc::PACKET_FANOUT_CBPF | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
    // The kernel picks an ID that no other group has, so that the drivers do not join someone else's group.
    let founding = (kind | libc::PACKET_FANOUT_FLAG_UNIQUEID) << 16;
    let founder = first.socket.as_fd();
    option::set(founder, level, libc::PACKET_FANOUT, founding as libc::c_int)
        .map_err(refused("making a group of rings"))?;
    let made = option::get(founder, level, libc::PACKET_FANOUT);
    let number = made.map_err(refused("reading the number of a group"))? as u32 & 0xffff;
    for driver in &group[1..] {
        let joining = (kind << 16 | number) as libc::c_int;
        option::set(driver.socket.as_fd(), level, libc::PACKET_FANOUT, joining)
            .map_err(refused("joining a group of rings"))?;
    }
    let program = build(first.device.carrier(), first.device.local(), group.len() as u32);
    classic::attach(founder, Purpose::Fanout, &program).map_err(refused("steering frames among its rings"))
}
