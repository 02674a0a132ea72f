//! The cost of a grant: a GRANT packet created by the receiver of a message and processed by its sender.
//!
//! ```text
//! cargo run --profile dist -p homa-proto --example grant
//! cargo run --profile dist -p homa-proto --example grant -- --check crates/homa-proto/instructions.txt
//! ```
//!
//! A grant is counted separately from the DATA packets around it. The receiver has no grant budget while
//! these packets arrive. When all have arrived, its budget is raised, which causes the grant that the end of
//! the burst would have caused. These parts are counted:
//!
//! - the receiver's choice of the message and of the grant's end, its book-keeping and its timer
//!   (`set_grant_budget`);
//! - the encoding of the GRANT packet (one call of `poll_transmit`);
//! - the sender's `handle_packets` for this packet alone, which makes the message ready to be sent again.
//!
//! The DATA packets that a grant permits and the other polls of the drive contract are not counted.
//!
//! Only one message is in flight at a time, so the receiver chooses between one message and none. This
//! example is separate from `costs`, because another caller of the functions that `costs` measures would
//! change the compiler's inlining there.

mod support;

use std::hint::black_box;
use std::net::SocketAddr;
use std::process::ExitCode;

use homa_proto::{CallOptions, Config, Endpoint, Event, Reassembly, RpcKey, RxPacket, Time, Transmit};
use homa_trace::Trace;

const SERVER_PORT: u16 = 99;
const LARGE: u32 = 1_000_000;
const SHORT: u32 = 100;
/// Maximum packets of a burst.
const BURST: usize = 32;
/// Time between two bursts.
const STEP_NS: u64 = 2_000;
/// Grant budget for one grant: twice the smallest grant.
const BUDGET: u64 = 20_000;
/// Number of warm-up requests, and of requests whose grants callgrind counts.
const REQUESTS: [u64; 2] = [20, 100];
/// The case's name in the file of instructions.
const NAME: &str = "grant";

/// The endpoints count payload but store none.
struct NoMemory;

impl Reassembly for NoMemory {
    fn write(&mut self, _: RpcKey, _: u32, _: u32, _: u32, _: &[u8]) {}
}

/// A client that sends a large request, and its server.
struct Pair {
    client: Endpoint,
    server: Endpoint,
    port: u16,
    now: Time,
}

fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], 4_000))
}

fn endpoint(number: u8) -> Endpoint {
    let config = Config { incarnation: 1 + u64::from(number), ..Config::default() };
    Endpoint::new(config, Trace::off()).expect("the configuration is sound")
}

/// Delivers a burst of packets; returns false if there is none.
fn hand_over(now: Time, from: (&mut Endpoint, SocketAddr), to: &mut Endpoint) -> bool {
    let (sender, from) = from;
    let packets: Vec<Transmit> = std::iter::from_fn(|| sender.poll_transmit(now)).take(BURST).collect();
    let burst = packets.iter().map(|packet| {
        let bytes = packet.header.as_slice();
        let payload = packet.payload.map_or(0, |range| range.len as usize);
        RxPacket { from, bytes, wire_len: bytes.len() + payload, priority: None }
    });
    to.handle_packets(now, burst, &mut NoMemory);
    for endpoint in [sender, to] {
        if endpoint.poll_timeout().is_some_and(|due| due <= now) {
            endpoint.handle_timeout(now);
        }
    }
    !packets.is_empty()
}

impl Pair {
    fn new() -> Pair {
        let (mut client, mut server) = (endpoint(1), endpoint(2));
        server.bind(SERVER_PORT).expect("the port is free");
        let port = client.open_client_port().expect("a port is free");
        Pair { client, server, port, now: Time::from_ns(1) }
    }

    /// Runs a request from its start to its response. `grant` creates each grant, once all packets before it
    /// have arrived.
    fn request(&mut self, mut grant: impl FnMut(&mut Pair)) {
        self.server.set_grant_budget(self.now, 0);
        let options = CallOptions::default();
        let sent = self.client.send_request(self.now, self.port, address(2), SERVER_PORT, LARGE, options);
        sent.expect("within the limits");
        loop {
            self.now = Time::from_ns(self.now.as_ns() + STEP_NS);
            let there = hand_over(self.now, (&mut self.client, address(1)), &mut self.server);
            while let Some(event) = self.server.poll_event() {
                if let Event::Request { rpc, .. } = event {
                    self.server.send_response(self.now, rpc, SHORT).expect("within the limits");
                }
            }
            let back = hand_over(self.now, (&mut self.server, address(2)), &mut self.client);
            while let Some(event) = self.client.poll_event() {
                if let Event::Response { .. } = event {
                    return;
                }
            }
            if !there && !back {
                grant(self);
                self.server.set_grant_budget(self.now, 0);
            }
        }
    }

    /// Passes a GRANT packet from the server, which creates it, to the client, which processes it.
    fn grant(&mut self) {
        self.server.set_grant_budget(self.now, black_box(BUDGET));
        let grant = self.server.poll_transmit(self.now).expect("a GRANT packet");
        let bytes = grant.header.as_slice();
        let packet = RxPacket { from: address(2), bytes, wire_len: bytes.len(), priority: None };
        self.client.handle_packets(self.now, [packet], &mut NoMemory);
    }

    /// Runs the measured part.
    #[inline(never)]
    fn measured(&mut self) {
        self.grant();
    }
}

/// Returns the number of the server's grants to the shortest message. A FIFO grant (GRANT-9) is caused by a
/// DATA packet and is not counted.
fn grants(pair: &Pair) -> u64 {
    pair.server.stats().grants_sent - pair.server.stats().fifo_grants
}

/// Runs the counted part, as the entry point under callgrind. Returns the number of counted grants.
fn inner() -> u64 {
    let mut pair = Pair::new();
    (0..REQUESTS[0]).for_each(|_| pair.request(Pair::grant));
    let (before, mut counted) = (grants(&pair), 0);
    for _ in 0..REQUESTS[1] {
        pair.request(|pair| {
            counted += 1;
            pair.measured();
        });
    }
    assert_eq!(grants(&pair) - before, counted, "each measured part is one grant");
    counted
}

fn table() {
    match support::counted(NAME) {
        Some(counts) => {
            println!("a grant: {:.1} instructions, {:.2} cold lines", counts.instructions, counts.cold_lines);
        }
        None => println!("a grant: no valgrind"),
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    support::run(&args, table, |_| inner(), &[(NAME, NAME)])
}
