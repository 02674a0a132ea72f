//! Homa against TCP: the same messages at the same times, first over the one and then over the other.

use std::time::Duration;

use anyhow::Result;
use homa_workload::{BinSummary, ShortSummary, Workload};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::args::VsTcpArgs;
use super::findings::{Findings, Section, Table};
use super::lab::{Crew, Lab, Load, Loaded, Machine};
use super::orders::Rate;
use super::stand::{self, UNLOADED, workload_of};
use super::{by_size, framing, simulated};
use super::{seconds, setup};
use crate::args::Protocol;
use crate::bench::results::Run;
use crate::bench::rtt::RttTable;
use crate::bench::table::{ratio, short_number};
use crate::bench::tally::Tally;
use crate::sim::plot::{Chart, Curve, Point, Scale};

/// In this order in each repetition.
pub const PROTOCOLS: [Protocol; 2] = [Protocol::Homa, Protocol::Tcp];

/// What one protocol did in one repetition.
#[derive(Serialize)]
struct Repetition {
    protocol: Protocol,
    repetition: u32,
    short: ShortSummary,
    slowdown_mean: f64,
    /// The largest 1 % of the messages.
    largest: Option<BinSummary>,
    achieved_gbps: f64,
    machine: Machine,
}

/// What one protocol did in all.
struct Total {
    protocol: Protocol,
    tally: Tally,
    /// Round trips of the short messages, nanoseconds.
    short_ns: Vec<u64>,
    machines: Vec<Machine>,
}

/// The experiment.
pub fn run(lab: &mut Lab, args: &VsTcpArgs) -> Result<Findings> {
    let workload = workload_of(&args.messages)?;
    let (measured, warmup) =
        (seconds("duration", args.common.duration)?, seconds("warmup", args.common.warmup)?);
    let spec = lab.spec().clone();
    let wants_sim = simulated::is_wanted(args.sim, &spec, &args.common, &args.messages)?;
    let gbps =
        framing::gbps_of_load(args.offered.load, spec.rate_bps, &workload, spec.mtu, args.messages.one_way);
    let start = |protocol| Crew::start(lab, &setup(lab, &args.common, &args.messages, protocol));
    let mut crews = PROTOCOLS.into_iter().map(start).collect::<Result<Vec<_>>>()?;
    lab.progress.step("Homa: round trips without load, by size", UNLOADED);
    let unloaded = crews[0].unloaded(lab, &[], UNLOADED.min(2 * measured))?;
    crews.iter_mut().try_for_each(|crew| crew.open_all(lab))?;
    let mut totals: Vec<Total> =
        PROTOCOLS.into_iter().map(|protocol| Total::new(protocol, &workload)).collect();
    let mut repetitions = Vec::new();
    for repetition in 1..=args.common.repetitions {
        for (crew, total) in crews.iter_mut().zip(&mut totals) {
            let rate = Rate::Open { gbps, max_outstanding: args.messages.max_outstanding };
            let load = Load {
                rates: vec![Some(rate); spec.hosts.into()],
                warmup,
                measured,
                seed: args.common.seed.wrapping_add(u64::from(repetition) << 32),
            };
            let text =
                format!("{}: repetition {repetition} of {}", crew.protocol.title(), args.common.repetitions);
            let loaded = lab.load(&mut [(crew, &load)], &text)?;
            for loaded in loaded {
                repetitions.push(total.take(loaded, repetition, measured, &workload, &unloaded)?);
            }
        }
    }
    let switch = lab.switch_stats();
    let hosts = crews.iter_mut().map(|crew| Ok((crew.protocol.name().to_owned(), crew.metrics(lab)?.into())));
    let hosts: Map<String, Value> = hosts.collect::<Result<_>>()?;
    drop(crews);
    let all_gbps = gbps * f64::from(spec.hosts);
    let pace = framing::open(all_gbps, args.messages.max_outstanding);
    let runs: Vec<Run> =
        totals.iter().map(|total| Run::new(total.protocol, workload.name(), pace, &total.tally)).collect();
    let mut findings = Findings {
        title: "Homa and TCP in one rack".to_owned(),
        summary: summary(lab, args, &workload, gbps),
        sections: vec![
            slowdowns(&runs, &workload),
            shorts(&runs, &totals, &repetitions),
            conditions(&runs, &totals),
        ],
        clean: runs.iter().all(Run::clean),
        ..Findings::default()
    };
    let simulated = if wants_sim {
        lab.progress.step("the same in the simulator", Duration::ZERO);
        let ask = simulated::Ask {
            spec: &spec,
            common: &args.common,
            workload: &workload,
            setup: &setup(lab, &args.common, &args.messages, Protocol::Homa),
            load: args.offered.load,
            unloaded: &unloaded,
        };
        Some(simulated::simulate(&ask, &runs)?)
    } else {
        None
    };
    if let Some(simulated) = &simulated {
        findings.sections.extend(simulated.sections(&runs, &workload));
    }
    warn(&mut findings, &runs, &totals, framing::packet_us(&spec));
    findings.json = stand::header("vs-tcp", &spec, &args.common, config(args, &workload, gbps), &unloaded);
    findings.json["runs"] = json!(runs);
    findings.json["repetitions"] = json!(repetitions);
    findings.json["hosts"] = hosts.into();
    findings.json["switch"] = json!(switch);
    findings.json["sim"] = json!(simulated);
    Ok(findings)
}

