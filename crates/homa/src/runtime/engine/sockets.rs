//! The engine's part of sockets: their calls, queued outcomes, and replies whose bytes are lent.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use homa_proto::{DoneReason, RpcKey, Time};

use super::{Engine, Phase};
use crate::observe::stages::Message;
use crate::payload::buffers::Role;
use crate::payload::deferred_copy::Outgoing;
use crate::payload::memory::MessageMemory;
use crate::runtime::calls::CallOwner;
use crate::runtime::requests::ServerPort;
use crate::runtime::socket_outcome::{CallInfo, Outcome, ReturnedReply};
use crate::runtime::sockets::{Deliverable, LentReply, SocketCall, SocketState};
use crate::runtime::wait_target::WaitTarget;
use crate::runtime::waiters::Wakeup;
use crate::tenancy::endpoint_group::exchange::ExchangeOffer;
use crate::tenancy::process_group::FIRST_CLIENT_PORT;
use crate::types::address::ServerAddr;
use crate::types::error::{CallError, HostError, RecvError, ReplyError};

impl Engine {
    /// Opens a socket at the server port `server`, or at a client port. `chosen` is a client port that the
    /// processes of this host have agreed on, or that the caller knows to be free. Returns the socket's index
    /// and its port.
    pub(crate) fn open_socket(
        &mut self,
        now: Time,
        chosen: Option<u16>,
        server: Option<usize>,
    ) -> Result<(usize, u16), HostError> {
        if self.phase != Phase::Open {
            return Err(HostError::Closed);
        }
        let port = match chosen {
            Some(port) if server.is_some() => port,
            Some(port) if self.tenancy.processes.is_some() => {
                self.open_shared_port(now, port, None).map(|()| port)?
            }
            Some(port) => self.endpoint.open_port(port).map(|()| port)?,
            None => self.endpoint.open_client_port()?,
        };
        let index = self.sockets.open.insert(SocketState {
            port,
            calls: HashMap::default(),
            over: VecDeque::new(),
            server,
            requests_first: false,
            closed: false,
            waker: None,
            offers: ExchangeOffer::default(),
        });
        if let Some(server) = server {
            self.requests.ports[server].socket = Some(index);
        }
        Ok((index, port))
    }

    /// Makes a socket with a client port accept requests like a socket with a server port. Returns the index
    /// of the server port that takes them.
    pub(crate) fn open_socket_server(&mut self, socket: usize) -> Result<usize, HostError> {
        let state = &mut self.sockets.open[socket];
        if state.closed || self.phase != Phase::Open {
            return Err(HostError::Closed);
        }
        let server = self.requests.ports.insert(ServerPort::new(state.port, Some(socket)));
        self.requests.port_index.insert(state.port, server);
        state.server = Some(server);
        Ok(server)
    }

    /// Starts a call of a socket. The caller must flush.
    pub(crate) fn start_socket_call(
        &mut self,
        (at, now): (u64, Time),
        from: (u16, bool),
        to: ServerAddr,
        request: Outgoing,
        owner: SocketCall,
    ) -> Result<u64, CallError> {
        let (socket, length, deadline) = (owner.socket, request.len(), owner.deadline);
        let call = self.start_call_from(now, from, to, request, CallOwner::Socket(owner), 0)?;
        let id = self.calls.open[call].traced.id;
        if let CallOwner::Socket(owner) = &mut self.calls.open[call].owner {
            owner.id = id;
        }
        self.sockets.open[socket].calls.insert(id, call);
        self.sockets.deadlines.extend(deadline.map(|(until, _)| (until, call)));
        self.note_call(at, call, length);
        Ok(id)
    }

    /// Returns whether taking from a socket would return an arrival, or an error because it is closed.
    pub(crate) fn has_arrival(&self, socket: usize) -> bool {
        self.sockets.open[socket].closed || self.phase != Phase::Open || self.arrivals(socket) > 0
    }

