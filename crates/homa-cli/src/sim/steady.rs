//! Reports whether runs were in steady state: warnings for the terminal and the page, and a chart of the
//! backlog.

use std::io::{IsTerminal, stderr};

use homa_report::chart::{Chart, Curve, Point, Scale};
use homa_report::number::brief;
use homa_sim::{ClusterReport, SteadyState, Unsteady};

/// Maximum share of measured messages that may be missing because they did not arrive. These are the slowest
/// messages, and percentiles include only the others.
const MAX_UNFINISHED: f64 = 0.001;

/// Returns a warning about a run that was not in steady state, with the figures.
pub fn unsteady_warning(report: &ClusterReport) -> Option<String> {
    let steady = report.steady.as_ref().filter(|steady| !steady.reached)?;
    let reasons: Vec<String> = steady.failed.iter().map(|failed| reason(*failed, steady)).collect();
    Some(format!(
        "{}: not in steady state: {}; use a longer --warm-up or --duration, or a lower --load",
        report.transport,
        reasons.join(", ")
    ))
}

/// Returns a warning about a run in which more than the tolerated share of the messages did not arrive.
pub fn unfinished(report: &ClusterReport, tolerated: f64) -> Option<String> {
    let share = report.unfinished as f64 / report.started.max(1) as f64;
    (share > tolerated).then(|| {
        format!(
            "{}: {} of {} messages ({}) had not arrived when the run ended, and have no part in the slowdowns; a longer \
             --drain waits for them",
            report.transport,
            report.unfinished,
            report.started,
            percent(share)
        )
    })
}

fn reason(failed: Unsteady, steady: &SteadyState) -> String {
    match failed {
        Unsteady::TooShort => "the measured time is too short to tell".to_owned(),
        Unsteady::WarmUp => match steady.level_from_ns {
            Some(ns) => format!("the backlog is level from {} ms on", brief(ns as f64 / 1e6)),
            None => "the backlog is nowhere level".to_owned(),
        },
        Unsteady::Backlog => format!(
            "the backlog changes by {} from {} ms on",
            percent(steady.backlog_change),
            brief(steady.tested_from_ns as f64 / 1e6)
        ),
        Unsteady::DownlinkIdle => format!(
            "downlinks are idle for {} of the time, which changes by {} from {} ms on",
            percent(steady.downlink_idle),
            percent(steady.downlink_idle_change),
            brief(steady.tested_from_ns as f64 / 1e6)
        ),
        Unsteady::Completed => {
            format!("completed/offered is {}", brief(steady.completed_over_offered))
        }
        Unsteady::Offered => format!(
            "the messages that started have {} of the bytes that the load stands for",
            brief(steady.offered_over_load.unwrap_or(f64::NAN))
        ),
    }
}

fn percent(share: f64) -> String {
    format!("{} %", brief(share * 100.0))
}

/// Prints the warnings of all runs on standard error, in red on a terminal.
pub fn print(reports: &[ClusterReport]) {
    let (on, off) = colour();
    for report in reports {
        for warning in [unsteady_warning(report), unfinished(report, MAX_UNFINISHED)].into_iter().flatten() {
            eprintln!("{on}{warning}{off}");
        }
    }
}

/// Prints on standard error how many runs of a sweep were not in steady state, in red on a terminal.
pub fn print_count(reports: &[&ClusterReport]) {
    let is_unsteady = |report: &&&ClusterReport| unsteady_warning(report).is_some();
    let count = reports.iter().filter(is_unsteady).count();
    if count > 0 {
        let (on, off) = colour();
        eprintln!("{on}{count} of {} runs were not in steady state: see `steady %`{off}", reports.len());
    }
}

/// Escape sequences that start and end red text.
fn colour() -> (&'static str, &'static str) {
    if stderr().is_terminal() { ("\x1b[31m", "\x1b[0m") } else { ("", "") }
}

/// Returns the table cell that shows whether the run was in steady state during the measured time.
pub fn cell(report: &ClusterReport) -> String {
    match &report.steady {
        None => "-".to_owned(),
        Some(steady) if steady.reached => "yes".to_owned(),
        Some(_) => "NO".to_owned(),
    }
}

