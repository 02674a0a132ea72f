//! Transmitted bytes over time, and the rates over all windows of a given length.

use std::time::Duration;

/// Intervals of time, in order.
#[derive(Debug, Default)]
pub struct Intervals {
    ns: Vec<(u64, u64)>,
}

impl Intervals {
    /// Creates an empty list of intervals.
    fn new() -> Intervals {
        Intervals { ns: Vec::with_capacity(ROOM / 16) }
    }

    /// Appends an interval. An interval that continues the last one extends it.
    pub fn add(&mut self, from: Duration, to: Duration) {
        let (from, to) = (from.as_nanos() as u64, to.as_nanos() as u64);
        match self.ns.last_mut() {
            Some((_, end)) if *end == from => *end = to,
            _ => self.ns.push((from, to)),
        }
    }

    /// Returns the share of the time from `from` to `to` that the intervals cover.
    pub fn share(&self, (from, to): (Duration, Duration)) -> f64 {
        let (from, to) = (from.as_nanos() as u64, to.as_nanos() as u64);
        let within = |&(begin, end): &(u64, u64)| end.min(to).saturating_sub(begin.max(from));
        self.ns.iter().map(within).sum::<u64>() as f64 / (to - from).max(1) as f64
    }

    /// Returns the maximum share of any window of this length that the intervals cover.
    pub fn max_share(&self, length: Duration) -> f64 {
        let length = length.as_nanos() as u64;
        // The window with the maximum begins at the start of an interval or ends at the end of one.
        let times = self.ns.iter().flat_map(|&(begin, end)| {
            [(begin, begin + length), (end.saturating_sub(length), end.max(length))]
        });
        let taken = times.map(|(from, to)| {
            let first = self.ns.partition_point(|&(_, end)| end <= from);
            let within = self.ns[first..].iter().take_while(|&&(begin, _)| begin < to);
            within.map(|&(begin, end)| end.min(to) - begin.max(from)).sum::<u64>()
        });
        taken.max().unwrap_or(0) as f64 / length as f64
    }

    /// Returns whether no interval overlaps this window.
    fn spare(&self, from_ns: u64, to_ns: u64) -> bool {
        let next = self.ns.partition_point(|&(_, end)| end <= from_ns);
        self.ns.get(next).is_none_or(|&(begin, _)| begin >= to_ns)
    }
}

/// Number of bytes transmitted on the wire by each recorded time.
#[derive(Debug, Default)]
pub struct TransmitHistory {
    times_ns: Vec<u64>,
    bytes: Vec<u64>,
    /// Intervals in which the sender did not run.
    pub gaps: Intervals,
    /// Intervals in which no frame was queued.
    pub dry: Intervals,
}

/// Initial capacity in recorded times: one second of full frames at 5 Gbit/s.
const ROOM: usize = 1 << 19;

impl TransmitHistory {
    /// Creates an empty history.
    pub fn new() -> TransmitHistory {
        let (times_ns, bytes) = (Vec::with_capacity(ROOM), Vec::with_capacity(ROOM));
        TransmitHistory { times_ns, bytes, gaps: Intervals::new(), dry: Intervals::new() }
    }

    /// Records the total bytes transmitted until `time`.
    pub fn note(&mut self, time: Duration, bytes: u64) {
        self.times_ns.push(time.as_nanos() as u64);
        self.bytes.push(bytes);
    }

    /// Returns the total bytes at the last recorded time.
    pub fn bytes(&self) -> u64 {
        self.bytes.last().copied().unwrap_or(0)
    }

    /// Returns the rates in bits per second over all windows within `within`. A window begins at a recorded
    /// time and ends at the first recorded time that is at least `length` later. Windows in which the queue
    /// was empty at any time are left out. Since a window begins and ends with a frame, no frame is counted
    /// in part.
    pub fn rates(&self, within: (Duration, Duration), length: Duration) -> Vec<f64> {
        self.rates_where(within, length, |from_ns, to_ns| self.dry.spare(from_ns, to_ns))
    }

