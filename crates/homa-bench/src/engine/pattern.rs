//! The content of messages, and the comparison of responses with it.

use bytes::Bytes;
use rand::{RngCore, SeedableRng};
use rand_pcg::Pcg64;

use crate::tcp::frame::ONE_WAY_BYTES;

/// Number of offsets in the pattern at which messages begin, so that consecutive RPCs have different content.
const STARTS: u64 = 4096;

/// Maximum length of responses that are compared in full.
const WHOLE: usize = 1500;

/// Size of the windows in which longer responses are compared. Comparing a whole MB would delay the measuring
/// thread, and with it the next message, by 50 us.
const WINDOW: usize = 64;

/// Number of windows in a long response, in addition to the one at its beginning. The last one is at its end.
const WINDOWS: usize = 16;

/// Random bytes of which every message is a slice, so that making a request copies nothing.
#[derive(Clone, Debug)]
pub struct Pattern {
    bytes: Bytes,
    one_way: bool,
}

impl Pattern {
    /// Creates a pattern for messages of up to `max_bytes`, with random bytes generated from `seed`. With
    /// `one_way`, responses are 100 bytes long.
    pub fn new(max_bytes: u32, seed: u64, one_way: bool) -> Pattern {
        let mut bytes = vec![0; max_bytes as usize + STARTS as usize];
        Pcg64::seed_from_u64(seed).fill_bytes(&mut bytes);
        Pattern { bytes: bytes.into(), one_way }
    }

    /// Returns the request of `size` bytes with this number.
    pub fn request(&self, number: u64, size: u32) -> Bytes {
        let start = (number % STARTS) as usize;
        self.bytes.slice(start..start + size as usize)
    }

    /// Checks the response to the request of `size` bytes with this number.
    ///
    /// # Errors
    /// The error describes the difference.
    pub fn check(&self, number: u64, size: u32, answer: &[u8]) -> Result<(), String> {
        let request = &self.bytes[(number % STARTS) as usize..][..size as usize];
        let length = if self.one_way { ONE_WAY_BYTES } else { request.len() };
        if answer.len() != length {
            let remedy = match (self.one_way, answer.len()) {
                (true, _) => ": start the server with --one-way",
                (false, ONE_WAY_BYTES) => ": the server runs with --one-way, the bench does not",
                (false, _) => "",
            };
            return Err(format!("an answer has {} bytes instead of {length}{remedy}", answer.len()));
        }
        let sent = length.min(request.len());
        let right = if sent <= WHOLE {
            answer[..sent] == request[..sent] && answer[sent..].iter().all(|&byte| byte == 0)
        } else {
            windows(sent, number).all(|at| answer[at..at + WINDOW] == request[at..at + WINDOW])
        };
        if right { Ok(()) } else { Err(format!("an answer of {length} bytes has the wrong content")) }
    }
}

/// Returns the offsets of the windows: both ends of the response, and positions evenly spread between them.
/// `number` shifts the latter, so that all bytes are compared over many responses of one size.
fn windows(length: usize, number: u64) -> impl Iterator<Item = usize> {
    let last = length - WINDOW;
    let step = last / (WINDOWS - 1);
    let shift = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % step;
    (1..WINDOWS).map(move |index| index * step - shift).chain([0, last])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_is_right_and_another_message_is_not() {
        let pattern = Pattern::new(1_000_000, 7, false);
        for size in [1, 8, 100, 1500, 1501, 70_000, 1_000_000] {
            let request = pattern.request(5, size);
            assert_eq!(pattern.check(5, size, &request), Ok(()));
            assert!(size < 4 || pattern.check(6, size, &request).is_err(), "{size}");
            assert!(pattern.check(5, size, &request[1..]).is_err());
        }
    }

    #[test]
    fn one_changed_byte_of_a_short_answer_is_found() {
        let pattern = Pattern::new(1500, 7, false);
        let request = pattern.request(9, 1500);
        for at in 0..1500 {
            let mut answer = request.to_vec();
            answer[at] ^= 1;
            assert!(pattern.check(9, 1500, &answer).is_err(), "{at}");
        }
    }

    #[test]
    fn a_wrong_packet_of_a_long_answer_is_found_at_some_rpc() {
        let pattern = Pattern::new(100_000, 7, false);
        for packet in 0..(100_000 / 1400) {
            let found = (0..64).any(|number| {
                let mut answer = pattern.request(number, 100_000).to_vec();
                answer[packet * 1400..(packet + 1) * 1400].fill(0);
                pattern.check(number, 100_000, &answer).is_err()
            });
            assert!(found, "{packet}");
        }
    }

    #[test]
    fn one_way_answers_are_checked_too() {
        let pattern = Pattern::new(1000, 7, true);
        let answer = crate::tcp::server::one_way_answer(&pattern.request(3, 5));
        assert_eq!(pattern.check(3, 5, &answer), Ok(()));
        assert!(pattern.check(4, 5, &answer).is_err());
        assert_eq!(pattern.check(3, 900, &pattern.request(3, 100)), Ok(()));
        assert!(pattern.check(3, 900, &pattern.request(3, 900)).expect_err("too long").contains("--one-way"));
    }
}
