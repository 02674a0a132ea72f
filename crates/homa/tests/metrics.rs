//! Tests of what a host reports about its peers: measurements, and the values derived from them.

use std::time::Instant;

use super::common::{self, Echo, PATIENCE, config, message, until_idle};
use homa::metrics::PeerInfo;
use homa::{Client, Host, HostBuilder};

/// Far more than is sent unscheduled, so that every message needs a grant.
const LONG: usize = 200_000;

/// Maximum number of calls. A call with a resent packet yields no measurement, but that does not happen this
/// many times in a row.
const MAX_CALLS: u64 = 50;

/// Returns a configuration for a link whose speed is `link_mbps`. The number of unscheduled bytes that
/// applies before any measurement is a value that no measurement could yield.
fn on_link(link_mbps: Option<u32>) -> HostBuilder {
    let mut config = config();
    config = config.configure(|config| config.protocol.link_mbps = link_mbps);
    config =
        config.configure(|config| config.protocol.unsched_bytes = config.protocol.max_unsched_bytes + 20_000);
    config
}

/// Makes calls until what `host` knows about its only peer satisfies `holds`.
fn call_until(host: &Host, echo: &Echo, holds: impl Fn(&PeerInfo) -> bool) -> PeerInfo {
    let client = host.client().unwrap();
    for tag in 0..MAX_CALLS {
        let request = message(LONG, tag);
        assert!(client.call(echo.to, request.clone()).timeout(PATIENCE).wait().unwrap() == request);
        let peers = host.peers();
        assert_eq!((peers.len(), peers[0].addr), (1, echo.to.host));
        if holds(&peers[0]) {
            return peers[0];
        }
    }
    panic!("never came true in {MAX_CALLS} calls: {:?}", host.peers());
}

#[test]
fn unscheduled_bytes_follow_the_round_trip_time_where_the_link_is_known() {
    let config = on_link(Some(10_000));
    let echo = Echo::with(config.clone(), 1);
    let host = config.clone().bind().unwrap();
    assert!(host.peers().is_empty());
    let peer = call_until(&host, &echo, |peer| peer.rtt_ns.is_some());
    assert!(peer.rtt_ns.unwrap() > 0);
    let protocol = &config.options().protocol;
    let allowed = protocol.min_unsched_bytes..=protocol.max_unsched_bytes;
    assert!(allowed.contains(&peer.unsched_bytes), "{peer:?}");
    assert!(peer.is_ours && peer.max_packet > 0, "{peer:?}");
    let metrics = host.metrics();
    assert!(metrics.endpoint.rtt_samples > 0);
    assert_eq!((metrics.host.known_peers, metrics.host.link_mbps), (1, 10_000));
    until_idle(&host);
    assert_eq!(host.peers()[0].rpcs, 0);
}

#[test]
fn the_round_trip_time_is_measured_and_chooses_nothing_where_the_link_is_unknown() {
    // The loopback device reports no speed.
    let config = on_link(None);
    let echo = Echo::with(config.clone(), 1);
    let host = config.clone().bind().unwrap();
    let peer = call_until(&host, &echo, |peer| peer.rtt_ns.is_some());
    assert_eq!((peer.unsched_bytes, peer.unsched_limit), (config.options().protocol.unsched_bytes, None));
    let metrics = host.metrics();
    assert_eq!((metrics.host.link_mbps, metrics.host.unsched_limit_bytes), (0, 0));
}

#[test]
fn the_limit_of_a_crowded_server_shows_at_both_ends() {
    // The link is slow enough to be overloaded by simultaneous requests of three peers. Requests of a single
    // peer do not overload it (SHARE-8).
    let mut crowded = on_link(Some(1));
    crowded = crowded.configure(|config| config.protocol.max_incoming = 20_000);
    let echo = Echo::with(crowded, 1);
    let hosts: Vec<Host> = (0..3).map(|_| on_link(Some(10_000)).bind().unwrap()).collect();
    let clients: Vec<_> = hosts.iter().map(|host| host.client().unwrap()).collect();
    let told = || u32::try_from(echo.metrics().host.unsched_limit_bytes).unwrap();
    let limited = (0..MAX_CALLS).find_map(|tag| {
        let start = |client: &Client| client.call(echo.to, message(6_000, tag)).start().unwrap();
        let calls: Vec<_> = clients.iter().map(start).collect();
        for call in calls {
            assert!(call.timeout(PATIENCE).wait().unwrap() == message(6_000, tag));
        }
        Some(hosts[0].peers()[0]).filter(|peer| peer.unsched_limit == Some(told()))
    });
    let peer = limited.unwrap_or_else(|| panic!("never told in {MAX_CALLS} rounds: {:?}", hosts[0].peers()));
    assert!((1..=10_000).contains(&told()), "{}", told());
    assert!(peer.unsched_bytes <= told(), "{peer:?}");
    assert!(echo.metrics().endpoint.incast_limit_changes > 0);
}

