//! The UDP path over real sockets on loopback.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use super::common::{self, hosts, message, packets, poll_readable, receive_packets, receive_priorities};
use homa_driver::udp::{BindError, MAX_PACKET_BYTES, UdpConfig, UdpDriver};
use homa_driver::{Driver, RxBurst, TxPacket, UnreachableReport, UnreachableTarget};
use homa_steer::batch::BatchCap;
use homa_testkit::ClosedPort;

fn config(bind: &str) -> UdpConfig {
    UdpConfig { bind: bind.parse().unwrap(), ..UdpConfig::default() }
}

fn bind(address: &str) -> UdpDriver {
    UdpDriver::bind(&config(address)).unwrap()
}

#[test]
fn a_packet_arrives_whole_and_shows_its_sender() {
    for host in hosts() {
        let (mut a, mut b) = (bind(host), bind(host));
        let to = b.local_addr();
        assert_eq!(a.send(&[TxPacket { to, priority: 5, header: b"head", payload: b"payload" }]).unwrap(), 1);
        assert_eq!(receive_packets(&mut b, 1), [(a.local_addr(), b"headpayload".to_vec())]);
        assert_eq!((a.stats().packets_out, a.stats().bytes_out, a.stats().send_calls), (1, 11, 1));
        assert_eq!((b.stats().packets_in, b.stats().bytes_in), (1, 11));
    }
}

#[test]
fn packets_show_their_priority_where_that_is_asked_for_merged_ones_too() {
    let mut ways: Vec<(&str, &str)> = hosts().into_iter().map(|host| (host, host)).collect();
    if ways.len() == 2 {
        ways.push(("127.0.0.1:0", "[::]:0"));
    }
    for (from, at) in ways {
        let (mut a, mut b) = (bind(from), bind(at));
        let mut to = b.local_addr();
        to.set_ip(a.local_addr().ip());
        let bytes: Vec<Vec<u8>> = (0..3).map(|i| message(1_000, i)).collect();
        let mut send = |priority| assert_eq!(a.send(&packets(to, priority, &bytes)).unwrap(), 3);
        send(6);
        assert_eq!(receive_priorities(&mut b, 3), [None; 3], "{from} to {at}");
        assert!(b.tell_priorities());
        for priority in [6, 0, 3] {
            send(priority);
            assert_eq!(receive_priorities(&mut b, 3), [Some(priority); 3], "{from} to {at}");
        }
    }
}

#[test]
fn after_a_loss_merged_packets_have_their_priority_and_their_time() {
    for host in hosts() {
        let mut a = bind(host);
        let mut b = UdpDriver::bind(&UdpConfig { receive_buffer_bytes: 64 << 10, ..config(host) }).unwrap();
        assert!(b.tell_priorities() && b.stamp_received());
        let to = b.local_addr();
        let bytes: Vec<Vec<u8>> = (0..32).map(|i| message(1_000, i)).collect();
        let mut burst = RxBurst::new();
        let is_stamped = (0..10_000).any(|_| {
            a.send(&packets(to, 0, &bytes[..1])).unwrap();
            poll_readable(b.poll_fd().unwrap());
            b.receive(&mut burst).unwrap();
            burst.received_at(0).is_some()
        });
        assert!(is_stamped, "{host}");
        for _ in 0..32 {
            a.send(&packets(to, 0, &bytes)).unwrap();
        }
        while b.receive(&mut burst).unwrap() > 0 {}
        assert_eq!(a.send(&packets(to, 6, &bytes[..3])).unwrap(), 3);
        poll_readable(b.poll_fd().unwrap());
        assert_eq!(b.receive(&mut burst).unwrap(), 3, "they came as one datagram");
        assert!(b.stats().queue_drops > 0, "the kernel says that, too");
        for index in 0..3 {
            assert_eq!(burst.priority(index), Some(6), "{host}");
            assert!(burst.received_at(index).is_some(), "{host}");
        }
    }
}

#[test]
fn nothing_there_is_no_error_and_does_not_wait() {
    let mut driver = bind("127.0.0.1:0");
    let mut burst = RxBurst::new();
    assert!(burst.push(driver.local_addr(), b"left over"));
    assert_eq!(driver.receive(&mut burst).unwrap(), 0);
    assert!(burst.is_empty());
    assert_eq!(driver.send(&[]).unwrap(), 0);
}

