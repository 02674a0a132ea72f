//! Hosts over raw IP, in two network namespaces joined by a veth.

use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Instant;

use super::common::{Echo, PATIENCE, message};
use homa::driver::raw::{RawConfig, RawDriver};
use homa::driver::{Driver, RxBurst, TxPacket, UnreachableReport, UnreachableTarget};
use homa::error::CallError;
use homa::{DriverChoice, Host, HostBuilder, ServerAddr};
use homa_testkit::namespace::{Namespace, V4, V6, pair};

fn config(ip: &str) -> HostBuilder {
    let bind = SocketAddr::new(ip.parse::<IpAddr>().unwrap(), 0);
    // Use a different directory from the other hosts of this machine.
    let segment_dir = env!("CARGO_TARGET_TMPDIR").into();
    Host::builder().driver(DriverChoice::Raw).address(bind).segment_dir(segment_dir)
}

fn host_in(namespace: &Namespace, ip: &'static str) -> Host {
    namespace.run(move || config(ip).bind().unwrap())
}

fn server(ip: &str, port: u16) -> ServerAddr {
    ServerAddr::new(SocketAddr::new(ip.parse().unwrap(), 0), port)
}

#[test]
fn messages_of_all_sizes_go_and_come_back() {
    for mtu in [1_500, 9_000] {
        let Some(namespaces) = pair(mtu) else { return };
        for ips in [V4, V6] {
            let echo = namespaces[1].run(move || Echo::with(config(ips[1]), 1));
            assert_eq!(echo.to, server(ips[1], 99));
            let counted = namespaces[0].run(move || {
                let host = config(ips[0]).bind().unwrap();
                let client = host.client().unwrap();
                let sizes =
                    [1, 100, 1_404, 1_405, 1_424, 1_425, 8_924, 8_925, 39_999, 40_001, 65_536, 1_000_000];
                for (tag, length) in sizes.into_iter().enumerate() {
                    let request = message(length, tag as u64);
                    // ID-12: a peer is an address; a UDP port in an address is ignored.
                    let mut to = echo.to;
                    to.host.set_port(tag as u16 * 7);
                    let answer = client.call(to, request.clone()).timeout(PATIENCE).wait();
                    assert!(
                        answer.as_ref() == Ok(&request),
                        "{length} bytes at MTU {mtu}: {:?}",
                        answer.err()
                    );
                }
                host.metrics().endpoint
            });
            assert_eq!(counted.responses_delivered, 12);
            assert_eq!(counted.drop_invalid, 0);
        }
    }
}

#[test]
fn many_calls_at_once_over_both_ip_versions() {
    let Some(namespaces) = pair(1_500) else { return };
    let echo = namespaces[1].run(|| Echo::with(config("::"), 1));
    namespaces[0].run(move || {
        let host = config("::").bind().unwrap();
        let client = host.client().unwrap();
        for cookie in 0..200 {
            let to = server(if cookie % 2 == 0 { V4[1] } else { V6[1] }, 99);
            client.completions().submit(to, message(cookie as usize * 97 + 1, cookie), cookie).unwrap();
        }
        for _ in 0..200 {
            let completion = client.completions().recv().timeout(PATIENCE).wait().expect("an end");
            let length = completion.cookie as usize * 97 + 1;
            assert_eq!(completion.result.unwrap(), message(length, completion.cookie));
        }
        drop(echo);
    });
}

#[test]
fn a_machine_without_homa_ends_the_call_by_its_own_error() {
    // PEER-4: the kernel reports EPROTONOSUPPORT.
    let Some(namespaces) = pair(1_500) else { return };
    for ips in [V4, V6] {
        let host = host_in(&namespaces[0], ips[0]);
        let (error, metrics) = namespaces[0].run(move || {
            let error = host.client().unwrap().call(server(ips[1], 99), "x").timeout(PATIENCE).wait();
            (error.unwrap_err(), host.metrics())
        });
        assert_eq!(error, CallError::ProtocolUnreachable { to: server(ips[1], 99) });
        assert!(error.to_string().contains("146") && error.to_string().contains("/99"), "{error}");
        assert_eq!(metrics.endpoint.rpcs_timed_out, 0);
    }
}

