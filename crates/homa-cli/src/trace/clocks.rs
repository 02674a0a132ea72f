//! `homa trace clocks`: compares the clocks of this machine.

mod cores;
mod measure;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use homa_trace::{Clock, Dump, Source};
use serde_json::{Value, json};

use super::answer::Answer;
use cores::Skew;
use measure::ClockMeasurement;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa trace clocks                                     the clocks of this machine, over a second
  homa trace clocks --seconds 60 --json -               drifts to better than a hundredth of a part per million
  homa trace clocks h1.trace h2.trace                   also the clock calibration of these traces

Drift is a clock's gain over CLOCK_MONOTONIC_RAW; +- is the uncertainty from reading the two one after the
other. If the counters of two processors differ, packets may appear to arrive before they were sent.")]
pub struct ClocksArgs {
    /// Traces whose clock calibration is to be shown
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Duration of the drift measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
    #[command(flatten)]
    answer: Answer,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.01..=86_400.0).contains(&value) => Ok(value),
        _ => Err("use 0.01 to 86400 seconds".to_owned()),
    }
}

/// Measures the clocks and prints the result.
///
/// # Errors
/// A trace cannot be read, or a file cannot be written.
pub fn run(args: &ClocksArgs) -> Result<()> {
    let outputs = args.answer.outputs()?;
    let dumps = homa_trace::files::read_each(&args.files)?;
    let measured = measure::all(Duration::from_secs_f64(args.seconds));
    let skews = if Source::Tsc.is_available() {
        cores::skews().context("cannot compare processors")?
    } else {
        Vec::new()
    };
    let calibrations: Vec<Calibration> =
        dumps.iter().map(|(dump, path)| Calibration::of(dump, path.display().to_string())).collect();
    let text = format!("{}{}{}", table(&measured), processors(&skews), of_traces(&calibrations));
    outputs.answer(&text, &to_json(&measured, &skews, &calibrations))
}

/// The calibration of a trace's clock.
struct Calibration {
    file: String,
    node: String,
    clock: &'static str,
    frequency_hz: u64,
    span_ns: u64,
    /// Calibration error; `None` if the clock itself counts nanoseconds.
    error_ppm: Option<f64>,
}

impl Calibration {
    fn of(dump: &Dump, file: String) -> Calibration {
        let clock = match dump.clock {
            Clock::Tsc => "TSC",
            Clock::Monotonic => "CLOCK_MONOTONIC_RAW",
            Clock::Virtual => "virtual",
        };
        let span_ns = dump.calibration_span_ns;
        let error_ppm = (span_ns > 0).then(|| dump.calibration_error_ppb() as f64 / 1e3);
        Calibration {
            file,
            node: dump.node.name.clone(),
            clock,
            frequency_hz: dump.frequency_hz,
            span_ns,
            error_ppm,
        }
    }
}

fn table(measured: &[ClockMeasurement]) -> String {
    let mut text = format!(
        "\n{:<24}{:>10}{:>14}{:>8}{:>14}{:>11}\n{:<24}{:>10}{:>14}{:>8}{:>14}{:>11}\n",
        "clock", "a read", "resolution", "back", "drift", "+-", "", "ns", "ns", "times", "ppm", "ppm"
    );
    // Writing to a string cannot fail.
    for one in measured {
        let _ = writeln!(
            text,
            "{:<24}{:>10.1}{:>14.1}{:>8}{:>14.3}{:>11.3}",
            one.source.name(),
            one.read_ns,
            one.resolution_ns,
            one.back,
            one.drift_ppm,
            one.error_ppm
        );
    }
    if let Some(tsc) = measured.iter().find(|one| one.source == Source::Tsc) {
        let _ = writeln!(text, "\nThe counter is invariant, at {:.6} MHz: traces use it.", tsc.hz / 1e6);
    } else {
        let _ =
            writeln!(text, "\nThe time stamp counter is not invariant here: traces use CLOCK_MONOTONIC_RAW.");
    }
    text
}

/// Nanoseconds by which a processor may read its counter too early, before preceding instructions have
/// completed.
const UNFENCED_NS: f64 = 50.0;

fn processors(skews: &[Skew]) -> String {
    let mut text = String::new();
    for skew in skews {
        let (low, high) = skew.bounds_ns;
        let (ahead, within) = (low.midpoint(high), ((high - low) / 2.0).max(UNFENCED_NS));
        let verdict = if ahead.abs() <= within { "no difference found" } else { "they differ" };
        let (first, second) = skew.cpus;
        let _ = writeln!(
            text,
            "The counter of processor {second} is ahead of that of processor {first} by {ahead:.0} ns, +- {within:.0} ns: {verdict}."
        );
    }
    text
}

fn of_traces(calibrations: &[Calibration]) -> String {
    let mut text = String::new();
    for one in calibrations {
        let _ = write!(text, "\n{}: {}: {}", one.file, one.node, one.clock);
        let _ = match one.error_ppm {
            Some(ppm) => writeln!(
                text,
                " at {:.6} MHz, measured over {:.3} s: right to {ppm:.3} ppm",
                one.frequency_hz as f64 / 1e6,
                one.span_ns as f64 / 1e9
            ),
            None => writeln!(text, ", in nanoseconds: nothing to calibrate"),
        };
    }
    text
}

fn to_json(measured: &[ClockMeasurement], skews: &[Skew], calibrations: &[Calibration]) -> Value {
    let clocks = measured.iter().map(|one| {
        json!({
            "clock": one.source.name(),
            "read_ns": one.read_ns,
            "resolution_ns": one.resolution_ns,
            "steps_back": one.back,
            "hz": one.hz,
            "drift_ppm": one.drift_ppm,
            "drift_error_ppm": one.error_ppm,
        })
    });
    let skews = skews.iter().map(|skew| {
        json!({ "cpus": [skew.cpus.0, skew.cpus.1], "ahead_ns": [skew.bounds_ns.0, skew.bounds_ns.1] })
    });
    let traces = calibrations.iter().map(|one| {
        json!({
            "file": one.file,
            "node": one.node,
            "clock": one.clock,
            "frequency_hz": one.frequency_hz,
            "calibration_span_ns": one.span_ns,
            "error_ppm": one.error_ppm,
        })
    });
    json!({
        "tsc_invariant": Source::Tsc.is_available(),
        "clocks": clocks.collect::<Vec<Value>>(),
        "processors": skews.collect::<Vec<Value>>(),
        "traces": traces.collect::<Vec<Value>>(),
    })
}
