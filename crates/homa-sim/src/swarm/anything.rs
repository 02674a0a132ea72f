//! The application of the swarm's hosts.

use std::collections::{BTreeMap, BTreeSet};

use homa_proto::{CallOptions, DoneReason, MS, RpcError, RpcKey, Unreachable};
use rand::Rng;
use rand_pcg::Pcg64;

use super::forger::is_forged;
use super::hostile::{is_outsider, is_unverified};
use super::plan::{Plan, Weather};
use crate::app::{App, HostCtx, Reply};
use crate::payload::{mix, random_numbers};

/// The first server port of a host. The host's other server ports follow it, and no server binds the port
/// after the last one.
pub(super) const FIRST_PORT: u16 = 99;

/// An application that makes random calls within the contract, at random times.
pub(super) struct Anything {
    rng: Pcg64,
    host: usize,
    hosts: usize,
    mean_gap_ns: u64,
    max_message: u32,
    icmp: bool,
    closes_ports: bool,
    server_ports: u16,
    client_ports: usize,
    weather: Weather,
    mute: bool,
    calm: bool,
    /// Whether the server answers every request immediately, because the turmoil is over.
    serves: bool,
    /// Number of requests that this host's server aborted.
    pub(super) given_up: u64,
    /// Number of calls to a server's port that timed out.
    pub(super) unheard: u64,
    next_cookie: u64,
    pub(super) open: BTreeMap<u64, OpenCall>,
    /// Client ports that are open.
    from_ports: Vec<u16>,
    /// Requests not answered yet, with the length of the planned answer, if any.
    in_hand: BTreeMap<RpcKey, u32>,
    /// Open requests made by the forger.
    forged: BTreeSet<RpcKey>,
    /// Number of displaced requests whose end this incarnation of the host has reported (LIMIT-9).
    displaced: u64,
    /// The request that each pending timer will answer.
    timers: BTreeMap<u64, RpcKey>,
    pub(super) started: u64,
    pub(super) answered: u64,
    pub(super) failed: BTreeMap<String, u64>,
    pub(super) vanished: u64,
    /// Number of requests from unverified peers that this host's server ran.
    pub(super) unverified_peers: u64,
    pub(super) problems: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct OpenCall {
    rpc: RpcKey,
    port: u16,
    aborted: bool,
    readable: u32,
    /// Whether messages may be longer than Linux Homa accepts.
    too_long_for_kernels: bool,
}

/// The first client port (ID-6).
pub(super) const FIRST_CLIENT_PORT: u16 = 32_768;
/// Maximum length of an answer to the hostile peer.
const MAX_HOSTILE: u32 = 20_000;
/// Maximum message length of the calls that test connectivity after the turmoil.
const MAX_PROBE: u32 = 100_000;
/// Maximum message length in a surge.
const MAX_SURGE: u32 = 2_000;
const TOKEN_CALL: u64 = 0;
const TOKEN_ABORT_CALL: u64 = 1 << 62;
const TOKEN_END_REQUEST: u64 = 1 << 63;

impl Anything {
    pub(super) fn new(plan: &Plan, host: usize) -> Anything {
        Anything {
            rng: random_numbers(mix(plan.network.seed) ^ host as u64, 0xa9),
            host,
            hosts: plan.network.hosts,
            mean_gap_ns: plan.mean_gap_ns,
            max_message: plan.max_message,
            icmp: plan.icmp,
            closes_ports: plan.closes_ports,
            server_ports: plan.server_ports,
            client_ports: plan.client_ports,
            weather: plan.weather,
            mute: plan.mute == Some(host),
            calm: false,
            serves: false,
            from_ports: Vec::new(),
            given_up: 0,
            unheard: 0,
            next_cookie: 0,
            open: BTreeMap::new(),
            in_hand: BTreeMap::new(),
            forged: BTreeSet::new(),
            displaced: 0,
            timers: BTreeMap::new(),
            started: 0,
            answered: 0,
            failed: BTreeMap::new(),
            vanished: 0,
            unverified_peers: 0,
            problems: Vec::new(),
        }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    /// Returns a random message length: usually short, sometimes the maximum.
    fn length(&mut self) -> u32 {
        let bits = self.rng.random_range(0..=self.max_message.ilog2());
        self.rng.random_range(1..=(2u32 << bits).min(self.max_message))
    }

    /// Returns a random server port of a peer, sometimes one that no server has bound.
    fn any_port(&mut self) -> u16 {
        if self.chance(3) {
            self.unbound_port()
        } else {
            FIRST_PORT + self.rng.random_range(0..self.server_ports)
        }
    }

    fn unbound_port(&self) -> u16 {
        FIRST_PORT + self.server_ports
    }

    /// Returns a random client port of this host.
    fn any_client_port(&mut self, host: &mut HostCtx<'_>) -> Option<u16> {
        if self.from_ports.len() < self.client_ports {
            self.from_ports.extend(host.endpoint().open_client_port());
        }
        let count = self.from_ports.len();
        (count > 0).then(|| self.from_ports[self.rng.random_range(0..count)])
    }

    fn call(&mut self, host: &mut HostCtx<'_>) {
        let to = (self.host + self.rng.random_range(1..self.hosts)) % self.hosts;
        let (port, length) = (self.any_port(), self.length());
        let readable_step = if self.chance(20) { self.rng.random_range(1..=20_000) } else { 0 };
        let options = CallOptions { cookie: self.next_cookie, readable_step, private: self.chance(50) };
        let Some(from) = self.any_client_port(host) else { return };
        if self.start(host, from, to, port, length, options).is_some() && self.chance(8) {
            let at = host.now() + self.rng.random_range(0..5 * MS);
            host.set_timer(at, TOKEN_ABORT_CALL | options.cookie);
        }
    }

    /// Starts many calls at once.
    pub(super) fn peak(&mut self, host: &mut HostCtx<'_>, calls: u32) {
        (0..calls).for_each(|_| self.call(host));
    }

    fn start(
        &mut self,
        host: &mut HostCtx<'_>,
        from: u16,
        to: usize,
        port: u16,
        length: u32,
        options: CallOptions,
    ) -> Option<RpcKey> {
        let rpc = host.call_from(from, to, port, length, options).ok()?;
        self.next_cookie += 1;
        self.started += 1;
        self.open.insert(
            options.cookie,
            OpenCall { rpc, port, aborted: false, readable: 0, too_long_for_kernels: length > 1_000_000 },
        );
        Some(rpc)
    }

    /// Calls a host after the turmoil, when it must be up and must answer. Returns false if the endpoint
    /// refuses the call.
    pub(super) fn probe(&mut self, host: &mut HostCtx<'_>, to: usize) -> bool {
        let length = self.length().min(MAX_PROBE);
        self.probe_with(host, to, length)
    }

    /// Like `probe`, with a request of `length` bytes, or of the maximum length if that is less.
    pub(super) fn probe_with(&mut self, host: &mut HostCtx<'_>, to: usize, length: u32) -> bool {
        let port = FIRST_PORT + self.rng.random_range(0..self.server_ports);
        let length = length.min(self.max_message);
        let options = CallOptions { cookie: self.next_cookie, ..CallOptions::default() };
        let from = self.any_client_port(host);
        from.is_some_and(|from| self.start(host, from, to, port, length, options).is_some())
    }

    /// Makes the server answer every request from now on.
    pub(super) fn serve(&mut self, host: &mut HostCtx<'_>) {
        self.serves = true;
        self.bind_all(host);
    }

    /// Starts many short calls to one host at once.
    pub(super) fn surge(&mut self, host: &mut HostCtx<'_>, to: usize, calls: u32) {
        for _ in 0..calls {
            let length = self.length().min(MAX_SURGE);
            self.probe_with(host, to, length);
        }
    }

    /// Closes all ports.
    pub(super) fn close_all(&mut self, host: &mut HostCtx<'_>) {
        let servers = FIRST_PORT..self.unbound_port();
        servers.chain(std::mem::take(&mut self.from_ports)).for_each(|port| host.unbind(port));
    }

    fn bind_all(&mut self, host: &mut HostCtx<'_>) {
        for port in 0..self.server_ports {
            // The port remains in use while it is open and while the endpoint ends its RPCs.
            let _ = host.bind(FIRST_PORT + port);
        }
    }

    fn schedule_call(&mut self, host: &mut HostCtx<'_>) {
        let gap_ns = self.rng.random_range(0..=2 * self.mean_gap_ns);
        host.set_timer(host.now() + gap_ns, TOKEN_CALL);
    }

    /// Makes a report that one port, possibly that of an open request, is unreachable.
    fn refused_packet(&mut self, host: &HostCtx<'_>) -> Unreachable {
        match self.in_hand.keys().next() {
            Some(&rpc) if self.rng.random() => {
                Unreachable::Port { port: FIRST_CLIENT_PORT, rpc_id: host.endpoint.rpc_id(rpc) }
            }
            _ => Unreachable::Port { port: self.any_port(), rpc_id: None },
        }
    }

    /// Sometimes closes a port or reports a peer as unreachable. Reopens the server's port if it is closed.
    fn disturb(&mut self, host: &mut HostCtx<'_>) {
        if self.icmp && self.chance(3) {
            let report = match self.rng.random_range(0..4) {
                0 => Unreachable::Peer { rpc_id: None },
                1 => Unreachable::Protocol { rpc_id: None },
                _ => self.refused_packet(host),
            };
            host.report_unreachable((self.host + self.rng.random_range(1..self.hosts)) % self.hosts, report);
        }
        if self.closes_ports {
            self.bind_all(host);
            match self.rng.random_range(0..100) {
                0..3 if !self.from_ports.is_empty() => {
                    let at = self.rng.random_range(0..self.from_ports.len());
                    host.unbind(self.from_ports.swap_remove(at));
                }
                3..5 => host.unbind(FIRST_PORT + self.rng.random_range(0..self.server_ports)),
                _ => {}
            }
        }
    }

    fn abort_call(&mut self, host: &mut HostCtx<'_>, cookie: u64) {
        if let Some(call) = self.open.get_mut(&cookie) {
            call.aborted = true;
            host.abort(call.rpc);
        }
    }

    /// Stops starting calls.
    pub(super) fn end_turmoil(&mut self) {
        self.calm = true;
    }

    /// Aborts everything that is still open.
    pub(super) fn give_up(&mut self, host: &mut HostCtx<'_>) {
        for cookie in self.open.keys().copied().collect::<Vec<_>>() {
            self.abort_call(host, cookie);
        }
        for rpc in std::mem::take(&mut self.in_hand).into_keys() {
            host.abort(rpc);
        }
    }

    fn problem(&mut self, what: String) {
        const SHOWN: usize = 5;
        if self.problems.len() < SHOWN {
            self.problems.push(format!("host {}: {what}", self.host));
        }
    }
}

impl App for Anything {
    fn on_start(&mut self, host: &mut HostCtx<'_>) {
        self.vanished += self.open.len() as u64;
        self.open.clear();
        self.in_hand.clear();
        self.forged.clear();
        self.displaced = 0;
        self.timers.clear();
        self.from_ports.clear();
        self.bind_all(host);
        self.schedule_call(host);
    }

