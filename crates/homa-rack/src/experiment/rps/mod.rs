//! `rps`: measures a few TCP flows through a router, under each policy that distributes received packets over
//! the processors. With a hash, all of the few flows may be mapped to the same processor.

mod flows;
mod net;
mod round_trips;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, ensure};
use homa_bench::netns;
use homa_report::chart::{Chart, Curve, Point, Scale};
use homa_report::findings::{Findings, Section, Table};
use homa_report::progress::Progress;
use homa_steer_xdp::Steering;
use serde::Serialize;
use serde_json::json;

use super::findings::cite;
use super::options::{Policy, RpsOptions};
use super::setup::seconds;
use crate::interruption;
use flows::{Throughput, carry};
use net::{ADDRESSES, Net, mask, mask_of};

/// Interval at which the experiment checks for an interruption.
const LOOK: Duration = Duration::from_millis(100);

/// Version of the JSON. It increases when a field changes its meaning or is removed, not when a field is
/// added.
const SCHEMA: u32 = 2;

/// Throughput of a number of flows under a policy.
#[derive(Clone, Debug, Serialize)]
struct PolicyResult {
    policy: Policy,
    flows: u16,
    /// Throughput from the first host to the second.
    forward: Spread,
    /// Throughput from the second host to the first.
    backward: Spread,
    /// Sum of both directions of a run.
    sum: Spread,
    /// Busy share of each processor, over all runs and both directions.
    cores_busy: Vec<f64>,
}

fn flows_of(count: u16) -> String {
    format!("{count} {}", if count == 1 { "flow" } else { "flows" })
}

/// A value over several runs, here in Mbit/s.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Spread {
    runs: Vec<f64>,
    mean: f64,
    /// Range from minimum to maximum, in percent of the mean.
    spread_percent: f64,
}

impl Spread {
    fn of(runs: Vec<f64>) -> Spread {
        let mean = runs.iter().sum::<f64>() / runs.len().max(1) as f64;
        let (least, most) =
            runs.iter().fold((f64::MAX, 0.0_f64), |(least, most), &run| (least.min(run), most.max(run)));
        let spread_percent = if mean > 0.0 { (most - least) / mean * 100.0 } else { 0.0 };
        Spread { runs, mean, spread_percent }
    }
}

/// The environment of flows and round trips.
struct RpsEnvironment {
    net: Net,
    mask: String,
    /// Warm-up and measurement time.
    times: (Duration, Duration),
    interrupted: Arc<AtomicBool>,
}

impl RpsEnvironment {
    /// Creates the network. This process must be single-threaded.
    fn make(options: &RpsOptions) -> Result<RpsEnvironment> {
        let times = (seconds("warmup", options.warmup)?, seconds("duration", options.duration)?);
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let mask = options.mask.as_deref().map_or_else(|| Ok(mask_of(processors)), mask)?;
        if !rustix::process::geteuid().is_root() {
            netns::enter_user_namespace()?;
        }
        let interrupted = interruption()?;
        Ok(RpsEnvironment { net: Net::create(options.mtu, options.nat)?, mask, times, interrupted })
    }

    fn check(&self) -> Result<()> {
        ensure!(!self.interrupted.load(Ordering::Relaxed), "interrupted: nothing was written");
        Ok(())
    }

    /// Returns the duration of `runs` runs of each policy.
    fn total(&self, options: &RpsOptions, runs: usize) -> Result<Duration> {
        let runs = u32::try_from(options.policies.len() * runs)? * options.repetitions;
        Ok((self.times.0 + self.times.1) * runs)
    }
}

