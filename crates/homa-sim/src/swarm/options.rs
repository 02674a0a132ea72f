//! Options of the swarm.

use homa_proto::MS;

/// The settings of a run that its seed does not determine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwarmOptions {
    /// Virtual time during which hosts work and faults occur. One run in five takes twenty times as long.
    pub turmoil_ns: u64,
    /// Number of steps of a host between two checks of its whole state; 0: no checks.
    pub check_every: u64,
    /// Whether bits may change without a checksum error. Payload is then not checked.
    pub corruption: bool,
}

impl Default for SwarmOptions {
    fn default() -> SwarmOptions {
        SwarmOptions { turmoil_ns: 200 * MS, check_every: 7, corruption: false }
    }
}
