//! When a way out of the host counts as stuck: it takes nothing, and there is no telling when it will.
//!
//! Times are nanoseconds of any clock that does not go back.

const MS: u64 = 1_000_000;

/// For so long a way takes not one packet before it counts as stuck. A link of 2.4 Mbit/s sends a packet of 1,500 bytes in this time; a
/// slower one holds up the packets of all others for longer than a RESEND of theirs takes.
const STUCK_AFTER_NS: u64 = 5 * MS;

/// For so long nothing is refused, while there is room, before a stuck way counts as free again. A queue that is full takes a packet now and
/// then, and each time that it counted as free the others would wait for it again.
const FREE_AFTER_NS: u64 = 100 * MS;

/// How soon packets that found no room are offered again, where poll(2) does not tell that there is room.
pub(super) const RETRY_NS: u64 = MS;

/// How often the ways are looked at while packets go by several.
pub(super) const LOOK_NS: u64 = FREE_AFTER_NS;

/// What a way out has refused lately.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StallDetector {
    /// When the first of the refusals was between which it took nothing.
    since_ns: Option<u64>,
    last_ns: Option<u64>,
    stuck: bool,
}

impl StallDetector {
    /// It refused a packet, having `taken` others of the same call or none. Returns whether it is stuck.
    pub(super) fn refused(&mut self, now_ns: u64, taken: bool) -> bool {
        // Nobody has tried in between: nothing is known of that time.
        let lapsed = self.last_ns.is_none_or(|last_ns| now_ns.saturating_sub(last_ns) >= FREE_AFTER_NS);
        if taken || lapsed {
            self.since_ns = Some(now_ns);
        }
        self.last_ns = Some(now_ns);
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        self.stuck |= now_ns.saturating_sub(since_ns) >= STUCK_AFTER_NS;
        self.stuck
    }

    /// It took all that it was offered. A stuck way stays so until [`StallDetector::is_over`] says otherwise.
    pub(super) fn took_all(&mut self) {
        self.since_ns = None;
    }

    /// Whether it takes packets again, or always has: nothing was refused lately, and its socket `has_room`.
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
        refusals.took_all();
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
        refusals.took_all();
        assert!(refusals.refused(STUCK_AFTER_NS + MS, false), "still stuck");
        let last_ns = STUCK_AFTER_NS + MS;
        assert!(!refusals.is_over(last_ns + FREE_AFTER_NS - 1, true));
        assert!(!refusals.is_over(last_ns + FREE_AFTER_NS, false));
        assert!(refusals.is_over(last_ns + FREE_AFTER_NS, true));
        assert!(!refusals.refused(last_ns + FREE_AFTER_NS, false));
    }
}
