//! The types of the drive contract: what goes into an [`Endpoint`](crate::Endpoint) and what comes out of it.

use std::net::SocketAddr;

use crate::wire::HeaderBuf;

/// Names one RPC of an endpoint, from `send_request` (client) or [`Event::Request`] (server) until the event that ends it.
///
/// A key is never reused: `slot` is dense, so that a caller can keep what belongs to an RPC in a vector, and
/// `generation` tells successive users of a slot apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RpcKey {
    /// Index into the endpoint's table; small numbers are reused first.
    pub slot: u32,
    /// Counts the users of the slot.
    pub generation: u32,
}

/// A packet that arrived: its Homa header, and as much of its payload as there is.
#[derive(Clone, Copy, Debug)]
pub struct RxPacket<'a> {
    /// Who sent it (over raw IP the port is 0).
    pub from: SocketAddr,
    /// The bytes that exist: at least the header. In a simulation the payload may be missing.
    pub bytes: &'a [u8],
    /// Length of the Homa packet, header and payload; equals `bytes.len()` when the payload is there.
    pub wire_len: usize,
    /// The priority that it came with, 0 to 7; `None`: the path does not say. For the time trace: nothing depends on it.
    pub priority: Option<u8>,
}

impl<'a> RxPacket<'a> {
    /// A packet whose payload is all there, and of which no priority is known.
    pub fn new(from: SocketAddr, bytes: &'a [u8]) -> RxPacket<'a> {
        RxPacket { from, bytes, wire_len: bytes.len(), priority: None }
    }
}

/// Where the payload of incoming messages is written. The endpoint itself holds no payload.
pub trait Reassembly {
    /// The first packet of the incoming message of `rpc` has come to our `port`, and calls of [`write`](Reassembly::write) follow: the moment to
    /// provide a buffer where that depends on the port.
    fn begin(&mut self, rpc: RpcKey, port: u16, message_length: u32) {
        let _ = (rpc, port, message_length);
    }

    /// Bytes `[offset, offset + len)` of the incoming message of `rpc` arrived, `message_length` bytes in all.
    ///
    /// Each byte of a message is written exactly once. `data` holds the `len` bytes, or is empty where the packet was
    /// length-only. The first call for a key is the moment to provide a buffer; the endpoint has counted
    /// `message_length` against `Config::max_incoming_bytes` by then. The buffer can go when an event ends the RPC
    /// ([`Event::Response`] hands it to the application; [`Event::Request`] too).
    fn write(&mut self, rpc: RpcKey, message_length: u32, offset: u32, len: u32, data: &[u8]);
}

/// With what a packet may share a datagram (PROTOCOL.md WIRE-23): other packets to the same address whose bundle is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// Which of the endpoints behind the peer's address takes the datagram.
    pub endpoint: u32,
    /// Longest datagram on the path, in bytes.
    pub max_bytes: u32,
}

/// A packet to be sent: a small header, and a range of an outgoing message.
#[derive(Clone, Copy, Debug)]
pub struct Transmit {
    /// The peer.
    pub to: SocketAddr,
    /// 0 to 7, larger is higher.
    pub priority: u8,
    /// `None`: it goes in a datagram of its own.
    pub bundle: Option<Bundle>,
    /// The Homa header.
    pub header: HeaderBuf,
    /// What follows the header; `None` for control packets.
    pub payload: Option<PayloadRange>,
}

/// One packet, or several of one message that are to be sent one behind the other: their headers differ in the offset only.
#[derive(Clone, Copy, Debug)]
pub struct TransmitRun {
    /// The first.
    pub first: Transmit,
    /// Bytes of the message behind the payload of the first, for the others. Each carries as many as the first, the last what is left.
    pub more: u32,
}

impl TransmitRun {
    /// Packets in all, at least 1.
    pub fn packets(&self) -> u32 {
        match self.first.payload {
            Some(range) if self.more > 0 => 1 + self.more.div_ceil(range.len),
            _ => 1,
        }
    }

    /// What the packets carry together; `None` for a control packet.
    pub fn payload(&self) -> Option<PayloadRange> {
        self.first.payload.map(|range| PayloadRange { len: range.len + self.more, ..range })
    }

    /// Bytes of all packets: headers and payload.
    pub fn bytes(&self) -> u32 {
        let payload = self.payload().map_or(0, |range| range.len);
        self.packets() * self.first.header.len() as u32 + payload
    }

    /// The header of one of several packets; `index` counts from 0 and is less than their number.
    pub fn header(&self, index: u32) -> HeaderBuf {
        match self.first.payload {
            Some(first) if index > 0 => {
                self.first.header.at_offset(first.offset.saturating_add(first.len.saturating_mul(index)))
            }
            _ => self.first.header,
        }
    }

