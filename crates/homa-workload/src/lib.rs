//! Loads for measuring a transport, and the statistics of what came out.
//!
//! - [`dist`]: how long messages are: W1-W8, the small synthetic workloads, fixed sizes and a user's own points.
//! - [`arrivals`]: when messages start: Poisson arrivals for an offered load.
//! - [`slowdown`]: how much slower each message was than it could have been, by size.
//!
//! Nothing here reads a clock, a file or the environment: seeds and text are arguments, so that a run can be replayed.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

pub mod arrivals;
mod csv;
pub mod dist;
mod error;
pub mod slowdown;
mod tables;

pub use arrivals::Poisson;
pub use dist::{SizeSampler, Workload};
pub use error::WorkloadError;
pub use slowdown::{BinSummary, ShortSummary, SlowdownRecorder};
