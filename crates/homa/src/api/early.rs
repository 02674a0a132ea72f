//! Requests that are read while they arrive.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use homa_proto::{DoneReason, RpcKey, Time};

use crate::api::error::{ReadError, RecvError};
use crate::api::server::{Rpc, Server};
use crate::payload::buffers::Role;
use crate::runtime::async_driver;
use crate::runtime::engine::{Engine, Life, QueuedRequest};
use crate::runtime::wait::{self, WaitTarget, Wakeup};

/// Maximum bytes of one part: packets wait while a part is copied, some 20 us for this many bytes.
const MOST_PART_BYTES: u32 = 256 << 10;

/// Which requests an [`EarlyServer`] delivers before they are whole, and how often their readers are woken
/// for more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadEarly {
    /// Minimum length in bytes of a request that is delivered early. The default is four times the default
    /// step below. A shorter request is whole soon after its first part, and waking a reader for a part costs
    /// as much as for the whole request.
    pub least_bytes: u32,
    /// Contiguous bytes that must have arrived before a request is delivered, and additional bytes before its
    /// reader is woken again; 0 counts as 1. The default is 64 KiB, a few round trips of a fast link, so that
    /// a large request costs few wake-ups and its reader is never far behind.
    pub step_bytes: u32,
}

impl Default for ReadEarly {
    fn default() -> ReadEarly {
        ReadEarly { least_bytes: 256 << 10, step_bytes: 64 << 10 }
    }
}

/// A server port whose large requests are read while they arrive: see
/// [`Host::early_server`](crate::Host::early_server). Clones share it, and it closes as a [`Server`] does.
#[derive(Clone)]
pub struct EarlyServer {
    server: Server,
}

impl EarlyServer {
    pub(crate) fn new(server: Server) -> EarlyServer {
        EarlyServer { server }
    }

    /// The Homa port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// Waits for the next request, or for the first part of a large one.
    ///
    /// # Errors
    /// The host was shut down.
    pub fn recv(&self) -> Result<RequestReader, RecvError> {
        self.server.recv().map(RequestReader::new)
    }

    /// Like [`recv`](EarlyServer::recv), for at most `timeout`; a `timeout` of zero only polls.
    ///
    /// # Errors
    /// No request came in time, or the host was shut down.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<RequestReader, RecvError> {
        self.server.recv_timeout(timeout).map(RequestReader::new)
    }

    /// Like [`recv`](EarlyServer::recv), without blocking. Dropping the future loses no request.
    ///
    /// # Errors
    /// The host was shut down.
    pub async fn recv_async(&self) -> Result<RequestReader, RecvError> {
        self.server.recv_async().await.map(RequestReader::new)
    }
}

/// A request that may still be arriving. Its bytes are returned in order. Once it is whole,
/// [`whole`](RequestReader::whole) returns the [`Rpc`] with which to answer it. A server that knows its
/// answer earlier must still read on, or drop the reader.
///
/// Unread bytes wait in memory that is counted from the request's first packet on
/// ([`max_incoming_bytes`](homa_proto::Config::max_incoming_bytes)), so a slow reader delays no other
/// request. A request that has been delivered never runs again, even if it ends before it is whole. Dropping
/// the reader gives the request up: its client gets an error.
#[must_use = "dropping a reader gives its request up"]
pub struct RequestReader {
    /// Holds the whole request once that has arrived.
    rpc: Rpc,
    length: u32,
    /// Bytes handed out.
    read: u32,
    failed: Option<ReadError>,
}

impl RequestReader {
    fn new(rpc: Rpc) -> RequestReader {
        let length = rpc.arriving.as_ref().map_or(rpc.request.len() as u32, |arriving| arriving.length);
        RequestReader { rpc, length, read: 0, failed: None }
    }