/// The options as results show them.
fn config(args: &VsTcpArgs, workload: &Workload, gbps: f64) -> Value {
    let mut config = stand::config(&args.common, &args.messages, workload);
    config["load"] = json!(args.offered.load);
    config["gbps_per_host"] = json!(gbps);
    config
}

impl Total {
    fn new(protocol: Protocol, workload: &Workload) -> Total {
        Total { protocol, tally: Tally::new(workload), short_ns: Vec::new(), machines: Vec::new() }
    }

    fn take(
        &mut self,
        loaded: Loaded,
        repetition: u32,
        measured: Duration,
        workload: &Workload,
        unloaded: &RttTable,
    ) -> Result<Repetition> {
        let mut one = Tally::new(workload);
        let short_bytes = one.recorder.short().max_bytes;
        for sample in &loaded.samples {
            one.recorder.record(sample.bytes, sample.rtt_ns, unloaded.rtt_ns(sample.bytes));
        }
        let short = loaded.samples.iter().filter(|sample| sample.bytes <= short_bytes);
        self.short_ns.extend(short.map(|sample| sample.rtt_ns));
        let achieved_gbps = loaded.gbps();
        one.counted = loaded.counted;
        let largest = one.recorder.has_largest_row().then(|| one.recorder.bins().pop()).flatten();
        let (short, slowdown_mean) = (one.recorder.short(), one.recorder.slowdown_mean());
        self.tally.measured += measured;
        self.tally.cpu += measured.mul_f64(loaded.machine.cores_busy);
        self.tally.add(one)?;
        self.machines.push(loaded.machine.clone());
        let (protocol, machine) = (self.protocol, loaded.machine);
        Ok(Repetition { protocol, repetition, short, slowdown_mean, largest, achieved_gbps, machine })
    }

    fn machine(&self) -> Machine {
        let mean = |of: fn(&Machine) -> f64| {
            self.machines.iter().map(of).sum::<f64>() / self.machines.len().max(1) as f64
        };
        Machine {
            cpus: self.machines.first().map_or(0, |machine| machine.cpus),
            cores_busy: mean(|machine| machine.cores_busy),
            hosts_busy: mean(|machine| machine.hosts_busy),
            switch_busy: mean(|machine| machine.switch_busy),
            hosts_waited_us: mean(|machine| machine.hosts_waited_us),
            switch_waited_us: mean(|machine| machine.switch_waited_us),
        }
    }
}

