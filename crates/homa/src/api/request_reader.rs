//! Readers of requests that are still arriving.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use homa_proto::Time;

use crate::api::request::Request;
use crate::runtime::async_driver;
use crate::runtime::requests::{PartialRequest, ReadChunk};
use crate::runtime::timers::TimeLimit;
use crate::runtime::wait;
use crate::runtime::wait_target::WaitTarget;
use crate::types::error::ReadError;

/// A request that may still be arriving, from a server that takes requests [early](crate::Server::early). Its
/// bytes are returned in order. Once the request has arrived completely, [`whole`](RequestReader::whole)
/// returns the [`Request`], ready to be answered. A server that knows its answer earlier must still read to
/// the end, or drop the reader.
///
/// Unread bytes wait in memory that counts towards
/// [`max_incoming_bytes`](homa_proto::Config::max_incoming_bytes) from the request's first packet on, so a
/// slow reader delays no other request. A request that has been delivered is never executed again, even if it
/// ends before it has arrived completely. Dropping the reader gives the request up, and its client gets an
/// error.
#[must_use = "dropping a reader gives its request up"]
pub struct RequestReader {
    /// Holds the whole request once it has arrived.
    request: Request,
    length: u32,
    /// Number of bytes handed out.
    read: u32,
    failed: Option<ReadError>,
}

impl Request {
    /// Reads the request, even while it is still arriving: see [`Server::early`](crate::Server::early). A
    /// whole request is returned in one part.
    pub fn reader(self) -> RequestReader {
        RequestReader { length: self.length(), request: self, read: 0, failed: None }
    }
}

impl RequestReader {
    /// Returns the length of the whole request in bytes.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length
    }

    /// Returns the number of bytes handed out so far.
    #[must_use]
    pub fn position(&self) -> u32 {
        self.read
    }

    /// Returns the address of the client's host; its port is the UDP port, and 0 over raw IP.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.request.peer()
    }

    /// Returns the Homa port at which the request arrived.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.request.port()
    }

    /// Reads the next bytes of the request, in order; `None` at its end. The result is a future; threads can
    /// also [wait](RequestPart::wait) for it. Dropping it loses no bytes.
    pub fn next_part(&mut self) -> RequestPart<'_> {
        RequestPart { reader: self, limit: TimeLimit::default() }
    }

    /// Reads the rest of the request, and then returns the whole request, ready to be answered. Bytes that
    /// were already read are included. The result is a future; threads can also [wait](WholeRequest::wait)
    /// for it. Dropping it gives the request up.
    pub fn whole(self) -> WholeRequest {
        WholeRequest { reader: Some(self), limit: TimeLimit::default() }
    }

    /// Returns the chunk that can be determined without taking the host's lock.
    fn known_chunk(&self) -> Option<ReadChunk> {
        match (self.failed, &self.request.arriving) {
            (Some(error), _) => Some(ReadChunk::End(Err(error))),
            (None, None) => Some(ReadChunk::Whole),
            (None, Some(_)) => None,
        }
    }

    /// Waits until more than `read` bytes have arrived; `None` if the time limit has passed.
    fn wait_for(&self, limit: &TimeLimit, read: u32) -> Option<ReadChunk> {
        let at_hand = self.known_chunk();
        let Some(PartialRequest { index, .. }) = self.request.arriving.filter(|_| at_hand.is_none()) else {
            return at_hand;
        };
        let shared = self.request.shared();
        let until: Option<Time> = limit.end(|| shared.now());
        let mut engine = shared.lock();
        // Without this, a caller whose limit has already passed would never drive the network.
        if until.is_some() && !engine.has_part(index, read) {
            engine.drive(shared.now());
        }
        wait::wait(shared, engine, WaitTarget::Reading(index), until, |engine| engine.take_part(index, read))
    }

    /// Polls for more than `read` bytes; `Ready(None)` if the time limit has passed.
    fn poll(&self, context: &Context<'_>, limit: &mut TimeLimit, read: u32) -> Poll<Option<ReadChunk>> {
        let at_hand = self.known_chunk();
        let Some(PartialRequest { index, .. }) = self.request.arriving.filter(|_| at_hand.is_none()) else {
            return Poll::Ready(at_hand);
        };
        let shared = self.request.shared();
        let waker = context.waker().clone();
        let replaced: (Option<Waker>, Option<Waker>);
        {
            let mut engine = shared.lock();
            let mut part = engine.take_part(index, read);
            let mut over = part.is_some();
            if !over && limit.timeout().is_some() {
                let now = shared.now();
                over = limit.has_passed(now);
                if over {
                    // Packets that are waiting may contain more bytes, so even a limit of zero polls once.
                    engine.drive(now);
                    part = engine.take_part(index, read);
                    engine.leave(now);
                }
            }
            if over {
                let timer = limit.disarm(&mut engine.waiting.timers);
                drop(engine);
                drop(timer);
                return Poll::Ready(part);
            }
            let old = engine.requests.readings[index].waker.replace(waker);
            let (is_new, timer) = limit.arm(&mut engine.waiting.timers, context.waker());
            if is_new {
                engine.after_work(shared.now());
            }
            replaced = (old, timer);
        }
        drop(replaced);
        async_driver::ensure_driver(shared);
        Poll::Pending
    }

    fn accept(&mut self, part: Option<ReadChunk>) -> Result<Option<Bytes>, ReadError> {
        match part.ok_or(ReadError::TimedOut)? {
            ReadChunk::More(bytes) => {
                self.read += bytes.len() as u32;
                return Ok(Some(bytes));
            }
            ReadChunk::End(Err(error)) => {
                self.request.arriving = None;
                self.failed = Some(error);
                return Err(error);
            }
            ReadChunk::End(Ok(whole)) => {
                self.request.arriving = None;
                self.request.payload = whole;
            }
            ReadChunk::Whole => {}
        }
        let rest = self.request.payload.slice(self.read as usize..);
        self.read = self.length;
        Ok(Some(rest).filter(|rest| !rest.is_empty()))
    }

    /// Removes the timer of a future that is dropped.
    fn disarm(&self, limit: &mut TimeLimit) {
        if limit.is_armed() {
            let timer = limit.disarm(&mut self.request.shared().lock().waiting.timers);
            drop(timer);
        }
    }
}

