//! Tests whether a run was in steady state, from time series of its backlog, idle links and completions.

use homa_proto::Time;
use serde::{Deserialize, Serialize};

use super::config::ClusterConfig;
use super::level::{Change, MIN_VALUES, mean, mser5};

/// Number of intervals in the measured time, unless [`MAX_INTERVALS`] requires longer ones.
const INTERVALS: u64 = 100;
/// Maximum number of intervals from the beginning of the run to the end of the measured time.
const MAX_INTERVALS: u64 = 2_000;
/// Maximum significant change of the backlog over the tested part, relative to its mean.
const MAX_BACKLOG_CHANGE: f64 = 0.10;
/// Maximum significant change of the fraction of idle downlinks over the tested part.
const MAX_IDLE_CHANGE: f64 = 0.02;
/// Limit on any change over the measured time, significant or not, as a multiple of the two maxima above. A
/// run with a larger change is too short to count as level.
const MAX_CHANCE_CHANGE: f64 = 3.0;
/// Maximum deviation from 1 of the ratio of completed to offered bytes.
const MAX_SHORTFALL: f64 = 0.03;
/// Allowance for chance: this multiple of the longest message's length times the square root of the number of
/// hosts. A message counts with its whole length, so a few long messages at the start or the end of the
/// measured time are not a trend. Same value as in `homa sim max-load`.
const CHANCE: f64 = 0.5;
/// Maximum of this allowance, relative to the offered bytes. A run that needs more is too short for a result.
const MAX_CHANCE: f64 = 0.10;
/// Maximum relative deviation of the offered bytes from those that the load implies.
const MAX_OFFERED: f64 = 0.10;

/// Figures of a run in intervals of equal length, from its beginning to the end of the measured time. The
/// first interval may be shorter, so that an interval boundary falls on the start of the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeSeries {
    /// Length of an interval, in nanoseconds.
    pub interval_ns: u64,
    /// Number of intervals before the measured time.
    pub warm_up_intervals: usize,
    /// Mean bytes of all outstanding messages in each interval. Each message counts with its whole length.
    pub backlog_bytes: Vec<u64>,
    /// Fraction of the time that downlinks were idle, in each interval.
    pub downlink_idle: Vec<f64>,
    /// Bytes of the messages that started in each interval.
    pub offered_bytes: Vec<u64>,
    /// Bytes of the messages that ended in each interval.
    pub completed_bytes: Vec<u64>,
}

impl TimeSeries {
    /// Returns the start of an interval in nanoseconds from the beginning of the run, as if the first
    /// interval were not shorter.
    fn starts_ns(&self, index: usize) -> u64 {
        index as u64 * self.interval_ns
    }
}

/// A steady-state test that a run fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unsteady {
    /// The measured time has too few intervals for a test.
    TooShort,
    /// According to MSER-5, a transient lasts into the measured time, or never ends.
    WarmUp,
    /// The backlog rises or falls.
    Backlog,
    /// The idle share of downlinks rises or falls.
    DownlinkIdle,
    /// Completed bytes differ from offered bytes.
    Completed,
    /// Offered bytes differ from those that the load implies: the measured time contains too few of the
    /// longest messages.
    Offered,
}

