//! All tests of this crate that do not need a separate program, linked into one program.

mod capture;
mod capture_replay;
mod capture_vectors;
mod golden;
mod host;
mod kernel_peer;
mod rules;
mod validator;
mod wire;
mod wire_captures;
mod wire_golden;
mod wire_vectors;
