//! Properties of every transport, and the known strengths and weaknesses of each.

use std::ops::ControlFlow;

use homa_proto::MS;
use homa_sim::{
    BasicConfig, ClusterConfig, ClusterReport, Connections, Exchange, LoadBasis, PfabricConfig, SenderOrder,
    TcpConfig, Topology, Traffic, TransportConfig,
};
use homa_workload::Workload;

/// Returns a cluster of two racks of four hosts, with two spines.
fn cluster(workload: Workload, load: f64) -> ClusterConfig {
    let mut cluster = ClusterConfig::sigcomm18(workload, load, 7);
    cluster.hosts = 8;
    if let Topology::LeafSpine(net) = &mut cluster.topology {
        (net.hosts_per_rack, net.spines) = (4, 2);
    }
    (cluster.warm_up_ns, cluster.duration_ns) = (MS / 5, 2 * MS);
    cluster
}

fn w3() -> Workload {
    Workload::named("w3").unwrap().truncated(200_000).unwrap()
}

fn run_with(transport: &TransportConfig, cluster: &ClusterConfig) -> ClusterReport {
    let report = transport.run(cluster.clone(), &mut |_| ControlFlow::Continue(()));
    assert_eq!(report.transport, transport.name());
    report
}

fn run(name: &str, cluster: &ClusterConfig) -> ClusterReport {
    run_with(&TransportConfig::named(name, cluster).unwrap(), cluster)
}

fn assert_all_delivered(report: &ClusterReport) {
    let name = &report.transport;
    assert!(report.started > 0, "{name}");
    assert_eq!((report.delivered, report.unfinished), (report.started, 0), "{name}: {report:?}");
}

#[test]
fn every_message_arrives_and_the_same_seed_gives_the_same_report() {
    let cluster = cluster(w3(), 0.5);
    for name in TransportConfig::NAMES {
        let report = run(name, &cluster);
        assert_all_delivered(&report);
        assert!(report.started > 1_000, "{}", report.started);
        assert_eq!(report, run(name, &cluster), "{name}");
        let other = ClusterConfig { seed: 8, ..cluster.clone() };
        assert_ne!(report.slowdown_mean, run(name, &other).slowdown_mean, "{name}");
    }
}

/// A stopped run returns a report, and the frequency of progress reports does not influence the run.
#[test]
fn a_run_that_is_broken_off_says_what_came_of_it() {
    let cluster = cluster(w3(), 0.5);
    for name in TransportConfig::NAMES {
        let transport = TransportConfig::named(name, &cluster).unwrap();
        let report = transport.run(cluster.clone(), &mut |progress| match progress.share < 0.5 {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        });
        assert!(report.delivered > 100 && report.delivered < run(name, &cluster).delivered, "{name}");
    }
}

#[test]
fn every_message_arrives_though_packets_are_lost() {
    let cluster = ClusterConfig { loss: 0.01, ..cluster(w3(), 0.5) };
    for name in TransportConfig::NAMES {
        let report = run(name, &cluster);
        assert_all_delivered(&report);
        assert_eq!(report.lost > 0, *name != "oracle", "{name}");
    }
}

#[test]
fn an_incast_ends() {
    for name in TransportConfig::NAMES {
        let mut cluster = cluster(Workload::fixed(20_000).unwrap(), 0.5);
        // New connections begin with 10 packets each, regardless of losses in earlier rounds, so TCP's rounds
        // of 5 ms would overlap.
        let interval_ns = if matches!(*name, "tcp" | "dctcp") { 500 * MS } else { 5 * MS };
        cluster.traffic = Traffic::Incast { senders: 50, interval_ns };
        cluster.warm_up_ns = 0;
        cluster.link.queue_bytes = 100_000;
        let report = run(name, &cluster);
        assert_eq!(report.started, 50, "{name}");
        assert_all_delivered(&report);
    }
}

/// Returns a cluster with messages of one length in an otherwise empty network.
fn lone(length: u32) -> ClusterConfig {
    let mut cluster = cluster(Workload::fixed(length).unwrap(), 0.5);
    cluster.traffic = Traffic::Incast { senders: 1, interval_ns: 5 * MS };
    cluster.warm_up_ns = MS;
    cluster.duration_ns = 10 * MS;
    cluster
}

/// Returns the mean slowdown of messages of this length in an otherwise empty network.
fn lone_slowdown(name: &str, length: u32) -> f64 {
    let report = run(name, &lone(length));
    assert_all_delivered(&report);
    report.slowdown_mean
}

#[test]
fn a_message_alone_takes_the_least_time() {
    for name in TransportConfig::NAMES {
        for length in [1, 100, 1_424, 5_000, 10_000, 100_000, 1_000_000] {
            // A window that starts at 10 packets must grow first.
            if matches!(*name, "tcp" | "dctcp") && length > 10_000 {
                continue;
            }
            let slowdown = lone_slowdown(name, length);
            assert!((0.98..1.02).contains(&slowdown), "{name}, {length} bytes: {slowdown}");
        }
    }
}