/// Whether the measured time of a run was in steady state, and the figures of the tests.
///
/// The tested part is the measured time plus as much of the time before it as MSER-5 finds level. A change in
/// the tested part is significant if a level sequence with the same noise and correlation shows it in less
/// than 1 of 100 cases. (The values of a backlog are correlated for as long as the longest messages last.)
/// The run was in steady state if
///
/// - MSER-5 on the whole backlog, from the beginning of the run, truncates nothing of the measured time, or
///   truncates a part whose mean is within 10 % of that of the rest, or does not differ from it
///   significantly;
/// - a straight line and the best step, both fitted to the backlog of the tested part, change by at most 10 %
///   of the mean or not significantly, and the line over the measured time changes by at most 30 %;
/// - the line and the step through the fraction of idle downlinks change by at most 2 percentage points or
///   not significantly, and the line over the measured time changes by at most 6;
/// - completed bytes are within 3 % of the offered bytes, plus an allowance for chance. The allowance is half
///   the longest message times the square root of the number of hosts, but at most 10 % of the offered bytes;
/// - offered bytes are within 10 % of those of the load. In a short time the longest messages, which may make
///   up a large part of all bytes, are missing by chance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SteadyState {
    /// Whether all tests pass.
    pub reached: bool,
    /// The tests that fail.
    pub failed: Vec<Unsteady>,
    /// Start of the level part of the backlog according to MSER-5, in nanoseconds from the beginning of the
    /// run. `None` if the first half of the run contains no such start.
    pub level_from_ns: Option<u64>,
    /// Start of the tested part, in nanoseconds from the beginning of the run.
    #[serde(default)]
    pub tested_from_ns: u64,
    /// Mean bytes of all outstanding messages, each with its whole length, over the measured time.
    pub backlog_bytes: f64,
    /// Change of the line through the backlog over the measured time, relative to the mean.
    pub backlog_rise: f64,
    /// Change of the line over the tested part, or the step of the backlog if only the step is significant.
    #[serde(default)]
    pub backlog_change: f64,
    /// Student's t of `backlog_change`.
    pub backlog_t: f64,
    /// Value of t above which `backlog_change` is significant.
    #[serde(default)]
    pub backlog_t_bound: f64,
    /// Mean fraction of idle downlinks over the measured time.
    pub downlink_idle: f64,
    /// Change of the line through the fraction of idle downlinks over the measured time.
    pub downlink_idle_rise: f64,
    /// Change of the line over the tested part, or the step if only the step is significant.
    #[serde(default)]
    pub downlink_idle_change: f64,
    /// Student's t of `downlink_idle_change`.
    pub downlink_idle_t: f64,
    /// Value of t above which `downlink_idle_change` is significant.
    #[serde(default)]
    pub downlink_idle_t_bound: f64,
    /// Bytes of messages that ended in the measured time, divided by bytes of messages that started in it.
    pub completed_over_offered: f64,
    /// Bytes of the messages that started in the measured time, divided by those that the load implies;
    /// `None`: the traffic has no load.
    pub offered_over_load: Option<f64>,
    /// Fraction of the measured messages that had not arrived when the run ended. They are missing from the
    /// slowdowns.
    pub unfinished_share: f64,
    /// The figures over time.
    #[serde(rename = "course")]
    pub series: TimeSeries,
}

/// Expected values with which a [`TimeSeries`] is compared.
#[derive(Clone, Copy, Debug, Default)]
struct Expected {
    /// Allowance for a chance difference of completed and offered bytes: half the longest message times the
    /// square root of the number of hosts.
    chance_bytes: f64,
    /// Bytes that the load implies for the measured time.
    load_bytes: Option<f64>,
}

/// Records the [`TimeSeries`] of a run.
#[derive(Debug)]
pub(super) struct Recorder {
    series: TimeSeries,
    until: Time,
    /// How much shorter the first interval is than the others.
    short_ns: u64,
    bytes: i64,
    since: Time,
    /// Byte-nanoseconds of each interval.
    areas: Vec<f64>,
    /// Number of downlink samples, and how many of them were idle, for each interval.
    samples: Vec<(u64, u64)>,
    expected: Expected,
}

impl Recorder {
    pub(super) fn new(config: &ClusterConfig) -> Recorder {
        let (warm_up, duration) = (config.warm_up_ns, config.duration_ns);
        let interval_ns = duration.div_ceil(INTERVALS).max((warm_up + duration).div_ceil(MAX_INTERVALS));
        let interval_ns = interval_ns.max(config.sample_ns).max(1);
        let warm_up_intervals = warm_up.div_ceil(interval_ns);
        let count = (warm_up_intervals + duration.div_ceil(interval_ns)) as usize;
        Recorder {
            series: TimeSeries {
                interval_ns,
                warm_up_intervals: warm_up_intervals as usize,
                offered_bytes: vec![0; count],
                completed_bytes: vec![0; count],
                ..TimeSeries::default()
            },
            until: Time::from_ns(warm_up + duration),
            short_ns: warm_up_intervals * interval_ns - warm_up,
            bytes: 0,
            since: Time::ZERO,
            areas: vec![0.0; count],
            samples: vec![(0, 0); count],
            expected: Expected {
                chance_bytes: CHANCE * f64::from(config.workload.max_bytes()) * (config.hosts as f64).sqrt(),
                load_bytes: config.starts_per_sec().map(|rate| {
                    let messages = rate * duration as f64 / 1e9 * f64::from(config.exchange.messages());
                    messages * config.workload.mean_bytes()
                }),
            },
        }
    }