    /// Returns the number of requests, plus outcomes of calls that are not private, that can be taken from a
    /// socket.
    pub(crate) fn arrivals(&self, socket: usize) -> usize {
        self.sockets.open.get(socket).map_or(0, |state| {
            let server = state.server.and_then(|server| self.requests.ports.get(server));
            let over = if state.closed { 0 } else { state.over.len() };
            over + server.map_or(0, ServerPort::queue_len)
        })
    }

    /// Returns whether a server port belongs to a socket that takes no more requests, not even those that
    /// have already begun to arrive.
    pub(crate) fn refuses_requests(&self, server: usize) -> bool {
        let port = &self.requests.ports[server];
        let socket = port.socket.and_then(|socket| self.sockets.open.get(socket));
        port.abandoned || socket.is_some_and(|socket| socket.closed)
    }

    /// Takes the outcome of a private call, if the call has ended.
    pub(crate) fn take_private(&mut self, socket: usize, id: u64) -> Option<Result<Outcome, RecvError>> {
        let state = &self.sockets.open[socket];
        if state.closed || self.phase != Phase::Open {
            return Some(Err(RecvError::Closed));
        }
        let call = state.calls.get(&id).copied();
        match call.and_then(|call| self.calls.open.get(call)).map(|call| &call.owner) {
            Some(CallOwner::Socket(owner)) if owner.private => {
                owner.result.as_ref()?;
                self.take_outcome(call?).map(Ok)
            }
            _ => Some(Err(RecvError::NoSuchCall { id })),
        }
    }

    /// Takes the outcome of a call that has ended.
    pub(crate) fn take_outcome(&mut self, call: usize) -> Option<Outcome> {
        let entry = self.calls.open.try_remove(call)?;
        let CallOwner::Socket(SocketCall { socket, id, cookie, private, result: Some(result), .. }) =
            entry.owner
        else {
            unreachable!("what is over has a result, and stays its socket's until it is taken");
        };
        self.sockets.open[socket].calls.remove(&id);
        if private {
            self.waiting.wake_all_on(WaitTarget::Call(call));
        }
        if let Ok(response) = &result {
            self.note_app_receive(entry.traced, Message::Response, response.len());
        }
        Some(Outcome { id, cookie, to: entry.to, result })
    }

