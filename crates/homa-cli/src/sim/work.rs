//! Runs simulations in parallel: threads, progress bars, and the processor time of each run.

use std::convert::Infallible;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use homa_sim::{ClusterReport, Progress};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::draft::Plan;

/// Number of steps of a progress bar.
const STEPS: u64 = 1_000;

/// Progress bars of runs, shown only on a terminal.
#[derive(Debug, Default)]
pub struct Bars {
    bars: MultiProgress,
}

impl Bars {
    /// Returns a bar for the total of `runs` runs, which is drawn first.
    pub fn total(&self, runs: usize) -> ProgressBar {
        let bar = self.bars.add(ProgressBar::new(runs as u64));
        style(&bar, "{msg:28} [{bar:30}] {pos} of {len}, {elapsed}");
        bar.set_message("all runs");
        bar.tick();
        bar
    }

    fn run(&self, label: &str) -> ProgressBar {
        let bar = self.bars.add(ProgressBar::new(STEPS));
        style(&bar, "{prefix:28} [{bar:30}] {percent:>3} % {msg}");
        bar.set_prefix(label.to_owned());
        bar
    }
}

fn style(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
}

/// The processor time that a run took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Processor time, in seconds.
    pub cpu_s: f64,
}

/// The speed of a run as JSON. It is written only with `--speed`, since it differs from run to run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Speed {
    /// Name of the transport.
    pub transport: String,
    /// Processor time, in seconds.
    pub cpu_s: f64,
    /// Number of packet transmissions, counted on every link, since the start of the run.
    pub hops: u64,
    /// Number of packet transmissions per second of processor time.
    pub hops_per_s: f64,
    /// Number of events handled per second of processor time.
    pub events_per_s: f64,
}

impl Cost {
    /// Returns the speed of a run with this cost.
    pub fn speed(&self, report: &ClusterReport) -> Speed {
        Speed {
            transport: report.transport.clone(),
            cpu_s: self.cpu_s,
            hops: report.hops,
            hops_per_s: self.per_s(report.hops),
            events_per_s: self.per_s(report.events),
        }
    }

    fn per_s(&self, count: u64) -> f64 {
        count as f64 / self.cpu_s.max(1e-9)
    }

    /// Formats a line about a run's speed.
    pub fn line(&self, label: &str, report: &ClusterReport) -> String {
        format!(
            "{label}: {:.2} s of processor time, {:.2} M packet-hops/s, {:.2} M events/s",
            self.cpu_s,
            self.per_s(report.hops) / 1e6,
            self.per_s(report.events) / 1e6
        )
    }
}

/// Runs a transport to completion in this thread.
///
/// # Errors
/// The error names the setting that is invalid.
pub fn run(plan: &Plan, transport: &str, label: &str, bars: &Bars) -> Result<(ClusterReport, Cost), String> {
    let transport = plan.transport(transport)?;
    let bar = bars.run(label);
    let began = Instant::now();
    let before_s = thread_cpu_s();
    let mut progress = |progress: Progress| {
        if !bar.is_hidden() {
            bar.set_position((progress.share.min(1.0) * STEPS as f64) as u64);
            let per_s = progress.events as f64 / began.elapsed().as_secs_f64().max(1e-9) / 1e6;
            if progress.acquainted < 1.0 {
                bar.set_message(format!("hosts are made acquainted, {:.0} %", progress.acquainted * 100.0));
                return ControlFlow::Continue(());
            }
            let drains = if progress.share > 1.0 { ", the last messages arrive" } else { "" };
            bar.set_message(format!(
                "{:.1} ms simulated, {per_s:.1} M events/s{drains}",
                progress.now.as_ns() as f64 / 1e6
            ));
        }
        ControlFlow::Continue(())
    };
    let report = transport.run(plan.cluster.clone(), &mut progress);
    bar.finish_and_clear();
    Ok((report, Cost { cpu_s: thread_cpu_s() - before_s }))
}

fn thread_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the number of threads: the requested number, or the number of processors.
pub fn jobs(asked: Option<usize>) -> usize {
    asked.or_else(|| thread::available_parallelism().ok().map(NonZero::get)).unwrap_or(1).max(1)
}

/// Runs all items on `jobs` threads, with a bar for the total. Returns the results in the order of the items.
/// `run` may show its progress on the bar.
pub fn all<I: Sync, T: Send>(jobs: usize, items: &[I], run: impl Fn(&ProgressBar, &I) -> T + Sync) -> Vec<T> {
    let bars = Bars::default();
    let total = bars.total(items.len());
    let mut results: Vec<Option<T>> = items.iter().map(|_| None).collect();
    let done = each(
        jobs,
        items,
        |item| Ok::<_, Infallible>(run(&total, item)),
        |index, result| {
            results[index] = Some(result);
            total.inc(1);
            Ok(())
        },
    );
    let Ok(()) = done;
    total.finish_and_clear();
    results.into_iter().flatten().collect()
}

/// Runs `work` for each item on `jobs` threads, and passes each result to `done` in this thread as soon as it
/// is available. After the first error, waits for work in progress and then stops.
///
/// # Errors
/// The first error of `work` or `done`.
pub fn each<I: Sync, T: Send, E: Send>(
    jobs: usize,
    items: &[I],
    work: impl Fn(&I) -> Result<T, E> + Sync,
    mut done: impl FnMut(usize, T) -> Result<(), E>,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let (results, finished) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..jobs.min(items.len()) {
            let (results, next, work) = (results.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { return };
                    if results.send((index, work(item))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(results);
        let mut first = Ok(());
        for (index, result) in finished {
            let result = result.and_then(|result| if first.is_ok() { done(index, result) } else { Ok(()) });
            if result.is_err() {
                next.store(items.len(), Ordering::Relaxed);
                first = first.and(result);
            }
        }
        first
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_hops_and_events_over_processor_time() {
        let transport = "homa".to_owned();
        let report =
            ClusterReport { transport, hops: 3_000_000, events: 9_000_000, ..ClusterReport::default() };
        let cost = Cost { cpu_s: 2.0 };
        let speed = cost.speed(&report);
        assert_eq!((speed.hops, speed.hops_per_s, speed.events_per_s), (3_000_000, 1.5e6, 4.5e6));
        assert_eq!(
            cost.line("homa", &report),
            "homa: 2.00 s of processor time, 1.50 M packet-hops/s, 4.50 M events/s"
        );
        assert!(Cost { cpu_s: 0.0 }.speed(&report).hops_per_s.is_finite());
    }

    #[test]
    fn every_item_is_worked_on_once_whatever_the_threads() {
        for jobs in [1, 3, 100] {
            let items: Vec<usize> = (0..50).collect();
            let mut seen = vec![0; 50];
            let result = each(
                jobs,
                &items,
                |item| Ok::<_, ()>(item * 2),
                |index, twice| {
                    assert_eq!(twice, index * 2);
                    seen[index] += 1;
                    Ok(())
                },
            );
            assert_eq!((result, seen), (Ok(()), vec![1; 50]));
        }
    }

    #[test]
    fn the_first_error_ends_it() {
        let items: Vec<usize> = (0..1_000).collect();
        let result = each(2, &items, |&item| if item == 3 { Err(item) } else { Ok(()) }, |_, ()| Ok(()));
        assert_eq!(result, Err(3));
    }
}
