//! Models of what endpoints and processes of one host share without a lock, for [loom](https://docs.rs/loom).
//!
//! The files of `homa` are compiled as they are, with loom's atomics in place of the standard library's ([`tenancy::sync`]). Loom then
//! runs each model with every order of its threads' steps, up to a bound of preemptions, and with every value that the memory
//! model lets a load return. `tests/models.rs` runs the models, also with an ordering weakened everywhere, which must be found.

#![allow(dead_code, reason = "the models use a part of the files that they are of")]

mod runtime;
mod tenancy;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub use tenancy::endpoint_group::models as mailbox_models;
pub use tenancy::process_group::models as process_group_models;
pub use tenancy::sync::Fault;

/// Runs a model in every order, or in those with so many preemptions at most, and with `fault` planted. Returns how often it ran.
///
/// # Panics
/// The model fails in one of them.
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
