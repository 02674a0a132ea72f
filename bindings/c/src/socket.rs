//! Making calls and answering requests.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use homa::driver::LINUX_UDP_PORT;
use homa::error::{CallError, RecvError, ReplyError};
use homa::kernel_api::ReadinessFd;
use homa::{Host, Request, ServerAddr};

use crate::address::{HOMA_MAX_SERVER_PORT, homa_address};
use crate::border::{Failure, answer, bytes, cancellation_point, object, room, without_signals, write_out};
use crate::handle::{self, find, take, with};
use crate::host::homa_host;
use crate::message::{Message, homa_message};
use crate::result::homa_result;

/// A timeout in nanoseconds that never expires.
pub const HOMA_FOREVER: u64 = u64::MAX;

/// A port that sends and receives requests. Opaque. Every function may be called with it from any thread at
/// any time.
pub struct homa_socket {
    _opaque: [u8; 0],
}

pub(crate) struct Socket {
    /// Unique among all sockets of this process, past and future.
    id: u64,
    socket: Arc<homa::kernel_api::Socket>,
    /// The wake-up descriptor, once the program has requested it.
    signal: OnceLock<Arc<ReadinessFd>>,
    /// Held while the descriptor is created, so that only one is created.
    making_signal: Mutex<()>,
    /// Length in bytes of the longest message that the host can send.
    max_message: u32,
    /// Must be dropped after the socket, hence the last field.
    host: Arc<Host>,
}

impl Socket {
    fn signal(&self) -> Result<&Arc<ReadinessFd>, Failure> {
        let making = self.making_signal.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(signal) = self.signal.get() {
            return Ok(signal);
        }
        let made = ReadinessFd::from_eventfd();
        let made = made.map_err(|error| {
            Failure::new(homa_result::HOMA_SYSTEM, format!("the system makes no eventfd: {error}"))
        })?;
        made.follow(&self.socket);
        let signal = self.signal.get_or_init(|| made);
        drop(making);
        Ok(signal)
    }

    /// Has the network driven promptly if the program has the descriptor, since it may be about to sleep on
    /// it.
    fn attend(&self) {
        if self.signal.get().is_some() {
            self.socket.attend();
        }
    }

    fn shut_down(&self) {
        self.socket.close();
        if let Some(signal) = self.signal.get() {
            signal.set_override(true, true);
        }
    }

    /// Returns the target of a message of `length` bytes.
    ///
    /// # Safety
    /// `to` is NULL or valid for reads.
    unsafe fn server(&self, to: *const homa_address, length: usize) -> Result<ServerAddr, Failure> {
        // SAFETY: `to` is NULL or valid for reads by this function's safety contract.
        let to = unsafe { object(to, "to") }?
            .server(matches!(self.host.local_addr().port(), 0 | LINUX_UDP_PORT))?;
        // Checked before the bytes are copied.
        if length > self.max_message as usize {
            return Err(CallError::MessageTooLarge { length, limit: self.max_message }.into());
        }
        Ok(to)
    }

    fn start(&self, to: ServerAddr, request: Bytes, timeout_ns: u64, cookie: u64) -> Result<u64, Failure> {
        Ok(match timeout(timeout_ns) {
            None => self.socket.start(to, request, cookie, false)?,
            Some(deadline) => self.socket.start_timeout(to, request, cookie, deadline)?,
        })
    }

    /// Starts a call, writes its id and drives the network.
    ///
    /// # Safety
    /// `id` is NULL or has room for a number.
    unsafe fn begin(
        &self,
        to: ServerAddr,
        request: Bytes,
        timeout_ns: u64,
        cookie: u64,
        id: *mut u64,
    ) -> Result<(), Failure> {
        let started = self.start(to, request, timeout_ns, cookie)?;
        if !id.is_null() {
            // SAFETY: `id` is not NULL, so by this function's safety contract it has room for a number.
            unsafe { id.write(started) };
        }
        self.attend();
        Ok(())
    }

