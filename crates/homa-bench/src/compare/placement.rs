//! The processors of clients and servers on one machine.
//!
//! A client and a server on two machines never share a processor. On one machine the scheduler often places
//! both on the same processor, where they take turns instead of running in parallel. Whether this happens
//! changes from run to run, and the round trips of two polling processes then differ by a factor of three.
//! Therefore, each side has half of the processors to itself.

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use strum::{EnumMessage, EnumString, IntoStaticStr, VariantArray};

/// The processors of a bench on one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumMessage, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Placement {
    /// Half of the processors for the servers, the others for the clients, as if they were two machines
    Apart,
    /// The scheduler chooses
    Free,
}

impl Placement {
    /// Returns the name on the command line and in results.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The processors of each side.
#[derive(Clone)]
pub struct CpuSplit {
    clients: CpuSet,
    servers: CpuSet,
}

impl CpuSplit {
    /// Assigns the first half of this process's processors to the servers and the others to the clients.
    /// Returns `None` if there is only one processor.
    pub fn split_cpus() -> Result<Option<CpuSplit>> {
        let allowed = sched_getaffinity(None).context("cannot read which processors this process may use")?;
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
        if cpus.len() < 2 {
            return Ok(None);
        }
        let (servers, clients) = cpus.split_at(cpus.len() / 2);
        Ok(Some(CpuSplit { clients: set(clients), servers: set(servers) }))
    }

    /// Restricts this thread, with all threads and processes that it starts from now on, to the servers'
    /// processors.
    pub fn enter_servers(&self) -> Result<()> {
        enter(&self.servers)
    }

    /// Restricts this thread, with all threads and processes that it starts from now on, to the clients'
    /// processors.
    pub fn enter_clients(&self) -> Result<()> {
        enter(&self.clients)
    }

    /// Lets this thread run on the processors of both sides, with all threads and processes that it starts
    /// from now on.
    pub fn enter_all(&self) -> Result<()> {
        let is_ours = |&cpu: &usize| self.clients.is_set(cpu) || self.servers.is_set(cpu);
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(is_ours).collect();
        enter(&set(&cpus))
    }
}

fn set(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu);
    }
    set
}

fn enter(cpus: &CpuSet) -> Result<()> {
    sched_setaffinity(None, cpus).context("cannot move to the chosen processors: try --placement free")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_sides_share_no_processor_and_miss_none() {
        let allowed = sched_getaffinity(None).unwrap();
        let Some(placement) = CpuSplit::split_cpus().unwrap() else {
            homa_testkit::skip("this machine has one processor");
            return;
        };
        for cpu in 0..CpuSet::MAX_CPU {
            let sides = u32::from(placement.clients.is_set(cpu)) + u32::from(placement.servers.is_set(cpu));
            assert_eq!(sides, u32::from(allowed.is_set(cpu)), "processor {cpu}");
        }
    }

    #[test]
    fn all_processors_are_back_after_a_side() {
        let allowed = sched_getaffinity(None).unwrap();
        let Some(placement) = CpuSplit::split_cpus().unwrap() else {
            homa_testkit::skip("this machine has one processor");
            return;
        };
        placement.enter_clients().unwrap();
        assert_ne!(sched_getaffinity(None).unwrap(), allowed);
        placement.enter_all().unwrap();
        assert_eq!(sched_getaffinity(None).unwrap(), allowed);
    }
}
