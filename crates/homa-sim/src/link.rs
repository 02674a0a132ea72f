//! One direction of a link: the sender and its queue.

use std::collections::VecDeque;

use homa_egress::{Alpha, Room, queue_of};
use homa_proto::Time;
use homa_proto::wire::PRIORITIES;

use crate::packet::PacketInfo;

/// One direction of a link and the queue of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Bits per second, above 0.
    pub rate_bps: u64,
    /// Delay from sending the last bit to receiving it.
    pub propagation_ns: u64,
    /// Maximum bytes in the queue, including overhead. A packet that does not fit is dropped.
    pub queue_bytes: u64,
    /// Bytes of overhead per Homa packet.
    pub overhead_bytes: u32,
}

impl LinkConfig {
    /// Returns a link of this rate with 500 ns of propagation delay, a queue of 1 MB and the overhead of UDP
    /// over IPv4 over Ethernet.
    pub const fn with_rate(rate_bps: u64) -> LinkConfig {
        LinkConfig {
            rate_bps,
            propagation_ns: 500,
            queue_bytes: 1_000_000,
            // UDP 8, IPv4 20, Ethernet header 14, check sequence 4, preamble 8, gap 12: the same count as in
            // `Config::link_overhead`.
            overhead_bytes: 8 + 20 + 14 + 4 + 8 + 12,
        }
    }

    /// Returns the serialization delay of a Homa packet of `wire_len` bytes, in picoseconds.
    ///
    /// At 100 Gbit/s, rounding to nanoseconds would change the rate of small packets by several percent.
    pub fn serialisation_ps(&self, wire_len: u32) -> u64 {
        let bits = (u64::from(wire_len) + u64::from(self.overhead_bytes)) * 8;
        (u128::from(bits) * 1_000_000_000_000 / u128::from(self.rate_bps)) as u64
    }
}

/// Order in which a port sends queued packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discipline {
    /// Strict priorities; FIFO within a priority.
    #[default]
    Strict,
    /// FIFO: one queue, as in a network card without priorities.
    Fifo,
    /// By rank, as in pFabric: the oldest packet of the flow with the smallest rank first. A full queue drops
    /// the packet with the greatest rank.
    Rank,
}

/// A packet in a port's queue.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    packet: u32,
    wire_len: u32,
    rank: u32,
    flow: u32,
}

/// The result of adding a packet to a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Queued,
    /// The packet is queued, and these packets were dropped to make room.
    QueuedAfterDropping(Vec<u32>),
    /// The packet does not fit and must be dropped.
    Dropped,
}

/// The sending end of a link.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) config: LinkConfig,
    discipline: Discipline,
    queues: [VecDeque<Waiting>; PRIORITIES],
    /// Number of queues in use with [`Discipline::Strict`], 1 to 8.
    pub(crate) priorities: usize,
    /// Bit mask of the queues that are not empty.
    occupied: u8,
    queued_bytes: u64,
    /// Bytes of each queue.
    bytes_of: [u64; PRIORITIES],
    busy_until_ps: u64,
    /// The time when the link becomes free, in nanoseconds, rounded up.
    free_at: Time,
    /// Picoseconds per byte; 0 if this is not a whole number.
    byte_ps: u64,
    /// Whether an event is scheduled for the end of the packet on the link.
    pub(crate) wakeup_pending: bool,
    pub(crate) max_queued_bytes: u64,
    /// Maximum queued bytes if the port has its own buffer.
    pub(crate) limit: u64,
    /// Queue length in bytes at and above which a new packet is marked.
    pub(crate) mark_bytes: u64,
    /// Maximum length of a queue, as a multiple of the buffer's free bytes.
    pub(crate) alpha: Option<Alpha>,
}

/// A packet that starts on the link now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Departure {
    pub(crate) packet: u32,
    pub(crate) wire_len: u32,
    /// Arrival of the packet's last bit at the other end.
    pub(crate) arrives: Time,
}

const PS_PER_NS: u64 = 1_000;
const PS_PER_SEC: u64 = 1_000_000_000_000;

impl Port {
    pub(crate) fn new(config: LinkConfig, discipline: Discipline) -> Port {
        let is_whole = (8 * PS_PER_SEC).is_multiple_of(config.rate_bps);
        Port {
            config,
            discipline,
            queues: Default::default(),
            priorities: PRIORITIES,
            occupied: 0,
            queued_bytes: 0,
            bytes_of: [0; PRIORITIES],
            busy_until_ps: 0,
            free_at: Time::ZERO,
            byte_ps: if is_whole { 8 * PS_PER_SEC / config.rate_bps } else { 0 },
            wakeup_pending: false,
            max_queued_bytes: 0,
            limit: config.queue_bytes,
            mark_bytes: u64::MAX,
            alpha: None,
        }
    }