/// Returns the highest P99 slowdown of the bins that end at or below `max_bytes`.
fn worst_p99_up_to(report: &ClusterReport, max_bytes: u32) -> f64 {
    let short = report.bins.iter().filter(|bin| bin.max_bytes <= max_bytes);
    short.map(|bin| bin.slowdown_p99).fold(0.0, f64::max)
}

/// Returns the mean slowdown of the messages in bins that end at or below `max_bytes`.
fn mean_up_to(report: &ClusterReport, max_bytes: u32) -> f64 {
    let short: Vec<_> = report.bins.iter().filter(|bin| bin.max_bytes <= max_bytes).collect();
    let sum: f64 = short.iter().map(|bin| bin.slowdown_mean * bin.count as f64).sum();
    sum / short.iter().map(|bin| bin.count as f64).sum::<f64>()
}

#[test]
fn pfabric_drops_packets_of_long_messages_and_short_ones_do_not_wait() {
    let mut cluster = cluster(Workload::named("w4").unwrap(), 0.8);
    cluster.duration_ns = 8 * MS;
    let report = run("pfabric", &cluster);
    assert_all_delivered(&report);
    assert!(report.dropped > 100, "{}", report.dropped);
    let port_bytes = PfabricConfig::for_cluster(&cluster).port_bytes;
    assert!(report.edge_queue.max_bytes <= port_bytes, "{:?}", report.edge_queue);
    assert!(worst_p99_up_to(&report, 1_000) < 2.5, "{:?}", report.bins);
}

#[test]
fn the_oracle_is_ahead_of_every_transport() {
    for (workload, load) in [(w3(), 0.5), (w3(), 0.8), (Workload::named("w2").unwrap(), 0.8)] {
        let cluster = cluster(workload, load);
        let oracle = run("oracle", &cluster);
        for name in TransportConfig::NAMES {
            let report = run(name, &cluster);
            assert!(
                oracle.slowdown_mean <= report.slowdown_mean,
                "{name} at {load}: {}",
                report.slowdown_mean
            );
        }
        let downlinks = TransportConfig::Oracle(homa_sim::OracleConfig { uplinks: false });
        let bound = run_with(&downlinks, &cluster);
        assert!(bound.slowdown_mean < oracle.slowdown_mean, "{}", bound.slowdown_mean);
    }
}

/// A message that arrived less than one packet time earlier does not delay the oracle. It would delay any
/// transport, at the card.
#[test]
fn short_messages_of_the_oracle_wait_for_nothing() {
    let mut cluster = cluster(Workload::named("w4").unwrap(), 0.8);
    cluster.duration_ns = 8 * MS;
    let short = run("oracle", &cluster).short_half.unwrap();
    assert!(short.slowdown_p50 < 1.001 && short.slowdown_p99 < 1.1, "{short:?}");
}

/// If long messages arrive at a host at the same time, its queue holds one round trip of data of each, and
/// nothing overtakes them.
#[test]
fn basic_queues_more_than_homa_and_fifo_keeps_short_messages_behind_long_ones() {
    let mut cluster = cluster(Workload::named("w4").unwrap(), 0.8);
    cluster.duration_ns = 8 * MS;
    let basic = run("basic", &cluster);
    let homa = run("homa", &cluster);
    let p99 = |report: &ClusterReport| worst_p99_up_to(report, 1_000);
    assert!(p99(&basic) > 2.0 * p99(&homa), "{} {}", p99(&basic), p99(&homa));
    let order = SenderOrder::Fifo;
    let fifo = TransportConfig::Basic(BasicConfig { order, ..BasicConfig::for_cluster(&cluster) });
    let fifo = run_with(&fifo, &cluster);
    assert!(p99(&fifo) > 5.0 * p99(&basic), "{} {}", p99(&fifo), p99(&basic));
    assert_eq!(basic.bytes_by_priority[1..], [0; 7]);
}

/// A message waits for all earlier messages between the same two hosts. With more connections it waits for
/// fewer of them.
#[test]
fn short_messages_of_tcp_wait_behind_long_ones_of_their_connection() {
    let mut cluster = cluster(Workload::named("w4").unwrap(), 0.5);
    cluster.duration_ns = 8 * MS;
    let mean = |connections| {
        let connections = Connections::PerPair(connections);
        let tcp = TcpConfig { connections, ..TcpConfig::for_cluster(&cluster) };
        let report = run_with(&TransportConfig::Tcp(tcp), &cluster);
        assert_all_delivered(&report);
        mean_up_to(&report, 1_000)
    };
    let (one, many) = (mean(1), mean(16));
    assert!(one > 3.0 * many, "{one} {many}");
    assert!(one > 20.0 * mean_up_to(&run("homa", &cluster), 1_000), "{one}");
}

