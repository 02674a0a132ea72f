//! Whether a run was in steady state: the course of backlog, idle links and completions, and the tests on it.

use homa_proto::Time;
use serde::{Deserialize, Serialize};

use super::config::ClusterConfig;
use super::level::{Trend, mser5};

/// Intervals of the measured time, where nothing else limits them.
const INTERVALS: u64 = 100;
/// Maximum number of intervals from the beginning of the run to the end of the measured time.
const MAX_INTERVALS: u64 = 2_000;
/// Maximum rise of the backlog over the measured time, as a share of its mean.
const MAX_BACKLOG_RISE: f64 = 0.10;
/// Maximum rise of the share of the time in which downlinks are idle.
const MAX_IDLE_RISE: f64 = 0.02;
/// How far completed over offered bytes may be from 1.
const MAX_SHORTFALL: f64 = 0.03;
/// Beyond that, times the longest message and the root of the number of hosts: messages count with their
/// whole length, and so a few long ones more or less at either end are no trend. As in `homa sim max-load`.
const CHANCE: f64 = 0.5;

/// Maximum of that as a share of the offered bytes: where chance is more, a run is too short to tell.
const MAX_CHANCE: f64 = 0.10;

/// How far offered bytes may be from those that the load stands for.
const MAX_OFFERED: f64 = 0.10;

/// A run's figures in equally long intervals, from its beginning to the end of the measured time. The first
/// interval may be shorter, since one begins where the measured time does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Course {
    /// Length of an interval, in nanoseconds.
    pub interval_ns: u64,
    /// Intervals before the measured time.
    pub warm_up_intervals: usize,
    /// Bytes of all messages under way, each with its whole length: the mean of each interval.
    pub backlog_bytes: Vec<u64>,
    /// Share of the time in which downlinks were idle.
    pub downlink_idle: Vec<f64>,
    /// Bytes of the messages that started.
    pub offered_bytes: Vec<u64>,
    /// Bytes of the messages that ended.
    pub completed_bytes: Vec<u64>,
}

/// What fails a run's test for steady state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unsteady {
    /// The measured time has too few intervals to tell.
    TooShort,
    /// By MSER-5 the transient ends after the measured time began, or nowhere.
    WarmUp,
    /// The backlog rises or falls.
    Backlog,
    /// The idle share of downlinks rises or falls.
    DownlinkIdle,
    /// Completed bytes differ from offered ones.
    Completed,
    /// Offered bytes differ from those that the load stands for: the measured time has too few of the longest
    /// messages.
    Offered,
}

/// Whether the measured time of a run was in steady state, and by which figures.
///
/// It was if all of these hold:
///
/// - MSER-5, on the backlog from the beginning of the run, truncates nothing of the measured time, or
///   something whose mean is within 10 % of the rest: of a level sequence it truncates some by chance;
/// - a straight line through ten batch means of the measured backlog rises or falls by at most 10 % of the
///   mean, or by at most 30 % with a slope within chance (Student's t, 1 %);
/// - the same of the idle share of the downlinks, with at most 2 points of 100, or 6;
/// - completed bytes are within 3 % of the offered ones and, for chance, half the longest message times the
///   root of the number of hosts, which counts up to 10 % of the offered ones;
/// - offered bytes are within 10 % of those that the load stands for: in a short time the longest messages,
///   which may be a good part of all bytes, are missing by chance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SteadyState {
    /// Whether all tests pass.
    pub reached: bool,
    /// The tests that fail.
    pub failed: Vec<Unsteady>,
    /// When the level part of the backlog begins by MSER-5, in nanoseconds from the beginning of the run;
    /// `None`: nowhere in its first half.
    pub level_from_ns: Option<u64>,
    /// Bytes of all messages under way, each with its whole length: mean over the measured time.
    pub backlog_bytes: f64,
    /// Change of the fitted backlog over the measured time, as a share of its mean.
    pub backlog_rise: f64,
    /// Student's t of that change.
    pub backlog_t: f64,
    /// Share of the measured time in which downlinks were idle.
    pub downlink_idle: f64,
    /// Change of the fitted idle share over the measured time.
    pub downlink_idle_rise: f64,
    /// Student's t of that change.
    pub downlink_idle_t: f64,
    /// Bytes of messages that ended in the measured time over bytes of those that started in it.
    pub completed_over_offered: f64,
    /// Bytes of the messages that started in the measured time over those that the load stands for; `None`:
    /// there is no load.
    pub offered_over_load: Option<f64>,
    /// Share of the measured messages that had not arrived when the run ended, and have no part in the
    /// slowdowns.
    pub unfinished_share: f64,
    /// The figures over time.
    pub course: Course,
}

