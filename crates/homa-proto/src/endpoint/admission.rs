//! Which new requests are admitted: those that leave other peers, and other address prefixes of unproven
//! peers, their shares (PROTOCOL.md SHARE).

use std::net::{IpAddr, SocketAddr};

use super::state::Endpoint;
use super::unproven::EVICTIONS_PER_PACKET;
use crate::dialect::Dialect;
use crate::prefix;
use crate::share::{Refusal, Share};
use crate::stats::{DropCause, drop_as};
use crate::time::Time;
use crate::wire::Common;

/// The sender of a request that is not open yet.
pub(super) struct Sender<'a> {
    pub addr: SocketAddr,
    pub peer: Option<u32>,
    pub common: &'a Common,
    /// The version of our cutoffs in the request.
    pub cutoff_version: u16,
}

impl Endpoint {
    /// The peer that has sent a request. An error if there is no room for it (SHARE-11).
    #[inline]
    pub(super) fn find_or_add_sender(&mut self, now: Time, sender: &Sender<'_>) -> Result<u32, Refusal> {
        if !self.peers.has_plenty_of_places(&self.config) && self.peers.find(&sender.addr).is_none() {
            self.make_place(now, sender)?;
        }
        self.find_or_add_peer(now, sender.addr).ok_or(Refusal::Bound)
    }

    /// Makes room for a new peer, unless it is proven by its request. If its prefix has its share, peers of
    /// the prefix make room (SHARE-12).
    #[cold]
    fn make_place(&mut self, now: Time, sender: &Sender<'_>) -> Result<(), Refusal> {
        if self.is_proven(sender) {
            return Ok(());
        }
        let addr = sender.addr;
        let Err(refusal) = self.peers.admit(addr, &self.config) else { return Ok(()) };
        self.handle_deferred_acks(now); // A forgotten peer's acks must not count for the next peer in its slot.
        self.expire_many_finished(now);
        let of = (refusal == Refusal::Share).then_some(addr);
        if self.peers.evict_unproven(of, now, &self.config) {
            self.stats.peers_evicted += 1;
            return Ok(());
        }
        if refusal == Refusal::Share && self.displace_of_prefix(now, addr.ip()) {
            return self.peers.admit(addr, &self.config);
        }
        Err(refusal)
    }

    /// Whether one more RPC may be open (LIMIT-1).
    pub(super) fn has_free_rpc(&self) -> bool {
        self.rpcs.len() < self.config.max_rpcs as usize
    }

    /// Checks that a peer's new request leaves others their share of everything that it takes (SHARE-1,
    /// SHARE-2). It takes an RPC, `bytes` of the `limit` for all requests together, and an id to be
    /// remembered.
    #[inline]
    pub(super) fn within_share(
        &mut self,
        now: Time,
        sender: &Sender<'_>,
        bytes: u64,
        limit: u64,
    ) -> Result<(), DropCause> {
        let max_rpcs = Share::of(self.config.max_rpcs.into());
        let has_plenty = self.lifetimes.finished.has_plenty()
            && max_rpcs.is_plenty(self.rpcs.len() as u64, 1)
            && Share::of(limit).is_plenty(self.receiving.incoming_bytes, bytes);
        if has_plenty { Ok(()) } else { self.within_scarce_share(now, sender, bytes, limit) }
    }

    #[cold]
    fn within_scarce_share(
        &mut self,
        now: Time,
        sender: &Sender<'_>,
        bytes: u64,
        limit: u64,
    ) -> Result<(), DropCause> {
        let peer = sender.peer;
        let mut refusal = self.refusal(peer, bytes, limit);
        if refusal.is_some() {
            // State that is known to be over must not cause a refusal.
            self.handle_deferred_acks(now);
            self.expire_many_finished(now);
            refusal = self.refusal(peer, bytes, limit);
        }
        match (refusal, peer) {
            (Some(Refusal::Bound), _) => Err(drop_as!(drop_finished_full)), // AMO-6
            (Some(Refusal::Share), Some(peer)) => {
                self.peers[peer].allowance.refused += 1;
                Err(drop_as!(drop_peer_share))
            }
            _ if self.is_proven(sender) || self.within_prefix_share(now, sender.addr.ip(), bytes, limit) => {
                Ok(())
            }
            _ => Err(self.refuse_for_prefix(sender)),
        }
    }

