//! Models of the lock-free data that endpoints and processes of one host share, for
//! [loom](https://docs.rs/loom).
//!
//! The files of `homa` are compiled unchanged, with loom's atomics in place of the standard library's
//! ([`tenancy::sync`]). Loom then runs each model with every interleaving of its threads, up to a bound of
//! preemptions, and with every value that the memory model allows a load to return.
//!
//! `tests/models.rs` runs the models. It also runs them with an ordering weakened everywhere, and the models
//! must detect that.

#![allow(dead_code, reason = "the models use a part of the files that they are of")]

mod runtime;
mod tenancy;
mod types;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub use tenancy::endpoint_group::models as mailbox_models;
pub use tenancy::process_group::models as process_group_models;
pub use tenancy::sync::Fault;

/// Runs a model in every interleaving, or in those with at most `preemptions` preemptions, and with `fault`
/// planted. Returns the number of runs.
///
/// # Panics
/// The model fails in one of the runs.
pub fn check(preemptions: Option<usize>, fault: Option<Fault>, model: fn()) -> usize {
    tenancy::sync::plant(fault);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    builder.check(move || {
        counted.fetch_add(1, Relaxed);
        model();
    });
    runs.load(Relaxed)
}
