//! Measures the cost, resolution, backward steps and drift of each clock.

use std::time::Duration;

use homa_trace::Source;

/// The measurements of a clock.
pub struct ClockMeasurement {
    pub source: Source,
    /// Cost of a read, in nanoseconds.
    pub read_ns: f64,
    /// The smallest observed step, in nanoseconds.
    pub resolution_ns: f64,
    /// Number of times the clock went backward.
    pub back: u64,
    /// Ticks per second.
    pub hz: f64,
    /// Drift relative to `CLOCK_MONOTONIC_RAW`, in parts per million. For the counter, drift relative to its
    /// own rate in the first half of the measurement.
    pub drift_ppm: f64,
    pub error_ppm: f64,
}

/// Number of consecutive reads of a clock.
const READS: u32 = 100_000;
/// Number of batches into which the reads are divided. Each batch is timed separately.
const BATCHES: u32 = 50;
/// Maximum wait for a coarse clock to advance, in nanoseconds. Such a clock advances every few milliseconds.
const STEP_WAIT_NS: u64 = 100_000_000;

/// Simultaneous readings of two clocks, and the nanoseconds that elapsed between the two.
#[derive(Clone, Copy)]
struct Pair {
    raw_ns: u64,
    value: u64,
    apart_ns: f64,
}

impl Pair {
    /// Returns the pair with the shortest time between its readings, out of several attempts. A coarse clock
    /// is read just after it has advanced.
    fn read(source: Source) -> Pair {
        const TRIES: usize = 64;
        let coarse = matches!(source, Source::MonotonicCoarse | Source::RealtimeCoarse | Source::TimeOfDay);
        let once = || {
            let mut value = source.now();
            let mut before = Source::MonotonicRaw.now();
            let begin = before;
            loop {
                let next = source.now();
                if !coarse || next != value {
                    value = next;
                    break;
                }
                if before - begin > STEP_WAIT_NS {
                    return Pair { raw_ns: before, value, apart_ns: STEP_WAIT_NS as f64 };
                }
                before = Source::MonotonicRaw.now();
            }
            let after = Source::MonotonicRaw.now();
            Pair { raw_ns: before.midpoint(after), value, apart_ns: (after - before) as f64 / 2.0 }
        };
        let tries =
            if matches!(source, Source::MonotonicCoarse | Source::RealtimeCoarse) { 3 } else { TRIES };
        let pairs = (0..tries).map(|_| once());
        pairs.min_by(|a, b| a.apart_ns.total_cmp(&b.apart_ns)).expect("there are tries")
    }
}

/// Measures all available clocks for this time.
pub fn all(span: Duration) -> Vec<ClockMeasurement> {
    let sources: Vec<Source> = Source::ALL.into_iter().filter(|source| source.is_available()).collect();
    let starts: Vec<Pair> = sources.iter().map(|source| Pair::read(*source)).collect();
    std::thread::sleep(span / 2);
    let middles: Vec<Pair> = sources.iter().map(|source| Pair::read(*source)).collect();
    std::thread::sleep(span / 2);
    let ends = sources.iter().map(|source| Pair::read(*source)).collect::<Vec<Pair>>();
    let moments = starts.into_iter().zip(middles).zip(ends);
    sources
        .into_iter()
        .zip(moments)
        .map(|(source, ((start, middle), end))| one(source, start, middle, end))
        .collect()
}

fn one(source: Source, start: Pair, middle: Pair, end: Pair) -> ClockMeasurement {
    let rate = |from: Pair, to: Pair| {
        (to.value as f64 - from.value as f64) / (to.raw_ns as f64 - from.raw_ns as f64)
    };
    let (from, expected) = if source == Source::Tsc { (middle, rate(start, middle)) } else { (start, 1.0) };
    let span_ns = (end.raw_ns - from.raw_ns) as f64;
    let mut apart_ns = from.apart_ns + end.apart_ns;
    if source == Source::Tsc {
        // The rate used for comparison has the same uncertainty.
        apart_ns += start.apart_ns + middle.apart_ns;
    }
    let per_ns = rate(start, end);
    let (read_ns, least, back) = reads(source);
    // All other clocks are compared with this clock.
    let (drift, error) = match source {
        Source::MonotonicRaw => (0.0, 0.0),
        _ => (rate(from, end) / expected - 1.0, apart_ns / span_ns),
    };
    ClockMeasurement {
        source,
        read_ns,
        resolution_ns: least.unwrap_or_else(|| step(source)) / per_ns,
        back,
        hz: per_ns * 1e9,
        drift_ppm: drift * 1e6,
        error_ppm: error * 1e6,
    }
}

/// Returns the cost of a read, the smallest step, and the number of backward steps over many consecutive
/// reads.
fn reads(source: Source) -> (f64, Option<f64>, u64) {
    let batch = || {
        let begin = Source::MonotonicRaw.now();
        for _ in 0..READS / BATCHES {
            std::hint::black_box(source.now());
        }
        (Source::MonotonicRaw.now() - begin) as f64 / f64::from(READS / BATCHES)
    };
    // A disturbance can only make a batch longer.
    let cost = (0..BATCHES).map(|_| batch()).fold(f64::INFINITY, f64::min);
    let (mut least, mut back) = (u64::MAX, 0);
    let mut last = source.now();
    for _ in 0..READS {
        let now = source.now();
        match now.checked_sub(last) {
            None => back += 1,
            Some(0) => {}
            Some(step) => least = least.min(step),
        }
        last = now;
    }
    (cost, (least != u64::MAX).then_some(least as f64), back)
}

/// Returns the step of a clock that did not advance during these reads.
fn step(source: Source) -> f64 {
    let begin = Source::MonotonicRaw.now();
    let mut changes = Vec::new();
    let mut last = source.now();
    while changes.len() < 3 && Source::MonotonicRaw.now() - begin < 3 * STEP_WAIT_NS {
        let now = source.now();
        if now != last {
            changes.push(now.saturating_sub(last) as f64);
        }
        last = now;
    }
    changes.into_iter().fold(f64::INFINITY, f64::min)
}
