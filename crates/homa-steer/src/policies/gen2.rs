//! The second generation of Linux Homa's steering: a lone packet stays on its core, and a batch goes to a
//! nearby core that is not receiving.

use crate::batch::LastBatch;
use crate::cores::{Core, Cores};
use crate::load::{Loads, is_recent};
use crate::packet::Packet;
use crate::policy::{Choice, Policy, Reason};

/// The policy `gen2` of [`POLICIES`](crate::POLICIES). A core that received packets recently is likely to be
/// interrupted by more packets soon. If all nearby cores received recently, the least recently used core
/// still gets the batch, since there is no better core.
#[derive(Clone, Debug)]
pub struct Gen2 {
    cores: Cores,
    neighbours: usize,
    receive_busy_ns: u64,
    last: LastBatch,
}

impl Gen2 {
    /// Creates a policy that selects from these cores. A batch goes to one of the `neighbours` cores after
    /// the core of arrival, preferably one that has taken no packets from a device for `receive_busy_ns`.
    #[must_use]
    pub fn new(cores: Cores, neighbours: usize, receive_busy_ns: u64) -> Gen2 {
        Gen2 { cores, neighbours, receive_busy_ns, last: LastBatch::new() }
    }

    /// Returns the least recently used of the next few cores; ties go to the nearest.
    fn least_recent(&self, packet: &Packet, loads: Loads<'_>) -> Option<Core> {
        let others = self.cores.round_from(self.cores.place_after(packet.arrival));
        others.take(self.neighbours).filter(|&core| core != packet.arrival).min_by_key(|&core| {
            let load = loads.of(core);
            (is_recent(packet.now_ns, load.received_ns, self.receive_busy_ns), load.processed_ns)
        })
    }
}

impl Policy for Gen2 {
    fn choose(&mut self, packet: &Packet, loads: Loads<'_>) -> Choice {
        if packet.batch.is_lone() {
            self.last.set(packet.arrival, None);
            return Choice::new(packet.arrival, Reason::Stays);
        }
        if let Some(core) = self.last.of(packet.arrival, packet.batch) {
            return Choice::new(core, Reason::SameBatch);
        }
        let core = self.least_recent(packet, loads);
        self.last.set(packet.arrival, core);
        match core {
            Some(core) => Choice::new(core, Reason::LeastRecent),
            None => Choice::new(packet.arrival, Reason::Stays),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::load::CoreLoad;

    fn policy(cores: usize) -> Gen2 {
        Gen2::new(Cores::first(cores).unwrap(), 4, 100)
    }

    fn packet(arrival: Core, position: u32, size: u32) -> Packet {
        Packet { now_ns: 1_000, arrival, batch: Batch { position, size }, ..Packet::default() }
    }

    fn processed(times: &[u64]) -> Vec<CoreLoad> {
        times.iter().map(|&processed_ns| CoreLoad { processed_ns, ..CoreLoad::default() }).collect()
    }

    #[test]
    fn a_lone_packet_stays_even_where_no_core_is_to_be_chosen() {
        for arrival in [0, 3, 200] {
            let choice = policy(4).choose(&packet(arrival, 0, 1), Loads::default());
            assert_eq!(choice, Choice::new(arrival, Reason::Stays));
        }
    }

    #[test]
    fn a_batch_goes_to_the_least_recently_used_of_the_next_few() {
        let loads = processed(&[1, 900, 800, 500, 700, 2, 3, 4]);
        let choice = policy(8).choose(&packet(0, 0, 2), Loads(&loads));
        assert_eq!(choice, Choice::new(3, Reason::LeastRecent), "5 is too far");
        let round = policy(8).choose(&packet(6, 0, 2), Loads(&loads));
        assert_eq!(round.core, 0, "7, 0, 1 and 2 are next");
        let equals = policy(8).choose(&packet(2, 0, 2), Loads::default());
        assert_eq!(equals.core, 3);
    }

    #[test]
    fn a_core_that_just_did_receive_work_is_passed_over() {
        let mut loads = processed(&[0, 100, 200, 300, 400]);
        loads[1].received_ns = 950;
        loads[2].received_ns = 900;
        let choice = policy(5).choose(&packet(0, 0, 2), Loads(&loads));
        assert_eq!(choice.core, 2, "100 ns ago is long enough");
        loads.iter_mut().for_each(|load| load.received_ns = 999);
        let all_busy = policy(5).choose(&packet(0, 0, 2), Loads(&loads));
        assert_eq!(all_busy.core, 1);
    }

    #[test]
    fn the_packets_of_a_batch_stay_together_and_those_of_another_core_do_not_count() {
        let (mut policy, mut loads) = (policy(4), processed(&[0, 3, 1, 2]));
        assert_eq!(policy.choose(&packet(0, 0, 9), Loads(&loads)).core, 2);
        loads[2].processed_ns = 1_000;
        policy.choose(&packet(1, 0, 9), Loads(&loads));
        assert_eq!(policy.choose(&packet(0, 1, 9), Loads(&loads)), Choice::new(2, Reason::SameBatch));
        assert_eq!(policy.choose(&packet(0, 0, 9), Loads(&loads)).core, 3, "the next batch");
    }

    #[test]
    fn a_batch_whose_first_packet_seemed_alone_is_decided_at_its_second() {
        let (mut policy, loads) = (policy(4), processed(&[0, 3, 1, 2]));
        policy.choose(&packet(0, 0, 2), Loads(&loads));
        assert_eq!(policy.choose(&packet(0, 0, 1), Loads(&loads)).reason, Reason::Stays);
        assert_eq!(policy.choose(&packet(0, 1, 2), Loads(&loads)).reason, Reason::LeastRecent);
        assert_eq!(policy.choose(&packet(0, 2, 3), Loads(&loads)).reason, Reason::SameBatch);
    }

    #[test]
    fn where_there_is_no_other_core_a_batch_stays() {
        assert_eq!(policy(1).choose(&packet(0, 0, 2), Loads::default()), Choice::new(0, Reason::Stays));
        assert_eq!(policy(1).choose(&packet(5, 0, 2), Loads::default()).core, 0);
        assert_eq!(policy(2).choose(&packet(1, 0, 2), Loads::default()).core, 0);
    }
}
