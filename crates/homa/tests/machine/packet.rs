//! Hosts on a network device, in two network namespaces joined by a veth.

use std::net::{IpAddr, SocketAddr};
use std::thread;

use super::common::{Echo, PATIENCE, all_data_sent_has_a_time, message, until_idle};
use homa::driver::Carrier;
use homa::driver::packet::PacketConfig;
use homa::driver::xdp::{XdpConfig, XdpMode};
use homa::error::{CallError, HostError};
use homa::metrics::Metrics;
use homa::trace::EventKind;
use homa::{DriverChoice, Host, HostBuilder, ServerAddr};
use homa_testkit::namespace::{Namespace, V4, V6, pair, pair_with};

fn config(driver: DriverChoice, carrier: Carrier, ip: &str) -> HostBuilder {
    let bind = SocketAddr::new(ip.parse::<IpAddr>().unwrap(), 0);
    // Use a separate directory, since hosts outside this test use the default one.
    let segment_dir = env!("CARGO_TARGET_TMPDIR").into();
    let packet = PacketConfig { carrier, ..PacketConfig::default() };
    let xdp = XdpConfig { carrier, ..XdpConfig::default() };
    Host::builder().driver(driver).address(bind).packet(packet).xdp(xdp).segment_dir(segment_dir)
}

