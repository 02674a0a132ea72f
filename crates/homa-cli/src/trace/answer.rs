//! What the commands that ask traces something have in common: their options, and how they answer.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::Args;
use homa_analysis::Model;
use homa_analysis::answers::{Lack, PERCENTILES, Percentiles, Select};
use homa_analysis::link::{LinkRate, RateSource};
use homa_analysis::model::NodeId;
use homa_report::outputs::Outputs;
use homa_report::units::{duration_ns, rate_bps};
use serde::Serialize;

use super::columns::Table;
use super::load::{Inputs, node_option};
use super::shown::us;

/// Where to look, and where the answer goes.
#[derive(Args, Clone, Debug)]
pub struct Question {
    /// Where the traces are.
    #[command(flatten)]
    pub inputs: Inputs,
    /// Only this node; can be given several times
    #[arg(long, value_name = "NAME")]
    pub node: Vec<String>,
    /// Only what began so long after the first event, or later, as in 10ms
    #[arg(long, value_name = "TIME", value_parser = duration_ns)]
    pub from: Option<u64>,
    /// Only what began before that
    #[arg(long, value_name = "TIME", value_parser = duration_ns)]
    pub until: Option<u64>,
    /// Where the answer goes.
    #[command(flatten)]
    pub answer: Answer,
}

/// Where an answer goes besides to the terminal.
#[derive(Args, Clone, Debug)]
pub struct Answer {
    /// Write the JSON results to this file, or to standard output with `-` (the tables then go to standard error)
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
}

impl Answer {
    /// Checks that it can be written.
    ///
    /// # Errors
    /// Names the file.
    pub fn outputs(&self) -> Result<Outputs> {
        Outputs::json_only(self.json.as_deref())
    }
}

impl Question {
    /// Reads the traces.
    ///
    /// # Errors
    /// Names the file that cannot be read or written, or the node that is not there.
    pub fn open(&self) -> Result<Opened> {
        let outputs = self.answer.outputs()?;
        let model = self.inputs.model()?;
        let mut nodes = Vec::new();
        for name in &self.node {
            nodes.extend(node_option(&model, name)?.into_iter().map(|number| number as NodeId));
        }
        let select = Select { nodes, from_ns: self.from.unwrap_or(0), until_ns: self.until };
        Ok(Opened { outputs, model, select, files: self.inputs.to_string() })
    }
}

/// The links that the hosts are on.
#[derive(Args, Clone, Debug)]
pub struct Link {
    /// The rate of the hosts' links, as in 25gbit [default: what the densest packets show]
    #[arg(long, value_name = "RATE", value_parser = rate_bps)]
    pub rate: Option<u64>,
    /// Bytes that a link adds to each packet of Homa [default: those of Ethernet, of IP and, where peers have ports, of UDP]
    #[arg(long, value_name = "BYTES")]
    pub overhead: Option<u32>,
}

impl Link {
    /// The rate, if it is given or the traces show it.
    pub fn rate(&self, model: &Model) -> Option<LinkRate> {
        LinkRate::of(model, self.rate, self.overhead)
    }

    /// The same where nothing can be said without.
    ///
    /// # Errors
    /// There are too few packets.
    pub fn needed(&self, model: &Model) -> Result<LinkRate> {
        self.rate(model)
            .ok_or_else(|| anyhow!("too few packets to tell the links' rate from: give it with --rate"))
    }
}

/// A question that reckons with the links' rate, and whose answer lists some of what it found.
#[derive(Args, Clone, Debug)]
pub struct LinkQuestion {
    /// What is asked about.
    #[command(flatten)]
    pub question: Question,
    /// The links.
    #[command(flatten)]
    pub link: Link,
    /// How many rows to list of what there may be many of
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub list: usize,
}

impl LinkQuestion {
    /// Reads the traces, and finds the rate where it is not given.
    ///
    /// # Errors
    /// As [`Question::open`] and [`Link::needed`].
    pub fn open(&self) -> Result<(Opened, LinkRate)> {
        let opened = self.question.open()?;
        let rate = self.link.needed(&opened.model)?;
        Ok((opened, rate))
    }
}

/// A rate and how it is known.
pub fn rate_line(rate: Option<LinkRate>) -> String {
    let Some(rate) = rate else {
        return "Link rate: not known, give it with --rate".to_owned();
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
pub struct Opened {
    outputs: Outputs,
    /// All that they say.
    pub model: Model,
    /// What is asked about.
    pub select: Select,
    files: String,
}

impl Opened {
    /// Prints the text and writes the JSON.
    ///
    /// # Errors
    /// Names the file that cannot be written.
    pub fn answer(&self, text: &Text, found: &impl Serialize) -> Result<()> {
        self.outputs.answer(&text.0, found)
    }

    /// Nothing can be said, for this reason.
    pub fn nothing(&self, why: Lack) -> anyhow::Error {
        anyhow!("{}: {why}", self.files)
    }
}

/// Paragraphs and tables for a terminal.
#[derive(Default)]
pub struct Text(String);

impl Text {
    /// A line.
    pub fn line(&mut self, text: impl AsRef<str>) {
        self.0.push_str(text.as_ref());
        self.0.push('\n');
    }

    /// A table below its heading.
    pub fn table(&mut self, heading: &str, table: &Table) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, "\n{heading}\n{}", table.text());
    }

    /// What cannot be told, and why.
    pub fn lacks(&mut self, lacks: &[Lack]) {
        for lack in lacks {
            self.line(format!("\nnote: {lack}"));
        }
    }
}

/// Percentiles side by side: a row for each percentile, a column for each name. What is missing is `-`.
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

/// Nanoseconds as microseconds where there may be none.
pub fn us_or(ns: Option<i64>) -> String {
    ns.map_or_else(|| "-".to_owned(), us)
}

/// One percentile of values that may not be there.
pub fn at(
    found: Option<Percentiles>,
    percentile: fn(Percentiles) -> i64,
    show: impl Fn(i64) -> String,
) -> String {
    found.map_or_else(|| "-".to_owned(), |found| show(percentile(found)))
}

/// A share of a whole in per cent.
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.2} %", part as f64 * 100.0 / whole as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_in_per_cent_and_gaps_are_dashes() {
        assert_eq!((share(1, 8), share(0, 0), us_or(None)), ("12.50 %".into(), "-".into(), "-".into()));
        let found = Percentiles::of(&mut [1, 2]);
        let text = percentiles(&[("a", found), ("b", None)], |value| value.to_string()).text();
        assert!(text.starts_with("percentile  a  b\n0           1  -\n"), "{text}");
    }
}
