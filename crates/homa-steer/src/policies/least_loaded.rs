//! Steers to the core with the least work. It is the optimum with which other policies are compared: in
//! practice, knowing all loads is not free.

use crate::batch::LastBatch;
use crate::cores::Cores;
use crate::load::Loads;
use crate::packet::Packet;
use crate::policy::{Choice, Policy, Reason};

/// The policy `least-loaded` of [`POLICIES`](crate::POLICIES).
#[derive(Clone, Debug)]
pub struct LeastLoaded {
    cores: Cores,
    last: LastBatch,
}

impl LeastLoaded {
    /// Creates a policy that selects from these cores.
    #[must_use]
    pub fn new(cores: Cores) -> LeastLoaded {
        LeastLoaded { cores, last: LastBatch::new() }
    }
}

impl Policy for LeastLoaded {
    fn choose(&mut self, packet: &Packet, loads: Loads<'_>) -> Choice {
        if let Some(core) = self.last.of(packet.arrival, packet.batch) {
            return Choice::new(core, Reason::SameBatch);
        }
        // Ties go to the core of arrival, which needs no hand-over, and then to the first core.
        let least = self.cores.as_slice().iter().copied().min_by_key(|&core| {
            let load = loads.of(core);
            (load.backlog_ns, load.waiting_packets, core != packet.arrival)
        });
        let core = least.unwrap_or(packet.arrival);
        self.last.set(packet.arrival, Some(core));
        Choice::new(core, Reason::LeastLoaded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::load::CoreLoad;

    #[test]
    fn the_shortest_backlog_wins_and_of_equals_the_core_of_arrival() {
        let mut policy = LeastLoaded::new(Cores::first(3).unwrap());
        let mut loads = [CoreLoad::default(); 3];
        let packet = Packet { arrival: 2, ..Packet::default() };
        assert_eq!(policy.choose(&packet, Loads(&loads)), Choice::new(2, Reason::LeastLoaded));
        loads[2].waiting_packets = 1;
        assert_eq!(policy.choose(&packet, Loads(&loads)).core, 0);
        loads[0].backlog_ns = 10;
        loads[1].backlog_ns = 20;
        loads[2].backlog_ns = 9;
        assert_eq!(policy.choose(&packet, Loads(&loads)).core, 2);
        loads[2].backlog_ns = 900;
        let second = Packet { batch: Batch { position: 1, size: 2 }, ..packet };
        assert_eq!(policy.choose(&second, Loads(&loads)), Choice::new(2, Reason::SameBatch));
        assert_eq!(policy.choose(&packet, Loads(&loads)).core, 0);
    }
}
