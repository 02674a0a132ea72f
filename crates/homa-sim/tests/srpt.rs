//! Short messages do not wait behind long ones, and receivers do not grant to more messages than they should.

use std::collections::{BTreeMap, BTreeSet};

use super::common::{Answer, Peer, call, config, data_end, network, rpc_id, sent, settle};
use homa_proto::wire::{Body, PacketType};
use homa_proto::{MS, SEC, Time, US};
use homa_sim::{Fate, Network, Reply};

#[test]
fn a_short_message_overtakes_a_long_one_at_the_sender() {
    let mut network = network(config(1, 2));
    call(&mut network, 0, 1, 1, 500_000);
    network.run_for(20 * US);
    call(&mut network, 0, 1, 2, 10_000);
    settle(&mut network, SEC);
    let client = network.host(0).app();
    assert_eq!(client.cookies(), [2, 1]);
    // 10,000 bytes in both directions take 6.8 us of link time and 2 us of delays. A long message may add
    // only a pacer's backlog at each sender, at most 5 us.
    let took_ns = client.answered_at(2).since(Time::from_ns(20 * US));
    assert!(took_ns < 20 * US, "{took_ns} ns");
}

#[test]
fn the_shorter_of_two_messages_in_hand_goes_first() {
    let mut network = network(config(1, 2));
    // Both messages are unscheduled and sent at the same time, the longer one first.
    call(&mut network, 0, 1, 1, 38_000);
    call(&mut network, 0, 1, 2, 12_000);
    network.run_for(8 * US);
    assert_eq!(network.host(1).app().requests.first().map(|request| request.3), Some(12_000));
    settle(&mut network, SEC);
}

#[test]
fn a_short_message_overtakes_a_long_one_at_the_receiver() {
    // Two senders to one receiver: the long message has the downlink to itself until the short one starts.
    let mut network = network(config(1, 3));
    call(&mut network, 0, 2, 1, 1_000_000);
    network.run_for(50 * US);
    call(&mut network, 1, 2, 2, 80_000);
    settle(&mut network, SEC);
    let short_ns = network.host(1).app().answered_at(2).since(Time::from_ns(50 * US));
    let long_ns = network.host(0).app().answered_at(1).as_ns();
    // 80,000 bytes take 27 us of link time, 54 us in both directions, plus delays and one round trip for
    // grants. Behind the rest of the long message they would wait for another 270 us.
    assert!(short_ns < 110 * US, "short {short_ns} ns, long {long_ns} ns");
    assert!(long_ns > 600 * US, "long {long_ns} ns");
}

/// Returns the IDs of the RPCs that had grants from `receiver` before the first granted message ended.
fn granted_before_the_first_end(network: &Network<Peer>, receiver: usize) -> BTreeSet<u64> {
    let mut lengths = BTreeMap::new();
    let mut granted = BTreeSet::new();
    for seen in network.captured() {
        let Some(packet) = seen.packet else { continue };
        match packet.body {
            Body::Data(data) if seen.to == receiver && seen.fate == Fate::Delivered => {
                lengths.insert(rpc_id(&packet), data.message_length);
            }
            Body::Grant(grant) if seen.from == receiver && seen.fate == Fate::Sent => {
                granted.insert(rpc_id(&packet));
                // The rest of this message needs no grant, so another message may take its place.
                if lengths.get(&rpc_id(&packet)) == Some(&grant.offset) {
                    return granted;
                }
            }
            _ => {}
        }
    }
    granted
}

#[test]
fn at_most_max_overcommit_messages_are_granted_to() {
    for degree in [1, 2, 4] {
        let mut config = config(1, 13);
        config.protocol.max_overcommit = degree;
        // So few unscheduled bytes that no sender is limited. A limit would leave only half of the budget for
        // grants.
        config.protocol.unsched_bytes = 10_000;
        config.protocol.grant_fifo_fraction = 0;
        config.link.queue_bytes = 10_000_000;
        let mut network = network(config);
        for from in 1..13 {
            call(&mut network, from, 0, from as u64, 300_000);
        }
        settle(&mut network, SEC);
        assert_eq!(granted_before_the_first_end(&network, 0).len(), degree as usize, "degree {degree}");
        assert!((1..13).all(|from| network.host(from).app().responses.len() == 1));
    }
}

#[test]
fn at_most_one_message_of_a_peer_is_granted_to() {
    let mut config = config(1, 2);
    config.protocol.grant_fifo_fraction = 0;
    let mut network = network(config);
    for cookie in 0..4 {
        call(&mut network, 0, 1, cookie, 300_000 + 50_000 * cookie as u32);
    }
    settle(&mut network, SEC);
    assert_eq!(granted_before_the_first_end(&network, 1).len(), 1);
}

