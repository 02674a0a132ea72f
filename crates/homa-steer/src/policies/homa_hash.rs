//! Steers Homa packets by ports and RPC ID.

use crate::cores::Cores;
use crate::hash;
use crate::load::Loads;
use crate::packet::Packet;
use crate::policies::rss_hash::RssHash;
use crate::policy::{Choice, Policy, Reason};

/// The policy `homa-hash` of [`POLICIES`](crate::POLICIES). With a hash of addresses alone, all Homa traffic
/// between two hosts would be one flow, which a single core would process.
#[derive(Clone, Debug)]
pub struct HomaHash {
    by_hash: RssHash,
    seed: u32,
}

impl HomaHash {
    /// Creates a policy that selects from these cores.
    #[must_use]
    pub fn new(cores: Cores, seed: u32) -> HomaHash {
        HomaHash { by_hash: RssHash::new(cores), seed }
    }
}

impl Policy for HomaHash {
    fn choose(&mut self, packet: &Packet, loads: Loads<'_>) -> Choice {
        let Some(homa) = packet.homa else { return self.by_hash.choose(packet, loads) };
        let hash = hash::rpc_hash(self.seed, packet.ports, homa.rpc_id);
        Choice::new(self.by_hash.core(hash), Reason::RpcHash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{HomaPacket, PacketKind};

    fn packet(rpc_id: u64) -> Packet {
        let homa = Some(HomaPacket { rpc_id, kind: PacketKind::Data, message_bytes: 100 });
        Packet { homa, ports: [32_768, 99], ..Packet::default() }
    }

    #[test]
    fn rpcs_between_two_hosts_use_all_cores_and_each_stays_on_its_own() {
        let mut policy = HomaHash::new(Cores::first(4).unwrap(), 0);
        let mut counts = [0; 4];
        for rpc in 0..1_000 {
            let choice = policy.choose(&packet(2 * rpc), Loads::default());
            assert_eq!(choice, policy.choose(&packet(2 * rpc + 1), Loads::default()));
            assert_eq!(choice.reason, Reason::RpcHash);
            counts[usize::from(choice.core)] += 1;
        }
        assert!(counts.iter().all(|&count| count > 200), "{counts:?}");
    }

    #[test]
    fn what_is_not_of_homa_goes_by_its_flow() {
        let mut policy = HomaHash::new(Cores::first(2).unwrap(), 0);
        let tcp = Packet { homa: None, flow_hash: u32::MAX, ..packet(0) };
        assert_eq!(policy.choose(&tcp, Loads::default()), Choice::new(1, Reason::FlowHash));
    }
}
