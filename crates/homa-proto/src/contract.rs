//! The types of the drive contract: inputs and outputs of an [`Endpoint`](crate::Endpoint).

use std::net::SocketAddr;

use crate::dialect::Dialect;
use crate::wire::HeaderBuf;

/// Identifies one RPC of an endpoint, from `send_request` (client) or [`Event::Request`] (server) until the
/// event that ends it.
///
/// A key is never reused. Slots are dense, so that a caller can store per-RPC data in a vector; `generation`
/// distinguishes successive RPCs in one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RpcKey {
    /// Index into the endpoint's table; small numbers are reused first.
    pub slot: u32,
    /// Incremented for each RPC that uses the slot.
    pub generation: u32,
}

/// A received packet: its Homa header, and the available part of its payload.
#[derive(Clone, Copy, Debug)]
pub struct RxPacket<'a> {
    /// The sender's address (over raw IP the port is 0).
    pub from: SocketAddr,
    /// The available bytes: at least the header. In a simulation the payload may be missing.
    pub bytes: &'a [u8],
    /// Length of the Homa packet, header and payload; equals `bytes.len()` unless payload is missing.
    pub wire_len: usize,
    /// The priority at which the packet arrived, 0 to 7; `None`: the receive path does not report it. Used
    /// only in the time trace.
    pub priority: Option<u8>,
}

impl<'a> RxPacket<'a> {
    /// Creates a packet with its complete payload and an unknown priority.
    pub fn new(from: SocketAddr, bytes: &'a [u8]) -> RxPacket<'a> {
        RxPacket { from, bytes, wire_len: bytes.len(), priority: None }
    }
}

/// Where the payload of incoming messages is written. The endpoint itself holds no payload.
pub trait Reassembly {
    /// Called when the first packet of the incoming message of `rpc` has arrived at our `port`; calls of
    /// [`write`](Reassembly::write) follow. A buffer that depends on the port must be provided here.
    fn begin(&mut self, rpc: RpcKey, port: u16, message_length: u32) {
        let _ = (rpc, port, message_length);
    }

    /// Called when bytes `[offset, offset + len)` of the incoming message of `rpc` have arrived. The message
    /// has `message_length` bytes.
    ///
    /// Each byte of a message is written exactly once. `data` holds the `len` bytes, or is empty if the
    /// packet carried only a length. The first call for a key must provide a buffer; the endpoint has then
    /// already counted `message_length` against `Config::max_incoming_bytes`. The buffer may be freed when an
    /// event ends the RPC. [`Event::Request`] and [`Event::Response`] pass the buffer to the application.
    fn write(&mut self, rpc: RpcKey, message_length: u32, offset: u32, len: u32, data: &[u8]);
}

/// Determines which packets may share a datagram: packets to the same address whose bundles are equal
/// (PROTOCOL.md WIRE-23).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// The endpoint behind the peer's address that receives the datagram.
    pub endpoint: u32,
    /// Longest datagram on the path, in bytes.
    pub max_bytes: u32,
}

/// A packet to be sent: a small header, and a range of an outgoing message.
#[derive(Clone, Copy, Debug)]
pub struct Transmit {
    /// The peer.
    pub to: SocketAddr,
    /// Priority, 0 to 7; larger is higher.
    pub priority: u8,
    /// The packet's bundle; `None`: the packet needs its own datagram.
    pub bundle: Option<Bundle>,
    /// The Homa header.
    pub header: HeaderBuf,
    /// The payload after the header; `None` for control packets.
    pub payload: Option<PayloadRange>,
}

/// One packet, or several consecutive packets of one message whose headers differ only in the offset.
#[derive(Clone, Copy, Debug)]
pub struct TransmitRun {
    /// The first packet.
    pub first: Transmit,
    /// Payload bytes of the packets after `first`. Each carries as many bytes as `first`; the last carries
    /// the rest.
    pub more: u32,
}

impl TransmitRun {
    /// Returns the number of packets, at least 1.
    pub fn packets(&self) -> u32 {
        match self.first.payload {
            Some(range) if self.more > 0 => 1 + self.more.div_ceil(range.len),
            _ => 1,
        }
    }

    /// Returns the payload of all packets together; `None` for a control packet.
    pub fn payload(&self) -> Option<PayloadRange> {
        self.first.payload.map(|range| PayloadRange { len: range.len + self.more, ..range })
    }

    /// Returns the total bytes of all packets: headers and payload.
    pub fn bytes(&self) -> u32 {
        let payload = self.payload().map_or(0, |range| range.len);
        self.packets() * self.first.header.len() as u32 + payload
    }

    /// Returns the header of packet `index`, which counts from 0 and must be less than the number of packets.
    pub fn header(&self, index: u32) -> HeaderBuf {
        match self.first.payload {
            Some(first) if index > 0 => {
                self.first.header.at_offset(first.offset.saturating_add(first.len.saturating_mul(index)))
            }
            _ => self.first.header,
        }
    }

