//! Messages and events that a socket receives.

use crate::api::request::Request;
use crate::runtime::socket_outcome::{Outcome, ReturnedReply};

/// A message or event that a [`Socket`](crate::kernel_api::Socket) receives.
#[derive(Debug)]
pub enum Arrival {
    /// A request, to be answered.
    Request {
        /// The handle with which the request is answered.
        rpc: Request,
        /// The server's ID of the RPC, which is odd.
        id: u64,
        /// The Homa port of the client.
        client_port: u16,
    },
    /// The outcome of a call that is not private.
    Outcome(Outcome),
    /// The completion of an answer whose bytes were [lent](crate::kernel_api::Socket::reply_lent).
    ReturnedReply(ReturnedReply),
}
