//! Steers away from cores that run applications.

use crate::batch::LastBatch;
use crate::cores::Cores;
use crate::hash;
use crate::load::{Loads, is_recent};
use crate::packet::Packet;
use crate::policy::{Choice, Policy, Reason};

/// The policy `no-tasks` of [`POLICIES`](crate::POLICIES).
#[derive(Clone, Debug)]
pub struct NoTasks {
    cores: Cores,
    application_busy_ns: u64,
    last: LastBatch,
}

impl NoTasks {
    /// Creates a policy that selects from these cores. A core counts as running applications for
    /// `application_busy_ns` after an application thread last ran on it.
    #[must_use]
    pub fn new(cores: Cores, application_busy_ns: u64) -> NoTasks {
        NoTasks { cores, application_busy_ns, last: LastBatch::new() }
    }
}

impl Policy for NoTasks {
    fn choose(&mut self, packet: &Packet, loads: Loads<'_>) -> Choice {
        if let Some(core) = self.last.of(packet.arrival, packet.batch) {
            return Choice::new(core, Reason::SameBatch);
        }
        // Start with the core of the packet's hash, so that flows stay apart if several cores run no
        // applications.
        let place = hash::place(packet.flow_hash, self.cores.len());
        let free = self
            .cores
            .round_from(place)
            .find(|&core| !is_recent(packet.now_ns, loads.of(core).application_ns, self.application_busy_ns));
        let choice = match free {
            Some(core) => Choice::new(core, Reason::Free),
            None => Choice::new(self.cores.as_slice()[place], Reason::FlowHash),
        };
        self.last.set(packet.arrival, Some(choice.core));
        choice
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::load::CoreLoad;

    #[test]
    fn a_flow_goes_to_the_first_core_without_tasks_from_its_hash_on() {
        let mut policy = NoTasks::new(Cores::first(4).unwrap(), 100);
        let mut loads = [CoreLoad::default(); 4];
        let packet = Packet { now_ns: 1_000, flow_hash: 0x8000_0000, ..Packet::default() };
        assert_eq!(policy.choose(&packet, Loads(&loads)), Choice::new(2, Reason::Free));
        loads[2].application_ns = 950;
        loads[3].application_ns = 950;
        assert_eq!(policy.choose(&packet, Loads(&loads)), Choice::new(0, Reason::Free));
        let second = Packet { batch: Batch { position: 1, size: 2 }, ..packet };
        loads[0].application_ns = 950;
        assert_eq!(policy.choose(&second, Loads(&loads)), Choice::new(0, Reason::SameBatch));
        loads[1].application_ns = 950;
        assert_eq!(policy.choose(&packet, Loads(&loads)), Choice::new(2, Reason::FlowHash));
    }
}
