//! Clients: starting calls and receiving their responses.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use std::{iter, mem};

use bytes::Bytes;
use homa_proto::{RpcKey, Time};

use crate::api::address::ServerAddr;
use crate::api::error::CallError;
use crate::runtime::async_driver;
use crate::runtime::engine::{Call, CallOwner, CallTicket, Engine, Life};
use crate::runtime::shared_engine::{EngineGuard, SharedEngine};
use crate::runtime::wait::{self, WaitTarget};
use crate::tenancy::placement::Placement;

/// Additional bytes of a response that must arrive before a [`ResponseReader`] is woken. This is a few round
/// trips of a fast link, so that a large response costs few wake-ups and its reader is never far behind.
const READ_STEP_BYTES: u32 = 64 << 10;

/// The outcome of a call started with [`Client::submit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The cookie that the caller passed to `submit`.
    pub cookie: u64,
    /// The response, or why there is none.
    pub result: Result<Bytes, CallError>,
}

/// A client port of a [`Host`](crate::Host). Clones share it; when the last clone is dropped, its open calls
/// are aborted.
///
/// A client belongs to one of the host's endpoints. If a policy places calls
/// ([`HostConfig::endpoint_policy`](crate::HostConfig::endpoint_policy)), the client has a port in every
/// endpoint. A call for which a thread or task waits then uses the endpoint that the policy chooses.
/// Submitted calls stay in the client's own endpoint, since their completions wait in one place.
#[derive(Clone)]
pub struct Client {
    port: Arc<PortHandle>,
}

/// A port in one endpoint.
pub(crate) struct PortAt {
    pub(crate) shared: Arc<SharedEngine>,
    /// Index of the port in that endpoint's engine.
    pub(crate) client: usize,
    pub(crate) number: u16,
}

impl Drop for PortAt {
    fn drop(&mut self) {
        let now = self.shared.now();
        let mut engine = self.shared.lock();
        if engine.life != Life::Closed {
            engine.close_client(now, self.client);
            engine.after_work(now);
        }
    }
}

struct PortHandle {
    /// One port, or one port in each endpoint, in the order of the endpoints.
    ports: Vec<PortAt>,
    /// Index in `ports` of the client's own port.
    home: usize,
    /// Chooses the port of a call, if there are several.
    placement: Option<Arc<Placement>>,
}

impl Client {
    pub(crate) fn new(port: PortAt) -> Client {
        Client { port: Arc::new(PortHandle { ports: vec![port], home: 0, placement: None }) }
    }

    /// A client with a port in each endpoint; its own port is `ports[home]`.
    pub(crate) fn placed(ports: Vec<PortAt>, home: usize, placement: Arc<Placement>) -> Client {
        Client { port: Arc::new(PortHandle { ports, home, placement: Some(placement) }) }
    }

    /// The client's own port, used for completions, which wait in one place.
    fn home(&self) -> &PortAt {
        &self.port.ports[self.port.home]
    }

    fn shared(&self) -> &Arc<SharedEngine> {
        &self.home().shared
    }

    /// The index in `ports` of the port that a call uses.
    fn place(&self, to: ServerAddr) -> usize {
        let PortHandle { ports, home, placement } = &*self.port;
        let Some(placement) = placement else { return *home };
        let own = self.home();
        let open = ports.iter().map(|port| port.shared.open_rpcs());
        placement.place(own.shared.now(), (*home, own.number), (to.host, to.port), open)
    }

    /// Starts a call with a ticket, and returns the lock still held.
    fn begin(
        &self,
        to: ServerAddr,
        request: Bytes,
        step: u32,
    ) -> Result<(EngineGuard<'_>, Pending), CallError> {
        let place = self.place(to);
        let PortAt { shared, client, .. } = &self.port.ports[place];
        let length = request.len();
        let (at, now) = shared.clock.look();
        let mut engine = shared.lock_since(at);
        let owner = CallOwner::CallTicket(CallTicket::default());
        let call = engine.start_call(now, *client, to, request, owner, step)?;
        engine.note_call(at, call, length);
        engine.flush(now);
        let &Call { rpc, to, .. } = &engine.calls[call];
        Ok((engine, Pending { client: self.clone(), place, call, rpc, to, over: false }))
    }

