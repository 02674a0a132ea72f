//! Records of packets on the wire, for tests.

use homa_proto::Time;
use homa_proto::wire::{self, Packet};

use crate::packet::Body;

/// The event for which a packet was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet was sent on the sender's uplink.
    Sent,
    /// The packet reached its destination host.
    Delivered,
    /// A fault dropped the packet.
    Lost,
    /// A queue was full.
    Overflow,
    /// The receiver was down.
    HostDown,
}

/// A captured packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CapturedPacket {
    /// Time of the event.
    pub at: Time,
    /// Index of the sending host.
    pub from: usize,
    /// Index of the destination host.
    pub to: usize,
    /// Priority of the packet.
    pub priority: u8,
    /// The event.
    pub fate: Fate,
    /// The decoded packet; `None` if it is not a valid Homa packet.
    pub packet: Option<Packet>,
}

/// All captured packets, if capturing is on.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    pub(crate) on: bool,
    pub(crate) packets: Vec<CapturedPacket>,
}

impl Capture {
    pub(crate) fn record(&mut self, at: Time, packet: &crate::packet::Packet<impl Body>, fate: Fate) {
        if self.on {
            self.packets.push(CapturedPacket {
                at,
                from: packet.info.from as usize,
                to: packet.info.to as usize,
                priority: packet.info.priority,
                fate,
                packet: wire::decode(packet.body.bytes(), packet.info.wire_len as usize).ok(),
            });
        }
    }
}
