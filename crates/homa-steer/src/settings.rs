//! Settings of the policies.

use crate::error::SteerError;
use crate::policies::bypass::BypassRules;
use crate::policies::sparse::MAX_LEVELS;

/// Settings of the policies. Each policy uses only those that concern it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Seed of the hash of ports and RPC IDs (`homa-hash`, `bypass`). 0 by default; use a random number if
    /// peers might try to direct their packets to one core.
    pub hash_seed: u32,
    /// Levels of `sparse`, from 1 to [`MAX_LEVELS`]: the number of flows that a core may have before the hash
    /// decides. 4 by default, as in the patch that introduced the algorithm.
    pub levels: u32,
    /// Number of cores after the core of arrival that `gen2` considers, at least 1. 4 by default, as in Linux
    /// Homa: these cores are nearby, and reading each core's state costs a cache line.
    pub neighbours: usize,
    /// A core that took packets from a device less than this time ago counts as about to take more (`gen2`).
    /// 5 us by default: about the duration of a batch.
    pub receive_busy_ns: u64,
    /// A core on which an application thread ran less than this time ago counts as in use (`gen3`,
    /// `no-tasks`). 100 us by default: longer than a request and its answer take, and far shorter than a
    /// computing thread runs.
    pub application_busy_ns: u64,
    /// Maximum number of packets queued on the core that `gen3` used last for which that core still counts as
    /// keeping up. 16 by default: a batch.
    pub keeps_up_packets: u32,
    /// Number of flows that `rfs` remembers, a power of two up to 2^20. 4,096 by default. If there are more
    /// flows, flows share entries.
    pub rfs_entries: usize,
    /// Which packets `bypass` leaves on the core where they arrived; by default all packets that its rules
    /// allow.
    pub bypass: BypassRules,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            hash_seed: 0,
            levels: 4,
            neighbours: 4,
            receive_busy_ns: 5_000,
            application_busy_ns: 100_000,
            keeps_up_packets: 16,
            rfs_entries: 4_096,
            bypass: BypassRules::default(),
        }
    }
}

impl Settings {
    /// Checks that each setting is in range.
    ///
    /// # Errors
    /// The first setting that is out of range.
    pub fn check(&self) -> Result<(), SteerError> {
        if !(1..=MAX_LEVELS).contains(&self.levels) {
            return Err(SteerError::Levels { levels: self.levels, max: MAX_LEVELS });
        }
        if self.neighbours == 0 {
            return Err(SteerError::Setting { setting: "neighbours", value: 0, range: "1 or more" });
        }
        if !self.rfs_entries.is_power_of_two() || self.rfs_entries > 1 << 20 {
            let (setting, value) = ("rfs_entries", self.rfs_entries as u64);
            return Err(SteerError::Setting { setting, value, range: "a power of two up to 1048576" });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_named() {
        let base = Settings::default();
        assert_eq!(base.check(), Ok(()));
        for (settings, word) in [
            (Settings { levels: 0, ..base.clone() }, "0 levels"),
            (Settings { levels: 6, ..base.clone() }, "use 1 to 5"),
            (Settings { neighbours: 0, ..base.clone() }, "neighbours"),
            (Settings { rfs_entries: 0, ..base.clone() }, "rfs_entries"),
            (Settings { rfs_entries: 100, ..base.clone() }, "power of two"),
        ] {
            let said = settings.check().unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
        }
    }
}
