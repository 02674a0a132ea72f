//! Answering.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use homa_proto::{RpcKey, Time};

use crate::asynch;
use crate::core::{Core, Life};
use crate::error::{RecvError, ReplyError};
use crate::shared::Shared;
use crate::wait::{self, WaitOn};

/// A server port of a [`Host`](crate::Host). Clones share it and its requests; when the last clone and the last [`Rpc`] are
/// gone, requests that nobody took are given up, answers are still delivered, and then the port is free.
#[derive(Clone)]
pub struct Server {
    port: Arc<PortHandle>,
}

struct PortHandle {
    shared: Arc<Shared>,
    server: usize,
    number: u16,
}

impl Drop for PortHandle {
    fn drop(&mut self) {
        let now = self.shared.now();
        let mut core = self.shared.lock();
        if core.life != Life::Closed {
            core.close_server(now, self.server);
            core.after_work(now);
        }
    }
}

impl Server {
    pub(crate) fn new(shared: Arc<Shared>, server: usize, number: u16) -> Server {
        Server { port: Arc::new(PortHandle { shared, server, number }) }
    }

    /// The Homa port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// Waits for the next request.
    ///
    /// # Errors
    /// The host was shut down.
    pub fn recv(&self) -> Result<Rpc, RecvError> {
        self.recv_until(None)
    }

    /// Waits for the next request, for at most `timeout`; zero only looks.
    ///
    /// # Errors
    /// None came, or the host was shut down.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Rpc, RecvError> {
        self.recv_until(Some(self.port.shared.after(timeout)))
    }

    /// Waits for the next request without blocking. Dropping the future loses none.
    ///
    /// # Errors
    /// The host was shut down.
    pub async fn recv_async(&self) -> Result<Rpc, RecvError> {
        let mut place = Place { port: &self.port, id: None };
        poll_fn(move |context| place.poll(context)).await
    }

    fn recv_until(&self, deadline: Option<Time>) -> Result<Rpc, RecvError> {
        let shared = &self.port.shared;
        let mut core = shared.lock();
        // Otherwise a caller whose time is up at once would never drive.
        if deadline.is_some() && !core.has_item(WaitOn::Requests(self.port.server)) {
            core.drive(shared.now());
        }
        let on = WaitOn::Requests(self.port.server);
        let taken = wait::wait(shared, core, on, deadline, |core| take(core, &self.port));
        taken.unwrap_or(Err(RecvError::TimedOut))
    }
}

fn take(core: &mut Core, port: &Arc<PortHandle>) -> Option<Result<Rpc, RecvError>> {
    if core.life != Life::Open {
        return Some(Err(RecvError::Closed));
    }
    let (queued, request) = core.take_request(port.server)?;
    let rpc = Rpc { port: Arc::clone(port), rpc: queued.rpc, peer: queued.peer, request, answered: false };
    Some(Ok(rpc))
}

/// A future's place among the tasks that wait for a request.
struct Place<'a> {
    port: &'a Arc<PortHandle>,
    id: Option<u64>,
}

impl Place<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Rpc, RecvError>> {
        let waker = context.waker().clone();
        let replaced;
        {
            let mut core = self.port.shared.lock();
            if let Some(taken) = take(&mut core, self.port) {
                // Forgets its place under the lock, and drops the waker of it outside.
                let tasks = &mut core.servers.get_mut(self.port.server).map(|server| &mut server.tasks);
                let old = self.id.take().and_then(|id| tasks.as_mut()?.forget(id));
                drop(core);
                drop(old);
                return Poll::Ready(taken);
            }
            let tasks = &mut core.servers[self.port.server].tasks;
            let (id, old) = tasks.register(self.id, waker);
            self.id = Some(id);
            replaced = old;
        }
        drop(replaced);
        asynch::ensure_driver(&self.port.shared);
        Poll::Pending
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let mut core = self.port.shared.lock();
        let Some(server) = core.servers.get_mut(self.port.server) else { return };
        let waker = server.tasks.forget(id);
        if waker.is_none() {
            // It was woken for a request that it will not take: the next one in line shall.
            core.waiting.note_ready(WaitOn::Requests(self.port.server));
            core.summon();
        }
        drop(core);
        drop(waker);
    }
}

/// A request, to be answered from any thread and in any order. Dropping it unanswered gives it up: its client gets an error.
#[must_use = "dropping an RPC unanswered gives it up"]
pub struct Rpc {
    port: Arc<PortHandle>,
    rpc: RpcKey,
    peer: SocketAddr,
    request: Bytes,
    answered: bool,
}

impl Rpc {
    /// The request's bytes.
    #[must_use]
    pub fn request(&self) -> &Bytes {
        &self.request
    }

    /// Takes the request's bytes, and leaves none.
    pub fn take_request(&mut self) -> Bytes {
        std::mem::take(&mut self.request)
    }

    /// Address of the client's host; its port is that of UDP, and 0 over raw IP.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The Homa port that the request came to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// Answers. What may be sent of the answer at once is sent before this returns; the rest, and its repetition where the
    /// network loses it, is the host's business.
    ///
    /// # Errors
    /// See [`ReplyError`]; the RPC is over then.
    pub fn reply(mut self, response: impl Into<Bytes>) -> Result<(), ReplyError> {
        let response = response.into();
        self.answered = true;
        let shared = &self.port.shared;
        let now = shared.now();
        let mut core = shared.lock();
        let result = core.answer(now, self.rpc, self.peer, response);
        core.after_work(now);
        result
    }
}

impl Drop for Rpc {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let shared = &self.port.shared;
        let now = shared.now();
        let mut core = shared.lock();
        if core.life != Life::Closed {
            core.give_up(now, self.rpc);
            core.after_work(now);
        }
    }
}
