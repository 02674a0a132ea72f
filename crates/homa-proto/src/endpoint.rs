//! The endpoint: one type, one drive contract. It holds the state and dispatches. Each decision is made in
//! the file of its concept; most of these files add methods to [`Endpoint`].

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;

use foldhash::fast::FixedState;
use homa_trace::{EventKind, Trace};

use crate::ack::MAX_PUT_OFF;
use crate::config::{Config, ConfigError};
use crate::contract::{
    ArrivingRequest, CallOptions, DoneReason, Event, PeerInfo, PortError, Reassembly, RpcError, RpcKey,
    RxPacket, SendError, Transmit,
};
use crate::finished::FinishedIds;
use crate::grant::Grants;
use crate::ids::{IdOffset, own_count_from};
use crate::incast::{IncastEstimator, UnscheduledQuota};
use crate::keys::Keys;
use crate::lists::Links;
use crate::message_in::{UnscheduledState, charge};
use crate::message_out::{MessageOut, whole_packets};
use crate::pacer::Pacer;
use crate::peer::{Peers, peer_number};
use crate::port_rpcs::PortRpcs;
use crate::ports::Ports;
use crate::priority::Cutoffs;
use crate::reap::Reaper;
use crate::receive_coalescing::ReceiveRun;
use crate::retransmit::Retransmits;
use crate::rpc::{EndedRpc, Rpc, RpcInput, RpcState};
use crate::rpc_table::RpcTable;
use crate::shrink;
use crate::stats::Stats;
use crate::time::Time;
use crate::timer::TimerWheel;
use crate::transmit::Ready;
use crate::unproven::UnprovenRpcs;
use crate::unreachable::RefusedPorts;
use crate::unscheduled_loss::LossAccounting;
use crate::wire::Incarnation;

/// Longest message that Linux Homa accepts.
pub(crate) const KERNEL_MAX_MESSAGE: u32 = 1_000_000;

