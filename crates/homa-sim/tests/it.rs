//! All tests of this crate that need no other program of their own: one program links once.

mod closed;
mod common;
mod dialects;
mod echo;
mod faults;
mod found;
mod hostile;
mod incast;
mod kernel_accepts;
mod large;
mod overload;
mod peers;
mod rtt;
mod srpt;
mod steering;
mod swarm;
mod tail;
mod trace;
mod transports;
#[path = "../../homa-proto/tests/validator/mod.rs"]
mod validator;
