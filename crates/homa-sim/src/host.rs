//! A host: an endpoint, its application, and its drive loop.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use homa_proto::{Config, Endpoint, Event as ProtoEvent, RpcKey, RxPacket, Time, Transmit};
use homa_trace::{Clock, Trace};

use crate::app::{App, HostCtx, Reply};
use crate::clock::HostClock;
use crate::fabric::{Event, Fabric, address_index, host_address};
use crate::network::{Deployed, HostEvent};
use crate::oracle::Oracle;
use crate::packet::{Packet, PacketInfo};
use crate::payload::PayloadMode;
use crate::store::{PacketSink, Store};

/// Counters of a host since the beginning of the run, summed over all its incarnations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounts {
    /// RPCs that its client started.
    pub started: u64,
    /// RPCs that ended with a response.
    pub answered: u64,
    /// RPCs that ended with an error.
    pub failed: u64,
    /// Requests that its server executed.
    pub executed: u64,
    /// Requests that the same incarnation of its server executed more than once.
    pub executed_again: u64,
    /// Requests whose length differed from the length that the client sent.
    pub lengths_wrong: u64,
    /// Bytes of complete messages that were delivered.
    pub goodput_bytes: u64,
}

/// State of a host other than its endpoint and its application.
pub(crate) struct HostState {
    pub(crate) index: u32,
    /// Number of crashes, by which events of earlier incarnations are recognised and ignored.
    pub(crate) life: u32,
    pub(crate) client_port: Option<u16>,
    pub(crate) store: Store,
    pub(crate) counts: HostCounts,
    /// Packets in the card's receive queue.
    pub(crate) waiting: Vec<u32>,
    /// Clock of the host.
    pub(crate) clock: HostClock,
    /// The latest time passed to this incarnation's endpoint.
    latest: Time,
    /// End of the current stall. Until then the card collects packets and timers wait.
    pub(crate) stalled_until: Time,
    oracle: Oracle,
    /// Number of times this incarnation executed the request, by client host and ID.
    executed: HashMap<(u32, u64), u32>,
    /// Time of the earliest timeout event in the queue.
    armed: Option<Time>,
    /// Whether the endpoint may have more to send, because the card was full.
    pub(crate) nic_blocked: bool,
    steps: u64,
    check_every: u64,
    trace_records: usize,
    max_packet: u32,
    /// Number of consecutive timeouts at the same time.
    standing_still: u32,
}

/// Number of timeouts at the same time that counts as an endless loop: far more than any run needs.
const MAX_STANDING_STILL: u32 = 1_000_000;

/// A host of the network.
pub struct Host<A> {
    pub(crate) endpoint: Option<Endpoint>,
    pub(crate) app: A,
    pub(crate) state: HostState,
}

/// Settings of a host.
pub(crate) struct HostSetup {
    pub(crate) seed: u64,
    pub(crate) index: u32,
    pub(crate) payload: PayloadMode,
    pub(crate) check_every: u64,
    pub(crate) trace_records: usize,
    pub(crate) kernels: Rc<[bool]>,
    /// Whether the oracle checks packets. This requires that faults do not modify packets.
    pub(crate) oracle: bool,
}

impl<A: App> Host<A> {
    pub(crate) fn new(setup: &HostSetup, app: A) -> Host<A> {
        Host {
            endpoint: None,
            app,
            state: HostState {
                index: setup.index,
                life: 0,
                client_port: None,
                store: Store::new(setup.seed, setup.index, setup.payload),
                counts: HostCounts::default(),
                waiting: Vec::new(),
                clock: HostClock::default(),
                latest: Time::ZERO,
                stalled_until: Time::ZERO,
                oracle: Oracle::new(setup.oracle && setup.check_every > 0, setup.kernels.clone()),
                executed: HashMap::new(),
                armed: None,
                nic_blocked: false,
                steps: 0,
                check_every: setup.check_every,
                trace_records: setup.trace_records,
                max_packet: 0,
                standing_still: 0,
            },
        }
    }

