//! The state of an endpoint behind its lock: the endpoint, its packet path, and the queues between them and
//! the application.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::task::Waker;

use bytes::Bytes;
use foldhash::fast::FixedState;
use homa_driver::{Driver, RxBurst};
use homa_proto::wire::HeaderBuf;
use homa_proto::{CallOptions, DoneReason, Endpoint, RpcKey, Time, TransmitRun};
use homa_trace::Ticks;
use slab::Slab;

use crate::api::address::ServerAddr;
use crate::api::early::{EarlyDelivery, PartialRequest, Reading};
use crate::api::error::{CallError, HostError, ReplyError};
use crate::kernel_api::socket::state::{LentReply, SocketCall, SocketState};
use crate::observe::freeze::Freezer;
use crate::observe::metrics::HostCounts;
use crate::observe::stages::{Message, TraceKey};
use crate::observe::times::TimesBySize;
use crate::payload::buffers::{Buffers, Role};
use crate::payload::deferred_copy::Outgoing;
use crate::runtime::async_driver::AsyncDriver;
use crate::runtime::bundles::Datagrams;
use crate::runtime::clock::HostClock;
use crate::runtime::progress::Progress;
use crate::runtime::shrink::ShrinkState;
use crate::runtime::timers::Timers;
use crate::runtime::wait::{TaskQueue, WaitTarget, Waiters, Wakeup};
use crate::tenancy::endpoint_group::GroupMember;
use crate::tenancy::endpoint_group::board::ExchangeOffer;
use crate::tenancy::host_lease::HostLease;
use crate::tenancy::process_group::PortClaim;
use crate::tenancy::processes::Share;

/// The phase of a host's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// In use.
    Open,
    /// Shutting down: answers are still accepted and sent, all else is refused.
    Closing,
    /// Over.
    Closed,
}

/// Limits of the runtime, in addition to those of the protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) completions: usize,
    pub(crate) queued_request_bytes: u64,
}

/// A call, from its start until its result is taken or its owner has abandoned it.
pub(crate) struct Call {
    pub(crate) to: ServerAddr,
    pub(crate) rpc: RpcKey,
    pub(crate) traced: TraceKey,
    pub(crate) owner: CallOwner,
    /// When it began, and the bytes of its request: used for
    /// [`Metrics::call_times`](crate::metrics::Metrics::call_times).
    pub(crate) started: Time,
    pub(crate) request_bytes: u32,
}

/// The receiver of a call's result.
pub(crate) enum CallOwner {
    /// A `Call` of the application, or its `ResponseReader`.
    CallTicket(CallTicket),
    /// The completions of a client port.
    Queue { client: usize, cookie: u64 },
    /// A socket, which keeps the result until it is taken.
    Socket(SocketCall),
    /// None: the call was aborted, and the endpoint's last event for it is still to come.
    Nobody,
}

/// The part of a call that its owner reads.
#[derive(Default)]
pub(crate) struct CallTicket {
    pub(crate) result: Option<Result<Bytes, CallError>>,
    pub(crate) waker: Option<Waker>,
    /// Contiguous bytes of the response that have arrived, for a reader.
    pub(crate) readable_end: u32,
    /// Bytes of the whole response; 0 until it is reported to a reader.
    pub(crate) length: u32,
}

/// An open client port.
pub(crate) struct ClientPort {
    pub(crate) port: u16,
    pub(crate) completions: VecDeque<UntakenCompletion>,
    /// Calls submitted and not completed.
    open: usize,
    closed: bool,
}

/// A completion that has not been taken.
pub(crate) struct UntakenCompletion {
    cookie: u64,
    result: Result<Bytes, CallError>,
    pub(crate) traced: TraceKey,
}

/// A request that waits for `recv`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedRequest {
    pub(crate) rpc: RpcKey,
    pub(crate) peer: SocketAddr,
}

