//! Round trips of short messages over Homa and over TCP, one RPC at a time, by steering policy and number of
//! server threads.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use homa::HostConfig;
use homa_bench::addresses::host_config;
use homa_bench::driver::Driver;
use homa_bench::engine::link::Link;
use homa_bench::engine::pattern::Pattern;
use homa_bench::homa_link;
use homa_bench::limits::closed::{self, Sample, Spec};
use homa_bench::protocol::Protocol;
use homa_bench::server::Report;
use homa_bench::server::{ServerOptions, ServerProcess};
use homa_bench::tcp::client::{TcpLink, TcpLinkConfig};
use homa_report::chart::{Chart, Curve, Point, Scale};
use homa_report::findings::{Findings, Section, Table};
use homa_report::progress::Progress;
use serde::Serialize;
use serde_json::json;

use super::net::{ADDRESSES, Net, run_in_namespace};
use super::{RpsEnvironment, Spread, describe_path, reported};
use crate::experiment::options::{Policy, RpsOptions};
use crate::experiment::setup::PROTOCOLS;

/// Size of a request and of its response in bytes, as in the published table.
const BYTES: u32 = 100;

/// Round trips of a protocol to a server with a given number of threads, under a policy.
#[derive(Clone, Debug, Serialize)]
struct RoundTrips {
    policy: Policy,
    protocol: Protocol,
    server_threads: u16,
    p50_us: Spread,
    p99_us: Spread,
}