    /// Returns the application, for changes between events.
    pub fn app_mut(&mut self) -> &mut A {
        &mut self.app
    }

    /// Returns the application.
    pub fn app(&self) -> &A {
        &self.app
    }

    /// Returns the endpoint, if the host is up.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        self.endpoint.as_ref()
    }

    /// Returns the endpoint, if the host is up. Packets that the endpoint sends because of a change are sent
    /// at the host's next event.
    pub fn endpoint_mut(&mut self) -> Option<&mut Endpoint> {
        self.endpoint.as_mut()
    }

    /// Returns the host's counters.
    pub fn counts(&self) -> HostCounts {
        self.state.counts
    }

    /// Returns the number of RPCs for which the host stores payload or a key.
    pub fn stored_rpcs(&self) -> usize {
        self.state.store.open()
    }

    /// Returns the bytes of incoming messages that the host stores.
    pub fn stored_bytes(&self) -> u64 {
        self.state.store.buffered_bytes()
    }

    /// Returns the number of wrong received payload bytes.
    pub fn bytes_wrong(&self) -> u64 {
        self.state.store.counts.bytes_wrong
    }

    /// Returns the number of received payload bytes, each counted once.
    pub fn bytes_received(&self) -> u64 {
        self.state.store.counts.bytes_received
    }

    /// Returns descriptions of the endpoint's first violations of the drive contract.
    pub fn violations(&self) -> &[String] {
        &self.state.store.violations
    }

    /// Returns descriptions of the first RPCs that are still stored.
    pub fn leftovers(&self) -> Vec<String> {
        const SHOWN: usize = 5;
        let describe = |entry: &crate::store::Entry| {
            format!(
                "host {}: {} RPC {} with host {}, {:?}, outgoing {} B, incoming {} B",
                self.state.index,
                if entry.is_client { "client" } else { "server" },
                entry.id,
                entry.peer,
                entry.key,
                entry.outgoing,
                entry.incoming
            )
        };
        self.state.store.iter().take(SHOWN).map(describe).collect()
    }

    /// Returns whether nothing is left: the endpoint is idle, and its caller stores nothing.
    pub fn is_idle(&self) -> bool {
        self.state.store.open() == 0 && self.endpoint.as_ref().is_none_or(Endpoint::is_idle)
    }

    /// Starts the host, or restarts it with empty memory.
    pub(crate) fn start(&mut self, fabric: &mut Fabric<Deployed>, config: Config) {
        let trace = match self.state.trace_records {
            0 => Trace::off(),
            records => Trace::new(records, Clock::Virtual),
        };
        self.state.max_packet = config.max_packet;
        match Endpoint::new(config, trace) {
            Ok(endpoint) => self.endpoint = Some(endpoint),
            Err(error) => panic!("the configuration of host {} is wrong: {error}", self.state.index),
        }
        self.act(fabric, |app, host| app.on_start(host));
    }

    /// Crashes the host: it loses its memory and sends nothing from now on.
    pub(crate) fn crash(&mut self, fabric: &mut Fabric<Deployed>) {
        self.endpoint = None;
        let state = &mut self.state;
        state.life += 1;
        state.client_port = None;
        state.armed = None;
        state.nic_blocked = false;
        state.stalled_until = Time::ZERO;
        state.latest = Time::ZERO;
        state.executed.clear();
        state.oracle.reset();
        state.store.forget_all();
        fabric.shared.retain(|&(client, _), _| client != state.index);
        let mut lost = fabric.ports[state.index as usize].clear();
        lost.append(&mut state.waiting);
        let queues = fabric.driver_queues.iter_mut().filter(|((from, _), _)| *from == state.index);
        lost.extend(queues.flat_map(|(_, queue)| queue.take_kept()));
        lost.into_iter().for_each(|packet| fabric.packets.release(packet));
    }

    /// Lets the application act, then drives the endpoint.
    pub(crate) fn act<R>(
        &mut self,
        fabric: &mut Fabric<Deployed>,
        act: impl FnOnce(&mut A, &mut HostCtx<'_>) -> R,
    ) -> Option<R> {
        let endpoint = self.endpoint.as_mut()?;
        endpoint.trace().set_virtual_now(fabric.now.as_ns());
        let result = act(&mut self.app, &mut HostCtx { endpoint, state: &mut self.state, fabric });
        self.drive(fabric);
        Some(result)
    }

    /// Receives packets from the wire.
    pub(crate) fn receive(&mut self, fabric: &mut Fabric<Deployed>, burst: &[(u32, Packet<Vec<u8>>)]) {
        let Some(endpoint) = self.endpoint.as_mut() else { return };
        endpoint.trace().set_virtual_now(fabric.now.as_ns());
        let current = Cell::new(None);
        let packets = burst.iter().map(|(_, packet)| {
            let packet = RxPacket {
                from: host_address(packet.info.from as usize),
                bytes: &packet.body,
                wire_len: packet.info.wire_len as usize,
                priority: Some(packet.info.priority),
            };
            current.set(Some(packet));
            packet
        });
        let state = &mut self.state;
        let before = state.oracle.snapshot_before(endpoint);
        let mut sink = PacketSink { store: &mut state.store, current: &current };
        state.latest = state.latest.max(state.clock.read(fabric.now));
        endpoint.handle_packets(state.clock.read(fabric.now), packets, &mut sink);
        let taken =
            burst.iter().map(|(_, packet)| (packet.info.from, packet.body.as_slice(), packet.info.wire_len));
        state.oracle.after(before, endpoint, &mut state.store, taken);
        while let Some(peer) = endpoint.poll_path() {
            let way = (state.index, address_index(peer));
            state.oracle.record_path_check(way.1);
            let limit = fabric.path_limits.get(&way).filter(|limit| limit.told);
            let longest = limit.map_or(state.max_packet, |limit| limit.bytes.min(state.max_packet));
            endpoint.set_peer_max_packet(peer, longest);
        }
        self.drive(fabric);
    }

    pub(crate) fn timeout(&mut self, fabric: &mut Fabric<Deployed>) {
        if self.state.armed != Some(fabric.now) {
            return;
        }
        self.state.armed = None;
        let Some(endpoint) = self.endpoint.as_mut() else { return };
        endpoint.trace().set_virtual_now(fabric.now.as_ns());
        let state = &mut self.state;
        let before = state.oracle.snapshot_before(endpoint);
        endpoint.handle_timeout(state.clock.read(fabric.now));
        state.oracle.after(before, endpoint, &mut state.store, std::iter::empty());
        self.drive(fabric);
    }

    /// Finishes a step: passes events to the application and packets to the card, and schedules the next
    /// timeout.
    pub(crate) fn drive(&mut self, fabric: &mut Fabric<Deployed>) {
        loop {
            self.pump_packets(fabric);
            if !self.pump_events(fabric) {
                break;
            }
        }
        self.arm(fabric);
        self.state.steps += 1;
        if self.state.check_every > 0 && self.state.steps.is_multiple_of(self.state.check_every) {
            self.endpoint.as_ref().inspect(|endpoint| endpoint.check());
        }
    }

    fn pump_packets(&mut self, fabric: &mut Fabric<Deployed>) {
        let Some(endpoint) = self.endpoint.as_mut() else { return };
        let state = &mut self.state;
        state.oracle.held_over = state.nic_blocked;
        state.nic_blocked = false;
        loop {
            if !fabric.nic_has_room(state.index) {
                state.nic_blocked = true;
                return;
            }
            let (now, waits) = (state.clock.read(fabric.now), endpoint.stats().pacer_waits);
            state.latest = state.latest.max(now);
            match endpoint.poll_transmit(now) {
                Some(transmit) => {
                    state.oracle.sends(state.latest, endpoint, &mut state.store, &transmit);
                    state.transmit(fabric, &transmit);
                }
                None => {
                    // Nothing is left to send, unless a pacer delays packets or some RPCs have not been ended
                    // yet.
                    let is_done = endpoint.poll_timeout().is_none_or(|at| at > state.latest);
                    if is_done && endpoint.stats().pacer_waits == waits {
                        state.oracle.has_sent_all(endpoint, &mut state.store);
                    }
                    return;
                }
            }
        }
    }

    /// Passes events to the application. Returns whether there were any.
    fn pump_events(&mut self, fabric: &mut Fabric<Deployed>) -> bool {
        let mut any = false;
        loop {
            let Some(endpoint) = self.endpoint.as_mut() else { return any };
            let Some(event) = endpoint.poll_event() else { return any };
            any = true;
            self.event(fabric, event);
        }
    }

    fn event(&mut self, fabric: &mut Fabric<Deployed>, event: ProtoEvent) {
        let Some(endpoint) = self.endpoint.as_mut() else { return };
        let state = &mut self.state;
        match event {
            ProtoEvent::Request { rpc, peer, port, length } => {
                state.check_request(fabric, rpc, peer, length);
                let mut host = HostCtx { endpoint, state, fabric };
                let from = address_index(peer) as usize;
                let reply = self.app.on_request(&mut host, rpc, from, port, length);
                host.answer(rpc, reply);
            }
            ProtoEvent::Response { rpc, cookie, length, .. } => {
                state.store.complete(rpc, length);
                state.counts.answered += 1;
                state.counts.goodput_bytes += u64::from(length);
                state.end_client(fabric, rpc, cookie);
                self.app.on_response(&mut HostCtx { endpoint, state, fabric }, cookie, length);
            }
            ProtoEvent::Failed { rpc, cookie, error, .. } => {
                state.counts.failed += 1;
                state.end_client(fabric, rpc, cookie);
                self.app.on_failed(&mut HostCtx { endpoint, state, fabric }, cookie, error);
            }
            ProtoEvent::Readable { rpc, end, length } => {
                let (cookie, there) =
                    state.store.get(rpc).map_or((0, 0), |entry| (entry.cookie, entry.contiguous()));
                if end > there || end > length {
                    state
                        .store
                        .violation(format!("{rpc:?} is said to be readable to {end}; {there} are there"));
                }
                self.app.on_readable(&mut HostCtx { endpoint, state, fabric }, cookie, end, length);
            }
            ProtoEvent::Done { rpc, reason } => {
                let Some(entry) = state.store.end(rpc).filter(|entry| !entry.is_client) else {
                    state.store.violation(format!("Done for {rpc:?}, which is no open server RPC"));
                    return;
                };
                let from = entry.peer as usize;
                self.app.on_done(&mut HostCtx { endpoint, state, fabric }, rpc, from, reason);
            }
            ProtoEvent::Freeze { .. } => {}
        }
    }

    pub(crate) fn arm(&mut self, fabric: &mut Fabric<Deployed>) {
        let Some(endpoint) = self.endpoint.as_ref() else { return };
        let Some(at) = endpoint.poll_timeout() else { return };
        if at == Time::NEVER {
            return;
        }
        let state = &mut self.state;
        let at = if at <= state.clock.read(fabric.now) { fabric.now } else { state.clock.network_time(at) };
        if at <= fabric.now {
            state.standing_still += 1;
            if state.standing_still > MAX_STANDING_STILL {
                return state.store.violation(format!("its timeout stands still at {at:?}"));
            }
        } else {
            state.standing_still = 0;
        }
        let at = at.max(fabric.now);
        if state.armed.is_none_or(|armed| at < armed) {
            state.armed = Some(at);
            fabric.queue.push(at, Event::Host(HostEvent::Timeout { host: state.index, life: state.life }));
        }
    }

    /// Sends the response that the application has computed.
    pub(crate) fn reply(&mut self, fabric: &mut Fabric<Deployed>, rpc: RpcKey, length: u32) {
        // The client may have aborted in the meantime, in which case it needs no answer.
        self.act(fabric, |_, host| host.answer(rpc, Reply::Now(length)));
    }
}

