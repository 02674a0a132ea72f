//! Calling and answering.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use homa::error::{CallError, RecvError, ReplyError};
use homa::kernel_api::ReadinessFd;
use homa::{Host, Request, ServerAddr};

use crate::address::{HOMA_MAX_SERVER_PORT, homa_address};
use crate::border::{Failure, answer, bytes, cancellation_point, give, object, room, without_signals};
use crate::handle::{self, find, take, with};
use crate::host::homa_host;
use crate::message::{Message, homa_message};
use crate::result::homa_result;

/// A time in nanoseconds that never passes.
pub const HOMA_FOREVER: u64 = u64::MAX;

/// A port that calls and answers. Opaque. Every function may be called with it from any thread at any time.
pub struct homa_socket {
    _opaque: [u8; 0],
}

pub(crate) struct Socket {
    /// Tells it from any other of this process, now and later.
    id: u64,
    socket: Arc<homa::kernel_api::Socket>,
    /// Once somebody asked for a descriptor.
    signal: OnceLock<Arc<ReadinessFd>>,
    /// Held while it is made, so that there is one.
    making_signal: Mutex<()>,
    /// Bytes of the longest message that its host sends.
    max_message: u32,
    /// Goes after the socket.
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

    /// The caller may be about to sleep on the descriptor, if it has it.
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

    /// What goes to `to`, of so many bytes.
    ///
    /// # Safety
    /// `to` is NULL or good for reads.
    unsafe fn server(&self, to: *const homa_address, length: usize) -> Result<ServerAddr, Failure> {
        // SAFETY: the caller's.
        let to = unsafe { object(to, "to") }?.server(self.host.local_addr().port() == 0)?;
        // Before so many bytes are copied.
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

    /// Starts a call, tells its id and has the network attended to.
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
            // SAFETY: the caller's.
            unsafe { id.write(started) };
        }
        self.attend();
        Ok(())
    }

    /// What answers a request that came by this socket, and those of its bytes that are at `data`, if they are its own.
    fn to_answer(
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
            Ok((request.rpc.take(), request.part(data, length)))
        })??;
        let rpc = rpc.ok_or_else(|| Failure::argument("`request` is no request, or was answered before"))?;
        // Before so many bytes are copied.
        if length > self.max_message as usize {
            return Err(ReplyError::MessageTooLarge { length, limit: self.max_message }.into());
        }
        Ok((rpc, part))
    }
}

/// Bytes of C's, which it lends.
///
/// # Safety
/// `data` is NULL, or `length` bytes behind it are good for reads until nobody reads the result any more.
unsafe fn lent(data: *const c_void, length: usize) -> Result<Bytes, Failure> {
    // SAFETY: the caller's. Nobody is behind these bytes: to drop them does nothing.
    Ok(Bytes::from_static(unsafe { bytes(data, length) }?))
}

/// Has nobody read bytes of C's any more where a panic ends the call that lent them: C is told that it failed, and has them back.
struct TakeBack<'a>(&'a homa::kernel_api::Socket, &'a [u8]);

impl Drop for TakeBack<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.copy_messages_of(self.1);
        }
    }
}

/// Longest time for which a thread that waits does not look whether it was cancelled. Nothing wakes it for that.
const CANCEL_LOOK: Duration = Duration::from_millis(100);

/// How long a call may wait, in parts between which its thread may be cancelled.
#[derive(Clone, Copy)]
struct HandoverBackoff(Option<Instant>);

