//! Reasons why endpoints drop packets.

/// Reasons why an endpoint drops a received packet. Each is the name of one of the endpoint's counters
/// without the prefix `drop_`; see the documentation of the counters. A reason's number, which is `b` of
/// [`EventKind::PacketDropped`](crate::EventKind::PacketDropped), is its position in this list, starting at
/// 1. The numbers are part of the dump format: a reason keeps its number, and new reasons are appended.
pub const DROP_REASONS: [&str; 25] = [
    "invalid",
    "duplicate",
    "finished",
    "finished_full",
    "unknown_rpc",
    "no_port",
    "owner_gone",
    "wrong_peer",
    "stale_incarnation",
    "too_large",
    "length_mismatch",
    "rpc_limit",
    "buffer_limit",
    "peer_limit",
    "gap_limit",
    "retransmit_limit",
    "nonsense",
    "unproven_incarnation",
    "peer_share",
    "start_empty",
    "start_too_large",
    "start_mismatch",
    "start_finished",
    "mixed_forms",
    "prefix_share",
];

/// Returns the number of the reason with this counter, or 0 if there is no such reason.
#[must_use]
pub const fn drop_reason(counter: &str) -> u32 {
    let Some((prefix, name)) = counter.as_bytes().split_at_checked(PREFIX.len()) else { return 0 };
    let mut number = 0;
    while equal(prefix, PREFIX) && number < DROP_REASONS.len() {
        if equal(name, DROP_REASONS[number].as_bytes()) {
            return number as u32 + 1;
        }
        number += 1;
    }
    0
}

const PREFIX: &[u8] = b"drop_";

// The standard comparison of slices is not available in constant functions.
const fn equal(one: &[u8], other: &[u8]) -> bool {
    let mut index = 0;
    while index < one.len() && index < other.len() && one[index] == other[index] {
        index += 1;
    }
    index == one.len() && index == other.len()
}

/// Returns the name of a reason, or `None` for an unknown number and for 0, which occurs in older traces.
#[must_use]
pub fn drop_reason_name(number: u32) -> Option<&'static str> {
    let index = usize::try_from(number).ok()?.checked_sub(1)?;
    DROP_REASONS.get(index).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_come_back_from_their_numbers() {
        for (index, name) in DROP_REASONS.iter().enumerate() {
            let number = drop_reason(&format!("drop_{name}"));
            assert_eq!((number, drop_reason_name(number)), (index as u32 + 1, Some(*name)));
        }
        assert_eq!(["drop_", "drop_finish", "drop_finished_fuller", "finished", ""].map(drop_reason), [0; 5]);
        let behind = DROP_REASONS.len() as u32 + 1;
        assert_eq!([0, behind, u32::MAX].map(drop_reason_name), [None; 3]);
    }
}