/// Runs the experiment in its own namespaces. This process must be single-threaded.
///
/// # Errors
/// A privilege or iproute2 is missing, or the user interrupted the experiment.
pub fn run(options: &RpsOptions) -> Result<Findings> {
    let ready = RpsEnvironment::make(options)?;
    if !options.server_threads.is_empty() {
        return round_trips::run(options, &ready);
    }
    let mut progress = Progress::new(ready.total(options, options.flows.len() * 2)?);
    let cells: Vec<(Policy, u16)> = options
        .policies
        .iter()
        .flat_map(|&policy| options.flows.iter().map(move |&count| (policy, count)))
        .collect();
    let mut carried = vec![[Vec::new(), Vec::new()]; cells.len()];
    let RpsEnvironment { net, mask, times, .. } = &ready;
    // Policies take turns, so that a disturbance of the machine affects all of them.
    for _ in 0..options.repetitions {
        let mut steering: Option<(Policy, Vec<Steering>)> = None;
        for (&(policy, count), directions) in cells.iter().zip(&mut carried) {
            if steering.as_ref().is_none_or(|(before, _)| *before != policy) {
                // A device accepts one program, so the previous policy's program is removed first.
                drop(steering.take());
                steering = Some((policy, net.steer(policy, mask)?));
            }
            for (direction, runs) in directions.iter_mut().enumerate() {
                progress.step(&format!("{}: {}", policy.name(), flows_of(count)), times.0 + times.1);
                let begin = Instant::now();
                let wait = |time: Duration| {
                    let until = Instant::now() + time;
                    while let Some(left) =
                        until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
                    {
                        ready.check()?;
                        progress.within(begin.elapsed());
                        thread::sleep(left.min(LOOK));
                    }
                    Ok(())
                };
                let [from, to] = [&net.hosts[direction], &net.hosts[1 - direction]];
                runs.push(carry((from, to), ADDRESSES[1 - direction], count, *times, wait)?);
            }
        }
    }
    let cells = cells.iter().zip(&carried);
    let results: Vec<PolicyResult> =
        cells.map(|(&(policy, count), directions)| summed(policy, count, directions)).collect();
    Ok(findings(options, &ready, &results))
}

fn summed(policy: Policy, flows: u16, [forward, backward]: &[Vec<Throughput>; 2]) -> PolicyResult {
    let mbps = |runs: &[Throughput]| runs.iter().map(|run| run.mbps).collect::<Vec<_>>();
    let (there, back) = (mbps(forward), mbps(backward));
    let sum = there.iter().zip(&back).map(|(there, back)| there + back).collect();
    let all: Vec<&Throughput> = forward.iter().chain(backward).collect();
    let cores = all.first().map_or(0, |run| run.cores_busy.len());
    let busy = |core: usize| {
        let shares = all.iter().filter_map(|run| run.cores_busy.get(core));
        shares.sum::<f64>() / all.len().max(1) as f64
    };
    PolicyResult {
        policy,
        flows,
        forward: Spread::of(there),
        backward: Spread::of(back),
        sum: Spread::of(sum),
        cores_busy: (0..cores).map(busy).collect(),
    }
}

fn findings(options: &RpsOptions, ready: &RpsEnvironment, results: &[PolicyResult]) -> Findings {
    let processors = results.first().map_or(0, |result| result.cores_busy.len());
    let summary =
        format!("TCP {} of {} s each way", describe_path(options, ready, processors), options.duration);
    let mut findings = reported(options, ready, "rps", json!(results));
    findings.title = "A few flows through a router".to_owned();
    findings.summary = summary;
    findings.sections = vec![section(results, processors)];
    findings
}

/// Describes the path of the packets and how they are distributed over processors.
fn describe_path(options: &RpsOptions, ready: &RpsEnvironment, processors: usize) -> String {
    let nat =
        ready.net.nat.map_or("routing".to_owned(), |program| format!("addresses translated ({program})"));
    let (mtu, mask, runs) = (options.mtu, &ready.mask, options.repetitions);
    format!(
        "through a router on veth pairs, MTU {mtu}, {nat}; distributed by mask {mask} over {processors} processors; {runs} runs"
    )
}

