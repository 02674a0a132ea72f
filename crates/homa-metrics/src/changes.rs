//! Changes between two scrapes.

use std::collections::HashMap;
use std::fmt::Write;

use serde::{Serialize, Serializer};

use crate::format::{duration, histogram_as_json, labels_as_json, named, plain, tail};
use crate::histogram::Histogram;
use crate::scrape::Scrape;
use crate::text::{Family, Labels, Sample, Snapshot};

/// Name and labels of a sample.
type Key<'a> = (&'a str, &'a [(String, String)]);

/// The metric with the time since a host was created.
const UPTIME: &str = "homa_uptime_seconds";

/// The change of one metric for one set of labels.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The name of the metric, which ends in the unit.
    pub name: String,
    /// The labels.
    #[serde(serialize_with = "by_name")]
    pub labels: Labels,
    /// "counter", "gauge" or "histogram".
    pub kind: String,
    /// "s", "B", "bit/s", or empty.
    pub unit: String,
    /// The meaning of the metric.
    pub help: String,
    /// The later value; for a histogram, the number of values it contains.
    pub now: f64,
    /// The increase; for a counter that went back, the whole later value.
    pub difference: f64,
    /// The increase per second, for counters and histograms.
    pub per_second: Option<f64>,
    /// For a counter of seconds: its increase divided by the elapsed time.
    pub utilisation: Option<f64>,
    /// Whether the counter is lower than before, which means that its process restarted.
    pub went_back: bool,
    /// The values added to a histogram.
    #[serde(rename = "times", skip_serializing_if = "Option::is_none", serialize_with = "distribution")]
    pub histogram: Option<Histogram>,
}

/// The changes between two scrapes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Changes {
    /// Version of this JSON format.
    pub schema: u32,
    /// Elapsed time in seconds, or the time since a restart; `None` if unknown.
    pub seconds: Option<f64>,
    /// Whether there was no earlier scrape, so that the changes are since the start of the process.
    pub since_start: bool,
    /// Hosts whose process restarted between the scrapes. Their changes are since the restart.
    pub restarted: Vec<String>,
    /// The metrics that changed, in the order of the later scrape.
    pub metrics: Vec<Change>,
}

/// Compares two scrapes. Without an earlier scrape, the changes are since the start of the process.
#[must_use]
pub fn between(before: Option<&Scrape>, now: &Scrape) -> Changes {
    let earlier = EarlierScrape::of(before, now);
    let mut metrics = Vec::new();
    for family in &now.snapshot.families {
        if family.name == UPTIME {
            continue;
        }
        if family.kind == "histogram" {
            let all = Histogram::all(family);
            metrics.extend(all.iter().filter_map(|(labels, times)| earlier.times(family, labels, times)));
        } else {
            metrics.extend(family.samples.iter().filter_map(|sample| earlier.number(family, sample)));
        }
    }
    Changes {
        schema: 1,
        seconds: earlier.seconds,
        since_start: before.is_none(),
        restarted: earlier.restarted.clone(),
        metrics,
    }
}

/// The values of the earlier scrape, and the time that has elapsed since then.
struct EarlierScrape<'a> {
    values: HashMap<Key<'a>, f64>,
    histograms: Vec<(&'a str, Labels, Histogram)>,
    /// For each host that reports its uptime, seconds since the earlier scrape or since a restart.
    seconds_of: HashMap<String, f64>,
    seconds: Option<f64>,
    restarted: Vec<String>,
}