#[test]
fn a_burst_of_32_takes_one_call_to_send_and_few_to_receive() {
    for host in hosts() {
        // If each packet is longer than the one before, none can be merged.
        let bytes: Vec<Vec<u8>> = (0..32).map(|i| message(60 + i, i as u8)).collect();
        let (mut a, mut b) = (bind(host), bind(host));
        assert_eq!(a.send(&packets(b.local_addr(), 0, &bytes)).unwrap(), 32);
        assert_eq!(a.stats().send_calls, 1);
        // Over loopback, the packets are in the receiver's queue when the send call returns.
        let mut burst = RxBurst::new();
        let mut got = Vec::new();
        // A driver that finds packets twice in a row then reads all available packets.
        for count in [1, 1, 30] {
            assert_eq!(b.receive(&mut burst).unwrap(), count);
            got.extend(burst.iter().map(|(_, packet)| packet.to_vec()));
        }
        assert_eq!(got, bytes);
        assert_eq!(b.receive(&mut burst).unwrap(), 0);
        assert_eq!(b.stats().receive_calls, 4);
    }
}

#[test]
fn no_more_is_taken_at_a_time_than_asked_for() {
    let mut a = bind("127.0.0.1:0");
    let bytes: Vec<Vec<u8>> = (0..12).map(|i| message(60 + i, i as u8)).collect();
    for (cap, counts) in [(1, [1; 6]), (3, [1, 1, 3, 3, 3, 1])] {
        let mut b = bind("127.0.0.1:0");
        assert_eq!(a.send(&packets(b.local_addr(), 0, &bytes)).unwrap(), bytes.len());
        let mut burst = RxBurst::new();
        burst.set_cap(BatchCap::new(cap).unwrap());
        assert_eq!(counts.map(|_| b.receive(&mut burst).unwrap()), counts, "{cap}");
    }
}

#[test]
fn runs_are_no_longer_than_asked_for() {
    let set = UdpConfig { max_segmented_bytes: 3_000, ..config("127.0.0.1:0") };
    let (mut a, mut b) = (UdpDriver::bind(&set).unwrap(), bind("127.0.0.1:0"));
    let bytes: Vec<Vec<u8>> = (0..8).map(|i| message(1_400, i as u8)).collect();
    assert_eq!(a.send(&packets(b.local_addr(), 0, &bytes)).unwrap(), bytes.len());
    let mut burst = RxBurst::new();
    assert_eq!([0; 2].map(|_| b.receive(&mut burst).unwrap()), [2, 2], "a datagram of two packets each");
}

#[test]
fn equal_packets_travel_together_and_arrive_apart() {
    for host in hosts() {
        for segmentation in [true, false] {
            let set = |host| UdpConfig { segmentation, ..config(host) };
            let (mut a, mut b) = (UdpDriver::bind(&set(host)).unwrap(), UdpDriver::bind(&set(host)).unwrap());
            let mut bytes: Vec<Vec<u8>> = (0..50).map(|i| message(1_400, i as u8)).collect();
            bytes.push(message(700, 50));
            bytes.push(message(1_400, 51));
            assert_eq!(a.send(&packets(b.local_addr(), 3, &bytes)).unwrap(), bytes.len());
            let got = receive_packets(&mut b, bytes.len());
            assert!(got.iter().map(|(_, packet)| packet).eq(&bytes), "{host} {segmentation}");
            assert_eq!(b.stats().packets_in, 52);
            // 64 packets are processed in one call, merged or not.
            assert_eq!(a.stats().send_calls, 1);
            if segmentation {
                assert_eq!(b.stats().receive_calls, 3, "46, 5 and 1 packets are a datagram each");
            }
        }
    }
}

#[test]
fn runs_to_several_peers_keep_apart() {
    let mut a = bind("127.0.0.1:0");
    let (mut b, mut c) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    let bytes: Vec<Vec<u8>> = (0..200).map(|i| message(300, i as u8)).collect();
    let mut all = packets(b.local_addr(), 2, &bytes);
    for (i, packet) in all.iter_mut().enumerate() {
        if i % 5 > 2 {
            packet.to = c.local_addr();
        }
    }
    assert_eq!(a.send(&all).unwrap(), 200);
    let (to_b, to_c) = (receive_packets(&mut b, 120), receive_packets(&mut c, 80));
    let expect =
        |odd: bool| bytes.iter().enumerate().filter(move |(i, _)| (i % 5 > 2) == odd).map(|(_, bytes)| bytes);
    assert!(to_b.iter().map(|(_, packet)| packet).eq(expect(false)));
    assert!(to_c.iter().map(|(_, packet)| packet).eq(expect(true)));
}

