//! Servers: receiving requests and answering them.

use std::cell::Cell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use homa_proto::{RpcKey, Time};

use crate::api::early::{PartialRequest, ReadEarly};
use crate::api::error::{HostError, RecvError, ReplyError};
use crate::payload::buffers::{Buffers, Role};
use crate::payload::deferred_copy::{self, Outgoing};
use crate::runtime::async_driver;
use crate::runtime::engine::{Engine, Life};
use crate::runtime::shared_engine::SharedEngine;
use crate::runtime::wait::{self, WaitTarget};
use crate::tenancy::endpoint_group::board::{self, RequestExchange, WaitOutcome};
use crate::tenancy::endpoints::Endpoints;
use crate::tenancy::process_group::PortClaim;

/// A server port of a [`Host`](crate::Host). Clones share the port and its requests. When the last clone and
/// the last [`Rpc`] are dropped, untaken requests are given up, answers are still delivered, and then the
/// port is free.
#[derive(Clone)]
pub struct Server {
    port: Arc<PortHandle>,
}

struct PortHandle {
    endpoints: Arc<Endpoints>,
    /// The port's index in each endpoint.
    servers: Vec<usize>,
    /// Offers requests to threads that wait at other endpoints, if there are other endpoints.
    board: Option<Arc<RequestExchange>>,
    number: u16,
    homes: WaitSites,
}

/// Assigns threads and tasks that wait for a port open in all endpoints to one endpoint each.
pub(crate) struct WaitSites {
    /// Identifies these sites within the process, so that threads can remember their endpoint.
    id: u64,
    /// Endpoint at which the next new thread or task waits, modulo the number of endpoints.
    next: AtomicUsize,
}

/// Number of [`WaitSites`] for which a thread remembers its endpoint, so that it is not assigned again each
/// time.
const REMEMBERED: usize = 16;

thread_local! {
    /// The sites at which this thread waited, each with its endpoint, indexed by the site's id.
    static HOMES: [Cell<(u64, usize)>; REMEMBERED] = const { [const { Cell::new((0, 0)) }; REMEMBERED] };
}

/// The next id of a [`WaitSites`]; 0 means none.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl WaitSites {
    pub(crate) fn new() -> WaitSites {
        WaitSites { id: NEXT_ID.fetch_add(1, Relaxed), next: AtomicUsize::new(0) }
    }

    /// The endpoint (of `endpoints`) at which the calling thread waits: assigned in turn to new threads, and
    /// kept.
    pub(crate) fn of_thread(&self, endpoints: usize) -> usize {
        if endpoints == 1 {
            return 0;
        }
        let own = HOMES.try_with(|all| {
            let home = &all[self.id as usize % REMEMBERED];
            if home.get().0 != self.id {
                home.set((self.id, self.deal(endpoints)));
            }
            home.get().1
        });
        // A thread that is ending may wait at any endpoint.
        own.unwrap_or(0)
    }

    fn deal(&self, endpoints: usize) -> usize {
        self.next.fetch_add(1, Relaxed) % endpoints
    }
}

impl PortHandle {
    fn home(&self) -> usize {
        self.homes.of_thread(self.servers.len())
    }

    fn shared(&self, endpoint: usize) -> &Arc<SharedEngine> {
        &self.endpoints.members[endpoint]
    }

    fn on(&self, endpoint: usize) -> WaitTarget {
        WaitTarget::Requests(self.servers[endpoint])
    }

    /// Looks for a request at the endpoint `home`, which is locked, and checks whether other endpoints have
    /// one.
    fn find(self: &Arc<Self>, engine: &mut Engine, home: usize) -> Option<WaitOutcome<Rpc>> {
        engine
            .find(self.shared(home), (self.on(home), self.board.as_ref()), |engine| take(engine, self, home))
    }

    /// Takes a request that waits at another endpoint than `home`, where no thread waits for it. `more` may
    /// take further requests there, under the same lock.
    fn take_elsewhere(
        self: &Arc<Self>,
        home: usize,
        marked: u64,
        mut more: impl FnMut(&mut Engine, usize),
    ) -> Option<Result<Rpc, RecvError>> {
        let members = |endpoint| (&**self.shared(endpoint), self.on(endpoint));
        board::take_elsewhere(members, home, marked, |engine, endpoint| {
            let taken = take(engine, self, endpoint);
            if let Some(Ok(_)) = taken {
                more(engine, endpoint);
            }
            taken
        })
    }
}

