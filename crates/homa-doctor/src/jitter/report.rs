//! A measurement as tables, plots and JSON.

use homa_report::chart::{Chart, Curve, Point, Scale};
use homa_report::findings::{Findings, Section, Table};
use serde_json::{Map, Value, json};

use super::counters::CounterChanges;
use super::explain::{GapCauses, lost_share, shown_classes, time};
use super::gaps::{CLASS_TITLES, CLASSES, Gap};
use super::spin::{Core, Measurement};
use super::system::Fact;
use super::tick::Tick;

/// The gaps of all processors, their causes, and system settings.
#[derive(Clone, Debug)]
pub struct Report {
    /// Minimum length of a gap, in nanoseconds.
    pub threshold_ns: u64,
    /// The clock that was read: "tsc" or "clock_monotonic_raw".
    pub clock: &'static str,
    /// The gaps of each processor.
    pub measurement: Measurement,
    /// Common causes of the gaps.
    pub causes: GapCauses,
    /// Changes of the kernel's counters during the measurement.
    pub counters: CounterChanges,
    /// System settings that affect gaps.
    pub facts: Vec<Fact>,
    /// The conclusions, one sentence each.
    pub sentences: Vec<String>,
}

impl Report {
    /// Returns the report as text, page and JSON.
    #[must_use]
    pub fn findings(&self) -> Findings {
        let cores = &self.measurement.cores;
        let seconds = cores.first().map_or(0.0, |core| core.measured_ns as f64 / 1e9);
        Findings {
            title: "Gaps of the processors".to_owned(),
            summary: format!(
                "{} processors for {seconds:.2} s each; a gap is {} and more between two looks at the clock ({}, {:.3} MHz)",
                cores.len(),
                time(self.threshold_ns),
                self.clock,
                self.measurement.clock_hz as f64 / 1e6
            ),
            sections: vec![self.sizes(), self.causes(), self.counters(), self.system()],
            json: self.json(),
            clean: true,
            ..Findings::default()
        }
    }

    fn sizes(&self) -> Section {
        let cores = &self.measurement.cores;
        let classes = shown_classes(cores);
        let mut head = vec!["processor".to_owned()];
        head.extend(classes.iter().map(|&class| CLASS_TITLES[class].to_owned()));
        head.extend(["largest", "at", "time lost", "others ran"].map(str::to_owned));
        let rows = cores.iter().map(|core| {
            let mut row = vec![core.cpu.to_string()];
            row.extend(classes.iter().map(|&class| {
                let count = core.tally.classes[class];
                if count.gaps == 0 {
                    "-".to_owned()
                } else {
                    format!("{} = {}", count.gaps, time(count.total_ns))
                }
            }));
            let largest = core.tally.largest;
            row.push(largest.map_or("-".to_owned(), |gap| time(gap.length_ns)));
            row.push(largest.map_or("-".to_owned(), |gap| format!("{:.3} s", gap.start_ns as f64 / 1e9)));
            row.push(format!("{:.3} %", lost_share(core) * 100.0));
            row.push(core.waited_ns.map_or("unknown".to_owned(), time));
            row
        });
        Section {
            heading: "Gaps by length".to_owned(),
            text: "How many, and how long together. Others ran: other threads that the scheduler let run there, part of the time lost."
                .to_owned(),
            table: Table { head, rows: rows.collect() },
            charts: vec![self.distribution(), self.timeline_chart()],
        }
    }

    fn causes(&self) -> Section {
        let mut table = Table::new(&[
            "processor",
            "ticks, Hz",
            "seen at",
            "ticks, median",
            "stopped with all others",
            "for",
        ]);
        let common_stops = &self.causes.common_stops;
        let total = time(common_stops.iter().map(|moment| moment.length_ns).sum());
        for (core, ticks) in self.measurement.cores.iter().zip(&self.causes.ticks) {
            let each = |what: fn(&Tick) -> String| {
                if ticks.is_empty() {
                    "-".to_owned()
                } else {
                    ticks.iter().map(what).collect::<Vec<_>>().join(" + ")
                }
            };
            let hz = each(|tick| tick.hz.to_string());
            let present = each(|tick| format!("{:.0} %", tick.present * 100.0));
            let median = each(|tick| time(tick.median_ns));
            let (count, total) = match common_stops.len() {
                0 => ("0".to_owned(), "-".to_owned()),
                count => (format!("{count} ({:.1} by chance)", self.causes.by_chance), total.clone()),
            };
            table.rows.push(vec![core.cpu.to_string(), hz, present, median, count, total]);
        }
        let text = if self.sentences.is_empty() {
            "Nothing that these gaps have in common.".to_owned()
        } else {
            self.sentences.join("\n  ")
        };
        Section { heading: "What they have in common".to_owned(), text, table, charts: Vec::new() }
    }