/// What the tests compare a course with.
#[derive(Clone, Copy, Debug, Default)]
struct Expected {
    /// By how much completed and offered bytes may differ by chance: half the longest message for each root
    /// of a host.
    chance_bytes: f64,
    /// Bytes that the load stands for in the measured time.
    load_bytes: Option<f64>,
}

/// Records a [`Course`].
#[derive(Debug)]
pub(super) struct Recorder {
    course: Course,
    until: Time,
    /// By how much the first interval is shorter than the others.
    short_ns: u64,
    bytes: i64,
    since: Time,
    /// Bytes times nanoseconds of each interval.
    areas: Vec<f64>,
    /// Looks at downlinks, and those that were idle.
    looks: Vec<(u64, u64)>,
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
            course: Course {
                interval_ns,
                warm_up_intervals: warm_up_intervals as usize,
                offered_bytes: vec![0; count],
                completed_bytes: vec![0; count],
                ..Course::default()
            },
            until: Time::from_ns(warm_up + duration),
            short_ns: warm_up_intervals * interval_ns - warm_up,
            bytes: 0,
            since: Time::ZERO,
            areas: vec![0.0; count],
            looks: vec![(0, 0); count],
            expected: Expected {
                chance_bytes: CHANCE * f64::from(config.workload.max_bytes()) * (config.hosts as f64).sqrt(),
                load_bytes: config.starts_per_sec().map(|rate| {
                    let messages = rate * duration as f64 / 1e9 * f64::from(config.exchange.messages());
                    messages * config.workload.mean_bytes()
                }),
            },
        }
    }

    /// The interval of a time; `None`: it is after the measured time.
    fn interval(&self, now: Time) -> Option<usize> {
        (now < self.until).then(|| ((now.as_ns() + self.short_ns) / self.course.interval_ns) as usize)
    }

    /// Where an interval begins and ends.
    fn span(&self, index: usize) -> (Time, Time) {
        let at = |index: usize| {
            let end = (index as u64 * self.course.interval_ns).saturating_sub(self.short_ns);
            Time::from_ns(end).min(self.until)
        };
        (at(index), at(index + 1))
    }

    /// Bytes come under way or end. What a schedule computes ahead may be a little out of order, and counts
    /// from the latest moment.
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
            self.course.offered_bytes[index] += bytes;
        }
    }

    pub(super) fn completed(&mut self, now: Time, bytes: u64) {
        if let Some(index) = self.interval(now) {
            self.course.completed_bytes[index] += bytes;
        }
    }

    /// Downlinks were looked at, and so many were idle.
    pub(super) fn looked(&mut self, now: Time, looks: u64, idle: u64) {
        if let Some(index) = self.interval(now) {
            let sums = &mut self.looks[index];
            *sums = (sums.0 + looks, sums.1 + idle);
        }
    }

    /// Means over time of the backlog, of the first and of the last quarter of the measured time.
    pub(super) fn quarters(&self) -> [f64; 2] {
        let measured = self.course.warm_up_intervals..self.areas.len();
        let quarter = measured.len().div_ceil(4);
        let mean = |range: std::ops::Range<usize>| {
            let (from, until) = (self.span(range.start).0, self.span(range.end.saturating_sub(1)).1);
            self.areas[range].iter().sum::<f64>() / until.since(from).max(1) as f64
        };
        [mean(measured.start..measured.start + quarter), mean(measured.end - quarter..measured.end)]
    }

    /// The tests. `started` and `unfinished`: measured messages.
    pub(super) fn finish(mut self, started: u64, unfinished: u64) -> SteadyState {
        self.change(self.until, 0);
        let mut idle = 0.0;
        for (index, area) in self.areas.iter().enumerate() {
            let (from, until) = self.span(index);
            self.course.backlog_bytes.push((area / until.since(from).max(1) as f64) as u64);
            let (looks, of_them) = self.looks[index];
            // An interval in which nobody looked is like the one before.
            idle = if looks > 0 { of_them as f64 / looks as f64 } else { idle };
            self.course.downlink_idle.push((idle * 1e4).round() / 1e4);
        }
        let unfinished_share = unfinished as f64 / started.max(1) as f64;
        SteadyState { unfinished_share, ..test(self.course, self.expected) }
    }
}

