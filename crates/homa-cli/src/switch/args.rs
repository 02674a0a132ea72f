//! The command line of `homa switch`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use homa_driver::frames::FramePath;
use homa_driver::xdp::XdpMode;
use homa_metrics::MetricsAddr;
use homa_report::units::{bytes, duration_ns, rate_bps};
use homa_switch::{Buffer, ETHERNET_OVERHEAD_BYTES, Forwarding, SwitchConfig};

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Example: `homa switch run --ports sw0,sw1,sw2 --rate 1gbit` joins three devices. `homa rack up` builds a whole rack with its switch.")]
pub struct SwitchArgs {
    #[command(subcommand)]
    pub command: SwitchCommand,
}

/// Actions on a switch.
#[derive(Clone, Debug, Subcommand)]
pub enum SwitchCommand {
    /// Forward frames between network devices until SIGINT (ctrl-C) or SIGTERM
    Run(RunArgs),
    /// Print the counters of a running switch
    Stats(StatsArgs),
    /// Live view of a running switch
    Top(TopArgs),
}

/// How frames enter and leave the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PathChoice {
    /// AF_XDP if available, else packet sockets
    Auto,
    /// AF_XDP: native if the device supports it, else generic
    Xdp,
    /// AF_XDP in the device's driver
    XdpNative,
    /// AF_XDP in the kernel's receive path: any device; the fastest on a veth
    XdpGeneric,
    /// Packet sockets with a mapped ring: any device and MTU
    Ring,
}

impl From<PathChoice> for FramePath {
    fn from(choice: PathChoice) -> FramePath {
        match choice {
            PathChoice::Auto => FramePath::Auto,
            PathChoice::Xdp => FramePath::Xdp(XdpMode::Auto),
            PathChoice::XdpNative => FramePath::Xdp(XdpMode::Native),
            PathChoice::XdpGeneric => FramePath::Xdp(XdpMode::Generic),
            PathChoice::Ring => FramePath::Ring,
        }
    }
}

/// A number of queued bytes, or the time that a port's link takes to send those bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Bytes.
    Bytes(u64),
    /// Nanoseconds at a port's rate.
    TimeNs(u64),
}

impl Amount {
    /// Returns the amount in bytes at this rate, or `None` for a time if there is no rate.
    pub fn bytes(self, rate: Option<u64>) -> Option<u64> {
        match (self, rate) {
            (Amount::Bytes(bytes), _) => Some(bytes),
            (Amount::TimeNs(ns), Some(bps)) => {
                Some((u128::from(ns) * u128::from(bps) / 8_000_000_000).min(u64::MAX.into()) as u64)
            }
            (Amount::TimeNs(_), None) => None,
        }
    }
}

fn amount(text: &str) -> Result<Amount, String> {
    if let Ok(ns) = duration_ns(text)
        && text != "0"
    {
        return Ok(Amount::TimeNs(ns));
    }
    bytes(text).map(Amount::Bytes).map_err(|_| {
        format!(
            "`{text}` is no amount: use bytes, as in 125kB, or the time that a port's link takes, as in 1ms"
        )
    })
}

/// A rate, or no rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(pub Option<u64>);

