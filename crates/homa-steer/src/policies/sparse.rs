//! Gives each of a few flows its own core, using the algorithm of the "sparse connection" patch for RPS.

use crate::cores::Cores;
use crate::error::SteerError;
use crate::load::Loads;
use crate::packet::Packet;
use crate::policies::rss_hash::RssHash;
use crate::policy::{Choice, Policy, Reason};

/// Maximum number of levels.
pub const MAX_LEVELS: u32 = 5;

/// Age in nanoseconds beyond which a slot counts as free.
pub const ACTIVE_NS: u64 = 1_000_000_000;

/// Means "never". It is a time in the future, which counts as expired.
pub const NEVER: u64 = u64::MAX;

/// A flow that has a core.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Device index; 0 if the slot was never used.
    device: u32,
    hash: u32,
    /// When the flow's last packet arrived.
    seen_ns: u64,
}

/// The policy `sparse` of [`POLICIES`](crate::POLICIES). Every core has a slot at each level. A search
/// proceeds level by level, and within a level from the last core to the first. Flows are thus spread over
/// all cores before one core gets a second flow.
///
/// A new flow gets a slot only if no packet has been steered by its hash for a second. If there are more
/// flows than slots, all new flows are steered by their hashes, and no flow is moved back and forth.
#[derive(Clone, Debug)]
pub struct Sparse {
    cores: Cores,
    by_hash: RssHash,
    /// The slots, level by level, and within each level in the order of the cores.
    slots: Vec<Slot>,
    /// When a packet was last steered by its flow's hash.
    hash_used_ns: u64,
}

/// Returns whether an entry last seen at `seen_ns` has expired. An entry with a time in the future, possibly
/// from another core's clock, also counts as expired.
fn is_over(now_ns: u64, seen_ns: u64) -> bool {
    now_ns.checked_sub(seen_ns).is_none_or(|ago_ns| ago_ns > ACTIVE_NS)
}

impl Sparse {
    /// Creates a policy that selects from these cores and has `levels` levels, from 1 to [`MAX_LEVELS`].
    ///
    /// # Errors
    /// The number of levels is out of range.
    pub fn new(cores: Cores, levels: u32) -> Result<Sparse, SteerError> {
        if !(1..=MAX_LEVELS).contains(&levels) {
            return Err(SteerError::Levels { levels, max: MAX_LEVELS });
        }
        let slots = vec![Slot { device: 0, hash: 0, seen_ns: 0 }; levels as usize * cores.len()];
        Ok(Sparse { by_hash: RssHash::new(cores.clone()), cores, slots, hash_used_ns: NEVER })
    }

    /// Returns the first matching slot in search order, with the index of its core.
    fn find(&mut self, is_such: impl Fn(&Slot) -> bool) -> Option<(usize, &mut Slot)> {
        self.slots
            .chunks_exact_mut(self.cores.len())
            .flat_map(|level| level.iter_mut().enumerate().rev())
            .find(|(_, slot)| is_such(slot))
    }
}

