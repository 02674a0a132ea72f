//! Experiments that vary one parameter and report the same scores: different loads, different divisions of a
//! load between two protocols, and different settings of Homa.

use std::time::Duration;

use anyhow::{Result, ensure};
use homa_bench::protocol::Protocol;
use homa_report::chart::{Chart, Curve, Point, Scale};
use homa_report::findings::{Findings, Section, Table};
use serde_json::json;

use super::harness::{Harness, SCORE_HEAD, Score, UNLOADED, score_cells};
use super::options::{BothOptions, LoadsOptions, MaxLoadOptions};
use super::setup::PROTOCOLS;
use super::testbed::Testbed;

/// Minimum answered share of a load at which a protocol keeps up. RPCs in flight at the end of the
/// measurement window are answered later, and their bytes differ from those in flight at its start.
const KEEPS_UP: f64 = 0.97;

/// Estimates the duration of this many loads.
pub fn time(common: &super::options::CommonOptions, turns: usize) -> Duration {
    UNLOADED
        + Duration::try_from_secs_f64((common.duration + common.warmup) * turns as f64).unwrap_or_default()
}

/// Runs `load`: short messages at several loads.
pub fn load(testbed: &mut Testbed, options: &LoadsOptions) -> Result<Findings> {
    let mut harness = Harness::new(testbed, &options.common, &options.messages)?;
    harness.measure_unloaded()?;
    let mut scores = Vec::new();
    for protocol in PROTOCOLS {
        let mut agents = harness.agents(protocol, |_| ())?;
        for &load in &options.loads {
            let name = format!("{} at {:.0} %", protocol.title(), load * 100.0);
            let plan = harness.on_all_hosts(harness.rate_of_load(load), 1);
            scores.push((name.clone(), load, harness.run(&mut agents, &plan, &name)?.0));
        }
    }
    let results =
        scores.iter().map(|(_, load, score)| json!({ "load": load, "score": score })).collect::<Vec<_>>();
    let charts = vec![
        chart("Load, share of the links", "P99 of short messages, us", &scores, |score| score.short.p99_us),
        chart("Load, share of the links", "Median of short messages, us", &scores, |score| {
            score.short.p50_us
        }),
    ];
    Ok(finish(&harness, "load", "Short messages by load", &scores, charts, results.into()))
}

/// Runs `max-load`: the highest sustained load of each protocol, and its throughput in a closed loop.
pub fn max_load(testbed: &mut Testbed, options: &MaxLoadOptions) -> Result<Findings> {
    let mut harness = Harness::new(testbed, &options.common, &options.messages)?;
    harness.measure_unloaded()?;
    let (mut scores, mut results) = (Vec::new(), Vec::new());
    let mut table =
        Table::new(&["", "sustained, % of the links", "closed loop, % of the links", "% of its own maximum"]);
    for protocol in PROTOCOLS {
        let mut agents = harness.agents(protocol, |_| ())?;
        let full = harness.rate_of_load(1.0);
        let closed =
            harness.on_all_hosts(super::agent_protocol::Rate::Closed { outstanding: options.outstanding }, 1);
        let name = format!("{}, closed loop", protocol.title());
        let most = harness.run(&mut agents, &closed, &name)?.0;
        let hosts = f64::from(harness.testbed.spec().hosts);
        let full_gbps = match full {
            super::agent_protocol::Rate::Open { gbps, .. } => gbps * hosts,
            super::agent_protocol::Rate::Closed { .. } => 0.0,
        };
        let saturation = most.carried_gbps / full_gbps.max(f64::MIN_POSITIVE);
        let own_gbps = harness.header_limited_gbps(protocol) * hosts;
        let own = most.carried_gbps / own_gbps.max(f64::MIN_POSITIVE);
        scores.push((name, 1.0, most));
        let mut sustained = None;
        for &load in &options.loads {
            let name = format!("{} at {:.0} %", protocol.title(), load * 100.0);
            let plan = harness.on_all_hosts(harness.rate_of_load(load), 1);
            let score = harness.run(&mut agents, &plan, &name)?.0;
            let keeps_up = !score.closed_loop
                && score.lost == 0
                && score.achieved_gbps >= KEEPS_UP * score.offered_gbps.unwrap_or(0.0);
            scores.push((name, load, score));
            if !keeps_up {
                break;
            }
            sustained = Some(load);
        }
        let percent = |share: f64| format!("{:.0}", share * 100.0);
        table.rows.push(vec![
            protocol.title().to_owned(),
            sustained.map_or("none".to_owned(), percent),
            percent(saturation),
            format!("{:.1}", own * 100.0),
        ]);
        results.push(json!({
            "protocol": protocol,
            "sustained_load": sustained,
            "saturation": saturation,
            "header_limited_gbps": own_gbps,
            "saturation_of_own": own,
        }));
    }
    let all = scores.iter().map(|(name, load, score)| json!({ "name": name, "load": load, "score": score }));
    let results = json!({ "protocols": results, "loads": all.collect::<Vec<_>>() });
    let mut findings = finish(&harness, "max-load", "Maximum sustained load", &scores, Vec::new(), results);
    let text = "A load is sustained if 97 % of it are answered. In the closed loop every received byte of a message counts, of answered RPCs \
                or not: a sender that prefers the shortest has ever more incomplete long messages. Percentages are of every link's rate with the headers of Homa, for both; \
                a protocol's own maximum is that of links with only its data and headers, without grants and acknowledgements"
        .to_owned();
    findings.sections.insert(0, Section { heading: "Maximum".to_owned(), text, table, charts: Vec::new() });
    Ok(findings)
}

