//! Estimates the memory and the number of events of a run.

use super::config::ClusterConfig;
use super::traffic::Traffic;

/// An estimate, accurate to a factor of about two: enough to decide whether a run fits the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Memory of the run with one transport, in bytes.
    pub memory_bytes: f64,
    /// Events up to the end of the measured time.
    pub events: f64,
}

/// Memory of a host with its queues, without its peers, in bytes: 150 kB in runs of Homa with 4,096 and
/// 16,384 hosts.
const HOST_BYTES: f64 = 150e3;
/// Memory per direction of a pair of hosts that have exchanged packets, in bytes: 1.0 kB in runs of Homa with
/// 512 and 1,024 hosts.
const PAIR_BYTES: f64 = 1e3;
/// Events per direction of the first contact between two hosts: 5 in runs of Homa with 32 hosts.
const PAIR_EVENTS: f64 = 5.0;
/// Events per data packet, including the packets that answer it.
const PACKET_EVENTS: f64 = 10.0;

impl ClusterConfig {
    /// Estimates the resources of a run. The result is only meaningful if [`ClusterConfig::validate`]
    /// succeeds.
    pub fn demand(&self) -> Demand {
        let hosts = self.hosts as f64;
        let pairs = if self.acquaint { hosts * (hosts - 1.0) } else { 0.0 };
        Demand {
            memory_bytes: hosts * HOST_BYTES + pairs * PAIR_BYTES,
            events: pairs * PAIR_EVENTS + self.packets() * PACKET_EVENTS,
        }
    }

    /// Returns the number of data packets that start before the end of the measured time.
    fn packets(&self) -> f64 {
        let seconds = (self.warm_up_ns + self.duration_ns) as f64 / 1e9;
        let packet_bits = 8.0 * f64::from(self.framing.payload);
        let link_packets = self.link.rate_bps as f64 * seconds / packet_bits;
        // A message has at least one packet.
        let message_packets = (self.workload.mean_bytes() / f64::from(self.framing.payload)).max(1.0);
        match self.traffic {
            Traffic::Uniform { .. } => {
                let messages = self.starts_per_sec().unwrap_or(0.0) * seconds;
                messages * message_packets * f64::from(self.exchange.messages())
            }
            Traffic::Incast { senders, interval_ns } => {
                senders as f64 * message_packets * (seconds * 1e9 / interval_ns.max(1) as f64)
            }
            Traffic::Closed { .. } => link_packets * self.hosts as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use homa_workload::Workload;

    use super::*;
    use crate::transport::choice::TransportConfig;

    fn cluster(hosts: usize, acquaint: bool) -> ClusterConfig {
        let cluster = ClusterConfig::sigcomm18(Workload::named("w2").unwrap(), 0.5, 1);
        ClusterConfig { hosts, acquaint, warm_up_ns: 0, duration_ns: 3_000_000, ..cluster }
    }

    fn events(cluster: &ClusterConfig) -> f64 {
        let homa = TransportConfig::named("homa", cluster).unwrap();
        homa.run(cluster.clone(), &mut |_| std::ops::ControlFlow::Continue(())).events as f64
    }

    #[test]
    fn the_estimate_of_events_is_near_those_of_a_run() {
        let (plain, acquainted) = (cluster(32, false), cluster(32, true));
        let plain_events = events(&plain);
        let ratio = plain.demand().events / plain_events;
        assert!((0.4..2.5).contains(&ratio), "{ratio}");
        let acquaintances = events(&acquainted) - plain_events;
        let ratio = (acquainted.demand().events - plain.demand().events) / acquaintances;
        assert!((0.4..2.5).contains(&ratio), "acquaintances: {ratio}");
    }

    #[test]
    fn acquaintances_cost_the_square_of_the_hosts() {
        let (few, many) = (cluster(4_096, true).demand(), cluster(1 << 20, true).demand());
        assert!((1e10..4e10).contains(&few.memory_bytes), "{few:?}");
        assert!(many.memory_bytes > 1e15 && many.events > 5e12, "{many:?}");
    }
}
