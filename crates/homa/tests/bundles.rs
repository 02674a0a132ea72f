//! Tests of messages of mixed sizes, whose packets share datagrams (PROTOCOL.md WIRE-21 to WIRE-24).

use std::thread;

use super::common::{Echo, PATIENCE, config, host_with_faults, message};
use homa::error::RecvError;
use homa::{Client, Host, HostBuilder, Request, ServerAddr};

/// Returns the length of a message: some are short, some have many packets, and some are received directly
/// into their memory.
fn length(call: u64) -> usize {
    match call % 40 {
        7 => 100_000 + call as usize,
        19 => 3_000,
        rest => 1 + 37 * rest as usize,
    }
}

/// Makes `calls` calls to an echo server, 48 at a time, and checks every byte of the responses.
fn call_all(client: &Client, to: ServerAddr, calls: u64) {
    let (mut batch, mut completions) = (Vec::new(), Vec::new());
    let (mut next, mut open) = (0, 0);
    while next < calls || open > 0 {
        while next < calls && open < 48 {
            batch.push((to, message(length(next), next), next));
            (next, open) = (next + 1, open + 1);
        }
        client.completions().submit_all(&mut batch, |cookie, error| panic!("{cookie}: {error}"));
        assert!(client.completions().recv().timeout(PATIENCE).wait_batch(100, &mut completions).unwrap() > 0);
        for completion in completions.drain(..) {
            let response = completion.result.unwrap();
            assert!(
                response == message(length(completion.cookie), completion.cookie),
                "{}",
                completion.cookie
            );
            open -= 1;
        }
    }
}

fn bundled(host: &Host) -> (u64, u64) {
    let metrics = host.metrics();
    assert_eq!(metrics.endpoint.drop_invalid, 0);
    (metrics.host.bundles_sent, metrics.host.bundled_packets_sent)
}

/// Starts an echo server that answers all waiting requests in one batch.
fn echo_in_batches(host: &Host) -> ServerAddr {
    let server = host.server(98).unwrap();
    thread::spawn(move || {
        let (mut requests, mut replies) = (Vec::new(), Vec::new());
        loop {
            match server.recv().wait_batch(64, &mut requests) {
                Ok(_) => replies.extend(requests.drain(..).map(|mut rpc| {
                    let request = rpc.take_payload();
                    (rpc, request)
                })),
                Err(RecvError::Closed) => return,
                Err(error) => panic!("{error}"),
            }
            Request::reply_all(&mut replies, |error| panic!("{error}"));
        }
    });
    ServerAddr::new(host.local_addr(), 98)
}

fn both_bundle(config: HostBuilder) {
    let (server_host, host) = (config.clone().bind().unwrap(), config.bind().unwrap());
    let to = echo_in_batches(&server_host);
    call_all(&host.client().unwrap(), to, 2_000);
    for (datagrams, packets) in [bundled(&host), bundled(&server_host)] {
        assert!(datagrams > 0 && packets >= 2 * datagrams, "{packets} packets in {datagrams} bundles");
    }
}

#[test]
fn packets_of_mixed_sizes_share_datagrams_within_a_machine() {
    both_bundle(config());
}

#[test]
fn packets_of_mixed_sizes_share_datagrams_of_an_ethernet() {
    let mut config = config();
    config = config.configure(|config| config.udp.max_packet_bytes = 1_472);
    both_bundle(config);
}

#[test]
fn bundles_over_a_bad_network_lose_nothing() {
    let bad_host = |seed| host_with_faults(seed, 0.03, 1_472);
    let seed = 11;
    println!("seed {seed}");
    let (server_host, host) = (bad_host(seed), bad_host(seed + 1));
    let to = echo_in_batches(&server_host);
    call_all(&host.client().unwrap(), to, 1_000);
    assert!(bundled(&host).0 > 0 && bundled(&server_host).0 > 0);
}

#[test]
fn a_lone_call_is_a_datagram_of_its_own() {
    let echo = Echo::new(1);
    let host = config().bind().unwrap();
    let client = host.client().unwrap();
    for tag in 0..10 {
        client.call(echo.to, message(100, tag)).timeout(PATIENCE).wait().unwrap();
    }
    assert_eq!(bundled(&host), (0, 0));
}
