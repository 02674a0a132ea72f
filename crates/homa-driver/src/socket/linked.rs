//! A [`PacketSocket`] in which packets wait only for their own link.
//!
//! While there is room, all packets go through the main socket, and links are not looked up. If the main
//! socket accepts nothing for a while and this host has peers behind several links, each link gets its own
//! socket ([`LinkSockets`]). If a link then accepts nothing, packets that do not fit into its socket are
//! lost, as at any full queue; packets on other links continue. The link sockets are closed when no link is
//! stuck and all sockets have room.
//!
//! A host whose peers are all behind one link waits for that link indefinitely.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use super::link_sockets::LinkSockets;
use super::links::Links;
use super::stall::{LOOK_NS, RETRY_NS, StallDetector};
use super::{BindError, NetworkError, PacketSocket, SocketConfig};
use crate::driver::{DriverStats, SentPacket, TxPacket, UnreachableReport};

/// Delay before the next attempt to open link sockets after a failure. Possible causes: no descriptors, a
/// dropped privilege, or a sending thread in a different network namespace from the host.
const OPEN_AGAIN_NS: u64 = 100_000_000;

/// A main socket and, while a link is stuck, additional sockets for sending.
pub(crate) struct LinkedSocket {
    pub(crate) main: PacketSocket,
    config: SocketConfig,
    /// Whether the socket is one of several at its address, among which a program selects.
    grouped: bool,
    stamp_sent: bool,
    links: Links,
    link_sockets: Option<LinkSockets>,
    /// Detects that the main socket refuses packets for too long.
    refusals: StallDetector,
    /// Whether packets were refused since the main socket last accepted all packets offered.
    full: bool,
    /// Time of the next call that is due even if no packet arrives.
    due_ns: Option<u64>,
    /// Earliest time of the next attempt to open link sockets.
    alone_until_ns: u64,
    /// The origin of all times.
    start: Instant,
    /// Counters of closed sockets, and of packets dropped at stuck links.
    counted: DriverStats,
}

impl LinkedSocket {
    /// Opens and binds a socket.
    pub(crate) fn open(config: &SocketConfig) -> Result<LinkedSocket, BindError> {
        Ok(LinkedSocket::new(PacketSocket::open(config)?, config, false))
    }

    /// Like [`PacketSocket::open_group`].
    pub(crate) fn open_group(config: &SocketConfig, count: u32) -> Result<Vec<LinkedSocket>, BindError> {
        let group = PacketSocket::open_group(config, count)?;
        Ok(group.into_iter().map(|socket| LinkedSocket::new(socket, config, count > 1)).collect())
    }

    /// Wraps a socket that is already open.
    pub(crate) fn with(main: PacketSocket, config: &SocketConfig) -> LinkedSocket {
        LinkedSocket::new(main, config, false)
    }