impl Drop for PortHandle {
    fn drop(&mut self) {
        let _ports = self.endpoints.lock_ports();
        self.endpoints.close_servers(&self.servers);
    }
}

impl Server {
    /// Binds `number` in all endpoints. With `early`, received requests may still be arriving.
    pub(crate) fn open(
        endpoints: Arc<Endpoints>,
        number: u16,
        bound: Option<PortClaim>,
        early: Option<ReadEarly>,
    ) -> Result<Server, HostError> {
        let (servers, board) = endpoints.open_server(number, bound, early)?;
        Ok(Server::at(endpoints, number, servers, board))
    }

    /// A handle for a port that is open in all endpoints, with these indices.
    pub(crate) fn at(
        endpoints: Arc<Endpoints>,
        number: u16,
        servers: Vec<usize>,
        board: Option<Arc<RequestExchange>>,
    ) -> Server {
        Server { port: Arc::new(PortHandle { endpoints, servers, board, number, homes: WaitSites::new() }) }
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

    /// Waits for the next request, for at most `timeout`; a `timeout` of zero only polls.
    ///
    /// # Errors
    /// No request came in time, or the host was shut down.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Rpc, RecvError> {
        self.recv_until(Some(self.port.shared(0).after(timeout)))
    }

    /// Waits for the next request without blocking. Dropping the future loses no request.
    ///
    /// # Errors
    /// The host was shut down.
    pub async fn recv_async(&self) -> Result<Rpc, RecvError> {
        let mut place =
            WaiterGuard { port: &self.port, home: self.port.homes.deal(self.port.servers.len()), id: None };
        poll_fn(move |context| place.poll(context)).await
    }

    /// Waits for the next request, then appends all available requests to `requests`, at most `max`. Returns
    /// how many.
    ///
    /// This suits short handlers: later requests of the batch wait while the thread handles the earlier ones.
    /// Together with [`Rpc::reply_all`] it costs a fraction of taking and answering them one by one.
    ///
    /// # Errors
    /// The host was shut down.
    pub fn recv_all(&self, max: usize, requests: &mut Vec<Rpc>) -> Result<usize, RecvError> {
        if max == 0 {
            return Ok(0);
        }
        let before = requests.len();
        let first = self.recv_with(None, |engine, endpoint| {
            while requests.len() - before + 1 < max
                && let Some(Ok(rpc)) = take(engine, &self.port, endpoint)
            {
                requests.push(rpc);
            }
        })?;
        requests.insert(before, first);
        Ok(requests.len() - before)
    }

    fn recv_until(&self, deadline: Option<Time>) -> Result<Rpc, RecvError> {
        self.recv_with(deadline, |_, _| ())
    }

    /// Waits for the next request; `more` may take further requests under the same lock, that of the endpoint
    /// whose number it gets.
    fn recv_with(
        &self,
        deadline: Option<Time>,
        mut more: impl FnMut(&mut Engine, usize),
    ) -> Result<Rpc, RecvError> {
        let port = &self.port;
        let home = port.home();
        let shared = port.shared(home);
        let on = port.on(home);
        let mut engine = shared.lock();
        // Otherwise a caller whose deadline has already passed would never drive the network.
        if deadline.is_some() && !engine.has_item(on) {
            engine.drive(shared.now());
        }
        loop {
            let found = wait::wait(shared, engine, on, deadline, |engine| {
                let found = port.find(engine, home);
                if let Some(WaitOutcome::Here(Ok(_))) = &found {
                    more(engine, home);
                }
                found
            });
            match found {
                Some(WaitOutcome::Here(taken)) => return taken,
                Some(WaitOutcome::Elsewhere(marked)) => {
                    if let Some(taken) = port.take_elsewhere(home, marked, &mut more) {
                        return taken;
                    }
                }
                None => return Err(RecvError::TimedOut),
            }
            engine = shared.lock();
        }
    }
}

fn take(engine: &mut Engine, port: &Arc<PortHandle>, endpoint: usize) -> Option<Result<Rpc, RecvError>> {
    if engine.life != Life::Open {
        return Some(Err(RecvError::Closed));
    }
    let (queued, request, arriving) = engine.take_request(port.servers[endpoint])?;
    let (port, rpc, peer) = (Arc::clone(port), queued.rpc, queued.peer);
    Some(Ok(Rpc { port, endpoint, rpc, peer, request, arriving, answered: false }))
}