    /// Returns the link time of a Homa packet, in bytes.
    #[inline]
    pub(crate) fn cost(&self, wire_len: u32) -> u64 {
        u64::from(wire_len) + u64::from(self.config.overhead_bytes)
    }

    #[inline]
    fn serialisation_ps(&self, wire_len: u32) -> u64 {
        match self.byte_ps {
            0 => self.config.serialisation_ps(wire_len),
            byte_ps => self.cost(wire_len) * byte_ps,
        }
    }

    /// Queues a packet if the buffer has room for it, perhaps after dropping others.
    pub(crate) fn enqueue(&mut self, number: u32, packet: &PacketInfo, room: Room) -> Admission {
        let bytes = self.cost(packet.wire_len);
        let mut admission = Admission::Queued;
        let queue = self.queue_of(packet.priority);
        if !room.admits(self.bytes_of[queue], bytes) {
            let evicted = self.evict(packet.rank, bytes, room.free);
            if evicted.is_empty() {
                return Admission::Dropped;
            }
            admission = Admission::QueuedAfterDropping(evicted);
        }
        let (wire_len, rank, flow) = (packet.wire_len, packet.rank, packet.flow);
        self.queues[queue].push_back(Waiting { packet: number, wire_len, rank, flow });
        self.occupied |= 1 << queue;
        self.queued_bytes += bytes;
        self.bytes_of[queue] += bytes;
        self.max_queued_bytes = self.max_queued_bytes.max(self.queued_bytes);
        admission
    }

    #[inline]
    fn queue_of(&self, priority: u8) -> usize {
        match self.discipline {
            Discipline::Strict => queue_of(priority.min(PRIORITIES as u8 - 1), self.priorities),
            Discipline::Fifo | Discipline::Rank => 0,
        }
    }

