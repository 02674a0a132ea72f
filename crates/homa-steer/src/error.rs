//! Errors that occur when a policy is built.

/// The reason why a policy cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SteerError {
    /// No policy has this name.
    #[error("there is no policy {name}: choose one of {known}")]
    NoSuchPolicy {
        /// The name that was requested.
        name: String,
        /// The names of all policies.
        known: String,
    },
    /// No wake order has this name.
    #[error("there is no order {name}: choose one of {known}")]
    NoSuchOrder {
        /// The name that was requested.
        name: String,
        /// The names of all orders.
        known: String,
    },
    /// The text is not a list of cores.
    #[error("`{text}` is no list of cores: use numbers and ranges, as in 0-3,6")]
    NoList {
        /// The text.
        text: String,
    },
    /// A list names no core.
    #[error("a policy needs a core to choose: name one at least")]
    NoCores,
    /// A list names more cores than a policy can keep state for.
    #[error("{count} cores are too many for a policy: name {max} at most")]
    TooManyCores {
        /// Number of cores in the list.
        count: usize,
        /// Maximum number of cores.
        max: usize,
    },
    /// A core's number is beyond the range for which a policy keeps state.
    #[error("core {number} is out of reach: a policy knows the cores 0 to {last}")]
    CoreOutOfReach {
        /// The core's number.
        number: u64,
        /// The highest valid number.
        last: usize,
    },
    /// The sparse policy cannot have this many levels.
    #[error("{levels} levels are not possible: use 1 to {max}")]
    Levels {
        /// The number of levels.
        levels: u32,
        /// Maximum number of levels.
        max: u32,
    },
    /// A setting is out of range.
    #[error("{setting} cannot be {value}: use {range}")]
    Setting {
        /// The field of the settings.
        setting: &'static str,
        /// The field's value.
        value: u64,
        /// The permitted values.
        range: &'static str,
    },
}
