//! The key figures of a host between two scrapes.

use std::collections::HashMap;

use serde::Serialize;

use crate::histogram::Histogram;
use crate::text::Snapshot;

/// The label that contains a sample's host.
const HOST: &str = "host";

/// The histograms of call durations and answer times, and their label for message sizes.
const CALLS: &str = "homa_call_seconds";
const ANSWERS: &str = "homa_answer_seconds";
const BYTES: &str = "bytes";

/// The metrics of one host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostMetrics {
    /// Values by name, excluding those of individual peers and buckets.
    values: HashMap<String, f64>,
    calls: BySize,
    answers: BySize,
}

/// Times by message size.
type BySize = Vec<(String, Histogram)>;

impl HostMetrics {
    /// Returns the metrics of each host in a snapshot, in snapshot order, and the metrics of the process.
    pub fn by_host(snapshot: &Snapshot) -> (Vec<(String, HostMetrics)>, HostMetrics) {
        let mut hosts: Vec<(String, HostMetrics)> = Vec::new();
        let mut process = HostMetrics::default();
        for family in &snapshot.families {
            let of_family: Option<fn(&mut HostMetrics) -> &mut BySize> = match family.name.as_str() {
                CALLS => Some(|numbers| &mut numbers.calls),
                ANSWERS => Some(|numbers| &mut numbers.answers),
                _ => None,
            };
            if let Some(times) = of_family {
                for (labels, histogram) in Histogram::all(family) {
                    let of = |label: &str| {
                        labels.iter().find(|(name, _)| name == label).map(|(_, value)| value.clone())
                    };
                    if let (Some(host), Some(bytes)) = (of(HOST), of(BYTES)) {
                        times(entry(&mut hosts, &host)).push((bytes, histogram));
                    }
                }
                continue;
            }
            for sample in &family.samples {
                match &sample.labels[..] {
                    [] => process.values.insert(sample.name.clone(), sample.value),
                    [(label, host)] if label == HOST => {
                        entry(&mut hosts, host).values.insert(sample.name.clone(), sample.value)
                    }
                    _ => None,
                };
            }
        }
        (hosts, process)
    }

    fn value(&self, name: &str) -> f64 {
        self.values.get(name).copied().unwrap_or(0.0)
    }

    /// Returns the time since the host was created, in seconds.
    pub fn uptime(&self) -> f64 {
        self.value("homa_uptime_seconds")
    }
}

fn entry<'a>(hosts: &'a mut Vec<(String, HostMetrics)>, host: &str) -> &'a mut HostMetrics {
    let index = hosts.iter().position(|(other, _)| other == host).unwrap_or_else(|| {
        hosts.push((host.to_owned(), HostMetrics::default()));
        hosts.len() - 1
    });
    &mut hosts[index].1
}

/// Rates of a host between two scrapes, and its state at the later scrape. Times are in seconds and rates are
/// per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// The time between the scrapes.
    pub seconds: f64,
    /// Whether the process restarted between the scrapes. Rates are then since the restart.
    pub restarted: bool,
    /// RPCs currently open, as client or server.
    pub open_rpcs: f64,
    /// Calls that received their response.
    pub calls_per_s: f64,
    /// Calls that failed.
    pub failed_per_s: f64,
    /// Requests handed to the application.
    pub requests_per_s: f64,
    /// Requests answered.
    pub answered_per_s: f64,
    /// Bytes received by the packet path.
    pub bytes_in_per_s: f64,
    /// Bytes sent by the packet path.
    pub bytes_out_per_s: f64,
    /// Granted and unscheduled bytes that have currently not been received.
    pub granted_bytes: f64,
    /// GRANT packets sent.
    pub grants_sent_per_s: f64,
    /// GRANT packets received.
    pub grants_received_per_s: f64,
    /// Packets that had to wait for the pacer.
    pub pacer_waits_per_s: f64,
    /// Requests that the application has not yet taken.
    pub queued_requests: f64,
    /// Bytes of these requests.
    pub queued_bytes: f64,
    /// Current bytes of incoming messages.
    pub incoming_bytes: f64,
    /// Current bytes of outgoing messages.
    pub outgoing_bytes: f64,
    /// Packets dropped for any reason, by the protocol or the packet path.
    pub drops_per_s: f64,
    /// RESEND packets sent.
    pub resends_sent_per_s: f64,
    /// RESEND packets received.
    pub resends_received_per_s: f64,
    /// Packets retransmitted.
    pub retransmits_per_s: f64,
    /// Fraction of lock acquisitions that had to wait.
    pub lock_missed: f64,
    /// Average number of threads waiting for the lock.
    pub lock_waiting: f64,
    /// Average number of processors that the process kept busy; `None` if unknown.
    pub processors_busy: Option<f64>,
    /// Durations of the calls that ended between the scrapes.
    pub calls: TimeDistribution,
    /// Call durations for each size class that has any.
    pub calls_by_bytes: Vec<TimeDistribution>,
    /// Answer times of the requests answered between the scrapes: from the arrival of the whole request until
    /// the application submits the response. These are not round trips, since they contain no network time.
    pub answers: TimeDistribution,
    /// Answer times for each size class that has any.
    pub answers_by_bytes: Vec<TimeDistribution>,
}

