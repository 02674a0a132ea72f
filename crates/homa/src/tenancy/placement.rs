//! Chooses the endpoint of a host that carries a client's RPC, if a policy of `homa-steer` is configured.
//!
//! The endpoints play the role of cores. A policy gets the information that the host has when a call begins:
//! the client's own endpoint is the core of arrival, the client and its server are the flow, and the load is
//! the number of RPCs open in each endpoint. An RPC stays in the endpoint where it began: its ID encodes the
//! endpoint that owns it, and the kernel steers its packets by the ID.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use homa_proto::Time;
use homa_steer::hash::Flow;
use homa_steer::load::ObservedLoads;
use homa_steer::{CoreLoad, Cores, Loads, Packet, Policy, PolicyName, Settings};

use crate::types::endpoint_policies::ENDPOINT_POLICIES;
use crate::types::error::HostError;

/// Chooses endpoints for new RPCs. All callers of a host share it, behind its own lock, which is held only
/// for the choice.
#[derive(Debug)]
pub(crate) struct Placement {
    seed: u32,
    chooser: Mutex<Chooser>,
}

#[derive(Debug)]
struct Chooser {
    policy: Box<dyn Policy>,
    /// When each endpoint was last given an RPC.
    observed: ObservedLoads,
    loads: Vec<CoreLoad>,
}

impl Placement {
    /// Creates a placement among this many endpoints.
    ///
    /// # Errors
    /// The policy needs information that a host does not have.
    pub(crate) fn new(policy: PolicyName, endpoints: usize, seed: u64) -> Result<Placement, HostError> {
        if !ENDPOINT_POLICIES.contains(&policy) {
            return Err(HostError::Placement { policy });
        }
        let (seed, not_so_many) = (seed as u32, |_| HostError::Endpoints { count: endpoints });
        let cores = Cores::first(endpoints).map_err(not_so_many)?;
        let settings = Settings { hash_seed: seed, ..Settings::default() };
        let policy = policy.build(&cores, &settings).expect("the default settings are in their ranges");
        let loads = vec![CoreLoad::default(); endpoints];
        Ok(Placement {
            seed,
            chooser: Mutex::new(Chooser { policy, observed: ObservedLoads::default(), loads }),
        })
    }

    /// Returns the endpoint for an RPC of a client whose own endpoint is `home`, where the client has the
    /// given port. `open` is the number of RPCs open in each endpoint.
    pub(crate) fn place(
        &self,
        now: Time,
        (home, port): (usize, u16),
        (host, server): (SocketAddr, u16),
        open: impl Iterator<Item = u32>,
    ) -> usize {
        let flow = Flow {
            source: match host {
                SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            },
            destination: host.ip(),
            protocol: home as u8,
            ports: [port, server],
        };
        let packet = Packet {
            now_ns: now.as_ns(),
            arrival: home as u16,
            flow_hash: flow.hash(self.seed),
            ports: flow.ports,
            ..Packet::default()
        };
        // The numbers behind the lock are consistent after each step, so a panic does no harm.
        let mut chooser = self.chooser.lock().unwrap_or_else(PoisonError::into_inner);
        let Chooser { policy, observed, loads } = &mut *chooser;
        for ((endpoint, load), open) in (0..).zip(loads.iter_mut()).zip(open) {
            *load = CoreLoad { waiting_packets: open, idle: open == 0, ..observed.loads().of(endpoint) };
        }
        let choice = policy.choose(&packet, Loads(loads));
        observed.note_assignment(choice.core, now.as_ns());
        usize::from(choice.core)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const SERVER: (SocketAddr, u16) = (SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 14_600), 99);

    /// Returns the endpoints chosen for RPCs of clients with these ports, whose own endpoint is always 1.
    fn placed(policy: PolicyName, ports: &[u16], open: [u32; 4]) -> Vec<usize> {
        let placement = Placement::new(policy, 4, 7).unwrap();
        let place = |(at, &port): (u64, &u16)| {
            placement.place(Time::from_ns(1 + at), (1, port), SERVER, open.into_iter())
        };
        (0..).zip(ports).map(place).collect()
    }

    #[test]
    fn each_policy_chooses_as_it_does_for_packets() {
        let open = [3, 5, 0, 9];
        assert_eq!(placed(PolicyName::SameCore, &[40_000, 40_001], open), [1, 1]);
        assert_eq!(placed(PolicyName::LeastLoaded, &[40_000, 40_001], open), [2, 2]);
        assert_eq!(placed(PolicyName::LeastLoaded, &[40_000], [2, 2, 2, 2]), [1], "of equals its own");
        assert_eq!(placed(PolicyName::Idle, &[40_000], open), [2]);
        let flows = [40_000, 40_001, 40_002, 40_003, 40_001];
        assert_eq!(placed(PolicyName::Sparse, &flows, open), [3, 2, 1, 0, 2], "each has one of its own");
        let many: Vec<u16> = (40_000..40_064).collect();
        let by_hash = placed(PolicyName::RssHash, &many, open);
        assert_eq!(by_hash, placed(PolicyName::RssHash, &many, [0; 4]), "whatever the load");
        assert!(
            (0..4).all(|endpoint| by_hash.iter().filter(|&&at| at == endpoint).count() > 5),
            "{by_hash:?}"
        );
    }

    #[test]
    fn what_needs_to_know_more_is_refused() {
        for entry in homa_steer::POLICIES {
            let made = Placement::new(entry.policy, 2, 0);
            assert_eq!(made.is_ok(), ENDPOINT_POLICIES.contains(&entry.policy), "{}", entry.name);
        }
        let said = Placement::new(PolicyName::Gen3, 2, 0).unwrap_err().to_string();
        assert!(said.contains("gen3") && said.contains("least-loaded"), "{said}");
    }
}