fn summary(lab: &Lab, args: &VsTcpArgs, workload: &Workload, gbps: f64) -> String {
    let spec = lab.spec();
    let answers = if args.messages.one_way { "answers of 100 bytes" } else { "answers as long as requests" };
    format!(
        "{} (mean {:.0} bytes, {answers}) at {:.0} % of every link: {} hosts at {} Mbit/s, each client and server, {:.1} Mbit/s of \
         requests each; buffer {}; Homa over {}, TCP {} with {} connections to each host; seed {}, {} times {} s",
        workload,
        workload.mean_bytes(),
        args.offered.load * 100.0,
        spec.hosts,
        spec.rate_mbps(),
        gbps * 1e3,
        spec.buffer,
        args.common.driver.name(),
        args.common.cc.name(),
        args.common.connections,
        args.common.seed,
        args.common.repetitions,
        args.common.duration,
    )
}

fn slowdowns(runs: &[Run], workload: &Workload) -> Section {
    let mut table = Table::new(&["bytes up to", "count"]);
    for run in runs {
        let title = run.protocol.title();
        table.head.extend(["mean", "P50", "P99", "P99.9"].map(|name| format!("{title} {name}")));
    }
    table.head.extend(["P50 ratio".to_owned(), "P99 ratio".to_owned()]);
    for row in 0..runs.first().map_or(0, |run| run.bins.len()) {
        let bins: Vec<&BinSummary> = runs.iter().map(|run| &run.bins[row]).collect();
        let is_largest = runs[0].largest_row && row + 1 == runs[0].bins.len();
        let label = if is_largest { "largest 1 %".to_owned() } else { bins[0].max_bytes.to_string() };
        let mut cells = vec![label, bins[0].count.to_string()];
        for bin in &bins {
            let values = [bin.slowdown_mean, bin.slowdown_p50, bin.slowdown_p99, bin.slowdown_p999];
            cells.extend(values.map(short_number));
        }
        if let [homa, tcp] = bins[..] {
            cells.push(ratio(tcp.slowdown_p50, homa.slowdown_p50));
            cells.push(ratio(tcp.slowdown_p99, homa.slowdown_p99));
        }
        table.rows.push(cells);
    }
    let lines: Vec<_> = runs
        .iter()
        .map(|run| by_size::Line {
            label: run.protocol.title().to_owned(),
            class: run.protocol.name().to_owned(),
            is_reference: false,
            bins: &run.bins,
            has_largest: run.largest_row,
        })
        .collect();
    let charts = vec![
        by_size::chart(&lines, workload, "99th percentile of slowdown", |bin| bin.slowdown_p99),
        by_size::chart(&lines, workload, "Median slowdown", |bin| bin.slowdown_p50),
    ];
    Section {
        heading: "Slowdown by message size".to_owned(),
        text: "Time from when a message was due until its answer was there, over the median round trip of Homa for that size when \
               it is alone; the ratios are TCP's over Homa's"
            .to_owned(),
        table,
        charts,
    }
}

fn shorts(runs: &[Run], totals: &[Total], repetitions: &[Repetition]) -> Section {
    let mut table = Table::new(&["round trip, us", "count", "P50", "P99", "P99.9"]);
    for run in runs {
        let short = &run.short;
        let mut cells = vec![run.protocol.title().to_owned(), short.count.to_string()];
        cells.extend([short.p50_us, short.p99_us, short.p999_us].map(|us| format!("{us:.1}")));
        table.rows.push(cells);
    }
    let quotients = |name: String, homa: &ShortSummary, tcp: &ShortSummary| {
        let pairs = [(tcp.p50_us, homa.p50_us), (tcp.p99_us, homa.p99_us), (tcp.p999_us, homa.p999_us)];
        let mut cells = vec![name, String::new()];
        cells.extend(pairs.map(|(tcp, homa)| ratio(tcp, homa)));
        cells
    };
    if let [homa, tcp] = runs {
        table.rows.push(quotients("TCP / Homa".to_owned(), &homa.short, &tcp.short));
    }
    for pair in repetitions.chunks_exact(PROTOCOLS.len()).filter(|_| repetitions.len() > PROTOCOLS.len()) {
        let name = format!("  in repetition {}", pair[0].repetition);
        table.rows.push(quotients(name, &pair[0].short, &pair[1].short));
    }
    let bytes = runs.first().map_or(0, |run| run.short.max_bytes);
    Section {
        heading: format!("Short messages, up to {bytes} bytes"),
        text: String::new(),
        table,
        charts: vec![cdf(totals)],
    }
}

