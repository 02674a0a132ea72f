//! Hosts with Linux Homa's UDP encapsulation: UDP port 54321 at both ends, in two network namespaces joined
//! by a veth.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use super::common::{Echo, PATIENCE, eventually, message};
use homa::driver::linux_udp::{LinuxUdpConfig, LinuxUdpDriver};
use homa::driver::udp::BindError;
use homa::driver::{Driver, LINUX_UDP_PORT, RxBurst, TxPacket, UnreachableReport, UnreachableTarget};
use homa::error::{CallError, HostError, SegmentError};
use homa::{DriverChoice, Host, HostBuilder, ServerAddr};
use homa_testkit::namespace::{Namespace, V4, V6, pair};

pub fn config(ip: &str) -> HostBuilder {
    let bind = SocketAddr::new(ip.parse::<IpAddr>().unwrap(), 0);
    // Use a different directory from the other hosts of this machine.
    let segment_dir = env!("CARGO_TARGET_TMPDIR").into();
    Host::builder().driver(DriverChoice::LinuxUdp).address(bind).segment_dir(segment_dir)
}

pub fn driver(ip: &str) -> LinuxUdpDriver {
    let bind = SocketAddr::new(ip.parse::<IpAddr>().unwrap(), 0);
    LinuxUdpDriver::bind(&LinuxUdpConfig { bind, ..LinuxUdpConfig::default() }).unwrap()
}

pub fn server(ip: &str, port: u16) -> ServerAddr {
    ServerAddr::new(SocketAddr::new(ip.parse().unwrap(), LINUX_UDP_PORT), port)
}

fn namespace() -> Option<Namespace> {
    Namespace::new().map_err(homa_testkit::skip).ok()
}

/// WIRE-27, ID-12: the encapsulation, and peers identified by address only.
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
                let sizes = [1, 100, 1_416, 1_417, 8_916, 8_917, 39_999, 40_001, 65_536, 1_000_000];
                for (tag, length) in sizes.into_iter().enumerate() {
                    let request = message(length, tag as u64);
                    // A UDP port in an address is ignored.
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
            assert_eq!(counted.responses_delivered, 10);
            assert_eq!(counted.drop_invalid, 0);
        }
    }
}

