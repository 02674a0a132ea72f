//! The table of all cells: Homa's main metrics, with published values.

use homa_bench::tcp::Congestion;
use homa_report::findings::{Section, Table};
use homa_report::number::{ratio, short_number};
use homa_workload::BinSummary;
use serde::Serialize;

use super::{Cell, ContenderRuns, ContenderTotal, Plan, Repetition};

/// The row of a cell.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Entry {
    /// The workload, by its name.
    pub workload: String,
    /// Buffer of each port of the switch.
    pub buffer: String,
    /// Rate of every link, in bits per second.
    pub rate_bps: u64,
    /// Homa's figures.
    pub homa: ContenderFigures,
    /// The figures of TCP with each congestion control.
    pub tcp: Vec<Rival>,
    /// Published figures of Linux Homa for this workload.
    pub published: Option<Published>,
}

/// The figures of a contender over all repetitions.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ContenderFigures {
    /// Mean slowdown of all messages.
    pub slowdown_mean: f64,
    /// The largest 1 % of the messages; `None` if the workload has no such row.
    pub largest: Option<BinSummary>,
    /// See [`Run::completed_fraction`](homa_bench::compare::results::Run::completed_fraction).
    pub answered_share: Option<f64>,
    /// Average number of processors kept busy by all processes.
    pub cores_busy: f64,
}

/// The figures of one TCP variant, and its ratios to Homa.
#[derive(Clone, Debug, Serialize)]
pub struct Rival {
    /// Congestion control.
    pub congestion: Option<Congestion>,
    /// Display name.
    #[serde(skip)]
    pub title: String,
    /// Median round trip of short messages, divided by Homa's.
    pub short_p50_ratio: Option<Spread>,
    /// 99th percentile of the round trips of short messages, divided by Homa's.
    pub short_p99_ratio: Option<Spread>,
    /// The contender's own figures.
    #[serde(flatten)]
    pub numbers: ContenderFigures,
}

/// Median and range of a value over the repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median; for an even number of values, the mean of the middle two.
    pub median: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
    /// Number of repetitions with a value.
    pub count: usize,
}

/// Published ratios of TCP's round trips of short messages to Homa's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Published {
    /// Ratio of the medians.
    pub short_p50_ratio: f64,
    /// Ratio of the 99th percentiles.
    pub short_p99_ratio: f64,
}

/// Figures of the ATC 2021 paper by workload, with messages of at most 1 MB.
const PUBLISHED: [(&str, Published); 4] = [
    ("w2", Published { short_p50_ratio: 3.5, short_p99_ratio: 72.0 }),
    ("w3", Published { short_p50_ratio: 4.6, short_p99_ratio: 52.0 }),
    ("w4", Published { short_p50_ratio: 7.5, short_p99_ratio: 19.0 }),
    ("w5", Published { short_p50_ratio: 6.9, short_p99_ratio: 31.0 }),
];

impl Published {
    /// Returns the published figures for a workload, or `None` if there are none.
    pub fn of(workload: &str) -> Option<Published> {
        PUBLISHED.iter().find(|(name, _)| *name == workload).map(|&(_, published)| published)
    }
}

impl Spread {
    /// Returns the spread of these values, or `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let median = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Spread { median, min, max, count: values.len() })
    }

    fn cells(spread: Option<Spread>) -> [String; 2] {
        let Some(Spread { median, min, max, count }) = spread else { return ["-", "-"].map(str::to_owned) };
        let range = if count > 1 {
            format!("{} to {}", short_number(min), short_number(max))
        } else {
            "-".to_owned()
        };
        [short_number(median), range]
    }
}

impl ContenderFigures {
    fn of(ran: &ContenderRuns, total: &ContenderTotal) -> ContenderFigures {
        let run = &ran.run;
        ContenderFigures {
            slowdown_mean: run.slowdown_mean,
            largest: run.bins.last().filter(|_| run.largest_row).cloned(),
            answered_share: run.completed_fraction,
            cores_busy: total.machine().cores_busy,
        }
    }
}

