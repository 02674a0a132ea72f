//! Samples of queues, and of downlinks that are idle although a message could be sent.

use hdrhistogram::Histogram;
use homa_proto::Time;
use homa_proto::wire::PRIORITIES;

use super::config::ClusterConfig;
use super::report::{ClusterReport, QueueLengths};
use crate::fabric::{Fabric, World};
use crate::packet::PacketInfo;
use crate::topology::Tier;

/// Queue lengths of one kind of port, in bytes.
struct Queues {
    lengths: Histogram<u64>,
    sum: u128,
}

impl Queues {
    fn new() -> Queues {
        Queues {
            lengths: Histogram::new(2)
                .expect("two significant digits are within what the histogram supports"),
            sum: 0,
        }
    }

    fn record(&mut self, bytes: u64) {
        self.sum += u128::from(bytes);
        self.lengths.record(bytes).expect("a histogram can grow to any queue");
    }

    fn summary(&self, max_bytes: u64) -> QueueLengths {
        let count = self.lengths.len().max(1);
        QueueLengths {
            mean_bytes: self.sum as f64 / count as f64,
            p99_bytes: self.lengths.value_at_quantile(0.99),
            max_bytes,
        }
    }
}

pub(super) struct Samples {
    /// One each for [`Tier::Downlink`], [`Tier::ToSpine`] and [`Tier::ToLeaf`].
    queues: [Queues; 3],
    from: Time,
    until: Time,
    overhead: u32,
    /// Numbers of all downlink samples, of those that were idle, and of those that were idle although a
    /// message to the host was waiting for a grant.
    samples: u64,
    idle: u64,
    wasted: u64,
    /// Link bytes of delivered packets by priority.
    bytes: [u64; PRIORITIES],
}

impl Samples {
    pub(super) fn new(config: &ClusterConfig) -> Samples {
        let from = Time::from_ns(config.warm_up_ns);
        Samples {
            queues: [Queues::new(), Queues::new(), Queues::new()],
            from,
            until: from + config.duration_ns,
            overhead: config.link.overhead_bytes,
            samples: 0,
            idle: 0,
            wasted: 0,
            bytes: [0; PRIORITIES],
        }
    }

    pub(super) fn delivered(&mut self, info: &PacketInfo, now: Time) {
        if now >= self.from && now < self.until {
            self.bytes[usize::from(info.priority)] += u64::from(info.wire_len + self.overhead);
        }
    }

    /// Returns the number of downlinks, and how many of them are idle. Once the measurement has started, also
    /// samples every queue.
    pub(super) fn take<W: World>(
        &mut self,
        fabric: &Fabric<W>,
        withholds: impl Fn(usize) -> bool,
    ) -> (u64, u64) {
        let is_measured = fabric.now >= self.from;
        let (mut downlinks, mut idle) = (0, 0);
        for (number, port) in fabric.ports.iter().enumerate() {
            let queues = match fabric.routes.tier(number as u32) {
                Tier::Uplink => continue,
                Tier::Downlink => &mut self.queues[0],
                Tier::ToSpine => &mut self.queues[1],
                Tier::ToLeaf => &mut self.queues[2],
            };
            if is_measured {
                queues.record(port.queued_bytes());
            }
            if let Some(host) = fabric.routes.host_behind(number as u32) {
                let is_idle = port.is_idle(fabric.now);
                (downlinks, idle) = (downlinks + 1, idle + u64::from(is_idle));
                self.wasted += u64::from(is_measured && is_idle && withholds(host));
            }
        }
        if is_measured {
            (self.samples, self.idle) = (self.samples + downlinks, self.idle + idle);
        }
        (downlinks, idle)
    }

    pub(super) fn report<W: World>(&self, report: &mut ClusterReport, fabric: &Fabric<W>) {
        let longest = |tier| {
            let ports = fabric.ports.iter().enumerate();
            let of_tier = ports.filter(|(number, _)| fabric.routes.tier(*number as u32) == tier);
            of_tier.map(|(_, port)| port.max_queued_bytes).max().unwrap_or(0)
        };
        report.edge_queue = self.queues[0].summary(longest(Tier::Downlink));
        report.to_spine_queue = self.queues[1].summary(longest(Tier::ToSpine));
        report.to_leaf_queue = self.queues[2].summary(longest(Tier::ToLeaf));
        let samples = self.samples.max(1) as f64;
        report.downlink_idle = self.idle as f64 / samples;
        report.downlink_wasted = self.wasted as f64 / samples;
        report.bytes_by_priority = self.bytes;
    }
}
