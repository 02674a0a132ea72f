//! Raw IP sockets between two network namespaces.

use std::net::{IpAddr, SocketAddr};

use super::common::{message, packets, poll_readable, receive_packets, receive_priorities};
use homa_driver::raw::{BindError, RawConfig, RawDriver};
use homa_driver::{Driver, ReceiveFilter, RxBurst, UnreachableReport, UnreachableTarget};
use homa_testkit::namespace::{Namespace, V4, V6, pair};

fn host(ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), 0)
}

fn open(ip: &str) -> RawDriver {
    RawDriver::bind(&RawConfig { bind: host(ip), ..RawConfig::default() }).unwrap()
}

/// Opens a driver in each namespace, at these addresses.
fn open_in(namespaces: &[Namespace; 2], ips: [&'static str; 2]) -> [RawDriver; 2] {
    [0, 1].map(|i| namespaces[i].run(move || open(ips[i])))
}

/// Builds a packet of this type to a port, with this ack.
fn homa(port: u16, packet_type: u8, ack: u64, length: usize) -> Vec<u8> {
    let mut bytes = message(length, 1);
    bytes[..4].copy_from_slice(&[0x80, 0x01, (port >> 8) as u8, port as u8]);
    bytes[11] = packet_type;
    if length >= 44 {
        bytes[36..44].copy_from_slice(&ack.to_be_bytes());
    }
    bytes
}

const DATA: u8 = 0x10;
const GRANT: u8 = 0x11;
const ACK: u8 = 0x18;

/// A socket that receives the frames arriving at a device.
struct Wire(socket2::Socket);

impl Wire {
    /// Opens a socket for frames of this EtherType.
    fn open(ether_type: i32) -> Wire {
        let kind = socket2::Type::DGRAM;
        let protocol = i32::from((ether_type as u16).to_be());
        Wire(socket2::Socket::new(socket2::Domain::PACKET, kind, Some(protocol.into())).unwrap())
    }

    /// Returns the next packet of IP protocol 146, from its IP header on.
    fn next(&self) -> Vec<u8> {
        loop {
            let mut bytes = vec![std::mem::MaybeUninit::uninit(); 65_536];
            poll_readable(std::os::fd::AsFd::as_fd(&self.0));
            let length = self.0.recv(&mut bytes).unwrap();
            // SAFETY: the kernel has written this many bytes.
            let packet: Vec<u8> = bytes[..length].iter().map(|byte| unsafe { byte.assume_init() }).collect();
            let protocol_at = if packet[0] >> 4 == 4 { 9 } else { 6 };
            if packet[protocol_at] == 146 {
                return packet;
            }
        }
    }
}

#[test]
fn packets_fill_the_mtu_and_carry_their_priority() {
    // WIRE-15, WIRE-17: payloads of 1424 and 1404 bytes at MTU 1500, and no fragments.
    for (mtu, ips, ether_type, payload) in [
        (1_500, V4, libc::ETH_P_IP, 1_424),
        (1_500, V6, libc::ETH_P_IPV6, 1_404),
        (9_000, V4, libc::ETH_P_IP, 8_924),
        (9_000, V6, libc::ETH_P_IPV6, 8_904),
    ] {
        let Some(namespaces) = pair(mtu) else { return };
        let [mut a, mut b] = open_in(&namespaces, ips);
        let wire = namespaces[1].run(move || Wire::open(ether_type));
        let (mut a, fits) = namespaces[0].run(move || {
            let fits = a.max_packet(host(ips[1]));
            for priority in 0..8 {
                let bytes = [message(fits, priority)];
                assert_eq!(a.send(&packets(host(ips[1]), priority, &bytes)).unwrap(), 1);
            }
            let bytes = [message(fits + 1, 9)];
            assert_eq!(a.send(&packets(host(ips[1]), 7, &bytes)).unwrap(), 1, "taken and dropped");
            (a, fits)
        });
        assert_eq!(fits - 56, payload);
        assert_eq!((a.stats().send_errors.too_big, a.stats().packets_out), (1, 8));
        for priority in 0..8_u8 {
            let packet = wire.next();
            let (class, header) = match packet[0] >> 4 {
                4 => (packet[1], 20),
                _ => (packet[0] << 4 | packet[1] >> 4, 40),
            };
            assert_eq!(class, priority << 5);
            assert_eq!(packet.len(), mtu as usize, "whole, and in one piece");
            assert_eq!(packet[header..], message(fits, priority));
        }
        let got = receive_packets(&mut b, 8);
        for (priority, (from, packet)) in got.iter().enumerate() {
            assert_eq!(*from, host(ips[0]));
            assert_eq!(*packet, message(fits, priority as u8));
        }
        assert_eq!(b.stats().bytes_in, 8 * fits as u64, "IP headers do not count");
        // IPv4 sockets receive the IP header, which contains the priority.
        for (asked, priority, told) in [(false, 4, (ips == V4).then_some(4)), (true, 5, Some(5))] {
            assert!(!asked || b.tell_priorities());
            let bytes = [message(fits, priority)];
            assert_eq!(a.send(&packets(host(ips[1]), priority, &bytes)).unwrap(), 1);
            assert_eq!(receive_priorities(&mut b, 1), [told]);
        }
    }
}

#[test]
fn a_burst_of_any_sizes_arrives_in_order() {
    let Some(namespaces) = pair(1_500) else { return };
    for ips in [V4, V6] {
        let [mut a, mut b] = open_in(&namespaces, ips);
        let bytes: Vec<Vec<u8>> = (0..200).map(|i| message(28 + i * 7 % 1_400, i as u8)).collect();
        let sent = bytes.clone();
        let a = namespaces[0].run(move || {
            assert_eq!(a.send(&packets(host(ips[1]), 3, &sent)).unwrap(), 200);
            a
        });
        assert!(a.stats().send_calls <= 4, "{:?}", a.stats());
        let got = receive_packets(&mut b, 200);
        assert!(got.iter().map(|(_, packet)| packet).eq(&bytes));
        // If a busy kernel delivers packets one at a time, each needs a call.
        assert!(b.stats().receive_calls <= 200, "{:?}", b.stats());
    }
}

/// Opens a device whose other end is this test: data of any length that the test writes arrives at the
/// device. Returns an error with the reason if such a device is unavailable.
fn open_tun() -> Result<std::fs::File, String> {
    let path = "/dev/net/tun";
    let file = std::fs::File::options().read(true).write(true).open(path);
    let file = file.map_err(|error| format!("{path}: {error}"))?;
    // SAFETY: all-zero bytes are a valid value of the structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[..2].copy_from_slice(&[b't' as libc::c_char, b'0' as libc::c_char]);
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the kernel reads and writes the structure, which outlives the call.
    let made = unsafe {
        libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&file), libc::TUNSETIFF as _, &raw mut request)
    };
    if made < 0 { Err(format!("{path}: {}", std::io::Error::last_os_error())) } else { Ok(file) }
}

