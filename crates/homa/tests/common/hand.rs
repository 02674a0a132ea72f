//! A client whose packets the test sends one by one.

use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;

use homa::Host;
use homa::proto::wire;

use super::PATIENCE;

/// A client whose packets the test sends one by one: see the [module](self).
pub struct Hand {
    pub socket: UdpSocket,
    to: SocketAddr,
    pub incarnation: u64,
}

impl Hand {
    /// Creates a client of this host.
    pub fn new(host: &Host) -> Hand {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Hand { socket, to: host.local_addr(), incarnation: 5 }
    }

    pub fn send(&self, id: u64, port: u16, body: &wire::Body, payload: &[u8]) {
        let common = wire::Common {
            source_port: 40_000,
            dest_port: port,
            sender_id: id,
            incarnation: wire::Incarnation::new(self.incarnation),
            bundle_endpoints: 0,
        };
        let header = wire::encode(&common, body);
        self.socket.send_to(&[&header[..], payload].concat(), self.to).unwrap();
    }

    /// Sends a packet that contains this part of a request.
    pub fn data(&self, id: u64, port: u16, request: &[u8], part: Range<u32>) {
        let message_length = request.len() as u32;
        let data = wire::Data {
            message_length,
            incoming: message_length,
            ack: None,
            cutoff_version: 0,
            retransmit: false,
            offset: part.start,
            response_limit: None,
        };
        let payload = &request[part.start as usize..part.end as usize];
        self.send(id, port, &wire::Body::Data(data), payload);
    }

    /// Waits until the host asks the client to verify its address, and answers (PEER-16).
    pub fn prove(&self) {
        let mut bytes = [0; 65_536];
        loop {
            let (length, _) = self.socket.recv_from(&mut bytes).expect("the host asks");
            let packet = wire::decode(&bytes[..length], length).unwrap();
            let wire::Common { sender_id, dest_port, source_port, .. } = packet.common;
            // Requests that tests make up have small IDs.
            if matches!(packet.body, wire::Body::Resend(_)) && sender_id >= 1 << 42 {
                assert_eq!(dest_port, 40_000);
                let unknown = wire::Body::RpcUnknown(wire::UnknownReason::Unknown);
                return self.send(sender_id ^ 1, source_port, &unknown, &[]);
            }
        }
    }

    /// Waits for a packet about this request for which `is` returns true.
    pub fn hear(&self, id: u64, mut is: impl FnMut(&wire::Body) -> bool) {
        let mut bytes = [0; 65_536];
        loop {
            let (length, _) = self.socket.recv_from(&mut bytes).expect("the packet comes");
            let packet = wire::decode(&bytes[..length], length).unwrap();
            if packet.common.sender_id == id | 1 && is(&packet.body) {
                return;
            }
        }
    }
}
