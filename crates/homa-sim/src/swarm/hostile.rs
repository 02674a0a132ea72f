//! A hostile peer among honest hosts. It has its own address and forges nothing, but takes every resource
//! that it can get. Alternatively, it sends from many addresses of one prefix, and receives nothing at them.

use homa_proto::Time;
use homa_proto::wire::{self, AckList, Body, Common, Data, Grant, Incarnation, Resend};
use rand::Rng;
use rand_pcg::Pcg64;

use super::anything::{Anything, FIRST_PORT};
use super::plan::{Hostile, Plan, UNVERIFIED_PEERS, pick};
use crate::network::Network;
use crate::payload::{Pattern, random_numbers};

/// Host index of the hostile peer, above those of all honest hosts.
const HOSTILE: usize = 1_000;
/// Host indices from here on do not belong to honest hosts.
const FIRST_OUTSIDER: usize = 16;
/// Number of addresses with the same prefix.
const PREFIX: usize = 256;
/// Host index of the first unverified peer. Each unverified peer has a different prefix.
const FIRST_UNVERIFIED: usize = 1 << 16;
/// The host whose server the hostile peer attacks.
const VICTIM: usize = 0;
/// Number of packets, or pairs of packets, in a run. The number is low because every step checks the state
/// that the packets leave behind.
const PACKETS: u64 = 2_000;
/// Packets of the hostile peer per unverified peer.
const PACKETS_PER_UNVERIFIED: u64 = 2 * PACKETS / UNVERIFIED_PEERS as u64;
/// Number of requests that the hostile peer refers to at the same time.
const KEPT: u64 = 64;

/// Returns whether a host index does not belong to an honest host.
pub(super) fn is_outsider(host: usize) -> bool {
    host >= FIRST_OUTSIDER
}

/// Returns whether this host is an unverified peer: an honest peer that the victim does not know, and that
/// sends one request.
pub(super) fn is_unverified(host: usize) -> bool {
    host >= FIRST_UNVERIFIED
}

/// The kind of requests that come from one prefix.
#[derive(Clone, Copy, Debug)]
enum Flood {
    /// Complete, and never acknowledged: they use up RPCs.
    Whole,
    /// Complete and acknowledged, with IDs far apart: they use up finished IDs.
    Acknowledged,
    /// Half received: they use up RPCs and memory.
    HalfOpen,
}

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
    flood: Flood,
    /// The first address of the prefix from which requests come: the honest hosts' prefix, or a different
    /// one.
    prefix: usize,
    /// Number of requests of unverified peers that were sent.
    pub(super) unverified_peers: u64,
}

impl HostilePeer {
    pub(super) fn new(plan: &Plan) -> Option<HostilePeer> {
        let mut rng = random_numbers(plan.network.seed, 0x44);
        Some(HostilePeer {
            kind: plan.hostile?,
            flood: pick(&mut rng, &[Flood::Whole, Flood::Acknowledged, Flood::HalfOpen]),
            prefix: pick(&mut rng, &[0, 3 * PREFIX]),
            unverified_peers: 0,
            rng: random_numbers(plan.network.seed, 0x40),
            seed: plan.network.seed,
            hosts: plan.network.hosts,
            max_message: plan.max_message,
            mean_gap_ns: plan.turmoil_ns / PACKETS,
            next: Time::ZERO,
            sent: 0,
        })
    }

    /// Returns the time of the peer's next packets. `None`: it has sent all of them.
    pub(super) fn next(&self) -> Option<Time> {
        (self.sent < 2 * PACKETS).then_some(self.next)
    }

    /// Sends the peer's next packets.
    pub(super) fn act(&mut self, network: &mut Network<Anything>) {
        for (from, bytes) in self.packets() {
            // Sent over the link of another host, so that they are not queued with the victim's own answers.
            network.inject_as(self.hosts - 1, from, VICTIM, 7, bytes);
        }
        self.sent += 1;
        self.next = self.next + self.rng.random_range(0..=2 * self.mean_gap_ns);
    }