/// Returns the type of service or traffic class of the next packet received on a plain socket.
fn received_dscp(socket: &UdpSocket) -> u8 {
    poll_readable(socket.as_fd());
    let mut byte = [0_u8; 64];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: byte.len() };
    let mut control = [0_u64; 16];
    // SAFETY: all-zero bytes are a valid value of the structure: null pointers and zero lengths.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the socket is open. The header points to buffers of the correct lengths, which outlive the
    // call.
    assert!(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) } >= 0);
    // SAFETY: the kernel has filled the control buffer and its length.
    let message = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    assert!(!message.is_null(), "no control message");
    // SAFETY: not null, so it is a complete control message. The data of IP_TOS is one byte, and that of
    // IPV6_TCLASS begins with the byte in little-endian order.
    unsafe {
        match ((*message).cmsg_level, (*message).cmsg_type) {
            (libc::IPPROTO_IP, libc::IP_TOS) => *libc::CMSG_DATA(message),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                libc::CMSG_DATA(message).cast::<i32>().read_unaligned() as u8
            }
            other => panic!("unexpected control message {other:?}"),
        }
    }
}

#[test]
fn the_priority_arrives_in_the_dscp_field() {
    let mut pairs: Vec<(&str, &str)> = hosts().into_iter().map(|host| (host, host)).collect();
    if pairs.len() > 1 {
        pairs.push(("[::]:0", "127.0.0.1:0"));
    }
    for (from, at) in pairs {
        let mut driver = bind(from);
        let plain = UdpSocket::bind(at).unwrap();
        let option = socket2::SockRef::from(&plain);
        match plain.local_addr().unwrap() {
            SocketAddr::V4(_) => option.set_recv_tos_v4(true).unwrap(),
            SocketAddr::V6(_) => option.set_recv_tclass_v6(true).unwrap(),
        }
        let to = plain.local_addr().unwrap();
        let sent: Vec<_> =
            (0..8).map(|priority| TxPacket { to, priority, header: b"h", payload: b"" }).collect();
        assert_eq!(driver.send(&sent).unwrap(), 8);
        for priority in 0..8 {
            assert_eq!(received_dscp(&plain), priority << 5, "priority {priority} from {from} to {at}");
        }
        // Single packets, in sequences long enough for the socket to adopt their priority, with other
        // priorities in between.
        let payload = [7; 3_000];
        for priority in [5_u8, 0, 7] {
            for turn in 0..30 {
                let length = if turn % 7 == 3 { 3_000 } else { 100 };
                let one = TxPacket { to, priority, header: b"h", payload: &payload[..length] };
                let other = TxPacket { priority: 2, ..one };
                assert_eq!(driver.send(&[one]).unwrap(), 1);
                assert_eq!(received_dscp(&plain), priority << 5, "turn {turn} from {from} to {at}");
                if turn % 10 == 9 {
                    assert_eq!(driver.send(&[one, other]).unwrap(), 2);
                    assert_eq!([0, 1].map(|_| received_dscp(&plain)), [priority << 5, 2 << 5]);
                    assert_eq!(driver.send(&[other]).unwrap(), 1);
                    assert_eq!(received_dscp(&plain), 2 << 5);
                }
            }
        }
    }
}

#[test]
fn a_dual_socket_talks_to_both_kinds_of_peers() {
    if hosts().len() < 2 {
        return;
    }
    let mut dual = bind("[::]:0");
    let port = dual.local_addr().port();
    for (host, to) in [
        ("127.0.0.1:0", ([127, 0, 0, 1], port).into()),
        ("[::1]:0", format!("[::1]:{port}").parse().unwrap()),
    ] {
        let mut peer = bind(host);
        assert_eq!(peer.send(&[TxPacket { to, priority: 1, header: b"ping", payload: b"" }]).unwrap(), 1);
        let from = receive_packets(&mut dual, 1)[0].0;
        assert_eq!(from, peer.local_addr(), "mapped addresses do not show");
        assert_eq!(
            dual.send(&[TxPacket { to: from, priority: 1, header: b"pong", payload: b"" }]).unwrap(),
            1
        );
        assert_eq!(receive_packets(&mut peer, 1)[0].1, b"pong");
    }
}