/// No message waits behind another message between the same two hosts: only congestion remains.
#[test]
fn a_connection_for_each_message_ends_with_it() {
    let mut cluster = ClusterConfig { loss: 0.001, ..cluster(Workload::named("w4").unwrap(), 0.5) };
    cluster.duration_ns = 8 * MS;
    for name in ["tcp", "dctcp"] {
        let report = run(name, &cluster);
        assert_all_delivered(&report);
        assert_eq!(report, run(name, &cluster), "{name}");
        assert!(report.transport_counts["connections"] >= report.started, "{:?}", report.transport_counts);
        assert!(report.transport_counts["retransmits"] > 0, "{:?}", report.transport_counts);
        let lasting = TcpConfig { connections: Connections::PerPair(1), ..TcpConfig::for_cluster(&cluster) };
        let lasting = run_with(&TransportConfig::Tcp(lasting), &cluster);
        let (own, shared) = (mean_up_to(&report, 1_000), mean_up_to(&lasting, 1_000));
        assert!(3.0 * own < shared, "{name}: {own} {shared}");
    }
}

/// A load that counts grants has proportionally fewer messages.
#[test]
fn a_load_that_counts_grants_has_fewer_messages() {
    let data = cluster(Workload::named("w4").unwrap(), 0.8);
    let grants = ClusterConfig { load_basis: LoadBasis::DataAndGrants, ..data.clone() };
    let ratio = grants.starts_per_sec().unwrap() / data.starts_per_sec().unwrap();
    assert!((0.94..0.95).contains(&ratio), "{ratio}");
    let homa = TransportConfig::named("homa", &data).unwrap();
    let (of_data, of_grants) = (homa.link_share(&data, 0.8), homa.link_share(&grants, 0.8));
    assert!((of_data - 0.847).abs() < 0.005 && (of_grants - 0.8).abs() < 0.005, "{of_data} {of_grants}");
}

#[test]
fn queues_of_dctcp_are_shorter_than_those_of_tcp() {
    let mut cluster = cluster(Workload::named("w5").unwrap(), 0.6);
    cluster.duration_ns = 20 * MS;
    let (tcp, dctcp) = (run("tcp", &cluster), run("dctcp", &cluster));
    assert_all_delivered(&tcp);
    assert_all_delivered(&dctcp);
    assert!(tcp.dropped > 0 && dctcp.dropped < tcp.dropped, "{} {}", tcp.dropped, dctcp.dropped);
    let mean = |report: &ClusterReport| report.edge_queue.mean_bytes;
    assert!(mean(&dctcp) < 0.7 * mean(&tcp), "{} {}", mean(&dctcp), mean(&tcp));
    assert!(dctcp.slowdown_mean < tcp.slowdown_mean);
}

/// A loss in the middle of a long message costs a round trip, not a timeout.
#[test]
fn tcp_sends_again_what_three_later_packets_passed() {
    let mut cluster = cluster(Workload::fixed(500_000).unwrap(), 0.1);
    (cluster.loss, cluster.duration_ns) = (0.002, 20 * MS);
    let report = run("tcp", &cluster);
    assert_all_delivered(&report);
    let count = |name: &str| report.transport_counts[name];
    assert!(count("recoveries") > 5 * count("timeouts"), "{:?}", report.transport_counts);
    assert!(count("retransmits") <= report.lost + report.dropped, "{report:?}");
}

#[test]
fn an_rpc_alone_takes_twice_the_least_time_of_a_message() {
    for name in TransportConfig::NAMES {
        for length in [1, 1_424, 5_000] {
            let mut cluster = ClusterConfig { exchange: Exchange::Echo, ..lone(length) };
            let report = run(name, &cluster);
            assert_all_delivered(&report);
            let slowdown = report.slowdown_mean;
            assert!((0.98..1.02).contains(&slowdown), "{name}, {length} bytes: {slowdown}");
            let rtt_us = report.bins[0].rtt_p50_us;
            cluster.exchange = Exchange::OneWay;
            let one_way_us = run(name, &cluster).bins[0].rtt_p50_us;
            assert!((1.9..2.1).contains(&(rtt_us / one_way_us)), "{name}: {rtt_us} and {one_way_us} us");
        }
    }
}

#[test]
fn every_rpc_ends_and_the_load_counts_both_of_its_messages() {
    let one_way = cluster(w3(), 0.5);
    let echo = ClusterConfig { exchange: Exchange::Echo, ..one_way.clone() };
    for name in TransportConfig::NAMES {
        let (report, messages) = (run(name, &echo), run(name, &one_way));
        assert_all_delivered(&report);
        assert_eq!(report, run(name, &echo), "{name}");
        let share = report.started as f64 / messages.started as f64;
        assert!((0.45..0.55).contains(&share), "{name}: {share}");
        assert!((report.goodput / messages.goodput - 1.0).abs() < 0.2, "{name}: {}", report.goodput);
    }
}

/// The complete protocol: responses are acknowledged, and at the end the server has no RPC state.
#[test]
fn homas_rpcs_are_acknowledged() {
    let cluster = ClusterConfig { exchange: Exchange::Echo, loss: 0.001, ..cluster(w3(), 0.5) };
    let report = run("homa", &cluster);
    assert_all_delivered(&report);
    let count = |name: &str| report.transport_counts[name];
    assert!(count("acks_received") > 0 && count("need_acks_sent") > 0, "{:?}", report.transport_counts);
    assert_eq!((count("failed"), count("refused")), (0, 0));
}
