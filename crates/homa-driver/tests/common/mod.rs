//! Code shared by the tests.
#![allow(dead_code, reason = "each test program uses its part")]

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, BorrowedFd};

use homa_driver::{Driver, RxBurst, TxPacket};

/// Time limit in milliseconds; a test that waits longer has failed.
const PATIENCE_MS: i32 = 60_000;

/// Returns loopback addresses with port 0, for the IP versions that this machine supports.
pub fn hosts() -> Vec<&'static str> {
    if UdpSocket::bind("[::1]:0").is_ok() {
        return vec!["127.0.0.1:0", "[::1]:0"];
    }
    homa_testkit::skip("the IPv6 part, this machine has no ::1");
    vec!["127.0.0.1:0"]
}

/// Returns bytes whose values identify the packet and every offset in it.
pub fn message(length: usize, number: u8) -> Vec<u8> {
    (0..length).map(|i| (i / 251) as u8 ^ (i as u8).wrapping_mul(31) ^ number.wrapping_mul(73)).collect()
}

/// Creates packets to one peer, with their first 28 bytes as the header.
pub fn packets(to: SocketAddr, priority: u8, bytes: &[Vec<u8>]) -> Vec<TxPacket<'_>> {
    let split = |bytes: &'_ Vec<u8>| bytes.len().min(28);
    bytes
        .iter()
        .map(|bytes| TxPacket {
            to,
            priority,
            header: &bytes[..split(bytes)],
            payload: &bytes[split(bytes)..],
        })
        .collect()
}

fn poll(fd: BorrowedFd<'_>, timeout_ms: i32) -> bool {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: there is one entry, and the count is one.
    let ready = unsafe { libc::poll(&raw mut entry, 1, timeout_ms) };
    assert!(ready >= 0, "poll: {}", std::io::Error::last_os_error());
    ready > 0
}

pub fn is_readable(fd: BorrowedFd<'_>) -> bool {
    poll(fd, 0)
}

pub fn poll_readable(fd: BorrowedFd<'_>) {
    assert!(poll(fd, PATIENCE_MS), "nothing came within {PATIENCE_MS} ms");
}

/// Receives packets until there are `count`, and returns the priority of each.
pub fn receive_priorities(driver: &mut (impl Driver + ?Sized), count: usize) -> Vec<Option<u8>> {
    let mut burst = RxBurst::new();
    let mut got = Vec::new();
    while got.len() < count {
        poll_readable(driver.poll_fd().expect("a driver with a descriptor"));
        driver.receive(&mut burst).unwrap();
        got.extend((0..burst.len()).map(|index| burst.priority(index)));
    }
    got
}

/// Receives exactly this many packets.
pub fn receive_packets(driver: &mut (impl Driver + ?Sized), count: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut burst = RxBurst::new();
    let mut got = Vec::new();
    while got.len() < count {
        poll_readable(driver.poll_fd().expect("a driver with a descriptor"));
        driver.receive(&mut burst).unwrap();
        got.extend(burst.iter().map(|(from, packet)| (from, packet.to_vec())));
    }
    assert_eq!(got.len(), count, "more came than was sent");
    got
}