/// The protocol state of one host.
///
/// # The drive contract
/// - Each call passes the time, which never goes back: an earlier time counts as the last one.
/// - After `send_request`, `send_response`, `abort`, `close_port`, `handle_packets`, `handle_timeout` and
///   `peer_unreachable`: call `poll_event` until it returns nothing. Then call `poll_transmit` until it
///   returns nothing or the driver accepts no more. A returned packet counts as sent: keep it until the
///   driver accepts it. `poll_transmit_run` returns the same packets, several per call if they belong to one
///   message.
/// - When the time of `poll_timeout` has come: call `handle_timeout`, then poll again. Call `poll_timeout`
///   again after every call. Received packets may be handled first; a timer that is already due then waits
///   for at most one drive call.
/// - Payload stays with the caller. It keeps outgoing messages from `send_*` until the event that ends the
///   RPC, and incoming ones from the first [`Reassembly::write`] on.
pub struct Endpoint {
    pub(crate) config: Config,
    pub(crate) incarnation: Incarnation,
    /// The number of endpoints announced to peers for bundles (WIRE-23).
    pub(crate) bundle_endpoints: u8,
    pub(crate) stats: Stats,
    /// TRACE-3: the endpoint only writes it, and only the caller reads it.
    pub(crate) trace: Trace,
    pub(crate) now: Time,
    pub(crate) rpcs: RpcTable,
    pub(crate) client_ids: HashMap<u64, u32, FixedState>,
    pub(crate) server_ids: HashMap<(u32, u64), u32, FixedState>,
    pub(crate) peers: Peers,
    /// Links of RPC slots in their peer's list.
    pub(crate) peer_rpcs: Links,
    pub(crate) ports: Ports,
    pub(crate) port_rpcs: PortRpcs,
    /// Server ports whose last owner died and lost its memory, each with the time until which that matters.
    pub(crate) lost_owners: BTreeMap<u16, Time>,
    /// Secrets that never appear in a packet.
    pub(crate) keys: Keys,
    /// Number of challenges made for peers; each challenge gets a different number.
    pub(crate) challenges: u64,
    /// Counter value for the next request. Its id is derived from this value and from the peer.
    pub(crate) next_id: u64,
    /// Number of counter values from `next_id` on that may be used.
    pub(crate) ids_left: u64,
    pub(crate) grants: Grants,
    pub(crate) unscheduled_quota: UnscheduledQuota,
    pub(crate) incast_estimator: IncastEstimator,
    pub(crate) unscheduled_loss: LossAccounting,
    /// Scratch memory for choosing grants.
    pub(crate) active: Vec<u32>,
    pub(crate) ready: Ready,
    pub(crate) retransmits: Retransmits,
    pub(crate) control: VecDeque<Transmit>,
    pub(crate) pacer: Pacer,
    pub(crate) cutoffs: Cutoffs,
    /// Timers of the RPCs that wait for their peer.
    pub(crate) timers: TimerWheel,
    /// Timers of peers: for the next RESEND to the peer, or for its silence.
    pub(crate) peer_timers: TimerWheel,
    /// Links of RPC slots in their peer's queue for RESENDs.
    pub(crate) resend_links: Links,
    pub(crate) finished: FinishedIds,
    pub(crate) unproven: UnprovenRpcs,
    pub(crate) events: VecDeque<Event>,
    pub(crate) reaper: Reaper,
    /// Acknowledgements that arrived in DATA packets and are not handled yet: the peer, and the client's id.
    pub(crate) acked: Vec<(u32, u64)>,
    /// Peers with five or more waiting acknowledgements, each with the deadline to send them; in order of
    /// time.
    pub(crate) acks_due: VecDeque<(Time, u32)>,
    pub(crate) refused_ports: RefusedPorts,
    pub(crate) outgoing_bytes: u64,
    pub(crate) incoming_bytes: u64,
    /// Peers whose paths the caller must check.
    pub(crate) paths_in_question: VecDeque<u32>,
    /// When a packet was last returned for sending.
    pub(crate) last_sent: Time,
    /// When tables that a peak has left large are checked for shrinking.
    pub(crate) shrink_at: Option<Time>,
    /// Number of RPCs for which the tables keep room.
    pub(crate) least_room: usize,
}

