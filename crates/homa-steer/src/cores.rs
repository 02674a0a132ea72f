//! The cores that a policy selects from.

use std::fmt;
use std::str::FromStr;

use crate::error::SteerError;

/// A core, by the system's core number.
pub type Core = u16;

/// Maximum number of cores that a policy selects from.
pub const MAX_CORES: usize = 64;

/// Upper bound on core numbers, exclusive. It also applies to cores on which packets arrive but that no
/// policy selects.
pub const CORE_NUMBERS: usize = 256;

/// A set of one to [`MAX_CORES`] distinct cores in ascending order, as in the kernel's map for RPS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores(Vec<Core>);

impl Cores {
    /// Creates a set of these cores, which may be given in any order.
    ///
    /// # Errors
    /// There is no core, a number is too large, or there are too many cores.
    pub fn new(numbers: impl IntoIterator<Item = Core>) -> Result<Cores, SteerError> {
        // The input may be long, but the result is bounded by the number of possible cores.
        let mut named = [false; CORE_NUMBERS];
        for number in numbers {
            let place = named.get_mut(usize::from(number));
            *place.ok_or(SteerError::CoreOutOfReach { number: number.into(), last: CORE_NUMBERS - 1 })? =
                true;
        }
        let cores: Vec<Core> = (0..).zip(named).filter_map(|(core, named)| named.then_some(core)).collect();
        match cores.len() {
            0 => Err(SteerError::NoCores),
            1..=MAX_CORES => Ok(Cores(cores)),
            count => Err(SteerError::TooManyCores { count, max: MAX_CORES }),
        }
    }

    /// Creates a set of the first `count` cores.
    ///
    /// # Errors
    /// The count is zero or too large.
    pub fn first(count: usize) -> Result<Cores, SteerError> {
        if count > MAX_CORES {
            Err(SteerError::TooManyCores { count, max: MAX_CORES })
        } else {
            Cores::new(0..count as Core)
        }
    }

    /// Returns the core numbers in ascending order.
    #[must_use]
    pub fn as_slice(&self) -> &[Core] {
        &self.0
    }

    /// Returns the number of cores, at least 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "they are never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether this core is in the set.
    #[must_use]
    pub fn contains(&self, core: Core) -> bool {
        self.0.binary_search(&core).is_ok()
    }

    /// Returns the index of the first core whose number is greater than this core's, or 0 if there is none.
    #[must_use]
    pub fn place_after(&self, core: Core) -> usize {
        let place = self.0.partition_point(|&other| other <= core);
        if place == self.0.len() { 0 } else { place }
    }

    /// Returns all cores once, in cyclic order from index `place` on; see [`Cores::place_after`].
    pub fn round_from(&self, place: usize) -> impl Iterator<Item = Core> {
        let (before, from) = self.0.split_at(place.min(self.0.len()));
        from.iter().chain(before).copied()
    }
}

impl FromStr for Cores {
    type Err = SteerError;

    /// Parses numbers and ranges separated by commas, as in `0-3,6`.
    fn from_str(text: &str) -> Result<Cores, SteerError> {
        let no_list = || SteerError::NoList { text: text.to_owned() };
        let number = |text: &str| -> Result<Core, SteerError> {
            let number: u64 = text.trim().parse().map_err(|_| no_list())?;
            Core::try_from(number)
                .ok()
                .filter(|&number| usize::from(number) < CORE_NUMBERS)
                .ok_or(SteerError::CoreOutOfReach { number, last: CORE_NUMBERS - 1 })
        };
        let mut numbers = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(no_list());
            }
            numbers.extend(first..=last);
        }
        Cores::new(numbers)
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.0.chunk_by(|before, after| before + 1 == *after);
        for (i, run) in runs.enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match run {
                [first, .., last] => write!(f, "{comma}{first}-{last}")?,
                _ => write!(f, "{comma}{}", run[0])?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<Core>, SteerError> {
        text.parse().map(|cores: Cores| cores.as_slice().to_vec())
    }

    #[test]
    fn a_list_has_each_core_once_in_the_order_of_their_numbers() {
        assert_eq!(parsed("6,0-3,2"), Ok(vec![0, 1, 2, 3, 6]));
        assert_eq!(parsed(" 255 "), Ok(vec![255]));
        for (list, shown) in [("3,2,1,5", "1-3,5"), ("0", "0"), ("0,2", "0,2")] {
            assert_eq!(list.parse::<Cores>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["", ",", "1,", "a", "3-1", "-1", "1-", "0x1", "1.5"] {
            assert_eq!(parsed(text), Err(SteerError::NoList { text: text.to_owned() }), "{text}");
        }
        assert_eq!(parsed("256"), Err(SteerError::CoreOutOfReach { number: 256, last: 255 }));
        assert_eq!(
            parsed("0-99999999999"),
            Err(SteerError::CoreOutOfReach { number: 99_999_999_999, last: 255 })
        );
        assert_eq!(parsed("0-64"), Err(SteerError::TooManyCores { count: 65, max: 64 }));
        assert_eq!(Cores::first(64).unwrap().len(), 64);
        assert_eq!(Cores::first(0), Err(SteerError::NoCores));
        assert_eq!(Cores::first(1 << 40), Err(SteerError::TooManyCores { count: 1 << 40, max: 64 }));
    }

    #[test]
    fn the_core_after_another_is_the_next_greater_and_after_the_last_the_first() {
        let cores: Cores = "2,4,7".parse().unwrap();
        for (core, place) in [(0, 0), (2, 1), (3, 1), (4, 2), (6, 2), (7, 0), (200, 0)] {
            assert_eq!(cores.place_after(core), place, "{core}");
        }
        assert!(cores.round_from(1).eq([4, 7, 2]));
        assert!(cores.contains(4) && !cores.contains(3));
    }
}
