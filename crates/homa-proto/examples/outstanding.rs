//! The cost of a packet with 10 to 1,000,000 outstanding RPCs.
//!
//! ```text
//! cargo run --profile dist -p homa-proto --example outstanding
//! cargo run --profile dist -p homa-proto --example outstanding -- --check crates/homa-proto/instructions.txt
//! ```
//!
//! Each packet is for a uniformly random RPC: a third are throttled by the pacer (their packets are GRANTs),
//! a third are incoming messages that wait for grants (DATA), a third are requests that wait for their
//! response (parts of it and BUSY, alternately). After each packet, the endpoint is polled as the drive
//! contract requires. Time advances by a microsecond per packet, so timers, RESENDs and the pacer are active.
//! All figures are per packet, received or sent.
//!
//! If valgrind is installed, its callgrind counts instructions and cache misses of the same program; a cold
//! line is a miss of a simulated last-level cache of 8 MB. Nanoseconds are measured natively, and compared
//! with random reads of a table as large as the state.

mod support;

use std::hint::black_box;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Instant;

use homa_proto::wire::{self, Body, Common, Data, Grant, Incarnation};
use homa_proto::{CallOptions, Config, Endpoint, Event, Reassembly, RpcKey, RxPacket, Time};
use homa_trace::Trace;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use support::Counts;

const COUNTS: [u64; 4] = [10, 1_000, 100_000, 1_000_000];
const PEERS: u64 = 64;
/// Number of warm-up packets, of packets counted by callgrind, and of packets timed natively.
const WARM_UP: u64 = 20_000;
const PACKETS: u64 = 50_000;
const NATIVE_PACKETS: u64 = 1_000_000;
/// Long enough that no message of the smallest setup ends during the measurement.
const MESSAGE: u32 = 1 << 30;
const SERVER_PORT: u16 = 99;
/// Bytes of each packet's payload, and of each grant.
const STEP: u32 = 16;

/// Payload is not stored: only the protocol is measured.
struct NoMemory;

impl Reassembly for NoMemory {
    fn write(&mut self, _: RpcKey, _: u32, _: u32, _: u32, _: &[u8]) {}
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Throttled,
    WaitsForGrant,
    WaitsForResponse,
}

/// The network's state of one RPC.
struct Remote {
    kind: Kind,
    id: u64,
    peer: u32,
    /// Next offset to grant or to send.
    next: u32,
    busy: bool,
}

struct Bench {
    endpoint: Endpoint,
    remotes: Vec<Remote>,
    rng: Pcg64,
    now: u64,
}

fn peer(n: u32) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, n as u8], 14_600))
}

fn common(id: u64) -> Common {
    let (source_port, dest_port) = if id & 1 == 0 { (40_000, SERVER_PORT) } else { (SERVER_PORT, 32_768) };
    Common { source_port, dest_port, sender_id: id, incarnation: Incarnation::new(1), bundle_endpoints: 0 }
}

