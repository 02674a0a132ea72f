//! Finds causes of tail latency on a host and on the path between hosts.
//!
//! - [`checks`]: the settings of the host, each with the reason and the command that changes it. The checks
//!   change nothing.
//! - [`jitter`]: interruptions of the processors, with their causes and durations
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