#[test]
fn the_largest_packet_arrives_and_one_byte_more_does_not() {
    for host in hosts() {
        let (mut a, mut b) = (bind(host), bind(host));
        let to = b.local_addr();
        let largest = a.max_packet(to);
        assert!(largest <= MAX_PACKET_BYTES);
        let bytes = [message(largest, 1), message(65_600, 2), message(100, 3)];
        assert_eq!(
            a.send(&packets(to, 0, &bytes)).unwrap(),
            3,
            "a packet too big is taken, and those behind it go"
        );
        let got = receive_packets(&mut b, 2);
        assert!(got[0].1 == bytes[0] && got[1].1 == bytes[2]);
        assert_eq!((a.stats().packets_out, a.stats().send_errors.too_big), (2, 1));
        assert_eq!(a.max_packet(to), largest, "a packet longer than it should be says nothing of the path");
    }
}

#[test]
fn the_configured_cap_bounds_packets_on_wide_paths() {
    let driver = UdpDriver::bind(&UdpConfig { max_packet_bytes: 9_000, ..config("127.0.0.1:0") }).unwrap();
    assert_eq!(driver.max_packet("127.0.0.1:9".parse().unwrap()), 9_000);
    let driver = UdpDriver::bind(&UdpConfig { max_packet_bytes: 1 << 30, ..config("127.0.0.1:0") }).unwrap();
    assert!(driver.max_packet("127.0.0.1:9".parse().unwrap()) <= MAX_PACKET_BYTES);
}

#[test]
fn a_port_without_a_listener_is_reported_once_and_the_descriptor_falls_silent() {
    for host in hosts() {
        let mut driver = bind(host);
        let closed = ClosedPort::udp(host);
        let to = closed.address();
        assert_eq!(
            driver.send(&[TxPacket { to, priority: 0, header: b"anyone?", payload: b"" }]).unwrap(),
            1
        );
        poll_readable(driver.poll_fd().unwrap());
        assert_eq!(driver.receive(&mut RxBurst::new()).unwrap(), 0);
        let report = driver.poll_unreachable();
        assert!(
            matches!(report, Some(UnreachableReport { peer, target: UnreachableTarget::Peer { .. } }) if peer == to),
            "{report:?}"
        );
        assert_eq!(driver.poll_unreachable(), None);
        assert_eq!(driver.stats().network_errors, 1);
        assert!(
            !common::is_readable(driver.poll_fd().unwrap()),
            "a report left behind would make the caller spin"
        );
    }
}

#[test]
fn dead_peers_do_not_stop_packets_to_the_living() {
    for host in hosts() {
        let (mut a, mut b) = (bind(host), bind(host));
        let closed = ClosedPort::udp(host);
        let (alive, dead) = (b.local_addr(), closed.address());
        let bytes: Vec<Vec<u8>> = (0..100).map(|i| message(80, i as u8)).collect();
        let mut all = packets(alive, 0, &bytes);
        all.iter_mut().step_by(3).for_each(|packet| packet.to = dead);
        assert_eq!(a.send(&all).unwrap(), 100);
        let expect: Vec<_> =
            bytes.iter().enumerate().filter(|(i, _)| i % 3 != 0).map(|(_, bytes)| bytes).collect();
        let got = receive_packets(&mut b, expect.len());
        assert!(got.iter().map(|(_, packet)| packet).eq(expect));
        assert_eq!(a.receive(&mut RxBurst::new()).unwrap(), 0);
        let report = a.poll_unreachable();
        assert!(
            matches!(report, Some(UnreachableReport { peer, target: UnreachableTarget::Peer { .. } }) if peer == dead),
            "{report:?}"
        );
        assert!(!common::is_readable(a.poll_fd().unwrap()));
    }
}

