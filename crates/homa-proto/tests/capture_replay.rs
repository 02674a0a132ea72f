//! Replays captures of Linux Homa with our endpoint in place of one host.
//!
//! # The rule of the replay
//!
//! An [`Endpoint`] plays one host of the capture. It receives the packets of all other hosts at the times at
//! which they were captured, regardless of what it has sent. The replayed hosts do not react to our endpoint:
//! they behave as they did towards the kernel that it replaces. Our timers run in between, on virtual time.
//!
//! - As a client, our application starts each RPC whose request the played host started in the capture, at
//!   the same time and with the captured length. Our endpoint chooses its own ids and client ports, so the
//!   ids and ports in the received packets are rewritten; nothing else in the packets changes. Packets of
//!   RPCs that started before the capture are delivered unchanged: our endpoint does not know these RPCs.
//! - As a server, our application answers each request with the captured length, at the time of the played
//!   host's first response packet, or later, if the request is not complete by then.
//! - ICMP errors are passed to [`Endpoint::peer_unreachable`] as a driver would report them.
//!
//! If a packet is missing from the capture, it was sent again after a RESEND, and the retransmission is in
//! the capture. Hence the following must hold despite losses, and is checked for each RPC:
//!
//! - Client: if the capture has every byte of the response, our RPC ends with exactly that response, at the
//!   time of the packet with the last missing byte. If ICMP reports one of its packets instead, the RPC ends
//!   with the matching error.
//! - Server: if the capture has every byte of the request and the kernel's response, our application gets
//!   exactly the captured request, exactly once. If the capture has the client's acknowledgement after the
//!   response, our RPC ends as acknowledged at that packet. If ICMP reports earlier that the client's port
//!   has no socket, our RPC ends as that of a silent client.
//! - Our endpoint answers each RESEND immediately with a packet of the same RPC, and each NEED_ACK for an
//!   ended RPC with an ACK of its id. It answers RPC_UNKNOWN by sending the request again, as long as no part
//!   of the response has arrived.
//! - [`Endpoint::check`] succeeds after every step, and the kernel would accept every packet that we send
//!   (`validator`).
//!
//! Everything else depends on our timers: we send GRANTs, RESENDs and NEED_ACKs at other times than the
//! kernel did, and the replayed hosts do not react. RPCs that are open at the end of the capture are ended
//! later by our timers; then the endpoint is idle.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use super::capture::{self, CapturedFrame, FrameContent, be16};
use super::validator::Validator;
use homa_proto::wire::{self, Body, PacketType};
use homa_proto::{
    CallOptions, Config, DoneReason, Endpoint, Event, Reassembly, RpcError, RpcKey, RxPacket, SEC, Time,
    Transmit, Unreachable,
};
use homa_trace::Trace;

/// The capture starts one second after the endpoint's origin of time.
const START_NS: u64 = SEC;

/// Codes of ICMP's "destination unreachable".
const CODE_PROTOCOL: u8 = 2;
const CODE_PORT: u8 = 3;

/// The captured messages of one RPC, by the client's id.
#[derive(Default)]
struct Known {
    client: Option<IpAddr>,
    server: Option<IpAddr>,
    request: Message,
    response: Message,
    /// Time of the first captured acknowledgement after the response's first packet.
    acknowledged_ns: Option<u64>,
}

/// A message reassembled from all captured packets with a part of it.
#[derive(Default)]
struct Message {
    bytes: Vec<u8>,
    there: Vec<bool>,
    /// Number of captured bytes. If any are missing, the message does not end in the capture.
    received: usize,
    /// Time at which the last missing byte was captured.
    whole_ns: u64,
}

impl Message {
    fn add(&mut self, at_ns: u64, length: u32, offset: u32, payload: &[u8]) {
        if self.bytes.is_empty() {
            self.bytes = vec![0; length as usize];
            self.there = vec![false; length as usize];
        }
        let before = self.received;
        for (at, byte) in (offset as usize..).zip(payload) {
            self.received += usize::from(!self.there[at]);
            self.there[at] = true;
            self.bytes[at] = *byte;
        }
        if self.received > before {
            self.whole_ns = at_ns;
        }
    }

    fn is_whole(&self) -> bool {
        !self.bytes.is_empty() && self.received == self.bytes.len()
    }
}

