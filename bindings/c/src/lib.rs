//! libhoma: Homa for programs in C and C++, as opaque handles and plain functions. `include/homa.h` is
//! generated from this source; the comments of exported items are written for readers of the header.
//!
//! Each exported function checks its arguments, and no panic crosses it: see [`border`]. Handles that C
//! passes are never dereferenced: see [`handle`].
//!
//! # Design
//!
//! `bindings/c` exports the API of `homa/kernel_api/socket` as handles: a host, its sockets, and the messages
//! that a socket receives.
//!
//! - **The header is generated from the source**, comments included (`include/homa.h`, by cbindgen in
//!   `tests/header`). A test fails if the header differs from the generated one.
//! - **Only numbers, pointers and handles** cross the C boundary (`border`). A panic is caught in the
//!   exported function and becomes HOMA_INTERNAL. The reason for a failure is a text stored for each thread.
//!   A thread can be cancelled (pthread_cancel) only at the boundary of `homa_call` and `homa_receive`,
//!   between the 100 ms slices of a wait. Cancellation inside the library would unwind frames that abort the
//!   process.
//! - **Handles are numbers in the form of pointers** (`handle`): an index in a table, the number of earlier
//!   uses of that slot, a kind, and the number of forks since the first process. No handle is dereferenced.
//!   Freeing a message twice, closing a socket in use, and using a parent's host in a child are errors; with
//!   pointers, they could crash the process. A lookup costs about 30 ns. Leak checkers do not see leaked
//!   handles; `homa_open_handles` counts them instead.
//! - **Options are set by name, as texts** (`options`), and are those of `homa serve`. When they were fields
//!   of a structure that began with its size, each new option changed the size. A program could neither pass
//!   on its users' options, nor set an option that its structure lacked.
//! - **Threads of the library take no signals**, so that no handler of the program runs in a thread that
//!   holds a lock.
//! - **A message is received in the memory where it was assembled**; the application frees it. `homa_call`,
//!   `homa_start_lent` and `homa_reply_lent` send from the caller's memory, and report when the caller owns
//!   it again. All other messages are copied once. Packets are built under the host's lock, from the RPC's
//!   buffer entry. This entry is removed before the outcome can be received, and no thread reads the bytes
//!   afterwards. Hence references need not be counted, and giving up a call need not wait. Closing a socket
//!   replaces the lent bytes of its responses by copies.
//! - **No handle value is reused**: a slot of the table that was used 2^26 times stays empty.
//! - **One descriptor for all arrivals**: responses of calls in flight and requests are received by
//!   `homa_receive`, and the eventfd of `homa/kernel_api/readiness` shows when there are any. There are no
//!   callbacks, so no rules are needed for which thread runs them, which locks are held, or how they may
//!   throw C++ exceptions.
//! - **`make install` names the library `homa`, as C programs link it.** The crate is named `homa_c`, since
//!   an rlib or rustdoc named `homa` would collide with those of the crate `homa`. The rlib exists only for
//!   the tests.

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
