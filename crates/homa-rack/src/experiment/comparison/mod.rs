//! Compares Homa and TCP within a minute, on a rack sized for the processors of this machine. All protocols
//! get the same messages at the same times.

mod answer;
mod page;
mod refusal;
mod schedule;
mod size;
mod steady_state;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use homa_bench::protocol::Protocol;
use homa_bench::tcp::Congestion;
use homa_bench::workloads::Truncation;
use homa_report::findings::Findings;
use serde_json::Value;

use self::answer::Answer;
pub use self::refusal::refusal;
use self::schedule::Schedule;
use self::size::Size;
use self::steady_state::{LoadControl, Progress};
use super::agents::Agents;
use super::options::{Program, VsTcpOptions};
use super::setup::setup;
use super::testbed::Testbed;
use super::vs_tcp::{Cell, Plan, Session};
use crate::spec::Spec;

/// Default workload: W3, the aggregate of all applications in a Google datacentre. In a minute, a rack
/// answers enough of its messages for a 99th percentile in every row of the table. With W4 it would answer
/// thirty times fewer.
const WORKLOAD: &str = "w3";

/// Default load as a share of each link's rate. The network is busy at this load, but TCP still completes it.
const LOAD: f64 = 0.7;

/// Default load if there is only time for one short repetition. At 70 %, a few long messages would decide
/// whether the run looks steady.
const SHORT_LOAD: f64 = 0.5;

/// Durations below this count as short, in seconds.
const SHORT_SECONDS: f64 = 20.0;

/// Size of the switch's shared buffer. One port may use only a part of it: see [`BUFFER`].
const SHARED_BUFFER: &str = "--shared-buffer=10ms";

/// Description of the buffer. The 32 MB of a Trident 3 amount to 10.2 ms of one of its 25 Gbit/s ports.
/// Switches with Broadcom's chips compute each queue's threshold from the free bytes of the pool. Examples
/// are Junos `buffer-dynamic-threshold` of the QFX5220, and Extreme's SLX 9150, a Trident 3, which gives one
/// congested queue two thirds (alpha 2). With alpha 1, one congested queue gets half.
pub const BUFFER: &str = "a buffer of 10 ms of a link's rate shared by all ports, of which one congested queue gets half, as Broadcom's \
                          Trident 3 has at 25 Gbit/s (32 MB, dynamic thresholds for each queue, alpha 1)";

/// Number of full packets in a port's queue above which packets are marked for DCTCP, as its authors
/// recommend for 1 Gbit/s (SIGCOMM 2010, section 3.5).
const MARK_PACKETS: u64 = 20;

/// Warm-up and measurement window of a trial.
const TRIAL: (Duration, Duration) = (Duration::from_millis(250), Duration::from_millis(750));

/// Maximum number of trials.
const TRIALS: usize = 4;

/// The options of a comparison. Defaults depend on this machine and on the available time.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program that the library is part of.
    pub program: Program,
    /// Time from start to result.
    pub total: Duration,
    /// Number of hosts. Default: chosen for the processors of this machine.
    pub hosts: Option<u16>,
    /// Rate of each host's link in each direction, in bits per second. Default: chosen for the processors of
    /// this machine.
    pub rate: Option<u64>,
    /// Number of TCP connections between each pair of hosts, for each direction of requests.
    pub connections: u16,
    /// TCP's congestion control algorithms, each of which is compared with Homa. Empty: the kernel's default,
    /// and DCTCP if the kernel has it.
    pub cc: Vec<Congestion>,
    /// Workload: a name, a number of bytes, or a file. Default: W3.
    pub workload: Option<String>,
    /// Maximum message length. Default: 1/100 of the bytes that a link carries in the measurement window, at
    /// most 1 MB.
    pub max_message: Option<Truncation>,
    /// Whether responses are 100 bytes long instead of as long as the request.
    pub one_way: bool,
    /// Offered load as a share of each link's rate, including headers. Default: depends on the available
    /// time.
    pub load: Option<f64>,
    /// Seed of arrivals, sizes and the choice of servers, the same for all protocols.
    pub seed: u64,
}

/// A finished comparison in its output formats.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Text for a terminal.
    pub text: String,
    /// JSON for programs.
    pub json: Value,
    /// A page for browsers.
    pub page: String,
    /// Whether every RPC was answered exactly once and correctly.
    pub is_clean: bool,
}

/// Runs a comparison.
///
/// # Errors
/// The options are invalid, the user pressed Ctrl-C, or no rack can be built; [`refusal`] explains the last
/// case.
pub fn run(options: &Options) -> Result<Comparison> {
    let began = Instant::now();
    let total = options.total;
    let mut cell = Cell { options: experiment(options), is_only: true };
    let mut size = Size::of_processors(processors());
    size.hosts = options.hosts.unwrap_or(size.hosts);
    build(&mut cell, options, size);
    let answer = {
        let mut testbed = Testbed::open(&cell.options.common, total).context(CANNOT_BUILD)?;
        let trials = choose(&mut testbed, &mut cell, options, size)?;
        let contenders = 1 + cell.options.common.cc.len();
        let schedule = Schedule::of(total.saturating_sub(began.elapsed()), contenders);
        schedule_into(&mut cell, schedule);
        testbed.recorded_port = Some(0);
        let mut plan = Plan::new(testbed.spec(), &cell)?;
        plan.chooses_window = true;
        let mut session = Session::start(&mut testbed, plan, schedule.unloaded)?;
        let lowered = repeat(&mut testbed, &mut session, schedule, began + total)?;
        let measured = session.finish(&testbed)?;
        let mut findings = Findings { clean: measured.is_clean(), ..Findings::default() };
        testbed.report(&mut findings);
        Answer::new(measured, trials, lowered, findings.warnings)
    };
    Ok(Comparison {
        text: answer.text(),
        json: answer.json(),
        page: answer.page(),
        is_clean: answer.is_clean(),
    })
}