impl HostCtx<'_> {
    fn answer(&mut self, rpc: RpcKey, reply: Reply) {
        match reply {
            Reply::Now(length) => {
                if self.reply(rpc, length).is_err() {
                    // The limit of outgoing bytes is reached, or the client aborted. An application that
                    // cannot answer aborts the RPC, too.
                    self.abort(rpc);
                }
            }
            Reply::After { delay_ns, length } => {
                let (host, life) = (self.state.index, self.state.life);
                let event = HostEvent::Reply { host, life, rpc, length };
                self.fabric.queue.push(self.fabric.now + delay_ns, Event::Host(event));
            }
            Reply::Never => {}
        }
    }
}

impl HostState {
    /// Moves a due timeout to the end of the stall. Returns false if none is due.
    pub(crate) fn rearm(&mut self, now: Time) -> bool {
        let due = self.armed == Some(now);
        if due {
            self.armed = Some(self.stalled_until);
        }
        due
    }

    fn transmit(&mut self, fabric: &mut Fabric<Deployed>, transmit: &Transmit) {
        let number = fabric.packets.take();
        let bytes = &mut fabric.packets.get_mut(number).body;
        bytes.clear();
        bytes.extend_from_slice(&transmit.header);
        let mut wire_len = transmit.header.len() as u32;
        if let Some(range) = transmit.payload {
            wire_len += range.len;
            let sender_id = || {
                homa_proto::wire::decode(&transmit.header, wire_len as usize)
                    .map_or(0, |packet| packet.common.sender_id)
            };
            let first = self.store.outgoing(range.rpc, range.offset, range.len, sender_id, bytes);
            if let Some((id, length)) = first {
                fabric.shared.insert((self.index, id), length);
            }
        }
        if wire_len > self.max_packet {
            self.store.violation(format!("sends a packet of {wire_len} bytes, more than max_packet"));
        }
        let (from, to) = (self.index, address_index(transmit.to));
        let (priority, flow) = (transmit.priority, from ^ to);
        fabric.packets.get_mut(number).info =
            PacketInfo { from, to, wire_len, priority, flow, ..PacketInfo::default() };
        fabric.send(number);
    }