    /// Returns the peer's next packets, and the addresses that they come from.
    fn packets(&mut self) -> Vec<(usize, Vec<u8>)> {
        let from_prefix = match self.kind {
            Hostile::Prefix => self.flood_packets(),
            Hostile::Unverified => Vec::new(),
            _ => return self.own_packets().into_iter().map(|bytes| (HOSTILE, bytes)).collect(),
        };
        from_prefix.into_iter().chain(self.unverified_peer_packet()).collect()
    }

    /// Makes a request from the next address of the prefix.
    fn flood_packets(&self) -> Vec<(usize, Vec<u8>)> {
        let turn = self.sent;
        let from = self.prefix + FIRST_OUTSIDER + turn as usize % (PREFIX - FIRST_OUTSIDER);
        let id = 128 * (1 + turn);
        let packets = match self.flood {
            Flood::Whole => vec![self.data_of(from, id, 1, 0)],
            Flood::Acknowledged => {
                vec![self.data_of(from, id, 1, 0), self.packet(id, Body::Ack(AckList::new()))]
            }
            Flood::HalfOpen => vec![self.data_of(from, id, self.max_message, 1)],
        };
        packets.into_iter().map(|bytes| (from, bytes)).collect()
    }

    /// From time to time, returns the request of an unverified peer, and later its acknowledgement.
    fn unverified_peer_packet(&mut self) -> Option<(usize, Vec<u8>)> {
        let from = FIRST_UNVERIFIED + (self.sent / PACKETS_PER_UNVERIFIED) as usize * PREFIX;
        match self.sent % PACKETS_PER_UNVERIFIED {
            0 => {
                self.unverified_peers += 1;
                Some((from, self.data_of(from, 2, 1, 0)))
            }
            50 => Some((from, self.packet(2, Body::Ack(AckList::new())))),
            _ => None,
        }
    }

    fn own_packets(&self) -> Vec<Vec<u8>> {
        let turn = self.sent;
        match self.kind {
            Hostile::Prefix | Hostile::Unverified => Vec::new(),
            // A single byte at offset 1 of one new maximum-length message after another: these open RPCs that
            // stay incomplete.
            Hostile::HalfOpen => vec![self.data(2 + 2 * turn, self.max_message, 1)],
            // Single bytes of four long messages, whose headers claim that every byte is unscheduled.
            Hostile::Trickle => {
                let (message, byte) = (turn % 4, turn / 4);
                let at = (1 + byte).min(u64::from(self.max_message.max(2)) - 1) as u32;
                vec![self.data(2 + 2 * message, self.max_message.max(2), at)]
            }
            // Complete requests with IDs far apart, each acknowledged immediately.
            Hostile::Ids => {
                let id = 128 * (1 + turn);
                vec![self.data(id, 1, 0), self.packet(id, Body::Ack(AckList::new()))]
            }
            // RESENDs for the same responses, each for the whole response.
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

    /// Makes a DATA packet with the byte at `offset` of one of the hostile peer's requests. Version 1 of the
    /// cutoffs, the initial version of hosts, verifies the peer (SHARE-3). Version 0 leaves the peer
    /// unverified.
    fn data(&self, id: u64, length: u32, offset: u32) -> Vec<u8> {
        self.byte((HOSTILE, (self.seed % 2) as u16), id, length, offset)
    }

    /// Like [`HostilePeer::data`], from a peer that has received no packet from the victim.
    fn data_of(&self, from: usize, id: u64, length: u32, offset: u32) -> Vec<u8> {
        self.byte((from, 0), id, length, offset)
    }

    fn byte(&self, (from, cutoff_version): (usize, u16), id: u64, length: u32, offset: u32) -> Vec<u8> {
        let offset = offset.min(length - 1);
        let data = Data {
            message_length: length,
            incoming: length,
            ack: None,
            cutoff_version,
            retransmit: false,
            offset,
            response_limit: None,
        };
        let mut bytes = self.packet(id, Body::Data(data));
        Pattern::new(self.seed, from as u32, id, false).extend(offset, 1, &mut bytes);
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
