//! The results of all variants, and their presentation.

use homa_report::chart::{Chart, Curve, Point, Scale};
use homa_report::findings::{Findings, Section, Table};
use serde::Serialize;
use serde_json::json;

use super::Options;
use super::batches::{BatchSummary, Batches, CLASS_NAMES};
use super::run::RepetitionResult;
use super::variants::{THEN, Variant};
use crate::engine::summary::Summary;

/// Version of the JSON. It increases when a field changes its meaning or is removed, not when a field is
/// added.
const SCHEMA: u32 = 1;

/// The results of a variant over all repetitions.
#[derive(Clone, Debug)]
pub struct Row {
    pub variant: Variant,
    mpps: Summary,
    flow_mpps: Option<Summary>,
    taken: Batches,
    handed: Batches,
    /// Reason why some or all values are missing.
    pub skipped: Option<String>,
}

/// A row of the JSON.
#[derive(Serialize)]
struct RowJson<'a> {
    name: &'static str,
    text: &'static str,
    skipped: Option<&'a str>,
    /// Million frames per second while the source sleeps.
    mpps: &'a Summary,
    /// Speed in each repetition relative to the baseline's in the same repetition.
    ratio: Option<Summary>,
    /// Million frames per second while the source sends.
    flow_mpps: Option<&'a Summary>,
    /// Batches received from the devices while the source sends.
    taken: Option<BatchSummary>,
    /// Batches handed over between the two threads.
    handed: Option<BatchSummary>,
}

impl Row {
    /// Creates a row without repetitions.
    pub fn new(variant: Variant) -> Row {
        let (mpps, taken, handed) = (Summary::default(), Batches::default(), Batches::default());
        Row { variant, mpps, flow_mpps: None, taken, handed, skipped: None }
    }

    /// Adds a repetition.
    pub fn add(&mut self, seen: &RepetitionResult) {
        self.mpps.add(seen.mpps);
        if let Some(flow) = seen.flow_mpps {
            self.flow_mpps.get_or_insert_default().add(flow);
        }
        self.taken.merge(&seen.taken);
        self.handed.merge(&seen.handed);
    }

    fn has_values(&self) -> bool {
        !self.mpps.samples.is_empty()
    }

    fn cells(&self, baseline: &Row) -> Vec<String> {
        let spread =
            |summary: &Summary| format!("{:.2} ({:.2}-{:.2})", summary.median, summary.min, summary.max);
        let optional = |summary: Option<Summary>| summary.map_or("-".to_owned(), |summary| spread(&summary));
        let mean =
            |batches: &Batches| batches.summary().map_or("-".to_owned(), |all| format!("{:.1}", all.mean));
        vec![
            self.variant.text.to_owned(),
            optional(self.has_values().then(|| self.mpps.clone())),
            optional(self.mpps.over(&baseline.mpps)),
            optional(self.flow_mpps.clone()),
            mean(&self.taken),
            mean(&self.handed),
        ]
    }

    fn json(&self, baseline: &Row) -> RowJson<'_> {
        RowJson {
            name: self.variant.name,
            text: self.variant.text.trim(),
            skipped: self.skipped.as_deref(),
            mpps: &self.mpps,
            ratio: self.mpps.over(&baseline.mpps),
            flow_mpps: self.flow_mpps.as_ref(),
            taken: self.taken.summary(),
            handed: self.handed.summary(),
        }
    }
}

/// Composes the page and the JSON. The first row must be the baseline.
pub fn findings(options: &Options, rows: &[Row], load: &str, notes: Vec<String>) -> Findings {
    let Some(baseline) = rows.first() else { return Findings::default() };
    let head = ["", "M frames/s", "over the first", "source at work", "taken", "handed over"];
    let mut table = Table::new(&head);
    table.rows = rows.iter().map(|row| row.cells(baseline)).collect();
    let speed = Section {
        heading: "Frames per second, median (range)".to_owned(),
        text: "Without and with the source at work; with it, the mean batch from a device and from the line between threads"
            .to_owned(),
        table,
        charts: vec![bursts(rows)],
    };
    let mut shares = Table::new(&[&["packets in a batch"][..], &CLASS_NAMES].concat());
    for row in rows {
        for (place, batches) in [("taken", &row.taken), ("handed over", &row.handed)] {
            if let Some(all) = batches.summary() {
                let cells = all.shares.map(|share| format!("{:.1} %", share * 100.0));
                shares.rows.push([vec![format!("{}, {place}", row.variant.name)], cells.to_vec()].concat());
            }
        }
    }
    let batches = Section {
        heading: "Sizes of batches, with the source at work".to_owned(),
        text: "Share of all batches".to_owned(),
        table: shares,
        charts: vec![distribution(rows)],
    };
    let mut then = Table::new(&["question", "in 2004, two processors, a kernel's bridge"]);
    then.rows =
        THEN.iter().map(|(question, found)| vec![(*question).to_owned(), (*found).to_owned()]).collect();
    let then = Section { heading: "Earlier findings".to_owned(), table: then, ..Section::default() };
    let mut warnings = notes;
    let skipped = rows.iter().filter_map(|row| row.skipped.as_ref().map(|why| (row.variant.name, why)));
    warnings.extend(skipped.map(|(name, why)| format!("{name}: incomplete: {why}")));
    let json = json!({
        "schema": SCHEMA,
        "version": env!("CARGO_PKG_VERSION"),
        "path": options.path.name(),
        "load": load,
        "frame_bytes": options.frame_bytes,
        "duration_ms": options.slice.as_millis(),
        "repetitions": options.repetitions,
        "batch_classes": CLASS_NAMES,
        "rows": rows.iter().map(|row| row.json(baseline)).collect::<Vec<_>>(),
        "then": THEN,
        "warnings": warnings,
    });
    Findings {
        title: "Ways to build a bridge".to_owned(),
        summary: format!(
            "frames of {} bytes through {}, source and sink through {load}; {} x {} ms",
            options.frame_bytes,
            options.path.name(),
            options.repetitions,
            options.slice.as_millis()
        ),
        warnings,
        sections: vec![speed, batches, then],
        json,
        clean: true,
        ..Findings::default()
    }
}