fn test(course: Course, expected: Expected) -> SteadyState {
    let warm_up = course.warm_up_intervals;
    let backlog: Vec<f64> = course.backlog_bytes.iter().map(|&bytes| bytes as f64).collect();
    let level_from = mser5(&backlog);
    let mut failed = Vec::new();
    if level_from.is_some_and(|from| from > warm_up && is_transient(&backlog[warm_up..], from - warm_up)) {
        failed.push(Unsteady::WarmUp);
    }
    let (of_backlog, of_idle) = (Trend::of(&backlog[warm_up..]), Trend::of(&course.downlink_idle[warm_up..]));
    if of_backlog.is_none() {
        failed.push(Unsteady::TooShort);
    }
    if of_backlog.is_some_and(|trend| trend.exceeds(MAX_BACKLOG_RISE * trend.mean)) {
        failed.push(Unsteady::Backlog);
    }
    if of_idle.is_some_and(|trend| trend.exceeds(MAX_IDLE_RISE)) {
        failed.push(Unsteady::DownlinkIdle);
    }
    let sum = |bytes: &[u64]| bytes[warm_up..].iter().sum::<u64>() as f64;
    let (offered, completed) = (sum(&course.offered_bytes), sum(&course.completed_bytes));
    if (completed - offered).abs() > MAX_SHORTFALL * offered + expected.chance_bytes.min(MAX_CHANCE * offered)
    {
        failed.push(Unsteady::Completed);
    }
    let offered_over_load = expected.load_bytes.map(|bytes| offered / bytes.max(1.0));
    if offered_over_load.is_some_and(|share| (share - 1.0).abs() > MAX_OFFERED) {
        failed.push(Unsteady::Offered);
    }
    let flat = Trend { mean: 0.0, rise: 0.0, t: 0.0 };
    let (of_backlog, of_idle) = (of_backlog.unwrap_or(flat), of_idle.unwrap_or(flat));
    SteadyState {
        reached: failed.is_empty(),
        failed,
        level_from_ns: level_from
            .filter(|from| from * 2 <= backlog.len())
            .map(|from| from as u64 * course.interval_ns),
        backlog_bytes: of_backlog.mean,
        backlog_rise: of_backlog.rise / of_backlog.mean.max(1.0),
        backlog_t: of_backlog.t,
        downlink_idle: of_idle.mean,
        downlink_idle_rise: of_idle.rise,
        downlink_idle_t: of_idle.t,
        completed_over_offered: completed / offered.max(1.0),
        offered_over_load,
        unfinished_share: 0.0,
        course,
    }
}

/// Whether the mean of the first values differs from that of the others by more than chance would.
fn is_transient(backlog: &[f64], first: usize) -> bool {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let (before, after) = (mean(&backlog[..first]), mean(&backlog[first..]));
    (before - after).abs() > MAX_BACKLOG_RISE * after
}

