//! Processes that run in a rack, found by their environment.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::state::{RACK_VARIABLE, State};

/// How long a process may take to end after it was asked to.
const PATIENCE: Duration = Duration::from_secs(2);

/// Processes in the rack, without this one.
pub fn of(state: &State) -> Vec<u32> {
    let wanted = format!("{RACK_VARIABLE}={}", state.tag());
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|&pid| pid != std::process::id() && runs_with(pid, &wanted)).collect()
}

fn runs_with(pid: u32, variable: &str) -> bool {
    // A process that has ended, or is another user's, has no environment for us.
    let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) else { return false };
    environment.split(|&byte| byte == 0).any(|entry| entry == variable.as_bytes())
}

/// Ends all processes in the rack: asks them, and kills what does not listen.
pub fn end(state: &State) {
    let begin = Instant::now();
    let mut signal = Signal::TERM;
    loop {
        let pids = of(state);
        if pids.is_empty() || begin.elapsed() > 2 * PATIENCE {
            return;
        }
        if begin.elapsed() > PATIENCE {
            signal = Signal::KILL;
        }
        for pid in pids {
            send(pid, signal);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a signal; that the process has ended by itself is as good.
pub fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}
