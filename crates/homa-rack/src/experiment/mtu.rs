//! `mtu`: links with longer packets. Measures the tail of short messages, the throughput of long messages,
//! and the cost of an RPC.

use anyhow::Result;
use homa_report::findings::{Findings, Section, Table};
use serde_json::{Value, json};

use super::agent_protocol::Rate;
use super::findings::cite;
use super::harness::{Harness, Score};
use super::options::MtuOptions;
use super::setup::PROTOCOLS;
use super::sweep::{NamedScore, chart_of_values, finish};
use super::testbed::Testbed;

/// Number of open RPCs per host in a closed loop.
const OUTSTANDING: u32 = 8;

/// For each MTU, runs both protocols on one rack, under an open-loop load and in a closed loop. Slowdown is
/// relative to unloaded Homa on the same rack.
pub fn run(testbed: &mut Testbed, options: &MtuOptions) -> Result<Findings> {
    let mut harness = Harness::new(testbed, &options.common, &options.messages)?;
    let (mut scores, mut costs): (Vec<NamedScore>, Vec<NamedScore>) = (Vec::new(), Vec::new());
    let mut results: Vec<Value> = Vec::new();
    let mut table = Table::new(&["", "closed loop, Mbit/s", "host us/RPC", "host ms/MB", "machine ms/MB"]);
    for (index, &mtu) in options.mtus.iter().enumerate() {
        let mut build = options.common.build.clone();
        build.mtu = mtu;
        harness.testbed.rebuild(&build)?;
        harness.measure_unloaded()?;
        let open = harness.on_all_hosts(harness.rate_of_load(options.offered.load), 1);
        let closed = harness.on_all_hosts(Rate::Closed { outstanding: OUTSTANDING }, 1);
        for protocol in PROTOCOLS {
            let name = format!("{}, MTU {mtu}", protocol.title());
            let mut agents = harness.agents(protocol, |_| ())?;
            let score = harness.run(&mut agents, &open, &name)?.0;
            let most = harness.run(&mut agents, &closed, &format!("{name}, closed loop"))?.0;
            let cost = Cost::of(&most);
            table.rows.push(vec![
                name.clone(),
                format!("{:.1}", most.achieved_gbps * 1e3),
                format!("{:.1}", cost.host_us_per_rpc),
                format!("{:.2}", cost.host_ms_per_mb),
                format!("{:.2}", cost.machine_ms_per_mb),
            ]);
            results.push(json!({
                "mtu": mtu,
                "score": score,
                "without_pause": most,
                "host_us_per_rpc": cost.host_us_per_rpc,
                "host_ms_per_mb": cost.host_ms_per_mb,
                "machine_ms_per_mb": cost.machine_ms_per_mb,
            }));
            scores.push((name.clone(), index as f64, score));
            costs.push((name, index as f64, most));
        }
    }
    let values: Vec<String> = options.mtus.iter().map(u32::to_string).collect();
    let chart = |what: &str, scores: &[NamedScore], value: fn(&Score) -> f64| {
        chart_of_values("MTU, bytes", what, &values, scores, value)
    };
    let charts = vec![
        chart("P99 of short messages, us", &scores, |score| score.short.p99_us),
        chart("Median of short messages, us", &scores, |score| score.short.p50_us),
        chart("Answered in a closed loop, Mbit/s", &costs, |score| score.achieved_gbps * 1e3),
        chart("Processor time of the hosts, ms/MB", &costs, |score| Cost::of(score).host_ms_per_mb),
    ];
    let mut findings = finish(&harness, "mtu", "Longer packets", &scores, charts, results.into());
    let text = format!(
        "Each host keeps {OUTSTANDING} RPCs open. MB are of request payload; the machine's time includes the switch and the kernel's softirqs"
    );
    findings.clean &= costs.iter().all(|(_, _, score)| score.errors == 0 && score.lost == 0);
    findings.sections.push(Section {
        heading: "Throughput and cost".to_owned(),
        text,
        table,
        charts: Vec::new(),
    });
    cite(&mut findings, "mtu");
    Ok(findings)
}

/// Processor time of a load.
struct Cost {
    host_us_per_rpc: f64,
    host_ms_per_mb: f64,
    machine_ms_per_mb: f64,
}

impl Cost {
    fn of(score: &Score) -> Cost {
        let (machine, per) = (&score.machine, |busy: f64, rate: f64| busy / rate.max(f64::MIN_POSITIVE));
        let megabytes_per_s = score.achieved_gbps * 1e3 / 8.0;
        Cost {
            host_us_per_rpc: per(machine.hosts_busy, score.rpcs_per_s) * 1e6,
            host_ms_per_mb: per(machine.hosts_busy, megabytes_per_s) * 1e3,
            machine_ms_per_mb: per(machine.cores_busy, megabytes_per_s) * 1e3,
        }
    }
}
