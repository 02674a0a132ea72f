//! The kernel would accept everything that we send: two endpoints exchange RPCs over a network that loses,
//! duplicates and reorders packets, and every packet passes the strict checks of `validator`.
//!
//! The network is only a list of packets in flight. It has no links or queues, unlike that of `homa-sim`.

mod validator;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use homa_proto::{
    CallOptions, Config, Endpoint, Event, MS, Reassembly, RpcKey, RxPacket, SEC, SendError, Time, Transmit,
    US,
};
use homa_trace::Trace;
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use validator::Validator;

const HOSTS: usize = 2;
/// Maximum delay of a packet, far above the RESEND interval, so that late packets arrive after their RPC has
/// ended.
const MAX_DELAY_NS: u64 = 30 * MS;

struct NoMemory;

impl Reassembly for NoMemory {
    fn write(&mut self, _: RpcKey, _: u32, _: u32, _: u32, _: &[u8]) {}
}

fn address(host: usize) -> SocketAddr {
    // Raw IP: no port.
    SocketAddr::from(([10, 0, 0, host as u8 + 1], 0))
}

/// A packet in flight; payload is only a length.
#[derive(Clone)]
struct Flying {
    from: usize,
    header: Vec<u8>,
    wire_len: usize,
}

/// Two hosts, each with a server and a client, and the packets between them.
struct Pair {
    hosts: [Endpoint; HOSTS],
    validators: [Validator; HOSTS],
    client_ports: [u16; HOSTS],
    now: Time,
    /// Packets by arrival time, and by a number that makes the keys of simultaneous packets distinct.
    flying: BTreeMap<(Time, u64), Flying>,
    sent: u64,
    rng: Pcg64,
    /// Loss rate in thousandths.
    loss: u32,
    duplication: u32,
    /// Ids that the applications received, by host.
    executed: BTreeSet<(usize, u64)>,
    ended: usize,
}

/// The server's port: the highest valid server port.
const PORT: u16 = 32_767;

impl Pair {
    fn new(seed: u64, config: &Config, incarnations: [u64; HOSTS], loss: u32, duplication: u32) -> Pair {
        let configs = [0, 1].map(|host| Config {
            seed: seed ^ host as u64,
            incarnation: incarnations[host],
            ..config.clone()
        });
        let mut hosts = configs.clone().map(|config| Endpoint::new(config, Trace::off()).unwrap());
        let client_ports = [0, 1].map(|host: usize| hosts[host].open_client_port().unwrap());
        hosts.iter_mut().for_each(|host| host.bind(PORT).unwrap());
        Pair {
            hosts,
            validators: [0, 1].map(|host: usize| Validator::new(&configs[host])),
            client_ports,
            now: Time::from_ns(SEC),
            flying: BTreeMap::new(),
            sent: 0,
            rng: Pcg64::seed_from_u64(seed),
            loss,
            duplication,
            executed: BTreeSet::new(),
            ended: 0,
        }
    }

    fn call(&mut self, host: usize, length: u32) -> Result<RpcKey, SendError> {
        let (port, to) = (self.client_ports[host], address(1 - host));
        let key = self.hosts[host].send_request(self.now, port, to, PORT, length, CallOptions::default())?;
        self.drain(host);
        Ok(key)
    }

