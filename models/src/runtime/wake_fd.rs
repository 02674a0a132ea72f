//! A replacement for an eventfd.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether it was notified. The kernel orders its calls, and no model relies on that order, so loom need not
/// see this value.
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