#[test]
fn grants_go_to_the_messages_with_the_fewest_bytes_not_yet_granted() {
    const DEGREE: usize = 2;
    let mut config = config(1, 9);
    config.protocol.max_overcommit = DEGREE as u32;
    config.protocol.grant_fifo_fraction = 0;
    config.link.queue_bytes = 10_000_000;
    let unsched_bytes = config.protocol.unsched_bytes;
    let mut network = Network::new(config, |_| Peer::new(Answer::Fixed(Reply::Now(1))));
    // Longest first, so that the order of arrival differs from SRPT order.
    for from in 1..9 {
        call(&mut network, from, 0, from as u64, 900_000 - 100_000 * from as u32);
    }
    settle(&mut network, SEC);
    // Ungranted bytes of each request that host 0 knows, by ID. Each request is from a different peer.
    let mut ungranted = BTreeMap::new();
    let mut lengths = BTreeMap::new();
    let mut grants = 0;
    for seen in network.captured() {
        let Some(packet) = seen.packet else { continue };
        let id = rpc_id(&packet);
        match packet.body {
            Body::Data(data) if seen.to == 0 && seen.fate == Fate::Delivered => {
                lengths.insert(id, data.message_length);
                ungranted.entry(id).or_insert(data.message_length - data.message_length.min(unsched_bytes));
            }
            Body::Grant(grant) if seen.from == 0 && seen.fate == Fate::Sent => {
                grants += 1;
                // Lengths within a sixteenth of each other may count as equal.
                let clearly_shorter = ungranted
                    .values()
                    .filter(|&&other| other > 0 && other + other / 16 < ungranted[&id])
                    .count();
                assert!(clearly_shorter < DEGREE, "{packet} at {:?} of {ungranted:?}", seen.at);
                ungranted.insert(id, lengths[&id] - grant.offset);
            }
            _ => {}
        }
    }
    assert!(grants > 100 && ungranted.values().all(|&rest| rest == 0), "{grants} {ungranted:?}");
}

#[test]
fn granted_and_not_received_bytes_stay_within_max_incoming() {
    let mut config = config(1, 20);
    config.protocol.grant_fifo_fraction = 0;
    config.protocol.unsched_bytes = 10_000;
    config.protocol.max_incoming = 400_000;
    let max_incoming = u64::from(config.protocol.max_incoming);
    let mut network = network(config);
    for from in 1..20 {
        call(&mut network, from, 0, from as u64, 500_000);
    }
    settle(&mut network, SEC);
    // Bytes granted by host 0, and bytes received of each message. Unscheduled bytes count from the first
    // packet on.
    let (mut granted, mut received) = (BTreeMap::<u64, u64>::new(), BTreeMap::<u64, u64>::new());
    for seen in network.captured() {
        let Some(packet) = seen.packet else { continue };
        let id = rpc_id(&packet);
        match packet.body {
            // Only requests count: host 0 is the server.
            Body::Data(data) if seen.to == 0 && seen.fate == Fate::Delivered => {
                granted.entry(id).or_insert(u64::from(data.message_length.min(10_000)));
                *received.entry(id).or_default() += u64::from(packet.payload_len);
            }
            Body::Grant(grant) if seen.from == 0 && seen.fate == Fate::Sent => {
                let end = granted.entry(id).or_default();
                *end = u64::from(grant.offset).max(*end);
                let outstanding: u64 =
                    granted.iter().map(|(id, end)| end - received.get(id).copied().unwrap_or_default()).sum();
                // The rest of the unscheduled bytes may have arrived after the grant's budget was computed,
                // but never earlier.
                assert!(outstanding <= max_incoming, "{outstanding} at {:?}", seen.at);
            }
            _ => {}
        }
    }
}

#[test]
fn the_oldest_message_is_not_starved() {
    let mut config = config(1, 3);
    config.protocol.max_overcommit = 1;
    let mut network = Network::new(config, |_| Peer::new(Answer::Fixed(Reply::Now(1))));
    call(&mut network, 0, 2, 1_000_000, 1_000_000);
    // Shorter messages from another host take the whole downlink, one after the other, for 20 ms.
    for cookie in 0..200 {
        call(&mut network, 1, 2, cookie, 300_000);
    }
    assert!(
        network.run_until_done(Time::from_ns(15 * MS), |network| !network.host(0).app().responses.is_empty()),
        "the long message still waits at 15 ms"
    );
    assert!(network.host(1).app().responses.len() < 200);
    settle(&mut network, SEC);
}

#[test]
fn packets_carry_the_priorities_of_their_kind() {
    let mut network = network(config(1, 2));
    call(&mut network, 0, 1, 1, 200_000);
    settle(&mut network, SEC);
    for (seen, packet) in sent(&network, PacketType::Grant) {
        assert_eq!(seen.priority, 7, "{packet}");
    }
    for (seen, packet) in sent(&network, PacketType::Data) {
        let unscheduled = data_end(&packet).is_some_and(|end| end <= 40_000);
        assert_eq!(seen.priority > 3, unscheduled, "{packet} at priority {}", seen.priority);
    }
}

#[test]
fn senders_that_fell_silent_do_not_hold_up_the_grants_of_others() {
    let mut config = config(1, 12);
    config.check_every = 10;
    config.protocol.grant_fifo_fraction = 0;
    let mut network = network(config);
    // Starts as many messages as may have grants at a time, and then blocks their senders. These messages are
    // shorter than the later one.
    for from in 1..9 {
        call(&mut network, from, 0, from as u64, 200_000);
    }
    network.run_for(20 * US);
    for from in 1..9 {
        network.set_blocked(from, 0, true);
    }
    network.run_for(MS);
    call(&mut network, 9, 0, 9, 500_000);
    let answered =
        network.run_until_done(Time::from_ns(20 * MS), |network| !network.host(9).app().responses.is_empty());
    assert!(answered, "a message of a living host waits for 20 ms");
    for from in 1..9 {
        network.set_blocked(from, 0, false);
    }
    settle(&mut network, 10 * SEC);
}