/// Builds an IPv4 packet of protocol 146 from 10.147.0.1 to 10.147.0.2.
fn over_ipv4(packet: &[u8]) -> Vec<u8> {
    let length = (20 + packet.len()) as u16;
    let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 146, 0, 0, 10, 147, 0, 1, 10, 147, 0, 2];
    bytes[2..4].copy_from_slice(&length.to_be_bytes());
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum = words.sum::<u32>();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend_from_slice(packet);
    bytes
}

/// Builds DATA in the format that Linux Homa passes to segmentation offload: 52 bytes of header, and then
/// each segment after its offset.
fn merged(segments: u32, part: u32) -> Vec<u8> {
    let mut packet = homa(99, DATA, 0, 52);
    packet[12] = 0xd0;
    for number in 0..segments {
        packet.extend_from_slice(&(number * part).to_be_bytes());
        packet.extend((0..part).map(|at| ((number * part + at) % 251) as u8));
    }
    packet
}

#[test]
fn a_merged_packet_arrives_as_the_packets_that_were_sent() {
    // WIRE-20
    use std::io::Write;

    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(why) => return homa_testkit::skip(why),
    };
    let mut tun = match namespace.run(open_tun) {
        Ok(tun) => tun,
        Err(why) => return homa_testkit::skip(format_args!("no device to write packets to: {why}")),
    };
    for words in ["link set t0 mtu 1500 up", "addr add 10.147.0.2/24 dev t0"] {
        namespace.ip(words).unwrap();
    }
    namespace.run(move || {
        let mut driver = open("10.147.0.2");
        let mut burst = RxBurst::new();
        let packet = merged(13, 1_424);
        assert_eq!(packet.len(), 18_616);
        tun.write_all(&over_ipv4(&packet)).unwrap();
        poll_readable(driver.poll_fd().unwrap());
        driver.receive(&mut burst).unwrap();
        assert_eq!(burst.len(), 13, "packets");
        for (number, (from, one)) in burst.iter().enumerate() {
            let offset = number as u32 * 1_424;
            assert_eq!((from, &one[..52]), (host("10.147.0.1"), &packet[..52]));
            assert_eq!(one[52..56], offset.to_be_bytes());
            assert!(
                one[56..].iter().copied().eq((offset..offset + 1_424).map(|at| (at % 251) as u8)),
                "{number}"
            );
        }
        // A packet that cannot be split is dropped; the next packet is received.
        let mut damaged = packet.clone();
        damaged[52 + 1_428] ^= 1;
        tun.write_all(&over_ipv4(&damaged)).unwrap();
        let single = homa(99, DATA, 0, 1_480);
        tun.write_all(&over_ipv4(&single)).unwrap();
        assert_eq!(receive_packets(&mut driver, 1), [(host("10.147.0.1"), single)]);
        assert_eq!(driver.stats().undivided, 1);
    });
}