    /// Takes the RPC of a request that this socket received. If `data` lies within the request's bytes, also
    /// returns that part of them.
    fn take_for_reply(
        &self,
        request: *mut homa_message,
        data: *const c_void,
        length: usize,
    ) -> Result<(Request, Option<Bytes>), Failure> {
        if data.is_null() && length > 0 {
            return Err(Failure::null("data"));
        }
        let (rpc, part) = with(request, "request", |request| {
            if request.rpc.is_some() && request.socket != self.id {
                return Err(Failure::argument("`request` came by another socket: answer it with that one"));
            }
            Ok((request.rpc.take(), request.sub_slice(data, length)))
        })??;
        let rpc = rpc.ok_or_else(|| Failure::argument("`request` is no request, or was answered before"))?;
        // Checked before the bytes are copied.
        if length > self.max_message as usize {
            return Err(ReplyError::MessageTooLarge { length, limit: self.max_message }.into());
        }
        Ok((rpc, part))
    }
}

/// Wraps bytes that the C program lends.
///
/// # Safety
/// `data` is NULL, or `length` bytes from it are valid for reads until the last read of the result.
unsafe fn lent(data: *const c_void, length: usize) -> Result<Bytes, Failure> {
    // SAFETY: this function's safety contract covers every read of the result. Dropping the result frees
    // nothing.
    Ok(Bytes::from_static(unsafe { bytes(data, length) }?))
}

/// If a panic ends a function that lends bytes of the C program, copies the bytes, so that no thread reads
/// the originals afterwards. The function then reports a failure, and the program owns the bytes again.
struct CopyOnPanic<'a>(&'a homa::kernel_api::Socket, &'a [u8]);

impl Drop for CopyOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.copy_messages_of(self.1);
        }
    }
}

/// Interval at which a waiting thread checks whether it was cancelled. Cancellation does not wake the thread.
const CANCEL_LOOK: Duration = Duration::from_millis(100);

/// The deadline of a wait, which is split into parts. Between the parts, the thread can be cancelled.
#[derive(Clone, Copy)]
struct WaitDeadline(Option<Instant>);

