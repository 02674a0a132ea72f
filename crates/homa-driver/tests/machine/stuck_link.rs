//! Socket-based drivers on a host with two links, one of which is blocked.

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use super::common::{message, poll_readable, receive_packets};
use homa_driver::raw::{RawConfig, RawDriver};
use homa_driver::udp::{UdpConfig, UdpDriver};
use homa_driver::{Driver, RxBurst, TxPacket, UnreachableTarget};
use homa_testkit::namespace::{Namespace, V4, pair};
use socket2::{Domain, Socket, Type};

/// Addresses of the ends of the second link, `w0` and `w1`.
const OTHER: [&str; 2] = ["10.147.0.1", "10.147.0.2"];

const PATIENCE: Duration = Duration::from_secs(60);

/// Send buffer size, which is less than the bytes of a burst in the tests.
const SEND_BUFFER_BYTES: usize = 16 << 10;

type Group = Vec<Box<dyn Driver>>;

/// Creates two namespaces connected by two links. `v0` sends at 8 kbit/s and queues far more than a socket's
/// send buffer holds.
fn with_a_slow_link() -> Option<[Namespace; 2]> {
    let pair = pair(1_500)?;
    let join = || {
        pair[0].join("w0", &pair[1], "w1")?;
        for (i, namespace) in pair.iter().enumerate() {
            namespace.ip(&format!("addr add {}/24 dev w{i}", OTHER[i]))?;
        }
        pair[0].tc("qdisc add dev v0 root tbf rate 8kbit burst 1600 limit 100000000")
    };
    match join() {
        Ok(()) => Some(pair),
        Err::<(), String>(why) => {
            homa_testkit::skip(why);
            None
        }
    }
}

fn udp(count: u32) -> Group {
    let config = UdpConfig {
        bind: "0.0.0.0:0".parse().unwrap(),
        send_buffer_bytes: SEND_BUFFER_BYTES,
        ..UdpConfig::default()
    };
    let group = UdpDriver::bind_group(&config, count).unwrap();
    group.into_iter().map(|driver| Box::new(driver) as _).collect()
}

fn raw(count: u32) -> Group {
    let config = RawConfig { send_buffer_bytes: SEND_BUFFER_BYTES, ..RawConfig::default() };
    let group = RawDriver::bind_group(&config, count).unwrap();
    group.into_iter().map(|driver| Box::new(driver) as _).collect()
}

/// Returns the shortest packet with an ID.
fn packet(id: u64) -> Vec<u8> {
    let mut bytes = message(1_000, id as u8);
    bytes[20..28].copy_from_slice(&id.to_be_bytes());
    bytes
}

fn id_of(packet: &[u8]) -> u64 {
    u64::from_be_bytes(packet[20..28].try_into().unwrap())
}

/// Offers packets until `is_enough` returns true.
fn offer(driver: &mut dyn Driver, to: SocketAddr, is_enough: impl Fn(&dyn Driver) -> bool) {
    let bytes: Vec<Vec<u8>> = (0..32).map(packet).collect();
    let burst: Vec<_> =
        bytes.iter().map(|bytes| TxPacket { to, priority: 0, header: bytes, payload: &[] }).collect();
    driver.max_packet(to);
    let start = Instant::now();
    while !is_enough(driver) {
        assert!(start.elapsed() < PATIENCE, "{:?}", driver.stats());
        driver.send(&burst).unwrap();
        await_due(driver);
    }
}

/// Sleeps for the time that the driver returns, and then does the work that is due.
fn await_due(driver: &mut dyn Driver) {
    if let Some(wait_ns) = driver.poll_timeout() {
        thread::sleep(Duration::from_nanos(wait_ns));
        driver.send(&[]).unwrap();
    }
}

fn drops(driver: &dyn Driver) -> u64 {
    driver.stats().send_errors.link_stuck
}

/// Whether another socket of this user can be bound to the address.
fn can_join(address: SocketAddr) -> bool {
    let thief = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    thief.set_reuse_port(true).unwrap();
    thief.bind(&address.into()).is_ok()
}

/// Returns the driver's address and its peers' addresses: one behind the slow link, one behind the other
/// link.
fn peers(port: u16) -> [SocketAddr; 2] {
    [V4[1], OTHER[1]].map(|ip| SocketAddr::new(ip.parse().unwrap(), port))
}

