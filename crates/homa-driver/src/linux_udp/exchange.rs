//! Handing packets over between the processes that share a UDP port (HOST-13).
//!
//! One process receives the packets of all processes, and hands each packet to the process that owns its Homa
//! port. Each pair of processes has a connection, which is used in both directions. A process that joins
//! listens at a name derived from its slot in the group, and connects to all others before it opens a port.
//! The threads that drive a host later open no sockets, because they may be in another network namespace.
//!
//! Each connection has its own buffer, so a process that reads nothing delays no other. Packets that do not
//! fit are dropped and counted, as at a full receive buffer.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg, sendmsg};
use socket2::Socket;

use super::message::{HEADER_BYTES, Header, PacketInfo};
use super::names;
use crate::burst::{PACKET_BUFFER_BYTES, RxBurst};
use crate::exchange::{Exchange, HandedPacket};
use crate::socket::NetworkError;

/// Number of names a process may try: the first ones may be taken by processes of other users.
const NAMES: u32 = 8;

/// Number of slots in a group.
const SLOTS: u32 = u64::BITS;

/// Maximum number of connections: two to each other process, in case both processes have connected.
const MOST_CONNECTIONS: usize = 2 * SLOTS as usize;

/// Buffer size to request for each connection in bytes; the system grants up to net.core.wmem_max.
const CONNECTION_BYTES: usize = 2 << 20;

/// Maximum bytes of one message.
const MESSAGE_BYTES: usize = 60_000;

/// Maximum packets of one message: as many as the kernel merges.
const MESSAGE_PACKETS: usize = 64;

/// Maximum number of reports that wait to be handed over or processed.
const REPORTS: usize = 64;

/// Marks the listener among the connections.
const LISTENER: u64 = u64::MAX;

/// Counters of an exchange since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ExchangeCounts {
    /// Packets handed over to other processes.
    pub(super) handed_over: u64,
    /// Packets for other processes that were dropped because the process currently accepts none.
    pub(super) dropped: u64,
    /// Packets that other processes handed over.
    pub(super) taken: u64,
}

/// A connection to another process.
#[derive(Debug)]
struct Connection {
    socket: Socket,
    /// Slot of the peer process. If the peer opened the connection, this is `None` until its first message.
    slot: Option<u32>,
}

/// The sockets of a member of a group.
#[derive(Debug)]
struct Membership {
    listener: Socket,
    connections: Vec<Option<Connection>>,
    /// Index of the connection with the most recent message.
    last: usize,
}

/// Packets of one sender that will be handed over in one message.
#[derive(Debug)]
struct PendingMessage {
    slot: u32,
    info: PacketInfo,
    segment: usize,
    packets: usize,
    bytes: Vec<u8>,
}

/// This process's side of the exchange; see the [module](self).
#[derive(Debug)]
pub(super) struct SocketExchange {
    /// Polls the listener and the connections.
    poll: OwnedFd,
    member: Option<Membership>,
    pending: Option<PendingMessage>,
    /// Reports from the socket, for the processes whose packets they quote.
    reports: VecDeque<NetworkError>,
    /// Reports that other processes handed over.
    handed_reports: VecDeque<NetworkError>,
    path: u64,
    counts: ExchangeCounts,
}

impl SocketExchange {
    /// Creates the exchange of a path. `path` identifies the path and is not 0.
    pub(super) fn new(path: u64) -> io::Result<SocketExchange> {
        Ok(SocketExchange {
            poll: epoll::create(CreateFlags::CLOEXEC)?,
            member: None,
            pending: None,
            reports: VecDeque::new(),
            handed_reports: VecDeque::new(),
            path,
            counts: ExchangeCounts::default(),
        })
    }

    fn add(&mut self, connection: Connection) -> io::Result<()> {
        let Some(member) = &mut self.member else { return Ok(()) };
        let free = member.connections.iter().position(Option::is_none);
        let at = free.unwrap_or(member.connections.len());
        if at == MOST_CONNECTIONS {
            return Ok(());
        }
        // A smaller buffer than requested is not an error.
        let _ = connection.socket.set_send_buffer_size(CONNECTION_BYTES);
        epoll::add(&self.poll, &connection.socket, EventData::new_u64(at as u64), EventFlags::IN)?;
        if at == member.connections.len() {
            member.connections.push(None);
        }
        member.connections[at] = Some(connection);
        Ok(())
    }