    /// Like [`TransmitHistory::rates`], but without windows that overlap a gap.
    pub fn clear_rates(&self, within: (Duration, Duration), length: Duration) -> Vec<f64> {
        let clear = |from_ns, to_ns| self.dry.spare(from_ns, to_ns) && self.gaps.spare(from_ns, to_ns);
        self.rates_where(within, length, clear)
    }

    fn rates_where(
        &self,
        (from, to): (Duration, Duration),
        length: Duration,
        counts: impl Fn(u64, u64) -> bool,
    ) -> Vec<f64> {
        let (from, to, length) = (from.as_nanos() as u64, to.as_nanos() as u64, length.as_nanos() as u64);
        let first = self.times_ns.partition_point(|&time| time < from);
        let mut rates = Vec::new();
        let mut end = first;
        for begin in first..self.times_ns.len() {
            let begin_ns = self.times_ns[begin];
            while self.times_ns.get(end).is_some_and(|&time| time < begin_ns + length) {
                end += 1;
            }
            let Some(&end_ns) = self.times_ns.get(end).filter(|&&end| end < to) else { break };
            if counts(begin_ns, end_ns) {
                rates.push((self.bytes[end] - self.bytes[begin]) as f64 * 8e9 / (end_ns - begin_ns) as f64);
            }
        }
        rates
    }
}

/// Deviation of rates from a nominal rate, in percent of the nominal rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deviation {
    /// Maximum deviation, up or down.
    pub worst: f64,
    /// 99th percentile of the deviation, up or down.
    pub p99: f64,
    /// Deviation of the mean, up or down.
    pub mean: f64,
}

impl Deviation {
    /// Computes the deviation of these rates, or `None` if there are none.
    pub fn of(rates: &[f64], set_bps: u64) -> Option<Deviation> {
        let percent = |rate: f64| (rate / set_bps as f64 - 1.0) * 100.0;
        let mut sizes: Vec<f64> = rates.iter().map(|&rate| percent(rate).abs()).collect();
        sizes.sort_by(f64::total_cmp);
        let worst = *sizes.last()?;
        let p99 = sizes[(sizes.len() - 1) * 99 / 100];
        Some(Deviation { worst, p99, mean: percent(rates.iter().sum::<f64>() / rates.len() as f64) })
    }
}

/// A measured slice of time. It begins at the first call after the warm-up. It therefore has its full length
/// even if the measuring thread was not scheduled for longer than the slice.
pub struct Slice {
    warm: Duration,
    length: Duration,
    since: Option<Duration>,
}

impl Slice {
    /// Creates a slice of this length that begins after `warm`.
    pub fn after(warm: Duration, length: Duration) -> Slice {
        Slice { warm, length, since: None }
    }

    /// Returns whether the slice begins at this call.
    pub fn begins(&mut self, now: Duration) -> bool {
        let begins = self.since.is_none() && now >= self.warm;
        if begins {
            self.since = Some(now);
        }
        begins
    }

