//! The endpoint: one type, one drive contract.
//!
//! `state` contains the whole state, in parts that are defined outside this folder and do not depend on the
//! endpoint. Each other file adds the methods of one concept: they read several parts, call the parts'
//! decision functions, and queue packets and events.

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
