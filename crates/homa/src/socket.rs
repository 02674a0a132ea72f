//! A port that calls and answers, and whose responses and requests wait in one place: what a socket of Linux Homa is.
//!
//! A call is known by its id on the wire. Its outcome is taken by whoever looks for anything, in the order in which calls end, or, where
//! the call is private, by who names it. A [`Waker`] tells of what nobody waits for in [`Socket::recv`], so that a descriptor can
//! be made readable for it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::FixedState;
use homa_proto::{RpcInfo, Time};

use crate::address::ServerAddr;
use crate::copying::{self, Outgoing};
use crate::core::{Core, Life, Owner};
use crate::error::{CallError, HostError, RecvError, ReplyError};
use crate::host::Host;
use crate::memory::MessageMemory;
use crate::pool::{self, Pool};
use crate::segment::FIRST_CLIENT_PORT;
use crate::server::{Rpc, Server};
use crate::shared::Shared;
use crate::stages::Message;
use crate::wait::{self, WaitOn};

/// What a call of a [`Socket`] came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What [`Socket::start`] returned.
    pub id: u64,
    /// What the caller gave to [`Socket::start`].
    pub cookie: u64,
    /// The server.
    pub to: ServerAddr,
    /// The response, or why there is none.
    pub result: Result<Bytes, CallError>,
}

/// A call of a [`Socket`] whose outcome nobody has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallInfo {
    /// What [`Socket::start`] returned.
    pub id: u64,
    /// What the caller gave to [`Socket::start`].
    pub cookie: u64,
    /// The server.
    pub to: ServerAddr,
    /// Its outcome is for who names it.
    pub private: bool,
    /// Bytes of the request.
    pub request_bytes: u32,
    /// Bytes of the response, where the call is over; 0 where it ended in an error.
    pub over: Option<usize>,
}

/// What comes to a [`Socket`].
pub enum Arrival {
    /// A request, to be answered.
    Request {
        /// What answers it.
        rpc: Rpc,
        /// The RPC's id as the server has it, which is odd.
        id: u64,
        /// The Homa port of the client.
        client_port: u16,
    },
    /// The end of a call that is not private.
    Outcome(Outcome),
}

/// The core's part of a socket.
pub(crate) struct SocketState {
    port: u16,
    /// Calls whose outcome nobody has taken, by id.
    calls: HashMap<u64, usize, FixedState>,
    /// Those that are over and not private, in the order of their ends.
    over: VecDeque<usize>,
    /// Where requests wait.
    server: Option<usize>,
    /// Requests were looked at first the last time.
    requests_first: bool,
    /// Requests are turned away.
    refuses: bool,
    closed: bool,
    /// Told of what comes while nobody waits for it.
    pub(crate) waker: Option<Waker>,
}

/// A socket's part of a call.
pub(crate) struct SocketCall {
    socket: usize,
    id: u64,
    cookie: u64,
    private: bool,
    /// When it is given up, and the time that it was given.
    deadline: Option<(Time, Duration)>,
    result: Option<Result<Bytes, CallError>>,
}

/// A port that calls and answers, and whose responses and requests wait in one place: what a socket of Linux Homa is. A call is known by its id on
/// the wire. Dropping it [closes](Socket::close) it.
pub struct Socket {
    shared: Arc<Shared>,
    index: usize,
    number: u16,
    server: Option<Server>,
    /// Memory for outgoing messages.
    pool: Mutex<Pool>,
}

