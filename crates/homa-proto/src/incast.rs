//! Incast: limits on the unscheduled bytes that many senders may send at the same time (PROTOCOL.md INCAST).
//!
//! Client and server have different information. A client knows how many responses it requests at the same
//! time. It states in each request how many bytes of the response may be unscheduled ([`UnscheduledQuota`]).
//! A server does not know which clients will call. It measures how many unscheduled bytes would have arrived
//! at the same time, and sends its peers a limit ([`IncastEstimator`]). Responses and requests may each use
//! half of `max_incoming`.
//!
//! Both count bytes that arrive at the same time, not outstanding bytes. Many RPCs that arrive no faster than
//! the link carries them do not fill a queue, and a limit would cost each of them a round trip. If the rate
//! of the link is unknown, no sender is limited.

use crate::config::Config;
use crate::time::Time;

/// A virtual queue that drains at the rate of the link. Only its level is stored.
#[derive(Debug)]
struct Queue {
    /// Bytes that the link carries in 2^16 nanoseconds; 0: rate unknown.
    rate_q16: u64,
    level: u64,
    at: Time,
}

impl Queue {
    fn new(config: &Config) -> Queue {
        // If there are several endpoints, each receives a part of the packets, and computes with an equal
        // part of the link rate.
        let rate_q16 = config.link_mbps.map_or(0, |mbps| (u64::from(mbps) << 16) / 8_000);
        let rate_q16 = rate_q16 / u64::from(config.endpoints);
        Queue { rate_q16, level: 0, at: Time::ZERO }
    }

    fn has_rate(&self) -> bool {
        self.rate_q16 != 0
    }

    /// Returns the bytes in the queue at `now`.
    fn level(&self, now: Time) -> u64 {
        self.level.saturating_sub(self.drained(now, self.at))
    }

    /// Returns the bytes that the link carries from `since` until `now`.
    fn drained(&self, now: Time, since: Time) -> u64 {
        let drained = (u128::from(now.since(since)) * u128::from(self.rate_q16)) >> 16;
        drained.min(u128::from(u64::MAX)) as u64
    }

    fn add(&mut self, now: Time, bytes: u32) {
        self.level = self.level(now) + u64::from(bytes);
        self.at = self.at.max(now);
    }
}

/// Quota of unscheduled bytes for all responses to our RPCs together.
#[derive(Debug)]
pub(crate) struct UnscheduledQuota {
    /// Bytes that would be queued before our link if all responses began now.
    queue: Queue,
    /// Running mean of the unscheduled bytes of a response, in units of 1/256.
    expected_q8: u64,
}

impl UnscheduledQuota {
    pub(crate) fn new(config: &Config) -> UnscheduledQuota {
        UnscheduledQuota { queue: Queue::new(config), expected_q8: u64::from(config.unsched_bytes) << 8 }
    }

    /// Returns the maximum unscheduled bytes of the response to a request made now, from a server that would
    /// send up to `unsched`. `None`: no limit (INCAST-1). Each request gets half of the remaining quota, so
    /// that the first requests leave enough for any number of others.
    pub(crate) fn next(&mut self, now: Time, config: &Config, unsched: u32) -> Option<u32> {
        if !self.queue.has_rate() {
            return None;
        }
        let left = half(config).saturating_sub(self.queue.level(now)) / 2;
        let most = unsched.max(config.min_unsched_bytes);
        let limit = left.clamp(config.min_unsched_bytes.into(), most.into()) as u32;
        let expected = (self.expected_q8 >> 8).clamp(1, u64::from(u32::MAX)) as u32;
        self.queue.add(now, limit.min(expected));
        Some(limit)
    }

    /// Records that a response began, which would have up to `unscheduled` unscheduled bytes without a limit.
    pub(crate) fn observe(&mut self, unscheduled: u32) {
        let sample = u64::from(unscheduled) << 8;
        self.expected_q8 = self.expected_q8 - self.expected_q8 / 8 + sample / 8;
    }
}

/// Unscheduled bytes that one peer would recently have sent without a limit: a virtual queue like the one for
/// all peers, limited to the peer's share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerEstimate {
    level: u64,
    at: Time,
}

