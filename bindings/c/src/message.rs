//! Received messages, in memory that the application frees.

use std::ffi::c_void;
use std::ptr;

use bytes::Bytes;
use homa::Request;
use homa::kernel_api::{Arrival, Outcome, ReturnedReply};

use crate::address::homa_address;
use crate::border::{Failure, answer, value, write_out};
use crate::handle::{take, with};
use crate::result::{call_text, homa_result, of_call, of_reply, reply_text};

/// A request to answer, the outcome of a call, or bytes that homa_reply_lent() returns. Opaque. Its bytes
/// stay where the packets were assembled, until homa_message_free(). Every function may be called with it
/// from any thread at any time; its bytes are only read. It may outlive its socket and its host.
pub struct homa_message {
    _opaque: [u8; 0],
}

/// The kind of a message. A later version may add kinds: free messages of a kind that you do not know.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum homa_kind {
    /// Not a message.
    HOMA_NO_MESSAGE = 0,
    /// A request, to be answered by homa_reply() or homa_reply_lent().
    HOMA_REQUEST = 1,
    /// The outcome of a call: a response, or the reason why there is none.
    HOMA_OUTCOME = 2,
    /// The bytes that homa_reply_lent() was given with this cookie. They belong to the caller again.
    HOMA_RETURNED = 3,
}

pub(crate) struct Message {
    bytes: Bytes,
    /// Why there is no response.
    error: Option<(homa_result, String)>,
    kind: homa_kind,
    /// The RPC by which the request is answered; `None` afterwards.
    pub(crate) rpc: Option<Request>,
    /// Id of the socket that received the message; 0 if it is not needed.
    pub(crate) socket: u64,
    id: u64,
    cookie: u64,
    from: homa_address,
}

impl Message {
    /// Returns the message for an arrival at this socket.
    pub(crate) fn of(arrival: Arrival, socket: u64) -> Message {
        match arrival {
            Arrival::Request { mut rpc, id, client_port } => Message {
                bytes: rpc.take_payload(),
                error: None,
                kind: homa_kind::HOMA_REQUEST,
                from: homa_address::new(rpc.peer(), client_port),
                rpc: Some(rpc),
                socket,
                id,
                cookie: 0,
            },
            Arrival::Outcome(outcome) => Message::of_call(outcome),
            Arrival::ReturnedReply(ReturnedReply { id, cookie, client, client_port, result }) => Message {
                bytes: Bytes::new(),
                error: result.err().map(|error| (of_reply(&error), reply_text(&error))),
                kind: homa_kind::HOMA_RETURNED,
                from: homa_address::new(client, client_port),
                rpc: None,
                socket,
                id,
                cookie,
            },
        }
    }

    fn of_call(Outcome { id, cookie, to, result }: Outcome) -> Message {
        let (bytes, error) = match result {
            Ok(response) => (response, None),
            Err(error) => (Bytes::new(), Some((of_call(&error), call_text(&error)))),
        };
        let from = homa_address::new(to.host, to.port);
        Message { bytes, error, kind: homa_kind::HOMA_OUTCOME, rpc: None, socket: 0, id, cookie, from }
    }

    /// Returns the response of a call, or its failure.
    pub(crate) fn of_response(outcome: Outcome) -> Result<Message, Failure> {
        let message = Message::of_call(outcome);
        message.check().map(|()| message)
    }

    /// Returns the part of this message's bytes at `data`, or `None` if `data` lies elsewhere.
    pub(crate) fn sub_slice(&self, data: *const c_void, length: usize) -> Option<Bytes> {
        let start = data.addr().checked_sub(self.bytes.as_ptr().addr())?;
        let end = start.checked_add(length)?;
        (length > 0 && end <= self.bytes.len()).then(|| self.bytes.slice(start..end))
    }

    fn check(&self) -> Result<(), Failure> {
        self.error.clone().map_or(Ok(()), |(result, text)| Err(Failure::new(result, text)))
    }
}

fn field_of<T: Copy>(message: *const homa_message, otherwise: T, at: impl FnOnce(&Message) -> T) -> T {
    value(otherwise, || with(message, "message", |message| at(message)).unwrap_or(otherwise))
}

/// The kind of `message`; HOMA_NO_MESSAGE if it is not a valid handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_message_kind(message: *const homa_message) -> homa_kind {
    field_of(message, homa_kind::HOMA_NO_MESSAGE, |message| message.kind)
}

