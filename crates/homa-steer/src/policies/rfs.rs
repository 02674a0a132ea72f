//! Steers to the core of the thread that reads the flow (receive flow steering).

use crate::cores::{Core, Cores};
use crate::load::Loads;
use crate::packet::Packet;
use crate::policies::rss_hash::RssHash;
use crate::policy::{Choice, Policy, Reason};

/// State of the flows whose hashes share an entry.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Core of the thread that last read from the flow.
    consumer: Option<Core>,
    /// Destination of the flow's last packet, and the value that this core's count of processed packets will
    /// have once the packet has been processed.
    last: Option<(Core, u64)>,
}

/// The policy `rfs` of [`POLICIES`](crate::POLICIES). A flow follows its thread to another core only after
/// the previous core has processed all of the flow's packets, so that the packets stay in order.
#[derive(Clone, Debug)]
pub struct Rfs {
    cores: Cores,
    by_hash: RssHash,
    entries: Vec<Entry>,
}

impl Rfs {
    /// Creates a policy that selects from these cores and has `entries` entries for flows, a power of two.
    #[must_use]
    pub fn new(cores: Cores, entries: usize) -> Rfs {
        let entries = vec![Entry::default(); entries.next_power_of_two()];
        Rfs { by_hash: RssHash::new(cores.clone()), cores, entries }
    }

    fn entry(&mut self, flow_hash: u32) -> &mut Entry {
        let mask = self.entries.len() - 1;
        &mut self.entries[flow_hash as usize & mask]
    }
}

impl Policy for Rfs {
    fn choose(&mut self, packet: &Packet, loads: Loads<'_>) -> Choice {
        let fallback = self.by_hash.core(packet.flow_hash);
        let entry = self.entry(packet.flow_hash);
        let (wanted, reason) = match entry.consumer {
            Some(core) => (core, Reason::Consumer),
            None => (fallback, Reason::FlowHash),
        };
        let choice = match entry.last {
            Some((core, end)) if core != wanted && loads.of(core).done_packets < end => {
                Choice::new(core, Reason::KnownFlow)
            }
            _ => Choice::new(wanted, reason),
        };
        let load = loads.of(choice.core);
        entry.last = Some((choice.core, load.done_packets + u64::from(load.waiting_packets) + 1));
        choice
    }

    fn consumed(&mut self, flow_hash: u32, core: Core) {
        if self.cores.contains(core) {
            self.entry(flow_hash).consumer = Some(core);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::CoreLoad;

    fn policy() -> Rfs {
        Rfs::new(Cores::first(4).unwrap(), 64)
    }

    #[test]
    fn a_flow_follows_its_thread_and_before_that_its_hash() {
        let mut policy = policy();
        let packet = Packet { flow_hash: 0, ..Packet::default() };
        let loads = [CoreLoad { done_packets: 100, ..CoreLoad::default() }; 4];
        assert_eq!(policy.choose(&packet, Loads(&loads)), Choice::new(0, Reason::FlowHash));
        policy.consumed(0, 3);
        let loads = [CoreLoad { done_packets: 101, ..CoreLoad::default() }; 4];
        assert_eq!(policy.choose(&packet, Loads(&loads)), Choice::new(3, Reason::Consumer));
        policy.consumed(0, 200);
        let loads = [CoreLoad { done_packets: 102, ..CoreLoad::default() }; 4];
        assert_eq!(policy.choose(&packet, Loads(&loads)).core, 3, "200 is none of its cores");
    }

    #[test]
    fn a_flow_stays_while_the_core_has_packets_of_it() {
        let mut policy = policy();
        let packet = Packet::default();
        let mut loads = [CoreLoad::default(); 4];
        loads[0] = CoreLoad { waiting_packets: 2, done_packets: 10, ..CoreLoad::default() };
        policy.choose(&packet, Loads(&loads));
        policy.consumed(0, 2);
        loads[0] = CoreLoad { waiting_packets: 1, done_packets: 12, ..CoreLoad::default() };
        assert_eq!(policy.choose(&packet, Loads(&loads)), Choice::new(0, Reason::KnownFlow));
        loads[0] = CoreLoad { done_packets: 14, ..CoreLoad::default() };
        assert_eq!(policy.choose(&packet, Loads(&loads)), Choice::new(2, Reason::Consumer));
    }
}
