//! Receives bursts of packets: passes them from the driver to the endpoint.

use homa_driver::{UnreachableReport, UnreachableTarget};
use homa_proto::wire::{self, Body};
use homa_proto::{RxPacket, Time};

use super::Engine;
use crate::runtime::bundles::packets_of;

impl Engine {
    /// Receives packets; returns whether there were any, and the time after the driver returned them.
    pub(crate) fn receive(&mut self, now: Time) -> (bool, Time) {
        self.tracing.just_now = None;
        // If packets may belong to other processes or endpoints, classify them before storing their payload
        // anywhere.
        let alone = self.tenancy.processes.is_none() && self.tenancy.group.is_none();
        let expected = if alone { self.buffers.take_expected() } else { None };
        if let Some(processes) = &mut self.tenancy.processes {
            processes.begin_receive();
        }
        let received = match expected {
            None => self.driver.receive(&mut self.receiving.burst),
            Some(in_place) => {
                self.receiving.receive_in_place(in_place, (&mut *self.driver, &mut self.buffers))
            }
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
        if let Some(processes) = &mut self.tenancy.processes {
            processes.note_received(&self.receiving.burst);
            processes.hand_over(&mut *self.driver, &self.receiving.burst);
        }
        if count > 0 && self.tenancy.processes.is_some() {
            let before = self.endpoint.stats().drop_no_port;
            if self.tenancy.group.is_some() {
                self.take_steered_burst(now);
            } else {
                self.take_shared_burst(now);
            }
            if self.endpoint.stats().drop_no_port > before {
                self.refuse_burst();
            }
        } else if count > 0 && self.tenancy.group.is_some() {
            self.take_steered_burst(now);
        } else if count > 0 {
            self.receiving.take_burst(now, (&mut self.endpoint, &mut self.buffers));
        }
        // SEND-15: the driver knows what the network has since reported about the path.
        while let Some(peer) = self.endpoint.poll_path() {
            let bytes = self.driver.max_packet(peer).min(u32::MAX as usize) as u32;
            self.endpoint.set_peer_max_packet(peer, bytes);
        }
        // Return the frames of the driver's ring before this thread may sleep: a ring appears readable while
        // its last frame is held.
        self.receiving.burst.clear();
        if count > 0 {
            self.note_burst_processed(self.packets_handled() - handled);
        }
        self.note_device_sent();
        let mut reported = false;
        while let Some(UnreachableReport { peer, target }) = self.driver.poll_unreachable() {
            let report = match target {
                UnreachableTarget::Peer { sender_id } => homa_proto::Unreachable::Peer { rpc_id: sender_id },
                UnreachableTarget::Protocol { sender_id } => {
                    homa_proto::Unreachable::Protocol { rpc_id: sender_id }
                }
                UnreachableTarget::Port { port, sender_id } => {
                    homa_proto::Unreachable::Port { port, rpc_id: sender_id }
                }
            };
            self.endpoint.peer_unreachable(now, peer, report);
            self.share_unreachable(peer, report);
            reported = true;
        }
        (self.take_mail(now) || count > 0 || reported, now)
    }

    /// Returns the number of packets given to the endpoint: its own packets, and those of other endpoints
    /// that concern it.
    fn packets_handled(&self) -> u64 {
        let stats = self.endpoint.stats();
        stats.packets_received + stats.foreign_received
    }

    /// Refuses the requests in this burst that are for ports that no process has, so that their clients get
    /// an ICMP error (LIMIT-8). Clients of this project's own implementation have already been answered by
    /// the endpoint.
    fn refuse_burst(&mut self) {
        for RxPacket { from, bytes, .. } in packets_of(&self.receiving.burst) {
            let Ok(packet) = wire::decode(bytes, bytes.len()) else { continue };
            let common = &packet.common;
            let opens = matches!(packet.body, Body::Data(_) | Body::Start(_));
            let is_request = opens && common.sender_id & 1 == 0;
            let is_ours = !common.incarnation.is_none();
            let processes = self.tenancy.processes.as_ref();
            let foreign = processes.is_some_and(|processes| processes.is_foreign(bytes, &self.endpoint));
            if is_request && !is_ours && !foreign && self.endpoint.has_nobody_for(from, common) {
                self.driver.refuse(from, bytes);
            }
        }
    }
}
