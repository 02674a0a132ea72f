//! Cells for several workloads and buffers. Each combination is measured on its own rack, one after the
//! other.

use std::collections::HashSet;
use std::hash::Hash;
use std::path::Path;

use anyhow::{Context, Error, Result, ensure};
use homa_report::findings::Findings;
use serde::Serialize;
use serde_json::json;

use super::{CellFindings, of_cell, table};
use crate::experiment::harness::{self, workload_of};
use crate::experiment::options::VsTcpOptions;
use crate::experiment::setup;
use crate::experiment::testbed::Testbed;
use crate::spec::SwitchKind;

/// A workload on a rack with a given buffer.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The options, restricted to this workload, buffer and rate.
    pub options: VsTcpOptions,
    /// Whether this is the only cell.
    pub is_only: bool,
}

impl Cell {
    /// Returns the name of the cell, such as `w2, buffer 1ms`.
    pub fn name(&self) -> String {
        format!("{}, buffer {}", self.options.messages.workload, self.options.common.build.buffer)
    }

    /// Returns the prefix for the names of loads, empty if this is the only cell.
    pub fn prefix(&self) -> String {
        if self.is_only { String::new() } else { format!("{}: ", self.name()) }
    }
}

/// Returns the cells of these options, in the order of the workloads.
///
/// # Errors
/// A list is invalid, a workload does not exist, or a running rack is named although there are several cells.
pub fn cells(options: &VsTcpOptions) -> Result<Vec<Cell>> {
    // A file name may contain a comma.
    let is_file = Path::new(&options.messages.workload).exists();
    let workloads: Vec<&str> = if is_file {
        vec![&options.messages.workload]
    } else {
        options.messages.workload.split(',').collect()
    };
    let buffers: Vec<&str> = options.common.build.buffer.split(',').collect();
    ensure!(
        workloads.iter().all(|one| !one.is_empty()),
        "--workload: a name is missing before or after a comma"
    );
    check_unique("--workload", workloads.iter().map(|one| one.to_ascii_lowercase()))?;
    check_unique("--buffer", &buffers)?;
    check_unique("--cc", options.common.cc.iter().map(|cc| cc.name()))?;
    check_unique("--rates", options.rates.iter().map(|(workload, _)| workload.to_ascii_lowercase()))?;
    for (workload, _) in &options.rates {
        let is_there = workloads.iter().any(|one| one.eq_ignore_ascii_case(workload));
        ensure!(is_there, "--rates: `{workload}` is not among the workloads of --workload");
    }
    let count = workloads.len() * buffers.len();
    ensure!(
        count == 1 || options.common.name.is_none(),
        "several workloads or buffers need a rack each: leave out --name"
    );
    let mut cells = Vec::new();
    for workload in workloads {
        for buffer in &buffers {
            let mut options = options.clone();
            workload.clone_into(&mut options.messages.workload);
            (*buffer).clone_into(&mut options.common.build.buffer);
            let own = options.rates.iter().find(|(name, _)| name.eq_ignore_ascii_case(workload));
            options.common.build.rate = own.map_or(options.common.build.rate, |&(_, rate)| rate);
            workload_of(&options.messages)?;
            let cell = Cell { options, is_only: count == 1 };
            check_switch(&cell)?;
            cells.push(cell);
        }
    }
    Ok(cells)
}

/// Checks the switch of a cell: a buffer given as a time may be smaller than a packet if the rate is low.
fn check_switch(cell: &Cell) -> Result<()> {
    let common = &cell.options.common;
    let spec = common.build.spec("");
    if common.name.is_some() || spec.switch != SwitchKind::Homa {
        return Ok(());
    }
    setup::switch_of(common.program, &spec)
        .map(drop)
        .with_context(|| format!("{} at {} Mbit/s", cell.name(), spec.rate_mbps()))
}

fn check_unique<T: Eq + Hash + std::fmt::Display>(
    option: &str,
    all: impl IntoIterator<Item = T>,
) -> Result<()> {
    let mut seen = HashSet::new();
    for one in all {
        ensure!(!seen.contains(&one), "{option}: `{one}` is listed twice");
        seen.insert(one);
    }
    Ok(())
}

/// A cell without results.
#[derive(Debug, Serialize)]
struct FailedCell {
    workload: String,
    buffer: String,
    error: String,
}

/// Runs all cells. The first one uses the existing rack.
///
/// # Errors
/// The user pressed Ctrl-C, or the first cell failed, so that there are no results. Failures of other cells
/// are reported in the findings.
pub fn run(testbed: &mut Testbed, cells: &[Cell]) -> Result<Findings> {
    if let [only] = cells {
        return Ok(of_cell(testbed, only)?.findings);
    }
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    for (index, cell) in cells.iter().enumerate() {
        match on_its_rack(testbed, cell, index == 0) {
            Ok(one) => found.push((cell.name(), one)),
            Err(error) if found.is_empty() || testbed.is_interrupted() => {
                return Err(error.context(cell.name()));
            }
            Err(error) => failed.push(FailedCell::new(cell, &error)),
        }
    }
    Ok(merge_findings(&cells[0].options, found, failed))
}

fn on_its_rack(testbed: &mut Testbed, cell: &Cell, is_first: bool) -> Result<CellFindings> {
    if !is_first {
        testbed.rebuild(&cell.options.common.build)?;
    }
    let before = testbed.event_position();
    let mut found = of_cell(testbed, cell)?;
    // The testbed reports the events of all cells again.
    let warnings = found.findings.warnings.clone();
    testbed.report_since(before, &mut found.findings);
    found.findings.warnings = warnings;
    Ok(found)
}

