//! Checks of the whole state, for tests: all redundant state agrees, and every number is within its bound.

use std::collections::BTreeMap;

use super::state::Endpoint;
use crate::config::FinishedPolicy;
use crate::message_in::{UnscheduledState, charge};
use crate::prefix::{Held, PrefixId};
use crate::rpc::RpcState;

impl Endpoint {
    /// Checks the whole state. Takes time in proportion to its size: for tests and simulations.
    ///
    /// # Panics
    /// If any part of the state disagrees with another; the message names it.
    pub fn check(&self) {
        self.waits.timers.check();
        self.waits.peer_timers.check();
        self.lifetimes.finished.check();
        self.tables.ports.check();
        self.check_rpcs();
        self.check_peers();
        self.check_queues();
        self.check_bounds();
    }

    fn check_rpcs(&self) {
        let (mut outgoing, mut incoming) = (0, 0);
        for (slot, rpc) in self.rpcs.iter() {
            let slot = slot as u32;
            assert_eq!(rpc.id & 1 == 0, rpc.state.is_client(), "the id of {rpc:?} says its side");
            let found = self.tables.ids.find(rpc.peer, rpc.id);
            assert_eq!(found, Some(slot), "the id of {rpc:?} leads to it");
            assert!(self.tables.port_rpcs.contains(rpc.port, slot), "{rpc:?} is found by its port");
            let watched = self.waits.timers.is_armed(slot) || self.waits.resend_links.list_of(slot).is_some();
            let ends = rpc.epoch != self.peers[rpc.peer].incarnation.epoch();
            assert!(
                !self.waits.timers.is_armed(slot) || rpc.state != RpcState::InService,
                "a timer left over: {rpc:?}"
            );
            let in_hand = rpc.state == RpcState::InService;
            assert!(watched || ends || in_hand, "an RPC that nobody watches can stay for ever: {rpc:?}"); // PEER-15
            rpc.incoming.check();
            rpc.outgoing.check();
            let complete = matches!(rpc.state, RpcState::InService | RpcState::Responding);
            assert_eq!(rpc.incoming.is_complete(), complete, "{rpc:?}");
            assert!(
                !rpc.taken_early || rpc.incoming.reported > 0,
                "taken before there was any of it: {rpc:?}"
            );
            assert!(!rpc.taken_early || !rpc.state.is_client(), "{rpc:?}");
            outgoing += u64::from(rpc.outgoing.length);
            incoming += charge(rpc.incoming.length);
        }
        assert_eq!(self.tables.ids.len(), self.rpcs.len(), "ids");
        assert_eq!(self.tables.port_rpcs.check(), self.rpcs.len(), "RPCs by port");
        assert!(self.waits.timers.armed() <= self.rpcs.len(), "timers of RPCs that are gone");
        assert_eq!(
            (outgoing, incoming),
            (self.sending.outgoing_bytes, self.receiving.incoming_bytes),
            "counted bytes"
        );
        let unproven = |slot: &usize| self.receiving.unproven.contains(*slot as u32);
        let arriving = |slot: &usize| self.rpcs[*slot].state == RpcState::RequestArriving;
        let slots: Vec<usize> = self.rpcs.iter().map(|(slot, _)| slot).filter(unproven).collect();
        assert!(slots.iter().all(arriving), "only requests that arrive make room");
        assert_eq!(slots.len(), self.receiving.unproven.check(), "requests of unproven peers that are gone");
        self.check_prefixes(slots.len());
        let mut by_peer = BTreeMap::new();
        for (_, rpc) in self.rpcs.iter().filter(|(_, rpc)| rpc.incoming.counted > 0) {
            let holder = (rpc.peer, rpc.incoming.prefix);
            *by_peer.entry(holder).or_insert(0) += u64::from(rpc.incoming.counted);
        }
        self.receiving.grants.granted.check(&by_peer);
    }

    /// SHARE-12: checks that the counts of each prefix are the sums over its unproven peers and their
    /// requests.
    fn check_prefixes(&self, arriving: usize) {
        let mut held: BTreeMap<PrefixId, Held> = BTreeMap::new();
        for (_, peer) in self.peers.iter() {
            if let Some(prefix) = peer.allowance.prefix {
                let held = held.entry(prefix).or_default();
                held.peers += 1;
                held.blocks += peer.rpcs.finished_blocks;
            }
        }
        for (_, rpc) in self.rpcs.iter() {
            if let Some(prefix) = rpc.incoming.prefix {
                let held = held.entry(prefix).or_default();
                held.rpcs += 1;
                held.bytes += charge(rpc.incoming.length);
            }
        }
        assert_eq!(self.peers.prefixes.check(&held), arriving, "arriving requests by prefix");
    }