    /// Whether the sender of a request is proven, as far as its request shows.
    fn is_proven(&self, sender: &Sender<'_>) -> bool {
        sender.peer.is_some_and(|peer| self.peers[peer].allowance.proven)
            || self.receiving.cutoffs.proves(sender.cutoff_version)
    }

    /// Refuses a request, since the prefix of its unproven sender has its share. The sender gets our cutoffs:
    /// with their version in its request, it counts for no prefix (SHARE-12).
    #[cold]
    pub(super) fn refuse_for_prefix(&mut self, sender: &Sender<'_>) -> DropCause {
        let Sender { addr, common, .. } = *sender;
        // Requests that made room may have been the last ones of this peer.
        let peer = self.peers.find(&addr);
        if let Some(peer) = peer {
            self.peers[peer].allowance.refused += 1;
        }
        // DIALECT-11
        if peer.is_none_or(|peer| self.dialect_of(peer) != Dialect::Three) {
            let answer = self.common(common.dest_port, common.source_port, common.sender_id ^ 1);
            let cutoffs = self.present_cutoffs();
            if self.take_credit(peer, &answer, &cutoffs) {
                self.queue_control((addr, peer), &answer, &cutoffs);
            }
        }
        drop_as!(drop_prefix_share)
    }

    /// Whether a new request of an unproven peer leaves other prefixes their share (SHARE-12).
    fn within_prefix_share(&mut self, now: Time, ip: IpAddr, bytes: u64, limit: u64) -> bool {
        let blocks = self.peers.prefixes.held_by(ip).blocks;
        self.lifetimes.finished.admit_prefix(blocks).is_ok()
            && self.make_room_in_prefix(now, ip, bytes, limit)
    }

    /// Why the request is refused. `Bound` refers to finished ids only: `make_room` may free room under the
    /// other bounds.
    fn refusal(&self, peer: Option<u32>, bytes: u64, limit: u64) -> Option<Refusal> {
        let known = peer.map(|peer| &self.peers[peer]);
        let own = known.map_or((0, 0, 0), |peer| {
            (peer.rpcs.servers(), peer.rpcs.request_bytes, peer.rpcs.finished_blocks)
        });
        let (rpcs, request_bytes, blocks) = own;
        if let Err(refusal) = self.lifetimes.finished.admit(blocks) {
            return Some(refusal);
        }
        let max_rpcs = Share::of(self.config.max_rpcs.into());
        let rpcs = max_rpcs.admit(rpcs.into(), self.rpcs.len() as u64, 1);
        let bytes = Share::of(limit).admit(request_bytes, self.receiving.incoming_bytes, bytes);
        let refused = rpcs == Err(Refusal::Share) || bytes == Err(Refusal::Share);
        refused.then_some(Refusal::Share)
    }

    /// Makes a new request of `bytes` from an unproven peer at `ip` fit the share of the peer's prefix
    /// (SHARE-12): the longest silent requests of that prefix make room for it. False: they are too few.
    fn make_room_in_prefix(&mut self, now: Time, ip: IpAddr, bytes: u64, limit: u64) -> bool {
        for _ in 0..EVICTIONS_PER_PACKET {
            match self.prefix_refusal(ip, bytes, limit) {
                None => return true,
                Some(refusal) => {
                    if !self.displace_of_prefix(now, ip) {
                        // Where the bound is reached, requests of other prefixes may make room.
                        return refusal == Refusal::Bound;
                    }
                }
            }
        }
        self.prefix_refusal(ip, bytes, limit).is_none()
    }

    /// Why the prefix of `ip` may have no further request of `bytes`, out of the `limit` for all requests.
    fn prefix_refusal(&self, ip: IpAddr, bytes: u64, limit: u64) -> Option<Refusal> {
        let held = self.peers.prefixes.held_by(ip);
        let rpcs = prefix::admit(self.config.max_rpcs.into(), held.rpcs.into(), self.rpcs.len() as u64, 1);
        let bytes = prefix::admit(limit, held.bytes, self.receiving.incoming_bytes, bytes);
        match (rpcs, bytes) {
            (Err(Refusal::Share), _) | (_, Err(Refusal::Share)) => Some(Refusal::Share),
            (rpcs, bytes) => rpcs.and(bytes).err(),
        }
    }
}
