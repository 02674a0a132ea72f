//! A driver's queue for one destination that drains slowly or not at all, while packets for other
//! destinations pass.

use homa_proto::Time;

/// The drain rate of a driver's queue for one destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// One packet per interval.
    Slow {
        /// Interval between two packets.
        packet_ns: u64,
    },
    /// No packets until the queue is removed.
    Stopped,
}

/// Maximum length of the queue, in packets. The driver refuses further packets, which are lost.
const MAX_PACKETS: usize = 64;

/// A driver's decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acceptance {
    /// The packet goes onto the uplink at this time.
    At(Time),
    /// The packet stays until the queue is removed.
    Kept,
    /// The queue is full.
    QueueFull,
}

/// A driver's queue for one destination.
#[derive(Debug)]
pub(crate) struct DriverQueue {
    drain: Drain,
    /// Departure of the last accepted packet.
    last_at: Time,
    kept: Vec<u32>,
}

impl DriverQueue {
    pub(crate) fn new(drain: Drain) -> DriverQueue {
        DriverQueue { drain, last_at: Time::ZERO, kept: Vec::new() }
    }

    /// Accepts or refuses a packet at `now`.
    pub(crate) fn accept(&mut self, now: Time, packet: u32) -> Acceptance {
        match self.drain {
            Drain::Slow { packet_ns } if self.last_at.since(now) < packet_ns * MAX_PACKETS as u64 => {
                self.last_at = self.last_at.max(now) + packet_ns;
                Acceptance::At(self.last_at)
            }
            Drain::Stopped if self.kept.len() < MAX_PACKETS => {
                self.kept.push(packet);
                Acceptance::Kept
            }
            Drain::Slow { .. } | Drain::Stopped => Acceptance::QueueFull,
        }
    }

    /// Removes and returns all stored packets.
    pub(crate) fn take_kept(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_queue_spaces_packets_and_is_full_at_its_bound() {
        let mut queue = DriverQueue::new(Drain::Slow { packet_ns: 10 });
        let now = Time::from_ns(5);
        let accepted: Vec<Acceptance> = (0..65).map(|packet| queue.accept(now, packet)).collect();
        let times = (1..=64).map(|n| Acceptance::At(Time::from_ns(5 + 10 * n)));
        assert_eq!(accepted, times.chain([Acceptance::QueueFull]).collect::<Vec<_>>());
        assert_eq!(queue.accept(Time::from_ns(15), 65), Acceptance::At(Time::from_ns(655)));
    }

    #[test]
    fn a_stopped_queue_keeps_packets_up_to_its_bound() {
        let mut queue = DriverQueue::new(Drain::Stopped);
        let kept = (0..100).filter(|&packet| queue.accept(Time::ZERO, packet) == Acceptance::Kept).count();
        assert_eq!((kept, queue.take_kept().len(), queue.take_kept().len()), (64, 64, 0));
    }
}
