//! All tests of this crate that need no other program of their own: one program links once.

mod common;
mod sockets;
