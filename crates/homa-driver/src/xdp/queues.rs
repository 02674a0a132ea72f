//! Properties of a device that only AF_XDP needs: its receive queues, and the attached program.

use std::os::fd::BorrowedFd;

use crate::ethtool::exchange;
use crate::netdev;

/// Command of linux/ethtool.h that returns the number of queues of a device.
const ETHTOOL_GET_CHANNELS: u32 = 0x3c;

/// Words of the command's structure: the command; the maximum numbers of receive, send, other and combined
/// queues; and the current numbers of each.
const CHANNELS_WORDS: usize = 9;

/// Returns the number of receive queues of a device, queried through any socket of its network namespace, or
/// 1 if the device does not report the number.
pub(super) fn receive_queues(socket: BorrowedFd<'_>, device: &str) -> u32 {
    let mut words = [0; CHANNELS_WORDS];
    words[0] = ETHTOOL_GET_CHANNELS;
    // SAFETY: `words` is as long as `struct ethtool_channels`, which the command writes.
    let asked = unsafe { exchange(socket, device, &mut words) };
    let [.., receive, _, _, combined] = words;
    asked.map_or(1, |()| (receive + combined).max(1))
}

/// Returns the ID of the XDP program that is attached to a device.
pub(super) fn attached_program(interface: u32) -> Option<u32> {
    netdev::xdp_program(interface).ok()?.map(|program| program.id)
}
