//! The limits as a page.

use homa_report::table::TableRow;

use super::results::{Limits, Metric, Row};
use super::table::{PARTS, place};
use crate::bench::tables_page::{Section, cell, render as page};

/// `report.html`.
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
    let sections = PARTS.iter().map(|(title, metrics)| part(title, metrics, limits));
    let sections: Vec<Section> = sections.chain([figures(limits)]).collect();
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

fn figures(limits: &Limits) -> Section {
    let rows = limits.figures.iter().map(|figure| {
        let sign = if figure.at_most { "at most" } else { "at least" };
        let kept = match figure.ok {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "-",
        };
        let cells =
            vec![format!("{sign} {:.2}", figure.asked), cell(figure.measured.as_ref()), kept.to_owned()];
        (figure.text.to_owned(), cells)
    });
    Section {
        title: "Figures",
        head: ["asked", "measured", "kept"].map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::limits::samples;

    #[test]
    fn the_page_has_every_subject_and_figure() {
        let page = render(&samples::limits());
        for part in ["homa/packet", "quic: skipped", "rtt_polling_p50_us", "<h2>Figures</h2>", "at most"] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(PARTS.iter().map(|(_, metrics)| metrics.len()).sum::<usize>() == Metric::ALL.len());
    }
}
