//! CUTOFFS between this host and one peer, in both directions (PROTOCOL.md PRIO, INCAST).

use crate::priority;
use crate::time::{MS, Time};
use crate::wire::{Cutoffs, PRIORITIES};

/// Minimum time between two CUTOFFS to one peer: DATA that the peer sent before the first CUTOFFS reached it
/// still arrives with the old version.
const SPACING_NS: u64 = MS;

/// The last CUTOFFS from a peer, and what the peer knows of ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerCutoffs {
    /// The peer's own cutoffs, for our unscheduled packets to it.
    levels: [u32; PRIORITIES],
    version: u16,
    /// Maximum unscheduled bytes of a message that the peer accepts; `u32::MAX`: no limit.
    unsched_limit: u32,
    /// Time at which our cutoffs were last sent to the peer, and their version.
    sent: Option<(Time, u16)>,
    /// The version of our cutoffs under which the peer sent its last DATA (PRIO-5); 0: none.
    pub kept: u16,
}

impl PeerCutoffs {
    /// The state before either side has sent CUTOFFS.
    pub(crate) const UNKNOWN: PeerCutoffs =
        PeerCutoffs { levels: [0; PRIORITIES], version: 0, unsched_limit: u32::MAX, sent: None, kept: 0 };

    /// Stores the peer's cutoffs. The peer's limit applies only if this host announces its incarnation: a
    /// host that does not announce one ignores the limit, as Linux Homa does (INCAST-7).
    pub(crate) fn receive(&mut self, cutoffs: &Cutoffs, announces: bool) {
        self.levels = cutoffs.cutoffs;
        self.version = cutoffs.version;
        self.unsched_limit = cutoffs.unsched_limit.filter(|_| announces).unwrap_or(u32::MAX);
    }

    /// Returns the version of the peer's cutoffs, for the header of DATA; 0: it has sent none.
    pub(crate) fn version(&self) -> u16 {
        self.version
    }

    /// Returns the maximum unscheduled bytes of a message that the peer accepts; `u32::MAX`: no limit.
    pub(crate) fn unsched_limit(&self) -> u32 {
        self.unsched_limit
    }

    /// Returns the priority of the unscheduled packets of a message to the peer.
    pub(crate) fn unscheduled_priority(&self, length: u32, priorities: u8) -> u8 {
        priority::unscheduled(&self.levels, self.version, length, priorities)
    }

    /// Returns whether our cutoffs of this `version` were sent to the peer, and none since.
    pub(crate) fn were_sent(&self, version: u16) -> bool {
        self.sent.is_some_and(|(_, sent)| sent == version)
    }

    /// Counts CUTOFFS of this `version` that are sent to the peer now, unless the same version was sent a
    /// moment ago. Returns whether they are to be sent.
    pub(crate) fn take_if_due(&mut self, now: Time, version: u16) -> bool {
        if self.sent.is_some_and(|(at, sent)| sent == version && now.since(at) < SPACING_NS) {
            return false;
        }
        self.sent = Some((now, version));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // PRIO-8
    #[test]
    fn the_same_cutoffs_are_spaced_and_others_go_at_once() {
        let at = Time::from_ns;
        let mut cutoffs = PeerCutoffs::UNKNOWN;
        assert!(cutoffs.take_if_due(at(5), 1) && !cutoffs.take_if_due(at(4 + SPACING_NS), 1));
        assert!(cutoffs.were_sent(1) && !cutoffs.were_sent(2));
        assert!(cutoffs.take_if_due(at(4 + SPACING_NS), 2), "another version");
        assert!(cutoffs.take_if_due(at(4 + 2 * SPACING_NS), 2));
    }

    // INCAST-7
    #[test]
    fn a_host_without_an_incarnation_ignores_the_limit() {
        let mut cutoffs = PeerCutoffs::UNKNOWN;
        let received = Cutoffs { cutoffs: [9; PRIORITIES], version: 3, unsched_limit: Some(1_000) };
        cutoffs.receive(&received, false);
        assert_eq!((cutoffs.version(), cutoffs.unsched_limit()), (3, u32::MAX));
        cutoffs.receive(&received, true);
        assert_eq!(cutoffs.unsched_limit(), 1_000);
    }
}
