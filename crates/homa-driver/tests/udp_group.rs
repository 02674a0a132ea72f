//! Several UDP sockets at one address, and how packets are steered to them.

use std::net::{SocketAddr, UdpSocket};

use super::common::{hosts, message, receive_packets};
use homa_driver::udp::{BindError, UdpConfig, UdpDriver};
use homa_driver::{Driver, RxBurst, TxPacket};

fn group(bind: &str, count: u32) -> Vec<UdpDriver> {
    let config = UdpConfig { bind: bind.parse().unwrap(), ..UdpConfig::default() };
    UdpDriver::bind_group(&config, count).unwrap()
}

/// Returns the shortest packet with an ID.
fn packet(id: u64, length: usize) -> Vec<u8> {
    let mut bytes = message(length, id as u8);
    bytes[20..28].copy_from_slice(&id.to_be_bytes());
    bytes
}

fn send(from: &mut UdpDriver, to: SocketAddr, bytes: &[u8]) {
    let sent = from.send(&[TxPacket { to, priority: 0, header: bytes, payload: &[] }]);
    assert_eq!(sent.unwrap(), 1);
}

#[test]
fn each_packet_comes_to_the_socket_of_its_rpc_and_none_elsewhere() {
    for host in hosts() {
        for count in [2, 3, 4, 64] {
            let mut group = group(host, count);
            let to = group[0].local_addr();
            assert!(group.iter().all(|driver| driver.local_addr() == to));
            let mut sender =
                UdpDriver::bind(&UdpConfig { bind: host.parse().unwrap(), ..UdpConfig::default() }).unwrap();
            let ids: Vec<u64> = (0..400).map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ n).collect();
            for &id in &ids {
                send(&mut sender, to, &packet(id, 60 + (id % 700) as usize));
            }
            for (number, driver) in group.iter_mut().enumerate() {
                let own = |id: &&u64| (**id as u32 >> 1) % count == number as u32;
                let own: Vec<u64> = ids.iter().filter(own).copied().collect();
                let got = receive_packets(driver, own.len());
                let got: Vec<u64> =
                    got.iter().map(|(_, p)| u64::from_be_bytes(p[20..28].try_into().unwrap())).collect();
                assert_eq!(got, own, "{host}: socket {number} of {count}");
                assert_eq!(driver.receive(&mut RxBurst::new()).unwrap(), 0);
            }
        }
    }
}

#[test]
fn what_has_no_id_comes_to_the_first_socket() {
    let mut group = group("127.0.0.1:0", 4);
    let mut sender =
        UdpDriver::bind(&UdpConfig { bind: "127.0.0.1:0".parse().unwrap(), ..UdpConfig::default() }).unwrap();
    for length in [1, 20, 27] {
        send(&mut sender, group[0].local_addr(), &vec![0xff; length]);
    }
    assert_eq!(receive_packets(&mut group[0], 3).len(), 3);
}

#[test]
fn a_group_joins_no_other_and_a_lone_socket_shares_with_nobody() {
    let first = group("127.0.0.1:0", 2);
    let config = UdpConfig { bind: first[0].local_addr(), ..UdpConfig::default() };
    for count in [1, 2] {
        let second = UdpDriver::bind_group(&config, count);
        assert!(matches!(second, Err(BindError::InUse(at)) if at == config.bind), "{second:?}");
    }
    drop(first);
    let alone = UdpDriver::bind_group(&config, 1).unwrap();
    let stranger = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
    stranger.set_reuse_port(true).unwrap();
    assert!(stranger.bind(&config.bind.into()).is_err(), "one endpoint shares its address with nobody");
    drop(alone);
}

#[test]
fn a_stranger_who_joins_gets_no_packets() {
    let mut group = group("127.0.0.1:0", 2);
    let to = group[0].local_addr();
    let stranger = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
    stranger.set_reuse_port(true).unwrap();
    stranger.bind(&to.into()).unwrap();
    let stranger = UdpSocket::from(stranger);
    stranger.set_nonblocking(true).unwrap();
    let mut sender =
        UdpDriver::bind(&UdpConfig { bind: "127.0.0.1:0".parse().unwrap(), ..UdpConfig::default() }).unwrap();
    for id in 0..100 {
        send(&mut sender, to, &packet(2 * id, 60));
    }
    for driver in &mut group {
        assert_eq!(receive_packets(driver, 50).len(), 50);
    }
    assert!(stranger.recv(&mut [0; 100]).is_err());
}