    /// Returns a descriptor that is readable if there is something to receive.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.poll.as_fd()
    }

    /// Returns the counters so far.
    pub(super) fn counts(&self) -> ExchangeCounts {
        self.counts
    }

    fn hand_over_to(&mut self, slot: u32, packet: &HandedPacket<'_>) {
        let info = PacketInfo {
            from: packet.from,
            priority: packet.priority,
            time_ns: packet.received_at.unwrap_or(0),
        };
        if !self.pending.as_ref().is_some_and(|pending| pending.continues_with(slot, &info, packet.bytes)) {
            self.flush();
            let mut bytes = self.pending.take().map(|pending| pending.bytes).unwrap_or_default();
            bytes.clear();
            self.pending =
                Some(PendingMessage { slot, info, segment: packet.bytes.len(), packets: 0, bytes });
        }
        if let Some(pending) = &mut self.pending {
            pending.bytes.extend_from_slice(packet.bytes);
            pending.packets += 1;
        }
    }

    /// Adds a report from the socket.
    pub(super) fn add_report(&mut self, report: NetworkError) {
        if self.reports.len() < REPORTS {
            self.reports.push_back(report);
        }
    }

    /// Removes and returns a report that another process handed over.
    pub(super) fn take_handed_report(&mut self) -> Option<NetworkError> {
        self.handed_reports.pop_front()
    }

    /// Sends a message; returns whether it was sent.
    fn deliver(&mut self, slot: u32, header: &Header, bytes: &[u8]) -> bool {
        if self.connection(slot).is_none() {
            // A process that has just joined has connected, and may already have sent its slot.
            self.accept();
            let unknown = |connection: &Option<Connection>| {
                connection.as_ref().is_some_and(|connection| connection.slot.is_none())
            };
            let connections = self.member.as_ref().map_or(&[][..], |member| &member.connections[..]);
            for at in (0..connections.len()).filter(|&at| unknown(&connections[at])).collect::<Vec<_>>() {
                self.read_hello(at);
            }
        }
        // A connection may be left over from a process that has ended and whose slot now belongs to another
        // process.
        while let Some(at) = self.connection(slot) {
            let connection = self.member.as_ref().and_then(|member| member.connections[at].as_ref());
            let Some(connection) = connection else { return false };
            match send_message(&connection.socket, header, bytes) {
                Ok(()) => return true,
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM | Errno::INTR) => return false,
                Err(_) => self.close(at),
            }
        }
        false
    }

    /// Returns the index of the connection to the process with this slot: the latest one, if there are
    /// several.
    fn connection(&self, slot: u32) -> Option<usize> {
        let is_to = |connection: &Option<Connection>| {
            connection.as_ref().is_some_and(|connection| connection.slot == Some(slot))
        };
        self.member.as_ref()?.connections.iter().rposition(is_to)
    }

    /// Closes a connection. A forked child may have a copy of the socket, in which case closing our
    /// descriptor would not remove the socket from the poll.
    fn close(&mut self, at: usize) {
        let Some(member) = &mut self.member else { return };
        if let Some(connection) = member.connections[at].take() {
            let _ = epoll::delete(&self.poll, &connection.socket);
        }
    }

    fn accept(&mut self) {
        while let Some(Ok((socket, _))) = self.member.as_ref().map(|member| member.listener.accept()) {
            if names::is_trusted(&socket) && socket.set_nonblocking(true).is_ok() {
                // If there is no memory for the connection, it is not accepted, and the other process's
                // packets are lost.
                let _ = self.add(Connection { socket, slot: None });
            }
        }
    }

    /// Reads the first message of a connection, if it has arrived.
    fn read_hello(&mut self, at: usize) {
        let Some(connection) = self.member.as_mut().and_then(|member| member.connections[at].as_mut()) else {
            return;
        };
        let mut header = [0; HEADER_BYTES];
        match receive_message(&connection.socket, &mut header, &mut []) {
            Ok(_) => match Header::parse(&header) {
                Some(Header::Hello { slot }) => connection.slot = Some(slot),
                _ => self.close(at),
            },
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.close(at),
        }
    }

    /// Adds packets that other processes handed over to an empty burst.
    pub(super) fn receive(&mut self, burst: &mut RxBurst) {
        let Some(member) = &self.member else { return };
        self.read_from(member.last, burst);
        let mut events = Vec::with_capacity(16);
        let wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        if !burst.is_empty()
            || epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), Some(&wait)).is_err()
        {
            return;
        }
        for event in events {
            let Event { data, .. } = event;
            match data.u64() {
                LISTENER => self.accept(),
                at => self.read_from(at as usize, burst),
            }
        }
    }

    /// Receives messages of one connection while there are any and the burst has room.
    fn read_from(&mut self, at: usize, burst: &mut RxBurst) {
        loop {
            let Some(member) = &mut self.member else { return };
            let Some(connection) = member.connections.get_mut(at).and_then(Option::as_mut) else { return };
            if connection.slot.is_none() {
                self.read_hello(at);
                // The rest is read at the next call.
                return;
            }
            let start = burst.end();
            if burst.len() >= burst.max_packets() || burst.memory_mut().len() - start < PACKET_BUFFER_BYTES {
                return;
            }
            let mut header = [0; HEADER_BYTES];
            let memory = &mut burst.memory_mut()[start..start + PACKET_BUFFER_BYTES];
            let length = match receive_message(&connection.socket, &mut header, memory) {
                Ok(length) => length,
                Err(Errno::AGAIN | Errno::INTR) => return,
                Err(_) => return self.close(at),
            };
            member.last = at;
            match Header::parse(&header) {
                Some(Header::Packets { info, segment }) if length.div_ceil(segment) <= MESSAGE_PACKETS => {
                    let first = burst.len();
                    burst.note_datagram(info.from, start, length, segment);
                    burst.note_priority(first, info.priority);
                    burst.note_time(info.time_ns);
                    self.counts.taken += (burst.len() - first) as u64;
                }
                Some(header) => {
                    let quoted = &burst.memory_mut()[start..start + length];
                    if let Some(report) = header.report(quoted)
                        && self.handed_reports.len() < REPORTS
                    {
                        self.handed_reports.push_back(report);
                    }
                }
                None => {}
            }
        }
    }
}

