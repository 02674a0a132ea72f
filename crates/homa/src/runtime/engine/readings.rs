//! Requests that are delivered early, and read while they arrive.

use bytes::Bytes;
use homa_proto::{DoneReason, RpcKey, Time};

use super::{Engine, Phase};
use crate::payload::buffers::Role;
use crate::runtime::requests::{PartialRequest, QueuedRequest, ReadChunk, Reading};
use crate::runtime::wait_target::WaitTarget;
use crate::runtime::waiters::Wakeup;
use crate::types::early::EarlyDelivery;
use crate::types::error::ReadError;

/// Maximum number of bytes in one part. Packets have to wait while a part is copied, about 20 us for this
/// many bytes.
const MAX_PART_BYTES: u32 = 256 << 10;

impl Engine {
    /// Sets which requests of a server port are delivered early.
    pub(crate) fn read_early(&mut self, server: usize, early: Option<EarlyDelivery>) {
        self.requests.ports[server].early = early;
        let Some(early) = early else { return };
        // The step before the first part is a single setting for all servers of the endpoint, although their
        // own steps differ. The smallest step suits all of them. After the first part, each request uses its
        // own server's step.
        let step = match self.endpoint.config().request_readable_step {
            0 => early.step_bytes,
            others => others.min(early.step_bytes),
        };
        self.endpoint.set_request_readable_step(step.max(1));
    }

    /// Handles the arrival of more bytes of an incoming request.
    pub(crate) fn on_request_growth(&mut self, rpc: RpcKey, end: u32) {
        match self.buffers.role(rpc) {
            Role::None => self.queue_early(rpc),
            Role::Reading { .. } => {
                let index = self.buffers.index_of(rpc);
                self.requests.readings[index].end = end;
                self.waiting.note_ready(WaitTarget::Reading(index));
            }
            _ => {}
        }
    }

    /// Puts a request that is still arriving into its server's queue, if that server takes requests of this
    /// length early.
    fn queue_early(&mut self, rpc: RpcKey) {
        let Some(arriving) = self.endpoint.arriving_request(rpc) else { return };
        let Some(&server) = self.requests.port_index.get(&arriving.port) else { return };
        let port = &mut self.requests.ports[server];
        let Some(early) = port.early.filter(|early| arriving.length >= early.min_bytes) else { return };
        let length = u64::from(arriving.length);
        // A request that is refused here is considered again when more of it has arrived, or all of it.
        let fits = self.requests.queued_bytes + length <= self.requests.max_queued_bytes;
        if arriving.end < early.step_bytes || !fits || port.closed || self.phase != Phase::Open {
            return;
        }
        if self.endpoint.take_early(rpc, early.step_bytes.max(1)) {
            self.requests.queued_bytes += length;
            self.buffers.set_role(rpc, Role::QueuedEarly { server });
            self.requests.ports[server].queue.push_back(QueuedRequest { rpc, peer: arriving.peer });
            self.waiting.note_ready(WaitTarget::Requests(server));
        }
    }

    /// Records that a request has arrived completely; returns whether it had already been delivered or
    /// queued.
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
                self.buffers.set_role(rpc, Role::Delivered { server });
                self.buffers.note_whole(rpc, now, request.len() as u32);
                self.end_reading(index, Ok(request));
            }
            _ => return false,
        }
        true
    }

    /// Starts the reading of a request that was taken from the server's queue before it had arrived
    /// completely.
    pub(crate) fn begin_reading(&mut self, queued: QueuedRequest, server: usize) -> PartialRequest {
        let QueuedRequest { rpc, peer } = queued;
        let length = self.buffers.incoming_len(rpc) as u32;
        let end = self.endpoint.arriving_request(rpc).map_or(0, |arriving| arriving.end);
        self.requests.queued_bytes -= u64::from(length);
        let index = self.requests.readings.insert(Reading { rpc, peer, end, result: None, waker: None });
        self.buffers.set_role(rpc, Role::Reading { server });
        self.buffers.set_index(rpc, index);
        PartialRequest { index, length }
    }

    /// Ends the reading of a request with an error.
    pub(crate) fn fail_reading(&mut self, rpc: RpcKey, reason: DoneReason) {
        let index = self.buffers.index_of(rpc);
        let peer = self.requests.readings[index].peer;
        let error = match reason {
            _ if self.phase == Phase::Closed => ReadError::Closed,
            // A request that has not arrived completely has no answer, so `Acknowledged` means that the
            // client aborted. If the reader gave the request up, nothing reads it any more, so `Aborted`
            // needs no error of its own.
            DoneReason::ClientGaveUp | DoneReason::Acknowledged => ReadError::ClientGaveUp { peer },
            DoneReason::ClientSilent => ReadError::ClientSilent { peer },
            DoneReason::ClientRestarted => ReadError::ClientRestarted { peer },
            DoneReason::Aborted => ReadError::Closed,
        };
        self.end_reading(index, Err(error));
    }

    fn end_reading(&mut self, index: usize, result: Result<Bytes, ReadError>) {
        self.requests.readings[index].result = Some(result);
        self.waiting.note_ready(WaitTarget::Reading(index));
    }

    /// Forgets a request that its reader dropped. The caller must give up the RPC.
    pub(crate) fn forget_reading(&mut self, index: usize) {
        if let Some(Reading { result: Some(Ok(request)), .. }) = self.requests.readings.try_remove(index) {
            self.buffers.free_later(request);
        }
    }

    /// Wakes all readers with an error because the host is closed.
    pub(crate) fn close_readings(&mut self) {
        for (_, reading) in &mut self.requests.readings {
            reading.result.get_or_insert(Err(ReadError::Closed));
            self.waiting.wakes.extend(reading.waker.take().map(Wakeup::Task));
        }
    }

    /// Returns whether more bytes or a result are available to a reader that has taken `read` bytes.
    pub(crate) fn has_part(&self, index: usize, read: u32) -> bool {
        let reading = &self.requests.readings[index];
        reading.result.is_some() || reading.end > read
    }

    /// Takes the bytes that have arrived beyond the first `read` bytes, or the end.
    pub(crate) fn take_part(&mut self, index: usize, read: u32) -> Option<ReadChunk> {
        let reading = &mut self.requests.readings[index];
        if let Some(result) = reading.result.take() {
            self.requests.readings.remove(index);
            return Some(ReadChunk::End(result));
        }
        let (rpc, end) = (reading.rpc, reading.end.min(read.saturating_add(MAX_PART_BYTES)));
        (end > read).then(|| ReadChunk::More(self.buffers.copy_incoming(rpc, read, end)))
    }
}
