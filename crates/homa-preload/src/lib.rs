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
//!
//! # Design
//!
//! `homa/kernel_api/socket` is a port that calls and answers, and whose messages wait in one place: the
//! kernel's socket without descriptors, pages and error numbers. `homa-preload` adds those and stands before
//! libc (`hooks`), in a program that was written for the kernel.
//!
//! - **The program's descriptor is one end of a pair of sockets** (`homa/kernel_api/readiness`,
//!   `homa/kernel_api/socket_pair`), readable exactly while a message can be received, and writable exactly
//!   while one may begin to be sent (`send_room`), so that poll, select and epoll need nobody between. An
//!   eventfd shows the first alone. It is written to for what no thread waits for alone: a program that
//!   blocks in recvmsg makes no system call more. Whoever changes what is to be had looks again afterwards,
//!   under one lock; the last one that looks sees it all.
//! - **Who polls is attended** (`Socket::attend`): the hooks of poll and its like have the progress thread
//!   drive before the program sleeps where no thread of it can. Without them it would notice a tick later.
//!   They take no lock and no memory, since signal handlers poll.
//! - **A UDP port follows from a Homa port** (`hosts`), since the program names no other. Each socket has a
//!   host of its own over UDP; who has bound the UDP port has the Homa port, and the kernel takes it from the
//!   dead. A registry of our own (a file, or names in the abstract namespace) was not needed for it. Over raw
//!   IP the sockets of a process are ports of one host, and the segment shares out the ports.
//! - **A client port accepts requests where its owner says so** (`homa-proto/ports`, ID-15), as
//!   SO_HOMA_SERVER asks of a socket that is not bound: a bit of its own for each port, and the socket gets
//!   what takes a server's requests when it first asks. On hosts of several endpoints it cannot: requests
//!   come to the endpoint that their id says, and such a port lives in one.
//! - **A wrong address is looked at, not touched** (`memory`): the kernel copies a byte from it to find out
//!   (process_vm_readv). Each thread remembers the pages that were good, since programs pass the same
//!   structures again and again.
//! - **Messages are received in the program's pages** (`region`, `homa/payload/memory`): the socket is lent
//!   pages in a row for each message of some length, under the host's lock, and copies only what found none.
//!   `munmap` tells the socket before memory goes: a message that lay there in part is EFAULT, as one that
//!   the kernel cannot copy out. The end of a socket waits for the threads that receive, as the kernel's
//!   does.
//! - **What is sent goes out of the program's memory for as long as sendmsg lasts**
//!   (`homa/payload/deferred_copy`), and is copied, for what may be lost, while nothing can be sent. Where
//!   the first byte of the response, or the acknowledgement of an answer, comes first, the rest of the copy
//!   is not made. All of it is under the host's lock; where other threads wait the message is copied before,
//!   without it, and at once when one comes that wants the lock.
//! - **Signals are held back while a call waits** (`signals`), but for its sleeps, where the kernel swaps the
//!   mask: a handler that ran while a thread spins would leave no mark. Such a thread drives for a
//!   millisecond as any, and a signal waits so long; then it sleeps on the program's descriptor, and the
//!   progress thread drives. Programs without a handler pay nothing: when the first handler is set, threads that
//!   wait already are woken (`Socket::recall`) to wait in that way. Threads of the library never take the
//!   program's signals.
//! - **Calls that wait go in turns** (`turns`). Between two turns the thread sleeps at the border to C and
//!   has nothing of Rust's on its stack, so that `pthread_cancel`, or `pthread_exit` in a handler, may end it
//!   there: the C library unwinds the stack by force, which frames with destructors do not survive. The call
//!   lies in a store of the thread's meanwhile, which the end of the thread drops. A thread looks every 100
//!   ms whether it was cancelled.
//! - **The library's own descriptors are marked** (`own_descriptors`): programs that become daemons close all
//!   that they find, and a host whose wake-up descriptors are closed never ends. What is opened while a host
//!   is made is the library's, and closed by whoever is in a call of it.
//! - **A look for other descriptors is one bit** (`descriptor_table`), in memory that a forked child has,
//!   too. Everything else a child begins anew: the parent's threads are not there, and its locks may be held
//!   for ever.
//! - **Nothing waits for acknowledgements at close**, as in the kernel: a program that closes expects to have
//!   closed.

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
