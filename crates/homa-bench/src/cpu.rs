//! Processor times of processes and of the machine, from `/proc`.

use std::time::Duration;

/// Unit of the times in `/proc/PID/stat`. For user space, Linux fixes it at 100 per second, independently of
/// the kernel's tick.
const TICK: Duration = Duration::from_millis(10);

/// Returns the user and system time of a process so far, over all threads, including exited ones; zero if
/// unknown.
pub fn time_of(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    parse(&stat).unwrap_or_default()
}

/// Returns the processor time of a process with nanosecond precision. It excludes exited threads and the
/// current tick of each processor.
pub fn precise_time_of(pid: u32) -> Duration {
    let ran = Scheduled::of(pid).ran;
    // The kernel may be built without schedstat.
    if ran.is_zero() { time_of(pid) } else { ran }
}

/// Scheduling statistics of a process's threads so far, excluding exited threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scheduled {
    /// Time on a processor.
    pub ran: Duration,
    /// Time in which a thread was runnable but waited for a processor.
    pub waited: Duration,
    /// Number of times that a thread got a processor.
    pub turns: u64,
}

impl Scheduled {
    /// Reads the statistics of the process with this ID; zeros if there is no such process.
    pub fn of(pid: u32) -> Scheduled {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Scheduled::default() };
        let of = |path: std::path::PathBuf| {
            let text = std::fs::read_to_string(path.join("schedstat")).ok()?;
            let mut numbers = text.split_ascii_whitespace().map_while(|number| number.parse().ok());
            let [ran, waited] = [numbers.next()?, numbers.next()?].map(Duration::from_nanos);
            Some(Scheduled { ran, waited, turns: numbers.next()? })
        };
        threads.flatten().filter_map(|thread| of(thread.path())).fold(Scheduled::default(), Scheduled::plus)
    }

    /// Adds two sets of statistics.
    pub fn plus(self, other: Scheduled) -> Scheduled {
        Scheduled {
            ran: self.ran + other.ran,
            waited: self.waited + other.waited,
            turns: self.turns + other.turns,
        }
    }

    /// Returns the difference since `before`.
    pub fn since(self, before: Scheduled) -> Scheduled {
        Scheduled {
            ran: self.ran.saturating_sub(before.ran),
            waited: self.waited.saturating_sub(before.waited),
            turns: self.turns.saturating_sub(before.turns),
        }
    }
}

/// Returns the busy time of all processors of the machine so far; zero if unknown.
pub fn machine_busy() -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    stat.lines().find_map(|line| line.strip_prefix("cpu ")).map_or(Duration::ZERO, busy)
}

/// Returns the busy time of each processor so far, by number; empty if unknown.
pub fn cores_busy() -> Vec<Duration> {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let cores = stat.lines().filter_map(|line| line.strip_prefix("cpu")?.split_once(' '));
    cores.filter(|(number, _)| !number.is_empty()).map(|(_, times)| busy(times)).collect()
}

/// Returns the busy part of a processor's times.
fn busy(times: &str) -> Duration {
    let ticks: Vec<u64> = times.split_ascii_whitespace().map_while(|ticks| ticks.parse().ok()).collect();
    // Fields: user, nice, system, idle, iowait, irq, softirq, steal. Idle and iowait are not busy.
    let busy = ticks.iter().take(8).enumerate().filter(|(field, _)| ![3, 4].contains(field));
    TICK * u32::try_from(busy.map(|(_, ticks)| ticks).sum::<u64>()).unwrap_or(u32::MAX)
}

/// Parses fields 14 and 15 of `/proc/PID/stat`. Field 2 is the program's name in parentheses; the name may
/// contain spaces and parentheses.
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

    #[test]
    fn the_machine_is_busy_at_least_while_we_are() {
        let (machine, ours) = (machine_busy(), Scheduled::of(std::process::id()));
        let begin = time_of(std::process::id());
        while time_of(std::process::id()) < begin + 3 * TICK {}
        assert!(machine_busy() > machine);
        let (cores, machine) = (cores_busy().iter().sum::<Duration>(), machine_busy());
        assert!(cores > Duration::ZERO && cores <= machine + 10 * TICK, "{cores:?} of {machine:?}");
        // When threads of other tests exit, their processor time is no longer counted. So this thread's own
        // time must exceed theirs.
        let since = || Scheduled::of(std::process::id()).since(ours);
        while since().ran <= TICK {}
        let since = since();
        assert_eq!(since.plus(Scheduled::default()), since);
    }
}
