//! The UDP socket shared by the processes at one address with Linux Homa's UDP encapsulation.
//!
//! One process receives from the socket (HOST-12), and hands each packet over to the process that has the
//! packet's Homa port. Acknowledgements piggyback on packets for any port, so the process of the acknowledged
//! RPC gets the header of such a packet. Packets that concern the whole host go to all processes. Network
//! reports go to the process whose port they quote, no matter which process took them from the socket
//! (HOST-13).

use std::io;

use homa_driver::{Driver, HandedPacket, RxBurst};
use homa_proto::wire::{DATA_HEADER_LEN, PacketType};

use crate::tenancy::process_group::{EndpointSlots, ReceiverWatch, Segment};

/// Offset of a packet's type.
const TYPE_AT: usize = 11;
/// Offset of the acknowledgement in DATA: the ID of the RPC, and its server port.
const ACK_AT: usize = 36;

/// This endpoint's membership in the shared socket: see the [module](self).
pub(crate) struct SharedSocket {
    /// Number that identifies the socket.
    path: u64,
    /// Whether this process receives from the socket.
    pub(crate) receives: bool,
    watch: ReceiverWatch,
}

impl SharedSocket {
    /// Joins the driver's socket, if processes share it.
    pub(crate) fn join(segment: &Segment, driver: &mut dyn Driver) -> io::Result<Option<SharedSocket>> {
        let Some(exchange) = driver.exchange() else { return Ok(None) };
        let path = exchange.path();
        let (group, slot) = segment.share_path(path)?;
        exchange.join(&group, slot)?;
        Ok(Some(SharedSocket { path, receives: false, watch: ReceiverWatch::default() }))
    }

    /// Determines whether this process should receive from the socket; returns whether that changed.
    pub(crate) fn choose_receiver(&mut self, slots: &EndpointSlots, now_ns: u64) -> bool {
        let receives = slots.receives(self.path, now_ns, &mut self.watch);
        std::mem::replace(&mut self.receives, receives) != receives
    }

    /// Hands over the packets of a burst and the reports of the socket.
    pub(crate) fn hand_over(&self, slots: &EndpointSlots, driver: &mut dyn Driver, burst: &RxBurst) {
        let Some(exchange) = driver.exchange() else { return };
        while let Some(port) = exchange.next_report() {
            exchange.hand_over_report(slots.sharer(port, self.path));
        }
        if burst.is_empty() || burst.is_handed_over() || slots.is_alone() {
            return;
        }
        for (index, (from, bytes)) in burst.iter().enumerate() {
            let (whole, header) = self.recipients(slots, bytes);
            let mut packet = HandedPacket {
                from,
                priority: burst.priority(index),
                received_at: burst.received_at(index),
                bytes,
            };
            if whole != 0 {
                exchange.hand_over(whole, &packet);
            }
            if header & !whole != 0 {
                packet.bytes = &bytes[..bytes.len().min(DATA_HEADER_LEN)];
                exchange.hand_over(header & !whole, &packet);
            }
        }
        exchange.flush();
    }

    /// Returns the processes that need all of a packet, and those that need its header, as one bit per slot.
    fn recipients(&self, slots: &EndpointSlots, packet: &[u8]) -> (u64, u64) {
        let kind = packet.get(TYPE_AT).and_then(|&kind| PacketType::try_from(kind).ok());
        match kind {
            // HOST-7: these packets are for all processes of the host.
            Some(PacketType::Ack | PacketType::Cutoffs | PacketType::Freeze) => (slots.sharers(self.path), 0),
            Some(PacketType::Data) => {
                let acked = acked_port(packet).map_or(0, |port| slots.sharer(port, self.path));
                (port_of(packet).map_or(0, |port| slots.sharer(port, self.path)), acked)
            }
            _ => (port_of(packet).map_or(0, |port| slots.sharer(port, self.path)), 0),
        }
    }
}

/// Returns the destination port of a Homa packet.
pub(crate) fn port_of(packet: &[u8]) -> Option<u16> {
    let bytes = packet.get(2..4)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// Returns the server port of the RPC that a DATA packet acknowledges.
fn acked_port(packet: &[u8]) -> Option<u16> {
    let ack = packet.get(ACK_AT..ACK_AT + 10)?;
    ack[..8].iter().any(|&byte| byte != 0).then(|| u16::from_be_bytes([ack[8], ack[9]]))
}
