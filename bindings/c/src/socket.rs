//! Calling and answering.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use homa::{CallError, Host, RecvError, ReplyError, ServerAddr, Signal};

use crate::address::{HOMA_MAX_SERVER_PORT, homa_address};
use crate::border::{Failure, answer, bytes, give, object, room, without_signals};
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
    socket: Arc<homa::Socket>,
    /// Once somebody asked for a descriptor.
    signal: OnceLock<Arc<Signal>>,
    /// Held while it is made, so that there is one.
    making_signal: Mutex<()>,
    /// Bytes of the longest message that its host sends.
    max_message: u32,
    /// Goes after the socket.
    host: Arc<Host>,
}

impl Socket {
    fn signal(&self) -> Result<&Arc<Signal>, Failure> {
        let making = self.making_signal.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(signal) = self.signal.get() {
            return Ok(signal);
        }
        let made = Signal::open();
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
            signal.force(true);
        }
    }

    /// A request to `to` of C's bytes, which are copied.
    ///
    /// # Safety
    /// `to` is NULL or good for reads, and so are `length` bytes behind `data` if that is not NULL.
    unsafe fn request(
        &self,
        to: *const homa_address,
        data: *const c_void,
        length: usize,
    ) -> Result<(ServerAddr, Bytes), Failure> {
        // SAFETY: the caller's.
        let to = unsafe { object(to, "to") }?.server(self.host.local_addr().port() == 0)?;
        // Before so many bytes are copied.
        if length > self.max_message as usize {
            return Err(CallError::MessageTooLarge { length, limit: self.max_message }.into());
        }
        // SAFETY: the caller's.
        Ok((to, self.socket.message(&[unsafe { bytes(data, length) }?])))
    }
}

/// A time as this library takes it; `None` never passes.
fn timeout(ns: u64) -> Option<Duration> {
    (ns != HOMA_FOREVER).then(|| Duration::from_nanos(ns))
}

/// Opens a socket of a host. `port` 1 to HOMA_MAX_SERVER_PORT accepts requests, and calls; 0 is any free client port, which only calls.
///
/// On success `*socket` is a handle that belongs to the caller until homa_socket_close(). It keeps its host. The library's threads, of which the first
/// socket of a host starts some, take no signals.
///
/// HOMA_ARGUMENT: `host` is no host, `socket` is NULL, the port above HOMA_MAX_SERVER_PORT, or not 0 where the host has several endpoints.
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
            return Err(homa::HostError::from(homa::proto::PortError::OutOfRange(port)).into());
        }
        let host = Arc::clone(&from.host);
        let opened = Arc::new(without_signals(|| host.socket((port > 0).then_some(port)))?);
        let (signal, making_signal, max_message) = (OnceLock::new(), Mutex::new(()), from.max_message);
        let opened = Socket { socket: opened, signal, making_signal, max_message, host };
        // SAFETY: C gives room for a pointer.
        unsafe { handle::give(socket, Arc::new(opened)) }
    })
}

/// Ends all work of a socket: its calls and the requests that nobody took are given up, and whoever waits with it, or calls it later, gets
/// HOMA_CLOSED. Its descriptor is readable from now on. For programs whose threads wait: shut down, let them end, then close. It must not be called
/// in a signal handler. NULL does nothing.
///
/// HOMA_ARGUMENT: it is no socket, or was closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_socket_shutdown(socket: *const homa_socket) -> homa_result {
    answer(|| {
        if !socket.is_null() {
            find(socket, "socket")?.shut_down();
        }
        Ok(())
    })
}

/// Shuts a socket down and gives it back. Where it is the last of a host that was closed, this waits for the host's last answers to be acknowledged,
/// for at most the option linger-ms. Messages that came by it remain good. A server port is free for another socket of the host once its last answers
/// are acknowledged. NULL does nothing.
///
/// Its descriptor must not be used afterwards.
///
/// HOMA_ARGUMENT: it is no socket, or was closed before.
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

/// The address of the socket: what a client gives to reach it where it has a server port. The IP address is unspecified where the host was bound so.
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

/// Gives in `*fd` a descriptor that is readable exactly while homa_receive() would not have to wait, for poll, epoll and their like. Use it for
/// nothing else: not read, write or close. It is the same each time, belongs to the socket and is gone with it.
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

