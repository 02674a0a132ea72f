//! The cost of the protocol alone: a DATA packet of a large message, sent and received, and an echo RPC of
//! 100 bytes.
//!
//! ```text
//! cargo run --profile dist -p homa-proto --example costs
//! cargo run --profile dist -p homa-proto --example costs -- --check crates/homa-proto/instructions.txt
//! cargo run --profile dist -p homa-proto --example costs -- --write crates/homa-proto/instructions.txt
//! ```
//!
//! Two endpoints exchange packets directly. After each burst, the endpoint is polled as the drive contract
//! requires, as in a runtime. Everything on both sides is counted: grants, acknowledgements, timers, and the
//! start and end of each RPC. Payload is represented by its length only. Instructions are counted by
//! valgrind's callgrind; nanoseconds are measured natively.
//!
//! With `--check`, only instructions are counted and compared with the file.

mod support;

use std::hint::black_box;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Instant;

use homa_proto::{CallOptions, Config, Endpoint, Event, Reassembly, RpcKey, RxPacket, Time, Transmit};
use homa_trace::Trace;

const SERVER_PORT: u16 = 99;
const SHORT: u32 = 100;
const LARGE: u32 = 1_000_000;
/// Maximum packets of a burst.
const BURST: usize = 32;
/// Time between two bursts.
const STEP_NS: u64 = 2_000;

/// Payload is not stored.
struct NoMemory;

impl Reassembly for NoMemory {
    fn write(&mut self, _: RpcKey, _: u32, _: u32, _: u32, _: &[u8]) {}
}

/// An endpoint and its address.
struct Side {
    endpoint: Endpoint,
    addr: SocketAddr,
    /// Packets in flight from this endpoint.
    out: Vec<Transmit>,
}

impl Side {
    fn new(number: u8) -> Side {
        // No link speed, so the pacer never delays packets: time is not measured here.
        let config = Config { incarnation: 1 + u64::from(number), ..Config::default() };
        let endpoint = Endpoint::new(config, Trace::off()).expect("the configuration is sound");
        Side { endpoint, addr: SocketAddr::from(([10, 0, 0, number], 4_000)), out: Vec::with_capacity(BURST) }
    }

    /// Runs one drive round with the packets that the other side sent.
    fn round(&mut self, now: Time, other: &mut Side) -> bool {
        let from = other.addr;
        let burst = other.out.iter().map(|transmit| {
            let bytes = transmit.header.as_slice();
            let payload = transmit.payload.map_or(0, |range| range.len as usize);
            RxPacket { from, bytes, wire_len: bytes.len() + payload, priority: None }
        });
        let received = !other.out.is_empty();
        if received {
            self.endpoint.handle_packets(now, burst, &mut NoMemory);
            other.out.clear();
        }
        if self.endpoint.poll_timeout().is_some_and(|due| due <= now) {
            self.endpoint.handle_timeout(now);
        }
        self.transmit(now);
        received
    }

    fn transmit(&mut self, now: Time) {
        while self.out.len() < BURST {
            let most = (BURST - self.out.len()) as u32;
            let Some(run) = self.endpoint.poll_transmit_run(now, most, u32::MAX) else { break };
            self.out.extend((0..run.packets()).filter_map(|index| run.packet(index)));
        }
    }
}

/// A client and a server.
struct Pair {
    client: Side,
    server: Side,
    port: u16,
    now: u64,
}

impl Pair {
    fn new() -> Pair {
        let (mut client, mut server) = (Side::new(1), Side::new(2));
        server.endpoint.bind(SERVER_PORT).expect("the port is free");
        let port = client.endpoint.open_client_port().expect("a port is free");
        Pair { client, server, port, now: 1 }
    }

    /// Runs an RPC from its start to its response.
    fn rpc(&mut self, request: u32, response: u32) {
        let now = Time::from_ns(self.now);
        let options = CallOptions::default();
        let sent = self.client.endpoint.send_request(
            now,
            self.port,
            self.server.addr,
            SERVER_PORT,
            request,
            options,
        );
        sent.expect("within the limits");
        self.client.transmit(now);
        loop {
            self.now += STEP_NS;
            let now = Time::from_ns(self.now);
            self.server.round(now, &mut self.client);
            while let Some(event) = self.server.endpoint.poll_event() {
                if let Event::Request { rpc, .. } = event {
                    self.server.endpoint.send_response(now, rpc, response).expect("within the limits");
                    self.server.transmit(now);
                }
            }
            self.client.round(now, &mut self.server);
            while let Some(event) = self.client.endpoint.poll_event() {
                if let Event::Response { .. } = event {
                    return;
                }
            }
        }
    }

    /// Returns the number of DATA packets sent so far by both sides.
    fn data_packets(&self) -> u64 {
        self.client.endpoint.stats().data_sent + self.server.endpoint.stats().data_sent
    }
}

/// A case to measure.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    what: &'static str,
    request: u32,
    response: u32,
    /// RPCs of the warm-up, RPCs counted by callgrind, and RPCs that are timed.
    rpcs: [u64; 3],
    /// Whether the unit of work is a DATA packet rather than an RPC.
    per_packet: bool,
}

const CASES: [Case; 2] = [
    Case {
        name: "data_packet",
        what: "DATA packet of a large message, send + receive",
        request: LARGE,
        response: SHORT,
        rpcs: [20, 20, 2_000],
        per_packet: true,
    },
    Case {
        name: "echo_rpc",
        what: "100 B echo RPC, both sides",
        request: SHORT,
        response: SHORT,
        rpcs: [2_000, 20_000, 1_000_000],
        per_packet: false,
    },
];

impl Case {
    /// Runs the measured part, and returns the units of work done.
    #[inline(never)]
    fn measured(&self, pair: &mut Pair, rpcs: u64) -> u64 {
        let before = pair.data_packets();
        for _ in 0..rpcs {
            pair.rpc(black_box(self.request), black_box(self.response));
        }
        if self.per_packet { pair.data_packets() - before } else { rpcs }
    }

    fn warm(&self) -> Pair {
        let mut pair = Pair::new();
        self.measured(&mut pair, self.rpcs[0]);
        pair
    }

    /// Returns the time per unit of work, in nanoseconds.
    fn timed(&self) -> f64 {
        let mut pair = self.warm();
        let start = Instant::now();
        let units = self.measured(&mut pair, self.rpcs[2]);
        start.elapsed().as_nanos() as f64 / units as f64
    }
}

/// Runs the counted part, as the entry point under callgrind. Returns the counted units of work.
fn inner(name: &str) -> Option<u64> {
    let case = CASES.iter().find(|case| case.name == name)?;
    let mut pair = Pair::new();
    (0..case.rpcs[0]).for_each(|_| pair.rpc(case.request, case.response));
    Some(case.measured(&mut pair, case.rpcs[1]))
}

fn table() {
    println!("{:48}  instructions  cold lines      ns", "");
    for case in &CASES {
        let (instructions, cold) = match support::counted(case.name) {
            Some(counts) => (format!("{:.1}", counts.instructions), format!("{:.2}", counts.cold_lines)),
            None => ("no valgrind".to_owned(), "-".to_owned()),
        };
        println!("{:48}  {instructions:>12}  {cold:>10}  {:>6.1}", case.what, case.timed());
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    support::run(
        &args,
        table,
        |name| inner(name).expect("the name of a case"),
        &CASES.map(|case| (case.name, case.name)),
    )
}
