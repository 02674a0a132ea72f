//! Calling and answering.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use homa::{CallError, Host, RecvError, Signal, Socket};

use crate::address::homa_address;
use crate::border::{Failure, answer, bytes, give, object, take_back, value};
use crate::host::homa_host;
use crate::message::homa_message;
use crate::result::homa_result;

/// A time in nanoseconds that never passes.
pub const HOMA_FOREVER: u64 = u64::MAX;

/// A port that calls and answers. Opaque. Every function may be called with it from any thread at any time, but for homa_socket_close().
pub struct homa_socket {
    socket: Arc<Socket>,
    /// Once somebody asked for a descriptor.
    signal: OnceLock<Arc<Signal>>,
    /// Held while it is made, so that there is one.
    making_signal: Mutex<()>,
    /// Goes after the socket.
    host: Arc<Host>,
}

impl homa_socket {
    /// # Safety
    /// The pointer is NULL, or one that C was given and has not given back.
    unsafe fn of<'a>(socket: *const homa_socket) -> Result<&'a homa_socket, Failure> {
        // SAFETY: the caller's.
        unsafe { object(socket, "socket") }
    }

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
}

/// A time as this library takes it; `None` never passes.
fn timeout(ns: u64) -> Option<Duration> {
    (ns != HOMA_FOREVER).then(|| Duration::from_nanos(ns))
}

/// Opens a socket of a host. `port` 1 to HOMA_MAX_SERVER_PORT accepts requests, and calls; 0 is any free client port, which only calls.
///
/// On success `*socket` is a handle that belongs to the caller until homa_socket_close(). It keeps its host.
///
/// HOMA_ARGUMENT: a pointer is NULL, or the port above HOMA_MAX_SERVER_PORT. HOMA_IN_USE: another socket of this host has the port.
/// HOMA_LIMIT: all client ports are open. HOMA_SYSTEM: the system refuses a thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_socket_open(
    host: *const homa_host,
    port: u16,
    socket: *mut *mut homa_socket,
) -> homa_result {
    answer(|| {
        // SAFETY: C gives a host, or NULL.
        let host = Arc::clone(&unsafe { homa_host::of(host) }?.host);
        if socket.is_null() {
            return Err(Failure::argument("`socket` is NULL"));
        }
        if port > crate::address::HOMA_MAX_SERVER_PORT {
            return Err(homa::HostError::from(homa::proto::PortError::OutOfRange(port)).into());
        }
        let opened = Arc::new(host.socket((port > 0).then_some(port))?);
        let (signal, making_signal) = (OnceLock::new(), Mutex::new(()));
        let opened = homa_socket { socket: opened, signal, making_signal, host };
        // SAFETY: C gives room for a pointer.
        unsafe { give(socket, "socket", Box::into_raw(Box::new(opened))) }
    })
}

/// Ends all work of a socket: its calls and the requests that nobody took are given up, and whoever waits with it, or calls it later, gets
/// HOMA_CLOSED. Its descriptor is readable from now on. For programs whose threads wait: shut down, let them end, then close. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_socket_shutdown(socket: *const homa_socket) {
    // SAFETY: C gives a socket, or NULL.
    if let Some(socket) = unsafe { socket.as_ref() } {
        value((), || {
            socket.socket.close();
            if let Some(signal) = socket.signal.get() {
                signal.force(true);
            }
        });
    }
}

/// Shuts a socket down and gives it back. Where it is the last of a host that was closed, this waits for the host's last answers to be acknowledged,
/// for at most the host's `linger_ns`. NULL does nothing.
///
/// `socket` and its descriptor must not be used afterwards, nor by another thread meanwhile. Messages that came by it remain good.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_socket_close(socket: *mut homa_socket) {
    // SAFETY: C gives back a socket, or NULL.
    unsafe { take_back(socket) }
}

/// The address of the socket: what a client gives to reach it where it has a server port. The IP address is unspecified where the host was bound so.
/// `address` is written to on success.
///
/// HOMA_ARGUMENT: a pointer is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_socket_address(
    socket: *const homa_socket,
    address: *mut homa_address,
) -> homa_result {
    answer(|| {
        // SAFETY: C gives a socket, or NULL.
        let socket = unsafe { homa_socket::of(socket) }?;
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
/// HOMA_ARGUMENT: a pointer is NULL. HOMA_SYSTEM: the system has no more descriptors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_socket_fd(socket: *const homa_socket, fd: *mut c_int) -> homa_result {
    answer(|| {
        // SAFETY: C gives a socket, or NULL.
        let socket = unsafe { homa_socket::of(socket) }?;
        if fd.is_null() {
            return Err(Failure::argument("`fd` is NULL"));
        }
        let own = socket.signal()?.as_fd().as_raw_fd();
        socket.attend();
        // SAFETY: C gives room for a number.
        unsafe { give(fd, "fd", own) }
    })
}

/// Calls a server and waits for its response, for at most `timeout_ns` nanoseconds (HOMA_FOREVER: until the network gives up).
///
/// `to` and the `length` bytes at `data` are only read, and may be changed as soon as this returns. On success `*response` is a message
/// that belongs to the caller until homa_message_free(); else it is left alone.
///
/// HOMA_ARGUMENT: a pointer is NULL, or `to` is no server's address. HOMA_TIMED_OUT: the time has passed. HOMA_SIZE: the request is empty, or
/// it or the response is longer than its receiver takes. HOMA_LIMIT: nothing was sent. HOMA_CLOSED: the socket was shut down.
/// HOMA_UNREACHABLE, HOMA_SILENT, HOMA_NO_PORT, HOMA_PEER_GONE: the server did not answer.
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
        // SAFETY: C gives a socket, or NULL.
        let socket = &unsafe { homa_socket::of(socket) }?.socket;
        // SAFETY: C gives an address, or NULL.
        let to = unsafe { object(to, "to") }?.server()?;
        if response.is_null() {
            return Err(Failure::argument("`response` is NULL"));
        }
        // SAFETY: C gives so many bytes.
        let request = socket.message(&[unsafe { bytes(data, length) }?]);
        let deadline = timeout(timeout_ns);
        let id = socket.start(to, request, 0, true)?;
        let outcome = socket.recv_private(id, deadline).map_err(|error| {
            socket.abort(id, false);
            match (error, deadline) {
                (RecvError::TimedOut, Some(deadline)) => CallError::DeadlineExceeded { to, deadline }.into(),
                (error, _) => Failure::from(error),
            }
        })?;
        let message = homa_message::of_response(outcome)?;
        // SAFETY: C gives room for a pointer.
        unsafe { give(response, "response", Box::into_raw(Box::new(message))) }
    })
}

