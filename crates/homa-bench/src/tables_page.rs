//! A page of tables: `report.html` of benches whose results are medians of many metrics.

use std::fmt::Write;

use homa_report::chart::escape;
use homa_report::page::{FOOT, head, table};
use homa_report::table::TableRow;

use crate::engine::summary::Summary;

/// A table under a heading.
pub struct Section {
    pub title: &'static str,
    pub head: Vec<String>,
    pub rows: Vec<TableRow>,
}

/// Renders the page: a title, lines that describe the measurement, and the tables.
pub fn render(title: &str, lines: &[String], sections: &[Section]) -> String {
    let mut out = head(title);
    // Writing to a string cannot fail.
    for line in lines {
        let _ = writeln!(out, "<p class=\"quiet\">{}</p>", escape(line));
    }
    for Section { title, head, rows } in sections {
        let _ = writeln!(out, "<h2>{}</h2>", escape(title));
        out.push_str(&table(head, rows));
    }
    out.push_str(FOOT);
    out
}

/// Formats the median and range over the repetitions, or a dash.
pub fn cell(summary: Option<&Summary>) -> String {
    let Some(Summary { median, min, max, .. }) = summary else { return "-".to_owned() };
    let digits = match median.abs() {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{median:.digits$} ({min:.digits$}-{max:.digits$})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_every_table_and_needs_nothing_else() {
        let rows = vec![("a<b".to_owned(), vec![cell(Summary::of([1.0, 3.0, 200.0]).as_ref()), cell(None)])];
        let head = ["x", "y"].map(str::to_owned).to_vec();
        let page = render("Title", &["A note.".to_owned()], &[Section { title: "Table", head, rows }]);
        for part in
            ["<h1>Title</h1>", "A note.", "<h2>Table</h2>", "a&lt;b", "3.00 (1.00-200.00)", "<td>-</td>"]
        {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("http") && !page.contains("src="), "{page}");
    }
}
