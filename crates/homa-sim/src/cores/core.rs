//! One core: its queues, and the choice of its next work.

use std::collections::VecDeque;

use homa_proto::Time;
use homa_steer::Packet;

/// A packet that has arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    /// The caller's ID for the packet.
    pub(super) number: u32,
    pub(super) packet: Packet,
    /// Whether this is the first of a group of packets that were passed on together.
    pub(super) begins: bool,
}

/// The current work of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Idle,
    /// The transition from an interrupt to the handler.
    Interrupt,
    /// Taking a batch from the device.
    Receive,
    /// Processing the first packet of the core's backlog.
    Protocol,
    /// Work caused by the core's packets: sending other packets and waking threads.
    Overhead,
    /// Running the first of the core's runnable threads.
    Application,
}

/// The next work of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Packets,
    Applications,
    Nothing,
}

/// Number of packets that a core takes from one queue, the device's or its backlog, before it switches to the
/// other. These are the kernel's weights (NAPI_POLL_WEIGHT, net.core.dev_weight).
const WEIGHT: u32 = 64;

/// A pass over a queue, with the number of packets it may still take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    None,
    Device { left: u32 },
    Backlog { left: u32 },
}

#[derive(Debug)]
pub(super) struct CoreState {
    /// Packets in the device's queue for this core.
    pub(super) ring: VecDeque<Item>,
    /// Whether the core polls the ring. Otherwise the next packet raises an interrupt.
    pub(super) polls_device: bool,
    /// Whether an interrupt is pending.
    pub(super) interrupted: bool,
    /// The batch that the core is taking.
    pub(super) batch: Vec<Item>,
    /// Packets for the protocol on this core.
    pub(super) backlog: VecDeque<Item>,
    /// Whether the core has been notified of its backlog.
    pub(super) knows: bool,
    /// Whether a wake-up from another core is in progress.
    pub(super) wake_under_way: bool,
    /// Whether the protocol's work is about to start.
    pub(super) begins: bool,
    pass: Pass,
    /// Duration of the pending work caused by the core's packets.
    pub(super) debt_ns: u64,
    /// Runnable threads. The first one runs unless packets keep the core busy.
    pub(super) runnable: VecDeque<u32>,
    /// Number of threads that are being woken on this core.
    pub(super) expected: u32,
    pub(super) slice_ends: Time,
    pub(super) task: Task,
    pub(super) began: Time,
    /// Sequence number of the current work, used to ignore the end of interrupted work.
    pub(super) turn: u32,
    /// Start of the current packet processing, and the number of rounds since then.
    session: Option<(Time, u32)>,
    /// Time until which application threads run before packets.
    pub(super) deferred_until: Option<Time>,
    /// Total time worked so far, without polling.
    pub(super) busy_ns: u64,
    pub(super) poll_ns: u64,
    /// Busy and polling time when counting began.
    pub(super) counted_from: (u64, u64),
    /// Total time worked when the core last processed a packet, and when it last took packets from the
    /// device.
    pub(super) processed_at_busy_ns: u64,
    pub(super) received_at_busy_ns: u64,
    /// Flows whose state is in the core's cache, the most recent last.
    flows: VecDeque<u32>,
}

impl CoreState {
    pub(super) fn new() -> CoreState {
        CoreState {
            ring: VecDeque::new(),
            polls_device: false,
            interrupted: false,
            batch: Vec::new(),
            backlog: VecDeque::new(),
            knows: false,
            wake_under_way: false,
            begins: false,
            pass: Pass::None,
            debt_ns: 0,
            runnable: VecDeque::new(),
            expected: 0,
            slice_ends: Time::ZERO,
            task: Task::Idle,
            began: Time::ZERO,
            turn: 0,
            session: None,
            deferred_until: None,
            busy_ns: 0,
            poll_ns: 0,
            counted_from: (0, 0),
            processed_at_busy_ns: 0,
            received_at_busy_ns: 0,
            flows: VecDeque::new(),
        }
    }

    fn has_packets(&self) -> bool {
        self.interrupted
            || !self.ring.is_empty()
            || self.knows && !self.backlog.is_empty()
            || self.debt_ns > 0
    }

    /// Chooses the core's next work. `longest_ns` and `rounds` limit how long packets keep threads from
    /// running. At the limit, threads run before packets for `slice_ns`, and the second part of the result is
    /// true when this starts. Without `has_work`, all threads only poll, and yield to packets.
    pub(super) fn next(
        &mut self,
        now: Time,
        has_work: bool,
        (longest_ns, rounds): (u64, u32),
        slice_ns: u64,
    ) -> (Next, bool) {
        if !self.has_packets() {
            (self.session, self.pass) = (None, Pass::None);
            return (if self.runnable.is_empty() { Next::Nothing } else { Next::Applications }, false);
        }
        if !has_work {
            self.deferred_until = None;
        }
        if self.deferred_until.is_some_and(|until| now < until) {
            return (Next::Applications, false);
        }
        self.deferred_until = None;
        let (since, done) = *self.session.get_or_insert((now, 0));
        if has_work && (now.since(since) >= longest_ns || done >= rounds) {
            self.session = None;
            self.deferred_until = Some(now + slice_ns);
            return (Next::Applications, true);
        }
        (Next::Packets, false)
    }