/// Counts of messages and sums of their unscheduled bytes, by the power of two of each message's unscheduled
/// bytes.
#[derive(Clone, Copy, Debug, Default)]
struct SizeClass {
    counts: [u64; 32],
    bytes: [u64; 32],
}

impl SizeClass {
    fn add(&mut self, unscheduled: u32) {
        let bucket = unscheduled.max(1).ilog2() as usize;
        self.counts[bucket] += 1;
        self.bytes[bucket] += u64::from(unscheduled);
    }

    /// Returns the maximum number of unscheduled bytes per message that would reduce the `level` bytes of
    /// this mixture to at most `room`. Messages that need less leave the rest to others.
    fn limit(&self, level: u64, room: u64) -> u64 {
        // Converts `room` to bytes of the whole mixture, of which only `level` bytes were in the queue at the
        // same time.
        let total: u64 = self.bytes.iter().sum();
        let room = u128::from(room) * u128::from(total) / u128::from(level.max(1));
        let (mut below, mut above) = (0, self.counts.iter().sum::<u64>());
        let mut limit = u64::MAX;
        for (count, bytes) in self.counts.iter().zip(self.bytes).filter(|(count, _)| **count > 0) {
            let even = (room.saturating_sub(below) / u128::from(above)).min(u128::from(u64::MAX)) as u64;
            limit = even;
            if even < bytes / count {
                return even;
            }
            below += u128::from(bytes);
            above -= count;
        }
        limit
    }
}

/// The highest queue level within a window, and the messages that caused it.
#[derive(Clone, Copy, Debug, Default)]
struct WindowMaximum {
    level: u64,
    messages: SizeClass,
}

/// Estimates how many unscheduled bytes arrive at the same time, and computes the limit from the estimate.
#[derive(Debug)]
pub(crate) struct IncastEstimator {
    /// Bytes that would be queued before our link if every peer sent its unscheduled bytes without a limit.
    /// The limit sent to peers does not affect this queue, so the limit does not cancel itself.
    queue: Queue,
    /// The messages since the queue was last empty.
    messages: SizeClass,
    /// The peaks of the current window and of the previous one.
    peak: WindowMaximum,
    before: WindowMaximum,
    rotate_at: Time,
    /// Whether a peak changed since the limit was last computed.
    dirty: bool,
    limit: Option<u32>,
}

impl IncastEstimator {
    pub(crate) fn new(config: &Config) -> IncastEstimator {
        IncastEstimator {
            queue: Queue::new(config),
            messages: SizeClass::default(),
            peak: WindowMaximum::default(),
            before: WindowMaximum::default(),
            rotate_at: Time::ZERO,
            dirty: false,
            limit: None,
        }
    }

    /// Records a message of a peer that would have `unscheduled` unscheduled bytes without a limit. The
    /// peer's earlier claims drain at the rate of the link. Claims of one peer above half of what may arrive
    /// at the same time are ignored (SHARE-8): the peer's link is no faster than ours, so one peer alone
    /// cannot cause an incast.
    pub(crate) fn observe(
        &mut self,
        now: Time,
        unscheduled: u32,
        claims: &mut PeerEstimate,
        config: &Config,
    ) {
        if !self.queue.has_rate() {
            return;
        }
        let level = claims.level.saturating_sub(self.queue.drained(now, claims.at));
        let unscheduled = u64::from(unscheduled).min((half(config) / 2).saturating_sub(level)) as u32;
        *claims = PeerEstimate { level: level + u64::from(unscheduled), at: now };
        if unscheduled == 0 {
            return;
        }
        if now >= self.rotate_at {
            // If two windows have passed without a message, the past peaks are obsolete.
            let idle = now.since(self.rotate_at) > config.incast_memory_ns;
            let past = std::mem::take(&mut self.peak);
            self.before = if idle { WindowMaximum::default() } else { past };
            self.rotate_at = now + config.incast_memory_ns;
            self.dirty = true;
        }
        if self.queue.level(now) == 0 {
            self.messages = SizeClass::default();
        }
        self.queue.add(now, unscheduled);
        self.messages.add(unscheduled);
        let level = self.queue.level;
        if level > self.peak.level && level > half(config) {
            self.peak = WindowMaximum { level, messages: self.messages };
            self.dirty = true;
        }
    }

