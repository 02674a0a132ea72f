//! Exports, reads and compares metrics in the Prometheus text format.
//!
//! - [`Exporter`] serves a text over HTTP at a [`MetricsAddr`], through TCP or a socket in the file system.
//! - [`scrape`] reads the metrics of a process, [`Source`] also reads those in a file, and [`text`] parses
//!   them.
//! - [`Histogram`] contains the values of a histogram, either since the start or since an earlier scrape.
//! - [`changes`] compares two scrapes: differences, rates, fractions of the elapsed time.
//! - [`LiveView`] is a live view of the hosts of several processes.
//!
//! ```
//! use homa_metrics::{Exporter, scrape};
//!
//! let addr = "127.0.0.1:0".parse()?;
//! let exporter = Exporter::start(&addr, || Ok("shop_orders_total 12\n".to_owned()))?;
//! let scrape = scrape(&exporter.url().parse()?)?;
//! assert_eq!(scrape.snapshot.families[0].samples[0].value, 12.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod address;
pub mod changes;
mod exporter;
mod figures;
mod format;
mod histogram;
mod scrape;
mod screen;
pub mod text;
mod top;

pub use address::{MetricsAddr, listen_unix};
pub use exporter::Exporter;
pub use histogram::Histogram;
pub use scrape::{Scrape, Source, scrape};
pub use top::LiveView;
