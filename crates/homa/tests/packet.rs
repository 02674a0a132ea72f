//! Hosts on a network device, in two network namespaces joined by a veth.

mod common;
#[path = "../../homa-driver/tests/common/namespace.rs"]
mod namespace;

use std::net::{IpAddr, SocketAddr};

use common::{Echo, PATIENCE, message};
use homa::driver::Carrier;
use homa::driver::packet::PacketConfig;
use homa::driver::xdp::XdpConfig;
use homa::{DriverChoice, Host, HostConfig, HostError};
use namespace::{V4, V6, pair};

fn config(driver: DriverChoice, carrier: Carrier, ip: &str) -> HostConfig {
    let bind = SocketAddr::new(ip.parse::<IpAddr>().unwrap(), 0);
    // Not where the hosts of this machine have theirs.
    let segment_dir = env!("CARGO_TARGET_TMPDIR").into();
    let packet = PacketConfig { carrier, ..PacketConfig::default() };
    let xdp = XdpConfig { carrier, ..XdpConfig::default() };
    HostConfig { driver, bind, packet, xdp, segment_dir, ..HostConfig::default() }
}

#[test]
fn messages_of_all_sizes_go_and_come_back_whatever_the_peer_uses() {
    let Some(namespaces) = pair(1_500) else { return };
    let (udp, ip, packet) = (DriverChoice::Udp, DriverChoice::Raw, DriverChoice::Packet);
    let xdp = DriverChoice::Xdp;
    for (ips, carrier, client, server) in [
        (V4, Carrier::Udp, packet, packet),
        (V6, Carrier::Udp, packet, udp),
        (V4, Carrier::Udp, udp, packet),
        (V6, Carrier::Ip, packet, packet),
        (V4, Carrier::Ip, packet, ip),
        (V4, Carrier::Udp, xdp, xdp),
        (V6, Carrier::Udp, xdp, udp),
        (V4, Carrier::Udp, packet, xdp),
        (V6, Carrier::Ip, xdp, xdp),
        (V4, Carrier::Ip, ip, xdp),
    ] {
        let echo = namespaces[1].run(move || Echo::with(config(server, carrier, ips[1]), 1));
        let to = echo.to;
        let metrics = namespaces[0].run(move || {
            let host = Host::bind(config(client, carrier, ips[0])).unwrap();
            let calls = host.client().unwrap();
            for (tag, length) in [1, 100, 1_416, 1_417, 40_001, 65_536, 1_000_000].into_iter().enumerate() {
                let request = message(length, tag as u64);
                let answer = calls.call_deadline(to, request.clone(), PATIENCE);
                assert!(
                    answer.as_ref() == Ok(&request),
                    "{length} bytes {client:?} {server:?}: {:?}",
                    answer.err()
                );
            }
            host.metrics()
        });
        assert_eq!(metrics.endpoint.responses_delivered, 7);
        assert_eq!((metrics.driver.damaged, metrics.driver.truncated), (0, 0), "{client:?} {server:?}");
    }
}

#[test]
fn what_is_missing_is_the_hosts_error() {
    let error = Host::bind(config(DriverChoice::Packet, Carrier::Udp, "0.0.0.0")).unwrap_err();
    assert!(matches!(error, HostError::Link(_)), "{error:?}");
    assert!(error.to_string().contains("name an interface"), "{error}");
}