    fn check_peers(&self) {
        self.peers.check();
        let mut rpcs = 0;
        let mut blocks = 0;
        for (slot, peer) in self.peers.iter() {
            let count = self.tables.peer_rpcs.check(&peer.rpcs.list, slot);
            assert_eq!(count, peer.rpcs.count() as usize, "RPCs of {}", peer.addr);
            rpcs += count;
            let served = self.tables.peer_rpcs.iter(&peer.rpcs.list).map(|rpc| &self.rpcs[rpc as usize]);
            let served: Vec<_> = served.filter(|rpc| !rpc.state.is_client()).collect();
            let servers = served.len();
            let bytes: u64 = served.iter().map(|rpc| charge(rpc.incoming.length)).sum();
            assert_eq!(bytes, peer.rpcs.request_bytes, "bytes of requests of {}", peer.addr);
            assert_eq!(servers, peer.rpcs.servers() as usize, "server RPCs of {}", peer.addr);
            let watched = self.waits.peer_timers.is_armed(slot) || peer.silence.ends;
            assert!(servers == 0 || watched, "{} is watched for silence", peer.addr);
            let queued = self.waits.resend_links.check(&peer.resends.queue, slot);
            assert!(queued == 0 || self.waits.peer_timers.is_armed(slot), "RESENDs to {} go on", peer.addr);
            blocks += peer.rpcs.finished_blocks as usize;
        }
        assert_eq!(rpcs, self.rpcs.len(), "every RPC has a peer");
        assert_eq!(blocks, self.lifetimes.finished.len(), "every block of finished ids has a peer");
    }

    fn check_queues(&self) {
        let ready = self.sending.ready.check();
        for (slot, rpc) in self.rpcs.iter() {
            let again = self.sending.retransmits.bytes(slot as u32) > 0;
            let may_send = rpc.outgoing.is_ready() || again;
            let sends = matches!(rpc.state, RpcState::Requesting | RpcState::Responding) && may_send;
            assert_eq!(self.sending.ready.contains(slot as u32), sends, "ready: {rpc:?}");
            let waits =
                rpc.incoming.length != 0 && rpc.incoming.ungranted() > 0 && rpc.incoming.takes_grants();
            assert_eq!(self.receiving.grants.contains(slot as u32), waits, "waits for grants: {rpc:?}");
        }
        assert!(ready.iter().all(|&slot| self.rpcs.contains(slot as usize)), "ready RPCs exist");
        let waiting = self.receiving.grants.check();
        assert!(waiting.iter().all(|&slot| self.rpcs.contains(slot as usize)), "waiting RPCs exist");
        self.check_unscheduled();
    }

    fn check_unscheduled(&self) {
        let (mut in_flight, mut lost) = (Vec::new(), Vec::new());
        for (slot, rpc) in self.rpcs.iter() {
            match rpc.incoming.unscheduled_state {
                UnscheduledState::Settled => continue,
                UnscheduledState::InFlight => in_flight.push(slot as u32),
                UnscheduledState::Lost => lost.push(slot as u32),
            }
            assert!(rpc.incoming.outstanding() > 0, "nothing is on its way: {rpc:?}");
        }
        assert_eq!(
            self.receiving.unscheduled_loss.check(),
            (in_flight, lost),
            "messages with unscheduled bytes on their way"
        );
    }

    /// LIMIT-1: checks that every number is within its configured bound.
    fn check_bounds(&self) {
        let config = &self.config;
        assert!(self.rpcs.len() <= config.max_rpcs as usize, "max_rpcs");
        assert!(self.peers.len() <= config.max_peers as usize, "max_peers");
        assert!(self.sending.outgoing_bytes <= config.max_outgoing_bytes, "max_outgoing_bytes");
        assert!(self.receiving.incoming_bytes <= config.max_incoming_bytes, "max_incoming_bytes");
        assert!(self.sending.control.len() <= config.max_control_packets as usize, "max_control_packets");
        assert!(self.sending.retransmits.len() <= config.max_retransmits as usize, "max_retransmits");
        let gaps = self.rpcs.iter().map(|(_, rpc)| rpc.incoming.gaps.missing().len());
        assert!(gaps.max().unwrap_or(0) <= config.max_gaps as usize, "max_gaps");
        let acks = self.peers.iter().map(|(_, peer)| peer.acks.len());
        assert!(acks.max().unwrap_or(0) <= config.max_acks_per_peer as usize, "max_acks_per_peer");
        // AMO-6: an RPC that was open when the table filled up still finishes.
        let finished = match config.finished_policy {
            FinishedPolicy::Refuse => config.max_finished_blocks as usize + config.max_rpcs as usize,
            FinishedPolicy::ForgetOldest => config.max_finished_blocks.max(1) as usize,
        };
        assert!(self.lifetimes.finished.len() <= finished, "max_finished_blocks");
    }
}
