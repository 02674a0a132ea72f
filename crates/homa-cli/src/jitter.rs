//! `homa jitter`: measures interruptions of the processors.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use homa_doctor::CpuList;
use homa_doctor::jitter::{Options, allowed_cpus, measure};
use homa_report::outputs::Outputs;
use homa_report::units::duration_ns;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa jitter                                       all processors that this process may use; more detail as root
  homa jitter --seconds 60 --threshold 5us --cpus 2-7
  taskset -c 3 homa jitter --json -                 one processor; only JSON on standard output

A thread on each processor reads the clock without a pause. If two readings are further apart than the
threshold, something else had the processor: another program, an interrupt, the firmware (management
interrupts) or a hypervisor. Causes are distinguished as far as possible. The measurement fully occupies these
processors. The page shows the distribution.")]
pub struct JitterArgs {
    /// How long to measure
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    pub seconds: f64,
    /// The shortest gap that counts, as in 1us. Below a microsecond, gaps include the cost of reading the
    /// clock, of a cache miss or of a busy hyper-thread
    #[arg(long, value_name = "TIME", default_value = "1us", value_parser = threshold)]
    pub threshold: u64,
    /// Processors, as in 0-3,6 [default: all that this process may use]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<CpuList>,
    /// Directory for report.html and results.json [default: this directory; with --json alone, neither is
    /// written]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write the JSON results to this file, or to standard output with `-` (all other output then goes to
    /// standard error)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if Options::SECONDS.contains(&value) => Ok(value),
        _ => Err(format!("use {} to {} seconds", Options::SECONDS.start(), Options::SECONDS.end())),
    }
}

fn threshold(text: &str) -> Result<u64, String> {
    let range = Options::THRESHOLD_NS;
    match duration_ns(text)? {
        ns if range.contains(&ns) => Ok(ns),
        _ => Err(format!("use {} ns to {} s", range.start(), range.end() / 1_000_000_000)),
    }
}

impl TryFrom<&JitterArgs> for Options {
    type Error = anyhow::Error;

    fn try_from(args: &JitterArgs) -> Result<Options> {
        Ok(Options {
            cpus: allowed_cpus(args.cpus.as_ref())?,
            length: Duration::from_secs_f64(args.seconds),
            threshold_ns: args.threshold,
        })
    }
}

/// Measures the gaps, and writes the results.
///
/// # Errors
/// A processor may not be used, or a file cannot be written.
pub fn run(args: &JitterArgs) -> Result<()> {
    let options = args.try_into()?;
    let outputs = Outputs::check(args.out.as_deref(), args.json.as_deref())?;
    let findings = measure(&options)?.findings();
    outputs.write(&findings.text(), &findings.json, || findings.page())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked() {
        assert_eq!(threshold("5us"), Ok(5_000));
        assert!(threshold("10ns").is_err() && threshold("2s").is_err() && threshold("5").is_err());
        assert!(
            seconds("0").is_err()
                && seconds("nan").is_err()
                && seconds("1e9").is_err()
                && seconds("2") == Ok(2.0)
        );
    }
}