    fn counters(&self) -> Section {
        let mut head = vec!["counted meanwhile".to_owned()];
        head.extend(self.measurement.cores.iter().map(|core| format!("processor {}", core.cpu)));
        let counted = &self.counters;
        let mut table = Table { head, rows: Vec::new() };
        let mut missing = Vec::new();
        let mut row = |title: &str, values: Result<Vec<String>, String>| match values {
            Ok(values) => table.rows.push([vec![title.to_owned()], values].concat()),
            Err(why) => missing.push(format!("{title}: {why}.")),
        };
        let numbers = |values: &Result<Vec<u64>, String>| {
            values.clone().map(|values| values.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        row("interrupts", numbers(&counted.interrupts));
        row("of the local timer", numbers(&counted.timer_interrupts));
        row("management interrupts", numbers(&counted.management_interrupts));
        row("steal", counted.steal_ms.clone().map(|all| all.iter().map(|ms| format!("{ms} ms")).collect()));
        row(
            "ksoftirqd ran",
            counted.ksoftirqd_ns.clone().map(|all| all.iter().map(|&ns| time(ns)).collect()),
        );
        for (title, value) in [
            ("softnet processed", (|one| one.processed) as fn(&super::counters::Softnet) -> u64),
            ("softnet dropped", |one| one.dropped),
            ("softnet time_squeeze", |one| one.time_squeeze),
        ] {
            let values = counted.softnet.clone();
            row(title, values.map(|all| all.iter().map(|one| value(one).to_string()).collect()));
        }
        let text = missing.join("\n  ");
        Section { heading: "What the kernel counted".to_owned(), text, table, charts: Vec::new() }
    }

    fn system(&self) -> Section {
        let mut table = Table::new(&["setting", "says"]);
        let mut missing = Vec::new();
        for fact in &self.facts {
            match (&fact.value, &fact.unreadable) {
                (Some(value), _) => table.rows.push(vec![fact.title.to_owned(), value.clone()]),
                (None, why) => {
                    missing.push(format!("{}: {}.", fact.title, why.as_deref().unwrap_or("unknown")));
                }
            }
        }
        let text = missing.join("\n  ");
        Section { heading: "What the system tells".to_owned(), text, table, charts: Vec::new() }
    }

    /// Plots, by length, the number of gaps per second that are at least that long.
    fn distribution(&self) -> Chart {
        let longest =
            self.measurement.cores.iter().filter_map(|core| core.tally.largest).map(|gap| gap.length_ns);
        let ends = [self.threshold_ns as f64, longest.max().unwrap_or(self.threshold_ns) as f64 * 1.1];
        let place = |ns: f64| (ns / ends[0]).ln() / (ends[1] / ends[0]).ln();
        let curve = |(index, core): (usize, &Core)| Curve {
            label: format!("processor {}", core.cpu),
            class: format!("s{}", index % COLOURS),
            is_reference: false,
            points: at_least(&core.gaps, ends)
                .into_iter()
                .map(|(ns, count)| {
                    let y = count as f64 * 1e9 / core.measured_ns.max(1) as f64;
                    Point {
                        x: place(ns),
                        y,
                        title: format!("{y:.2} a second of {} and more", time(ns as u64)),
                    }
                })
                .collect(),
        };
        let decades =
            (0..10).map(|power| 100.0 * 10f64.powi(power)).filter(|ns| (ends[0]..=ends[1]).contains(ns));
        Chart {
            x_title: "Length of a gap".to_owned(),
            y_title: "Gaps per second of this length and more".to_owned(),
            scale: Scale::Log,
            x_ticks: decades.map(|ns| (place(ns), time(ns as u64))).collect(),
            curves: self.measurement.cores.iter().enumerate().map(curve).collect(),
        }
    }

    /// Plots the longest gap in each part of the measurement.
    fn timeline_chart(&self) -> Chart {
        let end_ns = self.measurement.spans.last().map_or(1, |&(_, end)| end).max(1);
        let curve = |(index, core): (usize, &Core)| Curve {
            label: format!("processor {}", core.cpu),
            class: format!("s{}", index % COLOURS),
            is_reference: false,
            points: longest_of_parts(&core.gaps, end_ns)
                .into_iter()
                .map(|gap| Point {
                    x: (gap.start_ns as f64 / end_ns as f64).min(1.0),
                    y: gap.length_ns as f64 / 1e3,
                    title: format!("{} at {:.3} s", time(gap.length_ns), gap.start_ns as f64 / 1e9),
                })
                .collect(),
        };
        let tick =
            |part: u32| (f64::from(part) / 4.0, format!("{:.2} s", end_ns as f64 / 4e9 * f64::from(part)));
        Chart {
            x_title: "Time".to_owned(),
            y_title: "Longest gap of a hundredth of the time, us".to_owned(),
            scale: Scale::Log,
            x_ticks: (0..=4).map(tick).collect(),
            curves: self.measurement.cores.iter().enumerate().map(curve).collect(),
        }
    }

    fn json(&self) -> Value {
        let cores = self.measurement.cores.iter().zip(&self.causes.ticks).map(|(core, ticks)| {
            let classes: Map<String, Value> = CLASSES
                .iter()
                .zip(&core.tally.classes)
                .map(|((name, _), count)| ((*name).to_owned(), json!(count)))
                .collect();
            json!({
                "cpu": core.cpu,
                "measured_ns": core.measured_ns,
                "gaps": core.tally.sum().gaps,
                "lost_ns": core.tally.sum().total_ns,
                "lost_share": lost_share(core),
                "others_ran_ns": core.waited_ns,
                "largest": core.tally.largest,
                "classes": classes,
                "ticks": ticks,
                "not_told_apart": core.unkept,
            })
        });
        let counted = &self.counters;
        let facts: Map<String, Value> = self
            .facts
            .iter()
            .map(|fact| {
                (fact.name.to_owned(), value_or_reason(fact.value.clone().ok_or(fact.unreadable.clone())))
            })
            .collect();
        json!({
            "threshold_ns": self.threshold_ns,
            "clock": self.clock,
            "clock_hz": self.measurement.clock_hz,
            "cores": cores.collect::<Vec<_>>(),
            "together": {
                "count": self.causes.common_stops.len(),
                "total_ns": self.causes.common_stops.iter().map(|moment| moment.length_ns).sum::<u64>(),
                "by_chance": self.causes.by_chance,
                "longest": longest(&self.causes),
            },
            "counted": {
                "steal_ms": value_or_reason(counted.steal_ms.clone()),
                "softnet": value_or_reason(counted.softnet.clone()),
                "ksoftirqd_ns": value_or_reason(counted.ksoftirqd_ns.clone()),
                "interrupts": value_or_reason(counted.interrupts.clone()),
                "timer_interrupts": value_or_reason(counted.timer_interrupts.clone()),
                "management_interrupts": value_or_reason(counted.management_interrupts.clone()),
            },
            "system": facts,
            "says": self.sentences,
        })
    }
}

/// Number of colours available for curves on a page.
const COLOURS: usize = 8;

/// Maximum number of stops to list; the longest ones are listed.
const LONGEST: usize = 100;

fn longest(causes: &GapCauses) -> Value {
    let mut moments = causes.common_stops.clone();
    moments.sort_by_key(|moment| std::cmp::Reverse(moment.length_ns));
    moments.truncate(LONGEST);
    json!(moments)
}

/// Returns `{"value": ...}`, or `{"unreadable": why}`.
fn value_or_reason<T: serde::Serialize, E: serde::Serialize>(result: Result<T, E>) -> Value {
    match result {
        Ok(value) => json!({ "value": value }),
        Err(why) => json!({ "unreadable": why }),
    }
}

/// Number of points of a curve.
const POINTS: u32 = 60;

/// Returns, for a series of lengths, the number of gaps of at least that length. Lengths without gaps are
/// left out.
fn at_least(gaps: &[Gap], [shortest, longest]: [f64; 2]) -> Vec<(f64, usize)> {
    let mut lengths: Vec<u64> = gaps.iter().map(|gap| gap.length_ns).collect();
    lengths.sort_unstable();
    let ratio = (longest / shortest).max(1.0);
    (0..POINTS)
        .map(|point| shortest * ratio.powf(f64::from(point) / f64::from(POINTS)))
        .map(|ns| (ns, lengths.len() - lengths.partition_point(|&length| (length as f64) < ns)))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// Returns the longest gap in each hundredth of the time that contains gaps.
fn longest_of_parts(gaps: &[Gap], end_ns: u64) -> Vec<Gap> {
    let part = |gap: &Gap| u128::from(gap.start_ns) * 100 / u128::from(end_ns);
    gaps.chunk_by(|one, other| part(one) == part(other))
        .filter_map(|gaps| gaps.iter().max_by_key(|gap| gap.length_ns))
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jitter::counters::{Counters, Softnet};
    use crate::jitter::explain::{conclusions, explain};
    use crate::jitter::system::facts;
    use crate::machine::fake_root::FakeRoot;

    fn gap(start_ns: u64, length_ns: u64) -> Gap {
        Gap { start_ns, length_ns }
    }

    #[test]
    fn longer_gaps_are_fewer_and_the_longest_of_a_part_stands_for_it() {
        let gaps = [gap(0, 1_000), gap(5_000, 50_000), gap(900_000, 2_000)];
        let points = at_least(&gaps, [1_000.0, 55_000.0]);
        assert_eq!(points.first(), Some(&(1_000.0, 3)));
        assert_eq!(points.last().map(|(_, count)| *count), Some(1));
        assert!(points.windows(2).all(|pair| pair[0].1 >= pair[1].1));
        assert_eq!(longest_of_parts(&gaps, 1_000_000), [gaps[1], gaps[2]]);
    }

    #[test]
    fn a_report_has_everything_and_says_what_is_missing() {
        let mut core = Core { cpu: 3, measured_ns: 1_000_000_000, waited_ns: None, ..Core::default() };
        core.gaps = vec![gap(5_000, 30_000), gap(500_000_000, 12_000_000)];
        core.gaps.iter().for_each(|gap| core.tally.add(*gap));
        let measure =
            Measurement { cores: vec![core], spans: vec![(0, 1_000_000_000)], clock_hz: 2_000_000_000 };
        let root = FakeRoot::new(&[]).root();
        let counters = Counters::read(&root, &[3]);
        let mut counted = counters.until(&counters);
        counted.softnet = Ok(vec![Softnet { processed: 9, dropped: 0, time_squeeze: 4 }]);
        let explained = explain(&measure);
        let report = Report {
            threshold_ns: 1_000,
            clock: "tsc",
            sentences: conclusions(&measure, &explained, &counted, false),
            measurement: measure,
            causes: explained,
            counters: counted,
            facts: facts(&root),
        };
        let findings = report.findings();
        let text = findings.text();
        for part in [
            "1 = 12.0 ms",
            "0.500 s",
            "1.203 %",
            "time_squeeze",
            "left work undone 4 times",
            "no /proc/stat",
            "unknown",
        ] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        let json = &findings.json;
        assert_eq!(json["cores"][0]["classes"]["10ms_and_more"]["gaps"], 1);
        assert_eq!(json["counted"]["softnet"]["value"][0]["time_squeeze"], 4);
        assert_eq!(json["counted"]["steal_ms"]["unreadable"], "there is no /proc/stat");
        assert!(json["system"]["governor"]["unreadable"].is_string());
        let page = findings.page();
        assert_eq!(page.matches("<svg class=\"wide\"").count(), 2);
        assert!(!page.contains("NaN") && page.contains("processor 3"), "{page}");
    }
}
