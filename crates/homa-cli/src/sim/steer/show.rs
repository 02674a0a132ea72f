//! Results of steering policies: a table, and a page of charts.

use homa_report::chart::{Chart, Curve, Point, Scale, class_of, escape};
use homa_report::number::brief;
use homa_report::page;
use homa_report::table::{TableRow, columns};
use homa_sim::SteerReport;

/// A figure of a run.
struct Figure {
    title: &'static str,
    value: fn(&SteerReport) -> f64,
    /// Scale of the figure's chart; `None` if there is no chart.
    scale: Option<Scale>,
}

const fn figure(title: &'static str, value: fn(&SteerReport) -> f64, scale: Option<Scale>) -> Figure {
    Figure { title, value, scale }
}

fn per_packet(report: &SteerReport, count: u64) -> f64 {
    100.0 * count as f64 / report.counts.packets.max(1) as f64
}

fn per_message(report: &SteerReport, count: u64) -> f64 {
    100.0 * count as f64 / report.counts.messages.max(1) as f64
}

const FIGURES: [Figure; 12] = [
    figure("short P50 us", |report| report.short_p50_us, Some(Scale::Log)),
    figure("short P99", |report| report.short_p99_us, Some(Scale::Log)),
    figure("short P99.9", |report| report.short_p999_us, Some(Scale::Log)),
    figure("Gbit/s", |report| report.gbps, Some(Scale::Linear)),
    figure("kRPC/s", |report| report.krpcs_per_sec, None),
    figure("busiest core %", |report| 100.0 * report.counts.busiest_core, Some(Scale::Linear)),
    figure("mean core %", |report| 100.0 * report.counts.mean_core, None),
    figure("hand-offs %", |report| per_packet(report, report.counts.handed_off), Some(Scale::Linear)),
    figure("core wakes %", |report| per_packet(report, report.counts.core_wakes), None),
    figure("cold packets %", |report| per_packet(report, report.counts.cold_packets), None),
    figure("cold threads %", |report| per_message(report, report.counts.cold_messages), Some(Scale::Linear)),
    figure("woken threads %", |report| per_message(report, report.counts.thread_wakes), None),
];

fn cells(reports: &[SteerReport]) -> (Vec<String>, Vec<TableRow>) {
    let head = ["workload", "cores", "load"].into_iter().chain(FIGURES.iter().map(|figure| figure.title));
    let head = head.chain(["deferrals", "unfinished"]).map(str::to_owned).collect();
    let line = |report: &SteerReport| {
        let mut cells = vec![report.workload.clone(), report.cores.to_string(), load(report)];
        cells.extend(FIGURES.iter().map(|figure| brief((figure.value)(report))));
        cells.extend([report.counts.deferrals, report.unfinished].map(|count| count.to_string()));
        (report.policy.clone(), cells)
    };
    (head, reports.iter().map(line).collect())
}

fn load(report: &SteerReport) -> String {
    if report.load > 0.0 { brief(report.load) } else { "-".to_owned() }
}

/// Formats the results as text.
pub fn text(reports: &[SteerReport]) -> String {
    let (head, rows) = cells(reports);
    columns(&head, &rows)
}

/// Formats the results as a page.
pub fn page(summary: &str, reports: &[SteerReport]) -> String {
    let mut out = page::head("Which core does the work: steering policies under load");
    out.push_str(&format!("<p class=\"quiet\">{}</p>\n", escape(summary)));
    for figure in &FIGURES {
        let Some(scale) = figure.scale else { continue };
        let svg = chart(reports, figure, scale).figure();
        if !svg.is_empty() {
            out.push_str(&format!("<h2>{}</h2>\n<figure>\n{svg}</figure>\n", escape(figure.title)));
        }
    }
    out.push_str("<h2>In numbers</h2>\n");
    let (head, rows) = cells(reports);
    out.push_str(&page::table(&head, &rows));
    out.push_str(page::FOOT);
    out
}

/// Creates a chart of a figure, with a curve for each policy. The x axis has a place for each combination of
/// workload, cores and load.
fn chart(reports: &[SteerReport], figure: &Figure, scale: Scale) -> Chart {
    let mut places: Vec<String> = Vec::new();
    let place_of = |report: &SteerReport| format!("{} {} {}", report.workload, report.cores, load(report));
    for report in reports {
        let place = place_of(report);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    let x = |index: usize| (index as f64 + 0.5) / places.len() as f64;
    let mut curves: Vec<Curve> = Vec::new();
    for report in reports {
        let index = places.iter().position(|place| *place == place_of(report)).unwrap_or(0);
        let y = (figure.value)(report);
        let title = format!("{}, {}: {} {}", report.policy, places[index], figure.title, brief(y));
        let point = Point { x: x(index), y, title };
        match curves.iter_mut().find(|curve| curve.label == report.policy) {
            Some(curve) => curve.points.push(point),
            None => curves.push(Curve {
                class: class_of(curves.len()),
                label: report.policy.clone(),
                is_reference: false,
                points: vec![point],
            }),
        }
    }
    // Show as many labels of the x axis as fit.
    let every = places.len().div_ceil(8).max(1);
    let ticks = places.iter().enumerate().step_by(every);
    Chart {
        x_title: "workload, cores and load".to_owned(),
        y_title: figure.title.to_owned(),
        scale,
        x_ticks: ticks.map(|(index, place)| (x(index), place.clone())).collect(),
        curves,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(policy: &str, cores: usize, short_p99_us: f64) -> SteerReport {
        let (policy, workload) = (policy.to_owned(), "w4".to_owned());
        SteerReport { policy, workload, cores, load: 0.5, short_p99_us, gbps: 1.0, ..SteerReport::default() }
    }

    #[test]
    fn a_policy_is_a_line_of_the_table_for_each_place_and_one_curve() {
        let reports = [report("gen2", 4, 10.0), report("idle", 4, 20.0), report("gen2", 8, 30.0)];
        let text = text(&reports);
        assert_eq!(text.lines().count(), 4);
        assert!(text.lines().next().is_some_and(|head| head.contains("busiest core %")));
        let chart = chart(&reports, &FIGURES[1], Scale::Log);
        assert_eq!(chart.curves.len(), 2);
        assert_eq!(chart.curves[0].points.iter().map(|point| point.y).collect::<Vec<_>>(), [10.0, 30.0]);
        let page = page("few & small", &reports);
        assert!(page.contains("few &amp; small") && page.contains("<svg") && !page.contains("NaN"));
    }
}
