//! Calling.

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

/// How many more bytes of a response must have come before a [`ResponseReader`] is told: a few round trips of a fast link, so
/// that a large response costs few wake-ups and its reader is never far behind.
const READ_STEP_BYTES: u32 = 64 << 10;

/// The end of a call started with [`Client::submit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What the caller gave to `submit`.
    pub cookie: u64,
    /// The response, or why there is none.
    pub result: Result<Bytes, CallError>,
}

/// A client port of a [`Host`](crate::Host). Clones share it; when the last is gone, its open calls are aborted.
///
/// It lives in one of the host's endpoints. Where a policy places calls ([`HostConfig::endpoint_policy`](crate::HostConfig::endpoint_policy)), it has a
/// port in each of them, and a call that somebody waits for goes through the one that the policy chooses; submitted calls stay in its own,
/// since their completions wait in one place.
#[derive(Clone)]
pub struct Client {
    port: Arc<PortHandle>,
}

/// A port in one endpoint.
pub(crate) struct PortAt {
    pub(crate) shared: Arc<SharedEngine>,
    /// Its index there.
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
    /// One, or one in each endpoint, in their order.
    ports: Vec<PortAt>,
    /// The place in `ports` of the client's own.
    home: usize,
    /// What chooses among several.
    placement: Option<Arc<Placement>>,
}

impl Client {
    pub(crate) fn new(port: PortAt) -> Client {
        Client { port: Arc::new(PortHandle { ports: vec![port], home: 0, placement: None }) }
    }

    /// A client with a port in each endpoint, whose own is the one at `home`.
    pub(crate) fn placed(ports: Vec<PortAt>, home: usize, placement: Arc<Placement>) -> Client {
        Client { port: Arc::new(PortHandle { ports, home, placement: Some(placement) }) }
    }

    /// The client's own port, for what waits in one place.
    fn home(&self) -> &PortAt {
        &self.port.ports[self.port.home]
    }

    fn shared(&self) -> &Arc<SharedEngine> {
        &self.home().shared
    }

    /// Where a call goes.
    fn place(&self, to: ServerAddr) -> usize {
        let PortHandle { ports, home, placement } = &*self.port;
        let Some(placement) = placement else { return *home };
        let own = self.home();
        let open = ports.iter().map(|port| port.shared.open_rpcs());
        placement.place(own.shared.now(), (*home, own.number), (to.host, to.port), open)
    }

    /// Starts a call for a ticket, and keeps the lock.
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
    /// On a tokio runtime with its I/O and time drivers on, a task of that runtime drives the network; elsewhere the host's
    /// background thread does.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn call_async(&self, to: ServerAddr, request: impl Into<Bytes>) -> Result<Bytes, CallError> {
        self.start(to, request)?.await
    }

    /// Starts a call; what may be sent of the request at once is sent before this returns.
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

    /// Starts a call whose end [`recv_completion`](Client::recv_completion) reports, on this client or a clone. So one thread
    /// can have many calls in flight, and others take the responses.
    ///
    /// # Errors
    /// See [`CallError`]; what happens after the start is in the completion. The limit `max_completions` counts calls whose
    /// completion nobody has taken.
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

    /// Starts several calls as [`submit`](Client::submit) does, each a server, a request and a cookie, and leaves `calls` empty.
    /// They go out together, which costs a fraction of what one by one costs, most of all where their requests are short and of
    /// the same length. A call that is not taken is told to `refused`, with its cookie, once all others have been sent.
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

    /// Waits for the end of a submitted call: for ever, or for at most `timeout`; zero only looks. `None` when the time has
    /// passed, or when the host is shut down and all completions are taken.
    pub fn recv_completion(&self, timeout: Option<Duration>) -> Option<Completion> {
        self.await_completions(timeout, |engine| engine.take_completion(self.home().client)).flatten()
    }

    /// Waits as [`recv_completion`](Client::recv_completion) does, then appends all that are there to `completions`, at most
    /// `max`. Returns how many.
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

    /// Waits until there are completions, and takes of them under the same lock. `None` as
    /// [`recv_completion`](Client::recv_completion) has it.
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
            // Otherwise a caller that only ever looks would never drive.
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

/// A call in flight. Also a future. Dropping it aborts the call.
#[must_use = "dropping a pending call aborts it"]
pub struct Pending {
    client: Client,
    /// Which of the client's ports has it.
    place: usize,
    call: usize,
    rpc: RpcKey,
    to: ServerAddr,
    /// The result was taken.
    over: bool,
}

impl Pending {
    fn shared(&self) -> &Arc<SharedEngine> {
        &self.client.port.ports[self.place].shared
    }

    /// The number of this call on its host; no two calls that are open at a time share one.
    pub fn id(&self) -> u64 {
        // Of calls that are open in one endpoint the slots differ, so that bits of the generation can tell the endpoint.
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

    /// The result, if it is there. After it was taken there is none.
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

    /// Polls with a function that takes what there is for the application.
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
    /// When polled after it was ready.
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

/// Reads a large response while it arrives. Dropping it aborts the call.
#[must_use = "dropping a reader aborts its call"]
pub struct ResponseReader {
    pending: Pending,
    /// Bytes handed out.
    read: u32,
    /// The response, once it is whole.
    rest: Option<Bytes>,
}

impl ResponseReader {
    /// Waits for the next bytes of the response, in their order; `None` at its end.
    ///
    /// # Errors
    /// See [`CallError`]. The bytes that came before are good.
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

    /// As [`next_part`](ResponseReader::next_part), without blocking.
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

    /// What is to be read of a response that is whole; `None` when it is not.
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

/// What has come of a response beyond `read` bytes.
fn take_part(engine: &mut Engine, call: usize, rpc: RpcKey, read: u32) -> Option<Part> {
    let end = engine.ticket(call).readable_end;
    if let Some(result) = engine.take_result(call) {
        return Some(Part::End(result));
    }
    (end > read).then(|| Part::More(engine.buffers.copy_incoming(rpc, read, end)))
}