    /// Returns the interval of a time; `None`: the time is after the measured time.
    fn interval(&self, now: Time) -> Option<usize> {
        (now < self.until).then(|| ((now.as_ns() + self.short_ns) / self.series.interval_ns) as usize)
    }

    /// Returns the start and end of an interval.
    fn span(&self, index: usize) -> (Time, Time) {
        let at = |index: usize| {
            let end = (index as u64 * self.series.interval_ns).saturating_sub(self.short_ns);
            Time::from_ns(end).min(self.until)
        };
        (at(index), at(index + 1))
    }

    /// Records the bytes of messages that start or end. Times that a schedule has computed in advance may be
    /// slightly out of order; such a time is replaced by the latest one so far.
    pub(super) fn change(&mut self, now: Time, bytes: i64) {
        let now = now.max(self.since);
        while let Some(index) = self.interval(self.since).filter(|_| self.since < now) {
            let end = self.span(index).1.min(now);
            self.areas[index] += end.since(self.since) as f64 * self.bytes as f64;
            self.since = end;
        }
        self.since = now;
        self.bytes += bytes;
    }

    pub(super) fn offered(&mut self, now: Time, bytes: u64) {
        if let Some(index) = self.interval(now) {
            self.series.offered_bytes[index] += bytes;
        }
    }

    pub(super) fn completed(&mut self, now: Time, bytes: u64) {
        if let Some(index) = self.interval(now) {
            self.series.completed_bytes[index] += bytes;
        }
    }

    /// Records how many downlinks were sampled, and how many of them were idle.
    pub(super) fn sampled(&mut self, now: Time, samples: u64, idle: u64) {
        if let Some(index) = self.interval(now) {
            let sums = &mut self.samples[index];
            *sums = (sums.0 + samples, sums.1 + idle);
        }
    }

    /// Returns the mean backlog of the first and of the last quarter of the measured time.
    pub(super) fn quarters(&self) -> [f64; 2] {
        let measured = self.series.warm_up_intervals..self.areas.len();
        let quarter = measured.len().div_ceil(4);
        let mean = |range: std::ops::Range<usize>| {
            let (from, until) = (self.span(range.start).0, self.span(range.end.saturating_sub(1)).1);
            self.areas[range].iter().sum::<f64>() / until.since(from).max(1) as f64
        };
        [mean(measured.start..measured.start + quarter), mean(measured.end - quarter..measured.end)]
    }

    /// Completes and tests the series. `started` and `unfinished` are numbers of measured messages.
    pub(super) fn finish(mut self, started: u64, unfinished: u64) -> SteadyState {
        self.change(self.until, 0);
        let mut idle = 0.0;
        for (index, area) in self.areas.iter().enumerate() {
            let (from, until) = self.span(index);
            self.series.backlog_bytes.push((area / until.since(from).max(1) as f64) as u64);
            let (samples, of_them) = self.samples[index];
            // An interval without samples is assumed to be like the previous one.
            idle = if samples > 0 { of_them as f64 / samples as f64 } else { idle };
            self.series.downlink_idle.push((idle * 1e4).round() / 1e4);
        }
        let unfinished_share = unfinished as f64 / started.max(1) as f64;
        SteadyState { unfinished_share, ..test_steadiness(self.series, self.expected) }
    }
}