impl Host {
    /// Opens a socket on a port: a client port that is free where it is `None`; else 1 to 32767, for which requests are accepted, or
    /// a higher one, for calls alone. Of several endpoints a free client port lives in one, dealt out in turn; others they cannot have.
    ///
    /// # Errors
    /// See [`HostError`].
    pub fn socket(&self, port: Option<u16>) -> Result<Socket, HostError> {
        let count = self.endpoints.members.len();
        if port.is_some() && count > 1 {
            return Err(HostError::SeveralEndpoints { count });
        }
        let shared = Arc::clone(self.endpoints.deal_client());
        self.start_progress()?;
        let server = match port {
            Some(port) if port < FIRST_CLIENT_PORT => Some(self.server(port)?),
            _ => None,
        };
        let chosen = match &server {
            Some(server) => Some(server.port()),
            None => self.choose_client_port()?.or(port),
        };
        let now = shared.now();
        let (index, number) = shared.lock().open_socket(now, chosen, server.as_ref().map(Server::index))?;
        Ok(Socket { shared, index, number, server, pool: Mutex::default() })
    }
}

impl Socket {
    /// The Homa port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.number
    }

    /// A message of these pieces, one behind the other, copied into memory that is used again once the message is dropped: as
    /// outgoing messages are when their peer has them.
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

    /// Starts a call, and returns its id, which is even. What may be sent of the request at once is sent before this returns. The outcome comes
    /// by [`recv`](Socket::recv), or where the call is `private` by [`recv_private`](Socket::recv_private), with `cookie`.
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
        self.start_until(to, request, cookie, private, None)
    }

    /// Starts a call that is not private, as [`start`](Socket::start) does, and gives it up `deadline` from now, or up to a millisecond later: its outcome
    /// is [`CallError::DeadlineExceeded`] then.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn start_deadline(
        &self,
        to: ServerAddr,
        request: Bytes,
        cookie: u64,
        deadline: Duration,
    ) -> Result<u64, CallError> {
        self.start_until(to, request, cookie, false, Some(deadline))
    }

    fn start_until(
        &self,
        to: ServerAddr,
        request: Bytes,
        cookie: u64,
        private: bool,
        deadline: Option<Duration>,
    ) -> Result<u64, CallError> {
        let at = self.shared.stamp();
        let now = self.shared.now();
        let mut core = self.shared.lock_since(at);
        if core.sockets[self.index].closed {
            return Err(CallError::Closed);
        }
        let deadline = deadline.map(|deadline| (self.shared.after(deadline), deadline));
        let owner = SocketCall { socket: self.index, id: 0, cookie, private, deadline, result: None };
        let from = (self.number, private);
        let id = core.start_socket_call((at, now), from, to, Outgoing::Whole(request), owner)?;
        core.after_work(now);
        Ok(id)
    }

    /// As [`start`](Socket::start), with a copy of these pieces, one behind the other, which are the caller's again when this returns.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn start_pieces(
        &self,
        to: ServerAddr,
        pieces: &[&[u8]],
        cookie: u64,
        private: bool,
    ) -> Result<u64, CallError> {
        if !copying::is_worth_it(&self.shared, pieces) {
            return self.start(to, self.message(pieces), cookie, private);
        }
        let at = self.shared.stamp();
        let now = self.shared.now();
        let mut core = self.shared.lock_since(at);
        if core.sockets[self.index].closed {
            return Err(CallError::Closed);
        }
        let owner = SocketCall { socket: self.index, id: 0, cookie, private, deadline: None, result: None };
        let from = (self.number, private);
        let id = copying::copy_and_send(&self.shared, &mut core, pieces, |core, request| {
            core.start_socket_call((at, now), from, to, request, owner)
        });
        core.after_work(self.shared.now());
        id
    }

    /// As [`Rpc::reply`], with a copy of these pieces, one behind the other, which are the caller's again when this returns.
    ///
    /// # Errors
    /// See [`ReplyError`]; the RPC is over then.
    pub fn reply_pieces(&self, rpc: Rpc, pieces: &[&[u8]]) -> Result<(), ReplyError> {
        if !copying::is_worth_it(rpc.shared(), pieces) {
            return rpc.reply(self.message(pieces));
        }
        rpc.reply_while_copying(pieces)
    }

    /// Waits for the next request or outcome of a call that is not private: for ever, or for at most `timeout`; zero only looks.
    ///
    /// # Errors
    /// None came, or the socket or the host was shut down.
    pub fn recv(&self, timeout: Option<Duration>) -> Result<Arrival, RecvError> {
        let on = WaitOn::Socket(self.index);
        self.wait(on, timeout, |core| core.take_arrival(self.index, self.server.as_ref()))
    }

    /// Waits for the outcome of a private call.
    ///
    /// # Errors
    /// It did not come, or there is no such call (any more), or the socket or the host was shut down.
    pub fn recv_private(&self, id: u64, timeout: Option<Duration>) -> Result<Outcome, RecvError> {
        let call = self.shared.lock().sockets[self.index].calls.get(&id).copied();
        let on = WaitOn::Call(call.ok_or(RecvError::NoSuchCall { id })?);
        self.wait(on, timeout, |core| core.take_private(self.index, id))
    }

    fn wait<T>(
        &self,
        on: WaitOn,
        timeout: Option<Duration>,
        mut take: impl FnMut(&mut Core) -> Option<Result<T, RecvError>>,
    ) -> Result<T, RecvError> {
        let shared = &self.shared;
        let deadline = timeout.map(|timeout| shared.after(timeout));
        let mut core = shared.lock();
        if timeout == Some(Duration::ZERO) && !core.progress_drives_now() {
            if let Some(taken) = take(&mut core) {
                let now = core.last_driven;
                core.leave(now);
                return taken;
            }
            // Otherwise a caller that only ever looks would never drive.
            core.drive(shared.now());
        }
        wait::wait(shared, core, on, deadline, take).unwrap_or(Err(RecvError::TimedOut))
    }

    /// Whether [`recv`](Socket::recv) would find something, or that the socket is closed.
    #[must_use]
    pub fn has_arrival(&self) -> bool {
        let core = self.shared.lock();
        core.sockets[self.index].closed || core.life != Life::Open || core.has_arrival(self.index)
    }

    /// Has `waker` called, from any thread, when something comes that nobody waits for in [`recv`](Socket::recv). It may be called too
    /// often, and when somebody else has taken it already.
    pub fn set_waker(&self, waker: Option<Waker>) {
        let replaced = std::mem::replace(&mut self.shared.lock().sockets[self.index].waker, waker);
        drop(replaced);
    }

    /// Has messages that come to this port from now on lie in memory of the application's own, where it has some for them and they are not short:
    /// the packets are then received there, and what is handed out is the memory that was [lent](MessageMemory::lend). `None`: as before.
    pub fn set_memory(&self, memory: Option<Arc<dyn MessageMemory>>) {
        let mut core = self.shared.lock();
        // Of one that is closed, the number may be another's.
        let unused = match core.sockets[self.index].closed {
            true => memory,
            false => core.buffers.set_memory(self.number, memory),
        };
        drop(core);
        drop(unused);
    }

    /// Has the host's background thread drive the network from now on, until somebody waits in [`recv`](Socket::recv): for a thread that is
    /// about to sleep where only the waker reaches it.
    pub fn attend(&self) {
        let mut core = self.shared.lock();
        core.progress_must_attend();
    }

    /// Gives up a call: it has no outcome, or with `tell` that it was [aborted](CallError::Aborted). Whether there was such a call.
    pub fn abort(&self, id: u64, tell: bool) -> bool {
        let now = self.shared.now();
        let mut core = self.shared.lock();
        let call = core.sockets[self.index].calls.get(&id).copied();
        if let Some(call) = call {
            core.abort_socket_call(now, call, tell);
            core.flush(now);
            core.after_work(now);
        }
        call.is_some()
    }

    /// Ids of the calls whose outcome nobody has taken.
    #[must_use]
    pub fn open_calls(&self) -> Vec<u64> {
        self.shared.lock().sockets[self.index].calls.keys().copied().collect()
    }

    /// The calls whose outcome nobody has taken, in no particular order.
    #[must_use]
    pub fn calls(&self) -> Vec<CallInfo> {
        let core = self.shared.lock();
        let told = |(&id, &call): (&u64, &usize)| {
            let entry = core.calls.get(call)?;
            let Owner::Socket(owner) = &entry.owner else { return None };
            let response = owner.result.as_ref().map(|result| result.as_ref().map_or(0, Bytes::len));
            Some(CallInfo {
                id,
                cookie: owner.cookie,
                to: entry.to,
                private: owner.private,
                request_bytes: entry.request_bytes,
                over: response,
            })
        };
        core.sockets[self.index].calls.iter().filter_map(told).collect()
    }

    /// The cookie of a call whose outcome nobody has taken.
    #[must_use]
    pub fn cookie_of(&self, id: u64) -> Option<u64> {
        let core = self.shared.lock();
        let call = *core.sockets[self.index].calls.get(&id)?;
        match &core.calls.get(call)?.owner {
            Owner::Socket(owner) => Some(owner.cookie),
            _ => None,
        }
    }

    /// How far the RPCs of this port have come, requests that arrive included.
    #[must_use]
    pub fn rpcs(&self) -> Vec<RpcInfo> {
        self.shared.lock().endpoint.rpcs_at(self.number).collect()
    }

    /// Whether requests are accepted, on a port that can have any: what comes from now on while they are not is given up.
    pub fn accept_requests(&self, accept: bool) {
        self.shared.lock().sockets[self.index].refuses = !accept;
    }

    /// Gives up its calls and the requests that nobody took. Whoever waits here, and all later calls, get an error.
    pub fn close(&self) {
        let now = self.shared.now();
        let mut core = self.shared.lock();
        let memory = core.close_socket(now, self.index);
        core.after_work(now);
        drop(core);
        drop(memory);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.close();
        let mut core = self.shared.lock();
        let state = core.sockets.remove(self.index);
        if let Some(server) = state.server.and_then(|server| core.servers.get_mut(server)) {
            server.socket = None;
        }
        drop(core);
        drop(state);
    }
}