#[test]
fn peers_are_listed_by_address() {
    let mut echoes: Vec<Echo> = (0..5).map(|_| Echo::new(1)).collect();
    echoes.sort_unstable_by_key(|echo| echo.to.host);
    let host = common::host();
    let client = host.client().unwrap();
    // Call the peers from the highest address to the lowest.
    for echo in echoes.iter().rev() {
        client.call(echo.to, message(8, 0)).timeout(PATIENCE).wait().unwrap();
    }
    let peers = host.peers();
    let expected: Vec<_> = echoes.iter().map(|echo| echo.to.host).collect();
    assert_eq!(peers.iter().map(|peer| peer.addr).collect::<Vec<_>>(), expected);
    assert!(peers.iter().all(|peer| peer.rtt_ns.is_none()), "nothing long was sent");
}

#[test]
fn processors_are_kept_awake_while_rpcs_are_in_flight_and_no_longer() {
    if std::fs::OpenOptions::new().write(true).open("/dev/cpu_dma_latency").is_err() {
        homa_testkit::skip("/dev/cpu_dma_latency cannot be opened here");
        return;
    }
    let echo = Echo::new(1);
    let host = config().low_latency(true).bind().unwrap();
    let client = host.client().unwrap();
    let held = || host.metrics().host.low_latency_held == 1;
    for _ in 0..2 {
        let start = Instant::now();
        while !held() {
            client.call(echo.to, "x").wait().unwrap();
            assert!(start.elapsed() < PATIENCE, "never held");
        }
        let start = Instant::now();
        while held() {
            assert!(start.elapsed() < PATIENCE, "never given up");
            std::thread::yield_now();
        }
    }
    assert_eq!(echo.metrics().host.low_latency_held, 0, "the server's host does not ask for it");
}

#[test]
fn calls_and_answers_have_a_time_in_the_class_of_their_size() {
    let (echo, host) = (Echo::with(config(), 1), config().bind().unwrap());
    let client = host.client().unwrap();
    for (tag, bytes) in [100, 5_000, 100, LONG].into_iter().enumerate() {
        let request = message(bytes, tag as u64);
        assert!(client.call(echo.to, request.clone()).timeout(PATIENCE).wait().unwrap() == request);
    }
    let nobody = homa::ServerAddr { port: echo.to.port + 1, ..echo.to };
    assert!(client.call(nobody, &b"?"[..]).timeout(PATIENCE).wait().is_err());
    let metrics = host.metrics();
    let counts: Vec<u64> = metrics.call_times.classes().map(|(_, times)| times.count()).collect();
    assert_eq!(counts, [2, 1, 0, 1, 0]);
    let (_, short) = metrics.call_times.classes().next().unwrap();
    assert!(short.sum() <= host.uptime() && short.quantile(1.0).is_some());
    // The server has recorded answer times, but no call times.
    let served = echo.metrics();
    let counts = |times: &homa::metrics::TimesBySize| {
        times.classes().map(|(_, times)| times.count()).collect::<Vec<_>>()
    };
    assert_eq!((counts(&served.answer_times), counts(&served.call_times)), (vec![2, 1, 0, 1, 0], vec![0; 5]));
    assert_eq!(counts(&metrics.answer_times), [0; 5]);
    for ((_, call), (_, answer)) in metrics.call_times.classes().zip(served.answer_times.classes()) {
        assert!(answer.sum() <= call.sum(), "a server's part is within the call: {answer:?} {call:?}");
    }
    let text = host.prometheus_text();
    let count = format!("homa_call_seconds_count{{host=\"{}\",bytes=\"0-1000\"}} 2\n", host.local_addr());
    assert!(
        text.contains(&count)
            && text.contains("homa_peers_listed")
            && text.contains(&echo.to.host.to_string())
    );
}