impl fmt::Debug for RequestReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reader = f.debug_struct("RequestReader");
        reader.field("peer", &self.peer()).field("length", &self.length).field("position", &self.read);
        reader.finish_non_exhaustive()
    }
}

/// A pending read of the next part of a request: see [`RequestReader::next_part`].
#[must_use = "a part is read when it is waited for or awaited"]
#[derive(Debug)]
pub struct RequestPart<'a> {
    reader: &'a mut RequestReader,
    limit: TimeLimit,
}

impl RequestPart<'_> {
    /// Limits the wait. When the limit passes, the result is [`ReadError::TimedOut`], and reading can
    /// continue; a limit of zero only polls.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.limit.set(timeout);
        self
    }

    /// Waits for the part.
    ///
    /// # Errors
    /// See [`ReadError`]. The bytes returned before the error are valid, but no more follow.
    pub fn wait(self) -> Result<Option<Bytes>, ReadError> {
        let part = self.reader.wait_for(&self.limit, self.reader.read);
        self.reader.accept(part)
    }
}

impl Future for RequestPart<'_> {
    type Output = Result<Option<Bytes>, ReadError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let RequestPart { reader, limit } = &mut *self;
        reader.poll(context, limit, reader.read).map(|part| reader.accept(part))
    }
}

impl Drop for RequestPart<'_> {
    fn drop(&mut self) {
        self.reader.disarm(&mut self.limit);
    }
}

/// A position beyond the end of any request: a wait for more than this many bytes ends when the request has
/// arrived completely.
const BEYOND_THE_END: u32 = u32::MAX;

/// A pending read of the rest of a request: see [`RequestReader::whole`].
#[must_use = "dropping it gives the request up"]
#[derive(Debug)]
pub struct WholeRequest {
    /// `None` after the end.
    reader: Option<RequestReader>,
    limit: TimeLimit,
}

impl WholeRequest {
    /// Limits the wait. When the limit passes, the result is [`ReadError::TimedOut`], and the request is
    /// given up.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.limit.set(timeout);
        self
    }

    /// Waits for the rest of the request.
    ///
    /// # Errors
    /// See [`ReadError`].
    ///
    /// # Panics
    /// Panics if a poll has already returned ready.
    pub fn wait(mut self) -> Result<Request, ReadError> {
        let part = self.reader.as_ref().map(|reader| reader.wait_for(&self.limit, BEYOND_THE_END));
        self.end(part.flatten())
    }

    fn end(&mut self, part: Option<ReadChunk>) -> Result<Request, ReadError> {
        let mut reader = self.reader.take().expect("the request was taken");
        reader.disarm(&mut self.limit);
        reader.accept(part)?;
        Ok(reader.request)
    }
}

impl Future for WholeRequest {
    type Output = Result<Request, ReadError>;

    /// # Panics
    /// Panics if polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let WholeRequest { reader, limit } = &mut *self;
        let reader = reader.as_ref().expect("the request was taken");
        match reader.poll(context, limit, BEYOND_THE_END) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(part) => Poll::Ready(self.end(part)),
        }
    }
}

impl Drop for WholeRequest {
    fn drop(&mut self) {
        if let Some(reader) = &self.reader {
            reader.disarm(&mut self.limit);
        }
    }
}
