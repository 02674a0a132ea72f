//! The policies by name.

use std::fmt;
use std::str::FromStr;

use crate::cores::Cores;
use crate::error::SteerError;
use crate::policies::bypass::Bypass;
use crate::policies::gen2::Gen2;
use crate::policies::gen3::Gen3;
use crate::policies::homa_hash::HomaHash;
use crate::policies::idle::Idle;
use crate::policies::least_loaded::LeastLoaded;
use crate::policies::no_tasks::NoTasks;
use crate::policies::rfs::Rfs;
use crate::policies::rss_hash::RssHash;
use crate::policies::same_core::SameCore;
use crate::policies::sparse::Sparse;
use crate::policy::Policy;
use crate::settings::Settings;

/// Name of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyName {
    /// [`RssHash`]
    RssHash,
    /// [`Rfs`]
    Rfs,
    /// [`Sparse`]
    Sparse,
    /// [`HomaHash`]
    HomaHash,
    /// [`SameCore`]
    SameCore,
    /// [`Bypass`], with [`HomaHash`] for the remaining packets
    Bypass,
    /// [`Gen2`]
    Gen2,
    /// [`Gen3`]
    Gen3,
    /// [`NoTasks`]
    NoTasks,
    /// [`Idle`]
    Idle,
    /// [`LeastLoaded`]
    LeastLoaded,
}

/// An entry of the table of policies.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The policy.
    pub policy: PolicyName,
    /// The policy's name on command lines and in results: the established name if there is one.
    pub name: &'static str,
    /// A one-line description.
    pub about: &'static str,
}

const fn entry(policy: PolicyName, name: &'static str, about: &'static str) -> Entry {
    Entry { policy, name, about }
}

/// All policies.
pub const POLICIES: [Entry; 11] = [
    entry(
        PolicyName::RssHash,
        "rss-hash",
        "by hash of addresses and ports, as the kernel's RPS does by default",
    ),
    entry(PolicyName::Rfs, "rfs", "to the core of the thread that reads the flow"),
    entry(
        PolicyName::Sparse,
        "sparse",
        "each of a few flows gets a core of its own; by hash where there are many",
    ),
    entry(PolicyName::HomaHash, "homa-hash", "by hash of Homa's ports and RPC id; other packets as rss-hash"),
    entry(PolicyName::SameCore, "same-core", "every packet is processed where it arrived"),
    entry(
        PolicyName::Bypass,
        "bypass",
        "lone packets, short messages and grants stay; the rest as homa-hash",
    ),
    entry(PolicyName::Gen2, "gen2", "a lone packet stays; a batch goes to the least recently used near core"),
    entry(
        PolicyName::Gen3,
        "gen3",
        "cores that receive have three others each, of which one that keeps up is used on",
    ),
    entry(PolicyName::NoTasks, "no-tasks", "away from cores that run applications"),
    entry(PolicyName::Idle, "idle", "to the next idle core, else as rss-hash"),
    entry(
        PolicyName::LeastLoaded,
        "least-loaded",
        "to the core with the shortest backlog: the optimum to compare with",
    ),
];

impl PolicyName {
    /// Returns the policy's entry in the table.
    #[must_use]
    pub fn entry(self) -> &'static Entry {
        &POLICIES[self as usize]
    }

    /// Builds the policy, which selects from these cores.
    ///
    /// # Errors
    /// A setting is out of range.
    pub fn build(self, cores: &Cores, settings: &Settings) -> Result<Box<dyn Policy>, SteerError> {
        settings.check()?;
        let (own, busy_ns) = (cores.clone(), settings.application_busy_ns);
        Ok(match self {
            PolicyName::RssHash => Box::new(RssHash::new(own)),
            PolicyName::Rfs => Box::new(Rfs::new(own, settings.rfs_entries)),
            PolicyName::Sparse => Box::new(Sparse::new(own, settings.levels)?),
            PolicyName::HomaHash => Box::new(HomaHash::new(own, settings.hash_seed)),
            PolicyName::SameCore => Box::new(SameCore),
            PolicyName::Bypass => {
                Box::new(Bypass::new(settings.bypass, Box::new(HomaHash::new(own, settings.hash_seed))))
            }
            PolicyName::Gen2 => Box::new(Gen2::new(own, settings.neighbours, settings.receive_busy_ns)),
            PolicyName::Gen3 => Box::new(Gen3::new(cores, busy_ns, settings.keeps_up_packets)),
            PolicyName::NoTasks => Box::new(NoTasks::new(own, busy_ns)),
            PolicyName::Idle => Box::new(Idle::new(own)),
            PolicyName::LeastLoaded => Box::new(LeastLoaded::new(own)),
        })
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.entry().name)
    }
}

impl FromStr for PolicyName {
    type Err = SteerError;

    fn from_str(name: &str) -> Result<PolicyName, SteerError> {
        let entry = POLICIES.iter().find(|entry| entry.name == name);
        let known = || POLICIES.map(|entry| entry.name).join(", ");
        entry
            .map(|entry| entry.policy)
            .ok_or_else(|| SteerError::NoSuchPolicy { name: name.to_owned(), known: known() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_names_and_each_is_found_by_its_own() {
        for (i, entry) in POLICIES.iter().enumerate() {
            assert_eq!(entry.policy as usize, i);
            assert_eq!(entry.name.parse(), Ok(entry.policy));
            assert_eq!(entry.policy.to_string(), entry.name);
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_those_that_there_are() {
        let said = "rps".parse::<PolicyName>().unwrap_err().to_string();
        assert!(
            said.contains("no policy rps") && POLICIES.iter().all(|entry| said.contains(entry.name)),
            "{said}"
        );
    }

    #[test]
    fn a_setting_out_of_range_makes_no_policy() {
        let settings = Settings { levels: 9, ..Settings::default() };
        let cores = Cores::first(2).unwrap();
        for entry in POLICIES {
            assert_eq!(
                entry.policy.build(&cores, &settings).unwrap_err(),
                SteerError::Levels { levels: 9, max: 5 }
            );
        }
    }
}
