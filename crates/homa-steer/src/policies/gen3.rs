//! The third generation of Linux Homa's steering: each receiving core has its own processing cores.

use crate::batch::LastBatch;
use crate::cores::{Core, Cores};
use crate::load::{CoreLoad, Loads, is_recent};
use crate::packet::Packet;
use crate::policy::{Choice, Policy, Reason};

/// Number of processing cores per group.
const PROCESSING: usize = 3;

/// A receiving core, and the cores that process its packets.
#[derive(Clone, Debug)]
struct Group {
    receive: Core,
    /// Up to three cores, or four if one core would otherwise be left over. If there are no other cores, this
    /// is the receiving core itself.
    processing: Vec<Core>,
    /// Index of the processing core used last.
    last: usize,
}

/// The policy `gen3` of [`POLICIES`](crate::POLICIES). Receiving cores do not disturb each other's
/// processing. The processing core in use in a group is warm, and stays in use while it keeps up.
#[derive(Clone, Debug)]
pub struct Gen3 {
    groups: Vec<Group>,
    application_busy_ns: u64,
    keeps_up_packets: u32,
    batches: LastBatch,
}

impl Gen3 {
    /// Creates a policy that selects from these cores, of which the first of every four receives. A core
    /// counts as busy with an application for `application_busy_ns` after an application thread last ran on
    /// it. A core keeps up if at most `keeps_up_packets` packets are queued on it.
    #[must_use]
    pub fn new(cores: &Cores, application_busy_ns: u64, keeps_up_packets: u32) -> Gen3 {
        let mut groups: Vec<Group> = Vec::new();
        for cores in cores.as_slice().chunks(1 + PROCESSING) {
            match (groups.last_mut(), cores) {
                (Some(before), &[alone]) => before.processing.push(alone),
                (_, &[receive]) => groups.push(Group { receive, processing: vec![receive], last: 0 }),
                (_, &[receive, ref others @ ..]) => {
                    groups.push(Group { receive, processing: others.to_vec(), last: 0 });
                }
                (_, []) => {}
            }
        }
        Gen3 { groups, application_busy_ns, keeps_up_packets, batches: LastBatch::new() }
    }

    /// Returns the cores on which packets should arrive.
    pub fn receive_cores(&self) -> impl Iterator<Item = Core> + '_ {
        self.groups.iter().map(|group| group.receive)
    }

    /// Returns the group of a core. If the core has no group, packets that arrive on it are divided among all
    /// groups.
    fn group(&self, arrival: Core) -> usize {
        let of = |group: &Group| group.receive == arrival || group.processing.contains(&arrival);
        self.groups.iter().position(of).unwrap_or(usize::from(arrival) % self.groups.len())
    }
}

impl Policy for Gen3 {
    fn choose(&mut self, packet: &Packet, loads: Loads<'_>) -> Choice {
        if let Some(core) = self.batches.of(packet.arrival, packet.batch) {
            return Choice::new(core, Reason::SameBatch);
        }
        let number = self.group(packet.arrival);
        let group = &mut self.groups[number];
        let runs_tasks =
            |load: CoreLoad| is_recent(packet.now_ns, load.application_ns, self.application_busy_ns);
        let is_good = |core: Core| {
            let load = loads.of(core);
            !runs_tasks(load) && load.waiting_packets <= self.keeps_up_packets
        };
        let count = group.processing.len();
        let in_turn = (0..count).map(|i| (group.last + i) % count);
        let good = in_turn.clone().find(|&at| is_good(group.processing[at]));
        let (at, reason) = match good {
            Some(at) if at == group.last => (at, Reason::KeepsUp),
            Some(at) => (at, Reason::Free),
            None => {
                let key = |&at: &usize| {
                    let load = loads.of(group.processing[at]);
                    (runs_tasks(load), load.waiting_packets)
                };
                (in_turn.min_by_key(key).unwrap_or(group.last), Reason::LeastLoaded)
            }
        };
        group.last = at;
        let core = group.processing[at];
        self.batches.set(packet.arrival, Some(core));
        Choice::new(core, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;

    fn policy(cores: usize) -> Gen3 {
        Gen3::new(&Cores::first(cores).unwrap(), 100, 4)
    }

    fn at(arrival: Core) -> Packet {
        Packet { now_ns: 1_000, arrival, ..Packet::default() }
    }

    #[test]
    fn groups_are_disjoint_and_leave_no_core_out() {
        let groups = |cores| -> Vec<(Core, Vec<Core>)> {
            policy(cores).groups.into_iter().map(|group| (group.receive, group.processing)).collect()
        };
        assert_eq!(groups(1), [(0, vec![0])]);
        assert_eq!(groups(2), [(0, vec![1])]);
        assert_eq!(groups(5), [(0, vec![1, 2, 3, 4])]);
        assert_eq!(groups(8), [(0, vec![1, 2, 3]), (4, vec![5, 6, 7])]);
        assert_eq!(groups(10), [(0, vec![1, 2, 3]), (4, vec![5, 6, 7]), (8, vec![9])]);
        assert!(policy(8).receive_cores().eq([0, 4]));
    }

    #[test]
    fn a_core_is_used_on_while_it_keeps_up_and_then_the_next() {
        let (mut policy, mut loads) = (policy(8), [CoreLoad::default(); 8]);
        assert_eq!(policy.choose(&at(4), Loads(&loads)), Choice::new(5, Reason::KeepsUp));
        loads[5].waiting_packets = 4;
        assert_eq!(policy.choose(&at(4), Loads(&loads)).core, 5);
        loads[5].waiting_packets = 5;
        assert_eq!(policy.choose(&at(4), Loads(&loads)), Choice::new(6, Reason::Free));
        loads[5].waiting_packets = 0;
        assert_eq!(policy.choose(&at(4), Loads(&loads)), Choice::new(6, Reason::KeepsUp));
        assert_eq!(policy.choose(&at(0), Loads(&loads)).core, 1, "the other group has its own");
    }

    #[test]
    fn cores_that_run_applications_are_avoided() {
        let (mut policy, mut loads) = (policy(4), [CoreLoad::default(); 4]);
        loads[1].application_ns = 950;
        loads[2].application_ns = 901;
        assert_eq!(policy.choose(&at(0), Loads(&loads)), Choice::new(3, Reason::Free));
        loads[3] = CoreLoad { application_ns: 999, waiting_packets: 9, ..CoreLoad::default() };
        loads[2].waiting_packets = 7;
        loads[1].waiting_packets = 8;
        assert_eq!(policy.choose(&at(0), Loads(&loads)), Choice::new(2, Reason::LeastLoaded));
        loads[1].application_ns = 900;
        assert_eq!(policy.choose(&at(0), Loads(&loads)).core, 1, "rather behind than in a thread's way");
    }

    #[test]
    fn a_batch_stays_together() {
        let (mut policy, mut loads) = (policy(4), [CoreLoad::default(); 4]);
        policy.choose(&at(0), Loads(&loads));
        loads[1].waiting_packets = 100;
        let second = Packet { batch: Batch { position: 1, size: 2 }, ..at(0) };
        assert_eq!(policy.choose(&second, Loads(&loads)), Choice::new(1, Reason::SameBatch));
    }
}
