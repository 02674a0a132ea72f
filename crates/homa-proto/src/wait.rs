//! How long an RPC has waited for its peer, and which signs of life the peer has given meanwhile (PROTOCOL.md
//! PEER-3, RESEND-18).

use crate::backoff::backoff_interval;
use crate::time::Time;

/// The wait of an RPC for its peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RpcWait {
    /// Number of RESENDs or NEED_ACKs since the peer's last sign of life.
    pub tries: u8,
    /// How many times the interval to the next RESEND or NEED_ACK has doubled.
    pub backoff: u8,
    /// Whether the peer has sent a packet of this RPC.
    pub answered: bool,
    /// Whether a RESEND was sent since the peer's last RPC_UNKNOWN.
    pub resend_sent: bool,
    /// Whether the peer sent RPC_UNKNOWN after the response had begun to arrive.
    pub unknown_received: bool,
    /// Whether a RESEND requested only a part of the response. The response's other unscheduled bytes are
    /// requested when it is their turn (INCAST-5).
    pub requested_in_part: bool,
    /// The last time at which a packet of the RPC arrived, or a RESEND or NEED_ACK was sent.
    pub quiet_since: Time,
    /// Time of the last progress, or the start of the RPC if there was none yet.
    pub progress_at: Time,
}

impl RpcWait {
    /// Creates the wait of an RPC that begins now. `answered` tells whether a packet of the peer has started
    /// the RPC.
    pub(crate) fn new(now: Time, answered: bool) -> RpcWait {
        RpcWait {
            tries: 0,
            backoff: 0,
            answered,
            resend_sent: false,
            unknown_received: false,
            requested_in_part: false,
            quiet_since: now,
            progress_at: now,
        }
    }

    /// Records that the peer has shown that it waits for us: the next RESEND is due only after a whole
    /// interval.
    pub(crate) fn sign_of_life(&mut self, now: Time) {
        self.answered = true;
        self.tries = 0;
        self.backoff = 0;
        self.quiet_since = now;
    }

    /// Records progress of the RPC: the next RESEND is due only after a whole interval, and all timeouts
    /// restart.
    pub(crate) fn progressed(&mut self, now: Time) {
        self.sign_of_life(now);
        self.progress_at = now;
    }

    /// Records a BUSY: the peer is alive, and the interval to the next RESEND restarts with its current
    /// length (PEER-3, RESEND-18).
    pub(crate) fn note_busy(&mut self, now: Time) {
        (self.quiet_since, self.tries) = (now, 0);
    }

    /// Records that RPC_UNKNOWN answered a RESEND for a response, although nothing of the response has
    /// arrived. The peer is alive, but if it never accepts the request, RESENDs must become rarer and
    /// eventually end (PEER-1).
    pub(crate) fn note_unknown(&mut self, now: Time) {
        (self.answered, self.resend_sent) = (true, false);
        self.quiet_since = now;
    }

    /// Counts a RESEND or NEED_ACK that is sent now, or an interval in which nothing could be sent: the next
    /// interval is twice as long.
    pub(crate) fn count_try(&mut self, now: Time) {
        self.tries = self.tries.saturating_add(1);
        self.back_off(now);
    }

    /// Ends an interval now. The next interval is twice as long.
    pub(crate) fn back_off(&mut self, now: Time) {
        self.backoff = self.backoff.saturating_add(1);
        self.quiet_since = now;
    }

    /// Returns the time at which the current interval ends. The interval is `floor_ns` at first, and doubles
    /// up to `ceiling_ns`.
    pub(crate) fn due(&self, floor_ns: u64, ceiling_ns: u64) -> Time {
        self.quiet_since + backoff_interval(floor_ns, ceiling_ns, self.backoff)
    }

    /// Returns the time at which the RPC ends for lack of progress, even if its peer is alive.
    pub(crate) fn stalled_at(&self, limit_ns: u64) -> Time {
        self.progress_at + limit_ns
    }
}
