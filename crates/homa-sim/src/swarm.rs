//! Everything that can go wrong, chosen by a seed: the network, the hosts, the settings, and what applications do.

use std::collections::BTreeMap;

use homa_proto::{
    CallOptions, Config, DoneReason, FinishedPolicy, MS, RpcError, RpcKey, SEC, Time, US, Unreachable,
};
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_pcg::Pcg64;

use crate::app::{App, HostCtx, Reply};
use crate::fault::FaultProfile;
use crate::network::{Network, NetworkConfig, Topology};
use crate::payload::{PayloadMode, mix, random_numbers};

/// What a run of the swarm does beside what its seed chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwarmOptions {
    /// How long hosts work and things go wrong, on virtual time.
    pub turmoil_ns: u64,
    /// The state of a host is proved after every so many of its steps; 0: never.
    pub check_every: u64,
    /// Whether packets may be corrupted without a checksum noticing. Payload cannot be vouched for then.
    pub corruption: bool,
}

impl Default for SwarmOptions {
    fn default() -> SwarmOptions {
        SwarmOptions { turmoil_ns: 200 * MS, check_every: 7, corruption: false }
    }
}

/// What came of a run of the swarm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwarmReport {
    /// The seed.
    pub seed: u64,
    /// RPCs started, answered and failed.
    pub started: u64,
    /// RPCs answered.
    pub answered: u64,
    /// RPCs failed, by error.
    pub failed: BTreeMap<String, u64>,
    /// RPCs whose host crashed before they ended.
    pub vanished: u64,
    /// Requests that servers ran.
    pub executed: u64,
    /// Packets sent.
    pub packets: u64,
    /// Crashes.
    pub crashes: u64,
    /// What the seed chose, in words.
    pub plan: String,
    /// What must not be, in words; empty after a sound run.
    pub problems: Vec<String>,
}

/// Server ports; the second is not bound.
const PORTS: [u16; 2] = [99, 100];
/// How long the network is left in peace before what is still open is given up.
const PEACE_NS: u64 = 3 * SEC;
/// How long all state may take to go afterwards: far more than the sum of all intervals.
const IDLE_LIMIT_NS: u64 = 120 * SEC;

/// How a run is, as its seed chose.
#[derive(Clone, Debug)]
struct Plan {
    network: NetworkConfig,
    /// Nothing is lost, delayed, crashed, cut off or closed.
    peaceful: bool,
    mean_gap_ns: u64,
    max_message: u32,
    mean_crash_gap_ns: Option<u64>,
    mean_partition_gap_ns: Option<u64>,
    /// Whether hosts are told now and then that a peer is unreachable, which it may not be.
    icmp: bool,
    /// Whether ports are closed and opened again.
    closes_ports: bool,
}

fn pick<T: Copy>(rng: &mut Pcg64, values: &[T]) -> T {
    *values.choose(rng).expect("there are values")
}

fn plan(seed: u64, options: SwarmOptions) -> Plan {
    let rng = &mut random_numbers(seed, 0x5a);
    // Where nothing goes wrong nobody may give anybody up: a run in eight, with as much room as it takes.
    let peaceful = rng.random_range(0..8) == 0 && !options.corruption;
    let mut network = network(rng, seed);
    network.check_every = options.check_every;
    let max_message = pick(rng, &[100, 5_000, 60_000, 400_000]);
    network.protocol = protocol(rng, network.link.rate_bps, max_message);
    // A few hundred packets a message are as many as it takes.
    network.protocol.max_packet = network.protocol.max_packet.max(max_message / 300);
    if peaceful {
        network.link.queue_bytes = 1 << 30;
        network.protocol.client_silence_ns = 2 * SEC;
    } else {
        network.faults = faults(rng, options);
        tighten(rng, &mut network.protocol);
    }
    // What is refused is offered again and again, whole: a few such requests make all the packets that it takes.
    let refuses = network.protocol.max_finished_blocks < 100 || network.protocol.max_rpcs < 100;
    let mut sometimes = |gaps: [Option<u64>; 4]| if peaceful { None } else { pick(rng, &gaps) };
    Plan {
        peaceful,
        max_message,
        mean_crash_gap_ns: sometimes([None, None, Some(20 * MS), Some(80 * MS)]),
        mean_partition_gap_ns: sometimes([None, None, Some(20 * MS), Some(80 * MS)]),
        icmp: sometimes([None, None, None, Some(0)]).is_some(),
        closes_ports: sometimes([None, None, None, Some(0)]).is_some(),
        mean_gap_ns: if refuses { 5 * MS } else { pick(rng, &[500 * US, 2 * MS, 8 * MS]) },
        network,
    }
}

