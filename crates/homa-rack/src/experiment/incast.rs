//! `incast`: many hosts send to one host at the same time.

use anyhow::{Result, ensure};
use homa_report::findings::Findings;
use serde_json::json;

use super::agent_protocol::Rate;
use super::harness::Harness;
use super::options::IncastOptions;
use super::setup::PROTOCOLS;
use super::sweep::{NamedScore, chart_of_values, finish};
use super::testbed::Testbed;

/// Runs the experiment. The first host is the receiver. If a value of `--senders` exceeds the number of other
/// hosts, each of them keeps several RPCs open.
pub fn run(testbed: &mut Testbed, options: &IncastOptions) -> Result<Findings> {
    let mut harness = Harness::new(testbed, &options.common, &options.messages)?;
    let others = u32::from(harness.testbed.spec().hosts - 1);
    harness.measure_unloaded()?;
    let mut scores: Vec<NamedScore> = Vec::new();
    for protocol in PROTOCOLS {
        let mut agents = harness.agents(protocol, |_| ())?;
        agents.open(harness.testbed, |number| if number == 1 { Vec::new() } else { vec![1] })?;
        for &senders in &options.senders {
            ensure!(senders > 0, "--senders must be at least 1");
            let hosts = senders.min(others);
            let outstanding = senders.div_ceil(hosts);
            let sends = |number: u16| (2..=hosts + 1).contains(&u32::from(number));
            let load = harness.on(Rate::Closed { outstanding }, 1, sends);
            let name = format!("{}: {senders} senders", protocol.title());
            let score = harness.run(&mut agents, &load, &name)?.0;
            scores.push((name, senders.into(), score));
        }
    }
    let results: Vec<_> = scores
        .iter()
        .map(|(_, senders, score)| json!({ "senders": *senders as u32, "score": score }))
        .collect();
    let values: Vec<String> = options.senders.iter().map(u32::to_string).collect();
    let place = |senders: f64| options.senders.iter().position(|&other| f64::from(other) == senders);
    let placed: Vec<NamedScore> = scores
        .iter()
        .map(|(name, senders, score)| {
            (name.clone(), place(*senders).unwrap_or_default() as f64, score.clone())
        })
        .collect();
    let chart = |what: &str, value| chart_of_values("Senders", what, &values, &placed, value);
    let charts = vec![
        chart("Median of short messages, us", |score| score.short.p50_us),
        chart("P99 of short messages, us", |score| score.short.p99_us),
        chart("Answered, Mbit/s", |score| score.achieved_gbps * 1e3),
    ];
    let title = "Many senders, one receiver";
    let mut findings = finish(&harness, "incast", title, &scores, charts, results.into());
    findings.sections[0].text = format!(
        "Hosts h2 and up keep RPCs open to h1; with more senders than the {others} other hosts, each host has several RPCs"
    );
    Ok(findings)
}
