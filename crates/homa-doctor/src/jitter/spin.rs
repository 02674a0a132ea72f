//! The threads that read the clock.

use std::fs;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use homa_report::progress::Progress;
use homa_trace::Ticks;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::gaps::{Gap, Tally};
use crate::machine::CpuList;

/// Maximum length of a round. Nothing else in this program runs during a round, so that the program does not
/// measure itself. The progress bar is updated between rounds.
const ROUND: Duration = Duration::from_millis(500);

/// Maximum number of gaps kept per processor, 16 MiB. Further gaps are only counted.
const MAX_KEPT: usize = 1 << 20;

/// Maximum number of gaps in a round, one every four microseconds. A processor's round ends when this number
/// is reached.
const MAX_NOTED: usize = 1 << 17;

/// The gaps of one processor.
#[derive(Clone, Debug, Default)]
pub struct Core {
    /// The number of the processor.
    pub cpu: usize,
    /// The measured time, in nanoseconds.
    pub measured_ns: u64,
    /// The gaps, sorted by time.
    pub gaps: Vec<Gap>,
    /// The count of all gaps, including those that are not in `gaps`.
    pub tally: Tally,
    /// Number of gaps that are only in the tally.
    pub unkept: u64,
    /// Time for which the thread was runnable but the scheduler ran another thread, in nanoseconds; `None` if
    /// the kernel does not report it.
    pub waited_ns: Option<u64>,
}

/// The gaps of all processors.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The processors, in the order of [`Options::cpus`](super::Options::cpus).
    pub cores: Vec<Core>,
    /// The measured spans of the first processor, `[begin, end)` in nanoseconds since the measurement began.
    pub spans: Vec<(u64, u64)>,
    /// The rate of the clock in Hz, measured in the first milliseconds and accurate to a few parts in
    /// 100,000.
    pub clock_hz: u64,
}

/// Returns the processors that this process may use, or `wanted` if the process may use all of those.
///
/// # Errors
/// The error names a processor in `wanted` that this process may not use.
pub fn allowed_cpus(wanted: Option<&CpuList>) -> Result<Vec<usize>> {
    let allowed = sched_getaffinity(None).context("cannot ask which processors this process may use")?;
    let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    let Some(wanted) = wanted.map(CpuList::as_slice) else { return Ok(allowed) };
    if let Some(cpu) = wanted.iter().find(|cpu| !allowed.contains(cpu)) {
        let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        return Err(anyhow!(
            "--cpus: this process may not use processor {cpu}; it may use {}",
            allowed.join(", ")
        ));
    }
    Ok(wanted.to_vec())
}

/// Measures these processors for `length`.
///
/// # Errors
/// A thread cannot be pinned to its processor.
pub fn measure(cpus: &[usize], length: Duration, threshold_ns: u64, ticks: Ticks) -> Result<Measurement> {
    let mut progress = Progress::new(length);
    progress.step(&format!("looking at the clock on {} processors", cpus.len()), length);
    let rate = ticks.rate();
    let origin = ticks.now();
    let mut lanes: Vec<Lane> = cpus.iter().map(|&cpu| Lane::new(cpu, rate.ticks(threshold_ns))).collect();
    let (mut done, mut spans) = (Duration::ZERO, Vec::new());
    while done < length {
        let round = ROUND.min(length - done);
        let ready = AtomicUsize::new(0);
        let length_ticks = rate.ticks(round.as_nanos() as u64);
        let all = lanes.len();
        let rounds: Vec<Result<(u64, u64)>> = thread::scope(|scope| {
            let threads: Vec<_> = lanes
                .iter_mut()
                .map(|lane| {
                    let ready = &ready;
                    scope.spawn(move || lane.round(ticks, length_ticks, ready, all))
                })
                .collect();
            let panicked = |_| Err(anyhow!("a measuring thread panicked"));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
        });
        let rounds = rounds.into_iter().collect::<Result<Vec<_>>>()?;
        let at = |ticks: u64| rate.ns(ticks.saturating_sub(origin));
        lanes.iter_mut().zip(&rounds).for_each(|(lane, round)| lane.take_over(*round, at));
        spans.extend(rounds.first().map(|&(begin, end)| (at(begin), at(end))));
        done += round;
        progress.within(done);
    }
    Ok(Measurement { spans, cores: lanes.into_iter().map(|lane| lane.core).collect(), clock_hz: rate.hz() })
}

