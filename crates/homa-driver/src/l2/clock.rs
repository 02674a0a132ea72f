//! A coarse clock for measuring the age of the kernel's answers.

use rustix::time::{ClockId, clock_gettime};

/// Returns the milliseconds since some moment in the past, according to the kernel's last tick, 1 to 10 ms
/// ago. A call costs a few nanoseconds.
pub(crate) fn coarse_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1_000 + now.tv_nsec as u64 / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_goes_back_and_does_go_on() {
        let first = coarse_ms();
        let mut last = first;
        while last < first + 2 {
            let now = coarse_ms();
            assert!(now >= last);
            last = now;
        }
    }
}
