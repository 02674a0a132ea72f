//! How far one grant reaches: pure functions of a message and of the room for it (PROTOCOL.md GRANT).

use crate::config::Config;
use crate::message_in::MessageIn;
use crate::message_out::whole_packets;

/// The inputs to the choice of one grant.
#[derive(Clone, Copy)]
pub(crate) struct GrantRoom {
    /// Bytes that the message may have outstanding.
    pub window: u32,
    /// Bytes that may still be granted within the limit on all messages.
    pub budget: u64,
    /// Minimum number of bytes by which a grant extends the last one, if possible.
    pub min_increment: u32,
    /// Payload of a full packet.
    pub payload: u32,
}

/// Returns the new granted end of an active message, if a grant is worth a packet (GRANT-4, GRANT-5, GRANT-8,
/// GRANT-15).
pub(crate) fn next_grant(received: u32, granted: u32, length: u32, room: GrantRoom) -> Option<u32> {
    let GrantRoom { window, budget, min_increment, payload } = room;
    let wanted = received.saturating_add(window).min(length);
    let increment = wanted.checked_sub(granted)?.min(budget.min(u64::from(u32::MAX)) as u32);
    let increment = if granted + increment == length { increment } else { whole_packets(increment, payload) };
    let end = granted + increment;
    // A planted fault that the swarm must find: the grant extends one byte too far.
    #[cfg(homa_canary)]
    let end =
        if crate::planted_faults::has("grant_off_by_one") { end.saturating_add(1).min(length) } else { end };
    // If the window is smaller than two minimum increments, half the window is enough: a small window must
    // still move.
    let enough = increment >= min_increment.min(window / 2).max(1);
    (increment > 0 && (end == length || enough)).then_some(end)
}

/// Returns the new granted end of the oldest message after a grant of `increment` bytes, in packets of
/// `payload` bytes. `None`: its last grant is still in flight, or its sender is silent.
pub(crate) fn next_fifo_grant(incoming: &MessageIn, increment: u32, payload: u32) -> Option<u32> {
    if incoming.outstanding() >= increment || incoming.uncounted() > 0 {
        return None;
    }
    // At the end of the message, the grant may be less than the increment.
    Some(incoming.granted.saturating_add(whole_packets(increment, payload)).min(incoming.length))
}

/// Bytes that one active message may have outstanding (GRANT-4).
pub(crate) fn window(config: &Config, active: usize) -> u32 {
    if config.window != 0 { config.window } else { (config.windows() / (active as u32 + 1)).max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(window: u32, budget: u64, min_increment: u32) -> GrantRoom {
        GrantRoom { window, budget, min_increment, payload: 1_000 }
    }

    #[test]
    fn a_grant_reaches_a_window_beyond_what_was_received() {
        let room = room(200_000, 400_000, 10_000);
        assert_eq!(next_grant(10_000, 40_000, 1_000_000, room), Some(210_000));
        assert_eq!(next_grant(0, 40_000, 60_000, room), Some(60_000), "not beyond the end");
    }

    #[test]
    fn a_grant_stays_within_the_budget_and_is_worth_a_packet() {
        let long = |window, budget, min| next_grant(0, 40_000, 1_000_000, room(window, budget, min));
        assert_eq!(long(200_000, 15_000, 10_000), Some(55_000));
        assert_eq!(long(200_000, 9_999, 10_000), None);
        assert_eq!(long(45_000, 400_000, 10_000), None);
        assert_eq!(long(40_000, 400_000, 0), None, "nothing to add");
        let end = next_grant(0, 40_000, 45_000, room(45_000, 400_000, 10_000));
        assert_eq!(end, Some(45_000), "the end is worth it");
        let small = next_grant(0, 0, 1_000_000, room(1_500, 400_000, 10_000));
        assert_eq!(small, Some(1_000), "a small window moves");
    }

    // GRANT-8
    #[test]
    fn a_grant_of_whole_packets_is_still_worth_a_packet() {
        let after = |received| {
            next_grant(
                received,
                40_000,
                1_000_000,
                GrantRoom { payload: 1_424, ..room(40_000, 400_000, 10_000) },
            )
        };
        assert_eq!(after(10_000), None, "7 packets are less");
        assert_eq!(after(11_391), None);
        assert_eq!(after(11_392), Some(40_000 + 8 * 1_424));
    }

    // GRANT-15
    #[test]
    fn a_grant_is_of_whole_packets_or_less_than_one_or_to_the_end() {
        let granted = |length, window, budget| next_grant(0, 500, length, room(window, budget, 1));
        assert_eq!(granted(90_000, 3_499, 9_000), Some(2_500));
        assert_eq!(granted(90_000, 9_000, 2_999), Some(2_500));
        assert_eq!(granted(90_000, 9_000, 999), Some(1_499), "there is no room for more");
        assert_eq!(granted(3_200, 9_000, 9_000), Some(3_200));
    }
}
