//! Common parts of measuring commands: charts, tables, pages, files, units and progress.
//!
//! Nothing here depends on the type of a result. [`chart`] draws SVG that is legible at 390 pixels, too;
//! [`page`] makes one HTML file that needs nothing else; [`findings`] shows a result as text, page and JSON;
//! [`output`] and [`outputs`] write a file whole or not at all; [`units`] reads durations, rates and sizes;
//! [`number`] writes numbers in about three digits.
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