/// A distribution of times.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TimeDistribution {
    /// Range of the longer of request and response, both ends inclusive; absent if all sizes are included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<String>,
    /// Number of times in the distribution.
    pub count: f64,
    /// Median, with the precision of the buckets, which is at most a quarter too long.
    pub p50_s: Option<f64>,
    /// 99th percentile, with the same precision.
    pub p99_s: Option<f64>,
    /// Maximum, with the same precision; also `None` if it exceeds the last bucket.
    pub max_s: Option<f64>,
}

impl TimeDistribution {
    fn of(bytes: Option<String>, times: &Histogram) -> TimeDistribution {
        let quantile = |fraction| times.quantile(fraction).filter(|time| time.is_finite());
        let [p50_s, p99_s, max_s] = [0.5, 0.99, 1.0].map(quantile);
        TimeDistribution { bytes, count: times.count(), p50_s, p99_s, max_s }
    }
}

/// Returns the figures between two scrapes; for a new host, since its creation. `elapsed` is the time between
/// the scrapes according to this process's clock, for metrics of the process.
pub fn between(
    before: Option<(&HostMetrics, &HostMetrics)>,
    now: (&HostMetrics, &HostMetrics),
    elapsed: f64,
) -> Figures {
    let (numbers, process) = now;
    let none = HostMetrics::default();
    let (mut then, mut then_process) = before.unwrap_or((&none, &none));
    let restarted = was_restarted(then, numbers);
    if restarted {
        (then, then_process) = (&none, &none);
    }
    let seconds = (numbers.uptime() - then.uptime()).max(f64::MIN_POSITIVE);
    let value = |name: &str| numbers.value(name);
    let grown = |name: &str| (numbers.value(name) - then.value(name)).max(0.0);
    let rate = |name: &str| grown(name) / seconds;
    let cpu = "process_cpu_seconds_total";
    let cpu_elapsed = if restarted || before.is_none() { seconds } else { elapsed };
    let busy = (process.value(cpu) - then_process.value(cpu)).max(0.0) / cpu_elapsed.max(f64::MIN_POSITIVE);
    let dropped: Vec<&String> = numbers.values.keys().filter(|name| is_drop(name)).collect();
    let taken = grown("homa_host_lock_acquisitions_total");
    let (calls, calls_by_bytes) = tails(&then.calls, &numbers.calls);
    let (answers, answers_by_bytes) = tails(&then.answers, &numbers.answers);
    Figures {
        seconds,
        restarted,
        open_rpcs: value("homa_host_open_rpcs"),
        calls_per_s: rate("homa_responses_delivered_total"),
        failed_per_s: rate("homa_rpcs_failed_total"),
        requests_per_s: rate("homa_requests_delivered_total"),
        answered_per_s: rate("homa_responses_started_total"),
        bytes_in_per_s: rate("homa_driver_bytes_in_total"),
        bytes_out_per_s: rate("homa_driver_bytes_out_total"),
        granted_bytes: value("homa_host_granted_bytes"),
        grants_sent_per_s: rate("homa_grants_sent_total"),
        grants_received_per_s: rate("homa_grants_received_total"),
        pacer_waits_per_s: rate("homa_pacer_waits_total"),
        queued_requests: value("homa_host_queued_requests"),
        queued_bytes: value("homa_host_queued_request_bytes"),
        incoming_bytes: value("homa_host_incoming_bytes"),
        outgoing_bytes: value("homa_host_outgoing_bytes"),
        drops_per_s: dropped.into_iter().map(|name| rate(name)).sum(),
        resends_sent_per_s: rate("homa_resends_sent_total"),
        resends_received_per_s: rate("homa_resends_received_total"),
        retransmits_per_s: rate("homa_retransmits_total"),
        lock_missed: if taken > 0.0 { grown("homa_host_lock_misses_total") / taken } else { 0.0 },
        lock_waiting: rate("homa_host_lock_wait_seconds_total"),
        processors_busy: process.values.contains_key(cpu).then_some(busy),
        calls,
        calls_by_bytes,
        answers,
        answers_by_bytes,
    }
}

/// Returns the times between two scrapes, in total and for each size class that has any.
fn tails(then: &BySize, now: &BySize) -> (TimeDistribution, Vec<TimeDistribution>) {
    let mut all = Histogram::default();
    let mut by_bytes = Vec::new();
    for (bytes, times) in now {
        let earlier = then.iter().find(|(other, _)| other == bytes);
        let since = earlier.and_then(|(_, earlier)| times.since(earlier)).unwrap_or_else(|| times.clone());
        if since.count() > 0.0 {
            by_bytes.push(TimeDistribution::of(Some(bytes.clone()), &since));
            all.add(&since);
        }
    }
    (TimeDistribution::of(None, &all), by_bytes)
}