    /// Calls the server and waits for its response.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn call(&self, to: ServerAddr, request: impl Into<Bytes>) -> Result<Bytes, CallError> {
        let (engine, mut pending) = self.begin(to, request.into(), 0)?;
        let result = pending.wait_locked(engine, None);
        result.unwrap_or(Err(CallError::Closed))
    }

    /// Calls the server and waits for its response, for at most `deadline`.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn call_deadline(
        &self,
        to: ServerAddr,
        request: impl Into<Bytes>,
        deadline: Duration,
    ) -> Result<Bytes, CallError> {
        let until = self.shared().after(deadline);
        let (engine, mut pending) = self.begin(to, request.into(), 0)?;
        let result = pending.wait_locked(engine, Some(until));
        result.unwrap_or(Err(CallError::DeadlineExceeded { to, deadline }))
    }

    /// Calls the server and waits for its response without blocking. Dropping the future aborts the call.
    ///
    /// On a tokio runtime with its I/O and time drivers enabled, a task of that runtime drives the network.
    /// On other runtimes the host's background thread does.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn call_async(&self, to: ServerAddr, request: impl Into<Bytes>) -> Result<Bytes, CallError> {
        self.start(to, request)?.await
    }

    /// Starts a call. The part of the request that may be sent at once is sent before this returns.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn start(&self, to: ServerAddr, request: impl Into<Bytes>) -> Result<Pending, CallError> {
        let (mut engine, pending) = self.begin(to, request.into(), 0)?;
        engine.after_work(pending.shared().now());
        Ok(pending)
    }

    /// Starts a call whose response is read while it arrives.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn start_reading(
        &self,
        to: ServerAddr,
        request: impl Into<Bytes>,
    ) -> Result<ResponseReader, CallError> {
        let (mut engine, pending) = self.begin(to, request.into(), READ_STEP_BYTES)?;
        engine.after_work(pending.shared().now());
        Ok(ResponseReader { pending, read: 0, rest: None })
    }

    /// Starts a call whose outcome [`recv_completion`](Client::recv_completion) returns, on this client or a
    /// clone. Thus one thread can have many calls in flight while other threads receive the responses.
    ///
    /// # Errors
    /// See [`CallError`]; errors after the start are in the completion. The limit `max_completions` counts
    /// calls whose completion has not been taken.
    pub fn submit(&self, to: ServerAddr, request: impl Into<Bytes>, cookie: u64) -> Result<(), CallError> {
        let (at, now) = self.shared().clock.look();
        let request = request.into();
        let length = request.len();
        let mut engine = self.shared().lock_since(at);
        let owner = CallOwner::Queue { client: self.home().client, cookie };
        let call = engine.start_call(now, self.home().client, to, request, owner, 0)?;
        engine.note_call(at, call, length);
        engine.flush(now);
        engine.after_work(now);
        Ok(())
    }

    /// Starts several calls as [`submit`](Client::submit) does, each given as server, request and cookie, and
    /// empties `calls`. They are sent together, which costs a fraction of sending them one by one, above all
    /// if their requests are short and of the same length. Once all other calls have been sent, `refused`
    /// gets the cookie and the error of each call that could not start.
    pub fn submit_all(
        &self,
        calls: &mut Vec<(ServerAddr, Bytes, u64)>,
        mut refused: impl FnMut(u64, CallError),
    ) {
        if calls.is_empty() {
            return;
        }
        let (at, now) = self.shared().clock.look();
        let mut errors = Vec::new();
        let mut engine = self.shared().lock_since(at);
        for (to, request, cookie) in calls.drain(..) {
            let owner = CallOwner::Queue { client: self.home().client, cookie };
            let length = request.len();
            match engine.start_call(now, self.home().client, to, request, owner, 0) {
                Ok(call) => engine.note_call(at, call, length),
                Err(error) => errors.push((cookie, error)),
            }
        }
        engine.flush(now);
        engine.after_work(now);
        drop(engine);
        errors.into_iter().for_each(|(cookie, error)| refused(cookie, error));
    }

    /// Waits for the completion of a submitted call: for ever, or for at most `timeout`. A `timeout` of zero
    /// only polls. Returns `None` if the time has passed, or if the host is shut down and all
    /// completions are taken.
    pub fn recv_completion(&self, timeout: Option<Duration>) -> Option<Completion> {
        self.await_completions(timeout, |engine| engine.take_completion(self.home().client)).flatten()
    }

    /// Waits as [`recv_completion`](Client::recv_completion) does, then appends all available completions to
    /// `completions`, at most `max`. Returns how many.
    pub fn recv_completions(
        &self,
        timeout: Option<Duration>,
        max: usize,
        completions: &mut Vec<Completion>,
    ) -> usize {
        if max == 0 {
            return 0;
        }
        let taken = self.await_completions(timeout, |engine| {
            let before = completions.len();
            completions.extend(iter::from_fn(|| engine.take_completion(self.home().client)).take(max));
            completions.len() - before
        });
        taken.unwrap_or(0)
    }

    /// Waits until there are completions, and calls `take` under the same lock. Returns `None` in the same
    /// cases as [`recv_completion`](Client::recv_completion).
    fn await_completions<T>(
        &self,
        timeout: Option<Duration>,
        mut take: impl FnMut(&mut Engine) -> T,
    ) -> Option<T> {
        let shared = self.shared();
        let client = self.home().client;
        let deadline = timeout.map(|timeout| shared.after(timeout));
        let mut engine = shared.lock();
        if timeout == Some(Duration::ZERO) && engine.clients[client].completions.is_empty() {
            // Otherwise a caller that only calls with a zero timeout would never drive the network.
            engine.drive(shared.now());
        }
        wait::wait(shared, engine, WaitTarget::Completions(client), deadline, |engine| {
            match &engine.clients[client].completions {
                queue if !queue.is_empty() => Some(Some(take(engine))),
                _ if engine.life != Life::Open => Some(None),
                _ => None,
            }
        })
        .flatten()
    }
}

