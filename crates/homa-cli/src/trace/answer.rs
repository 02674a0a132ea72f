//! Options and output of the commands that analyse traces.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::Args;
use homa_analysis::Model;
use homa_analysis::answers::{MissingEvents, PERCENTILES, Percentiles, Select};
use homa_analysis::link::{LinkRate, RateSource};
use homa_analysis::model::NodeId;
use homa_report::outputs::Outputs;
use homa_report::units::{duration_ns, rate_bps};
use serde::Serialize;

use super::columns::Table;
use super::format::us;
use super::load::{Inputs, node_option};

/// Options for the input and output of an analysis.
#[derive(Args, Clone, Debug)]
pub struct Question {
    #[command(flatten)]
    pub inputs: Inputs,
    /// Only this node; can be given several times
    #[arg(long, value_name = "NAME")]
    pub node: Vec<String>,
    /// Only events that began at least this long after the first event, as in 10ms
    #[arg(long, value_name = "TIME", value_parser = duration_ns)]
    pub from: Option<u64>,
    /// Only events that began before that time
    #[arg(long, value_name = "TIME", value_parser = duration_ns)]
    pub until: Option<u64>,
    #[command(flatten)]
    pub answer: Answer,
}

/// Options for the output.
#[derive(Args, Clone, Debug)]
pub struct Answer {
    /// Write the JSON results to this file, or to standard output with `-` (the tables then go to standard
    /// error)
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
}

impl Answer {
    /// Opens the output before the analysis, so that an error is reported early.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn outputs(&self) -> Result<Outputs> {
        Outputs::json_only(self.json.as_deref())
    }
}

impl Question {
    /// Reads the traces.
    ///
    /// # Errors
    /// A file cannot be read or written, or the node does not exist.
    pub fn open(&self) -> Result<LoadedTraces> {
        let outputs = self.answer.outputs()?;
        let model = self.inputs.model()?;
        let mut nodes = Vec::new();
        for name in &self.node {
            nodes.extend(node_option(&model, name)?.into_iter().map(|number| number as NodeId));
        }
        let select = Select { nodes, from_ns: self.from.unwrap_or(0), until_ns: self.until };
        Ok(LoadedTraces { outputs, model, select, files: self.inputs.to_string() })
    }
}

/// The links of the hosts.
#[derive(Args, Clone, Debug)]
pub struct Link {
    /// The rate of the hosts' links, as in 25gbit [default: derived from the densest packets]
    #[arg(long, value_name = "RATE", value_parser = rate_bps)]
    pub rate: Option<u64>,
    /// Bytes that a link adds to each packet of Homa [default: those of Ethernet, of IP and, if peers have
    /// ports, of UDP]
    #[arg(long, value_name = "BYTES")]
    pub overhead: Option<u32>,
}

impl Link {
    /// Returns the rate, if it is given or can be derived from the traces.
    pub fn rate(&self, model: &Model) -> Option<LinkRate> {
        LinkRate::of(model, self.rate, self.overhead)
    }

    /// Returns the rate, for analyses that need it.
    ///
    /// # Errors
    /// There are too few packets to derive the rate.
    pub fn needed(&self, model: &Model) -> Result<LinkRate> {
        self.rate(model).ok_or_else(|| anyhow!("too few packets to derive the links' rate: pass --rate"))
    }
}

/// Options of an analysis that uses the links' rate and lists some of its findings.
#[derive(Args, Clone, Debug)]
pub struct LinkQuestion {
    #[command(flatten)]
    pub question: Question,
    #[command(flatten)]
    pub link: Link,
    /// Maximum rows of long lists
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub list: usize,
}

impl LinkQuestion {
    /// Reads the traces, and derives the rate if it is not given.
    ///
    /// # Errors
    /// The errors of [`Question::open`] and [`Link::needed`].
    pub fn open(&self) -> Result<(LoadedTraces, LinkRate)> {
        let opened = self.question.open()?;
        let rate = self.link.needed(&opened.model)?;
        Ok((opened, rate))
    }
}

/// Formats a rate and its source as a line of text.
pub fn rate_line(rate: Option<LinkRate>) -> String {
    let Some(rate) = rate else {
        return "Link rate: unknown, pass --rate".to_owned();
    };
    let how = match rate.source {
        RateSource::Given => "given",
        RateSource::Switch => "from the densest packets that left switches",
        RateSource::Device => "from the densest packets that devices received",
        RateSource::Arrivals => "from the densest packets that hosts received",
    };
    format!(
        "Link rate: {:.3} Gbit/s ({how}), {} bytes added to each packet",
        rate.bps / 1e9,
        rate.overhead_bytes
    )
}

/// Traces that were read.
pub struct LoadedTraces {
    outputs: Outputs,
    /// The events of all traces.
    pub model: Model,
    /// The selection.
    pub select: Select,
    files: String,
}

impl LoadedTraces {
    /// Prints the text and writes the JSON.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn answer(&self, text: &Text, found: &impl Serialize) -> Result<()> {
        self.outputs.answer(&text.0, found)
    }

    /// Returns the error that explains why an analysis is impossible.
    pub fn missing_error(&self, why: MissingEvents) -> anyhow::Error {
        anyhow!("{}: {why}", self.files)
    }
}

/// Paragraphs and tables for a terminal.
#[derive(Default)]
pub struct Text(String);

impl Text {
    /// Adds a line.
    pub fn line(&mut self, text: impl AsRef<str>) {
        self.0.push_str(text.as_ref());
        self.0.push('\n');
    }

    /// Adds a table below its heading.
    pub fn table(&mut self, heading: &str, table: &Table) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, "\n{heading}\n{}", table.text());
    }

    /// Adds a list of missing data and why each item is missing.
    pub fn missing_events(&mut self, missing_events: &[MissingEvents]) {
        for missing in missing_events {
            self.line(format!("\nnote: {missing}"));
        }
    }
}

/// Builds a table of percentiles, with one row per percentile and one column per name. Missing values are
/// shown as `-`.
pub fn percentiles(columns: &[(&str, Option<Percentiles>)], show: impl Fn(i64) -> String) -> Table {
    let mut head = vec!["<percentile"];
    head.extend(columns.iter().map(|(name, _)| *name));
    let mut table = Table::new(&head);
    for (index, percent) in PERCENTILES.iter().enumerate() {
        let cells = columns
            .iter()
            .map(|(_, found)| found.map_or_else(|| "-".to_owned(), |found| show(found.values()[index])));
        table.row(std::iter::once(percent.to_string()).chain(cells));
    }
    table
}

/// Formats nanoseconds as microseconds, or as `-` if there is no value.
pub fn format_us(ns: Option<i64>) -> String {
    ns.map_or_else(|| "-".to_owned(), us)
}

/// Returns one percentile of the values, if there are any.
pub fn at(
    found: Option<Percentiles>,
    percentile: fn(Percentiles) -> i64,
    show: impl Fn(i64) -> String,
) -> String {
    found.map_or_else(|| "-".to_owned(), |found| show(percentile(found)))
}

/// Formats a part of a whole as a percentage.
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.2} %", part as f64 * 100.0 / whole as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_in_per_cent_and_gaps_are_dashes() {
        assert_eq!((share(1, 8), share(0, 0), format_us(None)), ("12.50 %".into(), "-".into(), "-".into()));
        let found = Percentiles::of(&mut [1, 2]);
        let text = percentiles(&[("a", found), ("b", None)], |value| value.to_string()).text();
        assert!(text.starts_with("percentile  a  b\n0           1  -\n"), "{text}");
    }
}
