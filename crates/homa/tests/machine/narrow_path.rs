//! Tests of paths that become narrower while hosts use them, in two network namespaces joined by a veth.

use std::net::{IpAddr, SocketAddr};

use super::common::{Echo, PATIENCE, message};
use homa::{DriverChoice, Host, HostBuilder};
use homa_testkit::namespace::{V4, V6, pair};

/// An interval that is longer than a thread on a busy machine waits for a processor.
const RESEND_INTERVAL_NS: u64 = 250_000_000;

fn config(driver: DriverChoice, ip: &str) -> HostBuilder {
    let bind = SocketAddr::new(ip.parse::<IpAddr>().unwrap(), 0);
    // Use a different directory from the other hosts of this machine.
    let segment_dir = env!("CARGO_TARGET_TMPDIR").into();
    let mut config = Host::builder().driver(driver).address(bind).segment_dir(segment_dir);
    // A peer that waits for a processor must not look like a path that drops long packets (SEND-16).
    config = config.configure(|config| config.protocol.resend_interval_ns = RESEND_INTERVAL_NS);
    config = config.configure(|config| config.protocol.resend_interval_max_ns = RESEND_INTERVAL_NS);
    config
}

/// SEND-15: hosts used to send packets of the old length forever, and both sides' RESENDs kept the RPC alive.
#[test]
fn a_message_goes_on_over_a_path_that_has_become_narrower() {
    for driver in [DriverChoice::Udp, DriverChoice::Raw, DriverChoice::LinuxUdp] {
        for ips in [V4, V6] {
            let Some(namespaces) = pair(9_000) else { return };
            let echo = namespaces[1].run(move || Echo::with(config(driver, ips[1]), 1));
            let to = echo.to;
            let host = namespaces[0].run(move || config(driver, ips[0]).bind().unwrap());
            for (tag, mtu) in [9_000, 1_500, 1_300].into_iter().enumerate() {
                for (end, namespace) in namespaces.iter().enumerate() {
                    namespace.ip(&format!("link set v{end} mtu {mtu}")).unwrap();
                }
                let request = message(100_000, tag as u64);
                let (client, bytes) = (host.client().unwrap(), request.clone());
                // Run this in the namespace, whose routes the driver queries.
                let answer = namespaces[0].run(move || client.call(to, bytes).timeout(PATIENCE).wait());
                assert!(answer.as_ref() == Ok(&request), "{driver:?} {ips:?}, MTU {mtu}: {:?}", answer.err());
            }
            // The driver has reported the path's new maximum packet size. Otherwise the host would lose long
            // packets until it tries shorter ones (SEND-16).
            assert_eq!(host.metrics().endpoint.paths_narrowed, 0, "{driver:?} {ips:?}");
            assert_eq!(echo.metrics().endpoint.paths_narrowed, 0, "{driver:?} {ips:?}");
        }
    }
}
