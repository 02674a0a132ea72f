//! ID: the RPC and the host of a packet.

use homa_proto::wire::{Body, Incarnation, Packet, PacketType, UnknownReason, owner_of};
use homa_proto::{Config, Event, MS, PortError};

use super::kit::{PORT, Side, addr, exchange, kernel, ours, pair};

/// ID-1, ID-2, ID-7.
#[test]
fn every_packet_carries_its_rpcs_ports_and_the_id_of_its_side() {
    let (mut server, mut client) = pair(Config { unsched_bytes: 5_000, ..Config::default() });
    let port = client.client_port;
    let rpc = client.call(server.addr, 20_000);
    let id = client.id(rpc);
    assert!(id != 0 && id & 1 == 0);
    let mut said = exchange(&mut server, &mut client);
    let request = server.requests()[0];
    assert_eq!(server.id(request), id | 1);
    server.respond(request, 20_000);
    said.extend(exchange(&mut server, &mut client));
    let sides = |n| if n == 1 { (PORT, port, id | 1) } else { (port, PORT, id) };
    for (from, sent) in &said {
        let common = sent.packet.common;
        assert_eq!((common.source_port, common.dest_port, common.sender_id), sides(*from), "{}", sent.packet);
    }
    let kinds = [PacketType::Data, PacketType::Grant, PacketType::Cutoffs];
    assert!(kinds.iter().all(|kind| said.iter().any(|(_, sent)| sent.is(*kind))));
}

/// ID-3, ID-4.
#[test]
fn ids_count_up_by_two_over_all_ports_from_a_number_of_the_seed() {
    let mut client = Side::new(1, Config::default());
    let other_port = client.endpoint.open_client_port().unwrap();
    let ids: Vec<u64> = (0..10)
        .map(|n| {
            client.client_port = if n % 2 == 0 { client.client_port } else { other_port };
            let rpc = client.call(addr(2), 100);
            client.id(rpc)
        })
        .collect();
    assert!(ids.windows(2).all(|pair| pair[1] == pair[0] + 2), "{ids:?}");
    let first = |seed| {
        let mut client = Side::new(1, Config { seed, ..Config::default() });
        let rpc = client.call(addr(2), 100);
        client.id(rpc)
    };
    assert_eq!(first(0), ids[0], "the seed decides");
    let firsts: Vec<u64> = (0..50).map(first).collect();
    for (at, &id) in firsts.iter().enumerate() {
        let near = firsts[..at].iter().any(|other| id.abs_diff(*other) < 1 << 20);
        assert!(id & 1 == 0 && !near, "seed {at} begins where another began: {firsts:?}");
    }
}

/// ID-3, ID-4.
#[test]
fn the_ids_of_endpoints_that_share_an_address_are_their_own_and_rise() {
    for endpoints in [2, 3, 4, 64] {
        let mut all = Vec::new();
        for endpoint in 0..endpoints {
            let mut client = Side::new(1, Config { endpoints, endpoint, seed: 7, ..Config::default() });
            let ids: Vec<u64> = (0..20)
                .map(|_| {
                    let rpc = client.call(addr(2), 100);
                    client.id(rpc)
                })
                .collect();
            assert!(ids.iter().all(|id| id & 1 == 0 && owner_of(*id, endpoints) == endpoint));
            assert!(ids.iter().all(|id| owner_of(*id | 1, endpoints) == endpoint), "both directions");
            assert!(ids.windows(2).all(|pair| pair[1] == pair[0] + 2 * u64::from(endpoints)), "{ids:?}");
            all.extend(ids);
        }
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 20 * endpoints as usize, "each id is one endpoint's");
    }
}