#[test]
fn the_kernel_tells_when_it_gave_each_packet_to_the_device() {
    let Some(namespaces) = pair(1_500) else { return };
    let (udp, ip, packet) = (DriverChoice::Udp, DriverChoice::Raw, DriverChoice::Packet);
    for (ips, carrier, driver) in [
        (V4, Carrier::Udp, udp),
        (V6, Carrier::Udp, udp),
        (V4, Carrier::Ip, ip),
        (V6, Carrier::Ip, ip),
        (V4, Carrier::Udp, packet),
        (V6, Carrier::Ip, packet),
    ] {
        let echo = namespaces[1].run(move || Echo::with(config(driver, carrier, ips[1]), 1));
        let to = echo.to;
        let dump = namespaces[0].run(move || {
            let traced = config(driver, carrier, ips[0]).trace_records(1 << 12).trace_device_times(true);
            let host = traced.bind().unwrap();
            let client = host.client().unwrap();
            // One packet, a few packets in one datagram, and more packets than one system call takes.
            for length in [100, 10_000, 300_000] {
                client.call(to, message(length, 1)).timeout(PATIENCE).wait().unwrap();
            }
            host.trace_dump()
        });
        all_data_sent_has_a_time(&dump);
        let mut received =
            dump.records.iter().filter(|record| record.event() == Some(EventKind::PacketReceived));
        assert!(received.all(|record| record.place.received_priority().is_some()), "{driver:?} {ips:?}");
    }
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
            let host = config(client, carrier, ips[0]).bind().unwrap();
            let calls = host.client().unwrap();
            for (tag, length) in [1, 100, 1_416, 1_417, 40_001, 65_536, 1_000_000].into_iter().enumerate() {
                let request = message(length, tag as u64);
                let answer = calls.call(to, request.clone()).timeout(PATIENCE).wait();
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
    let error = config(DriverChoice::Packet, Carrier::Udp, "0.0.0.0").bind().unwrap_err();
    assert!(matches!(error, HostError::Link(_)), "{error:?}");
    assert!(error.to_string().contains("name an interface"), "{error}");
}

/// Makes calls of these lengths from four clients at a time. Returns the host's metrics.
fn call_at_once(config: HostBuilder, to: ServerAddr, lengths: &[usize]) -> Metrics {
    let host = config.bind().unwrap();
    let clients: Vec<_> = (0..4).map(|_| host.client().unwrap()).collect();
    thread::scope(|scope| {
        for (who, client) in clients.iter().enumerate() {
            scope.spawn(move || {
                for (n, &length) in lengths.iter().enumerate() {
                    let request = message(length, (1_000 * who + n) as u64);
                    let answer = client.call(to, request.clone()).timeout(PATIENCE).wait();
                    assert!(answer.as_ref() == Ok(&request), "{length} bytes: {:?}", answer.err());
                }
            });
        }
    });
    until_idle(&host);
    host.metrics()
}

/// Checks that every RPC is answered, and that no packet of a short RPC arrives at the wrong endpoint.
fn check_endpoints(namespaces: &[Namespace; 2], ours: HostBuilder, theirs: HostBuilder) {
    let what =
        format!("{:?} {:?} {}", ours.options().driver, ours.options().address, ours.options().endpoints);
    for lengths in [&[100; 50][..], &[1, 1_400, 20_000, 3, 300_000, 64, 1_000_000]] {
        let (server, client) = (theirs.clone(), ours.clone());
        let echo = namespaces[1].run(move || Echo::with(server, 3));
        let to = echo.to;
        let client = namespaces[0].run(move || call_at_once(client, to, lengths));
        let server = echo.metrics();
        let calls = 4 * lengths.len() as u64;
        assert_eq!(server.endpoint.requests_delivered, calls, "{what}");
        assert_eq!(
            (client.host.endpoints, server.host.endpoints),
            (ours.options().endpoints as u64, theirs.options().endpoints as u64)
        );
        for metrics in [&client, &server] {
            assert_eq!((metrics.driver.damaged, metrics.host.mail_dropped), (0, 0), "{what}");
            assert_eq!(metrics.host.misdirected_packets, 0, "{what}");
        }
    }
}

#[test]
fn several_endpoints_on_a_device_get_each_its_own_packets() {
    let (packet, xdp) = (DriverChoice::Packet, DriverChoice::Xdp);
    for queues in [1, 2] {
        let Some(namespaces) = pair_with(1_500, queues) else { return };
        for (driver, mode, ips, carrier, endpoints) in [
            (packet, XdpMode::Auto, V4, Carrier::Udp, 2),
            (packet, XdpMode::Auto, V6, Carrier::Udp, 3),
            (packet, XdpMode::Auto, V4, Carrier::Ip, 3),
            (packet, XdpMode::Auto, V6, Carrier::Ip, 2),
            (xdp, XdpMode::Native, V4, Carrier::Udp, 2),
            (xdp, XdpMode::Native, V6, Carrier::Ip, 3),
            (xdp, XdpMode::Generic, V6, Carrier::Udp, 2),
            (xdp, XdpMode::Generic, V4, Carrier::Udp, 3),
        ] {
            let [ours, theirs] = ips.map(|ip| {
                let config = config(driver, carrier, ip);
                config.endpoints(endpoints).configure(|config| config.xdp.mode = mode)
            });
            check_endpoints(&namespaces, ours, theirs);
        }
    }
}

#[test]
fn several_endpoints_over_ip_itself_get_each_their_own_packets() {
    let Some(namespaces) = pair(1_500) else { return };
    for (ips, endpoints) in [(V4, 2), (V6, 3)] {
        let [ours, theirs] = ips.map(|ip| config(DriverChoice::Raw, Carrier::Ip, ip).endpoints(endpoints));
        check_endpoints(&namespaces, ours, theirs);
    }
}

#[test]
fn hosts_of_several_endpoints_share_an_address_over_ip() {
    let Some(namespaces) = pair(1_500) else { return };
    let (raw, packet) = (DriverChoice::Raw, DriverChoice::Packet);
    for (driver, counts) in [(raw, [2, 1]), (raw, [3, 2]), (packet, [2, 3])] {
        let server = move |endpoints, port| {
            let host = config(driver, Carrier::Ip, V4[1]).endpoints(endpoints).bind().unwrap();
            let server = host.server(port).unwrap();
            let serving = thread::spawn(move || {
                while let Ok(mut rpc) = server.recv().wait() {
                    let request = rpc.take_payload();
                    let _ = rpc.reply(request);
                }
            });
            (host, serving)
        };
        let hosts = namespaces[1].run(move || [server(counts[0], 99), server(counts[1], 100)]);
        for port in [99, 100] {
            let to = ServerAddr::new(SocketAddr::new(V4[1].parse::<IpAddr>().unwrap(), 0), port);
            let ours = config(driver, Carrier::Ip, V4[0]).endpoints(2);
            namespaces[0].run(move || call_at_once(ours, to, &[100, 1, 50_000, 1_000, 3]));
        }
        let nobody = ServerAddr::new(SocketAddr::new(V4[1].parse::<IpAddr>().unwrap(), 0), 101);
        let refused = namespaces[0].run(move || {
            let host = config(driver, Carrier::Ip, V4[0]).endpoints(2).bind().unwrap();
            [(); 4].map(|()| {
                host.client().unwrap().call(nobody, message(9, 9)).timeout(PATIENCE).wait().unwrap_err()
            })
        });
        assert!(refused.iter().all(|error| matches!(error, CallError::NoSuchPort { .. })), "{refused:?}");
        for (host, serving) in hosts {
            assert_eq!(host.metrics().endpoint.requests_delivered, 20, "each had its own and no other");
            drop(host);
            serving.join().unwrap();
        }
    }
}
