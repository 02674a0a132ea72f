//! Acknowledgements: how a client lets its servers free finished RPCs (PROTOCOL.md ACK).

use std::collections::VecDeque;

use crate::wire::{Ack, AckList, MAX_ACKS};

/// Maximum number of acknowledgements deferred at a time. Handling that many takes a few microseconds.
pub(crate) const MAX_DEFERRED: usize = 32;

/// Maximum number of acknowledgements for one peer that wait for requests to carry them (ACK-3). A client
/// with this many RPCs open to a peer may complete all of them in one receive burst, and the requests that
/// follow then carry the acknowledgements.
const MAX_WAITING: usize = 64;

/// Acknowledgements for one peer that wait for a packet to carry them.
#[derive(Debug, Default)]
pub(crate) struct WaitingAcks {
    acks: VecDeque<Ack>,
    /// Client port of the RPC whose acknowledgement was queued last; used as the source port of an ACK
    /// packet.
    port: u16,
    /// Whether a deadline is set at which the peer's acknowledgements are sent.
    is_watched: bool,
}

/// The next step for a peer's waiting acknowledgements after one was added (ACK-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckAction {
    /// A request will carry them.
    Wait,
    /// Set a deadline for sending them, in case no request carries them earlier.
    SetDeadline,
    /// Too many are waiting: send them now.
    Send,
}

impl WaitingAcks {
    pub(crate) fn len(&self) -> usize {
        self.acks.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.acks.is_empty()
    }

    /// Returns the client port from which to send an ACK packet.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Adds the acknowledgement of an RPC of our client port `port`. Returns what to do next, and whether the
    /// oldest acknowledgement was forgotten because `limit` of them waited (ACK-11).
    pub(crate) fn add(&mut self, ack: Ack, port: u16, limit: usize) -> (AckAction, bool) {
        let forgets = self.acks.len() >= limit.max(1);
        if forgets {
            self.pop();
        }
        self.acks.push_back(ack);
        self.port = port;
        let action = if self.acks.len() >= MAX_WAITING.min(limit).max(MAX_ACKS) {
            AckAction::Send
        } else if self.acks.len() >= MAX_ACKS && !self.is_watched {
            self.is_watched = true;
            AckAction::SetDeadline
        } else {
            AckAction::Wait
        };
        (action, forgets)
    }

    /// Ends the deadline. Returns whether one was set for the waiting acknowledgements.
    pub(crate) fn end_deadline(&mut self) -> bool {
        std::mem::take(&mut self.is_watched)
    }

    /// Removes the oldest acknowledgement, for the caller to send.
    pub(crate) fn pop(&mut self) -> Option<Ack> {
        self.acks.pop_front()
    }

    /// Removes up to five acknowledgements, the oldest first, for the caller to send.
    pub(crate) fn take(&mut self) -> AckList {
        let mut acks = AckList::new();
        while acks.len() < MAX_ACKS {
            let Some(ack) = self.pop() else { break };
            acks.push(ack);
        }
        acks
    }

    pub(crate) fn clear(&mut self) {
        self.acks.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // ACK-3, ACK-11
    #[test]
    fn a_deadline_is_set_once_and_a_full_queue_is_sent() {
        let ack = |n: u64| Ack { client_id: 2 * n, server_port: 9 };
        let actions = |limit: usize, count: u64| -> Vec<(AckAction, bool)> {
            let mut waiting = WaitingAcks::default();
            (1..=count).map(|n| waiting.add(ack(n), 40_000, limit)).collect()
        };
        let many = actions(256, 64);
        assert!(many[..4].iter().all(|added| *added == (AckAction::Wait, false)));
        assert_eq!(many[4], (AckAction::SetDeadline, false));
        assert!(many[5..63].iter().all(|added| *added == (AckAction::Wait, false)));
        assert_eq!(many[63], (AckAction::Send, false));
        assert_eq!(
            actions(2, 3),
            [(AckAction::Wait, false), (AckAction::Wait, false), (AckAction::Wait, true)]
        );
    }

    #[test]
    fn five_are_taken_at_a_time_the_oldest_first() {
        let mut waiting = WaitingAcks::default();
        (1..=7).for_each(|n| _ = waiting.add(Ack { client_id: 2 * n, server_port: 9 }, 40_000, 256));
        let taken: Vec<u64> = waiting.take().iter().map(|ack| ack.client_id).collect();
        assert_eq!((taken, waiting.len(), waiting.port()), (vec![2, 4, 6, 8, 10], 2, 40_000));
        assert!(waiting.end_deadline() && !waiting.end_deadline());
    }
}
