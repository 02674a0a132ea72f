//! In place of an eventfd.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Says whether it was notified. The kernel orders its calls, and no model's order rests on that, so loom need not see it.
pub(crate) struct WakeFd(AtomicBool);

impl WakeFd {
    pub(crate) fn new() -> io::Result<WakeFd> {
        Ok(WakeFd(AtomicBool::new(false)))
    }

    pub(crate) fn notify(&self) {
        self.0.store(true, Relaxed);
    }

    pub(crate) fn is_notified(&self) -> bool {
        self.0.load(Relaxed)
    }
}
