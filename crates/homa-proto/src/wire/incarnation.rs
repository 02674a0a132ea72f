//! The number that distinguishes a host's incarnation from earlier and later ones.

use std::fmt;

const BITS: u32 = 40;
const MASK: u64 = (1 << BITS) - 1;

/// An incarnation of a host: 40 bits, larger after each restart, compared by serial-number arithmetic.
///
/// Peers of this implementation send it in 40 header bits that Linux Homa ignores.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Incarnation(u64);

impl Incarnation {
    /// Stands for the incarnation of a peer that does not announce one.
    pub const NONE: Self = Self(0);

    /// Makes an incarnation from the low 40 bits of `value`, or from 1 if these bits are 0. The result is
    /// never [`NONE`](Self::NONE) (ID-10).
    pub const fn new(value: u64) -> Self {
        match value & MASK {
            0 => Self(1),
            bits => Self(bits),
        }
    }

    /// Decodes the incarnation from its 40 bits on the wire, where 0 is [`NONE`](Self::NONE).
    pub(super) const fn from_wire(flags: u8, window: u16, checksum: u16) -> Self {
        Self((flags as u64) << 32 | (window as u64) << 16 | checksum as u64)
    }

    /// Returns the fields `flags`, `window` and `checksum` that carry the incarnation.
    pub(super) const fn to_wire(self) -> (u8, u16, u16) {
        ((self.0 >> 32) as u8, (self.0 >> 16) as u16, self.0 as u16)
    }

    /// Returns the number, less than 2^40; 0 for [`NONE`](Self::NONE).
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns whether the peer announced no incarnation.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns whether `self` is a later incarnation of the host than `other`.
    ///
    /// Uses serial-number arithmetic: later means at most 2^39 - 1 steps ahead, including wrap-around.
    /// [`NONE`](Self::NONE) is neither later nor earlier than any incarnation.
    pub const fn is_newer_than(self, other: Self) -> bool {
        if self.is_none() || other.is_none() {
            return false;
        }
        let ahead = self.0.wrapping_sub(other.0) & MASK;
        ahead != 0 && ahead < 1 << (BITS - 1)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() { f.write_str("none") } else { write!(f, "{:010x}", self.0) }
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Incarnation({self})")
    }
}
