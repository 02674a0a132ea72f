//! All tests of this crate that do not need their own program. Linking a single program is faster.

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
