//! Each peer's share of the resources that all peers use (PROTOCOL.md SHARE).
//!
//! With only a bound, the first peer could take all of a resource. With a share for each peer, a peer without
//! competition may still have nearly all of it, but even the greediest peer leaves room for others, however
//! many packets it sends.
//!
//! # Shares of peers
//!
//! No peer is trusted to limit its own requests. Every resource whose use a packet can increase has a bound,
//! and each peer has a share of the bound. The SHARE table in PROTOCOL.md lists both.
//!
//! - **One rule.** `homa-proto/share` implements it: a peer may have a multiple of what is left free (dynamic
//!   thresholds). A peer without competition gets nearly all, and greedy peers leave room for the next peer.
//!   The rule does not depend on the number of peers. Resources that refill with time and with delivered
//!   bytes are a `Budget`, in the same file.
//! - **A peer is an address.** An unproven address has not yet shown knowledge that only a receiver of our
//!   packets can have. All unproven addresses form one class: their half-received requests are evicted to
//!   make room for new ones. Within the class each peer has its share of the grant budget, and the last place
//!   for grants rotates. A flood from one address therefore cannot lock out other addresses.
//! - **Real use is counted.** A message counts as at least one kilobyte. Memory is touched only for received
//!   bytes (`homa/payload/sparse`), not for claimed bytes. What a first packet claims is given back if the
//!   bytes do not arrive: a message that arrives too slowly loses its grants and its place.
//! - **A prefix of unproven addresses is one peer.** A sender has many addresses: its own UDP ports, and
//!   addresses that it can forge. Unproven peers also count for their prefix (`prefix`), which has the share
//!   of one peer. A prefix that has used up its share evicts its own requests, so its honest peers still get
//!   through (`admission`).
//! - **A refused packet is dropped and counted**, in total by reason, and per peer (`PeerInfo::refused`).
//!   Applications see no error, and honest peers send the packet again.

use crate::time::Time;

/// A peer may take up to this many times the part that is left free (dynamic thresholds, Choudhury and Hahne
/// 1998). With 7, a single peer can have seven eighths, and each of two greedy peers seven fifteenths.
const TIMES_FREE: u64 = 7;

/// A peer may always have the bound divided by this number, even if little is free, as long as the bound is
/// not exceeded.
const GUARANTEED_PART: u64 = 256;

/// Why a peer is refused more of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The bound is reached: no peer would get more.
    Bound,
    /// This peer has used up its share; other peers would get more.
    Share,
}

/// The bound on a resource that all peers use, from which each peer's share follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    bound: u64,
}

impl Share {
    pub(crate) fn of(bound: u64) -> Share {
        Share { bound }
    }

    /// Returns whether any peer may take `more` while `used` is taken, regardless of what it already has,
    /// because at least half of the bound stays free. This is the usual case.
    pub(crate) fn leaves_half_free(self, used: u64, more: u64) -> bool {
        used.saturating_add(more) <= self.bound / 2
    }

    /// Checks whether a peer that has `own` of the `used` part may take `more`.
    pub(crate) fn admit(self, own: u64, used: u64, more: u64) -> Result<(), Refusal> {
        let free = self.bound.checked_sub(used.saturating_add(more)).ok_or(Refusal::Bound)?;
        // A planted fault that the swarm must find: the first peer takes everything.
        #[cfg(homa_canary)]
        let own = if crate::planted_faults::has("share_unlimited") { 0 } else { own };
        let has = own.saturating_add(more);
        let guaranteed = (self.bound / GUARANTEED_PART).max(1);
        // A peer's first request is always within its share; otherwise no peer could send a large message.
        if own == 0 || has <= guaranteed || has <= free.saturating_mul(TIMES_FREE) {
            Ok(())
        } else {
            Err(Refusal::Share)
        }
    }
}

/// A budget of bytes for a peer. It refills with bytes delivered to the peer, and slowly with time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    left: u64,
    /// The time at which `left` was last refilled for elapsed time.
    at: Time,
}

/// How a [`Budget`] refills.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refill {
    /// Maximum of a budget, and the bytes in a new budget.
    pub most: u64,
    /// `bytes` are added every `every_ns`, whether or not anything is delivered. 0 ns: there is no limit.
    pub bytes: u64,
    pub every_ns: u64,
}

impl Budget {
    /// A full budget.
    pub(crate) const FULL: Budget = Budget { left: u64::MAX, at: Time::ZERO };

    /// Takes up to `wanted` bytes; returns how many were available.
    pub(crate) fn take(&mut self, now: Time, wanted: u32, refill: Refill) -> u32 {
        if refill.every_ns == 0 {
            return wanted;
        }
        let rounds = now.since(self.at) / refill.every_ns;
        self.left = self.left.saturating_add(rounds.saturating_mul(refill.bytes)).min(refill.most);
        let full = self.left == refill.most;
        self.at = if full { self.at.max(now) } else { self.at + rounds * refill.every_ns };
        let taken = u64::from(wanted).min(self.left);
        self.left -= taken;
        taken as u32
    }

    /// Adds bytes that were delivered, or that were taken but not used. Bytes above the maximum of the budget
    /// can never be taken.
    pub(crate) fn give(&mut self, bytes: u32) {
        self.left = self.left.saturating_add(bytes.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHARE-2
    #[test]
    fn who_is_alone_may_have_nearly_all_and_leaves_room() {
        let share = Share::of(8_000);
        let greedy = |own: &mut u64, used: &mut u64| {
            while share.admit(*own, *used, 1).is_ok() {
                *own += 1;
                *used += 1;
            }
        };
        let (mut first, mut second, mut used) = (0, 0, 0);
        greedy(&mut first, &mut used);
        assert_eq!(first, 7_000);
        greedy(&mut second, &mut used);
        assert_eq!(second, 875);
        assert_eq!(share.admit(first, used, 1), Err(Refusal::Share));
        assert_eq!(share.admit(0, used, 31), Ok(()), "whoever comes next");
        assert_eq!(share.admit(0, used, 126), Err(Refusal::Bound));
    }

    /// SHARE-2
    #[test]
    fn a_small_bound_can_be_reached() {
        assert_eq!(Share::of(1).admit(0, 0, 1), Ok(()));
        assert_eq!(Share::of(0).admit(0, 0, 1), Err(Refusal::Bound));
        assert_eq!(Share::of(1_000).admit(0, 0, 1_000), Ok(()), "one message of all there is");
        assert_eq!(Share::of(u64::MAX).admit(1 << 40, 1 << 41, 1), Ok(()));
    }

    /// SHARE-4
    #[test]
    fn a_budget_refills_with_time_and_with_what_is_delivered() {
        let refill = Refill { most: 1_000, bytes: 100, every_ns: 10 };
        let mut budget = Budget::FULL;
        let at = Time::from_ns;
        assert_eq!((budget.take(at(5), 700, refill), budget.take(at(5), 700, refill)), (700, 300));
        assert_eq!((budget.take(at(14), 50, refill), budget.take(at(15), 150, refill)), (0, 100));
        budget.give(60);
        assert_eq!(budget.take(at(20), 150, refill), 60);
        budget.give(5_000);
        assert_eq!(budget.take(at(20), 5_000, refill), 1_000);
        assert_eq!(budget.take(at(1 << 60), 5_000, refill), 1_000);
        assert_eq!(budget.take(at(0), 5_000, Refill { every_ns: 0, ..refill }), 5_000);
    }
}