/// ID-5.
#[test]
fn the_same_id_of_two_peers_is_two_rpcs() {
    let mut server = Side::new(1, Config::default());
    for n in [2, 3] {
        server.hear(addr(n), &kernel(n).whole(2, 100 * u32::from(n)));
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    for (&rpc, n) in requests.iter().zip([2, 3]) {
        server.respond(rpc, 10);
        let answer = server.take().into_iter().find(|sent| sent.is(PacketType::Data)).unwrap();
        assert_eq!(answer.to, addr(n));
    }
    server.hear(addr(2), &kernel(2).ack(2, &[]));
    assert_eq!(server.endpoint.open_rpcs(), 1, "an acknowledgement of one peer");
}

/// ID-6.
#[test]
fn ports_out_of_their_range_are_refused_by_number() {
    let mut side = Side::new(1, Config::default());
    assert!(side.client_port >= 32_768);
    for port in [0, 32_768, 65_535] {
        assert_eq!(side.endpoint.bind(port), Err(PortError::OutOfRange(port)));
        assert!(PortError::OutOfRange(port).to_string().contains(&port.to_string()));
    }
    assert_eq!(side.endpoint.bind(PORT), Err(PortError::InUse(PORT)));
    assert_eq!(side.endpoint.bind(1), Ok(()));
    assert_eq!(side.endpoint.bind(32_767), Ok(()));
}

/// ID-15, LIMIT-8.
#[test]
fn a_port_accepts_requests_while_its_owner_wants_it_to() {
    let (mut side, _) = pair(Config::default());
    let high = side.client_port;
    let client = ours(3, 7);
    let mut id = 0;
    let mut is_accepted = |side: &mut Side, port: u16| {
        id += 2;
        let mut packet = client.whole(id, 10);
        packet.common.dest_port = port;
        side.hear(client.addr, &packet);
        let told: Vec<Body> = side.take().iter().map(|sent| sent.packet.body).collect();
        let accepted = side.requests().len() == 1;
        assert_eq!(told, vec![Body::RpcUnknown(UnknownReason::NoSuchPort); usize::from(!accepted)]);
        side.endpoint.check();
        accepted
    };
    assert!(!is_accepted(&mut side, high) && is_accepted(&mut side, PORT));
    for accept in [true, false, true] {
        for port in [high, PORT] {
            side.endpoint.accept_requests(port, accept);
            assert_eq!(side.endpoint.accepts_requests(port), accept);
            assert_eq!(is_accepted(&mut side, port), accept);
        }
    }
    // A request that has run is still known after its response was freed.
    side.hear(client.addr, &client.whole(4_000, 10));
    let rpc = side.requests()[0];
    side.respond(rpc, 10);
    side.hear(client.addr, &client.ack(4_000, &[]));
    side.endpoint.accept_requests(PORT, false);
    side.take();
    side.hear(client.addr, &client.whole(4_000, 10));
    assert_eq!((side.take().len(), side.stats().drop_finished), (0, 1));
    let is_refused = |side: &Side, packet: &Packet| side.endpoint.has_nobody_for(client.addr, &packet.common);
    assert!(!is_refused(&side, &client.whole(4_000, 10)) && is_refused(&side, &client.whole(4_002, 10)));
    side.endpoint.accept_requests(PORT, true);
    assert!(!is_refused(&side, &client.whole(4_002, 10)));
    // A request that has begun to arrive continues.
    side.hear(client.addr, &client.data(2_000, 2_000, 1_000, (0, 1_000)));
    side.endpoint.accept_requests(PORT, false);
    assert!(!is_refused(&side, &client.data(2_000, 2_000, 1_000, (1_000, 1_000))));
    side.hear(client.addr, &client.data(2_000, 2_000, 1_000, (1_000, 1_000)));
    assert_eq!(side.requests().len(), 1);
    let now = side.now;
    side.endpoint.close_port(now, high);
    side.pass(MS);
    assert!(!side.endpoint.is_port_open(high));
    side.endpoint.accept_requests(high, true);
    assert!(!is_accepted(&mut side, high), "it is closed");
}

/// ID-8.
#[test]
fn packets_of_another_peer_about_an_rpc_are_for_an_unknown_one() {
    let mut client = Side::new(1, Config { unsched_bytes: 2_000, ..Config::default() });
    let rpc = client.call(addr(2), 10_000);
    let id = client.id(rpc);
    client.take();
    let stranger = kernel(3).server(client.client_port);
    let bodies = [
        stranger.whole(id | 1, 50),
        stranger.grant(id | 1, 10_000, 3),
        stranger.unknown(id | 1, UnknownReason::Unknown),
        stranger.packet(id | 1, Body::Busy),
    ];
    client.hear(addr(3), &kernel(3).whole(2, 10)); // Makes host 3 known as a peer.
    client.take();
    client.events();
    for packet in bodies {
        client.hear(addr(3), &packet);
        assert_eq!((client.take().len(), client.events()), (0, Vec::new()), "{packet}");
    }
    assert_eq!(client.stats().drop_wrong_peer, 4);
    client.hear(addr(3), &stranger.resend(id | 1, 0, None));
    let answer = client.take();
    assert_eq!(answer.len(), 1);
    assert_eq!(answer[0].packet.body, Body::RpcUnknown(UnknownReason::Unknown), "as for an unknown one");
    assert!(client.endpoint.rpc_id(rpc).is_some());
}

/// ID-9, ID-11: without the mark, none of these fields is read, regardless of its value.
#[test]
fn a_reason_or_an_incarnation_without_the_mark_is_none() {
    let mut client = Side::new(1, Config::default());
    let rpc = client.call(addr(2), 100);
    let id = client.id(rpc);
    client.take();
    assert_eq!(client.pass(6 * MS).len(), 1, "it asks");
    let marked = ours(2, 5).server(client.client_port).unknown(id | 1, UnknownReason::NoSuchPort);
    let header = homa_proto::wire::encode(&marked.common, &marked.body);
    let mut bytes = header.to_vec();
    bytes[18..20].copy_from_slice(&[0xb9, 0x7d]);
    client.hear_bytes(addr(2), &bytes, bytes.len());
    assert_eq!(client.events(), Vec::new(), "RPC_UNKNOWN of a kernel has no reason");
    assert_eq!(client.take().len(), 1, "and the request goes again");
    client.hear_bytes(addr(2), &header, header.len());
    assert!(matches!(client.events()[..], [Event::Failed { .. }]), "with the mark it has one");
}

/// ID-9.
#[test]
fn a_host_without_an_incarnation_marks_nothing() {
    let mut client = Side::new(1, Config { incarnation: 0, ..Config::default() });
    client.call(addr(2), 100);
    let transmit = client.endpoint.poll_transmit(client.now).unwrap();
    assert_eq!(transmit.header[13..20], [0; 7]);
    let mut client = Side::new(1, Config { incarnation: 0xab_0102_0304, ..Config::default() });
    client.call(addr(2), 100);
    let transmit = client.endpoint.poll_transmit(client.now).unwrap();
    assert_eq!(transmit.header[13..20], [0xab, 1, 2, 3, 4, 0x48, 0x4d]);
}

/// ID-10: the incarnation in a packet is the lower 40 bits of the configured milliseconds, and never 0.
#[test]
fn an_incarnation_is_forty_bits_and_never_none() {
    for (wall_clock_ms, told) in
        [(1 << 40, 1), ((1 << 40) + 7, 7), (1_700_000_000_000, 1_700_000_000_000 % (1 << 40))]
    {
        let mut client = Side::new(1, Config { incarnation: wall_clock_ms, ..Config::default() });
        client.call(addr(2), 100);
        assert_eq!(client.take()[0].packet.common.incarnation.get(), told);
    }
    let at = Incarnation::new(5);
    assert!(
        Incarnation::new(4 + (1 << 39)).is_newer_than(at)
            && !Incarnation::new(5 + (1 << 39)).is_newer_than(at)
    );
}

/// ID-13.
#[test]
fn cookies_come_back_and_never_reach_the_wire() {
    let outcome = |cookie, length| {
        let (mut server, mut client) = pair(Config { max_message: 5_000, ..Config::default() });
        let options = homa_proto::CallOptions { cookie, private: cookie > 9, readable_step: 0 };
        let (now, port) = (client.now, client.client_port);
        client.endpoint.send_request(now, port, server.addr, PORT, 100, options).unwrap();
        let said = exchange(&mut server, &mut client);
        let rpc = server.requests()[0];
        if length == 0 {
            server.endpoint.abort(now, rpc)
        } else {
            server.respond(rpc, length)
        }
        let more = exchange(&mut server, &mut client);
        let later = client.pass(50_000_000);
        server.hear_all(client.addr, &later);
        exchange(&mut server, &mut client);
        let bytes: Vec<_> = said.into_iter().chain(more).map(|(_, sent)| sent.packet).collect();
        (client.events(), bytes)
    };
    let (events, packets) = outcome(0x1234_5678_9abc, 10);
    assert!(
        matches!(events[..], [Event::Response { cookie: 0x1234_5678_9abc, private: true, .. }]),
        "{events:?}"
    );
    let (events, _) = outcome(8, 0);
    assert!(matches!(events[..], [Event::Failed { cookie: 8, private: false, .. }]), "{events:?}");
    assert_eq!(packets, outcome(5, 10).1);
}

/// ID-4: the ids at one server reveal nothing about those at another.
#[test]
fn ids_towards_one_server_do_not_tell_those_towards_another() {
    let mut client = Side::new(1, Config { seed: 11, ..Config::default() });
    let mut ids: [Vec<u64>; 8] = Default::default();
    for round in 0..80_usize {
        let rpc = client.call(addr(2 + round as u8 % 8), 100);
        ids[round % 8].push(client.id(rpc));
    }
    for (server, own) in ids.iter().enumerate() {
        assert!(own.windows(2).all(|pair| pair[1] > pair[0]), "ids to one server rise: {own:x?}");
        for other in ids[..server].iter().flatten() {
            let distance = own.iter().map(|id| id.abs_diff(*other)).min().unwrap();
            assert!(distance > 1 << 24, "{distance} between ids to two servers");
            assert_ne!(own[0] as u32 >> 12, *other as u32 >> 12, "nor are their lower halves near");
        }
    }
}

/// ID-4: the seed cannot be computed from an id. This was possible when the first id was an invertible
/// function of the seed.
#[test]
fn the_first_id_does_not_give_the_seed_away() {
    // The inverse, modulo 2^64, of the multiplier that was once applied to seeds (by Newton's iteration).
    let multiplier: u64 = 6_364_136_223_846_793_005;
    let inverse =
        (0..6).fold(multiplier, |x, _| x.wrapping_mul(2_u64.wrapping_sub(multiplier.wrapping_mul(x))));
    for seed in 0..1_000_u64 {
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut client = Side::new(1, Config { seed, ..Config::default() });
        let rpc = client.call(addr(2), 100);
        let id = client.id(rpc).wrapping_sub(2);
        let seeds = [id, id | 1].map(|id| id.rotate_right(32).wrapping_mul(inverse).wrapping_sub(1));
        assert!(!seeds.contains(&seed), "{seed:x} from its first id");
    }
}
