//! Measures how long the next packet waits while many RPCs end, or a large RPC ends.
//!
//! ```text
//! cargo run --release -p homa-proto --example freeing [CASE]
//! ```
//!
//! Each case is set up, then one event happens, and the endpoint is driven as in a runtime until all RPCs
//! have ended: a packet of another RPC, then the due timers, each followed by polls for events and for
//! packets to send. A packet that arrives during one of these calls waits for the whole call and its polls.
//! This is the delay that is measured.
//!
//! All repeats make the same calls. Three figures describe the longest call. Two are the median and the
//! minimum, over the repeats, of each repeat's longest call; they include preemption by other work on the
//! machine. For the third, each call is represented by its fastest repeat, which excludes preemption. CASE
//! limits the run to cases whose names contain it.

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::Instant;

use homa_proto::wire::{self, Ack, AckList, Body, Common, Data, Incarnation, Resend};
use homa_proto::{CallOptions, Config, Endpoint, Event, MS, Reassembly, RpcKey, RxPacket, SEC, Time};
use homa_trace::Trace;

const REPEATS: usize = 5;
/// Maximum duration of a call.
const LIMIT_US: f64 = 20.0;
const RPCS: u32 = 10_000;
const SERVER_PORT: u16 = 99;
/// The peer of the RPC that continues, and the first of the peers whose RPCs end.
const PROBE: u32 = 0;
const FIRST: u32 = 1;
/// Length of requests that are one unscheduled packet.
const SMALL: u32 = 100;
/// Payload bytes of each packet of the other RPC, whose message never ends.
const STEP: u32 = 16;
const ENDLESS: u32 = 1 << 30;
/// Maximum number of calls after the last RPC has ended. The remaining work is a sweep of the table.
const MOST_CALLS_AFTER: usize = 8_192;

/// Payload is not stored. The key of a message is recorded when its first bytes arrive.
#[derive(Default)]
struct Keys {
    last: Option<RpcKey>,
}

impl Reassembly for Keys {
    fn write(&mut self, rpc: RpcKey, _: u32, _: u32, _: u32, _: &[u8]) {
        self.last = Some(rpc);
    }
}

/// Durations of one call with its polls, in nanoseconds: until all events were returned, and until all
/// packets were returned as well.
#[derive(Clone, Copy)]
struct Delay {
    told_ns: u64,
    all_ns: u64,
}

/// An endpoint and its caller's state.
struct Rig {
    endpoint: Endpoint,
    keys: Keys,
    now_ns: u64,
    client_port: u16,
    /// Next offset of the other RPC's message.
    probe_offset: u32,
    /// Id of the next request of a peer's client.
    next_id: u64,
    /// RPCs that have ended.
    ended: usize,
    /// The last complete request.
    request: Option<RpcKey>,
    delays: Vec<Delay>,
}

fn peer(n: u32) -> SocketAddr {
    SocketAddr::from(([10, 0, (n >> 8) as u8, n as u8], 14_600))
}

/// Returns the header of a packet for a request of a peer's client (even `id`) or of ours (odd `id`).
fn common(id: u64, incarnation: u64) -> Common {
    let (source_port, dest_port) = if id & 1 == 0 { (40_000, SERVER_PORT) } else { (SERVER_PORT, 32_768) };
    Common {
        source_port,
        dest_port,
        sender_id: id,
        incarnation: Incarnation::new(incarnation),
        bundle_endpoints: 0,
    }
}

fn data(message_length: u32, offset: u32) -> Body {
    let incoming = message_length.min(40_000);
    Body::Data(Data {
        message_length,
        incoming,
        ack: None,
        cutoff_version: 1,
        retransmit: false,
        offset,
        response_limit: None,
    })
}

fn settings(rpcs: u32) -> Config {
    Config {
        max_message: ENDLESS,
        reserve_rpcs: rpcs + 1,
        max_outgoing_bytes: 1 << 60,
        max_incoming_bytes: 1 << 60,
        cutoff_interval_ns: 0,
        ..Config::default()
    }
}

impl Rig {
    fn new(config: Config) -> Rig {
        let mut endpoint = Endpoint::new(config, Trace::off()).expect("the configuration is sound");
        endpoint.bind(SERVER_PORT).expect("the port is free");
        let client_port = endpoint.open_client_port().expect("a port is free");
        let mut rig = Rig {
            endpoint,
            keys: Keys::default(),
            now_ns: 0,
            client_port,
            probe_offset: 0,
            next_id: 1_000_000,
            ended: 0,
            request: None,
            delays: Vec::new(),
        };
        rig.probe();
        rig
    }

