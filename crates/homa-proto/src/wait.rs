//! How long an RPC has waited for its peer, and what the peer has shown meanwhile (PROTOCOL.md PEER-3,
//! RESEND-18).

use crate::backoff::backoff_interval;
use crate::time::Time;

/// The wait of an RPC for its peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RpcWait {
    /// RESENDs or NEED_ACKs since the last sign of the peer.
    pub tries: u8,
    /// How many times the interval to the next one has doubled.
    pub backoff: u8,
    /// The peer has sent a packet of this RPC.
    pub answered: bool,
    /// A RESEND was sent since the last RPC_UNKNOWN of the peer.
    pub resend_sent: bool,
    /// The peer sent RPC_UNKNOWN when the response had begun to arrive.
    pub unknown_received: bool,
    /// A RESEND requested only a part of the response; its other unscheduled bytes are requested in turn
    /// (INCAST-5).
    pub requested_in_part: bool,
    /// When a packet of the RPC last arrived, or a RESEND or NEED_ACK was sent.
    pub quiet_since: Time,
    /// Time of the last progress; before any, the start of the RPC.
    pub progress_at: Time,
}

impl RpcWait {
    /// The wait of an RPC that begins now. `answered`: a packet of the peer begins it.
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

    /// The peer has shown that it waits for us: the next RESEND waits for the whole interval.
    pub(crate) fn sign_of_life(&mut self, now: Time) {
        self.answered = true;
        self.tries = 0;
        self.backoff = 0;
        self.quiet_since = now;
    }

    /// The RPC made progress: the next RESEND waits for the whole interval, and all timeouts restart.
    pub(crate) fn progressed(&mut self, now: Time) {
        self.sign_of_life(now);
        self.progress_at = now;
    }

    /// BUSY arrived: the peer is alive, and the interval to the next RESEND stays as long as it is (PEER-3,
    /// RESEND-18).
    pub(crate) fn note_busy(&mut self, now: Time) {
        (self.quiet_since, self.tries) = (now, 0);
    }

    /// RPC_UNKNOWN answered a RESEND for a response of which nothing has arrived. The peer is alive. If it
    /// never accepts the request, RESENDs must become rarer and end at some time (PEER-1).
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

    /// An interval ends now: the next one is twice as long.
    pub(crate) fn back_off(&mut self, now: Time) {
        self.backoff = self.backoff.saturating_add(1);
        self.quiet_since = now;
    }

    /// When the present interval ends. It is `floor_ns` at first, and doubles up to `ceiling_ns`.
    pub(crate) fn due(&self, floor_ns: u64, ceiling_ns: u64) -> Time {
        self.quiet_since + backoff_interval(floor_ns, ceiling_ns, self.backoff)
    }

    /// When the RPC ends for lack of progress, whatever signs of life its peer sends.
    pub(crate) fn stalled_at(&self, limit_ns: u64) -> Time {
        self.progress_at + limit_ns
    }
}