/// Runs `both`: two protocols on the same hosts at the same time.
pub fn both(testbed: &mut Testbed, options: &BothOptions) -> Result<Findings> {
    let mut harness = Harness::new(testbed, &options.common, &options.messages)?;
    harness.measure_unloaded()?;
    let mut scores = Vec::new();
    let mut homa = harness.agents(Protocol::Homa, |_| ())?;
    let mut tcp = harness.agents(Protocol::Tcp, |_| ())?;
    for &share in &options.shares {
        ensure!((0.0..=1.0).contains(&share), "--shares must be between 0 and 1");
        let plans = [share, 1.0 - share].map(|part| {
            (part > 0.0).then(|| harness.on_all_hosts(harness.rate_of_load(options.load * part), 1))
        });
        let mut turns: Vec<_> = [&mut homa, &mut tcp]
            .into_iter()
            .zip(&plans)
            .filter_map(|(agents, plan)| plan.as_ref().map(|plan| (agents, plan)))
            .collect();
        let text = format!("{:.0} % of the load over Homa", share * 100.0);
        let protocols: Vec<Protocol> = turns.iter().map(|(agents, _)| agents.protocol).collect();
        let loaded = harness.testbed.load(&mut turns, &text)?;
        for ((protocol, plan), loaded) in protocols.into_iter().zip(plans.iter().flatten()).zip(&loaded) {
            let name = format!("{}, {:.0} % over Homa", protocol.title(), share * 100.0);
            scores.push((name, share, harness.score(protocol, plan, loaded)));
        }
    }
    let results = scores
        .iter()
        .map(|(_, share, score)| json!({ "homa_share": share, "score": score }))
        .collect::<Vec<_>>();
    let charts = vec![
        chart("Homa's share of the load", "P99 of short messages, us", &scores, |score| score.short.p99_us),
        chart("Homa's share of the load", "Mean slowdown", &scores, |score| score.slowdown_mean),
    ];
    Ok(finish(&harness, "both", "Homa and TCP at once", &scores, charts, results.into()))
}

/// A score with its name and its position on the x axis.
pub type NamedScore = (String, f64, Score);

/// Makes findings with a title, the table of all scores, and the parts common to all experiments.
pub fn finish(
    harness: &Harness<'_>,
    experiment: &str,
    title: &str,
    scores: &[NamedScore],
    charts: Vec<Chart>,
    results: serde_json::Value,
) -> Findings {
    let mut table = Table::new(&[""]);
    table.head.extend(SCORE_HEAD.map(str::to_owned));
    table.rows.extend(scores.iter().map(|(name, _, score)| score_cells(name.clone(), score)));
    let section = Section { heading: "In numbers".to_owned(), table, charts, ..Section::default() };
    let mut findings = Findings { title: title.to_owned(), sections: vec![section], ..Findings::default() };
    let named: Vec<(String, &Score)> = scores.iter().map(|(name, _, score)| (name.clone(), score)).collect();
    harness.finish(&mut findings, experiment, &named, results);
    findings
}

/// Creates a chart over shares from 0 to 1.
fn chart(x: &str, y: &str, scores: &[NamedScore], value: fn(&Score) -> f64) -> Chart {
    let ticks = (0..=10).map(|tenth| f64::from(tenth) / 10.0);
    let x_ticks = ticks.map(|place| (place, format!("{:.0} %", place * 100.0))).collect();
    plot(x, y, x_ticks, scores, value)
}

/// Creates a chart over discrete values. The position of a score is the index of its value.
pub fn chart_of_values(
    x: &str,
    y: &str,
    values: &[String],
    scores: &[NamedScore],
    value: fn(&Score) -> f64,
) -> Chart {
    let place = |number: f64| (number + 0.5) / values.len() as f64;
    let x_ticks = values.iter().enumerate().map(|(number, value)| (place(number as f64), value.clone()));
    let placed: Vec<NamedScore> =
        scores.iter().map(|(name, number, score)| (name.clone(), place(*number), score.clone())).collect();
    plot(x, y, x_ticks.collect(), &placed, value)
}

fn plot(
    x: &str,
    y: &str,
    x_ticks: Vec<(f64, String)>,
    scores: &[NamedScore],
    value: fn(&Score) -> f64,
) -> Chart {
    let curve = |protocol: Protocol| {
        let own = scores.iter().filter(|(_, _, score)| score.protocol == protocol);
        let points = own.map(|(name, x, score)| Point {
            x: x.clamp(0.0, 1.0),
            y: value(score),
            title: format!("{name}: {:.1}", value(score)),
        });
        Curve {
            points: points.collect(),
            label: protocol.title().to_owned(),
            class: protocol.name().to_owned(),
            is_reference: false,
        }
    };
    let curves = PROTOCOLS.map(curve).into_iter().filter(|curve| !curve.points.is_empty()).collect();
    Chart { x_title: x.to_owned(), y_title: y.to_owned(), scale: Scale::Log, x_ticks, curves }
}
