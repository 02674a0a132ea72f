//! Freeing RPCs in small portions: if many RPCs end together, the next packet does not wait until all are
//! freed (ABORT-4).

use homa_trace::EventKind;

use super::state::Endpoint;
use crate::contract::DoneReason;
use crate::finished::EvictedBlocks;
use crate::incarnation_end::IncarnationEnd;
use crate::peer::peer_number;
use crate::rpc::EndedRpc;
use crate::time::{MS, Time};

/// Maximum number of expiry rounds when a new peer or request needs the room of expired ids. This bounds the
/// work for one packet.
const EXPIRE_ROUNDS: usize = 16;

impl Endpoint {
    /// Returns whether RPCs remain to be ended.
    pub(super) fn has_reaping(&self) -> bool {
        self.lifetimes.reaper.has_work()
            || !self.lifetimes.refused_ports.is_empty()
            || !self.waits.deferred_acks.is_empty()
    }

    /// Ends the current epoch of a peer. For the protocol, the peer's RPCs end immediately. They are freed
    /// one by one.
    pub(super) fn end_peer_epoch(&mut self, peer: u32, end: IncarnationEnd) {
        let known = &mut self.peers[peer];
        if known.rpcs.count() == 0 && end != IncarnationEnd::Restarted {
            return;
        }
        let last_packet_at = known.silence.last_packet_at();
        known.end_epoch(end);
        self.stats.peer_restarts += u64::from(end == IncarnationEnd::Restarted);
        let silent_ms = self.now.since(last_packet_at) / MS;
        let count = known.rpcs.count();
        let silent_ms = silent_ms.min(u64::from(u32::MAX)) as u32;
        self.trace.record_with(EventKind::PeerTimeout, 0, silent_ms, count, peer_number(peer), 0);
        if count > 0 && !std::mem::replace(&mut self.peers[peer].rpcs.reaped, true) {
            self.lifetimes.reaper.peers.push_back(peer);
        }
    }

    /// Ends at most `reap_limit` RPCs.
    #[inline]
    pub(super) fn reap(&mut self, now: Time) {
        if self.has_reaping() {
            self.reap_some(now);
        }
    }

    fn reap_some(&mut self, now: Time) {
        let mut budget = self.config.reap_limit;
        while let Some(&peer) = self.lifetimes.reaper.peers.front() {
            if budget == 0 {
                return;
            }
            budget -= 1;
            let Some(slot) = self.oldest_of_earlier_epoch(peer) else {
                self.lifetimes.reaper.peers.pop_front();
                self.peers[peer].rpcs.reaped = false;
                continue;
            };
            self.end_of_earlier_epoch(now, slot);
        }
        self.end_silent_clients(now, &mut budget);
        self.end_refused_clients(&mut budget);
        self.empty_closing_ports(now, budget);
    }

    /// Frees the server RPCs of peers that are still silent (PEER-5). Each examined RPC uses one unit of
    /// `budget`, whether or not the RPC is freed.
    fn end_silent_clients(&mut self, now: Time, budget: &mut u32) {
        while let Some(&peer) = self.lifetimes.reaper.silent.front() {
            if *budget == 0 {
                return;
            }
            *budget -= 1;
            let known = &self.peers[peer];
            let silent = now.since(known.silence.since()) >= self.config.client_silence_ns;
            let cursor = self.lifetimes.reaper.silent_cursor.take();
            // If the RPC at the cursor has ended meanwhile and left the list, restart from the beginning.
            let cursor = cursor.filter(|&slot| self.tables.peer_rpcs.list_of(slot) == Some(peer));
            let Some(slot) = cursor.or(known.rpcs.list.head()).filter(|_| silent && known.rpcs.servers() > 0)
            else {
                let next = known.silence.since() + self.config.client_silence_ns;
                if known.rpcs.servers() > 0 {
                    self.waits.peer_timers.arm_by(peer, next);
                }
                self.lifetimes.reaper.silent.pop_front();
                self.peers[peer].silence.ends = false;
                continue;
            };
            self.lifetimes.reaper.silent_cursor = self.tables.peer_rpcs.next(slot);
            if !self.rpcs[slot as usize].state.is_client() {
                self.end_server(now, slot, DoneReason::ClientSilent);
            }
        }
    }

    /// Returns the peer's oldest RPC if it belongs to an earlier epoch. The peer's list is ordered by age, so
    /// RPCs of an earlier epoch come first.
    fn oldest_of_earlier_epoch(&self, peer: u32) -> Option<u32> {
        let known = &self.peers[peer];
        let slot = known.rpcs.list.head()?;
        (self.rpcs[slot as usize].epoch != known.incarnation.epoch()).then_some(slot)
    }

    /// Ends one RPC of an earlier epoch of its peer.
    pub(super) fn end_of_earlier_epoch(&mut self, now: Time, slot: u32) {
        let rpc = &self.rpcs[slot as usize];
        let end = self.peers[rpc.peer].incarnation.epoch_end();
        if rpc.state.is_client() {
            self.end_with_error(slot, end.client_error());
        } else {
            self.end_server(now, slot, end.server_reason());
        }
    }

    /// ABORT-8: aborts RPCs of the ports being closed, oldest first, without examining other RPCs.
    fn empty_closing_ports(&mut self, now: Time, mut budget: u32) {
        while let Some(&port) = self.lifetimes.reaper.ports.front() {
            if budget == 0 {
                return;
            }
            budget -= 1;
            match self.tables.port_rpcs.oldest(port) {
                Some(slot) => self.abort_slot(now, slot),
                None => {
                    self.tables.ports.close(port);
                    self.lifetimes.reaper.ports.pop_front();
                }
            }
        }
    }

    /// Stores the id of a finished request (AMO-3) under the client's current incarnation. Ids of an earlier
    /// incarnation need not be stored: the incarnation check refuses them (PEER-8).
    pub(super) fn remember_finished(&mut self, now: Time, rpc: &EndedRpc) {
        let mut forgotten = EvictedBlocks::default();
        if self.lifetimes.finished.insert(
            now,
            rpc.peer,
            self.peers[rpc.peer].incarnation.restarts(),
            rpc.id,
            &mut forgotten,
        ) {
            self.peers.add_block(rpc.peer);
        }
        self.count_forgotten(&forgotten);
    }

    /// Forgets a bounded number of expired finished ids.
    pub(super) fn expire_finished(&mut self, now: Time) {
        let mut forgotten = EvictedBlocks::default();
        self.lifetimes.finished.expire(now, &mut forgotten);
        self.count_forgotten(&forgotten);
    }

    /// Forgets expired ids to make room for a peer or a request, as many as the limit on the work for one
    /// packet allows.
    pub(super) fn expire_many_finished(&mut self, now: Time) {
        (0..EXPIRE_ROUNDS).for_each(|_| self.expire_finished(now));
    }

    fn count_forgotten(&mut self, forgotten: &EvictedBlocks) {
        self.stats.finished_forgotten += forgotten.early;
        for &peer in &forgotten.peers {
            self.peers.remove_block(peer);
        }
    }
}
