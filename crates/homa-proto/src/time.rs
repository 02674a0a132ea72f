//! Time as an argument: nanoseconds since an origin that the caller chooses.

use std::ops::Add;

/// A time, in nanoseconds since an origin that the caller chooses and never changes. It never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// Nanoseconds in a microsecond.
pub const US: u64 = 1_000;
/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const SEC: u64 = 1_000_000_000;

impl Time {
    /// The origin.
    pub const ZERO: Time = Time(0);
    /// A time that never comes.
    pub const NEVER: Time = Time(u64::MAX);

    /// Returns the time `ns` nanoseconds after the origin.
    pub const fn from_ns(ns: u64) -> Time {
        Time(ns)
    }

    /// Returns the nanoseconds since the origin.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Returns the nanoseconds from `earlier` to `self`, or 0 if `earlier` is in fact later. A stale time can
    /// therefore never produce an enormous interval (such an underflow once let a sender overfill its NIC
    /// queue).
    pub const fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Time {
    type Output = Time;

    /// Returns the time `ns` nanoseconds later. Saturates at [`Time::NEVER`].
    fn add(self, ns: u64) -> Time {
        Time(self.0.saturating_add(ns))
    }
}
