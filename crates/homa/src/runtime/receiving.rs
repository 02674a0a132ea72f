//! The packets that are being received.

use std::ptr;

use homa_driver::{Driver, RxBurst};
use homa_proto::wire::{self, Body, Packet};
use homa_proto::{Endpoint, RxPacket, Time};

use crate::payload::buffers::Buffers;
use crate::payload::incoming::DirectReceive;
use crate::runtime::bundles::{packets_in, packets_of};

/// Packets that an endpoint has received but not processed yet.
pub(crate) struct Receiving {
    pub(crate) burst: RxBurst,
    /// The bytes of a bundle of which only the first bytes were received into `burst`; empty outside a drive
    /// round.
    bundle: Vec<u8>,
    /// Consecutive rounds in which due timers were deferred in favour of received packets.
    pub(super) timer_deferrals: u32,
    /// Number of polls of the driver that returned nothing since packets last arrived.
    pub(super) empty_polls: u32,
}

impl Receiving {
    pub(crate) fn new() -> Receiving {
        Receiving { burst: RxBurst::new(), bundle: Vec::new(), timer_deferrals: 0, empty_polls: 0 }
    }

    /// Receives packets. If the first packet is the expected next packet of a message, its payload is
    /// received directly into its place in the buffers, and only its header into the burst. Returns how many
    /// packets arrived.
    pub(super) fn receive_in_place(
        &mut self,
        mut in_place: DirectReceive,
        (driver, buffers): (&mut dyn Driver, &mut Buffers),
    ) -> std::io::Result<usize> {
        let place = in_place.place();
        let start = place.as_ptr();
        let received = driver.receive_in_place(&mut self.burst, place);
        // Only payload that starts at the expected address is known to have been written there. If a driver
        // breaks its contract, a packet is lost.
        let is_there = |payload: &&[u8]| ptr::eq(payload.as_ptr(), start.cast());
        let mut payload =
            received.as_ref().ok().filter(|payload| is_there(payload)).map_or(0, |payload| payload.len());
        if let (Some((_, header)), Ok(rest)) = (self.burst.get(0).filter(|_| payload > 0), &received)
            && wire::packet_length(header).is_some()
        {
            self.bundle.extend_from_slice(header);
            self.bundle.extend_from_slice(rest);
            payload = 0;
        }
        let failed = received.err();
        match self.burst.get(0).filter(|_| payload > 0) {
            Some((_, header)) => {
                let offset = match wire::decode(header, header.len() + payload) {
                    Ok(Packet { body: Body::Data(data), .. }) => data.offset,
                    // The endpoint drops this packet.
                    _ => 0,
                };
                buffers.hold_in_place(in_place, offset, payload);
            }
            None => buffers.give_back(in_place),
        }
        failed.map_or(Ok(self.burst.len()), Err)
    }

    /// Processes the received burst if all of it belongs to this endpoint.
    pub(super) fn take_burst(&mut self, now: Time, (endpoint, buffers): (&mut Endpoint, &mut Buffers)) {
        let payload = buffers.payload_in_place();
        if payload > 0 {
            let packet = self.burst.get(0).map(|(from, bytes)| RxPacket {
                wire_len: bytes.len() + payload,
                priority: self.burst.priority(0),
                ..RxPacket::new(from, bytes)
            });
            endpoint.handle_packets(now, packet, buffers);
            buffers.release_held();
        } else if let Some((from, _)) = self.burst.get(0).filter(|_| !self.bundle.is_empty()) {
            let packets = packets_in(from, &self.bundle, self.burst.priority(0));
            endpoint.handle_packets(now, packets, buffers);
            self.bundle.clear();
        } else {
            endpoint.handle_packets(now, packets_of(&self.burst), buffers);
        }
    }
}
