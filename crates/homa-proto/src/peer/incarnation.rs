//! The incarnation of a peer, and the epoch of its RPCs (PROTOCOL.md PEER-6 to PEER-9, PEER-16).

use crate::challenge::Challenge;
use crate::incarnation_end::IncarnationEnd;
use crate::wire::Incarnation;

/// The known incarnation of a peer.
#[derive(Debug)]
pub(crate) struct PeerIncarnation {
    /// The incarnation that the peer has announced; `NONE` if it has not announced one yet.
    current: Incarnation,
    /// Whether the incarnation came from a host that receives our packets (PEER-16).
    proven: bool,
    pub challenge: Challenge,
    /// Incremented when all of the peer's current RPCs end, because the peer restarted or is unreachable.
    /// Each RPC stores the epoch in which it began.
    epoch: u32,
    /// Number of detected restarts of the peer. Each finished id belongs to one incarnation of the peer
    /// (AMO-8).
    restarts: u32,
    /// Why the last epoch ended.
    epoch_end: IncarnationEnd,
}

/// What a packet reveals about its sender, if its incarnation differs from the known one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangeEvidence {
    /// It answers our challenge.
    pub answers: bool,
    /// It has the id of an open request of ours.
    pub names_request: bool,
    /// The peer was silent for so long that no packet of an earlier incarnation can still be in flight.
    pub none_is_late: bool,
}

/// The conclusion from a packet whose incarnation differs from the known one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IncarnationChange {
    /// It is the first incarnation that the peer announces.
    First,
    /// It replaces the known incarnation, which has ended.
    Replaced,
    /// It is newer than the known incarnation, but may be forged.
    Unproven,
    /// It is older than the known incarnation, or forged.
    Stale,
}

impl PeerIncarnation {
    /// Returns the state before the first packet of a peer.
    pub(crate) fn new() -> PeerIncarnation {
        PeerIncarnation {
            current: Incarnation::NONE,
            proven: false,
            challenge: Challenge::default(),
            epoch: 0,
            restarts: 0,
            epoch_end: IncarnationEnd::Restarted,
        }
    }

    /// Returns whether the peer has announced an incarnation, and so runs this implementation.
    pub(crate) fn is_known(&self) -> bool {
        !self.current.is_none()
    }

    /// Returns whether `announced` is the known incarnation.
    pub(crate) fn is(&self, announced: Incarnation) -> bool {
        announced == self.current
    }

    /// Returns whether `announced` is the known incarnation, and is proven.
    pub(crate) fn has_proven(&self, announced: Incarnation) -> bool {
        self.proven && self.is(announced)
    }

    /// Returns whether the known incarnation is proven.
    pub(crate) fn is_proven(&self) -> bool {
        self.proven
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(crate) fn epoch_end(&self) -> IncarnationEnd {
        self.epoch_end
    }

    pub(crate) fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Stores the first incarnation that a peer announces. Does nothing if one is already known.
    pub(crate) fn note_first(&mut self, announced: Incarnation) {
        if !self.is_known() {
            self.current = announced;
        }
    }

    /// Records that the peer has sent the id of one of our requests, together with `announced`.
    pub(crate) fn prove(&mut self, announced: Incarnation) {
        self.proven |= self.is(announced);
    }

    /// Records that another endpoint of this host has proven the peer's incarnation, regardless of which
    /// incarnation it is.
    pub(crate) fn prove_elsewhere(&mut self) {
        self.proven = true;
    }

    /// Evaluates `announced`, which differs from the known incarnation. Stores it if the peer has announced
    /// no incarnation before.
    pub(crate) fn compare(&mut self, announced: Incarnation, evidence: ChangeEvidence) -> IncarnationChange {
        let ChangeEvidence { answers, names_request, none_is_late } = evidence;
        if !self.is_known() {
            // PEER-9
            (self.current, self.proven) = (announced, answers || names_request);
            return IncarnationChange::First;
        }
        let is_newer = announced.is_newer_than(self.current);
        // A planted fault that the swarm must find: a newer incarnation is accepted without proof.
        #[cfg(homa_canary)]
        let answers = answers || is_newer && crate::planted_faults::has("restart_unproven");
        // A delayed packet of an earlier incarnation may carry the id of an RPC that continues in the current
        // one. If `none_is_late`, no packet can be delayed that long (PEER-8).
        if answers || names_request && (is_newer || !self.proven || none_is_late) {
            IncarnationChange::Replaced
        } else if is_newer {
            IncarnationChange::Unproven
        } else {
            IncarnationChange::Stale
        }
    }

    /// Replaces the known incarnation with `announced`, which is proven.
    pub(crate) fn replace(&mut self, announced: Incarnation) {
        (self.current, self.proven) = (announced, true);
    }

    /// Ends the challenge, which a packet with the incarnation `announced` has answered.
    pub(crate) fn note_answer(&mut self, announced: Incarnation) {
        self.proven |= self.is(announced) && self.is_known();
        self.challenge.end();
        self.challenge.take_claims();
    }

    /// Ends the current epoch, in which all of the peer's RPCs began.
    pub(crate) fn end_epoch(&mut self, end: IncarnationEnd) {
        self.epoch = self.epoch.wrapping_add(1);
        self.epoch_end = end;
        if end == IncarnationEnd::Restarted {
            self.restarts = self.restarts.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // PEER-6, PEER-8, PEER-9
    #[test]
    fn only_a_proof_replaces_the_known_incarnation() {
        use IncarnationChange::{First, Replaced, Stale, Unproven};
        let nothing = ChangeEvidence { answers: false, names_request: false, none_is_late: false };
        let names = ChangeEvidence { names_request: true, ..nothing };
        let (old, known, new) = (Incarnation::new(1), Incarnation::new(2), Incarnation::new(3));
        let mut peer = PeerIncarnation::new();
        assert_eq!(peer.compare(known, nothing), First);
        assert!(peer.is(known) && !peer.is_proven());
        assert_eq!((peer.compare(new, nothing), peer.compare(old, nothing)), (Unproven, Stale));
        assert_eq!(peer.compare(old, names), Replaced, "nothing proves the known one");
        peer.prove(known);
        assert!(peer.has_proven(known));
        assert_eq!((peer.compare(new, names), peer.compare(old, names)), (Replaced, Stale));
        assert_eq!(peer.compare(old, ChangeEvidence { none_is_late: true, ..names }), Replaced);
        assert_eq!(peer.compare(old, ChangeEvidence { answers: true, ..nothing }), Replaced);
        assert!(peer.is(known), "the caller replaces it when its RPCs are dealt with");
    }
}
