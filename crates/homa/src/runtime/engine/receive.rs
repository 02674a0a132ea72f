//! Receiving: a burst of packets from the driver to the endpoint.

use std::ptr;

use homa_driver::{Refusal, Unreachable};
use homa_proto::wire::{self, Body, Packet};
use homa_proto::{RxPacket, Time};

use super::Engine;
use crate::payload::incoming::DirectReceive;
use crate::runtime::bundles::{packets_in, packets_of};

impl Engine {
    /// Receives packets; returns whether there were any, and the time after the driver returned them.
    pub(crate) fn receive(&mut self, now: Time) -> (bool, Time) {
        self.just_now = None;
        // If packets may belong to others, they are classified before their payload is placed anywhere.
        let alone = self.share.is_none() && self.kin.is_none();
        let expected = if alone { self.buffers.take_expected() } else { None };
        if let Some(share) = &mut self.share {
            share.begin_receive();
        }
        let received = match expected {
            None => self.driver.receive(&mut self.rx),
            Some(in_place) => self.receive_in_place(in_place),
        };
        let count = match received {
            Ok(count) => count,
            Err(error) => {
                self.note_broken("receive", &error);
                return (false, now);
            }
        };
        let handled = self.packets_handled();
        let now = self.note_burst_in(count, now);
        if count > 0 {
            self.note_device_times();
        }
        if let Some(share) = &mut self.share {
            share.note_received(&self.rx);
        }
        if count > 0 && self.share.is_some() {
            let before = self.endpoint.stats().drop_no_port;
            if self.kin.is_some() {
                self.take_steered_burst(now);
            } else {
                self.take_shared_burst(now);
            }
            if self.endpoint.stats().drop_no_port > before {
                self.refuse_burst();
            }
        } else if count > 0 && self.kin.is_some() {
            self.take_steered_burst(now);
        } else if count > 0 {
            self.take_burst(now);
        }
        // SEND-15: the driver knows what the network has reported about the path since.
        while let Some(peer) = self.endpoint.poll_path() {
            let bytes = self.driver.max_packet(peer).min(u32::MAX as usize) as u32;
            self.endpoint.set_peer_max_packet(peer, bytes);
        }
        // Frames of a driver's ring are returned before this thread may sleep: a ring whose last frame is
        // held shows itself readable.
        self.rx.clear();
        if count > 0 {
            self.note_burst_processed(self.packets_handled() - handled);
        }
        self.note_device_sent();
        let mut told = false;
        while let Some(Unreachable { peer, what }) = self.driver.poll_unreachable() {
            let report = match what {
                Refusal::Peer { sender_id } => homa_proto::Unreachable::Peer { rpc_id: sender_id },
                Refusal::Protocol { sender_id } => homa_proto::Unreachable::Protocol { rpc_id: sender_id },
                Refusal::Port { port, sender_id } => {
                    homa_proto::Unreachable::Port { port, rpc_id: sender_id }
                }
            };
            self.endpoint.peer_unreachable(now, peer, report);
            self.tell_unreachable(peer, report);
            told = true;
        }
        (self.take_mail(now) || count > 0 || told, now)
    }

    /// Number of packets given to the endpoint: its own, and those of others that concern it.
    fn packets_handled(&self) -> u64 {
        let stats = self.endpoint.stats();
        stats.packets_received + stats.foreign_received
    }

    /// Processes the received burst if all of it belongs to this endpoint.
    fn take_burst(&mut self, now: Time) {
        let payload = self.buffers.payload_in_place();
        if payload > 0 {
            let packet = self.rx.get(0).map(|(from, bytes)| RxPacket {
                wire_len: bytes.len() + payload,
                priority: self.rx.priority(0),
                ..RxPacket::new(from, bytes)
            });
            self.endpoint.handle_packets(now, packet, &mut self.buffers);
            self.buffers.give_back_held();
        } else if let Some((from, _)) = self.rx.get(0).filter(|_| !self.bundle_in_place.is_empty()) {
            let packets = packets_in(from, &self.bundle_in_place, self.rx.priority(0));
            self.endpoint.handle_packets(now, packets, &mut self.buffers);
            self.bundle_in_place.clear();
        } else {
            self.endpoint.handle_packets(now, packets_of(&self.rx), &mut self.buffers);
        }
    }

    /// Receives packets. If the first packet is the expected next packet of a message, its payload goes
    /// directly to its place in the buffers, and only its header into the burst. Returns how many packets
    /// came.
    fn receive_in_place(&mut self, mut in_place: DirectReceive) -> std::io::Result<usize> {
        let place = in_place.place();
        let start = place.as_ptr();
        let received = self.driver.receive_in_place(&mut self.rx, place);
        // Only bytes at the expected address prove that they were written there. A driver that breaks its
        // contract loses a packet.
        let is_there = |payload: &&[u8]| ptr::eq(payload.as_ptr(), start.cast());
        let mut payload =
            received.as_ref().ok().filter(|payload| is_there(payload)).map_or(0, |payload| payload.len());
        if let (Some((_, header)), Ok(rest)) = (self.rx.get(0).filter(|_| payload > 0), &received)
            && wire::packet_length(header).is_some()
        {
            self.bundle_in_place.extend_from_slice(header);
            self.bundle_in_place.extend_from_slice(rest);
            payload = 0;
        }
        let failed = received.err();
        match self.rx.get(0).filter(|_| payload > 0) {
            Some((_, header)) => {
                let offset = match wire::decode(header, header.len() + payload) {
                    Ok(Packet { body: Body::Data(data), .. }) => data.offset,
                    // The endpoint drops this packet.
                    _ => 0,
                };
                self.buffers.hold_in_place(in_place, offset, payload);
            }
            None => self.buffers.give_back(in_place),
        }
        failed.map_or(Ok(self.rx.len()), Err)
    }

    /// Reports the clients whose requests in this burst are for ports that no process has (LIMIT-8). The
    /// endpoint's own clients have been reported.
    fn refuse_burst(&mut self) {
        for RxPacket { from, bytes, .. } in packets_of(&self.rx) {
            let Ok(packet) = wire::decode(bytes, bytes.len()) else { continue };
            let common = &packet.common;
            let opens = matches!(packet.body, Body::Data(_) | Body::Start(_));
            let is_request = opens && common.sender_id & 1 == 0;
            let is_ours = !common.incarnation.is_none();
            let foreign = self.share.as_ref().is_some_and(|share| share.is_foreign(bytes));
            if is_request && !is_ours && !foreign && self.endpoint.has_nobody_for(from, common) {
                self.driver.refuse(from, bytes);
            }
        }
    }
}
