//! What is known of each peer, shared by all ports and RPCs that use its address.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::SocketAddr;

use foldhash::fast::FixedState;
use slab::Slab;

use crate::ack::WaitingAcks;
use crate::answer_time::AnswerTime;
use crate::challenge::Challenge;
use crate::config::Config;
use crate::contract::Bundle;
use crate::dialect::{Belief, Dialect};
use crate::ids::IdOffset;
use crate::incarnation_end::IncarnationEnd;
use crate::incast::PeerEstimate;
use crate::lists::List;
use crate::path::Path;
use crate::prefix::{self, PrefixId, Prefixes};
use crate::rate_limit::RateLimit;
use crate::rtt::{self, Rtt};
use crate::share::{Budget, Refusal, Share};
use crate::silence::Silence;
use crate::time::{SEC, Time};
use crate::unreachable::SuspectReport;
use crate::wire::{Incarnation, PRIORITIES, owner_of};

/// Peers examined when one must be forgotten to make room. The bound limits the work, and finds a peer unless
/// nearly all are in use.
const EVICT_STEPS: usize = 16;

/// Bytes that an unproven peer may be sent for each byte received from it (as in QUIC, RFC 9000, 8.1).
const UNPROVEN_TIMES: u32 = 3;

/// A peer that was silent for this long may have another kernel: a host restarts in less.
const DIALECT_MEMORY_NS: u64 = 300 * SEC;

/// UDP port at which Linux Homa takes its own packets in UDP datagrams. At every other UDP port only this
/// implementation answers.
const KERNEL_UDP_PORT: u16 = 54_321;

/// The space between rounds of RESENDs. `doublings` is the number of RESENDs in vain, minus those that
/// brought bytes (RESEND-22).
fn spacing(config: &Config, doublings: u8) -> u64 {
    let doubled =
        config.resend_spacing_ns.saturating_mul(1_u64.checked_shl(doublings.into()).unwrap_or(u64::MAX));
    doubled.min(config.resend_spacing_max_ns.max(config.resend_spacing_ns))
}

/// The peer's number in a trace: its slot counted from 1, as far as a record has room for it.
pub(crate) fn peer_number(peer: u32) -> u16 {
    u16::try_from(peer.saturating_add(1)).unwrap_or(u16::MAX)
}

