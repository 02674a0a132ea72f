//! Formats times, ratios and places.

use homa_analysis::Model;
use homa_analysis::model::Rpc;
use homa_proto::wire::PacketType;

/// Formats nanoseconds as microseconds with about three digits.
pub fn us<N: Into<i128>>(ns: N) -> String {
    let ns = ns.into();
    let us = ns as f64 / 1e3;
    match ns.unsigned_abs() {
        0..9_995 => format!("{us:.2}"),
        9_995..999_950 => format!("{us:.1}"),
        _ => format!("{us:.0}"),
    }
}

/// Returns the name of a packet type, given its code on the wire.
pub fn packet_type(code: u8) -> &'static str {
    PacketType::ALL.iter().find(|kind| **kind as u8 == code).map_or("other", |kind| kind.name())
}

/// Formats a time with its unit.
pub fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// Formats a fraction as a percentage.
pub fn percent(share: f64) -> String {
    let percent = if share.is_finite() { share * 100.0 } else { 0.0 };
    if percent > 0.0 && percent < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// Formats a slowdown with about three digits.
pub fn slowdown(value: f64) -> String {
    homa_report::number::brief(value)
}

/// Returns the names of an RPC's client and server.
pub fn ends(model: &Model, rpc: &Rpc) -> String {
    format!("{} > {}", model.name(rpc.client), model.name(rpc.server))
}

/// Returns the value at a percentile, 0 to 100, of sorted values.
pub fn at<T: Copy>(sorted: &[T], percentile: f64) -> Option<T> {
    let rank = (percentile / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_about_three_digits() {
        assert_eq!([1_u64, 9_990, 99_940, 1_234_567].map(us), ["0.00", "9.99", "99.9", "1235"]);
        assert_eq!([5, -1_500, 12_340, -2_000_000].map(us::<i64>), ["0.01", "-1.50", "12.3", "-2000"]);
        assert_eq!([999, 1_500, 2_340_000].map(time), ["999 ns", "1.5 us", "2.34 ms"]);
        assert_eq!([0.0, 0.012, 0.5, f64::NAN].map(percent), ["0 %", "1.2 %", "50 %", "0 %"]);
    }

    #[test]
    fn percentiles_are_values_that_occur() {
        let values: Vec<u32> = (1..=100).collect();
        assert_eq!([0.0, 50.0, 99.0, 100.0].map(|p| at(&values, p)), [1, 50, 99, 100].map(Some));
        assert_eq!(at::<u32>(&[], 50.0), None);
    }
}
