//! The uplink, which all processes share: the time when it will have sent everything that it was given.
//!
//! The alternative, a count of the bytes that each process has sent, would also need the times at which they
//! were sent: bytes sent a second ago no longer occupy the uplink. A single point in time needs neither those
//! times nor any repair, since it passes by itself.
//!
//! Waiting processes publish what determines which of them sends first when the uplink has room again: each
//! writes the remaining bytes of its shortest message, and the time. A process that has only longer messages
//! leaves the room to the others, but only while the uplink has something to send. No process therefore waits
//! for a process that is dead or inactive, and old entries are ignored.

use std::sync::atomic::Ordering::Relaxed;

use crate::tenancy::sync::AtomicU64;

/// A backlog larger than any that a pacer allows. A larger value was written according to another clock, or
/// is not a time.
const IMPLAUSIBLE_NS: u64 = 1_000_000_000;

/// How long the entry of a waiting process stays valid. A live process refreshes the entry within this time,
/// at least from its progress thread.
const FRESH_NS: u64 = 1_000_000;

/// The time in a word written by [`wait`] is in units of 2^10 ns and wraps to zero every 73 minutes. An old
/// word may then seem fresh for a millisecond, but delays other processes only by a few microseconds.
const STAMP_SHIFT: u32 = 10;

fn stamp(now_ns: u64) -> u32 {
    (now_ns >> STAMP_SHIFT) as u32
}

/// Writes the remaining bytes of the shortest message that currently waits, and the time, into one word.
pub(super) fn wait(word: &AtomicU64, now_ns: u64, bytes: Option<u32>) {
    let entry = bytes.map_or(0, |bytes| u64::from(stamp(now_ns)) << 32 | u64::from(bytes));
    word.store(entry, Relaxed);
}

/// Returns the remaining bytes, if the entry is fresh. Processor clocks may differ slightly, so an entry from
/// the near future also counts as fresh.
pub(super) fn waiting(word: &AtomicU64, now_ns: u64) -> Option<u32> {
    let word = word.load(Relaxed);
    let fresh = (FRESH_NS >> STAMP_SHIFT) as i32;
    let age = stamp(now_ns).wrapping_sub((word >> 32) as u32) as i32;
    (word != 0 && (-fresh..=fresh).contains(&age)).then_some(word as u32)
}

/// Returns the number of nanoseconds that the uplink needs to send everything that it has been given.
pub(super) fn backlog_ns(idle_at: &AtomicU64, now_ns: u64) -> u64 {
    let backlog = idle_at.load(Relaxed).saturating_sub(now_ns);
    if backlog > IMPLAUSIBLE_NS { 0 } else { backlog }
}

/// Adds to the backlog packets that the uplink needs `ns` nanoseconds to send.
pub(super) fn sent(idle_at: &AtomicU64, now_ns: u64, ns: u64) {
    let later = |at: u64| {
        let busy_until = if at.saturating_sub(now_ns) > IMPLAUSIBLE_NS { now_ns } else { at.max(now_ns) };
        Some(busy_until.saturating_add(ns))
    };
    // The closure always returns a value, so the update cannot fail.
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
    fn the_entry_of_a_waiting_process_counts_for_a_while() {
        let word = AtomicU64::new(0);
        // Also test times when the stamp wraps to zero.
        for now in [0, 5_000_000_000, (1 << 42) - 1_000] {
            assert_eq!(waiting(&word, now), None);
            wait(&word, now, Some(40_000));
            assert_eq!(waiting(&word, now), Some(40_000));
            assert_eq!(waiting(&word, now + FRESH_NS / 2), Some(40_000));
            assert_eq!(waiting(&word, now + 2 * FRESH_NS), None, "it may be dead");
            wait(&word, now, None);
            assert_eq!(waiting(&word, now), None);
        }
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
        let each = if cfg!(miri) { 50 } else { 10_000 };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..each).for_each(|_| sent(&uplink, 0, 3)));
            }
        });
        assert_eq!(backlog_ns(&uplink, 0), 4 * 3 * each);
    }
}
