//! The sections of a cell's page.

use homa_bench::compare::results::Run;
use homa_bench::protocol::Protocol;
use homa_report::chart::{Chart, Curve, Point, Scale};
use homa_report::findings::{Section, Table};
use homa_report::number::{ratio, short_number};
use homa_workload::{BinSummary, ShortSummary, Workload};

use super::{ContenderRuns, ContenderTotal, Repetition};
use crate::experiment::by_size;
use crate::experiment::links::Links;
use crate::experiment::testbed::Machine;

/// Returns the column headers of ratios to Homa, one per TCP variant. If there is only one variant, its
/// header has no prefix.
fn ratio_heads<'a>(runs: &'a [ContenderRuns], name: &str) -> impl Iterator<Item = String> + use<'a> {
    let name = name.to_owned();
    let tcp = runs.iter().filter(|ran| ran.contender.protocol == Protocol::Tcp);
    let is_only = runs.len() == 2;
    tcp.map(move |ran| if is_only { name.clone() } else { format!("{} {name}", ran.contender.title) })
}

/// Returns slowdown by size.
pub fn slowdowns(runs: &[ContenderRuns], workload: &Workload) -> Section {
    let mut table = Table::new(&["bytes up to", "count"]);
    for ran in runs {
        let title = &ran.contender.title;
        table.head.extend(["mean", "P50", "P99", "P99.9"].map(|name| format!("{title} {name}")));
    }
    for name in ["P50 ratio", "P99 ratio"] {
        table.head.extend(ratio_heads(runs, name));
    }
    for row in 0..runs.first().map_or(0, |ran| ran.run.bins.len()) {
        let bins: Vec<&BinSummary> = runs.iter().map(|ran| &ran.run.bins[row]).collect();
        let is_largest = runs[0].run.largest_row && row + 1 == runs[0].run.bins.len();
        let label = if is_largest { "largest 1 %".to_owned() } else { bins[0].max_bytes.to_string() };
        let mut cells = vec![label, bins[0].count.to_string()];
        for bin in &bins {
            let values = [bin.slowdown_mean, bin.slowdown_p50, bin.slowdown_p99, bin.slowdown_p999];
            cells.extend(values.map(short_number));
        }
        if let [homa, tcp @ ..] = &bins[..] {
            cells.extend(tcp.iter().map(|tcp| ratio(tcp.slowdown_p50, homa.slowdown_p50)));
            cells.extend(tcp.iter().map(|tcp| ratio(tcp.slowdown_p99, homa.slowdown_p99)));
        }
        table.rows.push(cells);
    }
    let line = |ran| {
        let ContenderRuns { contender, run, .. }: &ContenderRuns = ran;
        by_size::Line {
            label: contender.title.clone(),
            class: contender.class.to_owned(),
            is_reference: false,
            bins: &run.bins,
            has_largest: run.largest_row,
        }
    };
    let lines: Vec<_> = runs.iter().map(line).collect();
    let charts = vec![
        by_size::chart(&lines, workload, "99th percentile of slowdown", |bin| bin.slowdown_p99),
        by_size::chart(&lines, workload, "Median slowdown", |bin| bin.slowdown_p50),
    ];
    Section {
        heading: "Slowdown by message size".to_owned(),
        text: "Slowdown: the round trip of a message, counted from its due time, divided by Homa's median round trip for that size on \
               an idle rack. The ratios are TCP's divided by Homa's."
            .to_owned(),
        table,
        charts,
    }
}

