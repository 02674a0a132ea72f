//! Renders the results of the switch as a page.

use homa_report::table::TableRow;

use super::results::{MEASURES, Measure, Results};
use super::table::target_text;
use crate::tables_page::{Section, cell, render as page};

/// Renders `report.html`.
pub fn render(results: &Results) -> String {
    let mut lines = vec![format!(
        "homa {}: {} processors, {} repetitions of {} ms, source and sink through {}; median (range).",
        results.version, results.cpus, results.repetitions, results.slice_ms, results.load
    )];
    lines.extend(results.notes.iter().map(|note| format!("Note: {note}.")));
    lines.extend(
        results
            .paths
            .iter()
            .filter_map(|path| path.skipped.as_ref().map(|why| format!("{}: incomplete: {why}", path.name))),
    );
    let is_measured =
        |measure: &&Measure| results.paths.iter().any(|path| path.metrics.contains_key(measure.name));
    let row = |measure: &Measure| -> TableRow {
        let cells = results.paths.iter().map(|path| cell(path.metrics.get(measure.name)));
        (measure.text.trim().to_owned(), [target_text(measure)].into_iter().chain(cells).collect())
    };
    let names = results.paths.iter().map(|path| path.name.to_owned());
    let section = Section {
        title: "Metrics",
        head: ["target".to_owned()].into_iter().chain(names).collect(),
        rows: MEASURES.iter().filter(is_measured).map(row).collect(),
    };
    page("The switch on one processor", &lines, &[section])
}