    fn on_request(&mut self, host: &mut HostCtx<'_>, rpc: RpcKey, from: usize, port: u16, _: u32) -> Reply {
        if is_unverified(from) {
            self.unverified_peers += 1;
            return Reply::Now(1);
        }
        if is_outsider(from) {
            return Reply::Now(self.max_message.min(MAX_HOSTILE));
        }
        // The ID is still in the store, although the endpoint may have ended the RPC in the same burst.
        if host.state.store.get(rpc).is_some_and(|entry| is_forged(entry.id)) {
            self.forged.insert(rpc);
            return Reply::Now(1);
        }
        if port >= self.unbound_port() {
            self.problem(format!("a request for port {port}, which is not open"));
        }
        let length = self.length();
        if self.serves {
            return Reply::Now(length.min(MAX_PROBE));
        }
        if self.mute {
            self.in_hand.insert(rpc, 0);
            return Reply::Never;
        }
        match self.rng.random_range(0..100) {
            0..60 => Reply::Now(length),
            60..80 => Reply::After { delay_ns: self.rng.random_range(0..40 * MS), length },
            80..95 => {
                // An answer or an abort comes from a timer, not from the callback that received the request.
                let answer = if self.chance(70) { length } else { 0 };
                self.in_hand.insert(rpc, answer);
                let token = TOKEN_END_REQUEST | u64::from(rpc.generation) << 32 | u64::from(rpc.slot);
                self.timers.insert(token, rpc);
                host.set_timer(host.now() + self.rng.random_range(0..60 * MS), token);
                Reply::Never
            }
            _ => {
                self.in_hand.insert(rpc, 0);
                Reply::Never
            }
        }
    }

