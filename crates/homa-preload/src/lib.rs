//! Linux Homa's socket API over this transport. Programs written for the kernel module run unchanged:
//! `LD_PRELOAD=libhoma_preload.so program`, or `homa run -- program`.
//!
//! The library replaces libc's functions on descriptors. For the kernel, a Homa socket is one end of a socket
//! pair: readable exactly when a message can be received, and writable exactly when one can be sent. Hence
//! poll, select and epoll work as on any descriptor. Functions that name the socket (sendmsg, setsockopt,
//! ...) are implemented here. For other descriptors, a call costs one lookup in a bit table, and goes on to
//! libc.
//!
//! # Guarantees
//!
//! - `socket`, `bind`, `getsockname`, `setsockopt`, `getsockopt`, `sendmsg`, `recvmsg`, `sendmmsg`,
//!   `recvmmsg`, `ioctl`, `shutdown`, `close`, `dup` and similar functions behave as for the kernel's Homa,
//!   including error numbers. `send`, `recv`, `read` and `write` fail with EINVAL, as there.
//! - `SO_HOMA_SERVER` turns requests off and on, also for the port of an unbound socket (see getsockname).
//!   While they are off, requests end with ENOTCONN. A request that has arrived before can still be received
//!   and answered, even with a long response; with the kernel's socket that would need the client's grants.
//! - A signal with a handler ends a waiting `recvmsg` or `sendmsg` with EINTR, also with SA_RESTART, as in
//!   the kernel. `sendmsg` waits while the socket's requests without an outcome and responses without an
//!   acknowledgement have `HOMA_WMEM_MAX` bytes (100,000,000) or more. Over raw IP, all sockets of the
//!   process count together. Meanwhile poll shows no POLLOUT, and MSG_DONTWAIT gives EAGAIN. `SO_SNDTIMEO`
//!   bounds the wait. Other options of `SOL_SOCKET`, including `SO_RCVTIMEO`, are stored and returned, and
//!   have no effect.
//! - `recvmsg` and `sendmsg` are cancellation points, and a handler that runs while they wait may end the
//!   thread (`pthread_exit`). A thread that is cancelled while it waits ends within 100 ms.
//! - Messages without room in the program's buffers wait for it, the shortest first, and poll shows them when
//!   they have room. While 64 wait, later messages stay with the transport, even those that would have room.
//! - Requests that the program never answers are kept as in the kernel. If there are many, those whose
//!   clients have vanished are dropped.
//! - Over UDP (the default) a socket's UDP port follows from its Homa port. The kernel thus assigns the ports
//!   among all processes of a machine, and frees those of dead processes. Over raw IP the processes share
//!   memory, as all processes of this transport do.
//! - The program cannot close the library's own descriptors: `close` fails with EBADF, `dup2` to such a
//!   number with EBUSY, and `close_range` and `closefrom` skip them. A child may close its copies.
//! - After `fork` the Homa sockets remain the parent's. In the child, each call on one except `close` and
//!   `dup` fails with ENOTCONN; it can open its own. The child keeps the parent's underlying resources open
//!   until `exec` or its end: UDP sockets, and over raw IP the locks in the shared memory. A parent's ports
//!   are free only when its children have ended as well. After `exec` an inherited descriptor is a plain
//!   socket of the family AF_UNIX.
//!
//! Settings are environment variables. `HOMA_DRIVER` is `udp` or `raw`. `HOMA_SEGMENT_DIR` is the directory
//! of the shared memory over raw IP. A sysctl of net.homa is set by `HOMA_` and its name in capitals, such as
//! `HOMA_MAX_INCOMING`.
//!
//! # Limitations
//!
//! - A handler that the program installs by its own system call interrupts no call.
//! - A Homa socket that is closed without this library's knowledge (by fclose or the program's own system
//!   call) does not end at once. It ends when its number is opened again by `open64`, `socket`, `accept` or
//!   `dup`, or is read or written.
//! - If a handler or another thread unmaps memory that a running call was given, the kernel reports EFAULT;
//!   here the program may crash. Calls check memory before they use it. A successful check is remembered
//!   until the program unmaps memory (`munmap`).
//! - poll shows a message without room in the program's buffers until a recvmsg has found that there is none:
//!   one EAGAIN for each such message.
//! - The progress thread drives for a thread that polls several Homa sockets over UDP, that is in select, or in
//!   which a signal is blocked that has a handler; and in all threads if a handler has SA_NODEFER. Each burst of
//!   packets then wakes two threads.
//! - A signal handler may poll and use other descriptors, unless it has unblocked its own signal. If it
//!   sends or receives on a Homa socket, or opens, binds or closes one, it may deadlock with the thread
//!   that it interrupts. The same holds for a fault handler (SIGSEGV, SIGABRT) that installs the program's
//!   first handler of another signal.
//! - Programs that make system calls themselves do not work: static programs, and those written in Go. `homa
//!   run` detects them.
//! - A message is sent from the program's memory while sendmsg runs, and copied, since packets may be lost
//!   and the program may change the memory afterwards. A message is received in the program's pages if there
//!   is contiguous room, and copied there otherwise. A megabyte takes about as long as with the Rust API
//!   (`cargo bench -p homa-preload`).
//! - Pages that the program unmaps by other means than `munmap` and `close` (`mremap`, `mprotect`, a new
//!   mapping in their place) are still written to.
//! - If a socket calls or accepts requests before it is bound, binding it loses its calls in flight and its
//!   unanswered requests.
//! - A stopped server process (SIGSTOP) is silent, and its clients fail with ETIMEDOUT after about half a
//!   second; in the kernel, Homa answers BUSY for it. The protocol runs in the process, and over UDP no other
//!   process receives packets for its port. A helper process would have to hold every socket, and would
//!   report a hung process as working. `HOMA_TIMEOUT_RESENDS` and `HOMA_RESEND_INTERVAL` make clients wait
//!   longer.
//! - Over raw IP, if a process dies with a request at an unbound port, the client gets the error that the
//!   port has no server, though the request may have run.
//! - While a response waits for room in the program's buffers, HOMAIOCINFO does not report the length of its
//!   request.
//!
//! # Design
//!
//! A socket of `homa/kernel_api/socket` is a port that calls and answers, with one queue of received
//! messages: the kernel's socket without descriptors, pages and error numbers. `homa-preload` adds those and
//! replaces functions of libc (`hooks`), for programs that were written for the kernel.
//!
//! - **The program's descriptor is one end of a socket pair** (`homa/kernel_api/readiness`,
//!   `homa/kernel_api/socket_pair`). It is readable exactly while a message can be received, and writable
//!   exactly while a message may begin to be sent (`send_room`). poll, select and epoll thus need no
//!   intermediary. An eventfd can only show the former. It is written only if no thread waits for the message
//!   itself: a program that blocks in recvmsg makes no additional system call. Each change of the receivable
//!   messages is followed by a check under one lock, so that the last check sees all changes.
//! - **A thread in poll or epoll drives the network** (`polling`), as one in recvmsg does: while packets come,
//!   and for as long after the last ones as recvmsg polls. Then it sleeps, and the progress thread drives,
//!   which would otherwise start a tick later (`Socket::attend`). A signal handler that polls drives nothing,
//!   takes no lock and allocates nothing; it is recognised by its signal, which is blocked while it runs.
//! - **Messages of one sendmmsg are sent together**, like those of `reply_all` in the Rust API: short ones for
//!   one peer share packets.
//! - **A UDP port follows from a Homa port** (`hosts`), since the program names no UDP port. Each socket has
//!   its own host over UDP. The owner of the UDP port owns the Homa port, and the kernel frees it when the
//!   process dies. No registry of our own (a file, or names in the abstract namespace) is needed. Over raw IP
//!   the sockets of a process are ports of one host, and processes share the ports by shared memory.
//! - **A client port accepts requests if its owner enables it** (`homa-proto/ports`, ID-15), as
//!   SO_HOMA_SERVER requires of an unbound socket. Each port has a bit for it, and a socket gets a server's
//!   request queue when it first enables requests. On hosts of several endpoints it cannot: the id of a
//!   request selects the endpoint, and such a port belongs to one endpoint.
//! - **Addresses are checked before use** (`memory`): the kernel copies a byte from each (process_vm_readv).
//!   Each thread remembers valid pages, since programs pass the same structures again and again.
//! - **Messages are received in the program's pages** (`region`, `homa/payload/memory`). For each message of
//!   sufficient length the socket lends contiguous pages to the transport, under the host's lock; only other
//!   messages are copied. `munmap` notifies the socket before the memory is unmapped. A message that lay
//!   there in part gives EFAULT, as one that the kernel cannot copy out. The end of a socket waits for its
//!   receiving threads, as in the kernel.
//! - **Messages are sent from the program's memory while sendmsg runs** (`homa/payload/deferred_copy`). While
//!   nothing can be sent, they are copied for retransmission. The copy stops when the first byte of the
//!   response, or the acknowledgement of a response, arrives. All of this happens under the host's lock. If
//!   other threads wait for the lock, the message is copied before, without the lock; if a thread requests
//!   the lock later, the copy completes at once.
//! - **Signals are blocked while a call waits** (`signals`), except during its sleeps, where the kernel swaps
//!   the mask: a handler that runs while a thread spins would leave no trace. Such a thread drives for a
//!   millisecond like any other, and a signal waits that long. Then the thread sleeps on the program's
//!   descriptor, and the progress thread drives. Programs without a handler have no extra cost: the first
//!   handler wakes the threads that already wait (`Socket::recall`), which then wait in this way. Threads of
//!   the library never take the program's signals.
//! - **Waiting calls run in turns** (`turns`). Between two turns the thread sleeps at the border to C, with
//!   no Rust frame that has destructors on its stack. `pthread_cancel`, or `pthread_exit` in a handler, may
//!   end it there: the C library unwinds the stack by force, which such frames do not survive. Meanwhile the
//!   call is stored in a thread-local variable, which the end of the thread drops. A thread checks every 100
//!   ms whether it was cancelled.
//! - **The library's own descriptors are marked** (`own_descriptors`): daemons close all descriptors that
//!   they find, and a host whose wake-up descriptors are closed never ends. Descriptors that are opened while
//!   a host is created belong to the library, which alone closes them.
//! - **Checking another descriptor reads one bit** (`descriptor_table`), in memory that a forked child also
//!   has. All other state starts empty in a child: the parent's threads do not exist there, and its locks may
//!   be held for ever.
//! - **close never waits for acknowledgements**, as in the kernel: a program expects close to return at once.

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
mod pending_message;
mod polling;
mod process;
mod real;
mod receive;
mod region;
mod send;
mod send_room;
mod settings;
mod signal;
mod signals;
mod socket;
mod socket_name;
mod turn_outcome;
mod turns;
