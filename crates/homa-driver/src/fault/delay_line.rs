//! One direction of a faulty path: a fault plan and the packets that are held back.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;

use super::plan::{FaultAction, FaultPlan, REORDER_HOLD_NS};

/// Maximum number of packets held in one direction; further packets are lost and counted as such. Real
/// networks also delay packets only in finite buffers.
const HELD_PACKETS_MAX: usize = 8_192;
/// Maximum number of bytes held in one direction.
const HELD_BYTES_MAX: usize = 64 << 20;

/// Counters of the faults in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Packets for which faults were decided.
    pub packets: u64,
    /// Packets lost.
    pub lost: u64,
    /// Packets duplicated.
    pub duplicated: u64,
    /// Packets held until later packets passed them.
    pub reordered: u64,
    /// Packets with a flipped bit.
    pub corrupted: u64,
    /// Packets held for some time.
    pub delayed: u64,
    /// Packets lost because too many were held.
    pub overflowed: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) peer: SocketAddr,
    pub(super) priority: u8,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug)]
struct DelayedPacket {
    /// Determines when the packet is released: a time or a number of passed packets, depending on the heap.
    /// Packets with equal keys keep their order of arrival.
    key: Reverse<(u64, u64)>,
    due_ns: u64,
    packet: Packet,
}

