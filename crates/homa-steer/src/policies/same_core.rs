//! Runs each packet to completion on the core where it arrived.

use crate::load::Loads;
use crate::packet::Packet;
use crate::policy::{Choice, Policy, Reason};

/// The policy `same-core` of [`POLICIES`](crate::POLICIES). No packet is handed over, so the host's
/// throughput is limited by the cores on which packets arrive.
#[derive(Clone, Copy, Debug, Default)]
pub struct SameCore;

impl Policy for SameCore {
    fn choose(&mut self, packet: &Packet, _loads: Loads<'_>) -> Choice {
        Choice::new(packet.arrival, Reason::Stays)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_stays() {
        for arrival in [0, 3, 255] {
            let packet = Packet { arrival, flow_hash: u32::MAX, ..Packet::default() };
            assert_eq!(SameCore.choose(&packet, Loads::default()), Choice::new(arrival, Reason::Stays));
        }
    }
}