    /// Recomputes the limit. Since each change is sent to every peer, the limit changes only if the
    /// difference is more than a quarter (INCAST-2). Returns whether it changed.
    pub(crate) fn update(&mut self, config: &Config) -> bool {
        if !std::mem::take(&mut self.dirty) {
            return false;
        }
        let room = half(config);
        let peaks = [self.peak, self.before].into_iter().filter(|peak| peak.level > room);
        let limit = peaks.map(|peak| peak.messages.limit(peak.level, room)).min();
        let limit = limit.map(|limit| (limit.min(u64::from(u32::MAX)) as u32).max(config.min_unsched_bytes));
        let changed = match (limit, self.limit) {
            (Some(new), Some(old)) => new.abs_diff(old) > old / 4,
            (new, old) => new != old,
        };
        if changed {
            self.limit = limit;
        }
        changed
    }

    /// Adopts a limit that another endpoint of this host computed.
    pub(crate) fn set_limit(&mut self, limit: Option<u32>) {
        self.limit = limit;
    }

    /// Returns the maximum unscheduled bytes of a message that a peer may send; `None`: no limit.
    pub(crate) fn limit(&self) -> Option<u32> {
        self.limit
    }
}

/// Returns this endpoint's part of the bytes that requests, or responses, may send unscheduled at the same
/// time: half of `max_incoming`, divided by the number of endpoints.
fn half(config: &Config) -> u64 {
    u64::from(config.max_incoming / 2 / config.endpoints)
}