/// Collects the captured information about each RPC from all of its packets.
fn survey(capture: &[CapturedFrame]) -> BTreeMap<(IpAddr, u64), Known> {
    let mut rpcs: BTreeMap<(IpAddr, u64), Known> = BTreeMap::new();
    for frame in capture {
        let FrameContent::Homa(bytes) = &frame.content else { continue };
        let packet = wire::decode(bytes, bytes.len()).unwrap();
        let from_client = packet.common.sender_id & 1 == 0;
        let client = if from_client { frame.from } else { frame.to };
        if let Body::Data(data) = &packet.body {
            let rpc = rpcs.entry((client, packet.common.sender_id & !1)).or_default();
            rpc.client = Some(client);
            rpc.server = Some(if from_client { frame.to } else { frame.from });
            let message = if from_client { &mut rpc.request } else { &mut rpc.response };
            let payload = &bytes[wire::DATA_HEADER_LEN..][..packet.payload_len as usize];
            message.add(frame.at_ns, data.message_length, offset_in(bytes), payload);
        }
        for id in acknowledged_ids(&packet) {
            if let Some(rpc) = rpcs.get_mut(&(client, id))
                && !rpc.response.bytes.is_empty()
            {
                rpc.acknowledged_ns.get_or_insert(frame.at_ns);
            }
        }
    }
    rpcs
}

/// WIRE-4, without our decoder, which would not notice its own errors if it were used here.
fn offset_in(bytes: &[u8]) -> u32 {
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    if word(52) == u32::MAX { word(4) } else { word(52) }
}

/// Returns the RPCs acknowledged by a packet of their client.
fn acknowledged_ids(packet: &wire::Packet) -> Vec<u64> {
    match &packet.body {
        Body::Data(data) => data.ack.iter().map(|ack| ack.client_id).collect(),
        Body::Ack(acks) => {
            acks.iter().map(|ack| ack.client_id).chain([packet.common.sender_id & !1]).collect()
        }
        _ => Vec::new(),
    }
}

/// Received payload.
#[derive(Default)]
struct Buffers(HashMap<RpcKey, Vec<u8>>);

impl Reassembly for Buffers {
    fn write(&mut self, rpc: RpcKey, message_length: u32, offset: u32, len: u32, data: &[u8]) {
        let buffer = self.0.entry(rpc).or_insert_with(|| vec![0; message_length as usize]);
        buffer[offset as usize..][..len as usize].copy_from_slice(data);
    }
}

/// How an RPC on our endpoint ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Response,
    Failed(RpcError),
    Done(DoneReason),
}

/// Our endpoint in place of one host.
struct Replay<'a> {
    name: String,
    rpcs: &'a BTreeMap<(IpAddr, u64), Known>,
    played: IpAddr,
    endpoint: Endpoint,
    validator: Validator,
    buffers: Buffers,
    now: Time,
    /// Maps the kernel's client ids to ours, and back, for RPCs started by the played host.
    ours: HashMap<u64, u64>,
    theirs: HashMap<u64, u64>,
    /// Maps the kernel's client ports to ours.
    ports: HashMap<u16, u16>,
    /// Captured id by key, for RPCs of both sides.
    ids: HashMap<RpcKey, (IpAddr, u64)>,
    /// Requests that our application has received and that the played host has not answered yet.
    unanswered: HashMap<(IpAddr, u64), RpcKey>,
    /// Requests whose response was due before they were complete.
    overdue: BTreeSet<(IpAddr, u64)>,
    ends: BTreeMap<(IpAddr, u64), (End, Time)>,
    /// Packets sent since the last received packet: type and client id.
    sent: Vec<(PacketType, u64)>,
    /// RPCs with an ICMP error, the error, and its time.
    reported: BTreeMap<(IpAddr, u64), (RpcError, u64)>,
}

