//! Checks of settings before a run.

use homa_egress::Buffer;
use homa_proto::SEC;
use homa_proto::wire::PRIORITIES;
use homa_workload::Poisson;

use super::config::ClusterConfig;
use super::traffic::messages_per_sec;
use super::traffic::{Exchange, Traffic};
use crate::fabric::MAX_HOSTS;
use crate::topology::Topology;

/// An invalid setting of a [`ClusterConfig`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {rule}")]
pub struct ClusterError {
    /// Name of the setting.
    pub field: &'static str,
    /// The violated rule.
    pub rule: &'static str,
}

/// Rates at which nanoseconds are a suitable unit for packet times.
const RATES_BPS: std::ops::RangeInclusive<u64> = 1_000_000..=10_000_000_000_000;
/// Maximum delay of a network. The sum of all delays is still far below the clock's maximum.
const MAX_DELAY_NS: u64 = SEC;
/// Maximum length of a run.
const MAX_RUN_NS: u64 = 3_600 * SEC;
/// Maximum number of ports, limited by the machine's memory.
const MAX_PORTS: usize = 1 << 24;

/// Maximum number of hosts with cores. Each such host stores two hashes for every other host.
const MAX_HOSTS_WITH_CORES: usize = 1_024;

/// Whether a rule holds, the setting, and the rule.
type Rule = (bool, &'static str, &'static str);

impl ClusterConfig {
    /// Checks all assumptions of a run.
    ///
    /// # Errors
    /// Names the first setting that breaks a rule, and the rule.
    pub fn validate(&self) -> Result<(), ClusterError> {
        let rules = self.topology_rules().into_iter();
        let rules = rules.chain(self.link_rules()).chain(self.time_rules()).chain(self.load_rules());
        let rules = rules.chain(self.core_rules());
        match rules.into_iter().find(|(holds, _, _)| !holds) {
            Some((_, field, rule)) => Err(ClusterError { field, rule }),
            None => Ok(()),
        }
    }

    fn topology_rules(&self) -> Vec<Rule> {
        let mut rules: Vec<Rule> =
            vec![((2..=MAX_HOSTS).contains(&self.hosts), "hosts", "must be 2 to 16777216")];
        match self.topology {
            Topology::BackToBack => {
                rules.push((self.hosts == 2, "hosts", "must be 2 without a switch between them"));
            }
            Topology::Switch { delay_ns } => rules.push(delay(delay_ns, "switch delay")),
            Topology::LeafSpine(net) => {
                let racks = self.hosts.div_ceil(net.hosts_per_rack.max(1));
                let ports = racks.saturating_mul(net.spines).saturating_mul(2).saturating_add(2 * self.hosts);
                rules.extend([
                    (net.hosts_per_rack >= 1, "hosts per rack", "must be at least 1: a rack has hosts"),
                    (net.spines >= 1, "spines", "must be at least 1: nothing else joins the racks"),
                    (ports <= MAX_PORTS, "spines", "all ports together must not be more than 16777216"),
                    rate(net.core_rate_bps, "core rate"),
                    delay(net.core_propagation_ns, "core propagation"),
                    delay(net.delay_ns, "switch delay"),
                ]);
            }
        }
        rules
    }

    fn link_rules(&self) -> Vec<Rule> {
        let full = u64::from(self.framing.payload)
            + u64::from(self.framing.header)
            + u64::from(self.link.overhead_bytes);
        let (buffer, share) = match self.switch.buffer {
            None => (u64::MAX, 100),
            Some(Buffer::PerPort { bytes }) => (bytes, 100),
            Some(Buffer::Shared { bytes, alpha }) => (bytes, alpha.percent()),
        };
        vec![
            rate(self.link.rate_bps, "rate"),
            delay(self.link.propagation_ns, "propagation"),
            delay(self.send_delay_ns, "send delay"),
            delay(self.receive_delay_ns, "receive delay"),
            (self.framing.payload >= 1, "packets", "must have room for at least one byte of a message"),
            (self.link.queue_bytes >= full, "link queue", "must have room for a full packet"),
            (buffer >= full, "buffer", "must have room for a full packet"),
            (share >= 1, "buffer share", "must be at least 1 %"),
            ((1..=PRIORITIES).contains(&self.switch.priorities), "switch priorities", "must be 1 to 8"),
            ((0.0..1.0).contains(&self.loss), "loss", "must be at least 0 and below 1"),
        ]
    }

    fn time_rules(&self) -> Vec<Rule> {
        vec![
            (
                (1..=MAX_RUN_NS).contains(&self.duration_ns),
                "duration",
                "must be above 0, and at most an hour",
            ),
            (self.warm_up_ns <= MAX_RUN_NS, "warm-up", "must be at most an hour"),
            (self.drain_ns <= MAX_RUN_NS, "drain", "must be at most an hour"),
            (self.sample_ns >= 1, "sample interval", "must be at least 1 ns"),
            (
                self.bins.is_sorted_by(|left, right| left < right),
                "bins",
                "must end at sizes that increase, each listed once",
            ),
        ]
    }

