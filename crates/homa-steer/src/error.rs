//! Why a policy cannot be made.

use crate::cores::{CORE_NUMBERS, MAX_CORES};
use crate::policies::sparse::MAX_LEVELS;
use crate::table::POLICIES;
use crate::wake::WakeOrder;

/// Why a policy cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SteerError {
    /// No policy has this name.
    #[error("there is no policy {name}: choose one of {}", POLICIES.map(|entry| entry.name).join(", "))]
    NoSuchPolicy {
        /// The name.
        name: String,
    },
    /// No order of waking threads has this name.
    #[error("there is no order {name}: choose one of {}", WakeOrder::ALL.map(|(_, name)| name).join(", "))]
    NoSuchOrder {
        /// The name.
        name: String,
    },
    /// This is no list of cores.
    #[error("`{text}` is no list of cores: use numbers and ranges, as in 0-3,6")]
    NoList {
        /// What was given.
        text: String,
    },
    /// A list names no core.
    #[error("a policy needs a core to choose: name one at least")]
    NoCores,
    /// A list names more cores than a policy keeps state for.
    #[error("{count} cores are too many for a policy: name {MAX_CORES} at most")]
    TooManyCores {
        /// How many.
        count: usize,
    },
    /// A core's number is beyond what a policy keeps state for.
    #[error("core {number} is out of reach: a policy knows the cores 0 to {}", CORE_NUMBERS - 1)]
    CoreOutOfReach {
        /// The number.
        number: u64,
    },
    /// The sparse policy has no so many levels.
    #[error("{levels} levels are not possible: use 1 to {MAX_LEVELS}")]
    Levels {
        /// How many.
        levels: u32,
    },
    /// A setting is out of its range.
    #[error("{setting} cannot be {value}: use {range}")]
    Setting {
        /// The field of the settings.
        setting: &'static str,
        /// Its value.
        value: u64,
        /// What it may be.
        range: &'static str,
    },
}
