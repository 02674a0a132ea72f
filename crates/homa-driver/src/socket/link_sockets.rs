//! Send-only sockets at one address, one for each link.
//!
//! The kernel charges the unsent bytes of a link to the sending socket. With a socket per link, a stuck link
//! fills only its own socket, and there is room for packets on other links.
//!
//! Over UDP the sockets share the address of the main socket (SO_REUSEPORT). The program that selects among
//! the main sockets of a group never selects a link socket: the kernel numbers sockets in the order in which
//! they were bound, and link sockets come last. A lone main socket has no such program at first, and gets one
//! when the first link socket is bound. For a few microseconds in between, packets may go to the new socket,
//! whose filter drops them; the protocol recovers from this as from any loss. Over raw IP every socket is
//! offered all packets, and the filter drops those too.
//!
//! The address is shared until the last of these sockets is closed. A child process that was forked in the
//! meantime has copies of them until it calls exec.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::links::Link;
use super::stall::StallDetector;
use super::{BindError, NetworkError, PacketSocket, SocketConfig, steer};
use crate::carrier::Carrier;
use crate::driver::{DriverStats, SentPacket, TxPacket, UnreachableReport};

/// Maximum number of sockets in addition to the main one. Any further links share the last socket.
const LINK_SOCKETS_MAX: usize = 8;

/// `SO_NETNS_COOKIE` (`asm-generic/socket.h`): a number that identifies the network namespace of a socket.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// The socket for one link.
struct LinkSocket {
    link: Link,
    socket: PacketSocket,
    stall: StallDetector,
}

/// The link sockets of one main socket.
pub(super) struct LinkSockets {
    config: SocketConfig,
    /// Whether the main socket is one of several at its address, among which a program selects.
    grouped: bool,
    /// Whether the kernel reports when it passes packets to the device.
    stamp_sent: bool,
    all: Vec<LinkSocket>,
}

/// The result of offering packets to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SendOutcome {
    /// Number of packets that the link's socket accepted, or that were refused individually.
    pub(super) taken: usize,
    /// Whether the link is stuck and had no room for the rest, so that later packets must not wait for it.
    pub(super) stuck: bool,
}

impl LinkSockets {
    /// Allows other sockets to join the main socket, and opens the socket for one link.
    pub(super) fn open(
        main: &PacketSocket,
        config: &SocketConfig,
        (grouped, stamp_sent): (bool, bool),
        link: Link,
    ) -> Result<LinkSockets, BindError> {
        let mut bind = main.local;
        if config.carrier == Carrier::Ip {
            // For raw IP, the kernel returns the protocol number as the port.
            bind.set_port(0);
        }
        let joins = config.carrier == Carrier::Udp;
        // Keep the receive buffer as large as the main socket's: network reports use it.
        let config = SocketConfig { bind, joins, silent: true, ..config.clone() };
        let mut sockets =
            LinkSockets { config, grouped, stamp_sent, all: Vec::with_capacity(LINK_SOCKETS_MAX) };
        let opened = sockets.open_first(main, link);
        if opened.is_err() {
            sockets.close(main);
        }
        opened.map(|()| sockets)
    }

    fn open_first(&mut self, main: &PacketSocket, link: Link) -> Result<(), BindError> {
        let lone = self.config.joins && !self.grouped;
        if lone {
            main.share_address()?;
        }
        self.add(main, link)?;
        if lone {
            let fail =
                |source| BindError::new(self.config.carrier, main.local, "steering packets to it", source);
            steer::attach(main.fd(), 1).map_err(fail)?;
        }
        Ok(())
    }

    /// Opens a socket for one more link.
    fn add(&mut self, main: &PacketSocket, link: Link) -> Result<(), BindError> {
        let mut socket = PacketSocket::open(&self.config)?;
        // The sending thread may be in a different network namespace from the host.
        if namespace_of(socket.fd()) != namespace_of(main.fd()) {
            return Err(BindError::NotLocal(main.local));
        }
        if self.stamp_sent {
            socket.stamp_sent();
        }
        if main.shares_reports() {
            socket.share_reports();
        }
        self.all.push(LinkSocket { link, socket, stall: StallDetector::default() });
        Ok(())
    }

    /// Closes all sockets and returns the sum of their counters.
    pub(super) fn close(&mut self, main: &PacketSocket) -> DriverStats {
        let stats = self.stats();
        self.all.clear();
        if self.config.joins && !self.grouped {
            // No other socket may share the address from now on. The call cannot fail, since the option is
            // supported.
            let _ = main.socket.set_reuse_port(false);
        }
        stats
    }