#[test]
fn a_narrower_path_is_learnt() {
    let Some(namespaces) = pair(1_500) else { return };
    for ips in [V4, V6] {
        namespaces[0].ip("link set v0 mtu 1500").unwrap();
        let [a, _b] = open_in(&namespaces, ips);
        let header = if ips == V4 { 20 } else { 40 };
        let before = namespaces[0].run(move || (a.max_packet(host(ips[1])), a));
        assert_eq!(before.0, 1_500 - header);
        namespaces[0].ip("link set v0 mtu 1300").unwrap();
        let mut a = before.1;
        let after = namespaces[0].run(move || {
            let bytes = [message(1_460, 1), message(1_300 - header, 2)];
            assert_eq!(a.send(&packets(host(ips[1]), 1, &bytes)).unwrap(), 2);
            assert_eq!((a.stats().send_errors.too_big, a.stats().packets_out), (1, 1));
            a.max_packet(host(ips[1]))
        });
        assert_eq!(after, 1_300 - header);
    }
}

#[test]
fn a_machine_without_homa_is_reported_by_its_protocol() {
    // PEER-4
    let Some(namespaces) = pair(1_500) else { return };
    for ips in [V4, V6] {
        let mut a = namespaces[0].run(move || open(ips[0]));
        let a = namespaces[0].run(move || {
            let bytes = [homa(99, DATA, 0, 100)];
            assert_eq!(a.send(&packets(host(ips[1]), 1, &bytes)).unwrap(), 1);
            let mut burst = RxBurst::new();
            let report = loop {
                poll_readable(a.poll_fd().unwrap());
                assert_eq!(a.receive(&mut burst).unwrap(), 0);
                if let Some(report) = a.poll_unreachable() {
                    break report;
                }
            };
            let target = UnreachableTarget::Protocol {
                sender_id: bytes[0][20..28].try_into().ok().map(u64::from_be_bytes),
            };
            assert_eq!(report, UnreachableReport { peer: host(ips[1]), target });
            assert_eq!(a.poll_unreachable(), None);
            a
        });
        assert_eq!(a.stats().network_errors, 1);
        drop(a);
        // While a socket is open at the address, no error is reported.
        let [mut a, mut b] = open_in(&namespaces, ips);
        b.set_receive_filter(&ReceiveFilter::new([7], None)).unwrap();
        let a = namespaces[0].run(move || {
            let bytes = [homa(99, DATA, 0, 100), homa(7, DATA, 0, 100)];
            assert_eq!(a.send(&packets(host(ips[1]), 1, &bytes)).unwrap(), 2);
            a
        });
        assert_eq!(receive_packets(&mut b, 1)[0].1, homa(7, DATA, 0, 100));
        let mut a = a;
        assert_eq!(a.receive(&mut RxBurst::new()).unwrap(), 0);
        assert_eq!((a.poll_unreachable(), a.stats().network_errors), (None, 0), "{ips:?}");
    }
}

