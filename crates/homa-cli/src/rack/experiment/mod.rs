//! `homa rack run`: the published experiments, on a rack.
//!
//! An experiment is a file with options in `args` and a function that takes a [`lab::Lab`] and gives [`Findings`]; what is
//! around it is the same for all.

pub mod agent;
pub mod args;
mod basic;
mod by_size;
mod cables;
mod causes;
pub mod comparison;
mod config;
pub mod findings;
mod framing;
mod incast;
mod lab;
mod links;
mod mtu;
mod one_thread;
mod orders;
mod published;
mod queue;
mod rps;
mod settings;
mod simulated;
mod stand;
mod starve;
mod steady;
mod sweep;
mod threads;
mod vs_tcp;

use std::time::Duration;

use anyhow::{Error, Result, ensure};
use homa_bench::protocol::Protocol;
use homa_bench::recording::TraceSettings;
use homa_bench::workloads::Truncation;
use homa_report::findings::Findings;
use homa_report::outputs::Outputs;
use homa_switch::Buffer;

use crate::rack::spec::{Spec, SwitchKind};
use args::{CommonArgs, Experiment, LoadArgs, RunArgs};
use causes::Planted;
use lab::Lab;
use orders::Setup;

/// Runs an experiment. False if not every RPC was answered once, and right.
pub fn run(args: &RunArgs) -> Result<bool> {
    match &args.experiment {
        Experiment::VsTcp(args) => {
            let cells = vs_tcp::cells(args)?;
            let turns = (1 + args.common.cc.len()) * args.common.repetitions as usize;
            let time = sweep::time(&args.common, turns) * u32::try_from(cells.len())?;
            // What the first of them is built of, the rack is built of.
            let first = &cells[0].args;
            conduct(&first.common, &first.messages, time, |lab| vs_tcp::run(lab, &cells))
        }
        Experiment::Basic(args) => {
            conduct(&args.common, &args.messages, sweep::time(&args.common, 12), |lab| basic::run(lab, args))
        }
        Experiment::Incast(args) => {
            let time = sweep::time(&args.common, 2 * args.senders.len());
            conduct(&args.common, &args.messages, time, |lab| incast::run(lab, args))
        }
        Experiment::Load(args) => {
            conduct(&args.common, &args.messages, sweep::time(&args.common, 2 * args.loads.len()), |lab| {
                sweep::load(lab, args)
            })
        }
        Experiment::MaxLoad(args) => {
            let time = sweep::time(&args.common, 2 * args.loads.len() + 2);
            conduct(&args.common, &args.messages, time, |lab| sweep::max_load(lab, args))
        }
        Experiment::Both(args) => {
            conduct(&args.common, &args.messages, sweep::time(&args.common, args.shares.len()), |lab| {
                sweep::both(lab, args)
            })
        }
        Experiment::Config(args) if args.list => {
            print!("{}", config::list());
            Ok(true)
        }
        Experiment::Config(args) => {
            let varied = config::Varied::read(args)?;
            let time = sweep::time(&args.common, args.values.len());
            conduct(&args.common, &args.messages, time, |lab| config::run(lab, args, &varied))
        }
        Experiment::Mtu(args) => {
            ensure!(args.common.name.is_none(), "mtu builds a rack for each MTU: leave out --name");
            // Each has round trips without load, too.
            let time = sweep::time(&args.common, 4) * u32::try_from(args.mtus.len())?;
            conduct(&args.common, &args.messages, time, |lab| mtu::run(lab, args))
        }
        Experiment::ClientThreads(args) => {
            let time = sweep::time(&args.common, 2 * args.threads.len() * args.receivers.len());
            conduct(&args.common, &args.messages, time, |lab| threads::client_threads(lab, args))
        }
        Experiment::ServerPorts(args) => {
            let time = sweep::time(&args.common, 2 * args.ports.len() * args.receivers.len());
            conduct(&args.common, &args.messages, time, |lab| threads::server_ports(lab, args))
        }
        Experiment::Starve(args) => {
            let time = sweep::time(&args.common, args.shares.len());
            conduct(&args.common, &args.messages, time, |lab| starve::run(lab, args))
        }
        Experiment::Causes(args) => {
            causes::check(args)?;
            let turns = args.causes.len() * args.common.repetitions as usize;
            let time = sweep::time(&args.common, turns);
            // Its racks write their traces where it says.
            let common = CommonArgs { trace: None, ..args.common.clone() };
            conduct(&common, &causes::messages(Planted::None), time, |lab| causes::run(lab, args))
        }
        Experiment::Rps(args) => {
            let outputs = Outputs::check(args.out.as_deref(), args.json.as_deref())?;
            write(&outputs, &rps::run(args)?)
        }
    }
}