#[test]
fn packets_by_another_link_arrive_in_their_order_and_packets_come_to_the_sockets_they_are_for() {
    for (open, is_udp) in [(udp as fn(u32) -> Group, true), (raw, false)] {
        for count in [1, 2] {
            let Some(namespaces) = with_a_slow_link() else { return };
            let mut peer = namespaces[1].run(move || open(1).remove(0));
            let [slow, good] = peers(peer.local_addr().port());
            let mut group = namespaces[0].run(move || {
                let mut group = open(count);
                for driver in &mut group {
                    driver.max_packet(good);
                    offer(&mut **driver, slow, |driver| drops(driver) > 0);
                    assert!(!driver.shows_room());
                    let bytes: Vec<Vec<u8>> = (100..120).map(packet).collect();
                    for bytes in &bytes {
                        let packet = TxPacket { to: good, priority: 3, header: bytes, payload: &[] };
                        assert_eq!(driver.send(&[packet]).unwrap(), 1);
                    }
                }
                group
            });
            // A few packets of the slow link arrive as well.
            let (mut ids, mut burst): (Vec<u64>, _) = (Vec::new(), RxBurst::new());
            while ids.len() < 20 * count as usize {
                poll_readable(peer.poll_fd().unwrap());
                peer.receive(&mut burst).unwrap();
                ids.extend(burst.iter().map(|(_, packet)| id_of(packet)).filter(|&id| id >= 100));
            }
            let expected: Vec<u64> = (0..count).flat_map(|_| 100..120).collect();
            assert_eq!(ids, expected, "UDP: {is_udp}");
            let port = group[0].local_addr().port();
            let to = SocketAddr::new(OTHER[0].parse().unwrap(), port);
            for id in 0..200 {
                let bytes = packet(id);
                let packet = TxPacket { to, priority: 0, header: &bytes, payload: &[] };
                assert_eq!(peer.send(&[packet]).unwrap(), 1);
            }
            for (number, driver) in group.iter_mut().enumerate() {
                let own: Vec<u64> =
                    (0..200).filter(|id| (*id as u32 >> 1) % count == number as u32).collect();
                let got = receive_packets(&mut **driver, own.len());
                let got: Vec<u64> = got.iter().map(|(_, packet)| id_of(packet)).collect();
                assert_eq!(got, own, "UDP: {is_udp}, socket {number} of {count}");
            }
        }
    }
}

#[test]
fn what_the_network_reports_is_told_and_the_address_is_shared_no_longer_than_needed() {
    let Some(namespaces) = with_a_slow_link() else { return };
    let [slow, nobody] = peers(9);
    let driver = namespaces[0].run(move || {
        let mut driver = udp(1).remove(0);
        driver.max_packet(nobody);
        offer(&mut *driver, slow, |driver| drops(driver) > 0);
        // The kernel selects the socket that gets the error by the peer's address.
        for port in 10..30 {
            let bytes = packet(u64::from(port));
            let to = SocketAddr::new(nobody.ip(), port);
            driver.send(&[TxPacket { to, priority: 0, header: &bytes, payload: &[] }]).unwrap();
        }
        let (mut told, start) = (Vec::new(), Instant::now());
        while told.len() < 20 {
            assert!(start.elapsed() < PATIENCE, "{told:?}");
            driver.receive(&mut RxBurst::new()).unwrap();
            while let Some(report) = driver.poll_unreachable() {
                if report.peer.ip() == slow.ip() {
                    continue;
                }
                let UnreachableTarget::Peer { sender_id } = report.target else { panic!("{report:?}") };
                assert_eq!(sender_id, Some(u64::from(report.peer.port())));
                told.push(report.peer.port());
            }
        }
        told.sort_unstable();
        assert_eq!(told, (10..30).collect::<Vec<u16>>());
        driver
    });
    namespaces[0].tc("qdisc del dev v0 root").unwrap();
    namespaces[0].run(move || {
        let (mut driver, start) = (driver, Instant::now());
        while !driver.shows_room() {
            assert!(start.elapsed() < PATIENCE);
            await_due(&mut *driver);
        }
        assert_eq!(driver.poll_timeout(), None);
        // A child that another test has just forked has copies of the closed sockets until it calls exec. As
        // long as such a copy shares the address, the kernel lets another socket join it.
        while can_join(driver.local_addr()) {
            assert!(start.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(1));
        }
        let counted = drops(&*driver);
        offer(&mut *driver, slow, |driver| driver.stats().packets_out > 1_000);
        assert_eq!(drops(&*driver), counted, "the link takes packets again");
    });
}