/// Plots the backlog of all runs over time. Returns `None` if no run recorded a backlog.
pub fn chart(reports: &[ClusterReport]) -> Option<Chart> {
    let with_course = reports.iter().filter_map(|report| Some((report, report.steady.as_ref()?)));
    let mut curves = Vec::new();
    let (mut end_ms, mut measured_ms, mut highest) = (0.0f64, 0.0, 0.0f64);
    for (report, steady) in with_course {
        let series = &steady.series;
        let interval_ms = series.interval_ns as f64 / 1e6;
        let count = series.backlog_bytes.len() as f64;
        (end_ms, measured_ms) = (count * interval_ms, series.warm_up_intervals as f64 * interval_ms);
        let point = |(index, &bytes): (usize, &u64)| {
            let (at, megabytes) = (index as f64 + 0.5, bytes as f64 / 1e6);
            highest = highest.max(megabytes);
            let title =
                format!("{}: {} MB at {} ms", report.transport, brief(megabytes), brief(at * interval_ms));
            Point { x: at / count, y: megabytes, title }
        };
        let points = series.backlog_bytes.iter().enumerate().map(point).collect();
        let (label, class) = (report.transport.clone(), report.transport.clone());
        curves.push(Curve { label, class, is_reference: false, points });
    }
    if curves.is_empty() {
        return None;
    }
    let from = measured_ms / end_ms.max(f64::MIN_POSITIVE);
    let mark = |y| Point { x: from, y, title: String::new() };
    curves.push(Curve {
        label: "measured from here".to_owned(),
        class: "mark".to_owned(),
        is_reference: true,
        points: vec![mark(0.0), mark(highest)],
    });
    let tick = |ms: f64| (ms / end_ms.max(f64::MIN_POSITIVE), format!("{} ms", brief(ms)));
    let mut x_ticks = vec![tick(0.0), tick(end_ms)];
    if (0.1..0.9).contains(&from) {
        x_ticks.insert(1, tick(measured_ms));
    }
    Some(Chart {
        x_title: "Simulated time".to_owned(),
        y_title: "Bytes of all messages under way, MB".to_owned(),
        scale: Scale::Linear,
        x_ticks,
        curves,
    })
}

#[cfg(test)]
mod tests {
    use homa_sim::TimeSeries;

    use super::*;

    fn report(failed: &[Unsteady], unfinished: u64) -> ClusterReport {
        let series = TimeSeries {
            interval_ns: 1_000_000,
            warm_up_intervals: 2,
            backlog_bytes: vec![1_000_000, 2_000_000, 4_000_000, 4_000_000],
            ..TimeSeries::default()
        };
        let steady = SteadyState {
            reached: failed.is_empty(),
            failed: failed.to_vec(),
            level_from_ns: Some(2_500_000),
            tested_from_ns: 1_500_000,
            backlog_change: 0.47,
            downlink_idle: 0.3,
            downlink_idle_change: -0.05,
            completed_over_offered: 0.76,
            series,
            ..SteadyState::default()
        };
        ClusterReport {
            transport: "homa".to_owned(),
            started: 1_000,
            unfinished,
            steady: Some(steady),
            ..ClusterReport::default()
        }
    }

    #[test]
    fn a_steady_run_has_no_warnings() {
        assert_eq!(unsteady_warning(&report(&[], 1)), None);
        assert_eq!(unfinished(&report(&[], 1), MAX_UNFINISHED), None);
        assert_eq!(cell(&report(&[], 1)), "yes");
    }

    #[test]
    fn each_failed_test_and_missing_messages_are_named_with_figures() {
        let failed = [Unsteady::WarmUp, Unsteady::Backlog, Unsteady::DownlinkIdle, Unsteady::Completed];
        let warning = unsteady_warning(&report(&failed, 2)).unwrap();
        for part in
            ["not in steady state", "from 2.50 ms", "by 47.0 % from 1.50 ms", "30.0 %", "-5.00 %", "0.76"]
        {
            assert!(warning.contains(part), "{part}: {warning}");
        }
        let warning = unfinished(&report(&failed, 2), MAX_UNFINISHED).unwrap();
        assert!(warning.contains("2 of 1000 messages (0.20 %)"), "{warning}");
        assert_eq!(cell(&report(&failed, 0)), "NO");
    }

    #[test]
    fn the_chart_has_the_backlog_and_where_measuring_begins() {
        let chart = chart(&[report(&[], 0)]).unwrap();
        assert_eq!((chart.curves.len(), chart.curves[0].points.len()), (2, 4));
        assert_eq!((chart.curves[0].points[2].x, chart.curves[0].points[2].y), (0.625, 4.0));
        assert!(chart.curves[1].points.iter().all(|point| point.x == 0.5));
        assert!(chart.x_ticks.iter().any(|(_, text)| text.starts_with("2.00 ms")), "{:?}", chart.x_ticks);
        assert!(super::chart(&[ClusterReport::default()]).is_none());
    }
}
