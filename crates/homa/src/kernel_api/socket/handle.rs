//! A port that both makes and serves calls, with one queue for responses and requests, like a Linux Homa
//! socket.
//!
//! A call is identified by its ID on the wire. Any thread that receives takes the outcomes of calls in the
//! order in which the calls end. The outcome of a private call can only be taken by the call's ID. A
//! [`Waker`] reports arrivals for which no thread waits in [`Socket::recv`], so that a descriptor can be made
//! readable for them.

mod accepting;
mod driving;

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use homa_proto::{RpcInfo, Time, wire};

use super::arrival::Arrival;
use super::take::take_arrival;
use crate::api::endpoints::Endpoints;
use crate::api::host::Host;
use crate::api::request::Request;
use crate::api::server::Server;
use crate::payload::deferred_copy::Outgoing;
use crate::payload::memory::MessageMemory;
use crate::payload::pool::{self, Pool};
use crate::runtime::calls::CallOwner;
use crate::runtime::copy_and_send;
use crate::runtime::engine::Engine;
use crate::runtime::shared_engine::SharedEngine;
use crate::runtime::socket_outcome::{CallInfo, Outcome};
use crate::runtime::sockets::SocketCall;
use crate::runtime::wait;
use crate::runtime::wait_target::WaitTarget;
use crate::tenancy::endpoint_group::exchange::{RequestExchange, WaitOutcome};
use crate::tenancy::process_group::FIRST_CLIENT_PORT;
use crate::types::address::ServerAddr;
use crate::types::error::{CallError, HostError, RecvError, ReplyError};

/// A port that both makes and serves calls, with one queue for responses and requests, like a Linux Homa
/// socket. A call is identified by its ID on the wire. Dropping the socket [closes](Socket::close) it.
pub struct Socket {
    /// The socket's shards: one for each endpoint if the socket has a server port, otherwise only one.
    members: Vec<SocketShard>,
    number: u16,
    endpoints: Arc<Endpoints>,
    /// The server that takes the socket's requests, once the socket has accepted any.
    server: OnceLock<Server>,
    /// Offers arrivals to threads at other endpoints, if the socket has several shards.
    exchange: Option<Arc<RequestExchange>>,
    /// Memory for outgoing messages.
    pool: Mutex<Pool>,
}

/// A socket's shard in one endpoint.
struct SocketShard {
    shared: Arc<SharedEngine>,
    index: usize,
}

impl SocketShard {
    fn wait_target(&self) -> WaitTarget {
        WaitTarget::Socket(self.index)
    }
}

impl Host {
    /// Opens a socket on a port. `None` picks any free client port. A port from 1 to 32767 is a server port,
    /// which accepts requests immediately. A higher port is a client port, which accepts requests only after
    /// [`accept_requests`](Socket::accept_requests).
    ///
    /// If the host has several endpoints, each free client port belongs to one of them, assigned in turn, and
    /// a server port belongs to all. Each thread waits at one endpoint, but receives the messages of all. On
    /// such a host the caller cannot choose the client port.
    ///
    /// # Errors
    /// See [`HostError`].
    pub fn socket(&self, port: Option<u16>) -> Result<Socket, HostError> {
        let endpoints = &self.endpoints;
        let count = endpoints.members.len();
        if port.is_some_and(|port| port >= FIRST_CLIENT_PORT) && count > 1 {
            return Err(HostError::SeveralEndpoints { count });
        }
        self.start_progress()?;
        let Some(number) = port.filter(|port| *port < FIRST_CLIENT_PORT) else {
            let chosen = self.choose_client_port()?.or(port);
            let shared = Arc::clone(endpoints.next_client_endpoint());
            let (index, number) = shared.lock().open_socket(shared.now(), chosen, None)?;
            return Ok(Socket::new(endpoints, vec![SocketShard { shared, index }], number, OnceLock::new()));
        };
        let server = self.server(number)?;
        let members = Vec::with_capacity(count);
        let mut socket = Socket::new(endpoints, members, number, OnceLock::from(server.clone()));
        for (shared, &server) in endpoints.members.iter().zip(server.indices()) {
            let (index, _) = shared.lock().open_socket(shared.now(), Some(number), Some(server))?;
            socket.members.push(SocketShard { shared: Arc::clone(shared), index });
        }
        socket.exchange =
            endpoints.set_exchange(socket.members.iter().map(SocketShard::wait_target).collect());
        Ok(socket)
    }
}

