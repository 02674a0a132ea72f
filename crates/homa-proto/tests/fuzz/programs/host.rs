//! An endpoint, and a model of what its caller knows. The model checks that every key is valid once, every
//! byte arrives once, and every sent packet is permitted.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::ops::Range;

use homa_proto::wire::{Body, DATA_HEADER_LEN, Evidence, Packet, PacketType, decode, evidence};
use homa_proto::{Config, Endpoint, Event, Reassembly, RpcKey, RxPacket, Time, Transmit};
use homa_trace::Trace;

/// A packet between hosts: the header, the payload if it is present, and the claimed length.
#[derive(Clone, Debug)]
pub struct Wire {
    pub from: SocketAddr,
    pub bytes: Vec<u8>,
    pub wire_len: usize,
}

/// The model of an open RPC.
#[derive(Debug, Default)]
struct Life {
    is_client: bool,
    cookie: u64,
    /// Length of our message; 0: none yet.
    length_out: u32,
    /// Length of the peer's message; 0: not known yet.
    length_in: u32,
    /// The written bytes of the peer's message, as disjoint ranges in ascending order.
    written: Vec<Range<u32>>,
    readable: u32,
    delivered: bool,
    /// Whether the application took the request before it was complete.
    taken: bool,
}

impl Life {
    fn is_whole(&self) -> bool {
        let all = 0..self.length_in;
        self.length_in > 0 && self.written == [all]
    }
}

/// The caller's model of all RPCs, open and ended.
#[derive(Default)]
struct Book {
    lives: BTreeMap<RpcKey, Life>,
    dead: HashSet<RpcKey>,
    max_message: u32,
}

impl Book {
    fn life(&mut self, rpc: RpcKey) -> &mut Life {
        assert!(!self.dead.contains(&rpc), "{rpc:?} was ended by an event");
        self.lives.entry(rpc).or_default()
    }

    /// Removes the model of an RPC that ends. Each RPC ends once (ABORT-3).
    fn end(&mut self, rpc: RpcKey) -> Life {
        assert!(self.dead.insert(rpc), "{rpc:?} ended twice");
        self.lives.remove(&rpc).unwrap_or_default()
    }
}

impl Reassembly for Book {
    fn write(&mut self, rpc: RpcKey, message_length: u32, offset: u32, len: u32, data: &[u8]) {
        assert!(data.is_empty() || data.len() == len as usize);
        assert!(len > 0 && message_length <= self.max_message && offset + len <= message_length);
        let life = self.life(rpc);
        assert!(life.length_in == 0 || life.length_in == message_length, "the length changed (WIRE-8)");
        assert!(!life.delivered, "bytes after the message was whole");
        life.length_in = message_length;
        let at = life.written.partition_point(|range| range.end < offset);
        let (mut from, mut to) = (offset, offset + len);
        while let Some(range) = life.written.get(at).filter(|range| range.start <= to) {
            assert!(range.end == from || range.start == to, "a byte came twice: {range:?} and {from}..{to}");
            (from, to) = (from.min(range.start), to.max(range.end));
            life.written.remove(at);
        }
        life.written.insert(at, from..to);
    }
}

/// The time at which a request was delivered, and events since then that permit the request to run again.
struct Run {
    at: Time,
    restarts: u64,
    forgotten: u64,
}

pub struct Host {
    pub addr: SocketAddr,
    pub endpoint: Endpoint,
    /// Current and past keys, for a program to choose from.
    pub keys: Vec<RpcKey>,
    /// Current and past ids in the peer's form.
    pub ids: Vec<u64>,
    pub in_service: Vec<RpcKey>,
    pub ports: Vec<u16>,
    pub sent: HashMap<u8, usize>,
    book: Book,
    runs: HashMap<(SocketAddr, u64), Run>,
    /// The granted end of our message, by our id.
    allowed: HashMap<u64, u32>,
    /// Peers that have shown dialect 3, which accepts whole messages unscheduled (DIALECT-4).
    ungranted: HashSet<SocketAddr>,
    /// Maximum packet length that was set for any peer.
    pub max_packet: u32,
    /// Indices of the drop counters, except those of our own packets that were not queued.
    drops: Vec<usize>,
    /// The latest time passed to the endpoint.
    now: Time,
}

impl std::fmt::Display for Host {
    /// Prints the open RPCs and the counters.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rpcs, timeout) = (self.endpoint.open_rpcs(), self.endpoint.poll_timeout());
        writeln!(f, "{}: {rpcs} RPCs open, next timeout {timeout:?}", self.addr)?;
        writeln!(f, "{:?}\n{:?}", self.book.lives, self.endpoint.config())?;
        let entries = self.endpoint.stats().entries();
        let mut counted = entries.iter().filter(|(_, value, _)| *value != 0);
        counted.try_for_each(|(name, value, _)| write!(f, "{name} {value}, "))
    }
}

