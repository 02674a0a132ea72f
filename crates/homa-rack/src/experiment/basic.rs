//! `basic`: each protocol alone. Measures round trips by size, consecutive long messages, and RPCs per
//! second.

use anyhow::Result;
use homa_bench::engine::rtt::RttTable;
use homa_bench::protocol::Protocol;
use homa_report::findings::{Findings, Section, Table};
use homa_workload::Workload;
use serde_json::{Value, json};

use super::agent_protocol::Rate;
use super::agents::Agents;
use super::harness::{Harness, Score, UNLOADED, points};
use super::options::BasicOptions;
use super::testbed::Testbed;

/// Message sizes for round trips, in bytes.
const SIZES: [u32; 10] = [10, 100, 500, 1_000, 1_400, 5_000, 20_000, 100_000, 500_000, 1_000_000];

/// Message sizes in bytes, for rates of messages and for rates of bytes.
const SHORT: u32 = 100;
const LONG: u32 = 500_000;

/// A rate to measure: its name, the senders, their receivers, the message size, and the open RPCs per sender.
struct RateSpec {
    name: &'static str,
    sends: fn(u16) -> bool,
    peers: fn(u16, u16) -> Vec<u16>,
    bytes: u32,
    outstanding: u32,
}

/// Rates measured in the published suite: one message at a time, one client, one server.
const RATES: [RateSpec; 5] = [
    RateSpec {
        name: "one message at a time",
        sends: is_host_one,
        peers: second,
        bytes: LONG,
        outstanding: 1,
    },
    RateSpec { name: "client, throughput", sends: is_host_one, peers: others, bytes: LONG, outstanding: 8 },
    RateSpec { name: "client, RPC rate", sends: is_host_one, peers: others, bytes: SHORT, outstanding: 64 },
    RateSpec { name: "server, throughput", sends: is_other_host, peers: first, bytes: LONG, outstanding: 4 },
    RateSpec { name: "server, RPC rate", sends: is_other_host, peers: first, bytes: SHORT, outstanding: 32 },
];

fn is_host_one(number: u16) -> bool {
    number == 1
}

fn is_other_host(number: u16) -> bool {
    number != 1
}

fn second(_: u16, _: u16) -> Vec<u16> {
    vec![2]
}

fn first(_: u16, _: u16) -> Vec<u16> {
    vec![1]
}

fn others(number: u16, hosts: u16) -> Vec<u16> {
    (1..=hosts).filter(|&other| other != number).collect()
}

/// Runs the experiment.
pub fn run(testbed: &mut Testbed, options: &BasicOptions) -> Result<Findings> {
    let mut harness = Harness::new(testbed, &options.common, &options.messages)?;
    let longest = SIZES[SIZES.len() - 1];
    let (mut trips, mut scores) = (Vec::new(), Vec::new());
    for protocol in [Protocol::Homa, Protocol::Tcp] {
        harness.testbed.progress.step(&format!("{}: round trips by size", protocol.title()), UNLOADED);
        let mut agents = harness.agents(protocol, |setup| setup.messages.longest = longest)?;
        trips.push((protocol, agents.unloaded(harness.testbed, &SIZES, harness.unloaded_time())?));
        drop(agents);
        for bytes in [LONG, SHORT] {
            harness.workload = Workload::fixed(bytes)?;
            let mut agents = harness.agents(protocol, |setup| setup.messages.workload = bytes.to_string())?;
            for rated in RATES.iter().filter(|rated| rated.bytes == bytes) {
                scores.push((rated, rate(&mut harness, &mut agents, rated)?));
            }
        }
    }
    let mut findings = Findings {
        title: "Each protocol alone".to_owned(),
        sections: vec![by_size(&trips), rates(&scores)],
        ..Findings::default()
    };
    let round_trips: Vec<Value> = trips
        .iter()
        .map(|(protocol, table)| json!({ "protocol": protocol, "round_trips": points(table) }))
        .collect();
    let rates: Vec<Value> = scores
        .iter()
        .map(|(rated, score)| json!({ "name": rated.name, "bytes": rated.bytes, "score": score }))
        .collect();
    let named: Vec<(String, &Score)> = scores
        .iter()
        .map(|(rated, score)| (format!("{} {}", score.protocol.title(), rated.name), score))
        .collect();
    // RPCs of 100 bytes get no warnings: they are limited by the processors, as expected.
    let named: Vec<_> = named.into_iter().filter(|(_, score)| score.short.max_bytes != SHORT).collect();
    harness.finish(&mut findings, "basic", &named, json!({ "unloaded": round_trips, "rates": rates }));
    findings.clean = scores.iter().all(|(_, score)| score.errors == 0 && score.lost == 0);
    Ok(findings)
}

fn rate(harness: &mut Harness<'_>, agents: &mut Agents, rated: &RateSpec) -> Result<Score> {
    let hosts = harness.testbed.spec().hosts;
    agents.open(harness.testbed, |number| {
        if (rated.sends)(number) { (rated.peers)(number, hosts) } else { Vec::new() }
    })?;
    let load = harness.on(Rate::Closed { outstanding: rated.outstanding }, 1, rated.sends);
    let text = format!("{}: {}", agents.protocol.title(), rated.name);
    Ok(harness.run(agents, &load, &text)?.0)
}

fn by_size(trips: &[(Protocol, RttTable)]) -> Section {
    let mut table = Table::new(&["bytes"]);
    table.head.extend(trips.iter().map(|(protocol, _)| format!("{}, us", protocol.title())));
    for bytes in SIZES {
        let us = trips.iter().map(|(_, table)| format!("{:.1}", table.rtt_ns(bytes) as f64 / 1e3));
        table.rows.push([bytes.to_string()].into_iter().chain(us).collect());
    }
    let text = "Median round trip from h1 to h2, one RPC at a time, answers as long as requests".to_owned();
    Section { heading: "Round trips without load".to_owned(), text, table, charts: Vec::new() }
}

fn rates(scores: &[(&RateSpec, Score)]) -> Section {
    let mut table = Table::new(&["", "bytes", "Mbit/s each way", "RPCs/s", "cores busy", "failed"]);
    for (rated, score) in scores {
        table.rows.push(vec![
            format!("{}: {}", score.protocol.title(), rated.name),
            rated.bytes.to_string(),
            format!("{:.1}", score.achieved_gbps * 1e3),
            format!("{:.0}", score.rpcs_per_s),
            format!("{:.2}", score.machine.cores_busy),
            (score.errors + score.lost).to_string(),
        ]);
    }
    Section { heading: "Rates".to_owned(), table, ..Section::default() }
}
