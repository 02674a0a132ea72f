//! The state of sockets in an endpoint.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::FixedState;
use homa_proto::{RpcKey, Time};
use slab::Slab;

use crate::runtime::socket_outcome::ReturnedReply;
use crate::tenancy::endpoint_group::exchange::ExchangeOffer;
use crate::types::error::CallError;

/// The sockets of an endpoint.
#[derive(Default)]
pub(crate) struct Sockets {
    pub(crate) open: Slab<SocketState>,
    /// Calls in progress that have a deadline, sorted by deadline.
    pub(crate) deadlines: BTreeSet<(Time, usize)>,
    /// Answers whose bytes must be returned to a socket.
    pub(crate) lent_replies: HashMap<RpcKey, LentReply, FixedState>,
}

/// The engine's state for a socket.
pub(crate) struct SocketState {
    pub(crate) port: u16,
    /// Calls whose outcome has not been taken, by ID.
    pub(crate) calls: HashMap<u64, usize, FixedState>,
    /// Ended calls that are not private, and answers whose bytes are to be returned, in the order in which
    /// they ended.
    pub(crate) over: VecDeque<Deliverable>,
    /// The server port in whose queue the socket's requests wait.
    pub(crate) server: Option<usize>,
    /// Whether requests were checked before outcomes the last time.
    pub(crate) requests_first: bool,
    pub(crate) closed: bool,
    /// Called when something arrives for which no thread waits.
    pub(crate) waker: Option<Waker>,
    /// Offers arrivals to threads that wait at other endpoints.
    pub(crate) offers: ExchangeOffer,
}

/// A call or answer that has ended and waits to be received.
pub(crate) enum Deliverable {
    /// The call with this index.
    Call(usize),
    ReturnedReply(ReturnedReply),
}

/// A socket's state for a call.
pub(crate) struct SocketCall {
    pub(crate) socket: usize,
    pub(crate) id: u64,
    pub(crate) cookie: u64,
    pub(crate) private: bool,
    /// The time when the call expires, and the caller's time limit.
    pub(crate) deadline: Option<(Time, Duration)>,
    pub(crate) result: Option<Result<Bytes, CallError>>,
}

/// An answer whose bytes are to be returned to the caller that lent them.
pub(crate) struct LentReply {
    pub(crate) socket: usize,
    pub(crate) id: u64,
    pub(crate) cookie: u64,
    pub(crate) client: SocketAddr,
    pub(crate) client_port: u16,
}
