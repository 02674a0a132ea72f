//! Address prefixes of unproven peers: the resources that each prefix uses, and its share (PROTOCOL.md
//! SHARE-12).
//!
//! A single sender has many addresses: all UDP ports of its host, and every address that it can forge.
//! Networks that filter forged source addresses do so by subnet, so most of a sender's addresses have the
//! same prefix. Requests that began before their peer was proven therefore also count for the peer's prefix.
//! A prefix that has used up its share must evict its own requests to make room for new ones, so a flood
//! evicts only requests of its own prefix.
//!
//! A prefix is known as long as one of its peers is unproven, or one of its requests is open. The number of
//! prefixes therefore never exceeds the sum of `max_peers` and `max_rpcs`; each takes about 100 bytes.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::num::NonZeroU32;

use foldhash::fast::FixedState;
use slab::Slab;

use crate::lists::{Links, List};
use crate::share::{Refusal, Share};

/// The slot of a prefix, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PrefixId(NonZeroU32);

impl PrefixId {
    pub(crate) fn new(slot: usize) -> PrefixId {
        PrefixId(NonZeroU32::MIN.saturating_add(slot as u32))
    }

    /// Returns the slot, counted from 0.
    pub(crate) fn slot(self) -> usize {
        self.0.get() as usize - 1
    }

    /// Returns the number that identifies the prefix's lists.
    pub(crate) fn list(self) -> u32 {
        self.0.get()
    }
}

/// Length of an IPv4 prefix in bits: the longest prefix that networks route.
const V4_BITS: u32 = 24;

/// Length of an IPv6 prefix in bits. A site is assigned a prefix of 56 bits or fewer (RFC 6177), and has all
/// /64 subnets in it.
const V6_BITS: u32 = 56;

/// Distinguishes keys of IPv6 prefixes from those of IPv4 prefixes.
const V6_KEY: u64 = 1 << 63;

/// Returns the key of an address's prefix.
fn key_of(ip: IpAddr) -> u64 {
    match ip.to_canonical() {
        IpAddr::V4(ip) => u64::from(ip.to_bits() >> (u32::BITS - V4_BITS)),
        IpAddr::V6(ip) => V6_KEY | (ip.to_bits() >> (u128::BITS - V6_BITS)) as u64,
    }
}

/// Resources used by the unproven peers of one prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Peers in the table of peers.
    pub peers: u32,
    /// Requests that began before their peer was proven.
    pub rpcs: u32,
    /// Bytes charged for these requests.
    pub bytes: u64,
    /// Blocks of finished ids.
    pub blocks: u32,
}

#[derive(Debug)]
struct Prefix {
    key: u64,
    held: Held,
    /// Requests that are arriving. The request that has been silent for longest comes first.
    arriving: List,
}

/// The prefixes of all unproven peers.
#[derive(Debug)]
pub(crate) struct Prefixes {
    by_key: HashMap<u64, PrefixId, FixedState>,
    slots: Slab<Prefix>,
    /// Links of RPC slots in the `arriving` list of their prefix.
    links: Links,
}

/// Checks whether a prefix that holds `own` of the `used` part of `bound` may take `more` (SHARE-12).
pub(crate) fn admit(bound: u64, own: u64, used: u64, more: u64) -> Result<(), Refusal> {
    // A planted fault that the swarm must find: one prefix takes everything.
    #[cfg(homa_canary)]
    let own = if crate::planted_faults::has("prefix_unlimited") { 0 } else { own };
    Share::of(bound).admit(own, used, more)
}

impl Prefixes {
    pub(crate) fn new(seed: u64) -> Prefixes {
        let by_key = HashMap::with_hasher(FixedState::with_seed(seed));
        Prefixes { by_key, slots: Slab::new(), links: Links::default() }
    }

    /// Returns the resources used by the prefix of an address.
    pub(crate) fn held_by(&self, ip: IpAddr) -> Held {
        self.find(ip).map_or(Held::default(), |prefix| self.slots[prefix.slot()].held)
    }

    /// Returns the prefix of an address, if it is known.
    pub(crate) fn find(&self, ip: IpAddr) -> Option<PrefixId> {
        self.by_key.get(&key_of(ip)).copied()
    }

    /// Counts a new unproven peer; returns its prefix.
    pub(crate) fn add_peer(&mut self, ip: IpAddr) -> PrefixId {
        let key = key_of(ip);
        let prefix = *self.by_key.entry(key).or_insert_with(|| {
            let prefix = Prefix { key, held: Held::default(), arriving: List::EMPTY };
            PrefixId::new(self.slots.insert(prefix))
        });
        self.slots[prefix.slot()].held.peers += 1;
        prefix
    }

    /// Removes a peer that is proven or forgotten, with its `blocks` blocks of finished ids.
    pub(crate) fn remove_peer(&mut self, prefix: PrefixId, blocks: u32) {
        let held = &mut self.slots[prefix.slot()].held;
        held.peers -= 1;
        held.blocks -= blocks;
        self.forget_unused(prefix);
    }

