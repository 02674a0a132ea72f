//! Parses ranges of seeds in arguments.

use std::ops::Range;

/// Parses `A..B` with A below B, or `A..` for all seeds from A on.
///
/// # Errors
/// Names the option.
pub fn parse(value: &str) -> Result<Range<u64>, String> {
    let number = |text: &str| text.parse::<u64>().ok();
    let range = value
        .split_once("..")
        .and_then(|(from, to)| Some(number(from)?..if to.is_empty() { u64::MAX } else { number(to)? }));
    range
        .filter(|range| !range.is_empty())
        .ok_or_else(|| format!("--seeds {value}: want A..B with A below B, or A.."))
}