/// A bound server port.
#[derive(Default)]
pub(crate) struct ServerPort {
    pub(crate) port: u16,
    pub(crate) queue: VecDeque<QueuedRequest>,
    /// Entries of the queue whose RPC is over.
    dead: usize,
    pub(crate) tasks: TaskQueue,
    /// Requests for threads that wait at other endpoints.
    pub(crate) offers: ExchangeOffer,
    /// RPCs answered whose answer is not acknowledged yet.
    answered: usize,
    /// RPCs that the application has taken and not answered.
    in_hand: usize,
    /// No handle is left. The port closes when no RPC is unanswered or unacknowledged.
    pub(crate) closed: bool,
    /// Which requests are delivered before they are whole; `None`: none.
    pub(crate) early: Option<EarlyDelivery>,
    /// The socket that took its requests is gone, and some of them are still unanswered.
    pub(crate) abandoned: bool,
    /// The socket that takes its requests; `None` if a [`Server`](crate::Server) takes them.
    pub(crate) socket: Option<usize>,
}

impl ServerPort {
    pub(crate) fn new(port: u16, socket: Option<usize>) -> ServerPort {
        ServerPort { port, socket, ..ServerPort::default() }
    }
}

/// The state of one endpoint: see the [module](self).
pub(crate) struct Engine {
    pub(crate) endpoint: Endpoint,
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) rx: RxBurst,
    pub(crate) unsent: Vec<TransmitRun>,
    /// Memory for the headers of the unsent packets.
    pub(crate) headers: Vec<HeaderBuf>,
    /// The datagrams of the unsent packets, as given to the driver.
    pub(crate) datagrams: Datagrams,
    /// A bundle whose first bytes alone were received into `rx`; empty outside of a drive round.
    pub(crate) bundle_in_place: Vec<u8>,
    /// The last round of sending ended at its bound, and there may be more to send.
    pub(crate) backlog: bool,
    /// Consecutive rounds in which due timers were deferred in favour of received packets.
    pub(crate) put_off: u32,
    /// Times that the driver was polled in vain since packets last came.
    pub(crate) empty_polls: u32,
    pub(crate) buffers: Buffers,
    pub(crate) shrink: ShrinkState,
    pub(crate) calls: Slab<Call>,
    /// Requests that were taken before they were whole, until their end is read.
    pub(crate) readings: Slab<Reading>,
    pub(crate) clients: Slab<ClientPort>,
    pub(crate) servers: Slab<ServerPort>,
    pub(crate) sockets: Slab<SocketState>,
    /// Calls of sockets that have a deadline and are not over, sorted by deadline.
    pub(crate) deadlines: BTreeSet<(Time, usize)>,
    /// The time limits of futures.
    pub(crate) timers: Timers,
    /// Answers whose bytes a socket must get back.
    pub(crate) lent_replies: HashMap<RpcKey, LentReply, FixedState>,
    pub(crate) server_of_port: HashMap<u16, usize, FixedState>,
    pub(crate) waiting: Waiters,
    pub(crate) progress: Progress,
    pub(crate) async_driver: AsyncDriver,
    pub(crate) life: Life,
    pub(crate) limits: Limits,
    pub(crate) counts: HostCounts,
    pub(crate) call_times: Box<TimesBySize>,
    pub(crate) answer_times: Box<TimesBySize>,
    /// `None` if time is simulated, as in tests.
    pub(crate) clock: Option<HostClock>,
    /// When the clock was last read for the trace, unless slow work was done since.
    pub(crate) just_now: Option<Time>,
    pub(crate) freezer: Freezer,
    /// The trace's clock, if the trace records the times at which the kernel received packets.
    pub(crate) device_clock: Option<Ticks>,
    /// This endpoint's part in what processes share; `None` if this host has its address to itself.
    pub(crate) share: Option<Share>,
    /// This endpoint's membership in the group of the host's endpoints; `None` if it is the only one.
    pub(crate) kin: Option<GroupMember>,
    /// This endpoint's lease on host-wide resources; `None` if it is the only one.
    pub(crate) stake: Option<HostLease>,
    /// Processors are kept out of deep sleep while RPCs are in flight.
    pub(crate) low_latency: bool,
    /// Bytes of the requests in all queues.
    pub(crate) queued_bytes: u64,
    /// When a thread or task last did a drive round, or left the lead.
    pub(crate) last_driven: Time,
    /// When packets last came or went.
    pub(crate) last_activity: Time,
    /// Packets travel in IP itself: peers have no ports, and the driver is given a filter for this host's
    /// packets.
    ip_only: bool,
    /// The peer whose largest packet was last reported to the endpoint, and when.
    last_peer: Option<(SocketAddr, Time)>,
    /// Wakers to call once outgoing messages take less memory than this many bytes.
    pub(crate) rooms: Vec<(u64, Waker)>,
}

