//! The options of `homa sim steer` and `homa sim router`.

use std::path::{Path, PathBuf};

use clap::Args;
use homa_bench::host_options::wake_order;
use homa_report::units::duration_ns;
use homa_sim::{BUILT_IN_COSTS, Costs};
use homa_steer::batch::BatchCap;
use homa_steer::wake::WakeOrder;
use homa_steer::{POLICIES, PolicyName};

/// Parses the name of a policy.
fn policy(name: &str) -> Result<PolicyName, String> {
    name.parse().map_err(|error: homa_steer::SteerError| error.to_string())
}

fn receive_batch(text: &str) -> Result<BatchCap, String> {
    let packets = homa_report::units::number(text)?;
    BatchCap::new(packets).map_err(|error| error.to_string())
}

/// Returns built-in costs by name, or the costs in a file.
///
/// # Errors
/// The error names the file and says what is wrong with it.
pub fn costs(name: &str) -> Result<Costs, String> {
    if let Some(costs) = Costs::named(name) {
        return Ok(costs);
    }
    let names = BUILT_IN_COSTS.map(|(name, _)| name).join(" and ");
    let text = std::fs::read_to_string(Path::new(name))
        .map_err(|error| format!("--costs {name}: {error}; those that need no file are {names}"))?;
    Costs::parse(&text).map_err(|error| format!("{name}: {error}"))
}

fn policies() -> String {
    let line = |entry: &homa_steer::Entry| format!("  {:<12}  {}", entry.name, entry.about);
    POLICIES.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// `homa sim steer`.
#[derive(Args, Clone, Debug)]
#[command(after_help = format!("\
Policies:
{}

Examples:
  homa sim steer --policies rss-hash,gen2 --workloads w4,w5 --cores 16 --loads 0.5,0.8
  homa sim steer --policies all --workloads w1,w2,w3,w4,w5 --cores 1,2,4,8,16,32 --loads 0.2,0.5,0.8 --out steering
  homa sim steer --workloads 100 --outstanding 1 --hosts 2 --server-threads 18 --poll 0 --wake-order fifo
  homa sim steer --print-costs x86 > mine.toml; homa sim steer --costs mine.toml

Each host of a cluster (one switch, 25 Gbit/s, MTU 3000) is client and server of echo RPCs. It runs the deployed protocol on cores
that applications also use. A load is a share of the capacity of hosts whose cores only process RPCs, all equally loaded, warm and
never waiting, or of the links' capacity if that is less. Times are measured from the moment a thread begins to send a request until
a thread has the response. Short messages are those below 1500 bytes, or the shortest tenth if these are fewer. Messages are
limited to 1 MB, as in Linux Homa. Hand-offs, core wake-ups and cold packets are in percent of the packets; cold and woken threads
are in percent of the messages. The same seed gives the same results.", policies()))]
pub struct SteerArgs {
    /// Policies, or `all`
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "rss-hash,homa-hash,gen2,bypass", value_parser = any_policy)]
    pub policies: Vec<PolicyChoice>,
    /// Workloads: w1 to w8, a number of bytes, or a file as for `homa sim run`
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "w4")]
    pub workloads: Vec<String>,
    /// Cores of a host, 1 to 64
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "16")]
    pub cores: Vec<usize>,
    /// Loads, above 0 and up to 1
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "0.5",
        conflicts_with = "outstanding"
    )]
    pub loads: Vec<f64>,
    /// Open RPCs of each host (closed loop), instead of a load
    #[arg(long, value_name = "N")]
    pub outstanding: Option<u32>,
    /// Which waiting thread gets a message: lifo (the last to wait), fifo (the first) or least-recent (the
    /// one whose core was idle for longest)
    #[arg(long, value_name = "ORDER", default_value_t = WakeOrder::Lifo, value_parser = wake_order)]
    pub wake_order: WakeOrder,
    /// Maximum number of packets that a core receives from the device before it passes them on
    #[arg(long = "batch-cap", value_name = "PACKETS", value_parser = receive_batch)]
    pub receive_batch: Option<BatchCap>,
    /// Time for which a thread polls before it sleeps [default: as Linux Homa does, 50us]
    #[arg(long, value_name = "TIME", value_parser = duration_ns)]
    pub poll: Option<u64>,
    /// Threads of a server [default: 9, at most one for each core]
    #[arg(long, value_name = "N")]
    pub server_threads: Option<usize>,
    /// Threads of a client that receive responses [default: 6, at most one for each core]
    #[arg(long, value_name = "N")]
    pub client_threads: Option<usize>,
    /// Threads of a client that send requests [default: 3, at most one for each core]
    #[arg(long, value_name = "N")]
    pub sender_threads: Option<usize>,
    /// Cores on which packets arrive [default: as many as the policy requires, or all]
    #[arg(long, value_name = "N")]
    pub receive_cores: Option<usize>,
    /// Cost of each piece of work: x86, mips-router or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "x86")]
    pub costs: String,
    /// Idle time after which a core sleeps (with --power-exit) [default: as the costs say]
    #[arg(long, value_name = "TIME", value_parser = duration_ns, requires = "power_exit")]
    pub power_idle: Option<u64>,
    /// Additional time that a sleeping core needs to start [default: as the costs say]
    #[arg(long, value_name = "TIME", value_parser = duration_ns)]
    pub power_exit: Option<u64>,
    /// Only print these costs, with the source of each
    #[arg(long, value_name = "NAME", conflicts_with_all = ["json", "out"])]
    pub print_costs: Option<String>,
    /// Hosts
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub hosts: usize,
    /// Approximate number of measured RPCs
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub rpcs: u64,
    /// Measured time, instead of a number of RPCs
    #[arg(long, value_name = "TIME", value_parser = duration_ns, conflicts_with = "rpcs")]
    pub duration: Option<u64>,
    /// Seed of the runs
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Parallelism and output.
    #[command(flatten)]
    pub work: WorkArgs,
}

