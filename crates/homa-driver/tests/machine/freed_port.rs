//! Ports that the same test has just closed.

use std::fmt::Debug;
use std::thread;
use std::time::{Duration, Instant};

/// Opens a driver at a port that this test may just have closed. A child just forked by another test's thread
/// keeps a copy of the socket until it calls exec.
pub(super) fn open_when_free<T, E: Debug>(
    open: impl Fn() -> Result<T, E>,
    is_in_use: impl Fn(&E) -> bool,
) -> T {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        match open() {
            Err(error) if is_in_use(&error) && Instant::now() < end => {
                thread::sleep(Duration::from_millis(1));
            }
            opened => return opened.unwrap(),
        }
    }
}