/// Plots speed by burst size, for the variants that differ only in burst size.
fn bursts(rows: &[Row]) -> Chart {
    let mut rows: Vec<&Row> =
        rows.iter().filter(|row| row.variant.name.starts_with("burst-") && row.has_values()).collect();
    rows.sort_by_key(|row| row.variant.burst);
    // The scale is logarithmic from 1 to 64, the maximum burst.
    let x = |row: &Row| (row.variant.burst as f64).log2() / 6.0;
    let curve = |label: &str, class: &str, value: &dyn Fn(&Row) -> Option<f64>| Curve {
        label: label.to_owned(),
        class: class.to_owned(),
        is_reference: false,
        points: rows
            .iter()
            .filter_map(|row| {
                let y = value(row)?;
                Some(Point { x: x(row), y, title: format!("bursts of {}: {y:.2} M/s", row.variant.burst) })
            })
            .collect(),
    };
    let flow = |row: &Row| row.flow_mpps.as_ref().map(|summary| summary.median);
    Chart {
        x_title: "maximum packets received at a time".to_owned(),
        y_title: "M frames/s".to_owned(),
        scale: Scale::Linear,
        x_ticks: rows.iter().map(|row| (x(row), row.variant.burst.to_string())).collect(),
        curves: vec![
            curve("without the source", "homa", &|row| Some(row.mpps.median)),
            curve("source at work", "tcp", &flow),
        ],
    }
}

/// Plots the sizes of the batches that the baseline receives, and of those that two threads hand over.
fn distribution(rows: &[Row]) -> Chart {
    let last = (CLASS_NAMES.len() - 1) as f64;
    let curve = |row: &Row, place: &str, batches: &Batches, class: &str| {
        let all = batches.summary()?;
        let point = |(at, share): (usize, f64)| Point {
            x: at as f64 / last,
            y: share * 100.0,
            title: format!("{}: {:.1} %", CLASS_NAMES[at], share * 100.0),
        };
        Some(Curve {
            label: format!("{}, {place}", row.variant.name),
            class: class.to_owned(),
            is_reference: false,
            points: all.shares.into_iter().enumerate().map(point).collect(),
        })
    };
    let baseline = rows.first().and_then(|row| curve(row, "taken", &row.taken, "homa"));
    let two = rows.iter().find(|row| row.variant.name == "handover-2");
    let two = two.and_then(|row| curve(row, "handed over", &row.handed, "tcp"));
    Chart {
        x_title: "packets in a batch".to_owned(),
        y_title: "% of batches".to_owned(),
        scale: Scale::Linear,
        x_ticks: CLASS_NAMES
            .iter()
            .enumerate()
            .map(|(at, name)| (at as f64 / last, (*name).to_owned()))
            .collect(),
        curves: baseline.into_iter().chain(two).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::variants::VARIANTS;

    #[test]
    fn every_variant_has_a_row_and_ratios_are_of_the_same_repetition() {
        let options = Options::default();
        let mut rows: Vec<Row> = VARIANTS.into_iter().map(Row::new).collect();
        for turn in [1.0, 3.0] {
            for (at, row) in rows.iter_mut().enumerate() {
                let mut seen =
                    RepetitionResult { mpps: turn * (1.0 + at as f64 / 10.0), ..RepetitionResult::default() };
                seen.flow_mpps = (row.variant.name != "linux").then_some(turn);
                seen.taken.add(row.variant.burst);
                row.add(&seen);
            }
        }
        rows[3].skipped = Some("no reason".to_owned());
        let findings = findings(&options, &rows, "ring", Vec::new());
        let text = findings.text();
        for row in &rows {
            assert!(text.contains(row.variant.text.trim()), "{}: {text}", row.variant.name);
        }
        assert!(text.contains("1.10 (1.10-1.10)") && text.contains("burst-64: incomplete"), "{text}");
        let json = &findings.json["rows"];
        assert_eq!(
            (&json[1]["ratio"]["min"], &json[18]["flow_mpps"]),
            (&1.1.into(), &serde_json::Value::Null)
        );
        let page = findings.page();
        assert_eq!(page.matches("<figure>").count(), 2);
        assert!(page.matches("<polyline").count() >= 3 && page.contains("2004"));
    }
}
