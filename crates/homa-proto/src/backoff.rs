//! Intervals between packets while the peer does not answer.

/// Returns an interval that doubles with each unanswered packet, up to a ceiling (RESEND-5, ACK-10).
pub(super) fn backoff_interval(interval_ns: u64, ceiling_ns: u64, backoff: u8) -> u64 {
    let doubled = if backoff >= 32 { u64::MAX } else { interval_ns.saturating_mul(1 << backoff) };
    doubled.min(ceiling_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_double_up_to_the_ceiling() {
        let intervals: Vec<u64> =
            [0, 1, 2, 3, 4, 40, 255].map(|backoff| backoff_interval(5, 50, backoff)).to_vec();
        assert_eq!(intervals, [5, 10, 20, 40, 50, 50, 50]);
    }
}
