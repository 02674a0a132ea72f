//! Packet sockets on the ends of a veth between two network namespaces.

use std::net::SocketAddr;
use std::thread;

use super::common::{is_readable, message, packets, poll_readable, receive_packets, receive_priorities};
use super::freed_port::open_when_free;
use homa_driver::packet::{Carrier, LinkError, PacketConfig, PacketDriver};
use homa_driver::raw::{RawConfig, RawDriver};
use homa_driver::udp::{BindError, UdpConfig, UdpDriver};
use homa_driver::{Driver, ReceiveFilter, RxBurst, TxPacket, UnreachableReport, UnreachableTarget};
use homa_testkit::namespace::{Namespace, V4, V6, pair};

const PORT: u16 = 4_000;
const CARRIERS: [Carrier; 2] = [Carrier::Udp, Carrier::Ip];

fn at(carrier: Carrier, ip: &str) -> SocketAddr {
    let port = if carrier == Carrier::Udp { PORT } else { 0 };
    SocketAddr::new(ip.parse().unwrap(), port)
}

fn config(carrier: Carrier, ip: &str) -> PacketConfig {
    PacketConfig { bind: at(carrier, ip), carrier, ..PacketConfig::default() }
}

fn open(carrier: Carrier, ip: &str) -> PacketDriver {
    let open = || PacketDriver::open(&config(carrier, ip));
    open_when_free(open, |error| matches!(error, LinkError::Bind(BindError::InUse(_))))
}

/// Opens a driver over the kernel's sockets on the same link.
fn open_sockets(carrier: Carrier, ip: &str) -> Box<dyn Driver> {
    let bind = at(carrier, ip);
    match carrier {
        Carrier::Udp => {
            let config = UdpConfig { bind, ..UdpConfig::default() };
            let open = || UdpDriver::bind(&config);
            Box::new(open_when_free(open, |error| matches!(error, BindError::InUse(_))))
        }
        Carrier::Ip => Box::new(RawDriver::bind(&RawConfig { bind, ..RawConfig::default() }).unwrap()),
    }
}

/// Sends all packets, and returns the result.
fn send(driver: &mut impl Driver, to: SocketAddr, bytes: &[Vec<u8>]) {
    assert_eq!(driver.send(&packets(to, 3, bytes)).unwrap(), bytes.len());
}

/// Returns the path MTU as queried in a namespace, because the query uses a socket in the calling thread's
/// namespace.
fn max_packet(namespace: &Namespace, driver: PacketDriver, to: SocketAddr) -> (PacketDriver, usize) {
    namespace.run(move || {
        let fits = driver.max_packet(to);
        (driver, fits)
    })
}

fn bytes_of(got: Vec<(SocketAddr, Vec<u8>)>, from: SocketAddr) -> Vec<Vec<u8>> {
    got.into_iter()
        .map(|(sender, packet)| {
            assert_eq!(sender, from);
            packet
        })
        .collect()
}

#[test]
fn packets_go_both_ways_in_both_carriers_and_versions() {
    // WIRE-16, WIRE-17, WIRE-19
    for mtu in [1_500, 9_000] {
        let Some(namespaces) = pair(mtu) else { return };
        for (carrier, ips) in CARRIERS.into_iter().flat_map(|carrier| [(carrier, V4), (carrier, V6)]) {
            let [a, mut b] = [0, 1].map(|i| namespaces[i].run(move || open(carrier, ips[i])));
            let [at_a, at_b] = ips.map(|ip| at(carrier, ip));
            assert_eq!([a.local_addr(), b.local_addr()], [at_a, at_b]);
            let (mut a, fits) = max_packet(&namespaces[0], a, at_b);
            let headers = if ips == V4 { 20 } else { 40 } + if carrier == Carrier::Udp { 8 } else { 0 };
            assert_eq!(fits, mtu as usize - headers);
            let bytes: Vec<Vec<u8>> = (0..200).map(|i| message(28 + i * 37 % (fits - 27), i as u8)).collect();
            let full = vec![message(fits, 9), message(fits + 1, 10)];
            send(&mut a, at_b, &bytes);
            send(&mut a, at_b, &full);
            let got = bytes_of(receive_packets(&mut b, 201), at_a);
            assert_eq!(got[..200], bytes);
            assert_eq!(got[200], full[0]);
            assert_eq!((a.stats().send_errors.too_big, a.stats().send_errors.total()), (1, 1));
            send(&mut b, at_a, &bytes[..3]);
            assert_eq!(bytes_of(receive_packets(&mut a, 3), at_b), bytes[..3]);
            assert_eq!((a.stats().packets_out, a.stats().packets_in), (201, 3));
            assert!(a.stats().send_calls <= 5, "{:?}", a.stats());
            assert_eq!((b.stats().damaged, b.stats().queue_drops, b.stats().truncated), (0, 0, 0));
            send(&mut a, at_b, &bytes[..3]);
            assert_eq!(receive_priorities(&mut b, 3), [Some(3); 3], "as `send` sends them");
        }
    }
}