impl FailedCell {
    fn new(cell: &Cell, error: &Error) -> FailedCell {
        let build = &cell.options.common.build;
        FailedCell {
            workload: cell.options.messages.workload.clone(),
            buffer: build.buffer.clone(),
            error: homa_report::output::error_line(error),
        }
    }
}

/// Merges the findings of all cells: the table, followed by each cell's findings.
fn merge_findings(
    options: &VsTcpOptions,
    found: Vec<(String, CellFindings)>,
    failed: Vec<FailedCell>,
) -> Findings {
    let entries: Vec<&table::Entry> = found.iter().map(|(_, one)| &one.entry).collect();
    let mut all = Findings {
        title: "Homa and TCP, by workload and buffer".to_owned(),
        summary: summary(options, &found),
        sections: table::sections(&entries),
        clean: failed.is_empty() && found.iter().all(|(_, one)| one.findings.clean),
        ..Findings::default()
    };
    all.json = harness::preamble("vs-tcp", &options.common);
    all.json["table"] = json!(entries);
    all.json["failed_cells"] = json!(failed);
    for FailedCell { workload, buffer, error } in failed {
        all.warnings.push(format!("{workload}, buffer {buffer}: no results: {error}"));
    }
    let mut cells = Vec::new();
    for (name, CellFindings { mut findings, .. }) in found {
        cells.push(findings.json);
        all.warnings.extend(findings.warnings.iter().map(|warning| format!("{name}: {warning}")));
        if let Some(first) = findings.sections.first_mut() {
            first.text = format!("{}. {}", findings.summary, first.text);
        }
        for section in &mut findings.sections {
            section.heading = format!("{name}: {}", section.heading);
        }
        all.sections.append(&mut findings.sections);
    }
    all.json["cells"] = cells.into();
    all
}

fn summary(options: &VsTcpOptions, found: &[(String, CellFindings)]) -> String {
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    format!(
        "{}: at {:.0} % of every link, {} hosts, each client and server; {}",
        names.join("; "),
        options.offered.load * 100.0,
        options.common.build.hosts,
        super::carriers(&options.common),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::options::Program;
    use homa_bench::tcp::Congestion;
    use homa_report::findings::Section;

    fn options() -> VsTcpOptions {
        VsTcpOptions::new(Program { switch_config: |_| Ok(Default::default()) })
    }

    #[test]
    fn every_workload_meets_every_buffer_at_its_own_rate() {
        let mut two = options();
        two.messages.workload = "w2,W3".to_owned();
        two.common.build.buffer = "800us,1ms".to_owned();
        two.rates = vec![("w3".to_owned(), 50_000_000)];
        two.common.build.rate = 20_000_000;
        two.common.cc = vec![Congestion::Cubic, Congestion::Bbr];
        let all = cells(&two).unwrap();
        let names: Vec<String> = all.iter().map(Cell::prefix).collect();
        assert_eq!(
            names,
            ["w2, buffer 800us: ", "w2, buffer 1ms: ", "W3, buffer 800us: ", "W3, buffer 1ms: "]
        );
        let rates: Vec<u64> = all.iter().map(|cell| cell.options.common.build.rate / 1_000_000).collect();
        assert_eq!(rates, [20, 20, 50, 50]);
        assert!(all.iter().all(|cell| cell.options.common.cc.len() == 2));
        let mut up = options();
        up.common.name = Some("up".to_owned());
        let one = cells(&up).unwrap();
        assert_eq!((one.len(), one[0].prefix().as_str()), (1, ""));
    }

    #[test]
    fn the_table_comes_first_and_what_failed_is_told() {
        let section = |heading: &str| Section { heading: heading.to_owned(), ..Section::default() };
        let findings = Findings {
            summary: "conditions".to_owned(),
            warnings: vec!["doubtful".to_owned()],
            sections: vec![section("first"), section("second")],
            json: json!({ "runs": 7 }),
            clean: true,
            ..Findings::default()
        };
        let found = |name: &str| {
            let entry = table::Entry { workload: name.to_owned(), ..table::Entry::default() };
            (name.to_owned(), CellFindings { findings: findings.clone(), entry })
        };
        let mut options = options();
        options.messages.workload = "w2,w3,w4".to_owned();
        let both = || vec![found("w2, buffer 1ms"), found("w3, buffer 1ms")];
        assert!(merge_findings(&options, both(), Vec::new()).clean);
        let gone =
            FailedCell { workload: "w4".to_owned(), buffer: "1ms".to_owned(), error: "dead".to_owned() };
        let all = merge_findings(&options, both(), vec![gone]);
        assert!(!all.clean);
        let headings: Vec<&str> = all.sections.iter().map(|section| section.heading.as_str()).collect();
        let cells = headings.len() - 4;
        assert!(cells > 0 && headings[..cells].iter().all(|heading| !heading.contains("buffer 1ms")));
        assert_eq!(headings[cells..cells + 2], ["w2, buffer 1ms: first", "w2, buffer 1ms: second"]);
        assert_eq!(all.sections[cells].text, "conditions. ");
        let warnings = ["w4, buffer 1ms: no results: dead", "w2, buffer 1ms: doubtful"];
        assert_eq!(all.warnings[..2], warnings);
        assert_eq!(all.json["cells"], json!([{ "runs": 7 }, { "runs": 7 }]));
        assert_eq!(all.json["failed_cells"][0]["error"], "dead");
        assert_eq!(all.json["table"][1]["workload"], "w3, buffer 1ms");
    }
}