/// Measures all combinations on a network.
///
/// # Errors
/// A server cannot be started or reached, an RPC failed, or the user interrupted the experiment.
pub fn run(options: &RpsOptions, ready: &RpsEnvironment) -> Result<Findings> {
    let mut progress = Progress::new(ready.total(options, options.server_threads.len() * PROTOCOLS.len())?);
    let mut all: Vec<RoundTrips> = Vec::new();
    for &policy in &options.policies {
        for protocol in PROTOCOLS {
            let round_trips = |&server_threads: &u16| RoundTrips {
                policy,
                protocol,
                server_threads,
                p50_us: Spread::default(),
                p99_us: Spread::default(),
            };
            all.extend(options.server_threads.iter().map(round_trips));
        }
    }
    let mut samples: Vec<[Vec<f64>; 2]> = vec![Default::default(); all.len()];
    for _ in 0..options.repetitions {
        for policy in &options.policies {
            let _steering = ready.net.steer(*policy, &ready.mask)?;
            for (round_trips, [p50, p99]) in
                all.iter().zip(&mut samples).filter(|(one, _)| one.policy == *policy)
            {
                ready.check()?;
                progress.step(&text(round_trips), ready.times.0 + ready.times.1);
                let mut sample =
                    measure(&ready.net, round_trips.protocol, round_trips.server_threads, ready.times)?;
                let mut of = |fraction| sample.rtt_us(fraction).unwrap_or(f64::NAN);
                p50.push(of(0.5));
                p99.push(of(0.99));
            }
        }
    }
    for (round_trips, [p50, p99]) in all.iter_mut().zip(samples) {
        (round_trips.p50_us, round_trips.p99_us) = (Spread::of(p50), Spread::of(p99));
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let summary = format!(
        "{BYTES} bytes and back {} of {} s",
        describe_path(options, ready, processors),
        options.duration
    );
    let mut findings = reported(options, ready, "rps-server-threads", json!(all));
    findings.title = "A lone round trip, by the distribution of its packets".to_owned();
    findings.summary = summary;
    findings.sections = vec![section(&all, &options.server_threads)];
    Ok(findings)
}

fn text(round_trips: &RoundTrips) -> String {
    let threads = round_trips.server_threads;
    let threads = format!("{threads} server {}", if threads == 1 { "thread" } else { "threads" });
    format!("{}, {}, {threads}", round_trips.policy.name(), round_trips.protocol.title())
}

/// Measures round trips from the first host to a server on the second host.
fn measure(
    net: &Net,
    protocol: Protocol,
    threads: u16,
    (warmup, measured): (Duration, Duration),
) -> Result<Sample> {
    let [client, server] = &net.hosts;
    let poll = HostConfig::default().poll;
    let options = ServerOptions {
        protocols: vec![protocol],
        bind: SocketAddr::from((ADDRESSES[1], 0)),
        threads,
        poll,
        max_message: BYTES,
        ..ServerOptions::default()
    };
    let (server, ports) = run_in_namespace(server, || ServerProcess::start(&options))??;
    let pattern = Pattern::new(BYTES, 1, false);
    let spec =
        Spec { size: BYTES, outstanding: 1, warmup, measured, pattern: &pattern, server: server.pid() };
    let sample = run_in_namespace(client, || {
        let mut link = connect(ports.first(), poll)?;
        closed::run(link.as_mut(), &spec, &mut 0)
    })??;
    server.finish()?;
    let reason = sample.first_error.as_deref().unwrap_or("none ended");
    ensure!(
        sample.errors == 0 && !sample.rtts_ns.is_empty(),
        "RPCs over {} failed: {reason}",
        protocol.name()
    );
    Ok(sample)
}

/// Connects to a server from this thread's namespace.
fn connect(port: Option<&Report>, poll: Duration) -> Result<Box<dyn Link>> {
    Ok(match port {
        Some(Report::Homa(addr)) => {
            let bind = SocketAddr::from((ADDRESSES[0], 0));
            homa_link::open_at(host_config(Driver::Udp, bind, BYTES, poll), &[*addr])?
        }
        Some(&Report::Socket(_, addr)) => Box::new(TcpLink::connect(TcpLinkConfig {
            servers: vec![addr],
            ports: 1,
            receivers: 0,
            poll,
            max_message: BYTES,
            one_way: false,
            congestion: None,
            precise: false,
        })?),
        _ => bail!("the server has no port"),
    })
}

fn section(all: &[RoundTrips], threads: &[u16]) -> Section {
    let mut table = Table::new(&["", "P50, us", "spread", "P99, us", "spread", "P50 against none"]);
    for round_trips in all {
        let same = |other: &&RoundTrips| {
            (other.policy, other.protocol, other.server_threads)
                == (Policy::None, round_trips.protocol, round_trips.server_threads)
        };
        let ratio = all.iter().find(same).map(|none| round_trips.p50_us.mean / none.p50_us.mean - 1.0);
        let mut cells = vec![text(round_trips)];
        for spread in [&round_trips.p50_us, &round_trips.p99_us] {
            cells.extend([format!("{:.1}", spread.mean), format!("{:.0} %", spread.spread_percent)]);
        }
        cells.push(ratio.map_or("-".to_owned(), |ratio| format!("{:+.1} %", ratio * 100.0)));
        table.rows.push(cells);
    }
    let text = "One RPC at a time; means of the runs' percentiles, with the range of the runs. Clients, router and servers \
                share the machine"
        .to_owned();
    Section {
        heading: "Round trips by server threads".to_owned(),
        text,
        table,
        charts: vec![chart(all, threads)],
    }
}

fn chart(all: &[RoundTrips], threads: &[u16]) -> Chart {
    let place = |count: u16| {
        let at = threads.iter().position(|&other| other == count).unwrap_or(0);
        (at as f64 + 0.5) / threads.len() as f64
    };
    let mut curves: Vec<Curve> = Vec::new();
    for round_trips in all {
        let label = format!("{}, {}", round_trips.protocol.title(), round_trips.policy.name());
        let point = Point {
            x: place(round_trips.server_threads),
            y: round_trips.p50_us.mean,
            title: text(round_trips),
        };
        match curves.iter_mut().find(|curve| curve.label == label) {
            Some(curve) => curve.points.push(point),
            None => curves.push(Curve {
                label,
                class: round_trips.protocol.name().to_owned(),
                is_reference: round_trips.policy == Policy::None,
                points: vec![point],
            }),
        }
    }
    Chart {
        x_title: "Server threads".to_owned(),
        y_title: "P50 of a round trip, us".to_owned(),
        scale: Scale::Linear,
        x_ticks: threads.iter().map(|&count| (place(count), count.to_string())).collect(),
        curves,
    }
}
