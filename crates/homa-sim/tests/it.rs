//! All tests of this crate that need no separate program, linked as one program.

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