#[test]
fn the_sockets_of_the_kernel_understand_it_and_it_understands_them() {
    let Some(namespaces) = pair(1_500) else { return };
    for (carrier, ips) in CARRIERS.into_iter().flat_map(|carrier| [(carrier, V4), (carrier, V6)]) {
        let mut ours = namespaces[0].run(move || open(carrier, ips[0]));
        let mut theirs = namespaces[1].run(move || open_sockets(carrier, ips[1]));
        let [here, there] = ips.map(|ip| at(carrier, ip));
        let bytes: Vec<Vec<u8>> = (0..100).map(|i| message(28 + i * 7 % 1_400, i as u8)).collect();
        send(&mut ours, there, &bytes);
        assert_eq!(bytes_of(receive_packets(&mut *theirs, 100), here), bytes);
        send(&mut theirs, here, &bytes);
        assert_eq!(bytes_of(receive_packets(&mut ours, 100), there), bytes);
        let stats = ours.stats();
        assert_eq!((stats.damaged, stats.truncated, stats.queue_drops), (0, 0, 0), "{carrier:?} {ips:?}");
    }
}

#[test]
fn merged_datagrams_are_cut_into_their_packets() {
    // A veth forwards the output of UDP_SEGMENT as one frame. Short frames go into the ring; long ones exceed
    // it.
    let Some(namespaces) = pair(1_500) else { return };
    for (ips, length, count) in [(V4, 1_400, 100), (V6, 1_400, 100), (V4, 100, 12), (V4, 1_400, 7)] {
        let mut ours = namespaces[0].run(move || open(Carrier::Udp, ips[0]));
        let mut theirs = namespaces[1].run(move || open_sockets(Carrier::Udp, ips[1]));
        let mut bytes: Vec<Vec<u8>> = (0..count).map(|i| message(length, i as u8)).collect();
        bytes.push(message(length - 30, 200));
        send(&mut theirs, at(Carrier::Udp, ips[0]), &bytes);
        assert!(theirs.stats().send_calls < 4, "merged");
        let got = bytes_of(receive_packets(&mut ours, bytes.len()), at(Carrier::Udp, ips[1]));
        assert!(got == bytes, "{ips:?} {length}");
        assert_eq!((ours.stats().truncated, ours.stats().damaged), (0, 0));
        assert_eq!(ours.stats().bytes_in, bytes.iter().map(|packet| packet.len() as u64).sum::<u64>());
    }
}

#[test]
fn runs_of_packets_share_a_frame_and_arrive_as_they_were() {
    let Some(namespaces) = pair(1_500) else { return };
    for (ips, length, frames) in [(V4, 100, 1), (V6, 100, 1), (V4, 1_400, 2), (V6, 1_400, 2)] {
        let mut ours = namespaces[0].run(move || open(Carrier::Udp, ips[0]));
        let mut bytes: Vec<Vec<u8>> = (0..59).map(|i| message(length, i as u8)).collect();
        bytes.push(message(length - 30, 200));
        let [here, there] = ips.map(|ip| at(Carrier::Udp, ip));
        let mut theirs = namespaces[1].run(move || open(Carrier::Udp, ips[1]));
        send(&mut ours, there, &bytes);
        assert!(bytes_of(receive_packets(&mut theirs, 60), here) == bytes, "{ips:?} {length}");
        assert_eq!(theirs.stats().receive_calls, frames, "one for each frame that is too long for the ring");
        drop(theirs);
        let mut theirs = namespaces[1].run(move || open_sockets(Carrier::Udp, ips[1]));
        send(&mut ours, there, &bytes);
        assert!(bytes_of(receive_packets(&mut *theirs, 60), here) == bytes, "{ips:?} {length}");
        assert_eq!((ours.stats().send_calls, ours.stats().packets_out), (2, 120));
        let sum: usize = bytes.iter().map(Vec::len).sum();
        assert_eq!(ours.stats().bytes_out, 2 * sum as u64);
    }
}

