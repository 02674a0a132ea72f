//! Attacks by a peer that does not hide its address: it sends from its own address and receives the replies.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use homa_proto::wire::{self, Ack, AckList, Body, Common, Data, Incarnation, Resend};

use super::{ATTACKER, Attack, Form, Place, at};

/// The port of the attacker's client.
const CLIENT_PORT: u16 = 40_000;
const SERVER_PORT: u16 = 99;

/// Time limit, long enough for a port to become free on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Maximum length of a Linux Homa message.
const LARGE: u32 = 1_000_000;

pub struct Peer {
    socket: UdpSocket,
    to: SocketAddr,
    /// Sends one packet of the attack.
    packet: fn(&mut Peer, u32),
    /// Whether the attack makes an honest call first.
    begins_honestly: bool,
    next_id: u64,
    sent: u64,
}

/// Opens the attacker's socket. The port of Linux Homa's UDP encapsulation may be in use for a moment,
/// because children that other tests have just forked may hold a copy of the previous attack's socket.
fn socket(form: Form) -> UdpSocket {
    let begin = Instant::now();
    loop {
        match UdpSocket::bind(at(ATTACKER, form.port(0))) {
            Ok(socket) => return socket,
            Err(error) => assert!(begin.elapsed() < PATIENCE, "the attacker's socket: {error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn attack(place: &Place, packet: fn(&mut Peer, u32)) -> Box<dyn Attack> {
    let socket = socket(place.form);
    socket.set_nonblocking(true).expect("a socket");
    let to = place.attacked;
    Box::new(Peer { socket, to, packet, begins_honestly: false, next_id: 1 << 20, sent: 0 })
}

/// Makes an attack by a peer that has already been answered, and is therefore verified.
pub fn proven_attack(place: &Place, packet: fn(&mut Peer, u32)) -> Box<dyn Attack> {
    let socket = socket(place.form);
    let to = place.attacked;
    Box::new(Peer { socket, to, packet, begins_honestly: true, next_id: 1 << 20, sent: 0 })
}

impl Peer {
    fn id(&mut self) -> u64 {
        self.next_id += 2;
        self.next_id
    }

    fn say(&mut self, id: u64, body: &Body, payload: usize) {
        let common = Common {
            source_port: CLIENT_PORT,
            dest_port: SERVER_PORT,
            sender_id: id,
            incarnation: Incarnation::new(7),
            bundle_endpoints: 0,
        };
        let mut packet = wire::encode(&common, body).as_slice().to_vec();
        packet.resize(packet.len() + payload, 0);
        self.sent += packet.len() as u64;
        // If the buffer is full, the packet is dropped, as in any queue.
        let _ = self.socket.send_to(&packet, self.to);
    }

    fn data(&mut self, id: u64, message_length: u32, offset: u32, payload: usize) {
        let data = Data {
            message_length,
            incoming: message_length.min(60_000),
            ack: None,
            cutoff_version: 0,
            retransmit: false,
            offset,
            response_limit: None,
        };
        self.say(id, &Body::Data(data), payload);
    }

    fn acknowledge(&mut self, id: u64) {
        let mut acks = AckList::new();
        acks.push(Ack { client_id: id, server_port: SERVER_PORT });
        let next = self.id();
        self.say(next, &Body::Ack(acks), 0);
    }
}

impl Attack for Peer {
    fn begin(&mut self) {
        if !self.begins_honestly {
            return;
        }
        // The response of 60,000 bytes is never acknowledged.
        let id = self.id();
        for offset in (0..60_000).step_by(1_000) {
            self.data(id, 60_000, offset, 1_000);
        }
        self.socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a socket");
        let mut bytes = [0; 65_536];
        let mut missing = 60;
        // If the packets are sent to a socket that nobody reads, no reply arrives.
        while missing > 0 && self.socket.recv_from(&mut bytes).is_ok() {
            let Ok(packet) = wire::decode(&bytes, 65_536) else { continue };
            match packet.body {
                Body::Data(_) => missing -= 1,
                // The host verifies the peer with a RESEND, which the peer answers.
                Body::Resend(_) if packet.common.sender_id & !1 != id => {
                    let unknown = Body::RpcUnknown(wire::UnknownReason::Unknown);
                    self.say(packet.common.sender_id ^ 1, &unknown, 0);
                }
                _ => {}
            }
        }
        self.socket.set_nonblocking(true).expect("a socket");
    }

    fn send(&mut self, n: u32) {
        (self.packet)(self, n);
    }

    fn bytes(&mut self) -> (u64, u64) {
        let mut bytes = [0; 65_536];
        let mut received = 0;
        loop {
            match self.socket.recv_from(&mut bytes) {
                Ok((length, _)) => received += length as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return (received, self.sent),
                Err(_) => {}
            }
        }
    }
}

/// Sends packets of 57 bytes from the middle of messages of maximum length.
pub fn far_first_packets(peer: &mut Peer, n: u32) {
    let id = peer.id();
    peer.data(id, LARGE, 1 + n % 900 * 1_000, 1);
}

/// Sends four large messages of which a byte arrives only once in a while.
pub fn crawling_messages(peer: &mut Peer, n: u32) {
    let id = (1 << 30) + u64::from(n % 4) * 2;
    peer.data(id, LARGE, n / 4, 1);
}

/// Sends requests that are acknowledged before any response arrives.
pub fn own_acknowledgements(peer: &mut Peer, n: u32) {
    if n.is_multiple_of(2) {
        let id = peer.id();
        peer.data(id, LARGE, 0, 1);
    } else {
        let id = peer.next_id;
        peer.acknowledge(id);
    }
}

/// Sends RESENDs for a complete response.
pub fn resends(peer: &mut Peer, _: u32) {
    let all = Resend { offset: 0, length: None, priority: 7 };
    peer.say((1 << 20) + 2, &Body::Resend(all), 0);
}

/// Sends only one byte each of two-byte requests.
pub fn half_open_short(peer: &mut Peer, _: u32) {
    let id = peer.id();
    peer.data(id, 2, 0, 1);
}

/// Starts a new large message with each packet.
pub fn many_large_at_once(peer: &mut Peer, _: u32) {
    let id = peer.id();
    peer.data(id, LARGE, 0, 1);
}

/// Sends one-byte requests with scattered IDs, whose responses are never acknowledged.
pub fn scattered_ids(peer: &mut Peer, _: u32) {
    peer.next_id += 126;
    let id = peer.id();
    peer.data(id, 1, 0, 1);
}

/// Sends NEED_ACKs for RPCs that never existed.
pub fn need_acks(peer: &mut Peer, _: u32) {
    let id = peer.id();
    peer.say(id | 1, &Body::NeedAck, 0);
}
