//! The state of each peer, shared by all ports and RPCs that use the peer's address.

mod allowance;
mod cutoffs;
mod incarnation;
mod resends;
mod rpcs;

use std::net::SocketAddr;

use crate::ack::WaitingAcks;
use crate::config::Config;
use crate::contract::Bundle;
use crate::dialect::{Belief, Dialect};
use crate::ids::IdOffset;
use crate::incarnation_end::IncarnationEnd;
use crate::path::Path;
use crate::prefix::PrefixId;
use crate::rtt::{self, Rtt};
use crate::silence::Silence;
use crate::time::{SEC, Time};
use crate::wire::{Body, Packet, owner_of};
use allowance::Allowance;
use cutoffs::PeerCutoffs;
use incarnation::PeerIncarnation;
pub(crate) use incarnation::{ChangeEvidence, IncarnationChange};
use resends::PeerResends;
use rpcs::PeerRpcs;

/// A peer that was silent for this long may have rebooted into another kernel: a reboot takes less time.
const DIALECT_MEMORY_NS: u64 = 300 * SEC;

/// UDP port of Linux Homa's UDP encapsulation. Any other UDP port can only belong to this implementation.
const KERNEL_UDP_PORT: u16 = 54_321;

/// Returns the peer's number in a trace: its slot counted from 1, limited to the largest number that a record
/// can hold.
pub(crate) fn peer_number(peer: u32) -> u16 {
    u16::try_from(peer.saturating_add(1)).unwrap_or(u16::MAX)
}

#[derive(Debug)]
pub(crate) struct Peer {
    pub addr: SocketAddr,
    /// Separates the ids of our requests to this peer from those to other peers.
    pub ids: IdOffset,
    pub incarnation: PeerIncarnation,
    /// Time for which the peer has sent no packet (PEER-5).
    pub silence: Silence,
    /// The peer's dialect, as derived from its packets without our mark.
    pub belief: Belief,
    pub cutoffs: PeerCutoffs,
    /// Round-trip time, measured with grants from the peer.
    pub rtt: Rtt,
    /// Acknowledgements for the peer that wait for a packet.
    pub acks: WaitingAcks,
    pub resends: PeerResends,
    pub allowance: Allowance,
    pub path: Path,
    /// Number of endpoints among which the peer's host distributes bundles by RPC id; 0: the host accepts no
    /// bundles (WIRE-23).
    pub bundle_endpoints: u8,
    pub rpcs: PeerRpcs,
}

impl Peer {
    /// Returns the peer at `addr`, before its first packet. It is unproven, and counts for `prefix`.
    pub(crate) fn new(addr: SocketAddr, now: Time, max_packet: u32, prefix: Option<PrefixId>) -> Peer {
        Peer {
            addr,
            ids: IdOffset::default(),
            incarnation: PeerIncarnation::new(),
            silence: Silence::new(now),
            belief: Belief::UNKNOWN,
            cutoffs: PeerCutoffs::UNKNOWN,
            rtt: Rtt::UNKNOWN,
            acks: WaitingAcks::default(),
            resends: PeerResends::new(),
            allowance: Allowance::new(prefix),
            path: Path::new(max_packet),
            bundle_endpoints: 0,
            rpcs: PeerRpcs::NONE,
        }
    }

    /// Returns whether the peer has announced an incarnation, and so runs this implementation.
    pub(crate) fn is_ours(&self) -> bool {
        self.incarnation.is_known()
    }

    /// Records that a packet of the peer arrived.
    #[inline]
    pub(crate) fn note_packet(&mut self, now: Time, packet: &Packet) {
        if self.incarnation.is(packet.common.incarnation) && matches!(packet.body, Body::Data(_)) {
            self.bundle_endpoints = packet.common.bundle_endpoints; // WIRE-23
        }
        self.silence.note_packet(now);
    }

