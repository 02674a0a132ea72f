//! A hostile peer beside the honest hosts: it has an address of its own and forges nothing, but takes all
//! that it can get.

use homa_proto::Time;
use homa_proto::wire::{self, AckList, Body, Common, Data, Grant, Incarnation, Resend};
use rand::Rng;
use rand_pcg::Pcg64;

use super::anything::{Anything, FIRST_PORT};
use super::plan::{Hostile, Plan};
use crate::network::Network;
use crate::payload::{Pattern, random_numbers};

/// Its address, which is no honest host's.
pub(super) const HOSTILE: usize = 1_000;
/// The host whose server it takes from, and over whose link its packets come.
const VICTIM: usize = 0;
/// Packets, or pairs of them, in a run: what they leave is looked at again with every step.
const PACKETS: u64 = 2_000;
/// So many requests of it are spoken of at a time.
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

    /// When it sends its next packets.
    pub(super) fn next(&self) -> Option<Time> {
        (self.sent < 2 * PACKETS).then_some(self.next)
    }

    /// Sends its next packets.
    pub(super) fn act(&mut self, network: &mut Network<Anything>) {
        for bytes in self.packets() {
            // Behind another host's link, so that the victim's own answers are not in its way.
            network.inject_as(self.hosts - 1, HOSTILE, VICTIM, 7, bytes);
        }
        self.sent += 1;
        self.next = self.next + self.rng.random_range(0..=2 * self.mean_gap_ns);
    }

    fn packets(&mut self) -> Vec<Vec<u8>> {
        let turn = self.sent;
        match self.kind {
            // First packets from within messages of any claimed length.
            Hostile::HalfOpen => vec![self.data(2 + 2 * turn, self.max_message, 1)],
            // A byte now and then of a few long messages, all of which it claims to send unasked.
            Hostile::Trickle => {
                let (message, byte) = (turn % 4, turn / 4);
                let at = (1 + byte).min(u64::from(self.max_message.max(2)) - 1) as u32;
                vec![self.data(2 + 2 * message, self.max_message.max(2), at)]
            }
            // Whole requests, far apart, each acknowledged at once.
            Hostile::Ids => {
                let id = 128 * (1 + turn);
                vec![self.data(id, 1, 0), self.packet(id, Body::Ack(AckList::new()))]
            }
            // Responses asked for again and again.
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

    /// A byte of a request, at `offset`.
    fn data(&self, id: u64, length: u32, offset: u32) -> Vec<u8> {
        let offset = offset.min(length - 1);
        let data = Data {
            message_length: length,
            incoming: length,
            ack: None,
            // A version that hosts begin with proves the peer (SHARE-3), and none leaves it unproven.
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
