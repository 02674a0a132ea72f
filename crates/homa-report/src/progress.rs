//! A progress bar on a terminal; on anything else nothing, so that errors stand alone.

use std::fmt::Write;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

/// Shows on standard error how far the bench is.
pub struct Progress {
    bar: ProgressBar,
    /// Position at the beginning of the current step.
    done: Duration,
    /// Where the current step ends.
    next: Duration,
}

impl Progress {
    /// A bench that takes about `total`.
    pub fn new(total: Duration) -> Progress {
        let bar = ProgressBar::new(total.as_millis() as u64);
        let style = ProgressStyle::with_template("{msg:48} [{bar:30}] {left:>5} s left");
        if let Ok(style) = style {
            let left = |state: &ProgressState, out: &mut dyn Write| {
                let left = state.len().unwrap_or_default().saturating_sub(state.pos());
                // What cannot be shown is not worth an error.
                let _ = write!(out, "{}", left.div_ceil(1_000));
            };
            bar.set_style(style.with_key("left", left).progress_chars("=> "));
        }
        Progress { bar, done: Duration::ZERO, next: Duration::ZERO }
    }

    /// Begins a step that takes about `length`.
    pub fn step(&mut self, text: &str, length: Duration) {
        self.done = self.next;
        self.next += length;
        self.bar.set_message(text.to_owned());
        self.bar.set_position(self.done.as_millis() as u64);
    }

    /// Prints a line above the bar.
    pub fn say(&self, line: &str) {
        self.bar.println(line);
    }

    /// This much of the current step is over.
    pub fn within(&self, elapsed: Duration) {
        self.bar.set_position((self.done + elapsed).min(self.next).as_millis() as u64);
    }

    /// Sleeps until `moment`, with the bar moving from `start` on.
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
        self.bar.finish_and_clear();
    }
}
