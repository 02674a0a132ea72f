//! The fields of a packet that a policy sees.

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
    /// As in the packet. The two directions of an RPC differ in bit 0 only.
    pub rpc_id: u64,
    /// The purpose of the packet.
    pub kind: PacketKind,
    /// Bytes of the packet's whole message; 0 if it has none.
    pub message_bytes: u32,
}

/// The fields of a packet that a policy sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The current time, in nanoseconds of any clock that does not go back.
    pub now_ns: u64,
    /// The core that took the packet from the device, below [`crate::CORE_NUMBERS`].
    pub arrival: Core,
    /// Index of the receiving device, from 1 on.
    pub device: u32,
    /// A hash that all packets of a flow share, such as [`crate::hash::Flow::hash`].
    pub flow_hash: u32,
    /// The sender.
    pub source: IpAddr,
    /// Source and destination port: Homa's for a Homa packet, else those of TCP or UDP, or 0.
    pub ports: [u16; 2],
    /// The fields of a Homa packet; `None` for other packets.
    pub homa: Option<HomaPacket>,
    /// Length of the packet, including headers.
    pub bytes: u32,
    /// The packet's position among the packets taken from the device together.
    pub batch: Batch,
}

impl Default for Packet {
    /// A lone packet with empty fields, at time 0 on core 0.
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
