//! Calls, from request to response.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use homa_proto::RpcKey;

use crate::api::client::Client;
use crate::api::endpoints::PortAt;
use crate::runtime::async_driver;
use crate::runtime::calls::{self, CallOwner, CallTicket};
use crate::runtime::engine::Engine;
use crate::runtime::shared_engine::{EngineGuard, SharedEngine};
use crate::runtime::timers::TimeLimit;
use crate::runtime::wait;
use crate::runtime::wait_target::WaitTarget;
use crate::types::address::ServerAddr;
use crate::types::error::CallError;

/// A call to a server, created by [`Client::call`]. A call is a future; threads can also [wait](Call::wait)
/// for it.
///
/// Nothing is sent until the call is waited for, polled, [started](Call::start) or [read](Call::reader).
/// Dropping a call that was started aborts it.
///
/// ```
/// # use homa::{Host, ServerAddr};
/// # use std::time::Duration;
/// # fn calls(host: &Host, to: ServerAddr) -> Result<(), Box<dyn std::error::Error>> {
/// let client = host.client()?;
/// // One call, for at most a second.
/// let answer = client.call(to, "hello").timeout(Duration::from_secs(1)).wait()?;
/// // Two calls in flight at the same time.
/// let (one, other) = (client.call(to, "one").start()?, client.call(to, "other").start()?);
/// println!("{answer:?} {:?} {:?}", one.wait()?, other.wait()?);
/// # Ok(())
/// # }
/// ```
///
/// # As a future
///
/// On a tokio runtime with its I/O and time drivers enabled, a task of that runtime drives the network. On
/// other runtimes the host's background thread does. Dropping the future aborts the call.
#[must_use = "a call sends nothing before it is waited for, awaited or started"]
pub struct Call {
    client: Client,
    to: ServerAddr,
    limit: TimeLimit,
    state: CallState,
}

enum CallState {
    /// The request of a call that has not started.
    Unsent(Bytes),
    Open(OpenCall),
    /// The result has been taken.
    Over,
}

/// A call in flight.
#[derive(Clone, Copy)]
struct OpenCall {
    /// Index of the client's port that carries the call.
    place: usize,
    /// Index of the call in that port's endpoint.
    index: usize,
    rpc: RpcKey,
}

impl Client {
    /// Creates a call to the server with this request. Sends nothing yet.
    pub fn call(&self, to: ServerAddr, request: impl Into<Bytes>) -> Call {
        let state = CallState::Unsent(request.into());
        Call { client: self.clone(), to, limit: TimeLimit::default(), state }
    }
}

/// Starts a call that is identified by a ticket, and returns with the lock still held. A reader of the
/// response is woken each time `step` more bytes have arrived. If `step` is 0, the reader is woken only once,
/// at the end.
fn begin<'a>(
    client: &'a Client,
    to: &mut ServerAddr,
    request: Bytes,
    step: u32,
) -> Result<(EngineGuard<'a>, OpenCall), CallError> {
    let place = client.place(*to);
    let PortAt { shared, client: port, .. } = client.at(place);
    let length = request.len();
    let (at, now) = shared.clock.read_both();
    let mut engine = shared.lock_since(at);
    let owner = CallOwner::CallTicket(CallTicket::default());
    let index = engine.start_call(now, *port, *to, request, owner, step)?;
    engine.note_call(at, index, length);
    engine.flush(now);
    let calls::Call { rpc, to: address, .. } = &engine.calls.open[index];
    *to = *address;
    let open = OpenCall { place, index, rpc: *rpc };
    Ok((engine, open))
}

impl Call {
    /// Limits the time that the call may take, counted from the start of [`wait`](Call::wait), or from the
    /// first poll of the future. When the limit passes, the call is aborted and ends with
    /// [`CallError::TimedOut`]. A future may be notified up to one tick of the background thread later: one
    /// millisecond, or up to ten on links below 100 Mbit/s.
    pub fn timeout(mut self, timeout: Duration) -> Call {
        self.limit.set(timeout);
        self
    }

    /// Sends the unscheduled part of the request, and returns the call in flight. The host sends the rest in
    /// the background. If the call has already started, this does nothing.
    ///
    /// # Errors
    /// The call cannot start: see [`CallError`].
    pub fn start(mut self) -> Result<Call, CallError> {
        self.send(0)?;
        Ok(self)
    }

    /// Waits for the response.
    ///
    /// # Errors
    /// See [`CallError`].
    ///
    /// # Panics
    /// Panics if [`try_wait`](Call::try_wait) has returned the result.
    pub fn wait(mut self) -> Result<Bytes, CallError> {
        let Call { client, to, limit, state } = &mut self;
        let until = limit.end(|| client.shared().now());
        let (engine, open) = match mem::replace(state, CallState::Over) {
            // A single lock acquisition both starts the call and begins the wait.
            CallState::Unsent(request) => begin(client, to, request, 0)?,
            CallState::Open(open) => (client.at(open.place).shared.lock(), open),
            CallState::Over => panic!("the result of this call was taken"),
        };
        *state = CallState::Open(open);
        let shared = &*client.at(open.place).shared;
        let on = WaitTarget::Call(open.index);
        let result = wait::wait(shared, engine, on, until, |engine| engine.take_result(open.index));
        if result.is_some() {
            *state = CallState::Over;
            if limit.is_armed() {
                let timer = limit.disarm(&mut shared.lock().waiting.timers);
                drop(timer);
            }
        }
        result.unwrap_or_else(|| Err(timed_out(*to, limit)))
    }

