//! Detects a stuck path out of the host: its socket accepts nothing, and it is unknown when it will again.
//!
//! Times are nanoseconds of any monotonic clock.

const MS: u64 = 1_000_000;

/// A path that accepts no packet for this long is stuck. A link of 2.4 Mbit/s sends a packet of 1,500 bytes
/// in this time. A slower link would delay packets on other links beyond their RESEND timeout.
const STUCK_AFTER_NS: u64 = 5 * MS;

/// A stuck path has recovered if it has room and nothing was refused for this long. A full queue accepts a
/// packet now and then; if that counted as recovery, packets on other links would wait for it again each
/// time.
const FREE_AFTER_NS: u64 = 100 * MS;

/// Time until refused packets are offered again if poll(2) does not report room.
pub(super) const RETRY_NS: u64 = MS;

/// Interval between checks of the paths while packets use several paths.
pub(super) const LOOK_NS: u64 = FREE_AFTER_NS;

/// Detects a stall from the recent refusals of one path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StallDetector {
    /// Time of the first refusal since the path last accepted a packet.
    since_ns: Option<u64>,
    last_ns: Option<u64>,
    stuck: bool,
}

impl StallDetector {
    /// Records that the path refused a packet. `taken` is whether the path accepted other packets of the same
    /// call. Returns whether the path is stuck.
    pub(super) fn refused(&mut self, now_ns: u64, taken: bool) -> bool {
        // No packet was offered in between, so it is unknown whether the path was stuck during that time.
        let lapsed = self.last_ns.is_none_or(|last_ns| now_ns.saturating_sub(last_ns) >= FREE_AFTER_NS);
        if taken || lapsed {
            self.since_ns = Some(now_ns);
        }
        self.last_ns = Some(now_ns);
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        self.stuck |= now_ns.saturating_sub(since_ns) >= STUCK_AFTER_NS;
        self.stuck
    }

    /// Records that the path accepted all packets offered. A stuck path stays stuck until
    /// [`StallDetector::is_over`] returns true.
    pub(super) fn note_accepted_all(&mut self) {
        self.since_ns = None;
    }

    /// Whether the path accepts packets again, or always has: nothing was refused recently, and its socket
    /// has room (`has_room`).
    pub(super) fn is_over(&mut self, now_ns: u64, has_room: bool) -> bool {
        let quiet = self.last_ns.is_none_or(|last_ns| now_ns.saturating_sub(last_ns) >= FREE_AFTER_NS);
        if quiet && has_room {
            *self = StallDetector::default();
        }
        quiet && has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_that_takes_nothing_for_long_is_stuck() {
        let mut refusals = StallDetector::default();
        let stuck = [0, MS, STUCK_AFTER_NS - 1, STUCK_AFTER_NS].map(|now_ns| refusals.refused(now_ns, false));
        assert_eq!(stuck, [false, false, false, true]);
    }

    #[test]
    fn a_way_that_takes_a_packet_now_and_then_is_not_stuck() {
        let mut refusals = StallDetector::default();
        for packet in 1..100 {
            assert!(!refusals.refused(packet * STUCK_AFTER_NS, true));
            assert!(!refusals.refused(packet * STUCK_AFTER_NS + STUCK_AFTER_NS - 1, false));
        }
        refusals.note_accepted_all();
        assert!(!refusals.refused(100 * STUCK_AFTER_NS, false), "counts anew");
    }

    #[test]
    fn time_in_which_nobody_tried_says_nothing() {
        let mut refusals = StallDetector::default();
        assert!(!refusals.refused(0, false));
        assert!(!refusals.refused(FREE_AFTER_NS, false));
        assert!(refusals.refused(FREE_AFTER_NS + STUCK_AFTER_NS, false));
    }

    #[test]
    fn a_stuck_way_that_took_a_packet_is_free_when_it_has_room_and_refuses_none() {
        let mut refusals = StallDetector::default();
        assert!(refusals.is_over(0, true) && !refusals.is_over(0, false));
        refusals.refused(0, false);
        refusals.refused(STUCK_AFTER_NS, false);
        refusals.note_accepted_all();
        assert!(refusals.refused(STUCK_AFTER_NS + MS, false), "still stuck");
        let last_ns = STUCK_AFTER_NS + MS;
        assert!(!refusals.is_over(last_ns + FREE_AFTER_NS - 1, true));
        assert!(!refusals.is_over(last_ns + FREE_AFTER_NS, false));
        assert!(refusals.is_over(last_ns + FREE_AFTER_NS, true));
        assert!(!refusals.refused(last_ns + FREE_AFTER_NS, false));
    }
}
