//! Homa: the deployed [`homa_proto::Endpoint`].
//!
//! If a cluster runs RPCs ([`Exchange::Echo`]), the protocol is exactly the deployed one. If messages are
//! one-way, as in published simulations, the harness ends an RPC on both sides when its request is delivered
//! ([`Endpoint::forget`]), so that neither a response nor an acknowledgement is sent.

use homa_proto::wire::{self, HeaderBuf};
use homa_proto::{CallOptions, Config, Endpoint, Event, Reassembly, RpcKey, RxPacket, Time};
use homa_steer::{HomaPacket, PacketKind};
use homa_trace::{Clock, EventKind, Node, Trace};

use super::interface::{Ctx, Transport};
use crate::cluster::config::ClusterConfig;
use crate::cluster::messages::Message;
use crate::cluster::traffic::Exchange;
use crate::fabric::{address_index, host_address};
use crate::packet::{Body, Packet, PacketInfo};
use crate::payload::mix;

/// Server port of every host.
const PORT: u16 = 1;

/// Settings of Homa in a cluster.
#[derive(Clone, Debug)]
pub struct HomaConfig {
    /// Settings of the protocol. The simulator sets the seed and the incarnation.
    pub protocol: Config,
}

/// A Homa header, and the message to which it belongs.
#[derive(Clone, Debug, Default)]
pub struct HomaBody {
    header: HeaderBuf,
    message: u32,
}

impl Body for HomaBody {
    fn copy_from(&mut self, other: &Self) {
        self.clone_from(other);
    }

    fn bytes(&self) -> &[u8] {
        &self.header
    }
}

/// Value that marks a request, in `a` of [`EventKind::AppSend`] and [`EventKind::AppReceive`].
const REQUEST: u32 = 0;
const RESPONSE: u32 = 1;

/// A host's end of Homa.
pub struct Homa {
    /// Index of the host.
    host: u32,
    endpoint: Endpoint,
    client_port: u16,
    exchange: Exchange,
    /// Whether application threads answer requests. Otherwise requests are answered immediately.
    has_threads: bool,
    /// The cluster's outgoing message of each RPC, and below it the incoming message, by RPC slot.
    outgoing: Vec<u32>,
    incoming: Vec<u32>,
    /// Identifiers of each RPC and its peer in traces, by slot, for events after the RPC has ended.
    traced: Vec<(u64, u16)>,
    failed: u64,
    refused: u64,
}

/// Records the cluster's messages to which incoming packets belong.
struct Sink<'a> {
    incoming: &'a mut Vec<u32>,
    message: u32,
}

impl Reassembly for Sink<'_> {
    fn write(&mut self, rpc: RpcKey, _message_length: u32, _offset: u32, _len: u32, _data: &[u8]) {
        put(self.incoming, rpc.slot, self.message);
    }
}

fn put<T: Copy + Default>(table: &mut Vec<T>, slot: u32, entry: T) {
    let slot = slot as usize;
    if slot >= table.len() {
        table.resize(slot + 1, T::default());
    }
    table[slot] = entry;
}

fn host_name(host: u32) -> String {
    format!("host-{host}")
}

fn token_of(rpc: RpcKey) -> u64 {
    u64::from(rpc.slot) << 32 | u64::from(rpc.generation)
}

fn key_of(token: u64) -> RpcKey {
    RpcKey { slot: (token >> 32) as u32, generation: token as u32 }
}

impl Homa {
    fn take_events(&mut self, ctx: &mut Ctx<'_>) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Request { rpc, length, .. } => self.request(ctx, rpc, length),
                Event::Response { rpc, length, .. } => {
                    let message = self.outgoing[rpc.slot as usize];
                    if let Some(&(id, peer)) = self.traced.get(rpc.slot as usize) {
                        self.endpoint.trace().record_with(
                            EventKind::AppReceive,
                            id,
                            RESPONSE,
                            length,
                            peer,
                            0,
                        );
                    }
                    ctx.deliver(message);
                }
                Event::Failed { .. } => self.failed += 1,
                Event::Readable { .. } | Event::Done { .. } | Event::Freeze { .. } => {}
            }
        }
    }

    fn request(&mut self, ctx: &mut Ctx<'_>, rpc: RpcKey, length: u32) {
        let message = self.incoming[rpc.slot as usize];
        self.record(EventKind::AppReceive, rpc, REQUEST, length);
        match self.exchange {
            Exchange::OneWay => {
                ctx.deliver(message);
                self.endpoint.forget(ctx.now, rpc);
            }
            Exchange::Echo if self.has_threads => {
                ctx.set_receiver_token(message, token_of(rpc));
                ctx.deliver(message);
            }
            Exchange::Echo => self.respond(ctx, rpc, message, length),
        }
    }

    fn respond(&mut self, ctx: &mut Ctx<'_>, rpc: RpcKey, message: u32, length: u32) {
        put(&mut self.outgoing, rpc.slot, message);
        if self.endpoint.send_response(ctx.now, rpc, length).is_err() {
            self.refused += 1;
        }
        self.record(EventKind::AppSend, rpc, RESPONSE, length);
    }

    /// Records that the application sends or receives a message, which takes no time here.
    fn record(&mut self, kind: EventKind, rpc: RpcKey, message: u32, length: u32) {
        if self.endpoint.trace().is_recording()
            && let Some((id, peer)) = self.endpoint.traced(rpc)
        {
            self.endpoint.trace().record_with(kind, id, message, length, peer, 0);
            put(&mut self.traced, rpc.slot, (id, peer));
        }
    }
}

impl Transport for Homa {
    const NAME: &'static str = "homa";
    const RUNS_RPCS: bool = true;
    type Body = HomaBody;
    type Config = HomaConfig;

