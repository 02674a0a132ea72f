//! Steers by the flow's hash, as the kernel distributes received packets by default (RPS).

use crate::cores::{Core, Cores};
use crate::hash;
use crate::load::Loads;
use crate::packet::Packet;
use crate::policy::{Choice, Policy, Reason};

/// The policy `rss-hash` of [`POLICIES`](crate::POLICIES). A flow never changes its core, and two flows may
/// share a core while other cores have no flow.
#[derive(Clone, Debug)]
pub struct RssHash {
    cores: Cores,
}

impl RssHash {
    /// Creates a policy that selects from these cores.
    #[must_use]
    pub fn new(cores: Cores) -> RssHash {
        RssHash { cores }
    }

    /// Returns the core for flows with this hash.
    pub(crate) fn core(&self, flow_hash: u32) -> Core {
        self.cores.as_slice()[hash::place(flow_hash, self.cores.len())]
    }
}

impl Policy for RssHash {
    fn choose(&mut self, packet: &Packet, _loads: Loads<'_>) -> Choice {
        Choice::new(self.core(packet.flow_hash), Reason::FlowHash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upper_bits_of_the_hash_choose_whatever_the_load() {
        let mut policy = RssHash::new("1,4,6".parse().unwrap());
        for (flow_hash, core) in [(0, 1), (0x5555_5555, 1), (0x5555_5556, 4), (u32::MAX, 6)] {
            let packet = Packet { flow_hash, arrival: 9, ..Packet::default() };
            assert_eq!(policy.choose(&packet, Loads::default()), Choice::new(core, Reason::FlowHash));
        }
    }
}