/// For how long the same peer's largest packet is not reported to the endpoint again.
const PEER_REFRESH_NS: u64 = 10_000_000;

impl Engine {
    pub(crate) fn new(mut endpoint: Endpoint, driver: Box<dyn Driver>, limits: Limits) -> Engine {
        let ip_only = driver.local_addr().port() == 0;
        if ip_only {
            endpoint.refuse_bundles(); // WIRE-21: they are datagrams of UDP.
        }
        Engine {
            rooms: Vec::new(),
            progress: Progress::new(endpoint.config()),
            endpoint,
            ip_only,
            driver,
            rx: RxBurst::new(),
            unsent: Vec::new(),
            headers: Vec::new(),
            datagrams: Datagrams::default(),
            bundle_in_place: Vec::new(),
            backlog: false,
            put_off: 0,
            empty_polls: 0,
            buffers: Buffers::default(),
            shrink: ShrinkState::default(),
            calls: Slab::new(),
            readings: Slab::new(),
            clients: Slab::new(),
            servers: Slab::new(),
            sockets: Slab::new(),
            deadlines: BTreeSet::new(),
            timers: Timers::default(),
            lent_replies: HashMap::default(),
            server_of_port: HashMap::default(),
            waiting: Waiters::default(),
            async_driver: AsyncDriver::default(),
            life: Life::Open,
            limits,
            counts: HostCounts::default(),
            call_times: Box::default(),
            answer_times: Box::default(),
            clock: None,
            just_now: None,
            freezer: Freezer::default(),
            device_clock: None,
            share: None,
            kin: None,
            stake: None,
            low_latency: false,
            queued_bytes: 0,
            last_driven: Time::ZERO,
            last_activity: Time::ZERO,
            last_peer: None,
        }
    }

    /// Reports to the endpoint how large a packet can be sent to `peer`. The size belongs to the path, and
    /// paths change.
    pub(crate) fn note_peer(&mut self, now: Time, peer: SocketAddr) {
        if self.last_peer.is_some_and(|(last, at)| last == peer && now.since(at) < PEER_REFRESH_NS) {
            return;
        }
        self.last_peer = Some((peer, now));
        let bytes = self.driver.max_packet(peer).min(u32::MAX as usize) as u32;
        self.endpoint.set_peer_max_packet(peer, bytes);
    }

    /// Whether there is an item for a thread that waits on this.
    pub(crate) fn has_item(&self, on: WaitTarget) -> bool {
        self.items(on) > 0
    }

    /// Number of threads waiting on this that could each take an item.
    pub(crate) fn items(&self, on: WaitTarget) -> usize {
        match on {
            WaitTarget::Call(_) | WaitTarget::Reading(_) | WaitTarget::Drained => 1,
            WaitTarget::Completions(client) => {
                self.clients.get(client).map_or(0, |client| client.completions.len())
            }
            // Requests for a socket are taken through the socket.
            WaitTarget::Requests(server) => {
                self.servers.get(server).filter(|server| server.socket.is_none()).map_or(0, Engine::queue_len)
            }
            WaitTarget::Socket(socket) => self.arrivals(socket),
        }
    }

    /// The task to wake for an item for which no thread waits.
    pub(crate) fn pop_task(&mut self, on: WaitTarget) -> Option<Waker> {
        match on {
            WaitTarget::Requests(server) => self.servers.get_mut(server)?.tasks.pop(&self.waiting.wake_by),
            WaitTarget::Call(call) => match &mut self.calls.get_mut(call)?.owner {
                CallOwner::CallTicket(ticket) => ticket.waker.take(),
                _ => None,
            },
            WaitTarget::Reading(index) => self.readings.get_mut(index)?.waker.take(),
            WaitTarget::Socket(socket) => self.sockets.get(socket)?.waker.clone(),
            WaitTarget::Completions(_) | WaitTarget::Drained => None,
        }
    }
}

/// Calls.
impl Engine {
    /// Opens a client port and returns its index. `chosen` is a port on which the processes of this host have
    /// agreed.
    pub(crate) fn open_client(&mut self, now: Time, chosen: Option<u16>) -> Result<usize, HostError> {
        if self.life != Life::Open {
            return Err(HostError::Closed);
        }
        let port = match chosen {
            Some(port) => self.open_shared_port(now, port, None).map(|()| port)?,
            None => self.endpoint.open_client_port()?,
        };
        Ok(self.clients.insert(ClientPort { port, completions: VecDeque::new(), open: 0, closed: false }))
    }