    /// One of the packets, or `None` beyond the last.
    pub fn packet(&self, index: u32) -> Option<Transmit> {
        if index == 0 {
            return Some(self.first);
        }
        let first = self.first.payload?;
        let sent = first.len.checked_mul(index)?;
        let left = (first.len + self.more).checked_sub(sent).filter(|&left| left > 0)?;
        let (offset, len) = (first.offset + sent, first.len.min(left));
        Some(Transmit {
            header: self.header(index),
            payload: Some(PayloadRange { offset, len, ..first }),
            ..self.first
        })
    }

    /// What is left of the run behind its first `packets`, or `None` where that is nothing: for a driver that took no more.
    pub fn behind(&self, packets: u32) -> Option<TransmitRun> {
        let first = self.packet(packets)?;
        let end = self.payload().map_or(0, |range| range.offset + range.len);
        Some(TransmitRun { first, more: first.payload.map_or(0, |range| end - range.offset - range.len) })
    }
}

/// Bytes `[offset, offset + len)` of the outgoing message of an RPC (the request at a client, the response at a server).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadRange {
    /// Whose message.
    pub rpc: RpcKey,
    /// First byte.
    pub offset: u32,
    /// Number of bytes, at least 1.
    pub len: u32,
}

/// What a caller may ask of one RPC.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallOptions {
    /// Handed back in the event that ends the RPC; means nothing to the protocol.
    pub cookie: u64,
    /// The RPC's completion is for whoever names it, not for any waiting thread; handed back in events.
    pub private: bool,
    /// Report the response's contiguous bytes as they arrive ([`Event::Readable`]), each time at least this many more
    /// are there; 0: only when complete.
    pub readable_step: u32,
}

/// What is known of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerInfo {
    /// Its address.
    pub addr: SocketAddr,
    /// Whether it has shown itself as one of ours.
    pub is_ours: bool,
    /// RPCs open with it, of both sides.
    pub rpcs: u32,
    /// Smallest time that a grant from it took lately, in nanoseconds; `None`: not measured, because no message to it was
    /// long enough to need one.
    pub rtt_ns: Option<u64>,
    /// Bytes of the next message to it that will go unasked.
    pub unsched_bytes: u32,
    /// What it lets us send unasked, where it sets a limit.
    pub unsched_limit: Option<u32>,
    /// Largest Homa packet on the path to it, in bytes, header included.
    pub max_packet: u32,
    /// Packets of it that were refused because it had its share, since it was last added to the table of
    /// peers.
    pub refused: u64,
}

impl PeerInfo {
    /// A peer of which nothing is known, for tests of what shows peers.
    pub fn unknown(addr: SocketAddr) -> PeerInfo {
        PeerInfo {
            addr,
            is_ours: false,
            rpcs: 0,
            rtt_ns: None,
            unsched_bytes: 0,
            unsched_limit: None,
            max_packet: 0,
            refused: 0,
        }
    }

    /// Takes in what another endpoint of the same host knows of the same peer: the shorter round trip, and the narrower of each limit.
    pub fn merge(&mut self, other: &PeerInfo) {
        self.is_ours |= other.is_ours;
        self.rpcs += other.rpcs;
        self.rtt_ns = [self.rtt_ns, other.rtt_ns].into_iter().flatten().min();
        self.unsched_bytes = self.unsched_bytes.min(other.unsched_bytes);
        self.unsched_limit = [self.unsched_limit, other.unsched_limit].into_iter().flatten().min();
        self.max_packet = self.max_packet.min(other.max_packet);
        self.refused += other.refused;
    }
}

/// A request that is not whole yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArrivingRequest {
    /// The client.
    pub peer: SocketAddr,
    /// The server port it was sent to.
    pub port: u16,
    /// Exclusive end of the contiguous bytes that are there.
    pub end: u32,
    /// Bytes of the whole request.
    pub length: u32,
}

/// What the endpoint tells its caller. For each RPC exactly one event ends it, after which its key is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A whole request is there, for the server bound to `port`. Answer with `send_response` or give up with `abort`;
    /// in both cases [`Event::Done`] comes later.
    Request {
        /// The RPC.
        rpc: RpcKey,
        /// The client.
        peer: SocketAddr,
        /// The server port it was sent to.
        port: u16,
        /// Bytes of the request.
        length: u32,
    },
    /// Client: the whole response is there. Ends the RPC.
    Response {
        /// The RPC, dead after this event.
        rpc: RpcKey,
        /// From [`CallOptions`].
        cookie: u64,
        /// From [`CallOptions`].
        private: bool,
        /// Bytes of the response.
        length: u32,
    },
    /// Client: the RPC ended without a response.
    Failed {
        /// The RPC, dead after this event.
        rpc: RpcKey,
        /// From [`CallOptions`].
        cookie: u64,
        /// From [`CallOptions`].
        private: bool,
        /// Who or what is to blame.
        error: RpcError,
    },
    /// Bytes `[0, end)` of the incoming message are there (only where asked for). A request can be handed to the application from
    /// here on: see [`Endpoint::take_early`](crate::Endpoint::take_early).
    Readable {
        /// The RPC.
        rpc: RpcKey,
        /// Exclusive end of the contiguous bytes.
        end: u32,
        /// Bytes of the whole message.
        length: u32,
    },
    /// Server: the RPC's state is gone (acknowledged, aborted, or its client is). Buffers of it can be dropped.
    Done {
        /// The RPC, dead after this event.
        rpc: RpcKey,
        /// Why.
        reason: DoneReason,
    },
    /// A peer asks everybody to freeze their time traces.
    Freeze {
        /// Who asked.
        peer: SocketAddr,
    },
}

