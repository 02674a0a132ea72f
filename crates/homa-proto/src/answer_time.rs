//! The expected answer time of a peer, and the time that a client waits before its first RESEND (PROTOCOL.md
//! RESEND-23 to RESEND-25).
//!
//! Until the first byte of a response arrives, a lost request and a slow server look the same. The answers to
//! the client's own RESENDs tell them apart. If the server is still computing, the RESEND was unnecessary,
//! and the expected time rises. If the request was lost, other requests may be lost too, and the next RESENDs
//! are sent as early as to any other peer. A lost response is no reason for an early RESEND: its server sends
//! NEED_ACK long before. For a peer that answers within the interval, nothing is measured, and packets of
//! other RPCs do not touch this state.

use crate::rpc::{Rpc, RpcState};
use crate::time::Time;

/// Maximum of the expected time, in intervals. Without an expected time, the second RESEND of a request would
/// be sent after this many intervals (RESEND-5), so for a slower peer, waiting longer would save no RESEND.
const MAX_INTERVALS: u64 = 3;

/// The expected time exceeds the measured time of a late answer by an eighth (2^-3).
const MARGIN_SHIFT: u32 = 3;

/// Each time the expected time prolongs a wait, the expected time is lowered by a 4096th (2^-12), to adapt to
/// a peer that becomes faster. The margin lasts for 4096 ln(9/8) = 482 such waits, so at most one of 482 ends
/// with an unnecessary RESEND.
const DECAY_SHIFT: u32 = 12;

/// Number of RESENDs that are sent early after a request was lost. All of them are unnecessary if the server
/// is slow and nothing else was lost. If one request in 256 is lost, the next loss usually occurs before they
/// are used up.
const EARLY_AFTER_LOSS: u16 = 256;

/// Additional delay of a call's first RESEND while another call's first RESEND awaits its answer: a 16th of
/// the interval (2^-4), applied once.
const PROBE_SHIFT: u32 = 4;

/// The observed answer times of a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerTime {
    /// Expected time from the last byte of a request to the first byte of its response, including a margin.
    /// 0: no RESEND was unnecessary, or answers take too long.
    expected_ns: u64,
    /// Number of further RESENDs to be sent early because a request was lost.
    early: u16,
    /// The last time at which a call's first RESEND was sent.
    asked_at: Time,
}

impl AnswerTime {
    pub(crate) const UNKNOWN: AnswerTime = AnswerTime { expected_ns: 0, early: 0, asked_at: Time::ZERO };

    /// Returns the time at which a call whose request was sent at `sent` is due to send its first RESEND
    /// (RESEND-23, RESEND-24).
    pub(crate) fn first_resend(&self, sent: Time, interval_ns: u64) -> Time {
        if self.early > 0 {
            return sent + interval_ns;
        }
        // RESENDs for other calls to the peer may be due at the same time. If one of them is unnecessary, all
        // are.
        let answer_ns = interval_ns >> PROBE_SHIFT;
        let due = sent + interval_ns.max(self.expected_ns);
        due.max((self.asked_at + answer_ns).min(due + answer_ns))
    }

    /// Records a BUSY for a call that had sent RESEND: the server has the request, and the response will show
    /// how long it takes. If nothing is known about the peer, other calls to it wait twice as long until
    /// then.
    pub(crate) fn note_busy(&mut self, now: Time, rpc: &Rpc, interval_ns: u64) {
        let Some(waited_ns) = rpc.waited_for_answer(now) else { return };
        let is_first = self.expected_ns == 0;
        let margin_ns = if is_first { waited_ns } else { waited_ns >> MARGIN_SHIFT };
        self.raise(waited_ns, margin_ns, interval_ns);
    }

    /// Records the first packet of the response to a call that had sent RESEND, unless the packet is a
    /// retransmission.
    pub(crate) fn note_late(&mut self, now: Time, rpc: &Rpc, interval_ns: u64) {
        if let Some(waited_ns) = rpc.waited_for_answer(now) {
            self.raise(waited_ns, waited_ns >> MARGIN_SHIFT, interval_ns);
        }
    }

    fn raise(&mut self, waited_ns: u64, margin_ns: u64, interval_ns: u64) {
        let max_ns = interval_ns.saturating_mul(MAX_INTERVALS);
        let wanted_ns = waited_ns.saturating_add(margin_ns).max(self.expected_ns);
        self.expected_ns = if waited_ns > max_ns { 0 } else { wanted_ns.min(max_ns) };
    }

    /// Records that the expected time has prolonged the wait of a call.
    pub(crate) fn prolong(&mut self) {
        self.expected_ns -= self.expected_ns >> DECAY_SHIFT;
    }

    /// Records that the first RESEND of a call is sent.
    pub(crate) fn ask(&mut self, now: Time) {
        self.asked_at = now;
        self.early = self.early.saturating_sub(1);
    }

    /// Records that a request to the peer was lost (RESEND-24).
    pub(crate) fn note_loss(&mut self) {
        self.early = EARLY_AFTER_LOSS;
    }
}

impl Rpc {
    /// Returns whether the RPC waits only for the server's application: the request was sent in full, and the
    /// peer has requested no part of it again.
    pub(crate) fn awaits_answer(&self) -> bool {
        self.state == RpcState::Requesting && self.outgoing.all_sent() && !self.requested.any()
    }

