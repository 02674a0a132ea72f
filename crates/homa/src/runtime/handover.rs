//! The decision whether to wake a sleeping thread for work that a busy thread may soon take.

use homa_proto::Time;

/// Decides whether to wake a sleeping thread for work that a busy thread may soon take.
///
/// A thread that stops leading could wake another thread to lead. Waking it costs about 13 us, which is
/// wasted if the first thread soon returns, as threads of servers with short handlers do. Leadership is
/// therefore left vacant if recent history shows that a thread returns sooner than a wake-up takes. If no
/// thread returns in time, the progress thread notices within a tick. Leadership is then handed over for a
/// while, which is twice as long after each failure. Requests at an endpoint whose threads are all busy
/// ([`RequestExchange`]) are handled in the same way.
#[derive(Debug)]
pub(crate) struct HandoverBackoff {
    /// The time when leadership was left vacant although there were followers, if it still is.
    empty_since: Option<Time>,
    /// How many more times to hand leadership over without trying to leave it vacant.
    hand_over: u32,
    /// How many times to hand leadership over after the next failed attempt to leave it vacant.
    penalty: u32,
    /// Number of consecutive attempts in which a thread returned in time.
    streak: u32,
}

impl Default for HandoverBackoff {
    fn default() -> HandoverBackoff {
        HandoverBackoff { empty_since: None, hand_over: 0, penalty: HandoverBackoff::MIN_PENALTY, streak: 0 }
    }
}

impl HandoverBackoff {
    /// The total cost of a wake-up to the waker and the sleeper. It is therefore the maximum time for which
    /// leaving leadership vacant pays off.
    const WORTH_NS: u64 = 50_000;
    const MIN_PENALTY: u32 = 64;
    const MAX_PENALTY: u32 = 1 << 20;
    /// Number of consecutive successful attempts after which the next penalty is halved.
    const GOOD_STREAK: u32 = 1_000;

    /// Returns whether leadership may be left vacant now.
    pub(crate) fn may_defer(&mut self, now: Time) -> bool {
        if self.hand_over > 0 {
            self.hand_over -= 1;
            return false;
        }
        self.empty_since.get_or_insert(now);
        true
    }

    /// Returns whether leadership is currently left vacant.
    pub(crate) fn is_deferred(&self) -> bool {
        self.empty_since.is_some()
    }

    /// Records that a thread leads again.
    pub(crate) fn ended(&mut self, now: Time) {
        let Some(since) = self.empty_since.take() else { return };
        if now.since(since) > HandoverBackoff::WORTH_NS {
            self.streak = 0;
            self.hand_over = self.penalty;
            self.penalty = (self.penalty * 2).min(HandoverBackoff::MAX_PENALTY);
            return;
        }
        self.streak += 1;
        if self.streak == HandoverBackoff::GOOD_STREAK {
            self.streak = 0;
            self.penalty = (self.penalty / 2).max(HandoverBackoff::MIN_PENALTY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty_for(lead_handover: &mut HandoverBackoff, ns: u64) -> bool {
        let start = Time::from_ns(1_000_000);
        let deferred = lead_handover.may_defer(start);
        if deferred {
            lead_handover.ended(start + ns);
        }
        deferred
    }

    #[test]
    fn a_lead_stays_empty_while_a_thread_soon_returns() {
        let mut lead_handover = HandoverBackoff::default();
        assert!((0..10_000).all(|_| empty_for(&mut lead_handover, 5_000)));
    }

    #[test]
    fn disappointments_become_rarer() {
        let mut lead_handover = HandoverBackoff::default();
        let tries = |lead_handover: &mut HandoverBackoff, times| {
            (0..times).filter(|_| empty_for(lead_handover, 1_000_000)).count()
        };
        assert_eq!(tries(&mut lead_handover, 1), 1);
        assert_eq!(tries(&mut lead_handover, HandoverBackoff::MIN_PENALTY), 0);
        assert_eq!(tries(&mut lead_handover, 1 + 2 * HandoverBackoff::MIN_PENALTY), 1);
        assert!(tries(&mut lead_handover, 1_000_000) < 15);
    }
}