#[derive(Debug)]
pub(crate) struct Peer {
    pub addr: SocketAddr,
    /// Separates the ids of our requests to this peer from those to other peers.
    pub ids: IdOffset,
    pub incarnation: Incarnation,
    /// Whether the incarnation came from a host that receives our packets (PEER-16).
    pub proven: bool,
    pub challenge: Challenge,
    /// A report of an unreachable peer that is being verified (PEER-4).
    pub suspect_report: Option<SuspectReport>,
    /// Incremented when all present RPCs are over: the peer restarted, or is unreachable. Each RPC stores the
    /// epoch in which it began.
    pub epoch: u32,
    /// How often the peer was seen to restart: finished ids belong to one of its incarnations (AMO-8).
    pub restarts: u32,
    /// Why the last epoch ended.
    pub epoch_end: IncarnationEnd,
    /// How long the peer has sent no packet (PEER-5).
    pub silence: Silence,
    /// Whether any packet ever came from the peer.
    pub has_sent: bool,
    /// The peer's dialect, as far as its packets without our mark have shown it.
    pub belief: Belief,
    /// The peer's own cutoffs, for our unscheduled packets to it.
    pub cutoffs: [u32; PRIORITIES],
    pub cutoff_version: u16,
    /// Maximum unscheduled bytes of a message that the peer accepts; `u32::MAX`: no limit.
    pub unsched_limit: u32,
    /// Round-trip time of a grant from the peer.
    pub rtt: Rtt,
    /// When our cutoffs were last sent to the peer, and their version.
    pub cutoffs_sent: Option<(Time, u16)>,
    /// The version of our cutoffs under which the peer sent its last DATA (PRIO-5); 0: none.
    pub cutoffs_kept: u16,
    /// Acknowledgements for the peer that wait for a packet.
    pub acks: WaitingAcks,
    /// RPCs for which a RESEND is due, in the order in which they became due.
    pub resends: List,
    /// Rate of RESENDs to the peer (RESEND-7).
    resend_rate: RateLimit,
    /// Rate of NEED_ACKs to the peer (RESEND-22).
    need_ack_rate: RateLimit,
    /// How often the space between RESENDs to the peer has doubled, because they were in vain.
    doublings: u8,
    /// How long the peer takes to answer a request.
    pub answers: AnswerTime,
    /// Bytes of control packets that the peer may be sent while it is unproven (SHARE-9).
    pub credit: u32,
    /// Estimate of the unscheduled bytes that the peer would have sent recently (SHARE-8).
    pub claims: PeerEstimate,
    /// Budget of bytes that the peer may have sent again (SHARE-4).
    pub resend_budget: Budget,
    /// Largest Homa packet on the path to the peer, as determined by `path`.
    pub max_packet: u32,
    pub path: Path,
    /// Number of endpoints among which the peer's host divides bundles by RPC id; 0: it accepts none
    /// (WIRE-23).
    pub bundle_endpoints: u8,
    /// The peer's RPCs, oldest first.
    pub rpcs: List,
    pub rpc_count: u32,
    /// Number of these RPCs of which we are the server.
    pub server_rpcs: u32,
    /// Bytes of their requests, as counted among the incoming bytes.
    pub request_bytes: u64,
    /// Whether the peer is proven: it has shown that it receives our packets.
    pub served: bool,
    /// The prefix that the peer counts for while it is unproven.
    pub prefix: Option<PrefixId>,
    /// Packets of the peer that were refused because it had used up its share.
    pub refused: u64,
    /// Blocks of finished ids that refer to the peer.
    pub finished_blocks: u32,
    /// Whether the peer is in the reaper's queue of ended epochs.
    pub reaped: bool,
    /// Whether the peer is in the reaper's queue of silent clients.
    pub ends_silent: bool,
}

impl Peer {
    pub(crate) fn new(addr: SocketAddr, now: Time, max_packet: u32) -> Peer {
        Peer {
            addr,
            ids: IdOffset::default(),
            incarnation: Incarnation::NONE,
            proven: false,
            challenge: Challenge::default(),
            suspect_report: None,
            epoch: 0,
            restarts: 0,
            epoch_end: IncarnationEnd::Restarted,
            silence: Silence::new(now),
            has_sent: false,
            belief: Belief::UNKNOWN,
            cutoffs: [0; PRIORITIES],
            cutoff_version: 0,
            unsched_limit: u32::MAX,
            rtt: Rtt::UNKNOWN,
            cutoffs_sent: None,
            cutoffs_kept: 0,
            acks: WaitingAcks::default(),
            resends: List::EMPTY,
            resend_rate: RateLimit::default(),
            need_ack_rate: RateLimit::default(),
            doublings: 0,
            answers: AnswerTime::UNKNOWN,
            credit: 0,
            claims: PeerEstimate::default(),
            resend_budget: Budget::FULL,
            max_packet,
            path: Path::new(max_packet),
            bundle_endpoints: 0,
            rpcs: List::EMPTY,
            rpc_count: 0,
            server_rpcs: 0,
            request_bytes: 0,
            served: false,
            prefix: None,
            refused: 0,
            finished_blocks: 0,
            reaped: false,
            ends_silent: false,
        }
    }

    /// Whether the peer has announced an incarnation, and so runs this implementation.
    pub(crate) fn is_ours(&self) -> bool {
        !self.incarnation.is_none()
    }

    /// How the peer speaks Homa, as far as that is known at `now`. The configuration may decide it.
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