impl<'a> EarlierScrape<'a> {
    fn of(before: Option<&'a Scrape>, now: &Scrape) -> EarlierScrape<'a> {
        let families = before.map_or(&[][..], |before| &before.snapshot.families);
        let mut values = HashMap::new();
        let mut histograms = Vec::new();
        for family in families {
            if family.kind == "histogram" {
                let all = Histogram::all(family).into_iter();
                histograms.extend(all.map(|(labels, times)| (family.name.as_str(), labels, times)));
            } else {
                values.extend(
                    family.samples.iter().map(|one| ((one.name.as_str(), &one.labels[..]), one.value)),
                );
            }
        }
        let mut restarted: Vec<String> = Vec::new();
        for sample in counters(&now.snapshot) {
            let then = values.get(&(sample.name.as_str(), &sample.labels[..])).copied();
            let host = sample.label("host").unwrap_or_default();
            if then.is_some_and(|then| sample.value < then) && !restarted.iter().any(|other| other == host) {
                restarted.push(host.to_owned());
            }
        }
        let mut seconds_of = HashMap::new();
        for sample in samples_of(&now.snapshot, UPTIME) {
            let then = values.get(&(UPTIME, &sample.labels[..])).copied().unwrap_or(0.0);
            let host = sample.label("host").unwrap_or_default().to_owned();
            if sample.value < then && !restarted.contains(&host) {
                restarted.push(host.clone());
            }
            let since = if restarted.contains(&host) { sample.value } else { sample.value - then };
            seconds_of.insert(host, since);
        }
        let by_clock = before.and_then(|before| Some(now.at? - before.at?)).filter(|seconds| *seconds > 0.0);
        // Uptimes are exact. The longest belongs to a host that was up the whole time, if there is one.
        let by_hosts = seconds_of.values().copied().reduce(f64::max);
        let seconds = match before {
            Some(_) if restarted.is_empty() => by_hosts.or(by_clock),
            Some(_) => by_clock.or(by_hosts),
            None => by_hosts,
        };
        // The process's own metrics restarted together with its hosts.
        if !restarted.is_empty() {
            seconds_of.entry(String::new()).or_insert_with(|| by_hosts.or(by_clock).unwrap_or_default());
        }
        restarted.retain(|host| !host.is_empty());
        EarlierScrape { values, histograms, seconds_of, seconds, restarted }
    }

    /// Returns the elapsed time for a metric with these labels, in seconds.
    fn seconds(&self, labels: &[(String, String)]) -> Option<f64> {
        let host = labels.iter().find(|(name, _)| name == "host").map_or("", |(_, host)| host.as_str());
        self.seconds_of.get(host).copied().or(self.seconds).filter(|seconds| *seconds > 0.0)
    }

    fn is_of_restarted(&self, labels: &[(String, String)]) -> bool {
        labels.iter().any(|(name, host)| name == "host" && self.restarted.contains(host))
    }

    fn number(&self, family: &Family, sample: &Sample) -> Option<Change> {
        let then = self.values.get(&(sample.name.as_str(), &sample.labels[..])).copied().unwrap_or(0.0);
        let counted = family.kind == "counter";
        let went_back = counted && sample.value < then;
        let anew = went_back || (counted && self.is_of_restarted(&sample.labels));
        let difference = if anew { sample.value } else { sample.value - then };
        // This is also false for NaN.
        let changed = difference.abs() > 0.0;
        let seconds = self.seconds(&sample.labels);
        let per_second = seconds.filter(|_| counted).map(|seconds| difference / seconds);
        changed.then(|| Change {
            per_second,
            utilisation: per_second.filter(|_| family.unit() == "s"),
            went_back,
            now: sample.value,
            difference,
            ..Change::of(family, &sample.labels)
        })
    }

    fn times(&self, family: &Family, labels: &[(String, String)], now: &Histogram) -> Option<Change> {
        let then = self.histograms.iter().find(|(name, other, _)| *name == family.name && other == labels);
        let then = then.filter(|_| !self.is_of_restarted(labels)).map(|(.., then)| then);
        let since = then.map_or_else(|| Some(now.clone()), |then| now.since(then));
        let went_back = since.is_none();
        let since = since.unwrap_or_else(|| now.clone());
        (since.count() > 0.0).then(|| Change {
            now: now.count(),
            difference: since.count(),
            per_second: self.seconds(labels).map(|seconds| since.count() / seconds),
            went_back,
            histogram: Some(since.clone()),
            ..Change::of(family, labels)
        })
    }
}

impl Change {
    fn of(family: &Family, labels: &[(String, String)]) -> Change {
        Change {
            name: family.name.clone(),
            labels: labels.to_vec(),
            kind: family.kind.clone(),
            unit: family.unit().to_owned(),
            help: family.help.clone(),
            now: 0.0,
            difference: 0.0,
            per_second: None,
            utilisation: None,
            went_back: false,
            histogram: None,
        }
    }
}

fn counters(snapshot: &Snapshot) -> impl Iterator<Item = &Sample> {
    snapshot.families.iter().filter(|family| family.kind == "counter").flat_map(|family| &family.samples)
}

fn samples_of<'s>(snapshot: &'s Snapshot, name: &'s str) -> impl Iterator<Item = &'s Sample> {
    snapshot.families.iter().filter(move |family| family.name == name).flat_map(|family| &family.samples)
}

impl Changes {
    /// Formats the changes as a table.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for host in &self.restarted {
            let _ = writeln!(
                text,
                "{host} was restarted in between (counters decreased): its numbers are since the restart"
            );
        }
        match self.seconds {
            Some(seconds) => {
                let _ = writeln!(text, "time in between: {}", duration(seconds));
            }
            None => text.push_str("time in between: unknown, the snapshots do not say\n"),
        }
        if self.metrics.is_empty() {
            text.push_str("nothing changed\n");
            return text;
        }
        let head = ["", "now", "change", "per second", "share", "unit", ""].map(str::to_owned);
        let lines: Vec<[String; 7]> = std::iter::once(head).chain(self.metrics.iter().map(line)).collect();
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..6).map(width).collect();
        for [name, now, difference, rate, share, unit, help] in &lines {
            let line = format!(
                "{name:a$}  {now:>b$}  {difference:>c$}  {rate:>d$}  {share:>e$}  {unit:f$}  {help}",
                a = widths[0],
                b = widths[1],
                c = widths[2],
                d = widths[3],
                e = widths[4],
                f = widths[5],
            );
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }
}