impl Server {
    /// The port's index in each endpoint.
    pub(crate) fn indices(&self) -> &[usize] {
        &self.port.servers
    }

    /// The endpoint at which the calling thread waits.
    pub(crate) fn home(&self) -> usize {
        self.port.home()
    }

    /// Takes a request that waits at this endpoint, whose lock the caller holds.
    pub(crate) fn take(&self, engine: &mut Engine, endpoint: usize) -> Option<Rpc> {
        take(engine, &self.port, endpoint)?.ok()
    }
}

/// A future's place among the tasks that wait for a request.
struct WaiterGuard<'a> {
    port: &'a Arc<PortHandle>,
    /// The endpoint at which the task waits.
    home: usize,
    id: Option<u64>,
}

impl WaiterGuard<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Rpc, RecvError>> {
        let (port, server) = (self.port, self.port.servers[self.home]);
        let waker = context.waker().clone();
        let replaced = loop {
            let mut engine = port.shared(self.home).lock();
            match port.find(&mut engine, self.home) {
                Some(WaitOutcome::Here(taken)) => {
                    if let Some(on) = engine.waiting.taken.take() {
                        engine.pass_on(on);
                    }
                    // Forgets the task's place under the lock, but drops its waker after the lock is
                    // released.
                    let tasks = &mut engine.servers.get_mut(server).map(|server| &mut server.tasks);
                    let old = self.id.take().and_then(|id| tasks.as_mut()?.forget(id));
                    drop(engine);
                    drop(old);
                    return Poll::Ready(taken);
                }
                Some(WaitOutcome::Elsewhere(marked)) => {
                    drop(engine);
                    if let Some(taken) = port.take_elsewhere(self.home, marked, |_, _| ()) {
                        return Poll::Ready(taken);
                    }
                }
                None => {
                    let (id, old) = engine.servers[server].tasks.register(self.id, waker);
                    self.id = Some(id);
                    break old;
                }
            }
        };
        drop(replaced);
        for shared in &port.endpoints.members {
            async_driver::ensure_driver(shared);
        }
        Poll::Pending
    }
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let mut engine = self.port.shared(self.home).lock();
        let server = self.port.servers[self.home];
        let Some(entry) = engine.servers.get_mut(server) else { return };
        let waker = entry.tasks.forget(id);
        if waker.is_none() {
            // The task was woken for a request that it will not take: pass the request on to the next in
            // line.
            let on = WaitTarget::Requests(server);
            engine.end_call(on);
            engine.waiting.note_ready(on);
            engine.summon();
            engine.pass_on(on);
        }
        drop(engine);
        drop(waker);
    }
}

/// A request, to be answered from any thread and in any order. Dropping it unanswered gives it up: its client
/// gets an error.
#[must_use = "dropping an RPC unanswered gives it up"]
pub struct Rpc {
    port: Arc<PortHandle>,
    /// The endpoint that owns the RPC.
    endpoint: usize,
    rpc: RpcKey,
    peer: SocketAddr,
    pub(crate) request: Bytes,
    /// Set while the request is not whole. Only a [`RequestReader`](crate::RequestReader) holds such an RPC.
    pub(crate) arriving: Option<PartialRequest>,
    answered: bool,
}

impl Rpc {
    /// The request's bytes.
    #[must_use]
    pub fn request(&self) -> &Bytes {
        &self.request
    }

    /// Takes the request's bytes, and leaves the RPC without any.
    pub fn take_request(&mut self) -> Bytes {
        std::mem::take(&mut self.request)
    }

