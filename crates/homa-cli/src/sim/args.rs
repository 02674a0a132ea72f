//! The options of `homa sim`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use homa_report::units::duration_ns;

use super::knobs::KnobArgs;
use super::steer::args::{RouterArgs, SteerArgs};

/// `homa sim`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa sim run --workload w4 --load 0.8             144 hosts in 9 racks, as in the SIGCOMM 2018 paper
  homa sim sweep overcommit                         combinations of parameters and seeds, over all processors; resumes
  homa sim max-load --workload w3 --transport homa  the highest sustained load
  homa sim steer --policies all --workloads w4      policies for receive steering, on hosts with cores
  homa sim router --flows 1,4,16                    the same for a few connections of TCP through a router
  homa sim presets                                  networks, sweeps and settings by name

Messages are lengths without bytes, and time is virtual: the same seed gives exactly the same results on any number of
processors. Messages are one-way, or RPCs with `--exchange echo`.")]
pub struct SimArgs {
    /// The action.
    #[command(subcommand)]
    pub command: SimCommand,
}

/// The subcommands.
#[derive(Clone, Debug, Subcommand)]
pub enum SimCommand {
    /// Run a load over one transport or several, side by side
    Run(Box<RunArgs>),
    /// Run combinations of parameters and seeds over all processors, from a file or a built-in sweep; resumes
    /// where it was stopped
    Sweep(SweepArgs),
    /// Find the highest load that each transport sustains
    MaxLoad(Box<MaxLoadArgs>),
    /// Compare policies for receive steering on hosts with cores: tails, throughput, hand-offs
    Steer(Box<SteerArgs>),
    /// Compare the policies for TCP through a router with several cores
    Router(RouterArgs),
    /// Print the presets, the built-in sweeps, transports and settings
    Presets(PresetsArgs),
}

/// The network, the load and the transports of a run.
#[derive(Args, Clone, Debug)]
pub struct WorkloadArgs {
    /// The network and the load to start from: see `homa sim presets`
    #[arg(long, value_name = "NAME", default_value = "sigcomm18")]
    pub preset: String,
    /// Transports, each with the same messages: see `homa sim presets`
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "homa")]
    pub transport: Vec<String>,
    /// Common options of all runs.
    #[command(flatten)]
    pub knobs: KnobArgs,
    /// Any setting of Homa by its name in the Rust API, as in max_incoming=200000; can be given several times
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Homa")]
    pub set: Vec<String>,
    /// Transports that run at the same time [default: one for each processor]. Results do not depend on it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
}

/// `homa sim run`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa sim run --workload w4 --load 0.8 --duration 50ms --seed 7
  homa sim run --topology switch --hosts 16 --rate 100gbit --workload my.csv --json -
  homa sim run --preset incast --senders 200 --shared-buffer 12MB
  homa sim run --overcommit 4 --cutoffs traffic --set max_incoming=200000
  homa sim run --transport tcp,dctcp --connections 4                  lasting connections instead of one for each message
  homa sim run --workload w4 --published sigcomm18-w4-load80.csv      with the published curves in report.html

Slowdown is the time of a message divided by its minimum time in an empty network. Runs start with an empty network. Unless
--warm-up is given, the measurement starts when the load should have reached steady state; a run that was not in steady state,
by the tests in the guide, reports it. The processor time of the runs is printed on standard error; all other results are
reproducible. Time units are ns, us, ms and s; rates are in mbit, gbit or tbit; sizes in bytes, kB, MB or GB.")]
pub struct RunArgs {
    /// The network, the load and the transports.
    #[command(flatten)]
    pub what: WorkloadArgs,
    /// Published slowdowns to draw beside the results, of the same workload in preset sigcomm18: a CSV file
    /// with the columns protocol,size_bytes,percent_of_messages,slowdown_mean,slowdown_p50,slowdown_p99
    #[arg(long, value_name = "FILE.csv")]
    pub published: Option<PathBuf>,
    /// Directory for report.html and results.json [default: this directory; with --json alone, neither is
    /// written]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write the JSON results to this file, or to standard output with `-` (the tables then go to standard
    /// error)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Add processor time, hops and events per second to the JSON (`speed`), which then differs from run to
    /// run
    #[arg(long)]
    pub speed: bool,
    /// Write the time trace of each Homa host to this directory, as host-NUMBER.trace, in the format of a
    /// live host's
    #[arg(long, value_name = "DIR")]
    pub trace: Option<PathBuf>,
    /// Records of each trace, 32 bytes each; the latest are kept
    #[arg(long, value_name = "N", default_value_t = 65_536, requires = "trace", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub trace_records: u32,
    /// Freeze all traces when the first measured message, or RPC, has taken at least this long, as in 1ms or
    /// 250us
    #[arg(long, value_name = "TIME", requires = "trace", value_parser = duration_ns)]
    pub trace_slower_than: Option<u64>,
}

/// `homa sim presets`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: homa sim presets")]
pub struct PresetsArgs {}

/// `homa sim sweep`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa sim sweep overcommit                         a built-in sweep: see `homa sim presets`
  homa sim sweep mine.toml --out results --jobs 8
  homa sim sweep overcommit --seeds 1 --set duration=4ms --set workload=w3      a short form

A file has the common settings of its runs, and lists of varied settings. Every combination is run with every seed:
  title = \"How much to grant\"
  seeds = [1, 2, 3]
  [base]
  preset = \"sigcomm18\"
  workload = [\"w3\", \"w4\"]      # also load and transport: one or a list
  duration = \"20ms\"
  homa.max_incoming = 400000     # any setting of the protocol
  [vary]
  overcommit = [1, 2, 4, 8]      # any option of `homa sim run`

Each finished run is stored in the directory `runs` of --out, and is not repeated by the same version of the program: after an
interruption (ctrl-C), an error or a change of the file, only missing runs are executed. Remove that directory after a change of
the program.")]
pub struct SweepArgs {
    /// The file, or the name of a built-in sweep
    #[arg(value_name = "FILE.toml|NAME")]
    pub file: String,
    /// A setting that replaces the file's, in [base] or in [vary]; can be given several times. Names are
    /// those of the file
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Seeds that replace the file's
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub seeds: Vec<u64>,
    /// Directory for report.html, results.json and the finished runs [default: sim- and the name of the
    /// sweep]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Also write the JSON results to this file, or to standard output with `-` (the table then goes to
    /// standard error)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Runs at the same time [default: one for each processor]. Results do not depend on it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
}

/// `homa sim max-load`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa sim max-load --workload w4 --transport homa,oracle
  homa sim max-load --workload w2 --duration 20ms --json -

Bisection in hundredths of the hosts' links, headers included. A load is sustained if every message that started in the
measured time arrived before the drain ended, and the bytes in flight did not grow from the first quarter of the measured time
to the last. Permitted are a growth of 3 % of the bytes started in between and, for chance, half the longest message times the
root of the number of hosts. Loads below a sustained one are assumed to be sustained. The warm-up is as long as the load needs,
at most four times the measured time. The drain is twice the measured time, or 20 times the minimum time of the longest message
if that is more. A short --duration gives too high a load.")]
pub struct MaxLoadArgs {
    /// The network, the load and the transports.
    #[command(flatten)]
    pub what: WorkloadArgs,
    /// Write the JSON results to this file, or to standard output with `-` (the table then goes to standard
    /// error)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}
