//! The Homa transport protocol, sans-IO.
//!
//! [`Endpoint`] holds the protocol state of one host. It has no clock, no socket and no thread: time and packets are
//! arguments, and what it wants sent or told is polled from it. The same type runs under a socket, under a mapped ring,
//! under the simulator and under a fuzzer.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod config;
mod contract;
mod endpoint;
mod stats;
mod time;
pub mod wire;

pub use config::{Config, ConfigError, FinishedPolicy};
pub use contract::{
    CallOptions, DoneReason, Event, PayloadRange, PortError, Reassembly, RpcError, RpcKey, RxPacket, SendError,
    Transmit,
};
pub use endpoint::Endpoint;
pub use stats::Stats;
pub use time::{MS, SEC, Time, US};