impl HandoverBackoff {
    fn new(timeout_ns: u64) -> HandoverBackoff {
        // A time that the clock does not reach never passes.
        HandoverBackoff(timeout(timeout_ns).and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    /// The next part, and whether there is more behind it.
    fn part(self) -> (Duration, bool) {
        match self.0.map(|until| until.saturating_duration_since(Instant::now())) {
            Some(left) if left <= CANCEL_LOOK => (left, false),
            _ => (CANCEL_LOOK, true),
        }
    }
}

/// A call that homa_call() waits for, between two parts of its patience. The end of the thread gives it up.
struct Waiters {
    socket: Arc<Socket>,
    id: u64,
    to: ServerAddr,
    is_over: bool,
}

impl Drop for Waiters {
    fn drop(&mut self) {
        if !self.is_over {
            self.socket.socket.abort(self.id, false);
        }
    }
}

thread_local! {
    static WAITING: RefCell<Option<Waiters>> = const { RefCell::new(None) };
}

/// What came of a part of a call's patience.
enum Part {
    Over(homa_result),
    Waits,
}

/// Waits for a call for a part of its patience; where that is not enough the call lies in the thread's own place.
fn wait_a_part(
    mut waiting: Waiters,
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
    // SAFETY: C gives room for a pointer.
    unsafe { handle::give(response, Box::new(Message::of_response(outcome)?)) }?;
    Ok(false)
}

/// Ids of sockets; 0 is none.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A time as this library takes it; `None` never passes.
fn timeout(ns: u64) -> Option<Duration> {
    (ns != HOMA_FOREVER).then(|| Duration::from_nanos(ns))
}

/// Opens a socket of a host. `port` 1 to HOMA_MAX_SERVER_PORT accepts requests, and calls; 0 is any free client port, which only calls.
///
/// On success `*socket` is a handle that belongs to the caller until homa_socket_close(). It keeps its host. The library's threads, of
/// which the first socket of a host starts some, take no signals.
///
/// HOMA_ARGUMENT: `host` is no host, `socket` is NULL, or the port above HOMA_MAX_SERVER_PORT.
/// HOMA_IN_USE: another socket of this host has the port. HOMA_LIMIT: all client ports are open. HOMA_SYSTEM: the system refuses a thread.
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
        // SAFETY: C gives room for a pointer.
        unsafe { handle::give(socket, Arc::new(opened)) }
    })
}

/// Ends all work of a socket: its calls and the requests that nobody took are given up, and whoever waits with it, or calls it later, gets
/// HOMA_CLOSED. Answers are still delivered. Bytes that were lent to the library by homa_start_lent() and homa_reply_lent() are the
/// caller's again when this returns. Its descriptor is readable from now on. For programs whose threads wait: shut down, let them end,
/// then close. NULL does nothing.
///
/// HOMA_ARGUMENT: `socket` is no socket, or was closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_socket_shutdown(socket: *const homa_socket) -> homa_result {
    answer(|| {
        if !socket.is_null() {
            find(socket, "socket")?.shut_down();
        }
        Ok(())
    })
}

/// Shuts a socket down and gives it back. Where it is the last of a host that was closed, this waits for the host's last answers to be
/// acknowledged, for at most the option linger-ms. Messages that came by it remain good, and bytes that were lent to the library are the
/// caller's again. A server port is free for another socket of the host once its last answers are acknowledged. NULL does nothing.
///
/// Its descriptor must not be used afterwards.
///
/// HOMA_ARGUMENT: `socket` is no socket, or was closed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_socket_close(socket: *mut homa_socket) -> homa_result {
    answer(|| {
        if let Some(socket) = take(socket, "socket")? {
            // Others may be waiting with it: theirs is the last hand on it then.
            socket.shut_down();
        }
        Ok(())
    })
}

/// The address of the socket: what a client gives to reach it where it has a server port. The IP address is unspecified where the host was
/// bound so.
/// `address` is written to on success.
///
/// HOMA_ARGUMENT: `socket` is no socket, or `address` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_socket_address(
    socket: *const homa_socket,
    address: *mut homa_address,
) -> homa_result {
    answer(|| {
        let socket = find(socket, "socket")?;
        let own = homa_address::new(socket.host.local_addr(), socket.socket.port());
        // SAFETY: C gives room for one, or NULL.
        unsafe { give(address, "address", own) }
    })
}

