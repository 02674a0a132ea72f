//! What is known of each peer: shared by all ports and RPCs that talk to its address.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::SocketAddr;

use foldhash::fast::FixedState;
use slab::Slab;

use crate::ack::WaitingAcks;
use crate::config::Config;
use crate::contract::{Bundle, DoneReason, RpcError};
use crate::ids::IdOffset;
use crate::incarnation_change::Challenge;
use crate::incast::PeerEstimate;
use crate::lists::List;
use crate::path::Path;
use crate::rtt::{self, Rtt};
use crate::share::Budget;
use crate::time::Time;
use crate::unreachable::SuspectReport;
use crate::wire::{Incarnation, PRIORITIES, owner_of};

/// Peers looked at when one must be forgotten to make room: bounds the work, and finds one unless nearly all are in use.
const EVICT_STEPS: usize = 16;

/// RESENDs that may go to a peer at once after a pause: a lossy moment is repaired without waiting for each other.
const BURST: u64 = 16;

/// Bytes that an unproven peer gets for each one that it sends (as QUIC, RFC 9000, 8.1).
const UNPROVEN_TIMES: u32 = 3;

/// Packets of a kind to one peer that have a least space between them on average, [`BURST`] of them none after a pause.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimit {
    /// The next one may go then, and earlier after a pause.
    at: Time,
}

impl Default for RateLimit {
    fn default() -> RateLimit {
        RateLimit { at: Time::ZERO }
    }
}

impl RateLimit {
    fn next(self, now: Time, space_ns: u64) -> Time {
        self.at.max(Time::from_ns(now.as_ns().saturating_sub(BURST * space_ns)))
    }

    fn take(&mut self, now: Time, space_ns: u64) {
        self.at = self.next(now, space_ns) + space_ns;
    }

    pub(crate) fn take_if_due(&mut self, now: Time, space_ns: u64) -> bool {
        let is_due = self.next(now, space_ns) <= now;
        if is_due {
            self.take(now, space_ns);
        }
        is_due
    }
}

/// The space between rounds of RESENDs that were so often in vain, less often with reason (RESEND-22).
fn spacing(config: &Config, vain: u8) -> u64 {
    let doubled = config.resend_spacing_ns.saturating_mul(1_u64.checked_shl(vain.into()).unwrap_or(u64::MAX));
    doubled.min(config.resend_spacing_max_ns.max(config.resend_spacing_ns))
}

/// The number by which a trace calls a peer: that of its slot, from 1 on, as far as a record has room for it.
pub(crate) fn peer_number(peer: u32) -> u16 {
    u16::try_from(peer.saturating_add(1)).unwrap_or(u16::MAX)
}

/// Why all RPCs of a peer's earlier life end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IncarnationEnd {
    Restarted,
    Unreachable,
    /// Its machine does not know the protocol.
    NoHoma,
}

impl IncarnationEnd {
    pub(crate) fn client_error(self) -> RpcError {
        match self {
            IncarnationEnd::Restarted => RpcError::PeerRestarted,
            IncarnationEnd::Unreachable => RpcError::Unreachable,
            IncarnationEnd::NoHoma => RpcError::ProtocolUnreachable,
        }
    }

    pub(crate) fn server_reason(self) -> DoneReason {
        match self {
            IncarnationEnd::Restarted => DoneReason::ClientRestarted,
            IncarnationEnd::Unreachable | IncarnationEnd::NoHoma => DoneReason::ClientSilent,
        }
    }
}