#[test]
fn where_runs_may_not_share_a_frame_each_packet_has_its_own() {
    let Some(namespaces) = pair(1_500) else { return };
    let each = PacketConfig { segmentation: false, ..config(Carrier::Udp, V4[0]) };
    let mut ours = namespaces[0].run(move || PacketDriver::open(&each).unwrap());
    let mut theirs = namespaces[1].run(|| open(Carrier::Udp, V4[1]));
    let bytes: Vec<Vec<u8>> = (0..60).map(|i| message(100, i)).collect();
    send(&mut ours, theirs.local_addr(), &bytes);
    assert!(bytes_of(receive_packets(&mut theirs, 60), ours.local_addr()) == bytes);
    assert_eq!((ours.stats().send_calls, theirs.stats().receive_calls), (1, 0), "each is in the ring");
}

/// Polls until the kernel's clock has ticked.
fn await_report(driver: &mut PacketDriver) -> UnreachableReport {
    let mut burst = RxBurst::new();
    loop {
        poll_readable(driver.poll_fd().unwrap());
        assert_eq!(driver.receive(&mut burst).unwrap(), 0);
        if let Some(report) = driver.poll_unreachable() {
            return report;
        }
    }
}

#[test]
fn neighbours_are_found_by_the_first_packet() {
    let Some(namespaces) = pair(1_500) else { return };
    for ips in [V4, V6] {
        let [a, b] = [0, 1].map(|i| namespaces[i].run(move || open(Carrier::Udp, ips[i])));
        let (mut a, mut b) = (a, b);
        let [at_a, at_b] = ips.map(|ip| at(Carrier::Udp, ip));
        for (i, namespace) in namespaces.iter().enumerate() {
            namespace.ip(&format!("neigh flush dev v{i}")).unwrap();
        }
        send(&mut a, at_b, &[message(100, 1)]);
        assert_eq!(a.stats().send_errors.total(), 0, "{ips:?}: it waited for the answer");
        assert_eq!(bytes_of(receive_packets(&mut b, 1), at_a), [message(100, 1)]);
        send(&mut b, at_a, &[message(100, 2)]);
        assert_eq!(bytes_of(receive_packets(&mut a, 1), at_b), [message(100, 2)]);
        // No host has this address: packets to it are lost and counted, and other peers stay reachable.
        let nobody = if ips == V4 { "10.146.0.77:1" } else { "[fd00:146::77]:1" };
        send(&mut a, nobody.parse().unwrap(), &[message(100, 3), message(100, 3)]);
        assert_eq!(a.stats().send_errors.unreachable, 2);
        // There is no route to this address.
        let nowhere = if ips == V4 { "203.0.113.1:1" } else { "[2001:db8::1]:1" };
        send(&mut a, nowhere.parse().unwrap(), &[message(100, 3)]);
        assert_eq!(a.stats().send_errors.unreachable, 3);
        let other = if ips == V4 { V6[1] } else { V4[1] };
        send(&mut a, at(Carrier::Udp, other), &[message(100, 3)]);
        assert_eq!((a.stats().send_errors.other, a.stats().send_errors.total()), (1, 4));
        send(&mut a, at_b, &[message(100, 4)]);
        assert_eq!(bytes_of(receive_packets(&mut b, 1), at_a), [message(100, 4)]);
    }
}

#[test]
fn peers_in_another_network_are_reached_by_the_router() {
    let Some(namespaces) = pair(1_500) else { return };
    // The far end acts as a router, with the peer's address behind it.
    for (ips, far, prefix) in [(V4, "10.147.0.9", "10.147.0.0/24"), (V6, "fd00:147::9", "fd00:147::/64")] {
        let version = if ips == V4 { "" } else { "-6 " };
        namespaces[1]
            .ip(&format!("{version}addr add {far}/{} dev lo", if ips == V4 { 32 } else { 128 }))
            .unwrap();
        namespaces[0].ip(&format!("{version}route add {prefix} via {}", ips[1])).unwrap();
        let mut a = namespaces[0].run(move || open(Carrier::Udp, ips[0]));
        let mut b = namespaces[1].run(move || open_sockets(Carrier::Udp, far));
        send(&mut a, at(Carrier::Udp, far), &[message(100, 1)]);
        let got = receive_packets(&mut *b, 1);
        assert_eq!(bytes_of(got, at(Carrier::Udp, ips[0])), [message(100, 1)]);
    }
}

