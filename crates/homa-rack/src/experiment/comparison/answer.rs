//! The answer of a comparison: a few lines for the terminal and for the page.

use homa_bench::compare::results::Run;
use homa_bench::workloads;
use homa_report::findings::{Findings, Section};
use homa_report::number::size;
use homa_report::number::{ratio, short_number};
use homa_workload::BinSummary;
use serde_json::{Value, json};

use super::steady_state::is_steady;
use super::{BUFFER, Trial, rack_in_words};
use crate::experiment::vs_tcp::{CellResults, ContenderRuns, Spread};

/// The results of a comparison, and how the rack and the load were chosen.
pub struct Answer<'a> {
    /// The measurements.
    pub measured: CellResults<'a>,
    trials: Vec<Trial>,
    /// The initial load, if it was too high and a lower load was measured.
    lowered_from: Option<f64>,
    warnings: Vec<String>,
}

impl<'a> Answer<'a> {
    /// Combines the measurements, the tried racks, the initial load if it was lowered, and the events of the
    /// rack.
    pub fn new(
        measured: CellResults<'a>,
        trials: Vec<Trial>,
        lowered_from: Option<f64>,
        events: Vec<String>,
    ) -> Answer<'a> {
        let mut warnings = measured.warnings();
        warnings.extend(events);
        Answer { measured, trials, lowered_from, warnings }
    }

    /// Returns whether every RPC was answered exactly once and correctly.
    pub fn is_clean(&self) -> bool {
        self.measured.is_clean()
    }

    /// Returns the reasons why the comparison is invalid, one sentence each.
    pub fn invalid(&self) -> Vec<String> {
        let unsteady = self.measured.runs.iter().filter_map(|ContenderRuns { contender, run, .. }| {
            let fraction = run.completed_fraction?;
            let is_behind = fraction < 1.0;
            let (title, percent) = (&contender.title, fraction * 100.0);
            let remedy =
                if is_behind { "; use a lower --load or more --seconds" } else { "; use more --seconds" };
            (!is_steady(fraction)).then(|| {
                format!("{title} completed {percent:.1} % of the bytes due in the measured time{remedy}")
            })
        });
        unsteady.collect()
    }

    /// Returns the first lines of the output: the answer in words and figures.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let invalid = self.invalid();
        if !invalid.is_empty() {
            lines.push(format!("INVALID, not in steady state: {}", invalid.join(". ")));
        }
        let [homa, others @ ..] = &self.measured.runs[..] else { return lines };
        for other in others {
            lines.extend(self.short_message_lines(&homa.run, other));
            lines.extend(largest(&homa.run, other));
        }
        lines.push(self.extent());
        lines.push(self.place());
        lines
    }

    fn short_message_lines(&self, homa: &Run, other: &ContenderRuns) -> Vec<String> {
        let (title, run) = (&other.contender.title, &other.run);
        if homa.short.count == 0 || run.short.count == 0 {
            return Vec::new();
        }
        let bytes = size(homa.short.max_bytes);
        let compare = |homa: f64, other: f64| {
            format!("{} over Homa, {} over {title} ({} x)", us(homa), us(other), ratio(other, homa))
        };
        let (ours, theirs) = (&homa.short, &run.short);
        let mut lines = vec![
            format!(
                "Short messages (up to {bytes}), median round trip: {}",
                compare(ours.p50_us, theirs.p50_us)
            ),
            format!("Short messages (up to {bytes}), P99: {}", compare(ours.p99_us, theirs.p99_us)),
        ];
        if let [Some(ours), Some(theirs)] = [homa, run].map(shortest) {
            lines.push(format!(
                "Short messages, slowdown: median {} over Homa, {} over {title}; P99 {} and {}",
                short_number(ours.slowdown_p50),
                short_number(theirs.slowdown_p50),
                short_number(ours.slowdown_p99),
                short_number(theirs.slowdown_p99),
            ));
        }
        lines
    }

    fn extent(&self) -> String {
        let CellResults { runs, repetitions, .. } = &self.measured;
        let count = repetitions.len() / runs.len().max(1);
        let spread = |index: usize| {
            let pairs = || repetitions.chunks_exact(runs.len()).map(move |these| (&these[index], &these[0]));
            let of = |value: fn(&homa_workload::ShortSummary) -> f64| {
                let known = pairs()
                    .filter(move |(other, homa)| value(&other.short) > 0.0 && value(&homa.short) > 0.0);
                Spread::of(known.map(|(other, homa)| value(&other.short) / value(&homa.short)))
            };
            let range = |spread: Option<Spread>| {
                spread.map_or("-".to_owned(), |spread| {
                    format!("{} to {}", short_number(spread.min), short_number(spread.max))
                })
            };
            let (p50, p99) = (range(of(|short| short.p50_us)), range(of(|short| short.p99_us)));
            format!("{} / Homa {p50} (median) and {p99} (P99)", runs[index].contender.title)
        };
        let spreads: Vec<String> = (1..runs.len()).map(spread).collect();
        let completed: Vec<String> = runs
            .iter()
            .filter_map(|ran| Some(format!("{} {:.3}", ran.contender.title, ran.run.completed_fraction?)))
            .collect();
        let rpcs: Vec<String> =
            runs.iter().map(|ran| format!("{} {}", grouped(ran.run.rpcs), ran.contender.title)).collect();
        let spread =
            if count > 1 { format!("; in single repetitions {}", spreads.join(", ")) } else { String::new() };
        format!(
            "RPCs measured: {}, in {count} repetition{}{spread}; completed / offered bytes: {}",
            rpcs.join(", "),
            if count == 1 { "" } else { "s" },
            completed.join(", ")
        )
    }

    fn place(&self) -> String {
        let plan = &self.measured.plan;
        let spec = plan.spec();
        let lowered = self.lowered_from.map_or(String::new(), |load| {
            format!(" (at {:.0} % not every protocol completed the offered load)", load * 100.0)
        });
        format!(
            "Rack: {}{}; {} at {:.0} % load{lowered}",
            rack_in_words(spec),
            if self.trials.is_empty() {
                ""
            } else {
                ", chosen so that this machine's processors are not the limit"
            },
            workloads::text(&plan.workload),
            plan.load * 100.0,
        )
    }

    /// Describes the conditions of the comparison, for readers who want to judge it.
    pub fn conditions(&self) -> Section {
        let plan = &self.measured.plan;
        let common = &plan.options().common;
        let mut section = self.measured.sections().pop().unwrap_or_default();
        let trials: Vec<String> = self
            .trials
            .iter()
            .map(|trial| {
                format!(
                    "{} hosts at {} Mbit/s: {:.2} processors busy, mean wait {:.0} us",
                    trial.size.hosts, trial.size.rate_mbps, trial.busy, trial.waited_us
                )
            })
            .collect();
        let trials =
            if trials.is_empty() { String::new() } else { format!(" Racks tried: {}.", trials.join("; ")) };
        section.text = format!(
            "All hosts are clients and servers; the same messages are due at the same times over every protocol, and each latency counts \
             from then. The load is a share of each link's rate, headers included. Switch: {BUFFER}, with 8 priorities, which TCP's packets \
             do not use. Homa: UDP, default settings. TCP: {} congestion control, {} warm connections between each pair of hosts, NODELAY. \
             Completed / due counts request bytes within the measured time. Its start and end are chosen so that \
             ideal links would complete what is due in between, and are the same for all protocols. Measured for up to {:.1} s \
             a protocol in each repetition, after at least {:.1} s of load.{trials}",
            common.cc_names(),
            common.connections,
            plan.measured.as_secs_f64(),
            plan.warmup.as_secs_f64(),
        );
        section
    }

    /// Returns slowdown by size, with the largest 1 % as the last row, and the short messages.
    pub fn sections(&self) -> Vec<Section> {
        let mut sections = self.measured.sections();
        sections.pop();
        sections
    }

    /// Returns the answer as text for a terminal.
    pub fn text(&self) -> String {
        let mut out = "\n".to_owned();
        for line in self.lines() {
            out.push_str(&line);
            out.push('\n');
        }
        let sections = self.sections().into_iter().chain([self.conditions()]).collect();
        let findings = Findings { sections, warnings: self.warnings.clone(), ..Findings::default() };
        out.push_str(findings.text().trim_start_matches('\n'));
        out
    }

    /// Returns the answer as JSON.
    pub fn json(&self) -> Value {
        let mut json = self.measured.json("bench");
        json["answer"] = json!(self.lines());
        json["valid"] = json!(self.invalid().is_empty());
        json["warnings"] = json!(self.warnings);
        json["lowered_from_load"] = json!(self.lowered_from);
        json
    }

    /// Returns warnings about the results.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

fn largest(homa: &Run, other: &ContenderRuns) -> Option<String> {
    let bin = |run: &Run| run.bins.last().filter(|bin| run.largest_row && bin.count > 0).cloned();
    let (ours, theirs): (BinSummary, BinSummary) = (bin(homa)?, bin(&other.run)?);
    let title = &other.contender.title;
    Some(format!(
        "Largest 1 % of messages, slowdown: median {} over Homa, {} over {title}; P99 {} and {}",
        short_number(ours.slowdown_p50),
        short_number(theirs.slowdown_p50),
        short_number(ours.slowdown_p99),
        short_number(theirs.slowdown_p99),
    ))
}

/// Returns the row of the short messages, if the table has a row with the same maximum size.
fn shortest(run: &Run) -> Option<&BinSummary> {
    run.bins.first().filter(|bin| bin.max_bytes == run.short.max_bytes && bin.count > 0)
}

fn us(us: f64) -> String {
    if us < 100.0 { format!("{us:.1} us") } else { format!("{} us", grouped(us.round() as u64)) }
}

/// Formats a number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_told_apart() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([8.54, 375.4, 556_270.2].map(us), ["8.5 us", "375 us", "556,270 us"]);
    }
}