fn data(incoming: u32, offset: u32) -> Body {
    let message_length = MESSAGE;
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

impl Bench {
    /// Creates an endpoint with `count` RPCs, a third of each kind.
    fn new(count: u64) -> Bench {
        let config = Config {
            // Slow enough that the pacer almost always delays the throttled third.
            link_mbps: Some(10),
            max_rpcs: 1 << 22,
            reserve_rpcs: count as u32,
            max_message: MESSAGE,
            // No peer answers RESENDs here, and no RPC may time out.
            max_resends: 255,
            max_outgoing_bytes: 1 << 60,
            max_incoming_bytes: 1 << 60,
            cutoff_interval_ns: 0,
            ..Config::default()
        };
        let mut endpoint = Endpoint::new(config, Trace::off()).expect("the configuration is sound");
        endpoint.bind(SERVER_PORT).expect("the port is free");
        let port = endpoint.open_client_port().expect("a port is free");
        let remotes = Vec::with_capacity(count as usize);
        let mut bench = Bench { endpoint, remotes, rng: Pcg64::seed_from_u64(1), now: 1 };
        // Requests that are to wait for their responses are sent before the requests that keep the pacer
        // busy.
        for n in (0..count).filter(|n| n % 3 == 2) {
            bench.start(port, n, Kind::WaitsForResponse);
        }
        for n in (0..count).filter(|n| n % 3 == 0) {
            bench.start(port, n, Kind::Throttled);
        }
        for n in (0..count).filter(|n| n % 3 == 1) {
            let (id, peer) = (2 * n + 2, (n % PEERS) as u32);
            bench.remotes.push(Remote { kind: Kind::WaitsForGrant, id, peer, next: 0, busy: false });
            bench.packet_for(bench.remotes.len() - 1);
        }
        bench
    }

    fn start(&mut self, port: u16, n: u64, kind: Kind) {
        let peer_index = (n % PEERS) as u32;
        let length = if kind == Kind::Throttled { MESSAGE } else { 100 };
        let options = CallOptions { cookie: n, ..CallOptions::default() };
        let now = Time::from_ns(self.now);
        let sent = self.endpoint.send_request(now, port, peer(peer_index), SERVER_PORT, length, options);
        let id = self.endpoint.rpc_id(sent.expect("within the limits")).expect("it has just begun");
        if kind == Kind::WaitsForResponse {
            while self.endpoint.poll_transmit(now).is_some() {}
        }
        let next = if kind == Kind::Throttled { 40_000 } else { 0 };
        self.remotes.push(Remote { kind, id, peer: peer_index, next, busy: false });
        if kind == Kind::WaitsForResponse {
            // The start-up of the pacer is excluded, since it would be noticeable only with many RPCs.
            self.packet_for(self.remotes.len() - 1);
        }
    }

    /// Receives a packet for one RPC, and polls.
    fn packet_for(&mut self, index: usize) {
        self.now += 1_000;
        let now = Time::from_ns(self.now);
        let remote = &mut self.remotes[index];
        remote.busy = !remote.busy;
        let (id, body, payload) = match remote.kind {
            Kind::Throttled => (remote.id | 1, Body::Grant(Grant { offset: remote.next, priority: 1 }), 0),
            Kind::WaitsForGrant => (remote.id, data(40_000, remote.next), STEP),
            Kind::WaitsForResponse if remote.busy => (remote.id | 1, data(MESSAGE, remote.next), STEP),
            Kind::WaitsForResponse => (remote.id | 1, Body::Busy, 0),
        };
        if remote.kind == Kind::Throttled || payload > 0 {
            remote.next += STEP;
        }
        let header = wire::encode(&common(id), &body);
        let bytes = header.as_slice();
        let packet = RxPacket {
            from: peer(remote.peer),
            bytes,
            wire_len: bytes.len() + payload as usize,
            priority: None,
        };
        self.endpoint.handle_packets(now, [packet], &mut NoMemory);
        while let Some(event) = self.endpoint.poll_event() {
            assert!(!matches!(event, Event::Failed { .. } | Event::Done { .. }), "{event:?}");
        }
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
        while let Some(packet) = self.endpoint.poll_transmit(now) {
            black_box(packet.header.as_slice());
        }
    }

    /// Returns the number of packets so far, received and sent.
    fn packets(&self) -> u64 {
        let stats = self.endpoint.stats();
        stats.packets_received + stats.packets_sent
    }

    /// Runs the measured part.
    #[inline(never)]
    fn measured(&mut self, packets: u64) {
        for _ in 0..packets {
            let index = self.rng.random_range(0..self.remotes.len());
            self.packet_for(index);
        }
    }
}

/// Returns the time of a random read in `bytes` bytes of memory, in nanoseconds. Each address depends on the
/// value read before.
fn random_read_ns(bytes: usize) -> f64 {
    let table = vec![1_u64; (bytes / 8).max(64)];
    let mut rng = Pcg64::seed_from_u64(2);
    let reads = 4_000_000;
    let start = Instant::now();
    let mut sum = 0_u64;
    for _ in 0..reads {
        let at = (rng.random::<u32>() as usize).wrapping_add(sum as usize) % table.len();
        sum = sum.wrapping_add(table[at]);
    }
    black_box(sum);
    start.elapsed().as_nanos() as f64 / f64::from(reads)
}

/// Returns the resident memory of this process in bytes.
fn resident_bytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or(0.0) * 4096.0
}

/// Runs the counted part with `count` RPCs, as the entry point under callgrind. Returns the number of counted
/// packets.
fn inner(count: u64) -> u64 {
    let mut bench = Bench::new(count);
    for _ in 0..WARM_UP {
        let index = bench.rng.random_range(0..bench.remotes.len());
        bench.packet_for(index);
    }
    let before = bench.packets();
    bench.measured(PACKETS);
    bench.packets() - before
}

fn table() {
    println!("outstanding  instructions  ratio  cold lines      ns  random read ns  bytes per RPC");
    let mut first = None;
    for count in COUNTS {
        let before = resident_bytes();
        let mut bench = Bench::new(count);
        let bytes = resident_bytes() - before - (size_of::<Remote>() as u64 * count) as f64;
        bench.measured(WARM_UP);
        let packets = bench.packets();
        let start = Instant::now();
        bench.measured(NATIVE_PACKETS);
        let ns = start.elapsed().as_nanos() as f64 / (bench.packets() - packets) as f64;
        drop(bench);
        let read_ns = random_read_ns((count * 400) as usize);
        let per_rpc = if count >= 100_000 { format!("{:.0}", bytes / count as f64) } else { "-".into() };
        let (instructions, ratio, cold) = match support::counted(&count.to_string()) {
            Some(Counts { instructions, cold_lines }) => {
                let ratio = instructions / *first.get_or_insert(instructions);
                (format!("{instructions:.1}"), format!("{ratio:.3}"), format!("{cold_lines:.2}"))
            }
            None => ("no valgrind".into(), "-".into(), "-".into()),
        };
        println!(
            "{count:>11}  {instructions:>12}  {ratio:>5}  {cold:>10}  {ns:>6.1}  {read_ns:>14.1}  {per_rpc:>13}"
        );
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let cases = [("packet_10", "10"), ("packet_1000000", "1000000")];
    support::run(&args, table, |count| inner(count.parse().expect("a number of RPCs")), &cases)
}