    /// Address of the client's host; its port is the UDP port, and 0 over raw IP.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The Homa port that the request came to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// Whether the client still waits for the answer, as far as this host knows. A client that vanished is
    /// noticed after [`client_silence_ns`](homa_proto::Config::client_silence_ns). This method runs none of
    /// the application's code.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        let role = self.shared().lock().glance(|engine| engine.buffers.role(self.rpc));
        matches!(role, Role::InHand { .. })
    }

    /// Answers the request. The part of the answer that may be sent at once is sent before this returns. The
    /// host sends the rest, and resends what the network loses.
    ///
    /// # Errors
    /// See [`ReplyError`]; the RPC is over in that case, too.
    pub fn reply(self, response: impl Into<Bytes>) -> Result<(), ReplyError> {
        self.reply_as(response.into(), |engine, now, (rpc, peer), response| {
            engine.answer(now, rpc, peer, Outgoing::Whole(response))
        })
    }

    /// Answers the request with `answer`, which gets the engine, the RPC, its client and the response.
    pub(crate) fn reply_as(
        mut self,
        response: Bytes,
        answer: impl FnOnce(&mut Engine, Time, (RpcKey, SocketAddr), Bytes) -> Result<(), ReplyError>,
    ) -> Result<(), ReplyError> {
        self.answered = true;
        let shared = self.port.shared(self.endpoint);
        let length = response.len();
        let (at, now) = shared.clock.look();
        let mut engine = shared.lock_since(at);
        let result = answer(&mut engine, now, (self.rpc, self.peer), response);
        if result.is_ok() {
            engine.note_answer(at, self.rpc, length);
        }
        engine.flush(now);
        engine.after_work(now);
        result
    }

    /// Answers with a copy of these pieces; copying and sending overlap.
    pub(crate) fn reply_while_copying(mut self, pieces: &[&[u8]]) -> Result<(), ReplyError> {
        self.answered = true;
        let shared = self.shared();
        let (at, now) = shared.clock.look();
        let mut engine = shared.lock_since(at);
        let result = deferred_copy::copy_and_send(shared, &mut engine, pieces, |engine, response| {
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

    /// Answers several requests as [`reply`](Rpc::reply) does, and empties `replies`. Consecutive answers of
    /// one endpoint of one host are sent together. Once all answers have been sent, `refused` gets each
    /// error; the RPC of a refused answer is over.
    pub fn reply_all(replies: &mut Vec<(Rpc, Bytes)>, mut refused: impl FnMut(ReplyError)) {
        let mut errors = Vec::new();
        for of_one in replies.chunk_by_mut(|(one, _), (next, _)| Arc::ptr_eq(one.shared(), next.shared())) {
            let Some((first, _)) = of_one.first() else { continue };
            let shared = Arc::clone(first.shared());
            let (at, now) = shared.clock.look();
            let mut engine = shared.lock_since(at);
            for (rpc, response) in of_one {
                rpc.answered = true;
                let length = response.len();
                match engine.answer(now, rpc.rpc, rpc.peer, Outgoing::Whole(std::mem::take(response))) {
                    Ok(()) => engine.note_answer(at, rpc.rpc, length),
                    Err(error) => errors.push(error),
                }
            }
            engine.flush(now);
            engine.after_work(now);
        }
        // Not under a lock: dropping the last RPC may drop the last handle of a port.
        replies.clear();
        errors.into_iter().for_each(&mut refused);
    }

    pub(crate) fn shared(&self) -> &Arc<SharedEngine> {
        self.port.shared(self.endpoint)
    }

    /// The number of the endpoint that owns the RPC.
    pub(crate) fn endpoint(&self) -> usize {
        self.endpoint
    }

    pub(crate) fn key(&self) -> RpcKey {
        self.rpc
    }
}

impl Rpc {
    /// Forgets an RPC that is over, under the lock of its endpoint. A plain drop would take that lock again,
    /// and dropping memory lent for the request might, too.
    pub(crate) fn let_go(mut self, buffers: &mut Buffers) {
        self.answered = true;
        buffers.bury(std::mem::take(&mut self.request));
    }
}

impl Drop for Rpc {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let shared = self.port.shared(self.endpoint);
        let now = shared.now();
        let mut engine = shared.lock();
        if engine.life != Life::Closed {
            engine.give_up(now, self.rpc);
            engine.after_work(now);
        }
        if let Some(arriving) = self.arriving {
            engine.forget_reading(arriving.index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_endpoint_of_each_thing_it_waits_for() {
        // The test uses its own ids: other tests may take some of the common ones meanwhile.
        let all: Vec<WaitSites> = (0..REMEMBERED as u64)
            .map(|id| WaitSites { id: u64::MAX / 2 + id, ..WaitSites::new() })
            .collect();
        let endpoints = || all.iter().map(|homes| homes.of_thread(4)).collect::<Vec<_>>();
        let own = endpoints();
        assert!((0..5).all(|_| endpoints() == own));
        let others: Vec<_> = std::thread::scope(|scope| scope.spawn(endpoints).join().unwrap());
        assert!(own.iter().zip(others).all(|(own, other)| (own + 1) % 4 == other));
    }
}
