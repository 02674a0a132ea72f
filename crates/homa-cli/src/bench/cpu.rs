//! Time on the processors, from `/proc`.

use std::time::Duration;

/// The unit of times in `/proc/PID/stat`: Linux fixes it at 100 per second for user space, whatever its own tick.
const TICK: Duration = Duration::from_millis(10);

/// User and system time of a process so far, all threads together, also those that ended; zero where it is unknown.
pub fn time_of(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    parse(&stat).unwrap_or_default()
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
        assert_eq!(time_of(u32::MAX), Duration::ZERO);
        assert_eq!(parse("nonsense"), None);
    }
}
