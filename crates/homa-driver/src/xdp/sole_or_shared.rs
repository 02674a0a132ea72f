//! A value that is owned by one driver alone or shared by the drivers of a group.

use std::sync::{Arc, Mutex, PoisonError};

/// A value that may be shared. A lone driver does not pay for locking it.
#[derive(Debug)]
pub(super) enum SoleOrShared<T> {
    Sole(T),
    Shared(Arc<Mutex<T>>),
}

impl<T> SoleOrShared<T> {
    /// Creates one handle for each of `drivers` drivers.
    pub(super) fn for_drivers(drivers: u32, value: T) -> Vec<SoleOrShared<T>> {
        if drivers == 1 {
            return vec![SoleOrShared::Sole(value)];
        }
        let value = Arc::new(Mutex::new(value));
        (0..drivers).map(|_| SoleOrShared::Shared(Arc::clone(&value))).collect()
    }

    /// Runs `work` with the value, which no other driver uses during the call.
    pub(super) fn with<R>(&mut self, work: impl FnOnce(&mut T) -> R) -> R {
        match self {
            SoleOrShared::Sole(value) => work(value),
            // After a panic the value is still consistent: a driver moves either a whole frame or none.
            SoleOrShared::Shared(value) => work(&mut value.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}