impl PartialEq for DelayedPacket {
    fn eq(&self, other: &DelayedPacket) -> bool {
        self.key == other.key
    }
}
impl Eq for DelayedPacket {}
impl PartialOrd for DelayedPacket {
    fn partial_cmp(&self, other: &DelayedPacket) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for DelayedPacket {
    fn cmp(&self, other: &DelayedPacket) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

#[derive(Debug)]
pub(super) struct DelayLine {
    plan: FaultPlan,
    /// Packets held until a time.
    timed: BinaryHeap<DelayedPacket>,
    /// Packets held until others have passed.
    overtaken: BinaryHeap<DelayedPacket>,
    held_bytes: usize,
    /// Number of packets that have left the line.
    passed: u64,
    admitted: u64,
    counts: FaultCounts,
}

impl DelayLine {
    pub(super) fn new(plan: FaultPlan) -> DelayLine {
        DelayLine {
            plan,
            timed: BinaryHeap::new(),
            overtaken: BinaryHeap::new(),
            held_bytes: 0,
            passed: 0,
            admitted: 0,
            counts: FaultCounts::default(),
        }
    }

    pub(super) fn decide(&mut self, length: usize) -> FaultAction {
        self.plan.decide(length)
    }

    /// Counts packets that passed without a fault.
    pub(super) fn passed_untouched(&mut self, packets: usize) {
        self.passed += packets as u64;
        self.counts.packets += packets as u64;
    }

    /// Accepts a packet with a fault. [`DelayLine::release`] passes on its copies, immediately or later.
    pub(super) fn admit(&mut self, now_ns: u64, action: FaultAction, mut packet: Packet) {
        self.counts.packets += 1;
        if action.copies == 0 {
            self.counts.lost += 1;
            return;
        }
        if let Some(bit) = action.flip_bit {
            packet.bytes[bit as usize / 8] ^= 1 << (bit % 8);
            self.counts.corrupted += 1;
        }
        self.counts.delayed += u64::from(action.delay_ns > 0);
        let due_ns = now_ns.saturating_add(action.delay_ns);
        if action.copies > 1 {
            self.counts.duplicated += 1;
            self.enqueue(due_ns, Packet { bytes: packet.bytes.clone(), ..packet });
        }
        if action.passed_by == 0 {
            self.enqueue(due_ns, packet);
        } else if self.has_room(&packet) {
            self.counts.reordered += 1;
            let key = Reverse((self.passed + u64::from(action.passed_by), self.ticket()));
            let due_ns = due_ns.saturating_add(REORDER_HOLD_NS);
            self.held_bytes += packet.bytes.len();
            self.overtaken.push(DelayedPacket { key, due_ns, packet });
        }
    }

    /// Accepts a packet without a fault because the next stage has no room for it.
    pub(super) fn queue_untouched(&mut self, now_ns: u64, packet: Packet) {
        self.counts.packets += 1;
        self.enqueue(now_ns, packet);
    }

    fn enqueue(&mut self, due_ns: u64, packet: Packet) {
        if self.has_room(&packet) {
            let key = Reverse((due_ns, self.ticket()));
            self.held_bytes += packet.bytes.len();
            self.timed.push(DelayedPacket { key, due_ns, packet });
        }
    }

    fn ticket(&mut self) -> u64 {
        self.admitted += 1;
        self.admitted
    }

    fn has_room(&mut self, packet: &Packet) -> bool {
        let room = self.timed.len() + self.overtaken.len() < HELD_PACKETS_MAX
            && packet.bytes.len() <= HELD_BYTES_MAX - self.held_bytes;
        self.counts.overflowed += u64::from(!room);
        room
    }

    /// Offers the due packets to the next stage in order, until it does not accept one; that packet stays.
    /// Returns whether all were accepted.
    pub(super) fn release<E>(
        &mut self,
        now_ns: u64,
        mut accept: impl FnMut(&Packet) -> Result<bool, E>,
    ) -> Result<bool, E> {
        loop {
            let passed = self.passed;
            let ready = |held: &DelayedPacket| held.key.0.0 <= passed || held.due_ns <= now_ns;
            let heap = if self.timed.peek().is_some_and(|held| held.due_ns <= now_ns) {
                &mut self.timed
            } else if self.overtaken.peek().is_some_and(ready) {
                &mut self.overtaken
            } else {
                return Ok(true);
            };
            if let Some(held) = heap.peek()
                && !accept(&held.packet)?
            {
                return Ok(false);
            }
            if let Some(held) = heap.pop() {
                self.held_bytes -= held.packet.bytes.len();
            }
            self.passed += 1;
        }
    }

    /// Returns the number of packets that may pass without a fault before [`DelayLine::release`] must be
    /// called, so that no more packets than planned pass a held packet. At least 1 after a release.
    pub(super) fn room_without_fault(&self) -> usize {
        self.overtaken
            .peek()
            .map_or(usize::MAX, |held| held.key.0.0.saturating_sub(self.passed).max(1) as usize)
    }

    /// Returns the earliest time at which [`DelayLine::release`] is due for a held packet; `None` if no
    /// packet is held.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        let tops = [self.timed.peek(), self.overtaken.peek()];
        tops.into_iter().flatten().map(|held| held.due_ns).min()
    }

    pub(super) fn counts(&self) -> FaultCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::FaultRates;
    use super::*;

    fn line() -> DelayLine {
        DelayLine::new(FaultPlan::new(1, FaultRates::default()).unwrap())
    }

    fn packet(number: u8) -> Packet {
        Packet { peer: ([127, 0, 0, 1], 1).into(), priority: 3, bytes: vec![number; 4] }
    }

    /// Returns the first byte of each released packet.
    fn released(line: &mut DelayLine, now_ns: u64) -> Vec<u8> {
        let mut numbers = Vec::new();
        let all = line.release(now_ns, |packet| {
            numbers.push(packet.bytes[0]);
            Ok::<_, std::convert::Infallible>(true)
        });
        assert_eq!(all, Ok(true));
        numbers
    }

    #[test]
    fn a_lost_packet_never_comes_out() {
        let mut line = line();
        line.admit(0, FaultAction { copies: 0, ..FaultAction::NONE }, packet(1));
        assert!(released(&mut line, u64::MAX).is_empty());
        assert_eq!((line.counts().lost, line.next_due_ns()), (1, None));
    }

    #[test]
    fn copies_and_flipped_bits_come_out_at_once() {
        let mut line = line();
        line.admit(5, FaultAction { copies: 2, flip_bit: Some(7), ..FaultAction::NONE }, packet(1));
        assert_eq!(released(&mut line, 5), [0x81, 0x81]);
        assert_eq!((line.counts().duplicated, line.counts().corrupted), (1, 1));
    }

    #[test]
    fn delayed_packets_come_out_by_their_times() {
        let mut line = line();
        for (number, delay_ns) in [(1, 30), (2, 10), (3, 10)] {
            line.admit(100, FaultAction { delay_ns, ..FaultAction::NONE }, packet(number));
        }
        assert_eq!(line.next_due_ns(), Some(110));
        assert!(released(&mut line, 109).is_empty());
        assert_eq!(released(&mut line, 110), [2, 3]);
        assert_eq!(released(&mut line, 130), [1]);
        assert_eq!((line.counts().delayed, line.held_bytes), (3, 0));
    }

    #[test]
    fn a_reordered_packet_waits_for_others_or_for_its_time() {
        let mut line = line();
        let behind = |passed_by| FaultAction { passed_by, ..FaultAction::NONE };
        line.admit(0, behind(2), packet(1));
        line.passed_untouched(1);
        assert!(released(&mut line, 0).is_empty());
        line.passed_untouched(1);
        assert_eq!(released(&mut line, 0), [1]);
        assert_eq!(line.room_without_fault(), usize::MAX);
        line.admit(0, behind(2), packet(2));
        assert_eq!(line.room_without_fault(), 2);
        assert!(released(&mut line, REORDER_HOLD_NS - 1).is_empty());
        assert_eq!(released(&mut line, REORDER_HOLD_NS), [2]);
        assert_eq!((line.counts().reordered, line.counts().packets), (2, 4));
    }

    #[test]
    fn a_packet_that_is_not_accepted_stays_first() {
        let mut line = line();
        line.admit(0, FaultAction { copies: 2, ..FaultAction::NONE }, packet(1));
        let refused: Result<bool, ()> = line.release(0, |_| Ok(false));
        assert_eq!(refused, Ok(false));
        assert_eq!(line.release(0, |_| Err("broken")), Err("broken"));
        assert_eq!(released(&mut line, 0), [1, 1]);
    }

    #[test]
    fn what_is_held_is_bounded() {
        let mut line = line();
        let long = FaultAction { delay_ns: 1_000, ..FaultAction::NONE };
        for i in 0..HELD_PACKETS_MAX + 10 {
            line.admit(0, if i % 2 == 0 { long } else { FaultAction { passed_by: 8, ..long } }, packet(1));
        }
        assert_eq!(line.counts().overflowed, 10);
        assert_eq!(released(&mut line, u64::MAX).len(), HELD_PACKETS_MAX);
        let mut line = self::line();
        let wide = || Packet { bytes: vec![0; HELD_BYTES_MAX / 2], ..packet(1) };
        (0..3).for_each(|_| line.admit(0, long, wide()));
        assert_eq!(line.counts().overflowed, 1);
    }
}
