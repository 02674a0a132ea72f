//! The options of `homa bench` that apply to its rack.

use clap::Args;
use homa_bench::tcp::Congestion;
use homa_rack::spec::{MAX_HOSTS, rate};

use crate::choice::choice;
use crate::values::positive;

/// Options of the comparison on a rack.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "On the rack")]
pub struct ComparisonArgs {
    /// Total duration in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    pub seconds: f64,
    /// The same as --seconds 10
    #[arg(long, conflicts_with = "seconds")]
    pub quick: bool,
    /// Number of hosts [default: as many as this machine can emulate]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=i64::from(MAX_HOSTS)))]
    pub hosts: Option<u16>,
    /// Rate of each host's link, each way: 10mbit to 5gbit [default: as much as this machine can emulate]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub rate: Option<u64>,
    /// TCP connections between each pair of hosts, in each direction of requests
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub connections: u16,
    /// TCP's congestion control; each of several is compared with Homa [default: the kernel's default, and
    /// DCTCP if the kernel has it]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = choice::<Congestion>())]
    pub cc: Vec<Congestion>,
}

/// Minimum duration. A shorter time would be spent entirely on building the rack.
const MIN_SECONDS: f64 = 8.0;

/// Duration with --quick.
const QUICK_SECONDS: f64 = 10.0;

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = positive(text)?;
    if (MIN_SECONDS..=3_600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(format!("use {MIN_SECONDS} to 3600 seconds"))
    }
}

impl ComparisonArgs {
    /// Returns the total duration in seconds.
    pub fn total_seconds(&self) -> f64 {
        if self.quick { QUICK_SECONDS } else { self.seconds }
    }
}