fn network(rng: &mut Pcg64, seed: u64) -> NetworkConfig {
    let hosts = rng.random_range(2..=6);
    let mut network = NetworkConfig::new(seed, hosts);
    network.topology = if hosts == 2 && rng.random() {
        Topology::BackToBack
    } else {
        Topology::Switch { delay_ns: pick(rng, &[0, 250, 10_000]) }
    };
    network.link.rate_bps = pick(rng, &[1, 10, 25, 100]) * 1_000_000_000;
    network.link.propagation_ns = pick(rng, &[0, 500, 20 * US, MS]);
    network.link.queue_bytes = pick(rng, &[20_000, 200_000, 2_000_000]);
    network.nic_priorities = rng.random();
    network.nic_queue_bytes = pick(rng, &[1, 4_500, 1_000_000]).min(network.link.queue_bytes / 2);
    network.receive_delay_ns = pick(rng, &[0, 500, 50 * US]);
    network.burst_ns = pick(rng, &[0, 0, 2 * US, 300 * US]);
    network.payload = PayloadMode::Real;
    network
}

fn faults(rng: &mut Pcg64, options: SwarmOptions) -> FaultProfile {
    let rates = [0.0, 0.0, 0.01, 0.05, 0.3];
    FaultProfile {
        loss: pick(rng, &rates),
        duplication: pick(rng, &rates),
        reordering: pick(rng, &rates),
        reordering_delay_ns: (0, pick(rng, &[10 * US, 500 * US, 20 * MS, SEC])),
        corruption: if options.corruption { pick(rng, &[0.001, 0.05]) } else { 0.0 },
    }
}

/// Settings in and out of reason, but within their rules.
fn protocol(rng: &mut Pcg64, rate_bps: u64, max_message: u32) -> Config {
    let num_priorities = rng.random_range(1..=8);
    let mbps = (rate_bps / 1_000_000) as u32;
    Config {
        incarnation: pick(rng, &[0, 1, (1 << 40) - 2]),
        unsched_bytes: pick(rng, &[1, 1_000, 10_000, 40_000, 1_000_000]),
        window: pick(rng, &[0, 0, 3_000, 50_000]),
        max_incoming: pick(rng, &[1, 2_000, 50_000, 400_000]),
        max_overcommit: pick(rng, &[1, 2, 8, 100]),
        min_grant_increment: pick(rng, &[0, 1, 10_000]),
        fifo_grant_increment: pick(rng, &[0, 1_000, 50_000]),
        grant_fifo_fraction: pick(rng, &[0, 50, 499]),
        pacer_fifo_fraction: pick(rng, &[0, 50, 499]),
        num_priorities,
        max_sched_prio: rng.random_range(0..num_priorities),
        cutoff_interval_ns: pick(rng, &[0, MS, 100 * MS]),
        cutoff_min_bytes: pick(rng, &[0, 10_000, 1_000_000]),
        link_mbps: pick(rng, &[None, Some(mbps), Some(mbps * 2), Some(mbps.div_ceil(3))]),
        defer_min_bytes: pick(rng, &[0, 1_000, 100_000]),
        max_message,
        max_packet: pick(rng, &[100, 300, 1_480, 1_480, 9_000]),
        client_silence_ns: pick(rng, &[50 * MS, 2 * SEC]),
        // Beyond the longest delay of the network and the longest queue: only then can duplicates be told.
        max_packet_lifetime_ns: pick(rng, &[10 * SEC, 60 * SEC]),
        ..Config::default()
    }
}

