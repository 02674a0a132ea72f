//! Linux Homa's socket API over this transport, for programs that were written for the kernel module and run unchanged:
//! `LD_PRELOAD=libhoma_preload.so program`, or `homa run -- program`.
//!
//! The library stands before libc's calls on descriptors. A Homa socket is one end of a pair of sockets to the kernel, readable exactly
//! when a message can be received and writable exactly when one can be sent, so that poll, select and epoll work as on any descriptor; what is done with it by name (sendmsg, setsockopt, ...) is done here. For
//! every other descriptor a call costs one look into a table of bits, and goes on to libc.
//!
//! # What holds
//!
//! - `socket`, `bind`, `getsockname`, `setsockopt`, `getsockopt`, `sendmsg`, `recvmsg`, `sendmmsg`, `recvmmsg`, `ioctl`, `shutdown`, `close`, `dup` and
//!   their like do as the kernel's Homa does, down to error numbers. `send`, `recv`, `read` and `write` are EINVAL, as there.
//! - `SO_HOMA_SERVER` turns requests off and on, also those to the port that a socket has without being bound (getsockname tells it). While they
//!   are off they end in ENOTCONN. What has arrived by then can be received and answered, also at length, for which the kernel's socket would have
//!   to take the client's grants.
//! - A signal with a handler ends a `recvmsg` or `sendmsg` that waits: EINTR, also with SA_RESTART, as in the kernel. `sendmsg` waits while the socket's
//!   requests without an outcome and its responses without an acknowledgement have `HOMA_WMEM_MAX` bytes (100,000,000) or more; over raw IP those of all
//!   sockets of the process count. poll shows no POLLOUT then, and MSG_DONTWAIT is EAGAIN. `SO_SNDTIMEO` bounds how long it waits; the other options of `SOL_SOCKET` are kept and told, `SO_RCVTIMEO` among them, and do nothing.
//! - `recvmsg` and `sendmsg` are cancellation points, and a handler that runs while they wait may end the thread (`pthread_exit`). A thread that is
//!   cancelled while it waits ends within 100 ms.
//! - Messages that find no room in the program's buffers wait for it, the shortest first, and are shown by poll when they have it. While
//!   64 wait, what comes behind them waits with the transport, also where it had room.
//! - Requests that the program never answers are kept as in the kernel, but those whose clients have vanished are dropped when they are many.
//! - Over UDP (the default) a socket has a UDP port that follows from its Homa port, so that the kernel shares out the ports among all
//!   processes of a machine, and takes them back from the dead. Over raw IP the processes share a segment of memory, as all
//!   processes of this transport do.
//! - Descriptors that the library has for itself are not the program's to close: `close` says EBADF, as of one that is not there, `dup2` to such a
//!   number EBUSY, and `close_range` and `closefrom` pass over them. A child may close its copies.
//! - After `fork` the Homa sockets remain the parent's. In the child each call on one but `close` and `dup` is ENOTCONN; it can open its own.
//!   What is underneath the parent's sockets (UDP sockets, and over raw IP the locks of the segment) a child keeps open until `exec` or its
//!   end: a parent's ports are free when its children have ended as well.
//!   After `exec` a descriptor that was inherited is a bare socket of the family AF_UNIX.
//!
//! Settings are in the environment: `HOMA_DRIVER` (`udp`, `raw`), `HOMA_SEGMENT_DIR` (where the processes' segment lies over raw IP), and `HOMA_` with
//! the name of a sysctl of net.homa in capitals, such as `HOMA_MAX_INCOMING`.
//!
//! # What does not
//!
//! - A handler that was set by a system call of the program's own ends no call.
//! - A Homa socket that is closed past this library (fclose, a system call of the program's own) is ended when its number is opened again by
//!   `open64`, `socket`, `accept` or `dup` or is read from or written to, and not before.
//! - Memory that a handler, or another thread, takes away after a call was given it and before it returns: the kernel says EFAULT, and here the
//!   program may end. Calls look at it before they use it, and at what they have found good before only once it was taken away (`munmap`).
//! - A message that comes and finds no room in the program's buffers is seen by poll until a recvmsg has found so: one EAGAIN for each.
//! - A signal handler may poll and use other descriptors. One that sends or receives on a Homa socket, or makes, binds or closes one, may
//!   wait for ever for the thread that it interrupts. So may a handler of a fault (SIGSEGV, SIGABRT) that sets the program's first handler of
//!   another signal.
//! - Programs that make system calls themselves: static ones, and those of Go. `homa run` tells them.
//! - A message is sent from the program's memory while sendmsg lasts, and copied, since the program may change it afterwards and packets may be
//!   lost. What comes is received in the program's pages, where it finds room in one piece, and copied there otherwise. A megabyte takes
//!   about as long as by the Rust API (`cargo bench -p homa-preload`).
//! - Pages that the program takes away by other means than `munmap` and `close` (`mremap`, `mprotect`, a new mapping in their place) are
//!   still written to.
//! - A socket that calls, or accepts requests, before it is bound loses the calls in flight when it is bound, and the requests that it has not
//!   answered.
//! - A server process that is stopped (SIGSTOP) is silent, and its clients fail with ETIMEDOUT after about half a
//!   second, where the kernel answers BUSY for it. The protocol runs in the process, and over UDP no other process
//!   receives what comes to its port: a helper that answers in its place would have to hold every socket, and would
//!   claim for a process that hangs that it works. `HOMA_TIMEOUT_RESENDS` and `HOMA_RESEND_INTERVAL` have clients
//!   wait longer.
//! - Over raw IP, a client whose request was with a process that died, at a port that was not bound, is told that nobody has the port, though the
//!   request may have run.
//! - Of a response that waits for room in the program's buffers HOMAIOCINFO does not tell how long its request was.

mod abi;
mod control;
mod delivery_queue;
mod descriptor_table;
mod ffi_border;
mod free_pages;
pub mod hooks;
mod hosts;
mod memory;
mod open_requests;
mod options;
mod own_descriptors;
mod pages;
mod real;
mod receive;
mod region;
mod send;
mod send_room;
mod settings;
mod signal;
mod signals;
mod socket;
mod turns;
