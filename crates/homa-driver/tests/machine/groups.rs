//! Several drivers of a device at one address, and how packets are steered to them.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use super::common::{self, message, receive_packets};
use homa_driver::packet::{PacketConfig, PacketDriver};
use homa_driver::raw::{RawConfig, RawDriver};
use homa_driver::udp::{UdpConfig, UdpDriver};
use homa_driver::xdp::{XdpConfig, XdpDriver, XdpMode};
use homa_driver::{Carrier, Driver, RxBurst, TxPacket};
use homa_steer::batch::BatchCap;
use homa_testkit::namespace::{Namespace, V4, V6, pair, pair_with};

const CARRIERS: [Carrier; 2] = [Carrier::Udp, Carrier::Ip];

type Group = Vec<Box<dyn Driver>>;

fn at(ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse::<IpAddr>().unwrap(), 0)
}

fn packet_group(carrier: Carrier, ip: &str, count: u32) -> Group {
    let config = PacketConfig { carrier, bind: at(ip), ring_bytes: 8 << 20, ..PacketConfig::default() };
    let group = PacketDriver::open_group(&config, count).unwrap();
    group.into_iter().map(|driver| Box::new(driver) as _).collect()
}

fn xdp_group(carrier: Carrier, mode: XdpMode, ip: &str, count: u32) -> Vec<XdpDriver> {
    let config = XdpConfig {
        carrier,
        mode,
        bind: at(ip),
        receive_frames: 256,
        kept_frames: 64,
        ..XdpConfig::default()
    };
    let group = XdpDriver::open_group(&config, count).unwrap();
    // The drivers cache the paths to all peers, because the test threads run in a different namespace.
    for (driver, ip) in group.iter().flat_map(|driver| V4.iter().chain(&V6).map(move |ip| (driver, ip))) {
        driver.max_packet(at(ip));
    }
    group
}

/// Opens a peer that uses the kernel's sockets and sends each packet separately.
fn peer(carrier: Carrier, ip: &str) -> Box<dyn Driver> {
    let bind = at(ip);
    match carrier {
        Carrier::Udp => Box::new(
            UdpDriver::bind(&UdpConfig { bind, segmentation: false, ..UdpConfig::default() }).unwrap(),
        ),
        Carrier::Ip => Box::new(RawDriver::bind(&RawConfig { bind, ..RawConfig::default() }).unwrap()),
    }
}

/// Returns the shortest packet with an ID.
fn packet(id: u64, length: usize) -> Vec<u8> {
    let mut bytes = message(length, id as u8);
    bytes[20..28].copy_from_slice(&id.to_be_bytes());
    bytes
}

fn id_of(packet: &[u8]) -> u64 {
    u64::from_be_bytes(packet[20..28].try_into().unwrap())
}

fn ids() -> Vec<u64> {
    (0..200).map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ n).collect()
}

/// Sends a packet with each ID and checks which driver receives it.
fn check_steering(what: &str, group: &mut [Box<dyn Driver>], sender: &mut dyn Driver) {
    let to = group[0].local_addr();
    assert!(group.iter().all(|driver| driver.local_addr() == to), "{what}");
    check_steering_to(to, what, group, sender);
}

fn check_steering_to(to: SocketAddr, what: &str, group: &mut [Box<dyn Driver>], sender: &mut dyn Driver) {
    let count = group.len() as u64;
    for (n, id) in ids().into_iter().enumerate() {
        let bytes = packet(id, 60 + 7 * n % 1_300);
        assert_eq!(sender.send(&[TxPacket { to, priority: 0, header: &bytes, payload: &[] }]).unwrap(), 1);
    }
    for (number, driver) in group.iter_mut().enumerate() {
        let own = |id: &u64| u64::from(*id as u32 >> 1) % count == number as u64;
        let own: Vec<u64> = ids().into_iter().filter(own).collect();
        let got = receive_packets(&mut **driver, own.len());
        let got: Vec<u64> = got.iter().map(|(_, bytes)| id_of(bytes)).collect();
        assert_eq!(got, own, "{what}: {number} of {count}");
    }
    for driver in group {
        assert_eq!(driver.receive(&mut RxBurst::new()).unwrap(), 0, "{what}: no copies");
    }
}

#[test]
fn each_frame_comes_to_the_ring_of_its_rpc_and_none_elsewhere() {
    let Some(namespaces) = pair(1_500) else { return };
    for (carrier, ips) in CARRIERS.into_iter().flat_map(|carrier| [(carrier, V4), (carrier, V6)]) {
        for count in [1, 2, 3, 16] {
            let mut group = namespaces[0].run(move || packet_group(carrier, ips[0], count));
            let mut sender = namespaces[1].run(move || peer(carrier, ips[1]));
            check_steering(&format!("{carrier:?} {ips:?}"), &mut group, &mut *sender);
        }
    }
}