    /// What is believed of the peer's dialect, unless that is too old (DIALECT-3).
    pub(crate) fn believed(&self, now: Time) -> Belief {
        if now.since(self.silence.last_packet_at()) >= DIALECT_MEMORY_NS {
            Belief::UNKNOWN
        } else {
            self.belief
        }
    }

    /// Whether Linux Homa may be behind the peer's address: over raw IP, or at the port of its UDP form.
    pub(crate) fn may_be_kernel(&self) -> bool {
        self.addr.port() == 0 || self.is_kernel_udp()
    }

    /// Whether the peer's packets come in Linux Homa's UDP form.
    pub(crate) fn is_kernel_udp(&self) -> bool {
        self.addr.port() == KERNEL_UDP_PORT
    }

    /// Unscheduled bytes of a message to or from the peer if neither side set a limit (RTT-3).
    pub(crate) fn unsched_bytes(&self, config: &Config) -> u32 {
        rtt::unsched_bytes(config, self.rtt.min_ns())
    }

    /// Where a packet of the RPC `rpc_id` may share a datagram with other packets to the peer (WIRE-23).
    pub(crate) fn bundle(&self, rpc_id: u64) -> Option<Bundle> {
        let endpoints = u32::from(self.bundle_endpoints);
        let endpoint = (endpoints > 0).then(|| owner_of(rpc_id, endpoints))?;
        Some(Bundle { endpoint, max_bytes: self.max_packet })
    }

    /// Whether forgetting the peer would lose nothing (PEER-11).
    fn is_forgettable(&self, now: Time, config: &Config) -> bool {
        // A peer that still needs an acknowledgement would have requested it long before.
        let unwanted = now.since(self.silence.last_packet_at()) >= config.max_packet_lifetime_ns;
        self.rpc_count == 0
            && !self.reaped
            && !self.ends_silent
            && (self.acks.is_empty() || unwanted)
            && self.finished_blocks == 0
    }

    /// Ends the epoch in which all present RPCs began. State that belongs to the old host process is
    /// reset too (PEER-7).
    pub(crate) fn end_epoch(&mut self, end: IncarnationEnd) {
        self.epoch = self.epoch.wrapping_add(1);
        self.epoch_end = end;
        if end == IncarnationEnd::Restarted {
            self.restarts = self.restarts.wrapping_add(1);
            self.cutoff_version = 0;
            self.unsched_limit = u32::MAX;
            self.cutoffs_sent = None;
            self.cutoffs_kept = 0;
            self.bundle_endpoints = 0;
            self.belief = Belief::UNKNOWN; // DIALECT-3
            self.answers = AnswerTime::UNKNOWN;
        }
        self.acks.clear();
    }

    /// Counts a packet of `bytes` that came from the peer while it is unproven.
    pub(crate) fn earn(&mut self, bytes: usize) {
        let earned = u32::try_from(bytes).unwrap_or(u32::MAX).saturating_mul(UNPROVEN_TIMES);
        self.credit = self.credit.saturating_add(earned);
    }

    /// Takes the bytes of a control packet to the peer from its credit (SHARE-9). Returns whether the packet
    /// may be sent.
    pub(crate) fn may_have(&mut self, bytes: usize) -> bool {
        let left = self.credit.checked_sub(bytes as u32);
        self.credit = left.unwrap_or(self.credit);
        left.is_some()
    }

    /// When the next RESEND may go; `BURST` of them may go at once after a pause.
    pub(crate) fn next_resend(&self, now: Time, config: &Config) -> Time {
        self.resend_rate.next(now, self.resend_spacing(config))
    }

    /// Takes one NEED_ACK from the rate; returns whether it may go now. NEED_ACKs are spaced as RESENDs are:
    /// a peer that does not acknowledge most often has not received the requested bytes.
    pub(crate) fn take_need_ack(&mut self, now: Time, config: &Config) -> bool {
        let space_ns = self.resend_spacing(config);
        self.need_ack_rate.take_if_due(now, space_ns)
    }