    fn new(config: &HomaConfig, host: u32, cluster: &ClusterConfig) -> Homa {
        let seed = mix(mix(cluster.seed) ^ u64::from(host)) | 1;
        let protocol = Config { seed, incarnation: 1, ..config.protocol.clone() };
        let trace = match cluster.trace_records {
            0 => Trace::off(),
            records => Trace::new(records, Clock::Virtual),
        };
        let mut endpoint = Endpoint::new(protocol, trace).expect("the protocol's settings agree");
        endpoint.bind(PORT).expect("the port of a new endpoint is free");
        let client_port = endpoint.open_client_port().expect("a new endpoint has client ports");
        Homa {
            host,
            endpoint,
            client_port,
            exchange: cluster.exchange,
            has_threads: cluster.cores.is_some(),
            outgoing: Vec::new(),
            incoming: Vec::new(),
            traced: Vec::new(),
            failed: 0,
            refused: 0,
        }
    }

    fn send(&mut self, ctx: &mut Ctx<'_>, message: u32) {
        self.endpoint.trace().set_virtual_now(ctx.now.as_ns());
        let (to, length) = (host_address(ctx.message(message).to as usize), ctx.message(message).length);
        match self.endpoint.send_request(ctx.now, self.client_port, to, PORT, length, CallOptions::default())
        {
            Ok(rpc) => {
                self.record(EventKind::AppSend, rpc, REQUEST, length);
                put(&mut self.outgoing, rpc.slot, message);
                ctx.set_token(message, token_of(rpc));
            }
            Err(_) => self.refused += 1,
        }
        self.take_events(ctx);
    }

    fn receive(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<HomaBody>) {
        self.endpoint.trace().set_virtual_now(ctx.now.as_ns());
        let received = RxPacket {
            from: host_address(packet.info.from as usize),
            bytes: &packet.body.header,
            wire_len: packet.info.wire_len as usize,
            priority: Some(packet.info.priority),
        };
        let mut sink = Sink { incoming: &mut self.incoming, message: packet.body.message };
        self.endpoint.handle_packets(ctx.now, [received], &mut sink);
        self.take_events(ctx);
    }

    fn answer(&mut self, ctx: &mut Ctx<'_>, message: u32) {
        let Message { receiver_token: Some(token), length, .. } = ctx.message(message) else { return };
        self.endpoint.trace().set_virtual_now(ctx.now.as_ns());
        self.respond(ctx, key_of(token), message, length);
        self.take_events(ctx);
    }

    fn steered(packet: &Packet<HomaBody>) -> ([u16; 2], Option<HomaPacket>) {
        let Ok(decoded) = wire::decode(&packet.body.header, packet.info.wire_len as usize) else {
            return ([0; 2], None);
        };
        let (kind, message_bytes) = match &decoded.body {
            wire::Body::Data(data) => (PacketKind::Data, data.message_length),
            wire::Body::Grant(_) => (PacketKind::Grant, 0),
            _ => (PacketKind::Control, 0),
        };
        let common = decoded.common;
        let homa = HomaPacket { rpc_id: common.sender_id, kind, message_bytes };
        ([common.source_port, common.dest_port], Some(homa))
    }

    fn timeout(&mut self, ctx: &mut Ctx<'_>) {
        self.endpoint.trace().set_virtual_now(ctx.now.as_ns());
        self.endpoint.handle_timeout(ctx.now);
        self.take_events(ctx);
    }

    fn next_timeout(&self) -> Option<Time> {
        self.endpoint.poll_timeout()
    }

    fn transmit(&mut self, ctx: &mut Ctx<'_>, body: &mut HomaBody) -> Option<PacketInfo> {
        self.endpoint.trace().set_virtual_now(ctx.now.as_ns());
        let transmit = self.endpoint.poll_transmit(ctx.now)?;
        body.header = transmit.header;
        let mut wire_len = transmit.header.len() as u32;
        if let Some(range) = transmit.payload {
            wire_len += range.len;
            body.message = self.outgoing[range.rpc.slot as usize];
        }
        Some(PacketInfo::new(ctx.host, address_index(transmit.to), wire_len, transmit.priority))
    }

    fn delivered(&mut self, ctx: &mut Ctx<'_>, message: u32) {
        if self.exchange == Exchange::OneWay {
            self.endpoint.forget(ctx.now, key_of(ctx.message(message).token));
        }
    }

    fn withholds(&self, _now: Time) -> bool {
        self.endpoint.waits_for_grants()
    }

    fn freeze_trace(&mut self, now: Time, token: Option<u64>) {
        let own = token.and_then(|token| self.traced.get(key_of(token).slot as usize).copied());
        let trace = self.endpoint.trace();
        trace.set_virtual_now(now.as_ns());
        // As on live hosts, the host that decides to freeze notifies the others.
        match own {
            Some((id, _)) => trace.freeze(id, 0),
            None => trace.freeze(0, 1),
        }
    }

    fn trace_dump(&mut self) -> Option<Vec<u8>> {
        let trace = self.endpoint.trace();
        if trace.is_off() {
            return None;
        }
        let mut dump = trace.dump(Node::host(host_name(self.host)));
        let peers = self.endpoint.peer_numbers();
        dump.node.others = peers.map(|(number, peer)| (number, host_name(address_index(peer)))).collect();
        Some(dump.to_bytes())
    }

    fn counters(&self, count: &mut dyn FnMut(&str, u64)) {
        count("failed", self.failed);
        count("refused", self.refused);
        for (name, value, _) in self.endpoint.stats().entries() {
            count(name, value);
        }
    }
}

impl std::fmt::Debug for Homa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Homa").field("client_port", &self.client_port).finish_non_exhaustive()
    }
}
