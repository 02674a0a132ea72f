//! Time limits of waits: deadlines of blocking waits, and timers that wake futures.
//!
//! The timers belong to the endpoint, and the thread or task that drives the endpoint fires them. A future
//! with a time limit therefore needs no runtime timer, and works without any runtime.

use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Duration;

use homa_proto::Time;

/// The tasks to wake at given times.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    wakers: BTreeMap<(Time, u64), Waker>,
    next_id: u64,
}

impl Timers {
    /// Returns when the next timer is due.
    pub(crate) fn first(&self) -> Option<Time> {
        self.wakers.first_key_value().map(|((due, _), _)| *due)
    }

    /// Removes a timer that is due, and returns its waker.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<Waker> {
        self.first().filter(|due| *due <= now)?;
        self.wakers.pop_first().map(|(_, waker)| waker)
    }
}

/// The time limit of one wait; `None` waits forever.
#[derive(Debug, Default)]
pub(crate) struct TimeLimit {
    timeout: Option<Duration>,
    /// The end of a future's wait, which begins with its first poll.
    until: Option<Time>,
    /// The key of the future's timer, once set. The timer may already have fired.
    timer: Option<(Time, u64)>,
}

impl TimeLimit {
    /// Sets the limit. If the future has already been polled, the limit counts from the next poll.
    pub(crate) fn set(&mut self, timeout: Duration) {
        (self.timeout, self.until) = (Some(timeout), None);
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Returns the end of a wait that begins at the time returned by `now`.
    pub(crate) fn end(&self, now: impl FnOnce() -> Time) -> Option<Time> {
        let timeout = self.timeout?;
        Some(now() + u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Returns whether a future's wait is over. The wait begins with the first call of this function.
    pub(crate) fn has_passed(&mut self, now: Time) -> bool {
        if self.until.is_none() {
            self.until = self.end(|| now);
        }
        self.until.is_some_and(|until| until <= now)
    }

    /// Sets a timer that wakes `waker` at the end of the wait. The first part of the result is true if the
    /// timer was not already set. Sleeping threads must then be notified. The second part is the waker that
    /// was replaced.
    pub(crate) fn arm(&mut self, timers: &mut Timers, waker: &Waker) -> (bool, Option<Waker>) {
        let Some(until) = self.until else { return (false, None) };
        let id = self.timer.map_or_else(
            || {
                timers.next_id += 1;
                timers.next_id
            },
            |(_, id)| id,
        );
        let moved = self.timer.replace((until, id)).filter(|key| key.0 != until);
        let earlier = moved.and_then(|key| timers.wakers.remove(&key));
        let replaced = timers.wakers.insert((until, id), waker.clone());
        (replaced.is_none(), replaced.or(earlier))
    }

    /// Returns whether a timer must be removed before this is dropped.
    pub(crate) fn is_armed(&self) -> bool {
        self.timer.is_some()
    }

    /// Removes the timer, and returns its waker, which must be dropped while no lock is held.
    pub(crate) fn disarm(&mut self, timers: &mut Timers) -> Option<Waker> {
        timers.wakers.remove(&self.timer.take()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_the_order_of_their_times_and_once() {
        let mut timers = Timers::default();
        let mut limits: Vec<TimeLimit> = [30, 10, 20]
            .map(|ns| TimeLimit { timeout: Some(Duration::from_nanos(ns)), ..TimeLimit::default() })
            .into();
        for limit in &mut limits {
            assert!(!limit.has_passed(Time::ZERO));
            assert!(limit.arm(&mut timers, Waker::noop()).0);
            // A later poll changes neither the limit nor the timer.
            assert!(!limit.has_passed(Time::from_ns(5)));
            assert!(matches!(limit.arm(&mut timers, Waker::noop()), (false, Some(_))));
        }
        assert_eq!(timers.first(), Some(Time::from_ns(10)));
        assert!(timers.pop_due(Time::from_ns(9)).is_none());
        assert!(timers.pop_due(Time::from_ns(10)).is_some());
        assert!(limits[1].disarm(&mut timers).is_none(), "it has fired");
        assert!(limits[2].disarm(&mut timers).is_some());
        assert_eq!(timers.first(), Some(Time::from_ns(30)));
        assert!(limits[0].has_passed(Time::from_ns(30)));
    }

    #[test]
    fn a_limit_that_is_set_again_moves_its_timer() {
        let (mut timers, mut limit) = (Timers::default(), TimeLimit::default());
        for (now, due) in [(0, 50), (10, 60)] {
            limit.set(Duration::from_nanos(50));
            assert!(!limit.has_passed(Time::from_ns(now)));
            assert!(limit.arm(&mut timers, Waker::noop()).0);
            assert_eq!((timers.first(), timers.wakers.len()), (Some(Time::from_ns(due)), 1));
        }
        // The timer fired slightly early, according to the clock of another thread, and is set again.
        assert!(timers.pop_due(Time::from_ns(60)).is_some());
        assert!(matches!(limit.arm(&mut timers, Waker::noop()), (true, None)));
        assert!(limit.disarm(&mut timers).is_some() && timers.first().is_none());
    }

    #[test]
    fn without_a_limit_there_is_no_timer() {
        let (mut timers, mut limit) = (Timers::default(), TimeLimit::default());
        assert!(!limit.has_passed(Time::NEVER));
        assert!(matches!(limit.arm(&mut timers, Waker::noop()), (false, None)));
        assert!(timers.first().is_none() && !limit.is_armed());
    }
}