    /// Starts the call if necessary, and returns the result if it is available. Returns `None` once the
    /// result has been taken. Ignores any time limit.
    pub fn try_wait(&mut self) -> Option<Result<Bytes, CallError>> {
        if let Err(error) = self.send(0) {
            return Some(Err(error));
        }
        let CallState::Open(OpenCall { place, index, .. }) = self.state else { return None };
        let shared = &self.client.at(place).shared;
        let mut engine = shared.lock();
        let now = shared.now();
        if engine.ticket(index).result.is_none() {
            engine.drive(now);
        }
        let result = engine.take_result(index);
        let timer = result.is_some().then(|| self.limit.disarm(&mut engine.waiting.timers));
        engine.leave(now);
        drop(engine);
        drop(timer);
        if result.is_some() {
            self.state = CallState::Over;
        }
        result
    }

    /// Returns the ID of the call on its host; `None` before the call starts and after its result is taken.
    /// No two open calls have the same ID.
    #[must_use]
    pub fn id(&self) -> Option<u64> {
        let CallState::Open(OpenCall { place, rpc, .. }) = self.state else { return None };
        let index = self.client.at(place).shared.index() as u64;
        // Calls open in one endpoint have different slots, so some bits of the generation can hold the
        // endpoint's index.
        let generation = u64::from(rpc.generation) & 0x03ff_ffff | index << 26;
        Some(generation << 32 | u64::from(rpc.slot))
    }

    /// Returns the server.
    #[must_use]
    pub fn to(&self) -> ServerAddr {
        self.to
    }

    /// Starts the call if it has not started.
    pub(crate) fn send(&mut self, step: u32) -> Result<(), CallError> {
        let CallState::Unsent(request) = &mut self.state else { return Ok(()) };
        let request = mem::take(request);
        // If starting fails, the call has ended.
        self.state = CallState::Over;
        let (mut engine, open) = begin(&self.client, &mut self.to, request, step)?;
        engine.after_work(self.client.at(open.place).shared.now());
        drop(engine);
        self.state = CallState::Open(open);
        Ok(())
    }

    /// Returns the endpoint of a call in flight, the call's index there, and its RPC.
    pub(crate) fn in_flight(&self) -> Option<(&Arc<SharedEngine>, usize, RpcKey)> {
        let CallState::Open(OpenCall { place, index, rpc }) = self.state else { return None };
        Some((&self.client.at(place).shared, index, rpc))
    }

    /// Records that the result of the call was taken.
    pub(crate) fn finish(&mut self) {
        self.state = CallState::Over;
    }

    /// Polls a call in flight with `take`, which returns the data available to the application, if any.
    /// `Ready(None)` means that the time limit has passed.
    pub(crate) fn poll_with<T>(
        &self,
        context: &Context<'_>,
        limit: &mut TimeLimit,
        take: impl Fn(&mut Engine) -> Option<T>,
    ) -> Poll<Option<T>> {
        let (shared, index, _) = self.in_flight().expect("the call is in flight");
        let waker = context.waker().clone();
        let mut engine = shared.lock();
        let mut taken = take(&mut engine);
        let mut over = taken.is_some();
        if !over && limit.timeout().is_some() {
            let now = shared.now();
            over = limit.has_passed(now);
            if over {
                // Packets that are waiting may contain the result, so even a limit of zero polls once.
                engine.drive(now);
                taken = take(&mut engine);
                engine.leave(now);
            }
        }
        if over {
            let timer = limit.disarm(&mut engine.waiting.timers);
            drop(engine);
            drop(timer);
            return Poll::Ready(taken);
        }
        let replaced = engine.ticket(index).waker.replace(waker);
        let (is_new, timer) = limit.arm(&mut engine.waiting.timers, context.waker());
        if is_new {
            engine.after_work(shared.now());
        }
        drop(engine);
        drop((replaced, timer));
        async_driver::ensure_driver(shared);
        Poll::Pending
    }
}

/// Returns the error of a call whose time limit has passed.
fn timed_out(to: ServerAddr, limit: &TimeLimit) -> CallError {
    CallError::TimedOut { to, timeout: limit.timeout().unwrap_or_default() }
}

impl Future for Call {
    type Output = Result<Bytes, CallError>;

    /// # Panics
    /// Panics if polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let call = &mut *self;
        call.send(0)?;
        let (_, index, _) = call.in_flight().expect("a call is not polled after it was ready");
        let mut limit = mem::take(&mut call.limit);
        let polled = call.poll_with(context, &mut limit, |engine| engine.take_result(index));
        call.limit = limit;
        match polled {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(result)) => {
                call.state = CallState::Over;
                Poll::Ready(result)
            }
            Poll::Ready(None) => {
                call.abort();
                Poll::Ready(Err(timed_out(call.to, &call.limit)))
            }
        }
    }
}

impl Call {
    /// Aborts a call in flight, and removes its timer.
    fn abort(&mut self) {
        let CallState::Open(OpenCall { place, index, .. }) = self.state else { return };
        self.state = CallState::Over;
        let shared = &self.client.at(place).shared;
        let now = shared.now();
        let mut engine = shared.lock();
        let timer = self.limit.disarm(&mut engine.waiting.timers);
        engine.abandon_call(now, index);
        engine.after_work(now);
        drop(engine);
        drop(timer);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.abort();
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            CallState::Unsent(_) => "not started",
            CallState::Open(_) => "in flight",
            CallState::Over => "over",
        };
        let mut call = f.debug_struct("Call");
        call.field("to", &self.to).field("timeout", &self.limit.timeout()).field("state", &state);
        call.finish_non_exhaustive()
    }
}