    /// Starts a call. The caller flushes.
    pub(crate) fn start_call(
        &mut self,
        now: Time,
        client: usize,
        to: ServerAddr,
        request: Bytes,
        owner: CallOwner,
        readable_step: u32,
    ) -> Result<usize, CallError> {
        let Some(entry) = self.clients.get(client) else { return Err(CallError::Closed) };
        let private = matches!(owner, CallOwner::CallTicket(_)); // ID-14: its result goes to one caller.
        if !private && entry.open + entry.completions.len() >= self.limits.completions {
            return Err(CallError::LimitReached { name: "max_completions" });
        }
        let (from, request) = ((entry.port, private), Outgoing::Whole(request));
        let call = self.start_call_from(now, from, to, request, owner, readable_step)?;
        if !private {
            self.clients[client].open += 1;
        }
        Ok(call)
    }

    /// Starts a call from a port that is open. The caller flushes.
    pub(crate) fn start_call_from(
        &mut self,
        now: Time,
        (port, private): (u16, bool),
        to: ServerAddr,
        request: Outgoing,
        owner: CallOwner,
        readable_step: u32,
    ) -> Result<usize, CallError> {
        if self.life != Life::Open {
            return Err(CallError::Closed);
        }
        if to.lacks_scope() {
            return Err(CallError::NoScope { to });
        }
        let mut to = to;
        if self.ip_only {
            to.host.set_port(0); // ID-12
        }
        if let Some(share) = &self.share {
            share.lease_ids(&mut self.endpoint);
        }
        let entry = self.calls.vacant_entry();
        let call = entry.key();
        let options = CallOptions { cookie: call as u64, private, readable_step };
        let length = u32::try_from(request.len()).unwrap_or(u32::MAX);
        let rpc = self
            .endpoint
            .send_request(now, port, to.host, to.port, length, options)
            .map_err(|error| CallError::from_send(to, request.len(), error))?;
        let (id, peer) = self.endpoint.traced(rpc).unwrap_or_default();
        entry.insert(Call {
            to,
            rpc,
            traced: TraceKey { id, peer },
            owner,
            started: now,
            request_bytes: length,
        });
        self.note_peer(now, to.host);
        self.buffers.open_call(rpc, call, request);
        Ok(call)
    }

    /// Takes the result of a call, if it is available; the call is then over.
    pub(crate) fn take_result(&mut self, call: usize) -> Option<Result<Bytes, CallError>> {
        match &mut self.calls[call].owner {
            CallOwner::CallTicket(ticket) => {
                let result = ticket.result.take()?;
                let traced = self.calls.remove(call).traced;
                self.note_response(traced, &result);
                Some(result)
            }
            _ => unreachable!("only the owner of a ticket asks, and while it is one"),
        }
    }

    /// Takes the cookie and the result of a completion of a client port, if there is one.
    pub(crate) fn take_completion(&mut self, client: usize) -> Option<(u64, Result<Bytes, CallError>)> {
        let UntakenCompletion { cookie, result, traced } = self.clients[client].completions.pop_front()?;
        self.note_response(traced, &result);
        Some((cookie, result))
    }

    /// Records that the application takes the result of a call.
    fn note_response(&mut self, traced: TraceKey, result: &Result<Bytes, CallError>) {
        if let Ok(response) = result {
            self.note_app_receive(traced, Message::Response, response.len());
        }
    }

    /// The ticket of a call that its owner still holds.
    pub(crate) fn ticket(&mut self, call: usize) -> &mut CallTicket {
        match &mut self.calls[call].owner {
            CallOwner::CallTicket(ticket) => ticket,
            _ => unreachable!("only the owner of a ticket asks, and while it is one"),
        }
    }

    /// Gives up a call whose owner dropped it.
    pub(crate) fn abandon_call(&mut self, now: Time, call: usize) {
        let over = self.ticket(call).result.is_some();
        if over {
            if let CallOwner::CallTicket(CallTicket { result: Some(Ok(response)), .. }) =
                self.calls.remove(call).owner
            {
                self.buffers.bury(response);
            }
            return;
        }
        self.calls[call].owner = CallOwner::Nobody;
        self.endpoint.abort(now, self.calls[call].rpc);
        self.flush(now);
    }