impl Entry {
    /// Computes the row of a cell. The first contender must be Homa.
    pub fn of(
        cell: &Cell,
        plan: &Plan<'_>,
        runs: &[ContenderRuns],
        totals: &[ContenderTotal],
        all: &[Repetition],
    ) -> Entry {
        let rival = |(index, (ran, total)): (usize, (&ContenderRuns, &ContenderTotal))| {
            let spread = |value: fn(&Repetition) -> f64| {
                let pairs =
                    all.chunks_exact(runs.len()).map(|these| (value(&these[index]), value(&these[0])));
                Spread::of(pairs.filter(|&(tcp, homa)| tcp > 0.0 && homa > 0.0).map(|(tcp, homa)| tcp / homa))
            };
            Rival {
                congestion: ran.congestion,
                title: ran.contender.title.clone(),
                short_p50_ratio: spread(|one| one.short.p50_us),
                short_p99_ratio: spread(|one| one.short.p99_us),
                numbers: ContenderFigures::of(ran, total),
            }
        };
        Entry {
            workload: plan.workload.name().to_owned(),
            buffer: cell.options.common.build.buffer.clone(),
            rate_bps: plan.spec.rate_bps,
            homa: ContenderFigures::of(&runs[0], &totals[0]),
            tcp: runs.iter().zip(totals).enumerate().skip(1).map(rival).collect(),
            published: Published::of(plan.workload.name()),
        }
    }

    fn name(&self) -> String {
        format!("{}, {}", self.workload, self.buffer)
    }

    /// Returns the figures of all contenders, with their titles.
    fn columns(&self) -> impl Iterator<Item = (&str, &ContenderFigures)> {
        let tcp = self.tcp.iter().map(|rival| (rival.title.as_str(), &rival.numbers));
        [("Homa", &self.homa)].into_iter().chain(tcp)
    }
}

/// Renders the table, divided into parts that fit the width of a terminal. All cells must have the same
/// contenders.
pub fn sections(entries: &[&Entry]) -> Vec<Section> {
    let section = |heading: &str, text: &str, table: Table| Section {
        heading: heading.to_owned(),
        text: text.to_owned(),
        table,
        charts: Vec::new(),
    };
    vec![
        section(
            "Short messages: TCP / Homa",
            "Round trips of TCP over those of Homa, in each repetition: the median, and the range beside it. Published: Linux Homa, USENIX \
             ATC 2021, 40 hosts at 25 Gbit/s",
            shorts(entries),
        ),
        section(
            "Slowdown of all messages, and of the largest 1 %",
            "All repetitions together; count: samples of the largest 1 %",
            slowdowns(entries),
        ),
        section(
            "Answered, and processors busy",
            "Answered: the share of the offered bytes. Busy processors include those of other processes",
            conditions(entries),
        ),
    ]
}

fn shorts(entries: &[&Entry]) -> Table {
    let mut table = Table::new(&["workload, buffer", "Mbit/s"]);
    for rival in entries.first().iter().flat_map(|entry| &entry.tcp) {
        for name in ["P50", "P99"] {
            table.head.extend([format!("{} {name}", rival.title), "range".to_owned()]);
        }
    }
    table.head.extend(["published P50", "P99"].map(str::to_owned));
    for entry in entries {
        let mut cells = vec![entry.name(), (entry.rate_bps / 1_000_000).to_string()];
        for rival in &entry.tcp {
            cells.extend(Spread::cells(rival.short_p50_ratio));
            cells.extend(Spread::cells(rival.short_p99_ratio));
        }
        let published = |value: fn(Published) -> f64| {
            entry.published.map_or("-".to_owned(), |published| value(published).to_string())
        };
        cells.extend([published(|it| it.short_p50_ratio), published(|it| it.short_p99_ratio)]);
        table.rows.push(cells);
    }
    table
}

fn slowdowns(entries: &[&Entry]) -> Table {
    let mut table = Table::new(&["workload, buffer"]);
    let titles = || entries.first().into_iter().flat_map(|entry| entry.columns()).map(|(title, _)| title);
    for name in ["mean", "largest count", "largest mean", "largest P99"] {
        table.head.extend(titles().map(|title| format!("{title} {name}")));
    }
    let largest = |numbers: &ContenderFigures, value: fn(&BinSummary) -> String| {
        numbers.largest.as_ref().filter(|bin| bin.count > 0).map_or("-".to_owned(), value)
    };
    for entry in entries {
        let mut cells = vec![entry.name()];
        cells.extend(entry.columns().map(|(_, numbers)| ratio(numbers.slowdown_mean, 1.0)));
        let values: [fn(&BinSummary) -> String; 3] = [
            |bin| bin.count.to_string(),
            |bin| short_number(bin.slowdown_mean),
            |bin| short_number(bin.slowdown_p99),
        ];
        for value in values {
            cells.extend(entry.columns().map(|(_, numbers)| largest(numbers, value)));
        }
        table.rows.push(cells);
    }
    table
}

