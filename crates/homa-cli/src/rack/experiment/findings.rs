//! What an experiment found: a table in the terminal, a page of plots, JSON.

use std::fmt::Write;

use homa_report::chart::{Chart, escape};
use homa_report::page::{FOOT, head};
use serde_json::Value;

use super::lab::Machine;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What was compared.
    pub title: String,
    /// Under what conditions.
    pub summary: String,
    /// What makes the result doubtful.
    pub warnings: Vec<String>,
    /// What is known of the same thing from elsewhere.
    pub notes: Vec<String>,
    /// Parts of the page.
    pub sections: Vec<Section>,
    /// All of it for programs.
    pub json: Value,
    /// Whether every RPC was answered once, and right.
    pub clean: bool,
}

/// A part of the page.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Its heading.
    pub heading: String,
    /// What it shows.
    pub text: String,
    /// The first column has names.
    pub table: Table,
    /// Plots; not in the terminal.
    pub charts: Vec<Chart>,
}

/// Rows of cells.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Names of the columns, the first one's included.
    pub head: Vec<String>,
    /// As many cells as the head has.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// One without rows.
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
                // Names begin where their column does, numbers end where it ends.
                let _ = if index == 0 {
                    write!(out, "  {cell:<width$}")
                } else {
                    write!(out, "  {cell:>width$}")
                };
            }
            out.push('\n');
        }
    }

    /// For a page.
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
    /// For a terminal.
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

    /// One file that needs nothing else.
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

    /// Says so where the processors and not the links decided what was measured. `packet_us`: what the longest packet takes on a link.
    pub fn doubt(&mut self, what: &str, machine: &Machine, packet_us: f64) {
        let Machine { cpus, hosts_busy, switch_busy, hosts_waited_us, .. } = machine;
        // Other programs count by how long they keep the rack's threads waiting.
        let busy = hosts_busy + switch_busy;
        if busy > MOSTLY_BUSY * *cpus as f64 {
            self.warnings.push(format!(
                "{what}: the rack kept {busy:.2} of {cpus} processors busy: the result is about them and not about the network; \
                 use a lower --rate or fewer --hosts"
            ));
        }
        if *hosts_waited_us > LONG_WAIT_PACKETS * packet_us {
            self.warnings.push(format!(
                "{what}: a thread that could run waited {hosts_waited_us:.0} us for a processor on average, longer than a packet \
                 takes on its link ({packet_us:.0} us): use a lower --rate or fewer --hosts"
            ));
        }
    }
}

/// Share of all processors above which they limit a rack.
const MOSTLY_BUSY: f64 = 0.9;

/// A wait for a processor that is worth a word, in times of a full packet on a link.
const LONG_WAIT_PACKETS: f64 = 1.0;

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

    #[test]
    fn a_busy_machine_and_a_long_wait_are_said() {
        let mut findings = findings();
        // Other programs keep both processors busy.
        let machine = Machine {
            cpus: 2,
            cores_busy: 2.0,
            hosts_busy: 1.3,
            switch_busy: 0.4,
            hosts_waited_us: 50.0,
            ..Machine::default()
        };
        findings.doubt("Homa", &machine, 120.0);
        assert!(findings.warnings.is_empty(), "{:?}", findings.warnings);
        findings.doubt("Homa", &Machine { hosts_busy: 1.5, ..machine.clone() }, 120.0);
        findings.doubt("TCP", &machine, 12.0);
        assert_eq!(findings.warnings.len(), 2);
        assert!(findings.text().contains("WARNING: TCP: a thread"), "{}", findings.text());
    }
}