    /// Bytes of the whole request.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length
    }

    /// Bytes handed out so far.
    #[must_use]
    pub fn position(&self) -> u32 {
        self.read
    }

    /// Address of the client's host; its port is the UDP port, and 0 over raw IP.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.rpc.peer()
    }

    /// The Homa port that the request came to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.rpc.port()
    }

    /// Waits for the next bytes of the request, in order; `None` at the end of the request.
    ///
    /// # Errors
    /// See [`ReadError`]. The bytes returned before the error are valid, but no more follow.
    pub fn next_part(&mut self) -> Result<Option<Bytes>, ReadError> {
        self.next_part_until(None)
    }

    /// Like [`next_part`](RequestReader::next_part), for at most `timeout`; a `timeout` of zero only polls.
    ///
    /// # Errors
    /// See [`ReadError`]. After [`ReadError::TimedOut`] reading can continue.
    pub fn next_part_timeout(&mut self, timeout: Duration) -> Result<Option<Bytes>, ReadError> {
        let until = self.rpc.shared().after(timeout);
        self.next_part_until(Some(until))
    }

    fn next_part_until(&mut self, until: Option<Time>) -> Result<Option<Bytes>, ReadError> {
        let read = self.read;
        match self.wait_for(until, read) {
            Some(part) => self.accept(part),
            None => Err(ReadError::TimedOut),
        }
    }

    /// Like [`next_part`](RequestReader::next_part), without blocking. Dropping the future loses no bytes.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn next_part_async(&mut self) -> Result<Option<Bytes>, ReadError> {
        let read = self.read;
        let part = poll_fn(|context| self.poll(context, read)).await;
        self.accept(part)
    }

    /// Waits for the rest of the request, read or not, and returns the whole request, ready to be answered.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn whole(mut self) -> Result<Rpc, ReadError> {
        // No request has bytes beyond this offset, so the wait ends only when the request is whole.
        let part = self.wait_for(None, u32::MAX);
        self.accept(part.unwrap_or(ReadChunk::End(Err(ReadError::Closed))))?;
        Ok(self.rpc)
    }

    /// Like [`whole`](RequestReader::whole), without blocking. Dropping the future gives the request up.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn whole_async(mut self) -> Result<Rpc, ReadError> {
        let part = poll_fn(|context| self.poll(context, u32::MAX)).await;
        self.accept(part)?;
        Ok(self.rpc)
    }

    /// The chunk that is already known here, without taking the host's lock.
    fn at_hand(&self) -> Option<ReadChunk> {
        match (self.failed, &self.rpc.arriving) {
            (Some(error), _) => Some(ReadChunk::End(Err(error))),
            (None, None) => Some(ReadChunk::Whole),
            (None, Some(_)) => None,
        }
    }

    /// Waits for more than `read` bytes; `None` if `until` passed.
    fn wait_for(&self, until: Option<Time>, read: u32) -> Option<ReadChunk> {
        let at_hand = self.at_hand();
        let Some(PartialRequest { index, .. }) = self.rpc.arriving.filter(|_| at_hand.is_none()) else {
            return at_hand;
        };
        let shared = self.rpc.shared();
        let mut engine = shared.lock();
        // Otherwise a caller whose deadline has already passed would never drive the network.
        if until.is_some() && !engine.has_part(index, read) {
            engine.drive(shared.now());
        }
        wait::wait(shared, engine, WaitTarget::Reading(index), until, |engine| engine.take_part(index, read))
    }

    fn poll(&self, context: &Context<'_>, read: u32) -> Poll<ReadChunk> {
        let at_hand = self.at_hand();
        let Some(PartialRequest { index, .. }) = self.rpc.arriving.filter(|_| at_hand.is_none()) else {
            return at_hand.map_or(Poll::Pending, Poll::Ready);
        };
        let shared = self.rpc.shared();
        let waker = context.waker().clone();
        let replaced: Option<Waker>;
        {
            let mut engine = shared.lock();
            if let Some(part) = engine.take_part(index, read) {
                return Poll::Ready(part);
            }
            replaced = engine.readings[index].waker.replace(waker);
        }
        drop(replaced);
        async_driver::ensure_driver(shared);
        Poll::Pending
    }

    fn accept(&mut self, part: ReadChunk) -> Result<Option<Bytes>, ReadError> {
        match part {
            ReadChunk::More(bytes) => {
                self.read += bytes.len() as u32;
                return Ok(Some(bytes));
            }
            ReadChunk::End(Err(error)) => {
                self.rpc.arriving = None;
                self.failed = Some(error);
                return Err(error);
            }
            ReadChunk::End(Ok(whole)) => {
                self.rpc.arriving = None;
                self.rpc.request = whole;
            }
            ReadChunk::Whole => {}
        }
        let rest = self.rpc.request.slice(self.read as usize..);
        self.read = self.length;
        Ok(Some(rest).filter(|rest| !rest.is_empty()))
    }
}

