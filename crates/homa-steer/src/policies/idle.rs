//! Steers to an idle core.

use crate::batch::LastBatch;
use crate::cores::Cores;
use crate::load::Loads;
use crate::packet::Packet;
use crate::policies::rss_hash::RssHash;
use crate::policy::{Choice, Policy, Reason};

/// The policy `idle` of [`POLICIES`](crate::POLICIES). The cost of waking an idle core reduces the policy's
/// gain.
#[derive(Clone, Debug)]
pub struct Idle {
    cores: Cores,
    by_hash: RssHash,
    last: LastBatch,
}

impl Idle {
    /// Creates a policy that selects from these cores.
    #[must_use]
    pub fn new(cores: Cores) -> Idle {
        Idle { by_hash: RssHash::new(cores.clone()), cores, last: LastBatch::new() }
    }
}

impl Policy for Idle {
    fn choose(&mut self, packet: &Packet, loads: Loads<'_>) -> Choice {
        if let Some(core) = self.last.of(packet.arrival, packet.batch) {
            return Choice::new(core, Reason::SameBatch);
        }
        let mut near = self.cores.round_from(self.cores.place_after(packet.arrival));
        let choice = match near.find(|&core| loads.of(core).idle) {
            Some(core) => Choice::new(core, Reason::Free),
            None => self.by_hash.choose(packet, loads),
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
    fn the_next_idle_core_has_it_and_else_the_one_of_its_hash() {
        let mut policy = Idle::new(Cores::first(4).unwrap());
        let mut loads = [CoreLoad { idle: false, ..CoreLoad::default() }; 4];
        let packet = Packet { arrival: 2, flow_hash: u32::MAX, ..Packet::default() };
        assert_eq!(policy.choose(&packet, Loads(&loads)), Choice::new(3, Reason::FlowHash));
        loads[0].idle = true;
        loads[1].idle = true;
        assert_eq!(policy.choose(&packet, Loads(&loads)), Choice::new(0, Reason::Free));
        loads[0].idle = false;
        let second = Packet { batch: Batch { position: 1, size: 2 }, ..packet };
        assert_eq!(policy.choose(&second, Loads(&loads)), Choice::new(0, Reason::SameBatch));
        assert_eq!(policy.choose(&packet, Loads(&loads)), Choice::new(1, Reason::Free));
        loads[0].idle = true;
        loads[3].idle = true;
        assert_eq!(
            policy.choose(&packet, Loads(&loads)).core,
            3,
            "the next greater one is nearer than the first"
        );
    }
}
