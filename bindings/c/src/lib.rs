//! libhoma: Homa for programs in C and C++, by opaque handles and plain functions. `include/homa.h` is
//! generated from this source; the comments of exported items are written for readers of the header.
//!
//! Each exported function checks its arguments, and no panic crosses it: see [`border`]. Values that C passes
//! are never dereferenced as our objects: see [`handle`].
//!
//! # Design
//!
//! `bindings/c` exports the API of `homa/kernel_api/socket` by handles: a host, its sockets, and the messages
//! that a socket receives.
//!
//! - **The header is generated from the source**, comments included (`include/homa.h`, by cbindgen in
//!   `tests/header`). A test fails if the two differ.
//! - **Only numbers, pointers and handles** cross the border (`border`). A panic is caught in the exported
//!   function and becomes HOMA_INTERNAL; the reason of a failure is a text of the thread. A thread can be
//!   cancelled (pthread_cancel) only at the border of `homa_call` and `homa_receive`, between 100 ms parts of
//!   a wait. Inside the library, cancellation would unwind frames that end the process.
//! - **Handles are numbers in the form of pointers** (`handle`): a place in a table, its number of earlier
//!   uses, a kind, and the forks since the first process. None is dereferenced. A message freed twice, a
//!   socket closed while in use and a parent's host in a child are errors; with pointers they could end the
//!   process. A lookup costs some 30 ns, and leak checkers see no leaks of handles: `homa_open_handles`
//!   counts instead.
//! - **Options are texts by name** (`options`), those of `homa serve`. As fields of a structure with its size
//!   in front, each new option was a new size. A program could not pass its users' options on, nor set an
//!   option that the structure lacked.
//! - **Threads of the library take no signals**, so that no handler of the program runs in a thread that
//!   holds a lock.
//! - **A message is received in the memory where it was assembled**; the application frees it. `homa_call`,
//!   `homa_start_lent` and `homa_reply_lent` send from the caller's memory, and report when the caller owns
//!   it again. All other messages are copied once. Packets are gathered under the host's lock from the RPC's
//!   buffer entry. That entry is removed before the outcome can be received, and no thread reads the bytes
//!   afterwards. References need no count, and giving up a call needs no wait. Closing a socket replaces lent
//!   bytes of its responses by copies.
//! - **No handle value occurs twice**: a place of the table that was used 2^26 times stays empty.
//! - **One descriptor for all arrivals**: responses of calls in flight and requests arrive by `homa_receive`,
//!   and the eventfd of `homa/kernel_api/readiness` shows when. There are no callbacks, so there is no
//!   question of their thread, of locks held around them, or of C++ exceptions in them.
//! - **`make install` gives the library the name that C links, `homa`.** The crate is `homa_c`, since an rlib
//!   or rustdoc named `homa` would collide with the crate `homa`. The rlib exists only for the tests.

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