impl WaitDeadline {
    fn new(timeout_ns: u64) -> WaitDeadline {
        // A deadline beyond the range of the clock never expires.
        WaitDeadline(timeout(timeout_ns).and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    /// Returns the duration of the next part, and whether more parts follow.
    fn part(self) -> (Duration, bool) {
        match self.0.map(|until| until.saturating_duration_since(Instant::now())) {
            Some(left) if left <= CANCEL_LOOK => (left, false),
            _ => (CANCEL_LOOK, true),
        }
    }
}

/// The call that homa_call() made, between two parts of its wait. Dropping it gives up the call, and the end
/// of the thread drops it.
struct PendingCall {
    socket: Arc<Socket>,
    id: u64,
    to: ServerAddr,
    is_over: bool,
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if !self.is_over {
            self.socket.socket.abort(self.id, false);
        }
    }
}

thread_local! {
    static WAITING: RefCell<Option<PendingCall>> = const { RefCell::new(None) };
}

/// The state of a call after one part of its wait.
enum WaitOutcome {
    Over(homa_result),
    Waits,
}

/// Waits for the outcome of a call for one part of the deadline. If the call is pending after that, stores it
/// in a thread-local variable.
fn wait_a_part(
    mut waiting: PendingCall,
    (part, more): (Duration, bool),
    timeout_ns: u64,
    response: *mut *mut homa_message,
) -> Result<bool, Failure> {
    let outcome = match waiting.socket.socket.recv_private(waiting.id, Some(part)) {
        Err(RecvError::TimedOut) if more => {
            WAITING.with(|place| place.replace(Some(waiting)));
            return Ok(true);
        }
        Err(RecvError::TimedOut) => {
            let timeout = Duration::from_nanos(timeout_ns);
            return Err(CallError::TimedOut { to: waiting.to, timeout }.into());
        }
        outcome => outcome.map_err(Failure::from)?,
    };
    waiting.is_over = true;
    // SAFETY: `response` is not NULL, and homa.h requires room for a pointer.
    unsafe { handle::write_handle(response, Box::new(Message::of_response(outcome)?)) }?;
    Ok(false)
}

/// Ids of sockets; 0 is never used.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Returns a timeout as a duration; `None` never expires.
fn timeout(ns: u64) -> Option<Duration> {
    (ns != HOMA_FOREVER).then(|| Duration::from_nanos(ns))
}

/// Opens a socket of a host. A `port` from 1 to HOMA_MAX_SERVER_PORT receives requests and can also call.
/// Port 0 stands for any free client port, which can only call.
///
/// On success `*socket` is a handle that belongs to the caller until homa_socket_close(). The socket keeps
/// its host open. The first socket of a host starts threads of the library, which take no signals.
///
/// HOMA_ARGUMENT: `host` is not a valid handle, `socket` is NULL, or the port is above HOMA_MAX_SERVER_PORT.
/// HOMA_IN_USE: another socket of this host has the port. HOMA_LIMIT: all client ports are open. HOMA_SYSTEM:
/// the system refuses a thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_socket_open(
    host: *const homa_host,
    port: u16,
    socket: *mut *mut homa_socket,
) -> homa_result {
    answer(|| {
        let from = find(host, "host")?;
        room(socket, "socket")?;
        if port > HOMA_MAX_SERVER_PORT {
            return Err(homa::error::HostError::from(homa::proto::PortError::OutOfRange(port)).into());
        }
        let host = Arc::clone(&from.host);
        let opened = Arc::new(without_signals(|| host.socket((port > 0).then_some(port)))?);
        let id = NEXT_ID.fetch_add(1, Relaxed);
        let (signal, making_signal, max_message) = (OnceLock::new(), Mutex::new(()), from.max_message);
        let opened = Socket { id, socket: opened, signal, making_signal, max_message, host };
        // SAFETY: `socket` is not NULL, and homa.h requires room for a pointer.
        unsafe { handle::write_handle(socket, Arc::new(opened)) }
    })
}

/// Ends all work of a socket. Its calls and its unreceived requests are given up. Threads that wait with it,
/// or call it later, get HOMA_CLOSED. Responses are still delivered. Bytes that homa_start_lent() and
/// homa_reply_lent() lent to the library belong to the caller again when this returns. The descriptor is
/// readable from now on. If threads wait with the socket, shut it down, let them end, then close it. NULL
/// does nothing.
///
/// HOMA_ARGUMENT: `socket` is not a valid handle, or was closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_socket_shutdown(socket: *const homa_socket) -> homa_result {
    answer(|| {
        if !socket.is_null() {
            find(socket, "socket")?.shut_down();
        }
        Ok(())
    })
}

/// Shuts a socket down and closes it. If it is the last socket of a closed host, this waits until the host's
/// last responses are acknowledged, for at most the option linger-ms. Received messages remain valid, and
/// bytes that were lent to the library belong to the caller again. Another socket of the host can have a
/// server port once the last responses of this socket are acknowledged. NULL does nothing.
///
/// The descriptor of the socket must not be used afterwards.
///
/// HOMA_ARGUMENT: `socket` is not a valid handle, or was closed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_socket_close(socket: *mut homa_socket) -> homa_result {
    answer(|| {
        if let Some(socket) = take(socket, "socket")? {
            // Threads that wait on the socket hold references to it; the last of them drops it.
            socket.shut_down();
        }
        Ok(())
    })
}

