//! The length of a switch port's queue under load.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use homa_switch::Snapshot;
use serde::Serialize;

/// Interval between two readings of the switch, which responds fifty times per second.
const INTERVAL: Duration = Duration::from_millis(20);

/// The queue of a port over one interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct QueueSample {
    /// End of the interval, in milliseconds since the start of the measurement window.
    pub at_ms: f64,
    /// Mean number of bytes in the queue.
    pub bytes: f64,
}

/// A thread that reads the switch's counters at regular intervals.
pub struct QueueRecorder {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<PortSample>>,
}

/// The counters of a port at one point in time.
#[derive(Clone, Copy, Debug)]
struct PortSample {
    at: Instant,
    time_ns: f64,
    /// Integral of the queue length over the time since the switch was started, in bytes times nanoseconds.
    area: f64,
}

impl QueueRecorder {
    /// Starts reading the counters of port `port`, counted from 0, of the switch with this control socket.
    pub fn start(control: PathBuf, port: usize) -> QueueRecorder {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut looks = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let next = Instant::now() + INTERVAL;
                let snapshot = homa_switch::ask(&control);
                looks.extend(snapshot.ok().and_then(|snapshot| PortSample::of(&snapshot, port)));
                thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            looks
        });
        QueueRecorder { stop, thread }
    }

    /// Stops the thread. Returns the intervals between `from` and `to`.
    pub fn end(self, from: Instant, to: Instant) -> Vec<QueueSample> {
        self.stop.store(true, Ordering::Relaxed);
        // If the thread panicked, there are no samples.
        let looks = self.thread.join().unwrap_or_default();
        samples(&looks, from, to)
    }
}

impl PortSample {
    fn of(snapshot: &Snapshot, port: usize) -> Option<PortSample> {
        let time_ns = snapshot.time_ns as f64;
        let depth = snapshot.ports.get(port)?.depth;
        Some(PortSample { at: Instant::now(), time_ns, area: depth.mean_bytes * time_ns })
    }
}

fn samples(looks: &[PortSample], from: Instant, to: Instant) -> Vec<QueueSample> {
    let within = looks.windows(2).filter(|pair| pair[0].at >= from && pair[1].at <= to);
    within
        .filter_map(|pair| {
            let time_ns = pair[1].time_ns - pair[0].time_ns;
            let at_ms = pair[1].at.duration_since(from).as_secs_f64() * 1e3;
            // A restart of the switch has reset the counters.
            (time_ns > 0.0)
                .then(|| QueueSample { at_ms, bytes: ((pair[1].area - pair[0].area) / time_ns).max(0.0) })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_the_mean_between_two_looks_within_the_measured_time() {
        let from = Instant::now();
        let look = |ms: u64, mean_bytes: f64| {
            let time_ns = (ms as f64 + 1_000.0) * 1e6;
            PortSample { at: from + Duration::from_millis(ms), time_ns, area: mean_bytes * time_ns }
        };
        // 1,000 bytes on average until 20 ms, then 500 bytes for 20 ms, and none for another 20 ms.
        let bytes_ms = 1_000.0 * 1_020.0;
        let looks = [
            look(0, 1_000.0),
            look(20, 1_000.0),
            look(40, (bytes_ms + 500.0 * 20.0) / 1_040.0),
            look(60, (bytes_ms + 500.0 * 20.0) / 1_060.0),
        ];
        let all = samples(&looks, from, from + Duration::from_millis(60));
        let rounded: Vec<(f64, f64)> = all.iter().map(|one| (one.at_ms.round(), one.bytes.round())).collect();
        assert_eq!(rounded, [(20.0, 1_000.0), (40.0, 500.0), (60.0, 0.0)]);
        assert_eq!(
            samples(&looks, from + Duration::from_millis(10), from + Duration::from_millis(45)).len(),
            1
        );
    }

    #[test]
    fn a_switch_that_began_anew_has_no_sample() {
        let from = Instant::now();
        let looks = [
            PortSample { at: from, time_ns: 9e9, area: 1.0 },
            PortSample { at: from, time_ns: 1e9, area: 0.0 },
        ];
        assert_eq!(samples(&looks, from, from), []);
    }
}