    fn now(&self) -> Time {
        Time::from_ns(self.now_ns)
    }

    /// Makes one call and the polls that follow it.
    fn call(&mut self, act: impl FnOnce(&mut Endpoint, Time, &mut Keys)) {
        let now = self.now();
        let start = Instant::now();
        act(&mut self.endpoint, now, &mut self.keys);
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Response { .. } | Event::Failed { .. } | Event::Done { .. } => self.ended += 1,
                Event::Request { rpc, .. } => self.request = Some(rpc),
                Event::Readable { .. } | Event::Freeze { .. } => {}
            }
        }
        let told = start.elapsed();
        while let Some(packet) = self.endpoint.poll_transmit(now) {
            black_box(packet.header.as_slice());
        }
        let all = start.elapsed();
        self.delays.push(Delay { told_ns: told.as_nanos() as u64, all_ns: all.as_nanos() as u64 });
    }

    /// Receives a packet with `payload` bytes from `from`.
    fn packet(&mut self, from: u32, common: Common, body: Body, payload: u32) {
        let header = wire::encode(&common, &body);
        let bytes = header.as_slice();
        let packet =
            RxPacket { from: peer(from), bytes, wire_len: bytes.len() + payload as usize, priority: None };
        self.call(|endpoint, now, keys| endpoint.handle_packets(now, [packet], keys));
    }

    /// Receives a packet of the other RPC, one microsecond later.
    fn probe(&mut self) {
        self.now_ns += 1_000;
        self.packet(PROBE, common(2, 1), data(ENDLESS, self.probe_offset), STEP);
        self.probe_offset += STEP;
    }

    /// Starts a request of our client and returns its id; the request is sent when packets are polled.
    fn send_request(&mut self, port: u16, to: u32, length: u32) -> u64 {
        let (now, options) = (self.now(), CallOptions::default());
        let sent = self.endpoint.send_request(now, port, peer(to), SERVER_PORT, length, options);
        self.endpoint.rpc_id(sent.expect("within the limits")).expect("it has just begun")
    }

    /// Sends requests of our client to `peers` peers in turn.
    fn calls(&mut self, count: u32, peers: u32) {
        for n in 0..count {
            self.send_request(self.client_port, FIRST + n % peers, SMALL);
        }
        self.polls();
        for n in 0..peers {
            self.sign_of_life(FIRST + n, 1);
        }
    }

    /// Receives requests from the clients of `peers` peers in turn; our server is then processing them.
    fn services(&mut self, count: u32, peers: u32) {
        for n in 0..count {
            self.packet(FIRST + n % peers, common(self.next_id, 1), data(SMALL, 0), SMALL);
            self.next_id += 2;
        }
    }

    fn polls(&mut self) {
        self.call(|_, _, _| {});
    }

    /// Receives a packet that belongs to no RPC and shows the peer's incarnation.
    fn sign_of_life(&mut self, from: u32, incarnation: u64) {
        self.packet(from, common(0xffff_ffff, incarnation), Body::Busy, 0);
    }

    /// Starts the measurement.
    fn begin(&mut self) {
        self.delays.clear();
        self.ended = 0;
    }

    /// Drives the endpoint until `expected` RPCs have ended and no work is left.
    fn until_over(&mut self, expected: u32) {
        let mut calls_after = 0;
        loop {
            self.probe();
            let due = self.endpoint.poll_timeout().is_some_and(|at| at <= self.now());
            if due {
                self.call(|endpoint, now, _| endpoint.handle_timeout(now));
            }
            if self.ended >= expected as usize {
                calls_after += 1;
                if !due || calls_after > MOST_CALLS_AFTER {
                    break;
                }
            }
            assert!(self.delays.len() < 1_000_000, "only {} of {expected} RPCs ended", self.ended);
        }
        assert_eq!(self.ended, expected as usize, "exactly these RPCs end");
    }
}

fn restart_after_requests() -> Rig {
    let mut rig = Rig::new(settings(RPCS));
    rig.calls(RPCS, 1);
    rig.begin();
    rig.sign_of_life(FIRST, 2);
    rig.until_over(RPCS);
    rig
}