    /// Returns the calls of a socket whose outcome has not been taken.
    pub(crate) fn socket_calls(&self, socket: usize) -> Vec<CallInfo> {
        let info = |(&id, &call): (&u64, &usize)| {
            let entry = self.calls.open.get(call)?;
            let CallOwner::Socket(owner) = &entry.owner else { return None };
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
        self.sockets.open[socket].calls.iter().filter_map(info).collect()
    }

    /// Aborts the sockets' calls whose deadline has passed; returns whether there were any. The caller must
    /// flush.
    pub(crate) fn expire_calls(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some(&(until, call)) = self.sockets.deadlines.first()
            && until <= now
        {
            self.sockets.deadlines.pop_first();
            // The endpoint's event for this call follows; handling it replaces the result with `TimedOut`.
            self.endpoint.abort(now, self.calls.open[call].rpc);
            any = true;
        }
        any
    }

    /// Stores the result of a socket's call until it is taken.
    pub(crate) fn finish_socket_call(&mut self, call: usize, mut result: Result<Bytes, CallError>) {
        let Some(entry) = self.calls.open.get_mut(call) else { return };
        let CallOwner::Socket(owner) = &mut entry.owner else { return };
        if owner.result.is_some() {
            // The call was aborted after it had ended.
            return;
        }
        if let Some((until, timeout)) = owner.deadline
            && !self.sockets.deadlines.remove(&(until, call))
        {
            result = Err(CallError::TimedOut { to: entry.to, timeout });
        }
        owner.result = Some(result);
        if owner.private {
            self.waiting.note_ready(WaitTarget::Call(call));
            return;
        }
        let socket = owner.socket;
        self.sockets.open[socket].over.push_back(Deliverable::Call(call));
        self.waiting.note_ready(WaitTarget::Socket(socket));
    }

    /// Aborts a call. If `tell` is true, the call's outcome is `Aborted`, even if the call had already ended.
    pub(crate) fn abort_socket_call(&mut self, now: Time, call: usize, tell: bool) {
        if !tell {
            return self.forget_socket_call(now, call);
        }
        let Some(entry) = self.calls.open.get_mut(call) else { return };
        let (rpc, to) = (entry.rpc, entry.to);
        let CallOwner::Socket(owner) = &mut entry.owner else { return };
        if owner.result.is_some() {
            let before = owner.result.replace(Err(CallError::Aborted { to }));
            if let Some(Ok(response)) = before {
                self.buffers.free_later(response);
            }
            return;
        }
        self.endpoint.abort(now, rpc);
    }

    /// Aborts a call without an outcome. A thread that waits for the call finds that the call no longer
    /// exists.
    pub(crate) fn forget_socket_call(&mut self, now: Time, call: usize) {
        let Some(entry) = self.calls.open.get_mut(call) else { return };
        let (rpc, owner) = (entry.rpc, std::mem::replace(&mut entry.owner, CallOwner::Nobody));
        let CallOwner::Socket(SocketCall { socket, id, private, deadline, result, .. }) = owner else {
            entry.owner = owner;
            return;
        };
        if let Some((until, _)) = deadline {
            self.sockets.deadlines.remove(&(until, call));
        }
        let state = &mut self.sockets.open[socket];
        state.calls.remove(&id);
        match result {
            None => self.endpoint.abort(now, rpc),
            Some(result) => {
                state.over.retain(|over| !matches!(over, Deliverable::Call(other) if *other == call));
                self.calls.open.remove(call);
                if let Ok(response) = result {
                    self.buffers.free_later(response);
                }
            }
        }
        if private {
            self.waiting.wake_all_on(WaitTarget::Call(call));
        }
    }

    /// Accepts the response to a request of a socket. Once the host no longer reads the response's bytes, the
    /// socket gets the response's cookie. The caller must flush.
    pub(crate) fn answer_lent(
        &mut self,
        now: Time,
        (rpc, client): (RpcKey, SocketAddr),
        response: Bytes,
        (socket, cookie): (usize, u64),
    ) -> Result<(), ReplyError> {
        if self.sockets.open.get(socket).is_none_or(|state| state.closed) {
            self.give_up(now, rpc);
            return Err(ReplyError::Closed);
        }
        if let Role::Delivered { server } = self.buffers.role(rpc) {
            assert_eq!(
                self.requests.ports[server].socket,
                Some(socket),
                "the request came by another socket"
            );
        }
        let info = self.endpoint.rpc_info(rpc);
        self.answer(now, rpc, client, Outgoing::Whole(response))?;
        let (id, client_port) = info.map_or((0, 0), |info| (info.id, info.peer_port));
        self.sockets.lent_replies.insert(rpc, LentReply { socket, id, cookie, client, client_port });
        Ok(())
    }

    /// Returns the bytes of a response, which the host no longer reads, to the socket that lent them.
    pub(crate) fn return_lent(&mut self, rpc: RpcKey, reason: DoneReason) {
        let Some(LentReply { socket, id, cookie, client, client_port }) =
            self.sockets.lent_replies.remove(&rpc)
        else {
            return;
        };
        let result = match reason {
            DoneReason::Acknowledged => Ok(()),
            DoneReason::ClientGaveUp | DoneReason::ClientSilent | DoneReason::ClientRestarted => {
                Err(ReplyError::ClientGone { peer: client })
            }
            DoneReason::Aborted => Err(ReplyError::Closed),
        };
        let returned = ReturnedReply { id, cookie, client, client_port, result };
        if self.sockets.open[socket].closed {
            // The thread that closes the socket knows that all answers have been returned.
            return;
        }
        self.sockets.open[socket].over.push_back(Deliverable::ReturnedReply(returned));
        self.waiting.note_ready(WaitTarget::Socket(socket));
    }

    /// If the bytes of a response are still lent, copies them and sends the response from the copy, because
    /// closing the socket returns the bytes.
    pub(crate) fn copy_lent_reply(&mut self, rpc: RpcKey) {
        if self.sockets.lent_replies.remove(&rpc).is_some() {
            self.buffers.copy_outgoing(rpc);
        }
    }

    /// Closes a socket. Returns its lender of memory, which is the application's own code, and the lent
    /// answers that [must be copied](Engine::copy_lent_reply).
    pub(crate) fn close_socket(
        &mut self,
        now: Time,
        socket: usize,
    ) -> (Option<Arc<dyn MessageMemory>>, Vec<RpcKey>) {
        let lent = self.sockets.lent_replies.iter().filter(|(_, lent)| lent.socket == socket);
        let lent = lent.map(|(&rpc, _)| rpc).collect();
        let state = &mut self.sockets.open[socket];
        if std::mem::replace(&mut state.closed, true) {
            // Another thread may be closing the socket and may have copied only some of the replies so far.
            return (None, lent);
        }
        self.endpoint.accept_requests(state.port, false);
        let (port, server, waker) = (state.port, state.server, state.waker.take());
        let memory = self.buffers.set_memory(port, None);
        let calls: Vec<usize> = state.calls.values().copied().collect();
        for call in calls {
            self.forget_socket_call(now, call);
        }
        if port >= FIRST_CLIENT_PORT {
            self.endpoint.flush_acks(port); // ACK-13: no later request will carry them.
        }
        match server {
            // The server's last handle closes the port itself.
            Some(server) => self.refuse_queued(now, server),
            None => {
                self.flush(now);
                if self.phase != Phase::Closed {
                    self.close_port(now, port);
                }
            }
        }
        self.flush(now);
        self.waiting.wake_all();
        self.waiting.wakes.extend(waker.map(Wakeup::Task));
        (memory, lent)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::runtime::engine::testing::engine;

    #[test]
    fn messages_that_another_follows_are_sent_with_it() {
        let (mut client, silent) = (engine(), engine());
        let (socket, port) = client.open_socket(Time::ZERO, None, None).unwrap();
        let to = ServerAddr::new(silent.driver.local_addr(), 9);
        for more in [true, true, false] {
            assert_eq!(client.driver.stats().packets_out, 0);
            let owner = SocketCall { socket, id: 0, cookie: 0, private: false, deadline: None, result: None };
            let request = Outgoing::Whole(Bytes::from_static(b"?"));
            client.start_socket_call((0, Time::ZERO), (port, false), to, request, owner).unwrap();
            client.send_or_hold(Time::ZERO, more);
        }
        let stats = client.driver.stats();
        assert_eq!((stats.packets_out, stats.send_calls), (3, 1));
    }

    #[test]
    fn a_host_wakes_for_a_deadline() {
        let (mut client, silent) = (engine(), engine());
        let (socket, port) = client.open_socket(Time::ZERO, None, None).unwrap();
        let to = ServerAddr::new(silent.driver.local_addr(), 9);
        let (until, deadline) =
            (Time::from_ns(1_000), Some((Time::from_ns(1_000), Duration::from_micros(1))));
        let owner = SocketCall { socket, id: 2, cookie: 0, private: false, deadline, result: None };
        let request = Outgoing::Whole(Bytes::from_static(b"?"));
        let owner = CallOwner::Socket(owner);
        let call = client.start_call_from(Time::ZERO, (port, false), to, request, owner, 0).unwrap();
        client.sockets.deadlines.insert((until, call));
        client.flush(Time::ZERO);
        assert_eq!(client.next_wake(Time::ZERO), Some(until));
        client.drive(Time::from_ns(999));
        assert_eq!(client.arrivals(socket), 0);
        client.drive(until);
        assert!(client.arrivals(socket) == 1 && client.sockets.deadlines.is_empty());
        assert_ne!(client.next_wake(until), Some(until));
    }
}
