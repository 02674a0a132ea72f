//! Linux Homa's socket API over this transport. Programs written for the kernel module run unchanged:
//! `LD_PRELOAD=libhoma_preload.so program`, or `homa run -- program`.
//!
//! The library replaces the libc functions that operate on descriptors. To the kernel, a Homa socket is one
//! end of a socket pair: it is readable exactly when a message can be received, and writable exactly when a
//! message can be sent. poll, select and epoll therefore work as on any descriptor. Functions that operate on
//! the socket itself (sendmsg, setsockopt, ...) are implemented here. For any other descriptor, a call costs
//! one lookup in a bit table and then goes on to libc.
//!
//! # Guarantees
//!
//! - `socket`, `bind`, `getsockname`, `setsockopt`, `getsockopt`, `sendmsg`, `recvmsg`, `sendmmsg`,
//!   `recvmmsg`, `ioctl`, `shutdown`, `close`, `dup` and similar functions behave as for the kernel's Homa,
//!   including error numbers. `send`, `recv`, `read` and `write` fail with EINVAL, as in the kernel.
//! - `SO_HOMA_SERVER` turns the acceptance of requests on and off, even for an unbound socket (getsockname
//!   returns its port). While it is off, clients' requests fail with ENOTCONN. A request that arrived earlier
//!   can still be received and answered, even with a long response; on the kernel's socket, a long response
//!   would need the client's grants.
//! - A signal with a handler interrupts a waiting `recvmsg` or `sendmsg` with EINTR, even with SA_RESTART, as
//!   in the kernel. `sendmsg` waits while the socket's unfinished requests and unacknowledged responses total
//!   `HOMA_WMEM_MAX` bytes (100,000,000) or more. Over raw IP, the total covers all sockets of the process.
//!   During the wait, poll does not report POLLOUT, and `sendmsg` with MSG_DONTWAIT fails with EAGAIN.
//!   `SO_SNDTIMEO` bounds the wait. Other options of `SOL_SOCKET`, including `SO_RCVTIMEO`, are stored and
//!   returned but have no effect.
//! - `recvmsg` and `sendmsg` are cancellation points, and a handler that runs while they wait may end the
//!   thread (`pthread_exit`). A thread that is cancelled while waiting ends within 100 ms.
//! - Messages that do not fit into the program's free buffers are held until they fit, the shortest first;
//!   poll reports them once they fit. While 64 messages are held, later messages stay in the transport, even
//!   those that would fit.
//! - Requests that the program never answers are kept, as in the kernel. If there are many of them, those
//!   whose clients have vanished are dropped.
//! - Over UDP (the default), a socket's UDP port is derived from its Homa port. The kernel thus allocates
//!   Homa ports among all processes of the machine, and frees the ports of dead processes. Over raw IP, the
//!   processes coordinate through shared memory, as all processes of this transport do.
//! - The program cannot close the library's own descriptors: `close` fails with EBADF, `dup2` onto one of
//!   them fails with EBUSY, and `close_range` and `closefrom` skip them. A forked child may close its copies.
//! - After `fork`, the Homa sockets still belong to the parent. In the child, every call on such a socket
//!   except `close` and `dup` fails with ENOTCONN; the child can open its own sockets. Until it calls `exec`
//!   or ends, the child keeps the parent's underlying resources open: UDP sockets, and over raw IP the locks
//!   in the shared memory. A parent's ports therefore become free only when its children have ended as well.
//!   After `exec`, an inherited descriptor is a plain AF_UNIX socket.
//!
//! Settings are environment variables. `HOMA_DRIVER` is `udp` or `raw`. `HOMA_SEGMENT_DIR` is the directory
//! of the shared memory over raw IP. Each sysctl of net.homa has a variable: `HOMA_` followed by the sysctl's
//! name in capitals, such as `HOMA_MAX_INCOMING`.
//!
//! # Limitations
//!
//! - A signal handler that the program installs by a raw system call does not interrupt waiting calls.
//! - A Homa socket that is closed without this library's knowledge (by fclose or a raw system call) is not
//!   torn down at once. It is torn down when its descriptor number is reused by `open64`, `socket`, `accept`
//!   or `dup`, or is read or written.
//! - If a signal handler or another thread unmaps memory that was passed to a running call, the kernel's Homa
//!   fails with EFAULT; here the program may crash. Calls check memory before they use it. A successful check
//!   is remembered until the program unmaps memory (`munmap`).
//! - poll reports a message that has no room in the program's buffers until a recvmsg has failed to find room
//!   for it: one EAGAIN for each such message.
//! - The progress thread drives the network in place of a thread that polls several Homa sockets over UDP, is
//!   in select, or blocks a signal that has a handler. If any handler has SA_NODEFER, it does so for all
//!   threads. Each burst of packets then wakes two threads.
//! - A signal handler may poll and use other descriptors, unless it has unblocked its own signal. A handler
//!   that sends or receives on a Homa socket, or opens, binds or closes one, may deadlock with the thread
//!   that it interrupts. So may a fault handler (SIGSEGV, SIGABRT) that installs the program's first handler
//!   for another signal.
//! - Programs that bypass libc do not work: statically linked programs, and programs written in Go. `homa
//!   run` detects them.
//! - While sendmsg runs, a message is sent from the program's memory and also copied, since packets may be
//!   lost and the program may change the memory after sendmsg returns. A message is received directly in the
//!   program's pages if they have contiguous room, and is copied there otherwise. A message of a megabyte
//!   takes about as long as with the Rust API (`cargo bench -p homa-preload`).
//! - The library still writes to pages that the program unmaps by means other than `munmap` and `close`
//!   (`mremap`, `mprotect`, a new mapping in their place).
//! - Binding a socket that has already made calls or accepted requests drops its calls in flight and its
//!   unanswered requests.
//! - A stopped server process (SIGSTOP) sends nothing, and its clients fail with ETIMEDOUT after about half a
//!   second; the kernel's Homa would answer BUSY on its behalf. Here the protocol runs in the process itself,
//!   and over UDP no other process receives packets for its port. A helper process would have to hold every
//!   socket, and would report a hung process as working. `HOMA_TIMEOUT_RESENDS` and `HOMA_RESEND_INTERVAL`
//!   make clients wait longer.
//! - Over raw IP, if a process dies while it holds a request that came to an unbound socket, the client gets
//!   the error that the port has no server, although the request may have run.
//! - While a response waits for room in the program's buffers, HOMAIOCINFO does not report the length of its
//!   request.
//!
//! # Design
//!
//! A socket of `homa/kernel_api/socket` is a port that makes calls and answers requests, with one queue of
//! received messages. It is the kernel's socket without descriptors, pages and error numbers. `homa-preload`
//! adds these, and replaces functions of libc (`hooks`) for programs written for the kernel module.
//!
//! - **The program's descriptor is one end of a socket pair** (`homa/kernel_api/readiness`,
//!   `homa/kernel_api/socket_pair`). It is readable exactly while a message can be received, and writable
//!   exactly while sendmsg may start a message (`send_room`). poll, select and epoll thus need no
//!   intermediary. An eventfd could show only readability. The library writes to the pair only if no thread
//!   waits for the message itself, so a program that blocks in recvmsg makes no additional system call. Each
//!   change of the receivable messages is followed by a check under one lock, so the last check sees all
//!   changes.
//! - **A thread in poll or epoll drives the network** (`polling`), as a thread in recvmsg does: while packets
//!   arrive, and then for as long as recvmsg would poll. Then the thread sleeps and has the progress thread
//!   drive at once, rather than a tick later (`Socket::attend`). A signal handler that polls does not drive,
//!   takes no lock and allocates nothing; the library recognises it by its signal, which is blocked while the
//!   handler runs.
//! - **A poll of one Homa socket waits as recvmsg does** (`polling`), for 100 ms. The library answers it, and the
//!   descriptor shows the message only if somebody else looks at it: poll with other descriptors, select, an
//!   epoll set, a thread that sleeps on it, or the next message. Programs with a signal handler are excluded,
//!   since the handler may look, too.
//! - **Messages of one sendmmsg are sent together**, like those of `reply_all` in the Rust API: short ones for
//!   one peer share packets.
//! - **A batch of recvmmsg ends where nothing has arrived**, if it need not wait (MSG_WAITFORONE): only its first
//!   message drives the network. Otherwise batches grow until client and server wait for each other in turns.
//! - **The UDP port is derived from the Homa port** (`hosts`), since the program specifies no UDP port. Over
//!   UDP, each socket has its own host. The owner of the UDP port owns the Homa port, and the kernel frees
//!   the port when the process dies. The library therefore needs no registry of its own (a file, or names in
//!   the abstract namespace). Over raw IP, the sockets of a process are ports of one host, and processes
//!   allocate ports through shared memory.
//! - **A client port accepts requests if its owner enables it** (`homa-proto/ports`, ID-15), as
//!   SO_HOMA_SERVER requires of an unbound socket. Each port has a bit for this, and a socket gets a server's
//!   request queue when it first enables requests. On a host with several endpoints, a client port cannot
//!   accept requests: a request's ID selects the endpoint, but a client port belongs to one endpoint.
//! - **Addresses are checked before use** (`memory`): the library has the kernel copy a byte from each
//!   (process_vm_readv). Each thread remembers valid pages, since programs pass the same structures
//!   repeatedly.
//! - **Messages are received in the program's pages** (`region`, `homa/payload/memory`). For each
//!   sufficiently long message, the socket lends contiguous pages to the transport, under the host's lock;
//!   only other messages are copied. The `munmap` hook notifies the socket before the memory is unmapped.
//!   Receiving a message that lies partly in unmapped memory fails with EFAULT, like a message that the
//!   kernel cannot copy out. Tearing down a socket waits for its receiving threads, as in the kernel.
//! - **Messages are sent from the program's memory while sendmsg runs** (`homa/payload/deferred_copy`).
//!   Whenever nothing can be sent, sendmsg copies the message for retransmission. For a request, copying
//!   stops when the first byte of the response arrives; for a response, when the acknowledgement arrives. All
//!   of this happens under the host's lock. If other threads already wait for the lock, the message is copied
//!   first, without the lock; if a thread requests the lock later, the rest is copied at once.
//! - **Signals are blocked while a call waits** (`signals`), except while it sleeps in the kernel, which
//!   swaps the mask: the library could not detect that a handler ran while the thread was spinning. Such a
//!   thread drives for a millisecond like any other, and a signal is delayed by up to that long. Then the
//!   thread sleeps on the program's descriptor, and the progress thread drives. Programs without a handler
//!   have no extra cost: installing the first handler wakes the threads that already wait (`Socket::recall`),
//!   which then continue to wait in this way. Threads of the library never run the program's signal handlers.
//! - **Waiting calls run in turns** (`turns`). Between two turns the thread sleeps at the C boundary, and no
//!   Rust frame on its stack has destructors. At that point, `pthread_cancel`, or `pthread_exit` in a
//!   handler, may end the thread: the C library then unwinds the stack by force, which is not permitted
//!   through frames with destructors. During the sleep, the call is stored in a thread-local variable, which
//!   is dropped when the thread ends. A thread checks every 100 ms whether it was cancelled.
//! - **The library's own descriptors are marked** (`own_descriptors`): daemons close all descriptors that
//!   they find, and a host whose wake-up descriptors are closed can never shut down. Descriptors that are
//!   opened while a host is created belong to the library, and only the library closes them.
//! - **Checking whether a descriptor is a Homa socket reads one bit** (`descriptor_table`), in memory that a
//!   forked child inherits. All other state starts empty in a child: the parent's threads do not exist there,
//!   and its locks may be held forever.
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
mod receivers;
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