/// Common options of both commands.
#[derive(Args, Clone, Debug)]
pub struct WorkArgs {
    /// Runs at the same time [default: one for each processor]. Results do not depend on it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Directory for report.html and results.json [default: this directory; with --json alone, neither is
    /// written]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write the JSON results to this file, or to standard output with `-` (the table then goes to standard
    /// error)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// A policy, or all policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyChoice {
    All,
    One(PolicyName),
}

fn any_policy(name: &str) -> Result<PolicyChoice, String> {
    if name == "all" { Ok(PolicyChoice::All) } else { policy(name).map(PolicyChoice::One) }
}

/// Returns the policies in a list, in the order of the list, without duplicates.
pub fn chosen(list: &[PolicyChoice]) -> Vec<PolicyName> {
    let mut policies = Vec::new();
    for chosen in list {
        let named: Vec<PolicyName> = match chosen {
            PolicyChoice::All => POLICIES.iter().map(|entry| entry.policy).collect(),
            PolicyChoice::One(policy) => vec![*policy],
        };
        for policy in named {
            if !policies.contains(&policy) {
                policies.push(policy);
            }
        }
    }
    policies
}

/// `homa sim router`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa sim router --flows 1,2,4,8,16,32
  homa sim router --policies same-core,rss-hash,sparse --cores 4,8,16 --flows 1,4,16,32 --json -

The experiment of the \"sparse connection\" patch for RPS: TCP in both directions between two hosts, through a router that translates
addresses. The router's first core receives packets from both devices, and a policy chooses among the other cores; with same-core
the first core does everything. The gain of each policy is relative to the first policy of the list. The ports of a run, and hence
its hashes, are random; the spread is over runs.")]
pub struct RouterArgs {
    /// Policies, or `all`
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "rss-hash,sparse", value_parser = any_policy)]
    pub policies: Vec<PolicyChoice>,
    /// Connections in each direction
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,3,4,6,8,12,16,20,24,28,32")]
    pub flows: Vec<u32>,
    /// Cores of the router
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "4")]
    pub cores: Vec<usize>,
    /// Runs of each combination, with seeds from --seed on
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub runs: u64,
    /// Cost of each piece of work: mips-router, x86 or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "mips-router")]
    pub costs: String,
    /// Duration [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = duration_ns)]
    pub duration: Option<u64>,
    /// Seed of the first run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Parallelism and output.
    #[command(flatten)]
    pub work: WorkArgs,
}