fn test_steadiness(series: TimeSeries, expected: Expected) -> SteadyState {
    let warm_up = series.warm_up_intervals;
    let backlog: Vec<f64> = series.backlog_bytes.iter().map(|&bytes| bytes as f64).collect();
    let idle = &series.downlink_idle;
    let level_from = mser5(&backlog, backlog.len());
    let tested_from = mser5(&backlog, warm_up).unwrap_or(warm_up).min(warm_up);
    let measured = backlog.len() - warm_up;
    let mut failed = Vec::new();
    if measured < MIN_VALUES {
        failed.push(Unsteady::TooShort);
    }
    let level = Level { tested: &backlog[tested_from..], measured };
    if level_from.is_some_and(|from| from > warm_up && level.has_transient(from - tested_from)) {
        failed.push(Unsteady::WarmUp);
    }
    let (backlog_bytes, downlink_idle) = (mean(&backlog[warm_up..]), mean(&idle[warm_up..]));
    let (backlog_change, backlog_rise, is_level) = level.drift(MAX_BACKLOG_CHANGE * backlog_bytes);
    if !is_level {
        failed.push(Unsteady::Backlog);
    }
    let idle_level = Level { tested: &idle[tested_from..], measured };
    let (idle_change, downlink_idle_rise, is_level) = idle_level.drift(MAX_IDLE_CHANGE);
    if !is_level {
        failed.push(Unsteady::DownlinkIdle);
    }
    let sum = |bytes: &[u64]| bytes[warm_up..].iter().sum::<u64>() as f64;
    let (offered, completed) = (sum(&series.offered_bytes), sum(&series.completed_bytes));
    if (completed - offered).abs() > MAX_SHORTFALL * offered + expected.chance_bytes.min(MAX_CHANCE * offered)
    {
        failed.push(Unsteady::Completed);
    }
    let offered_over_load = expected.load_bytes.map(|bytes| offered / bytes.max(1.0));
    if offered_over_load.is_some_and(|share| (share - 1.0).abs() > MAX_OFFERED) {
        failed.push(Unsteady::Offered);
    }
    let of_mean = |bytes: f64| bytes / backlog_bytes.max(1.0);
    SteadyState {
        reached: failed.is_empty(),
        failed,
        level_from_ns: level_from.filter(|from| from * 2 <= backlog.len()).map(|from| series.starts_ns(from)),
        tested_from_ns: series.starts_ns(tested_from),
        backlog_bytes,
        backlog_rise: of_mean(backlog_rise),
        backlog_change: of_mean(backlog_change.size),
        backlog_t: backlog_change.t,
        backlog_t_bound: backlog_change.t_bound,
        downlink_idle,
        downlink_idle_rise,
        downlink_idle_change: idle_change.size,
        downlink_idle_t: idle_change.t,
        downlink_idle_t_bound: idle_change.t_bound,
        completed_over_offered: completed / offered.max(1.0),
        offered_over_load,
        unfinished_share: 0.0,
        series,
    }
}

/// The tested part of a sequence, which ends with the values of the measured time.
struct Level<'a> {
    tested: &'a [f64],
    measured: usize,
}

impl Level<'_> {
    /// Returns three values: the line through the tested part, or a step if only the step is significant; the
    /// rise of the line over the measured time; and whether both are within their bounds or not significant.
    fn drift(&self, bound: f64) -> (Change, f64, bool) {
        let changes = (Change::line(self.tested), Change::step(self.tested));
        let (Some(line), Some(step)) = changes else { return (Change::NONE, 0.0, true) };
        let rise = line.size * self.measured as f64 / self.tested.len() as f64;
        let is_change = |change: &Change| change.size.abs() > bound && change.is_significant();
        let is_level = rise.abs() <= MAX_CHANCE_CHANGE * bound && ![line, step].iter().any(is_change);
        (if is_change(&step) && !is_change(&line) { step } else { line }, rise, is_level)
    }

    /// Returns whether the values before `at` differ from the rest significantly, and by more than a bound.
    fn has_transient(&self, at: usize) -> bool {
        let (before, after) = self.tested.split_at(at);
        let is_significant = |change: Option<Change>| change.is_some_and(|change| change.is_significant());
        (mean(before) - mean(after)).abs() > MAX_BACKLOG_CHANGE * mean(after)
            && (is_significant(Change::step(self.tested)) || is_significant(Change::line(self.tested)))
    }
}

#[cfg(test)]
mod tests {
    use homa_workload::Workload;

