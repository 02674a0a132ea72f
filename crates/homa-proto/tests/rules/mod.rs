//! The rules of PROTOCOL.md, one endpoint or two at a time: each test cites the rules without which it would fail.

mod abort;
mod ack;
mod amo;
mod bundle;
mod dialect;
mod forged;
mod grant;
mod id;
mod kit;
mod limit;
mod peer;
mod prio;
mod recv;
mod resend;
mod run;
mod send;
mod share;
mod trace;
mod wire;