    /// Runs until both hosts are idle and no packet is in flight.
    fn run(&mut self) {
        for _ in 0..2_000_000 {
            let arrival = self.flying.keys().next().map(|(at, _)| *at);
            let timeouts = self.hosts.iter().filter_map(Endpoint::poll_timeout).min();
            let Some(at) = [arrival, timeouts].into_iter().flatten().min() else { break };
            self.now = self.now.max(at);
            if let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let packet = entry.remove();
                self.deliver(&packet);
                continue;
            }
            for host in 0..HOSTS {
                if self.hosts[host].poll_timeout().is_some_and(|at| at <= self.now) {
                    self.hosts[host].handle_timeout(self.now);
                    self.drain(host);
                }
            }
        }
        for host in &self.hosts {
            host.check();
            assert!(host.is_idle(), "{:?}", host.stats());
        }
    }

    fn deliver(&mut self, packet: &Flying) {
        let host = 1 - packet.from;
        let from = address(packet.from);
        self.validators[host].received(from, &packet.header);
        let rx = RxPacket { from, bytes: &packet.header, wire_len: packet.wire_len, priority: None };
        self.hosts[host].handle_packets(self.now, [rx], &mut NoMemory);
        self.drain(host);
    }

    fn drain(&mut self, host: usize) {
        while let Some(event) = self.hosts[host].poll_event() {
            match event {
                Event::Request { rpc, length, .. } => {
                    let id = self.hosts[host].rpc_id(rpc).unwrap();
                    assert!(self.executed.insert((host, id)), "AMO-1: {id} runs twice, at {:?}", self.now);
                    // Some requests are aborted, others are answered with a different length.
                    match self.rng.random_range(0..20) {
                        0 => self.hosts[host].abort(self.now, rpc),
                        1 => self.hosts[host].send_response(self.now, rpc, length.min(100)).unwrap(),
                        _ => self.hosts[host].send_response(self.now, rpc, length).unwrap(),
                    }
                }
                Event::Response { .. } | Event::Failed { .. } => self.ended += 1,
                Event::Done { .. } | Event::Readable { .. } | Event::Freeze { .. } => {}
            }
        }
        while let Some(transmit) = self.hosts[host].poll_transmit(self.now) {
            self.send(host, &transmit);
        }
    }

    fn send(&mut self, host: usize, transmit: &Transmit) {
        let payload = transmit.payload.map_or(0, |range| range.len);
        let header = &transmit.header;
        if let Err(reason) = self.validators[host].sent(transmit.to, transmit.priority, header, payload) {
            panic!("host {host} at {:?}: {reason}: {header:?} and {payload} bytes", self.now);
        }
        if self.rng.random_range(0..1_000) < self.loss {
            return;
        }
        let copies = 1 + u32::from(self.rng.random_range(0..1_000) < self.duplication);
        for _ in 0..copies {
            let late = self.rng.random_range(0..50) == 0;
            let delay = self.rng.random_range(5 * US..if late { MAX_DELAY_NS } else { 20 * US });
            let wire_len = header.len() + payload as usize;
            self.sent += 1;
            self.flying.insert(
                (self.now + delay, self.sent),
                Flying { from: host, header: header.to_vec(), wire_len },
            );
        }
    }
}

/// Generates lengths at every boundary: one byte, one packet, the unscheduled limit, the kernel's maximum
/// message.
fn length() -> impl Strategy<Value = u32> {
    prop_oneof![1..200u32, 1_420..1_430u32, 39_990..40_010u32, 100_000..200_000u32, Just(1_000_000u32),]
}

fn config() -> impl Strategy<Value = Config> {
    let sizes = (prop_oneof![Just(1_480u32), Just(1_460), Just(100), Just(8_980)], any::<bool>());
    let priorities = prop_oneof![Just((8u8, 3u8)), Just((1, 0)), Just((2, 1)), Just((8, 7))];
    (sizes, priorities).prop_map(|((max_packet, short), (num_priorities, max_sched_prio))| Config {
        max_packet,
        unsched_bytes: if short { 5_000 } else { 40_000 },
        num_priorities,
        max_sched_prio,
        ..Config::default()
    })
}

