//! The result of an experiment as text for a terminal, as an HTML page with charts, and as JSON.

use std::fmt::Write;

use serde_json::Value;

use crate::chart::{Chart, escape};
use crate::page::{FOOT, head};

/// The result of an experiment: sections with tables and charts, warnings, and the same data as JSON.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What is compared.
    pub title: String,
    /// The conditions of the experiment.
    pub summary: String,
    /// Reasons to doubt the result.
    pub warnings: Vec<String>,
    /// Published results on the same subject.
    pub notes: Vec<String>,
    /// The sections, in display order.
    pub sections: Vec<Section>,
    /// The whole result, for programs.
    pub json: Value,
    /// Whether every RPC was answered exactly once with the right bytes.
    pub clean: bool,
}

/// A section: a heading, an explanation, a table and charts.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// The heading.
    pub heading: String,
    /// An explanation of the table and the charts.
    pub text: String,
    /// The table. If its head is empty, the page shows no table, and the text leaves out the section.
    pub table: Table,
    /// The charts, which appear only on the page.
    pub charts: Vec<Chart>,
}

/// A table of text cells whose first column contains the names of the rows.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Column names, including that of the first column.
    pub head: Vec<String>,
    /// The rows, each with as many cells as the head.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table without rows.
    pub fn new(head: &[&str]) -> Table {
        Table { head: head.iter().map(|&name| name.to_owned()).collect(), rows: Vec::new() }
    }

    fn text(&self, out: &mut String) {
        let lines = || [&self.head].into_iter().chain(&self.rows);
        let width = |column: usize| {
            lines().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        for line in lines() {
            for (index, (cell, width)) in line.iter().zip(&widths).enumerate() {
                // Align names to the left and numbers to the right.
                let _ = if index == 0 {
                    write!(out, "  {cell:<width$}")
                } else {
                    write!(out, "  {cell:>width$}")
                };
            }
            out.push('\n');
        }
    }

    /// Appends the table as HTML.
    pub fn html(&self, out: &mut String) {
        out.push_str("<div class=\"scroll\"><table>\n");
        for (tag, line) in [("th", &self.head)].into_iter().chain(self.rows.iter().map(|row| ("td", row))) {
            let cells: String = line.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
            let _ = writeln!(out, "<tr>{cells}</tr>");
        }
        out.push_str("</table></div>\n");
    }
}

impl Findings {
    /// Formats the result as text for a terminal.
    pub fn text(&self) -> String {
        let mut out = format!("\n{}\n{}\n", self.title, self.summary);
        for Section { heading, text, table, .. } in &self.sections {
            if table.head.is_empty() {
                continue;
            }
            let _ = writeln!(out, "\n{heading}");
            if !text.is_empty() {
                let _ = writeln!(out, "  {text}");
            }
            table.text(&mut out);
        }
        for note in &self.notes {
            let _ = writeln!(out, "\nPublished: {note}");
        }
        for warning in &self.warnings {
            let _ = writeln!(out, "\nWARNING: {warning}");
        }
        out
    }

    /// Formats the result as one self-contained HTML page.
    pub fn page(&self) -> String {
        let mut out = head(&self.title);
        let _ = writeln!(out, "<p class=\"quiet\">{}</p>", escape(&self.summary));
        for warning in &self.warnings {
            let _ = writeln!(out, "<p class=\"warn\">{}</p>", escape(warning));
        }
        for Section { heading, text, table, charts } in &self.sections {
            let _ = writeln!(out, "<h2>{}</h2>\n<p>{}</p>", escape(heading), escape(text));
            for chart in charts {
                let _ = writeln!(out, "<figure>\n{}</figure>", chart.figure());
            }
            if !table.head.is_empty() {
                table.html(&mut out);
            }
        }
        for note in &self.notes {
            let _ = writeln!(out, "<p class=\"quiet\">Published: {}</p>", escape(note));
        }
        out.push_str(FOOT);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Findings {
        let mut table = Table::new(&["bytes", "Homa", "TCP"]);
        table.rows.push(vec!["1".to_owned(), "2.00".to_owned(), "<30>".to_owned()]);
        let section = Section { heading: "Slowdown".to_owned(), table, ..Section::default() };
        Findings { title: "A & B".to_owned(), sections: vec![section], ..Findings::default() }
    }

    #[test]
    fn columns_stand_below_their_names_and_markup_is_escaped() {
        let text = findings().text();
        assert!(text.contains("  bytes  Homa   TCP\n  1      2.00  <30>\n"), "{text}");
        let page = findings().page();
        assert!(page.contains("<td>&lt;30&gt;</td>") && page.contains("A &amp; B"), "{page}");
    }
}
