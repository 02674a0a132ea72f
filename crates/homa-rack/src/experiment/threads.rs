//! `client-threads` and `server-ports`: the best numbers of threads and ports for the hosts of each protocol.

use anyhow::Result;
use homa_report::findings::Findings;
use serde_json::{Value, json};

use super::agent_protocol::Setup;
use super::findings::cite;
use super::harness::{Harness, Score};
use super::options::{ClientThreadsOptions, CommonOptions, MessageOptions, ServerPortsOptions};
use super::setup::PROTOCOLS;
use super::sweep::{NamedScore, chart_of_values, finish};
use super::testbed::Testbed;

/// Two parameters with their values. One varies along the x axis, and the other has one chart per value.
struct Grid<'a> {
    experiment: &'static str,
    title: &'static str,
    along: (&'static str, &'a [u16]),
    plots: (&'static str, &'a [u16]),
    change: fn(&mut Setup, u16, u16),
}

/// Runs `client-threads`.
pub fn client_threads(testbed: &mut Testbed, options: &ClientThreadsOptions) -> Result<Findings> {
    let grid = Grid {
        experiment: "client-threads",
        title: "Threads that send, and threads that receive answers",
        along: ("client threads", &options.threads),
        plots: ("receivers each", &options.receivers),
        change: |setup, threads, receivers| {
            (setup.threads.client_threads, setup.threads.port_receivers) = (threads, receivers);
            setup.threads.have_servers();
        },
    };
    run(testbed, &options.common, &options.messages, options.offered.load, &grid)
}

/// Runs `server-ports`.
pub fn server_ports(testbed: &mut Testbed, options: &ServerPortsOptions) -> Result<Findings> {
    let grid = Grid {
        experiment: "server-ports",
        title: "Server ports, and threads that answer at each",
        along: ("server ports", &options.ports),
        plots: ("threads each", &options.receivers),
        change: |setup, ports, threads| {
            (setup.threads.server_ports, setup.threads.server_threads) = (ports, threads);
        },
    };
    run(testbed, &options.common, &options.messages, options.offered.load, &grid)
}

fn run(
    testbed: &mut Testbed,
    common: &CommonOptions,
    messages: &MessageOptions,
    load: f64,
    grid: &Grid<'_>,
) -> Result<Findings> {
    let mut harness = Harness::new(testbed, common, messages)?;
    harness.measure_unloaded()?;
    let plan = harness.on_all_hosts(harness.rate_of_load(load), 1);
    let ((along, values), (plots, others)) = (grid.along, grid.plots);
    let mut all: Vec<Vec<NamedScore>> = Vec::new();
    let mut results: Vec<Value> = Vec::new();
    for &other in others {
        let mut scores: Vec<NamedScore> = Vec::new();
        for protocol in PROTOCOLS {
            for (index, &value) in values.iter().enumerate() {
                let name = format!("{}: {value} {along}, {other} {plots}", protocol.title());
                let mut agents = harness.agents(protocol, |setup| (grid.change)(setup, value, other))?;
                let score = harness.run(&mut agents, &plan, &name)?.0;
                results.push(json!({
                    key(along): value, key(plots): other, "answering_threads": agents.answering_threads, "score": score
                }));
                scores.push((name, index as f64, score));
            }
        }
        all.push(scores);
    }
    let values: Vec<String> = values.iter().map(u16::to_string).collect();
    let charts = others.iter().zip(&all).flat_map(|(other, scores)| {
        let chart = |what: &str, value: fn(&Score) -> f64| {
            chart_of_values(&format!("{along}, {other} {plots}"), what, &values, scores, value)
        };
        [
            chart("P99 of short messages, us", |score| score.short.p99_us),
            chart("RPCs per second", |score| score.rpcs_per_s),
        ]
    });
    let charts = charts.collect();
    let mut findings = finish(&harness, grid.experiment, grid.title, &all.concat(), charts, results.into());
    cite(&mut findings, grid.experiment);
    Ok(findings)
}

/// Converts a name to a JSON key.
fn key(name: &str) -> String {
    name.replace(' ', "_")
}