    /// Returns how long the server has had the request of a call that has sent RESEND. `None` if the time is
    /// unknown because bytes of the request were retransmitted (RESEND-25).
    fn waited_for_answer(&self, now: Time) -> Option<u64> {
        let is_known = self.wait.backoff > 0 && self.awaits_answer() && self.outgoing.sent_before == 0;
        is_known.then(|| now.since(self.wait.progress_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message_out::MessageOut;
    use crate::time::{MS, SEC};

    const INTERVAL_NS: u64 = 5 * MS;

    /// Returns a call that has sent its request at time 0, and one RESEND.
    fn asked() -> Rpc {
        let mut outgoing = MessageOut::new(100, 100);
        outgoing.next = 100;
        let mut rpc = Rpc::new(Time::ZERO, 2, (0, 0), RpcState::Requesting, (1, 2));
        (rpc.outgoing, rpc.wait.backoff) = (outgoing, 1);
        rpc
    }

    fn at(ns: u64) -> Time {
        Time::from_ns(ns)
    }

    /// Returns how long a call waits before its first RESEND, if no other call has recently sent one.
    fn wait_ns(answers: &AnswerTime) -> u64 {
        let sent = at(SEC);
        AnswerTime { asked_at: Time::ZERO, ..*answers }.first_resend(sent, INTERVAL_NS).since(sent)
    }

    // RESEND-23
    #[test]
    fn late_answers_raise_the_expected_time_up_to_three_intervals() {
        let mut answers = AnswerTime::UNKNOWN;
        assert_eq!(wait_ns(&answers), INTERVAL_NS);
        answers.note_busy(at(5 * MS), &asked(), INTERVAL_NS);
        assert_eq!(wait_ns(&answers), 10 * MS, "the answer is not known yet");
        answers.note_busy(at(7 * MS), &asked(), INTERVAL_NS);
        answers.note_late(at(8 * MS), &asked(), INTERVAL_NS);
        assert_eq!(wait_ns(&answers), 10 * MS);
        answers.note_late(at(12 * MS), &asked(), INTERVAL_NS);
        assert_eq!(wait_ns(&answers), 13_500_000);
        answers.note_busy(at(14 * MS), &asked(), INTERVAL_NS);
        assert_eq!(wait_ns(&answers), 3 * INTERVAL_NS);
        answers.note_late(at(16 * MS), &asked(), INTERVAL_NS);
        assert_eq!(wait_ns(&answers), INTERVAL_NS, "answers take too long");
        answers.note_late(Time::NEVER, &asked(), u64::MAX);
        assert_eq!(answers.expected_ns, u64::MAX);
    }

    // RESEND-23
    #[test]
    fn prolonged_waits_take_the_margin_away() {
        let mut answers = AnswerTime::UNKNOWN;
        answers.note_late(at(8 * MS), &asked(), INTERVAL_NS);
        let mut waits = 0;
        while wait_ns(&answers) > 8 * MS {
            answers.prolong();
            waits += 1;
        }
        assert!((480..485).contains(&waits), "{waits}");
    }

    // RESEND-23
    #[test]
    fn a_call_waits_once_for_the_answer_to_another_calls_resend() {
        let mut answers = AnswerTime::UNKNOWN;
        let due = at(SEC + INTERVAL_NS);
        let spare_ns = INTERVAL_NS / 16;
        for (asked_at, expected) in [
            (at(SEC), due),
            (due, due + spare_ns),
            (at(due.as_ns() - 1_000), at(due.as_ns() - 1_000) + spare_ns),
            (due + MS, due + spare_ns),
        ] {
            answers.ask(asked_at);
            assert_eq!(answers.first_resend(at(SEC), INTERVAL_NS), expected);
        }
        answers.note_loss();
        assert_eq!(answers.first_resend(at(SEC), INTERVAL_NS), due, "RESEND-24");
    }

    // RESEND-24
    #[test]
    fn after_a_loss_so_many_resends_are_early() {
        let mut answers = AnswerTime::UNKNOWN;
        answers.note_late(at(8 * MS), &asked(), INTERVAL_NS);
        answers.note_loss();
        for _ in 0..EARLY_AFTER_LOSS {
            assert_eq!(wait_ns(&answers), INTERVAL_NS);
            answers.ask(Time::ZERO);
        }
        assert_eq!(wait_ns(&answers), 9 * MS);
    }

    // RESEND-25
    #[test]
    fn a_request_that_was_sent_again_shows_no_time() {
        let mut again = asked();
        again.outgoing.sent_before = 100;
        let mut requested = asked();
        requested.requested.note(0);
        let mut unasked = asked();
        unasked.wait.backoff = 0;
        let begun = Rpc { state: RpcState::ResponseArriving, ..asked() };
        for rpc in [again, requested, unasked, begun] {
            let mut answers = AnswerTime::UNKNOWN;
            answers.note_busy(at(5 * MS), &rpc, INTERVAL_NS);
            answers.note_late(at(8 * MS), &rpc, INTERVAL_NS);
            assert_eq!(wait_ns(&answers), INTERVAL_NS, "{rpc:?}");
        }
    }
}
