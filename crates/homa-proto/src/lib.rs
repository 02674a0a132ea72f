//! The Homa transport protocol, sans-IO.
//!
//! [`Endpoint`] holds the protocol state of one host. It has no clock, no socket and no thread: time and packets are
//! arguments, and what it wants sent or told is polled from it. The same type runs under a socket, under a mapped ring,
//! under the simulator and under a fuzzer.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod ack;
mod check;
mod config;
mod contract;
#[cfg(test)]
mod cost;
mod endpoint;
mod finished;
mod freeze;
mod gaps;
mod grant;
mod host;
mod ids;
mod incarnation_change;
mod incast;
mod inspect;
mod keys;
mod lists;
mod message_in;
mod message_out;
mod pacer;
mod path;
mod patience;
mod peer;
mod port_rpcs;
mod ports;
mod priority;
mod reap;
mod receive;
mod receive_coalescing;
mod resend;
mod retransmit;
mod rpc;
mod rtt;
mod share;
mod shrink;
mod srpt;
mod stats;
mod time;
mod timer;
mod transmit;
mod transmit_batching;
mod unproven;
mod unreachable;
mod unscheduled_loss;
pub mod wire;

pub use config::{Config, ConfigError, FinishedPolicy};
pub use contract::{
    ArrivingRequest, Bundle, CallOptions, DoneReason, Event, PayloadRange, PeerInfo, PortError, Reassembly,
    RpcError, RpcKey, RxPacket, SendError, Transmit, TransmitRun, Unreachable,
};
pub use endpoint::Endpoint;
pub use freeze::MAX_FREEZE_PEERS;
pub use host::MAX_ENDPOINTS;
pub use inspect::RpcInfo;
pub use keys::derive_seed;
pub use priority::CUTOFF_BUCKETS;
pub use stats::Stats;
pub use time::{MS, SEC, Time, US};
