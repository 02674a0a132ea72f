//! Disturbances that last as long as a load.

use std::collections::HashSet;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::planted::{PlantedCause, VICTIM};
use crate::disturb::{self, Disturbance};
use crate::experiment::agents::Agents;
use crate::experiment::testbed::Testbed;
use crate::spec::ipv4;
use crate::{RACK_COMMAND, enter};

/// Time for which a process is stopped, and for which it then runs.
const STOPPED: Duration = Duration::from_millis(5);
const RUNNING: Duration = Duration::from_millis(95);

/// A running disturbance. Dropping it ends the disturbance.
#[derive(Default)]
pub struct RunningDisturbance {
    processes: Vec<Child>,
    stopper: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl RunningDisturbance {
    /// Starts a disturbance.
    ///
    /// # Errors
    /// A process cannot be started.
    pub fn begin(planted: PlantedCause, testbed: &Testbed, agents: &Agents) -> Result<RunningDisturbance> {
        let mut disturbed = RunningDisturbance::default();
        let name = &testbed.spec().name;
        let victim = || agents.process(VICTIM).context("there is no such host");
        match planted {
            PlantedCause::Hog => {
                let allowed =
                    sched_getaffinity(None).context("cannot read which processors this process may use")?;
                let (mut hogged, mut others) = (CpuSet::new(), allowed);
                let processor = (0..CpuSet::MAX_CPU).find(|&processor| allowed.is_set(processor));
                let processor = processor.context("this process may use no processor")?;
                hogged.set(processor);
                others.unset(processor);
                confine(victim()?, &hogged)?;
                // All other processes run on the other processors, if there are any, as if they ran on other
                // machines.
                let rest = testbed.spec().numbers().filter(|&number| number != VICTIM);
                let rest = rest.filter_map(|number| agents.process(number)).chain(testbed.switch_process());
                for process in rest.filter(|_| others.count() > 0) {
                    confine(process, &others)?;
                }
                raise_priority(testbed.switch_process());
                disturbed.start(None, &Disturbance::Spin { processor })?;
            }
            PlantedCause::Queue => {
                let host = format!("h{}", testbed.spec().hosts);
                let rate_bps = testbed.spec().rate_bps / 2;
                let flood = Disturbance::Flood { to: ipv4(VICTIM), rate_bps };
                disturbed.start(Some((name, &host)), &flood)?;
            }
            PlantedCause::Stop => {
                let process = victim()?;
                let end = Arc::new(AtomicBool::new(false));
                let ended = Arc::clone(&end);
                let stopper = thread::spawn(move || pause_repeatedly(process, &ended));
                disturbed.stopper = Some((end, stopper));
            }
            PlantedCause::None
            | PlantedCause::NoneLong
            | PlantedCause::Pacer
            | PlantedCause::Windows
            | PlantedCause::Loss => (),
        }
        Ok(disturbed)
    }

    /// Starts this program as a disturbing process, in a host of a rack if a host is given.
    fn start(&mut self, host: Option<(&str, &str)>, what: &Disturbance) -> Result<()> {
        let program = std::env::current_exe().context("cannot find this program to start it again")?;
        let mut command = match host {
            Some((rack, host)) => {
                let mut command = enter::command_in(rack, host)?;
                command.arg(&program);
                command
            }
            None => Command::new(&program),
        };
        command
            .args([RACK_COMMAND, disturb::CHILD_COMMAND, &serde_json::to_string(what)?])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        self.processes.push(command.spawn().context("cannot start a disturbing process")?);
        Ok(())
    }
}

/// Confines all threads of a process to these processors, including the threads that they start later.
fn confine(process: Pid, processors: &CpuSet) -> Result<()> {
    let threads = format!("/proc/{}/task", process.as_raw_nonzero());
    confine_all(processors, || {
        let mut all = Vec::new();
        for entry in fs::read_dir(&threads).with_context(|| format!("cannot read {threads}"))? {
            let name = entry?.file_name();
            // An ID of 0 would mean the calling thread.
            all.extend(name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw));
        }
        Ok(all)
    })
    .with_context(|| format!("cannot confine the threads of {threads}"))
}

/// Confines the threads that `list` returns. A thread that is not yet confined may start another one in the
/// meantime, so the list is read again until it contains no new thread. Threads started by confined threads
/// are confined from the start.
fn confine_all(processors: &CpuSet, mut list: impl FnMut() -> Result<Vec<Pid>>) -> Result<()> {
    let mut confined = HashSet::new();
    loop {
        let new: Vec<Pid> = list()?.into_iter().filter(|thread| confined.insert(*thread)).collect();
        if new.is_empty() {
            return Ok(());
        }
        for thread in new {
            match sched_setaffinity(Some(thread), processors) {
                // The thread has exited.
                Err(Errno::SRCH) => (),
                result => result?,
            }
        }
    }
}

/// Gives the switch precedence over hosts on the same processor, because a real switch shares no processor.
/// Without the privilege or the program `chrt`, the switch is sometimes late.
fn raise_priority(switch: Option<Pid>) {
    if let Some(switch) = switch {
        let words = ["--fifo", "--all-tasks", "--pid", "1", &switch.as_raw_nonzero().to_string()];
        let _ = Command::new("chrt").args(words).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

fn pause_repeatedly(process: Pid, end: &AtomicBool) {
    while !end.load(Ordering::Relaxed) {
        // If the process has exited, the experiment notices at the next reply.
        let _ = kill_process(process, Signal::STOP);
        thread::sleep(STOPPED);
        let _ = kill_process(process, Signal::CONT);
        thread::sleep(RUNNING);
    }
}

impl Drop for RunningDisturbance {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // Killing fails if the process has exited already. Waiting for it is enough in that case.
            let _ = process.kill();
            let _ = process.wait();
        }
        if let Some((end, stopper)) = self.stopper.take() {
            end.store(true, Ordering::Relaxed);
            let _ = stopper.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use rustix::thread::gettid;

    use super::*;

    #[test]
    fn threads_that_ended_are_passed_over_and_those_that_began_are_confined() {
        let gone = thread::spawn(gettid).join().expect("a number");
        let (numbers, number) = mpsc::channel();
        let (done, end) = mpsc::channel::<()>();
        let late = thread::spawn(move || {
            numbers.send(gettid()).expect("somebody listens");
            let _ = end.recv();
        });
        let late_number = number.recv().expect("a number");
        let allowed = sched_getaffinity(None).expect("the processors of this process");
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|&processor| allowed.is_set(processor)).expect("a processor"));
        let mut passes =
            [vec![gone], vec![gone, late_number]].into_iter().chain(std::iter::repeat(vec![late_number]));
        confine_all(&one, || Ok(passes.next().unwrap_or_default())).expect("nothing is wrong");
        let confined = sched_getaffinity(Some(late_number)).expect("its processors");
        assert_eq!(confined.count(), 1);
        drop(done);
        late.join().expect("it ends");
    }
}