#[test]
fn a_port_without_a_server_ends_its_call_and_no_other() {
    let Some(namespaces) = pair(1_500) else { return };
    for ips in [V4, V6] {
        let echo = namespaces[1].run(move || Echo::with(config(ips[1]), 1));
        namespaces[0].run(move || {
            let host = config(ips[0]).bind().unwrap();
            let client = host.client().unwrap();
            let (good, bad) = (server(ips[1], 99), server(ips[1], 98));
            for cookie in 0..20 {
                client
                    .completions()
                    .submit(if cookie % 2 == 0 { good } else { bad }, message(5_000, cookie), cookie)
                    .unwrap();
            }
            for _ in 0..20 {
                let completion = client.completions().recv().timeout(PATIENCE).wait().expect("an end");
                match completion.cookie % 2 {
                    0 => assert_eq!(completion.result.unwrap(), message(5_000, completion.cookie)),
                    _ => assert_eq!(completion.result, Err(CallError::NoSuchPort { to: bad })),
                }
            }
            drop(echo);
        });
    }
}

/// Returns the first packet of a 100-byte request, as a client of another implementation sends it.
fn strangers_request(port: u16, id: u64) -> Vec<u8> {
    let mut packet = vec![0; 56 + 100];
    packet[..2].copy_from_slice(&40_000_u16.to_be_bytes());
    packet[2..4].copy_from_slice(&port.to_be_bytes());
    packet[11] = 0x10;
    packet[20..28].copy_from_slice(&id.to_be_bytes());
    packet[28..32].copy_from_slice(&100_u32.to_be_bytes());
    packet[32..36].copy_from_slice(&100_u32.to_be_bytes());
    packet
}

fn raw_driver(ip: &str) -> RawDriver {
    let bind = SocketAddr::new(ip.parse::<IpAddr>().unwrap(), 0);
    RawDriver::bind(&RawConfig { bind, ..RawConfig::default() }).unwrap()
}

/// Returns the next network report.
fn next_report(driver: &mut RawDriver) -> UnreachableReport {
    let begin = Instant::now();
    loop {
        driver.receive(&mut RxBurst::new()).unwrap();
        match driver.poll_unreachable() {
            Some(report) => return report,
            None => assert!(begin.elapsed() < PATIENCE, "no report"),
        }
        thread::yield_now();
    }
}

#[test]
fn a_stranger_that_asks_for_a_port_without_a_server_is_told_by_icmp() {
    // LIMIT-8: otherwise a kernel client would wait until its timeout.
    let Some(namespaces) = pair(1_500) else { return };
    for ips in [V4, V6] {
        let echo = namespaces[1].run(move || Echo::with(config(ips[1]), 1));
        namespaces[0].run(move || {
            let mut client = raw_driver(ips[0]);
            let peer = echo.to.host;
            // The port that has a server answers, and is not reported as closed.
            for (port, id) in [(99, 2), (98, 4)] {
                let bytes = strangers_request(port, id);
                let packet = TxPacket { to: peer, priority: 6, header: &bytes[..56], payload: &bytes[56..] };
                assert_eq!(client.send(&[packet]).unwrap(), 1);
            }
            let target = UnreachableTarget::Port { port: 98, sender_id: Some(4) };
            assert_eq!(next_report(&mut client), UnreachableReport { peer, target });
            assert_eq!(echo.metrics().endpoint.drop_no_port, 1);
            drop(echo);
        });
    }
}

