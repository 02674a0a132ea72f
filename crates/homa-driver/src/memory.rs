//! A driver for tests of wrappers. It records sent packets and returns packets that the test provides.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use crate::burst::RxBurst;
use crate::driver::{BufferSizes, Driver, DriverStats, TxPacket, UnreachableReport};

#[derive(Debug, Default)]
pub(crate) struct MemoryDriver {
    /// Priority and bytes of each sent packet.
    pub(crate) sent: Vec<(u8, Vec<u8>)>,
    pub(crate) arriving: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Number of packets that the driver still accepts; unlimited if `None`.
    pub(crate) room: Option<usize>,
    /// The local address; 127.0.0.1:4000 if `None`.
    pub(crate) local: Option<SocketAddr>,
}

impl Driver for MemoryDriver {
    fn local_addr(&self) -> SocketAddr {
        self.local.unwrap_or_else(|| ([127, 0, 0, 1], 4_000).into())
    }

    fn max_packet(&self, _: SocketAddr) -> usize {
        1_472
    }

    fn send(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        let count = self.room.unwrap_or(usize::MAX).min(packets.len());
        self.room = self.room.map(|room| room - count);
        let bytes = |packet: &TxPacket<'_>| (packet.priority, [packet.header, packet.payload].concat());
        self.sent.extend(packets[..count].iter().map(bytes));
        Ok(count)
    }

    fn receive(&mut self, burst: &mut RxBurst) -> io::Result<usize> {
        burst.clear();
        while let Some((from, bytes)) = self.arriving.front() {
            if !burst.push(*from, bytes) {
                break;
            }
            self.arriving.pop_front();
        }
        Ok(burst.len())
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn poll_unreachable(&mut self) -> Option<UnreachableReport> {
        None
    }

    fn link_mbps(&self) -> Option<u32> {
        None
    }

    fn buffer_sizes(&self) -> Option<BufferSizes> {
        None
    }

    fn stats(&self) -> DriverStats {
        DriverStats::default()
    }
}
