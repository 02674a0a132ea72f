//! Messages over a packet driver: segmentation, reassembly, and a window for the bytes in flight.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use homa_driver::{BURST_PACKETS, Driver, RxBurst, TxPacket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::PATIENCE;
use super::frame::{HEADER_LEN, Header, PacketKind};

/// Maximum length in bytes of a message that fits in one packet on every path: IPv4 guarantees 576 bytes. For
/// longer messages, the driver provides the path's maximum.
const ALWAYS_FITS: usize = 500;

/// Maximum window for long messages, even if the socket's buffer is larger. It is enough for 64 Gbit/s at a
/// round trip of 60 us, which is the round trip of sleeping threads on one machine.
const MAX_WINDOW: usize = 512 << 10;

/// The window is the size of the receive buffer divided by this number: a packet of 1,400 bytes occupies more
/// than 2,000 bytes of the kernel's buffer.
const BUFFER_SHARE: usize = 4;

/// Interval between sweeps, each of which gives up the messages that make no progress.
const SWEEP: Duration = Duration::from_millis(100);

/// Maximum sleep, after which a sweep may be due.
const LONGEST_SLEEP: Duration = SWEEP;

/// A complete message.
#[derive(Debug)]
pub struct Message {
    pub from: SocketAddr,
    pub kind: PacketKind,
    /// The RPC's ID.
    pub id: u64,
    pub payload: Bytes,
}

/// Identifies a long message: its peer, its ID, and whether it is a request or a response.
type Key = (SocketAddr, u64, PacketKind);

/// A queued message that is unsent or partly sent.
struct Outgoing {
    to: SocketAddr,
    kind: PacketKind,
    id: u64,
    payload: Bytes,
    sent: usize,
    /// Maximum payload of a packet to this peer, in bytes.
    piece: usize,
}

impl Outgoing {
    fn is_long(&self) -> bool {
        self.payload.len() > self.piece
    }

    fn header(&self) -> Header {
        let offset = self.sent as u32;
        Header { kind: self.kind, total: self.payload.len() as u32, offset, id: self.id }
    }
}

/// The number of bytes of a long message that are in flight, and the time of its last acknowledgement.
struct InFlightBytes {
    sent: usize,
    taken: usize,
    last_received: Instant,
}

/// A long message that is being reassembled.
struct IncomingMessage {
    bytes: Vec<u8>,
    total: usize,
    taken: usize,
    last_received: Instant,
}

/// Messages over a packet driver, in both directions.
pub struct Path {
    driver: Box<dyn Driver>,
    burst: RxBurst,
    window: usize,
    queue: VecDeque<Outgoing>,
    long: LongMessages,
    swept: Instant,
}

/// The state of long messages, sent and received.
struct LongMessages {
    max_message: u32,
    underway: HashMap<Key, InFlightBytes>,
    /// Bytes in flight: the total of sent minus acknowledged bytes over `underway`.
    on_the_way: usize,
    incoming: HashMap<Key, IncomingMessage>,
    /// Acknowledgements to be sent for received parts of messages.
    touched: Vec<(Key, Header)>,
}

impl Path {
    /// Creates a path that sends and receives messages of at most `max_message` bytes over this driver.
    pub fn new(driver: Box<dyn Driver>, max_message: u32) -> Path {
        let buffer = driver.buffer_sizes().map_or(usize::MAX, |sizes| sizes.receive_bytes);
        Path {
            driver,
            burst: RxBurst::new(),
            window: (buffer / BUFFER_SHARE).min(MAX_WINDOW),
            queue: VecDeque::new(),
            long: LongMessages {
                max_message,
                underway: HashMap::new(),
                on_the_way: 0,
                incoming: HashMap::new(),
                touched: Vec::new(),
            },
            swept: Instant::now(),
        }
    }

    /// Returns a peer that has refused packets, if the network has reported any since the last call.
    pub fn refused(&mut self) -> Option<SocketAddr> {
        self.driver.poll_unreachable().map(|report| report.peer)
    }

    /// Returns the address at which this path receives.
    pub fn local_addr(&self) -> SocketAddr {
        self.driver.local_addr()
    }

    /// Returns the number of packets sent and received so far.
    pub fn packets(&self) -> u64 {
        let stats = self.driver.stats();
        stats.packets_out + stats.packets_in
    }

    /// Returns the number of messages that have not been sent completely.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Queues a message; [`Path::flush`] sends it.
    pub fn push(&mut self, to: SocketAddr, kind: PacketKind, id: u64, payload: Bytes) {
        let piece = match payload.len() {
            0..=ALWAYS_FITS => ALWAYS_FITS,
            _ => self.driver.max_packet(to).saturating_sub(HEADER_LEN).max(1),
        };
        self.queue.push_back(Outgoing { to, kind, id, payload, sent: 0, piece });
    }

