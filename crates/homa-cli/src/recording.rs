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
    /// Write the time trace to this file at the end; to NAME.1.EXT, NAME.2.EXT and so on, 16 at most, when SIGUSR1 comes and each time it
    /// froze, and go on then
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    pub settings: TraceSettingsArgs,
}

/// Options of every command that runs hosts.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Time traces")]
pub struct TraceSettingsArgs {
    /// Events that each endpoint keeps, rounded up to a power of two, 32 bytes of memory each; 0: no trace [default: 16384; in a rack 262144
    /// with --trace, and none without]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1 << 24))]
    pub trace_records: Option<u32>,
    /// Freeze the trace when an RPC that began here takes at least so long, as in 1ms or 250us
    #[arg(long, value_name = "TIME", value_parser = units::duration_ns)]
    pub trace_slower_than: Option<u64>,
    /// When it freezes by that, or by SIGUSR1, have all peers freeze theirs at the same moment
    #[arg(long)]
    pub trace_freeze_peers: bool,
    /// Record also when the kernel took each packet from its device, and gave each to it, not over --driver xdp; and with which priority
    /// packets came, which drivers that see the IP header (raw over IPv4, packet, xdp) record anyway
    #[arg(long)]
    pub trace_device_times: bool,
}

impl TraceSettingsArgs {
    /// As hosts take them.
    pub fn to_settings(&self) -> TraceSettings {
        TraceSettings {
            records: self.trace_records,
            slower_than: self.trace_slower_than.map(Duration::from_nanos),
            freeze_peers: self.trace_freeze_peers,
            device_times: self.trace_device_times,
        }
    }
}
