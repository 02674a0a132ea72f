//! All tests of this crate that need no separate program: linking one program is faster.

mod common;
mod sockets;
