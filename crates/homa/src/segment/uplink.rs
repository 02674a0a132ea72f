//! The uplink, used by all processes: the moment when it will have sent what it was given.
//!
//! A count of what each process has sent would do as well, if one knew when: bytes that another sent a second ago are long
//! gone. The moment needs no such knowledge, and nothing to repair, since time alone makes it pass.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A backlog that no pacer lets grow. More than this was written under another clock, or is no time at all.
const NONSENSE_NS: u64 = 1_000_000_000;

/// Nanoseconds that the uplink needs for what it has been given.
pub(super) fn backlog_ns(idle_at: &AtomicU64, now_ns: u64) -> u64 {
    let backlog = idle_at.load(Relaxed).saturating_sub(now_ns);
    if backlog > NONSENSE_NS { 0 } else { backlog }
}

/// The uplink was given packets that take it `ns` nanoseconds.
pub(super) fn sent(idle_at: &AtomicU64, now_ns: u64, ns: u64) {
    let later = |at: u64| {
        let busy_until = if at.saturating_sub(now_ns) > NONSENSE_NS { now_ns } else { at.max(now_ns) };
        Some(busy_until.saturating_add(ns))
    };
    // The closure never refuses.
    let _ = idle_at.fetch_update(Relaxed, Relaxed, later);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backlog_is_everybodys_and_passes_with_time() {
        let uplink = AtomicU64::new(0);
        sent(&uplink, 1_000, 500);
        sent(&uplink, 1_100, 500);
        assert_eq!(backlog_ns(&uplink, 1_200), 800);
        assert_eq!(backlog_ns(&uplink, 3_000), 0);
        sent(&uplink, 3_000, 10);
        assert_eq!(backlog_ns(&uplink, 3_000), 10);
    }

    #[test]
    fn a_moment_of_another_clock_stops_nobody() {
        let uplink = AtomicU64::new(u64::MAX);
        assert_eq!(backlog_ns(&uplink, 5), 0);
        sent(&uplink, 5, 7);
        assert_eq!(backlog_ns(&uplink, 5), 7);
    }

    #[test]
    fn threads_lose_no_nanosecond() {
        let uplink = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| sent(&uplink, 0, 3)));
            }
        });
        assert_eq!(backlog_ns(&uplink, 0), 120_000);
    }
}