    use super::super::level::autoregressive;
    use super::*;

    fn recorder(warm_up_ns: u64, duration_ns: u64) -> Recorder {
        let cluster = ClusterConfig::sigcomm18(Workload::fixed(10).unwrap(), 0.5, 1);
        Recorder::new(&ClusterConfig { warm_up_ns, duration_ns, sample_ns: 1, hosts: 4, ..cluster })
    }

    #[test]
    fn backlog_is_a_mean_over_time() {
        let at = Time::from_ns;
        let mut backlog = recorder(100, 400);
        backlog.change(at(50), 10);
        backlog.change(at(150), 20);
        backlog.change(at(450), -30);
        backlog.change(at(1_000), 5);
        assert_eq!(backlog.quarters(), [20.0, 15.0]);
    }

    #[test]
    fn intervals_begin_with_the_measured_time_and_the_first_is_shorter() {
        let at = Time::from_ns;
        let mut recorder = recorder(10, 400);
        recorder.change(Time::ZERO, 8);
        for (time, bytes) in [(1, 1), (2, 2), (9, 4), (10, 8), (13, 16), (409, 32), (410, 64)] {
            recorder.offered(at(time), bytes);
        }
        recorder.completed(at(11), 5);
        recorder.sampled(at(3), 4, 1);
        recorder.sampled(at(12), 4, 3);
        let steady = recorder.finish(1_000, 3);
        let series = steady.series;
        assert_eq!((series.interval_ns, series.warm_up_intervals), (4, 3));
        assert_eq!(series.offered_bytes.len(), 103);
        assert_eq!(series.offered_bytes[..4], [1, 2, 4, 24]);
        assert_eq!((series.offered_bytes[102], series.completed_bytes[3]), (32, 5));
        assert_eq!(series.downlink_idle[..4], [0.0, 0.25, 0.25, 0.75]);
        assert!(series.backlog_bytes.iter().all(|&bytes| bytes == 8), "{:?}", series.backlog_bytes);
        assert_eq!(steady.unfinished_share, 0.003);
    }

    #[test]
    fn a_long_warm_up_does_not_make_more_intervals() {
        let series = recorder(1_000_000_000, 1_000_000).series;
        assert!(series.offered_bytes.len() <= MAX_INTERVALS as usize + 1, "{}", series.offered_bytes.len());
    }

    /// Makes a series of 60 warm-up intervals and 100 measured ones.
    fn series(backlog: impl Fn(f64) -> f64, idle: impl Fn(f64) -> f64) -> TimeSeries {
        let wave = |x: f64| 1.0 + 0.02 * (x * 1.7).sin();
        let each = |of: &dyn Fn(f64) -> f64| (0..160).map(f64::from).map(|x| of(x) * wave(x)).collect();
        let backlog_bytes: Vec<f64> = each(&backlog);
        TimeSeries {
            interval_ns: 1_000,
            warm_up_intervals: 60,
            backlog_bytes: backlog_bytes.into_iter().map(|bytes| bytes as u64).collect(),
            downlink_idle: each(&idle),
            offered_bytes: vec![100; 160],
            completed_bytes: vec![98; 160],
        }
    }

    const BACKLOG: f64 = 1e6;
    const IDLE: f64 = 0.2;

    fn failed(series: TimeSeries) -> Vec<Unsteady> {
        let steady = test_steadiness(series, Expected::default());
        assert_eq!(steady.reached, steady.failed.is_empty());
        steady.failed
    }

    #[test]
    fn a_level_run_is_steady() {
        let steady = test_steadiness(series(|_| BACKLOG, |_| IDLE), Expected::default());
        assert!(steady.reached, "{steady:?}");
        assert!((steady.backlog_bytes / BACKLOG - 1.0).abs() < 0.01, "{steady:?}");
        assert!((steady.downlink_idle - IDLE).abs() < 0.01, "{steady:?}");
        assert_eq!(steady.completed_over_offered, 0.98);
    }

