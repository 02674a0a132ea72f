//! A load generator for RPC transports, with clients and servers of the protocols that it compares.
//!
//! - [`compare`]: Homa, TCP, gRPC, QUIC and raw packets under one workload, over loopback or between
//!   machines.
//! - [`limits`]: the maximum performance of each protocol and driver, on one machine.
//! - [`mod@switch`], [`bridge`]: measurements of the software switch, and of ways to build one.
//! - [`engine`]: the generator itself, with the interface to its clients ([`engine::link::Link`]) and its
//!   counters. All protocols use the same generator.
//! - [`homa_link`], [`tcp`], [`raw_baseline`], [`peers`]: clients and servers of each protocol.
//! - [`server`]: echo servers, in this process or in child processes. A program that starts such child
//!   processes calls [`server::serve_for_parent`] when its first argument is [`server::CHILD_COMMAND`].
//! - [`netns`]: unnamed network namespaces, for networks that leave nothing behind.
//!
//! ```no_run
//! use homa_bench::compare::{self, Options, Plan};
//! use homa_bench::workloads::{self, Truncation};
//! use homa_report::progress::Progress;
//!
//! let plan = Plan::new(Options::new(workloads::named("w4", Truncation::default())?))?;
//! let results = compare::measure(&plan, Progress::new(compare::total_time(&plan)))?;
//! println!("{}", compare::text(&results, &plan.workload_text()));
//! # anyhow::Ok(())
//! ```
#![forbid(unsafe_code)]

pub mod addresses;
mod as_text;
pub mod bridge;
pub mod compare;
pub mod cpu;
pub mod driver;
pub mod engine;
pub mod homa_link;
pub mod host_options;
pub mod host_report;
pub mod hosts;
pub mod limits;
pub mod netns;
pub mod peers;
pub mod protocol;
pub mod raw_baseline;
pub mod recording;
pub mod server;
pub mod switch;
mod tables_page;
pub mod tcp;
pub mod workloads;
