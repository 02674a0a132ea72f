//! The silence of a client: when it is probed, and when its RPCs end (PROTOCOL.md PEER-5).

use crate::time::{MS, Time};

/// Number of probe intervals in the silence that ends a client's RPCs. The client is probed in the second
/// half of the silence, often enough that packet losses do not end its RPCs.
const PROBES_PER_SILENCE: u64 = 12;

/// Only silence limits of at least this length are extended if this host itself was suspended. With shorter
/// limits, the probe interval would be shorter than the timers' ticks.
const LEAST_PATIENCE_NS: u64 = 100 * MS;

/// How long a peer has been silent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    /// Time of the last packet from the peer or, before the first packet, the time at which the peer was
    /// added.
    last_packet_at: Time,
    /// Whether any packet ever came from the peer.
    has_sent: bool,
    /// The earliest start of the silence: before this time, this host itself was suspended and sent no probe.
    awake_since: Time,
    /// Earliest time of the next probe.
    probe_at: Time,
    /// Whether the peer is in the reaper's queue of silent clients.
    pub ends: bool,
}

/// The action due for a peer that may be silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SilenceAction {
    /// No action before this time.
    Wait(Time),
    /// A probe now, and the next check at this time.
    Probe(Time),
    /// The end of the peer's RPCs.
    End,
}

impl Silence {
    /// Creates the state of a peer that is added now.
    pub(crate) fn new(now: Time) -> Silence {
        Silence {
            last_packet_at: now,
            has_sent: false,
            awake_since: Time::ZERO,
            probe_at: Time::ZERO,
            ends: false,
        }
    }

    /// Records the arrival of a packet from the peer.
    pub(crate) fn note_packet(&mut self, now: Time) {
        self.last_packet_at = now;
        self.has_sent = true;
    }

    /// Returns whether any packet ever came from the peer.
    pub(crate) fn has_sent(&self) -> bool {
        self.has_sent
    }

    /// Returns the time of the last packet from the peer or, before the first packet, the time at which the
    /// peer was added.
    pub(crate) fn last_packet_at(&self) -> Time {
        self.last_packet_at
    }

    /// Returns the start of the peer's silence, not counting time in which this host was suspended.
    pub(crate) fn since(&self) -> Time {
        self.last_packet_at.max(self.awake_since)
    }

    /// Returns the action due for a client whose RPCs end after a silence of `limit_ns`.
    pub(crate) fn check(&mut self, now: Time, limit_ns: u64) -> SilenceAction {
        let (half_ns, probe_every_ns) = (limit_ns / 2, limit_ns / PROBES_PER_SILENCE);
        let probe_due = self.probe_at.max(self.since() + half_ns);
        let stood_still = limit_ns >= LEAST_PATIENCE_NS
            && now.since(probe_due) >= probe_every_ns
            && self.awake_since <= self.last_packet_at
            && !self.ends;
        if stood_still {
            // No probe was sent in time, and packets of the peer may be waiting here unread. Restart the
            // second half of the silence, in which the peer is probed, but only once per silence.
            self.awake_since = Time::from_ns(now.as_ns() - half_ns);
        } else if now.since(self.since()) >= limit_ns {
            return SilenceAction::End;
        }
        let since = self.since();
        if now.since(since) < half_ns {
            return SilenceAction::Wait(since + half_ns);
        }
        // The timer also fires for due RESENDs, much more often than for probes.
        let probes = now >= self.probe_at;
        if probes {
            self.probe_at = now + probe_every_ns;
        }
        let next = self.probe_at.min(since + limit_ns);
        if probes { SilenceAction::Probe(next) } else { SilenceAction::Wait(next) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT_NS: u64 = 1_200 * MS;

    fn at(ms: u64) -> Time {
        Time::from_ns(ms * MS)
    }

    // PEER-5
    #[test]
    fn a_silent_client_is_probed_in_the_second_half_and_ends_with_the_whole() {
        use SilenceAction::{End, Probe, Wait};
        let mut silence = Silence::new(at(0));
        let mut check = |ms| silence.check(at(ms), LIMIT_NS);
        assert_eq!((check(100), check(600), check(650)), (Wait(at(600)), Probe(at(700)), Wait(at(700))));
        for ms in [700, 800, 900, 1_000, 1_100] {
            assert_eq!(check(ms), Probe(at(ms + 100)));
        }
        assert_eq!((check(1_199), check(1_200)), (Wait(at(1_200)), End));
        silence.note_packet(at(1_200));
        assert_eq!(silence.check(at(1_300), LIMIT_NS), Wait(at(1_800)));
    }

    // PEER-5
    #[test]
    fn a_host_that_stood_still_begins_the_second_half_again_once() {
        use SilenceAction::{End, Probe};
        let mut silence = Silence::new(at(0));
        assert_eq!(silence.check(at(5_000), LIMIT_NS), Probe(at(5_100)));
        assert_eq!(silence.since(), at(4_400));
        assert_eq!(silence.check(at(9_000), LIMIT_NS), End);
        let mut ending = Silence { ends: true, ..Silence::new(at(0)) };
        assert_eq!(ending.check(at(5_000), LIMIT_NS), End);
    }
}