/// Whether `message` is of the kind HOMA_REQUEST. False if it is not a valid handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_message_is_request(message: *const homa_message) -> bool {
    field_of(message, false, |message| message.kind == homa_kind::HOMA_REQUEST)
}

/// The result of the call or the response. HOMA_OK if the message is a response or a request, or if the
/// client has received the response or no longer wants it. Else the reason, which homa_last_error() then
/// gives in words.
///
/// HOMA_ARGUMENT: `message` is not a valid handle. HOMA_LIMIT, HOMA_SIZE, HOMA_UNREACHABLE, HOMA_SILENT,
/// HOMA_NO_PORT, HOMA_PEER_GONE, HOMA_TIMED_OUT, HOMA_CANCELLED, HOMA_CLOSED: the call failed. For the kind
/// HOMA_RETURNED, HOMA_PEER_GONE: the client gave up, restarted or fell silent, and may or may not have the
/// response. HOMA_CLOSED: the host has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_message_result(message: *const homa_message) -> homa_result {
    answer(|| with(message, "message", |message| message.check())?)
}

/// The bytes of a request or response, with their number in `*length`. NULL and 0 for a failed call, for
/// HOMA_RETURNED, and if `message` is not a valid handle.
///
/// The bytes belong to `message` and remain valid until homa_message_free(). `length` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_message_data(
    message: *const homa_message,
    length: *mut usize,
) -> *const c_void {
    let (data, bytes) = field_of(message, (ptr::null(), 0), |message| match message.bytes.len() {
        0 => (ptr::null(), 0),
        bytes => (message.bytes.as_ptr().cast(), bytes),
    });
    if !length.is_null() {
        // SAFETY: `length` is not NULL, and homa.h requires room for a number.
        unsafe { length.write(bytes) };
    }
    data
}

/// The id of the RPC of `message`. For a call it is the id from homa_start(), which is even. For a request or
/// its response it is the id at the server, which is odd. 0 if `message` is not a valid handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_message_id(message: *const homa_message) -> u64 {
    field_of(message, 0, |message| message.id)
}

/// The cookie that homa_start(), homa_start_lent() or homa_reply_lent() was given for the call or response of
/// `message`. 0 for requests, for responses of homa_call(), and if `message` is not a valid handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_message_cookie(message: *const homa_message) -> u64 {
    field_of(message, 0, |message| message.cookie)
}

/// The address of the peer: the client of a request or response, or the server of a call. `address` is
/// written on success.
///
/// HOMA_ARGUMENT: `message` is not a valid handle, or `address` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_message_from(
    message: *const homa_message,
    address: *mut homa_address,
) -> homa_result {
    answer(|| {
        let from = with(message, "message", |message| message.from)?;
        // SAFETY: homa.h requires that `address` is NULL or has room for an address.
        unsafe { write_out(address, "address", from) }
    })
}

/// Frees a message. An unanswered request is given up, and its client gets an error. NULL does nothing.
///
/// The bytes of the message must not be used afterwards, and no other thread may be using them.
///
/// HOMA_ARGUMENT: `message` is not a valid handle, or was freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_message_free(message: *mut homa_message) -> homa_result {
    answer(|| take(message, "message").map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_message_are_known_by_where_they_are() {
        let bytes = Bytes::from(b"hello".to_vec());
        let outcome = Outcome {
            id: 2,
            cookie: 0,
            to: homa::ServerAddr::new(([127, 0, 0, 1], 1).into(), 1),
            result: Ok(bytes.clone()),
        };
        let message = Message::of_call(outcome);
        let at = |index: usize| bytes.as_ptr().wrapping_add(index).cast();
        assert_eq!(message.sub_slice(at(0), 5).as_deref(), Some(&b"hello"[..]));
        assert_eq!(message.sub_slice(at(1), 3).as_deref(), Some(&b"ell"[..]));
        for (index, length) in [(0, 6), (5, 1), (1, usize::MAX), (usize::MAX, 2), (0, 0)] {
            assert_eq!(message.sub_slice(at(index), length), None, "{length} bytes at {index}");
        }
        assert_eq!(message.sub_slice(b"hello".as_ptr().cast(), 5), None, "others of the same text");
    }
}