/// What a reader gets next.
enum ReadChunk {
    More(Bytes),
    /// The whole request, or the reason why it will never be whole.
    End(Result<Bytes, ReadError>),
    /// The reader has the whole request.
    Whole,
}

/// A request that was delivered before it was whole, as its handle refers to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartialRequest {
    /// Index of its [`Reading`].
    pub(crate) index: usize,
    /// Bytes of the whole request.
    pub(crate) length: u32,
}

/// A request that was delivered before it was whole, until its reader has taken its end.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) rpc: RpcKey,
    peer: SocketAddr,
    /// Contiguous bytes that have arrived, as last reported to the reader.
    end: u32,
    result: Option<Result<Bytes, ReadError>>,
    pub(crate) waker: Option<Waker>,
}

impl Engine {
    /// Sets which requests of a server port are delivered early.
    pub(crate) fn read_early(&mut self, server: usize, early: Option<ReadEarly>) {
        self.servers[server].early = early;
        let Some(early) = early else { return };
        // The step before the first part is one setting for all servers of the endpoint, whose steps differ.
        // The shortest step serves all of them; after the first part each request uses its own server's step.
        let step = match self.endpoint.config().request_readable_step {
            0 => early.step_bytes,
            others => others.min(early.step_bytes),
        };
        self.endpoint.set_request_readable_step(step.max(1));
    }

    /// More bytes of an incoming request have arrived.
    pub(crate) fn request_grew(&mut self, rpc: RpcKey, end: u32) {
        match self.buffers.role(rpc) {
            Role::None => self.queue_early(rpc),
            Role::Reading { .. } => {
                let index = self.buffers.index_of(rpc);
                self.readings[index].end = end;
                self.waiting.note_ready(WaitTarget::Reading(index));
            }
            _ => {}
        }
    }

    /// Puts a request that is not whole into its server's queue, if that server takes early requests of this
    /// length.
    fn queue_early(&mut self, rpc: RpcKey) {
        let Some(arriving) = self.endpoint.arriving_request(rpc) else { return };
        let Some(&server) = self.server_of_port.get(&arriving.port) else { return };
        let port = &mut self.servers[server];
        let Some(early) = port.early.filter(|early| arriving.length >= early.least_bytes) else { return };
        let length = u64::from(arriving.length);
        // A request refused here is considered again when it has grown, or when it is whole.
        let fits = self.queued_bytes + length <= self.limits.queued_request_bytes;
        if arriving.end < early.step_bytes || !fits || port.closed || self.life != Life::Open {
            return;
        }
        if self.endpoint.take_early(rpc, early.step_bytes.max(1)) {
            self.queued_bytes += length;
            self.buffers.set_role(rpc, Role::QueuedEarly { server });
            self.servers[server].queue.push_back(QueuedRequest { rpc, peer: arriving.peer });
            self.waiting.note_ready(WaitTarget::Requests(server));
        }
    }

