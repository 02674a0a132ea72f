//! Linux Homa's UDP encapsulation: one socket for several drivers, which hand packets over to each other.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::freed_port::open_when_free;
use homa_driver::linux_udp::{BindError, LinuxUdpConfig, LinuxUdpDriver};
use homa_driver::{
    Driver, HandedPacket, LINUX_UDP_PORT, ReceiveFilter, RxBurst, TxPacket, UnreachableReport,
    UnreachableTarget,
};
use homa_testkit::namespace::Namespace;

/// Time limit that no event exceeds, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test in a network namespace of its own.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    match Namespace::new() {
        Ok(namespace) => namespace.run(test),
        Err(why) => homa_testkit::skip(why),
    }
}

fn bind(ip: &str) -> Result<LinuxUdpDriver, BindError> {
    let bind = SocketAddr::new(ip.parse().unwrap(), 0);
    LinuxUdpDriver::bind(&LinuxUdpConfig { bind, ..LinuxUdpConfig::default() })
}

/// Binds to a port that this test has just closed.
fn bind_freed(ip: &str) -> LinuxUdpDriver {
    open_when_free(|| bind(ip), |error| matches!(error, BindError::LinuxUdpTaken(_)))
}

/// Creates a driver that does not receive from the socket, as member `slot` of a group.
fn member(slot: u32) -> LinuxUdpDriver {
    let mut driver = bind("127.0.0.1").unwrap();
    driver.set_receive_filter(&ReceiveFilter::new([], None)).unwrap();
    driver.exchange().unwrap().join("test", slot).unwrap();
    driver
}

fn here() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], LINUX_UDP_PORT))
}

fn send(driver: &mut LinuxUdpDriver, to: SocketAddr, bytes: &[u8]) {
    assert_eq!(driver.send(&[TxPacket { to, priority: 5, header: bytes, payload: &[] }]).unwrap(), 1);
}

/// Returns the next burst with packets.
fn next_burst(driver: &mut LinuxUdpDriver) -> RxBurst {
    let (mut burst, begin) = (RxBurst::new(), Instant::now());
    while driver.receive(&mut burst).unwrap() == 0 {
        assert!(begin.elapsed() < PATIENCE, "no packets");
        std::thread::yield_now();
    }
    burst
}

fn next_packet(driver: &mut LinuxUdpDriver) -> (SocketAddr, Vec<u8>) {
    let burst = next_burst(driver);
    assert_eq!(burst.len(), 1);
    let (from, bytes) = burst.get(0).unwrap();
    (from, bytes.to_vec())
}

/// WIRE-27, WIRE-28.
#[test]
fn drivers_share_the_port_and_what_waits_in_it_outlives_each() {
    in_namespace(|| {
        let mut first = bind("127.0.0.1").unwrap();
        let mut second = member(1);
        let mut peer = bind("127.0.0.2").unwrap();
        let there = SocketAddr::from(([127, 0, 0, 2], LINUX_UDP_PORT));
        for driver in [&mut first, &mut second] {
            send(driver, there, b"from either");
            assert_eq!(next_packet(&mut peer), (here(), b"from either".to_vec()));
        }
        send(&mut peer, here(), b"waits");
        drop(first);
        let mut burst = RxBurst::new();
        assert_eq!(second.receive(&mut burst).unwrap(), 0, "it does not receive from the socket");
        second.set_receive_filter(&ReceiveFilter::accept_all()).unwrap();
        assert_eq!(next_packet(&mut second), (there, b"waits".to_vec()));
        let third = bind("127.0.0.1").unwrap();
        drop(second);
        assert_eq!(third.local_addr(), here());
    });
}

/// Each packet has the priority that its own driver chose, although the drivers send through one socket.
#[test]
fn drivers_that_share_the_port_keep_their_own_priorities() {
    in_namespace(|| {
        let (mut first, mut second, mut peer) =
            (bind("127.0.0.1").unwrap(), member(1), bind("127.0.0.2").unwrap());
        let there = SocketAddr::from(([127, 0, 0, 2], LINUX_UDP_PORT));
        assert!(peer.tell_priorities());
        // A socket of one driver alone would adopt priority 5 by now.
        for _ in 0..30 {
            send(&mut first, there, b"first");
            assert_eq!(next_burst(&mut peer).priority(0), Some(5));
        }
        let packet = TxPacket { to: there, priority: 0, header: b"second", payload: &[] };
        assert_eq!(second.send(&[packet]).unwrap(), 1);
        assert_eq!(next_burst(&mut peer).priority(0), Some(0));
    });
}

