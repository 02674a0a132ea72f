//! What one peer may take of what all use together (PROTOCOL.md SHARE).
//!
//! A bound alone lets whoever is first take everything. With a share for each peer, one that is alone may
//! have nearly all, and one that takes all it can leaves room for others, however many packets it sends.
//!
//! # Shares of peers
//!
//! No peer is trusted to ask for little. Whatever a packet can make grow has a bound, and of the bound each
//! peer has a share; the table of SHARE names both.
//!
//! - **One rule.** `homa-proto/share` has it: a peer may have a multiple of what it leaves free (dynamic
//!   thresholds). A peer alone gets nearly all, greedy peers leave room for the next one, and nothing must be
//!   known of how many there are. What refills with time and with delivered bytes is a `Budget` of the same
//!   file.
//! - **Who a peer is.** An address. Addresses that have shown nothing only a receiver of our packets can know
//!   are one class, the unproven: their half-received requests make room for whoever comes next. Within the
//!   class each peer has its share of the grant budget, and the last place for grants goes round: a flood
//!   from one address holds out no other.
//! - **What is counted.** What is really taken: a message counts for a kilobyte at least, and memory is
//!   touched by bytes that came (`homa/payload/sparse`), not by those that were claimed. Claims of a first
//!   packet give way when they do not come true: a message that trickles loses its grants and its place.
//! - **What follows.** A refused packet is dropped and counted, in total by reason and for its peer
//!   (`PeerInfo::refused`). Applications see no error, and honest peers ask again.

use crate::time::Time;

/// A peer may take so many times what it leaves free. (Dynamic thresholds, Choudhury and Hahne 1998: with 7,
/// one that is alone can have seven eighths, and of two that are greedy each can have seven fifteenths.)
const TIMES_FREE: u64 = 7;

/// The part of the bound that a peer may have however little is free, as long as the bound allows it.
const GUARANTEED_PART: u64 = 256;

/// Why a peer gets no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Nobody would: the bound is reached.
    Bound,
    /// It has its share; others would get it.
    Share,
}

/// A bound on a resource that peers use together, and with it the share of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    bound: u64,
}

impl Share {
    pub(crate) fn of(bound: u64) -> Share {
        Share { bound }
    }

    /// Whether anybody may take `more` while `used` are: whatever of them one peer has, as much is free then.
    /// So it is nearly always.
    pub(crate) fn is_plenty(self, used: u64, more: u64) -> bool {
        used.saturating_add(more) <= self.bound / 2
    }

    /// Whether a peer that has `own` of the `used` may take `more`.
    pub(crate) fn admit(self, own: u64, used: u64, more: u64) -> Result<(), Refusal> {
        let free = self.bound.checked_sub(used.saturating_add(more)).ok_or(Refusal::Bound)?;
        // A planted fault that the swarm must find: whoever is first takes everything.
        #[cfg(homa_canary = "share_unlimited")]
        let own = own.min(0);
        let has = own.saturating_add(more);
        let guaranteed = (self.bound / GUARANTEED_PART).max(1);
        // The first of a peer is never too much for it, or a large message could not be had by anybody.
        if own == 0 || has <= guaranteed || has <= free.saturating_mul(TIMES_FREE) {
            Ok(())
        } else {
            Err(Refusal::Share)
        }
    }
}

/// A number of bytes that a peer may have, which refills with bytes delivered to it and slowly with time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    left: u64,
    /// When `left` was last refilled with time.
    at: Time,
}

/// How a [`Budget`] refills.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refill {
    /// Most bytes of a budget, and those of a new one.
    pub most: u64,
    /// `bytes` come back in each `every_ns`, whether or not anything is delivered; 0 ns: nothing holds
    /// anything back.
    pub bytes: u64,
    pub every_ns: u64,
}

impl Budget {
    /// A full one.
    pub(crate) const FULL: Budget = Budget { left: u64::MAX, at: Time::ZERO };

    /// Takes up to `wanted` bytes; returns how many there were.
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

    /// Adds bytes that were delivered, or taken in vain. What is more than the most of the budget is never
    /// taken.
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
