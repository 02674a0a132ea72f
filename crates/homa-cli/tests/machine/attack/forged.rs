//! Attacks by a host that receives no packets: it sends packets and ICMP reports with forged source
//! addresses.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use homa_proto::wire::{self, Body, Common, Data, Incarnation};

use super::{Attack, Place};

pub struct Forger {
    socket: rustix::fd::OwnedFd,
    attacked: SocketAddrV4,
    client: SocketAddrV4,
    packet: fn(&Forger, u32),
}

pub fn attack(place: &Place, packet: fn(&Forger, u32)) -> Box<dyn Attack> {
    use rustix::net::{AddressFamily, SocketType, ipproto, socket};
    let v4 = |address: SocketAddr| match address {
        SocketAddr::V4(v4) => v4,
        SocketAddr::V6(_) => unreachable!("the namespaces' addresses are given here"),
    };
    // The packets contain their own IP headers.
    let socket = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW)).expect("a raw socket");
    Box::new(Forger { socket, attacked: v4(place.attacked), client: v4(place.client), packet })
}

impl Attack for Forger {
    fn send(&mut self, n: u32) {
        (self.packet)(self, n);
    }
}

const UDP: u8 = 17;
const ICMP: u8 = 1;

/// Builds an IPv4 packet. The kernel sets its checksum and length.
fn ip(protocol: u8, from: Ipv4Addr, to: Ipv4Addr, content: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
    packet[2..4].copy_from_slice(&((20 + content.len()) as u16).to_be_bytes());
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(content);
    packet
}

/// Builds a UDP packet without a checksum.
fn udp(from: SocketAddrV4, to: SocketAddrV4, content: &[u8]) -> Vec<u8> {
    let length = (8 + content.len()) as u16;
    let header = [from.port(), to.port(), length, 0].map(u16::to_be_bytes).concat();
    ip(UDP, *from.ip(), *to.ip(), &[&header, content].concat())
}

/// Computes the checksum of RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], *two.get(1).unwrap_or(&0)])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded + (folded >> 16)) as u16)
}

fn homa(ports: (u16, u16), id: u64, incarnation: u64, body: &Body, payload: usize) -> Vec<u8> {
    let incarnation = Incarnation::new(incarnation);
    let common =
        Common { source_port: ports.0, dest_port: ports.1, sender_id: id, incarnation, bundle_endpoints: 0 };
    let mut packet = wire::encode(&common, body).as_slice().to_vec();
    packet.resize(packet.len() + payload, 0);
    packet
}

impl Forger {
    fn put(&self, packet: &[u8], to: SocketAddrV4) {
        // If the buffer is full, the packet is dropped, as in any queue.
        let _ = rustix::net::sendto(&self.socket, packet, rustix::net::SendFlags::empty(), &to);
    }

    /// Sends the client's host an ICMP report about a packet to the server. The forger knows the addresses
    /// and guesses the rest of the packet.
    fn report(&self, kind: [u8; 2], rest: [u8; 4], n: u32) {
        let guess = homa((32_768, 99), u64::from(n) * 2, 7, &Body::Busy, 0);
        let quoted = udp(self.client, self.attacked, &guess);
        let mut content = [&kind[..], &[0, 0], &rest, &quoted[..quoted.len().min(56)]].concat();
        let sum = checksum(&content);
        content[2..4].copy_from_slice(&sum.to_be_bytes());
        self.put(&ip(ICMP, *self.attacked.ip(), *self.client.ip(), &content), self.client);
    }
}

/// Pretends that the client's host restarts repeatedly.
pub fn restart_of_client(forger: &Forger, n: u32) {
    let data = Data {
        message_length: 1,
        incoming: 1,
        ack: None,
        cutoff_version: 0,
        retransmit: false,
        offset: 0,
        response_limit: None,
    };
    let life = (1 << 39) + u64::from(n);
    let request = homa((32_768, 99), u64::from(n) * 2 + 2, life, &Body::Data(data), 1);
    forger.put(&udp(forger.client, forger.attacked, &request), forger.attacked);
}

/// Pretends that the server's host restarts repeatedly.
pub fn restart_of_server(forger: &Forger, n: u32) {
    let busy = homa((99, 32_768), u64::from(n) * 2 + 1, (1 << 39) + u64::from(n), &Body::Busy, 0);
    forger.put(&udp(forger.attacked, forger.client, &busy), forger.client);
}

/// Pretends that a router forwards only packets of up to 600 bytes.
pub fn narrow_path(forger: &Forger, n: u32) {
    forger.report([3, 4], [0, 0, 2, 88], n);
}

/// Pretends that the server's port is unreachable.
pub fn unreachable(forger: &Forger, n: u32) {
    forger.report([3, 3], [0; 4], n);
}
