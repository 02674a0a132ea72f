//! The cores of a host, and how they divide the work.

use homa_steer::batch::BatchCap;
use homa_steer::wake::WakeOrder;
use homa_steer::{Core, Cores, Gen3, MAX_CORES, PolicyName, Settings, SteerError};

use super::costs::{Costs, CostsError};

/// The cores of a host, and how they divide the work.
#[derive(Clone, Debug)]
pub struct CoresConfig {
    /// The cost of each piece of work.
    pub costs: Costs,
    /// Number of cores, from 1 to [`MAX_CORES`].
    pub cores: usize,
    /// Policy that selects the core for a packet.
    pub policy: PolicyName,
    /// Settings of the policies.
    pub settings: Settings,
    /// Cores that the policy selects from; `None`: all.
    pub steered: Option<Cores>,
    /// Number of cores on which packets arrive, counted from the first core; 0: as many as the policy
    /// requires ([`Gen3::receive_cores`]), or all.
    pub receive_cores: usize,
    /// Order in which waiting threads receive messages.
    pub wake_order: WakeOrder,
    /// Maximum number of packets that a core takes from the device before it passes them on.
    pub receive_batch: BatchCap,
    /// How long a thread polls for its next message before it sleeps, in nanoseconds; at most a second.
    pub poll_ns: u64,
    /// Number of threads that receive and answer requests, at least 1.
    pub server_threads: usize,
    /// Number of threads that receive responses, at least 1.
    pub client_threads: usize,
    /// Number of threads that send requests, at least 1.
    pub sender_threads: usize,
}

