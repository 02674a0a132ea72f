//! Turns off offloads of a network device: packet processing that it does on behalf of the kernel.
//!
//! A virtual device passes a 64 KB packet that "the hardware" should segment, or a checksum that it should
//! compute, unchanged to its other end. If the other end simulates a wire, such packets are wrong: no wire
//! could carry them.

use std::io;
use std::os::fd::AsFd;

use socket2::{Domain, Socket, Type};

use crate::ethtool::value;

/// Commands of linux/ethtool.h that set segmentation offload (TSO for TCP, GSO for the rest), receive merging
/// (GRO) and checksum offload. Checksum offload is turned off last, since segmentation offload needs it. If
/// the kernel refuses to turn off only one of the two, segmentation offload is already off by then.
const SET_TSO: u32 = 0x1f;
const SET_GSO: u32 = 0x24;
const SET_GRO: u32 = 0x2c;
const SET_TX_CHECKSUMS: u32 = 0x17;

/// Turns off segmentation, merging and checksum offloads on this device of the calling thread's network
/// namespace. The device then sends whole packets with complete checksums.
///
/// # Errors
/// There is no such device, it cannot work without offloads, or the caller lacks CAP_NET_ADMIN.
pub fn put_offloads_off(device: &str) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    let off = [SET_TSO, SET_GSO, SET_GRO, SET_TX_CHECKSUMS];
    off.into_iter().try_for_each(|command| value(socket.as_fd(), device, command, 0).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        assert!(put_offloads_off("no-such-device").is_err());
        assert_eq!(put_offloads_off("none").expect_err("no device").raw_os_error(), Some(libc::ENODEV));
    }
}
