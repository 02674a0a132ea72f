//! The processes in a rack, found by their environment.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::state::{RACK_VARIABLE, State};

/// Time that processes have to exit after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns the processes in the rack, except this one.
pub fn of(state: &State) -> Vec<u32> {
    let wanted = format!("{RACK_VARIABLE}={}", state.tag());
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|&pid| pid != std::process::id() && runs_with(pid, &wanted)).collect()
}

fn runs_with(pid: u32, variable: &str) -> bool {
    // The environment is unreadable if the process has exited or belongs to another user.
    let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) else { return false };
    environment.split(|&byte| byte == 0).any(|entry| entry == variable.as_bytes())
}

/// Ends all processes in the rack with SIGTERM. Sends SIGKILL to those that do not exit in time.
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

/// Sends a signal. Ignores errors, since the process may have exited already.
pub fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}
