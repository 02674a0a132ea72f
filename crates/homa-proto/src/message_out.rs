//! An outgoing message: which of its bytes may be sent, and which have been sent.

/// How an outgoing message begins (DIALECT-4).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Opening {
    /// With its first bytes.
    #[default]
    Data,
    /// With START_MSG and its first bytes.
    StartAndData,
    /// With START_MSG alone: every byte waits for a grant.
    StartAlone,
}

/// An outgoing message; offsets are exclusive ends. The default is no message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MessageOut {
    /// Length of the message in bytes; 0: there is no message.
    pub length: u32,
    /// Everything before this offset has been sent at least once.
    pub next: u32,
    /// End of the bytes that the receiver (or the unscheduled limit) permits us to send.
    pub granted: u32,
    /// Bytes that may be sent without a grant.
    pub unscheduled: u32,
    /// Priority of scheduled packets, from the last grant.
    pub sched_priority: u8,
    pub opening: Opening,
    /// Everything before this offset had been sent before RPC_UNKNOWN made the message restart; 0: the
    /// message has not restarted.
    pub sent_before: u32,
}

/// Rounds `bytes` down to a multiple of `payload`, unless they do not fill a packet. A short packet at the
/// end of the permitted bytes would cost the link the headers of an additional packet, and both hosts the
/// processing of one.
pub(crate) fn whole_packets(bytes: u32, payload: u32) -> u32 {
    if bytes < payload { bytes } else { bytes - bytes % payload.max(1) }
}

impl MessageOut {
    pub(crate) fn new(length: u32, unsched_bytes: u32) -> MessageOut {
        let unscheduled = length.min(unsched_bytes);
        MessageOut { length, granted: unscheduled, unscheduled, ..MessageOut::default() }
    }

    /// Sets the bytes of a message that may be sent without a grant, before any of it has been sent.
    pub(crate) fn set_unscheduled(&mut self, bytes: u32) {
        self.unscheduled = self.length.min(bytes);
        self.granted = self.unscheduled;
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.next < self.granted
    }

    pub(crate) fn all_sent(&self) -> bool {
        self.next == self.length
    }

    /// Returns whether no byte waits for a grant.
    pub(crate) fn is_all_unscheduled(&self) -> bool {
        self.unscheduled == self.length
    }

    /// Returns the bytes not yet sent: the sender's SRPT key.
    pub(crate) fn remaining(&self) -> u32 {
        self.length - self.next
    }

    /// Raises the granted end to `offset`, but never lowers it (SEND-2). Returns whether it rose.
    pub(crate) fn grant(&mut self, offset: u32) -> bool {
        let offset = offset.min(self.length);
        let rose = offset > self.granted;
        self.granted = self.granted.max(offset);
        rose
    }

    /// Returns offset and length of the next packet. A packet does not extend past the end of the unscheduled
    /// bytes, since the priority changes there. Nor does it extend past the end of bytes sent before, since
    /// only packets with such bytes have the retransmission mark.
    pub(crate) fn next_packet(&self, max_payload: u32) -> (u32, u32) {
        let mut end = if self.next < self.unscheduled { self.unscheduled } else { self.granted };
        if self.is_sent_again() {
            end = end.min(self.sent_before);
        }
        (self.next, max_payload.min(end - self.next))
    }

    /// Returns whether the next packet's bytes were sent before, so that the packet is marked as a
    /// retransmission (WIRE-11).
    pub(crate) fn is_sent_again(&self) -> bool {
        self.next < self.sent_before
    }

    /// Returns whether bytes may be sent that were never sent before, even before a restart of the message. A
    /// smaller grant is not progress (PEER-3).
    pub(crate) fn may_send_new(&self) -> bool {
        self.granted > self.sent_before
    }

    /// Restarts the message from the beginning (RESEND-14), with the number of unscheduled bytes that the
    /// receiver accepts now.
    pub(crate) fn restart(&mut self, unsched_bytes: u32) {
        self.sent_before = self.sent_before.max(self.next);
        self.next = 0;
        self.opening = Opening::Data;
        self.set_unscheduled(unsched_bytes);
    }

    /// Panics unless the offsets are in order.
    pub(crate) fn check(&self) {
        assert!(self.next <= self.granted && self.granted <= self.length, "{self:?}");
        assert!(self.unscheduled <= self.granted && self.sent_before <= self.length, "{self:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_sent_is_whole_packets_or_less_than_one() {
        let of = [0, 1, 1_415, 1_416, 1_417, 5_888].map(|bytes| whole_packets(bytes, 1_416));
        assert_eq!(of, [0, 1, 1_415, 1_416, 1_416, 5_664]);
        assert_eq!(whole_packets(7, 0), 7);
    }

    #[test]
    fn packets_are_cut_at_the_unscheduled_limit() {
        let mut message = MessageOut::new(10_000, 4_000);
        assert_eq!(message.next_packet(1_500), (0, 1_500));
        message.next = 3_000;
        message.grant(9_000);
        assert_eq!(message.next_packet(1_500), (3_000, 1_000));
        message.next = 4_000;
        assert_eq!(message.next_packet(1_500), (4_000, 1_500));
    }

    #[test]
    fn what_was_sent_before_a_restart_is_sent_again_and_the_rest_for_the_first_time() {
        let mut message = MessageOut::new(10_000, 4_000);
        message.grant(6_000);
        message.next = 5_000;
        message.restart(4_000);
        assert_eq!((message.next_packet(3_000), message.is_sent_again()), ((0, 3_000), true));
        message.next = 4_000;
        message.grant(10_000);
        assert_eq!((message.next_packet(3_000), message.is_sent_again()), ((4_000, 1_000), true));
        message.next = 1_000;
        message.restart(4_000);
        message.next = 5_000;
        message.grant(10_000);
        assert_eq!((message.next_packet(3_000), message.is_sent_again()), ((5_000, 3_000), false));
        message.check();
    }

    #[test]
    fn a_grant_neither_goes_back_nor_beyond_the_end() {
        let mut message = MessageOut::new(10_000, 4_000);
        assert!(message.grant(6_000));
        assert!(!message.grant(5_000));
        assert!(message.grant(u32::MAX));
        assert_eq!(message.granted, 10_000);
        message.check();
    }
}
