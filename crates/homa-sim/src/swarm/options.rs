//! The options of the swarm.

use homa_proto::MS;

/// The part of a run of the swarm that its seed does not choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwarmOptions {
    /// How long hosts work and things go wrong, on virtual time; twenty times as long in the runs that take their time.
    pub turmoil_ns: u64,
    /// The state of a host is proved after every so many of its steps; 0: never.
    pub check_every: u64,
    /// Whether packets may be corrupted without a checksum noticing. Payload cannot be vouched for then.
    pub corruption: bool,
}

impl Default for SwarmOptions {
    fn default() -> SwarmOptions {
        SwarmOptions { turmoil_ns: 200 * MS, check_every: 7, corruption: false }
    }
}