    /// Returns packet `index`; `None` beyond the last.
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

    /// Returns the run without its first `packets` packets; `None` if nothing is left. Used when a driver
    /// accepted only the first `packets`.
    pub fn skip(&self, packets: u32) -> Option<TransmitRun> {
        let first = self.packet(packets)?;
        let end = self.payload().map_or(0, |range| range.offset + range.len);
        Some(TransmitRun { first, more: first.payload.map_or(0, |range| end - range.offset - range.len) })
    }
}

/// Bytes `[offset, offset + len)` of the outgoing message of an RPC (the request at a client, the response at
/// a server).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadRange {
    /// The RPC to which the message belongs.
    pub rpc: RpcKey,
    /// Offset of the first byte.
    pub offset: u32,
    /// Number of bytes, at least 1.
    pub len: u32,
}

/// Options of one RPC.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallOptions {
    /// Value returned in the event that ends the RPC. The protocol does not use it.
    pub cookie: u64,
    /// Whether the completion is delivered only to a caller that waits for this RPC, rather than to any
    /// waiting thread. Returned in events.
    pub private: bool,
    /// Number of further contiguous bytes of the response after which [`Event::Readable`] is reported again.
    /// 0: the response is reported only when it is complete.
    pub readable_step: u32,
}

/// Information about one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerInfo {
    /// The peer's address.
    pub addr: SocketAddr,
    /// Whether the peer has announced an incarnation, and so runs this implementation.
    pub is_ours: bool,
    /// The peer's dialect, if its packets have shown it.
    pub dialect: Dialect,
    /// Number of open RPCs with the peer, as client and as server.
    pub rpcs: u32,
    /// Smallest recent round-trip time measured with a grant from the peer, in nanoseconds. `None`: not
    /// measured, because no message to the peer was long enough to need a grant.
    pub rtt_ns: Option<u64>,
    /// Unscheduled bytes of the next message to the peer.
    pub unsched_bytes: u32,
    /// Maximum unscheduled bytes that the peer accepts, if it sets a limit.
    pub unsched_limit: Option<u32>,
    /// Largest Homa packet on the path to the peer, in bytes, including the header.
    pub max_packet: u32,
    /// Number of packets from the peer that were refused because the peer had used up its share. Counted
    /// since the peer was last added to the table of peers.
    pub refused: u64,
}

impl PeerInfo {
    /// Returns the information on a peer about which nothing is known. Used in tests of code that displays
    /// peers.
    pub fn unknown(addr: SocketAddr) -> PeerInfo {
        PeerInfo {
            addr,
            is_ours: false,
            dialect: Dialect::Unknown,
            rpcs: 0,
            rtt_ns: None,
            unsched_bytes: 0,
            unsched_limit: None,
            max_packet: 0,
            refused: 0,
        }
    }

    /// Merges the information that another endpoint of the same host has about the same peer: the shorter
    /// round-trip time and the lower of each limit are kept.
    pub fn merge(&mut self, other: &PeerInfo) {
        self.is_ours |= other.is_ours;
        if self.dialect == Dialect::Unknown {
            self.dialect = other.dialect;
        }
        self.rpcs += other.rpcs;
        self.rtt_ns = [self.rtt_ns, other.rtt_ns].into_iter().flatten().min();
        self.unsched_bytes = self.unsched_bytes.min(other.unsched_bytes);
        self.unsched_limit = [self.unsched_limit, other.unsched_limit].into_iter().flatten().min();
        self.max_packet = self.max_packet.min(other.max_packet);
        self.refused += other.refused;
    }
}

/// A request that is not complete yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArrivingRequest {
    /// The client.
    pub peer: SocketAddr,
    /// The server port to which it was sent.
    pub port: u16,
    /// Exclusive end of the contiguous bytes received.
    pub end: u32,
    /// Length of the complete request, in bytes.
    pub length: u32,
}

/// An event for the caller. Exactly one event ends each RPC; the RPC's key is stale afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A complete request has arrived for the server bound to `port`. Answer it with `send_response` or give
    /// it up with `abort`; [`Event::Done`] follows in both cases.
    Request {
        /// The RPC.
        rpc: RpcKey,
        /// The client.
        peer: SocketAddr,
        /// The server port to which it was sent.
        port: u16,
        /// Bytes of the request.
        length: u32,
    },
    /// Client: the complete response has arrived. Ends the RPC.
    Response {
        /// The RPC; its key is stale after this event.
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
        /// The RPC; its key is stale after this event.
        rpc: RpcKey,
        /// From [`CallOptions`].
        cookie: u64,
        /// From [`CallOptions`].
        private: bool,
        /// The cause.
        error: RpcError,
    },
    /// Bytes `[0, end)` of the incoming message have arrived (reported only if the caller requested such
    /// reports). From this event on, a request can be delivered to the application early: see
    /// [`Endpoint::take_early`](crate::Endpoint::take_early).
    Readable {
        /// The RPC.
        rpc: RpcKey,
        /// Exclusive end of the contiguous bytes.
        end: u32,
        /// Length of the complete message, in bytes.
        length: u32,
    },
    /// Server: the RPC's state was freed (acknowledged, aborted, or its client is gone). Its buffers can be
    /// freed.
    Done {
        /// The RPC; its key is stale after this event.
        rpc: RpcKey,
        /// The reason.
        reason: DoneReason,
    },
    /// A peer requests that all hosts freeze their time traces.
    Freeze {
        /// The peer that sent the request.
        peer: SocketAddr,
    },
}

