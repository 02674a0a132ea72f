//! Handing packets over to other processes, as the user of a driver sees it.

use std::io;
use std::net::SocketAddr;

/// A packet to hand over, as it was received.
#[derive(Clone, Copy, Debug)]
pub struct HandedPacket<'a> {
    /// Sender of the packet.
    pub from: SocketAddr,
    /// See [`RxBurst::priority`](crate::RxBurst::priority).
    pub priority: Option<u8>,
    /// See [`RxBurst::received_at`](crate::RxBurst::received_at).
    pub received_at: Option<u64>,
    /// The packet, from its Homa header on.
    pub bytes: &'a [u8],
}

/// Hands packets over between the processes that share a path, one of which receives the packets of all. Each
/// process is a member of a group and has a slot in it, 0 to 63. Sets of slots are bit masks.
pub trait Exchange {
    /// Returns a number that identifies the shared path: processes with the same number receive the same
    /// packets. Never 0.
    fn path(&self) -> u64;

    /// Joins the group with this name as the member in `slot`.
    ///
    /// # Errors
    /// The system does not allow opening a socket.
    fn join(&mut self, group: &str, slot: u32) -> io::Result<()>;

    /// Hands a packet over to the processes in these slots. Packets may be batched until [`Exchange::flush`].
    /// Packets that a process does not accept are dropped and counted.
    fn hand_over(&mut self, slots: u64, packet: &HandedPacket<'_>);

    /// Sends all batched packets.
    fn flush(&mut self);

    /// Returns this host's Homa port in the packet that the oldest network report quotes. The report concerns
    /// the process that has this port. `None` if there is no report.
    fn next_report(&mut self) -> Option<u16>;

    /// Hands the oldest report over to the processes in these slots, possibly none. This process itself has
    /// already used every report of its path.
    fn hand_over_report(&mut self, slots: u64);
}