fn restart_before_requests() -> Rig {
    // The link is so slow that the pacer holds back almost all requests.
    let mut rig = Rig::new(Config { link_mbps: Some(10), ..settings(RPCS) });
    for _ in 0..RPCS {
        rig.send_request(rig.client_port, FIRST, 10_000);
    }
    rig.polls();
    rig.sign_of_life(FIRST, 1);
    rig.begin();
    rig.sign_of_life(FIRST, 2);
    rig.until_over(RPCS);
    rig
}

fn restart_during_retransmissions() -> Rig {
    let config = settings(RPCS);
    let resends = config.max_retransmits;
    let mut rig = Rig::new(config);
    rig.calls(RPCS - resends, 1);
    let resend = Body::Resend(Resend { offset: 0, length: None, priority: 7 });
    let mut headers = Vec::new();
    for _ in 0..resends {
        let id = rig.send_request(rig.client_port, FIRST, SMALL);
        headers.push(wire::encode(&common(id | 1, 1), &resend));
    }
    rig.polls();
    // No packets are polled while these arrive, so that all answers are queued.
    let (now, from) = (rig.now(), peer(FIRST));
    let burst = headers.iter().map(|header| RxPacket::new(from, header.as_slice()));
    rig.endpoint.handle_packets(now, burst, &mut rig.keys);
    rig.begin();
    rig.sign_of_life(FIRST, 2);
    rig.until_over(RPCS);
    rig
}

fn unreachable() -> Rig {
    let mut rig = Rig::new(settings(RPCS));
    rig.calls(RPCS / 2, 1);
    let rpc_id = Some(rig.send_request(rig.client_port, FIRST, SMALL));
    rig.services(RPCS / 2, 1);
    rig.begin();
    rig.now_ns += 1_000;
    rig.call(|endpoint, now, _| {
        endpoint.peer_unreachable(now, peer(FIRST), homa_proto::Unreachable::Peer { rpc_id })
    });
    rig.until_over(RPCS);
    rig
}

fn close_port() -> Rig {
    let mut rig = Rig::new(settings(10 * RPCS));
    let closed = rig.endpoint.open_client_port().expect("a port is free");
    for n in 0..10 * RPCS {
        let port = if n % 10 == 0 { closed } else { rig.client_port };
        rig.send_request(port, FIRST + n % 64, SMALL);
    }
    rig.polls();
    rig.begin();
    rig.call(|endpoint, now, _| endpoint.close_port(now, closed));
    rig.until_over(RPCS);
    rig
}

fn timeouts() -> Rig {
    // Without any RESEND, all RPCs that started together time out together.
    let mut rig = Rig::new(Config { max_resends: 0, ..settings(RPCS) });
    rig.calls(RPCS, 64);
    rig.now_ns += 6 * MS;
    rig.begin();
    rig.until_over(RPCS);
    rig
}

/// Bytes of a megabyte message and the payload of its packets.
const MEGABYTE: u32 = 1_000_000;
const FULL: u32 = 1_424;

fn large_acknowledged() -> Rig {
    let mut rig = Rig::new(settings(1));
    let id = rig.next_id;
    let packet = |rig: &mut Rig, offset: u32| {
        rig.now_ns += 1_000;
        rig.packet(FIRST, common(id, 1), data(MEGABYTE, offset), FULL.min(MEGABYTE - offset));
    };
    let mut offsets = (0..MEGABYTE).step_by(FULL as usize);
    let last = offsets.next_back().expect("a message has packets");
    for offset in offsets {
        packet(&mut rig, offset);
    }
    rig.begin();
    packet(&mut rig, last);
    rig.probe();
    let request = rig.request.expect("the request is complete");
    rig.call(|endpoint, now, _| endpoint.send_response(now, request, MEGABYTE).expect("it is open"));
    let grant = wire::Grant { offset: MEGABYTE, priority: 1 };
    // The time for sending packets of the response is not part of ending the RPC.
    let before = rig.delays.len();
    rig.packet(FIRST, common(id, 1), Body::Grant(grant), 0);
    rig.delays.truncate(before);
    rig.probe();
    let mut acks = AckList::new();
    acks.push(Ack { client_id: id, server_port: SERVER_PORT });
    rig.packet(FIRST, common(id, 1), Body::Ack(acks), 0);
    rig.until_over(1);
    rig
}

