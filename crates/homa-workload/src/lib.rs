//! Workloads for measuring a transport, and statistics of the results.
//!
//! - [`dist`]: message lengths: W1-W8, small synthetic workloads, fixed sizes and user-defined distributions.
//! - [`arrivals`]: start times of messages: Poisson arrivals for an offered load.
//! - [`slowdown`]: how much longer messages took than in the best case, by size.
//!
//! This crate reads no clock, file or environment: seeds and text are arguments, so that a run can be
//! replayed.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

pub mod arrivals;
mod csv;
pub mod dist;
mod error;
pub mod slowdown;
mod tables;

pub use arrivals::Poisson;
pub use dist::{Quantiles, SizeSampler, Workload};
pub use error::WorkloadError;
pub use slowdown::{BinSummary, ShortSummary, SlowdownRecorder};