#[test]
fn the_times_of_packets_by_another_link_are_told() {
    for (open, before) in
        [udp, raw].into_iter().flat_map(|open: fn(u32) -> Group| [(open, true), (open, false)])
    {
        let Some(namespaces) = with_a_slow_link() else { return };
        let [slow, good] = peers(9);
        namespaces[0].run(move || {
            let mut driver = open(1).remove(0);
            driver.max_packet(good);
            if before {
                assert!(driver.stamp_sent());
            }
            offer(&mut *driver, slow, |driver| drops(driver) > 0);
            assert!(before || driver.stamp_sent());
            for id in 100..120 {
                let bytes = packet(id);
                driver.send(&[TxPacket { to: good, priority: 0, header: &bytes, payload: &[] }]).unwrap();
            }
            let (mut ids, start) = (Vec::new(), Instant::now());
            while ids.len() < 20 {
                assert!(start.elapsed() < PATIENCE, "{ids:?}");
                driver.receive(&mut RxBurst::new()).unwrap();
                while let Some(sent) = driver.poll_sent() {
                    assert!(sent.at_ns > 0);
                    ids.extend(Some(id_of(&sent.header)).filter(|&id| id >= 100));
                }
            }
            assert!(ids.iter().copied().eq(100..120), "{ids:?}");
        });
    }
}

#[test]
fn a_host_with_peers_behind_one_link_waits_for_it() {
    for open in [udp as fn(u32) -> Group, raw] {
        let Some(namespaces) = with_a_slow_link() else { return };
        let [slow, _] = peers(9);
        namespaces[0].run(move || {
            // A socket must be open there, so that sending causes no ICMP error.
            let mut driver = open(1).remove(0);
            let start = Instant::now();
            offer(&mut *driver, slow, |driver| {
                driver.stats().would_block > 0 && start.elapsed() > Duration::from_millis(50)
            });
            assert!(driver.shows_room() && driver.poll_timeout().is_none());
            assert_eq!(drops(&*driver), 0);
        });
    }
}

/// Returns the number of UDP sockets over IPv4 in this thread's namespace. Counting descriptors would include
/// those of concurrent tests.
fn udp_sockets() -> usize {
    std::fs::read_to_string("/proc/thread-self/net/udp").unwrap().lines().skip(1).count()
}

/// Uses more links than there are sockets, so that some links share a socket.
#[test]
fn more_links_than_sockets_share_one() {
    let Some(namespaces) = with_a_slow_link() else { return };
    for link in 0..12 {
        namespaces[0].ip(&format!("link add d{link} type veth peer name e{link}")).unwrap();
        namespaces[0].ip(&format!("link set e{link} up")).unwrap();
        namespaces[0].ip(&format!("addr add 10.148.{link}.1/24 dev d{link}")).unwrap();
        namespaces[0].ip(&format!("link set d{link} up")).unwrap();
    }
    namespaces[0].run(|| {
        let [slow, good] = peers(9);
        let mut driver = udp(1).remove(0);
        driver.max_packet(good);
        offer(&mut *driver, slow, |driver| drops(driver) > 0);
        let before = udp_sockets();
        let bytes = packet(7);
        for link in 0..12 {
            // No host has this address, so the packet waits for the neighbour.
            let to = SocketAddr::from(([10, 148, link, 2], 9));
            assert_eq!(
                driver.send(&[TxPacket { to, priority: 0, header: &bytes, payload: &[] }]).unwrap(),
                1
            );
        }
        let after = udp_sockets();
        assert!(after <= before + 8, "{before} sockets before, {after} after");
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = peer.local_addr().unwrap();
        assert_eq!(driver.send(&[TxPacket { to, priority: 0, header: &bytes, payload: &[] }]).unwrap(), 1);
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(peer.recv(&mut [0; 2_000]).unwrap(), bytes.len());
    });
}