/// Returns the round trips of the short messages.
pub fn shorts(runs: &[ContenderRuns], totals: &[ContenderTotal], repetitions: &[Repetition]) -> Section {
    let mut table = Table::new(&["round trip, us", "count", "P50", "P99", "P99.9"]);
    for ContenderRuns { contender, run, .. } in runs {
        let short = &run.short;
        let mut cells = vec![contender.title.clone(), short.count.to_string()];
        cells.extend([short.p50_us, short.p99_us, short.p999_us].map(|us| format!("{us:.1}")));
        table.rows.push(cells);
    }
    let quotients = |name: String, homa: &ShortSummary, tcp: &ShortSummary| {
        let pairs = [(tcp.p50_us, homa.p50_us), (tcp.p99_us, homa.p99_us), (tcp.p999_us, homa.p999_us)];
        let mut cells = vec![name, String::new()];
        cells.extend(pairs.map(|(tcp, homa)| ratio(tcp, homa)));
        cells
    };
    let several = repetitions.len() > runs.len();
    for (index, tcp) in runs.iter().enumerate().skip(1) {
        let name = format!("{} / Homa", tcp.contender.title);
        table.rows.push(quotients(name, &runs[0].run.short, &tcp.run.short));
        for all in repetitions.chunks_exact(runs.len()).filter(|_| several) {
            let name = format!("  in repetition {}", all[0].repetition);
            table.rows.push(quotients(name, &all[0].short, &all[index].short));
        }
    }
    let bytes = runs.first().map_or(0, |ran| ran.run.short.max_bytes);
    Section {
        heading: format!("Short messages, up to {bytes} bytes"),
        text: String::new(),
        table,
        charts: vec![cdf(totals)],
    }
}

/// Shares at which a CDF is drawn; they are denser in the tail.
const SHARES: [f64; 15] = [0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999];

fn cdf(totals: &[ContenderTotal]) -> Chart {
    // The scale is logarithmic in the share of slower messages, so that each additional nine has the same
    // width.
    let place = |share: f64| if share >= 0.999 { 1.0 } else { -(1.0 - share).log10() / 3.0 };
    let curve = |total: &ContenderTotal| {
        let mut sorted = total.short_ns.clone();
        sorted.sort_unstable();
        let point = |share: f64| {
            let us = *sorted.get((sorted.len() as f64 * share) as usize)? as f64 / 1e3;
            let title = format!("{}: {} % within {us:.0} us", total.contender.title, share * 100.0);
            Some(Point { x: place(share), y: us, title })
        };
        Curve {
            label: total.contender.title.clone(),
            class: total.contender.class.to_owned(),
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

/// Creates the section on the conditions, which show whether the network was the bottleneck.
pub fn conditions(runs: &[ContenderRuns], totals: &[ContenderTotal]) -> Section {
    let mut table = Table::new(&[""]);
    table.head.extend(runs.iter().map(|ran| ran.contender.title.clone()));
    let mut row = |name: &str, value: &dyn Fn(&Run, &Machine) -> String| {
        let values = runs.iter().zip(totals).map(|(ran, total)| value(&ran.run, &total.machine()));
        table.rows.push([name.to_owned()].into_iter().chain(values).collect());
    };
    row("RPCs measured", &|run, _| run.rpcs.to_string());
    row("offered, Mbit/s of requests", &|run, _| format!("{:.1}", run.offered_gbps.unwrap_or(0.0) * 1e3));
    row("answered, Mbit/s of requests", &|run, _| format!("{:.1}", run.achieved_gbps * 1e3));
    row("completed / due in the measured time, bytes", &|run, _| {
        run.completed_fraction.map_or("-".to_owned(), |fraction| format!("{fraction:.3}"))
    });
    row("mean slowdown", &|run, _| format!("{:.2}", run.slowdown_mean));
    row("errors / lost / duplicated", &|run, _| {
        format!("{} / {} / {}", run.errors, run.lost, run.duplicated)
    });
    row("arrivals delayed by the limit of open RPCs", &|run, _| (run.capped + run.unsent).to_string());
    row("processors busy, of all", &|_, machine| format!("{:.2} of {}", machine.cores_busy, machine.cpus));
    row("  hosts / switch", &|_, machine| format!("{:.2} / {:.2}", machine.hosts_busy, machine.switch_busy));
    row("wait for a processor, us: hosts / switch", &|_, machine| {
        format!("{:.0} / {:.0}", machine.hosts_waited_us, machine.switch_waited_us)
    });
    row("downlinks busy / frames dropped, %", &|_, machine| {
        let percent = |links: Links| format!("{:.1} / {:.2}", links.busy * 100.0, links.dropped * 100.0);
        machine.links.map_or("-".to_owned(), percent)
    });
    Section { heading: "Conditions".to_owned(), table, ..Section::default() }
}
