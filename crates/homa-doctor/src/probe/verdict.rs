//! Derives the verdict from the delays of probes.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::control::SentCounts;

/// Minimum delay that counts as a queue, in nanoseconds. Interrupts and wake-ups alone can take up to this
/// long.
const QUEUE_MIN_NS: i64 = 100_000;
/// Maximum delay of the highest priority for priorities to count as kept, in percent of the delay of the
/// load's own priority.
const KEPT_PERCENT: i64 = 25;
/// Minimum such delay for priorities to count as lost, in percent.
const LOST_PERCENT: i64 = 75;
/// Delay of a probe that did not arrive: longer than any other.
const NEVER_NS: i64 = i64::MAX;

/// A received probe and its delay, measured with two clocks that need not agree.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub priority: u8,
    pub loaded: bool,
    pub delay_ns: i64,
}

/// Whether the network keeps priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Packets of higher priority overtake the load.
    Kept,
    /// Packets of higher priority wait less than the load, but they do wait.
    Partly,
    /// Packets of higher priority wait as long as the load.
    Lost,
    /// The load did not build up a queue.
    NoQueue,
    /// Too few probes arrived.
    NoProbes,
}

/// Delays of the probes of one priority, minus the shortest delay of all probes without load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PriorityDelays {
    /// The priority, 0 to 7.
    pub priority: u8,
    /// Number of probes sent during the load.
    pub sent: u64,
    /// Number of these probes that arrived.
    pub received: u64,
    /// Median delay without load, in microseconds; `None` if fewer than half of the probes arrived.
    pub alone_median_us: Option<f64>,
    /// Median delay during the load, in microseconds; `None` if fewer than half of the probes arrived.
    pub median_us: Option<f64>,
    /// 99th percentile of the delay during the load, in microseconds; `None` if more than 1 % did not arrive.
    pub p99_us: Option<f64>,
}

/// The delays of all priorities, and the verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Whether the network keeps priorities.
    pub verdict: Verdict,
    /// Priority of the load, 0 to 6.
    pub load_priority: u8,
    /// Total rate of the load in Mbit/s of UDP payload.
    pub load_mbps: f64,
    /// The delays by priority, the lowest first.
    pub priorities: Vec<PriorityDelays>,
}

impl Results {
    /// Computes the results from the arrivals and the numbers of probes sent.
    pub(crate) fn of(arrivals: &[Arrival], sent: &SentCounts, load_priority: u8) -> Results {
        let alone = arrivals.iter().filter(|arrival| !arrival.loaded).map(|arrival| arrival.delay_ns);
        let base_ns = alone.min();
        let delays = |priority: usize, loaded: bool| {
            let of = arrivals.iter().filter(|a| usize::from(a.priority) == priority && a.loaded == loaded);
            let mut delays: Vec<i64> =
                of.map(|arrival| arrival.delay_ns.saturating_sub(base_ns.unwrap_or(0))).collect();
            let received = delays.len() as u64;
            let count = sent.probes[usize::from(loaded)][priority].max(received);
            delays.resize(usize::try_from(count).unwrap_or(usize::MAX).min(10_000_000), NEVER_NS);
            delays.sort_unstable();
            (delays, received)
        };
        let rows = (0..8).map(|priority| {
            let (loaded, received) = delays(priority, true);
            let (alone, _) = delays(priority, false);
            PriorityDelays {
                priority: priority as u8,
                sent: loaded.len() as u64,
                received,
                alone_median_us: quantile(&alone, 50).and_then(us),
                median_us: quantile(&loaded, 50).and_then(us),
                p99_us: quantile(&loaded, 99).and_then(us),
            }
        });
        let low = quantile(&delays(load_priority.into(), true).0, 50);
        let high = quantile(&delays(7, true).0, 50);
        let verdict = match (base_ns, low, high) {
            (Some(_), Some(low), Some(high)) => verdict(low, high),
            _ => Verdict::NoProbes,
        };
        let load_mbps = match sent.load_ns {
            0 => 0.0,
            ns => sent.load_bytes as f64 * 8e3 / ns as f64,
        };
        Results { verdict, load_priority, load_mbps, priorities: rows.collect() }
    }

