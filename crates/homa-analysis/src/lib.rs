//! Answers from time traces: pure functions from dumps to results. No I/O, no clock, and no panic whatever a dump holds.
//!
//! Ten million events are meant to be analysed in seconds and in a gigabyte, of which the records alone take a third: what is built
//! here are flat vectors of small numbers, sorted, and nothing is allocated for a single event.
#![forbid(unsafe_code)]

pub mod align;
pub mod answers;
pub mod around;
mod arrivals;
pub mod cause;
pub mod critical_path;
pub mod link;
pub mod model;
pub mod packets;
mod parallel;
mod replay;
pub mod selection;
pub mod summary;
pub mod tail;
pub mod timeline;

pub use cause::{Amounts, Cause};
pub use critical_path::{Explainer, Path, Span};
pub use model::Model;
