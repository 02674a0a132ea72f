//! All tests of this crate that need no separate program, linked as one program.

mod common;
mod udp;
mod udp_group;
mod wrappers;