    /// Formats the results for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::from("\nDelay of probes beyond the shortest, us\n");
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{:>8} {:>12} {:>14} {:>14} {:>8} {:>9}",
            "priority", "alone P50", "with load P50", "with load P99", "sent", "received"
        );
        let cell = |us: Option<f64>| us.map_or("lost".to_owned(), |us| format!("{us:.1}"));
        for row in &self.priorities {
            let _ = writeln!(
                out,
                "{:>8} {:>12} {:>14} {:>14} {:>8} {:>9}",
                row.priority,
                cell(row.alone_median_us),
                cell(row.median_us),
                cell(row.p99_us),
                row.sent,
                row.received
            );
        }
        let _ = writeln!(out, "\nload: priority {}, {:.0} Mbit/s", self.load_priority, self.load_mbps);
        let _ = writeln!(out, "{}", self.verdict.text());
        out
    }
}

impl Verdict {
    /// Describes the verdict in one sentence, with the remedy.
    fn text(self) -> &'static str {
        match self {
            Verdict::Kept => "KEPT: higher priorities pass the load",
            Verdict::Partly => {
                "PARTLY: higher priorities wait less than the load, but they wait: a queue on the way has fewer levels or none; \
                 check each hop's DSCP trust and the hosts' queueing disciplines"
            }
            Verdict::Lost => {
                "LOST: all priorities wait like the load: let the switches trust DSCP and map its three high bits to eight \
                 strict-priority queues, and give devices a queueing discipline with priorities (tc qdisc replace dev DEV root pfifo_fast)"
            }
            Verdict::NoQueue => {
                "NO QUEUE: the load caused no delay: add hosts (`homa doctor listen --senders 3` or more), or raise --load-rate"
            }
            Verdict::NoProbes => {
                "NO PROBES: too few probes arrived for a result: is the UDP port open on the way?"
            }
        }
    }
}

fn verdict(low_ns: i64, high_ns: i64) -> Verdict {
    if low_ns < QUEUE_MIN_NS {
        return Verdict::NoQueue;
    }
    // Computed with 128 bits, since a delay may be NEVER_NS.
    let (low, high) = (i128::from(low_ns), i128::from(high_ns));
    match high * 100 {
        share if share <= low * i128::from(KEPT_PERCENT) => Verdict::Kept,
        share if share >= low * i128::from(LOST_PERCENT) => Verdict::Lost,
        _ => Verdict::Partly,
    }
}

/// Returns a quantile of sorted delays.
fn quantile(sorted: &[i64], percent: usize) -> Option<i64> {
    sorted.get((sorted.len().max(1) - 1) * percent / 100).copied()
}

fn us(delay_ns: i64) -> Option<f64> {
    (delay_ns != NEVER_NS).then_some(delay_ns as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns results for ten probes of each priority and phase, where those during the load have these
    /// delays in microseconds. The clocks differ by an offset.
    fn results(loaded_us: [i64; 8], came: u64) -> Results {
        let mut arrivals = Vec::new();
        for priority in 0..8_u8 {
            for _ in 0..10 {
                arrivals.push(Arrival { priority, loaded: false, delay_ns: -5_000_000 });
            }
            for _ in 0..came {
                let delay_ns = -5_000_000 + loaded_us[usize::from(priority)] * 1_000;
                arrivals.push(Arrival { priority, loaded: true, delay_ns });
            }
        }
        let sent = SentCounts { probes: [[10; 8]; 2], load_bytes: 1_000_000, load_ns: 1_000_000_000 };
        Results::of(&arrivals, &sent, 0)
    }

    #[test]
    fn who_passes_the_load_has_kept_its_priority() {
        let kept = results([4_000, 50, 40, 40, 40, 40, 40, 30], 10);
        assert_eq!(kept.verdict, Verdict::Kept);
        assert_eq!((kept.priorities[0].median_us, kept.priorities[7].p99_us), (Some(4_000.0), Some(30.0)));
        assert_eq!((kept.priorities[3].alone_median_us, kept.load_mbps), (Some(0.0), 8.0));
        assert_eq!(results([4_000; 8], 10).verdict, Verdict::Lost);
        assert_eq!(
            results([4_000, 4_000, 4_000, 4_000, 2_000, 2_000, 2_000, 2_000], 10).verdict,
            Verdict::Partly
        );
        assert_eq!(results([60; 8], 10).verdict, Verdict::NoQueue);
    }

    #[test]
    fn what_did_not_come_waited_longest() {
        let lost = results([400; 8], 4);
        assert_eq!((lost.verdict, lost.priorities[0].median_us), (Verdict::Lost, None));
        assert_eq!((lost.priorities[0].sent, lost.priorities[0].received), (10, 4));
        assert!(lost.text().contains("lost"), "{}", lost.text());
        let sent = SentCounts { probes: [[10; 8]; 2], ..SentCounts::default() };
        assert_eq!(Results::of(&[], &sent, 0).verdict, Verdict::NoProbes);
    }
}
