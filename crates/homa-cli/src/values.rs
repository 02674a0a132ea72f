//! Parsers of option values that several commands share. Their error texts complete a sentence that clap
//! starts with the option and the value.

use homa_bench::server::DEFAULT_POLL;
use homa_bench::workloads::Truncation;

/// Receive queues of a network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queues(pub Vec<u32>);

/// Parses receive queues: numbers and ranges, as in 0-3,6.
pub fn queues(text: &str) -> Result<Queues, String> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then_some(u32::from(first)..=u32::from(last))
    };
    let parts: Option<Vec<_>> = text.split(',').map(part).collect();
    let parts = parts.ok_or("use numbers and ranges of them, as in 0-3,6")?;
    Ok(Queues(parts.into_iter().flatten().collect()))
}

/// The default polling time of a thread, in microseconds, for help texts.
pub const DEFAULT_POLL_US: u64 = DEFAULT_POLL.as_micros() as u64;
/// Maximum polling time. With a longer time, the threads of an idle protocol would disturb the protocol that
/// is being measured.
const MAX_POLL_US: u64 = 10_000;
/// Maximum message length: lengths on the wire have 32 bits, and some peers treat them as signed.
const MAX_MESSAGE: u32 = i32::MAX as u32;

/// Parses the length to which messages are truncated: a number of bytes, or `none`.
pub fn truncation(text: &str) -> Result<Truncation, String> {
    if text == "none" {
        return Ok(Truncation::Off);
    }
    message_bytes(text).map(Truncation::At).map_err(|error| format!("{error}, or `none`"))
}

/// Parses the length of a message, in bytes.
pub fn message_bytes(text: &str) -> Result<u32, String> {
    match text.parse::<u64>() {
        Ok(bytes) if (1..=u64::from(MAX_MESSAGE)).contains(&bytes) => Ok(bytes as u32),
        _ => Err(format!("a message has 1 to {MAX_MESSAGE} bytes")),
    }
}

/// Parses a polling time in microseconds.
pub fn poll_us(text: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(us) if us <= MAX_POLL_US => Ok(us),
        _ => Err(format!("use 0 to {MAX_POLL_US} microseconds")),
    }
}

/// Parses a number above 0.
pub fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err("use a positive number".to_owned()),
    }
}