fn rate(text: &str) -> Result<Rate, String> {
    if text == "none" { Ok(Rate(None)) } else { rate_bps(text).map(|bps| Rate(Some(bps))) }
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa switch run --ports sw0,sw1,sw2,sw3 --rate 1gbit --buffer 1ms
  homa switch run --ports sw0,sw1 --rate 100mbit --shared-buffer 200kB --alpha 2 --ecn 30kB
  homa switch run --ports sw0,sw1 --rate none --path ring         a bridge without limits, over packet sockets
  homa switch run --ports sw0,sw1 --control /run/switch.sock &  homa switch top --control /run/switch.sock

The queue of a frame is the upper half of its DSCP (IPv4 and IPv6). Needs root, or a user namespace with the
devices. Senders at the other ends of virtual devices must divide packets and compute checksums themselves:
ethtool -K DEVICE tso off gso off tx off.")]
pub struct RunArgs {
    /// The network devices, at least two
    #[arg(long, value_name = "A,B,...", value_delimiter = ',', required = true)]
    pub ports: Vec<String>,
    /// Rate of each port's link, or `none`
    #[arg(long, value_name = "RATE", default_value = "1gbit", value_parser = rate)]
    pub rate: Rate,
    /// Buffer of each port, in bytes or as the time that its link takes to send it
    #[arg(long, value_name = "AMOUNT", default_value = "1ms", value_parser = amount)]
    pub buffer: Amount,
    /// Instead of --buffer: common buffer of all ports, shared by need
    #[arg(long, value_name = "AMOUNT", value_parser = amount, overrides_with = "buffer")]
    pub shared_buffer: Option<Amount>,
    /// With --shared-buffer: maximum of a queue, as a multiple of the free bytes
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "shared_buffer")]
    pub alpha: f64,
    /// Queues of each port; with 1, priorities have no effect
    #[arg(long, value_name = "N", default_value_t = homa_switch::PRIORITIES)]
    pub priorities: usize,
    /// ECN threshold: mark frames that find this much queued at their port
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    pub ecn: Option<Amount>,
    /// Additional delay of every frame
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration_ns)]
    pub delay: u64,
    /// Drop this fraction of all frames
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub loss: f64,
    /// Seed of the choice of dropped frames
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Cut-through: send a frame at the time of its first bit instead of its last
    #[arg(long)]
    pub cut_through: bool,
    /// Bytes that each frame occupies on a link in addition to its own
    #[arg(long, value_name = "BYTES", default_value_t = ETHERNET_OVERHEAD_BYTES)]
    pub overhead: u32,
    /// How frames enter and leave the switch
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub path: PathChoice,
    /// Time to poll without a frame before sleeping
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = duration_ns)]
    pub poll: u64,
    /// Pause after each poll without a frame, which leaves the processor to other threads. Frames may be late
    /// by this time plus some 20 us; a quarter of a frame's time has little effect if hosts share processors
    /// with the switch. 0: never
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = nap_ns, overrides_with = "nap")]
    pub nap: u64,
    /// Additional processing time of each frame, to test overload
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration_ns)]
    pub planted_work: u64,
    /// Answer `homa switch stats` and `homa switch top` on this socket
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// Serve the counters over HTTP at /metrics, in the format of Prometheus: IP:PORT, port 0 for any free
    /// one, or the path of a new socket. A socket also reaches a switch in a namespace without a route
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<MetricsAddr>,
    /// Record a time trace of frames that enter a queue, leave the link or are dropped; write it to this file
    /// at the end and on each SIGUSR1
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Number of last events in the trace, 32 bytes each
    #[arg(long, value_name = "N", default_value_t = 1 << 20, requires = "trace",
          value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub trace_records: u32,
    /// At the end, print the counters as JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

impl RunArgs {
    /// Returns the configuration of the switch.
    ///
    /// # Errors
    /// A buffer is given as a time, but there is no rate.
    pub fn config(&self) -> anyhow::Result<SwitchConfig> {
        let rate = self.rate.0;
        let bytes = |amount: Amount, option: &str| {
            amount.bytes(rate).ok_or_else(|| {
                anyhow::anyhow!(
                    "{option} is a time, and without a rate there is none: say it in bytes, as in 125kB"
                )
            })
        };
        let buffer = match self.shared_buffer {
            Some(amount) => SwitchConfig::shared_buffer(bytes(amount, "--shared-buffer")?, self.alpha)?,
            // Without a rate, a time cannot be converted to bytes, so each port gets 1 MB.
            None if rate.is_none() && matches!(self.buffer, Amount::TimeNs(_)) => {
                Buffer::PerPort { bytes: 1_000_000 }
            }
            None => Buffer::PerPort { bytes: bytes(self.buffer, "--buffer")? },
        };
        Ok(SwitchConfig {
            rate_bps: rate,
            overhead_bytes: self.overhead,
            buffer,
            priorities: self.priorities,
            mark_bytes: self.ecn.map(|amount| bytes(amount, "--ecn")).transpose()?,
            delay_ns: self.delay,
            loss: self.loss,
            seed: self.seed,
            forwarding: if self.cut_through { Forwarding::CutThrough } else { Forwarding::StoreAndForward },
        })
    }
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: homa switch stats --control /run/switch.sock --prometheus")]
pub struct StatsArgs {
    /// The socket of the switch's --control option
    #[arg(long, value_name = "PATH")]
    pub control: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print the text format of Prometheus
    #[arg(long, conflicts_with = "json")]
    pub prometheus: bool,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: homa switch top --control /run/switch.sock --interval 500ms")]
pub struct TopArgs {
    /// The socket of the switch's --control option
    #[arg(long, value_name = "PATH")]
    pub control: PathBuf,
    /// Interval between updates
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration_ns)]
    pub interval: u64,
    /// Number of updates [default: until ctrl-C, or the end of the switch]
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Print each update as a line of JSON
    #[arg(long)]
    pub json: bool,
}

fn nap_ns(text: &str) -> Result<u64, String> {
    let ns = duration_ns(text)?;
    if ns > homa_switch::LONGEST_NAP.as_nanos() as u64 {
        return Err(format!(
            "use at most {:?}: during a longer pause the switch would not react to signals",
            homa_switch::LONGEST_NAP
        ));
    }
    Ok(ns)
}