    fn new(main: PacketSocket, config: &SocketConfig, grouped: bool) -> LinkedSocket {
        LinkedSocket {
            links: Links::new(main.local_addr().ip()),
            main,
            config: config.clone(),
            grouped,
            stamp_sent: false,
            link_sockets: None,
            refusals: StallDetector::default(),
            full: false,
            due_ns: None,
            alone_until_ns: 0,
            start: Instant::now(),
            counted: DriverStats::default(),
        }
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Implements [`Driver::send`](crate::Driver::send).
    pub(crate) fn send(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        if self.due_ns.is_some() {
            self.run_due_work();
        }
        if self.link_sockets.is_some() {
            return self.send_by_link(packets);
        }
        let taken = self.main.send(packets)?;
        if taken == packets.len() {
            if self.full && taken > 0 {
                self.full = false;
                self.refusals.note_accepted_all();
                self.due_ns = None;
            }
            return Ok(taken);
        }
        if !self.leave_main(&packets[taken..], taken > 0) {
            return Ok(taken);
        }
        // The next call returns the error again; this call must return the number of accepted packets.
        Ok(taken + self.send_by_link(&packets[taken..]).unwrap_or(0))
    }

    /// Handles packets for which the main socket had no room. Returns whether packets are sent by link from
    /// now on.
    fn leave_main(&mut self, refused: &[TxPacket<'_>], taken: bool) -> bool {
        let now_ns = self.now_ns();
        self.full = true;
        let stuck = self.refusals.refused(now_ns, taken);
        if now_ns < self.alone_until_ns || !self.links.use_several_links(self.main.known_peers(), now_ns) {
            self.due_ns = None;
            return false;
        }
        if !stuck {
            self.due_ns = Some(now_ns + RETRY_NS);
            return false;
        }
        let link = self.links.link_of(refused[0].to, now_ns);
        match LinkSockets::open(&self.main, &self.config, (self.grouped, self.stamp_sent), link) {
            Ok(link_sockets) => self.link_sockets = Some(link_sockets),
            Err(_) => self.alone_until_ns = now_ns + OPEN_AGAIN_NS,
        }
        self.due_ns = self.link_sockets.is_some().then_some(now_ns + LOOK_NS);
        self.link_sockets.is_some()
    }

    /// Sends each packet through the socket for its link.
    fn send_by_link(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        let now_ns = self.now_ns();
        let Some(link_sockets) = &mut self.link_sockets else { return Ok(0) };
        let mut taken = 0;
        while taken < packets.len() {
            let left = &packets[taken..];
            let link = self.links.link_of(left[0].to, now_ns);
            let same = |packet: &&TxPacket<'_>| {
                packet.to == left[0].to || self.links.link_of(packet.to, now_ns) == link
            };
            let run = &left[..left.iter().take_while(same).count()];
            let offered = match link_sockets.send(&self.main, link, run, now_ns) {
                Ok(offered) => offered,
                Err(error) if taken == 0 => return Err(error),
                Err(_) => break,
            };
            self.main.note_sent(&run[..offered.taken]);
            taken += offered.taken;
            if offered.taken == run.len() {
                continue;
            }
            if !offered.stuck {
                self.due_ns = Some(now_ns + RETRY_NS);
                break;
            }
            // Later packets do not wait for a link that accepts nothing. RESEND recovers the dropped ones.
            let dropped = run.len() - offered.taken;
            self.counted.send_errors.link_stuck += dropped as u64;
            taken += dropped;
        }
        Ok(taken)
    }

    /// Does the work that is due.
    fn run_due_work(&mut self) {
        let now_ns = self.now_ns();
        if self.due_ns.is_none_or(|due_ns| now_ns < due_ns) {
            return;
        }
        self.due_ns = None;
        let Some(link_sockets) = &mut self.link_sockets else { return };
        if !link_sockets.are_over(&self.main, now_ns) {
            self.due_ns = Some(now_ns + LOOK_NS);
            return;
        }
        self.counted = self.counted.plus(link_sockets.close(&self.main));
        self.link_sockets = None;
        self.full = false;
        self.refusals = StallDetector::default();
    }

    /// Implements [`Driver::poll_timeout`](crate::Driver::poll_timeout).
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.due_ns.map(|due_ns| due_ns.saturating_sub(self.now_ns()))
    }

    /// Implements [`Driver::shows_room`](crate::Driver::shows_room).
    pub(crate) fn shows_room(&self) -> bool {
        self.link_sockets.is_none()
    }

    pub(crate) fn max_packet(&self, to: SocketAddr) -> usize {
        let others =
            self.link_sockets.as_ref().map_or(usize::MAX, |link_sockets| link_sockets.max_packet(to));
        self.main.max_packet(to).min(others)
    }

    /// Implements [`Driver::poll_unreachable`](crate::Driver::poll_unreachable).
    pub(crate) fn poll_unreachable(&mut self) -> Option<UnreachableReport> {
        let report = self.main.poll_unreachable();
        report.or_else(|| self.link_sockets.as_mut()?.poll_unreachable())
    }

    /// Returns the oldest report that has not been returned yet; see [`PacketSocket::share_reports`].
    pub(crate) fn take_shared_report(&mut self) -> Option<NetworkError> {
        let report = self.main.take_shared_report();
        report.or_else(|| self.link_sockets.as_mut()?.take_shared_report())
    }

    /// Implements [`Driver::stamp_sent`](crate::Driver::stamp_sent).
    pub(crate) fn stamp_sent(&mut self) -> bool {
        self.stamp_sent = self.main.stamp_sent();
        if let Some(link_sockets) = self.link_sockets.as_mut().filter(|_| self.stamp_sent) {
            link_sockets.stamp_sent();
        }
        self.stamp_sent
    }

    /// Implements [`Driver::poll_sent`](crate::Driver::poll_sent).
    pub(crate) fn poll_sent(&mut self) -> Option<SentPacket> {
        let sent = self.main.poll_sent();
        sent.or_else(|| self.link_sockets.as_mut()?.poll_sent())
    }

    pub(crate) fn stats(&self) -> DriverStats {
        let others = self.link_sockets.as_ref().map(LinkSockets::stats).unwrap_or_default();
        self.main.stats().plus(others).plus(self.counted)
    }
}
