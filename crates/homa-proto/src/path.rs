//! The longest packet to a peer: as set by the caller for the path, or shorter if long packets do not arrive
//! (PROTOCOL.md SEND-15, SEND-16).

use crate::time::{SEC, Time};
use crate::wire::DATA_HEADER_LEN;

/// Sizes of Homa packets to try if longer packets do not arrive. They fit the MTU of Ethernet, the minimum
/// MTU of IPv6, and the 576 bytes that every IPv4 host accepts, each minus 48 bytes for the IPv6 and UDP
/// headers.
const SMALLER: [u32; 3] = [1_500 - 48, 1_280 - 48, 576 - 48];

/// Number of losses of the same bytes before the path counts as too narrow for them: MAX_PROBES of RFC 8899,
/// section 5.1.2.
const LOST_BEFORE_SMALLER: u8 = 3;

/// How long smaller packets are used before long packets are tried again: PMTU_RAISE_TIMER of RFC 8899,
/// section 5.1.1.
const SMALLER_FOR_NS: u64 = 600 * SEC;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    /// Longest packet as set by the caller.
    configured: u32,
    /// The smaller of `configured` and `smaller`.
    longest: u32,
    /// Reduced packet size because longer packets did not arrive, and the time of the reduction; `u32::MAX`:
    /// no reduction.
    smaller: u32,
    smaller_since: Time,
    /// Last time at which a message with a full packet was known to have arrived.
    pub full_packet_arrived_at: Time,
    /// Whether the path is in the queue of paths that the caller must check.
    check_pending: bool,
}

impl Path {
    pub(crate) fn new(configured: u32) -> Path {
        Path {
            configured,
            longest: configured,
            smaller: u32::MAX,
            smaller_since: Time::ZERO,
            full_packet_arrived_at: Time::ZERO,
            check_pending: false,
        }
    }

    /// Returns the longest packet to send.
    pub(crate) fn longest(&self) -> u32 {
        self.longest
    }

    fn update_longest(&mut self) {
        self.longest = self.configured.min(self.smaller);
    }

    /// Sets the longest packet as determined by the caller, 57 to 65535 bytes.
    pub(crate) fn set_configured(&mut self, bytes: u32) {
        self.configured = bytes.clamp(DATA_HEADER_LEN as u32 + 1, 65_535);
        self.update_longest();
    }

    /// Records that the caller must check the path. Returns whether the path must be added to the queue of
    /// paths to check.
    pub(crate) fn request_check(&mut self) -> bool {
        !std::mem::replace(&mut self.check_pending, true)
    }

    /// Removes the path from the queue. Returns whether it was queued.
    pub(crate) fn take_check(&mut self) -> bool {
        std::mem::take(&mut self.check_pending)
    }

    /// Records that the same bytes were lost `repeats` times in a row, in packets of `longest` bytes. If the
    /// path counts as too narrow for such packets, changes to a smaller size (SEND-16). Returns whether the
    /// size changed.
    pub(crate) fn narrow(&mut self, now: Time, repeats: u8, longest: u32) -> bool {
        let smaller = SMALLER.iter().find(|&&smaller| smaller < longest);
        let Some(&smaller) = smaller.filter(|_| repeats >= LOST_BEFORE_SMALLER) else { return false };
        (self.smaller, self.smaller_since) = (smaller, now);
        self.update_longest();
        true
    }

    /// Goes back to long packets if the retry is due (SEND-16). Returns whether it was due.
    pub(crate) fn widen(&mut self, now: Time) -> bool {
        let widens = self.smaller != u32::MAX && now.since(self.smaller_since) >= SMALLER_FOR_NS;
        if widens {
            self.smaller = u32::MAX;
            self.update_longest();
        }
        widens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // SEND-16
    #[test]
    fn packets_become_smaller_step_by_step_and_long_ones_are_tried_again() {
        let mut path = Path::new(9_000);
        let at = Time::from_ns;
        assert!(!path.narrow(at(1), 2, 9_000), "two losses are no evidence");
        for smaller in SMALLER {
            assert!(path.narrow(at(1), 3, path.longest()));
            assert_eq!(path.longest(), smaller);
        }
        assert!(!path.narrow(at(1), 3, path.longest()), "no smaller packets are tried");
        assert!(!path.widen(at(SMALLER_FOR_NS)));
        assert!(path.widen(at(1 + SMALLER_FOR_NS)) && !path.widen(at(2 + SMALLER_FOR_NS)));
        path.set_configured(1_480);
        assert_eq!(path.longest(), 1_480);
    }

    // SEND-15
    #[test]
    fn a_path_is_queued_once_until_it_is_taken() {
        let mut path = Path::new(1_480);
        assert!(path.request_check() && !path.request_check() && path.take_check() && !path.take_check());
    }
}