impl Socket {
    fn new(
        endpoints: &Arc<Endpoints>,
        members: Vec<SocketShard>,
        number: u16,
        server: OnceLock<Server>,
    ) -> Socket {
        let endpoints = Arc::clone(endpoints);
        Socket { members, number, endpoints, server, exchange: None, pool: Mutex::default() }
    }

    /// Returns the endpoint where the calling thread starts calls and waits. A socket without a server is
    /// open in only one endpoint.
    fn home(&self) -> usize {
        self.server.get().map_or(0, Server::home)
    }

    /// Returns the shard in the endpoint that owns the call with this ID, if there is such a call.
    fn member_of(&self, id: u64) -> &SocketShard {
        &self.members[wire::owner_of(id, self.members.len() as u32) as usize]
    }

    /// Returns the Homa port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.number
    }

    /// Copies these pieces, in order, into one message, whose memory is reused once the message is dropped.
    /// The host drops an outgoing message when the peer has all of it.
    pub fn message(&self, pieces: &[&[u8]]) -> Bytes {
        let length = pieces.iter().map(|piece| piece.len()).sum();
        let pool = || self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if let ([piece], true) = (pieces, length <= pool::SMALL_BYTES) {
            return pool().copy(piece);
        }
        let mut buffer = pool().take(length);
        pieces.iter().for_each(|piece| buffer.extend_from_slice(piece));
        let (message, evicted) = pool().finish(buffer);
        drop(evicted);
        message
    }

    /// Starts a call, and returns its ID, which is even. The unscheduled part of the request is sent before
    /// this returns. The outcome carries `cookie`. [`recv`](Socket::recv) returns the outcome, or
    /// [`recv_private`](Socket::recv_private) if the call is `private`.
    ///
    /// The host reads the request's bytes until its outcome is received, or until [`abort`](Socket::abort) or
    /// [`close`](Socket::close) has ended the call and returned, but never after that. If the bytes have an
    /// owner ([`Bytes::from_owner`]), the owner is dropped a little later.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn start(
        &self,
        to: ServerAddr,
        request: Bytes,
        cookie: u64,
        private: bool,
    ) -> Result<u64, CallError> {
        self.start_until((to, request), (cookie, private), None, false)
    }

    /// Starts a call that is not private, as [`start`](Socket::start) does, and aborts it after `timeout`, or
    /// up to one tick of the background thread later. Its outcome is then [`CallError::TimedOut`].
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn start_timeout(
        &self,
        to: ServerAddr,
        request: Bytes,
        cookie: u64,
        timeout: Duration,
    ) -> Result<u64, CallError> {
        self.start_until((to, request), (cookie, false), Some(timeout), false)
    }

    fn start_until(
        &self,
        (to, request): (ServerAddr, Bytes),
        (cookie, private): (u64, bool),
        timeout: Option<Duration>,
        more: bool,
    ) -> Result<u64, CallError> {
        let SocketShard { shared, index: socket } = &self.members[self.home()];
        let (at, now) = shared.clock.read_both();
        let mut engine = shared.lock_since(at);
        if engine.sockets.open[*socket].closed {
            return Err(CallError::Closed);
        }
        let deadline = timeout.map(|timeout| (shared.after(timeout), timeout));
        let owner = SocketCall { socket: *socket, id: 0, cookie, private, deadline, result: None };
        let from = (self.number, private);
        let id = engine.start_socket_call((at, now), from, to, Outgoing::Whole(request), owner);
        engine.send_or_hold(now, more);
        id
    }

    /// Like [`start`](Socket::start), with a copy of these pieces, in order. When this returns, the host no
    /// longer reads the pieces.
    ///
    /// `more` means that the caller will start another message at once. A short message may then wait to be
    /// sent together with the next; a long one does not wait. If no other message follows, the caller must
    /// call [`flush`](Socket::flush).
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn start_pieces(
        &self,
        to: ServerAddr,
        pieces: &[&[u8]],
        cookie: u64,
        private: bool,
        more: bool,
    ) -> Result<u64, CallError> {
        let SocketShard { shared, index: socket } = &self.members[self.home()];
        if !copy_and_send::pays_off(shared, pieces) {
            return self.start_until((to, self.message(pieces)), (cookie, private), None, more);
        }
        let (at, now) = shared.clock.read_both();
        let mut engine = shared.lock_since(at);
        if engine.sockets.open[*socket].closed {
            return Err(CallError::Closed);
        }
        let owner = SocketCall { socket: *socket, id: 0, cookie, private, deadline: None, result: None };
        let from = (self.number, private);
        let id = copy_and_send::copy_and_send(shared, &mut engine, pieces, |engine, request| {
            let id = engine.start_socket_call((at, now), from, to, request, owner);
            engine.flush(now);
            id
        });
        engine.after_work(shared.now());
        id
    }

    /// Like [`Request::reply`], with a copy of these pieces, in order. When this returns, the host no longer
    /// reads the pieces. `more` is as in [`start_pieces`](Socket::start_pieces).
    ///
    /// # Errors
    /// See [`ReplyError`]. The RPC ends in that case, too.
    pub fn reply_pieces(&self, rpc: Request, pieces: &[&[u8]], more: bool) -> Result<(), ReplyError> {
        if !copy_and_send::pays_off(rpc.shared(), pieces) {
            return rpc.reply_or_hold(self.message(pieces), more);
        }
        rpc.reply_while_copying(pieces)
    }

    /// Sends the messages that were started with `more` and have not been sent yet.
    pub fn flush(&self) {
        for SocketShard { shared, .. } in &self.members {
            let now = shared.now();
            let mut engine = shared.lock();
            engine.send_or_hold(now, false);
        }
    }

    /// Like [`Request::reply`] for a request that arrived on this socket, but lends the response's bytes, so
    /// that the caller learns when it may reuse them. The host reads the bytes until [`recv`](Socket::recv)
    /// returns [`Arrival::ReturnedReply`] with this cookie, or until [`close`](Socket::close) returns, which
    /// copies what clients do not have yet. If this returns an error, the host no longer reads the bytes.
    ///
    /// # Errors
    /// See [`ReplyError`]; the RPC ends in that case, without a `ReturnedReply`. Also returns `Closed` if the
    /// socket is closed.
    ///
    /// # Panics
    /// Panics if the request came through another socket.
    pub fn reply_lent(&self, rpc: Request, response: Bytes, cookie: u64) -> Result<(), ReplyError> {
        let member =
            self.members.get(rpc.endpoint()).filter(|member| Arc::ptr_eq(rpc.shared(), &member.shared));
        let member = member.expect("the request came by this socket");
        rpc.reply_as(response, false, |engine, now, rpc, response| {
            engine.answer_lent(now, rpc, response, (member.index, cookie))
        })
    }

    /// Waits for the next request or the next outcome of a call that is not private, for at most `timeout`
    /// (`None`: without limit). A `timeout` of zero only polls.
    ///
    /// # Errors
    /// Nothing arrived in time, or the socket or the host was shut down.
    pub fn recv(&self, timeout: Option<Duration>) -> Result<Arrival, RecvError> {
        self.recv_while(timeout, || true)
    }

    /// Like [`recv`](Socket::recv), but waits only while `wanted` returns true. `wanted` is called under a
    /// lock of the host: before the thread sleeps, whenever it is woken, and after each
    /// [`recall`](Socket::recall). An arrival that is already there is returned even if it is no longer
    /// wanted.
    ///
    /// # Errors
    /// Those of `recv`; also `TimedOut` if the arrival is no longer wanted.
    pub fn recv_while(
        &self,
        timeout: Option<Duration>,
        wanted: impl Fn() -> bool,
    ) -> Result<Arrival, RecvError> {
        let home = self.home();
        let member = &self.members[home];
        let until = timeout.map(|timeout| (member.shared.after(timeout), timeout.is_zero()));
        loop {
            // The result is hundreds of bytes long, and every function that returns it by value would copy
            // them.
            let mut found = None;
            self.wait(member, member.wait_target(), until, &wanted, |engine| {
                // Most calls find nothing, so moving an empty result is not worth the cost either.
                let some @ Some(_) = self.find(engine, home) else { return None };
                found = some;
                Some(())
            });
            match found.ok_or(RecvError::TimedOut)? {
                WaitOutcome::Here(taken) => return taken,
                WaitOutcome::Elsewhere(marked) => {
                    if let Some(taken) = self.take_elsewhere(home, marked) {
                        return taken;
                    }
                }
            }
        }
    }

    fn take(&self, engine: &mut Engine, endpoint: usize) -> Option<Result<Arrival, RecvError>> {
        take_arrival(engine, self.members[endpoint].index, self.server.get(), endpoint)
    }

    /// Looks for arrivals at the endpoint `home`, which is locked, and checks whether other endpoints have
    /// arrivals.
    fn find(&self, engine: &mut Engine, home: usize) -> Option<WaitOutcome<Arrival>> {
        let member = &self.members[home];
        engine.find((member.wait_target(), self.exchange.as_ref()), |engine| self.take(engine, home))
    }

    /// Takes an arrival from an endpoint other than `home` where no thread waits for it.
    fn take_elsewhere(&self, home: usize, marked: u64) -> Option<Result<Arrival, RecvError>> {
        let members = |endpoint: usize| {
            let member = &self.members[endpoint];
            (&*member.shared, member.wait_target())
        };
        wait::take_elsewhere(members, home, marked, |engine, endpoint| self.take(engine, endpoint))
    }

    /// Waits for the outcome of a private call.
    ///
    /// # Errors
    /// The outcome did not arrive in time, the call does not exist (any more), or the socket or the host was
    /// shut down.
    pub fn recv_private(&self, id: u64, timeout: Option<Duration>) -> Result<Outcome, RecvError> {
        self.recv_private_while(id, timeout, || true)
    }

    /// Like [`recv_private`](Socket::recv_private), but waits only while `wanted` returns true, as in
    /// [`recv_while`](Socket::recv_while).
    ///
    /// # Errors
    /// Those of `recv_private`; also `TimedOut` if the outcome is no longer wanted.
    pub fn recv_private_while(
        &self,
        id: u64,
        timeout: Option<Duration>,
        wanted: impl Fn() -> bool,
    ) -> Result<Outcome, RecvError> {
        let member = self.member_of(id);
        let call = member.shared.lock().sockets.open[member.index].calls.get(&id).copied();
        let on = WaitTarget::Call(call.ok_or(RecvError::NoSuchCall { id })?);
        let until = timeout.map(|timeout| (member.shared.after(timeout), timeout.is_zero()));
        let outcome = self.wait(member, on, until, wanted, |engine| engine.take_private(member.index, id));
        outcome.unwrap_or(Err(RecvError::TimedOut))
    }

    /// Waits until the time `until.0` while `wanted` returns true. If `until.1` is true, checks only once.
    fn wait<T>(
        &self,
        member: &SocketShard,
        on: WaitTarget,
        until: Option<(Time, bool)>,
        wanted: impl Fn() -> bool,
        mut take: impl FnMut(&mut Engine) -> Option<T>,
    ) -> Option<T> {
        let shared = &member.shared;
        let mut engine = shared.lock();
        // Check for existing arrivals first: this thread may have been woken for one of them.
        let mut take = |engine: &mut Engine| match take(engine) {
            None => (!wanted()).then_some(None),
            taken => Some(taken),
        };
        if until.is_some_and(|(_, looks)| looks) && !engine.progress_drives_now() {
            if let Some(taken) = take(&mut engine) {
                let now = engine.driving.last_driven;
                engine.leave(now);
                return taken;
            }
            // Without this, a caller that always passes a zero timeout would never drive the network.
            engine.drive(shared.now());
        }
        wait::wait(shared, engine, on, until.map(|(until, _)| until), take).flatten()
    }

    /// Makes every thread that waits in [`recv_while`](Socket::recv_while) or
    /// [`recv_private_while`](Socket::recv_private_while) check whether it should still wait.
    pub fn recall(&self) {
        for SocketShard { shared, .. } in &self.members {
            shared.lock().waiting.wake_all();
        }
    }

    /// Returns whether [`recv`](Socket::recv) would return an arrival, or an error because the socket is
    /// closed. Runs none of the application's code.
    #[must_use]
    pub fn has_arrival(&self) -> bool {
        let mut members = self.members.iter();
        members.any(|member| member.shared.lock().peek(|engine| engine.has_arrival(member.index)))
    }

    /// Sets a waker, which may be called from any thread. It is called when something arrives for which no
    /// thread waits in [`recv`](Socket::recv). Calls may be spurious: the waker may be called more often than
    /// needed, and even after another thread has already taken the arrival.
    pub fn set_waker(&self, waker: Option<Waker>) {
        for member in &self.members {
            let mut engine = member.shared.lock();
            let replaced = std::mem::replace(&mut engine.sockets.open[member.index].waker, waker.clone());
            drop(engine);
            drop(replaced);
        }
    }

    /// Returns the number of message bytes that the host keeps because it is sending them or may have to
    /// resend them: requests until their outcome, responses until their clients have them. If there are
    /// several endpoints, this is the highest value of any endpoint.
    #[must_use]
    pub fn outgoing_bytes(&self) -> u64 {
        let bytes = |member: &SocketShard| member.shared.lock().buffers.outgoing_bytes();
        self.members.iter().map(bytes).max().unwrap_or(0)
    }

    /// Returns whether [`outgoing_bytes`](Socket::outgoing_bytes) is less than `below`. If not, `waker` is
    /// called once, from any thread, when that may have become true.
    #[must_use]
    pub fn has_room_or_wakes(&self, below: u64, waker: &Waker) -> bool {
        let full = |member: &&SocketShard| {
            let mut engine = member.shared.lock();
            let full = engine.buffers.outgoing_bytes() >= below;
            if full {
                engine.waiting.rooms.push((below, waker.clone()));
            }
            full
        };
        !self.members.iter().any(|member| full(&member))
    }

    /// Makes messages that arrive at this port from now on use memory that the application lends, if it has
    /// memory for them and they are not short. Packets are then received directly into that memory, and the
    /// message that the application receives is the memory that it [lent](MessageMemory::lend). `None`
    /// restores the default.
    pub fn set_memory(&self, memory: Option<Arc<dyn MessageMemory>>) {
        for member in &self.members {
            let memory = memory.clone();
            let mut engine = member.shared.lock();
            // If the socket is closed, another socket may already use its port number.
            let unused = match engine.sockets.open[member.index].closed {
                true => memory,
                false => engine.buffers.set_memory(self.number, memory),
            };
            drop(engine);
            drop(unused);
        }
    }

    /// Copies the requests and answers in this memory that are still to be sent, so that the host no longer
    /// reads the memory once this returns. This is for callers that cannot know how far a call got because a
    /// panic ended it.
    pub fn copy_messages_of(&self, memory: &[u8]) {
        let memory = memory.as_ptr_range();
        let memory = memory.start as usize..memory.end as usize;
        self.members.iter().for_each(|member| member.shared.lock().buffers.copy_outgoing_of(&memory));
    }

    /// Waits for threads that are still writing to [lent memory](MessageMemory) because they found, before
    /// this call, that it [is there](crate::kernel_api::Lender::is_there).
    pub fn await_writers(&self) {
        self.members.iter().for_each(|member| drop(member.shared.lock()));
    }

    /// Makes the host's background thread drive the network from now on, until a thread waits in
    /// [`recv`](Socket::recv). This is for a thread that is about to sleep in a place where only the waker
    /// can wake it. This function takes no locks and allocates no memory, so a signal handler may call it.
    ///
    /// A thread that is about to leave `recv` with its message still counts as a waiting thread. In that case
    /// the background thread starts driving one tick later, which is one millisecond, or up to ten on links
    /// below 100 Mbit/s.
    pub fn attend(&self) {
        self.members.iter().for_each(|member| member.shared.attend());
    }

    /// Aborts a call. The call then has no outcome or, if `tell` is true, the outcome
    /// [aborted](CallError::Aborted). Returns whether there was such a call. The host no longer reads the
    /// request's bytes when this returns.
    pub fn abort(&self, id: u64, tell: bool) -> bool {
        let SocketShard { shared, index } = self.member_of(id);
        let now = shared.now();
        let mut engine = shared.lock();
        let call = engine.sockets.open[*index].calls.get(&id).copied();
        if let Some(call) = call {
            engine.abort_socket_call(now, call, tell);
            engine.flush(now);
            engine.after_work(now);
        }
        call.is_some()
    }

    /// Returns the IDs of the calls whose outcome has not been taken.
    #[must_use]
    pub fn open_calls(&self) -> Vec<u64> {
        let ids = |member: &SocketShard| -> Vec<u64> {
            member.shared.lock().sockets.open[member.index].calls.keys().copied().collect()
        };
        self.members.iter().flat_map(ids).collect()
    }

    /// Returns the calls whose outcome has not been taken, in no particular order.
    #[must_use]
    pub fn calls(&self) -> Vec<CallInfo> {
        self.members.iter().flat_map(|member| member.shared.lock().socket_calls(member.index)).collect()
    }

    /// Returns the cookie of a call whose outcome has not been taken.
    #[must_use]
    pub fn cookie_of(&self, id: u64) -> Option<u64> {
        let member = self.member_of(id);
        let engine = member.shared.lock();
        let call = *engine.sockets.open[member.index].calls.get(&id)?;
        match &engine.calls.open.get(call)?.owner {
            CallOwner::Socket(owner) => Some(owner.cookie),
            _ => None,
        }
    }

    /// Returns the progress of this port's RPCs, including requests that are still arriving.
    #[must_use]
    pub fn rpcs(&self) -> Vec<RpcInfo> {
        let rpcs = |member: &SocketShard| -> Vec<RpcInfo> {
            member.shared.lock().endpoint.rpcs_at(self.number).collect()
        };
        self.members.iter().flat_map(rpcs).collect()
    }

    /// Aborts the socket's calls and drops the requests that no thread has taken. Waiting threads, and all
    /// later calls, get an error. Answers in flight are delivered. The host no longer reads memory lent to
    /// calls and answers when this returns.
    pub fn close(&self) {
        for SocketShard { shared, index } in &self.members {
            let now = shared.now();
            let mut engine = shared.lock();
            let (memory, lent) = engine.close_socket(now, *index);
            engine.after_work(now);
            drop(engine);
            drop(memory);
            for rpc in lent {
                // Take the lock for each RPC separately, so that other threads need not wait for all of them.
                let mut engine = shared.lock();
                engine.copy_lent_reply(rpc);
            }
        }
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("port", &self.number).finish_non_exhaustive()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.close();
        for SocketShard { shared, index } in &self.members {
            let mut engine = shared.lock();
            let state = engine.sockets.open.remove(*index);
            if let Some(server) = state.server.and_then(|server| engine.requests.ports.get_mut(server)) {
                server.socket = None;
                server.abandoned = true;
            }
            drop(engine);
            drop(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use homa_proto::DoneReason;

    use crate::runtime::socket_outcome::ReturnedReply;

    use super::*;

    const LENGTH: usize = 200_000;

    fn host() -> Host {
        let bind = SocketAddr::from(([127, 0, 0, 1], 0));
        Host::builder().address(bind).bind().unwrap()
    }

    /// Counts only the entries of the message buffers: the host reads a message only through its entry.
    fn bytes_read(socket: &Socket) -> u64 {
        socket.members[0].shared.lock().buffers.outgoing_bytes()
    }

    #[test]
    fn nobody_reads_a_request_whose_call_is_over() {
        let (silent, host) = (host(), host());
        let server = silent.server(9).unwrap();
        let to = ServerAddr::new(silent.local_addr(), 9);
        let socket = host.socket(None).unwrap();
        let request = Bytes::from(vec![1; LENGTH]);
        for tell in [false, true] {
            let id = socket.start(to, request.clone(), 0, false).unwrap();
            assert_eq!(bytes_read(&socket), LENGTH as u64);
            assert!(socket.abort(id, tell));
            assert_eq!(bytes_read(&socket), 0);
        }
        assert!(matches!(socket.recv(None), Ok(Arrival::Outcome(_))));
        socket.start_timeout(to, request.clone(), 0, Duration::from_micros(1)).unwrap();
        assert!(matches!(socket.recv(None), Ok(Arrival::Outcome(_))));
        assert_eq!(bytes_read(&socket), 0);
        let id = socket.start(to, Bytes::from(vec![2; LENGTH]), 0, true).unwrap();
        loop {
            // On a slow machine a call that was aborted may have arrived whole.
            let rpc = server.recv().wait().unwrap();
            if rpc.payload()[0] == 2 {
                rpc.reply("well").unwrap();
                break;
            }
        }
        assert!(socket.recv_private(id, None).unwrap().result.is_ok());
        assert_eq!(bytes_read(&socket), 0);
        socket.start(to, request, 0, false).unwrap();
        socket.close();
        assert_eq!(bytes_read(&socket), 0);
    }

    #[test]
    fn bytes_lent_to_an_answer_are_returned_or_copied() {
        let (there, host) = (host(), host());
        let server = there.socket(Some(9)).unwrap();
        let to = ServerAddr::new(there.local_addr(), 9);
        let client = host.socket(None).unwrap();
        let answer = Bytes::from(vec![1; LENGTH]);
        let start = |cookie| client.start(to, Bytes::from_static(b"?"), cookie, false).unwrap();
        let request = || match server.recv(None) {
            Ok(Arrival::Request { rpc, id, client_port }) => (rpc, id, client_port),
            _ => panic!("there is a request"),
        };
        start(0);
        let (rpc, id, client_port) = request();
        let peer = rpc.peer();
        server.reply_lent(rpc, answer.clone(), 7).unwrap();
        let Ok(Arrival::Outcome(outcome)) = client.recv(None) else { panic!("it was answered") };
        assert_eq!(outcome.result, Ok(answer.clone()));
        let Ok(Arrival::ReturnedReply(returned)) = server.recv(None) else { panic!("it was lent") };
        assert_eq!(returned, ReturnedReply { id, cookie: 7, client: peer, client_port, result: Ok(()) });
        assert_eq!(bytes_read(&server), 0);

        // The client falls silent.
        start(1);
        let (rpc, ..) = request();
        let key = rpc.key();
        server.reply_lent(rpc, answer.clone(), 8).unwrap();
        server.members[0].shared.lock().return_lent(key, DoneReason::ClientSilent);
        let Ok(Arrival::ReturnedReply(returned)) = server.recv(None) else { panic!("it was lent") };
        assert_eq!((returned.cookie, returned.result), (8, Err(ReplyError::ClientGone { peer })));
        assert!(matches!(client.recv(None), Ok(Arrival::Outcome(_))));

        // The socket is closed before the client has the whole answer.
        start(2);
        start(3);
        let (rpc, ..) = request();
        let (late, ..) = request();
        let engine = client.members[0].shared.lock();
        server.reply_lent(rpc, answer.clone(), 9).unwrap();
        assert_eq!(server.members[0].shared.lock().sockets.lent_replies.len(), 1);
        server.close();
        assert!(answer.is_unique(), "what is sent from now on is a copy");
        assert_eq!(bytes_read(&server), LENGTH as u64);
        assert_eq!(server.reply_lent(late, answer.clone(), 10), Err(ReplyError::Closed));
        assert!(server.members[0].shared.lock().sockets.lent_replies.is_empty());
        drop(engine);
        for _ in 0..2 {
            let Ok(Arrival::Outcome(outcome)) = client.recv(None) else { panic!("it has an end") };
            let expected = if outcome.cookie == 2 { Ok(answer.clone()) } else { outcome.result.clone() };
            assert_eq!(outcome.result, expected);
            assert_eq!(outcome.result.is_ok(), outcome.cookie == 2);
        }
    }

    #[test]
    fn messages_whose_memory_is_taken_back_are_sent_from_a_copy() {
        let (there, host) = (host(), host());
        let server = there.socket(Some(9)).unwrap();
        let to = ServerAddr::new(there.local_addr(), 9);
        let client = host.socket(None).unwrap();
        let memory = Bytes::from(vec![3; 2 * LENGTH]);
        let other = Bytes::from(vec![4; LENGTH]);
        // Only the first packets are sent while the server's host is locked.
        let engine = server.members[0].shared.lock();
        client.start(to, memory.slice(LENGTH..), 1, false).unwrap();
        client.start(to, other.clone(), 2, false).unwrap();
        client.copy_messages_of(&memory);
        assert!(memory.is_unique() && !other.is_unique());
        drop(engine);
        for _ in 0..2 {
            let Ok(Arrival::Request { mut rpc, .. }) = server.recv(None) else {
                panic!("there is a request")
            };
            let request = rpc.take_payload();
            assert!(request == other || request == memory.slice(..LENGTH));
            rpc.reply("well").unwrap();
        }
    }

    /// Records on drop whether its host's lock is free.
    struct CallOwner {
        shared: Arc<SharedEngine>,
        free: Arc<Mutex<Option<bool>>>,
    }

    impl AsRef<[u8]> for CallOwner {
        fn as_ref(&self) -> &[u8] {
            &[7; LENGTH]
        }
    }

    impl Drop for CallOwner {
        fn drop(&mut self) {
            // Other threads hold the lock briefly.
            let mut tries = 0..5_000;
            let is_free = tries.any(|_| {
                let is_free = self.shared.lock_if_free().is_some();
                if !is_free {
                    std::thread::sleep(Duration::from_millis(1));
                }
                is_free
            });
            *self.free.lock().unwrap() = Some(is_free);
        }
    }

    #[test]
    fn bytes_that_are_taken_back_end_where_nothing_is_locked() {
        let (there, host) = (host(), host());
        let _server = there.socket(Some(9)).unwrap();
        let to = ServerAddr::new(there.local_addr(), 9);
        let client = host.socket(None).unwrap();
        let free = Arc::default();
        let shared = Arc::clone(&client.members[0].shared);
        let request = Bytes::from_owner(CallOwner { shared, free: Arc::clone(&free) });
        let memory = request.as_ptr_range();
        client.start(to, request, 1, false).unwrap();
        let length = memory.end as usize - memory.start as usize;
        // SAFETY: `request` points to a constant.
        client.copy_messages_of(unsafe { std::slice::from_raw_parts(memory.start, length) });
        assert_eq!(*free.lock().unwrap(), Some(true));
    }

    #[test]
    fn a_request_that_was_given_up_a_moment_ago_is_passed_over() {
        let (there, host) = (host(), host());
        let server = there.socket(Some(9)).unwrap();
        let to = ServerAddr::new(there.local_addr(), 9);
        let client = host.socket(None).unwrap();
        client.start(to, Bytes::from_static(b"?"), 1, false).unwrap();
        while !server.has_arrival() {
            std::thread::yield_now();
        }
        // The endpoint has aborted the request, but the engine has not polled the event.
        let SocketShard { shared, .. } = &server.members[0];
        let mut engine = shared.lock();
        let rpc = engine.requests.ports.iter().find_map(|(_, port)| port.queue.front()).unwrap().rpc;
        engine.endpoint.abort(shared.now(), rpc);
        assert!(engine.endpoint.rpc_info(rpc).is_none());
        assert!(server.take(&mut engine, 0).is_none(), "and the lock is not asked for again");
    }
}
