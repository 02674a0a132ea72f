//! Common parts of the measurement commands: charts, tables, pages, files, units and progress.
//!
//! Nothing here depends on the type of a result. [`chart`] draws SVG that is legible even at a width of 390
//! pixels; [`page`] creates a self-contained HTML file; [`findings`] formats a result as text, page and JSON;
//! [`output`] and [`outputs`] write each file completely or not at all; [`units`] parses durations, rates and
//! sizes; [`number`] formats numbers with about three digits.
#![forbid(unsafe_code)]

pub mod chart;
pub mod findings;
mod labels;
pub mod number;
pub mod output;
pub mod outputs;
pub mod page;
pub mod progress;
pub mod table;
pub mod units;

pub use labels::{Label, draw as draw_labels};
