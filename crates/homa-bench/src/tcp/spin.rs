//! Polling before sleeping.

use std::thread;
use std::time::{Duration, Instant};

/// Number of unsuccessful polls after which the thread yields the processor, as in Homa's waiting threads. If
/// it yielded at each poll, it would repeatedly lose milliseconds whenever another thread needs the
/// processor, and only the yielding protocol would be slowed down.
pub const LOOKS_BETWEEN_YIELDS: u32 = 16;

/// Decides whether an idle thread polls or sleeps: it polls until it has been idle for a set time.
#[derive(Debug)]
pub struct IdlePolling {
    poll: Duration,
    idle_since: Option<Instant>,
    /// Number of unsuccessful polls since the last work.
    looks: u32,
}

impl IdlePolling {
    /// Makes a thread poll for `poll` before it sleeps; with zero it sleeps at once.
    pub fn new(poll: Duration) -> IdlePolling {
        IdlePolling { poll, idle_since: None, looks: 0 }
    }

    /// Returns the timeout of the next poll for work: zero while polling, then `sleep`. Occasionally yields
    /// the processor first: with more threads than processors, a polling thread may keep its own peer from
    /// running. Homa's waiting threads do the same.
    pub fn timeout(&mut self, sleep: Option<Duration>) -> Option<Duration> {
        if self.poll.is_zero() {
            return sleep;
        }
        let now = Instant::now();
        let Some(since) = self.idle_since else {
            self.idle_since = Some(now);
            return Some(Duration::ZERO);
        };
        if now.duration_since(since) >= self.poll {
            return sleep;
        }
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS_BETWEEN_YIELDS) {
            thread::yield_now();
        }
        Some(Duration::ZERO)
    }

    /// Records work, which restarts the idle time.
    pub fn record_work(&mut self) {
        self.idle_since = None;
        self.looks = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_at_once_without_polling() {
        assert_eq!(IdlePolling::new(Duration::ZERO).timeout(None), None);
    }

    #[test]
    fn polls_first_and_again_after_work() {
        let mut spin = IdlePolling::new(Duration::from_secs(3600));
        assert_eq!(spin.timeout(None), Some(Duration::ZERO));
        spin.record_work();
        assert_eq!(spin.timeout(None), Some(Duration::ZERO));
    }

    #[test]
    fn sleeps_after_the_set_time() {
        let mut spin = IdlePolling::new(Duration::from_nanos(1));
        assert_eq!(spin.timeout(None), Some(Duration::ZERO));
        while Instant::now().duration_since(spin.idle_since.expect("idle")) < Duration::from_nanos(1) {}
        assert_eq!(spin.timeout(None), None);
    }
}