fn large_aborted() -> Rig {
    let mut rig = Rig::new(settings(1));
    let id = rig.next_id;
    for n in 0..501 {
        rig.packet(FIRST, common(id, 1), data(MEGABYTE, n * 1_900), 900);
    }
    let rpc = rig.keys.last.expect("bytes came");
    rig.begin();
    rig.call(|endpoint, now, _| endpoint.abort(now, rpc));
    rig.until_over(1);
    rig
}

fn silent_clients(clients: u32) -> Rig {
    let mut rig = Rig::new(settings(RPCS));
    rig.services(RPCS, clients);
    rig.now_ns += 3 * SEC;
    rig.begin();
    rig.until_over(RPCS);
    rig
}

/// A case. `run` sets it up, causes the event, and runs to the end.
struct Case {
    name: &'static str,
    run: fn() -> Rig,
}

const fn case(name: &'static str, run: fn() -> Rig) -> Case {
    Case { name, run }
}

const CASES: [Case; 11] = [
    case("a peer restarts, 10,000 calls to it wait for responses", restart_after_requests),
    case("a peer restarts, 10,000 calls to it wait for the pacer", restart_before_requests),
    case("a peer restarts, 4,096 of 10,000 calls retransmit", restart_during_retransmissions),
    case("a peer is unreachable, 5,000 calls, 5,000 in service", unreachable),
    case("a port closes, 10,000 calls of it in a table of 100,000", close_port),
    case("10,000 calls time out at the same moment", timeouts),
    case("1 MB request of 703 packets, answered, acknowledged", large_acknowledged),
    case("1 MB request with 500 gaps, aborted", large_aborted),
    case("a client is silent, 10,000 of its requests in service", || silent_clients(1)),
    case("1,000 clients are silent, 10 requests of each in service", || silent_clients(1_000)),
    case("10,000 clients are silent, 1 request of each in service", || silent_clients(RPCS)),
];

/// Converts nanoseconds to microseconds.
fn us(ns: u64) -> f64 {
    ns as f64 / 1_000.0
}

/// Returns the longest call, if each call is taken from the repeat in which it was fastest.
fn longest_at_best(repeats: &[Vec<Delay>]) -> (usize, Delay) {
    let calls = repeats[0].len();
    let fastest = |call: usize| repeats.iter().map(|delays| delays[call]).min_by_key(|delay| delay.all_ns);
    let best = (0..calls).filter_map(|call| Some((call, fastest(call)?)));
    best.max_by_key(|(_, delay)| delay.all_ns).expect("there are calls")
}

fn measure(Case { name, run }: &Case) {
    let repeats: Vec<Vec<Delay>> = (0..REPEATS).map(|_| run().delays).collect();
    let calls = repeats[0].len();
    assert!(repeats.iter().all(|delays| delays.len() == calls), "repeats make the same calls");
    let mut longest: Vec<u64> =
        repeats.iter().filter_map(|delays| delays.iter().map(|delay| delay.all_ns).max()).collect();
    longest.sort_unstable();
    let mut all: Vec<u64> = repeats.iter().flatten().map(|delay| delay.all_ns).collect();
    all.sort_unstable();
    let p99 = all[(all.len() - 1) * 99 / 100];
    let (at, best) = longest_at_best(&repeats);
    let verdict = if us(best.all_ns) < LIMIT_US { "" } else { "  too long" };
    println!(
        "{name:<57} {calls:>6} {:>7.1} {:>8.1} {:>7.1} {:>8.1} {:>9.1}  {at:>6}{verdict}",
        us(p99),
        us(longest[REPEATS / 2]),
        us(longest[0]),
        us(best.all_ns),
        us(best.all_ns - best.told_ns),
    );
}

fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    println!(
        "Delay of the next packet in microseconds, {REPEATS} repeats; less than {LIMIT_US} is asked for."
    );
    println!(
        "{:<57} {:>6} {:>7} {:>8} {:>7} {:>8} {:>9}  {:>6}",
        "", "calls", "P99", "longest:", "least", "at best,", "of it for", "at"
    );
    println!(
        "{:<57} {:>6} {:>7} {:>8} {:>7} {:>8} {:>9}  {:>6}",
        "case", "", "", "median", "of them", "see top", "packets", "call"
    );
    for case in CASES.iter().filter(|case| case.name.contains(&wanted)) {
        measure(case);
    }
}
