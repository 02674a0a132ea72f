//! Loss of unscheduled bytes. If more unscheduled bytes were sent than the limit on bytes in flight, and then
//! no packet arrives, a queue in the network has overflowed. RESENDs then request the missing bytes, within
//! the limit on bytes in flight (PROTOCOL.md INCAST-4, INCAST-5).
//!
//! The regular RESEND timers would request the same bytes later and for all messages together, which would
//! overflow the queue again.

use crate::lists::Links;
use crate::message_in::UnscheduledState;
use crate::srpt::SrptQueue;
use crate::time::Time;

/// Precision of the order in which lost bytes are requested: one part in 16, as for grants (GRANT-6).
const SUB: u32 = 4;

/// The messages with unscheduled bytes in flight, or lost.
#[derive(Debug)]
pub(crate) struct LossAccounting {
    links: Links,
    in_flight: SrptQueue<SUB>,
    lost: SrptQueue<SUB>,
    /// The time at which the bytes in flight count as lost, unless a packet arrives earlier.
    at: Option<Time>,
    /// The last known time at which a queue in the network overflowed.
    overflowed: Option<Time>,
    /// Whether there may be room for more requests than one call sends.
    requests_left: bool,
}

impl LossAccounting {
    pub(crate) fn with_capacity(rpcs: usize) -> LossAccounting {
        LossAccounting {
            links: Links::with_capacity(rpcs),
            in_flight: SrptQueue::new(),
            lost: SrptQueue::new(),
            at: None,
            overflowed: None,
            requests_left: false,
        }
    }

    /// Makes `slot` a valid index.
    pub(crate) fn resize(&mut self, slots: usize) {
        self.links.resize(slots);
    }

    /// Returns the time at which `handle_timeout` must be called; [`Time::NEVER`] if nothing is due.
    pub(crate) fn next(&self, now: Time) -> Time {
        if self.requests_left { now } else { self.at.unwrap_or(Time::NEVER) }
    }

    /// Returns whether a queue in the network overflowed in the last `ns` nanoseconds.
    pub(crate) fn overflowed_since(&self, now: Time, ns: u64) -> bool {
        self.overflowed.is_some_and(|at| now.since(at) <= ns)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.in_flight.is_empty() && self.lost.is_empty()
    }

    /// Returns whether unscheduled bytes wait to be requested.
    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Moves a message with `bytes` missing bytes from state `at` to state `to`.
    pub(crate) fn place(&mut self, slot: u32, at: &mut UnscheduledState, to: UnscheduledState, bytes: u32) {
        match std::mem::replace(at, to) {
            UnscheduledState::Settled => {}
            UnscheduledState::InFlight => self.in_flight.remove(&mut self.links, slot),
            UnscheduledState::Lost => self.lost.remove(&mut self.links, slot),
        }
        match to {
            UnscheduledState::Settled => {}
            UnscheduledState::InFlight => self.in_flight.insert(&mut self.links, slot, bytes),
            UnscheduledState::Lost => self.lost.insert(&mut self.links, slot, bytes),
        }
    }

    /// Records the arrival of packets while `in_flight` bytes, granted or sent without a grant, have not
    /// arrived. If these are more than `most`, the maximum that grants alone could cause, they count as lost
    /// after `quiet_ns` without another packet.
    pub(crate) fn watch(&mut self, now: Time, in_flight: u64, most: u64, quiet_ns: u64) {
        let overflows = !self.in_flight.is_empty() && in_flight > most;
        self.at = overflows.then(|| now + quiet_ns);
    }

    /// Returns whether bytes in flight count as lost now.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.at.is_some_and(|at| at <= now)
    }

    /// Returns the shortest message whose bytes are in flight.
    pub(crate) fn first_in_flight(&self) -> Option<u32> {
        self.in_flight.first()
    }

    /// Returns the shortest message whose bytes wait to be requested.
    pub(crate) fn first_lost(&self) -> Option<u32> {
        self.lost.first()
    }

    /// Records that a queue in the network has overflowed. The remaining bytes in flight count as lost
    /// immediately.
    pub(crate) fn overflowed(&mut self, now: Time) {
        self.overflowed = Some(now);
        self.at = (!self.in_flight.is_empty()).then_some(now);
    }

    /// Records that there may be room for more requests than this call sends.
    pub(crate) fn leave_requests(&mut self) {
        self.requests_left = true;
    }

    /// Returns whether the last call left requests for the next call.
    pub(crate) fn take_left_requests(&mut self) -> bool {
        std::mem::take(&mut self.requests_left)
    }

    /// Panics unless the queues agree. Returns the messages with bytes in flight, and those with lost bytes.
    pub(crate) fn check(&self) -> (Vec<u32>, Vec<u32>) {
        let slots = |queue: &SrptQueue<SUB>| {
            let mut slots = queue.check(&self.links);
            slots.sort_unstable();
            slots
        };
        (slots(&self.in_flight), slots(&self.lost))
    }
}