#[test]
fn a_change_of_the_mtu_is_followed_both_ways() {
    let Some(namespaces) = pair(1_500) else { return };
    let a = namespaces[0].run(|| open(Carrier::Udp, V4[0]));
    let mut b = namespaces[1].run(|| open(Carrier::Udp, V4[1]));
    let to = at(Carrier::Udp, V4[1]);
    let (mut a, fits) = max_packet(&namespaces[0], a, to);
    assert_eq!(fits, 1_472);
    // The driver has just checked the device.
    send(&mut a, to, &[message(1_472, 0)]);
    assert_eq!(receive_packets(&mut b, 1)[0].1, message(1_472, 0));
    namespaces[0].ip("link set v0 mtu 1300").unwrap();
    // In a run of packets, the kernel would accept a length that no longer fits, so the driver checks the
    // length again.
    send(&mut a, to, &[message(1_472, 1), message(1_472, 1), message(1_272, 2)]);
    assert_eq!((a.stats().send_errors.too_big, a.stats().send_errors.total()), (2, 2));
    assert_eq!(receive_packets(&mut b, 1)[0].1, message(1_272, 2));
    let (mut a, fits) = max_packet(&namespaces[0], a, to);
    assert_eq!(fits, 1_272);
    for (i, namespace) in namespaces.iter().enumerate() {
        namespace.ip(&format!("link set v{i} mtu 9000")).unwrap();
    }
    let mut fits = fits;
    while fits == 1_272 {
        // The driver checks the device again after some time.
        assert_eq!(a.send(&[]).unwrap(), 0);
        (a, fits) = max_packet(&namespaces[0], a, to);
    }
    assert_eq!(fits, 8_972);
    // The peer's ring was created for shorter packets. Packets that exceed its frames arrive through the
    // socket's queue.
    let bytes: Vec<Vec<u8>> = (0..20).map(|i| message(if i % 2 == 0 { 8_972 } else { 100 }, i)).collect();
    send(&mut a, to, &bytes);
    assert!(bytes_of(receive_packets(&mut b, 20), at(Carrier::Udp, V4[0])) == bytes);
    assert_eq!(b.stats().truncated, 0);
}

#[test]
fn a_device_that_is_down_loses_packets_and_comes_back_and_one_that_is_gone_does_not() {
    let Some(namespaces) = pair(1_500) else { return };
    let [mut a, mut b] = [0, 1].map(|i| namespaces[i].run(move || open(Carrier::Udp, V4[i])));
    let [at_a, at_b] = V4.map(|ip| at(Carrier::Udp, ip));
    send(&mut a, at_b, &[message(100, 1)]);
    assert_eq!(receive_packets(&mut b, 1).len(), 1);
    namespaces[0].ip("link set v0 down").unwrap();
    send(&mut a, at_b, &[message(100, 2), message(100, 3)]);
    assert_eq!((a.stats().send_errors.unreachable, a.stats().send_errors.total()), (2, 2));
    let mut burst = RxBurst::new();
    // The error keeps the descriptor readable only for a limited time.
    while is_readable(a.poll_fd().unwrap()) {
        assert_eq!(a.receive(&mut burst).unwrap(), 0);
    }
    namespaces[0].ip("link set v0 up").unwrap();
    // Both ends take a while to come up, and count the packets lost until then.
    while b.stats().packets_in == 1 {
        send(&mut a, at_b, &[message(100, 4)]);
        b.receive(&mut burst).unwrap();
    }
    while a.stats().packets_in == 0 {
        send(&mut b, at_a, &[message(100, 5)]);
        a.receive(&mut burst).unwrap();
    }
    namespaces[0].ip("link del v0").unwrap();
    let to_b = message(100, 6);
    let packet = TxPacket { to: at_b, priority: 0, header: &to_b, payload: &[] };
    let error = loop {
        if let Err(error) = a.send(&[packet]) {
            break error;
        }
    };
    assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    assert!(a.receive(&mut burst).is_err() || a.receive(&mut burst).is_err());
    let error = loop {
        poll_readable(b.poll_fd().unwrap());
        if let Err(error) = b.receive(&mut burst) {
            break error;
        }
    };
    assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "the other end of a veth goes too");
}