    /// Returns whether the whole slice has passed.
    pub fn is_over(&self, now: Duration) -> bool {
        self.since.is_some_and(|since| now >= since + self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Creates a history of 125 bytes per microsecond, which is 1 Gbit/s. The frames from 2,000 to 2,100 us
    /// are `late` microseconds late.
    fn history(late: u64) -> TransmitHistory {
        let mut history = TransmitHistory::new();
        for us in 0..5_000_u64 {
            let late = if (2_000..2_100).contains(&us) { late } else { 0 };
            history.note(Duration::from_micros(us + late), us * 125);
        }
        history
    }

    #[test]
    fn a_slice_has_its_length_after_a_pause_longer_than_it() {
        let mut slice = Slice::after(5 * MS, 10 * MS);
        assert!(!slice.begins(Duration::ZERO) && !slice.is_over(Duration::ZERO));
        // The thread was not scheduled from the warm-up until after the planned end of the slice.
        assert!(slice.begins(20 * MS) && !slice.is_over(20 * MS));
        assert!(!slice.begins(29 * MS) && !slice.is_over(29 * MS));
        assert!(slice.is_over(30 * MS));
    }

    #[test]
    fn an_even_course_has_one_rate() {
        let rates = history(0).rates((Duration::ZERO, 5 * MS), MS);
        assert_eq!((rates.len(), rates[0]), (4_000, 1e9));
        let deviation = Deviation::of(&rates, 1_000_000_000).expect("rates");
        assert_eq!((deviation.worst, deviation.mean), (0.0, 0.0));
        let deviation = Deviation::of(&rates, 800_000_000).expect("rates");
        assert!((deviation.worst - 25.0).abs() < 1e-9 && (deviation.mean - 25.0).abs() < 1e-9);
        assert!(Deviation::of(&[], 1).is_none());
    }

    #[test]
    fn a_late_stretch_is_found_in_any_window_and_outside_it_is_not() {
        let history = history(50);
        let all = Deviation::of(&history.rates((Duration::ZERO, 5 * MS), MS), 1_000_000_000).expect("rates");
        assert!((4.0..6.0).contains(&all.worst), "50 us of a millisecond: {all:?}");
        let before =
            Deviation::of(&history.rates((Duration::ZERO, 2 * MS), MS), 1_000_000_000).expect("rates");
        assert_eq!(before.worst, 0.0);
        let after = Deviation::of(&history.rates((3 * MS, 5 * MS), MS), 1_000_000_000).expect("rates");
        assert_eq!(after.worst, 0.0);
    }

    #[test]
    fn the_time_that_misses_most_is_found_wherever_it_begins() {
        let us = Duration::from_micros;
        let mut history = TransmitHistory::new();
        assert_eq!(history.gaps.max_share(MS), 0.0);
        for (from, to) in [(100, 150), (1_090, 1_160), (5_000, 5_100), (8_000, 9_500)] {
            history.gaps.add(us(from), us(to));
        }
        let early = Intervals { ns: history.gaps.ns[..3].to_vec() };
        assert_eq!((early.max_share(MS), early.max_share(2 * MS)), (0.1, 0.06));
        assert_eq!(history.gaps.max_share(MS), 1.0, "no more than all");
    }

    #[test]
    fn times_with_a_gap_can_be_left_out() {
        let us = Duration::from_micros;
        let mut history = TransmitHistory::new();
        for frame in 0..5_000_u64 {
            // Frames that were not sent during the gap are not sent later.
            let late = if frame < 2_000 { 0 } else { 50 };
            history.note(us(frame + late), frame * 125);
        }
        let all = (Duration::ZERO, 5 * MS);
        let worst = |history: &TransmitHistory| {
            Deviation::of(&history.clear_rates(all, MS), 1_000_000_000).expect("rates").worst
        };
        assert!(worst(&history) > 4.0);
        history.gaps.add(us(1_999), us(2_050));
        let rates = history.clear_rates(all, MS);
        assert_eq!(rates.len(), 1_000 + 1_950);
        assert_eq!(worst(&history), 0.0);
        assert!((history.gaps.share(all) - 0.0102).abs() < 1e-9);
        assert!((history.gaps.share((us(2_025), us(2_125))) - 0.25).abs() < 1e-9);
    }

    #[test]
    fn a_time_in_which_nothing_waited_has_no_rate() {
        let us = Duration::from_micros;
        let mut history = TransmitHistory::new();
        for frame in 0..5_000_u64 {
            // Frames that were not queued in time arrived 50 us later.
            history.note(us(frame + if frame < 2_000 { 0 } else { 50 }), frame * 125);
        }
        let all = (Duration::ZERO, 5 * MS);
        let rates = |history: &TransmitHistory| history.rates(all, MS);
        assert!(Deviation::of(&rates(&history), 1_000_000_000).expect("rates").worst > 4.0);
        // Adjacent intervals are merged.
        history.dry.add(us(1_999), us(2_010));
        history.dry.add(us(2_010), us(2_050));
        assert_eq!(history.dry.ns.len(), 1);
        assert_eq!(rates(&history).len(), 1_000 + 1_950);
        assert_eq!(Deviation::of(&rates(&history), 1_000_000_000).expect("rates").worst, 0.0);
        assert_eq!(history.clear_rates(all, MS).len(), rates(&history).len());
    }
}