fn conditions(entries: &[&Entry]) -> Table {
    let mut table = Table::new(&["workload, buffer"]);
    let titles = || entries.first().into_iter().flat_map(|entry| entry.columns()).map(|(title, _)| title);
    for name in ["answered", "processors"] {
        table.head.extend(titles().map(|title| format!("{title} {name}")));
    }
    for entry in entries {
        let mut cells = vec![entry.name()];
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        cells.extend(
            entry.columns().map(|(_, numbers)| numbers.answered_share.map_or("-".to_owned(), percent)),
        );
        cells.extend(entry.columns().map(|(_, numbers)| format!("{:.2}", numbers.cores_busy)));
        table.rows.push(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(slowdown_mean: f64, largest: Option<u64>) -> ContenderFigures {
        let largest = largest.map(|count| BinSummary {
            max_bytes: 1_000_000,
            count,
            slowdown_mean: 2.5,
            slowdown_p50: 0.0,
            slowdown_p99: 9.0,
            slowdown_p999: 0.0,
            rtt_p50_us: 0.0,
            rtt_p99_us: 0.0,
        });
        ContenderFigures { slowdown_mean, largest, answered_share: Some(0.995), cores_busy: 1.25 }
    }

    fn entry(workload: &str, largest: Option<u64>) -> Entry {
        let rival = |congestion: Congestion| Rival {
            congestion: Some(congestion),
            title: format!("TCP {}", congestion.name()),
            short_p50_ratio: Spread::of([4.0, 3.0]),
            short_p99_ratio: Spread::of([]),
            numbers: numbers(30.0, largest),
        };
        Entry {
            workload: workload.to_owned(),
            buffer: "1ms".to_owned(),
            rate_bps: 20_000_000,
            homa: numbers(3.0, largest),
            tcp: vec![rival(Congestion::Cubic), rival(Congestion::Bbr)],
            published: Published::of(workload),
        }
    }

    #[test]
    fn a_spread_is_the_median_and_the_ends() {
        assert_eq!(Spread::of([]), None);
        let of = |median, min, max, count| Some(Spread { median, min, max, count });
        assert_eq!(Spread::of([5.0, 1.0, 4.0]), of(4.0, 1.0, 5.0, 3));
        assert_eq!(Spread::of([1.0, 4.0]), of(2.5, 1.0, 4.0, 2));
        assert_eq!(Spread::cells(Spread::of([25.0, 20.0, 300.0])), ["25.0", "20.0 to 300"]);
        assert_eq!(Spread::cells(Spread::of([25.0])), ["25.0", "-"]);
    }

    #[test]
    fn a_row_has_each_tcp_beside_homa_and_what_was_published() {
        let (first, second) = (entry("w2", Some(212)), entry("100", None));
        let [shorts, slowdowns, conditions] = &sections(&[&first, &second])[..] else { panic!("parts") };
        let row = |section: &Section, row: usize| section.table.rows[row].join("|");
        assert_eq!(
            shorts.table.head.join("|"),
            "workload, buffer|Mbit/s|TCP cubic P50|range|TCP cubic P99|range|TCP bbr P50|range|TCP bbr P99|range|published P50|P99"
        );
        assert_eq!(row(shorts, 0), "w2, 1ms|20|3.50|3.00 to 4.00|-|-|3.50|3.00 to 4.00|-|-|3.5|72");
        assert_eq!(row(shorts, 1), "100, 1ms|20|3.50|3.00 to 4.00|-|-|3.50|3.00 to 4.00|-|-|-|-");
        assert_eq!(row(slowdowns, 0), "w2, 1ms|3.00|30.0|30.0|212|212|212|2.50|2.50|2.50|9.00|9.00|9.00");
        assert_eq!(row(slowdowns, 1), "100, 1ms|3.00|30.0|30.0|-|-|-|-|-|-|-|-|-");
        assert_eq!(row(conditions, 0), "w2, 1ms|99.5 %|99.5 %|99.5 %|1.25|1.25|1.25");
        for section in [shorts, slowdowns, conditions] {
            let width = section.table.head.len();
            assert!(section.table.rows.iter().all(|row| row.len() == width), "{}", section.heading);
        }
    }
}