#[test]
fn rings_keep_their_numbers_when_the_device_was_down() {
    let Some(namespaces) = pair(1_500) else { return };
    let mut group = namespaces[0].run(|| packet_group(Carrier::Udp, V4[0], 3));
    namespaces[0].ip("link set v0 down").unwrap();
    namespaces[0].ip("link set v0 up").unwrap();
    let mut sender = namespaces[1].run(|| peer(Carrier::Udp, V4[1]));
    let (to, bytes) = (group[0].local_addr(), packet(0, 60));
    // Packets are lost until the path is resolved again.
    while group[0].receive(&mut RxBurst::new()).unwrap() == 0 {
        sender.send(&[TxPacket { to, priority: 0, header: &bytes, payload: &[] }]).unwrap();
        std::thread::yield_now();
    }
    while group[0].receive(&mut RxBurst::new()).unwrap() > 0 {}
    check_steering("after it was down", &mut group, &mut *sender);
}

#[test]
fn options_of_ip_shift_the_id_and_what_has_none_comes_to_the_first_ring() {
    let Some(namespaces) = pair(1_500) else { return };
    let mut group = namespaces[0].run(|| packet_group(Carrier::Udp, V4[0], 4));
    let to = group[0].local_addr();
    namespaces[1].run(move || {
        let socket = UdpSocket::bind((V4[1], 0)).unwrap();
        for length in [1, 20, 27] {
            socket.send_to(&vec![0xff; length], to).unwrap();
        }
        let no_operations = [1_u8; 8];
        // SAFETY: the kernel reads exactly the bytes of the options.
        let result = unsafe {
            let length = no_operations.len() as libc::socklen_t;
            let options = no_operations.as_ptr().cast();
            libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_OPTIONS, options, length)
        };
        assert_eq!(result, 0);
        for id in 0..8 {
            socket.send_to(&packet(2 * id, 100), to).unwrap();
        }
    });
    for (number, driver) in group.iter_mut().enumerate() {
        let first = if number == 0 { 3 } else { 0 };
        let got = receive_packets(&mut **driver, first + 2);
        let ids: Vec<u64> = got[first..].iter().map(|(_, bytes)| id_of(bytes)).collect();
        assert_eq!(ids, [2 * number as u64, 2 * number as u64 + 8]);
        assert!(got[..first].iter().all(|(_, bytes)| bytes.len() < 28));
    }
}

#[test]
fn groups_on_one_device_are_apart_and_each_has_its_port() {
    let Some(namespaces) = pair(1_500) else { return };
    let mut groups = [0, 1].map(|_| namespaces[0].run(|| packet_group(Carrier::Udp, V4[0], 2)));
    let mut sender = namespaces[1].run(|| peer(Carrier::Udp, V4[1]));
    let [a, b] = &mut groups;
    assert_ne!(a[0].local_addr(), b[0].local_addr());
    for _ in 0..2 {
        check_steering("the first", a, &mut *sender);
        check_steering("the second", b, &mut *sender);
    }
    let taken = PacketConfig { bind: a[0].local_addr(), ..PacketConfig::default() };
    for count in [1, 2] {
        let taken = taken.clone();
        let second = namespaces[0].run(move || PacketDriver::open_group(&taken, count).map(|_| ()));
        assert!(second.unwrap_err().to_string().contains("is in use"));
    }
}

#[test]
fn rings_of_loopback_are_steered_as_well() {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(why) => return homa_testkit::skip(why),
    };
    namespace.run(|| {
        let mut group = packet_group(Carrier::Udp, "127.0.0.1", 3);
        check_steering("by a socket", &mut group, &mut *peer(Carrier::Udp, "127.0.0.2"));
        let mut lone = packet_group(Carrier::Udp, "127.0.0.3", 1);
        check_steering("by a ring", &mut group, &mut *lone[0]);
    });
}