    #[test]
    fn a_transient_may_end_with_the_warm_up_and_not_later() {
        let until = |end: f64| move |x: f64| BACKLOG * (x / end).min(1.0);
        assert_eq!(failed(series(until(50.0), |_| IDLE)), []);
        assert!(failed(series(until(130.0), |_| IDLE)).contains(&Unsteady::WarmUp));
    }

    /// Makes a backlog that swings around a level, plus a `change` relative to its mean. Each swing lasts a
    /// tenth of the run, as if it came from a few long messages.
    fn swinging(stream: u64, change: impl Fn(f64) -> f64) -> TimeSeries {
        let noise = autoregressive(160, 0.94, stream);
        series(|x| BACKLOG * (change(x) + 0.12 * noise[x as usize]), |_| IDLE)
    }

    /// If a test treated batch means as independent, it would report 34 of these 100 runs as unsteady.
    #[test]
    fn a_backlog_that_swings_is_steady() {
        let unsteady = (0..100).filter(|&stream| !failed(swinging(stream, |_| 1.0)).is_empty()).count();
        assert!(unsteady <= 6, "{unsteady} of 100");
    }

    #[test]
    fn a_backlog_that_swings_and_grows_is_not_steady() {
        let grown = |x: f64| 0.4 + 1.2 * x / 160.0;
        let stepped = |x: f64| if x < 90.0 { 0.6 } else { 1.4 };
        let unsteady = |change: &dyn Fn(f64) -> f64| {
            (0..100).filter(|&n| !failed(swinging(n, change)).is_empty()).count()
        };
        assert!(unsteady(&grown) >= 95, "grown: {} of 100", unsteady(&grown));
        assert!(unsteady(&stepped) >= 95, "stepped: {} of 100", unsteady(&stepped));
    }

    #[test]
    fn a_growing_backlog_is_not_steady() {
        let failed = failed(series(|x| BACKLOG * (1.0 + x / 200.0), |_| IDLE));
        assert!(failed.contains(&Unsteady::Backlog), "{failed:?}");
        // A drift of a few percent is not a significant trend.
        assert!(
            test_steadiness(series(|x| BACKLOG * (1.0 + x / 5_000.0), |_| IDLE), Expected::default())
                .backlog_t
                > 0.0
        );
    }

    #[test]
    fn links_that_fill_up_are_not_steady() {
        assert_eq!(failed(series(|_| BACKLOG, |x| 0.3 - x / 1_000.0)), [Unsteady::DownlinkIdle]);
    }

    #[test]
    fn what_is_offered_must_be_completed_but_for_chance() {
        let short =
            |completed| TimeSeries { completed_bytes: vec![completed; 160], ..series(|_| BACKLOG, |_| IDLE) };
        assert_eq!(failed(short(96)), [Unsteady::Completed]);
        assert_eq!(failed(short(104)), [Unsteady::Completed]);
        let chance = |chance_bytes| Expected { chance_bytes, ..Expected::default() };
        assert!(test_steadiness(short(96), chance(100.0)).reached);
        // A message with half of all bytes must not hide a difference.
        assert_eq!(test_steadiness(short(40), chance(1e6)).failed, [Unsteady::Completed]);
    }

    #[test]
    fn what_is_offered_must_be_the_load() {
        let of_load = |load_bytes| {
            let expected = Expected { load_bytes: Some(load_bytes), ..Expected::default() };
            test_steadiness(series(|_| BACKLOG, |_| IDLE), expected)
        };
        assert_eq!(of_load(10_900.0).failed, []);
        assert_eq!(of_load(11_500.0).failed, [Unsteady::Offered]);
        assert_eq!(of_load(8_000.0).offered_over_load, Some(1.25));
    }

    #[test]
    fn a_few_intervals_tell_nothing() {
        let mut series = series(|_| BACKLOG, |_| IDLE);
        series.warm_up_intervals = 151;
        assert_eq!(failed(series.clone()), [Unsteady::TooShort]);
        series.warm_up_intervals = 0;
        for values in [&mut series.backlog_bytes, &mut series.offered_bytes, &mut series.completed_bytes] {
            values.truncate(9);
        }
        series.downlink_idle.truncate(9);
        assert_eq!(failed(series), [Unsteady::TooShort]);
    }
}