#[cfg(test)]
mod tests {
    use homa_workload::Workload;

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
        recorder.looked(at(3), 4, 1);
        recorder.looked(at(12), 4, 3);
        let steady = recorder.finish(1_000, 3);
        let course = steady.course;
        assert_eq!((course.interval_ns, course.warm_up_intervals), (4, 3));
        assert_eq!(course.offered_bytes.len(), 103);
        assert_eq!(course.offered_bytes[..4], [1, 2, 4, 24]);
        assert_eq!((course.offered_bytes[102], course.completed_bytes[3]), (32, 5));
        assert_eq!(course.downlink_idle[..4], [0.0, 0.25, 0.25, 0.75]);
        assert!(course.backlog_bytes.iter().all(|&bytes| bytes == 8), "{:?}", course.backlog_bytes);
        assert_eq!(steady.unfinished_share, 0.003);
    }

    #[test]
    fn a_long_warm_up_does_not_make_more_intervals() {
        let course = recorder(1_000_000_000, 1_000_000).course;
        assert!(course.offered_bytes.len() <= MAX_INTERVALS as usize + 1, "{}", course.offered_bytes.len());
    }

    /// A course of 60 intervals of warm-up and 100 measured ones.
    fn course(backlog: impl Fn(f64) -> f64, idle: impl Fn(f64) -> f64) -> Course {
        let wave = |x: f64| 1.0 + 0.02 * (x * 1.7).sin();
        let each = |of: &dyn Fn(f64) -> f64| (0..160).map(f64::from).map(|x| of(x) * wave(x)).collect();
        let backlog_bytes: Vec<f64> = each(&backlog);
        Course {
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

    fn failed(course: Course) -> Vec<Unsteady> {
        let steady = test(course, Expected::default());
        assert_eq!(steady.reached, steady.failed.is_empty());
        steady.failed
    }

    #[test]
    fn a_level_run_is_steady() {
        let steady = test(course(|_| BACKLOG, |_| IDLE), Expected::default());
        assert!(steady.reached, "{steady:?}");
        assert!((steady.backlog_bytes / BACKLOG - 1.0).abs() < 0.01, "{steady:?}");
        assert!((steady.downlink_idle - IDLE).abs() < 0.01, "{steady:?}");
        assert_eq!(steady.completed_over_offered, 0.98);
    }

    #[test]
    fn a_transient_may_end_with_the_warm_up_and_not_later() {
        let until = |end: f64| move |x: f64| BACKLOG * (x / end).min(1.0);
        assert_eq!(failed(course(until(50.0), |_| IDLE)), []);
        assert!(failed(course(until(130.0), |_| IDLE)).contains(&Unsteady::WarmUp));
    }

    #[test]
    fn a_growing_backlog_is_not_steady() {
        let failed = failed(course(|x| BACKLOG * (1.0 + x / 200.0), |_| IDLE));
        assert!(failed.contains(&Unsteady::Backlog), "{failed:?}");
        // A few per cent are no trend that matters.
        assert!(
            test(course(|x| BACKLOG * (1.0 + x / 5_000.0), |_| IDLE), Expected::default()).backlog_t > 0.0
        );
    }

    #[test]
    fn links_that_fill_up_are_not_steady() {
        assert_eq!(failed(course(|_| BACKLOG, |x| 0.3 - x / 1_000.0)), [Unsteady::DownlinkIdle]);
    }

    #[test]
    fn what_is_offered_must_be_completed_but_for_chance() {
        let short =
            |completed| Course { completed_bytes: vec![completed; 160], ..course(|_| BACKLOG, |_| IDLE) };
        assert_eq!(failed(short(96)), [Unsteady::Completed]);
        assert_eq!(failed(short(104)), [Unsteady::Completed]);
        let chance = |chance_bytes| Expected { chance_bytes, ..Expected::default() };
        assert!(test(short(96), chance(100.0)).reached);
        // A message that is half of all bytes is no excuse.
        assert_eq!(test(short(40), chance(1e6)).failed, [Unsteady::Completed]);
    }

    #[test]
    fn what_is_offered_must_be_the_load() {
        let of_load = |load_bytes| {
            let expected = Expected { load_bytes: Some(load_bytes), ..Expected::default() };
            test(course(|_| BACKLOG, |_| IDLE), expected)
        };
        assert_eq!(of_load(10_900.0).failed, []);
        assert_eq!(of_load(11_500.0).failed, [Unsteady::Offered]);
        assert_eq!(of_load(8_000.0).offered_over_load, Some(1.25));
    }

    #[test]
    fn a_few_intervals_tell_nothing() {
        let mut course = course(|_| BACKLOG, |_| IDLE);
        course.warm_up_intervals = 151;
        assert_eq!(failed(course.clone()), [Unsteady::TooShort]);
        course.warm_up_intervals = 0;
        for values in [&mut course.backlog_bytes, &mut course.offered_bytes, &mut course.completed_bytes] {
            values.truncate(9);
        }
        course.downlink_idle.truncate(9);
        assert_eq!(failed(course), [Unsteady::TooShort]);
    }
}
