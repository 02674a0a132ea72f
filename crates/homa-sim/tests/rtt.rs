//! Unscheduled bytes follow the round-trip time of the network.

use homa_proto::wire::DATA_HEADER_LEN;
use homa_proto::{Config, PeerInfo, SEC, Time};
use homa_sim::{Load, NetworkConfig, PayloadMode, Simulation, SimulationConfig, Topology, host_address};
use homa_workload::Workload;

/// Returns a client's information about its server after a few messages that need grants, over links with
/// this rate and propagation delay.
fn measured(link_mbps: u32, propagation_ns: u64) -> (PeerInfo, Config) {
    let mut network = NetworkConfig::new(1, 2);
    network.topology = Topology::Switch { delay_ns: 250 };
    network.link.rate_bps = u64::from(link_mbps) * 1_000_000;
    network.link.propagation_ns = propagation_ns;
    network.payload = PayloadMode::LengthOnly;
    network.protocol = Config { incarnation: 1, ..Config::for_link(link_mbps) };
    let config = network.protocol.clone();
    let load =
        Load { rpcs: 20, clients: 0..1, servers: 1..2, ..Load::closed(Workload::fixed(400_000).unwrap(), 1) };
    let mut simulation = Simulation::new(SimulationConfig::new(network, load));
    let report = simulation.run();
    assert_eq!(report.problems(), Vec::<String>::new(), "{report}");
    assert!(simulation.network().now() < Time::from_ns(100 * SEC));
    let endpoint = simulation.network().host(0).endpoint().unwrap();
    let peer = endpoint.peers().find(|peer| peer.addr == host_address(1)).unwrap();
    (peer, config)
}

// RTT-1, RTT-3
#[test]
fn each_link_has_its_own_unscheduled_bytes() {
    for (link_mbps, propagation_ns, least_rtt_ns) in
        [(10_000, 500, 6_000), (25_000, 500, 4_000), (10_000, 5_000, 24_000), (100_000, 500, 3_000)]
    {
        let (peer, config) = measured(link_mbps, propagation_ns);
        let rtt_ns = peer.rtt_ns.expect("a message of 400 KB needs grants");
        // The time of a full packet and its grant, each over two links: two propagation delays each, the
        // switch twice, and two hosts.
        assert!((least_rtt_ns..2 * least_rtt_ns).contains(&rtt_ns), "{link_mbps} Mbit/s: {rtt_ns} ns");
        let packet = u64::from(config.max_packet) - DATA_HEADER_LEN as u64;
        let slack = u64::from(config.rtt_slack_packets) * packet;
        let bridge = u64::from(link_mbps) * rtt_ns / 8_000 + slack;
        let packets = bridge.min(config.max_unsched_bytes.into()) / packet;
        assert_eq!(u64::from(peer.unsched_bytes), packets * packet);
    }
}
