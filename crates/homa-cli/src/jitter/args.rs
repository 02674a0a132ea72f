//! The options of `homa jitter`.

use std::path::PathBuf;

use clap::Args;
use homa_report::units::duration_ns;

use crate::machine::cpu_list;

/// `homa jitter`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa jitter                                       every processor that this process may use; as root it can tell more
  homa jitter --seconds 60 --threshold 5us --cpus 2-7
  taskset -c 3 homa jitter --json -                 one processor, and nothing else on standard output

A thread on each processor looks at the clock without a pause. Where two looks are further apart than the threshold, something else
had the processor: another program, an interrupt, the firmware (management interrupts) or a hypervisor. What can be told apart
is told apart. It takes all these processors for as long as it measures. The page has the distribution.")]
pub struct JitterArgs {
    /// How long to measure
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    pub seconds: f64,
    /// The shortest gap that counts, as in 1us. Below a microsecond the look at the clock itself shows: what one cache miss or
    /// one busy sibling of a core costs
    #[arg(long, value_name = "TIME", default_value = "1us", value_parser = threshold)]
    pub threshold: u64,
    /// Processors, as in 0-3,6 [default: all that this process may use]
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    pub cpus: Option<Cpus>,
    /// Directory for report.html and results.json [default: this directory; with --json alone, neither is written]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write the JSON results to this file, or to standard output with `-` (all else then goes to standard error)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// Numbers of processors, in order, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus(pub Vec<usize>);

/// More would be a mistake: all processors are taken for as long.
const MAX_SECONDS: f64 = 86_400.0;

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.01..=MAX_SECONDS).contains(&value) => Ok(value),
        _ => Err(format!("use 0.01 to {MAX_SECONDS} seconds")),
    }
}

/// Two looks at the slower clock are some tens of nanoseconds apart: less would find nothing else.
const MIN_THRESHOLD_NS: u64 = 200;
/// Nobody would notice less than that without this command.
const MAX_THRESHOLD_NS: u64 = 1_000_000_000;

fn threshold(text: &str) -> Result<u64, String> {
    match duration_ns(text)? {
        ns if (MIN_THRESHOLD_NS..=MAX_THRESHOLD_NS).contains(&ns) => Ok(ns),
        _ => Err(format!("use {MIN_THRESHOLD_NS} ns to {} s", MAX_THRESHOLD_NS / 1_000_000_000)),
    }
}

fn cpus(text: &str) -> Result<Cpus, String> {
    let parts = text.split(',').map(cpu_list);
    let parts: Vec<Vec<usize>> = parts.collect();
    if parts.iter().any(Vec::is_empty) {
        return Err("use numbers and ranges of them, as in 0-3,6".to_owned());
    }
    let mut cpus = parts.concat();
    cpus.sort_unstable();
    cpus.dedup();
    Ok(Cpus(cpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked() {
        assert_eq!(cpus("3,0-1,1"), Ok(Cpus(vec![0, 1, 3])));
        for text in ["", "a", "3-1", "0,", "-1"] {
            assert!(cpus(text).is_err(), "{text}");
        }
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