/// Why a server RPC's state was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoneReason {
    /// The client acknowledged the response.
    Acknowledged,
    /// The client gave up the RPC, or no longer has state for it.
    ClientGaveUp,
    /// No packet came from the client for too long.
    ClientSilent,
    /// The client's host restarted.
    ClientRestarted,
    /// The server's application gave up the RPC.
    Aborted,
}

/// Why a client's RPC failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RpcError {
    /// The peer did not answer `Config::max_resends` RESENDs.
    #[error("the peer did not answer in time: it is down, or the network loses everything between us")]
    Timeout,
    /// ICMP reports that no process listens at the peer's address and (UDP) port.
    #[error("the peer is unreachable: no Homa host listens at its address")]
    Unreachable,
    /// ICMP reports that the peer's machine does not support Homa's IP protocol, 146. A kernel reports
    /// EPROTONOSUPPORT.
    #[error("the peer's machine does not know IP protocol 146: no Homa host runs there")]
    ProtocolUnreachable,
    /// The peer is alive, but no server is bound to the Homa port, as reported by the peer or by ICMP. A
    /// kernel reports ENOTCONN.
    #[error("the peer has no server on that Homa port")]
    NoSuchPort,
    /// The peer, or its process that had the port, has ended and lost all state. The request may or may not
    /// have run.
    #[error("the peer or its server restarted while the RPC was open: the request may have run")]
    PeerRestarted,
    /// The peer ran the request, but freed the response before all of it arrived here.
    #[error("the request ran, but its response is gone")]
    ResponseLost,
    /// The request is larger than the peer accepts, or the response is larger than this endpoint accepts.
    #[error("the message is larger than the receiver accepts")]
    MessageTooLarge,
    /// `abort` was called, or the RPC's port was closed.
    #[error("the RPC was aborted by its caller")]
    Aborted,
}

/// An ICMP report about a packet to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// No process listens at the peer's address: over UDP, an ICMP "port unreachable".
    Peer {
        /// `sender_id` of the refused packet, as we sent it; `None` if the report quotes too few bytes.
        rpc_id: Option<u64>,
    },
    /// The peer's machine does not support the protocol: over raw IP, an ICMP "protocol unreachable".
    Protocol {
        /// `sender_id` of the refused packet, as for `Peer`.
        rpc_id: Option<u64>,
    },
    /// No process of the peer's machine has this Homa port: over raw IP, an ICMP "port unreachable".
    Port {
        /// The destination port of the refused packet.
        port: u16,
        /// `sender_id` of the refused packet, as we sent it; `None` if the report quotes too few bytes.
        rpc_id: Option<u64>,
    },
}

/// Why the endpoint did not accept a message from the caller. Nothing has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The wire cannot carry a message of length 0.
    #[error("a message has at least one byte: the wire cannot carry an empty one")]
    EmptyMessage,
    /// The message is longer than `Config::max_message`, or than this peer accepts.
    #[error("the message has {length} bytes, the limit is {limit} (max_message)")]
    MessageTooLarge {
        /// Requested bytes.
        length: u32,
        /// Maximum bytes.
        limit: u32,
    },
    /// A configured limit is reached.
    #[error("the limit {name} is reached: wait for RPCs to end, or raise it")]
    LimitReached {
        /// Name of the field of `Config`.
        name: &'static str,
    },
    /// All ids assigned to the endpoint are used up.
    #[error("the RPC ids that this endpoint was given are used up: give it more")]
    NoIds,
    /// The RPC has ended (or never existed).
    #[error("the RPC is gone: its client gave it up, or it has been answered")]
    UnknownRpc,
    /// The local port is not open.
    #[error("port {0} is not open here")]
    PortNotOpen(u16),
}

/// Why a port could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// Servers bind ports 1 to 32767; higher ports are for clients.
    #[error("port {0} is not a server port: choose 1 to 32767")]
    OutOfRange(u16),
    /// Another server has the port.
    #[error("port {0} is taken by another server of this host")]
    InUse(u16),
    /// All client ports are open.
    #[error("all client ports of this host are open: close one")]
    NoneFree,
}