impl Host {
    pub fn new(addr: SocketAddr, config: Config) -> Host {
        let (max_packet, max_message) = (config.max_packet, config.max_message);
        let endpoint = Endpoint::new(config, Trace::off()).expect("the settings are valid");
        let entries = endpoint.stats().entries();
        let is_drop = |name: &str| name.starts_with("drop_") && name != "drop_control_limit";
        let drops = (0..entries.len()).filter(|&at| is_drop(entries[at].0)).collect();
        Host {
            addr,
            drops,
            endpoint,
            keys: Vec::new(),
            ids: vec![2],
            in_service: Vec::new(),
            ports: vec![99],
            sent: HashMap::new(),
            book: Book { max_message, ..Book::default() },
            runs: HashMap::new(),
            allowed: HashMap::new(),
            ungranted: HashSet::new(),
            max_packet,
            now: Time::ZERO,
        }
    }

    pub fn send_request(&mut self, now: Time, ports: (u16, u16), to: SocketAddr, length: u32, step: u32) {
        let options = homa_proto::CallOptions {
            cookie: self.keys.len() as u64,
            private: length & 1 == 0,
            readable_step: step,
        };
        let before = self.endpoint.open_rpcs();
        match self.tell(now).send_request(now, ports.0, to, ports.1, length, options) {
            Ok(rpc) => {
                let life = self.book.life(rpc);
                *life =
                    Life { is_client: true, cookie: options.cookie, length_out: length, ..Life::default() };
                self.note(rpc);
            }
            Err(error) => {
                // At a limit, the endpoint frees RPCs that are already acknowledged.
                assert!(self.endpoint.open_rpcs() <= before, "{error}, and yet something began");
            }
        }
    }

    pub fn send_response(&mut self, now: Time, rpc: RpcKey, length: u32) {
        if self.tell(now).send_response(now, rpc, length).is_ok() {
            let life = self.book.life(rpc);
            assert!(life.delivered && life.length_out == 0, "answered before it was whole, or twice");
            life.length_out = length;
            self.in_service.retain(|&other| other != rpc);
        }
    }

    pub fn handle(&mut self, now: Time, burst: &[Wire]) {
        if burst.is_empty() {
            return;
        }
        let dropped = self.packets_dropped();
        for packet in burst {
            self.note_allowance(packet);
        }
        let packets = burst.iter().map(|packet| RxPacket {
            from: packet.from,
            bytes: &packet.bytes,
            wire_len: packet.wire_len,
            priority: None,
        });
        self.now = self.now.max(now);
        self.endpoint.handle_packets(now, packets, &mut self.book);
        let more = self.packets_dropped() - dropped;
        assert!(more <= burst.len() as u64, "{more} drops of {} packets (TRACE-2)", burst.len());
    }

    /// Returns the number of received packets that were dropped.
    fn packets_dropped(&self) -> u64 {
        let entries = self.endpoint.stats().entries();
        self.drops.iter().map(|&at| entries[at].1).sum()
    }

    fn note_allowance(&mut self, packet: &Wire) {
        let shown = evidence(&packet.bytes, packet.wire_len);
        if matches!(shown, Evidence::ShortResend | Evidence::UnmarkedUnannounced) {
            self.ungranted.insert(packet.from);
        }
        let Ok(packet) = decode(&packet.bytes, packet.wire_len) else { return };
        let end = match packet.body {
            Body::Grant(grant) => grant.offset,
            Body::Resend(resend) => resend.offset.saturating_add(resend.length.unwrap_or(0)),
            _ => return,
        };
        let allowed = self.allowed.entry(packet.common.sender_id ^ 1).or_default();
        *allowed = end.max(*allowed);
    }

    /// Records and checks the time `now` before it is passed to the endpoint.
    pub fn tell(&mut self, now: Time) -> &mut Endpoint {
        self.now = self.now.max(now);
        &mut self.endpoint
    }

