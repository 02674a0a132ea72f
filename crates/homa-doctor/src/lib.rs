//! What on a host, and on the way between hosts, costs tail latency.
//!
//! - [`checks`]: the settings of the host, with the reason and the command that changes each; nothing is
//!   changed
//! - [`jitter`]: what takes processors away from programs, and for how long
//! - [`probe`]: whether the network between hosts keeps priorities
//!
//! ```no_run
//! use homa_doctor::checks;
//!
//! let report = checks::check(&checks::Options { devices: vec!["eth0".to_owned()], link_mbps: Some(25_000) })?;
//! for finding in report.findings.iter().filter(|finding| finding.severity == checks::Severity::Cost) {
//!     println!("{}: {} ({:?})", finding.name, finding.why, finding.command);
//! }
//! # Ok::<(), anyhow::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod checks;
pub mod jitter;
mod machine;
pub mod probe;

pub use machine::CpuList;