    /// Hands the result of a call to its owner.
    pub(crate) fn finish_call(&mut self, call: usize, result: Result<Bytes, CallError>) {
        let Some(entry) = self.calls.get_mut(call) else {
            return;
        };
        match &mut entry.owner {
            CallOwner::Socket(_) => return self.finish_socket_call(call, result),
            CallOwner::CallTicket(ticket) => {
                // If the host closed meanwhile, the ticket already says so.
                ticket.result.get_or_insert(result);
                self.waiting.note_ready(WaitTarget::Call(call));
                return;
            }
            &mut CallOwner::Queue { client, cookie } => {
                let port = &mut self.clients[client];
                port.open -= 1;
                if port.closed {
                    if let Ok(response) = result {
                        self.buffers.bury(response);
                    }
                    if port.open == 0 {
                        self.clients.remove(client);
                    }
                } else {
                    port.completions.push_back(UntakenCompletion { cookie, result, traced: entry.traced });
                    self.waiting.note_ready(WaitTarget::Completions(client));
                }
            }
            CallOwner::Nobody => result.into_iter().for_each(|response| self.buffers.bury(response)),
        }
        self.calls.remove(call);
    }

    /// Closes a client port whose last handle is dropped; calls submitted on it are aborted.
    pub(crate) fn close_client(&mut self, now: Time, client: usize) {
        if self.clients.len() == 1 {
            // ACK-13: no more requests will carry the acknowledgements.
            self.endpoint.flush_acks(self.clients[client].port);
        }
        let port = &mut self.clients[client];
        port.closed = true;
        let number = port.port;
        let (open, completions) = (port.open, std::mem::take(&mut port.completions));
        for response in completions.into_iter().filter_map(|completion| completion.result.ok()) {
            self.buffers.bury(response);
        }
        if open == 0 {
            self.clients.remove(client);
        }
        self.close_port(now, number);
        self.flush(now);
    }
}

/// Requests.
impl Engine {
    /// Binds a server port and returns its index. `bound` is the claim on which the processes of this host
    /// have agreed. `None` if the port's old requests are still being ended, of which this call has ended
    /// some: call again after releasing the lock.
    pub(crate) fn open_server(
        &mut self,
        now: Time,
        port: u16,
        bound: Option<PortClaim>,
    ) -> Result<Option<usize>, HostError> {
        if self.life != Life::Open {
            return Err(HostError::Closed);
        }
        if let Some(&server) = self.server_of_port.get(&port) {
            // Its last handle is dropped, and it only waits for acknowledgements.
            if self.servers[server].closed {
                self.servers[server].closed = false;
                self.servers[server].abandoned = false;
                self.endpoint.accept_requests(port, true);
                return Ok(Some(server));
            }
        }
        // No owner has the port any more, so the caller gets no error that it is taken.
        if self.endpoint.is_port_closing(port) {
            self.drive(now);
            if self.endpoint.is_port_closing(port) {
                return Ok(None);
            }
        }
        match bound {
            Some(_) => self.open_shared_port(now, port, bound)?,
            None => self.endpoint.bind(port)?,
        }
        let server = self.servers.insert(ServerPort::new(port, None));
        self.server_of_port.insert(port, server);
        Ok(Some(server))
    }

    /// Queues a request that has arrived whole.
    pub(crate) fn queue_request(&mut self, now: Time, rpc: RpcKey, peer: SocketAddr, port: u16) {
        if self.complete_early(now, rpc) {
            return;
        }
        let length = self.buffers.incoming_len(rpc) as u64;
        let Some(&server) = self.server_of_port.get(&port) else {
            self.endpoint.abort(now, rpc);
            return;
        };
        let refused = self.queued_bytes + length > self.limits.queued_request_bytes;
        if refused || self.servers[server].closed || self.life != Life::Open || self.refuses_requests(server)
        {
            self.counts.requests_refused += u64::from(refused);
            self.endpoint.abort(now, rpc);
            return;
        }
        self.queued_bytes += length;
        self.buffers.set_role(rpc, Role::QueuedRequest { server });
        self.buffers.note_whole(rpc, now, length as u32);
        let port = &mut self.servers[server];
        port.queue.push_back(QueuedRequest { rpc, peer });
        let on = port.socket.map_or(WaitTarget::Requests(server), WaitTarget::Socket);
        self.waiting.note_ready(on);
    }