impl Core {
    /// Opens a socket at the server port that `server` is, or at a client port: `chosen`, where the processes of this host have agreed on
    /// it or the caller knows it is free. Returns index and port.
    fn open_socket(
        &mut self,
        now: Time,
        chosen: Option<u16>,
        server: Option<usize>,
    ) -> Result<(usize, u16), HostError> {
        if self.life != Life::Open {
            return Err(HostError::Closed);
        }
        let port = match chosen {
            Some(port) if server.is_some() => port,
            Some(port) if self.share.is_some() => self.open_shared_port(now, port, None).map(|()| port)?,
            Some(port) => self.endpoint.open_port(port).map(|()| port)?,
            None => self.endpoint.open_client_port()?,
        };
        let index = self.sockets.insert(SocketState {
            port,
            calls: HashMap::default(),
            over: VecDeque::new(),
            server,
            requests_first: false,
            refuses: false,
            closed: false,
            waker: None,
        });
        if let Some(server) = server {
            self.servers[server].socket = Some(index);
        }
        Ok((index, port))
    }

    /// Starts a call of a socket, and sends what may be sent at once.
    fn start_socket_call(
        &mut self,
        (at, now): (u64, Time),
        from: (u16, bool),
        to: ServerAddr,
        request: Outgoing,
        owner: SocketCall,
    ) -> Result<u64, CallError> {
        let (socket, length, deadline) = (owner.socket, request.len(), owner.deadline);
        let call = self.start_call_from(now, from, to, request, Owner::Socket(owner), 0)?;
        let id = self.calls[call].traced.id;
        if let Owner::Socket(owner) = &mut self.calls[call].owner {
            owner.id = id;
        }
        self.sockets[socket].calls.insert(id, call);
        self.deadlines.extend(deadline.map(|(until, _)| (until, call)));
        self.note_call(at, call, length);
        self.flush(now);
        Ok(id)
    }

