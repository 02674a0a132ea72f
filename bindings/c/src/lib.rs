//! libhoma: Homa for programs in C and C++, by opaque handles and plain functions. `include/homa.h` is made from this source, whose
//! comments are written for its readers.
//!
//! Each entry checks its arguments, and no panic crosses it: see [`border`]. What C holds of our objects is never followed: see [`handle`].
//!
//! # Design
//!
//! `bindings/c` is the same `homa/kernel_api/socket`, by handles: a host, its sockets, and the messages that
//! a socket receives.
//!
//! - **The header is made from the source** (`include/homa.h`, by cbindgen in `tests/header`), comments
//!   included, and a test fails while the two differ.
//! - **Nothing but numbers, pointers and handles** crosses (`border`). A panic is caught at the entry and is
//!   HOMA_INTERNAL; the reason of a failure is a text of the thread's. A thread is cancelled (pthread_cancel)
//!   at the border of `homa_call` and `homa_receive` alone, between parts of 100 ms of a wait: inside it
//!   would be unwound through frames that end the process.
//! - **Handles are numbers in the form of pointers** (`handle`): a place in a table, how often it was used
//!   before, a kind, and forks since the first process. None is followed, so that a message freed twice, a
//!   socket closed under its users and a parent's host in a child are errors. As pointers they ended the
//!   process, or did not. It costs some 30 ns for each look, and that tools which look for lost memory see
//!   none: `homa_open_handles` counts instead.
//! - **Options are texts by name** (`options`), those of `homa serve`. They were fields of a structure with
//!   its size in front: each new one was a new size, a program could not pass on what its users say, and what
//!   the structure did not have could not be set.
//! - **Threads of the library take no signals**, so that no handler of the program's runs on one that holds a
//!   lock.
//! - **A message is received where it was put together** and handed back by the application. `homa_call`
//!   sends from the caller's memory, and so do `homa_start_lent` and `homa_reply_lent`, which tell when it is
//!   the caller's again; what else is sent is copied once. Packets are gathered under the host's lock, from
//!   what the RPC's entry among the buffers names: once that is gone, which is before an outcome can be
//!   received, nobody reads the bytes. So nothing is counted, and a call that is given up need not wait.
//!   Closing a socket replaces what its answers lent by copies.
//! - **No handle comes twice**: a place of the table that was used 2^26 times stays empty.
//! - **One descriptor for all that comes**: responses of calls in flight and requests come by `homa_receive`,
//!   and the eventfd of `homa/kernel_api/readiness` says when. There are no callbacks: whose thread would run
//!   them, under which locks, and what a C++ exception in one would do, are questions that do not come up.
//! - **The library has the name that C links, `homa`**, and hence no rlib and no rustdoc: both would have the
//!   names of the crate `homa`. Its tests have cargo build it.

#![expect(non_camel_case_types, reason = "the names are those of C")]

mod address;
mod border;
mod handle;
mod host;
mod message;
mod options;
mod result;
mod socket;
mod statistics;
mod trace;
