//! Regression tests for defects that the swarm found.

use super::common::{self, Answer, PORT, Peer, call, config, network, settle};
use homa_proto::wire::{self, Body, Common, Incarnation, PacketType, UnknownReason};
use homa_proto::{CallOptions, Config, MS, RpcError, SEC, SendError, US};
use homa_sim::{Network, NetworkConfig, Reply};

#[test]
fn a_call_to_a_restarted_server_survives_that_its_cutoffs_answer_first() {
    // PEER-6: only a host that has the request sends CUTOFFS for it.
    let mut config = config(1, 2);
    config.protocol.cutoff_interval_ns = MS;
    config.protocol.cutoff_min_bytes = 0;
    let mut network =
        Network::new(config, |_| Peer::new(Answer::Fixed(Reply::After { delay_ns: 10 * MS, length: 100 })));
    for cookie in 0..5 {
        call(&mut network, 0, 1, cookie, 5_000 << cookie);
        network.run_for(20 * MS);
    }
    assert!(network.host(1).endpoint().unwrap().cutoffs().1 > 1, "the client has cutoffs of a later version");
    network.crash(1);
    network.restart(1);
    call(&mut network, 0, 1, 10, 5_000);
    settle(&mut network, 60 * SEC);
    assert_eq!(network.host(0).app().cookies(), [0, 1, 2, 3, 4, 10]);
}

#[test]
fn a_full_table_of_peers_lets_go_of_those_whose_time_has_passed() {
    // PEER-11, AMO-5: neither the acknowledgement for a crashed server nor expired IDs keep a peer's state
    // forever.
    let mut config = config(1, 3);
    config.protocol.max_peers = 1;
    let mut network = network(config);
    call(&mut network, 0, 1, 0, 100);
    network.run_for(100 * US);
    network.crash(1);
    network.run_for(60 * SEC);
    call(&mut network, 0, 2, 1, 100);
    settle(&mut network, 60 * SEC);
    network.run_for(60 * SEC);
    // The third host has been a server, and remembers this. Now it calls another host.
    network.restart(1);
    call(&mut network, 2, 1, 0, 100);
    settle(&mut network, 60 * SEC);
    assert_eq!(network.host(0).app().cookies(), [0, 1]);
    assert_eq!(network.host(2).app().cookies(), [0]);
}

#[test]
fn a_budget_below_the_least_increment_is_still_granted() {
    // GRANT-8
    let mut config = config(1, 2);
    config.protocol = Config {
        window: 50_000,
        max_incoming: 8_000,
        min_grant_increment: 10_000,
        unsched_bytes: 1_000,
        ..config.protocol
    };
    let mut network = network(config);
    call(&mut network, 0, 1, 0, 100_000);
    network.run_for(100 * MS);
    assert_eq!(network.host(0).app().cookies(), [0]);
    settle(&mut network, 60 * SEC);
}

#[test]
fn what_a_silent_sender_owes_counts_with_its_next_grant() {
    // GRANT-5: after each step, the invariant checker compares the granted but not yet received bytes with
    // the budget.
    let mut config = config(1, 3);
    let protocol = Config { window: 50_000, max_incoming: 20_000, unsched_bytes: 1_000, ..config.protocol };
    config.protocol = Config { grant_fifo_fraction: 0, min_grant_increment: 1, ..protocol };
    let mut network = network(config);
    call(&mut network, 0, 2, 0, 300_000);
    network.run_for(30 * US);
    network.set_blocked(0, 2, true);
    for cookie in 0..40 {
        network.run_for(MS);
        call(&mut network, 1, 2, cookie, 3_000);
    }
    network.set_blocked(0, 2, false);
    network.run_for(200 * MS);
    assert_eq!(network.host(0).app().cookies(), [0]);
    settle(&mut network, 60 * SEC);
}

#[test]
fn a_response_above_the_kernels_limit_is_refused_for_a_kernel() {
    // SEND-13
    let mut config = config(1, 2);
    config.protocol.max_message = 4_000_000;
    let kernel = Config { incarnation: 0, ..config.protocol.clone() };
    config.host_protocols = vec![kernel, config.protocol.clone()];
    let mut network = Network::new(config, |_| Peer::new(Answer::Fixed(Reply::Never)));
    call(&mut network, 0, 1, 0, 100);
    network.run_for(MS);
    let rpc = network.host(1).app().requests[0].1;
    let too_large = network.act(1, |_, host| host.reply(rpc, 1_000_001)).unwrap();
    assert_eq!(too_large, Err(SendError::MessageTooLarge { length: 1_000_001, limit: 1_000_000 }));
    assert_eq!(network.act(1, |_, host| host.reply(rpc, 1_000_000)).unwrap(), Ok(()));
    network.run_for(100 * MS);
    assert_eq!(network.host(0).app().cookies(), [0]);
}

#[test]
fn a_server_that_cannot_tell_a_reason_is_not_sent_the_request_without_end() {
    // RESEND-19: over an unbound port of a host without an incarnation, client and server must not exchange
    // packets endlessly.
    let mut config = config(1, 2);
    let kernel = Config { incarnation: 0, ..config.protocol.clone() };
    config.host_protocols = vec![config.protocol.clone(), kernel];
    let mut network = network(config);
    let options = CallOptions::default();
    network.act(0, |_, host| host.call(1, PORT + 1, 100, options)).unwrap().unwrap();
    network.run_for(5 * SEC);
    let ended: Vec<RpcError> = network.host(0).app().failed.iter().map(|failed| failed.2).collect();
    assert_eq!(ended, [RpcError::Timeout]);
    assert!(network.stats().sent <= 4 * 12, "{} packets", network.stats().sent);
}

#[test]
fn rpc_unknown_that_nobody_asked_for_does_not_have_the_request_sent_again() {
    // RESEND-14
    let mut network =
        Network::new(NetworkConfig { check_every: 1, capture: true, ..NetworkConfig::new(1, 2) }, |_| {
            Peer::new(Answer::Fixed(Reply::Never))
        });
    let rpc = call(&mut network, 0, 1, 0, 5_000);
    network.run_for(US);
    let id = network.host(0).endpoint().unwrap().rpc_id(rpc).unwrap();
    for _ in 0..100 {
        let common = Common {
            source_port: PORT,
            dest_port: 32_768,
            sender_id: id | 1,
            incarnation: Incarnation::NONE,
            bundle_endpoints: 0,
        };
        let packet = wire::encode(&common, &Body::RpcUnknown(UnknownReason::Unknown));
        network.inject(1, 0, 7, packet.as_slice().to_vec());
        network.run_for(10 * US);
    }
    assert_eq!(common::sent(&network, PacketType::Data).len(), 4, "the request, once");
}
