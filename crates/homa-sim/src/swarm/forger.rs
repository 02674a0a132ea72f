//! An off-path attacker that knows addresses and ports. It forges packets of honest hosts with wrong
//! incarnations.

use homa_proto::wire::{self, AckList, Body, Common, Data, Grant, Incarnation, Resend, UnknownReason};
use homa_proto::{MS, Time};
use rand::Rng;
use rand_pcg::Pcg64;

use super::anything::{Anything, FIRST_CLIENT_PORT, FIRST_PORT};
use super::plan::{Plan, pick};
use crate::network::Network;
use crate::payload::{Pattern, random_numbers};

/// Number of forged packets in a run.
const PACKETS: u64 = 300;

/// The upper bits of IDs in forged packets. Honest hosts are very unlikely to choose such IDs.
const FORGED_ID: u64 = 0xf0f0_f0f0 << 32;

/// Returns whether an RPC has the ID of a forged packet.
pub(super) fn is_forged(id: u64) -> bool {
    id & !0xffff_ffff == FORGED_ID
}

/// Offsets of forged incarnations from the run's wall clock, in milliseconds.
const AHEAD_MS: [i64; 6] = [1, 1_000, 1 << 36, -1, -10_000, -(1 << 36)];

/// The forger of a run.
pub(super) struct Forger {
    rng: Pcg64,
    seed: u64,
    hosts: usize,
    wall_ms: u64,
    mean_gap_ns: u64,
    next: Time,
    sent: u64,
}

impl Forger {
    pub(super) fn new(plan: &Plan) -> Option<Forger> {
        plan.adversity.forges.then(|| Forger {
            rng: random_numbers(plan.network.seed, 0x43),
            seed: plan.network.seed,
            hosts: plan.network.hosts,
            wall_ms: plan.wall_ms,
            mean_gap_ns: plan.turmoil_ns / PACKETS,
            next: Time::ZERO,
            sent: 0,
        })
    }

    /// Returns the time of the forger's next packet.
    pub(super) fn next(&self) -> Option<Time> {
        (self.sent < PACKETS).then_some(self.next)
    }

    /// Sends a packet in the name of a host that shows an incarnation. (For a host that shows none, the first
    /// incarnation in its name would be accepted unverified, PEER-9, and the host would then be treated as
    /// running this implementation.)
    pub(super) fn act(&mut self, network: &mut Network<Anything>) {
        let victim = self.rng.random_range(0..self.hosts);
        let other = |step| (victim + step) % self.hosts;
        let (claimed, via) =
            (other(self.rng.random_range(1..self.hosts)), other(self.rng.random_range(1..self.hosts)));
        let ahead_ms = pick(&mut self.rng, &AHEAD_MS);
        let body = self.rng.random_range(0..8);
        let now_ms = self.wall_ms + network.now().as_ns() / MS;
        let told = Incarnation::new(now_ms.wrapping_add_signed(ahead_ms));
        let true_one = network.host(claimed).endpoint().map_or(0, |endpoint| endpoint.config().incarnation);
        self.sent += 1;
        self.next = self.next + self.rng.random_range(0..=2 * self.mean_gap_ns);
        if true_one != 0 && told != Incarnation::new(true_one) {
            let bytes = self.packet(claimed, told, body);
            network.inject_as(via, claimed, victim, 7, bytes);
        }
    }

    fn packet(&mut self, claimed: usize, incarnation: Incarnation, body: u32) -> Vec<u8> {
        let is_client = self.rng.random();
        let id = FORGED_ID | (2 * self.sent);
        let (source_port, dest_port, sender_id) = match is_client || body == 0 {
            true => (40_000, FIRST_PORT, id),
            false => (FIRST_PORT, FIRST_CLIENT_PORT, id | 1),
        };
        let common = Common { source_port, dest_port, sender_id, incarnation, bundle_endpoints: 0 };
        let body = match body {
            0 => Body::Data(whole_request()),
            1 => Body::Resend(Resend { offset: 0, length: None, priority: 7 }),
            2 => Body::RpcUnknown(UnknownReason::Unknown),
            3 => Body::RpcUnknown(UnknownReason::OwnerGone),
            4 => Body::Busy,
            5 => Body::Grant(Grant { offset: 1_000, priority: 7 }),
            6 => Body::NeedAck,
            _ => Body::Ack(AckList::new()),
        };
        let mut bytes = wire::encode(&common, &body).as_slice().to_vec();
        if let Body::Data(data) = &body {
            Pattern::new(self.seed, claimed as u32, id, false).extend(0, data.message_length, &mut bytes);
        }
        bytes
    }
}

/// Returns the header of a one-byte request.
fn whole_request() -> Data {
    Data {
        message_length: 1,
        incoming: 1,
        ack: None,
        cutoff_version: 0,
        retransmit: false,
        offset: 0,
        response_limit: None,
    }
}