    /// Takes the oldest request of a server port: its bytes, or no bytes if it is still arriving.
    pub(crate) fn take_request(
        &mut self,
        server: usize,
    ) -> Option<(QueuedRequest, Bytes, Option<PartialRequest>)> {
        loop {
            let port = &mut self.servers[server];
            let queued = port.queue.pop_front()?;
            let role = self.buffers.role(queued.rpc);
            if !role.is_queued_at(server) {
                port.dead -= 1;
                continue;
            }
            port.in_hand += 1;
            let traced = self.traced(queued.rpc);
            if role == (Role::QueuedEarly { server }) {
                let arriving = self.begin_reading(queued, server);
                self.note_app_receive(traced, Message::Request, arriving.length as usize);
                return Some((queued, Bytes::new(), Some(arriving)));
            }
            let request = self.buffers.take_incoming(queued.rpc);
            self.queued_bytes -= request.len() as u64;
            self.buffers.set_role(queued.rpc, Role::InHand { server });
            self.note_app_receive(traced, Message::Request, request.len());
            return Some((queued, request, None));
        }
    }

    /// Accepts the answer to a request. The caller flushes.
    pub(crate) fn answer(
        &mut self,
        now: Time,
        rpc: RpcKey,
        peer: SocketAddr,
        response: Outgoing,
    ) -> Result<(), ReplyError> {
        if self.life == Life::Closed {
            return Err(ReplyError::Closed);
        }
        let Role::InHand { server } = self.buffers.role(rpc) else {
            return Err(ReplyError::ClientGone { peer });
        };
        let length = u32::try_from(response.len()).unwrap_or(u32::MAX);
        if let Err(error) = self.endpoint.send_response(now, rpc, length) {
            self.give_up(now, rpc);
            return Err(ReplyError::from_send(peer, response.len(), error));
        }
        self.buffers.set_role(rpc, Role::Answered { server });
        self.servers[server].in_hand -= 1;
        self.servers[server].answered += 1;
        let (whole_at, request_bytes) = self.buffers.whole(rpc);
        self.answer_times.record(length.max(request_bytes) as usize, now.since(whole_at));
        self.note_peer(now, peer);
        self.buffers.set_outgoing(rpc, response);
        Ok(())
    }

    /// Gives up a request that the application has taken.
    pub(crate) fn give_up(&mut self, now: Time, rpc: RpcKey) {
        self.endpoint.abort(now, rpc);
        self.flush(now);
    }

    /// A server RPC is over.
    pub(crate) fn end_request(&mut self, now: Time, rpc: RpcKey, reason: DoneReason) {
        let server = match self.buffers.role(rpc) {
            Role::None | Role::Call => None,
            Role::QueuedRequest { server } | Role::QueuedEarly { server } => {
                self.queued_bytes -= self.buffers.incoming_len(rpc) as u64;
                let port = &mut self.servers[server];
                port.dead += 1;
                Some(server)
            }
            Role::Reading { server } => {
                self.fail_reading(rpc, reason);
                self.servers[server].in_hand -= 1;
                Some(server)
            }
            Role::InHand { server } => {
                self.servers[server].in_hand -= 1;
                Some(server)
            }
            Role::Answered { server } => {
                self.servers[server].answered -= 1;
                Some(server)
            }
        };
        self.buffers.release(rpc);
        if !self.lent_replies.is_empty() {
            self.return_lent(rpc, reason);
        }
        if let Some(server) = server {
            self.tidy_queue(server);
            self.close_when_done(now, server);
        }
    }

    /// Removes the requests of clients that gave up, once they are more than half of the queue.
    fn tidy_queue(&mut self, server: usize) {
        let port = &mut self.servers[server];
        if port.dead > port.queue.len() / 2 {
            let buffers = &self.buffers;
            port.queue.retain(|queued| buffers.role(queued.rpc).is_queued_at(server));
            port.dead = 0;
        }
    }

    /// Notes that the last handle of a server port is dropped. Untaken requests are given up; answers are
    /// still sent.
    pub(crate) fn close_server(&mut self, now: Time, server: usize) {
        self.servers[server].closed = true;
        self.endpoint.accept_requests(self.servers[server].port, false);
        self.refuse_queued(now, server);
        self.close_when_done(now, server);
    }

