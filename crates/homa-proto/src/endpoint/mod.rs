//! The endpoint: one type, one drive contract.
//!
//! `state` holds all of it, in parts that know nothing of the endpoint and stand beside this folder. Each
//! other file adds the methods of one concept: they look at several parts, decide by the parts' functions,
//! and queue packets and events.

mod ack;
mod admission;
mod calls;
mod check;
mod control;
mod drive;
mod freeze;
mod grant;
mod host;
mod ids;
mod incarnation_change;
mod inspect;
mod path;
mod patience;
mod ports;
mod reap;
mod receive;
mod receive_coalescing;
mod resend;
mod rpcs;
mod shrink;
mod start_msg;
mod state;
mod transmit;
mod transmit_batching;
mod unproven;
mod unreachable;
mod unscheduled_loss;

pub use freeze::MAX_FREEZE_PEERS;
pub use state::Endpoint;
