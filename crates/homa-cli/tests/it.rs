//! All tests of this crate that need no other program of their own: one program links once.

mod answers;
mod cli;
mod common;
mod decode;
mod dissector;
mod doctor;
mod jitter;
mod rack_agent;
mod run;
mod sim;
mod trace;
mod trace_answers;
mod trace_files;
mod version;
mod watch;