/// WIRE-29: a host of this project over UDP has its own port, and is answered at that port.
#[test]
fn packets_from_other_ports_keep_their_sender() {
    in_namespace(|| {
        let mut driver = bind("127.0.0.1").unwrap();
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        other.send_to(b"hello", here()).unwrap();
        let (from, bytes) = next_packet(&mut driver);
        assert_eq!((from, &bytes[..]), (other.local_addr().unwrap(), &b"hello"[..]));
        send(&mut driver, from, b"and back");
        let mut buffer = [0; 20];
        let (length, from) = other.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..length], from), (&b"and back"[..], here()));
    });
}

/// WIRE-28.
#[test]
fn a_port_that_is_not_shared_is_an_error() {
    in_namespace(|| {
        let other = UdpSocket::bind(("127.0.0.1", LINUX_UDP_PORT)).unwrap();
        assert!(matches!(bind("127.0.0.1"), Err(BindError::LinuxUdpTaken(address)) if address == here()));
        drop(other);
        let one = bind_freed("127.0.0.1");
        // A port that is taken at one address cannot be bound at all addresses.
        assert!(matches!(bind("0.0.0.0"), Err(BindError::LinuxUdpTaken(_))));
        drop(one);
        let all = bind_freed("0.0.0.0");
        let part = bind("127.0.0.3").unwrap();
        assert_eq!(part.local_addr(), SocketAddr::from(([127, 0, 0, 3], LINUX_UDP_PORT)));
        drop((all, part));
    });
}

/// HOST-13.
#[test]
fn packets_are_handed_over_as_they_came() {
    in_namespace(|| {
        let (mut reader, mut other, mut third) = (member(0), member(1), member(63));
        let from = SocketAddr::from(([10, 9, 8, 7], LINUX_UDP_PORT));
        let packet = |number: u8, length: usize| vec![number; length];
        // A run of equal-length packets, a shorter packet that ends the run, and a longer one.
        let sent = [packet(1, 1_000), packet(2, 1_000), packet(3, 10), packet(4, 10), packet(5, 60_000)];
        let exchange = reader.exchange().unwrap();
        for (number, bytes) in sent.iter().enumerate() {
            let priority = (number < 4).then_some(6);
            let packet = HandedPacket { from, priority, received_at: Some(77), bytes };
            // The last packet is for both members.
            exchange.hand_over(if number == 4 { 1 << 1 | 1 << 63 } else { 1 << 1 }, &packet);
        }
        exchange.flush();
        let mut got = Vec::new();
        while got.len() < sent.len() {
            let burst = next_burst(&mut other);
            assert!(burst.is_handed_over());
            for (index, (peer, bytes)) in burst.iter().enumerate() {
                assert_eq!((peer, burst.received_at(index)), (from, Some(77)));
                assert_eq!(burst.priority(index), (got.len() < 4).then_some(6));
                got.push(bytes.to_vec());
            }
        }
        assert_eq!(got, sent);
        assert_eq!(next_packet(&mut third), (from, sent[4].clone()));
        let counts = reader.stats();
        assert_eq!((counts.handed_over, counts.hand_over_drops), (6, 0));
        assert_eq!((other.stats().taken_over, other.stats().packets_in), (5, 0));
        // Packets for a member that has ended are dropped, and so are those for a slot without a member.
        drop(other);
        let packet = HandedPacket { from, priority: None, received_at: None, bytes: b"lost" };
        reader.exchange().unwrap().hand_over(1 << 1 | 1 << 2, &packet);
        reader.exchange().unwrap().flush();
        assert_eq!(reader.stats().hand_over_drops, 2);
        let mut heir = member(1);
        let begin = Instant::now();
        while reader.stats().handed_over == 6 {
            let packet = HandedPacket { from, priority: None, received_at: None, bytes: b"heir" };
            reader.exchange().unwrap().hand_over(1 << 1, &packet);
            reader.exchange().unwrap().flush();
            assert!(begin.elapsed() < PATIENCE, "the next process of the slot gets its packets");
        }
        assert_eq!(next_packet(&mut heir), (from, b"heir".to_vec()));
    });
}