#[test]
fn a_full_ring_is_counted_and_frames_that_a_burst_holds_are_not_taken_twice() {
    let Some(namespaces) = pair(1_500) else { return };
    let small = PacketConfig { ring_bytes: 64 << 10, ..config(Carrier::Udp, V4[0]) };
    let mut a = namespaces[0].run(move || PacketDriver::open(&small).unwrap());
    // One frame per packet.
    let each = PacketConfig { segmentation: false, ..config(Carrier::Udp, V4[1]) };
    let mut b = namespaces[1].run(move || PacketDriver::open(&each).unwrap());
    let (at_a, frames) = (at(Carrier::Udp, V4[0]), 32);
    let bytes: Vec<Vec<u8>> = (0..50).map(|i| message(100, i)).collect();
    // A busy kernel delivers frames some time after the call that sent them.
    let await_drops = |driver: &PacketDriver, count| while driver.stats().queue_drops < count {};
    send(&mut b, at_a, &bytes);
    await_drops(&a, 50 - frames as u64);
    let (mut held, mut next) = (RxBurst::new(), RxBurst::new());
    assert_eq!(a.receive(&mut held).unwrap(), frames);
    assert_eq!(a.stats().queue_drops, 50 - frames as u64);
    assert_eq!(a.stats().queue_drops, 50 - frames as u64, "each is counted once");
    send(&mut b, at_a, &bytes[..1]);
    await_drops(&a, 51 - frames as u64);
    assert_eq!(a.receive(&mut next).unwrap(), 0, "they are all held");
    assert_eq!(a.stats().queue_drops, 51 - frames as u64);
    assert!(held.iter().map(|(_, packet)| packet).eq(bytes[..frames].iter()));
    assert!(held.keep(held.get(0).unwrap().1).is_none());
    held.clear();
    send(&mut b, at_a, &bytes[40..]);
    let mut at = 40;
    while at < bytes.len() {
        poll_readable(a.poll_fd().unwrap());
        a.receive(&mut next).unwrap();
        assert!(next.iter().map(|(_, packet)| packet).eq(bytes[at..at + next.len()].iter()));
        at += next.len();
    }
    // A burst outlives its driver.
    drop(a);
    assert_eq!(next.get(next.len() - 1).unwrap().1, bytes[49]);
}

#[test]
fn only_what_is_for_us_comes_in() {
    let Some(namespaces) = pair(1_500) else { return };
    for ips in [V4, V6] {
        let mut a = namespaces[0].run(move || open(Carrier::Udp, ips[0]));
        let at_a = at(Carrier::Udp, ips[0]);
        let mut homa = namespaces[0].run(move || open(Carrier::Ip, ips[0]));
        namespaces[1].run(move || {
            let socket = std::net::UdpSocket::bind((ips[1], 5_000)).unwrap();
            let mut elsewhere = at_a;
            elsewhere.set_port(PORT + 1);
            socket.send_to(b"another port", elsewhere).unwrap();
            socket.send_to(&[7; 4_000], at_a).unwrap();
            socket.send_to(b"for us", at_a).unwrap();
        });
        // The driver does not receive the packets that it sends.
        send(&mut a, at(Carrier::Udp, ips[1]), &[message(50, 1)]);
        let peer: SocketAddr = (ips[1].parse::<std::net::IpAddr>().unwrap(), 5_000).into();
        assert_eq!(receive_packets(&mut a, 1), [(peer, b"for us".to_vec())]);
        assert_eq!(homa.receive(&mut RxBurst::new()).unwrap(), 0);
        // No ICMP error is sent: the port and the protocol are in use.
        let mut other = namespaces[1].run(move || open_sockets(Carrier::Ip, ips[1]));
        send(&mut other, at(Carrier::Ip, ips[0]), &[message(60, 2)]);
        assert_eq!(receive_packets(&mut homa, 1)[0].1, message(60, 2));
        assert_eq!(other.receive(&mut RxBurst::new()).unwrap(), 0);
        assert_eq!(other.stats().network_errors, 0);
        assert_eq!((a.stats().damaged, homa.stats().damaged), (0, 0));
    }
}