/// The rack, the experiment on it, and what is written.
fn conduct(
    common: &CommonArgs,
    messages: &LoadArgs,
    total: Duration,
    experiment: impl FnOnce(&mut Lab) -> Result<Findings>,
) -> Result<bool> {
    // What can be known to be wrong before there is a rack.
    stand::workload_of(messages)?;
    for (_, change) in &common.set {
        change.check(common.driver).map_err(Error::msg)?;
    }
    let outputs = Outputs::check(common.out.as_deref(), common.json.as_deref())?;
    let findings = {
        let mut lab = Lab::open(common, total)?;
        let mut findings = experiment(&mut lab)?;
        lab.report(&mut findings);
        findings
    };
    write(&outputs, &findings)
}

/// What was found, where it was asked for; whether all of it was right.
fn write(outputs: &Outputs, findings: &Findings) -> Result<bool> {
    outputs.write(&findings.text(), &findings.json, || findings.page())?;
    Ok(findings.clean)
}

/// The UDP port of Homa and the TCP port, at every host.
const PORT: u16 = homa::DEFAULT_UDP_PORT;

/// Events that a host's time trace keeps: 8 MB.
const TRACE_RECORDS: u32 = 1 << 18;

/// What the processes of a protocol are to be.
fn setup(spec: &Spec, common: &CommonArgs, messages: &LoadArgs, protocol: Protocol) -> Setup {
    let mut setup = Setup {
        protocol,
        driver: common.driver,
        xdp_mode: common.xdp_mode,
        address: crate::rack::spec::ipv4(0),
        udp_port: PORT,
        link_mbps: spec.rate_mbps(),
        port_bytes: port_bytes(spec),
        mtu: spec.mtu,
        workload: messages.workload.clone(),
        max_message: match messages.max_message {
            Truncation::At(bytes) => Some(bytes),
            Truncation::Off => None,
        },
        longest: 0,
        connections: common.connections,
        server_threads: common.server_threads,
        server_ports: 1,
        client_threads: 1,
        port_receivers: 0,
        endpoints: 1,
        max_segmented_bytes: None,
        batch_cap: None,
        wake_order: None,
        endpoint_policy: None,
        poll_us: common.poll_us,
        one_way: messages.one_way,
        congestion: common.cc.first().copied().filter(|_| protocol == Protocol::Tcp),
        seed: common.seed,
        settings: Vec::new(),
        recording: TraceSettings {
            records: Some(match (common.recording.trace_records, &common.trace) {
                (Some(records), _) => records,
                (None, Some(_)) => TRACE_RECORDS,
                // Hosts share processors, and nobody would see it.
                (None, None) => 0,
            }),
            ..common.recording.to_settings()
        },
    };
    common.set.iter().for_each(|(_, change)| change.apply(&mut setup));
    setup
}

/// What a port of the switch queues while all have much to queue; `None`: not known, as of the kernel's bridge.
fn port_bytes(spec: &Spec) -> Option<u64> {
    if spec.switch != SwitchKind::Homa {
        return None;
    }
    match simulated::switch_of(spec).ok()?.buffer {
        Buffer::PerPort { bytes } => Some(bytes),
        Buffer::Shared { bytes, alpha } => {
            Some((bytes as f64 * alpha / (1.0 + alpha * f64::from(spec.hosts))) as u64)
        }
    }
}

/// A time of so many seconds.
fn seconds(name: &str, value: f64) -> Result<Duration> {
    ensure!((0.01..=3600.0).contains(&value), "--{name} must be 0.01 to 3600 seconds");
    Ok(Duration::from_secs_f64(value))
}
