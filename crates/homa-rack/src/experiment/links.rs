//! Load of the rack's links, from the switch's counters.

use serde::Serialize;
use serde_json::Value;

/// The links from the switch to the hosts, between two readings of the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Links {
    /// Share of time that a link carried a frame, averaged over all links.
    pub busy: f64,
    /// Share of the links' frames that were dropped for lack of buffer.
    pub dropped: f64,
}

/// Sums of counters over all ports.
#[derive(Clone, Copy, Default)]
struct Counters {
    ports: u64,
    busy_ns: u64,
    sent_frames: u64,
    dropped_frames: u64,
}

impl Counters {
    fn of(stats: &Value) -> Option<Counters> {
        let mut sum = Counters::default();
        for port in stats["ports"].as_array()? {
            sum.ports += 1;
            sum.busy_ns += port["busy_ns"].as_u64()?;
            for queue in port["queues"].as_array()? {
                sum.sent_frames += queue["frames"].as_u64()?;
                sum.dropped_frames += queue["dropped_frames"].as_u64()?;
            }
        }
        Some(sum)
    }
}

impl Links {
    /// Returns the load between two outputs of `homa switch stats --json`. Returns `None` if one of them is
    /// missing, as with the kernel's bridge, or if a restart of the switch reset the counters in between.
    pub fn between(before: Option<&Value>, after: Option<&Value>) -> Option<Links> {
        let (before, after) = (before?, after?);
        let time_ns = after["time_ns"].as_u64()?.checked_sub(before["time_ns"].as_u64()?)?;
        let (first, last) = (Counters::of(before)?, Counters::of(after)?);
        let busy_ns = last.busy_ns.checked_sub(first.busy_ns)?;
        let sent = last.sent_frames.checked_sub(first.sent_frames)?;
        let dropped = last.dropped_frames.checked_sub(first.dropped_frames)?;
        Some(Links {
            busy: busy_ns as f64 / (time_ns * last.ports).max(1) as f64,
            dropped: dropped as f64 / (sent + dropped).max(1) as f64,
        })
    }

    /// Returns the mean of several loads, or `None` if one of them is unknown.
    pub fn mean(all: impl IntoIterator<Item = Option<Links>>) -> Option<Links> {
        let all = all.into_iter().collect::<Option<Vec<_>>>().filter(|all| !all.is_empty())?;
        let mean = |of: fn(&Links) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
        Some(Links { busy: mean(|links| links.busy), dropped: mean(|links| links.dropped) })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stats(time_ns: u64, ports: [(u64, u64, u64); 2]) -> Value {
        let port = |(busy_ns, frames, dropped): (u64, u64, u64)| {
            let queues = [(0, 0), (frames, dropped)]
                .map(|(frames, dropped)| json!({ "frames": frames, "dropped_frames": dropped }));
            json!({ "busy_ns": busy_ns, "queues": queues })
        };
        json!({ "time_ns": time_ns, "ports": ports.map(port) })
    }

    #[test]
    fn links_are_busy_and_drop_between_two_looks() {
        let before = stats(1_000, [(900, 100, 50), (100, 10, 0)]);
        let after = stats(2_000, [(1_400, 160, 70), (1_100, 30, 0)]);
        let links = Links::between(Some(&before), Some(&after)).expect("both looks");
        assert_eq!(links, Links { busy: 0.75, dropped: 0.2 });
    }

    #[test]
    fn the_mean_of_several_times_is_known_where_each_is() {
        let (one, two) = (Links { busy: 0.5, dropped: 0.0 }, Links { busy: 1.0, dropped: 0.1 });
        assert_eq!(Links::mean([Some(one), Some(two)]), Some(Links { busy: 0.75, dropped: 0.05 }));
        assert_eq!(Links::mean([Some(one), None]), None);
        assert_eq!(Links::mean([]), None);
    }

    #[test]
    fn nothing_is_said_of_a_switch_that_began_anew_or_does_not_count() {
        let (one, two) = (stats(2_000, [(900, 100, 0); 2]), stats(1_000, [(5, 1, 0); 2]));
        assert_eq!(Links::between(Some(&one), Some(&two)), None);
        assert_eq!(Links::between(None, Some(&two)), None);
        assert_eq!(Links::between(Some(&json!({})), Some(&two)), None);
    }
}
