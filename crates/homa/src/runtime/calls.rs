//! The calls of an endpoint, each from its start until its result is taken, and the client ports and their
//! completions.

use std::collections::VecDeque;
use std::task::Waker;

use bytes::Bytes;
use homa_proto::{RpcKey, Time};
use slab::Slab;

use crate::observe::stages::TraceKey;
use crate::runtime::sockets::SocketCall;
use crate::types::address::ServerAddr;
use crate::types::error::CallError;

/// The calls and client ports of an endpoint.
pub(crate) struct Calls {
    pub(crate) open: Slab<Call>,
    pub(crate) clients: Slab<ClientPort>,
    /// For each client port, the maximum number of calls whose completion has not been taken.
    pub(crate) completion_limit: usize,
}

impl Calls {
    pub(crate) fn new(completion_limit: usize) -> Calls {
        Calls { open: Slab::new(), clients: Slab::new(), completion_limit }
    }
}

/// A call, from its start until its result is taken or its owner abandons it.
pub(crate) struct Call {
    pub(crate) to: ServerAddr,
    pub(crate) rpc: RpcKey,
    pub(crate) traced: TraceKey,
    pub(crate) owner: CallOwner,
    /// When the call started, and the length of its request. Both are used for
    /// [`Metrics::call_times`](crate::metrics::Metrics::call_times).
    pub(crate) started: Time,
    pub(crate) request_bytes: u32,
}

/// The receiver of a call's result.
pub(crate) enum CallOwner {
    /// A `Call` of the application, or its `ResponseReader`.
    CallTicket(CallTicket),
    /// The completion queue of a client port.
    Queue { client: usize, cookie: u64 },
    /// A socket, which keeps the result until it is taken.
    Socket(SocketCall),
    /// No receiver: the call was aborted, but the endpoint's last event for the call is still to come.
    Nobody,
}

/// The part of a call that its owner reads.
#[derive(Default)]
pub(crate) struct CallTicket {
    pub(crate) result: Option<Result<Bytes, CallError>>,
    pub(crate) waker: Option<Waker>,
    /// Number of contiguous bytes of the response that have arrived, for a reader.
    pub(crate) readable_end: u32,
    /// Length of the whole response; 0 until it is reported to a reader.
    pub(crate) length: u32,
}

/// An open client port.
pub(crate) struct ClientPort {
    pub(crate) port: u16,
    pub(crate) completions: VecDeque<UntakenCompletion>,
    /// Number of calls that were submitted but have not completed.
    pub(crate) open: usize,
    pub(crate) closed: bool,
}

/// A completion that has not been taken.
pub(crate) struct UntakenCompletion {
    pub(crate) cookie: u64,
    pub(crate) result: Result<Bytes, CallError>,
    pub(crate) traced: TraceKey,
}