    fn on_response(&mut self, _: &mut HostCtx<'_>, cookie: u64, _: u32) {
        let call = self.open.remove(&cookie);
        self.answered += u64::from(call.is_some());
        if call.is_none_or(|call| call.port >= self.unbound_port()) {
            self.problem(format!("an answer for RPC {cookie}, {call:?}"));
        }
    }

    fn on_failed(&mut self, _: &mut HostCtx<'_>, cookie: u64, error: RpcError) {
        *self.failed.entry(format!("{error:?}")).or_default() += 1;
        let Some(call) = self.open.remove(&cookie) else {
            return self.problem(format!("{error:?} for RPC {cookie}, which is not open"));
        };
        self.unheard += u64::from(error == RpcError::Timeout && call.port < self.unbound_port());
        let impossible = match error {
            RpcError::Aborted => !call.aborted && !self.closes_ports,
            RpcError::NoSuchPort => call.port < self.unbound_port() && !self.closes_ports && !self.icmp,
            RpcError::Unreachable | RpcError::ProtocolUnreachable => !self.icmp,
            RpcError::MessageTooLarge => !call.too_long_for_kernels,
            RpcError::PeerRestarted => self.weather != Weather::Storm,
            _ => false,
        };
        if impossible {
            self.problem(format!("{error:?} for {call:?}"));
        }
    }

