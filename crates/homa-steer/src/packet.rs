//! What a policy sees of a packet.

use std::net::{IpAddr, Ipv4Addr};

use crate::batch::Batch;
use crate::cores::Core;

/// What a packet of Homa is for, as far as it matters where it is processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It has bytes of a message.
    Data,
    /// It lets a sender go on, which otherwise waits.
    Grant,
    /// Any other.
    Control,
}

/// What a policy sees of a packet of Homa beside what every packet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomaPacket {
    /// As it is in the packet. The two directions of an RPC differ in bit 0 only.
    pub rpc_id: u64,
    /// What it is for.
    pub kind: Kind,
    /// Bytes of the whole message that it is of; 0 where it has none.
    pub message_bytes: u32,
}

/// What a policy sees of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Now, in nanoseconds of any clock that does not go back.
    pub now_ns: u64,
    /// The core on which it was taken from the device, below [`crate::CORE_NUMBERS`].
    pub arrival: Core,
    /// The device that it came by, by its index, from 1 on.
    pub device: u32,
    /// What all packets of a flow have alike, such as [`crate::hash::Flow::hash`].
    pub flow_hash: u32,
    /// Who sent it.
    pub source: IpAddr,
    /// Source and destination port: Homa's where it is of Homa, else those of TCP or UDP, or 0.
    pub ports: [u16; 2],
    /// Where it is of Homa.
    pub homa: Option<HomaPacket>,
    /// Its length, headers included.
    pub bytes: u32,
    /// Which of the packets it is that were taken from the device together.
    pub batch: Batch,
}

impl Default for Packet {
    /// A lone packet of no particular kind, at time 0 on core 0.
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
