//! One direction of a link: what sends packets onto it, and the queue before it.

use std::collections::VecDeque;

use homa_proto::Time;
use homa_proto::wire::PRIORITIES;

/// One direction of a link and the queue of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Bits per second, above 0.
    pub rate_bps: u64,
    /// From the last bit sent to the last bit received.
    pub propagation_ns: u64,
    /// Bytes (with overhead) that may wait; a packet that does not fit is dropped.
    pub queue_bytes: u64,
    /// Bytes that each packet costs beyond the Homa packet.
    pub overhead_bytes: u32,
}

impl LinkConfig {
    /// A link of this rate with 500 ns of propagation, 1 MB of queue and the overhead of UDP over IPv4 over Ethernet.
    pub const fn with_rate(rate_bps: u64) -> LinkConfig {
        LinkConfig {
            rate_bps,
            propagation_ns: 500,
            queue_bytes: 1_000_000,
            // UDP 8, IPv4 20, Ethernet header 14, check sequence 4, preamble 8, gap 12: as `Config::link_overhead` counts.
            overhead_bytes: 8 + 20 + 14 + 4 + 8 + 12,
        }
    }

    /// Time that a Homa packet of `wire_len` bytes occupies the link, in picoseconds.
    ///
    /// Picoseconds, because at 100 Gbit/s a rounding to nanoseconds would change the rate of small packets by percents.
    pub fn serialisation_ps(&self, wire_len: u32) -> u64 {
        let bits = (u64::from(wire_len) + u64::from(self.overhead_bytes)) * 8;
        (u128::from(bits) * 1_000_000_000_000 / u128::from(self.rate_bps)) as u64
    }
}

/// What waits in a port's queue.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    packet: u32,
    wire_len: u32,
}

/// Where packets go onto a link, strictly by priority, in order within one.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) config: LinkConfig,
    /// False: one queue for all priorities, as in a network card that knows none.
    by_priority: bool,
    queues: [VecDeque<Waiting>; PRIORITIES],
    queued_bytes: u64,
    busy_until_ps: u64,
    /// Whether an event is in the queue for the end of the packet on the link.
    pub(crate) wakeup_pending: bool,
    pub(crate) max_queued_bytes: u64,
}

/// A packet that goes onto the link now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Departure {
    pub(crate) packet: u32,
    /// When its last bit reaches the other end.
    pub(crate) arrives: Time,
}

const PS_PER_NS: u64 = 1_000;

impl Port {
    pub(crate) fn new(config: LinkConfig, by_priority: bool) -> Port {
        Port {
            config,
            by_priority,
            queues: Default::default(),
            queued_bytes: 0,
            busy_until_ps: 0,
            wakeup_pending: false,
            max_queued_bytes: 0,
        }
    }

    fn cost(&self, wire_len: u32) -> u64 {
        u64::from(wire_len) + u64::from(self.config.overhead_bytes)
    }

    /// Appends a packet; false: it does not fit and is to be dropped.
    pub(crate) fn enqueue(&mut self, packet: u32, wire_len: u32, priority: u8) -> bool {
        let bytes = self.cost(wire_len);
        if self.queued_bytes + bytes > self.config.queue_bytes {
            return false;
        }
        let queue = if self.by_priority { usize::from(priority).min(PRIORITIES - 1) } else { 0 };
        self.queues[queue].push_back(Waiting { packet, wire_len });
        self.queued_bytes += bytes;
        self.max_queued_bytes = self.max_queued_bytes.max(self.queued_bytes);
        true
    }

    /// The next packet for the link, if the link is free at `now`.
    pub(crate) fn depart(&mut self, now: Time) -> Option<Departure> {
        if self.queued_bytes == 0 || self.free_at() > now {
            return None;
        }
        let waiting = self.queues.iter_mut().rev().find_map(VecDeque::pop_front)?;
        self.queued_bytes -= self.cost(waiting.wire_len);
        // A packet that followed its predecessor without a pause starts where that one ended, to the picosecond; after a
        // pause it starts now.
        let now_ps = now.as_ns() * PS_PER_NS;
        let start_ps =
            if now_ps - self.busy_until_ps.min(now_ps) < PS_PER_NS { self.busy_until_ps } else { now_ps };
        self.busy_until_ps = start_ps + self.config.serialisation_ps(waiting.wire_len);
        Some(Departure { packet: waiting.packet, arrives: self.free_at() + self.config.propagation_ns })
    }

    /// When the link is free for the next packet.
    pub(crate) fn free_at(&self) -> Time {
        Time::from_ns(self.busy_until_ps.div_ceil(PS_PER_NS))
    }

    pub(crate) fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// Empties the queue and gives its packets back, for a sender that died.
    pub(crate) fn clear(&mut self) -> Vec<u32> {
        self.queued_bytes = 0;
        self.queues.iter_mut().flat_map(|queue| queue.drain(..)).map(|waiting| waiting.packet).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(by_priority: bool) -> Port {
        // 8 Gbit/s: a byte takes a nanosecond.
        let config = LinkConfig {
            rate_bps: 8_000_000_000,
            propagation_ns: 100,
            queue_bytes: 4_000,
            overhead_bytes: 10,
        };
        Port::new(config, by_priority)
    }

    #[test]
    fn a_packet_takes_its_length_with_overhead_and_then_the_propagation() {
        let mut port = port(true);
        assert!(port.enqueue(1, 990, 0));
        let departure = port.depart(Time::from_ns(50)).unwrap();
        assert_eq!((departure.packet, departure.arrives.as_ns()), (1, 50 + 1_000 + 100));
        assert!(port.enqueue(2, 990, 0));
        assert_eq!(port.depart(Time::from_ns(1_049)), None);
        assert_eq!(port.depart(Time::from_ns(1_050)).unwrap().arrives.as_ns(), 2_150);
    }

    #[test]
    fn higher_priorities_pass_and_equal_ones_keep_their_order() {
        let mut port = port(true);
        for (packet, priority) in [(1, 0), (2, 5), (3, 7), (4, 5)] {
            assert!(port.enqueue(packet, 90, priority));
        }
        let order: Vec<u32> = (0..4).map(|_| port.depart(port.free_at()).unwrap().packet).collect();
        assert_eq!(order, [3, 2, 4, 1]);
    }

    #[test]
    fn a_card_without_priorities_sends_in_order() {
        let mut port = port(false);
        assert!(port.enqueue(1, 90, 0) && port.enqueue(2, 90, 7));
        assert_eq!(port.depart(Time::ZERO).unwrap().packet, 1);
    }

    #[test]
    fn what_does_not_fit_the_queue_is_refused() {
        let mut port = port(true);
        assert!(port.enqueue(1, 1_990, 0) && port.enqueue(2, 1_990, 0));
        assert!(!port.enqueue(3, 1, 7));
        assert_eq!(port.max_queued_bytes, 4_000);
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
        let mut port = Port::new(config, true);
        for packet in 0..1_000 {
            assert!(port.enqueue(packet, 18, 0));
        }
        let mut last = Time::ZERO;
        while let Some(departure) = port.depart(port.free_at()) {
            last = departure.arrives;
        }
        assert_eq!(last.as_ns(), 6_720);
    }
}
