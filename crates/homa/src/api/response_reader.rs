//! Readers of responses that are still arriving.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use homa_proto::RpcKey;

use crate::api::call::Call;
use crate::runtime::engine::Engine;
use crate::runtime::timers::TimeLimit;
use crate::runtime::wait;
use crate::runtime::wait_target::WaitTarget;
use crate::types::error::CallError;

/// How many more bytes of a response must arrive before its [`ResponseReader`] is woken. On a fast link, they
/// take a few round trips to arrive, so a large response causes few wake-ups and its reader is never far
/// behind.
const READ_STEP_BYTES: u32 = 64 << 10;

/// A reader of a large response that is still arriving. Dropping the reader aborts the call.
#[must_use = "dropping a reader aborts its call"]
pub struct ResponseReader {
    call: Call,
    /// Number of bytes handed out.
    read: u32,
    /// The rest of the response, once all of it has arrived.
    rest: Option<Bytes>,
}

impl Call {
    /// Starts the call, and returns a reader of its response. If the call was already started, its response
    /// comes in one part. The call's time limit does not apply. Each part of the response may have its own
    /// time limit.
    ///
    /// # Errors
    /// The call cannot start: see [`CallError`].
    pub fn reader(mut self) -> Result<ResponseReader, CallError> {
        self.send(READ_STEP_BYTES)?;
        Ok(ResponseReader { call: self, read: 0, rest: None })
    }
}

impl ResponseReader {
    /// Reads the next bytes of the response, in order; `None` at its end. The result is a future; threads can
    /// also [wait](ResponsePart::wait) for it. Dropping it loses no bytes.
    pub fn next_part(&mut self) -> ResponsePart<'_> {
        ResponsePart { reader: self, limit: TimeLimit::default() }
    }

    /// Returns the number of bytes handed out so far.
    #[must_use]
    pub fn position(&self) -> u32 {
        self.read
    }

    /// Returns the unread part of a response that has arrived completely; `None` if the response is still
    /// arriving.
    fn next_of_rest(&mut self) -> Option<Option<Bytes>> {
        let rest = self.rest.as_mut()?;
        self.read += rest.len() as u32;
        Some(Some(mem::take(rest)).filter(|rest| !rest.is_empty()))
    }

    fn accept(&mut self, part: Part) -> Result<Option<Bytes>, CallError> {
        match part {
            Part::More(bytes) => {
                self.read += bytes.len() as u32;
                Ok(Some(bytes))
            }
            Part::End(result) => {
                self.call.finish();
                self.rest = Some(Bytes::new());
                let whole = result?;
                self.rest = Some(whole.slice(self.read as usize..));
                Ok(self.next_of_rest().flatten())
            }
        }
    }
}

impl fmt::Debug for ResponseReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reader = f.debug_struct("ResponseReader");
        reader.field("to", &self.call.to()).field("position", &self.read).finish_non_exhaustive()
    }
}

/// A pending read of the next part of a response: see [`ResponseReader::next_part`].
#[must_use = "a part is read when it is waited for or awaited"]
#[derive(Debug)]
pub struct ResponsePart<'a> {
    reader: &'a mut ResponseReader,
    limit: TimeLimit,
}

impl ResponsePart<'_> {
    /// Limits the wait. When the limit passes, the result is [`CallError::TimedOut`], and reading can
    /// continue; a limit of zero only polls.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.limit.set(timeout);
        self
    }

    /// Waits for the part.
    ///
    /// # Errors
    /// See [`CallError`]. The bytes returned before the error are valid.
    pub fn wait(mut self) -> Result<Option<Bytes>, CallError> {
        if let Some(next) = self.reader.next_of_rest() {
            return Ok(next);
        }
        let read = self.reader.read;
        let Some((shared, call, rpc)) = self.reader.call.in_flight() else { return Ok(None) };
        let until = self.limit.end(|| shared.now());
        let mut engine = shared.lock();
        // Without this, a caller whose limit has already passed would never drive the network.
        if until.is_some() && !has_part(&mut engine, call, read) {
            engine.drive(shared.now());
        }
        let part = wait::wait(shared, engine, WaitTarget::Call(call), until, |engine| {
            take_part(engine, call, rpc, read)
        });
        self.end(part)
    }

    fn end(&mut self, part: Option<Part>) -> Result<Option<Bytes>, CallError> {
        let timeout = self.limit.timeout().unwrap_or_default();
        let part = part.ok_or(CallError::TimedOut { to: self.reader.call.to(), timeout })?;
        self.reader.accept(part)
    }
}

impl Future for ResponsePart<'_> {
    type Output = Result<Option<Bytes>, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let part = &mut *self;
        if let Some(next) = part.reader.next_of_rest() {
            return Poll::Ready(Ok(next));
        }
        let read = part.reader.read;
        let Some((_, call, rpc)) = part.reader.call.in_flight() else { return Poll::Ready(Ok(None)) };
        let polled =
            part.reader.call.poll_with(context, &mut part.limit, |engine| take_part(engine, call, rpc, read));
        polled.map(|taken| part.end(taken))
    }
}

impl Drop for ResponsePart<'_> {
    fn drop(&mut self) {
        if self.limit.is_armed()
            && let Some((shared, ..)) = self.reader.call.in_flight()
        {
            let timer = self.limit.disarm(&mut shared.lock().waiting.timers);
            drop(timer);
        }
    }
}

enum Part {
    More(Bytes),
    End(Result<Bytes, CallError>),
}

/// Returns whether more bytes or a result are available to a reader that has taken `read` bytes.
fn has_part(engine: &mut Engine, call: usize, read: u32) -> bool {
    let ticket = engine.ticket(call);
    ticket.result.is_some() || ticket.readable_end > read
}

/// Takes the bytes of a response that have arrived beyond the first `read` bytes.
fn take_part(engine: &mut Engine, call: usize, rpc: RpcKey, read: u32) -> Option<Part> {
    let end = engine.ticket(call).readable_end;
    if let Some(result) = engine.take_result(call) {
        return Some(Part::End(result));
    }
    (end > read).then(|| Part::More(engine.buffers.copy_incoming(rpc, read, end)))
}
