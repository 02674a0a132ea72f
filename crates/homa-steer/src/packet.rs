//! The fields of a packet that policies use.

use std::net::{IpAddr, Ipv4Addr};

use crate::batch::Batch;
use crate::cores::Core;

/// The purpose of a Homa packet, as far as it matters for steering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketKind {
    /// Contains bytes of a message.
    Data,
    /// Lets a waiting sender continue.
    Grant,
    /// Any other packet.
    Control,
}

/// The additional fields of a Homa packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomaPacket {
    /// RPC ID as in the packet. The two directions of an RPC differ only in bit 0.
    pub rpc_id: u64,
    /// The purpose of the packet.
    pub kind: PacketKind,
    /// Length of the whole message that the packet belongs to; 0 if there is none.
    pub message_bytes: u32,
}

/// The fields of a packet that policies use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The current time, in nanoseconds of any monotonic clock.
    pub now_ns: u64,
    /// The core that took the packet from the device; less than [`crate::CORE_NUMBERS`].
    pub arrival: Core,
    /// Index of the receiving device, from 1 on.
    pub device: u32,
    /// A hash that all packets of a flow share, such as [`crate::hash::Flow::hash`].
    pub flow_hash: u32,
    /// Address of the sender.
    pub source: IpAddr,
    /// Source and destination port: the Homa ports of a Homa packet, otherwise the ports of TCP or UDP, or 0.
    pub ports: [u16; 2],
    /// The fields of a Homa packet; `None` for other packets.
    pub homa: Option<HomaPacket>,
    /// Length of the packet in bytes, including headers.
    pub bytes: u32,
    /// The packet's position among the packets that were taken from the device at the same time.
    pub batch: Batch,
}

impl Default for Packet {
    /// Returns a lone packet with empty fields, at time 0 on core 0.
    fn default() -> Packet {
        Packet {
            now_ns: 0,
            arrival: 0,
            device: 1,
            flow_hash: 0,
            source: Ipv4Addr::UNSPECIFIED.into(),
            ports: [0; 2],
            homa: None,
            bytes: 0,
            batch: Batch::LONE,
        }
    }
}