/// HOST-13.
#[test]
fn a_process_that_takes_nothing_costs_its_own_packets_and_no_others() {
    in_namespace(|| {
        let (mut reader, _stopped, mut other) = (member(0), member(1), member(2));
        let from = SocketAddr::from(([10, 9, 8, 7], LINUX_UDP_PORT));
        let packet = HandedPacket { from, priority: None, received_at: None, bytes: &[7; 1_400] };
        while reader.stats().hand_over_drops == 0 {
            reader.exchange().unwrap().hand_over(1 << 1, &packet);
        }
        let exchange = reader.exchange().unwrap();
        exchange.hand_over(1 << 2, &packet);
        exchange.flush();
        assert_eq!(next_packet(&mut other), (from, packet.bytes.to_vec()));
    });
}

/// HOST-14.
#[test]
fn packets_of_one_sender_do_not_wait_for_the_backlog_of_another() {
    const GREEDY: usize = 4_000;
    in_namespace(|| {
        let mut driver = bind("127.0.0.1").unwrap();
        let [greedy, honest] = ["127.0.0.2", "127.0.0.3"].map(|ip| UdpSocket::bind((ip, 0)).unwrap());
        for number in 0..GREEDY as u32 {
            greedy.send_to(&number.to_be_bytes(), here()).unwrap();
        }
        honest.send_to(b"honest", here()).unwrap();
        let (mut before_honest, mut in_order) = (None, 0);
        let mut burst = RxBurst::new();
        // Sent over loopback, all packets wait in the socket by now.
        while in_order < GREEDY {
            assert!(driver.receive(&mut burst).unwrap() > 0, "after {in_order} packets");
            for (from, bytes) in &burst {
                if from == greedy.local_addr().unwrap() {
                    assert_eq!(bytes, (in_order as u32).to_be_bytes());
                    in_order += 1;
                } else {
                    before_honest = Some(in_order);
                }
            }
            // The descriptor does not show these packets, so nobody may sleep on it.
            assert!(before_honest.is_none() || in_order == GREEDY || driver.poll_timeout() == Some(0));
        }
        assert!(before_honest.is_some_and(|packets| packets < 1_000), "{before_honest:?}");
        assert_eq!(driver.receive(&mut burst).unwrap(), 0);
        assert_eq!((driver.poll_timeout(), driver.stats().backlog_drops), (None, 0));
    });
}

/// HOST-13, WIRE-30.
#[test]
fn a_report_goes_to_the_process_whose_port_it_quotes() {
    in_namespace(|| {
        let (mut reader, mut other) = (member(0), member(1));
        reader.set_receive_filter(&ReceiveFilter::accept_all()).unwrap();
        // A packet from port 40000 to port 99, with an RPC ID, for an address without the UDP encapsulation.
        let mut packet = [0; 56];
        packet[..4].copy_from_slice(&[0x9c, 0x40, 0, 99]);
        packet[20..28].copy_from_slice(&1_234_u64.to_be_bytes());
        let peer = SocketAddr::from(([127, 0, 0, 9], LINUX_UDP_PORT));
        send(&mut other, peer, &packet);
        let expected =
            UnreachableReport { peer, target: UnreachableTarget::Port { port: 99, sender_id: Some(1_234) } };
        let (mut burst, begin) = (RxBurst::new(), Instant::now());
        // The driver that reads the report from the socket also uses it.
        loop {
            reader.receive(&mut burst).unwrap();
            if let Some(port) = reader.exchange().unwrap().next_report() {
                assert_eq!(port, 40_000);
                break;
            }
            assert!(begin.elapsed() < PATIENCE, "no report");
            std::thread::yield_now();
        }
        assert_eq!(reader.poll_unreachable(), Some(expected));
        assert_eq!(other.poll_unreachable(), None);
        reader.exchange().unwrap().hand_over_report(1 << 1);
        while other.poll_unreachable() != Some(expected) {
            other.receive(&mut burst).unwrap();
            assert!(begin.elapsed() < PATIENCE, "no report");
            std::thread::yield_now();
        }
    });
}
