//! Polling before sleeping.

use std::thread;
use std::time::{Duration, Instant};

/// Decides whether a thread with nothing to do polls on or sleeps: it polls until it was idle for a set time.
#[derive(Debug)]
pub struct Spin {
    poll: Duration,
    idle_since: Option<Instant>,
}

impl Spin {
    /// Polls for `poll` before it sleeps; zero: sleeps at once.
    pub fn new(poll: Duration) -> Spin {
        Spin { poll, idle_since: None }
    }

    /// The timeout of the next look for work: zero while polling, then `sleep`. From the second look in vain on, the
    /// processor is offered to others first: where more threads than processors want to run, the one that polls may be
    /// what keeps its own peer from running. Homa's waiting threads do the same.
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
        thread::yield_now();
        Some(Duration::ZERO)
    }

    /// There was work: the idle time begins anew.
    pub fn worked(&mut self) {
        self.idle_since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_at_once_without_polling() {
        assert_eq!(Spin::new(Duration::ZERO).timeout(None), None);
    }

    #[test]
    fn polls_first_and_again_after_work() {
        let mut spin = Spin::new(Duration::from_secs(3600));
        assert_eq!(spin.timeout(None), Some(Duration::ZERO));
        spin.worked();
        assert_eq!(spin.timeout(None), Some(Duration::ZERO));
    }

    #[test]
    fn sleeps_after_the_set_time() {
        let mut spin = Spin::new(Duration::from_nanos(1));
        assert_eq!(spin.timeout(None), Some(Duration::ZERO));
        while Instant::now().duration_since(spin.idle_since.expect("idle")) < Duration::from_nanos(1) {}
        assert_eq!(spin.timeout(None), None);
    }
}
