//! Options for time traces.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use homa_bench::recording::TraceSettings;
use homa_report::units;

/// Options of commands that run one host.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Time traces")]
pub struct RecordingArgs {
    /// Write the time trace to this file at the end. On SIGUSR1 and after each freeze, write it to
    /// NAME.1.EXT, NAME.2.EXT and so on, at most 16, and resume recording
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    pub settings: TraceSettingsArgs,
}

/// Options of every command that runs hosts.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Time traces")]
pub struct TraceSettingsArgs {
    /// Events that each endpoint keeps, rounded up to a power of two, 32 bytes of memory each; 0: no trace
    /// [default: 16384; in a rack 262144 with --trace, none without]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1 << 24))]
    pub trace_records: Option<u32>,
    /// Freeze the trace when an RPC of a client on this host takes at least this long, as in 1ms or 250us
    #[arg(long, value_name = "TIME", value_parser = units::duration_ns)]
    pub trace_slower_than: Option<u64>,
    /// When that or SIGUSR1 freezes the trace, make all peers freeze theirs at the same moment
    #[arg(long)]
    pub trace_freeze_peers: bool,
    /// Record also the times at which the kernel received each packet from the device and gave each sent
    /// packet to the device (not with --driver xdp). Also record the priority of received packets; drivers
    /// that see the IP header always do (raw over IPv4, packet, xdp)
    #[arg(long)]
    pub trace_device_times: bool,
}

impl TraceSettingsArgs {
    /// Returns the options in the format of the host's settings.
    pub fn to_settings(&self) -> TraceSettings {
        TraceSettings {
            records: self.trace_records,
            slower_than: self.trace_slower_than.map(Duration::from_nanos),
            freeze_peers: self.trace_freeze_peers,
            device_times: self.trace_device_times,
        }
    }
}