/// Returns whether the process restarted between the scrapes.
fn was_restarted(before: &HostMetrics, now: &HostMetrics) -> bool {
    let mut counters = before.values.iter().filter(|(name, _)| name.ends_with("_total"));
    now.uptime() < before.uptime() || counters.any(|(name, then)| now.value(name) < *then)
}

fn is_drop(name: &str) -> bool {
    const OF_THE_PATH: [&str; 4] = [
        "homa_driver_queue_drops_total",
        "homa_driver_truncated_total",
        "homa_driver_damaged_total",
        "homa_driver_send_link_stuck_total",
    ];
    name.starts_with("homa_drop_") || OF_THE_PATH.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::parse;

    fn numbers(uptime: f64, delivered: u32, drops: u32, short: u32, cpu: f64) -> (HostMetrics, HostMetrics) {
        let text = format!(
            "homa_uptime_seconds{{host=\"a\"}} {uptime}\n\
             homa_responses_delivered_total{{host=\"a\"}} {delivered}\n\
             homa_drop_invalid_total{{host=\"a\"}} {drops}\n\
             homa_driver_queue_drops_total{{host=\"a\"}} {drops}\n\
             homa_host_open_rpcs{{host=\"a\"}} 7\n\
             homa_host_lock_acquisitions_total{{host=\"a\"}} {delivered}\n\
             homa_host_lock_misses_total{{host=\"a\"}} {drops}\n\
             # TYPE homa_call_seconds histogram\n\
             homa_call_seconds_bucket{{host=\"a\",bytes=\"0-1000\",le=\"0.001\"}} {short}\n\
             homa_call_seconds_bucket{{host=\"a\",bytes=\"0-1000\",le=\"+Inf\"}} {short}\n\
             # TYPE homa_answer_seconds histogram\n\
             homa_answer_seconds_bucket{{host=\"a\",bytes=\"0-1000\",le=\"0.002\"}} {delivered}\n\
             homa_answer_seconds_bucket{{host=\"a\",bytes=\"0-1000\",le=\"+Inf\"}} {delivered}\n\
             # TYPE homa_peer_open_rpcs gauge\n\
             homa_peer_open_rpcs{{host=\"a\",peer=\"b\"}} 3\n\
             process_cpu_seconds_total {cpu}\n"
        );
        let (mut hosts, process) = HostMetrics::by_host(&parse(&text).expect("metrics"));
        assert_eq!((hosts.len(), hosts[0].0.as_str()), (1, "a"));
        (hosts.remove(0).1, process)
    }

    #[test]
    fn rates_are_differences_over_the_hosts_own_time() {
        let (before, now) = (numbers(10.0, 100, 4, 90, 1.0), numbers(12.0, 300, 14, 100, 2.0));
        let figures = between(Some((&before.0, &before.1)), (&now.0, &now.1), 2.0);
        assert_eq!((figures.seconds, figures.restarted), (2.0, false));
        assert_eq!((figures.calls_per_s, figures.drops_per_s, figures.open_rpcs), (100.0, 10.0, 7.0));
        assert_eq!((figures.lock_missed, figures.processors_busy), (0.05, Some(0.5)));
        assert_eq!((figures.calls.count, figures.calls.p99_s), (10.0, Some(0.001)));
        assert_eq!(figures.calls_by_bytes[0].bytes.as_deref(), Some("0-1000"));
        assert_eq!((figures.answers.count, figures.answers.p50_s), (200.0, Some(0.002)));
        assert_eq!(figures.answers_by_bytes.len(), 1);
    }

    #[test]
    fn packets_dropped_for_a_stuck_link_count_as_drops_and_others_that_were_not_sent_do_not() {
        let names = ["homa_driver_send_link_stuck_total", "homa_driver_send_refused_total"];
        assert_eq!(names.map(is_drop), [true, false]);
    }

    #[test]
    fn a_process_that_began_anew_is_told_and_its_rates_are_since_then() {
        let (before, now) = (numbers(10.0, 100, 4, 90, 1.0), numbers(2.0, 300, 0, 10, 0.5));
        let figures = between(Some((&before.0, &before.1)), (&now.0, &now.1), 1.0);
        assert!(figures.restarted);
        assert_eq!((figures.seconds, figures.calls_per_s, figures.calls.count), (2.0, 150.0, 10.0));
        assert_eq!(figures.processors_busy, Some(0.25));
        // A restart is also detected if the host has a longer uptime than its predecessor had, but has
        // counted less.
        let later = numbers(11.0, 50, 4, 90, 1.0);
        assert!(between(Some((&before.0, &before.1)), (&later.0, &later.1), 1.0).restarted);
    }

    #[test]
    fn of_a_host_that_is_new_everything_counts() {
        let now = numbers(4.0, 100, 0, 0, 2.0);
        let figures = between(None, (&now.0, &now.1), 1.0);
        assert_eq!((figures.restarted, figures.calls_per_s), (false, 25.0));
        assert_eq!((figures.calls.count, figures.calls.p50_s), (0.0, None));
        assert!(figures.calls_by_bytes.is_empty());
    }
}
