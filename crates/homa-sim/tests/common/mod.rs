//! An application that records its events, and helpers for the protocol tests.
#![allow(dead_code, reason = "each test file uses its part")]

use homa_proto::wire::{Body, Packet, PacketType};
use homa_proto::{CallOptions, DoneReason, RpcError, RpcKey, Time};
use homa_sim::{App, CapturedPacket, Fate, HostCtx, Network, NetworkConfig, Reply};

pub const PORT: u16 = 99;

/// The response of a [`Peer`].
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// As many bytes as the request has.
    Echo,
    /// This reply.
    Fixed(Reply),
}

/// The application of a test's host, which records all events with their times.
#[derive(Debug)]
pub struct Peer {
    pub answer: Answer,
    pub requests: Vec<(Time, RpcKey, usize, u32)>,
    pub responses: Vec<(Time, u64, u32)>,
    pub failed: Vec<(Time, u64, RpcError)>,
    pub readable: Vec<(Time, u64, u32)>,
    pub done: Vec<(Time, RpcKey, DoneReason)>,
}

impl Peer {
    pub fn new(answer: Answer) -> Peer {
        Peer {
            answer,
            requests: Vec::new(),
            responses: Vec::new(),
            failed: Vec::new(),
            readable: Vec::new(),
            done: Vec::new(),
        }
    }

    /// Returns the time at which the RPC with this cookie was answered.
    pub fn answered_at(&self, cookie: u64) -> Time {
        let answer = self.responses.iter().find(|response| response.1 == cookie);
        answer.unwrap_or_else(|| panic!("RPC {cookie} was not answered: {self:?}")).0
    }

    pub fn cookies(&self) -> Vec<u64> {
        self.responses.iter().map(|response| response.1).collect()
    }
}

impl App for Peer {
    fn on_start(&mut self, host: &mut HostCtx<'_>) {
        host.bind(PORT).expect("the port of a new endpoint is free");
    }

    fn on_request(&mut self, host: &mut HostCtx<'_>, rpc: RpcKey, from: usize, _: u16, length: u32) -> Reply {
        self.requests.push((host.now(), rpc, from, length));
        match self.answer {
            Answer::Echo => Reply::Now(length),
            Answer::Fixed(reply) => reply,
        }
    }

    fn on_response(&mut self, host: &mut HostCtx<'_>, cookie: u64, length: u32) {
        self.responses.push((host.now(), cookie, length));
    }

    fn on_failed(&mut self, host: &mut HostCtx<'_>, cookie: u64, error: RpcError) {
        self.failed.push((host.now(), cookie, error));
    }

    fn on_readable(&mut self, host: &mut HostCtx<'_>, cookie: u64, end: u32, _: u32) {
        self.readable.push((host.now(), cookie, end));
    }

    fn on_done(&mut self, host: &mut HostCtx<'_>, rpc: RpcKey, _: usize, reason: DoneReason) {
        self.done.push((host.now(), rpc, reason));
    }
}

/// Returns a network in which every step is checked and every packet captured.
pub fn config(seed: u64, hosts: usize) -> NetworkConfig {
    NetworkConfig { check_every: 1, capture: true, ..NetworkConfig::new(seed, hosts) }
}

pub fn network(config: NetworkConfig) -> Network<Peer> {
    Network::new(config, |_| Peer::new(Answer::Echo))
}

/// Starts an RPC now.
pub fn call(network: &mut Network<Peer>, from: usize, to: usize, cookie: u64, length: u32) -> RpcKey {
    let options = CallOptions { cookie, ..CallOptions::default() };
    let call = network.act(from, |_, host| host.call(to, PORT, length, options));
    call.expect("the host is up").expect("the endpoint takes the RPC")
}

/// Runs until nothing is left. Asserts that this happens within the time limit and without violations of the
/// contract.
pub fn settle(network: &mut Network<Peer>, within_ns: u64) {
    let limit = network.now() + within_ns;
    let idle = network.run_until_idle(limit);
    for host in network.hosts() {
        assert_eq!(host.violations(), Vec::<String>::new().as_slice());
        assert_eq!(host.bytes_wrong(), 0);
        assert_eq!(host.counts().executed_again, 0);
    }
    let leftovers: Vec<String> = network.hosts().iter().flat_map(|host| host.leftovers()).collect();
    assert!(idle, "not idle at {:?}: {leftovers:?}", network.now());
}

/// Returns the packets of one type that were sent, each with its sender and time.
pub fn sent(network: &Network<Peer>, kind: PacketType) -> Vec<(CapturedPacket, Packet)> {
    let of_kind = |seen: &CapturedPacket| {
        let packet = seen.packet.filter(|packet| packet.body.packet_type() == kind)?;
        (seen.fate == Fate::Sent).then_some((*seen, packet))
    };
    network.captured().iter().filter_map(of_kind).collect()
}

/// Returns the client's ID of a packet's RPC.
pub fn rpc_id(packet: &Packet) -> u64 {
    packet.common.sender_id & !1
}

/// Returns the exclusive end of the payload of a DATA packet; `None` for other types.
pub fn data_end(packet: &Packet) -> Option<u32> {
    match packet.body {
        Body::Data(data) => Some(data.offset + packet.payload_len),
        _ => None,
    }
}
