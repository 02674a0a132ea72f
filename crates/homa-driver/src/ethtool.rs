//! Settings of a network device, queried as `ethtool` does.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use socket2::{Domain, Socket, Type};

/// Commands of linux/ethtool.h, and the length of a command's structure in 32-bit words, including the
/// command.
const GET_COALESCE: u32 = 0x0e;
const COALESCE_WORDS: usize = 23;
const GET_TSO: u32 = 0x1e;
const GET_GSO: u32 = 0x23;
const GET_FLAGS: u32 = 0x25;
const GET_GRO: u32 = 0x2b;

/// The GET_FLAGS bit for receive offload by the device (LRO).
const FLAG_LRO: u32 = 1 << 15;

/// Packet processing and interrupt settings of a device. A field is `None` if the device does not report the
/// setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceSettings {
    /// Whether consecutive packets are merged before the network stack processes them.
    pub gro: Option<bool>,
    /// Whether the device itself merges consecutive packets (TCP only).
    pub lro: Option<bool>,
    /// Whether runs of packets pass through the network stack as one and are segmented late.
    pub gso: Option<bool>,
    /// Whether the device segments large TCP packets.
    pub tso: Option<bool>,
    /// Interrupt coalescing.
    pub coalescing: Option<Coalescing>,
}

/// How long a device waits for more packets before it interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coalescing {
    /// Wait after a received packet, in microseconds.
    pub receive_us: u32,
    /// Number of received packets after which the device stops waiting; 0 means that only the time limits the
    /// wait.
    pub receive_frames: u32,
    /// Whether the device adapts both limits to the load.
    pub receive_adaptive: bool,
    /// Wait after a sent packet, in microseconds.
    pub send_us: u32,
}

/// Queries a device in the calling thread's network namespace. Requires no privilege and changes nothing.
///
/// # Errors
/// There is no such device, or no socket can be opened for the query.
pub fn device_settings(device: &str) -> io::Result<DeviceSettings> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    let value = |command: u32| match value(socket.as_fd(), device, command, 0) {
        // A name that is too long or contains a zero byte cannot belong to a device.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV) | None) => Err(error),
        value => Ok(value.ok()),
    };
    let is_on = |command| value(command).map(|value| value.map(|value| value != 0));
    Ok(DeviceSettings {
        gro: is_on(GET_GRO)?,
        lro: value(GET_FLAGS)?.map(|flags| flags & FLAG_LRO != 0),
        gso: is_on(GET_GSO)?,
        tso: is_on(GET_TSO)?,
        coalescing: coalescing(socket.as_fd(), device).ok(),
    })
}

fn coalescing(socket: BorrowedFd<'_>, device: &str) -> io::Result<Coalescing> {
    let mut words = [0; COALESCE_WORDS];
    words[0] = GET_COALESCE;
    // SAFETY: `words` is as long as `struct ethtool_coalesce`, which the command writes.
    unsafe { exchange(socket, device, &mut words)? };
    Ok(Coalescing {
        receive_us: words[1],
        receive_frames: words[2],
        receive_adaptive: words[10] != 0,
        send_us: words[5],
    })
}

/// Runs a command whose structure is `struct ethtool_value`, which gets or sets one number.
pub(crate) fn value(socket: BorrowedFd<'_>, device: &str, command: u32, data: u32) -> io::Result<u32> {
    let mut words = [command, data];
    // SAFETY: `words` is as long as `struct ethtool_value`, which the callers' commands write.
    unsafe { exchange(socket, device, &mut words)? };
    Ok(words[1])
}

/// Sends a command, which is the first word, through any socket of the device's network namespace. The answer
/// overwrites `words`.
///
/// # Safety
/// The structure of the command must have no more than `WORDS` words, and no pointers.
pub(crate) unsafe fn exchange<const WORDS: usize>(
    socket: BorrowedFd<'_>,
    device: &str,
    words: &mut [u32; WORDS],
) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid value of the structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if device.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, &from) in request.ifr_name.iter_mut().zip(device.as_bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the descriptor is open while it is borrowed, the name ends with a zero byte, and the caller
    // guarantees that the data has room for the structure of the command.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &raw mut request) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_merges_and_cuts_late_and_has_no_interrupts() {
        let settings = device_settings("lo").expect("loopback");
        assert!(settings.gso.is_some() && settings.gro.is_some(), "{settings:?}");
        assert_eq!(settings.coalescing, None);
    }

    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        assert_eq!(device_settings("none").expect_err("no device").raw_os_error(), Some(libc::ENODEV));
        assert!(device_settings("a-name-that-is-too-long").is_err());
    }
}
