//! Completion queues: many calls in flight in one thread.

use std::fmt;
use std::iter;
use std::time::Duration;

use bytes::Bytes;

use crate::api::client::Client;
use crate::runtime::calls::CallOwner;
use crate::runtime::engine::{Engine, Phase};
use crate::runtime::timers::TimeLimit;
use crate::runtime::wait;
use crate::runtime::wait_target::WaitTarget;
use crate::types::address::ServerAddr;
use crate::types::error::{CallError, RecvError};

/// The outcome of a submitted call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completion {
    /// The cookie that the caller passed to [`submit`](CompletionQueue::submit).
    pub cookie: u64,
    /// The response, or the reason why there is none.
    pub result: Result<Bytes, CallError>,
}

/// Many calls in flight in one thread: calls are submitted with a cookie, and their outcomes are received in
/// the order in which the calls end. Other threads may also receive the outcomes.
///
/// Each [`Client`] has one queue, shared by all its handles and by the client's clones.
///
/// ```
/// # use homa::{Host, ServerAddr};
/// # fn fetch(host: &Host, to: ServerAddr) -> Result<(), Box<dyn std::error::Error>> {
/// let queue = host.client()?.completions();
/// for part in 0..100 {
///     queue.submit(to, format!("part {part}"), part)?;
/// }
/// for _ in 0..100 {
///     let done = queue.recv().wait()?;
///     println!("{}: {} bytes", done.cookie, done.result?.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CompletionQueue {
    client: Client,
}

impl Client {
    /// Returns the queue for calls that are [submitted](CompletionQueue::submit) on this client: the same
    /// queue each time.
    #[must_use]
    pub fn completions(&self) -> CompletionQueue {
        CompletionQueue { client: self.clone() }
    }
}

impl CompletionQueue {
    /// Starts a call whose outcome [`recv`](CompletionQueue::recv) returns. The unscheduled part of the
    /// request is sent before this returns.
    ///
    /// # Errors
    /// See [`CallError`]. Errors that occur later are reported in the completion. The limit `max_completions`
    /// applies to the number of calls whose completions have not been taken.
    pub fn submit(&self, to: ServerAddr, request: impl Into<Bytes>, cookie: u64) -> Result<(), CallError> {
        let port = self.client.home();
        let (at, now) = port.shared.clock.read_both();
        let request = request.into();
        let length = request.len();
        let mut engine = port.shared.lock_since(at);
        let owner = CallOwner::Queue { client: port.client, cookie };
        let call = engine.start_call(now, port.client, to, request, owner, 0)?;
        engine.note_call(at, call, length);
        engine.flush(now);
        engine.after_work(now);
        Ok(())
    }

    /// Starts several calls as [`submit`](CompletionQueue::submit) does, and empties `calls`. Each call
    /// consists of a server, a request and a cookie. The requests are sent together, which costs a fraction
    /// of sending them one by one, especially if they are short and of equal length. Once all other calls
    /// have been sent, `refused` is called with the cookie and the error of each call that could not start.
    pub fn submit_all(
        &self,
        calls: &mut Vec<(ServerAddr, Bytes, u64)>,
        mut refused: impl FnMut(u64, CallError),
    ) {
        if calls.is_empty() {
            return;
        }
        let port = self.client.home();
        let (at, now) = port.shared.clock.read_both();
        let mut errors = Vec::new();
        let mut engine = port.shared.lock_since(at);
        for (to, request, cookie) in calls.drain(..) {
            let owner = CallOwner::Queue { client: port.client, cookie };
            let length = request.len();
            match engine.start_call(now, port.client, to, request, owner, 0) {
                Ok(call) => engine.note_call(at, call, length),
                Err(error) => errors.push((cookie, error)),
            }
        }
        engine.flush(now);
        engine.after_work(now);
        drop(engine);
        errors.into_iter().for_each(|(cookie, error)| refused(cookie, error));
    }

    /// Receives the next completion: [wait](RecvCompletion::wait) for the result.
    pub fn recv(&self) -> RecvCompletion<'_> {
        RecvCompletion { client: &self.client, limit: TimeLimit::default() }
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue").field("port", &self.client.home().number).finish_non_exhaustive()
    }
}

/// A pending receive of the next completion: see [`CompletionQueue::recv`].
#[must_use = "a completion is received when it is waited for"]
#[derive(Debug)]
pub struct RecvCompletion<'a> {
    client: &'a Client,
    limit: TimeLimit,
}

impl RecvCompletion<'_> {
    /// Limits the wait. When the limit passes, the result is [`RecvError::TimedOut`]; a limit of zero only
    /// polls.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.limit.set(timeout);
        self
    }

    /// Waits for the completion.
    ///
    /// # Errors
    /// No call ended in time, or the host was shut down and all completions have been taken.
    pub fn wait(self) -> Result<Completion, RecvError> {
        self.wait_with(|engine, client| engine.take_completion(client))?
            .map(|(cookie, result)| Completion { cookie, result })
            .ok_or(RecvError::Closed)
    }

    /// Waits for a completion, then appends all available completions to `completions`, at most `max`.
    /// Returns the number of completions appended.
    ///
    /// # Errors
    /// The same as for [`wait`](RecvCompletion::wait).
    pub fn wait_batch(self, max: usize, completions: &mut Vec<Completion>) -> Result<usize, RecvError> {
        if max == 0 {
            return Ok(0);
        }
        self.wait_with(|engine, client| {
            let before = completions.len();
            let taken = iter::from_fn(|| engine.take_completion(client)).take(max);
            completions.extend(taken.map(|(cookie, result)| Completion { cookie, result }));
            completions.len() - before
        })
    }

    /// Waits until there are completions, and calls `take` under the same lock.
    fn wait_with<T>(&self, mut take: impl FnMut(&mut Engine, usize) -> T) -> Result<T, RecvError> {
        let port = self.client.home();
        let (shared, client) = (&*port.shared, port.client);
        let until = self.limit.end(|| shared.now());
        let mut engine = shared.lock();
        if self.limit.timeout() == Some(Duration::ZERO) && engine.calls.clients[client].completions.is_empty()
        {
            // Without this, a caller that only polls would never drive the network.
            engine.drive(shared.now());
        }
        let taken =
            wait::wait(shared, engine, WaitTarget::Completions(client), until, |engine| {
                match &engine.calls.clients[client].completions {
                    queue if !queue.is_empty() => Some(Ok(take(engine, client))),
                    _ if engine.phase != Phase::Open => Some(Err(RecvError::Closed)),
                    _ => None,
                }
            });
        taken.unwrap_or(Err(RecvError::TimedOut))
    }
}
