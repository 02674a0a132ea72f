//! All tests of this crate that need no other program of their own: one program links once.

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