/// A tight limit now and then, each alone, so that what it does shows.
fn tighten(rng: &mut Pcg64, config: &mut Config) {
    let max_message = config.max_message;
    match rng.random_range(0..16) {
        0 => config.max_rpcs = pick(rng, &[1, 2, 20]),
        1 => config.max_outgoing_bytes = u64::from(max_message) * 2,
        2 => config.max_incoming_bytes = u64::from(max_message) * 2,
        3 => config.max_peers = pick(rng, &[1, 2]),
        4 => config.max_acks_per_peer = 1,
        5 => config.max_gaps = pick(rng, &[1, 3]),
        6 => config.max_retransmits = 1,
        7 => config.reap_limit = 1,
        8 => config.max_control_packets = pick(rng, &[1, 4]),
        9 => config.max_finished_blocks = pick(rng, &[1, 4]),
        10 => {
            config.max_finished_blocks = pick(rng, &[1, 4]);
            config.finished_policy = FinishedPolicy::ForgetOldest;
        }
        _ => {}
    }
}

/// An application that does anything it may, whenever it likes.
struct Anything {
    rng: Pcg64,
    host: usize,
    hosts: usize,
    mean_gap_ns: u64,
    max_message: u32,
    icmp: bool,
    closes_ports: bool,
    peaceful: bool,
    calm: bool,
    /// Requests that this host's server aborted.
    given_up: u64,
    next_cookie: u64,
    open: BTreeMap<u64, OpenCall>,
    /// Requests in hand, with the length of the answer to come, if one is to.
    in_hand: BTreeMap<RpcKey, u32>,
    /// What timers of the second kind are for.
    timers: BTreeMap<u64, RpcKey>,
    started: u64,
    answered: u64,
    failed: BTreeMap<String, u64>,
    vanished: u64,
    problems: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
struct OpenCall {
    rpc: RpcKey,
    port: u16,
    aborted: bool,
    readable: u32,
}

/// Client ports begin here (ID-6).
const FIRST_CLIENT_PORT: u16 = 32_768;
const TOKEN_CALL: u64 = 0;
const TOKEN_ABORT_CALL: u64 = 1 << 62;
const TOKEN_END_REQUEST: u64 = 1 << 63;

impl Anything {
    fn new(plan: &Plan, host: usize) -> Anything {
        Anything {
            rng: random_numbers(mix(plan.network.seed) ^ host as u64, 0xa9),
            host,
            hosts: plan.network.hosts,
            mean_gap_ns: plan.mean_gap_ns,
            max_message: plan.max_message,
            icmp: plan.icmp,
            closes_ports: plan.closes_ports,
            peaceful: plan.peaceful,
            calm: false,
            given_up: 0,
            next_cookie: 0,
            open: BTreeMap::new(),
            in_hand: BTreeMap::new(),
            timers: BTreeMap::new(),
            started: 0,
            answered: 0,
            failed: BTreeMap::new(),
            vanished: 0,
            problems: Vec::new(),
        }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    /// Mostly short, now and then as long as allowed.
    fn length(&mut self) -> u32 {
        let bits = self.rng.random_range(0..=self.max_message.ilog2());
        self.rng.random_range(1..=(2u32 << bits).min(self.max_message))
    }

    fn call(&mut self, host: &mut HostCtx<'_>) {
        let to = (self.host + self.rng.random_range(1..self.hosts)) % self.hosts;
        let port = PORTS[usize::from(self.chance(3))];
        let length = self.length();
        let cookie = self.next_cookie;
        let readable_step = if self.chance(20) { self.rng.random_range(1..=20_000) } else { 0 };
        let options = CallOptions { cookie, readable_step, private: self.chance(50) };
        if let Ok(rpc) = host.call(to, port, length, options) {
            self.next_cookie += 1;
            self.started += 1;
            self.open.insert(cookie, OpenCall { rpc, port, aborted: false, readable: 0 });
            if self.chance(8) {
                let at = host.now() + self.rng.random_range(0..5 * MS);
                host.set_timer(at, TOKEN_ABORT_CALL | cookie);
            }
        }
    }

    fn schedule_call(&mut self, host: &mut HostCtx<'_>) {
        let gap_ns = self.rng.random_range(0..=2 * self.mean_gap_ns);
        host.set_timer(host.now() + gap_ns, TOKEN_CALL);
    }

    /// A report of one port, which may name a request in hand.
    fn refused_packet(&mut self, host: &HostCtx<'_>) -> Unreachable {
        match self.in_hand.keys().next() {
            // The simulator's hosts have one client port at a time.
            Some(&rpc) if self.rng.random() => {
                Unreachable::Port { port: FIRST_CLIENT_PORT, rpc_id: host.endpoint.rpc_id(rpc) }
            }
            _ => Unreachable::Port { port: pick(&mut self.rng, &PORTS), rpc_id: None },
        }
    }

    /// Closes a port or reports a peer, now and then; opens the server's port where it was closed.
    fn disturb(&mut self, host: &mut HostCtx<'_>) {
        if self.icmp && self.chance(3) {
            let report = match self.rng.random_range(0..4) {
                0 => Unreachable::Peer,
                1 => Unreachable::Protocol,
                _ => self.refused_packet(host),
            };
            host.report_unreachable((self.host + self.rng.random_range(1..self.hosts)) % self.hosts, report);
        }
        if self.closes_ports {
            // In use while it is open, and while its RPCs are being ended.
            let _ = host.bind(PORTS[0]);
            match self.rng.random_range(0..100) {
                0..3 => host.close_client_port(),
                3..5 => host.unbind(PORTS[0]),
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

    /// No more calls.
    fn calm_down(&mut self) {
        self.calm = true;
    }

    /// Gives everything up that is still open.
    fn give_up(&mut self, host: &mut HostCtx<'_>) {
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
        self.timers.clear();
        host.bind(PORTS[0]).expect("the port of a new endpoint is free");
        self.schedule_call(host);
    }

    fn on_request(&mut self, host: &mut HostCtx<'_>, rpc: RpcKey, _: usize, port: u16, _: u32) -> Reply {
        if port != PORTS[0] {
            self.problem(format!("a request for port {port}, which is not open"));
        }
        let length = self.length();
        match self.rng.random_range(0..100) {
            0..60 => Reply::Now(length),
            60..80 => Reply::After { delay_ns: self.rng.random_range(0..40 * MS), length },
            80..95 => {
                // An answer, or none, from another place than the one that took the request.
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
        if call.is_none_or(|call| call.port != PORTS[0]) {
            self.problem(format!("an answer for RPC {cookie}, {call:?}"));
        }
    }

    fn on_failed(&mut self, _: &mut HostCtx<'_>, cookie: u64, error: RpcError) {
        *self.failed.entry(format!("{error:?}")).or_default() += 1;
        let Some(call) = self.open.remove(&cookie) else {
            return self.problem(format!("{error:?} for RPC {cookie}, which is not open"));
        };
        let impossible = match error {
            RpcError::Aborted => !call.aborted && !self.closes_ports,
            RpcError::NoSuchPort => call.port == PORTS[0] && !self.closes_ports && !self.icmp,
            RpcError::Unreachable | RpcError::ProtocolUnreachable => !self.icmp,
            RpcError::MessageTooLarge => true,
            RpcError::Timeout | RpcError::PeerRestarted => self.peaceful,
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

    fn on_done(&mut self, _: &mut HostCtx<'_>, rpc: RpcKey, reason: DoneReason) {
        self.in_hand.remove(&rpc);
        self.given_up += u64::from(reason == DoneReason::Aborted);
        if self.peaceful && matches!(reason, DoneReason::ClientSilent | DoneReason::ClientRestarted) {
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

/// Lets everything go wrong for a while, then leaves the network in peace and looks at what is left.
///
/// # Panics
/// Where [`homa_proto::Endpoint::check`] does: the state of a host contradicts itself.
pub fn swarm(seed: u64, options: SwarmOptions) -> SwarmReport {
    let plan = plan(seed, options);
    let mut network = Network::new(plan.network.clone(), |host| Anything::new(&plan, host));
    let crashes = turmoil(&mut network, &plan, options.turmoil_ns);
    network.set_faults(FaultProfile::default());
    let hosts = plan.network.hosts;
    for from in 0..hosts {
        (0..hosts).for_each(|to| network.set_blocked(from, to, false));
        if network.host(from).endpoint().is_none() {
            network.restart(from);
        }
        network.host_mut(from).app_mut().calm_down();
    }
    network.run_for(PEACE_NS);
    for host in 0..hosts {
        network.act(host, |app, host| app.give_up(host));
    }
    let limit = network.now() + IDLE_LIMIT_NS;
    // Requests that arrive from now on, delayed by the network, are given up as well.
    while !network.is_idle() && network.now() < limit {
        network.run_until((network.now() + 100 * MS).min(limit));
        for host in 0..hosts {
            network.act(host, |app, host| app.give_up(host));
        }
    }
    report(&network, &plan, options, crashes)
}

/// Crashes and partitions while the load runs; returns the number of crashes.
fn turmoil(network: &mut Network<Anything>, plan: &Plan, turmoil_ns: u64) -> u64 {
    let mut rng = random_numbers(plan.network.seed, 0xc4a5);
    let end = Time::from_ns(turmoil_ns);
    let (mut crashes, mut restarts) = (0, BTreeMap::<(Time, usize), ()>::new());
    let next = |rng: &mut Pcg64, now: Time, mean: Option<u64>| match mean {
        Some(mean_ns) => now + rng.random_range(0..=2 * mean_ns),
        None => Time::NEVER,
    };
    let mut crash_at = next(&mut rng, Time::ZERO, plan.mean_crash_gap_ns);
    let mut partition_at = next(&mut rng, Time::ZERO, plan.mean_partition_gap_ns);
    loop {
        let restart_at = restarts.first_key_value().map_or(Time::NEVER, |(&(at, _), ())| at);
        let at = crash_at.min(partition_at).min(restart_at).min(end);
        network.run_until(at);
        if at == end {
            return crashes;
        }
        if at == restart_at {
            let Some(((_, host), ())) = restarts.pop_first() else { continue };
            network.restart(host);
        } else if at == crash_at {
            let host = rng.random_range(0..plan.network.hosts);
            if network.host(host).endpoint().is_some() {
                network.crash(host);
                crashes += 1;
                restarts.insert((at + rng.random_range(0..30 * MS), host), ());
            }
            crash_at = next(&mut rng, at, plan.mean_crash_gap_ns);
        } else {
            let (from, to) =
                (rng.random_range(0..plan.network.hosts), rng.random_range(0..plan.network.hosts));
            let blocked = rng.random();
            network.set_blocked(from, to, blocked);
            partition_at = next(&mut rng, at, plan.mean_partition_gap_ns);
        }
    }
}

fn report(network: &Network<Anything>, plan: &Plan, options: SwarmOptions, crashes: u64) -> SwarmReport {
    let mut report = SwarmReport {
        seed: plan.network.seed,
        crashes,
        packets: network.stats().sent,
        plan: format!("{plan:?}"),
        ..SwarmReport::default()
    };
    let forgets = plan.network.protocol.finished_policy == FinishedPolicy::ForgetOldest;
    let mut problems = Vec::new();
    for host in network.hosts() {
        let (app, counts) = (host.app(), host.counts());
        report.started += app.started;
        report.answered += app.answered;
        report.vanished += app.vanished;
        report.executed += counts.executed;
        app.failed
            .iter()
            .for_each(|(error, count)| *report.failed.entry(error.clone()).or_default() += count);
        problems.extend(app.open.keys().map(|cookie| format!("RPC {cookie} never ended")));
        if !host.is_idle() {
            let open = host.endpoint().map_or(0, homa_proto::Endpoint::open_rpcs);
            problems.push(format!("not idle at {:?}: {open} RPCs, {:?}", network.now(), host.leftovers()));
        }
        if options.corruption {
            continue;
        }
        problems.extend_from_slice(&app.problems);
        problems.extend_from_slice(host.violations());
        if counts.executed_again > 0 && !forgets {
            problems.push(format!("{} requests run again", counts.executed_again));
        }
        if counts.lengths_wrong + host.bytes_wrong() > 0 {
            problems.push(format!("{} lengths and {} bytes wrong", counts.lengths_wrong, host.bytes_wrong()));
        }
    }
    let failed: u64 = report.failed.values().sum();
    if report.started != report.answered + failed + report.vanished {
        problems.push("RPCs started are not those that ended".to_owned());
    }
    let given_up: u64 = network.hosts().iter().map(|host| host.app().given_up).sum();
    let lost = report.failed.get("ResponseLost").copied().unwrap_or_default();
    if plan.peaceful && lost > given_up {
        problems.push(format!("{lost} responses lost, though servers gave up only {given_up} requests"));
    }
    if network.packets_under_way() > 0 {
        problems.push(format!("{} packets still under way", network.packets_under_way()));
    }
    report.problems = problems;
    report
}