/// Gives in `*fd` a descriptor that is readable exactly while homa_receive() would not have to wait, for poll, epoll and their like. Use
/// it for nothing else: not read, write or close. It is the same each time, belongs to the socket and is gone with it.
///
/// A program that sleeps on it calls homa_receive() with `timeout_ns` 0 until that returns HOMA_TIMED_OUT, and then sleeps; in this
/// way the network is attended at once while it does.
///
/// HOMA_ARGUMENT: `socket` is no socket, or `fd` is NULL. HOMA_SYSTEM: the system has no more descriptors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_socket_fd(socket: *const homa_socket, fd: *mut c_int) -> homa_result {
    answer(|| {
        let socket = find(socket, "socket")?;
        room(fd, "fd")?;
        let own = socket.signal()?.as_fd().as_raw_fd();
        socket.socket.attend();
        // SAFETY: C gives room for a number.
        unsafe { give(fd, "fd", own) }
    })
}

/// Calls a server and waits for its response, for at most `timeout_ns` nanoseconds (HOMA_FOREVER: until the network gives up). Signals do
/// not end it.
///
/// `to` and the `length` bytes at `data` are only read: they are sent from where they lie, no other thread may change them meanwhile, and
/// whatever this returns, nobody reads them any more. On success `*response` is a message that belongs to the caller until
/// homa_message_free(); else it is left alone.
///
/// HOMA_ARGUMENT: `socket` is no socket, another pointer is NULL, or `to` is no server's address. HOMA_TIMED_OUT: the time has passed.
/// HOMA_SIZE: the request is empty, or it or the response is longer than its receiver takes. HOMA_LIMIT: nothing was sent, or there are
/// too many messages that nobody handed back. HOMA_CLOSED: the socket was shut down. HOMA_UNREACHABLE, HOMA_SILENT, HOMA_NO_PORT,
/// HOMA_PEER_GONE: the server did not answer.
///
/// This is a cancellation point: a thread that is cancelled while it waits ends within 100 ms, and its call is given up. The bytes at
/// `data` may be freed by cleanup handlers.
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
    let patience = HandoverBackoff::new(timeout_ns);
    // SAFETY: the caller's.
    let mut part = unsafe { begin_call((socket, to), (data, length), (patience, timeout_ns), response) };
    loop {
        if let Part::Over(result) = part {
            return result;
        }
        cancellation_point();
        part = go_on_with_call(patience, timeout_ns, response);
    }
}

/// Starts a call and waits for the first part of its patience. Whoever waits longer has a copy of the request, since the end of the
/// thread may free its bytes.
///
/// # Safety
/// As [`homa_call`].
unsafe fn begin_call(
    (socket, to): (*const homa_socket, *const homa_address),
    (data, length): (*const c_void, usize),
    (patience, timeout_ns): (HandoverBackoff, u64),
    response: *mut *mut homa_message,
) -> Part {
    let mut waits = false;
    let result = answer(|| {
        let socket = find(socket, "socket")?;
        room(response, "response")?;
        // SAFETY: C gives an address, or NULL.
        let to = unsafe { socket.server(to, length) }?;
        // SAFETY: C gives so many bytes, or NULL. Where the call ends well nobody reads them any more, and otherwise it is given up here.
        let request = unsafe { lent(data, length) }?;
        let lent = request.clone();
        let _take_back = TakeBack(&socket.socket, &lent);
        let id = socket.socket.start(to, request, 0, true)?;
        let waiting = Waiters { socket: Arc::clone(&socket), id, to, is_over: false };
        waits = wait_a_part(waiting, patience.part(), timeout_ns, response)?;
        if waits {
            socket.socket.copy_messages_of(&lent);
        }
        Ok(())
    });
    if waits { Part::Waits } else { Part::Over(result) }
}

/// Waits for the next part of a call's patience.
fn go_on_with_call(patience: HandoverBackoff, timeout_ns: u64, response: *mut *mut homa_message) -> Part {
    let mut waits = false;
    let result = answer(|| {
        let waiting = WAITING.with(RefCell::take);
        let waiting = waiting.ok_or_else(|| Failure::new(homa_result::HOMA_INTERNAL, "the call was lost"))?;
        waits = wait_a_part(waiting, patience.part(), timeout_ns, response)?;
        Ok(())
    });
    if waits { Part::Waits } else { Part::Over(result) }
}