/// The address of the socket. If it has a server port, clients reach it by this address. The IP address is
/// unspecified if the host was bound to an unspecified one. `address` is written on success.
///
/// HOMA_ARGUMENT: `socket` is not a valid handle, or `address` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_socket_address(
    socket: *const homa_socket,
    address: *mut homa_address,
) -> homa_result {
    answer(|| {
        let socket = find(socket, "socket")?;
        let own = homa_address::new(socket.host.local_addr(), socket.socket.port());
        // SAFETY: homa.h requires that `address` is NULL or has room for an address.
        unsafe { write_out(address, "address", own) }
    })
}

/// Writes to `*fd` a descriptor for poll(), epoll and similar functions. It is readable exactly while
/// homa_receive() would not have to wait. Do not read, write or close it. It is the same each time, belongs
/// to the socket and is closed with it.
///
/// Before it sleeps on the descriptor, a program calls homa_receive() with `timeout_ns` 0 until that returns
/// HOMA_TIMED_OUT. The library then handles the network promptly while the program sleeps.
///
/// HOMA_ARGUMENT: `socket` is not a valid handle, or `fd` is NULL. HOMA_SYSTEM: the system has no more
/// descriptors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_socket_fd(socket: *const homa_socket, fd: *mut c_int) -> homa_result {
    answer(|| {
        let socket = find(socket, "socket")?;
        room(fd, "fd")?;
        let own = socket.signal()?.as_fd().as_raw_fd();
        socket.socket.attend();
        // SAFETY: homa.h requires that `fd` is NULL or has room for a number.
        unsafe { write_out(fd, "fd", own) }
    })
}

/// Calls a server and waits for its response, for at most `timeout_ns` nanoseconds (HOMA_FOREVER: until the
/// network gives up). Signals do not interrupt it.
///
/// `to` and the `length` bytes at `data` are only read. The bytes are sent from where they lie: no other
/// thread may change them meanwhile. When this returns, with any result, the library has read them for the
/// last time. On success `*response` is a message that belongs to the caller until homa_message_free(); else
/// it is not written.
///
/// HOMA_ARGUMENT: `socket` is not a valid handle, another pointer is NULL, or `to` is not the address of a
/// server. HOMA_TIMED_OUT: the timeout has expired. HOMA_SIZE: the request is empty, or it or the response
/// exceeds its receiver's maximum. HOMA_LIMIT: nothing was sent, or there are too many messages that were not
/// freed. HOMA_CLOSED: the socket was shut down. HOMA_UNREACHABLE, HOMA_SILENT, HOMA_NO_PORT, HOMA_PEER_GONE:
/// the server did not answer.
///
/// This is a cancellation point: a thread that is cancelled while it waits ends within 100 ms, and its call
/// is given up. Cleanup handlers may free the bytes at `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn homa_call(
    socket: *const homa_socket,
    to: *const homa_address,
    data: *const c_void,
    length: usize,
    timeout_ns: u64,
    response: *mut *mut homa_message,
) -> homa_result {
    cancellation_point();
    let patience = WaitDeadline::new(timeout_ns);
    // SAFETY: homa.h states the requirements of `homa_call` on these pointers; `begin_call` has the same.
    let mut part = unsafe { begin_call((socket, to), (data, length), (patience, timeout_ns), response) };
    loop {
        if let WaitOutcome::Over(result) = part {
            return result;
        }
        cancellation_point();
        part = continue_call(patience, timeout_ns, response);
    }
}

