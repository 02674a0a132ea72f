//! The endpoint: one type, one drive contract. It holds the state and dispatches; decisions are made in the files of their
//! concepts, most of which add methods to [`Endpoint`].

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;

use foldhash::fast::FixedState;
use homa_trace::{EventKind, Trace};
use slab::Slab;

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
use crate::message_in::charge;
use crate::message_out::{MessageOut, whole_packets};
use crate::pacer::Pacer;
use crate::peer::{Peers, peer_number};
use crate::port_rpcs::PortRpcs;
use crate::ports::Ports;
use crate::priority::Cutoffs;
use crate::reap::Reaper;
use crate::receive_coalescing::ReceiveRun;
use crate::retransmit::Retransmits;
use crate::rpc::{Rpc, RpcInput, RpcState};
use crate::shrink;
use crate::stats::Stats;
use crate::time::Time;
use crate::timer::TimerWheel;
use crate::transmit::Ready;
use crate::unproven::UnprovenRpcs;
use crate::unreachable::RefusedPorts;
use crate::unscheduled_loss::{LossAccounting, UnscheduledState};
use crate::wire::Incarnation;

/// Longest message that Linux Homa takes.
pub(crate) const KERNEL_MAX_MESSAGE: u32 = 1_000_000;

/// The protocol state of one host.
///
/// # The drive contract
/// - Time is given with each call and never goes back; an earlier one is taken as the last one.
/// - After `send_request`, `send_response`, `abort`, `close_port`, `handle_packets`, `handle_timeout` and
///   `peer_unreachable`: call `poll_event` until it gives nothing, and `poll_transmit` until it gives nothing or the driver
///   takes no more (a packet given out counts as sent: keep it until the driver takes it). `poll_transmit_run` gives the same
///   packets, several in a call where they are of one message.
/// - When `poll_timeout`'s moment has come: `handle_timeout`, then the polls again. It is asked anew after every call. What packets
///   brought may be answered first; then what was due already waits for no more than a drive call.
/// - Payload stays with the caller: outgoing messages from `send_*` until the event that ends the RPC, incoming ones from
///   the first [`Reassembly::write`] on.
pub struct Endpoint {
    pub(crate) config: Config,
    pub(crate) incarnation: Incarnation,
    /// What peers are told of bundles (WIRE-23).
    pub(crate) bundle_endpoints: u8,
    pub(crate) stats: Stats,
    /// TRACE-3: written, and read by the caller only.
    pub(crate) trace: Trace,
    pub(crate) now: Time,
    pub(crate) rpcs: Slab<Rpc>,
    pub(crate) generations: Vec<u32>,
    pub(crate) client_ids: HashMap<u64, u32, FixedState>,
    pub(crate) server_ids: HashMap<(u32, u64), u32, FixedState>,
    pub(crate) peers: Peers,
    /// Links of RPC slots in their peer's list.
    pub(crate) peer_rpcs: Links,
    pub(crate) ports: Ports,
    pub(crate) port_rpcs: PortRpcs,
    /// Server ports whose last owner is gone with its memory, and until when that matters.
    pub(crate) lost_owners: BTreeMap<u16, Time>,
    /// Secrets that no packet shows.
    pub(crate) keys: Keys,
    /// Challenges made for peers, each of which has another number.
    pub(crate) challenges: u64,
    /// The count of the next request, of which and of its peer its id is made.
    pub(crate) next_id: u64,
    /// Counts from `next_id` on that may be used.
    pub(crate) ids_left: u64,
    pub(crate) grants: Grants,
    pub(crate) unscheduled_quota: UnscheduledQuota,
    pub(crate) incast_estimator: IncastEstimator,
    pub(crate) unscheduled_loss: LossAccounting,
    /// Scratch memory of the choice of grants.
    pub(crate) active: Vec<u32>,
    pub(crate) ready: Ready,
    pub(crate) retransmits: Retransmits,
    pub(crate) control: VecDeque<Transmit>,
    pub(crate) pacer: Pacer,
    pub(crate) cutoffs: Cutoffs,
    /// Of RPCs that wait for their peer.
    pub(crate) timers: TimerWheel,
    /// Of peers: the next RESEND to it, or its silence.
    pub(crate) peer_timers: TimerWheel,
    /// Links of RPC slots in their peer's queue for RESENDs.
    pub(crate) resend_links: Links,
    pub(crate) finished: FinishedIds,
    pub(crate) unproven: UnprovenRpcs,
    pub(crate) events: VecDeque<Event>,
    pub(crate) reaper: Reaper,
    /// Acknowledgements that rode along with DATA and were put off: the peer, and the client's id.
    pub(crate) acked: Vec<(u32, u64)>,
    /// Peers for which five acknowledgements or more wait, and until when they may; in order of time.
    pub(crate) acks_due: VecDeque<(Time, u32)>,
    pub(crate) refused_ports: RefusedPorts,
    pub(crate) outgoing_bytes: u64,
    pub(crate) incoming_bytes: u64,
    /// Peers whose paths the caller is to look at.
    pub(crate) paths_in_question: VecDeque<u32>,
    /// When a packet was last given out to be sent.
    pub(crate) last_sent: Time,
    /// When tables that a peak has left large are looked at.
    pub(crate) shrink_at: Option<Time>,
    /// RPCs for which they keep room.
    pub(crate) least_room: usize,
}