    /// Sends queued messages as far as the window and the driver allow.
    pub fn flush(&mut self) -> Result<()> {
        while !self.queue.is_empty() {
            let mut packets: Vec<(SocketAddr, [u8; HEADER_LEN], Bytes)> = Vec::with_capacity(BURST_PACKETS);
            self.collect(&mut packets);
            if packets.is_empty() {
                return Ok(());
            }
            let burst: Vec<TxPacket<'_>> = packets
                .iter()
                .map(|(to, header, payload)| TxPacket { to: *to, priority: 0, header, payload })
                .collect();
            let taken = self.driver.send(&burst).context("the bare packet path broke")?;
            self.advance(&packets[..taken]);
            if taken < packets.len() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Collects the next burst. Packets of short messages are taken without limit, packets of long messages
    /// only within the window.
    fn collect(&self, packets: &mut Vec<(SocketAddr, [u8; HEADER_LEN], Bytes)>) {
        let mut room = self.window.saturating_sub(self.long.on_the_way);
        for message in &self.queue {
            let mut header = message.header();
            loop {
                if packets.len() == BURST_PACKETS {
                    return;
                }
                let begin = header.offset as usize;
                let length = message.piece.min(message.payload.len() - begin);
                // A single packet may exceed the window. Otherwise a window smaller than one packet would
                // block forever.
                let blocked = length > room && (self.long.on_the_way > 0 || room < self.window);
                if message.is_long() {
                    if blocked {
                        return;
                    }
                    room = room.saturating_sub(length);
                }
                packets.push((message.to, header.encode(), message.payload.slice(begin..begin + length)));
                header.offset += length as u32;
                if header.offset == header.total {
                    break;
                }
            }
        }
    }

    /// Records these packets, the next ones in order, as sent.
    fn advance(&mut self, packets: &[(SocketAddr, [u8; HEADER_LEN], Bytes)]) {
        for (_, _, payload) in packets {
            let Some(message) = self.queue.front_mut() else { return };
            message.sent += payload.len();
            if message.is_long() {
                self.long.on_the_way += payload.len();
                let key = (message.to, message.id, message.kind);
                let fresh = || InFlightBytes { sent: 0, taken: 0, last_received: Instant::now() };
                self.long.underway.entry(key).or_insert_with(fresh).sent += payload.len();
            }
            if message.sent == message.payload.len() {
                self.queue.pop_front();
            }
        }
    }

    /// Receives a burst of packets, passes complete messages to `take`, and acknowledges the received parts
    /// of long messages. Returns the number of packets.
    pub fn receive(&mut self, mut take: impl FnMut(Message)) -> Result<usize> {
        let Path { driver, burst, long, queue, .. } = self;
        let count = driver.receive(burst).context("the bare packet path broke")?;
        for (from, packet) in &*burst {
            let Some((header, payload)) = Header::decode(packet) else { continue };
            let Header { kind, id, total, .. } = header;
            if !kind.carries() {
                long.taken((from, id, kind.message()), header.offset as usize, queue);
            } else if payload.len() == total as usize {
                take(Message { from, kind, id, payload: Bytes::copy_from_slice(payload) });
            } else if let Some(payload) = long.add_packet(from, header, payload) {
                take(Message { from, kind, id, payload });
            }
        }
        for (key, header) in long.touched.drain(..) {
            // An acknowledgement for which the driver has no room is lost; the next acknowledgement covers
            // its bytes. An error of the driver is reported again with the next packet.
            let header = header.encode();
            let _ = driver.send(&[TxPacket { to: key.0, priority: 7, header: &header, payload: &[] }]);
        }
        Ok(count)
    }

    /// Gives up messages that have made no progress for [`PATIENCE`]. May be called in every round: the work
    /// is done only once per sweep interval. In that case, returns true, so that the caller gives up its RPCs
    /// too.
    pub fn sweep(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.swept) < SWEEP {
            return false;
        }
        self.swept = now;
        let dead = |last_received: Instant| now.saturating_duration_since(last_received) >= PATIENCE;
        self.long.incoming.retain(|_, message| !dead(message.last_received));
        let (long, queue) = (&mut self.long, &mut self.queue);
        long.underway.retain(|key, message| {
            let keep = !dead(message.last_received);
            if !keep {
                long.on_the_way -= message.sent - message.taken;
                queue.retain(|message| (message.to, message.id, message.kind) != *key);
            }
            keep
        });
        true
    }

    /// Sleeps for at most `wait`, until packets arrive. If packets are queued, also wakes up when the driver
    /// has room.
    pub fn sleep(&self, wait: Duration) -> Result<()> {
        let Some(fd) = self.driver.poll_fd() else { return Ok(()) };
        let room = if self.held_by_driver() { PollFlags::OUT } else { PollFlags::empty() };
        let wait = wait.min(LONGEST_SLEEP);
        let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN | room)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("cannot wait for packets"),
        }
    }

    /// Returns whether queued packets wait for room in the driver; false if they wait for acknowledgements.
    fn held_by_driver(&self) -> bool {
        let mut packets = Vec::new();
        self.collect(&mut packets);
        !packets.is_empty()
    }
}

