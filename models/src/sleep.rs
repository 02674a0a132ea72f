//! In place of an eventfd.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Says whether it was rung. The kernel orders its calls, and no model's order rests on that, so loom need not see it.
pub(crate) struct Bell(AtomicBool);

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        Ok(Bell(AtomicBool::new(false)))
    }

    pub(crate) fn ring(&self) {
        self.0.store(true, Relaxed);
    }

    pub(crate) fn has_rung(&self) -> bool {
        self.0.load(Relaxed)
    }
}