/// Starts a call and waits for the first part of its deadline. If the wait is longer, gives the call a copy
/// of the request, since the bytes may be freed when the thread ends.
///
/// # Safety
/// Same as for the pointers that are passed to [`homa_call`].
unsafe fn begin_call(
    (socket, to): (*const homa_socket, *const homa_address),
    (data, length): (*const c_void, usize),
    (patience, timeout_ns): (WaitDeadline, u64),
    response: *mut *mut homa_message,
) -> WaitOutcome {
    let mut waits = false;
    let result = answer(|| {
        let socket = find(socket, "socket")?;
        room(response, "response")?;
        // SAFETY: `to` is NULL or an address, as `homa_call` requires.
        let to = unsafe { socket.server(to, length) }?;
        // SAFETY: `data` is NULL or has `length` bytes, as `homa_call` requires. After a successful call, no
        // thread reads the bytes. Otherwise, the call is given up or gets a copy of them before this returns.
        let request = unsafe { lent(data, length) }?;
        let lent = request.clone();
        let _copy_on_panic = CopyOnPanic(&socket.socket, &lent);
        let id = socket.socket.start(to, request, 0, true)?;
        let waiting = PendingCall { socket: Arc::clone(&socket), id, to, is_over: false };
        waits = wait_a_part(waiting, patience.part(), timeout_ns, response)?;
        if waits {
            socket.socket.copy_messages_of(&lent);
        }
        Ok(())
    });
    if waits { WaitOutcome::Waits } else { WaitOutcome::Over(result) }
}

/// Waits for the next part of a call's deadline.
fn continue_call(patience: WaitDeadline, timeout_ns: u64, response: *mut *mut homa_message) -> WaitOutcome {
    let mut waits = false;
    let result = answer(|| {
        let waiting = WAITING.with(RefCell::take);
        let waiting = waiting.ok_or_else(|| Failure::new(homa_result::HOMA_INTERNAL, "the call was lost"))?;
        waits = wait_a_part(waiting, patience.part(), timeout_ns, response)?;
        Ok(())
    });
    if waits { WaitOutcome::Waits } else { WaitOutcome::Over(result) }
}

/// Starts a call. Packets that may be sent at once are sent before this returns. homa_receive() delivers the
/// outcome exactly once, with `cookie`, also if the call fails. If the call takes longer than `timeout_ns`
/// nanoseconds from now, it is given up within a millisecond and fails with HOMA_TIMED_OUT. HOMA_FOREVER:
/// until the network gives up. See also homa_cancel().
///
/// `to` and the `length` bytes at `data` are only read, and may be changed as soon as this returns. `*id` is
/// the id of the call; `id` may be NULL.
///
/// HOMA_ARGUMENT: `socket` is not a valid handle, another pointer is NULL, or `to` is not the address of a
/// server. HOMA_SIZE, HOMA_LIMIT, HOMA_CLOSED: nothing was sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_start(
    socket: *const homa_socket,
    to: *const homa_address,
    data: *const c_void,
    length: usize,
    timeout_ns: u64,
    cookie: u64,
    id: *mut u64,
) -> homa_result {
    answer(|| {
        let socket = find(socket, "socket")?;
        // SAFETY: homa.h requires that `to` is NULL or an address.
        let to = unsafe { socket.server(to, length) }?;
        // SAFETY: homa.h requires that `data` is NULL or has `length` bytes.
        let request = socket.socket.message(&[unsafe { bytes(data, length) }?]);
        // SAFETY: homa.h requires that `id` is NULL or has room for a number.
        unsafe { socket.begin(to, request, timeout_ns, cookie, id) }
    })
}

