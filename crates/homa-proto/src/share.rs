//! What one peer may take of what all use together (PROTOCOL.md SHARE).

use crate::time::Time;

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
    /// `bytes` come back in each `every_ns`, whether or not anything is delivered; 0 ns: nothing holds anything back.
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

    /// Adds bytes that were delivered, or taken in vain, up to `most`.
    pub(crate) fn give(&mut self, bytes: u32, most: u64) {
        self.left = self.left.saturating_add(bytes.into()).min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHARE-4
    #[test]
    fn a_budget_refills_with_time_and_with_what_is_delivered() {
        let refill = Refill { most: 1_000, bytes: 100, every_ns: 10 };
        let mut budget = Budget::FULL;
        let at = Time::from_ns;
        assert_eq!((budget.take(at(5), 700, refill), budget.take(at(5), 700, refill)), (700, 300));
        assert_eq!((budget.take(at(14), 50, refill), budget.take(at(15), 150, refill)), (0, 100));
        budget.give(60, refill.most);
        assert_eq!(budget.take(at(20), 150, refill), 60);
        budget.give(5_000, refill.most);
        assert_eq!(budget.take(at(20), 5_000, refill), 1_000);
        assert_eq!(budget.take(at(1 << 60), 5_000, refill), 1_000);
        assert_eq!(budget.take(at(0), 5_000, Refill { every_ns: 0, ..refill }), 5_000);
    }
}