impl<'a> Replay<'a> {
    fn new(
        name: &str,
        capture: &[CapturedFrame],
        rpcs: &'a BTreeMap<(IpAddr, u64), Known>,
        played: IpAddr,
        incarnation: u64,
    ) -> Replay<'a> {
        let homa = capture.iter().filter_map(|frame| match &frame.content {
            FrameContent::Homa(bytes) => Some((frame, bytes)),
            FrameContent::Unreachable { .. } => None,
        });
        // Jumbo frames are used if the capture has them.
        let max_packet = homa.clone().map(|(_, bytes)| bytes.len() as u32).max().unwrap().max(1_480);
        let config = Config { seed: 7, incarnation, max_packet, ..Config::default() };
        let mut endpoint = Endpoint::new(config.clone(), Trace::off()).unwrap();
        let server_ports: BTreeSet<u16> = homa
            .filter(|(frame, bytes)| frame.to == played && bytes[27] & 1 == 0)
            .map(|(_, bytes)| u16::from_be_bytes([bytes[2], bytes[3]]))
            .collect();
        server_ports.into_iter().for_each(|port| endpoint.bind(port).unwrap());
        Replay {
            name: format!("{name} as {played}"),
            rpcs,
            played,
            endpoint,
            validator: Validator::new(&config),
            buffers: Buffers::default(),
            now: Time::from_ns(START_NS),
            ours: HashMap::new(),
            theirs: HashMap::new(),
            ports: HashMap::new(),
            ids: HashMap::new(),
            unanswered: HashMap::new(),
            overdue: BTreeSet::new(),
            ends: BTreeMap::new(),
            sent: Vec::new(),
            reported: BTreeMap::new(),
        }
    }

    /// Returns the number of RPCs that end in the capture.
    fn run(mut self, capture: &[CapturedFrame]) -> usize {
        for frame in capture {
            let at = Time::from_ns(START_NS + frame.at_ns);
            self.let_time_pass(at);
            self.now = at;
            match &frame.content {
                FrameContent::Homa(bytes) if frame.from == self.played => self.application(frame.to, bytes),
                FrameContent::Homa(bytes) if frame.to == self.played => self.feed(frame.from, bytes),
                FrameContent::Unreachable { code, quoted } if frame.to == self.played => {
                    self.icmp(frame.from, *code, quoted);
                }
                _ => {}
            }
            self.drain();
            // Work that the packet left for later drive calls is due immediately.
            self.let_time_pass(at);
            self.endpoint.check();
        }
        let ended = self.check_ends();
        self.let_time_pass(self.now + 100 * SEC);
        self.endpoint.check();
        assert!(self.endpoint.is_idle(), "{}: left over: {:?}", self.name, self.endpoint.stats());
        println!("{}: {ended} RPCs that the capture ends have ended; in all {}", self.name, self.summary());
        ended
    }

    fn summary(&self) -> String {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for (end, _) in self.ends.values() {
            *counts.entry(format!("{end:?}")).or_default() += 1;
        }
        format!("{counts:?}, {} packets sent", self.endpoint.stats().packets_sent)
    }

    fn let_time_pass(&mut self, until: Time) {
        while let Some(at) = self.endpoint.poll_timeout().filter(|&at| at <= until) {
            self.now = self.now.max(at);
            self.endpoint.handle_timeout(self.now);
            self.drain();
        }
    }

    /// Applies the events of the played host's application: requests started and requests answered.
    fn application(&mut self, to: IpAddr, bytes: &[u8]) {
        let packet = wire::decode(bytes, bytes.len()).unwrap();
        let Body::Data(data) = packet.body else { return };
        let id = packet.common.sender_id & !1;
        if packet.common.sender_id & 1 == 1 {
            if self.answer((to, id), data.message_length).is_err() {
                self.overdue.insert((to, id));
            }
        } else if !self.ours.contains_key(&id) {
            let port = *self
                .ports
                .entry(packet.common.source_port)
                .or_insert_with(|| self.endpoint.open_client_port().unwrap());
            let (server, options) = (SocketAddr::new(to, 0), CallOptions::default());
            let to_port = packet.common.dest_port;
            let key =
                self.endpoint.send_request(self.now, port, server, to_port, data.message_length, options);
            let key = key.unwrap();
            let ours = self.endpoint.rpc_id(key).unwrap();
            self.ours.insert(id, ours);
            self.theirs.insert(ours, id);
            self.ids.insert(key, (self.played, id));
        }
    }

    /// Answers a request if it has arrived and is unanswered. Returns an error if it has not arrived yet.
    fn answer(&mut self, rpc: (IpAddr, u64), length: u32) -> Result<(), ()> {
        if let Some(key) = self.unanswered.remove(&rpc) {
            self.endpoint.send_response(self.now, key, length).unwrap();
        } else if !self.ids.values().any(|known| *known == rpc) && !self.ends.contains_key(&rpc) {
            return Err(());
        }
        Ok(())
    }

    fn feed(&mut self, from: IpAddr, original: &[u8]) {
        let mut bytes = original.to_vec();
        let packet = wire::decode(&bytes, bytes.len()).unwrap();
        let theirs = packet.common.sender_id & !1;
        if packet.common.sender_id & 1 == 1 {
            // The RPC is ours, so the packet gets our id and port.
            if let Some(ours) = self.ours.get(&theirs) {
                bytes[20..28].copy_from_slice(&(ours | 1).to_be_bytes());
            }
            if let Some(port) = self.ports.get(&packet.common.dest_port) {
                bytes[2..4].copy_from_slice(&port.to_be_bytes());
            }
        }
        self.sent.clear();
        let from = SocketAddr::new(from, 0);
        self.validator.received(from, &bytes);
        let rx = RxPacket::new(from, &bytes);
        self.endpoint.handle_packets(self.now, [rx], &mut self.buffers);
        self.drain();
        self.check_answer(&packet);
    }

    /// Checks that packets that must be answered immediately were answered.
    fn check_answer(&self, packet: &wire::Packet) {
        let (id, is_ours) = (packet.common.sender_id & !1, packet.common.sender_id & 1 == 1);
        let about =
            |kinds: &[PacketType]| self.sent.iter().any(|(kind, sent)| *sent == id && kinds.contains(kind));
        match packet.body {
            Body::Resend(_) if !is_ours || !self.ours.contains_key(&id) => {
                let answers =
                    [PacketType::Data, PacketType::Busy, PacketType::RpcUnknown, PacketType::Resend];
                assert!(about(&answers), "{}: {packet} has no answer at {:?}", self.name, self.now);
            }
            Body::RpcUnknown(_) if is_ours && self.is_open(id) && !self.response_began(id) => {
                assert!(about(&[PacketType::Data]), "{}: {packet}: the request is not sent again", self.name);
            }
            Body::NeedAck if is_ours && !self.is_open(id) => {
                assert!(about(&[PacketType::Ack]), "{}: {packet} is not acknowledged", self.name);
            }
            _ => {}
        }
    }

    /// Returns whether an RPC that we have started for a captured id is open.
    fn is_open(&self, id: u64) -> bool {
        self.ours.contains_key(&id) && !self.ends.contains_key(&(self.played, id))
    }

    fn response_began(&self, id: u64) -> bool {
        self.buffers.0.keys().any(|key| self.ids.get(key) == Some(&(self.played, id)))
    }

    /// Reports the ICMP error as a driver would: with the port of the quoted packet, and its id as we would
    /// have sent it.
    fn icmp(&mut self, from: IpAddr, code: u8, quoted: &[u8]) {
        let port = be16(quoted, 2) as u16;
        let sender_id = quoted.get(20..28).map(|id| u64::from_be_bytes(id.try_into().unwrap()));
        let is_client = port <= 32_767;
        let client = if is_client { self.played } else { from };
        let error = match code {
            CODE_PROTOCOL => RpcError::ProtocolUnreachable,
            CODE_PORT => RpcError::NoSuchPort,
            _ => panic!("{}: ICMP code {code}", self.name),
        };
        if let Some(id) = sender_id {
            let at_ns = self.now.as_ns() - START_NS;
            self.reported.entry((client, id & !1)).or_insert((error, at_ns));
        }
        let ours = |id| if is_client { self.ours.get(&id).copied() } else { Some(id) };
        let report = match code {
            CODE_PROTOCOL => Unreachable::Protocol { rpc_id: sender_id.and_then(ours) },
            _ => Unreachable::Port { port, rpc_id: sender_id.and_then(ours) },
        };
        self.endpoint.peer_unreachable(self.now, SocketAddr::new(from, 0), report);
    }

    fn drain(&mut self) {
        while let Some(event) = self.endpoint.poll_event() {
            self.event(event);
        }
        while let Some(transmit) = self.endpoint.poll_transmit(self.now) {
            let Transmit { to, priority, header, payload, .. } = transmit;
            let payload = payload.map_or(0, |range| range.len);
            if let Err(reason) = self.validator.sent(to, priority, &header, payload) {
                panic!("{}: {reason}: {header:?}", self.name);
            }
            let packet = wire::decode(&header, header.len() + payload as usize).unwrap();
            let id = packet.common.sender_id & !1;
            let from_client = packet.common.sender_id & 1 == 0;
            let captured = if from_client { self.theirs.get(&id).copied().unwrap_or(id) } else { id };
            self.sent.push((packet.body.packet_type(), captured));
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Request { rpc, peer, length, .. } => {
                let id = (peer.ip(), self.endpoint.rpc_id(rpc).unwrap() & !1);
                assert!(!self.ids.values().any(|known| *known == id), "{}: {id:?} runs twice", self.name);
                let known = &self.rpcs[&id];
                assert_eq!(
                    self.buffers.0.remove(&rpc).unwrap(),
                    known.request.bytes,
                    "{}: {id:?}",
                    self.name
                );
                assert_eq!(length as usize, known.request.bytes.len());
                self.ids.insert(rpc, id);
                self.unanswered.insert(id, rpc);
                if self.overdue.remove(&id) {
                    self.answer(id, known.response.bytes.len() as u32).unwrap();
                }
            }
            Event::Response { rpc, length, .. } => {
                let known = &self.rpcs[&self.ids[&rpc]];
                let response = self.buffers.0.remove(&rpc).unwrap();
                assert_eq!(length as usize, known.response.bytes.len());
                assert!(response == known.response.bytes, "{}: {:?}", self.name, self.ids[&rpc]);
                self.end(rpc, End::Response);
            }
            Event::Failed { rpc, error, .. } => self.end(rpc, End::Failed(error)),
            Event::Done { rpc, reason } => self.end(rpc, End::Done(reason)),
            Event::Readable { .. } | Event::Freeze { .. } => panic!("nobody asked for {event:?}"),
        }
    }

    fn end(&mut self, rpc: RpcKey, end: End) {
        self.buffers.0.remove(&rpc);
        // There is no key for a request that was never complete.
        if let Some(&id) = self.ids.get(&rpc) {
            self.unanswered.remove(&id);
            let before = self.ends.insert(id, (end, self.now));
            assert_eq!(before, None, "{}: {id:?} ends twice", self.name);
        }
    }

    /// Makes the checks at the end of the capture.
    fn check_ends(&self) -> usize {
        let mut ended = 0;
        for (id, known) in self.rpcs {
            let expected = if known.client == Some(self.played) && self.ours.contains_key(&id.1) {
                self.client_end(id, known)
            } else if known.server == Some(self.played)
                && known.request.is_whole()
                && !known.response.bytes.is_empty()
            {
                assert!(self.ids.values().any(|named| named == id), "{}: {id:?} did not run", self.name);
                self.server_end(id, known)
            } else {
                None
            };
            if let Some((end, at_ns)) = expected {
                let expected = (end, Time::from_ns(START_NS + at_ns));
                assert_eq!(self.ends.get(id), Some(&expected), "{}: {id:?}", self.name);
                ended += 1;
            }
        }
        ended
    }

    /// Returns how an RPC of the played client ends in the capture, and the time.
    fn client_end(&self, id: &(IpAddr, u64), known: &Known) -> Option<(End, u64)> {
        let whole = known.response.is_whole().then_some((End::Response, known.response.whole_ns));
        let failed = self.reported.get(id).map(|&(error, at_ns)| (End::Failed(error), at_ns));
        earlier(whole, failed)
    }

    /// Returns how an RPC that the played server has answered ends in the capture, and the time.
    fn server_end(&self, id: &(IpAddr, u64), known: &Known) -> Option<(End, u64)> {
        let acknowledged = known.acknowledged_ns.map(|at_ns| (End::Done(DoneReason::Acknowledged), at_ns));
        let silent = self.reported.get(id).map(|&(_, at_ns)| (End::Done(DoneReason::ClientSilent), at_ns));
        earlier(acknowledged, silent)
    }
}

/// Returns the earlier of the two ends.
fn earlier(one: Option<(End, u64)>, other: Option<(End, u64)>) -> Option<(End, u64)> {
    [one, other].into_iter().flatten().min_by_key(|(_, at_ns)| *at_ns)
}

#[test]
fn an_endpoint_in_the_place_of_either_side_ends_what_the_capture_ends() {
    for path in capture::files() {
        let frames = capture::read(&path);
        let rpcs = survey(&frames);
        let hosts: BTreeSet<IpAddr> = frames.iter().flat_map(|frame| [frame.from, frame.to]).collect();
        let mut ended = 0;
        for &played in &hosts {
            for incarnation in [0, 1_700_000_000_000] {
                ended += Replay::new(&capture::name(&path), &frames, &rpcs, played, incarnation).run(&frames);
            }
        }
        assert!(ended > 0, "{} ends no RPC", path.display());
    }
}
