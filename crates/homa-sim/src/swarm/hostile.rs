//! A hostile peer among honest hosts. It has its own address and forges nothing, but takes every resource
//! that it can get.

use homa_proto::Time;
use homa_proto::wire::{self, AckList, Body, Common, Data, Grant, Incarnation, Resend};
use rand::Rng;
use rand_pcg::Pcg64;

use super::anything::{Anything, FIRST_PORT};
use super::plan::{Hostile, Plan};
use crate::network::Network;
use crate::payload::{Pattern, random_numbers};

/// Host index of the hostile peer, above those of all honest hosts.
pub(super) const HOSTILE: usize = 1_000;
/// The host whose server the hostile peer attacks.
const VICTIM: usize = 0;
/// Number of packets, or pairs of packets, in a run. The number is limited because every step checks the
/// state that they leave behind.
const PACKETS: u64 = 2_000;
/// Number of requests that it refers to at the same time.
const KEPT: u64 = 64;

/// The hostile peer of a run.
pub(super) struct HostilePeer {
    kind: Hostile,
    rng: Pcg64,
    seed: u64,
    hosts: usize,
    max_message: u32,
    mean_gap_ns: u64,
    next: Time,
    sent: u64,
}

impl HostilePeer {
    pub(super) fn new(plan: &Plan) -> Option<HostilePeer> {
        Some(HostilePeer {
            kind: plan.hostile?,
            rng: random_numbers(plan.network.seed, 0x40),
            seed: plan.network.seed,
            hosts: plan.network.hosts,
            max_message: plan.max_message,
            mean_gap_ns: plan.turmoil_ns / PACKETS,
            next: Time::ZERO,
            sent: 0,
        })
    }

    /// Time of its next packets. `None`: it has sent all of them.
    pub(super) fn next(&self) -> Option<Time> {
        (self.sent < 2 * PACKETS).then_some(self.next)
    }

    /// Sends its next packets.
    pub(super) fn act(&mut self, network: &mut Network<Anything>) {
        for bytes in self.packets() {
            // Sent over the link of another host, so that they do not queue with the victim's own answers.
            network.inject_as(self.hosts - 1, HOSTILE, VICTIM, 7, bytes);
        }
        self.sent += 1;
        self.next = self.next + self.rng.random_range(0..=2 * self.mean_gap_ns);
    }

    fn packets(&mut self) -> Vec<Vec<u8>> {
        let turn = self.sent;
        match self.kind {
            // One byte at offset 1 of ever new messages with the maximum length: they open RPCs that stay
            // incomplete.
            Hostile::HalfOpen => vec![self.data(2 + 2 * turn, self.max_message, 1)],
            // Single bytes of four long messages, whose headers claim that every byte is unscheduled.
            Hostile::Trickle => {
                let (message, byte) = (turn % 4, turn / 4);
                let at = (1 + byte).min(u64::from(self.max_message.max(2)) - 1) as u32;
                vec![self.data(2 + 2 * message, self.max_message.max(2), at)]
            }
            // Whole requests with ids far apart, each acknowledged at once.
            Hostile::Ids => {
                let id = 128 * (1 + turn);
                vec![self.data(id, 1, 0), self.packet(id, Body::Ack(AckList::new()))]
            }
            // RESENDs for the whole of the same responses.
            Hostile::Asks => {
                let id = 2 + 2 * (turn % KEPT);
                let all = Body::Resend(Resend { offset: 0, length: None, priority: 7 });
                let grant = Body::Grant(Grant { offset: i32::MAX as u32, priority: 7 });
                let mut packets = vec![self.packet(id, grant), self.packet(id, all)];
                if turn < KEPT {
                    packets.insert(0, self.data(id, 1, 0));
                }
                packets
            }
        }
    }

    /// DATA with one byte of a request, at `offset`.
    fn data(&self, id: u64, length: u32, offset: u32) -> Vec<u8> {
        let offset = offset.min(length - 1);
        let data = Data {
            message_length: length,
            incoming: length,
            ack: None,
            // Version 1 is the one that hosts begin with and verifies the peer (SHARE-3). Version 0 leaves it
            // unverified.
            cutoff_version: (self.seed % 2) as u16,
            retransmit: false,
            offset,
            response_limit: None,
        };
        let mut bytes = self.packet(id, Body::Data(data));
        Pattern::new(self.seed, HOSTILE as u32, id, false).extend(offset, 1, &mut bytes);
        bytes
    }

    fn packet(&self, id: u64, body: Body) -> Vec<u8> {
        let common = Common {
            source_port: 40_000,
            dest_port: FIRST_PORT,
            sender_id: id,
            incarnation: Incarnation::NONE,
            bundle_endpoints: 0,
        };
        wire::encode(&common, &body).as_slice().to_vec()
    }
}