/// A call in flight, which is also a future. Dropping it aborts the call.
#[must_use = "dropping a pending call aborts it"]
pub struct Pending {
    client: Client,
    /// Index of the client's port that carries the call.
    place: usize,
    call: usize,
    rpc: RpcKey,
    to: ServerAddr,
    /// The result has been taken.
    over: bool,
}

impl Pending {
    fn shared(&self) -> &Arc<SharedEngine> {
        &self.client.port.ports[self.place].shared
    }

    /// The number of this call on its host; no two calls that are open at the same time share a number.
    pub fn id(&self) -> u64 {
        // Calls open in one endpoint have different slots, so some bits of the generation can hold the
        // endpoint's index.
        let generation = u64::from(self.rpc.generation) & 0x03ff_ffff | (self.shared().index() as u64) << 26;
        generation << 32 | u64::from(self.rpc.slot)
    }

    /// Waits for the response.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn wait(mut self) -> Result<Bytes, CallError> {
        let shared = Arc::clone(self.shared());
        let result = self.wait_locked(shared.lock(), None);
        result.unwrap_or(Err(CallError::Closed))
    }

    /// Waits for the response for at most `deadline` from now; then the call is aborted.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn wait_deadline(mut self, deadline: Duration) -> Result<Bytes, CallError> {
        let shared = Arc::clone(self.shared());
        let until = shared.after(deadline);
        let result = self.wait_locked(shared.lock(), Some(until));
        result.unwrap_or(Err(CallError::DeadlineExceeded { to: self.to, deadline }))
    }

    /// The result, if it is available. Returns `None` after the result was taken.
    pub fn try_wait(&mut self) -> Option<Result<Bytes, CallError>> {
        if self.over {
            return None;
        }
        let shared = Arc::clone(self.shared());
        let mut engine = shared.lock();
        let now = shared.now();
        if engine.ticket(self.call).result.is_none() {
            engine.drive(now);
        }
        let result = engine.take_result(self.call);
        self.over = result.is_some();
        engine.leave(now);
        result
    }

    fn wait_locked(
        &mut self,
        engine: EngineGuard<'_>,
        deadline: Option<Time>,
    ) -> Option<Result<Bytes, CallError>> {
        if self.over {
            return None;
        }
        let shared = &self.client.port.ports[self.place].shared;
        let call = self.call;
        let result =
            wait::wait(shared, engine, WaitTarget::Call(call), deadline, |engine| engine.take_result(call));
        self.over = result.is_some();
        result
    }

    /// Polls with `take`, which returns the data available to the application, if any.
    fn poll_with<T>(&self, context: &Context<'_>, take: impl FnOnce(&mut Engine) -> Option<T>) -> Poll<T> {
        let waker = context.waker().clone();
        let replaced: Option<Waker>;
        {
            let mut engine = self.shared().lock();
            if let Some(taken) = take(&mut engine) {
                return Poll::Ready(taken);
            }
            replaced = engine.ticket(self.call).waker.replace(waker);
        }
        drop(replaced);
        async_driver::ensure_driver(self.shared());
        Poll::Pending
    }
}