    /// Returns whether the start of a packet must be scheduled: a packet is queued, and no event is scheduled
    /// for it.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.occupied != 0 && !self.wakeup_pending
    }

    /// Starts a packet if the port is idle and its buffer has room; `None`: the packet has to be queued.
    #[inline]
    pub(crate) fn depart_at_once(
        &mut self,
        now: Time,
        number: u32,
        wire_len: u32,
        free: u64,
    ) -> Option<Departure> {
        if self.occupied != 0 || self.free_at() > now || self.cost(wire_len) > free {
            return None;
        }
        self.max_queued_bytes = self.max_queued_bytes.max(self.cost(wire_len));
        Some(self.start(now, number, wire_len))
    }

    /// Drops packets of greater ranks until a packet of this rank fits into the `free` bytes, and returns the
    /// dropped packets. An empty result means there is no room.
    ///
    /// Several packets may have to be dropped: the packet with the greatest rank may be a short probe for a
    /// message that has waited for a long time.
    fn evict(&mut self, rank: u32, bytes: u64, mut free: u64) -> Vec<u32> {
        let mut evicted = Vec::new();
        if self.discipline != Discipline::Rank {
            return evicted;
        }
        let worse = self.queues[0].iter().filter(|waiting| waiting.rank > rank);
        let freed: u64 = worse.map(|waiting| self.cost(waiting.wire_len)).sum();
        if free + freed < bytes {
            return evicted;
        }
        while free < bytes {
            // Of equal ranks the last packet is dropped: the earlier packets of its flow are useful without
            // it.
            let worst = self.queues[0].iter().enumerate().max_by_key(|(_, waiting)| waiting.rank);
            let worst = worst.map(|(at, _)| at);
            let Some(worst) = worst.and_then(|at| self.queues[0].remove(at)) else { break };
            free += self.cost(worst.wire_len);
            self.queued_bytes -= self.cost(worst.wire_len);
            self.bytes_of[0] -= self.cost(worst.wire_len);
            evicted.push(worst.packet);
        }
        evicted
    }

    fn take_next(&mut self) -> Option<Waiting> {
        let queue = self.occupied.checked_ilog2()? as usize;
        let waiting = match self.discipline {
            Discipline::Strict | Discipline::Fifo => self.queues[queue].pop_front(),
            Discipline::Rank => {
                let best = self.queues[queue].iter().min_by_key(|waiting| waiting.rank)?;
                let flow = best.flow;
                let at = self.queues[queue].iter().position(|waiting| waiting.flow == flow)?;
                self.queues[queue].remove(at)
            }
        };
        if self.queues[queue].is_empty() {
            self.occupied &= !(1 << queue);
        }
        self.bytes_of[queue] -= waiting.map_or(0, |waiting| self.cost(waiting.wire_len));
        waiting
    }

    /// Returns the next packet for the link, if the link is free at `now`.
    #[inline]
    pub(crate) fn depart(&mut self, now: Time) -> Option<Departure> {
        if self.occupied == 0 || self.free_at() > now {
            return None;
        }
        let waiting = self.take_next()?;
        self.queued_bytes -= self.cost(waiting.wire_len);
        Some(self.start(now, waiting.packet, waiting.wire_len))
    }

    #[inline]
    fn start(&mut self, now: Time, packet: u32, wire_len: u32) -> Departure {
        // If there was no pause, the packet starts when its predecessor ends, to the picosecond. After a
        // pause it starts now.
        let now_ps = now.as_ns() * PS_PER_NS;
        let start_ps =
            if now_ps - self.busy_until_ps.min(now_ps) < PS_PER_NS { self.busy_until_ps } else { now_ps };
        self.busy_until_ps = start_ps + self.serialisation_ps(wire_len);
        self.free_at = Time::from_ns(self.busy_until_ps.div_ceil(PS_PER_NS));
        let arrives = self.free_at + self.config.propagation_ns;
        Departure { packet, wire_len, arrives }
    }

    /// Returns the time at which the link is free for the next packet.
    #[inline]
    pub(crate) fn free_at(&self) -> Time {
        self.free_at
    }

    #[inline]
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// Returns the free bytes of the port's own buffer.
    #[inline]
    pub(crate) fn free_bytes(&self) -> u64 {
        self.limit.saturating_sub(self.queued_bytes)
    }

    /// Returns whether the queue and the link are empty.
    #[inline]
    pub(crate) fn is_idle(&self, now: Time) -> bool {
        self.occupied == 0 && self.free_at() <= now
    }

    /// Returns the serialization delay of a packet of this length, rounded up.
    pub(crate) fn serialisation_ns(&self, wire_len: u32) -> u64 {
        self.serialisation_ps(wire_len).div_ceil(PS_PER_NS)
    }

    /// Empties the queue of a crashed sender and returns its packets.
    pub(crate) fn clear(&mut self) -> Vec<u32> {
        (self.queued_bytes, self.occupied, self.bytes_of) = (0, 0, [0; PRIORITIES]);
        self.queues.iter_mut().flat_map(|queue| queue.drain(..)).map(|waiting| waiting.packet).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(discipline: Discipline) -> Port {
        // 8 Gbit/s: a byte takes a nanosecond.
        let config = LinkConfig {
            rate_bps: 8_000_000_000,
            propagation_ns: 100,
            queue_bytes: 4_000,
            overhead_bytes: 10,
        };
        Port::new(config, discipline)
    }

    fn enqueue(port: &mut Port, packet: u32, wire_len: u32, priority: u8) -> bool {
        let info = PacketInfo { wire_len, priority, ..PacketInfo::default() };
        port.enqueue(packet, &info, room(port)) == Admission::Queued
    }

    fn room(port: &Port) -> Room {
        Room { free: port.free_bytes(), alpha: port.alpha }
    }

    #[test]
    fn a_packet_takes_its_length_with_overhead_and_then_the_propagation() {
        let mut port = port(Discipline::Strict);
        assert!(enqueue(&mut port, 1, 990, 0));
        let departure = port.depart(Time::from_ns(50)).unwrap();
        assert_eq!((departure.packet, departure.arrives.as_ns()), (1, 50 + 1_000 + 100));
        assert!(enqueue(&mut port, 2, 990, 0));
        assert_eq!(port.depart(Time::from_ns(1_049)), None);
        assert_eq!(port.depart(Time::from_ns(1_050)).unwrap().arrives.as_ns(), 2_150);
    }

    #[test]
    fn higher_priorities_pass_and_equal_ones_keep_their_order() {
        let mut port = port(Discipline::Strict);
        for (packet, priority) in [(1, 0), (2, 5), (3, 7), (4, 5)] {
            assert!(enqueue(&mut port, packet, 90, priority));
        }
        let order: Vec<u32> = (0..4).map(|_| port.depart(port.free_at()).unwrap().packet).collect();
        assert_eq!(order, [3, 2, 4, 1]);
    }

    #[test]
    fn a_card_without_priorities_sends_in_order() {
        let mut port = port(Discipline::Fifo);
        assert!(enqueue(&mut port, 1, 90, 0) && enqueue(&mut port, 2, 90, 7));
        assert_eq!(port.depart(Time::ZERO).unwrap().packet, 1);
    }

    #[test]
    fn what_does_not_fit_the_queue_is_refused() {
        let mut port = port(Discipline::Strict);
        assert!(enqueue(&mut port, 1, 1_990, 0) && enqueue(&mut port, 2, 1_990, 0));
        assert!(!enqueue(&mut port, 3, 1, 7));
        assert_eq!(port.max_queued_bytes, 4_000);
    }

    #[test]
    fn a_queue_leaves_room_for_the_others_of_its_port() {
        let mut port = Port { alpha: Some(Alpha::whole(3)), ..port(Discipline::Strict) };
        // A single queue gets three quarters of the limit, and the next queue gets three quarters of the
        // rest.
        let got = [0, 7].map(|priority| (0..400).filter(|&n| enqueue(&mut port, n, 0, priority)).count());
        assert_eq!(got, [300, 75]);
        assert_eq!(port.depart(Time::ZERO).map(|departure| departure.packet), Some(0));
        assert!(enqueue(&mut port, 1_000, 0, 7) && !enqueue(&mut port, 1_001, 0, 0));
    }

    #[test]
    fn fractions_of_nanoseconds_add_up() {
        // 84 bytes at 100 Gbit/s take 6.72 ns; a thousand of them 6,720 ns.
        let config = LinkConfig {
            rate_bps: 100_000_000_000,
            propagation_ns: 0,
            queue_bytes: 100_000,
            overhead_bytes: 66,
        };
        let mut port = Port::new(config, Discipline::Strict);
        for packet in 0..1_000 {
            assert!(enqueue(&mut port, packet, 18, 0));
        }
        let mut last = Time::ZERO;
        while let Some(departure) = port.depart(port.free_at()) {
            last = departure.arrives;
        }
        assert_eq!(last.as_ns(), 6_720);
    }

    fn ranked(port: &mut Port, packet: u32, rank: u32, flow: u32) -> Admission {
        let info = PacketInfo { wire_len: 990, rank, flow, ..PacketInfo::default() };
        port.enqueue(packet, &info, room(port))
    }

    #[test]
    fn the_smallest_rank_goes_first_by_the_oldest_packet_of_its_flow() {
        let mut port = port(Discipline::Rank);
        for (packet, rank, flow) in [(1, 30, 7), (2, 20, 8), (3, 10, 7), (4, 15, 8)] {
            assert_eq!(ranked(&mut port, packet, rank, flow), Admission::Queued);
        }
        let order: Vec<u32> = (0..4).map(|_| port.depart(port.free_at()).unwrap().packet).collect();
        assert_eq!(order, [1, 3, 2, 4]);
    }

    #[test]
    fn a_full_queue_of_ranks_drops_the_greatest() {
        let mut port = port(Discipline::Rank);
        for (packet, rank) in [(1, 30), (2, 50), (3, 40), (4, 50)] {
            assert_eq!(ranked(&mut port, packet, rank, packet), Admission::Queued);
        }
        assert_eq!(ranked(&mut port, 5, 50, 5), Admission::Dropped);
        assert_eq!(ranked(&mut port, 6, 10, 6), Admission::QueuedAfterDropping(vec![4]));
        assert_eq!(port.queued_bytes(), 4_000);
    }

    #[test]
    fn several_short_packets_of_greater_ranks_make_room_for_one() {
        let mut port = port(Discipline::Rank);
        for (packet, rank, wire_len) in
            [(1, 10, 2_990), (2, 60, 240), (3, 70, 240), (4, 5, 240), (5, 50, 240)]
        {
            let info = PacketInfo { wire_len, rank, flow: packet, ..PacketInfo::default() };
            assert_eq!(port.enqueue(packet, &info, room(&port)), Admission::Queued);
        }
        let long = PacketInfo { wire_len: 490, rank: 20, flow: 9, ..PacketInfo::default() };
        assert_eq!(port.enqueue(6, &long, room(&port)), Admission::QueuedAfterDropping(vec![3, 2]));
        let too_long = PacketInfo { wire_len: 740, rank: 20, flow: 10, ..PacketInfo::default() };
        assert_eq!(port.enqueue(7, &too_long, room(&port)), Admission::Dropped);
        assert_eq!(port.queued_bytes(), 4_000);
    }
}
