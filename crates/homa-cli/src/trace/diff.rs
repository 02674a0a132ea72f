//! `homa trace diff`: compares two runs.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use homa_analysis::Cause;
use homa_analysis::selection::Selection;
use homa_analysis::summary::{SizeSummary, Summary};
use serde_json::{Value, json};

use super::answer::Answer;
use super::columns::Table;
use super::format::us;
use super::load::Inputs;
use super::select::SelectionArgs;
use super::summary::size_json;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Example:
  homa trace diff before/ after/

Durations are in microseconds. For each cause, the mean extra time over all RPCs is compared.")]
pub struct DiffArgs {
    /// The traces of the first run: a file or a directory of .trace files
    #[arg(value_name = "A")]
    pub before: PathBuf,
    /// The traces of the second run
    #[arg(value_name = "B")]
    pub after: PathBuf,
    #[command(flatten)]
    pub meant: SelectionArgs,
    #[command(flatten)]
    pub answer: Answer,
}

/// The values of one quantity in both runs.
struct Change {
    what: String,
    before: f64,
    after: f64,
}

impl Change {
    /// Returns the ratio of the larger to the smaller value, as a logarithm; 0 if one of them is 0.
    fn log_ratio(&self) -> f64 {
        if self.before > 0.0 && self.after > 0.0 { (self.after / self.before).ln().abs() } else { 0.0 }
    }

    fn percent(&self) -> String {
        match self.before {
            before if before > 0.0 => format!("{:+.1} %", (self.after / before - 1.0) * 100.0),
            _ => "-".to_owned(),
        }
    }
}

/// # Errors
/// A file cannot be read or written.
pub fn run(args: &DiffArgs) -> Result<()> {
    let outputs = args.answer.outputs()?;
    // The runs are processed one after the other, because each may be large.
    let [before, after] = [of(&args.before, args)?, of(&args.after, args)?];
    let changes = by_size(&before.sizes, &after.sizes);
    let causes = by_cause(&before.sizes, &after.sizes);
    let mut text = format!("{} RPCs before, {} after\n\n", before.whole, after.whole);
    text.push_str(&table("<by size", &changes).text());
    text.push('\n');
    text.push_str(&table("<extra us of an RPC, by cause", &causes).text());
    let found = json!({
        "rpcs": { "before": before.whole, "after": after.whole },
        "by_size": to_json(&changes), "by_cause_us": to_json(&causes),
        "before": before.sizes.iter().map(size_json).collect::<Vec<_>>(),
        "after": after.sizes.iter().map(size_json).collect::<Vec<_>>(),
    });
    outputs.answer(&text, &found)
}

fn of(path: &Path, args: &DiffArgs) -> Result<Summary> {
    let model = Inputs { files: vec![path.to_path_buf()], ..Inputs::default() }.model()?;
    let Selection { explainer, costs, chosen } = &args.meant.selection(&model)?;
    Ok(Summary::of(explainer, costs, chosen))
}

/// Returns the changes by message size, in decreasing order.
fn by_size(before: &[SizeSummary], after: &[SizeSummary]) -> Vec<Change> {
    let mut changes = Vec::new();
    for old in before {
        let Some(new) = after.iter().find(|new| new.up_to == old.up_to) else { continue };
        let size = old.up_to.map_or("larger".to_owned(), |up_to| format!("up to {up_to} B"));
        let us = |ns: u64| ns as f64 / 1e3;
        for (name, old, new) in [
            ("P50 us", us(old.duration_ns[0]), us(new.duration_ns[0])),
            ("P99 us", us(old.duration_ns[1]), us(new.duration_ns[1])),
            ("slowdown P50", old.slowdown[0], new.slowdown[0]),
            ("slowdown P99", old.slowdown[1], new.slowdown[1]),
        ] {
            changes.push(Change { what: format!("{size}: {name}"), before: old, after: new });
        }
    }
    changes.sort_by(|a, b| b.log_ratio().total_cmp(&a.log_ratio()));
    changes
}

/// Returns the changes by cause, in decreasing order.
fn by_cause(before: &[SizeSummary], after: &[SizeSummary]) -> Vec<Change> {
    let mean = |sizes: &[SizeSummary], cause: Cause| {
        let rpcs: usize = sizes.iter().map(|size| size.rpcs).sum();
        let ns: u64 = sizes.iter().map(|size| size.extra[cause]).sum();
        ns as f64 / 1e3 / rpcs.max(1) as f64
    };
    let change = |cause: &Cause| Change {
        what: cause.name().to_owned(),
        before: mean(before, *cause),
        after: mean(after, *cause),
    };
    let mut changes: Vec<Change> =
        Cause::ALL.iter().map(change).filter(|change| change.before + change.after > 0.0).collect();
    let difference = |change: &Change| (change.after - change.before).abs();
    changes.sort_by(|a, b| difference(b).total_cmp(&difference(a)));
    changes
}

fn table(what: &str, changes: &[Change]) -> Table {
    let mut table = Table::new(&[what, "before", "after", "change"]);
    for change in changes {
        let shown = |value: f64| us((value * 1e3) as u64);
        table.row([change.what.clone(), shown(change.before), shown(change.after), change.percent()]);
    }
    table
}

fn to_json(changes: &[Change]) -> Vec<Value> {
    let one =
        |change: &Change| json!({ "what": change.what, "before": change.before, "after": change.after });
    changes.iter().map(one).collect()
}