#[test]
fn many_calls_at_once_over_both_ip_versions() {
    let Some(namespaces) = pair(1_500) else { return };
    // Both mean all addresses, as in Linux Homa.
    let echo = namespaces[1].run(|| Echo::with(config("0.0.0.0"), 1));
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

/// WIRE-30: the ICMP report may be about the UDP encapsulation. It is attributed to the Homa port that it
/// quotes.
#[test]
fn a_machine_without_the_udp_form_ends_the_call_to_that_port() {
    let Some(namespaces) = pair(1_500) else { return };
    for ips in [V4, V6] {
        let (error, metrics) = namespaces[0].run(move || {
            let host = config(ips[0]).bind().unwrap();
            let error = host.client().unwrap().call(server(ips[1], 99), "x").timeout(PATIENCE).wait();
            (error.unwrap_err(), host.metrics())
        });
        assert_eq!(error, CallError::NoSuchPort { to: server(ips[1], 99) });
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

/// Returns the first packet of a 100-byte request as Linux Homa sends it from UDP port 54321: without marks,
/// and with Linux Homa's own `doff`.
fn kernels_request(port: u16, id: u64) -> Vec<u8> {
    let mut packet = vec![0; 56 + 100];
    packet[..2].copy_from_slice(&40_000_u16.to_be_bytes());
    packet[2..4].copy_from_slice(&port.to_be_bytes());
    (packet[DATA.0], packet[12]) = (DATA.1, 0xd0);
    packet[20..28].copy_from_slice(&id.to_be_bytes());
    packet[28..32].copy_from_slice(&100_u32.to_be_bytes());
    packet
}

fn send(driver: &mut LinuxUdpDriver, to: SocketAddr, bytes: &[u8]) {
    let packet = TxPacket { to, priority: 6, header: &bytes[..56], payload: &bytes[56..] };
    assert_eq!(driver.send(&[packet]).unwrap(), 1);
}

fn next_report(driver: &mut LinuxUdpDriver) -> UnreachableReport {
    let (mut burst, begin) = (RxBurst::new(), Instant::now());
    loop {
        driver.receive(&mut burst).unwrap();
        if let Some(report) = driver.poll_unreachable() {
            return report;
        }
        assert!(begin.elapsed() < PATIENCE, "no report");
        std::thread::yield_now();
    }
}

/// Offset of the packet type, and the type of DATA packets.
const DATA: (usize, u8) = (11, 0x10);

/// Returns the next DATA packet for this Homa port, preceded by its sender.
fn next_packet(driver: &mut LinuxUdpDriver, port: u16) -> (SocketAddr, Vec<u8>) {
    let (mut burst, begin) = (RxBurst::new(), Instant::now());
    loop {
        driver.receive(&mut burst).unwrap();
        let is_data = |bytes: &[u8]| bytes[DATA.0] == DATA.1 && bytes[2..4] == port.to_be_bytes();
        let packet = burst.iter().find(|(_, bytes)| is_data(bytes));
        if let Some((from, bytes)) = packet {
            return (from, bytes.to_vec());
        }
        assert!(begin.elapsed() < PATIENCE, "no packet");
        std::thread::yield_now();
    }
}

/// LIMIT-8: a kernel client has no other way to learn that a port is closed.
#[test]
fn a_kernel_that_asks_for_a_port_without_a_server_is_told_by_icmp() {
    let Some(namespaces) = pair(1_500) else { return };
    for ips in [V4, V6] {
        let echo = namespaces[1].run(move || Echo::with(config(ips[1]), 1));
        namespaces[0].run(move || {
            let (mut kernel, peer) = (driver(ips[0]), echo.to.host);
            // The port that has a server answers, and is not reported as closed.
            send(&mut kernel, peer, &kernels_request(99, 2));
            let (from, answer) = next_packet(&mut kernel, 40_000);
            assert_eq!((from, answer.len()), (peer, 56 + 100), "WIRE-29");
            send(&mut kernel, peer, &kernels_request(98, 4));
            let what = UnreachableTarget::Port { port: 98, sender_id: Some(4) };
            assert_eq!(next_report(&mut kernel), UnreachableReport { peer, target: what }, "WIRE-30");
            assert_eq!(echo.metrics().endpoint.drop_no_port, 1);
            drop(echo);
        });
    }
}

/// WIRE-30: an ICMP report applies only to the Homa port that it quotes.
#[test]
fn a_report_about_one_homa_port_ends_the_call_to_it_and_no_other() {
    let Some(namespaces) = pair(1_500) else { return };
    for ips in [V4, V6] {
        let mut kernel = namespaces[1].run(move || driver(ips[1]));
        let (host, client) = namespaces[0].run(move || {
            let host = config(ips[0]).bind().unwrap();
            let client = host.client().unwrap();
            for port in [98, 99] {
                client.completions().submit(server(ips[1], port), "hello", port.into()).unwrap();
            }
            (host, client)
        });
        namespaces[1].run(move || {
            // The client resends if its first packet is ignored.
            let (from, bytes) = next_packet(&mut kernel, 98);
            assert_eq!(from.port(), LINUX_UDP_PORT, "WIRE-27");
            kernel.refuse(from, &bytes);
            // Otherwise the kernel would answer the other request. The client of this request gets no further
            // packet.
            std::mem::forget(kernel);
        });
        let first = client.completions().recv().timeout(PATIENCE).wait().expect("an end");
        assert_eq!(first.result, Err(CallError::NoSuchPort { to: server(ips[1], 98) }));
        let second = client.completions().recv().timeout(PATIENCE).wait().expect("an end");
        assert_eq!(second.cookie, 99);
        assert!(matches!(second.result, Err(CallError::NoAnswer { .. })), "{:?}", second.result);
        drop(host);
    }
}

/// HOST-12, HOST-13, WIRE-28: the hosts in one namespace share the port, no matter which opened it, and one
/// of them receives.
#[test]
fn hosts_at_one_address_share_the_port_and_outlive_each_other() {
    let Some(namespaces) = pair(1_500) else { return };
    for ips in [V4, V6] {
        let echoes = namespaces[1].run(move || {
            let first = config(ips[1]).bind().unwrap();
            let servers = [97, 98].map(|port| {
                let host = config(ips[1]).bind().unwrap();
                let server = host.server(port).unwrap();
                (host, server)
            });
            // The host that opened the port ends without ever having driven the network.
            drop(first);
            servers
        });
        let threads = echoes.map(|(host, server)| {
            let thread = std::thread::spawn(move || {
                while let Ok(mut rpc) = server.recv().wait() {
                    let request = rpc.take_payload();
                    let _ = rpc.reply(request);
                }
            });
            (host, thread)
        });
        namespaces[0].run(move || {
            let hosts = [0, 1].map(|_| config(ips[0]).bind().unwrap());
            let clients = hosts.each_ref().map(|host| host.client().unwrap());
            let call_all = |ports: &[u16]| {
                for (client, &port) in
                    clients.iter().flat_map(|client| ports.iter().map(move |p| (client, p)))
                {
                    let request = message(30_000, port.into());
                    let answer = client.call(server(ips[1], port), request.clone()).timeout(PATIENCE).wait();
                    assert_eq!(answer.unwrap(), request);
                }
            };
            call_all(&[97, 98]);
            let handed: u64 = hosts.iter().map(|host| host.metrics().driver.handed_over).sum();
            let taken: u64 = hosts.iter().map(|host| host.metrics().driver.taken_over).sum();
            assert!(handed > 0 && taken > 0, "one receives for both: {handed} {taken}");
            let [(first, thread), other] = threads;
            drop(first);
            thread.join().unwrap();
            call_all(&[98]);
            drop(other.0);
            other.1.join().unwrap();
        });
    }
}

/// HOST-1: a Homa port belongs to one process, whatever its encapsulation.
#[test]
fn a_homa_port_has_one_form() {
    let Some(namespace) = namespace() else { return };
    namespace.run(|| {
        let segment_dir = env!("CARGO_TARGET_TMPDIR");
        let raw = Host::builder().driver(DriverChoice::Raw).segment_dir(segment_dir.into()).bind().unwrap();
        let udp = config("0.0.0.0").bind().unwrap();
        let server = raw.server(99).unwrap();
        let refused = udp.server(99).expect_err("it is taken");
        assert!(matches!(refused, HostError::Segment(SegmentError::PortTaken { port: 99, .. })), "{refused}");
        drop(server);
        eventually("the port is free", || udp.server(99).is_ok());
    });
}

/// WIRE-28: the kernel's own Homa, or another program, has the port.
#[test]
fn a_port_that_is_taken_and_not_shared_is_an_error_that_names_the_causes() {
    let Some(namespace) = namespace() else { return };
    namespace.run(|| {
        let other = std::net::UdpSocket::bind(("0.0.0.0", LINUX_UDP_PORT)).unwrap();
        let error = config("0.0.0.0").bind().expect_err("it is taken");
        assert!(matches!(error, HostError::Bind(BindError::LinuxUdpTaken(_))), "{error}");
        assert!(error.to_string().contains("net.homa.hijack_udp"), "{error}");
        drop(other);
        // A child process that another test has just forked may hold a copy of the socket.
        eventually("the port is free", || config("0.0.0.0").bind().is_ok());
    });
}

#[test]
fn a_host_at_one_address_uses_the_sockets_of_hosts_at_all() {
    let Some(namespace) = namespace() else { return };
    namespace.run(|| {
        let echo = Echo::with(config("::"), 1);
        for (ip, to) in [("127.0.0.2", "127.0.0.1"), ("::1", "::1")] {
            let host = config(ip).bind().unwrap();
            let client = host.client().unwrap();
            let answer = client.call(server(to, 99), message(100_000, 1)).timeout(PATIENCE).wait();
            assert_eq!(answer.unwrap(), message(100_000, 1), "{ip}");
        }
        drop(echo);
    });
}

#[test]
fn two_addresses_of_one_machine_are_two_hosts() {
    let Some(namespace) = namespace() else { return };
    namespace.run(|| {
        let echo = Echo::with(config("127.0.0.1"), 1);
        let host = config("127.0.0.2").endpoints(2).bind().unwrap();
        let client = host.client().unwrap();
        let answer = client.call(server("127.0.0.1", 99), message(300_000, 1)).timeout(PATIENCE).wait();
        assert_eq!(answer.unwrap(), message(300_000, 1));
        drop(echo);
    });
}
