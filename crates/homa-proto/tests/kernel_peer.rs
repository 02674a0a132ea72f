//! Behaviour towards a Linux kernel peer, packet by packet.

use std::net::SocketAddr;

use homa_proto::wire::{self, Body, Common, Data, Incarnation, PacketType, Resend};
use homa_proto::{Config, DoneReason, Endpoint, Event, MS, Reassembly, RpcKey, RxPacket, SEC, Time};
use homa_trace::Trace;

const PORT: u16 = 99;
const CLIENT_PORT: u16 = 40_000;

struct NoMemory;

impl Reassembly for NoMemory {
    fn write(&mut self, _: RpcKey, _: u32, _: u32, _: u32, _: &[u8]) {}
}

fn peer() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 9], 0))
}

/// Our server, and a clock.
struct Server {
    endpoint: Endpoint,
    now: Time,
}

impl Server {
    fn new(incarnation: u64) -> Server {
        let config = Config { incarnation, ..Config::default() };
        let mut endpoint = Endpoint::new(config, Trace::off()).unwrap();
        endpoint.bind(PORT).unwrap();
        Server { endpoint, now: Time::from_ns(SEC) }
    }

    /// Delivers a packet of the client, and returns the types of the answers.
    fn feed(&mut self, incarnation: Incarnation, id: u64, body: &Body, payload: usize) -> Vec<PacketType> {
        let common = Common {
            source_port: CLIENT_PORT,
            dest_port: PORT,
            sender_id: id,
            incarnation,
            bundle_endpoints: 0,
        };
        let header = wire::encode(&common, body);
        let rx = RxPacket { from: peer(), bytes: &header, wire_len: header.len() + payload, priority: None };
        self.endpoint.handle_packets(self.now, [rx], &mut NoMemory);
        self.transmits()
    }

    fn transmits(&mut self) -> Vec<PacketType> {
        let mut types = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit(self.now) {
            types.push(PacketType::try_from(transmit.header[11]).unwrap());
        }
        types
    }

    fn wait(&mut self, ns: u64) {
        self.now = self.now + ns;
        while self.endpoint.poll_timeout().is_some_and(|at| at <= self.now) {
            self.endpoint.handle_timeout(self.now);
            self.transmits();
        }
    }
}

fn request(cutoff_version: u16, retransmit: bool) -> Body {
    Body::Data(Data {
        message_length: 100,
        incoming: 100,
        ack: None,
        cutoff_version,
        retransmit,
        offset: 0,
        response_limit: None,
    })
}

const EVERYTHING: Body = Body::Resend(Resend { offset: 0, length: None, priority: 7 });

/// AMO-1, AMO-4: RPC_UNKNOWN makes a kernel send the request again. A kernel repeats its RESENDs as long as
/// they are answered, which may be longer than the id is remembered.
#[test]
fn a_request_given_up_does_not_run_again_however_long_a_kernel_asks() {
    let mut server = Server::new(1_700_000_000_000);
    let id = 4_242;
    server.feed(Incarnation::NONE, id, &request(1, false), 100);
    let Some(Event::Request { rpc, .. }) = server.endpoint.poll_event() else { panic!("it runs once") };
    server.endpoint.abort(server.now, rpc);
    assert_eq!(server.endpoint.poll_event(), Some(Event::Done { rpc, reason: DoneReason::Aborted }));
    let silence_ends_it = 110 * MS;
    let mut unanswered_ns = 0;
    while unanswered_ns < silence_ends_it && server.now < Time::from_ns(30 * SEC) {
        server.wait(5 * MS);
        unanswered_ns += 5 * MS;
        let answers = server.feed(Incarnation::NONE, id, &EVERYTHING, 0);
        if answers.contains(&PacketType::RpcUnknown) {
            server.feed(Incarnation::NONE, id, &request(1, true), 100);
            unanswered_ns = 0;
        }
        assert_eq!(server.endpoint.poll_event(), None, "it runs again at {:?}", server.now);
    }
    assert!(unanswered_ns >= silence_ends_it, "the kernel is kept asking");
    assert!(server.endpoint.stats().drop_finished > 0);
}

/// AMO-4: a peer of this implementation reads the reason, and ends the RPC with it.
#[test]
fn one_of_ours_is_told_that_its_request_finished() {
    let ours = Incarnation::new(5);
    for (incarnation, answers) in [(1, vec![PacketType::RpcUnknown]), (0, vec![])] {
        let mut server = Server::new(incarnation);
        server.feed(ours, 4_242, &request(1, false), 100);
        let Some(Event::Request { rpc, .. }) = server.endpoint.poll_event() else { panic!("it runs") };
        server.endpoint.abort(server.now, rpc);
        // Without an incarnation of our own, a packet cannot contain a reason.
        assert_eq!(server.feed(ours, 4_242, &EVERYTHING, 0), answers);
    }
}

/// RESEND-13: RPC_UNKNOWN for an unknown RPC is sent to every peer.
#[test]
fn a_resend_for_what_never_ran_is_answered() {
    for incarnation in [Incarnation::NONE, Incarnation::new(5)] {
        let mut server = Server::new(1);
        assert_eq!(server.feed(incarnation, 4_242, &EVERYTHING, 0), [PacketType::RpcUnknown]);
    }
}