/// Formats the table cells for one change.
fn line(change: &Change) -> [String; 7] {
    let help = match (&change.histogram, change.went_back) {
        (Some(times), _) => tail(times, &change.unit),
        (None, true) => format!("(went back: since then) {}", change.help),
        (None, false) => change.help.clone(),
    };
    let unit = if change.histogram.is_some() { "times".to_owned() } else { change.unit.clone() };
    let sign = if change.difference > 0.0 { "+" } else { "" };
    [
        named(&change.name, &change.labels),
        plain(change.now),
        format!("{sign}{}", plain(change.difference)),
        change.per_second.map(plain).unwrap_or_default(),
        change.utilisation.map(|share| format!("{:.1} %", share * 100.0)).unwrap_or_default(),
        unit,
        help,
    ]
}

fn by_name<S: Serializer>(labels: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    labels_as_json(labels).serialize(serializer)
}

fn distribution<S: Serializer>(added: &Option<Histogram>, serializer: S) -> Result<S::Ok, S::Error> {
    added.as_ref().map(|added| histogram_as_json(&[], added)).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrape(uptime: f64, sent: u64, wait: f64, open: u64, short: u64) -> Scrape {
        let text = format!(
            "# TYPE homa_uptime_seconds gauge\nhoma_uptime_seconds{{host=\"a\"}} {uptime}\n\
             # HELP homa_packets_sent_total Sent.\n# TYPE homa_packets_sent_total counter\n\
             homa_packets_sent_total{{host=\"a\"}} {sent}\n\
             # TYPE homa_host_lock_wait_seconds_total counter\n\
             homa_host_lock_wait_seconds_total{{host=\"a\"}} {wait}\n\
             # TYPE homa_host_open_rpcs gauge\nhoma_host_open_rpcs{{host=\"a\"}} {open}\n\
             # TYPE homa_call_seconds histogram\n\
             homa_call_seconds_bucket{{host=\"a\",bytes=\"0-1000\",le=\"0.001\"}} {short}\n\
             homa_call_seconds_bucket{{host=\"a\",bytes=\"0-1000\",le=\"+Inf\"}} {short}\n\
             homa_call_seconds_sum{{host=\"a\",bytes=\"0-1000\"}} 1\n"
        );
        Scrape::parse(text.as_bytes()).expect("metrics")
    }

    fn one<'a>(changes: &'a Changes, name: &str) -> &'a Change {
        changes
            .metrics
            .iter()
            .find(|change| change.name == name)
            .unwrap_or_else(|| panic!("{name}: {changes:?}"))
    }

    #[test]
    fn what_changed_with_rates_and_shares_of_the_time() {
        let changes = between(Some(&scrape(10.0, 100, 1.0, 5, 10)), &scrape(14.0, 500, 3.0, 2, 30));
        assert_eq!((changes.seconds, changes.since_start, changes.restarted.len()), (Some(4.0), false, 0));
        let sent = one(&changes, "homa_packets_sent_total");
        assert_eq!(
            (sent.now, sent.difference, sent.per_second, sent.utilisation),
            (500.0, 400.0, Some(100.0), None)
        );
        assert_eq!(sent.help, "Sent.");
        let wait = one(&changes, "homa_host_lock_wait_seconds_total");
        assert_eq!((wait.unit.as_str(), wait.utilisation), ("s", Some(0.5)));
        let open = one(&changes, "homa_host_open_rpcs");
        assert_eq!((open.now, open.difference, open.per_second), (2.0, -3.0, None));
        let calls = one(&changes, "homa_call_seconds");
        assert_eq!((calls.now, calls.difference, calls.per_second), (30.0, 20.0, Some(5.0)));
        assert_eq!(changes.metrics.len(), 4);
        let same = scrape(10.0, 100, 1.0, 5, 10);
        assert!(between(Some(&same), &same).metrics.is_empty());
    }

    #[test]
    fn a_process_that_began_anew_is_told_and_no_number_is_huge() {
        let changes = between(Some(&scrape(100.0, 1_000, 5.0, 5, 10)), &scrape(2.0, 50, 6.0, 5, 4));
        assert_eq!((changes.restarted, changes.seconds), (vec!["a".to_owned()], Some(2.0)));
        let again = between(Some(&scrape(100.0, 1_000, 5.0, 5, 10)), &scrape(2.0, 50, 6.0, 5, 4));
        let sent = one(&again, "homa_packets_sent_total");
        assert_eq!((sent.difference, sent.per_second, sent.went_back), (50.0, Some(25.0), true));
        // The new host has counted more than its predecessor, but only the values since its own start count.
        assert_eq!(one(&again, "homa_host_lock_wait_seconds_total").difference, 6.0);
        assert_eq!(one(&again, "homa_call_seconds").difference, 4.0);
        let later = between(Some(&scrape(10.0, 1_000, 5.0, 5, 10)), &scrape(20.0, 50, 6.0, 5, 4));
        assert_eq!(
            (later.restarted.len(), one(&later, "homa_packets_sent_total").per_second),
            (1, Some(2.5))
        );
    }

    #[test]
    fn without_an_earlier_one_everything_is_since_the_beginning() {
        let changes = between(None, &scrape(4.0, 100, 0.0, 0, 8));
        assert_eq!((changes.seconds, changes.since_start), (Some(4.0), true));
        assert_eq!(one(&changes, "homa_packets_sent_total").per_second, Some(25.0));
        assert_eq!(changes.metrics.len(), 2);
    }

    #[test]
    fn where_nobody_tells_the_time_there_are_no_rates() {
        let scrape = |value| {
            let text = format!("# TYPE a_total counter\na_total {value}\n");
            Scrape::parse(text.as_bytes()).expect("metrics")
        };
        let changes = between(Some(&scrape(1)), &scrape(5));
        assert_eq!((changes.seconds, changes.metrics[0].difference), (None, 4.0));
        assert_eq!(changes.metrics[0].per_second, None);
    }

    #[test]
    fn a_table_of_what_changed() {
        let scrape = |uptime: u32, sent: u32, wait: f64| {
            let text = format!(
                "homa_uptime_seconds{{host=\"a\"}} {uptime}\n\
                 # HELP homa_sent_total Sent.\n# TYPE homa_sent_total counter\nhoma_sent_total{{host=\"a\"}} {sent}\n\
                 # HELP homa_wait_seconds_total Waited.\n# TYPE homa_wait_seconds_total counter\n\
                 homa_wait_seconds_total{{host=\"a\"}} {wait}\n"
            );
            Scrape::parse(text.as_bytes()).expect("metrics")
        };
        assert_eq!(
            between(Some(&scrape(1, 10, 0.5)), &scrape(3, 1_010, 1.0)).text(),
            "time in between: 2.00 s\n\
             \x20                                   now  change  per second   share  unit\n\
             homa_sent_total{host=\"a\"}          1010   +1000         500                Sent.\n\
             homa_wait_seconds_total{host=\"a\"}     1  +0.500       0.250  25.0 %  s     Waited.\n"
        );
        let anew = between(Some(&scrape(9, 10, 0.5)), &scrape(1, 5, 1.0)).text();
        assert!(anew.starts_with("a was restarted in between"), "{anew}");
        assert!(anew.contains("+5 ") && anew.contains("went back"), "{anew}");
        assert!(
            between(Some(&scrape(1, 1, 1.0)), &scrape(2, 1, 1.0)).text().ends_with("\nnothing changed\n")
        );
    }
}