/// Like homa_start(), with the same `timeout_ns` and `cookie`, but the bytes are sent from where they lie,
/// without a copy.
///
/// On success the `length` bytes at `data` are lent to the library, which reads them for transmissions and
/// retransmissions. The caller must neither change nor move nor free them until homa_receive() delivers the
/// outcome, also after a cancellation or timeout. The loan also ends when homa_socket_shutdown() or
/// homa_socket_close() returns. If this fails, they belong to the caller at once. `to` is only read, and may
/// be changed as soon as this returns. `*id` is the id of the call; `id` may be NULL.
///
/// Use it for large messages: copying a few kilobytes costs less than keeping track of a loan.
///
/// HOMA_ARGUMENT: `socket` is not a valid handle, another pointer is NULL, or `to` is not the address of a
/// server. HOMA_SIZE, HOMA_LIMIT, HOMA_CLOSED: nothing was sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_start_lent(
    socket: *const homa_socket,
    to: *const homa_address,
    data: *const c_void,
    length: usize,
    timeout_ns: u64,
    cookie: u64,
    id: *mut u64,
) -> homa_result {
    answer(|| {
        let socket = find(socket, "socket")?;
        // SAFETY: homa.h requires that `to` is NULL or an address.
        let to = unsafe { socket.server(to, length) }?;
        // SAFETY: homa.h requires that `data` is NULL or has `length` bytes that remain valid until the
        // outcome is received. No thread reads them afterwards.
        let request = unsafe { lent(data, length) }?;
        let lent = request.clone();
        let _copy_on_panic = CopyOnPanic(&socket.socket, &lent);
        // SAFETY: homa.h requires that `id` is NULL or has room for a number.
        unsafe { socket.begin(to, request, timeout_ns, cookie, id) }
    })
}

/// Gives up the call `id` that homa_start() or homa_start_lent() started, if its outcome was not received
/// yet. Its outcome is then HOMA_CANCELLED, and is received like any other. The request may have run.
///
/// HOMA_ARGUMENT: `socket` is not a valid handle. HOMA_NO_CALL: the socket no longer has such a call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_cancel(socket: *const homa_socket, id: u64) -> homa_result {
    answer(|| {
        if find(socket, "socket")?.socket.abort(id, true) {
            return Ok(());
        }
        let text =
            format!("no call of this socket has the id {id}: its outcome was received, or it never existed");
        Err(Failure::new(homa_result::HOMA_NO_CALL, text))
    })
}

/// Waits for at most `timeout_ns` nanoseconds (HOMA_FOREVER: for ever; 0: does not wait) for the next
/// message. It is a request, the outcome of a call of homa_start() or homa_start_lent(), or returned bytes of
/// homa_reply_lent(). Signals do not interrupt it. homa_message_kind() distinguishes the three.
///
/// On success `*message` belongs to the caller until homa_message_free(); else it is not written. A failed
/// call is a success here: see homa_message_result().
///
/// HOMA_ARGUMENT: `socket` is not a valid handle, or `message` is NULL. HOMA_TIMED_OUT: nothing arrived.
/// HOMA_CLOSED: the socket was shut down. HOMA_LIMIT: there are too many messages that were not freed, and
/// one was dropped.
///
/// This is a cancellation point: a thread that is cancelled while it waits ends within 100 ms, and has
/// received nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn homa_receive(
    socket: *const homa_socket,
    timeout_ns: u64,
    message: *mut *mut homa_message,
) -> homa_result {
    cancellation_point();
    let patience = WaitDeadline::new(timeout_ns);
    loop {
        let (part, more) = patience.part();
        // SAFETY: homa.h states the requirements of `homa_receive` on these pointers; `receive_for` has the
        // same.
        let result = unsafe { receive_for(socket, part, message) };
        if result != homa_result::HOMA_TIMED_OUT || !more {
            return result;
        }
        cancellation_point();
    }
}

/// # Safety
/// Same as for the pointers that are passed to [`homa_receive`].
unsafe fn receive_for(
    socket: *const homa_socket,
    longest: Duration,
    message: *mut *mut homa_message,
) -> homa_result {
    answer(|| {
        let socket = find(socket, "socket")?;
        room(message, "message")?;
        let arrival = socket.socket.recv(Some(longest)).inspect_err(|_| socket.attend())?;
        if let Some(signal) = socket.signal.get() {
            signal.message_taken();
        }
        // SAFETY: `message` is not NULL, and `homa_receive` requires room for a pointer.
        unsafe { handle::write_handle(message, Box::new(Message::of(arrival, socket.id))) }
    })
}