impl Policy for Sparse {
    fn choose(&mut self, packet: &Packet, loads: Loads<'_>) -> Choice {
        let Packet { now_ns, device, flow_hash: hash, .. } = *packet;
        let its_own =
            |slot: &Slot| slot.hash == hash && slot.device == device && !is_over(now_ns, slot.seen_ns);
        if let Some((place, slot)) = self.find(its_own) {
            slot.seen_ns = now_ns;
            return Choice::new(self.cores.as_slice()[place], Reason::KnownFlow);
        }
        if is_over(now_ns, self.hash_used_ns)
            && let Some((place, slot)) = self.find(|slot| slot.device == 0 || is_over(now_ns, slot.seen_ns))
        {
            *slot = Slot { device, hash, seen_ns: now_ns };
            return Choice::new(self.cores.as_slice()[place], Reason::NewFlow);
        }
        self.hash_used_ns = now_ns;
        self.by_hash.choose(packet, loads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::Core;

    const SECOND: u64 = ACTIVE_NS;

    fn policy(cores: usize, levels: u32) -> Sparse {
        Sparse::new(Cores::first(cores).unwrap(), levels).unwrap()
    }

    fn ask(policy: &mut Sparse, now_ns: u64, device: u32, flow_hash: u32) -> (Core, Reason) {
        let packet = Packet { now_ns, device, flow_hash, ..Packet::default() };
        let choice = policy.choose(&packet, Loads::default());
        (choice.core, choice.reason)
    }

    #[test]
    fn new_flows_fill_level_by_level_from_the_last_core_to_the_first() {
        let mut policy = policy(3, 2);
        for (flow, core) in [2, 1, 0, 2, 1, 0].into_iter().enumerate() {
            assert_eq!(ask(&mut policy, 5, 1, flow as u32), (core, Reason::NewFlow));
        }
        for (flow, core) in [2, 1, 0, 2, 1, 0].into_iter().enumerate() {
            assert_eq!(ask(&mut policy, 6, 1, flow as u32), (core, Reason::KnownFlow));
        }
    }

    #[test]
    fn the_same_hash_by_another_device_is_another_flow() {
        let mut policy = policy(2, 1);
        assert_eq!(ask(&mut policy, 5, 1, 7), (1, Reason::NewFlow));
        assert_eq!(ask(&mut policy, 5, 2, 7), (0, Reason::NewFlow));
        assert_eq!(ask(&mut policy, 5, 1, 7), (1, Reason::KnownFlow));
    }

    #[test]
    fn a_flow_loses_its_slot_a_second_after_its_last_packet_and_not_before() {
        let mut policy = policy(1, 1);
        ask(&mut policy, 0, 1, 7);
        assert_eq!(ask(&mut policy, SECOND, 1, 7).1, Reason::KnownFlow, "exactly a second is within it");
        assert_eq!(ask(&mut policy, 2 * SECOND, 1, 7).1, Reason::KnownFlow, "its last packet counts");
        assert_eq!(ask(&mut policy, 3 * SECOND + 1, 1, 7).1, Reason::NewFlow);
        assert_eq!(ask(&mut policy, 4 * SECOND + 2, 1, 8).1, Reason::NewFlow, "another may have it then");
    }

    #[test]
    fn a_slot_whose_time_lies_ahead_is_free() {
        let mut policy = policy(1, 1);
        ask(&mut policy, 100, 1, 7);
        assert_eq!(ask(&mut policy, 99, 1, 7).1, Reason::NewFlow);
    }

    #[test]
    fn after_the_hash_was_used_no_new_flow_gets_a_slot_for_a_second() {
        let mut policy = policy(2, 1);
        ask(&mut policy, 0, 1, 1);
        ask(&mut policy, 0, 1, 2);
        assert_eq!(ask(&mut policy, 10, 1, u32::MAX), (1, Reason::FlowHash), "no slot is left");
        // The slots are free by now, but the hash was used within the last second. This packet uses the hash,
        // too, and thereby extends that time.
        let later = 10 + SECOND;
        assert_eq!(ask(&mut policy, later, 1, 0), (0, Reason::FlowHash));
        assert_eq!(ask(&mut policy, later + SECOND, 1, 0), (0, Reason::FlowHash));
        assert_eq!(ask(&mut policy, later + 2 * SECOND + 1, 1, 0), (1, Reason::NewFlow));
    }

    #[test]
    fn flows_that_have_a_slot_keep_it_while_others_go_by_their_hash() {
        let mut policy = policy(2, 1);
        assert_eq!(ask(&mut policy, 0, 1, 1).0, 1);
        assert_eq!(ask(&mut policy, 0, 1, u32::MAX).0, 0);
        for now_ns in (0..10).map(|i| i * SECOND / 2) {
            assert_eq!(ask(&mut policy, now_ns, 1, 3).1, Reason::FlowHash);
            assert_eq!(ask(&mut policy, now_ns, 1, 1), (1, Reason::KnownFlow));
            assert_eq!(ask(&mut policy, now_ns, 1, u32::MAX), (0, Reason::KnownFlow));
        }
    }

    #[test]
    fn a_flow_is_known_before_a_free_slot_is_looked_for() {
        let mut policy = policy(2, 1);
        ask(&mut policy, 0, 1, 1);
        ask(&mut policy, 0, 1, 2);
        // Flow 1 has left core 1. Flow 2 still has core 0, which comes later in the search.
        assert_eq!(ask(&mut policy, SECOND, 1, 2), (0, Reason::KnownFlow));
        assert_eq!(ask(&mut policy, SECOND + 1, 1, 2), (0, Reason::KnownFlow));
        assert_eq!(ask(&mut policy, SECOND + 1, 1, 3), (1, Reason::NewFlow));
    }

    #[test]
    fn levels_are_bounded() {
        for levels in [0, MAX_LEVELS + 1] {
            assert!(Sparse::new(Cores::first(1).unwrap(), levels).is_err());
        }
        assert!(Sparse::new(Cores::first(64).unwrap(), MAX_LEVELS).is_ok());
    }
}
