//! Requests that a server has received, and their answers.

use std::fmt;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use homa_proto::{RpcKey, Time};

use crate::api::port_handle::PortHandle;
#[cfg(feature = "kernel-api")]
use crate::payload::buffers::Buffers;
use crate::payload::buffers::Role;
use crate::payload::deferred_copy::Outgoing;
#[cfg(feature = "kernel-api")]
use crate::runtime::copy_and_send;
use crate::runtime::engine::{Engine, Phase};
use crate::runtime::requests::PartialRequest;
use crate::runtime::shared_engine::SharedEngine;
use crate::types::error::ReplyError;

/// A received request. Requests may be answered from any thread and in any order. Dropping an unanswered
/// request gives it up, and its client gets an error.
#[must_use = "dropping a request unanswered gives it up"]
pub struct Request {
    port: Arc<PortHandle>,
    /// The endpoint that owns the RPC.
    endpoint: usize,
    rpc: RpcKey,
    peer: SocketAddr,
    pub(crate) payload: Bytes,
    /// Set if the request was delivered before it had arrived completely, until a
    /// [`RequestReader`](crate::reader::RequestReader) has read it to the end.
    pub(crate) arriving: Option<PartialRequest>,
    answered: bool,
}

impl Request {
    /// Creates the handle of a request that the engine of the port's `endpoint` has handed over.
    pub(crate) fn new(
        port: Arc<PortHandle>,
        endpoint: usize,
        (rpc, peer): (RpcKey, SocketAddr),
        payload: Bytes,
        arriving: Option<PartialRequest>,
    ) -> Request {
        Request { port, endpoint, rpc, peer, payload, arriving, answered: false }
    }

    /// Returns the request's bytes. Empty if the request is not [whole](Request::is_whole).
    #[must_use]
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Takes the request's bytes, leaving the request empty.
    pub fn take_payload(&mut self) -> Bytes {
        mem::take(&mut self.payload)
    }

