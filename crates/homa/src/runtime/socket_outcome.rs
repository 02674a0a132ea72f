//! The outcomes of calls and answers, as reported by a socket.

use std::net::SocketAddr;

use bytes::Bytes;

use crate::types::address::ServerAddr;
use crate::types::error::{CallError, ReplyError};

/// The outcome of a call of a [`Socket`](crate::kernel_api::Socket).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The ID that [`Socket::start`](crate::kernel_api::Socket::start) returned.
    pub id: u64,
    /// The cookie that the caller passed to [`Socket::start`](crate::kernel_api::Socket::start).
    pub cookie: u64,
    /// The server.
    pub to: ServerAddr,
    /// The response, or the reason why there is none.
    pub result: Result<Bytes, CallError>,
}

/// A call of a [`Socket`](crate::kernel_api::Socket) whose outcome has not been taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallInfo {
    /// The ID that [`Socket::start`](crate::kernel_api::Socket::start) returned.
    pub id: u64,
    /// The cookie that the caller passed to [`Socket::start`](crate::kernel_api::Socket::start).
    pub cookie: u64,
    /// The server.
    pub to: ServerAddr,
    /// Whether the call is private: its outcome can only be taken by its ID.
    pub private: bool,
    /// Length of the request in bytes.
    pub request_bytes: u32,
    /// Length of the response in bytes, if the call has ended; 0 if it ended in an error.
    pub over: Option<usize>,
}

/// The outcome of an answer whose bytes were [lent](crate::kernel_api::Socket::reply_lent). The host no
/// longer reads these bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnedReply {
    /// The server's ID of the RPC, which is odd.
    pub id: u64,
    /// The cookie that was passed to [`Socket::reply_lent`](crate::kernel_api::Socket::reply_lent).
    pub cookie: u64,
    /// Address of the client's host; its port is the UDP port, and 0 over raw IP.
    pub client: SocketAddr,
    /// The Homa port of the client.
    pub client_port: u16,
    /// `Ok` if the client has acknowledged the answer, which it does even after aborting the call. Otherwise
    /// the reason why it has not.
    pub result: Result<(), ReplyError>,
}