impl Future for Pending {
    type Output = Result<Bytes, CallError>;

    /// # Panics
    /// If polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(!self.over, "the result of this call was taken");
        let call = self.call;
        let result = self.poll_with(context, |engine| engine.take_result(call));
        self.over = result.is_ready();
        result
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let shared = self.shared();
        let now = shared.now();
        let mut engine = shared.lock();
        engine.abandon_call(now, self.call);
        engine.after_work(now);
    }
}

/// Reads a large response while it arrives. Dropping the reader aborts the call.
#[must_use = "dropping a reader aborts its call"]
pub struct ResponseReader {
    pending: Pending,
    /// Bytes handed out.
    read: u32,
    /// The response, once it is whole.
    rest: Option<Bytes>,
}

impl ResponseReader {
    /// Waits for the next bytes of the response, in order; `None` at the end of the response.
    ///
    /// # Errors
    /// See [`CallError`]. The bytes returned before the error are valid.
    pub fn next_part(&mut self) -> Result<Option<Bytes>, CallError> {
        if let Some(next) = self.next_of_rest() {
            return Ok(next);
        }
        let shared = Arc::clone(self.pending.shared());
        let (call, read, rpc) = (self.pending.call, self.read, self.pending.rpc);
        let part = wait::wait(&shared, shared.lock(), WaitTarget::Call(call), None, |engine| {
            take_part(engine, call, rpc, read)
        });
        self.accept(part.unwrap_or(Part::End(Err(CallError::Closed))))
    }

    /// Like [`next_part`](ResponseReader::next_part), without blocking.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn next_part_async(&mut self) -> Result<Option<Bytes>, CallError> {
        if let Some(next) = self.next_of_rest() {
            return Ok(next);
        }
        let (call, read, rpc) = (self.pending.call, self.read, self.pending.rpc);
        let part =
            poll_fn(|context| self.pending.poll_with(context, |engine| take_part(engine, call, rpc, read)))
                .await;
        self.accept(part)
    }

    /// Bytes handed out so far.
    pub fn position(&self) -> u32 {
        self.read
    }

    /// The unread part of a response that is whole; `None` if the response is not whole yet.
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
                self.pending.over = true;
                self.rest = Some(Bytes::new());
                let whole = result?;
                self.rest = Some(whole.slice(self.read as usize..));
                Ok(self.next_of_rest().flatten())
            }
        }
    }
}

enum Part {
    More(Bytes),
    End(Result<Bytes, CallError>),
}

/// The bytes of a response that have arrived beyond the first `read` bytes.
fn take_part(engine: &mut Engine, call: usize, rpc: RpcKey, read: u32) -> Option<Part> {
    let end = engine.ticket(call).readable_end;
    if let Some(result) = engine.take_result(call) {
        return Some(Part::End(result));
    }
    (end > read).then(|| Part::More(engine.buffers.copy_incoming(rpc, read, end)))
}