    fn core_rules(&self) -> Vec<Rule> {
        let Some(cores) = &self.cores else { return Vec::new() };
        let is_right = cores.check().is_ok();
        vec![
            (self.exchange == Exchange::Echo, "exchange", "must be echo where hosts have cores"),
            (self.hosts <= MAX_HOSTS_WITH_CORES, "hosts", "must be at most 1024 where they have cores"),
            (
                is_right,
                "cores",
                "must be 1 to 64, with 1 to 1024 threads of each kind and polling up to a second",
            ),
        ]
    }

    fn load_rules(&self) -> Vec<Rule> {
        let fits = self.workload.max_bytes() <= i32::MAX as u32;
        let mut rules: Vec<Rule> = vec![(fits, "workload", "messages must have at most 2^31 - 1 bytes")];
        match self.traffic {
            Traffic::Uniform { load } => {
                rules.push((load > 0.0 && load <= 1.0, "load", "must be above 0 and at most 1"));
                // If a rule is already broken, the rate may not exist, and the error should name the broken
                // rule.
                let is_known = rules.iter().all(|(holds, _, _)| *holds);
                let rate = if is_known { messages_per_sec(self, load) } else { 1.0 };
                rules.push((Poisson::new(rate, 0).is_ok(), "load", "gives too few or too many messages"));
            }
            Traffic::Incast { senders, interval_ns } => rules.extend([
                ((1..=1_000_000).contains(&senders), "senders", "must be 1 to 1000000"),
                (interval_ns >= 1, "incast interval", "must be at least 1 ns"),
            ]),
            Traffic::Closed { outstanding } => {
                rules.push(((1..=100_000).contains(&outstanding), "outstanding", "must be 1 to 100000"));
            }
        }
        rules
    }
}

fn rate(bps: u64, field: &'static str) -> Rule {
    (RATES_BPS.contains(&bps), field, "must be 1 Mbit/s to 10 Tbit/s")
}

fn delay(ns: u64, field: &'static str) -> Rule {
    (ns <= MAX_DELAY_NS, field, "must be at most a second")
}

#[cfg(test)]
mod tests {
    use homa_workload::Workload;

    use homa_egress::Alpha;

    use super::*;
    use crate::topology::LeafSpine;

    fn config() -> ClusterConfig {
        ClusterConfig::sigcomm18(Workload::named("w4").unwrap(), 0.8, 1)
    }

    fn wrong(change: impl FnOnce(&mut ClusterConfig)) -> Option<&'static str> {
        let mut config = config();
        change(&mut config);
        config.validate().err().map(|error| error.field)
    }

    fn racks(config: &mut ClusterConfig) -> &mut LeafSpine {
        match &mut config.topology {
            Topology::LeafSpine(net) => net,
            other => panic!("{other:?} has no racks"),
        }
    }

    #[test]
    fn the_preset_is_right() {
        assert_eq!(config().validate(), Ok(()));
    }

    #[test]
    fn what_does_not_connect_is_refused() {
        assert_eq!(wrong(|config| config.hosts = 1), Some("hosts"));
        assert_eq!(wrong(|config| racks(config).spines = 0), Some("spines"));
        assert_eq!(wrong(|config| racks(config).spines = usize::MAX), Some("spines"));
        assert_eq!(wrong(|config| racks(config).hosts_per_rack = 0), Some("hosts per rack"));
        assert_eq!(wrong(|config| config.topology = Topology::BackToBack), Some("hosts"));
    }

    #[test]
    fn a_load_that_no_link_carries_is_refused() {
        for load in [0.0, -0.5, 1.01, f64::NAN, f64::INFINITY, 1e-30] {
            assert_eq!(wrong(|config| config.traffic = Traffic::Uniform { load }), Some("load"), "{load}");
        }
        let incast = |senders, interval_ns| Traffic::Incast { senders, interval_ns };
        assert_eq!(wrong(|config| config.traffic = incast(0, 1)), Some("senders"));
        assert_eq!(wrong(|config| config.traffic = incast(1, 0)), Some("incast interval"));
    }

    #[test]
    fn times_rates_and_buffers_have_bounds() {
        assert_eq!(wrong(|config| config.link.rate_bps = 0), Some("rate"));
        assert_eq!(wrong(|config| racks(config).core_rate_bps = 0), Some("core rate"));
        assert_eq!(wrong(|config| config.send_delay_ns = u64::MAX), Some("send delay"));
        assert_eq!(wrong(|config| config.link.queue_bytes = 100), Some("link queue"));
        assert_eq!(
            wrong(|config| config.switch.buffer =
                Some(Buffer::Shared { bytes: 9, alpha: Alpha::from_percent(50) })),
            Some("buffer")
        );
        assert_eq!(wrong(|config| config.switch.priorities = 0), Some("switch priorities"));
        assert_eq!(wrong(|config| config.switch.priorities = 9), Some("switch priorities"));
        assert_eq!(wrong(|config| config.duration_ns = 0), Some("duration"));
        assert_eq!(wrong(|config| config.sample_ns = 0), Some("sample interval"));
        assert_eq!(wrong(|config| config.loss = 1.0), Some("loss"));
        assert_eq!(wrong(|config| config.bins = vec![5, 5]), Some("bins"));
    }
}