    /// Takes one RESEND from the rate; returns whether it may go now.
    pub(crate) fn take_resend(&mut self, now: Time, config: &Config) -> bool {
        let space_ns = self.resend_spacing(config);
        self.resend_rate.take_if_due(now, space_ns)
    }

    fn resend_spacing(&self, config: &Config) -> u64 {
        spacing(config, self.doublings)
    }

    /// A RESEND to the peer was in vain: the peer had nothing to repeat, like a host that gets too little CPU
    /// time. More RESENDs would make that worse. An unanswered RESEND is weaker evidence: grants of silent
    /// senders are taken back by sending RESEND to each.
    pub(crate) fn count_useless_resend(&mut self, config: &Config) {
        if spacing(config, self.doublings + 1) > spacing(config, self.doublings) {
            self.doublings += 1;
        }
    }

    /// A RESEND to the peer brought missing bytes.
    pub(crate) fn count_useful_resend(&mut self) {
        self.doublings = self.doublings.saturating_sub(1);
    }

    /// Counts a RESEND that is sent now.
    pub(crate) fn resent(&mut self, now: Time, config: &Config) {
        let space_ns = self.resend_spacing(config);
        self.resend_rate.take(now, space_ns);
    }
}

#[derive(Debug)]
pub(crate) struct Peers {
    by_addr: HashMap<SocketAddr, u32, FixedState>,
    slots: Slab<Peer>,
    /// Number of peers that are unproven.
    unproven: usize,
    /// Their address prefixes.
    pub prefixes: Prefixes,
    hand: usize,
    /// The peer found last: packets arrive in runs from one peer.
    last: Cell<Option<(SocketAddr, u32)>>,
}

/// Places in the table of peers that unproven peers may have. The rest is reserved for proven peers and for
/// peers that we call (SHARE-11).
fn unproven_places(config: &Config) -> u64 {
    (config.max_peers - config.max_peers / 4).into()
}

impl Peers {
    pub(crate) fn new(seed: u64) -> Peers {
        let by_addr = HashMap::with_hasher(FixedState::with_seed(seed));
        let prefixes = Prefixes::new(seed);
        Peers { by_addr, slots: Slab::new(), unproven: 0, prefixes, hand: 0, last: Cell::new(None) }
    }

    pub(crate) fn find(&self, addr: &SocketAddr) -> Option<u32> {
        if let Some((last, peer)) = self.last.get()
            && last == *addr
        {
            return Some(peer);
        }
        let &peer = self.by_addr.get(addr)?;
        self.last.set(Some((*addr, peer)));
        Some(peer)
    }

    /// Adds the peer at `addr`, which must not be known. `None` if the limit is reached and no peer can be
    /// forgotten. The flag reports whether another peer was forgotten.
    pub(crate) fn add(&mut self, addr: SocketAddr, now: Time, config: &Config) -> Option<(u32, bool)> {
        debug_assert_eq!(self.find(&addr), None);
        let evicted = self.slots.len() >= config.max_peers as usize;
        if evicted && !self.evict(now, config, |_| true) {
            return None;
        }
        self.unproven += 1;
        let prefix = Some(self.prefixes.add_peer(addr.ip()));
        let slot = self.slots.insert(Peer { prefix, ..Peer::new(addr, now, config.max_packet) }) as u32;
        self.by_addr.insert(addr, slot);
        Some((slot, evicted))
    }

    /// Slots are dense: with `max_peers` peers, no slot below that number is vacant.
    fn evict(&mut self, now: Time, config: &Config, whom: impl Fn(&Peer) -> bool) -> bool {
        for _ in 0..EVICT_STEPS {
            self.hand = (self.hand + 1) % config.max_peers as usize;
            let forgets = |peer: &Peer| whom(peer) && peer.is_forgettable(now, config);
            if self.slots.get(self.hand).is_some_and(forgets) {
                self.remove(self.hand);
                return true;
            }
        }
        false
    }