/// One peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub addr: SocketAddr,
    /// What tells the ids of our requests to it from those to others.
    pub ids: IdOffset,
    pub incarnation: Incarnation,
    /// Whether the incarnation was told by a host that gets our packets (PEER-16).
    pub proven: bool,
    pub challenge: Challenge,
    /// A report that nobody is there, which is being looked into (PEER-4).
    pub doubt: Option<SuspectReport>,
    /// Raised when every RPC so far is over; RPCs remember the life they began in.
    pub life: u32,
    /// How often it was seen to restart: finished ids belong to one of its incarnations (AMO-8).
    pub restarts: u32,
    /// Why the last life ended.
    pub life_end: IncarnationEnd,
    /// When a packet last came from it; its creation before that.
    pub last_heard: Time,
    /// Its silence counts from here on at the earliest: before, this host itself stood still, and asked it nothing (PEER-5).
    pub awake_since: Time,
    /// Whether any packet ever came from it.
    pub heard: bool,
    /// The peer's own cutoffs, for our unscheduled packets to it.
    pub cutoffs: [u32; PRIORITIES],
    pub cutoff_version: u16,
    /// Most bytes of a message that it lets us send unasked; `u32::MAX`: it sets no limit.
    pub unsched_limit: u32,
    /// How long a grant from it takes.
    pub rtt: Rtt,
    /// When it was last sent ours, and their version.
    pub cutoffs_sent: Option<(Time, u16)>,
    /// The version of ours that its last DATA was sent by (PRIO-5); 0: none.
    pub cutoffs_kept: u16,
    /// Acknowledgements for it that wait for a packet.
    pub acks: WaitingAcks,
    /// RPCs for which a RESEND is due, in the order of their becoming so.
    pub resends: List,
    /// RESENDs to it (RESEND-7).
    asked: RateLimit,
    /// NEED_ACKs to it (RESEND-22).
    need_acks: RateLimit,
    /// How often the space between RESENDs to it has doubled, since they were in vain.
    vain: u8,
    /// Bytes of control packets that it may get while it is not proven (SHARE-9).
    pub credit: u32,
    /// What it would have sent unasked lately (SHARE-8).
    pub claims: PeerEstimate,
    /// Bytes that it may have sent again (SHARE-4).
    pub resend_budget: Budget,
    /// When it may next be asked for a sign of life (PEER-5).
    pub probe_at: Time,
    /// Largest Homa packet on the path to it, by what stands in `path`.
    pub max_packet: u32,
    pub path: Path,
    /// Endpoints among which its host divides bundles by RPC id; 0: it takes none (WIRE-23).
    pub bundle_endpoints: u8,
    /// Its RPCs, oldest first.
    pub rpcs: List,
    pub rpc_count: u32,
    /// Those among them of which we are the server.
    pub server_rpcs: u32,
    /// What the requests of those count for among the incoming bytes.
    pub request_bytes: u64,
    /// It has acknowledged a response of ours, or answered a request.
    pub served: bool,
    /// Packets of it that were refused because it had its share.
    pub refused: u64,
    /// Blocks of finished ids that name it.
    pub finished_blocks: u32,
    /// It stands in the reaper's queue of ended lives.
    pub reaped: bool,
    /// It stands in the reaper's queue of silent clients.
    pub ends_silent: bool,
}

impl Peer {
    fn new(addr: SocketAddr, now: Time, max_packet: u32) -> Peer {
        Peer {
            addr,
            ids: IdOffset::default(),
            incarnation: Incarnation::NONE,
            proven: false,
            challenge: Challenge::default(),
            doubt: None,
            life: 0,
            restarts: 0,
            life_end: IncarnationEnd::Restarted,
            last_heard: now,
            awake_since: Time::ZERO,
            heard: false,
            cutoffs: [0; PRIORITIES],
            cutoff_version: 0,
            unsched_limit: u32::MAX,
            rtt: Rtt::UNKNOWN,
            cutoffs_sent: None,
            cutoffs_kept: 0,
            acks: WaitingAcks::default(),
            resends: List::EMPTY,
            asked: RateLimit::default(),
            need_acks: RateLimit::default(),
            vain: 0,
            credit: 0,
            claims: PeerEstimate::default(),
            resend_budget: Budget::FULL,
            probe_at: Time::ZERO,
            max_packet,
            path: Path::new(max_packet),
            bundle_endpoints: 0,
            rpcs: List::EMPTY,
            rpc_count: 0,
            server_rpcs: 0,
            request_bytes: 0,
            served: false,
            refused: 0,
            finished_blocks: 0,
            reaped: false,
            ends_silent: false,
        }
    }