/// Start of the error message if this machine cannot build a rack.
const CANNOT_BUILD: &str = "cannot build a rack of hosts";

/// Returns whether an error means that this machine cannot build a rack, as opposed to errors in the options
/// and later failures.
pub fn is_refusal(error: &anyhow::Error) -> bool {
    error.to_string() == CANNOT_BUILD
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Derives the options of the experiment.
fn experiment(options: &Options) -> VsTcpOptions {
    let mut experiment = VsTcpOptions::new(options.program);
    experiment.messages.workload = options.workload.clone().unwrap_or_else(|| WORKLOAD.to_owned());
    experiment.messages.one_way = options.one_way;
    let is_short = options.total.as_secs_f64() < SHORT_SECONDS;
    experiment.offered.load = options.load.unwrap_or(if is_short { SHORT_LOAD } else { LOAD });
    let common = &mut experiment.common;
    common.connections = options.connections;
    common.cc = if options.cc.is_empty() { Congestion::of_the_kernel() } else { options.cc.clone() };
    common.seed = options.seed;
    experiment
}

/// Sets the size of the cell's rack.
fn build(cell: &mut Cell, options: &Options, size: Size) {
    let common = &mut cell.options.common;
    common.build.hosts = size.hosts;
    common.build.rate = options.rate.unwrap_or(u64::from(size.rate_mbps) * 1_000_000);
    common.build.switch_option = vec![SHARED_BUFFER.to_owned()];
    if common.cc.contains(&Congestion::Dctcp) {
        let packet = u64::from(common.build.mtu);
        // On slow links, half of a port's maximum queue is smaller than this many packets.
        let half = common.build.rate / 8 * 5 / 1_000 / 2;
        common.build.switch_option.push(format!("--ecn={}", (MARK_PACKETS * packet).min(half)));
    }
    let longest = Schedule::of(options.total, 1 + common.cc.len()).longest_message(common.build.rate);
    cell.options.messages.max_message = options.max_message.unwrap_or(Truncation::At(longest));
}

fn schedule_into(cell: &mut Cell, schedule: Schedule) {
    let common = &mut cell.options.common;
    common.repetitions = schedule.repetitions;
    common.duration = schedule.measured.as_secs_f64();
    common.warmup = schedule.warmup.as_secs_f64();
}

/// A rack that was tried, and how busy its processors were.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// The rack.
    pub size: Size,
    /// Average number of processors that hosts and switch kept busy under Homa's load.
    pub busy: f64,
    /// Mean time that a thread of a host waited for a processor, in microseconds.
    pub waited_us: f64,
}

/// Briefly runs Homa's load on the rack. Builds smaller racks until the processors have capacity to spare.
fn choose(testbed: &mut Testbed, cell: &mut Cell, options: &Options, mut size: Size) -> Result<Vec<Trial>> {
    let mut trials = Vec::new();
    if options.rate.is_some() {
        return Ok(trials);
    }
    while trials.len() < TRIALS {
        let spec = testbed.spec().clone();
        let loaded = {
            let mut plan = Plan::new(&spec, cell)?;
            (plan.warmup, plan.measured) = TRIAL;
            let load = plan.load(0)?;
            let setup = setup(&spec, &cell.options.common, &cell.options.messages, Protocol::Homa);
            let mut agents = Agents::start(testbed, &setup)?;
            agents.open_all(testbed)?;
            let text = format!("trying {} hosts with links of {} Mbit/s", spec.hosts, spec.rate_mbps());
            testbed.load(&mut [(&mut agents, &load)], &text)?.pop().unwrap_or_default()
        };
        let machine = loaded.machine;
        let (busy, waited_us) = (machine.hosts_busy + machine.switch_busy, machine.hosts_waited_us);
        trials.push(Trial { size, busy, waited_us });
        let next = size.smaller(&machine, spec.packet_us());
        let Some(next) = next.filter(|next| options.hosts.is_none_or(|hosts| hosts == next.hosts)) else {
            break;
        };
        size = next;
        build(cell, options, size);
        testbed.rebuild(&cell.options.common.build)?;
    }
    Ok(trials)
}

/// Runs all repetitions until `end`. If a protocol does not complete the offered load, starts again with a
/// lower load. Returns the initial load if it was lowered.
fn repeat(
    testbed: &mut Testbed,
    session: &mut Session<'_>,
    mut schedule: Schedule,
    end: Instant,
) -> Result<Option<f64>> {
    let first_load = session.plan.load;
    let mut control = LoadControl::new(Schedule::least(session.contenders()));
    let mut done = 0;
    while done < schedule.repetitions {
        let text = format!("repetition {} of {}", done + 1, schedule.repetitions);
        session.repeat(testbed, &text)?;
        done += 1;
        let left = end.saturating_duration_since(Instant::now());
        let progress = Progress {
            done,
            repetitions: schedule.repetitions,
            completed_fractions: session.completed_fractions(),
        };
        if let Some((load, left)) = control.start_again(session.plan.load, &progress, left) {
            session.restart();
            session.plan.set_load(load);
            schedule = Schedule::of_loads(left, session.contenders());
            (session.plan.warmup, session.plan.measured) = (schedule.warmup, schedule.measured);
            done = 0;
        }
    }
    Ok((session.plan.load < first_load).then_some(first_load))
}

/// Describes the rack.
pub fn rack_in_words(spec: &Spec) -> String {
    format!("{} hosts with links of {} Mbit/s to one switch", spec.hosts, spec.rate_mbps())
}