    /// Called when a request is whole; returns whether it had been delivered, or queued, before.
    pub(crate) fn complete_early(&mut self, now: Time, rpc: RpcKey) -> bool {
        match self.buffers.role(rpc) {
            Role::QueuedEarly { server } => {
                let length = self.buffers.incoming_len(rpc) as u32;
                self.buffers.set_role(rpc, Role::QueuedRequest { server });
                self.buffers.note_whole(rpc, now, length);
            }
            Role::Reading { server } => {
                let index = self.buffers.index_of(rpc);
                let request = self.buffers.take_incoming(rpc);
                self.buffers.set_role(rpc, Role::InHand { server });
                self.buffers.note_whole(rpc, now, request.len() as u32);
                self.end_reading(index, Ok(request));
            }
            _ => return false,
        }
        true
    }

    /// Starts reading a request that left the server's queue before it was whole.
    pub(crate) fn begin_reading(&mut self, queued: QueuedRequest, server: usize) -> PartialRequest {
        let QueuedRequest { rpc, peer } = queued;
        let length = self.buffers.incoming_len(rpc) as u32;
        let end = self.endpoint.arriving_request(rpc).map_or(0, |arriving| arriving.end);
        self.queued_bytes -= u64::from(length);
        let index = self.readings.insert(Reading { rpc, peer, end, result: None, waker: None });
        self.buffers.set_role(rpc, Role::Reading { server });
        self.buffers.set_index(rpc, index);
        PartialRequest { index, length }
    }

    /// Ends the reading of a request with an error.
    pub(crate) fn fail_reading(&mut self, rpc: RpcKey, reason: DoneReason) {
        let index = self.buffers.index_of(rpc);
        let peer = self.readings[index].peer;
        let error = match reason {
            _ if self.life == Life::Closed => ReadError::Closed,
            // A request that is not whole has no answer, so `Acknowledged` means the same as a client that
            // gave up. A request that its reader gave up is no longer read, so `Aborted` needs no own error.
            DoneReason::ClientGaveUp | DoneReason::Acknowledged => ReadError::ClientGaveUp { peer },
            DoneReason::ClientSilent => ReadError::ClientSilent { peer },
            DoneReason::ClientRestarted => ReadError::ClientRestarted { peer },
            DoneReason::Aborted => ReadError::Closed,
        };
        self.end_reading(index, Err(error));
    }

    fn end_reading(&mut self, index: usize, result: Result<Bytes, ReadError>) {
        self.readings[index].result = Some(result);
        self.waiting.note_ready(WaitTarget::Reading(index));
    }

    /// Forgets a request that its reader dropped. The caller gives the RPC up.
    pub(crate) fn forget_reading(&mut self, index: usize) {
        if let Some(Reading { result: Some(Ok(request)), .. }) = self.readings.try_remove(index) {
            self.buffers.bury(request);
        }
    }

    /// The host is closed: wakes all readers with an error.
    pub(crate) fn close_readings(&mut self) {
        for (_, reading) in &mut self.readings {
            reading.result.get_or_insert(Err(ReadError::Closed));
            self.waiting.wakes.extend(reading.waker.take().map(Wakeup::Task));
        }
    }

    /// Whether a reader has more than `read` bytes, or a result, to take.
    fn has_part(&self, index: usize, read: u32) -> bool {
        let reading = &self.readings[index];
        reading.result.is_some() || reading.end > read
    }

    /// The bytes that have arrived beyond the first `read` bytes, or the end.
    fn take_part(&mut self, index: usize, read: u32) -> Option<ReadChunk> {
        let reading = &mut self.readings[index];
        if let Some(result) = reading.result.take() {
            self.readings.remove(index);
            return Some(ReadChunk::End(result));
        }
        let (rpc, end) = (reading.rpc, reading.end.min(read.saturating_add(MOST_PART_BYTES)));
        (end > read).then(|| ReadChunk::More(self.buffers.copy_incoming(rpc, read, end)))
    }
}
