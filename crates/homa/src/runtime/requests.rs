//! The requests of an endpoint: its server ports with their queues, and the requests that are read while they
//! arrive.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::task::Waker;

use bytes::Bytes;
use foldhash::fast::FixedState;
use homa_proto::RpcKey;
use slab::Slab;

use crate::runtime::task_queue::TaskQueue;
use crate::tenancy::endpoint_group::exchange::ExchangeOffer;
use crate::types::early::EarlyDelivery;
use crate::types::error::ReadError;

/// The server ports of an endpoint, and the requests that are queued there or read while they arrive.
pub(crate) struct Requests {
    pub(crate) ports: Slab<ServerPort>,
    /// The indexes of the ports, by port number.
    pub(crate) port_index: HashMap<u16, usize, FixedState>,
    /// Requests that were taken while they were still arriving, until they are read to the end.
    pub(crate) readings: Slab<Reading>,
    /// Bytes of the requests in all queues.
    pub(crate) queued_bytes: u64,
    /// Maximum of `queued_bytes`.
    pub(crate) max_queued_bytes: u64,
}

impl Requests {
    pub(crate) fn new(max_queued_bytes: u64) -> Requests {
        Requests {
            ports: Slab::new(),
            port_index: HashMap::default(),
            readings: Slab::new(),
            queued_bytes: 0,
            max_queued_bytes,
        }
    }
}

/// A request that waits for `recv`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedRequest {
    pub(crate) rpc: RpcKey,
    pub(crate) peer: SocketAddr,
}

/// A bound server port.
#[derive(Default)]
pub(crate) struct ServerPort {
    pub(crate) port: u16,
    pub(crate) queue: VecDeque<QueuedRequest>,
    /// Number of queue entries whose RPC has ended.
    pub(crate) dead: usize,
    pub(crate) tasks: TaskQueue,
    /// Offers of requests to threads that wait at other endpoints.
    pub(crate) offers: ExchangeOffer,
    /// Number of answered RPCs whose answer is not yet acknowledged.
    pub(crate) answered: usize,
    /// Number of RPCs that the application has taken but not answered.
    pub(crate) in_hand: usize,
    /// Whether no handle is left. The port closes once every RPC has been answered and acknowledged.
    pub(crate) closed: bool,
    /// Selects the requests that are delivered early; `None` if there are none.
    pub(crate) early: Option<EarlyDelivery>,
    /// Whether the socket that took the port's requests is gone while some of them are still unanswered.
    pub(crate) abandoned: bool,
    /// The socket that takes the port's requests; `None` if a [`Server`](crate::Server) takes them.
    pub(crate) socket: Option<usize>,
}

impl ServerPort {
    pub(crate) fn new(port: u16, socket: Option<usize>) -> ServerPort {
        ServerPort { port, socket, ..ServerPort::default() }
    }

    /// Returns the number of requests in the queue.
    pub(crate) fn queue_len(&self) -> usize {
        self.queue.len() - self.dead
    }
}

/// A handle's reference to a request that was delivered early.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartialRequest {
    /// Index of the request's [`Reading`].
    pub(crate) index: usize,
    /// Length of the whole request in bytes.
    pub(crate) length: u32,
}

/// A request that was delivered early, until it is read to the end.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) rpc: RpcKey,
    pub(crate) peer: SocketAddr,
    /// Number of contiguous bytes that have arrived, as last reported to the reader.
    pub(crate) end: u32,
    pub(crate) result: Option<Result<Bytes, ReadError>>,
    pub(crate) waker: Option<Waker>,
}

/// The next result for a reader.
pub(crate) enum ReadChunk {
    More(Bytes),
    /// The whole request, or the reason why the rest will never arrive.
    End(Result<Bytes, ReadError>),
    /// The reader has read the whole request.
    Whole,
}