    /// Returns the peer's dialect as far as it is known at `now`, unless the configuration determines it.
    pub(crate) fn dialect(&self, now: Time, config: &Config) -> Dialect {
        if config.wire_dialect != Dialect::Unknown {
            return config.wire_dialect; // DIALECT-1
        }
        let belief = self.believed(now);
        if belief.is_known() {
            belief.dialect()
        } else if self.is_ours() {
            Dialect::Ours
        } else {
            Dialect::Unknown
        }
    }

    /// Returns the belief about the peer's dialect, unless it is too old (DIALECT-3).
    pub(crate) fn believed(&self, now: Time) -> Belief {
        if now.since(self.silence.last_packet_at()) >= DIALECT_MEMORY_NS {
            Belief::UNKNOWN
        } else {
            self.belief
        }
    }

    /// Returns whether Linux Homa may be behind the peer's address: over raw IP, or at the port of its UDP
    /// encapsulation.
    pub(crate) fn may_be_kernel(&self) -> bool {
        self.addr.port() == 0 || self.is_kernel_udp()
    }

    /// Returns whether the peer's packets use Linux Homa's UDP encapsulation.
    pub(crate) fn is_kernel_udp(&self) -> bool {
        self.addr.port() == KERNEL_UDP_PORT
    }

    /// Returns the unscheduled bytes of a message to or from the peer if neither side set a limit (RTT-3).
    pub(crate) fn unsched_bytes(&self, config: &Config) -> u32 {
        rtt::unsched_bytes(config, self.rtt.min_ns())
    }

    /// Returns the bundle in which a packet of the RPC `rpc_id` may share a datagram with other packets to
    /// the peer (WIRE-23).
    pub(crate) fn bundle(&self, rpc_id: u64) -> Option<Bundle> {
        let endpoints = u32::from(self.bundle_endpoints);
        let endpoint = (endpoints > 0).then(|| owner_of(rpc_id, endpoints))?;
        Some(Bundle { endpoint, max_bytes: self.path.longest() })
    }

    /// Returns whether the peer can be forgotten without loss (PEER-11).
    pub(crate) fn is_forgettable(&self, now: Time, config: &Config) -> bool {
        // A peer that still needed an acknowledgement would have requested it long ago.
        let unwanted = now.since(self.silence.last_packet_at()) >= config.max_packet_lifetime_ns;
        self.rpcs.is_empty() && !self.silence.ends && (self.acks.is_empty() || unwanted)
    }

    /// Ends the peer's current epoch. State that belongs to the old host process is reset too (PEER-7).
    pub(crate) fn end_epoch(&mut self, end: IncarnationEnd) {
        self.incarnation.end_epoch(end);
        if end == IncarnationEnd::Restarted {
            self.cutoffs = PeerCutoffs::UNKNOWN;
            self.bundle_endpoints = 0;
            self.belief = Belief::UNKNOWN; // DIALECT-3
            self.resends.forget_answers();
        }
        self.acks.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Incarnation;

    // DIALECT-1, DIALECT-3
    #[test]
    fn a_belief_is_of_its_time_and_the_setting_decides() {
        let mut peer = Peer::new(([10, 0, 0, 1], 0).into(), Time::ZERO, 1_480, None);
        let config = Config::default();
        let at = |peer: &Peer, ns| peer.dialect(Time::from_ns(ns), &config);
        assert_eq!(at(&peer, 0), Dialect::Unknown);
        peer.belief = Belief::certain_of(Dialect::Two);
        assert_eq!(
            (at(&peer, DIALECT_MEMORY_NS - 1), at(&peer, DIALECT_MEMORY_NS)),
            (Dialect::Two, Dialect::Unknown)
        );
        let fixed = Config { wire_dialect: Dialect::Three, ..Config::default() };
        assert_eq!(peer.dialect(Time::ZERO, &fixed), Dialect::Three);
        peer.incarnation.note_first(Incarnation::new(1));
        assert_eq!(
            (at(&peer, 0), at(&peer, DIALECT_MEMORY_NS)),
            (Dialect::Two, Dialect::Ours),
            "it was replaced"
        );
    }
}