/// Returns the part of a grant budget that is reserved for unscheduled bytes that may arrive (INCAST-3).
pub(crate) fn reserved(
    now: Time,
    budget: u64,
    unscheduled_quota: &UnscheduledQuota,
    incast_estimator: &IncastEstimator,
) -> u64 {
    if incast_estimator.limit().is_some() {
        budget / 2
    } else {
        unscheduled_quota.queue.level(now).min(budget / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config { max_incoming: 160_000, min_unsched_bytes: 500, link_mbps: Some(8_000), ..Config::default() }
    }

    /// Observes a message of a peer that has sent no message before.
    fn observe(incast_estimator: &mut IncastEstimator, ns: u64, unscheduled: u32, config: &Config) {
        incast_estimator.observe(Time::from_ns(ns), unscheduled, &mut PeerEstimate::default(), config);
    }

    /// SHARE-8
    #[test]
    fn what_one_peer_claims_is_no_incast_and_what_three_do_is() {
        let config = config();
        let limit = |peers: usize| {
            let mut incast_estimator = IncastEstimator::new(&config);
            let mut claims = vec![PeerEstimate::default(); peers];
            for message in 0..1_000 {
                incast_estimator.observe(
                    Time::from_ns(message),
                    30_000,
                    &mut claims[message as usize % peers],
                    &config,
                );
            }
            incast_estimator.update(&config);
            incast_estimator.limit()
        };
        assert_eq!(limit(1), None);
        assert!(limit(3).is_some());
    }

    // INCAST-1
    #[test]
    fn promises_stay_within_half_of_max_incoming_save_the_least_that_each_gets() {
        let config = config();
        let mut unscheduled_quota = UnscheduledQuota::new(&config);
        let limits: Vec<u32> =
            (0..100).map(|_| unscheduled_quota.next(Time::ZERO, &config, 30_000).unwrap()).collect();
        assert_eq!(limits[..3], [30_000, 25_000, 12_500]);
        assert_eq!(limits[99], 500);
        let sum: u64 = limits.iter().map(|&limit| u64::from(limit)).sum();
        assert!(sum <= 80_000 + 100 * 500, "{sum}");
        assert_eq!(unscheduled_quota.queue.level, sum);
    }

    #[test]
    fn requests_as_fast_as_the_link_carries_their_responses_are_not_limited() {
        let config = config();
        let mut unscheduled_quota = UnscheduledQuota::new(&config);
        for request in 0..1_000 {
            assert_eq!(
                unscheduled_quota.next(Time::from_ns(request * 40_000), &config, 40_000),
                Some(40_000)
            );
        }
    }

    #[test]
    fn short_responses_are_not_limited_however_many_are_asked_for() {
        let config = config();
        let mut unscheduled_quota = UnscheduledQuota::new(&config);
        (0..100).for_each(|_| unscheduled_quota.observe(100));
        for _ in 0..200 {
            assert_eq!(unscheduled_quota.next(Time::ZERO, &config, 25_000), Some(25_000));
        }
        assert!(unscheduled_quota.queue.level <= 200 * 110);
    }

    // INCAST-2
    #[test]
    fn the_limit_shares_the_room_among_those_who_need_it() {
        let config = config();
        let limit = |messages: &[(u64, u32)]| {
            let mut incast_estimator = IncastEstimator::new(&config);
            for &(count, unscheduled) in messages {
                (0..count).for_each(|_| observe(&mut incast_estimator, 1_000, unscheduled, &config));
            }
            incast_estimator.update(&config);
            assert!(!incast_estimator.update(&config), "nothing has changed since");
            incast_estimator.limit()
        };
        assert_eq!(limit(&[(100, 40_000)]), Some(800));
        assert_eq!(limit(&[(100, 8_000)]), Some(800));
        assert_eq!(limit(&[(8, 10_000)]), None, "80,000 bytes may come");
        assert_eq!(limit(&[(1_000, 40_000)]), Some(500), "the least that each gets");
        assert_eq!(limit(&[(200, 100), (10, 40_000)]), Some(6_000), "the short ones leave 60,000 to ten");
    }

    #[test]
    fn what_the_link_carries_in_time_is_no_incast() {
        let config = config();
        let mut incast_estimator = IncastEstimator::new(&config);
        for message in 0..1_000 {
            observe(&mut incast_estimator, message * 40_100, 40_000, &config);
        }
        assert!(!incast_estimator.update(&config));
        assert_eq!(incast_estimator.limit(), None);
    }

    #[test]
    fn the_limit_goes_when_an_incast_is_long_past() {
        let config = config();
        let mut incast_estimator = IncastEstimator::new(&config);
        for round in 0..4 {
            let at = round * config.incast_memory_ns;
            let messages = if round == 0 { 100 } else { 1 };
            (0..messages).for_each(|_| observe(&mut incast_estimator, at, 40_000, &config));
            incast_estimator.update(&config);
            assert_eq!(incast_estimator.limit().is_some(), round < 2, "round {round}");
        }
    }

    // INCAST-1, INCAST-2
    #[test]
    fn endpoints_that_see_a_part_each_find_the_limit_of_the_whole() {
        let whole = config();
        let part = Config { endpoints: 4, ..config() };
        let limit = |config: &Config, messages| {
            let mut incast_estimator = IncastEstimator::new(config);
            (0..messages).for_each(|_| observe(&mut incast_estimator, 1_000, 10_000, config));
            incast_estimator.update(config);
            incast_estimator.limit()
        };
        assert_eq!((limit(&whole, 100), limit(&part, 25)), (Some(800), Some(800)));
        let promised = |config: &Config| {
            let mut unscheduled_quota = UnscheduledQuota::new(config);
            (0..8)
                .map(|_| u64::from(unscheduled_quota.next(Time::ZERO, config, 30_000).unwrap()))
                .sum::<u64>()
        };
        assert!(4 * promised(&part) <= 80_000 + 4 * 8 * 500, "{}", promised(&part));
    }

    #[test]
    fn without_a_known_rate_nobody_is_limited() {
        let config = Config { link_mbps: None, ..config() };
        let mut incast_estimator = IncastEstimator::new(&config);
        (0..1_000).for_each(|_| observe(&mut incast_estimator, 0, 40_000, &config));
        assert!(!incast_estimator.update(&config) && incast_estimator.limit().is_none());
        assert_eq!(UnscheduledQuota::new(&config).next(Time::ZERO, &config, 40_000), None);
    }
}