    /// Whether any unproven peer has a place in the table: unproven peers hold less than half of theirs.
    pub(crate) fn has_plenty_of_places(&self, config: &Config) -> bool {
        Share::of(unproven_places(config)).is_plenty(self.unproven as u64, 1)
    }

    /// Whether a new unproven peer at `addr` may have a place in the table. Unproven peers may hold three
    /// quarters of it (SHARE-11), those of one prefix its share of that (SHARE-12).
    pub(crate) fn admit(&self, addr: SocketAddr, config: &Config) -> Result<(), Refusal> {
        let own = self.prefixes.held_by(addr.ip()).peers;
        prefix::admit(unproven_places(config), own.into(), self.unproven as u64, 1)
    }

    /// Forgets one unproven peer, if a few examined slots hold one that can be forgotten without loss: of the
    /// prefix of `addr`, or of any prefix.
    pub(crate) fn evict_unproven(&mut self, of: Option<SocketAddr>, now: Time, config: &Config) -> bool {
        let prefix = of.map(|addr| self.prefixes.find(addr.ip()));
        self.evict(now, config, |peer| !peer.served && prefix.is_none_or(|prefix| prefix == peer.prefix))
    }

    /// Marks the peer as proven. Returns whether it was unproven before.
    pub(crate) fn prove(&mut self, peer: u32) -> bool {
        let known = &mut self.slots[peer as usize];
        if std::mem::replace(&mut known.served, true) {
            return false;
        }
        self.unproven -= 1;
        if let Some(prefix) = known.prefix.take() {
            self.prefixes.remove_peer(prefix, known.finished_blocks);
        }
        true
    }

    /// Counts a new block of finished ids of the peer.
    pub(crate) fn add_block(&mut self, peer: u32) {
        let known = &mut self.slots[peer as usize];
        known.finished_blocks += 1;
        if let Some(prefix) = known.prefix {
            self.prefixes.add_block(prefix);
        }
    }

    /// A block of finished ids of the peer was forgotten.
    pub(crate) fn remove_block(&mut self, peer: u32) {
        let known = &mut self.slots[peer as usize];
        known.finished_blocks -= 1;
        if let Some(prefix) = known.prefix {
            self.prefixes.remove_block(prefix);
        }
    }

    /// Forgets `peer` if that loses nothing.
    pub(crate) fn forget(&mut self, peer: u32, now: Time, config: &Config) {
        if self.slots.get(peer as usize).is_some_and(|peer| peer.is_forgettable(now, config)) {
            self.remove(peer as usize);
        }
    }

    fn remove(&mut self, slot: usize) {
        let peer = self.slots.remove(slot);
        self.unproven -= usize::from(!peer.served);
        if let Some(prefix) = peer.prefix {
            self.prefixes.remove_peer(prefix, peer.finished_blocks);
        }
        self.by_addr.remove(&peer.addr);
        self.last.set(None);
    }

    pub(crate) fn contains(&self, peer: u32) -> bool {
        self.slots.contains(peer as usize)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Peer)> {
        self.slots.iter().map(|(slot, peer)| (slot as u32, peer))
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Panics unless the count of unproven peers is right.
    pub(crate) fn check(&self) {
        let unproven = self.slots.iter().filter(|(_, peer)| !peer.served).count();
        assert_eq!(unproven, self.unproven, "peers that are not proven");
        for (_, peer) in &self.slots {
            let own = self.prefixes.find(peer.addr.ip()).filter(|_| !peer.served);
            assert_eq!(peer.prefix, own, "the prefix of {}", peer.addr);
        }
    }
}

impl std::ops::Index<u32> for Peers {
    type Output = Peer;

    fn index(&self, peer: u32) -> &Peer {
        &self.slots[peer as usize]
    }
}

impl std::ops::IndexMut<u32> for Peers {
    fn index_mut(&mut self, peer: u32) -> &mut Peer {
        &mut self.slots[peer as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(n: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], n))
    }

