//! Loom's types with two differences from its own interface.
//!
//! Loom treats a sequentially consistent load or store as an acquire or a release. It does model sequentially
//! consistent fences, so here a store has a fence after it and a load has one before it. That is at least as
//! strong as the real access. A model may therefore miss an error that depends on the difference, but never
//! reports one that does not exist.
//!
//! A [`Fault`] weakens an ordering in all its uses. A model that does not detect such a fault checks nothing.

use std::cell::Cell;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};

pub(crate) use loom::sync::{Mutex, MutexGuard};

/// A weakened ordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Sequentially consistent accesses only acquire and release.
    SeqCst,
    /// Release stores and fences are relaxed.
    Release,
    /// Acquire loads and fences are relaxed.
    Acquire,
    /// There are no fences.
    Fences,
}

thread_local! {
    // Loom runs all threads of a model on the thread that started it.
    static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// Weakens the accesses of this thread's models from now on.
pub(crate) fn plant(fault: Option<Fault>) {
    FAULT.set(fault);
}

/// Returns the ordering, as weakened by the planted fault.
fn weakened(order: Ordering) -> Ordering {
    match (FAULT.get(), order) {
        (Some(Fault::SeqCst), SeqCst) => AcqRel,
        (Some(Fault::Release), Release) | (Some(Fault::Acquire), Acquire) => Relaxed,
        (Some(Fault::Release), AcqRel) => Acquire,
        (Some(Fault::Acquire), AcqRel) => Release,
        (_, order) => order,
    }
}

/// Like [`std::sync::atomic::fence`], as weakened by the planted fault.
#[track_caller]
pub(crate) fn fence(order: Ordering) {
    match weakened(order) {
        Relaxed => (),
        _ if FAULT.get() == Some(Fault::Fences) => (),
        order => loom::sync::atomic::fence(order),
    }
}

/// Issues a fence if the access is sequentially consistent.
fn fence_of(order: Ordering) {
    if order == SeqCst {
        loom::sync::atomic::fence(SeqCst);
    }
}

macro_rules! atomic {
    ($name:ident, $value:ty $(, $number:ident)?) => {
        #[derive(Debug)]
        pub(crate) struct $name(loom::sync::atomic::$name);

        impl $name {
            #[track_caller]
            pub(crate) fn new(value: $value) -> $name {
                $name(loom::sync::atomic::$name::new(value))
            }

            #[track_caller]
            pub(crate) fn load(&self, order: Ordering) -> $value {
                let order = weakened(order);
                fence_of(order);
                self.0.load(match order {
                    Relaxed => Relaxed,
                    _ => Acquire,
                })
            }

            #[track_caller]
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                let order = weakened(order);
                self.0.store(value, match order {
                    Relaxed => Relaxed,
                    _ => Release,
                });
                fence_of(order);
            }

            #[track_caller]
            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                self.change(order, |atomic, order| atomic.swap(value, order))
            }

            fn change<T>(
                &self,
                order: Ordering,
                change: impl FnOnce(&loom::sync::atomic::$name, Ordering) -> T,
            ) -> T {
                let order = weakened(order);
                fence_of(order);
                let result = change(&self.0, order);
                fence_of(order);
                result
            }

            $(
                #[track_caller]
                pub(crate) fn fetch_add(&self, $number: $value, order: Ordering) -> $value {
                    self.change(order, |atomic, order| atomic.fetch_add($number, order))
                }

                #[track_caller]
                pub(crate) fn fetch_sub(&self, $number: $value, order: Ordering) -> $value {
                    self.change(order, |atomic, order| atomic.fetch_sub($number, order))
                }

                #[track_caller]
                pub(crate) fn fetch_update(
                    &self,
                    set_order: Ordering,
                    fetch_order: Ordering,
                    update: impl FnMut($value) -> Option<$value>,
                ) -> Result<$value, $value> {
                    self.0.fetch_update(weakened(set_order), weakened(fetch_order), update)
                }
            )?
        }
    };
}

atomic!(AtomicBool, bool);
atomic!(AtomicU8, u8, number);
atomic!(AtomicU32, u32, number);
atomic!(AtomicU64, u64, number);
