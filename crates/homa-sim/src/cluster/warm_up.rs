//! How long a load takes to reach steady state.

use homa_proto::{MS, SEC};

use super::config::ClusterConfig;
use super::traffic::{LinkMeans, Traffic};

/// Warm-up where no load says how long it takes: rounds of an incast, and closed loops.
pub(super) const WITHOUT_LOAD_NS: u64 = 10 * MS;
/// Minimum: hosts need some round trips and some messages to each other.
const MIN_NS: u64 = 2 * MS;
/// Maximum. A load so close to the links' rate reaches no steady state in a run that anybody waits for.
const MAX_NS: u64 = 2 * SEC;
/// Links are taken to be idle at least for this share of the time.
const MIN_IDLE: f64 = 0.01;
/// Times that a warm-up is as long as what is computed for it. From an empty network at 80 % load the backlog
/// of W4 is at 0.75 of its last after 180 ms, at 0.86 after 290 and at 0.98 after 440, where this gives 560.
const TIMES: f64 = 3.0;

impl ClusterConfig {
    /// How long load must come before a run of it is in steady state, in nanoseconds: 2 ms to 2 s. 10 ms
    /// where no load is given.
    ///
    /// Two times have to pass, three times each. A queue with Poisson arrivals of service time S, at
    /// utilisation r, forgets where it began in about E\[S²\] / (E\[S\] (1 - r)²). And the long messages,
    /// whose bytes are most of those under way, must have had the time to pass: of their mean, E\[S³\] /
    /// E\[S²\], a link that the shorter ones leave to them needs 1 / (1 - r) times as much. Here a host's
    /// link is the queue, S the link time of a message, and r the load with the grants. W2, of few and very
    /// long messages, needs the second, W4 and W5 the first.
    pub fn steady_warm_up_ns(&self) -> u64 {
        let Traffic::Uniform { load } = self.traffic else { return WITHOUT_LOAD_NS };
        let means = LinkMeans::new(self);
        let idle = (1.0 - means.link_share(self, load, means.grants)).max(MIN_IDLE);
        let bytes = means.square / means.message / idle.powi(2) + means.cube / means.square / idle;
        let ns = TIMES * bytes * 8e9 / self.link.rate_bps as f64;
        (ns as u64).clamp(MIN_NS, MAX_NS)
    }

    /// Share of the hosts' links in use at this load, with so many bytes of control packets for the mean
    /// message.
    pub(crate) fn link_share(&self, load: f64, control_bytes: f64) -> f64 {
        LinkMeans::for_load(self).link_share(self, load, control_bytes)
    }
}

#[cfg(test)]
mod tests {
    use homa_workload::Workload;

    use super::*;

    fn warm_up_ms(workload: &str, load: f64) -> u64 {
        ClusterConfig::sigcomm18(Workload::named(workload).unwrap(), load, 1).warm_up_ns / MS
    }

    #[test]
    fn long_and_unequal_messages_and_full_links_need_more() {
        let at_80 = ["w1", "w2", "w3", "w4", "w5"].map(|name| warm_up_ms(name, 0.8));
        assert!(at_80.is_sorted(), "{at_80:?}");
        assert_eq!(at_80[0], 2);
        assert!(warm_up_ms("w4", 0.5) * 5 < at_80[3], "{at_80:?}");
    }

    #[test]
    fn a_faster_link_needs_less_and_there_is_a_maximum() {
        let mut cluster = ClusterConfig::sigcomm18(Workload::named("w4").unwrap(), 0.8, 1);
        let slow = cluster.steady_warm_up_ns();
        cluster.link.rate_bps *= 10;
        assert!(cluster.steady_warm_up_ns().abs_diff(slow / 10) < slow / 50);
        cluster.traffic = Traffic::Uniform { load: 1.0 };
        cluster.link.rate_bps = 1_000_000_000;
        assert_eq!(cluster.steady_warm_up_ns(), MAX_NS);
        cluster.traffic = Traffic::Incast { senders: 3, interval_ns: MS };
        assert_eq!(cluster.steady_warm_up_ns(), WITHOUT_LOAD_NS);
    }
}