/// A gap in ticks of the clock.
#[derive(Clone, Copy)]
struct TickGap {
    start: u64,
    length: u64,
}

/// The state of one processor's thread over all rounds.
struct Lane {
    threshold: u64,
    /// Gaps of this round.
    noted: Vec<TickGap>,
    core: Core,
}

impl Lane {
    fn new(cpu: usize, threshold: u64) -> Lane {
        let core = Core { cpu, waited_ns: Some(0), ..Core::default() };
        Lane { threshold: threshold.max(1), noted: Vec::with_capacity(MAX_NOTED), core }
    }

    /// Measures one round. Returns its start and end in ticks.
    fn round(&mut self, ticks: Ticks, length: u64, ready: &AtomicUsize, all: usize) -> Result<(u64, u64)> {
        let pinned = pin(self.core.cpu);
        // Touches all pages before the round, because a page fault during the round would be a gap.
        self.noted.resize(MAX_NOTED, TickGap { start: 1, length: 1 });
        self.noted.clear();
        // A thread that could not be pinned is also counted, because the others would otherwise wait for it
        // forever.
        ready.fetch_add(1, Ordering::AcqRel);
        pinned?;
        while ready.load(Ordering::Acquire) < all {
            spin_loop();
        }
        let waited = waited_ns();
        let span = self.spin(ticks, length);
        let waited = waited.zip(waited_ns()).map(|(from, to)| to - from);
        self.core.waited_ns = self.core.waited_ns.zip(waited).map(|(sum, more)| sum + more);
        Ok(span)
    }

    fn spin(&mut self, ticks: Ticks, length: u64) -> (u64, u64) {
        let begin = ticks.now();
        let end = begin.saturating_add(length);
        let mut last = begin;
        while last < end && self.noted.len() < MAX_NOTED {
            let now = ticks.now();
            let length = now.saturating_sub(last);
            if length >= self.threshold {
                self.noted.push(TickGap { start: last, length });
            }
            last = now;
        }
        (begin, last)
    }

    /// Moves the gaps of the round to the result and converts their times to nanoseconds.
    fn take_over(&mut self, (begin, end): (u64, u64), at: impl Fn(u64) -> u64) {
        let core = &mut self.core;
        core.measured_ns += at(end) - at(begin);
        for raw in &self.noted {
            let start_ns = at(raw.start);
            let gap = Gap { start_ns, length_ns: at(raw.start + raw.length) - start_ns };
            core.tally.add(gap);
            if core.gaps.len() < MAX_KEPT {
                core.gaps.push(gap);
            } else {
                core.unkept += 1;
            }
        }
    }
}

fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)
        .with_context(|| format!("cannot run on processor {cpu}: leave it out of --cpus"))
}

/// Returns the time for which this thread has been runnable but not running.
fn waited_ns() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_processor_is_measured_for_as_long_as_asked_and_gaps_are_in_order() {
        let cpus = allowed_cpus(None).expect("some processor");
        let length = Duration::from_millis(20);
        let measure = measure(&cpus, length, 1_000, Ticks::start()).expect("measured");
        assert_eq!(measure.cores.iter().map(|core| core.cpu).collect::<Vec<_>>(), cpus);
        for core in &measure.cores {
            // The clock rate measured at the end differs in the last digits from that measured at the start.
            assert!(core.measured_ns > 19_000_000, "{} ns", core.measured_ns);
            assert!(core.gaps.iter().all(|gap| gap.length_ns >= 990));
            assert!(core.gaps.windows(2).all(|pair| pair[0].end_ns() <= pair[1].start_ns));
            assert_eq!(core.tally.sum().gaps, core.gaps.len() as u64 + core.unkept);
            assert!(core.tally.sum().total_ns <= core.measured_ns + core.gaps.len() as u64);
        }
        assert_eq!(measure.spans.len(), 1);
    }

    #[test]
    fn a_processor_that_may_not_be_used_is_named() {
        let last: CpuList = (CpuSet::MAX_CPU - 1).to_string().parse().expect("a list");
        let error = allowed_cpus(Some(&last)).expect_err("not there");
        assert!(error.to_string().contains("--cpus: this process may not use processor 1023"), "{error}");
    }
}