/// Builds a frame to `v0` and the first address in [`V4`], with this VLAN tag, this UDP checksum and six
/// bytes of UDP payload.
fn frame(mac: [u8; 6], tag: Option<u16>, checksum: u16, payload: &[u8; 6]) -> Vec<u8> {
    let mut frame = [&mac[..], &[2, 0, 0, 0, 0, 9]].concat();
    frame.extend(tag.iter().flat_map(|tag| [[0x81, 0], tag.to_be_bytes()].concat()));
    frame.extend([8, 0, 0x45, 0, 0, 34, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 146, 0, 2, 10, 146, 0, 1]);
    let ip_at = frame.len() - 20;
    let words = frame[ip_at..].chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
    let sum: u32 = words.sum();
    frame[ip_at + 10..ip_at + 12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    frame.extend([5_000, PORT, 14, checksum].map(u16::to_be_bytes).as_flattened());
    [&frame[..], payload].concat()
}

/// Sends raw frames on `v1`.
fn send_frames(frames: &[Vec<u8>]) {
    let socket = socket2::Socket::new(socket2::Domain::PACKET, socket2::Type::RAW, None).unwrap();
    // SAFETY: the call takes a zero-terminated name.
    let index = unsafe { libc::if_nametoindex(c"v1".as_ptr()) };
    // SAFETY: all-zero bytes are a valid value of the structure, whose length is passed with it. The kernel
    // only reads the frame.
    unsafe {
        let mut to: libc::sockaddr_ll = std::mem::zeroed();
        (to.sll_family, to.sll_ifindex) = (libc::AF_PACKET as u16, index as i32);
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
        for frame in frames {
            let sent =
                libc::sendto(fd, frame.as_ptr().cast(), frame.len(), 0, (&raw const to).cast(), length);
            assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
        }
    }
}

#[test]
fn frames_of_a_vlan_are_another_devices_and_damaged_ones_are_counted() {
    let Some(namespaces) = pair(1_500) else { return };
    let mut a = namespaces[0].run(|| open(Carrier::Udp, V4[0]));
    let mac = mac_of(&namespaces[0]);
    namespaces[1].run(move || {
        send_frames(&[
            frame(mac, Some(5), 0, b"VLAN 5"),
            frame(mac, None, 0x1234, b"broken"),
            frame([2, 0, 0, 0, 0, 7], None, 0, b"others"),
            frame(mac, Some(0), 0, b"tagged"),
            frame(mac, None, 0, b"simple"),
        ]);
    });
    let got: Vec<Vec<u8>> = receive_packets(&mut a, 2).into_iter().map(|(_, packet)| packet).collect();
    assert_eq!(got, [b"tagged", b"simple"], "one has a priority, but no VLAN");
    assert_eq!((a.stats().damaged, a.stats().packets_in), (1, 2));
}

/// Returns the Ethernet address of `v0`, as reported by `ip`.
fn mac_of(namespace: &Namespace) -> [u8; 6] {
    let output =
        namespace.run(|| std::process::Command::new("ip").args(["-br", "link", "show", "v0"]).output());
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let mac = text.split_whitespace().find(|word| word.matches(':').count() == 5).unwrap();
    let bytes: Vec<u8> = mac.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

#[test]
fn a_port_that_nobody_has_is_reported() {
    // PEER-4
    let id_in = |packet: &[u8]| packet[20..28].try_into().ok().map(u64::from_be_bytes);
    let Some(namespaces) = pair(1_500) else { return };
    for ips in [V4, V6] {
        let [mut udp, mut ip] = CARRIERS.map(|carrier| namespaces[0].run(move || open(carrier, ips[0])));
        send(&mut udp, at(Carrier::Udp, ips[1]), &[message(100, 1)]);
        let peer = at(Carrier::Udp, ips[1]);
        let target = UnreachableTarget::Peer { sender_id: id_in(&message(100, 1)) };
        assert_eq!(await_report(&mut udp), UnreachableReport { peer, target });
        send(&mut ip, at(Carrier::Ip, ips[1]), &[message(100, 1)]);
        let peer = at(Carrier::Ip, ips[1]);
        let target = UnreachableTarget::Protocol { sender_id: id_in(&message(100, 1)) };
        assert_eq!(await_report(&mut ip), UnreachableReport { peer, target });
        assert_eq!((udp.stats().network_errors, ip.stats().network_errors), (1, 1));
    }
}

#[test]
fn over_ip_a_filter_by_homa_port_leaves_each_process_its_own() {
    // HOST-8
    let Some(namespaces) = pair(1_500) else { return };
    const DATA: u8 = 0x10;
    let homa = |port: u16, ack: u64| {
        let mut bytes = message(500, 1);
        bytes[..4].copy_from_slice(&[0x80, 1, (port >> 8) as u8, port as u8]);
        bytes[11] = DATA;
        bytes[36..44].copy_from_slice(&ack.to_be_bytes());
        bytes
    };
    for ips in [V4, V6] {
        let mut driver = namespaces[0].run(move || open(Carrier::Ip, ips[0]));
        driver.set_receive_filter(&ReceiveFilter::new([99], None)).unwrap();
        let mut peer = namespaces[1].run(move || open(Carrier::Ip, ips[1]));
        let sent = [homa(99, 0), homa(100, 0), homa(100, 6), homa(99, 8)];
        send(&mut peer, at(Carrier::Ip, ips[0]), &sent);
        let got = bytes_of(receive_packets(&mut driver, 3), at(Carrier::Ip, ips[1]));
        assert_eq!(got, [sent[0].clone(), sent[2][..56].to_vec(), sent[3].clone()]);
        assert_eq!(driver.stats().truncated, 0, "a packet cut by the filter is not a damaged one");
    }
}

#[test]
fn loopback_reaches_this_machine() {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(why) => return homa_testkit::skip(why),
    };
    namespace.run(|| {
        let (mut a, mut b) = (open(Carrier::Udp, "127.0.0.1"), open(Carrier::Udp, "127.0.0.2"));
        let bytes: Vec<Vec<u8>> = (0..3).map(|i| message(60_000, i)).collect();
        send(&mut a, b.local_addr(), &bytes);
        assert!(bytes_of(receive_packets(&mut b, 3), a.local_addr()) == bytes);
    });
}

#[test]
fn what_is_missing_is_named() {
    let error = |config: PacketConfig| PacketDriver::open(&config).map(|_| ()).unwrap_err().to_string();
    let Some(namespaces) = pair(1_500) else { return };
    namespaces[0].run(move || {
        let _taken = open(Carrier::Udp, V4[0]);
        let text = error(config(Carrier::Udp, V4[0]));
        assert!(text.starts_with("port 4000 on 10.146.0.1 is in use"), "{text}");
        let text = error(PacketConfig { interface: Some("v7".to_owned()), ..PacketConfig::default() });
        assert!(text.starts_with("there is no interface v7: choose one of lo, v0"), "{text}");
        let text = error(PacketConfig::default());
        assert!(text.contains("name an interface"), "{text}");
        let text = error(PacketConfig { ring_bytes: 1 << 40, ..config(Carrier::Ip, V4[0]) });
        assert!(
            text.contains("no memory for") && text.contains("on v0") && text.contains("ring_bytes"),
            "{text}"
        );
        let named = PacketConfig { interface: Some("v0".to_owned()), ..PacketConfig::default() };
        let driver = PacketDriver::open(&named).unwrap();
        assert_eq!((driver.interface(), driver.local_addr().ip().to_string()), ("v0", V4[0].to_owned()));
        assert_ne!(driver.local_addr().port(), 0);
    });
    namespaces[1].run(|| {
        let opened = thread::spawn(|| {
            // Unlike the C library's function, a direct system call drops the privileges of only this thread.
            // SAFETY: the system call takes a number.
            unsafe { libc::syscall(libc::SYS_setuid, 65_534) };
            PacketDriver::open(&config(Carrier::Udp, V4[1])).map(|_| ())
        });
        match opened.join().unwrap() {
            Err(error @ LinkError::NoCapability { .. }) => {
                let text = error.to_string();
                let parts = ["packet socket on v1", "CAP_NET_RAW", "setcap cap_net_raw+ep /", "--driver udp"];
                assert!(parts.iter().all(|part| text.contains(part)), "{text}");
            }
            other => panic!("{other:?}"),
        }
    });
}