/// Returns the number of test cases: few by default; `PROPTEST_CASES` overrides it.
fn cases() -> u32 {
    if std::env::var_os("PROPTEST_CASES").is_some() { ProptestConfig::default().cases } else { 48 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn every_packet_between_two_endpoints(
        seed: u64,
        config in config(),
        incarnations in prop_oneof![
            Just([0, 0]), Just([0, 0x01_0203_0405]), Just([0x01_0203_0405, 0x01_0203_0406])
        ],
        lengths in prop::collection::vec((0..HOSTS, length()), 1..12),
        loss in prop_oneof![Just(0u32), Just(20), Just(200)],
        duplication in prop_oneof![Just(0u32), Just(100)],
    ) {
        let mut pair = Pair::new(seed, &config, incarnations, loss, duplication);
        for (host, length) in &lengths {
            pair.call(*host, *length).unwrap();
        }
        pair.run();
        prop_assert_eq!(pair.ended, lengths.len());
        prop_assert!(pair.validators.iter().map(|validator| validator.checked[0]).sum::<u64>() > 0);
    }
}

#[test]
fn every_type_of_packet_is_among_those_checked() {
    let mut checked = [0; 10];
    for seed in 0..20 {
        let mut pair = Pair::new(seed, &Config::default(), [0, 0], 200, 100);
        for length in [100, 100, 100, 100, 100, 100, 150_000, 50_000] {
            pair.call(0, length).unwrap();
        }
        pair.run();
        for validator in &pair.validators {
            checked.iter_mut().zip(validator.checked).for_each(|(sum, count)| *sum += count);
        }
    }
    // FREEZE is not sent (FREEZE-2).
    let unchecked: Vec<usize> = (0..checked.len()).filter(|&kind| checked[kind] == 0).collect();
    assert_eq!(unchecked, [6], "{checked:?}");
}

#[test]
fn a_kernel_gets_no_message_of_more_than_a_million_bytes() {
    let config = Config { max_message: 3_000_000, ..Config::default() };
    for (incarnations, longest) in [([0, 0], 1_000_000), ([5, 6], 3_000_000)] {
        let mut pair = Pair::new(1, &config, incarnations, 0, 0);
        // The first exchange shows which implementation the peer is (SEND-13).
        pair.call(0, 100).unwrap();
        pair.run();
        assert!(pair.call(0, longest).is_ok());
        pair.run();
        let refused = pair.call(0, longest + 1);
        assert_eq!(refused, Err(SendError::MessageTooLarge { length: longest + 1, limit: longest }));
    }
}

#[test]
fn a_packet_that_the_kernel_would_not_take_is_found() {
    let mut pair = Pair::new(1, &Config::default(), [0, 0], 0, 0);
    pair.hosts[0]
        .send_request(pair.now, pair.client_ports[0], address(1), PORT, 5_000, CallOptions::default())
        .unwrap();
    let transmit = pair.hosts[0].poll_transmit(pair.now).unwrap();
    let payload = transmit.payload.unwrap().len;
    // Each of these bytes gets one wrong value.
    let faults = [
        (0, 0x00),  // client's port
        (2, 0x80),  // server's port
        (7, 1),     // sequence
        (8, 1),     // TCP acknowledgement
        (11, 0x1a), // type
        (12, 0x50), // doff
        (13, 6),    // flags
        (27, 1),    // sender_id
        (28, 0x80), // message_length
        (35, 0),    // incoming
        (43, 1),    // ack.client_id
        (45, 1),    // ack.server_port
        (48, 1),    // retransmit
        (49, 1),    // pad
        (55, 1),    // seg.offset
    ];
    let check = |header: &[u8], payload, priority| {
        Validator::new(&Config::default()).sent(address(1), priority, header, payload)
    };
    assert_eq!(check(&transmit.header, payload, transmit.priority), Ok(()));
    for (at, value) in faults {
        let mut header = transmit.header.to_vec();
        assert_ne!(header[at], value, "byte {at}");
        header[at] = value;
        assert!(check(&header, payload, transmit.priority).is_err(), "byte {at} as {value:#x}");
    }
    for (payload, priority) in [(0, 6), (1_425, 6), (payload, 8)] {
        assert!(
            check(&transmit.header, payload, priority).is_err(),
            "{payload} bytes at priority {priority}"
        );
    }
}