/// Starts a call; what may be sent of the request at once is sent before this returns. What it comes to is received by homa_receive(),
/// exactly once, with `cookie`, also where it fails. Where it takes longer than `timeout_ns` nanoseconds from now it is given up within a
/// millisecond, and fails with HOMA_TIMED_OUT; HOMA_FOREVER: until the network gives up. See also homa_cancel().
///
/// `to` and the `length` bytes at `data` are only read, and may be changed as soon as this returns. `*id` is the call's id; `id` may be
/// NULL.
///
/// HOMA_ARGUMENT: `socket` is no socket, another pointer is NULL, or `to` is no server's address. HOMA_SIZE, HOMA_LIMIT, HOMA_CLOSED:
/// nothing was sent.
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
        // SAFETY: C gives an address, or NULL.
        let to = unsafe { socket.server(to, length) }?;
        // SAFETY: C gives so many bytes, or NULL.
        let request = socket.socket.message(&[unsafe { bytes(data, length) }?]);
        // SAFETY: C gives room for a number, or NULL.
        unsafe { socket.begin(to, request, timeout_ns, cookie, id) }
    })
}

/// As homa_start(), with the same `timeout_ns` and `cookie`, but without a copy of the bytes: they are sent from where they lie.
///
/// On success the `length` bytes at `data` are lent to the library, which reads them, also to send again what the network loses: the
/// caller keeps them as they are and where they are until homa_receive() gives what the call came to, also where it was cancelled or its
/// time has passed, or until homa_socket_shutdown() or homa_socket_close() has returned. Where this fails they are the caller's at once.
/// `to` is only read, and may be changed as soon as this returns. `*id` is the call's id; `id` may be NULL.
///
/// For large messages; to copy some kilobytes costs less than to keep account of what is lent.
///
/// HOMA_ARGUMENT: `socket` is no socket, another pointer is NULL, or `to` is no server's address. HOMA_SIZE, HOMA_LIMIT, HOMA_CLOSED:
/// nothing was sent.
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
        // SAFETY: C gives an address, or NULL.
        let to = unsafe { socket.server(to, length) }?;
        // SAFETY: C keeps so many bytes until it has the outcome, and nobody reads them then.
        let request = unsafe { lent(data, length) }?;
        let lent = request.clone();
        let _take_back = TakeBack(&socket.socket, &lent);
        // SAFETY: C gives room for a number, or NULL.
        unsafe { socket.begin(to, request, timeout_ns, cookie, id) }
    })
}

/// Gives up the call `id` that homa_start() or homa_start_lent() started and whose outcome nobody has received: its outcome is
/// HOMA_CANCELLED, and is received as any other. The request may have run.
///
/// HOMA_ARGUMENT: `socket` is no socket. HOMA_NO_CALL: the socket has no such call any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_cancel(socket: *const homa_socket, id: u64) -> homa_result {
    answer(|| {
        if find(socket, "socket")?.socket.abort(id, true) {
            return Ok(());
        }
        let text =
            format!("no call of this socket has the id {id}: its outcome was received, or it never was");
        Err(Failure::new(homa_result::HOMA_NO_CALL, text))
    })
}

