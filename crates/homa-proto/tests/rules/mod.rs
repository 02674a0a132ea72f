//! The rules of PROTOCOL.md, tested with one or two endpoints. Each test cites the rules whose violation
//! makes it fail.

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
mod prefix;
mod prio;
mod recv;
mod resend;
mod run;
mod send;
mod share;
mod trace;
mod wire;
