//! Formats numbers compactly.

/// Formats a number with about three digits.
pub fn brief(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => "-".to_owned(),
        0.0..9.995 => format!("{value:.2}"),
        9.995..99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Formats a number of bytes with its unit and about three digits.
pub fn brief_bytes(bytes: f64) -> String {
    match bytes {
        0.0..1e3 => format!("{bytes:.0} B"),
        1e3..1e6 => format!("{} kB", brief(bytes / 1e3)),
        1e6..1e9 => format!("{} MB", brief(bytes / 1e6)),
        _ => format!("{} GB", brief(bytes / 1e9)),
    }
}

/// Formats a message size with its unit, with two digits where they matter.
pub fn size(bytes: u32) -> String {
    let (value, unit) = match bytes {
        0..1_000 => return format!("{bytes} B"),
        1_000..1_000_000 => (f64::from(bytes) / 1e3, "kB"),
        _ => (f64::from(bytes) / 1e6, "MB"),
    };
    let digits = usize::from(value < 10.0 && (value * 10.0).round() % 10.0 != 0.0);
    format!("{value:.digits$} {unit}")
}

/// Formats a number with two decimals below 10, one decimal below 100, and no decimals above.
pub fn short_number(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// Formats a quotient as [`short_number`] does, or a dash if either operand is 0.
pub fn ratio(above: f64, below: f64) -> String {
    if above > 0.0 && below > 0.0 { short_number(above / below) } else { "-".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!([1.234, 9.999, 12.34, 99.99, 1234.5].map(brief), ["1.23", "10.0", "12.3", "100", "1234"]);
        assert_eq!([12.0, 1_234.0, 5e7, 2e9].map(brief_bytes), ["12 B", "1.23 kB", "50.0 MB", "2.00 GB"]);
    }

    #[test]
    fn sizes_of_messages_are_round() {
        assert_eq!(
            [100, 1_000, 1_450, 65_536, 1_000_000].map(size),
            ["100 B", "1 kB", "1.4 kB", "66 kB", "1 MB"].map(str::to_owned)
        );
    }
}