#[test]
fn a_refused_port_is_reported_with_the_packet_that_asked_for_it() {
    // PEER-4
    let Some(namespaces) = pair(1_500) else { return };
    for ips in [V4, V6] {
        // The refusing socket is bound to its own address or to all addresses.
        for bind in [ips[1], if ips == V4 { "0.0.0.0" } else { "::" }] {
            let mut a = namespaces[0].run(move || open(ips[0]));
            let mut b = namespaces[1].run(move || open(bind));
            let mut packet = homa(99, DATA, 0, 1_000);
            packet[20..28].copy_from_slice(&4_242_u64.to_be_bytes());
            let sent = packet.clone();
            let mut a = namespaces[0].run(move || {
                assert_eq!(a.send(&packets(host(ips[1]), 1, &[sent])).unwrap(), 1);
                a
            });
            namespaces[1].run(move || {
                let (from, got) = receive_packets(&mut b, 1).remove(0);
                b.refuse(from, &got);
                assert_eq!(b.poll_unreachable(), None);
            });
            poll_readable(a.poll_fd().unwrap());
            assert_eq!(a.receive(&mut RxBurst::new()).unwrap(), 0);
            let target = UnreachableTarget::Port { port: 99, sender_id: Some(4_242) };
            assert_eq!(
                a.poll_unreachable(),
                Some(UnreachableReport { peer: host(ips[1]), target }),
                "{bind}"
            );
            assert_eq!((a.poll_unreachable(), a.stats().network_errors), (None, 1));
        }
    }
}

#[test]
fn a_filter_leaves_each_process_its_own_and_acks_to_all() {
    let Some(namespaces) = pair(1_500) else { return };
    for ips in [V4, V6] {
        let [mut a, mut one] = open_in(&namespaces, ips);
        let mut two = namespaces[1].run(move || open(ips[1]));
        one.set_receive_filter(&ReceiveFilter::new([99, 40_000], None)).unwrap();
        two.set_receive_filter(&ReceiveFilter::new([100], Some(vec![99, 40_000]))).unwrap();
        let sent = vec![
            homa(99, DATA, 0, 500),
            homa(100, DATA, 0, 500),
            homa(100, DATA, 6, 500),
            homa(7, GRANT, 0, 33),
            homa(40_000, GRANT, 0, 33),
            homa(7, ACK, 0, 80),
            message(5, 1),
            homa(99, DATA, 8, 500),
        ];
        let all = sent.clone();
        namespaces[0].run(move || assert_eq!(a.send(&packets(host(ips[1]), 1, &all)).unwrap(), 8));
        let cut = |packet: &Vec<u8>| packet[..56].to_vec();
        let of = |driver: &mut RawDriver, count| -> Vec<Vec<u8>> {
            receive_packets(driver, count).into_iter().map(|(_, packet)| packet).collect()
        };
        let first = [sent[0].clone(), cut(&sent[2]), sent[4].clone(), sent[5].clone(), sent[7].clone()];
        assert_eq!(of(&mut one, 5), first, "{ips:?}");
        let second = [
            sent[1].clone(),
            sent[2].clone(),
            sent[3].clone(),
            sent[5].clone(),
            sent[6].clone(),
            cut(&sent[7]),
        ];
        assert_eq!(of(&mut two, 6), second, "{ips:?}");
        let stats = [one.stats(), two.stats()];
        assert_eq!(
            stats.map(|stats| stats.truncated),
            [0, 0],
            "a packet cut by the filter is not a damaged one"
        );
    }
}

