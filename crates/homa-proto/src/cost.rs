//! Tests of the cost of a packet. Everything that waits is in a list, so the tests count steps through lists.
//! If a packet visited all messages, peers or timers, it would take thousands of steps.

use std::net::SocketAddr;

use homa_trace::Trace;

use crate::contract::{CallOptions, Reassembly, RpcKey, RxPacket};
use crate::lists::steps;
use crate::wire::{Body, Common, Data, Incarnation, encode};
use crate::{Config, Endpoint, Time};

const PORT: u16 = 99;
/// More steps than any of the operations takes, and far fewer than the number of RPCs.
const FEW: u64 = 60;

struct NullReassembly;

impl Reassembly for NullReassembly {
    fn write(&mut self, _: RpcKey, _: u32, _: u32, _: u32, _: &[u8]) {}
}

fn endpoint() -> Endpoint {
    let config = Config { unsched_bytes: 2_000, max_incoming_bytes: 1 << 40, ..Config::default() };
    let mut endpoint = Endpoint::new(config, Trace::off()).unwrap();
    endpoint.bind(PORT).unwrap();
    endpoint.open_client_port().unwrap();
    endpoint
}

fn addr(n: u32) -> SocketAddr {
    SocketAddr::from(([10, 1, (n >> 8) as u8, n as u8], 14_600))
}

/// Receives bytes of a request of client `n`.
fn receive_request_part(endpoint: &mut Endpoint, n: u32, id: u64, length: u32, offset: u32) {
    let common = Common {
        source_port: 40_000,
        dest_port: PORT,
        sender_id: id,
        incarnation: Incarnation::NONE,
        bundle_endpoints: 0,
    };
    let data = Data {
        message_length: length,
        incoming: length.min(2_000),
        ack: None,
        cutoff_version: 1,
        retransmit: false,
        offset,
        response_limit: None,
    };
    let header = encode(&common, &Body::Data(data));
    let packet = RxPacket { from: addr(n), bytes: &header, wire_len: header.len() + 500, priority: None };
    endpoint.handle_packets(Time::from_ns(1), [packet], &mut NullReassembly);
}

/// Returns the maximum number of steps of any of the calls.
fn costliest(calls: u32, mut call: impl FnMut(u32)) -> u64 {
    let cost = |n| {
        let before = steps();
        call(n);
        steps() - before
    };
    (0..calls).map(cost).max().unwrap_or(0)
}

/// SEND-11.
#[test]
fn the_choice_of_a_packet_costs_the_same_with_many_messages() {
    let cost = |messages: u32| {
        let mut endpoint = endpoint();
        let now = Time::from_ns(1);
        for n in 0..messages {
            let length = 500 + n * 7_919 % 1_400;
            let options = CallOptions::default();
            endpoint.send_request(now, 32_768, addr(n % 50), PORT, length, options).unwrap();
        }
        costliest(messages / 2, |_| {
            endpoint.poll_transmit(now).unwrap();
        })
    };
    let (few, many) = (cost(20), cost(20_000));
    assert!(few > 0 && many <= few.max(FEW), "{few} steps with 20 messages, {many} with 20,000");
}

/// GRANT-12, RECV-9.
#[test]
fn a_packet_that_arrives_costs_the_same_with_many_rpcs() {
    let cost = |peers: u32, each: u64| {
        let mut endpoint = endpoint();
        let length = |n: u32| 300_000 + n * 7_919 % 500_000;
        for n in 0..peers {
            (0..each).for_each(|id| receive_request_part(&mut endpoint, n, 2 + 2 * id, length(n), 0));
        }
        assert_eq!(endpoint.open_rpcs() as u64, u64::from(peers) * each);
        let arrives = costliest(3 * peers, |n| {
            receive_request_part(&mut endpoint, n % peers, 2, length(n % peers), 500 + 500 * (n / peers))
        });
        let begins = costliest(peers, |n| receive_request_part(&mut endpoint, n, 10_000, 400, 0));
        arrives.max(begins)
    };
    let few = cost(10, 1);
    for (peers, each) in [(2_000, 1), (10, 500)] {
        let many = cost(peers, each);
        assert!(few > 0 && many <= few.max(FEW), "{few} steps with 10 RPCs, {many} with {peers} x {each}");
    }
}

/// Returns the number of drive calls until a port with one RPC is closed. Before that, `peak` RPCs of another
/// port were open, and `open` of them still are.
fn rounds_to_close_a_port(peak: u32, open: u32) -> u32 {
    let mut endpoint = endpoint();
    let now = Time::from_ns(1);
    let options = CallOptions::default();
    let rpcs: Vec<_> = (0..peak)
        .map(|n| endpoint.send_request(now, 32_768, addr(n % 50), PORT, 100, options).unwrap())
        .collect();
    rpcs.into_iter().skip(open as usize).for_each(|rpc| endpoint.abort(now, rpc));
    let port = endpoint.open_client_port().unwrap();
    endpoint.send_request(now, port, addr(0), PORT, 100, options).unwrap();
    endpoint.close_port(now, port);
    let mut rounds = 0;
    while endpoint.is_port_closing(port) {
        endpoint.handle_timeout(now);
        rounds += 1;
    }
    rounds
}

/// ABORT-8. Closing a port used to scan the table of RPCs, which never shrank. After a peak of a million
/// RPCs, only 32 client ports per second could be closed for the rest of the host's life.
#[test]
fn closing_a_port_costs_as_much_as_it_has_rpcs_and_no_more_after_a_peak() {
    assert_eq!(rounds_to_close_a_port(20_000, 0), 1, "after a peak");
    assert_eq!(rounds_to_close_a_port(20_000, 20_000), 1, "while another port has many");
}