/// Answers a request that this socket received. Packets that may be sent at once are sent before this
/// returns. The host sends the rest, and retransmits lost packets.
///
/// The `length` bytes at `data` are only read, and may be changed as soon as this returns, since they are
/// copied. Exception: a contiguous part of the request itself, or all of it, is sent from where it lies.
/// `request` remains the caller's: free it by homa_message_free() afterwards. With any result except
/// HOMA_ARGUMENT, the request is over.
///
/// HOMA_ARGUMENT: `socket` is not a valid handle, `data` is NULL, or the message is not a request, was
/// received by another socket, or was answered. HOMA_SIZE, HOMA_LIMIT: the response was refused, and the
/// client gets an error. HOMA_PEER_GONE: the client no longer waits. HOMA_CLOSED: the host has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_reply(
    socket: *const homa_socket,
    request: *mut homa_message,
    data: *const c_void,
    length: usize,
) -> homa_result {
    answer(|| {
        let socket = find(socket, "socket")?;
        let (rpc, part) = socket.take_for_reply(request, data, length)?;
        let answer = match part {
            Some(answer) => answer,
            // SAFETY: homa.h requires that `data` is NULL or has `length` bytes.
            None => socket.socket.message(&[unsafe { bytes(data, length) }?]),
        };
        rpc.reply(answer)?;
        socket.attend();
        Ok(())
    })
}

/// Like homa_reply(), but the bytes are sent from where they lie, without a copy.
///
/// On success the `length` bytes at `data` are lent to the library, which reads them for transmissions and
/// retransmissions. The caller must neither change nor move nor free them until homa_receive() delivers a
/// message of the kind HOMA_RETURNED with this `cookie`. It arrives once the client has the response or is
/// given up. The loan also ends when homa_socket_shutdown() or homa_socket_close() returns; those copy what
/// is not delivered yet. If this fails, the bytes belong to the caller at once. Bytes of the request itself
/// need no loan: see homa_reply(). `request` remains the caller's: free it by homa_message_free() afterwards.
/// With any result except HOMA_ARGUMENT, the request is over.
///
/// HOMA_ARGUMENT: `socket` is not a valid handle, `data` is NULL, or the message is not a request, was
/// received by another socket, or was answered. HOMA_SIZE, HOMA_LIMIT: the response was refused, and the
/// client gets an error. HOMA_PEER_GONE: the client no longer waits. HOMA_CLOSED: the socket was shut down,
/// and the client gets an error; homa_reply() would still have answered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_reply_lent(
    socket: *const homa_socket,
    request: *mut homa_message,
    data: *const c_void,
    length: usize,
    cookie: u64,
) -> homa_result {
    answer(|| {
        let socket = find(socket, "socket")?;
        let (rpc, part) = socket.take_for_reply(request, data, length)?;
        let answer = match part {
            Some(answer) => answer,
            // SAFETY: homa.h requires that `data` is NULL or has `length` bytes that remain valid until the
            // library returns them. No thread reads them afterwards.
            None => unsafe { lent(data, length) }?,
        };
        let lent = answer.clone();
        let _copy_on_panic = CopyOnPanic(&socket.socket, &lent);
        socket.socket.reply_lent(rpc, answer, cookie)?;
        socket.attend();
        Ok(())
    })
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn bytes_of_a_call_that_panics_are_not_read_any_more() {
        let bind = || Host::builder().address(([127, 0, 0, 1], 0).into()).bind().unwrap();
        let (silent, host) = (bind(), bind());
        let _server = silent.server(9).unwrap();
        let socket = host.socket(None).unwrap();
        let memory = Bytes::from(vec![1; 300_000]);
        let result = answer(|| {
            let _copy_on_panic = CopyOnPanic(&socket, &memory);
            socket.start(ServerAddr::new(silent.local_addr(), 9), memory.clone(), 0, false)?;
            panic!("on purpose")
        });
        assert_eq!(result, homa_result::HOMA_INTERNAL);
        assert!(memory.is_unique());
    }
}