#[test]
fn each_frame_comes_to_the_socket_of_its_queue_and_rpc_and_none_elsewhere() {
    for queues in [1, 2] {
        let Some(namespaces) = pair_with(1_500, queues) else { return };
        for mode in [XdpMode::Native, XdpMode::Generic] {
            for (carrier, ips) in CARRIERS.into_iter().flat_map(|carrier| [(carrier, V4), (carrier, V6)]) {
                for count in [1, 2, 3, 16] {
                    let group = namespaces[0].run(move || xdp_group(carrier, mode, ips[0], count));
                    assert!(group.iter().all(|driver| driver.queues() == queues as usize));
                    let mut group: Group = group.into_iter().map(|driver| Box::new(driver) as _).collect();
                    let mut sender = namespaces[1].run(move || peer(carrier, ips[1]));
                    check_steering(&format!("{carrier:?} {ips:?} {mode:?}"), &mut group, &mut *sender);
                }
            }
        }
    }
}

#[test]
fn frames_go_round_whichever_driver_takes_them() {
    // Send many more packets than there are frames, first to both drivers and then to only one. Some packets
    // are copied out of their frames and some are lent.
    for queues in [1, 2] {
        let Some(namespaces) = pair_with(1_500, queues) else { return };
        for mode in [XdpMode::Native, XdpMode::Generic] {
            let mut ends = [0, 1].map(|i| namespaces[i].run(move || xdp_group(Carrier::Udp, mode, V4[i], 2)));
            for (taker, round) in [0, 1, 0, 1].into_iter().zip(1..) {
                for n in 0..1_500_u64 {
                    let number = if n % 4 == 0 { 1 - taker } else { taker };
                    let bytes = packet(4 * n + 2 * number as u64, if n % 3 == 0 { 1_200 } else { 100 });
                    // Send in both directions, so that each end's frames for sending are also reused many
                    // times.
                    for (from, to) in [(0, 1), (1, 0)] {
                        let there = ends[to][0].local_addr();
                        let packets = [TxPacket { to: there, priority: 0, header: &bytes, payload: &[] }];
                        assert_eq!(ends[from][number].send(&packets).unwrap(), 1, "round {round}");
                        let got = receive_packets(&mut ends[to][number], 1);
                        assert!(got[0].1 == bytes, "{queues} {mode:?} {n}");
                    }
                }
            }
            for driver in ends.iter().flatten() {
                assert_eq!((driver.held_frames(), driver.stats().queue_drops), (0, 0));
            }
        }
    }
}

#[test]
fn packets_in_ip_come_to_the_socket_of_their_rpc_and_to_no_other() {
    let Some(namespaces) = pair(1_500) else { return };
    for (ips, bind) in [(V4, V4[0]), (V6, V6[0]), (V4, "::"), (V6, "::")] {
        for count in [1, 2, 3] {
            let mut group: Group = namespaces[0].run(move || {
                let config = RawConfig { bind: at(bind), ..RawConfig::default() };
                let group = RawDriver::bind_group(&config, count).unwrap();
                group.into_iter().map(|driver| Box::new(driver) as _).collect()
            });
            let mut sender = namespaces[1].run(move || peer(Carrier::Ip, ips[1]));
            check_steering_to(at(ips[0]), &format!("{ips:?} {bind}"), &mut group, &mut *sender);
        }
    }
}

#[test]
fn no_driver_takes_more_at_a_time_than_the_cap_of_the_burst() {
    let Some([namespace, there]) = pair(1_500) else { return };
    let bytes: Vec<Vec<u8>> = (0..12).map(|i| message(60 + i, i as u8)).collect();
    type Open = fn() -> Box<dyn Driver>;
    let paths: [(&str, Open); 3] = [
        ("packet", || packet_group(Carrier::Ip, V4[0], 1).remove(0)),
        ("xdp", || Box::new(xdp_group(Carrier::Ip, XdpMode::Generic, V4[0], 1).remove(0))),
        ("raw", || {
            Box::new(RawDriver::bind(&RawConfig { bind: at(V4[0]), ..RawConfig::default() }).unwrap())
        }),
    ];
    let mut from = there.run(|| peer(Carrier::Ip, V4[1]));
    for (what, open) in paths {
        let mut driver = namespace.run(open);
        assert_eq!(from.send(&common::packets(at(V4[0]), 0, &bytes)).unwrap(), bytes.len());
        let (mut burst, mut got, mut most) = (RxBurst::new(), Vec::new(), 0);
        burst.set_cap(BatchCap::new(3).unwrap());
        while got.len() < bytes.len() {
            common::poll_readable(driver.poll_fd().unwrap());
            most = most.max(driver.receive(&mut burst).unwrap());
            got.extend(burst.iter().map(|(_, packet)| packet.to_vec()));
        }
        assert!((1..=3).contains(&most), "{what}: {most}");
        assert_eq!(got, bytes, "{what}");
    }
}