impl Endpoint {
    /// An endpoint without open ports. `trace` records its events, with a clock of its own.
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
            rpcs: Slab::with_capacity(reserve),
            generations: Vec::with_capacity(reserve),
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

    /// Tells peers from now on that datagrams to this host hold one packet each (WIRE-23): for a packet path on which a datagram goes
    /// to one of several endpoints not by its RPC's id, or is an IP packet of Homa's own.
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
    /// All are open.
    pub fn open_client_port(&mut self) -> Result<u16, PortError> {
        self.ports.open_client()
    }

    /// Has an open port accept requests from now on, or accept none that have not begun to arrive: it is to their clients as if it were
    /// not open (ID-15). On a port that is not open, or is being closed, it does nothing.
    pub fn accept_requests(&mut self, port: u16, accept: bool) {
        self.ports.accept(port, accept && !self.reaper.is_closing(port));
    }

    /// Whether a port is open and accepts requests.
    pub fn accepts_requests(&self, port: u16) -> bool {
        self.ports.accepts(port)
    }

    /// Whether a port is being closed, and RPCs of it may be left.
    pub fn is_port_closing(&self, port: u16) -> bool {
        self.reaper.is_closing(port)
    }

    /// Closes a port, at once where it has no RPCs. Its RPCs are aborted, a few per drive call; until then the port is not given out
    /// again.
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