/// Adds the parts common to both kinds of findings, including published results.
fn reported(
    options: &RpsOptions,
    ready: &RpsEnvironment,
    about: &str,
    results: serde_json::Value,
) -> Findings {
    let mut warnings = Vec::new();
    if options.nat && ready.net.nat.is_none() {
        warnings.push("neither iptables nor nft could be used: the router only routes".to_owned());
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let json = json!({
        "schema": SCHEMA,
        "experiment": "rps",
        "version": env!("CARGO_PKG_VERSION"),
        "unix_time_s": now.as_secs(),
        "config": {
            "mtu": options.mtu,
            "nat": ready.net.nat,
            "mask": ready.mask,
            "duration_s": options.duration,
            "warmup_s": options.warmup,
            "repetitions": options.repetitions,
        },
        "results": results,
        "warnings": warnings,
    });
    let mut findings = Findings { warnings, json, clean: true, ..Findings::default() };
    cite(&mut findings, about);
    findings
}

fn section(results: &[PolicyResult], processors: usize) -> Section {
    let mut table =
        Table::new(&["", "there, Mbit/s", "spread", "back", "spread", "sum", "spread", "against none"]);
    table.head.extend((0..processors).map(|core| format!("cpu{core}")));
    let none = |flows: u16| results.iter().find(|other| other.flows == flows && other.policy == Policy::None);
    for result in results {
        let mut cells = vec![format!("{}, {}", result.policy.name(), flows_of(result.flows))];
        for spread in [&result.forward, &result.backward, &result.sum] {
            cells.extend([format!("{:.0}", spread.mean), format!("{:.0} %", spread.spread_percent)]);
        }
        let ratio = none(result.flows).map(|none| result.sum.mean / none.sum.mean.max(f64::MIN_POSITIVE));
        cells.push(ratio.map_or("-".to_owned(), |ratio| format!("{:+.1} %", (ratio - 1.0) * 100.0)));
        cells.extend(result.cores_busy.iter().map(|busy| format!("{busy:.2}")));
        table.rows.push(cells);
    }
    let text = "Flows run in one direction at a time; the sum is that of both directions. Spread is the range of the runs, relative to the mean. \
                Columns of processors have the busy share of the time, senders and receivers included"
        .to_owned();
    Section { heading: "Throughput by number of flows".to_owned(), text, table, charts: vec![chart(results)] }
}

fn chart(results: &[PolicyResult]) -> Chart {
    let mut counts: Vec<u16> = results.iter().map(|result| result.flows).collect();
    counts.sort_unstable();
    counts.dedup();
    let place = |flows: u16| {
        let at = counts.iter().position(|&count| count == flows).unwrap_or(0);
        (at as f64 + 0.5) / counts.len() as f64
    };
    let curve = |(policy, class): (Policy, &str)| Curve {
        label: policy.name().to_owned(),
        class: class.to_owned(),
        is_reference: false,
        points: results
            .iter()
            .filter(|result| result.policy == policy)
            .map(|result| Point {
                x: place(result.flows),
                y: result.sum.mean,
                title: format!("{}, {} flows: {:.0} Mbit/s", policy.name(), result.flows, result.sum.mean),
            })
            .collect(),
    };
    let policies =
        [(Policy::None, "tcp"), (Policy::Rps, "homa"), (Policy::RssHash, "udp"), (Policy::Sparse, "quic")]
            .map(curve);
    Chart {
        x_title: "Flows".to_owned(),
        y_title: "Both directions together, Mbit/s".to_owned(),
        scale: Scale::Linear,
        x_ticks: counts.iter().map(|&count| (place(count), count.to_string())).collect(),
        curves: policies.into_iter().filter(|curve| !curve.points.is_empty()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_have_a_mean_and_a_spread() {
        let spread = Spread::of(vec![90.0, 110.0, 100.0]);
        assert_eq!((spread.mean, spread.spread_percent), (100.0, 20.0));
        assert_eq!(Spread::of(Vec::new()), Spread::default());
    }

    #[test]
    fn directions_are_added_run_by_run_and_processors_averaged_over_all() {
        let run = |mbps, busy| Throughput { mbps, cores_busy: vec![busy, 0.5] };
        let result = summed(
            Policy::Rps,
            2,
            &[vec![run(10.0, 0.0), run(20.0, 1.0)], vec![run(1.0, 1.0), run(2.0, 1.0)]],
        );
        assert_eq!((result.sum.runs, result.forward.mean), (vec![11.0, 22.0], 15.0));
        assert_eq!(result.cores_busy, [0.75, 0.5]);
    }
}
