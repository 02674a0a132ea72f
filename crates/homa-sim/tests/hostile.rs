//! A hostile peer: forged IDs, ports, lengths and addresses, grants beyond the message, acknowledgements for
//! RPCs of other hosts, and first packets from many addresses. Memory stays within the configured bounds, and
//! the RPCs of all other hosts continue.

use super::common::{Answer, PORT, Peer, call, network};
use homa_proto::wire::{self, Ack, AckList, Body, Common, Data, Grant, Incarnation, Resend, UnknownReason};
use homa_proto::{Config, RpcKey, SEC, Stats, US};
use homa_sim::{Network, NetworkConfig};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

const SERVER: usize = 0;
const CLIENTS: std::ops::Range<usize> = 1..4;
const ATTACKER: usize = 4;
/// Addresses from here on do not belong to any host.
const FORGED: usize = 1_000;
/// Time between two calls of each client.
const CALL_EVERY_NS: u64 = 20 * US;
const CALLS: u64 = 2_000;

/// Returns settings with limits that the flood reaches within milliseconds.
fn protocol(base: Config) -> Config {
    Config {
        max_rpcs: 6_000,
        max_peers: 6_000,
        max_incoming_bytes: 64 << 20,
        max_control_packets: 1_000,
        ..base
    }
}

fn data(length: u32, offset: u32) -> Body {
    Body::Data(Data {
        message_length: length,
        incoming: length,
        ack: None,
        cutoff_version: 0,
        retransmit: false,
        offset,
        response_limit: None,
    })
}

/// Returns a forged packet and its source address. `known` is the client's ID of an RPC of another host.
fn forge(rng: &mut Pcg64, known: u64) -> (usize, Vec<u8>) {
    let stranger = rng.random_range(FORGED..1 << 23);
    let client = rng.random_range(CLIENTS);
    let id = rng.random::<u64>() & !1;
    let payload = rng.random_range(1..300);
    let mut acks = AckList::new();
    for _ in 0..5 {
        acks.push(Ack { client_id: known, server_port: PORT });
    }
    let (from, sender_id, body, payload) = match rng.random_range(0..16) {
        // First packets of long messages.
        0..5 => (stranger, id, data(1_000_000, 0), payload),
        5 => (stranger, id, data(rng.random_range(1_001..1 << 31), rng.random_range(0..1_000)), payload),
        // Complete requests, which are executed.
        6 => (stranger, id, data(payload, 0), payload),
        // Packets for RPCs of other hosts, from either side, with a wrong source address.
        7 => (stranger, known, data(1_000_000, 40_000), payload),
        8 => (stranger, known | 1, data(100, 0), 100),
        9 => (stranger, known, Body::Grant(Grant { offset: i32::MAX as u32, priority: 7 }), 0),
        10 => (stranger, known, Body::Ack(acks), 0),
        11 => (stranger, known, Body::RpcUnknown(UnknownReason::Unknown), 0),
        12 => (stranger, known, Body::Resend(Resend { offset: 0, length: None, priority: 7 }), 0),
        // Packets from an honest client's address, for RPCs that the client does not have.
        13 => (client, id, Body::Ack(AckList::new()), 0),
        14 => (client, id, Body::Resend(Resend { offset: 0, length: None, priority: 7 }), 0),
        // Arbitrary packets.
        _ => {
            let mut bytes: Vec<u8> = (0..rng.random_range(0..120)).map(|_| rng.random()).collect();
            if let Some(kind) = bytes.get_mut(11) {
                *kind = rng.random_range(0x10..0x1a);
            }
            return (stranger, bytes);
        }
    };
    let common = Common {
        source_port: rng.random_range(32_768..=u16::MAX),
        dest_port: if rng.random_range(0..8) == 0 { rng.random() } else { PORT },
        sender_id,
        incarnation: Incarnation::NONE,
        bundle_endpoints: 0,
    };
    let mut bytes = wire::encode(&common, &body).as_slice().to_vec();
    bytes.resize(bytes.len() + payload as usize, 0);
    (from, bytes)
}

/// Results of the honest clients' RPCs.
struct Outcome {
    /// Sorted round-trip times in nanoseconds: of all RPCs, and of RPCs below 3,000 bytes.
    rtts_ns: Vec<u64>,
    short_rtts_ns: Vec<u64>,
    server: Stats,
}

fn p99(ascending: &[u64]) -> u64 {
    ascending[ascending.len() * 99 / 100]
}