/// Starts a call; what may be sent of the request at once is sent before this returns. What it comes to is received by homa_receive(), exactly
/// once, with `cookie`, also where it fails. It has no deadline but that of the network: see homa_cancel().
///
/// `to` and the `length` bytes at `data` are only read, and may be changed as soon as this returns. `*id` is the call's id; `id` may be NULL.
///
/// HOMA_ARGUMENT: a pointer is NULL, or `to` is no server's address. HOMA_SIZE, HOMA_LIMIT, HOMA_CLOSED: nothing was sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_start(
    socket: *const homa_socket,
    to: *const homa_address,
    data: *const c_void,
    length: usize,
    cookie: u64,
    id: *mut u64,
) -> homa_result {
    answer(|| {
        // SAFETY: C gives a socket, or NULL.
        let socket = unsafe { homa_socket::of(socket) }?;
        // SAFETY: C gives an address, or NULL.
        let to = unsafe { object(to, "to") }?.server()?;
        // SAFETY: C gives so many bytes.
        let request = socket.socket.message(&[unsafe { bytes(data, length) }?]);
        let started = socket.socket.start(to, request, cookie, false)?;
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
/// HOMA_ARGUMENT: `socket` is NULL. HOMA_NO_CALL: the socket has no such call any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_cancel(socket: *const homa_socket, id: u64) -> homa_result {
    answer(|| {
        // SAFETY: C gives a socket, or NULL.
        match unsafe { homa_socket::of(socket) }?.socket.abort(id, true) {
            true => Ok(()),
            false => Err(RecvError::NoSuchCall { id }.into()),
        }
    })
}

/// Waits for the next request, or the next outcome of a call that homa_start() started, for at most `timeout_ns` nanoseconds (HOMA_FOREVER: for
/// ever); 0 only looks.
///
/// On success `*message` belongs to the caller until homa_message_free(); else it is left alone. A call that failed is a success
/// here: see homa_message_result().
///
/// HOMA_ARGUMENT: a pointer is NULL. HOMA_TIMED_OUT: nothing came. HOMA_CLOSED: the socket was shut down.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_receive(
    socket: *const homa_socket,
    timeout_ns: u64,
    message: *mut *mut homa_message,
) -> homa_result {
    answer(|| {
        // SAFETY: C gives a socket, or NULL.
        let socket = unsafe { homa_socket::of(socket) }?;
        if message.is_null() {
            return Err(Failure::argument("`message` is NULL"));
        }
        let arrival = socket.socket.recv(timeout(timeout_ns)).inspect_err(|_| socket.attend())?;
        if let Some(signal) = socket.signal.get() {
            signal.taken();
        }
        let received = homa_message::of(arrival);
        // SAFETY: C gives room for a pointer.
        unsafe { give(message, "message", Box::into_raw(Box::new(received))) }
    })
}

/// Answers a request that came by this socket. What may be sent at once is sent before this returns; the rest, and its repetition where the
/// network loses it, is the host's business.
///
/// The `length` bytes at `data` are only read, may be those of the request, and may be changed as soon as this returns. `request` remains the
/// caller's: hand it back by homa_message_free() afterwards. Whatever this returns but HOMA_ARGUMENT, the request is over.
///
/// HOMA_ARGUMENT: a pointer is NULL, or the message is no request, or was answered. HOMA_SIZE, HOMA_LIMIT: the answer was not taken, and
/// the client gets an error. HOMA_PEER_GONE: nobody waits for it any more. HOMA_CLOSED: the host has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_reply(
    socket: *const homa_socket,
    request: *mut homa_message,
    data: *const c_void,
    length: usize,
) -> homa_result {
    answer(|| {
        // SAFETY: C gives a socket, or NULL.
        let socket = unsafe { homa_socket::of(socket) }?;
        if request.is_null() {
            return Err(Failure::argument("`request` is NULL"));
        }
        // SAFETY: C gives so many bytes. They may be the request's, which are copied before anything happens to it.
        let answer = socket.socket.message(&[unsafe { bytes(data, length) }?]);
        // SAFETY: C gives a message that no other thread uses now, and we have no other reference to it.
        let rpc = unsafe { &mut (*request).rpc }.take();
        let rpc = rpc.ok_or_else(|| Failure::argument("`request` is no request, or was answered before"))?;
        rpc.reply(answer)?;
        socket.attend();
        Ok(())
    })
}
