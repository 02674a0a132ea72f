//! Endpoints for tests that inspect single packets. The test sets the time.

use std::net::SocketAddr;

use homa_proto::wire::{
    self, Ack, AckList, Body, Common, Data, Grant, Incarnation, Packet, Resend, UnknownReason,
};
use homa_proto::{
    CallOptions, Config, Endpoint, Event, Reassembly, RpcKey, RxPacket, SendError, Stats, Time,
};
use homa_trace::Trace;

/// The server port of these tests.
pub const PORT: u16 = 99;

pub fn addr(n: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, n], 14_600))
}

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub at: Time,
    pub to: SocketAddr,
    pub priority: u8,
    pub packet: Packet,
}

impl Sent {
    /// Returns the first byte and the end of the packet's payload.
    pub fn range(&self) -> Option<(u32, u32)> {
        let Body::Data(data) = self.packet.body else { return None };
        Some((data.offset, data.offset + self.packet.payload_len))
    }

    pub fn data(&self) -> Data {
        let Body::Data(data) = self.packet.body else { panic!("{} is no DATA", self.packet) };
        data
    }

    pub fn is(&self, kind: wire::PacketType) -> bool {
        self.packet.body.packet_type() == kind
    }
}

/// Written bytes: RPC, offset, length.
#[derive(Debug, Default)]
pub struct Sink {
    pub writes: Vec<(RpcKey, u32, u32)>,
}

impl Reassembly for Sink {
    fn write(&mut self, rpc: RpcKey, _: u32, offset: u32, len: u32, _: &[u8]) {
        self.writes.push((rpc, offset, len));
    }
}

/// One endpoint, and its time.
pub struct Side {
    pub addr: SocketAddr,
    pub endpoint: Endpoint,
    pub sink: Sink,
    pub now: Time,
    pub client_port: u16,
}

impl Side {
    /// Creates host `n` with one server port and one client port.
    pub fn new(n: u8, config: Config) -> Side {
        Side::traced(n, config, Trace::off())
    }

    pub fn traced(n: u8, config: Config, trace: Trace) -> Side {
        let mut endpoint = Endpoint::new(config, trace).expect("the settings are valid");
        endpoint.bind(PORT).expect("the port of a new endpoint is free");
        let client_port = endpoint.open_client_port().expect("a client port is free");
        Side { addr: addr(n), endpoint, sink: Sink::default(), now: Time::from_ns(1), client_port }
    }

    pub fn stats(&self) -> &Stats {
        self.endpoint.stats()
    }

    pub fn call(&mut self, to: SocketAddr, length: u32) -> RpcKey {
        self.try_call(to, length).expect("the endpoint takes the request")
    }

    pub fn try_call(&mut self, to: SocketAddr, length: u32) -> Result<RpcKey, SendError> {
        let options = CallOptions { cookie: 7, ..CallOptions::default() };
        self.endpoint.send_request(self.now, self.client_port, to, PORT, length, options)
    }

    pub fn respond(&mut self, rpc: RpcKey, length: u32) {
        self.endpoint.send_response(self.now, rpc, length).expect("the request is in hand");
    }

    pub fn id(&self, rpc: RpcKey) -> u64 {
        self.endpoint.rpc_id(rpc).expect("the RPC lives")
    }

    /// Returns the packets that the endpoint sends now.
    pub fn take(&mut self) -> Vec<Sent> {
        std::iter::from_fn(|| self.take_one()).collect()
    }

    pub fn take_one(&mut self) -> Option<Sent> {
        let transmit = self.endpoint.poll_transmit(self.now)?;
        let payload = transmit.payload.map_or(0, |payload| payload.len as usize);
        let packet = wire::decode(&transmit.header, transmit.header.len() + payload).expect("a valid packet");
        Some(Sent { at: self.now, to: transmit.to, priority: transmit.priority, packet })
    }

    pub fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.endpoint.poll_event()).collect()
    }

    /// Returns the requests among the pending events.
    pub fn requests(&mut self) -> Vec<RpcKey> {
        let request = |event| if let Event::Request { rpc, .. } = event { Some(rpc) } else { None };
        self.events().into_iter().filter_map(request).collect()
    }

    /// Delivers a packet whose payload is only a length.
    pub fn hear(&mut self, from: SocketAddr, packet: &Packet) {
        let header = wire::encode(&packet.common, &packet.body);
        let wire_len = header.len() + packet.payload_len as usize;
        self.hear_bytes(from, &header, wire_len);
    }

    pub fn hear_bytes(&mut self, from: SocketAddr, bytes: &[u8], wire_len: usize) {
        let packet = RxPacket { from, bytes, wire_len, priority: None };
        self.endpoint.handle_packets(self.now, [packet], &mut self.sink);
        self.endpoint.check();
    }

    /// Lets the peer answer all challenges: RESENDs for RPCs that it does not have. Returns the other packets
    /// that were sent.
    pub fn prove(&mut self, peer: &Forger) -> Vec<Sent> {
        let (asked, rest): (Vec<Sent>, Vec<Sent>) = self.take().into_iter().partition(|sent| {
            sent.to == peer.addr
                && sent.is(wire::PacketType::Resend)
                && sent.packet.common.sender_id >= MADE_UP_IDS
        });
        for sent in asked {
            let Common { source_port, dest_port, sender_id, .. } = sent.packet.common;
            let answer = Forger { port: dest_port, dest_port: source_port, ..*peer };
            self.hear(peer.addr, &answer.unknown(sender_id ^ 1, UnknownReason::Unknown));
        }
        rest
    }

    pub fn hear_all(&mut self, from: SocketAddr, packets: &[Sent]) {
        for sent in packets {
            self.hear(from, &sent.packet);
        }
    }

    /// Advances time; handles due timers and returns the packets sent then.
    pub fn pass(&mut self, ns: u64) -> Vec<Sent> {
        let until = self.now + ns;
        let mut sent = self.take();
        let mut calls = 0;
        while let Some(at) = self.endpoint.poll_timeout().filter(|&at| at <= until) {
            self.now = self.now.max(at);
            self.endpoint.handle_timeout(self.now);
            self.endpoint.check();
            sent.extend(self.take());
            calls += 1;
            assert!(calls < 100_000, "the same timeouts again and again");
        }
        self.now = until;
        sent
    }
}

