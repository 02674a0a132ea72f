//! What was seen on the wire, for tests that look at packets.

use homa_proto::Time;
use homa_proto::wire::{self, Packet};

use crate::packet::Body;

/// What became of a packet at the moment when it was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It went onto the sender's uplink.
    Sent,
    /// It reached the host that it was for.
    Delivered,
    /// A fault took it.
    Lost,
    /// A queue was full.
    Overflow,
    /// Its receiver is down.
    HostDown,
}

/// A packet that was seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Captured {
    /// When.
    pub at: Time,
    /// Index of the host that sent it.
    pub from: usize,
    /// Index of the host that it is for.
    pub to: usize,
    /// The priority it travels with.
    pub priority: u8,
    /// What became of it.
    pub fate: Fate,
    /// What it says; `None` when it is not a Homa packet (any more).
    pub packet: Option<Packet>,
}

/// The packets seen so far, where that was asked for.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    pub(crate) on: bool,
    pub(crate) packets: Vec<Captured>,
}

impl Capture {
    pub(crate) fn see(&mut self, at: Time, packet: &crate::packet::Packet<impl Body>, fate: Fate) {
        if self.on {
            self.packets.push(Captured {
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