impl Exchange for SocketExchange {
    fn path(&self) -> u64 {
        self.path
    }

    fn join(&mut self, group: &str, slot: u32) -> io::Result<()> {
        let prefix = |slot: u32| format!("homa-udp-mail/{group}/{slot}");
        let listener = names::listen(&prefix(slot), NAMES)?;
        epoll::add(&self.poll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        self.member = Some(Membership { listener, connections: Vec::new(), last: 0 });
        // A process that joins in the meantime finds the listener and connects to it.
        for other in (0..SLOTS).filter(|other| *other != slot) {
            let Some(socket) = names::connect_first(&prefix(other), NAMES) else { continue };
            if send_message(&socket, &Header::Hello { slot }, &[]).is_ok() {
                self.add(Connection { socket, slot: Some(other) })?;
            }
        }
        Ok(())
    }

    fn hand_over(&mut self, slots: u64, packet: &HandedPacket<'_>) {
        for slot in (0..u64::BITS).filter(|slot| slots >> slot & 1 == 1) {
            self.hand_over_to(slot, packet);
        }
    }

    fn flush(&mut self) {
        let Some(mut pending) = self.pending.take() else { return };
        if pending.packets > 0 {
            let header = Header::Packets { info: pending.info, segment: pending.segment };
            let count = pending.packets as u64;
            if self.deliver(pending.slot, &header, &pending.bytes) {
                self.counts.handed_over += count;
            } else {
                self.counts.dropped += count;
            }
        }
        // The memory is reused.
        pending.packets = 0;
        pending.bytes.clear();
        self.pending = Some(pending);
    }

    fn next_report(&mut self) -> Option<u16> {
        loop {
            match self.reports.front()?.quoted.source_port() {
                Some(port) => return Some(port),
                // The owner of the packet cannot be determined.
                None => drop(self.reports.pop_front()),
            }
        }
    }

    fn hand_over_report(&mut self, slots: u64) {
        let Some(report) = self.reports.pop_front() else { return };
        for slot in (0..u64::BITS).filter(|slot| slots >> slot & 1 == 1) {
            self.deliver(slot, &Header::of_report(&report), report.quoted.bytes());
        }
    }
}

/// Sends a message without blocking.
fn send_message(socket: &Socket, header: &Header, bytes: &[u8]) -> Result<(), Errno> {
    let header = header.encode();
    let parts = [&header[..], bytes].map(IoSlice::new);
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &parts, &mut SendAncillaryBuffer::default(), flags).map(drop)
}

/// Receives a message without blocking; returns the number of bytes after its header.
fn receive_message(
    socket: &Socket,
    header: &mut [u8; HEADER_BYTES],
    bytes: &mut [u8],
) -> Result<usize, Errno> {
    let mut parts = [IoSliceMut::new(header), IoSliceMut::new(bytes)];
    let mut control = RecvAncillaryBuffer::default();
    let received = recvmsg(socket, &mut parts, &mut control, RecvFlags::DONTWAIT)?;
    // The other process has ended, or has sent an invalid message.
    received.bytes.checked_sub(HEADER_BYTES).ok_or(Errno::CONNRESET)
}

impl PendingMessage {
    /// Whether the packet can be sent in the same message as those before it.
    fn continues_with(&self, slot: u32, info: &PacketInfo, bytes: &[u8]) -> bool {
        self.packets > 0
            && self.packets < MESSAGE_PACKETS
            && (self.slot, &self.info) == (slot, info)
            && bytes.len() <= self.segment
            && self.bytes.len() == self.packets * self.segment
            && self.bytes.len() + bytes.len() <= MESSAGE_BYTES
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // A forked child has copies of the descriptors until it calls exec. No process may connect to such a
        // copy, or hand packets over to it.
        let _ = self.listener.shutdown(Shutdown::Both);
        for connection in self.connections.iter().flatten() {
            let _ = connection.socket.shutdown(Shutdown::Both);
        }
    }
}
