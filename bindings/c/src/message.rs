//! What a socket receives, in memory that the application hands back.

use std::ffi::c_void;
use std::ptr;

use bytes::Bytes;
use homa::{Arrival, CallError, Outcome, Rpc};

use crate::address::homa_address;
use crate::border::{Failure, answer, give, object, take_back, value};
use crate::result::homa_result;

/// A request to be answered, or what a call came to. Opaque. Its bytes lie where the network's packets were put together, and stay there until
/// homa_message_free(). It may be handed from thread to thread, but only one may use it at a time. It may outlive its socket.
pub struct homa_message {
    bytes: Bytes,
    error: Option<CallError>,
    is_request: bool,
    /// What answers a request.
    pub(crate) rpc: Option<Rpc>,
    id: u64,
    cookie: u64,
    from: homa_address,
}

impl homa_message {
    pub(crate) fn of(arrival: Arrival) -> homa_message {
        match arrival {
            Arrival::Request { mut rpc, id, client_port } => homa_message {
                bytes: rpc.take_request(),
                error: None,
                is_request: true,
                from: homa_address::new(rpc.peer(), client_port),
                rpc: Some(rpc),
                id,
                cookie: 0,
            },
            Arrival::Outcome(outcome) => homa_message::of_call(outcome),
        }
    }

    fn of_call(Outcome { id, cookie, to, result }: Outcome) -> homa_message {
        let (bytes, error) = match result {
            Ok(response) => (response, None),
            Err(error) => (Bytes::new(), Some(error)),
        };
        let from = homa_address::new(to.host, to.port);
        homa_message { bytes, error, is_request: false, rpc: None, id, cookie, from }
    }

    /// The response of a call, or why there is none.
    pub(crate) fn of_response(outcome: Outcome) -> Result<homa_message, Failure> {
        let message = homa_message::of_call(outcome);
        message.check().map(|()| message)
    }

    fn check(&self) -> Result<(), Failure> {
        self.error.clone().map_or(Ok(()), |error| Err(error.into()))
    }
}

/// # Safety
/// The pointer is NULL, or a message that C has not given back.
unsafe fn look<T>(message: *const homa_message, otherwise: T, at: impl FnOnce(&homa_message) -> T) -> T {
    // SAFETY: the caller's.
    match unsafe { message.as_ref() } {
        Some(message) => value(otherwise, || at(message)),
        None => otherwise,
    }
}

/// Whether it is a request, to be answered by homa_reply(); else it is what a call came to. False for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_message_is_request(message: *const homa_message) -> bool {
    // SAFETY: C gives a message, or NULL.
    unsafe { look(message, false, |message| message.is_request) }
}

/// What the call came to: HOMA_OK where the message is a response (or a request), else why there is none, which homa_last_error() then
/// says in words.
///
/// HOMA_ARGUMENT: `message` is NULL. HOMA_LIMIT, HOMA_SIZE, HOMA_UNREACHABLE, HOMA_SILENT, HOMA_NO_PORT, HOMA_PEER_GONE, HOMA_CANCELLED, HOMA_CLOSED:
/// the call failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_message_result(message: *const homa_message) -> homa_result {
    // SAFETY: C gives a message, or NULL.
    answer(|| unsafe { object(message, "message") }?.check())
}

/// The bytes of a request or response, and in `*length` how many; NULL and 0 for a call that failed, and for NULL.
///
/// They belong to the message, and are good until homa_message_free(). `length` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_message_data(
    message: *const homa_message,
    length: *mut usize,
) -> *const c_void {
    // SAFETY: C gives a message, or NULL.
    let (data, bytes) = unsafe {
        look(message, (ptr::null(), 0), |message| match message.bytes.len() {
            0 => (ptr::null(), 0),
            bytes => (message.bytes.as_ptr().cast(), bytes),
        })
    };
    if !length.is_null() {
        // SAFETY: C gives room for a number.
        unsafe { length.write(bytes) };
    }
    data
}

/// The id of a call, as homa_start() gave it, which is even; or of a request, as the server has it, which is odd. 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_message_id(message: *const homa_message) -> u64 {
    // SAFETY: C gives a message, or NULL.
    unsafe { look(message, 0, |message| message.id) }
}

/// What homa_start() was given as `cookie`. 0 for requests, for responses of homa_call(), and for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_message_cookie(message: *const homa_message) -> u64 {
    // SAFETY: C gives a message, or NULL.
    unsafe { look(message, 0, |message| message.cookie) }
}

/// The other side: the client that sent the request, or the server that was called. `address` is written to on success.
///
/// HOMA_ARGUMENT: a pointer is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_message_from(
    message: *const homa_message,
    address: *mut homa_address,
) -> homa_result {
    answer(|| {
        // SAFETY: C gives a message, or NULL.
        let from = unsafe { object(message, "message") }?.from;
        // SAFETY: C gives room for one, or NULL.
        unsafe { give(address, "address", from) }
    })
}

/// Hands a message back. A request that was not answered is given up, and its client gets an error. NULL does nothing.
///
/// `message` and its bytes must not be used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_message_free(message: *mut homa_message) {
    // SAFETY: C gives back a message, or NULL.
    unsafe { take_back(message) }
}