    /// Gives up all untaken requests.
    pub(crate) fn refuse_queued(&mut self, now: Time, server: usize) {
        let queued: Vec<QueuedRequest> = self.servers[server].queue.iter().copied().collect();
        for QueuedRequest { rpc, .. } in queued {
            self.endpoint.abort(now, rpc);
        }
        self.flush(now);
    }

    fn close_when_done(&mut self, now: Time, server: usize) {
        if self.life != Life::Open && self.is_drained(true) {
            self.waiting.note_ready(WaitTarget::Drained);
        }
        let done = |port: &ServerPort| port.closed && port.in_hand + port.answered + port.queue.len() == 0;
        if self.servers.get(server).is_some_and(done) {
            let port = self.servers.remove(server).port;
            self.server_of_port.remove(&port);
            self.close_port(now, port);
        }
    }

    /// Whether every answer is acknowledged and, if `in_hand`, no taken request is unanswered.
    pub(crate) fn is_drained(&self, in_hand: bool) -> bool {
        self.servers.iter().all(|(_, port)| port.answered == 0 && (!in_hand || port.in_hand == 0))
    }

    /// Requests that wait in the queue of a server port.
    pub(crate) fn queue_len(port: &ServerPort) -> usize {
        port.queue.len() - port.dead
    }
}

/// The end of the host.
impl Engine {
    /// Refuses everything but answers to requests that the application has taken.
    pub(crate) fn begin_close(&mut self, now: Time) {
        if self.life != Life::Open {
            return;
        }
        self.life = Life::Closing;
        if let Some(kin) = &self.kin {
            kin.siblings.mailbox(kin.index).hurry();
        }
        let calls: Vec<usize> = self.calls.iter().map(|(call, _)| call).collect();
        for call in calls {
            self.close_call(now, call);
        }
        let servers: Vec<usize> = self.servers.iter().map(|(server, _)| server).collect();
        for server in servers {
            self.refuse_queued(now, server);
            while let Some(port) = self.servers.get_mut(server) {
                let Some(task) = port.tasks.pop(&self.waiting.wake_by) else { break };
                self.waiting.wakes.push(Wakeup::Task(task));
            }
        }
        self.flush(now);
        self.summon();
        self.waiting.wake_all();
    }

    /// Ends a call because the host closes.
    fn close_call(&mut self, now: Time, call: usize) {
        let Some(entry) = self.calls.get_mut(call) else { return };
        let rpc = entry.rpc;
        match &mut entry.owner {
            CallOwner::CallTicket(ticket) if ticket.result.is_none() => {
                ticket.result = Some(Err(CallError::Closed));
                if let Some(waker) = ticket.waker.take() {
                    self.waiting.wakes.push(Wakeup::Task(waker));
                }
                self.endpoint.abort(now, rpc);
            }
            CallOwner::Queue { .. } => {
                self.finish_call(call, Err(CallError::Closed));
                self.endpoint.abort(now, rpc);
            }
            CallOwner::Socket(_) => self.forget_socket_call(now, call),
            _ => {}
        }
    }

    /// Drops all state.
    pub(crate) fn finish_close(&mut self, now: Time) {
        self.life = Life::Closed;
        if let Some((_, client)) = self.clients.iter().next() {
            self.endpoint.flush_acks(client.port); // ACK-13
        }
        let ports = self.clients.iter().map(|(_, c)| c.port).chain(self.servers.iter().map(|(_, s)| s.port));
        for port in ports.collect::<Vec<_>>() {
            self.close_port(now, port);
        }
        while self.endpoint.open_rpcs() > 0 {
            let before = self.endpoint.open_rpcs();
            self.endpoint.handle_timeout(now);
            self.flush(now);
            if self.endpoint.open_rpcs() >= before && self.endpoint.poll_timeout().is_none_or(|due| due > now)
            {
                break;
            }
        }
        self.flush(now);
        self.unsent.clear();
        // Other processes and endpoints get what this endpoint had leased.
        self.stake = None;
        self.share = None;
        self.close_readings();
        self.buffers.release_all();
        self.summon();
        self.waiting.wake_all();
        self.ring_progress();
        self.async_driver.notify();
        self.waiting.wakes.push(Wakeup::AsyncDriver);
    }
}