/// Returns a server and a client of our kind.
pub fn pair(config: Config) -> (Side, Side) {
    let ours = |n: u8| Config { seed: n.into(), incarnation: 1_000 + u64::from(n), ..config.clone() };
    (Side::new(1, ours(1)), Side::new(2, ours(2)))
}

/// Exchanges packets between two sides until neither has any to send now; returns all of them.
pub fn exchange(a: &mut Side, b: &mut Side) -> Vec<(u8, Sent)> {
    let mut said = Vec::new();
    loop {
        let (from_a, from_b) = (a.take(), b.take());
        if from_a.is_empty() && from_b.is_empty() {
            return said;
        }
        said.extend(from_a.iter().map(|sent| (1, *sent)));
        said.extend(from_b.iter().map(|sent| (2, *sent)));
        b.hear_all(a.addr, &from_a);
        a.hear_all(b.addr, &from_b);
        assert!(said.len() < 100_000, "they never stop");
    }
}

/// Lets the peer receive a response and acknowledge it, which proves the peer (LIMIT-9).
pub fn serve_once(server: &mut Side, client: &Forger) {
    let id = 1 << 40;
    server.hear(client.addr, &client.whole(id, 1));
    let rpc = server.requests()[0];
    server.respond(rpc, 1);
    server.hear(client.addr, &client.ack(id, &[]));
    server.take();
    server.events();
    server.sink.writes.clear();
}

/// Request ids made up by tests are less than this number. Endpoints are very unlikely to choose such ids.
const MADE_UP_IDS: u64 = 1 << 42;

/// Packets of a peer without an endpoint.
#[derive(Clone, Copy)]
pub struct Forger {
    pub addr: SocketAddr,
    pub port: u16,
    pub dest_port: u16,
    pub incarnation: Incarnation,
}

/// Returns a kernel peer with a client at port 40,000.
pub fn kernel(n: u8) -> Forger {
    Forger { addr: addr(n), port: 40_000, dest_port: PORT, incarnation: Incarnation::NONE }
}

/// Returns a peer of our kind, with this incarnation.
pub fn ours(n: u8, incarnation: u64) -> Forger {
    Forger { incarnation: Incarnation::new(incarnation), ..kernel(n) }
}

impl Forger {
    /// Returns a forger for packets from a server at `PORT` to the client at `port`.
    pub fn server(self, port: u16) -> Forger {
        Forger { port: PORT, dest_port: port, ..self }
    }

    pub fn packet(&self, sender_id: u64, body: Body) -> Packet {
        let common = Common {
            source_port: self.port,
            dest_port: self.dest_port,
            sender_id,
            incarnation: self.incarnation,
            bundle_endpoints: 0,
        };
        Packet { common, body, payload_len: 0 }
    }

    /// Makes a DATA packet with bytes `[offset, offset + len)` of a message of `length` bytes, of which
    /// `unscheduled` are unscheduled.
    pub fn data(&self, sender_id: u64, length: u32, unscheduled: u32, (offset, len): (u32, u32)) -> Packet {
        let data = Data {
            message_length: length,
            incoming: unscheduled.min(length),
            ack: None,
            cutoff_version: 1,
            retransmit: false,
            offset,
            response_limit: None,
        };
        Packet { payload_len: len, ..self.packet(sender_id, Body::Data(data)) }
    }

    /// Makes a request or response of one packet.
    pub fn whole(&self, sender_id: u64, length: u32) -> Packet {
        self.data(sender_id, length, length, (0, length))
    }

    pub fn grant(&self, sender_id: u64, offset: u32, priority: u8) -> Packet {
        self.packet(sender_id, Body::Grant(Grant { offset, priority }))
    }

    pub fn resend(&self, sender_id: u64, offset: u32, length: Option<u32>) -> Packet {
        self.packet(sender_id, Body::Resend(Resend { offset, length, priority: 5 }))
    }

    pub fn unknown(&self, sender_id: u64, reason: UnknownReason) -> Packet {
        self.packet(sender_id, Body::RpcUnknown(reason))
    }

    pub fn ack(&self, sender_id: u64, more: &[u64]) -> Packet {
        let mut acks = AckList::new();
        for &client_id in more {
            acks.push(Ack { client_id, server_port: PORT });
        }
        self.packet(sender_id, Body::Ack(acks))
    }
}