    /// Counts a request of an unproven peer.
    pub(crate) fn add_rpc(&mut self, prefix: PrefixId) {
        self.slots[prefix.slot()].held.rpcs += 1;
    }

    /// Counts the bytes of a new request.
    pub(crate) fn charge(&mut self, prefix: PrefixId, bytes: u64) {
        self.slots[prefix.slot()].held.bytes += bytes;
    }

    /// Removes a request that ended, and the `bytes` charged for it.
    #[cold]
    pub(crate) fn remove_rpc(&mut self, prefix: PrefixId, bytes: u64) {
        let held = &mut self.slots[prefix.slot()].held;
        held.rpcs -= 1;
        held.bytes -= bytes;
        self.forget_unused(prefix);
    }

    /// Counts a new block of finished ids of an unproven peer.
    pub(crate) fn add_block(&mut self, prefix: PrefixId) {
        self.slots[prefix.slot()].held.blocks += 1;
    }

    /// Counts the removal of a block of finished ids of an unproven peer.
    pub(crate) fn remove_block(&mut self, prefix: PrefixId) {
        self.slots[prefix.slot()].held.blocks -= 1;
    }

    fn forget_unused(&mut self, prefix: PrefixId) {
        let Prefix { key, held, .. } = self.slots[prefix.slot()];
        if (held.peers, held.rpcs) == (0, 0) {
            self.slots.remove(prefix.slot());
            self.by_key.remove(&key);
        }
    }

    /// Moves an arriving request to the end of its prefix's list.
    pub(crate) fn note_packet(&mut self, prefix: PrefixId, slot: u32) {
        self.links.ensure(slot);
        self.silence(slot);
        self.links.push_back(&mut self.slots[prefix.slot()].arriving, prefix.list(), slot);
    }

    /// Removes a request from its prefix's list.
    pub(crate) fn silence(&mut self, slot: u32) {
        if let Some(list) = self.links.list_of(slot) {
            self.links.remove(&mut self.slots[list as usize - 1].arriving, slot);
        }
    }

    /// Returns the arriving request of an address's prefix that has been silent for longest.
    pub(crate) fn longest_silent(&self, ip: IpAddr) -> Option<u32> {
        self.slots[self.find(ip)?.slot()].arriving.head()
    }

    /// Frees the memory for RPC slots from `slots` on. None of these slots may be in a list.
    pub(crate) fn cut(&mut self, slots: usize) {
        self.links.resize(self.links.len().min(slots));
    }

    /// Panics unless the known prefixes and their resources equal `held`, and their lists are consistent.
    /// Returns the number of requests in the lists.
    pub(crate) fn check(&self, held: &BTreeMap<PrefixId, Held>) -> usize {
        let known = self.slots.iter().map(|(slot, _)| PrefixId::new(slot));
        assert!(held.keys().copied().eq(known), "prefixes of unproven peers");
        assert_eq!(self.by_key.len(), self.slots.len(), "prefixes by key");
        let arriving = held.iter().map(|(&id, held)| {
            let prefix = &self.slots[id.slot()];
            assert_eq!(prefix.held, *held, "what the unproven peers of a prefix hold");
            assert_eq!(self.by_key.get(&prefix.key), Some(&id), "the prefix with this key");
            self.links.check(&prefix.arriving, id.list())
        });
        arriving.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHARE-12
    #[test]
    fn a_prefix_is_a_subnet_of_ipv4_and_a_site_of_ipv6() {
        let same = |one: &str, other: &str| key_of(one.parse().unwrap()) == key_of(other.parse().unwrap());
        assert!(same("10.1.2.0", "10.1.2.255") && !same("10.1.2.255", "10.1.3.0"));
        assert!(same("10.1.2.3", "::ffff:10.1.2.9"), "one address in two notations");
        assert!(same("2001:db8:1:200::1", "2001:db8:1:2ff:ffff::"));
        assert!(!same("2001:db8:1:2ff::1", "2001:db8:1:300::1"));
        assert!(!same("0.0.0.0", "::"));
    }

    #[test]
    fn a_prefix_is_known_as_long_as_something_counts_for_it() {
        let mut prefixes = Prefixes::new(1);
        let ips: Vec<IpAddr> = ["10.0.0.1", "10.0.0.2", "10.0.1.1"].map(|ip| ip.parse().unwrap()).into();
        let [one, two, other] = [0, 1, 2].map(|n| prefixes.add_peer(ips[n]));
        assert!(one == two && one != other);
        prefixes.add_rpc(one);
        prefixes.charge(one, 1_024);
        prefixes.add_block(one);
        assert_eq!(prefixes.held_by(ips[1]), Held { peers: 2, rpcs: 1, bytes: 1_024, blocks: 1 });
        prefixes.remove_peer(one, 1);
        prefixes.remove_peer(two, 0);
        assert_eq!(prefixes.held_by(ips[0]), Held { rpcs: 1, bytes: 1_024, ..Held::default() });
        prefixes.remove_rpc(one, 1_024);
        assert_eq!((prefixes.held_by(ips[0]), prefixes.slots.len()), (Held::default(), 1));
    }
}