impl LongMessages {
    /// Handles a peer's acknowledgement of `bytes` bytes.
    fn taken(&mut self, key: Key, bytes: usize, queue: &VecDeque<Outgoing>) {
        let Some(underway) = self.underway.get_mut(&key) else { return };
        let bytes = bytes.min(underway.sent);
        self.on_the_way -= bytes.saturating_sub(underway.taken);
        underway.taken = underway.taken.max(bytes);
        underway.last_received = Instant::now();
        if underway.taken == underway.sent
            && !queue.iter().any(|message| (message.to, message.id, message.kind) == key)
        {
            self.underway.remove(&key);
        }
    }

    /// Adds a packet to its long message. Returns the message once it is complete.
    fn add_packet(&mut self, from: SocketAddr, header: Header, payload: &[u8]) -> Option<Bytes> {
        let key = (from, header.id, header.kind);
        let total = header.total as usize;
        if header.total > self.max_message {
            return None;
        }
        let now = Instant::now();
        let fresh =
            || IncomingMessage { bytes: Vec::with_capacity(total), total, taken: 0, last_received: now };
        let message = self.incoming.entry(key).or_insert_with(fresh);
        if message.total != total {
            return None;
        }
        let (begin, end) = (header.offset as usize, header.offset as usize + payload.len());
        if begin == message.bytes.len() {
            message.bytes.extend_from_slice(payload);
        } else {
            // Packets are rarely reordered on one path. The gap is filled with zeros until the missing
            // packets arrive.
            message.bytes.resize(message.bytes.len().max(end), 0);
            message.bytes[begin..end].copy_from_slice(payload);
        }
        message.taken = (message.taken + payload.len()).min(total);
        message.last_received = now;
        let said = Header { kind: header.kind.taken(), offset: message.taken as u32, ..header };
        match self.touched.last_mut() {
            Some((last, header)) if *last == key => *header = said,
            _ => self.touched.push((key, said)),
        }
        if message.taken < total {
            return None;
        }
        self.incoming.remove(&key).map(|message| message.bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Driver;

    fn path(max_message: u32) -> Path {
        let bind = "127.0.0.1:0".parse().expect("an address");
        Path::new(super::super::open(Driver::Udp, bind, true).expect("a socket"), max_message)
    }

    /// Moves packets in both directions until `until` returns true.
    fn run(paths: &mut [Path; 2], mut until: impl FnMut(&[Path; 2], &mut Vec<Message>) -> bool) {
        let mut got = Vec::new();
        while !until(paths, &mut got) {
            for path in paths.iter_mut() {
                path.flush().expect("a path");
                path.receive(|message| got.push(message)).expect("a path");
            }
        }
    }

    #[test]
    fn a_message_far_above_the_window_comes_whole_and_leaves_nothing() {
        let mut paths = [path(8 << 20), path(8 << 20)];
        let to = paths[1].local_addr();
        let payload: Bytes = (0..5_000_000u32).map(|at| (at % 251) as u8).collect();
        paths[0].push(to, PacketKind::Request, 7, payload.clone());
        paths[0].push(to, PacketKind::Request, 8, Bytes::from_static(b"short"));
        run(&mut paths, |_, got| got.len() == 2);
        // The last acknowledgement follows the complete message.
        run(&mut paths, |paths, _| paths[0].long.on_the_way == 0);
        assert!(
            paths[0].long.underway.is_empty() && paths[1].long.incoming.is_empty() && paths[0].queued() == 0
        );
    }

    #[test]
    fn the_window_holds_back() {
        let mut path = path(8 << 20);
        let nobody = "127.0.0.1:9".parse().expect("an address");
        path.push(nobody, PacketKind::Request, 1, vec![0; 4 << 20].into());
        path.flush().expect("a path");
        assert!(path.long.on_the_way <= path.window && path.long.on_the_way > 0);
        assert_eq!(path.queued(), 1);
        assert!(!path.held_by_driver());
    }

    #[test]
    fn a_message_that_nobody_hears_of_is_given_up() {
        let mut path = path(8 << 20);
        let nobody = "127.0.0.1:9".parse().expect("an address");
        path.push(nobody, PacketKind::Request, 1, vec![0; 4 << 20].into());
        path.flush().expect("a path");
        assert!(path.sweep(Instant::now() + PATIENCE + SWEEP));
        assert_eq!((path.long.on_the_way, path.queued(), path.long.underway.len()), (0, 0, 0));
    }

    #[test]
    fn parts_in_any_order_are_put_together() {
        let mut path = path(100);
        let from = "127.0.0.1:9".parse().expect("an address");
        let header = |offset| Header { kind: PacketKind::Answer, total: 6, offset, id: 3 };
        assert_eq!(path.long.add_packet(from, header(4), b"ef"), None);
        assert_eq!(path.long.add_packet(from, header(0), b"ab"), None);
        assert_eq!(path.long.add_packet(from, header(2), b"cd"), Some(Bytes::from_static(b"abcdef")));
        assert!(path.long.incoming.is_empty());
        assert_eq!(path.long.touched.len(), 1);
    }
}