    /// Polls every event and compares it with the model.
    pub fn poll_events(&mut self) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Request { rpc, peer, length, .. } => self.request(rpc, peer, length),
                Event::Response { rpc, cookie, length, .. } => {
                    let life = self.book.end(rpc);
                    assert!(life.is_client && life.cookie == cookie && life.length_in == length, "{life:?}");
                    assert!(life.is_whole(), "complete, and bytes are missing (RECV-5): {life:?}");
                }
                Event::Failed { rpc, cookie, .. } => {
                    let life = self.book.end(rpc);
                    assert!(life.is_client && life.cookie == cookie, "{life:?}");
                }
                Event::Readable { rpc, end, length } => {
                    let life = self.book.life(rpc);
                    assert!(end > life.readable && length == life.length_in, "{life:?}");
                    assert!(life.written[0].start == 0 && life.written[0].end >= end, "{end} in {life:?}");
                    life.readable = end;
                    let fresh = !life.is_client && !life.taken;
                    if fresh
                        && let Some(arriving) = self.endpoint.arriving_request(rpc)
                        && self.endpoint.take_early(rpc, end)
                    {
                        self.book.life(rpc).taken = true;
                        self.note(rpc);
                        self.begins_to_run(rpc, arriving.peer);
                    }
                }
                Event::Done { rpc, .. } => {
                    let life = self.book.end(rpc);
                    assert!(!life.is_client, "{life:?}");
                    self.in_service.retain(|&other| other != rpc);
                }
                Event::Freeze { .. } => {}
            }
        }
    }

    fn request(&mut self, rpc: RpcKey, peer: SocketAddr, length: u32) {
        let life = self.book.life(rpc);
        assert!(
            !life.is_client && !life.delivered && life.length_in == length && life.is_whole(),
            "{life:?}"
        );
        life.delivered = true;
        let taken = life.taken;
        self.in_service.push(rpc);
        if !taken {
            self.note(rpc);
            self.begins_to_run(rpc, peer);
        }
    }

    /// Records that the application gets a request, and checks that it has not run before.
    fn begins_to_run(&mut self, rpc: RpcKey, peer: SocketAddr) {
        let Some(id) = self.endpoint.rpc_id(rpc) else { return };
        let (stats, config) = (self.endpoint.stats(), self.endpoint.config());
        let run = Run { at: self.now, restarts: stats.peer_restarts, forgotten: stats.finished_forgotten };
        if let Some(before) = self.runs.insert((peer, id), run) {
            let forgot =
                (before.restarts, before.forgotten) != (stats.peer_restarts, stats.finished_forgotten);
            let passed = self.now.since(before.at) >= config.max_packet_lifetime_ns;
            assert!(forgot || passed, "{id} of {peer} runs again (AMO-1, AMO-12)");
        }
    }

    fn note(&mut self, rpc: RpcKey) {
        self.keys.push(rpc);
        self.ids.extend(self.endpoint.rpc_id(rpc).map(|id| id ^ 1));
    }

    /// Returns the next packet to send, after checking that the packet is permitted.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(SocketAddr, Wire)> {
        let transmit = self.tell(now).poll_transmit(now)?;
        let payload = transmit.payload.map_or(0, |payload| payload.len);
        let wire_len = transmit.header.len() + payload as usize;
        let packet = decode(&transmit.header, wire_len).expect("what is sent is valid");
        let config = self.endpoint.config();
        assert!(transmit.priority < config.num_priorities, "PRIO-1");
        *self.sent.entry(packet.body.packet_type() as u8).or_default() += 1;
        match packet.body {
            Body::Data(_) => self.check_data(&transmit, &packet),
            _ => assert!(
                transmit.payload.is_none() && transmit.priority == config.num_priorities - 1,
                "PRIO-2"
            ),
        }
        Some((transmit.to, Wire { from: self.addr, bytes: transmit.header.to_vec(), wire_len }))
    }

    fn check_data(&mut self, transmit: &Transmit, packet: &Packet) {
        let (Some(range), Body::Data(data)) = (transmit.payload, packet.body) else { panic!("{packet}") };
        assert!(range.len >= 1 && range.len == packet.payload_len && range.offset == data.offset);
        assert!(range.len + DATA_HEADER_LEN as u32 <= self.max_packet, "WIRE-9");
        assert_eq!(self.endpoint.rpc_id(range.rpc), Some(packet.common.sender_id), "of a living RPC");
        let life = self.book.life(range.rpc);
        let end = range.offset + range.len;
        assert!(data.message_length == life.length_out && end <= life.length_out, "{packet} of {life:?}");
        let granted = self.allowed.get(&packet.common.sender_id).copied().unwrap_or(0);
        // RTT-3: the measured value may exceed the setting if the link rate is known.
        let config = self.endpoint.config();
        let measured = if config.link_mbps.is_some() { config.max_unsched_bytes } else { 0 };
        let unscheduled = config.unsched_bytes.max(measured);
        let is_granted = end <= unscheduled.max(granted) || self.ungranted.contains(&transmit.to);
        assert!(is_granted, "{packet}: beyond what was granted (SEND-1)");
    }

    /// Returns the number of packets of one type sent so far.
    pub fn count(&self, kind: PacketType) -> usize {
        self.sent.get(&(kind as u8)).copied().unwrap_or(0)
    }

    /// Checks that no state is left in the endpoint and the model (ABORT-7).
    pub fn assert_over(&self) {
        assert!(self.endpoint.is_idle() && self.endpoint.open_rpcs() == 0, "not over: {self}");
        assert!(self.book.lives.is_empty(), "RPCs without an end: {:?}", self.book.lives);
        assert!(self.in_service.is_empty());
    }
}