/// Why a [`CoresConfig`] is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoresError {
    /// A number is out of range.
    #[error("{setting} must be {range}")]
    Range {
        /// The setting.
        setting: &'static str,
        /// The valid range.
        range: &'static str,
    },
    /// A cost is out of range.
    #[error(transparent)]
    Costs(#[from] CostsError),
    /// The policy rejects its settings.
    #[error(transparent)]
    Policy(#[from] SteerError),
}

/// Maximum number of threads of a kind: [`MAX_CORES`] cores do not benefit from more.
const MAX_THREADS: usize = 1_024;
const MAX_POLL_NS: u64 = 1_000_000_000;
/// Default polling time of Linux Homa (net.homa.poll_usecs).
const POLL_NS: u64 = 50_000;
/// Server threads of the published runs: "3p2r" for clients, and three threads for each of three server ports
/// (notes/perf.txt of the kernel module, January 2021).
const SERVER_THREADS: usize = 9;
const CLIENT_THREADS: usize = 6;
const SENDER_THREADS: usize = 3;

impl CoresConfig {
    /// Returns hosts that have `cores` cores with the published costs, use a policy, and are otherwise
    /// configured like the published hosts. A host with few cores has fewer threads.
    #[must_use]
    pub fn x86(cores: usize, policy: PolicyName) -> CoresConfig {
        CoresConfig {
            costs: Costs::x86(),
            cores,
            policy,
            settings: Settings::default(),
            steered: None,
            receive_cores: 0,
            wake_order: WakeOrder::default(),
            receive_batch: BatchCap::default(),
            poll_ns: POLL_NS,
            server_threads: SERVER_THREADS.min(cores.max(1)),
            client_threads: CLIENT_THREADS.min(cores.max(1)),
            sender_threads: SENDER_THREADS.min(cores.max(1)),
        }
    }

    /// Checks that each setting is in range.
    ///
    /// # Errors
    /// Names the first setting that is out of range.
    pub fn check(&self) -> Result<(), CoresError> {
        let is_thread_count = |count: usize| (1..=MAX_THREADS).contains(&count);
        let rules = [
            ((1..=MAX_CORES).contains(&self.cores), "cores", "1 to 64"),
            (self.receive_cores <= self.cores, "receive cores", "no more than there are cores"),
            (self.poll_ns <= MAX_POLL_NS, "polling", "a second at most"),
            (is_thread_count(self.server_threads), "server threads", "1 to 1024"),
            (is_thread_count(self.client_threads), "client threads", "1 to 1024"),
            (is_thread_count(self.sender_threads), "sender threads", "1 to 1024"),
        ];
        if let Some((_, setting, range)) = rules.into_iter().find(|(holds, _, _)| !holds) {
            return Err(CoresError::Range { setting, range });
        }
        self.costs.check()?;
        let cores = self.policy_cores()?;
        if cores.as_slice().iter().any(|&core| usize::from(core) >= self.cores) {
            return Err(CoresError::Range {
                setting: "the cores to choose among",
                range: "cores of the host",
            });
        }
        self.policy.build(&cores, &self.settings)?;
        Ok(())
    }

    /// Returns the cores that the policy selects from.
    pub(super) fn policy_cores(&self) -> Result<Cores, SteerError> {
        self.steered.clone().map_or_else(|| Cores::first(self.cores), Ok)
    }

    /// Returns the cores over which the device spreads arriving flows.
    pub(super) fn arrival_cores(&self) -> Vec<Core> {
        let all = |count: usize| (0..count as Core).collect();
        if self.receive_cores > 0 {
            return all(self.receive_cores);
        }
        if self.policy == PolicyName::Gen3 {
            let settings = &self.settings;
            let cores = self.policy_cores().expect("checked before");
            return Gen3::new(&cores, settings.application_busy_ns, settings.keeps_up_packets)
                .receive_cores()
                .collect();
        }
        all(self.cores)
    }

    /// Returns the processor time of an echo RPC with `bytes` in each direction, in packets of `payload`
    /// bytes, summed over both ends, if everything is warm and nothing waits. A host's load is the share of
    /// its cores' time that its RPCs would take at this cost.
    #[must_use]
    pub fn rpc_ns(&self, bytes: u32, payload: u32) -> u64 {
        let costs = &self.costs;
        let packets = u64::from(bytes.div_ceil(payload).max(1));
        let each_ns = costs.receive.packet_ns + costs.protocol.packet_ns;
        // A core that keeps up finds few packets in a batch, so each message pays for a whole batch.
        let batch_ns = costs.receive.interrupt_ns
            + costs.receive.poll_ns
            + costs.handoff.wake_ns
            + costs.protocol.burst_ns;
        let message_ns = packets * each_ns
            + batch_ns
            + super::costs::for_bytes(costs.receive.byte_ns + costs.protocol.byte_ns, bytes)
            + costs.take_ns(bytes, false)
            + costs.send_ns(bytes);
        2 * message_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_named() {
        let base = CoresConfig::x86(4, PolicyName::Gen2);
        assert_eq!(base.check(), Ok(()));
        for (config, word) in [
            (CoresConfig { cores: 0, ..base.clone() }, "cores"),
            (CoresConfig { cores: 65, ..base.clone() }, "1 to 64"),
            (CoresConfig { receive_cores: 5, ..base.clone() }, "receive cores"),
            (CoresConfig { steered: Some("2-4".parse().unwrap()), ..base.clone() }, "to choose among"),
            (CoresConfig { server_threads: 0, ..base.clone() }, "server threads"),
            (CoresConfig { poll_ns: 2_000_000_000, ..base.clone() }, "polling"),
            (
                CoresConfig { settings: Settings { levels: 9, ..Settings::default() }, ..base.clone() },
                "9 levels",
            ),
        ] {
            let said = config.check().unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
        }
    }

    #[test]
    fn packets_arrive_where_the_policy_wants_them() {
        let arrivals = |policy, receive_cores| {
            CoresConfig { receive_cores, ..CoresConfig::x86(8, policy) }.arrival_cores()
        };
        assert_eq!(arrivals(PolicyName::Gen3, 0), [0, 4]);
        assert_eq!(arrivals(PolicyName::Gen2, 0).len(), 8);
        assert_eq!(arrivals(PolicyName::Gen2, 1), [0]);
    }
}
