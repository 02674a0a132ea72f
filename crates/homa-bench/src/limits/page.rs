//! Renders the limits as a page.

use homa_report::table::TableRow;

use super::comparisons::Comparison;
use super::results::{Limits, Metric, Row};
use super::table::{PARTS, number, place, verdict};
use super::targets::Basis;
use crate::engine::summary::Summary;
use crate::tables_page::{Section, cell, render as page};

/// Renders `report.html`.
pub fn render(limits: &Limits) -> String {
    let config = &limits.config;
    let mut lines = vec![format!(
        "homa {}: over {}; {} repetitions of {} ms; median (range).",
        config.version,
        place(config),
        config.repetitions,
        config.slice_ms
    )];
    lines.extend(config.notes.iter().map(|note| format!("Note: {note}.")));
    lines.extend(
        limits
            .rows
            .iter()
            .filter_map(|row| row.skipped.as_ref().map(|why| format!("{}: skipped: {why}", row.name))),
    );
    let parts = PARTS.iter().map(|(title, metrics)| part(title, metrics, limits));
    let sections: Vec<Section> =
        [compared(limits)].into_iter().chain(parts).chain([figures(limits)]).collect();
    page("Limits of protocols and drivers", &lines, &sections)
}

fn part(title: &'static str, metrics: &[Metric], limits: &Limits) -> Section {
    let row = |row: &Row| -> TableRow {
        (row.name.clone(), metrics.iter().map(|&metric| cell(row.get(metric))).collect())
    };
    Section {
        title,
        head: metrics.iter().map(|metric| metric.name().to_owned()).collect(),
        rows: limits.rows.iter().filter(|row| !row.metrics.is_empty()).map(row).collect(),
    }
}

fn compared(limits: &Limits) -> Section {
    let rows = limits.comparisons.iter().map(|row| {
        let scaled = |summary: &Option<Summary>| {
            cell(summary.as_ref().map(|summary| summary.scaled(row.factor)).as_ref())
        };
        let [floor, goal] = bounds(row);
        let values = [&row.homa, &row.tcp, &row.bare_udp].map(scaled);
        let target = [cell(row.over_tcp.as_ref()), floor, goal, verdict(row.verdict).to_owned()];
        (row.text.to_owned(), values.into_iter().chain(target).collect())
    });
    Section {
        title: "Homa against TCP",
        head: ["Homa", "TCP", "bare UDP", "Homa / TCP", "floor", "goal", "target"]
            .map(str::to_owned)
            .to_vec(),
        rows: rows.collect(),
    }
}

/// Returns the floor and the goal of a row as text.
fn bounds(row: &Comparison) -> [String; 2] {
    let sign = if row.at_most { "at most" } else { "at least" };
    let Some(target) = &row.target else { return ["-", "-"].map(str::to_owned) };
    let unit = if target.basis == Basis::Ratio { 1.0 } else { row.factor };
    [Some(target.floor), target.goal]
        .map(|bound| bound.map_or("-".to_owned(), |bound| format!("{sign} {}", number(Some(bound * unit)))))
}

fn figures(limits: &Limits) -> Section {
    let rows = limits.figures.iter().map(|figure| {
        let sign = if figure.at_most { "at most" } else { "at least" };
        let floor = figure.asked.map_or("-".to_owned(), |floor| format!("{sign} {floor:.2}"));
        let cells = vec![floor, cell(figure.measured.as_ref()), verdict(figure.verdict).to_owned()];
        (figure.text.to_owned(), cells)
    });
    Section {
        title: "Figures",
        head: ["floor", "measured", "target"].map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::samples;

    #[test]
    fn the_page_has_every_subject_and_figure() {
        let page = render(&samples::limits());
        for part in [
            "homa/packet",
            "quic: skipped",
            "rtt_polling_p50_us",
            "<h2>Figures</h2>",
            "at most",
            "below floor",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        // An absolute target has the unit of its row; a ratio has none.
        assert!(page.contains("<td>at most 2000</td><td>at most 1500</td><td>goal</td>"), "{page}");
        assert!(page.contains("<td>at least 1.40</td><td>-</td><td>below floor</td>"), "{page}");
        assert!(PARTS.iter().map(|(_, metrics)| metrics.len()).sum::<usize>() == Metric::ALL.len());
    }
}
