//! Progress lines on standard error, for work shared by several threads.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Interval between two lines.
const INTERVAL: Duration = Duration::from_secs(5);

/// Limits progress lines to one per interval.
pub struct ProgressLines {
    last: Mutex<Instant>,
}

impl ProgressLines {
    /// Prints the first line.
    pub fn start(line: &str) -> ProgressLines {
        eprintln!("{line}");
        ProgressLines { last: Mutex::new(Instant::now()) }
    }

    /// Prints a line if the interval has passed since the last one.
    pub fn update(&self, line: impl FnOnce() -> String) {
        if let Ok(mut last) = self.last.try_lock()
            && last.elapsed() >= INTERVAL
        {
            *last = Instant::now();
            eprintln!("{}", line());
        }
    }
}