/// Points of a CDF: the shares at which it is drawn, closer where the tail is.
const SHARES: [f64; 15] = [0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999];

fn cdf(totals: &[Total]) -> Chart {
    // Nines are as far from each other as the curve's parts that matter.
    let place = |share: f64| if share >= 0.999 { 1.0 } else { -(1.0 - share).log10() / 3.0 };
    let curve = |total: &Total| {
        let mut sorted = total.short_ns.clone();
        sorted.sort_unstable();
        let point = |share: f64| {
            let us = *sorted.get((sorted.len() as f64 * share) as usize)? as f64 / 1e3;
            let title = format!("{}: {} % within {us:.0} us", total.protocol.title(), share * 100.0);
            Some(Point { x: place(share), y: us, title })
        };
        Curve {
            label: total.protocol.title().to_owned(),
            class: total.protocol.name().to_owned(),
            is_reference: false,
            points: SHARES.into_iter().filter_map(point).collect(),
        }
    };
    let ticks = [(0.0, "0"), (0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %")];
    Chart {
        x_title: "Share of the short messages".to_owned(),
        y_title: "Round trip, microseconds".to_owned(),
        scale: Scale::Log,
        x_ticks: ticks.map(|(share, text)| (place(share), text.to_owned())).into(),
        curves: totals.iter().map(curve).collect(),
    }
}

fn conditions(runs: &[Run], totals: &[Total]) -> Section {
    let mut table = Table::new(&[""]);
    table.head.extend(runs.iter().map(|run| run.protocol.title().to_owned()));
    let mut row = |name: &str, value: &dyn Fn(&Run, &Machine) -> String| {
        let values = runs.iter().zip(totals).map(|(run, total)| value(run, &total.machine()));
        table.rows.push([name.to_owned()].into_iter().chain(values).collect());
    };
    row("RPCs measured", &|run, _| run.rpcs.to_string());
    row("offered, Mbit/s of requests", &|run, _| format!("{:.1}", run.offered_gbps.unwrap_or(0.0) * 1e3));
    row("answered, Mbit/s of requests", &|run, _| format!("{:.1}", run.achieved_gbps * 1e3));
    row("mean slowdown", &|run, _| format!("{:.2}", run.slowdown_mean));
    row("errors / lost / duplicated", &|run, _| {
        format!("{} / {} / {}", run.errors, run.lost, run.duplicated)
    });
    row("arrivals that had to wait", &|run, _| (run.capped + run.unsent).to_string());
    row("processors busy, of all", &|_, machine| format!("{:.2} of {}", machine.cores_busy, machine.cpus));
    row("by the hosts / by the switch", &|_, machine| {
        format!("{:.2} / {:.2}", machine.hosts_busy, machine.switch_busy)
    });
    row("wait for a processor, us: hosts / switch", &|_, machine| {
        format!("{:.0} / {:.0}", machine.hosts_waited_us, machine.switch_waited_us)
    });
    Section { heading: "Conditions".to_owned(), table, ..Section::default() }
}

fn warn(findings: &mut Findings, runs: &[Run], totals: &[Total], packet_us: f64) {
    for (run, total) in runs.iter().zip(totals) {
        let title = run.protocol.title();
        findings.doubt(title, &total.machine(), packet_us);
        if run.closed_loop {
            let (waited, all) = (run.capped + run.unsent, run.started + run.unsent);
            findings.warnings.push(format!(
                "{title}: {waited} of {all} arrivals had to wait for an open RPC to end: the load was not open-loop"
            ));
        }
        if let Some(error) = &run.first_error {
            findings.warnings.push(format!("{title}: {error}"));
        }
    }
}
