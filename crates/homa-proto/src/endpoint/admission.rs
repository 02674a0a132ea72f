//! Admission of new requests: a request must leave other peers, and other address prefixes of unproven peers,
//! their shares (PROTOCOL.md SHARE).

use std::net::SocketAddr;

use super::state::Endpoint;
use super::unproven::EVICTIONS_PER_PACKET;
use crate::dialect::Dialect;
use crate::prefix;
use crate::share::{Refusal, Share};
use crate::stats::{DropCause, drop_as};
use crate::time::Time;
use crate::wire::Common;

/// A request that is not open yet. Its sender is looked up by address each time: making room for a request
/// may forget the peers of evicted requests, of which the sender may be one.
pub(super) struct NewRequest<'a> {
    /// The sender's address.
    pub addr: SocketAddr,
    pub common: &'a Common,
    /// The version of our cutoffs in the request.
    pub cutoff_version: u16,
    /// Bytes charged for the request.
    pub bytes: u64,
    /// Limit on the total bytes of all requests.
    pub limit: u64,
}

impl Endpoint {
    /// Returns the peer that has sent a request, and creates it if it is unknown. Fails if there is no room
    /// for the peer (SHARE-11).
    #[inline]
    pub(super) fn find_or_add_sender(&mut self, now: Time, request: &NewRequest<'_>) -> Result<u32, Refusal> {
        if !self.peers.has_plenty_of_places(&self.config) && self.peers.find(&request.addr).is_none() {
            self.make_place(now, request)?;
        }
        self.find_or_add_peer(now, request.addr).ok_or(Refusal::Bound)
    }

    /// Makes room for a new peer, unless its request proves it. If the peer's prefix has used up its share,
    /// peers of that prefix are evicted (SHARE-12).
    #[cold]
    fn make_place(&mut self, now: Time, request: &NewRequest<'_>) -> Result<(), Refusal> {
        if self.is_proven(request) {
            return Ok(());
        }
        let addr = request.addr;
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

    /// Returns whether one more RPC may be opened (LIMIT-1).
    pub(super) fn has_free_rpc(&self) -> bool {
        self.rpcs.len() < self.config.max_rpcs as usize
    }

    /// Checks that a peer's new request leaves other peers their share of each resource that the request
    /// takes: an RPC, its bytes, and a remembered id (SHARE-1, SHARE-2).
    #[inline]
    pub(super) fn within_share(&mut self, now: Time, request: &NewRequest<'_>) -> Result<(), DropCause> {
        let max_rpcs = Share::of(self.config.max_rpcs.into());
        let has_plenty = self.lifetimes.finished.has_plenty()
            && max_rpcs.leaves_half_free(self.rpcs.len() as u64, 1)
            && Share::of(request.limit).leaves_half_free(self.receiving.incoming_bytes, request.bytes);
        if has_plenty { Ok(()) } else { self.within_scarce_share(now, request) }
    }

    #[cold]
    fn within_scarce_share(&mut self, now: Time, request: &NewRequest<'_>) -> Result<(), DropCause> {
        let mut refusal = self.refusal(request);
        if refusal.is_some() {
            // RPCs that are already acknowledged must not cause a refusal.
            self.handle_deferred_acks(now);
            self.expire_many_finished(now);
            refusal = self.refusal(request);
        }
        match (refusal, self.peers.find(&request.addr)) {
            (Some(Refusal::Bound), _) => Err(drop_as!(drop_finished_full)), // AMO-6
            (Some(Refusal::Share), Some(peer)) => {
                self.peers[peer].allowance.refused += 1;
                Err(drop_as!(drop_peer_share))
            }
            _ if self.is_proven(request) || self.within_prefix_share(now, request) => Ok(()),
            _ => Err(self.refuse_for_prefix(request)),
        }
    }

    /// Returns whether the sender of a request is proven, already or by this request.
    fn is_proven(&self, request: &NewRequest<'_>) -> bool {
        self.peers.find(&request.addr).is_some_and(|peer| self.peers[peer].allowance.proven)
            || self.receiving.cutoffs.proves(request.cutoff_version)
    }

    /// Refuses a request, since the prefix of its unproven sender has used up its share. The sender is sent
    /// our cutoffs: once its requests carry their version, it no longer counts for a prefix (SHARE-12).
    #[cold]
    pub(super) fn refuse_for_prefix(&mut self, request: &NewRequest<'_>) -> DropCause {
        let NewRequest { addr, common, .. } = *request;
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

    /// Returns whether a new request of an unproven peer leaves other prefixes their share (SHARE-12).
    fn within_prefix_share(&mut self, now: Time, request: &NewRequest<'_>) -> bool {
        let blocks = self.peers.prefixes.held_by(request.addr.ip()).blocks;
        self.lifetimes.finished.admit_prefix(blocks).is_ok() && self.make_room_in_prefix(now, request)
    }

    /// Returns why the request is refused, if it is. `Bound` refers to finished ids only: `make_room` may
    /// free room under the other bounds.
    fn refusal(&self, request: &NewRequest<'_>) -> Option<Refusal> {
        let known = self.peers.find(&request.addr).map(|peer| &self.peers[peer]);
        let own = known.map_or((0, 0, 0), |peer| {
            (peer.rpcs.servers(), peer.rpcs.request_bytes, peer.rpcs.finished_blocks)
        });
        let (rpcs, request_bytes, blocks) = own;
        if let Err(refusal) = self.lifetimes.finished.admit(blocks) {
            return Some(refusal);
        }
        let max_rpcs = Share::of(self.config.max_rpcs.into());
        let rpcs = max_rpcs.admit(rpcs.into(), self.rpcs.len() as u64, 1);
        let bytes =
            Share::of(request.limit).admit(request_bytes, self.receiving.incoming_bytes, request.bytes);
        let refused = rpcs == Err(Refusal::Share) || bytes == Err(Refusal::Share);
        refused.then_some(Refusal::Share)
    }

    /// Makes a new request of an unproven peer fit the share of the peer's prefix (SHARE-12) by evicting the
    /// longest silent requests of that prefix. Returns false if evicting them does not free enough.
    fn make_room_in_prefix(&mut self, now: Time, request: &NewRequest<'_>) -> bool {
        for _ in 0..EVICTIONS_PER_PACKET {
            match self.prefix_refusal(request) {
                None => return true,
                Some(refusal) => {
                    if !self.displace_of_prefix(now, request.addr.ip()) {
                        // If the bound is reached, requests of other prefixes may be evicted.
                        return refusal == Refusal::Bound;
                    }
                }
            }
        }
        self.prefix_refusal(request).is_none()
    }

    /// Returns why the request would exceed the share of the sender's prefix, if it would.
    fn prefix_refusal(&self, request: &NewRequest<'_>) -> Option<Refusal> {
        let held = self.peers.prefixes.held_by(request.addr.ip());
        let rpcs = prefix::admit(self.config.max_rpcs.into(), held.rpcs.into(), self.rpcs.len() as u64, 1);
        let bytes = prefix::admit(request.limit, held.bytes, self.receiving.incoming_bytes, request.bytes);
        match (rpcs, bytes) {
            (Err(Refusal::Share), _) | (_, Err(Refusal::Share)) => Some(Refusal::Share),
            (rpcs, bytes) => rpcs.and(bytes).err(),
        }
    }
}