    /// Whether it has shown itself as one of ours.
    pub(crate) fn is_ours(&self) -> bool {
        !self.incarnation.is_none()
    }

    /// Bytes of a message that would go unasked to it, or come from it, if neither side set a limit (RTT-3).
    pub(crate) fn unsched_bytes(&self, config: &Config) -> u32 {
        rtt::unsched_bytes(config, self.rtt.min_ns())
    }

    /// Where a packet about the RPC `rpc_id` may share a datagram to it with others (WIRE-23).
    pub(crate) fn bundle(&self, rpc_id: u64) -> Option<Bundle> {
        let endpoints = u32::from(self.bundle_endpoints);
        let endpoint = (endpoints > 0).then(|| owner_of(rpc_id, endpoints))?;
        Some(Bundle { endpoint, max_bytes: self.max_packet })
    }

    /// From when on it has been silent, as far as that counts against it (PEER-5).
    pub(crate) fn silent_since(&self) -> Time {
        self.last_heard.max(self.awake_since)
    }

    /// Whether nothing would be lost with it (PEER-11).
    fn is_forgettable(&self, now: Time, config: &Config) -> bool {
        // Whoever still wants an acknowledgement has asked for it long before.
        let unwanted = now.since(self.last_heard) >= config.max_packet_lifetime_ns;
        self.rpc_count == 0
            && !self.reaped
            && !self.ends_silent
            && (self.acks.is_empty() || unwanted)
            && self.finished_blocks == 0
    }

    /// Ends the life in which all present RPCs began; what belongs to the old host process goes with it (PEER-7).
    pub(crate) fn end_life(&mut self, end: IncarnationEnd) {
        self.life = self.life.wrapping_add(1);
        self.life_end = end;
        if end == IncarnationEnd::Restarted {
            self.restarts = self.restarts.wrapping_add(1);
            self.cutoff_version = 0;
            self.unsched_limit = u32::MAX;
            self.cutoffs_sent = None;
            self.cutoffs_kept = 0;
            self.bundle_endpoints = 0;
        }
        self.acks.clear();
    }

    /// A packet of `bytes` came from it while it is not proven.
    pub(crate) fn earn(&mut self, bytes: usize) {
        let earned = u32::try_from(bytes).unwrap_or(u32::MAX).saturating_mul(UNPROVEN_TIMES);
        self.credit = self.credit.saturating_add(earned);
    }

    /// Whether a control packet of `bytes` may go to it, which it then does (SHARE-9).
    pub(crate) fn may_have(&mut self, bytes: usize) -> bool {
        let left = self.credit.checked_sub(bytes as u32);
        self.credit = left.unwrap_or(self.credit);
        left.is_some()
    }

    /// When the next RESEND may go; `BURST` of them may go at once after a pause.
    pub(crate) fn next_resend(&self, now: Time, config: &Config) -> Time {
        self.asked.next(now, self.resend_spacing(config))
    }

    /// Whether a NEED_ACK may go now, which it then does: they are spaced as RESENDs are, since a peer that does not acknowledge is most
    /// often one that has not got what it is asked for.
    pub(crate) fn take_need_ack(&mut self, now: Time, config: &Config) -> bool {
        let space_ns = self.resend_spacing(config);
        self.need_acks.take_if_due(now, space_ns)
    }

    /// Whether a RESEND may go now, which it then does.
    pub(crate) fn take_resend(&mut self, now: Time, config: &Config) -> bool {
        let space_ns = self.resend_spacing(config);
        self.asked.take_if_due(now, space_ns)
    }

    fn resend_spacing(&self, config: &Config) -> u64 {
        spacing(config, self.vain)
    }

    /// A RESEND to it was in vain: it had nothing to repeat, as a host that gets too little of its processor. To ask more would make
    /// that worse. (That one stays unanswered says less: grants of silent senders are taken back by asking each.)
    pub(crate) fn asked_in_vain(&mut self, config: &Config) {
        if spacing(config, self.vain + 1) > spacing(config, self.vain) {
            self.vain += 1;
        }
    }