/// Waits for the next request, the next outcome of a call that homa_start() or homa_start_lent() started, or the next bytes that
/// homa_reply_lent() was given to come back, for at most `timeout_ns` nanoseconds (HOMA_FOREVER: for ever); 0 only looks. Signals do not
/// end it. homa_message_kind() says which it is.
///
/// On success `*message` belongs to the caller until homa_message_free(); else it is left alone. A call that failed is a success
/// here: see homa_message_result().
///
/// HOMA_ARGUMENT: `socket` is no socket, or `message` is NULL. HOMA_TIMED_OUT: nothing came. HOMA_CLOSED: the socket was shut down.
/// HOMA_LIMIT: there are too many messages that nobody handed back, and one was dropped.
///
/// This is a cancellation point: a thread that is cancelled while it waits ends within 100 ms, and has taken nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn homa_receive(
    socket: *const homa_socket,
    timeout_ns: u64,
    message: *mut *mut homa_message,
) -> homa_result {
    cancellation_point();
    let patience = HandoverBackoff::new(timeout_ns);
    loop {
        let (part, more) = patience.part();
        // SAFETY: the caller's.
        let result = unsafe { receive_for(socket, part, message) };
        if result != homa_result::HOMA_TIMED_OUT || !more {
            return result;
        }
        cancellation_point();
    }
}

/// # Safety
/// As [`homa_receive`].
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
        // SAFETY: C gives room for a pointer.
        unsafe { handle::give(message, Box::new(Message::of(arrival, socket.id))) }
    })
}

/// Answers a request that came by this socket. What may be sent at once is sent before this returns; the rest, and its repetition where the
/// network loses it, is the host's business.
///
/// The `length` bytes at `data` are only read, and may be changed as soon as this returns, since they are copied; but for bytes of the
/// request itself, all or some in a row, which are sent from where they lie. `request` remains the caller's: hand it back by
/// homa_message_free() afterwards. Whatever this returns but HOMA_ARGUMENT, the request is over.
///
/// HOMA_ARGUMENT: `socket` is no socket, `data` is NULL, or the message is no request, came by another socket, or was answered. HOMA_SIZE,
/// HOMA_LIMIT: the answer was not taken, and the client gets an error. HOMA_PEER_GONE: nobody waits for it any more. HOMA_CLOSED: the host
/// has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_reply(
    socket: *const homa_socket,
    request: *mut homa_message,
    data: *const c_void,
    length: usize,
) -> homa_result {
    answer(|| {
        let socket = find(socket, "socket")?;
        let (rpc, part) = socket.to_answer(request, data, length)?;
        let answer = match part {
            Some(answer) => answer,
            // SAFETY: C gives so many bytes.
            None => socket.socket.message(&[unsafe { bytes(data, length) }?]),
        };
        rpc.reply(answer)?;
        socket.attend();
        Ok(())
    })
}

/// As homa_reply(), without a copy of the bytes: they are sent from where they lie.
///
/// On success the `length` bytes at `data` are lent to the library, which reads them, also to send again what the network loses: the
/// caller keeps them as they are and where they are until homa_receive() gives a message of the kind HOMA_RETURNED with this `cookie`,
/// which comes once the client has the answer or is given up, or until homa_socket_shutdown() or homa_socket_close() has returned: those
/// copy what is still to be delivered. Where this fails they are the caller's at once. Bytes of the request itself need no loan: see
/// homa_reply(). `request` remains the caller's: hand it back by homa_message_free() afterwards. Whatever this returns but HOMA_ARGUMENT,
/// the request is over.
///
/// HOMA_ARGUMENT: `socket` is no socket, `data` is NULL, or the message is no request, came by another socket, or was answered. HOMA_SIZE,
/// HOMA_LIMIT: the answer was not taken, and the client gets an error. HOMA_PEER_GONE: nobody waits for it any more. HOMA_CLOSED: the
/// socket was shut down, and the client gets an error; homa_reply() would still have answered.
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
        let (rpc, part) = socket.to_answer(request, data, length)?;
        let answer = match part {
            Some(answer) => answer,
            // SAFETY: C keeps so many bytes until it is told that they came back, and nobody reads them then.
            None => unsafe { lent(data, length) }?,
        };
        let lent = answer.clone();
        let _take_back = TakeBack(&socket.socket, &lent);
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
            let _take_back = TakeBack(&socket, &memory);
            socket.start(ServerAddr::new(silent.local_addr(), 9), memory.clone(), 0, false)?;
            panic!("on purpose")
        });
        assert_eq!(result, homa_result::HOMA_INTERNAL);
        assert!(memory.is_unique());
    }
}
