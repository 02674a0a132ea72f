//! Answers from time traces: pure functions from dumps to results. They do no I/O, read no clock, and never
//! panic, whatever a dump contains.
//!
//! Ten million events should be analysed within seconds and a gigabyte of memory, of which the records alone
//! take a third. The data structures are therefore flat, sorted vectors of small numbers, without an
//! allocation per event.
#![forbid(unsafe_code)]

pub mod align;
pub mod answers;
mod arrivals;
pub mod cause;
pub mod competing;
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
