//! A value that one driver owns alone, or that the drivers of a group share.

use std::sync::{Arc, Mutex, PoisonError};

/// A value that may be shared; a lone driver pays for no lock.
#[derive(Debug)]
pub(super) enum SoleOrShared<T> {
    Sole(T),
    Shared(Arc<Mutex<T>>),
}

impl<T> SoleOrShared<T> {
    /// One handle for each of `drivers` drivers.
    pub(super) fn for_drivers(drivers: u32, value: T) -> Vec<SoleOrShared<T>> {
        if drivers == 1 {
            return vec![SoleOrShared::Sole(value)];
        }
        let value = Arc::new(Mutex::new(value));
        (0..drivers).map(|_| SoleOrShared::Shared(Arc::clone(&value))).collect()
    }

    /// Runs `work` with the value, which no other driver uses meanwhile.
    pub(super) fn with<R>(&mut self, work: impl FnOnce(&mut T) -> R) -> R {
        match self {
            SoleOrShared::Sole(value) => work(value),
            // A driver that panicked has moved whole frames or none.
            SoleOrShared::Shared(value) => work(&mut value.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}