    /// Starts an RPC with a request of `length` bytes from the port `from_port`, which is open, to the port `to_port` of `to`.
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
        let id = self.take_id(peer).ok_or(SendError::NoIds)?; // ID-3: one count for all ports.
        let life = self.peers[peer].life;
        let unlimited = self.peers[peer].unsched_bytes(&self.config);
        let limit = self.unscheduled_quota.next(now, &self.config, unlimited);
        self.stats.requests_limited += u64::from(limit.is_some_and(|limit| limit < unlimited));
        let slot = self.insert_rpc(Rpc {
            outgoing: MessageOut::new(length, self.unscheduled_to(peer, u32::MAX)),
            response_limit: limit.unwrap_or(u32::MAX),
            options,
            ..Rpc::new(now, id, (peer, life), RpcState::Requesting, (from_port, to_port))
        });
        self.client_ids.insert(id, slot);
        self.outgoing_bytes += u64::from(length);
        self.stats.requests_started += 1;
        self.trace.record_with(EventKind::RpcStart, id, 0, length, peer_number(peer), 0);
        self.make_ready(slot);
        // A planted fault that the swarm must find, "call_unwatched": a call has no timer before its request has gone.
        #[cfg(not(homa_canary = "call_unwatched"))]
        self.timers.arm(slot, now + self.config.resend_interval_ns); // PEER-15
        Ok(self.key(slot))
    }

    /// Has the contiguous bytes of requests that begin from now on reported as they grow by `step` bytes, 0 for only when whole: sets
    /// [`Config::request_readable_step`].
    pub fn set_request_readable_step(&mut self, step: u32) {
        self.config.request_readable_step = step;
    }

    /// What is known of a request that is arriving; `None` where it is whole, or gone.
    pub fn arriving_request(&self, rpc: RpcKey) -> Option<ArrivingRequest> {
        let rpc = &self.rpcs[self.slot(rpc)? as usize];
        let (end, length) = (rpc.incoming.gaps.contiguous(), rpc.incoming.length);
        let arriving = ArrivingRequest { peer: self.peers[rpc.peer].addr, port: rpc.port, end, length };
        (rpc.state == RpcState::RequestArriving).then_some(arriving)
    }

    /// Hands a request to the application that is not whole, after [`Event::Readable`] has told of it: its bytes are reported each
    /// time `step` more are there (0: not again), until [`Event::Request`] says that it is whole, or [`Event::Done`] that it never
    /// will be. However it ends, it will not be handed out again (AMO-12). It is answered once it is whole. False: it is whole
    /// already, or gone.
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
    /// Nothing was sent: the message is empty or too large, the RPC is gone or answered, or a limit is reached.
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
        self.make_ready(slot);
        self.timers.arm(slot, now + self.config.need_ack_interval_ns); // PEER-15
        Ok(())
    }

    /// Gives an RPC up, on either side. One event ends it (ABORT-1); a dead key is ignored.
    pub fn abort(&mut self, now: Time, rpc: RpcKey) {
        let now = self.advance(now);
        if let Some(slot) = self.slot(rpc) {
            self.stats.rpcs_aborted += 1;
            self.abort_slot(now, slot);
        }
    }

    /// Ends an RPC on this side alone: no event, and no word to the peer. A server's request counts as served, and its id as
    /// finished. A dead key is ignored.
    ///
    /// For simulations of one-way messages, whose harness ends both sides at the moment when the request is delivered; nothing that
    /// talks to a peer calls it.
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

    /// Takes a burst of packets. Payload of incoming messages goes to `sink`; everything else waits to be polled.
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
        // The endpoint that computes a host's cutoffs also limits its peers: what they are told has one version (HOST-4).
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

    /// When `handle_timeout` and `poll_transmit` want to be called next; may be in the past.
    pub fn poll_timeout(&self) -> Option<Time> {
        let reap = self.has_reaping().then_some(self.now);
        let pacer = self.ready.waits_for_pacer.then(|| self.pacer.free_at());
        let timers = earlier(earlier(self.timers.next(), self.peer_timers.next()), self.next_shrink());
        let timers = earlier(timers, self.next_ack());
        earlier(earlier(timers, self.unscheduled_loss.next(self.now)), earlier(reap, pacer))
    }

    /// Does what is due: a bounded part of it, so that packets need not wait; `poll_timeout` says whether more is.
    pub fn handle_timeout(&mut self, now: Time) {
        let now = self.advance(now);
        if !self.acked.is_empty() {
            self.settle_acks(now);
            if self.poll_timeout().is_none_or(|due| due > now) {
                // Nothing else was due: each RPC of a server comes here.
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
        // A caller whose driver is full cannot poll for packets: this moment of the pacer has been told.
        self.ready.waits_for_pacer &= !self.pacer.may_send(now);
    }

    /// The id by which a living RPC goes on the wire: even for a client's, odd for a server's.
    pub fn rpc_id(&self, rpc: RpcKey) -> Option<u64> {
        self.slot(rpc).map(|slot| self.rpcs[slot as usize].id)
    }

    /// What a time trace calls a living RPC: its id, and the number of its peer ([`peer_numbers`](Endpoint::peer_numbers)).
    pub fn traced(&self, rpc: RpcKey) -> Option<(u64, u16)> {
        let rpc = &self.rpcs[self.slot(rpc)? as usize];
        Some((rpc.id, peer_number(rpc.peer)))
    }

    /// RPCs open, of both sides.
    pub fn open_rpcs(&self) -> usize {
        self.rpcs.len()
    }

    /// What is known of each peer, in no particular order; takes time in proportion to their number.
    pub fn peers(&self) -> impl Iterator<Item = PeerInfo> + '_ {
        self.peers.iter().map(|(peer, known)| PeerInfo {
            addr: known.addr,
            is_ours: known.is_ours(),
            rpcs: known.rpc_count,
            rtt_ns: known.rtt.min_ns(),
            unsched_bytes: self.unscheduled_to(peer, u32::MAX),
            unsched_limit: (known.unsched_limit != u32::MAX).then_some(known.unsched_limit),
            max_packet: known.max_packet,
            refused: known.refused,
        })
    }

    /// Most bytes of a message that peers are told to send unasked, because too many once sent at the same time; `None`:
    /// they are told nothing.
    pub fn unsched_limit(&self) -> Option<u32> {
        self.incast_estimator.limit()
    }

    /// Peers known.
    pub fn known_peers(&self) -> usize {
        self.peers.len()
    }

    /// The cutoffs this host asks its peers to keep, and their version.
    pub fn cutoffs(&self) -> ([u32; crate::wire::PRIORITIES], u16) {
        (*self.cutoffs.levels(), self.cutoffs.version())
    }

    /// The settings.
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

    /// The number that each peer has in the trace ([`Place::peer`](homa_trace::Place::peer)), with its address. A peer that is forgotten leaves its number
    /// to another; those beyond the numbers that a record has room for share the last one and are not named.
    pub fn peer_numbers(&self) -> impl Iterator<Item = (u16, SocketAddr)> + '_ {
        let numbered = self.peers.iter().map(|(slot, peer)| (peer_number(slot), peer.addr));
        numbered.filter(|(number, _)| *number != u16::MAX)
    }

    /// Whether nothing is left but peers and finished ids: no RPC, timer, queued packet or counted byte (ABORT-7).
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

    /// Takes `now`, or the last time where that was later (PEER-13).
    pub(crate) fn advance(&mut self, now: Time) -> Time {
        self.now = self.now.max(now);
        self.now
    }

    /// Bytes of a message to `peer` that may be sent unasked (SEND-1), no more than `limit`.
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

    /// The peer at `addr`, made if need be; `None` when `max_peers` are known and none of those looked at can be forgotten.
    pub(crate) fn find_or_add_peer(&mut self, now: Time, addr: SocketAddr) -> Option<u32> {
        if let Some(peer) = self.peers.find(&addr) {
            return Some(peer);
        }
        if self.peers.len() >= self.config.max_peers as usize {
            self.settle_acks(now); // None of a forgotten peer must be taken for one of the next in its place.
            // Ids whose time has passed keep nobody, whether or not anything else looked at them.
            self.expire_many_finished(now);
        }
        let (peer, evicted) = self.peers.add(addr, now, &self.config)?;
        self.stats.peers_evicted += u64::from(evicted);
        self.peers[peer].ids = IdOffset::new(self.keys.of_addr(addr), self.config.endpoints);
        self.peer_timers.ensure(peer);
        self.grants.set_served(peer, self.peers[peer].served); // A slot may have a new user.
        Some(peer)
    }

    pub(crate) fn key(&self, slot: u32) -> RpcKey {
        RpcKey { slot, generation: self.generations[slot as usize] }
    }

    /// The slot of a living RPC.
    pub(crate) fn slot(&self, key: RpcKey) -> Option<u32> {
        let lives = self.generations.get(key.slot as usize) == Some(&key.generation)
            && self.rpcs.contains(key.slot as usize);
        lives.then_some(key.slot)
    }

    /// Puts a new RPC into the table, with room for it in every structure that is indexed by slot.
    pub(crate) fn insert_rpc(&mut self, rpc: Rpc) -> u32 {
        let (peer, port) = (rpc.peer, rpc.port);
        let slot = self.rpcs.insert(rpc) as u32;
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

    /// Takes an RPC out of the table and of every queue. The caller has said, or says, why in an event.
    pub(crate) fn remove_rpc(&mut self, slot: u32) -> Rpc {
        self.timers.disarm(slot);
        self.ready.remove(slot);
        self.retransmits.remove(slot);
        self.place_unasked(slot, UnscheduledState::Settled);
        self.unproven.remove(slot);
        let mut rpc = self.rpcs.remove(slot as usize);
        self.port_rpcs.remove(rpc.port, slot);
        // ABORT-3: the key names nothing from here on.
        self.generations[slot as usize] = self.generations[slot as usize].wrapping_add(1);
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
        rpc
    }

    /// Ends a client RPC with its whole response.
    pub(crate) fn end_with_response(&mut self, slot: u32) {
        let key = self.key(slot);
        let rpc = self.remove_rpc(slot);
        self.stats.responses_delivered += 1;
        self.mark_served(rpc.peer);
        // The message was complete a moment ago, and its event has the time.
        let place = self.trace.place(peer_number(rpc.peer), 0);
        self.trace.record_again(EventKind::RpcEnd, rpc.id, 0, 0, place);
        self.queue_ack(&rpc);
        let CallOptions { cookie, private, .. } = rpc.options; // ID-13
        self.events.push_back(Event::Response { rpc: key, cookie, private, length: rpc.incoming.length });
    }

    /// Ends a client RPC with an error. Its message goes with it, so that nothing of it can be sent again (AMO-9).
    pub(crate) fn end_with_error(&mut self, slot: u32, error: RpcError) {
        let key = self.key(slot);
        let rpc = self.remove_rpc(slot);
        self.stats.rpcs_failed += 1;
        self.stats.rpcs_timed_out += u64::from(error == RpcError::Timeout);
        self.trace.record_with(EventKind::RpcEnd, rpc.id, 1 + error as u32, 0, peer_number(rpc.peer), 0);
        // ACK-12: the server need not keep what nobody waits for.
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

    /// Frees a server RPC; its id counts as finished if the application has seen any of it (AMO-2, AMO-3, AMO-12, ABORT-5).
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

/// The earlier of two moments, where there are any.
fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, None) => one,
        (None, other) => other,
    }
}
