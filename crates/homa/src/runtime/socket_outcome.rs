//! The ends of calls and answers, as a socket reports them.

use std::net::SocketAddr;

use bytes::Bytes;

use crate::types::address::ServerAddr;
use crate::types::error::{CallError, ReplyError};

/// The outcome of a call of a [`Socket`](crate::kernel_api::Socket).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The id that [`Socket::start`](crate::kernel_api::Socket::start) returned.
    pub id: u64,
    /// The cookie that the caller passed to [`Socket::start`](crate::kernel_api::Socket::start).
    pub cookie: u64,
    /// The server.
    pub to: ServerAddr,
    /// The response, or why there is none.
    pub result: Result<Bytes, CallError>,
}

/// A call of a [`Socket`](crate::kernel_api::Socket) whose outcome has not been taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallInfo {
    /// The id that [`Socket::start`](crate::kernel_api::Socket::start) returned.
    pub id: u64,
    /// The cookie that the caller passed to [`Socket::start`](crate::kernel_api::Socket::start).
    pub cookie: u64,
    /// The server.
    pub to: ServerAddr,
    /// Whether the call is private: its outcome is taken only by its id.
    pub private: bool,
    /// Bytes of the request.
    pub request_bytes: u32,
    /// Bytes of the response, if the call is over; 0 if it ended in an error.
    pub over: Option<usize>,
}

/// The outcome of an answer whose bytes were [lent](crate::kernel_api::Socket::reply_lent). The host no
/// longer reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnedReply {
    /// The server's id of the RPC, which is odd.
    pub id: u64,
    /// The cookie that was passed to [`Socket::reply_lent`](crate::kernel_api::Socket::reply_lent).
    pub cookie: u64,
    /// Address of the client's host; its port is the UDP port, and 0 over raw IP.
    pub client: SocketAddr,
    /// The Homa port of the client.
    pub client_port: u16,
    /// `Ok` if the client has acknowledged the answer, which it also does if it had given the call up;
    /// otherwise the reason why it has not.
    pub result: Result<(), ReplyError>,
}