#[test]
fn a_stranger_that_asks_for_a_port_that_accepts_no_requests_is_told_by_icmp() {
    // ID-15: the port is treated like an unbound one.
    let Some(namespaces) = pair(1_500) else { return };
    let (host, refusing) = namespaces[1].run(move || {
        let host = config(V4[1]).bind().unwrap();
        let refusing = [Some(97), None].map(|port| host.socket(port).unwrap());
        refusing[0].accept_requests(false).unwrap();
        (host, refusing)
    });
    namespaces[0].run(move || {
        let (mut client, peer) = (raw_driver(V4[0]), server(V4[1], 0).host);
        for (port, id) in refusing.each_ref().map(|socket| socket.port()).into_iter().zip([2, 4]) {
            let bytes = strangers_request(port, id);
            let packet = TxPacket { to: peer, priority: 6, header: &bytes[..56], payload: &bytes[56..] };
            assert_eq!(client.send(&[packet]).unwrap(), 1);
            let target = UnreachableTarget::Port { port, sender_id: Some(id) };
            assert_eq!(next_report(&mut client), UnreachableReport { peer, target });
        }
        drop((refusing, host));
    });
}

#[test]
fn a_port_that_a_stranger_reports_ends_its_call_and_no_other() {
    // PEER-4: the kernel reports ENOTCONN.
    let Some(namespaces) = pair(1_500) else { return };
    for ips in [V4, V6] {
        let mut stranger = namespaces[1].run(move || raw_driver(ips[1]));
        let calls = namespaces[0].run(move || {
            let host = config(ips[0]).bind().unwrap();
            let client = host.client().unwrap();
            for port in [98, 99] {
                client.completions().submit(server(ips[1], port), "hello", port.into()).unwrap();
            }
            (host, client)
        });
        namespaces[1].run(move || {
            let (mut burst, begin) = (RxBurst::new(), Instant::now());
            // The client resends if its first packet is ignored.
            loop {
                stranger.receive(&mut burst).unwrap();
                let packet = burst.iter().find(|(_, bytes)| bytes[2..4] == 98_u16.to_be_bytes());
                if let Some((from, bytes)) = packet {
                    return stranger.refuse(from, bytes);
                }
                assert!(begin.elapsed() < PATIENCE, "no packet");
                thread::yield_now();
            }
        });
        let (host, client) = calls;
        let first = client.completions().recv().timeout(PATIENCE).wait().expect("an end");
        assert_eq!(first.result, Err(CallError::NoSuchPort { to: server(ips[1], 98) }));
        let second = client.completions().recv().timeout(PATIENCE).wait().expect("an end");
        assert!(matches!(
            second.result,
            Err(CallError::NoAnswer { .. } | CallError::ProtocolUnreachable { .. })
        ));
        drop(host);
    }
}

#[test]
fn two_hosts_of_one_machine_have_two_addresses() {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(why) => return homa_testkit::skip(why),
    };
    namespace.run(|| {
        let echo = Echo::with(config("127.0.0.1"), 1);
        let host = config("127.0.0.2").bind().unwrap();
        let client = host.client().unwrap();
        let to = "127.0.0.1/99".parse().unwrap();
        assert_eq!(client.call(to, message(300_000, 1)).wait().unwrap(), message(300_000, 1));
        drop(echo);
    });
}

#[test]
fn the_filter_follows_the_ports_as_they_open_and_close() {
    let Some(namespaces) = pair(1_500) else { return };
    namespaces[1].run(|| {
        let host = config(V4[1]).bind().unwrap();
        let ports: Vec<_> = (1..=3).map(|port| host.server(port).unwrap()).collect();
        drop(ports);
        let clients: Vec<_> = (0..3).map(|_| host.client().unwrap()).collect();
        drop(clients);
        let (server, to) = (host.server(4).unwrap(), server(V4[1], 4));
        let answer = thread::spawn(move || server.recv().wait().unwrap().reply("and back").unwrap());
        assert_eq!(host.client().unwrap().call(to, "to itself").wait().unwrap(), "and back");
        answer.join().unwrap();
    });
}