/// Makes one honest call from each client every 20 us, with a forged packet every `forged_every_ns` if that
/// is set.
fn run(seed: u64, forged_every_ns: Option<u64>) -> Outcome {
    let mut config = NetworkConfig { check_every: 500, ..NetworkConfig::new(seed, 5) };
    config.protocol = protocol(config.protocol);
    let limits = config.protocol.clone();
    let mut network = network(config);
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut sizes = Pcg64::seed_from_u64(seed);
    let mut known = 2;
    // The second call of each client acknowledges its first call, which verifies the client to the server.
    for cookie in [CALLS, CALLS + 1] {
        for client in CLIENTS {
            call(&mut network, client, SERVER, cookie, 100);
        }
        network.run_for(100 * US);
    }
    let begin = network.now();
    let (mut next_forged, mut starts) = (begin, Vec::new());
    for cookie in 0..CALLS {
        let until = begin + (cookie + 1) * CALL_EVERY_NS;
        for client in CLIENTS {
            // Usually short; one in fifty needs many grants.
            let length = if sizes.random_range(0..50) == 0 { 150_000 } else { sizes.random_range(1..3_000) };
            starts.push(network.now());
            let rpc: RpcKey = call(&mut network, client, SERVER, cookie, length);
            known =
                network.host(client).endpoint().and_then(|endpoint| endpoint.rpc_id(rpc)).unwrap_or(known);
        }
        while let Some(every_ns) = forged_every_ns.filter(|_| next_forged < until) {
            network.run_until(next_forged);
            let (from, bytes) = forge(&mut rng, known);
            network.inject_as(ATTACKER, from, SERVER, 7, bytes);
            next_forged = next_forged + every_ns;
        }
        network.run_until(until);
        within_bounds(&network, &limits);
    }
    let server = network.host(SERVER).endpoint().unwrap().stats().clone();
    network.run_for(SEC / 5);
    let (mut rtts_ns, mut short_rtts_ns) = (Vec::new(), Vec::new());
    for client in CLIENTS {
        let app = network.host(client).app();
        assert_eq!(app.failed, [], "seed {seed}: client {client}");
        assert_eq!(app.responses.len() as u64, CALLS + 2, "seed {seed}: client {client}");
        let started = |cookie: u64| starts[cookie as usize * CLIENTS.len() + client - CLIENTS.start];
        for &(at, cookie, length) in &app.responses[2..] {
            let rtt_ns = at.since(started(cookie));
            rtts_ns.push(rtt_ns);
            short_rtts_ns.extend((length < 3_000).then_some(rtt_ns));
        }
    }
    rtts_ns.sort_unstable();
    short_rtts_ns.sort_unstable();
    let limit = network.now() + 120 * SEC;
    assert!(network.run_until_idle(limit), "seed {seed}: {:?}", network.host(SERVER).leftovers());
    for host in network.hosts() {
        assert_eq!(host.violations(), Vec::<String>::new().as_slice(), "seed {seed}");
        assert_eq!(host.counts().executed_again, 0, "seed {seed}");
    }
    // Payload from forged addresses is not checked, but all payload of the clients is.
    assert!(CLIENTS.into_iter().all(|client| network.host(client).bytes_wrong() == 0), "seed {seed}");
    Outcome { rtts_ns, short_rtts_ns, server }
}

fn within_bounds(network: &Network<Peer>, limits: &Config) {
    let server = network.host(SERVER);
    let endpoint = server.endpoint().unwrap();
    assert!(endpoint.open_rpcs() <= limits.max_rpcs as usize, "{} RPCs", endpoint.open_rpcs());
    assert!(endpoint.known_peers() <= limits.max_peers as usize, "{} peers", endpoint.known_peers());
    assert!(server.stored_bytes() <= limits.max_incoming_bytes, "{} bytes", server.stored_bytes());
}

#[test]
fn a_flood_of_forged_packets_breaks_no_bound_and_the_others_go_on() {
    // LIMIT-1, LIMIT-9, LIMIT-10, ID-8, ACK-7, GRANT-13
    let quiet = run(1, None);
    let flood = run(1, Some(US));
    let server = &flood.server;
    for (before, during, of) in
        [(&quiet.rtts_ns, &flood.rtts_ns, "all"), (&quiet.short_rtts_ns, &flood.short_rtts_ns, "short")]
    {
        let (before_ns, during_ns) = (p99(before), p99(during));
        println!("P99 of {of} RPCs: {during_ns} ns in the flood, {before_ns} ns without");
        assert!(
            during_ns <= 3 * before_ns,
            "P99 of {of} RPCs: {during_ns} ns, {before_ns} ns without the flood"
        );
    }
    for (bitten, what) in [
        (server.unproven_evicted, "room was short"),
        (server.drop_invalid, "packets that are none"),
        (server.drop_unknown_rpc, "RPCs that are not there"),
        (server.drop_no_port, "ports that nobody has"),
        (server.drop_too_large, "lengths beyond the limit"),
        (server.unknowns_sent, "RESENDs of others' RPCs"),
    ] {
        assert!(bitten > 50, "the flood had nothing of this kind: {what} ({bitten})");
    }
}

#[test]
fn an_unverified_peer_is_served_in_a_flood_of_first_packets() {
    // LIMIT-9: a peer that continues to send is not the one that has been silent longest.
    let mut config = NetworkConfig { check_every: 100, ..NetworkConfig::new(3, 5) };
    config.protocol = protocol(config.protocol);
    let mut network = Network::new(config, |_| Peer::new(Answer::Echo));
    let mut rng = Pcg64::seed_from_u64(3);
    for step in 0..20_000 {
        let common = Common {
            source_port: 40_000,
            dest_port: PORT,
            sender_id: rng.random::<u64>() & !1 | 2,
            incarnation: Incarnation::NONE,
            bundle_endpoints: 0,
        };
        let mut bytes = wire::encode(&common, &data(1_000_000, 0)).as_slice().to_vec();
        bytes.resize(bytes.len() + 100, 0);
        network.inject_as(ATTACKER, rng.random_range(FORGED..1 << 23), SERVER, 7, bytes);
        if step == 5_000 {
            call(&mut network, 1, SERVER, 0, 30_000);
        }
        network.run_for(US);
    }
    assert!(network.host(SERVER).endpoint().unwrap().stats().unproven_evicted > 10_000);
    assert_eq!(network.host(1).app().cookies(), [0]);
}
