//! Time on the processors, from `/proc`.

use std::time::Duration;

/// The unit of times in `/proc/PID/stat`: Linux fixes it at 100 per second for user space, whatever its own tick.
const TICK: Duration = Duration::from_millis(10);

/// User and system time of a process so far, all threads together, also those that ended; zero where it is unknown.
pub fn time_of(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    parse(&stat).unwrap_or_default()
}

/// The same to a nanosecond, less what the processors' current tick holds; threads that ended are not in it.
pub fn precise_time_of(pid: u32) -> Duration {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Duration::ZERO };
    let of = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(path.join("schedstat")).ok()?;
        text.split_ascii_whitespace().next()?.parse().ok().map(Duration::from_nanos)
    };
    let sum: Duration = threads.flatten().filter_map(|thread| of(thread.path())).sum();
    // A kernel may be built without it.
    if sum.is_zero() { time_of(pid) } else { sum }
}

/// Fields 14 and 15. The second field is the program's name in parentheses and may itself hold spaces and parentheses.
fn parse(stat: &str) -> Option<Duration> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some(TICK * user.checked_add(system)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_are_added() {
        let stat = "17 (a) b (c) S 1 17 17 0 -1 4194560 100 0 0 0 250 30 7 9 20 0 1 0 100 0 0";
        assert_eq!(parse(stat), Some(Duration::from_millis(2800)));
    }

    #[test]
    fn our_own_time_is_known_and_a_missing_process_has_none() {
        let begin = time_of(std::process::id());
        while time_of(std::process::id()) == begin {}
        let precise = precise_time_of(std::process::id());
        assert!(precise > Duration::ZERO);
        assert_eq!((time_of(u32::MAX), precise_time_of(u32::MAX)), (Duration::ZERO, Duration::ZERO));
        assert_eq!(parse("nonsense"), None);
    }
}