    /// Whether a socket has a request, or the outcome of a call that is not private.
    pub(crate) fn has_arrival(&self, socket: usize) -> bool {
        self.sockets.get(socket).is_some_and(|state| {
            let server = state.server.and_then(|server| self.servers.get(server));
            !state.over.is_empty() || server.is_some_and(|server| Core::queue_len(server) > 0)
        })
    }

    /// Whether a server port is a socket's that wants no requests.
    pub(crate) fn refuses_requests(&self, server: usize) -> bool {
        let socket = self.servers[server].socket.and_then(|socket| self.sockets.get(socket));
        socket.is_some_and(|socket| socket.refuses)
    }

    /// Takes what comes next, requests and outcomes in turn where there are both.
    fn take_arrival(&mut self, socket: usize, server: Option<&Server>) -> Option<Result<Arrival, RecvError>> {
        let state = &mut self.sockets[socket];
        if state.closed || self.life != Life::Open {
            return Some(Err(RecvError::Closed));
        }
        state.requests_first = !state.requests_first;
        let requests_first = state.requests_first;
        if requests_first && let Some(request) = self.take_socket_request(server) {
            return Some(Ok(request));
        }
        if let Some(call) = self.sockets[socket].over.pop_front() {
            return self.take_outcome(call).map(|outcome| Ok(Arrival::Outcome(outcome)));
        }
        self.take_socket_request(server.filter(|_| !requests_first)).map(Ok)
    }

