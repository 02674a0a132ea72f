//! The synchronisation types of the mailbox and the segment.
//!
//! These are the standard library's types. The mailbox and the segment import them from here, so that the
//! models in `models` can compile the same files with the types of a model checker.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence};
pub(crate) use std::sync::{Mutex, MutexGuard};