/// Why a server RPC's state was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoneReason {
    /// The client acknowledged the response.
    Acknowledged,
    /// The client gave the RPC up, or does not know it any more.
    ClientGaveUp,
    /// Nothing was heard of the client for too long.
    ClientSilent,
    /// The client's host restarted.
    ClientRestarted,
    /// The server's application gave it up.
    Aborted,
}

/// Why a client's RPC failed; each names the culprit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RpcError {
    /// The peer did not answer `Config::max_resends` requests to resend.
    #[error("the peer did not answer in time: it is down, or the network loses everything between us")]
    Timeout,
    /// ICMP says that nobody listens at the peer's address and (UDP) port.
    #[error("the peer is unreachable: no Homa host listens at its address")]
    Unreachable,
    /// ICMP says that the peer's machine does not know Homa's IP protocol, 146. A kernel says EPROTONOSUPPORT.
    #[error("the peer's machine does not know IP protocol 146: no Homa host runs there")]
    ProtocolUnreachable,
    /// The peer is there, but no server is bound to the Homa port: so says the peer, or ICMP for it. A kernel says ENOTCONN.
    #[error("the peer has no server on that Homa port")]
    NoSuchPort,
    /// The peer, or the process of it that had the port, is gone with all it knew; the request may or may not have run.
    #[error("the peer or its server restarted while the RPC was open: the request may have run")]
    PeerRestarted,
    /// The peer ran the request, and gave the response up before we had all of it.
    #[error("the request ran, but its response is gone")]
    ResponseLost,
    /// The message is larger than the peer takes, or its response larger than we take.
    #[error("the message is larger than the receiver accepts")]
    MessageTooLarge,
    /// `abort` was called, or its port closed.
    #[error("the RPC was aborted by its caller")]
    Aborted,
}

/// What the network reported (ICMP) of a packet to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// Nobody is at the peer's address: over UDP, a port unreachable.
    Peer {
        /// `sender_id` of the refused packet, as we sent it; `None` where the report quotes too little of it.
        rpc_id: Option<u64>,
    },
    /// The peer's machine does not know the protocol: over raw IP, a protocol unreachable.
    Protocol {
        /// As for the peer.
        rpc_id: Option<u64>,
    },
    /// The peer's machine has nobody at this Homa port: over raw IP, a port unreachable.
    Port {
        /// Where the refused packet was bound for.
        port: u16,
        /// `sender_id` of the refused packet, as we sent it; `None` where the report quotes too little of it.
        rpc_id: Option<u64>,
    },
}

/// Why a message was not taken from the caller. Nothing has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The wire cannot carry a message of length 0.
    #[error("a message has at least one byte: the wire cannot carry an empty one")]
    EmptyMessage,
    /// Above `Config::max_message`, or above what this peer takes.
    #[error("the message has {length} bytes, the limit is {limit} (max_message)")]
    MessageTooLarge {
        /// Bytes asked for.
        length: u32,
        /// Bytes allowed.
        limit: u32,
    },
    /// A configured limit is reached; the name is that of the field of `Config`.
    #[error("the limit {name} is reached: wait for RPCs to end, or raise it")]
    LimitReached {
        /// The field of `Config`.
        name: &'static str,
    },
    /// The ids that the endpoint was given are used up.
    #[error("the RPC ids that this endpoint was given are used up: give it more")]
    NoIds,
    /// The RPC ended in the meantime (or never was).
    #[error("the RPC is gone: its client gave it up, or it has been answered")]
    UnknownRpc,
    /// The local port is not open.
    #[error("port {0} is not open here")]
    PortNotOpen(u16),
}

/// Why a port could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// Servers bind 1 to 32767; higher ports are given to clients.
    #[error("port {0} is not a server port: choose 1 to 32767")]
    OutOfRange(u16),
    /// Another server has it.
    #[error("port {0} is taken by another server of this host")]
    InUse(u16),
    /// All client ports are open.
    #[error("all client ports of this host are open: close one")]
    NoneFree,
}
