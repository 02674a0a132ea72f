//! Contents of messages: bytes that depend on the message and the offset.

use rand_pcg::Pcg64;

/// Whether payload is real.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadMode {
    /// Every byte depends on the seed, the RPC and the offset. All bytes are copied, and checked on arrival.
    Real,
    /// Payload is only a length: nothing is copied, and the only check is that each byte arrives exactly
    /// once.
    LengthOnly,
}

/// The bytes of one message. Byte `i` is a function of the key and of `i`. Bytes at a wrong offset, of
/// another message or of the other direction are therefore detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern(u64);

/// 2^64 divided by the golden ratio, odd: consecutive multiples spread over the whole range (Knuth,
/// multiplicative hashing).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
const WORD: usize = 8;

pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 32)).wrapping_mul(SPREAD);
    value ^ (value >> 29)
}

/// Returns random numbers for one purpose of a run. The seed is mixed, because generators seeded with
/// adjacent numbers start with similar values.
pub(crate) fn random_numbers(seed: u64, purpose: u64) -> Pcg64 {
    Pcg64::new(u128::from(mix(seed)) << 64 | u128::from(mix(!seed ^ purpose)), u128::from(purpose))
}

impl Pattern {
    /// Returns the pattern of the request or response of the RPC with ID `id` at client host `client`.
    pub(crate) fn new(seed: u64, client: u32, id: u64, response: bool) -> Pattern {
        Pattern(mix(mix(mix(seed) ^ u64::from(client)) ^ (id & !1 | u64::from(response))))
    }

    /// Returns eight bytes of the pattern. Takes one multiplication, since a check must not cost more than
    /// the protocol itself.
    fn word(self, index: u64) -> [u8; WORD] {
        let value = (self.0 ^ index).wrapping_mul(SPREAD);
        (value ^ (value >> 31)).to_le_bytes()
    }

    /// Splits the bytes from `offset` on into pieces of up to eight.
    fn pieces(self, offset: u32, len: usize) -> (u64, usize, usize) {
        let skip = offset as usize % WORD;
        let head = if skip == 0 { 0 } else { len.min(WORD - skip) };
        ((offset as u64) / WORD as u64, skip, head)
    }

    /// Appends bytes `[offset, offset + len)` of the message.
    pub(crate) fn extend(self, offset: u32, len: u32, out: &mut Vec<u8>) {
        let len = len as usize;
        let (mut index, skip, head) = self.pieces(offset, len);
        out.reserve(len);
        if head > 0 {
            out.extend_from_slice(&self.word(index)[skip..skip + head]);
            index += 1;
        }
        let start = out.len();
        out.resize(start + len - head, 0);
        let (words, tail) = out[start..].as_chunks_mut::<WORD>();
        for word in words {
            *word = self.word(index);
            index += 1;
        }
        tail.copy_from_slice(&self.word(index)[..tail.len()]);
    }

    /// Returns the number of wrong bytes in `data`, which should be the bytes from `offset` on.
    pub(crate) fn wrong_bytes(self, offset: u32, data: &[u8]) -> u64 {
        let (mut index, skip, head) = self.pieces(offset, data.len());
        let (first, rest) = data.split_at(head);
        let mut wrong = 0;
        if head > 0 {
            wrong += differing(first, &self.word(index)[skip..skip + head]);
            index += 1;
        }
        let (words, tail) = rest.as_chunks::<WORD>();
        for word in words {
            let expected = self.word(index);
            if *word != expected {
                wrong += differing(word, &expected);
            }
            index += 1;
        }
        wrong + differing(tail, &self.word(index)[..tail.len()])
    }
}

fn differing(data: &[u8], expected: &[u8]) -> u64 {
    data.iter().zip(expected).filter(|(byte, expected)| byte != expected).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_equals_that_part_of_the_whole() {
        let pattern = Pattern::new(1, 2, 4, false);
        let mut whole = Vec::new();
        pattern.extend(0, 100, &mut whole);
        for offset in 0..40u32 {
            for len in 0..40u32 {
                let mut part = Vec::new();
                pattern.extend(offset, len, &mut part);
                assert_eq!(part, whole[offset as usize..(offset + len) as usize], "{offset} {len}");
                assert_eq!(pattern.wrong_bytes(offset, &part), 0, "{offset} {len}");
            }
        }
    }

    #[test]
    fn bytes_of_another_place_message_direction_or_host_are_wrong() {
        let pattern = Pattern::new(1, 2, 4, false);
        let mut data = Vec::new();
        pattern.extend(8, 64, &mut data);
        assert!(pattern.wrong_bytes(16, &data) > 50);
        for other in [
            Pattern::new(1, 2, 6, false),
            Pattern::new(1, 2, 4, true),
            Pattern::new(1, 3, 4, false),
            Pattern::new(2, 2, 4, false),
        ] {
            assert!(other.wrong_bytes(8, &data) > 50);
        }
        data[13] ^= 1;
        assert_eq!(pattern.wrong_bytes(8, &data), 1);
    }
}