    /// Returns the next work on packets. A new pass starts a new round.
    pub(super) fn next_of_packets(&mut self) -> Task {
        if self.debt_ns > 0 {
            return Task::Overhead;
        }
        if self.interrupted {
            return Task::Interrupt;
        }
        let (has_ring, has_backlog) = (!self.ring.is_empty(), self.knows && !self.backlog.is_empty());
        match &mut self.pass {
            Pass::Device { left: 1.. } if has_ring => return Task::Receive,
            Pass::Backlog { left: left @ 1.. } if has_backlog => {
                *left -= 1;
                return Task::Protocol;
            }
            Pass::None | Pass::Device { .. } | Pass::Backlog { .. } => {}
        }
        if let Some((_, rounds)) = &mut self.session {
            *rounds += 1;
        }
        if has_backlog && (!has_ring || matches!(self.pass, Pass::Device { .. })) {
            self.pass = Pass::Backlog { left: WEIGHT - 1 };
            Task::Protocol
        } else {
            self.pass = Pass::Device { left: WEIGHT };
            Task::Receive
        }
    }

    /// Takes a batch of at most `cap` packets from the ring.
    pub(super) fn take_batch(&mut self, cap: u32) -> u32 {
        let mut count = cap.min(self.ring.len() as u32);
        if let Pass::Device { left } = &mut self.pass {
            count = count.min(*left);
            *left -= count;
        }
        self.batch.extend(self.ring.drain(..count as usize));
        count
    }

    /// Loads the state of this flow into the cache. Returns whether it was missing.
    pub(super) fn load_flow(&mut self, flow: u32, kept: usize) -> bool {
        if kept == 0 {
            return false;
        }
        let known = self.flows.iter().position(|&other| other == flow);
        match known {
            Some(place) => {
                self.flows.remove(place);
            }
            None if self.flows.len() >= kept => {
                self.flows.pop_front();
            }
            None => {}
        }
        self.flows.push_back(flow);
        known.is_none()
    }

    /// Returns whether the core is processing packets, and will check for more on its own.
    pub(super) fn is_at_packets(&self) -> bool {
        matches!(self.task, Task::Interrupt | Task::Receive | Task::Protocol | Task::Overhead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(number: u32) -> Item {
        Item { number, packet: Packet::default(), begins: true }
    }

    #[test]
    fn packets_come_first_until_their_time_or_rounds_are_over_and_then_again() {
        let at = Time::from_ns;
        let mut core = CoreState::new();
        assert_eq!(core.next(at(0), false, (100, 3), 50), (Next::Nothing, false));
        core.ring.push_back(item(0));
        core.runnable.push_back(0);
        let has_work = true;
        assert_eq!(core.next(at(10), has_work, (100, 3), 50), (Next::Packets, false));
        assert_eq!(core.next(at(109), has_work, (100, 3), 50), (Next::Packets, false));
        assert_eq!(core.next(at(110), has_work, (100, 3), 50), (Next::Applications, true));
        assert_eq!(core.next(at(159), has_work, (100, 3), 50), (Next::Applications, false));
        assert_eq!(core.next(at(160), has_work, (100, 3), 50), (Next::Packets, false));
        core.backlog.push_back(item(0));
        core.knows = true;
        core.ring.extend((0..99).map(item));
        assert_eq!((core.next_of_packets(), core.take_batch(60)), (Task::Receive, 60));
        assert_eq!((core.next_of_packets(), core.take_batch(60)), (Task::Receive, 4), "the same round");
        assert_eq!(core.next_of_packets(), Task::Protocol);
        core.backlog.clear();
        assert_eq!(core.next(at(161), has_work, (100, 3), 50), (Next::Packets, false));
        assert_eq!(core.next_of_packets(), Task::Receive);
        assert_eq!(core.next(at(161), has_work, (100, 3), 50), (Next::Applications, true), "three rounds");
        let has_work = false;
        assert_eq!(core.next(at(162), has_work, (100, 3), 50), (Next::Packets, false), "its thread polls");
    }

    #[test]
    fn a_backlog_is_processed_before_the_device_is_looked_at_again_and_not_without_end() {
        let mut core = CoreState::new();
        core.ring.extend([item(0), item(1)]);
        (0..100).for_each(|number| core.backlog.push_back(item(number)));
        assert_eq!(
            (core.next_of_packets(), core.take_batch(1)),
            (Task::Receive, 1),
            "it does not know of its backlog"
        );
        core.knows = true;
        assert_eq!((core.next_of_packets(), core.take_batch(1)), (Task::Receive, 1));
        core.ring.push_back(item(2));
        core.pass = Pass::Device { left: 0 };
        for _ in 0..WEIGHT {
            assert_eq!(core.next_of_packets(), Task::Protocol);
        }
        assert_eq!(core.next_of_packets(), Task::Receive);
        core.interrupted = true;
        assert_eq!(core.next_of_packets(), Task::Interrupt);
        core.debt_ns = 1;
        assert_eq!(core.next_of_packets(), Task::Overhead);
    }

    #[test]
    fn the_last_few_flows_are_kept() {
        let mut core = CoreState::new();
        let missed: Vec<bool> = [1, 1, 2, 1, 3, 2, 1].map(|flow| core.load_flow(flow, 2)).to_vec();
        assert_eq!(missed, [true, false, true, false, true, true, true]);
        assert!(!CoreState::new().load_flow(1, 0), "all are kept");
    }
}
