//! Packets taken from a socket in which many wait, in a queue for each sender (HOST-14).
//!
//! The shared socket has one queue for all packets of all processes, and a process has one for the packets
//! that are handed over to it. The socket's queue holds 20,000 short packets. A process that waits for
//! processors needs seconds for them, which is longer than the silence that ends a call, and one sender can
//! fill the queue. If many packets wait, they are therefore taken out faster than they are processed, and
//! their senders are served in turn: the packets of a sender wait only for its own.
//!
//! Rejected: dropping packets that have waited for long. It would also drop those of honest senders, and on a
//! busy machine those of a process that has just waited for a processor. A smaller receive buffer would drop
//! more packets of bursts.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;

use crate::burst::{BURST_PACKETS, RxBurst};

/// Number of queues. A sender has the queue that the hash of its address selects, so the memory and the work
/// do not depend on the number of addresses. The hash has a random key.
const QUEUES: usize = 256;

/// Packets of a queue that are processed in its turn: few enough for short delays of the others, and enough
/// for runs of packets of one message.
const TURN_PACKETS: usize = 8;

/// Maximum packets of a queue: a few tenths of a second of work on a slow machine, because packets with a
/// forged source address delay those of the true sender. Full packets of Ethernet are limited to nearly the
/// same number by [`MAX_COST`].
const QUEUE_PACKETS: usize = 4_096;

/// Maximum cost of all packets.
const MAX_COST: usize = 8 << 20;

/// Cost of a packet in addition to its length.
const PACKET_COST: usize = 256;

/// Consecutive full bursts after which many packets are known to wait. Each round of a process that waits for
/// a processor reads one burst, and may take 20 ms. Fewer would move packets of long messages to the backlog,
/// which costs a copy: a burst has 256 KB of them.
const STANDING_BURSTS: u32 = 8;

/// Minimum number of packets in these bursts: bursts may be limited to single packets.
const STANDING_PACKETS: usize = STANDING_BURSTS as usize * BURST_PACKETS;

/// Maximum number of bursts, and of bytes, that a call moves from the socket to the backlog: a few
/// milliseconds of work.
const DRAIN_BURSTS: usize = 64;
const DRAIN_BYTES: usize = 1 << 20;

#[derive(Debug)]
struct QueuedPacket {
    from: SocketAddr,
    priority: Option<u8>,
    received_at: Option<u64>,
    bytes: Box<[u8]>,
}

impl QueuedPacket {
    fn cost(&self) -> usize {
        self.bytes.len() + PACKET_COST
    }
}

#[derive(Debug, Default)]
struct Queue {
    packets: VecDeque<QueuedPacket>,
    cost: usize,
}

impl Queue {
    fn pop(&mut self) -> Option<QueuedPacket> {
        let packet = self.packets.pop_front()?;
        self.cost -= packet.cost();
        Some(packet)
    }
}

/// Serves the senders of a queue in turn while many packets wait in it: see the [module](self).
#[derive(Debug, Default)]
pub(super) struct FairQueue {
    /// Consecutive full bursts, and their packets.
    bursts: u32,
    packets: usize,
    /// The packets taken out and not processed yet, if there are any.
    backlog: Option<Backlog>,
    dropped: u64,
}

impl FairQueue {
    /// Whether packets were taken out that are not processed yet. The queue's descriptor does not show them.
    pub(super) fn has_backlog(&self) -> bool {
        self.backlog.is_some()
    }

    /// Packets dropped so far for lack of room.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Adds the packets to process next to an empty burst. `receive` replaces the contents of a burst by the
    /// next packets of the queue.
    pub(super) fn receive(
        &mut self,
        burst: &mut RxBurst,
        mut receive: impl FnMut(&mut RxBurst) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.backlog.is_none() {
            receive(burst)?;
            if burst.len() < burst.max_packets() {
                (self.bursts, self.packets) = (0, 0);
                return Ok(());
            }
            self.bursts += 1;
            self.packets += burst.len();
            if self.bursts < STANDING_BURSTS || self.packets < STANDING_PACKETS {
                return Ok(());
            }
        }
        let backlog = self.backlog.get_or_insert_with(Backlog::new);
        self.dropped += backlog.add(burst);
        let (mut bursts, mut bytes) = (0, 0);
        while bursts < DRAIN_BURSTS && bytes < DRAIN_BYTES {
            burst.clear();
            receive(burst)?;
            if burst.is_empty() {
                break;
            }
            self.dropped += backlog.add(burst);
            bursts += 1;
            bytes += burst.iter().map(|(_, packet)| packet.len()).sum::<usize>();
        }
        burst.clear();
        backlog.take(burst);
        if backlog.is_empty() {
            self.backlog = None;
            (self.bursts, self.packets) = (0, 0);
        }
        Ok(())
    }
}

/// Packets by sender.
#[derive(Debug)]
struct Backlog {
    hasher: RandomState,
    queues: Vec<Queue>,
    /// The queues with packets, in the order of their turns.
    turns: VecDeque<usize>,
    cost: usize,
}

impl Backlog {
    fn new() -> Backlog {
        let queues = std::iter::repeat_with(Queue::default).take(QUEUES).collect();
        Backlog { hasher: RandomState::new(), queues, turns: VecDeque::new(), cost: 0 }
    }

    fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Adds copies of the packets of a burst. If there is no room in the queue, its oldest packet is dropped; if
    /// there is none at all, the oldest packets of the longest queue. Returns the number of dropped packets.
    fn add(&mut self, burst: &RxBurst) -> u64 {
        let mut dropped = 0;
        for (index, (from, bytes)) in burst.iter().enumerate() {
            let packet = QueuedPacket {
                from,
                priority: burst.priority(index),
                received_at: burst.received_at(index),
                bytes: bytes.into(),
            };
            let at = self.hasher.hash_one(from.ip()) as usize % QUEUES;
            let queue = &mut self.queues[at];
            if queue.packets.is_empty() {
                self.turns.push_back(at);
            }
            queue.cost += packet.cost();
            self.cost += packet.cost();
            queue.packets.push_back(packet);
            if queue.packets.len() > QUEUE_PACKETS
                && let Some(oldest) = queue.pop()
            {
                self.cost -= oldest.cost();
                dropped += 1;
            }
        }
        while self.cost > MAX_COST {
            let Some(longest) = self.queues.iter_mut().max_by_key(|queue| queue.cost) else { break };
            // The longest queue keeps some packets, so it stays among the turns.
            let Some(packet) = longest.pop() else { break };
            self.cost -= packet.cost();
            dropped += 1;
        }
        dropped
    }

    /// Moves the next packets to an empty burst.
    fn take(&mut self, burst: &mut RxBurst) {
        let most = burst.max_packets();
        while burst.len() < most
            && let Some(at) = self.turns.pop_front()
        {
            let queue = &mut self.queues[at];
            for _ in 0..TURN_PACKETS.min(most - burst.len()) {
                let Some(packet) = queue.pop() else { break };
                self.cost -= packet.cost();
                let index = burst.len();
                // An empty burst has room for as many packets of any length.
                let fits = burst.push(packet.from, &packet.bytes);
                debug_assert!(fits);
                burst.note_priority(index, packet.priority);
                burst.note_time(packet.received_at.unwrap_or(0));
            }
            if !queue.packets.is_empty() {
                self.turns.push_back(at);
            }
        }
        burst.note_reordered();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 54_321))
    }

    /// Adds packets with these contents.
    fn add(backlog: &mut Backlog, from: SocketAddr, contents: impl IntoIterator<Item = Vec<u8>>) -> u64 {
        let mut burst = RxBurst::new();
        let mut dropped = 0;
        for bytes in contents {
            burst.clear();
            assert!(burst.push(from, &bytes));
            burst.note_priority(0, Some(bytes[0] & 7));
            burst.note_time(u64::from(bytes[0]) + 1);
            dropped += backlog.add(&burst);
        }
        dropped
    }

    /// Two senders with queues of their own.
    fn senders(backlog: &Backlog) -> [SocketAddr; 2] {
        let queue = |sender: SocketAddr| backlog.hasher.hash_one(sender.ip()) as usize % QUEUES;
        let other = (2..).map(sender).find(|&other| queue(other) != queue(sender(1)));
        [sender(1), other.unwrap()]
    }

    /// HOST-14.
    #[test]
    fn a_packet_waits_only_for_those_of_its_sender() {
        let mut backlog = Backlog::new();
        let [greedy, other] = senders(&backlog);
        assert_eq!(add(&mut backlog, greedy, (0..1_000_u16).map(|n| n.to_be_bytes().to_vec())), 0);
        assert_eq!(add(&mut backlog, other, [vec![255]]), 0);
        let mut burst = RxBurst::new();
        backlog.take(&mut burst);
        assert!(burst.iter().any(|(from, _)| from == other));
        assert!(burst.is_reordered());
        let mut got: Vec<Vec<u8>> = Vec::new();
        loop {
            for (index, (from, bytes)) in burst.iter().enumerate() {
                assert_eq!(burst.priority(index), Some(bytes[0] & 7));
                assert_eq!(burst.received_at(index), Some(u64::from(bytes[0]) + 1));
                got.extend((from == greedy).then(|| bytes.to_vec()));
            }
            if backlog.is_empty() {
                break;
            }
            burst.clear();
            backlog.take(&mut burst);
        }
        assert!(got.into_iter().eq((0..1_000_u16).map(|n| n.to_be_bytes().to_vec())), "all, in their order");
        assert_eq!(backlog.cost, 0);
    }

    /// HOST-14.
    #[test]
    fn a_sender_keeps_its_latest_packets() {
        let mut backlog = Backlog::new();
        let [greedy, _] = senders(&backlog);
        let numbers = 0..QUEUE_PACKETS as u16 + 10;
        assert_eq!(add(&mut backlog, greedy, numbers.map(|n| n.to_be_bytes().to_vec())), 10);
        let mut burst = RxBurst::new();
        backlog.take(&mut burst);
        assert_eq!(burst.iter().next().unwrap().1, 10_u16.to_be_bytes());
    }

    /// HOST-14.
    #[test]
    fn the_sender_with_the_longest_queue_loses_packets() {
        let mut backlog = Backlog::new();
        let [greedy, other] = senders(&backlog);
        add(&mut backlog, other, [vec![7; 100]]);
        let more = MAX_COST / (10_000 + PACKET_COST) + 10;
        let dropped = add(&mut backlog, greedy, std::iter::repeat_n(vec![9; 10_000], more));
        assert!((10..=11).contains(&dropped), "{dropped}");
        assert!(backlog.cost <= MAX_COST);
        let mut burst = RxBurst::new();
        backlog.take(&mut burst);
        assert!(burst.iter().any(|(from, _)| from == other));
    }
}