    #[test]
    fn a_full_table_forgets_only_who_has_nothing() {
        let config = Config { max_peers: 2, ..Config::default() };
        let mut peers = Peers::new(1);
        let (one, _) = peers.add(addr(1), Time::ZERO, &config).unwrap();
        let (two, _) = peers.add(addr(2), Time::ZERO, &config).unwrap();
        peers[one].rpc_count = 1;
        peers[two].finished_blocks = 1;
        assert_eq!(peers.add(addr(3), Time::ZERO, &config), None);
        peers[two].finished_blocks = 0;
        assert!(peers.add(addr(3), Time::ZERO, &config).is_some_and(|(_, evicted)| evicted));
        assert_eq!((peers.find(&addr(1)), peers.find(&addr(2))), (Some(one), None));
    }

    #[test]
    fn resends_to_one_peer_are_spaced() {
        let config = Config { resend_spacing_ns: 100, ..Config::default() };
        let mut peer = Peer::new(addr(1), Time::ZERO, 1_480);
        let now = Time::from_ns(1_000_000);
        let waits = (0..20).map(|_| {
            let wait = peer.next_resend(now, &config).since(now);
            peer.resent(now, &config);
            wait
        });
        let waits: Vec<u64> = waits.collect();
        assert_eq!(waits[..17], [0; 17]);
        assert_eq!(waits[17..], [100, 200, 300]);
    }

    #[test]
    fn a_peer_that_is_only_slow_is_asked_more_rarely_until_something_was_lost() {
        // RESEND-22
        let config = Config { resend_spacing_ns: 100, resend_spacing_max_ns: 3_000, ..Config::default() };
        let mut peer = Peer::new(addr(1), Time::ZERO, 1_480);
        let space = |peer: &mut Peer| {
            let before = peer.next_resend(Time::ZERO, &config);
            peer.resent(Time::ZERO, &config);
            peer.next_resend(Time::ZERO, &config).since(before)
        };
        let mut spaces = Vec::new();
        for _ in 0..7 {
            peer.count_useless_resend(&config);
            spaces.push(space(&mut peer));
        }
        assert_eq!(spaces, [200, 400, 800, 1_600, 3_000, 3_000, 3_000]);
        peer.count_useful_resend();
        assert_eq!(space(&mut peer), 1_600);
        (0..9).for_each(|_| peer.count_useful_resend());
        assert_eq!(space(&mut peer), 100);
        let none = Config { resend_spacing_ns: 0, ..config };
        (0..1_000).for_each(|_| peer.count_useless_resend(&none));
        assert_eq!((peer.resend_spacing(&none), peer.resend_spacing(&config)), (0, 100));
    }

    // DIALECT-1, DIALECT-3
    #[test]
    fn a_belief_is_of_its_time_and_the_setting_decides() {
        let mut peer = Peer::new(([10, 0, 0, 1], 0).into(), Time::ZERO, 1_480);
        let config = Config::default();
        let at = |peer: &Peer, ns| peer.dialect(Time::from_ns(ns), &config);
        assert_eq!(at(&peer, 0), Dialect::Unknown);
        peer.belief = Belief::certain(Dialect::Two);
        assert_eq!(
            (at(&peer, DIALECT_MEMORY_NS - 1), at(&peer, DIALECT_MEMORY_NS)),
            (Dialect::Two, Dialect::Unknown)
        );
        let fixed = Config { wire_dialect: Dialect::Three, ..Config::default() };
        assert_eq!(peer.dialect(Time::ZERO, &fixed), Dialect::Three);
        peer.incarnation = Incarnation::new(1);
        assert_eq!(
            (at(&peer, 0), at(&peer, DIALECT_MEMORY_NS)),
            (Dialect::Two, Dialect::Ours),
            "it was replaced"
        );
    }
}
