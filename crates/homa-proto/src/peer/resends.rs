//! RESENDs and NEED_ACKs to one peer: which RPCs wait to send one, and how they are spaced (PROTOCOL.md
//! RESEND-7, RESEND-22).

use crate::answer_time::AnswerTime;
use crate::config::Config;
use crate::lists::List;
use crate::rate_limit::RateLimit;
use crate::time::Time;

/// Returns the time between rounds of RESENDs. `doublings` is the number of useless RESENDs, minus the number
/// of RESENDs that brought bytes (RESEND-22).
fn spacing(config: &Config, doublings: u8) -> u64 {
    let doubled =
        config.resend_spacing_ns.saturating_mul(1_u64.checked_shl(doublings.into()).unwrap_or(u64::MAX));
    doubled.min(config.resend_spacing_max_ns.max(config.resend_spacing_ns))
}

/// The RESENDs and NEED_ACKs to one peer.
#[derive(Debug)]
pub(crate) struct PeerResends {
    /// RPCs for which a RESEND is due, in the order in which they became due.
    pub queue: List,
    /// Rate of RESENDs to the peer (RESEND-7).
    rate: RateLimit,
    /// Rate of NEED_ACKs to the peer (RESEND-22).
    need_ack_rate: RateLimit,
    /// Number of times that the spacing of RESENDs to the peer has doubled because RESENDs were useless.
    doublings: u8,
    /// How long the peer takes to answer a request.
    pub answers: AnswerTime,
}

impl PeerResends {
    /// Returns the state before the first RESEND.
    pub(crate) fn new() -> PeerResends {
        PeerResends {
            queue: List::EMPTY,
            rate: RateLimit::default(),
            need_ack_rate: RateLimit::default(),
            doublings: 0,
            answers: AnswerTime::UNKNOWN,
        }
    }

    /// Returns the time at which the next RESEND may be sent. After a pause, `BURST` of them may be sent at
    /// once.
    pub(crate) fn next(&self, now: Time, config: &Config) -> Time {
        self.rate.next(now, self.spacing(config))
    }

    /// Counts a NEED_ACK against its rate limit if it may be sent now; returns whether it may. NEED_ACKs are
    /// spaced like RESENDs: a peer that does not acknowledge has usually not received the requested bytes.
    pub(crate) fn take_need_ack(&mut self, now: Time, config: &Config) -> bool {
        let space_ns = self.spacing(config);
        self.need_ack_rate.take_if_due(now, space_ns)
    }

    /// Counts a RESEND against its rate limit if it may be sent now; returns whether it may.
    pub(crate) fn take_if_due(&mut self, now: Time, config: &Config) -> bool {
        let space_ns = self.spacing(config);
        self.rate.take_if_due(now, space_ns)
    }

    /// Counts a RESEND that is sent now.
    pub(crate) fn take(&mut self, now: Time, config: &Config) {
        let space_ns = self.spacing(config);
        self.rate.take(now, space_ns);
    }

    fn spacing(&self, config: &Config) -> u64 {
        spacing(config, self.doublings)
    }

    /// Forgets how long the peer takes to answer: its process has ended.
    pub(crate) fn forget_answers(&mut self) {
        self.answers = AnswerTime::UNKNOWN;
    }

    /// Counts a useless RESEND to the peer: the peer had nothing to repeat, as when its host gets too little
    /// CPU time. More RESENDs would make that worse. Unanswered RESENDs are not counted, since they are
    /// weaker evidence: a RESEND is sent to every silent sender whose grants are taken back.
    pub(crate) fn count_useless(&mut self, config: &Config) {
        if spacing(config, self.doublings + 1) > spacing(config, self.doublings) {
            self.doublings += 1;
        }
    }

    /// Counts a RESEND to the peer that brought missing bytes.
    pub(crate) fn count_useful(&mut self) {
        self.doublings = self.doublings.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resends_to_one_peer_are_spaced() {
        let config = Config { resend_spacing_ns: 100, ..Config::default() };
        let mut resends = PeerResends::new();
        let now = Time::from_ns(1_000_000);
        let waits = (0..20).map(|_| {
            let wait = resends.next(now, &config).since(now);
            resends.take(now, &config);
            wait
        });
        let waits: Vec<u64> = waits.collect();
        assert_eq!(waits[..17], [0; 17]);
        assert_eq!(waits[17..], [100, 200, 300]);
    }

    #[test]
    fn a_peer_that_is_only_slow_is_asked_more_rarely_until_something_was_lost() {
        // RESEND-22
        let config = Config { resend_spacing_ns: 100, resend_spacing_max_ns: 3_000, ..Config::default() };
        let mut resends = PeerResends::new();
        let space = |resends: &mut PeerResends| {
            let before = resends.next(Time::ZERO, &config);
            resends.take(Time::ZERO, &config);
            resends.next(Time::ZERO, &config).since(before)
        };
        let mut spaces = Vec::new();
        for _ in 0..7 {
            resends.count_useless(&config);
            spaces.push(space(&mut resends));
        }
        assert_eq!(spaces, [200, 400, 800, 1_600, 3_000, 3_000, 3_000]);
        resends.count_useful();
        assert_eq!(space(&mut resends), 1_600);
        (0..9).for_each(|_| resends.count_useful());
        assert_eq!(space(&mut resends), 100);
        let none = Config { resend_spacing_ns: 0, ..config };
        (0..1_000).for_each(|_| resends.count_useless(&none));
        assert_eq!((resends.spacing(&none), resends.spacing(&config)), (0, 100));
    }
}