#[test]
fn both_ip_versions_at_the_unspecified_ipv6_address() {
    let Some(namespaces) = pair(1_500) else { return };
    let mut all = namespaces[1].run(|| open("::"));
    assert_eq!(all.local_addr(), host("::"));
    let [mut four, mut six] = [V4, V6].map(|ips| namespaces[0].run(move || open(ips[0])));
    let (four, six) = namespaces[0].run(move || {
        four.send(&packets(host(V4[1]), 1, &[message(100, 4)])).unwrap();
        six.send(&packets(host(V6[1]), 1, &[message(100, 6)])).unwrap();
        (four, six)
    });
    let mut got = receive_packets(&mut all, 2);
    got.sort();
    assert_eq!(got, [(host(V4[0]), message(100, 4)), (host(V6[0]), message(100, 6))]);
    // In the opposite direction, in one burst with both versions.
    let sent = namespaces[1].run(move || {
        let bytes: Vec<Vec<u8>> = (0..6).map(|i| message(200, i)).collect();
        let mut burst = packets(host(V4[0]), 2, &bytes);
        for packet in &mut burst[2..4] {
            packet.to = host(V6[0]);
        }
        assert_eq!(all.max_packet(host(V6[0])), 1_460);
        assert_eq!(all.max_packet(host(V4[0])), 1_480);
        all.send(&burst).unwrap()
    });
    assert_eq!(sent, 6);
    let (mut four, mut six) = (four, six);
    assert_eq!(receive_packets(&mut four, 4).len(), 4);
    assert_eq!(receive_packets(&mut six, 2).len(), 2);
}

#[test]
fn two_addresses_of_one_machine_are_two_hosts() {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(why) => return homa_testkit::skip(why),
    };
    namespace.run(|| {
        let (mut a, mut b) = (open("127.0.0.1"), open("127.0.0.2"));
        let bytes: Vec<Vec<u8>> = (0..3).map(|i| message(60_000, i)).collect();
        assert_eq!(a.send(&packets(host("127.0.0.2"), 1, &bytes)).unwrap(), 3);
        let got = receive_packets(&mut b, 3);
        assert!(got.iter().map(|(_, packet)| packet).eq(&bytes));
        assert_eq!(got[0].0, host("127.0.0.1"));
        assert_eq!(a.receive(&mut RxBurst::new()).unwrap(), 0, "what is for the other is not for this one");
        // An address with a port is the same peer as one without, since raw IP has no ports.
        let port = SocketAddr::new(IpAddr::from([127, 0, 0, 2]), 9);
        assert_eq!(a.send(&packets(port, 1, &bytes[..1])).unwrap(), 1);
        assert_eq!(receive_packets(&mut b, 1)[0].0, host("127.0.0.1"));
        let error = RawDriver::bind(&RawConfig { bind: host("203.0.113.9"), ..RawConfig::default() });
        assert!(matches!(error, Err(BindError::NotLocal(_))), "{error:?}");
    });
}

#[test]
fn without_the_capability_the_error_says_what_to_do() {
    let opened = std::thread::spawn(|| {
        // Unlike the C library's function, a direct system call drops the privileges of only this thread. If
        // the thread has none, the call fails harmlessly. SAFETY: the system call takes a number.
        unsafe { libc::syscall(libc::SYS_setuid, 65_534) };
        RawDriver::bind(&RawConfig::default()).map(|_| ())
    });
    match opened.join().unwrap() {
        Err(error) => {
            assert!(matches!(error, BindError::NoCapability { .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains("CAP_NET_RAW") && text.contains("setcap"), "{text}");
            assert!(text.contains("--driver udp"), "{text}");
        }
        Ok(()) => homa_testkit::skip("this user has the capability without being root"),
    }
}