    fn take_socket_request(&mut self, server: Option<&Server>) -> Option<Arrival> {
        let rpc = server?.take(self)?;
        let RpcInfo { id, peer_port: client_port, .. } = self.endpoint.rpc_info(rpc.key())?;
        Some(Arrival::Request { rpc, id, client_port })
    }

    /// Takes the outcome of a private call, if it is over.
    fn take_private(&mut self, socket: usize, id: u64) -> Option<Result<Outcome, RecvError>> {
        let state = &self.sockets[socket];
        if state.closed || self.life != Life::Open {
            return Some(Err(RecvError::Closed));
        }
        let call = state.calls.get(&id).copied();
        match call.and_then(|call| self.calls.get(call)).map(|call| &call.owner) {
            Some(Owner::Socket(owner)) if owner.private => {
                owner.result.as_ref()?;
                self.take_outcome(call?).map(Ok)
            }
            _ => Some(Err(RecvError::NoSuchCall { id })),
        }
    }

    /// Takes the outcome of a call that is over.
    fn take_outcome(&mut self, call: usize) -> Option<Outcome> {
        let entry = self.calls.try_remove(call)?;
        let Owner::Socket(SocketCall { socket, id, cookie, result: Some(result), .. }) = entry.owner else {
            unreachable!("what is over has a result, and stays its socket's until it is taken");
        };
        self.sockets[socket].calls.remove(&id);
        if let Ok(response) = &result {
            self.note_app_receive(entry.traced, Message::Response, response.len());
        }
        Some(Outcome { id, cookie, to: entry.to, result })
    }

    /// Gives up the sockets' calls whose deadline has passed; whether there were any. The caller flushes.
    pub(crate) fn expire_calls(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some(&(until, call)) = self.deadlines.first()
            && until <= now
        {
            self.deadlines.pop_first();
            // The endpoint's word on it follows, and becomes that of the deadline.
            self.endpoint.abort(now, self.calls[call].rpc);
            any = true;
        }
        any
    }

    /// Keeps the result of a socket's call until it is taken.
    pub(crate) fn finish_socket_call(&mut self, call: usize, mut result: Result<Bytes, CallError>) {
        let Some(entry) = self.calls.get_mut(call) else { return };
        let Owner::Socket(owner) = &mut entry.owner else { return };
        if owner.result.is_some() {
            // It was aborted when it was over.
            return;
        }
        if let Some((until, deadline)) = owner.deadline
            && !self.deadlines.remove(&(until, call))
        {
            result = Err(CallError::DeadlineExceeded { to: entry.to, deadline });
        }
        owner.result = Some(result);
        if owner.private {
            self.waiting.note_ready(WaitOn::Call(call));
            return;
        }
        let socket = owner.socket;
        self.sockets[socket].over.push_back(call);
        self.waiting.note_ready(WaitOn::Socket(socket));
    }

