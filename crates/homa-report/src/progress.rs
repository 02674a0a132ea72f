//! A progress bar on standard error, shown if that is a terminal.

use std::fmt::Write;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

/// Shows the progress of a measurement.
pub struct Progress {
    bar: ProgressBar,
    /// Prefix of each step's text.
    prefix: String,
    /// Whether the bar belongs to another `Progress`, and must not be cleared together with this one.
    is_part: bool,
    /// Position at the start of the current step.
    done: Duration,
    /// Position at the end of the current step.
    next: Duration,
}

impl Progress {
    /// Creates a bar for a measurement that takes about `total`.
    pub fn new(total: Duration) -> Progress {
        let bar = ProgressBar::new(total.as_millis() as u64);
        let style = ProgressStyle::with_template("{msg:48} [{bar:30}] {left:>5} s left");
        if let Ok(style) = style {
            let left = |state: &ProgressState, out: &mut dyn Write| {
                let left = state.len().unwrap_or_default().saturating_sub(state.pos());
                // A failure to draw is not an error.
                let _ = write!(out, "{}", left.div_ceil(1_000));
            };
            bar.set_style(style.with_key("left", left).progress_chars("=> "));
        }
        let (prefix, is_part) = (String::new(), false);
        Progress { bar, prefix, is_part, done: Duration::ZERO, next: Duration::ZERO }
    }

    /// Sets the total time, for a measurement whose total is known only after the first steps.
    pub fn set_total(&mut self, total: Duration) {
        self.bar.set_length(total.as_millis() as u64);
    }

    /// Returns the same bar, for a part of the measurement that has its own steps and starts with the current
    /// step. `prefix` precedes the texts of these steps.
    pub fn part(&self, prefix: &str) -> Progress {
        let (bar, prefix) = (self.bar.clone(), format!("{prefix}: "));
        Progress { bar, prefix, is_part: true, done: self.done, next: self.done }
    }

    /// Starts a step that takes about `length`.
    pub fn step(&mut self, text: &str, length: Duration) {
        self.done = self.next;
        self.next += length;
        self.bar.set_message(format!("{}{text}", self.prefix));
        self.bar.set_position(self.done.as_millis() as u64);
    }

    /// Prints a line above the bar.
    pub fn say(&self, line: &str) {
        self.bar.println(line);
    }

    /// Sets how much time of the current step has elapsed.
    pub fn within(&self, elapsed: Duration) {
        self.bar.set_position((self.done + elapsed).min(self.next).as_millis() as u64);
    }

    /// Sleeps until `moment` while moving the bar; `start` is the start of the current step.
    pub fn sleep_until(&self, start: Instant, moment: Instant) {
        loop {
            let now = Instant::now();
            self.within(now.saturating_duration_since(start));
            let left = moment.saturating_duration_since(now);
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(Duration::from_millis(200)));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if !self.is_part {
            self.bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_moves_the_bar_of_the_whole_and_leaves_it_there() {
        let second = Duration::from_secs(1);
        let mut whole = Progress::new(second);
        whole.set_total(10 * second);
        whole.step("first", second);
        whole.step("second", 6 * second);
        let mut part = whole.part("w1");
        part.step("setup", 2 * second);
        part.step("load", 3 * second);
        assert_eq!((whole.bar.position(), whole.bar.length()), (3_000, Some(10_000)));
        assert_eq!(whole.bar.message(), "w1: load");
        drop(part);
        assert!(!whole.bar.is_finished());
        whole.step("third", second);
        assert_eq!((whole.bar.position(), whole.bar.message()), (7_000, "third".to_owned()));
    }
}