    /// Returns the index of the socket for this link, or of a shared socket if no new one can be opened.
    fn index_of(&mut self, main: &PacketSocket, link: Link) -> usize {
        let known = |all: &[LinkSocket]| all.iter().position(|link_socket| link_socket.link == link);
        if let Some(index) = known(&self.all) {
            return index;
        }
        if self.all.len() < LINK_SOCKETS_MAX {
            // Descriptors or memory may be temporarily exhausted.
            let _ = self.add(main, link);
        }
        known(&self.all).unwrap_or(self.all.len() - 1)
    }

    /// Sends packets that leave through this link.
    ///
    /// # Errors
    /// The errors of [`PacketSocket::send`].
    pub(super) fn send(
        &mut self,
        main: &PacketSocket,
        link: Link,
        packets: &[TxPacket<'_>],
        now_ns: u64,
    ) -> io::Result<SendOutcome> {
        let index = self.index_of(main, link);
        let link_socket = &mut self.all[index];
        let taken = link_socket.socket.send(packets)?;
        let stuck = if taken == packets.len() {
            link_socket.stall.note_accepted_all();
            false
        } else {
            link_socket.stall.refused(now_ns, taken > 0)
        };
        for (other, link_socket) in self.all.iter_mut().enumerate() {
            // The kernel may give a network report to any of the sockets at an address.
            if other != index {
                link_socket.socket.note_sent(&packets[..taken]);
            }
        }
        Ok(SendOutcome { taken, stuck })
    }

    /// Whether no link is stuck any longer, and the main socket and all link sockets have room.
    pub(super) fn are_over(&mut self, main: &PacketSocket, now_ns: u64) -> bool {
        let fds: Vec<_> = [main.fd()]
            .into_iter()
            .chain(self.all.iter().map(|link_socket| link_socket.socket.fd()))
            .collect();
        let room = have_room(&fds);
        let mut over = room[0];
        for (link_socket, &room) in self.all.iter_mut().zip(&room[1..]) {
            over &= link_socket.stall.is_over(now_ns, room);
        }
        over
    }

    /// Returns the length of the longest packet to a peer, according to the network reports to these sockets.
    pub(super) fn max_packet(&self, to: std::net::SocketAddr) -> usize {
        self.all.iter().map(|link_socket| link_socket.socket.max_packet(to)).min().unwrap_or(usize::MAX)
    }

    /// Like [`PacketSocket::poll_unreachable`]. Over raw IP the main socket also receives all reports.
    pub(super) fn poll_unreachable(&mut self) -> Option<UnreachableReport> {
        if self.config.carrier == Carrier::Ip {
            return None;
        }
        self.all.iter_mut().find_map(|link_socket| {
            link_socket.socket.read_reports();
            link_socket.socket.poll_unreachable()
        })
    }

    /// Like [`PacketSocket::take_shared_report`].
    pub(super) fn take_shared_report(&mut self) -> Option<NetworkError> {
        self.all.iter_mut().find_map(|link_socket| link_socket.socket.take_shared_report())
    }

    pub(super) fn poll_sent(&mut self) -> Option<SentPacket> {
        self.all.iter_mut().find_map(|link_socket| link_socket.socket.poll_sent())
    }

    /// Makes the kernel report when it passes each subsequent packet to the device.
    pub(super) fn stamp_sent(&mut self) {
        self.stamp_sent = true;
        for link_socket in &mut self.all {
            link_socket.socket.stamp_sent();
        }
    }

    pub(super) fn stats(&self) -> DriverStats {
        let mut stats = self
            .all
            .iter()
            .map(|link_socket| link_socket.socket.stats())
            .fold(DriverStats::default(), DriverStats::plus);
        if self.config.carrier == Carrier::Ip {
            // The main socket has received and counted the same reports.
            stats.network_errors = 0;
        }
        stats
    }
}

/// Returns a number that identifies the network namespace of a socket, or 0 on kernels before 5.14, which do
/// not support this.
fn namespace_of(fd: BorrowedFd<'_>) -> u64 {
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed, and the kernel writes at most `length` bytes to
    // `cookie`, which is `length` bytes long.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if result == 0 { cookie } else { 0 }
}

/// Returns, for each socket, whether less than half of its send buffer is in use.
fn have_room(fds: &[BorrowedFd<'_>]) -> Vec<bool> {
    let mut entries: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::OUT)).collect();
    // If the call fails, every socket counts as full.
    let _ = poll(&mut entries, Some(&Timespec::default()));
    entries.iter().map(|entry| entry.revents().contains(PollFlags::OUT)).collect()
}