    /// Gives up a call. With `tell` its outcome is that, even where it was over.
    fn abort_socket_call(&mut self, now: Time, call: usize, tell: bool) {
        if !tell {
            return self.forget_socket_call(now, call);
        }
        let Some(entry) = self.calls.get_mut(call) else { return };
        let (rpc, to) = (entry.rpc, entry.to);
        let Owner::Socket(owner) = &mut entry.owner else { return };
        if owner.result.is_some() {
            let before = owner.result.replace(Err(CallError::Aborted { to }));
            if let Some(Ok(response)) = before {
                self.buffers.bury(response);
            }
            return;
        }
        self.endpoint.abort(now, rpc);
    }

    /// Gives up a call without an outcome. Whoever waits for it finds it gone.
    pub(crate) fn forget_socket_call(&mut self, now: Time, call: usize) {
        let Some(entry) = self.calls.get_mut(call) else { return };
        let (rpc, owner) = (entry.rpc, std::mem::replace(&mut entry.owner, Owner::Nobody));
        let Owner::Socket(SocketCall { socket, id, private, deadline, result, .. }) = owner else {
            entry.owner = owner;
            return;
        };
        if let Some((until, _)) = deadline {
            self.deadlines.remove(&(until, call));
        }
        let state = &mut self.sockets[socket];
        state.calls.remove(&id);
        match result {
            None => self.endpoint.abort(now, rpc),
            Some(result) => {
                state.over.retain(|over| *over != call);
                self.calls.remove(call);
                if let Ok(response) = result {
                    self.buffers.bury(response);
                }
            }
        }
        if private {
            self.waiting.note_ready(WaitOn::Call(call));
        }
    }

    /// Closes a socket; returns who lent it memory, which is the application's own code.
    fn close_socket(&mut self, now: Time, socket: usize) -> Option<Arc<dyn MessageMemory>> {
        let state = &mut self.sockets[socket];
        if std::mem::replace(&mut state.closed, true) {
            return None;
        }
        state.refuses = true;
        let (port, server, waker) = (state.port, state.server, state.waker.take());
        let memory = self.buffers.set_memory(port, None);
        let calls: Vec<usize> = state.calls.values().copied().collect();
        for call in calls {
            self.forget_socket_call(now, call);
        }
        match server {
            // Its last handle closes the port itself.
            Some(server) => self.refuse_queued(now, server),
            None => {
                self.endpoint.flush_acks(port); // ACK-13
                self.flush(now);
                if self.life != Life::Closed {
                    self.close_port(now, port);
                }
            }
        }
        self.flush(now);
        self.waiting.wake_all();
        self.waiting.wakes.extend(waker.map(wait::Wake::Task));
        memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::tests::core;

    #[test]
    fn a_host_wakes_for_a_deadline() {
        let (mut client, silent) = (core(), core());
        let (socket, port) = client.open_socket(Time::ZERO, None, None).unwrap();
        let to = ServerAddr::new(silent.driver.local_addr(), 9);
        let (until, deadline) =
            (Time::from_ns(1_000), Some((Time::from_ns(1_000), Duration::from_micros(1))));
        let owner = SocketCall { socket, id: 2, cookie: 0, private: false, deadline, result: None };
        let request = Outgoing::Whole(Bytes::from_static(b"?"));
        let owner = Owner::Socket(owner);
        let call = client.start_call_from(Time::ZERO, (port, false), to, request, owner, 0).unwrap();
        client.deadlines.insert((until, call));
        client.flush(Time::ZERO);
        assert_eq!(client.next_wake(Time::ZERO), Some(until));
        client.drive(Time::from_ns(999));
        assert!(!client.has_arrival(socket));
        client.drive(until);
        assert!(client.has_arrival(socket) && client.deadlines.is_empty());
        assert_ne!(client.next_wake(until), Some(until));
    }
}