#[test]
fn a_report_about_one_packet_does_not_cost_the_next() {
    for host in hosts() {
        let (mut a, mut b) = (bind(host), bind(host));
        let closed = ClosedPort::udp(host);
        let (alive, dead) = (b.local_addr(), closed.address());
        let bytes: Vec<Vec<u8>> = (0..5).map(|i| message(80 + i, i as u8)).collect();
        let mut all = packets(alive, 0, &bytes);
        all[0].to = dead;
        // In separate calls, sending the second packet returns the error; in one call, the error ends the
        // call early.
        for calls in [vec![&all[..1], &all[1..2], &all[2..]], vec![&all[..]]] {
            calls.into_iter().for_each(|packets| assert_eq!(a.send(packets).unwrap(), packets.len()));
            let got = receive_packets(&mut b, 4);
            assert!(got.iter().map(|(_, packet)| packet).eq(&bytes[1..]));
            assert_eq!(a.stats().send_errors.total(), 0);
            assert_eq!(a.receive(&mut RxBurst::new()).unwrap(), 0);
            let report = a.poll_unreachable();
            assert!(
                matches!(report, Some(UnreachableReport { peer, target: UnreachableTarget::Peer { .. } }) if peer == dead),
                "{report:?}"
            );
            assert!(
                !common::is_readable(a.poll_fd().unwrap()),
                "a report left behind would make the caller spin"
            );
        }
    }
}

#[test]
fn a_peer_that_the_socket_cannot_address_is_counted_and_passed() {
    let (mut a, mut b) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    let bytes = [message(50, 1), message(50, 2)];
    let mut all = packets(b.local_addr(), 0, &bytes);
    all[0].to = "[::1]:9".parse().unwrap();
    assert_eq!(a.send(&all).unwrap(), 2);
    assert_eq!(receive_packets(&mut b, 1)[0].1, bytes[1]);
    assert_eq!((a.stats().send_errors.other, a.stats().send_errors.total()), (1, 1));
}

#[test]
fn a_forbidden_destination_is_counted_and_passed() {
    let (mut a, mut b) = (bind("0.0.0.0:0"), bind("127.0.0.1:0"));
    let bytes = [message(50, 1), message(50, 2)];
    let mut all = packets(b.local_addr(), 0, &bytes);
    all[0].to = "255.255.255.255:9".parse().unwrap();
    assert_eq!(a.send(&all).unwrap(), 2);
    assert_eq!(receive_packets(&mut b, 1)[0].1, bytes[1]);
    let errors = a.stats().send_errors;
    assert_eq!((errors.denied + errors.unreachable, errors.total()), (1, 1), "{errors:?}");
}

#[test]
fn what_the_kernel_drops_for_want_of_room_is_counted() {
    let mut a = bind("127.0.0.1:0");
    let mut b = UdpDriver::bind(&UdpConfig { receive_buffer_bytes: 8_192, ..config("127.0.0.1:0") }).unwrap();
    let bytes: Vec<Vec<u8>> = (0..200).map(|i| message(1_000 + i, i as u8)).collect();
    assert_eq!(a.send(&packets(b.local_addr(), 0, &bytes)).unwrap(), 200);
    let mut burst = RxBurst::new();
    while b.receive(&mut burst).unwrap() > 0 {}
    // The kernel attaches the count to packets that arrive after the drops.
    assert_eq!(a.send(&packets(b.local_addr(), 0, &bytes[..1])).unwrap(), 1);
    receive_packets(&mut b, 1);
    let stats = b.stats();
    assert!(stats.queue_drops > 0);
    assert_eq!(stats.packets_in + stats.queue_drops, 201);
}

#[test]
fn buffer_sizes_are_those_of_the_socket() {
    let wanted =
        UdpConfig { send_buffer_bytes: 50_000, receive_buffer_bytes: 60_000, ..config("127.0.0.1:0") };
    let sizes = UdpDriver::bind(&wanted).unwrap().buffer_sizes().unwrap();
    assert_eq!((sizes.send_bytes, sizes.receive_bytes), (50_000, 60_000));
    assert_eq!((sizes.send_wanted_bytes, sizes.receive_wanted_bytes), (50_000, 60_000));
}

#[test]
fn bind_errors_name_the_culprit() {
    let holder = bind("127.0.0.1:0");
    let taken = holder.local_addr();
    let error = UdpDriver::bind(&config(&taken.to_string())).unwrap_err();
    assert!(matches!(error, BindError::InUse(address) if address == taken), "{error}");
    // TEST-NET-3 addresses belong to no host.
    let error = UdpDriver::bind(&config("203.0.113.77:0")).unwrap_err();
    assert!(matches!(error, BindError::NotLocal(_)), "{error}");
}

#[test]
fn loopback_has_no_link_speed() {
    assert_eq!(bind("127.0.0.1:0").link_mbps(), None);
}
