//! The functions that replace libc's. Each checks whether its descriptor is a Homa socket, and calls libc's
//! function if it is not.
//!
//! `fcntl` and `ioctl` declare their third argument, which is variadic in C. On the supported machines, a
//! variadic integer or pointer is passed in the same place as a declared one.

pub mod descriptors;
pub mod mappings;
pub mod messages;
pub mod polls;
pub mod signals;
pub mod sockets;

use std::os::fd::RawFd;
use std::sync::Arc;

use crate::descriptor_table::ProcessState;
use crate::ffi_border::{Refusal, answer};
use crate::socket::Socket;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
compile_error!("the passing of variadic arguments on this machine is not verified: see hooks");

/// Runs an operation on a Homa socket, stores its error text, and converts its result for C.
fn on_socket(fd: RawFd, body: impl FnOnce(&Arc<Socket>) -> Result<isize, Refusal>) -> isize {
    answer(|| {
        let socket = ProcessState::get().socket(fd)?;
        socket.noting(body(&socket))
    })
}

/// Like [`on_socket`], for functions that return an int.
fn on_socket_int(fd: RawFd, body: impl FnOnce(&Arc<Socket>) -> Result<(), Refusal>) -> i32 {
    on_socket(fd, |socket| body(socket).map(|()| 0)) as i32
}