    fn check_request(
        &mut self,
        fabric: &Fabric<Deployed>,
        rpc: RpcKey,
        peer: std::net::SocketAddr,
        length: u32,
    ) {
        self.store.complete(rpc, length);
        let Some(entry) = self.store.get(rpc) else { return };
        let twice = std::mem::replace(&mut entry.delivered, true);
        let (id, client) = (entry.id, entry.peer);
        if twice || client != address_index(peer) {
            self.store.violation(format!("{rpc:?} is handed over twice or from another host, {peer}"));
        }
        if fabric.shared.get(&(client, id)).is_some_and(|&sent| sent != length) {
            self.counts.lengths_wrong += 1;
        }
        let times = self.executed.entry((client, id)).or_default();
        *times += 1;
        self.counts.executed += 1;
        self.counts.executed_again += u64::from(*times > 1);
        self.counts.goodput_bytes += u64::from(length);
    }

    fn end_client(&mut self, fabric: &mut Fabric<Deployed>, rpc: RpcKey, cookie: u64) {
        match self.store.end(rpc) {
            Some(entry) if entry.is_client && entry.cookie == cookie => {
                fabric.shared.remove(&(self.index, entry.id));
            }
            _ => self
                .store
                .violation(format!("an end for {rpc:?}, cookie {cookie}, which is no open client RPC")),
        }
    }
}