impl Endpoint {
    /// Makes an endpoint without open ports. `trace` records its events, with a clock of its own.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn new(config: Config, mut trace: Trace) -> Result<Endpoint, ConfigError> {
        config.validate()?;
        trace.set_endpoint(u8::try_from(config.endpoint).unwrap_or(u8::MAX));
        let keys = Keys::new(config.seed, config.id_seed);
        let reserve = config.reserve_rpcs.min(config.max_rpcs) as usize;
        let ids = || FixedState::with_seed(keys.tables);
        let least_room = shrink::least_room(&config);
        let mut stats = Stats::default();
        let pacer = Pacer::new(&config);
        stats.pacer_off = pacer.is_off().into();
        let incarnation = match config.incarnation {
            0 => Incarnation::NONE,
            number => Incarnation::new(number),
        };
        Ok(Endpoint {
            incarnation,
            bundle_endpoints: u8::try_from(config.endpoints).unwrap_or(0),
            stats,
            trace,
            now: Time::ZERO,
            rpcs: RpcTable::with_capacity(reserve),
            client_ids: HashMap::with_capacity_and_hasher(reserve, ids()),
            server_ids: HashMap::with_capacity_and_hasher(reserve, ids()),
            peers: Peers::new(keys.tables),
            peer_rpcs: Links::with_capacity(reserve),
            ports: Ports::new(&config),
            port_rpcs: PortRpcs::with_capacity(reserve),
            lost_owners: BTreeMap::new(),
            keys,
            challenges: 0,
            next_id: own_count_from(keys.first_id & !1, &config),
            ids_left: u64::MAX,
            grants: Grants::with_capacity(reserve, config.max_incoming.into(), config.window.into()),
            unscheduled_quota: UnscheduledQuota::new(&config),
            incast_estimator: IncastEstimator::new(&config),
            unscheduled_loss: LossAccounting::with_capacity(reserve),
            active: Vec::new(),
            ready: Ready::with_capacity(reserve),
            retransmits: Retransmits::new(config.max_retransmits, keys.tables),
            control: VecDeque::new(),
            pacer,
            cutoffs: Cutoffs::new(&config),
            timers: TimerWheel::with_capacity(reserve),
            peer_timers: TimerWheel::with_capacity(0),
            resend_links: Links::with_capacity(reserve),
            finished: FinishedIds::new(
                config.max_packet_lifetime_ns,
                config.max_finished_blocks,
                config.finished_policy,
                keys.tables,
            ),
            unproven: UnprovenRpcs::new(),
            events: VecDeque::new(),
            reaper: Reaper::default(),
            acked: Vec::with_capacity(MAX_PUT_OFF),
            acks_due: VecDeque::new(),
            refused_ports: RefusedPorts::default(),
            outgoing_bytes: 0,
            incoming_bytes: 0,
            paths_in_question: VecDeque::new(),
            last_sent: Time::ZERO,
            shrink_at: None,
            least_room,
            config,
        })
    }

    /// Announces to peers from now on that datagrams to this host hold one packet each (WIRE-23). Packet
    /// paths need this if they select the endpoint by something other than the RPC id, or if packets are sent
    /// directly over IP.
    pub fn refuse_bundles(&mut self) {
        self.bundle_endpoints = 0;
    }

    /// Opens a server port, 1 to 32767. It accepts requests.
    ///
    /// # Errors
    /// The port is out of range or taken.
    pub fn bind(&mut self, port: u16) -> Result<(), PortError> {
        self.ports.bind(port)
    }

    /// Opens a client port, 32768 to 65535. It [accepts](Endpoint::accept_requests) none yet.
    ///
    /// # Errors
    /// All client ports are open.
    pub fn open_client_port(&mut self) -> Result<u16, PortError> {
        self.ports.open_client()
    }

    /// Sets whether an open port accepts requests from now on. If it does not, clients with new requests are
    /// answered as if the port were not open (ID-15). Requests that have begun to arrive continue. Does
    /// nothing on a port that is not open or is being closed.
    pub fn accept_requests(&mut self, port: u16, accept: bool) {
        self.ports.accept(port, accept && !self.reaper.is_closing(port));
    }

    /// Whether a port is open and accepts requests.
    pub fn accepts_requests(&self, port: u16) -> bool {
        self.ports.accepts(port)
    }

    /// Whether a port is being closed. Some of its RPCs may still exist.
    pub fn is_port_closing(&self, port: u16) -> bool {
        self.reaper.is_closing(port)
    }

    /// Closes a port: at once if it has no RPCs. Otherwise its RPCs are aborted, a few per drive call, and
    /// the port is not reassigned before all are gone.
    pub fn close_port(&mut self, now: Time, port: u16) {
        self.advance(now);
        if self.ports.is_open(port) {
            self.ports.accept(port, false);
            match self.port_rpcs.oldest(port) {
                Some(_) => self.reaper.close_port(port),
                None => self.ports.close(port),
            }
        }
    }

    /// Starts an RPC with a request of `length` bytes from the open port `from_port` to the port `to_port` of
    /// `to`.
    ///
    /// # Errors
    /// Nothing was sent: the message is empty or too large, the port is not open, or a limit is reached.
    pub fn send_request(
        &mut self,
        now: Time,
        from_port: u16,
        to: SocketAddr,
        to_port: u16,
        length: u32,
        options: CallOptions,
    ) -> Result<RpcKey, SendError> {
        let now = self.advance(now);
        if !self.ports.is_open(from_port) {
            return Err(SendError::PortNotOpen(from_port));
        }
        self.make_room_to_send(now, length);
        self.check_length(length)?;
        if self.rpcs.len() >= self.config.max_rpcs as usize {
            return Err(SendError::LimitReached { name: "max_rpcs" }); // LIMIT-2
        }
        let peer = self.find_or_add_peer(now, to).ok_or(SendError::LimitReached { name: "max_peers" })?;
        self.widen_path(now, peer);
        let known = &self.peers[peer];
        if length > KERNEL_MAX_MESSAGE && known.heard && !known.is_ours() {
            return Err(SendError::MessageTooLarge { length, limit: KERNEL_MAX_MESSAGE }); // SEND-13
        }
        let slot = self.rpcs.next_slot();
        let id = self.take_id(peer, slot).ok_or(SendError::NoIds)?; // ID-3: one counter for all ports.
        let life = self.peers[peer].life;
        let unlimited = self.peers[peer].unsched_bytes(&self.config);
        let limit = self.unscheduled_quota.next(now, &self.config, unlimited);
        self.stats.requests_limited += u64::from(limit.is_some_and(|limit| limit < unlimited));
        let unscheduled = self.unscheduled_to(peer, u32::MAX);
        let inserted = self.insert_rpc(Rpc {
            outgoing: MessageOut::new(length, unscheduled),
            response_limit: limit.unwrap_or(u32::MAX),
            options,
            ..Rpc::new(now, id, (peer, life), RpcState::Requesting, (from_port, to_port))
        });
        debug_assert_eq!(inserted, slot, "the id leads to the RPC");
        self.outgoing_bytes += u64::from(length);
        self.stats.requests_started += 1;
        self.trace.record_with(EventKind::RpcStart, id, 0, length, peer_number(peer), 0);
        if length > unscheduled {
            self.open_long_message(slot); // DIALECT-4
        }
        self.make_ready(slot);
        // A planted fault that the swarm must find, "call_unwatched": a call has no timer until its request
        // has been sent.
        #[cfg(not(homa_canary = "call_unwatched"))]
        self.timers.arm(slot, now + self.config.resend_interval_ns); // PEER-15
        Ok(self.key(slot))
    }

    /// Sets [`Config::request_readable_step`] for requests that begin from now on. Their contiguous bytes are
    /// reported each time they grow by `step` bytes. 0: a request is reported only when it is complete.
    pub fn set_request_readable_step(&mut self, step: u32) {
        self.config.request_readable_step = step;
    }

    /// What is known of a request that is still arriving; `None` if it is complete or gone.
    pub fn arriving_request(&self, rpc: RpcKey) -> Option<ArrivingRequest> {
        let rpc = &self.rpcs[self.slot(rpc)? as usize];
        let (end, length) = (rpc.incoming.gaps.contiguous(), rpc.incoming.length);
        let arriving = ArrivingRequest { peer: self.peers[rpc.peer].addr, port: rpc.port, end, length };
        (rpc.state == RpcState::RequestArriving).then_some(arriving)
    }

    /// Hands an incomplete request to the application, after [`Event::Readable`] has reported it. Its bytes
    /// are then reported each time `step` more are contiguous (0: not again). The reports end with
    /// [`Event::Request`] when the request is complete, or with [`Event::Done`] if it never will be. However
    /// it ends, it will not be delivered again (AMO-12). It can be answered once it is complete. Returns
    /// false if it is complete already, or gone.
    pub fn take_early(&mut self, rpc: RpcKey, step: u32) -> bool {
        let Some(slot) = self.slot(rpc) else { return false };
        let rpc = &mut self.rpcs[slot as usize];
        let arrives = rpc.state == RpcState::RequestArriving && rpc.incoming.reported > 0;
        if arrives {
            self.stats.requests_taken_early += u64::from(!rpc.taken_early);
            rpc.taken_early = true;
            rpc.options.readable_step = step;
        }
        arrives
    }

    /// Answers a request with a response of `length` bytes.
    ///
    /// # Errors
    /// Nothing was sent: the message is empty or too large, the RPC is gone or answered, or a limit is
    /// reached.
    pub fn send_response(&mut self, now: Time, rpc: RpcKey, length: u32) -> Result<(), SendError> {
        let now = self.advance(now);
        self.make_room_to_send(now, length);
        let slot = self.slot(rpc).ok_or(SendError::UnknownRpc)?; // ABORT-6
        self.check_length(length)?;
        let &Rpc { peer, response_limit, .. } = &self.rpcs[slot as usize];
        self.widen_path(now, peer);
        let unscheduled = self.unscheduled_to(peer, response_limit);
        let rpc = &mut self.rpcs[slot as usize];
        if length > KERNEL_MAX_MESSAGE && !self.peers[rpc.peer].is_ours() {
            return Err(SendError::MessageTooLarge { length, limit: KERNEL_MAX_MESSAGE }); // SEND-13
        }
        rpc.state = rpc.state.after(RpcInput::Respond).ok_or(SendError::UnknownRpc)?;
        rpc.outgoing = MessageOut::new(length, unscheduled);
        rpc.progressed(now);
        self.outgoing_bytes += u64::from(length);
        self.stats.responses_started += 1;
        self.tell_limit(now, slot, peer);
        if length > unscheduled {
            self.open_long_message(slot); // DIALECT-4
        }
        self.make_ready(slot);
        self.timers.arm(slot, now + self.config.need_ack_interval_ns); // PEER-15
        Ok(())
    }

    /// Gives up an RPC, on either side. One event ends it (ABORT-1). A stale key is ignored.
    pub fn abort(&mut self, now: Time, rpc: RpcKey) {
        let now = self.advance(now);
        if let Some(slot) = self.slot(rpc) {
            self.stats.rpcs_aborted += 1;
            self.abort_slot(now, slot);
        }
    }

    /// Ends an RPC on this side alone: without an event, and without a packet to the peer. A server's request
    /// counts as served, and its id as finished. A stale key is ignored.
    ///
    /// Only for simulations of one-way messages, whose harness ends both sides when the request is delivered.
    /// Code that talks to a peer never calls it.
    pub fn forget(&mut self, now: Time, rpc: RpcKey) {
        let now = self.advance(now);
        let Some(slot) = self.slot(rpc) else { return };
        let rpc = self.remove_rpc(slot);
        self.mark_served(rpc.peer);
        self.trace.record_with(EventKind::RpcEnd, rpc.id, 0, 0, peer_number(rpc.peer), 0);
        if !rpc.state.is_client() {
            self.remember_finished(now, &rpc);
        }
    }

    /// Handles a burst of packets. Payload of incoming messages goes to `sink`; all other results wait to be
    /// polled.
    pub fn handle_packets<'a>(
        &mut self,
        now: Time,
        burst: impl IntoIterator<Item = RxPacket<'a>>,
        sink: &mut impl Reassembly,
    ) {
        let now = self.advance(now);
        self.settle_acks(now);
        let mut run = ReceiveRun::default();
        for packet in burst {
            if !self.continue_run(&mut run, &packet, sink) {
                self.end_run(now, &mut run);
                let taken = self.handle_packet(now, &packet, sink);
                run.begin(packet, taken);
            }
        }
        self.end_run(now, &mut run);
        if self.cutoffs.update(now, &self.config) {
            self.stats.cutoff_changes += 1;
        }
        // The endpoint that computes a host's cutoffs also sets its peers' limits: both share one version
        // (HOST-4).
        if !self.cutoffs.followed && self.incast_estimator.update(&self.config) {
            self.cutoffs.renew_version();
            self.stats.incast_limit_changes += 1;
        }
        self.watch_unasked(now);
        self.send_grants(now);
        self.reap(now);
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When `handle_timeout` and `poll_transmit` must be called next; may be in the past.
    pub fn poll_timeout(&self) -> Option<Time> {
        let reap = if self.has_reaping() { self.now } else { Time::NEVER };
        let pacer = if self.ready.waits_for_pacer { self.pacer.free_at() } else { Time::NEVER };
        let timers = self.timers.next().min(self.peer_timers.next());
        let tables = self.next_shrink().min(self.next_ack()).min(self.unscheduled_loss.next(self.now));
        let next = timers.min(tables).min(reap).min(pacer);
        (next != Time::NEVER).then_some(next)
    }

    /// Handles a bounded part of the due work, so that packets need not wait. `poll_timeout` reports whether
    /// more is due.
    pub fn handle_timeout(&mut self, now: Time) {
        let now = self.advance(now);
        if !self.acked.is_empty() {
            self.settle_acks(now);
            if self.poll_timeout().is_none_or(|due| due > now) {
                // Nothing else was due. Every RPC of a server reaches this point.
                self.send_grants(now);
                return;
            }
        }
        self.reap(now);
        let mut budget = self.config.reap_limit;
        while let Some(slot) = self.timers.pop_due(now, &mut budget) {
            self.rpc_timer(now, slot);
        }
        while let Some(peer) = self.peer_timers.pop_due(now, &mut budget) {
            self.peer_timer(now, peer);
        }
        self.send_due_acks(now);
        self.expire_finished(now);
        self.reclaim_unasked(now);
        self.send_grants(now);
        self.shrink_if_due(now);
        // A caller whose driver is full cannot poll for packets: do not report this pacer time again.
        self.ready.waits_for_pacer &= !self.pacer.may_send(now);
    }

    /// The RPC's id in packets: even for a client's RPC, odd for a server's. `None` if the key is stale.
    pub fn rpc_id(&self, rpc: RpcKey) -> Option<u64> {
        self.slot(rpc).map(|slot| self.rpcs[slot as usize].id)
    }

    /// How a time trace identifies a live RPC: by its id, and by the number of its peer
    /// ([`peer_numbers`](Endpoint::peer_numbers)).
    pub fn traced(&self, rpc: RpcKey) -> Option<(u64, u16)> {
        let rpc = &self.rpcs[self.slot(rpc)? as usize];
        Some((rpc.id, peer_number(rpc.peer)))
    }

    /// Number of open RPCs, as client and as server.
    pub fn open_rpcs(&self) -> usize {
        self.rpcs.len()
    }

    /// What is known of each peer, in no particular order. Takes time in proportion to the number of peers.
    pub fn peers(&self) -> impl Iterator<Item = PeerInfo> + '_ {
        self.peers.iter().map(|(peer, known)| PeerInfo {
            addr: known.addr,
            is_ours: known.is_ours(),
            dialect: known.dialect(self.now, &self.config),
            rpcs: known.rpc_count,
            rtt_ns: known.rtt.min_ns(),
            unsched_bytes: self.unscheduled_to(peer, u32::MAX),
            unsched_limit: (known.unsched_limit != u32::MAX).then_some(known.unsched_limit),
            max_packet: known.max_packet,
            refused: known.refused,
        })
    }

    /// Maximum unscheduled bytes of a message announced to peers, because too many once arrived at the same
    /// time. `None`: peers are sent no limit.
    pub fn unsched_limit(&self) -> Option<u32> {
        self.incast_estimator.limit()
    }

    /// Number of known peers.
    pub fn known_peers(&self) -> usize {
        self.peers.len()
    }

    /// The cutoffs that this host asks its peers to use, and their version.
    pub fn cutoffs(&self) -> ([u32; crate::wire::PRIORITIES], u16) {
        (*self.cutoffs.levels(), self.cutoffs.version())
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The recorder of time traces.
    pub fn trace(&mut self) -> &mut Trace {
        &mut self.trace
    }

    /// The number of each peer in the trace ([`Place::peer`](homa_trace::Place::peer)), with its address. The
    /// number of a forgotten peer is reused. Peers beyond the range of a trace record share the last number
    /// and are not listed.
    pub fn peer_numbers(&self) -> impl Iterator<Item = (u16, SocketAddr)> + '_ {
        let numbered = self.peers.iter().map(|(slot, peer)| (peer_number(slot), peer.addr));
        numbered.filter(|(number, _)| *number != u16::MAX)
    }

    /// Whether only peers and finished ids are left: no RPC, timer, queued packet or counted byte (ABORT-7).
    pub fn is_idle(&self) -> bool {
        self.rpcs.is_empty()
            && self.timers.armed() == 0
            && self.ready.is_empty()
            && self.retransmits.len() == 0
            && self.control.is_empty()
            && self.grants.is_empty()
            && self.grants.total_incoming == 0
            && self.unscheduled_loss.is_empty()
            && (self.outgoing_bytes, self.incoming_bytes) == (0, 0)
            && self.client_ids.is_empty()
            && self.server_ids.is_empty()
            && !self.has_reaping()
    }

    /// Advances the clock to `now`, unless the last time was later (PEER-13). Returns the result.
    pub(crate) fn advance(&mut self, now: Time) -> Time {
        self.now = self.now.max(now);
        self.now
    }

    /// Unscheduled bytes that a message to `peer` may send (SEND-1), at most `limit`.
    pub(crate) fn unscheduled_to(&self, peer: u32, limit: u32) -> u32 {
        let known = &self.peers[peer];
        let limit = whole_packets(limit.min(known.unsched_limit), self.max_payload(peer));
        known.unsched_bytes(&self.config).min(limit)
    }

    fn check_length(&self, length: u32) -> Result<(), SendError> {
        if length == 0 {
            return Err(SendError::EmptyMessage); // SEND-12
        }
        if length > self.config.max_message {
            return Err(SendError::MessageTooLarge { length, limit: self.config.max_message });
        }
        if self.outgoing_bytes + u64::from(length) > self.config.max_outgoing_bytes {
            return Err(SendError::LimitReached { name: "max_outgoing_bytes" });
        }
        Ok(())
    }

    /// The peer at `addr`, created if it is not known. `None` if `max_peers` are known and none of those
    /// examined can be forgotten.
    pub(crate) fn find_or_add_peer(&mut self, now: Time, addr: SocketAddr) -> Option<u32> {
        if let Some(peer) = self.peers.find(&addr) {
            return Some(peer);
        }
        if self.peers.len() >= self.config.max_peers as usize {
            self.settle_acks(now); // A forgotten peer's acks must not count for the next peer in its slot.
            // Expired ids keep no peer in the table, even if nothing else has checked them yet.
            self.expire_many_finished(now);
        }
        let (peer, evicted) = self.peers.add(addr, now, &self.config)?;
        self.stats.peers_evicted += u64::from(evicted);
        self.peers[peer].ids = IdOffset::new(self.keys.of_addr(addr), self.config.endpoints);
        self.peer_timers.ensure(peer);
        self.grants.set_served(peer, self.peers[peer].served); // The slot may hold a new peer.
        Some(peer)
    }

    pub(crate) fn key(&self, slot: u32) -> RpcKey {
        self.rpcs.key(slot)
    }

    /// The slot of a live RPC.
    pub(crate) fn slot(&self, key: RpcKey) -> Option<u32> {
        self.rpcs.slot(key)
    }

    /// Inserts a new RPC into the table, and makes room for it in every structure indexed by slot.
    pub(crate) fn insert_rpc(&mut self, rpc: Rpc) -> u32 {
        let (peer, port) = (rpc.peer, rpc.port);
        let slot = self.rpcs.insert(rpc);
        if slot as usize >= self.peer_rpcs.len() {
            self.fit_tables(slot as usize + 1);
        }
        self.port_rpcs.add(port, slot);
        let known = &mut self.peers[peer];
        self.peer_rpcs.push_back(&mut known.rpcs, peer, slot);
        known.rpc_count += 1;
        if !self.rpcs[slot as usize].state.is_client() {
            known.server_rpcs += 1;
            self.peer_timers.arm_by(peer, self.now + self.config.client_silence_ns / 2); // PEER-5
        }
        slot
    }

    /// Removes an RPC from the table and from every queue. The caller reports the reason in an event.
    pub(crate) fn remove_rpc(&mut self, slot: u32) -> EndedRpc {
        self.timers.disarm(slot);
        self.ready.remove(slot);
        self.retransmits.remove(slot);
        self.place_unasked(slot, UnscheduledState::Settled);
        self.unproven.remove(slot);
        let rpc = &mut self.rpcs[slot as usize];
        self.port_rpcs.remove(rpc.port, slot);
        self.grants.remove(slot, rpc.peer);
        self.grants.recount(&mut rpc.incoming, rpc.peer, 0);
        self.grants.dirty = true;
        let charged = charge(rpc.incoming.length);
        let peer = &mut self.peers[rpc.peer];
        self.peer_rpcs.remove(&mut peer.rpcs, slot);
        peer.rpc_count -= 1;
        if self.resend_links.list_of(slot).is_some() {
            self.resend_links.remove(&mut peer.resends, slot);
        }
        if rpc.state.is_client() {
            self.client_ids.remove(&rpc.id);
        } else {
            peer.server_rpcs -= 1;
            peer.request_bytes -= charged;
            self.server_ids.remove(&(rpc.peer, rpc.id));
        }
        self.outgoing_bytes -= u64::from(rpc.outgoing.length);
        self.incoming_bytes -= charged;
        let ended = rpc.ended();
        self.rpcs.remove(slot); // ABORT-3: from here on the key is stale.
        ended
    }

    /// Ends a client RPC with its complete response.
    pub(crate) fn end_with_response(&mut self, slot: u32) {
        let key = self.key(slot);
        let rpc = self.remove_rpc(slot);
        self.stats.responses_delivered += 1;
        self.mark_served(rpc.peer);
        // The message was completed just before, and that trace event has the time.
        let place = self.trace.place(peer_number(rpc.peer), 0);
        self.trace.record_again(EventKind::RpcEnd, rpc.id, 0, 0, place);
        self.queue_ack(&rpc);
        let CallOptions { cookie, private, .. } = rpc.options; // ID-13
        self.events.push_back(Event::Response { rpc: key, cookie, private, length: rpc.length });
    }

    /// Ends a client RPC with an error. Its message is freed too, so that no byte of it can be sent again
    /// (AMO-9).
    pub(crate) fn end_with_error(&mut self, slot: u32, error: RpcError) {
        let key = self.key(slot);
        let rpc = self.remove_rpc(slot);
        self.stats.rpcs_failed += 1;
        self.stats.rpcs_timed_out += u64::from(error == RpcError::Timeout);
        self.trace.record_with(EventKind::RpcEnd, rpc.id, 1 + error as u32, 0, peer_number(rpc.peer), 0);
        // ACK-12: the server need not keep a response that no client waits for.
        if !matches!(
            error,
            RpcError::Unreachable
                | RpcError::ProtocolUnreachable
                | RpcError::PeerRestarted
                | RpcError::NoSuchPort
        ) {
            self.queue_ack(&rpc);
        }
        let CallOptions { cookie, private, .. } = rpc.options;
        self.events.push_back(Event::Failed { rpc: key, cookie, private, error });
    }

    /// Frees a server RPC. Its id counts as finished if the application has seen any of it (AMO-2, AMO-3,
    /// AMO-12, ABORT-5).
    pub(crate) fn end_server(&mut self, now: Time, slot: u32, reason: DoneReason) {
        let key = self.key(slot);
        let rpc = self.remove_rpc(slot);
        self.stats.clients_silent += u64::from(reason == DoneReason::ClientSilent);
        let cause = u32::from(reason != DoneReason::Acknowledged);
        self.trace.record_with(EventKind::RpcEnd, rpc.id, cause, 1, peer_number(rpc.peer), 0);
        if (rpc.state != RpcState::RequestArriving || rpc.taken_early)
            && reason != DoneReason::ClientRestarted
        {
            self.remember_finished(now, &rpc);
        }
        self.events.push_back(Event::Done { rpc: key, reason });
    }

    /// Ends an RPC that its own side gives up.
    pub(crate) fn abort_slot(&mut self, now: Time, slot: u32) {
        if self.rpcs[slot as usize].state.is_client() {
            self.end_with_error(slot, RpcError::Aborted);
        } else {
            self.end_server(now, slot, DoneReason::Aborted);
        }
    }
}