    /// A RESEND to it brought bytes that were missing.
    pub(crate) fn asked_with_reason(&mut self) {
        self.vain = self.vain.saturating_sub(1);
    }

    /// A RESEND goes now.
    pub(crate) fn resent(&mut self, now: Time, config: &Config) {
        let space_ns = self.resend_spacing(config);
        self.asked.take(now, space_ns);
    }
}

/// All peers.
#[derive(Debug)]
pub(crate) struct Peers {
    by_addr: HashMap<SocketAddr, u32, FixedState>,
    slots: Slab<Peer>,
    /// Those that are not proven.
    unproven: usize,
    hand: usize,
    /// The peer that was found last: packets come in runs.
    last: Cell<Option<(SocketAddr, u32)>>,
}

impl Peers {
    pub(crate) fn new(seed: u64) -> Peers {
        let by_addr = HashMap::with_hasher(FixedState::with_seed(seed));
        Peers { by_addr, slots: Slab::new(), unproven: 0, hand: 0, last: Cell::new(None) }
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

    /// Makes the peer at `addr`, which is not known; `None` when the limit is reached and none can be forgotten. The flag
    /// says whether another was forgotten.
    pub(crate) fn add(&mut self, addr: SocketAddr, now: Time, config: &Config) -> Option<(u32, bool)> {
        debug_assert_eq!(self.find(&addr), None);
        let evicted = self.slots.len() >= config.max_peers as usize;
        if evicted && !self.evict(now, config, |_| true) {
            return None;
        }
        self.unproven += 1;
        let slot = self.slots.insert(Peer::new(addr, now, config.max_packet)) as u32;
        self.by_addr.insert(addr, slot);
        Some((slot, evicted))
    }

    /// Slots are dense: with `max_peers` peers none is vacant below it.
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

    /// Whether those that are not proven have three quarters of the table: the rest is for those that are,
    /// and for those that we call (SHARE-11).
    pub(crate) fn is_full_of_unproven(&self, config: &Config) -> bool {
        self.unproven >= (config.max_peers - config.max_peers / 4) as usize
    }

    /// Forgets one that is not proven, if nothing would be lost with it and a few looks find it.
    pub(crate) fn evict_unproven(&mut self, now: Time, config: &Config) -> bool {
        self.evict(now, config, |peer| !peer.served)
    }

    /// The peer is proven from now on; whether it was not before.
    pub(crate) fn prove(&mut self, peer: u32) -> bool {
        let proven = !std::mem::replace(&mut self.slots[peer as usize].served, true);
        self.unproven -= usize::from(proven);
        proven
    }

    /// Forgets `peer` if nothing would be lost with it.
    pub(crate) fn forget(&mut self, peer: u32, now: Time, config: &Config) {
        if self.slots.get(peer as usize).is_some_and(|peer| peer.is_forgettable(now, config)) {
            self.remove(peer as usize);
        }
    }

    fn remove(&mut self, slot: usize) {
        let peer = self.slots.remove(slot);
        self.unproven -= usize::from(!peer.served);
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

    /// Panics unless the count of those that are not proven is right.
    pub(crate) fn check(&self) {
        let unproven = self.slots.iter().filter(|(_, peer)| !peer.served).count();
        assert_eq!(unproven, self.unproven, "peers that are not proven");
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
            peer.asked_in_vain(&config);
            spaces.push(space(&mut peer));
        }
        assert_eq!(spaces, [200, 400, 800, 1_600, 3_000, 3_000, 3_000]);
        peer.asked_with_reason();
        assert_eq!(space(&mut peer), 1_600);
        (0..9).for_each(|_| peer.asked_with_reason());
        assert_eq!(space(&mut peer), 100);
        let none = Config { resend_spacing_ns: 0, ..config };
        (0..1_000).for_each(|_| peer.asked_in_vain(&none));
        assert_eq!((peer.resend_spacing(&none), peer.resend_spacing(&config)), (0, 100));
    }
}