/// Calls a server and waits for its response, for at most `timeout_ns` nanoseconds (HOMA_FOREVER: until the network gives up). Signals do not
/// end it.
///
/// `to` and the `length` bytes at `data` are only read, and may be changed as soon as this returns. On success `*response` is a message
/// that belongs to the caller until homa_message_free(); else it is left alone.
///
/// HOMA_ARGUMENT: `socket` is no socket, another pointer is NULL, or `to` is no server's address. HOMA_TIMED_OUT: the time has passed. HOMA_SIZE: the
/// request is empty, or it or the response is longer than its receiver takes. HOMA_LIMIT: nothing was sent, or there are too many messages that nobody
/// handed back. HOMA_CLOSED: the socket was shut down. HOMA_UNREACHABLE, HOMA_SILENT, HOMA_NO_PORT, HOMA_PEER_GONE: the server did not answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_call(
    socket: *const homa_socket,
    to: *const homa_address,
    data: *const c_void,
    length: usize,
    timeout_ns: u64,
    response: *mut *mut homa_message,
) -> homa_result {
    answer(|| {
        let socket = find(socket, "socket")?;
        room(response, "response")?;
        // SAFETY: C gives an address and so many bytes, or NULL.
        let (to, request) = unsafe { socket.request(to, data, length) }?;
        let deadline = timeout(timeout_ns);
        let id = socket.socket.start(to, request, 0, true)?;
        let outcome = socket.socket.recv_private(id, deadline).map_err(|error| {
            socket.socket.abort(id, false);
            match (error, deadline) {
                (RecvError::TimedOut, Some(deadline)) => CallError::DeadlineExceeded { to, deadline }.into(),
                (error, _) => Failure::from(error),
            }
        })?;
        // SAFETY: C gives room for a pointer.
        unsafe { handle::give(response, Box::new(Message::of_response(outcome)?)) }
    })
}

/// Starts a call; what may be sent of the request at once is sent before this returns. What it comes to is received by homa_receive(), exactly
/// once, with `cookie`, also where it fails. Where it takes longer than `timeout_ns` nanoseconds from now it is given up within a
/// millisecond, and fails with HOMA_TIMED_OUT; HOMA_FOREVER: until the network gives up. See also homa_cancel().
///
/// `to` and the `length` bytes at `data` are only read, and may be changed as soon as this returns. `*id` is the call's id; `id` may be NULL.
///
/// HOMA_ARGUMENT: `socket` is no socket, another pointer is NULL, or `to` is no server's address. HOMA_SIZE, HOMA_LIMIT, HOMA_CLOSED: nothing was sent.
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
        // SAFETY: C gives an address and so many bytes, or NULL.
        let (to, request) = unsafe { socket.request(to, data, length) }?;
        let started = match timeout(timeout_ns) {
            None => socket.socket.start(to, request, cookie, false)?,
            Some(deadline) => socket.socket.start_deadline(to, request, cookie, deadline)?,
        };
        if !id.is_null() {
            // SAFETY: C gives room for a number.
            unsafe { id.write(started) };
        }
        socket.attend();
        Ok(())
    })
}

/// Gives up a call that homa_start() started and whose outcome nobody has received: its outcome is HOMA_CANCELLED, and is received as any other.
/// The request may have run.
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

/// Waits for the next request, or the next outcome of a call that homa_start() started, for at most `timeout_ns` nanoseconds (HOMA_FOREVER: for
/// ever); 0 only looks. Signals do not end it.
///
/// On success `*message` belongs to the caller until homa_message_free(); else it is left alone. A call that failed is a success
/// here: see homa_message_result().
///
/// HOMA_ARGUMENT: `socket` is no socket, or `message` is NULL. HOMA_TIMED_OUT: nothing came. HOMA_CLOSED: the socket was shut down. HOMA_LIMIT: there
/// are too many messages that nobody handed back, and one was dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_receive(
    socket: *const homa_socket,
    timeout_ns: u64,
    message: *mut *mut homa_message,
) -> homa_result {
    answer(|| {
        let socket = find(socket, "socket")?;
        room(message, "message")?;
        let arrival = socket.socket.recv(timeout(timeout_ns)).inspect_err(|_| socket.attend())?;
        if let Some(signal) = socket.signal.get() {
            signal.taken();
        }
        // SAFETY: C gives room for a pointer.
        unsafe { handle::give(message, Box::new(Message::of(arrival))) }
    })
}

/// Answers a request that came by this socket. What may be sent at once is sent before this returns; the rest, and its repetition where the
/// network loses it, is the host's business.
///
/// The `length` bytes at `data` are only read, and may be changed as soon as this returns, since they are copied; but for bytes of the request itself, all
/// or some in a row, which are sent from where they lie. `request` remains the caller's: hand it back by homa_message_free() afterwards.
/// Whatever this returns but HOMA_ARGUMENT, the request is over.
///
/// HOMA_ARGUMENT: `socket` is no socket, `data` is NULL, or the message is no request, or was answered. HOMA_SIZE, HOMA_LIMIT: the answer was not
/// taken, and the client gets an error. HOMA_PEER_GONE: nobody waits for it any more. HOMA_CLOSED: the host has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_reply(
    socket: *const homa_socket,
    request: *mut homa_message,
    data: *const c_void,
    length: usize,
) -> homa_result {
    answer(|| {
        let socket = find(socket, "socket")?;
        if data.is_null() && length > 0 {
            return Err(Failure::null("data"));
        }
        let (rpc, part) =
            with(request, "request", |request| (request.rpc.take(), request.part(data, length)))?;
        let rpc = rpc.ok_or_else(|| Failure::argument("`request` is no request, or was answered before"))?;
        // Before so many bytes are copied.
        if length > socket.max_message as usize {
            return Err(ReplyError::MessageTooLarge { length, limit: socket.max_message }.into());
        }
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