    fn on_readable(&mut self, _: &mut HostCtx<'_>, cookie: u64, end: u32, length: u32) {
        match self.open.get_mut(&cookie) {
            Some(call) if call.readable < end && end <= length => call.readable = end,
            call => {
                let call = format!("{call:?}");
                self.problem(format!("readable to {end} of {length}: RPC {cookie}, {call}"));
            }
        }
    }

    fn on_done(&mut self, host: &mut HostCtx<'_>, rpc: RpcKey, from: usize, reason: DoneReason) {
        let displaced = host.endpoint().stats().unproven_evicted;
        if reason == DoneReason::ClientSilent && self.displaced < displaced {
            // LIMIT-9: an honest client that is still unverified sends a displaced request again.
            self.displaced += 1;
            return;
        }
        if is_outsider(from) || self.forged.remove(&rpc) {
            return;
        }
        self.in_hand.remove(&rpc);
        self.given_up += u64::from(reason == DoneReason::Aborted);
        if self.weather != Weather::Storm
            && matches!(reason, DoneReason::ClientSilent | DoneReason::ClientRestarted)
        {
            self.problem(format!("{reason:?} for {rpc:?}, though every client is up"));
        }
    }

    fn on_timer(&mut self, host: &mut HostCtx<'_>, token: u64) {
        if token & TOKEN_END_REQUEST != 0 {
            let Some(rpc) = self.timers.remove(&token) else { return };
            match self.in_hand.remove(&rpc) {
                Some(length) if length > 0 => {
                    if host.reply(rpc, length).is_err() {
                        host.abort(rpc);
                    }
                }
                _ => host.abort(rpc),
            }
        } else if token & TOKEN_ABORT_CALL != 0 {
            self.abort_call(host, token ^ TOKEN_ABORT_CALL);
        } else if !self.calm {
            self.call(host);
            self.disturb(host);
            self.schedule_call(host);
        }
    }
}
