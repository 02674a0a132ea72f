//! Parsers for numbers with units.

/// Splits "10gbit" into 10 and "gbit" (in lower case).
fn split(text: &str) -> Result<(f64, String), String> {
    let text = text.trim();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    let number: f64 =
        text[..digits].replace('_', "").parse().map_err(|_| format!("`{text}` is no number"))?;
    Ok((number, text[digits..].trim().to_ascii_lowercase()))
}

/// Returns `number` times `scale`, rounded to a whole number.
fn whole(text: &str, number: f64, scale: f64) -> Result<u64, String> {
    let value = (number * scale).round();
    if value >= 0.0 && value < u64::MAX as f64 {
        Ok(value as u64)
    } else {
        Err(format!("`{text}` is too large"))
    }
}

/// Parses a duration into nanoseconds: "50ms", "0.5us", "250ns", "1s", or "0".
pub fn duration_ns(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let scale = match unit.as_str() {
        "" if number == 0.0 => 1.0,
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err(format!("`{text}` is no time: use a number and ns, us, ms or s, as in 50ms")),
    };
    whole(text, number, scale)
}

/// Parses a rate into bits per second: "10gbit", "400mbit", "1.6tbit".
pub fn rate_bps(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let scale = match unit.trim_end_matches("/s").trim_end_matches("bps").trim_end_matches("bit") {
        "m" => 1e6,
        "g" => 1e9,
        "t" => 1e12,
        _ => return Err(format!("`{text}` is no rate: use a number and mbit, gbit or tbit, as in 10gbit")),
    };
    whole(text, number, scale)
}

/// Parses a number of bytes: "1500", "64kB", "1.5MB". Units are powers of ten.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let scale = match unit.as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        _ => return Err(format!("`{text}` is no number of bytes: use a number, or one and kB, MB or GB")),
    };
    whole(text, number, scale)
}

/// Like [`bytes`], for 32-bit numbers.
pub fn bytes_u32(text: &str) -> Result<u32, String> {
    u32::try_from(bytes(text)?).map_err(|_| format!("`{text}` is too large: at most {} bytes", u32::MAX))
}

/// Parses a number without a unit.
pub fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.trim()
        .replace('_', "")
        .parse()
        .map_err(|_| format!("`{text}` is no number of the right kind and size"))
}

/// Parses one of a list of words.
pub fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        format!("`{text}` is unknown: use {}", known.join(" or "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        assert_eq!(
            ["50ms", "0.5us", "250ns", "1 s", "0"].map(duration_ns).map(Result::unwrap),
            [50_000_000, 500, 250, 1_000_000_000, 0]
        );
        assert_eq!(
            ["10gbit", "40Gbit/s", "0.4Tbps", "100m"].map(rate_bps).map(Result::unwrap),
            [10_000_000_000, 40_000_000_000, 400_000_000_000, 100_000_000]
        );
        assert_eq!(
            ["1500", "64kB", "1.5MB", "10_000"].map(bytes).map(Result::unwrap),
            [1_500, 64_000, 1_500_000, 10_000]
        );
    }

    #[test]
    fn a_missing_or_wrong_unit_is_refused() {
        for text in ["50", "ms", "-1ms", "50min", "1e3ms", ""] {
            assert!(duration_ns(text).is_err(), "{text}");
        }
        for text in ["10", "10kbit", "gbit", "99999999999tbit"] {
            assert!(rate_bps(text).is_err(), "{text}");
        }
        assert!(bytes("10x").is_err() && bytes("-1").is_err() && bytes_u32("5GB").is_err());
    }
}