    /// Returns whether the request has arrived completely. This is false only if its server takes requests
    /// [early](crate::Server::early). Such a request is read through a [reader](Request::reader), and
    /// answered afterwards.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.arriving.is_none()
    }

    /// Returns the length of the whole request in bytes. After [`take_payload`](Request::take_payload), the
    /// length of what is left of the request.
    pub(crate) fn length(&self) -> u32 {
        self.arriving.as_ref().map_or(self.payload.len() as u32, |arriving| arriving.length)
    }

    /// Returns the address of the client's host; its port is the UDP port, and 0 over raw IP.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the Homa port at which the request arrived.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns whether the client still waits for the answer, as far as this host knows. That a client has
    /// vanished is noticed only after [`client_silence_ns`](homa_proto::Config::client_silence_ns). This
    /// method runs none of the application's code.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        let role = self.shared().lock().peek(|engine| engine.buffers.role(self.rpc));
        matches!(role, Role::Delivered { .. })
    }

    /// Answers the request. The unscheduled part of the answer is sent before this returns. The host sends
    /// the rest in the background, and resends what the network loses.
    ///
    /// # Errors
    /// See [`ReplyError`]. The RPC ends even in that case.
    pub fn reply(self, response: impl Into<Bytes>) -> Result<(), ReplyError> {
        self.reply_or_hold(response.into(), false)
    }

    /// Answers the request. If `more` is true, the answer may wait to be sent with the next message.
    pub(crate) fn reply_or_hold(self, response: Bytes, more: bool) -> Result<(), ReplyError> {
        self.reply_as(response, more, |engine, now, (rpc, peer), response| {
            engine.answer(now, rpc, peer, Outgoing::Whole(response))
        })
    }

    /// Answers the request by calling `answer` with the engine, the RPC, its client and the response.
    pub(crate) fn reply_as(
        mut self,
        response: Bytes,
        more: bool,
        answer: impl FnOnce(&mut Engine, Time, (RpcKey, SocketAddr), Bytes) -> Result<(), ReplyError>,
    ) -> Result<(), ReplyError> {
        // If the request has not arrived completely, dropping it gives it up.
        self.check_whole()?;
        self.answered = true;
        let shared = self.port.shared(self.endpoint);
        let length = response.len();
        let (at, now) = shared.clock.read_both();
        let mut engine = shared.lock_since(at);
        let result = answer(&mut engine, now, (self.rpc, self.peer), response);
        if result.is_ok() {
            engine.note_answer(at, self.rpc, length);
        }
        engine.send_or_hold(now, more);
        result
    }

    /// Answers with a copy of these pieces; copying and sending overlap.
    #[cfg(feature = "kernel-api")]
    pub(crate) fn reply_while_copying(mut self, pieces: &[&[u8]]) -> Result<(), ReplyError> {
        self.check_whole()?;
        self.answered = true;
        let shared = self.shared();
        let (at, now) = shared.clock.read_both();
        let mut engine = shared.lock_since(at);
        let result = copy_and_send::copy_and_send(shared, &mut engine, pieces, |engine, response| {
            let length = response.len();
            engine.answer(now, self.rpc, self.peer, response)?;
            engine.note_answer(at, self.rpc, length);
            engine.flush(now);
            Ok(())
        });
        engine.flush(now);
        engine.after_work(shared.now());
        result
    }

    /// Answers several requests as [`reply`](Request::reply) does, and empties `replies`. Consecutive answers
    /// of one endpoint of one host are sent together. Once all answers have been sent, `refused` is called
    /// with each error. The RPC of a refused answer ends.
    pub fn reply_all(replies: &mut Vec<(Request, Bytes)>, mut refused: impl FnMut(ReplyError)) {
        let mut errors = Vec::new();
        for of_one in replies.chunk_by_mut(|(one, _), (next, _)| Arc::ptr_eq(one.shared(), next.shared())) {
            let Some((first, _)) = of_one.first() else { continue };
            let shared = Arc::clone(first.shared());
            let (at, now) = shared.clock.read_both();
            let mut engine = shared.lock_since(at);
            for (rpc, response) in of_one {
                if let Err(error) = rpc.check_whole() {
                    errors.push(error);
                    continue;
                }
                rpc.answered = true;
                let length = response.len();
                match engine.answer(now, rpc.rpc, rpc.peer, Outgoing::Whole(mem::take(response))) {
                    Ok(()) => engine.note_answer(at, rpc.rpc, length),
                    Err(error) => errors.push(error),
                }
            }
            engine.flush(now);
            engine.after_work(now);
        }
        // Do this without holding a lock: dropping the last RPC may drop the last handle of a port.
        replies.clear();
        errors.into_iter().for_each(&mut refused);
    }

    fn check_whole(&self) -> Result<(), ReplyError> {
        if self.is_whole() { Ok(()) } else { Err(ReplyError::StillArriving { peer: self.peer }) }
    }

    pub(crate) fn shared(&self) -> &Arc<SharedEngine> {
        self.port.shared(self.endpoint)
    }

    /// Returns the index of the endpoint that owns the RPC.
    #[cfg(feature = "kernel-api")]
    pub(crate) fn endpoint(&self) -> usize {
        self.endpoint
    }

    #[cfg(feature = "kernel-api")]
    pub(crate) fn key(&self) -> RpcKey {
        self.rpc
    }
}

#[cfg(feature = "kernel-api")]
impl Request {
    /// Forgets an RPC that has ended, under the lock of its endpoint. A plain drop would take that lock
    /// again. Dropping memory that was lent for the request might take the lock, too.
    pub(crate) fn forget_rpc(mut self, buffers: &mut Buffers) {
        self.answered = true;
        buffers.free_later(mem::take(&mut self.payload));
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let shared = self.port.shared(self.endpoint);
        let now = shared.now();
        let mut engine = shared.lock();
        if engine.phase != Phase::Closed {
            engine.give_up(now, self.rpc);
            engine.after_work(now);
        }
        if let Some(arriving) = self.arriving {
            engine.forget_reading(arriving.index);
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut request = f.debug_struct("Request");
        request.field("peer", &self.peer).field("port", &self.port()).field("bytes", &self.length());
        request.finish_non_exhaustive()
    }
}
