//! Configurations of published experiments.

use homa_proto::wire::{DATA_HEADER_LEN, GRANT_LEN, PRIORITIES};
use homa_proto::{Config, MS};
use homa_workload::Workload;

use super::config::ClusterConfig;
use super::ideal::Framing;
use super::traffic::{Exchange, LoadBasis, Traffic, mean_of, quantiles};
use crate::fabric::SwitchConfig;
use crate::link::{Discipline, LinkConfig};
use crate::topology::{LeafSpine, Spread, Topology};
use crate::transport::homa::HomaConfig;

/// Overhead of a packet of IP protocol 146: Ethernet header, check sequence, preamble and gap, and an IPv4
/// header.
const RAW_OVERHEAD: u32 = 14 + 4 + 8 + 12 + 20;
/// A Homa packet over IPv4 at an MTU of 1500.
const PACKET: u32 = 1_480;
/// A Homa packet over IPv4 at an MTU of 3000.
const MTU_3000: u32 = 2_980;

impl ClusterConfig {
    /// Returns the cluster of the simulations in the SIGCOMM 2018 paper, figures 12 to 18: 144 hosts in 9
    /// racks, 10 Gbit/s at the edge, 40 Gbit/s in the core. A host's software and its network card each take
    /// 0.5 us at each end, a switch takes 0.25 us, and wires have no delay. Each packet takes a random spine.
    /// `load` includes headers.
    ///
    /// A full packet across the core and a grant back take 7.75 us, which gives the paper's RTTbytes of about
    /// 9.7 KB.
    pub fn sigcomm18(workload: Workload, load: f64, seed: u64) -> ClusterConfig {
        let cluster = ClusterConfig {
            seed,
            hosts: 144,
            topology: Topology::LeafSpine(LeafSpine {
                hosts_per_rack: 16,
                spines: 4,
                core_rate_bps: 40_000_000_000,
                core_propagation_ns: 0,
                delay_ns: 250,
                spread: Spread::Packets,
            }),
            link: LinkConfig {
                rate_bps: 10_000_000_000,
                propagation_ns: 0,
                // Never full: the paper's switches had unlimited buffers.
                queue_bytes: 1 << 30,
                overhead_bytes: RAW_OVERHEAD,
            },
            switch: SwitchConfig::default(),
            nic: Discipline::Strict,
            nic_queue_bytes: 0,
            send_delay_ns: 500,
            receive_delay_ns: 1_000,
            cores: None,
            loss: 0.0,
            workload,
            traffic: Traffic::Uniform { load },
            load_basis: LoadBasis::Data,
            exchange: Exchange::OneWay,
            framing: Framing { payload: PACKET - DATA_HEADER_LEN as u32, header: DATA_HEADER_LEN as u32 },
            acquaint: true,
            warm_up_ns: 0,
            duration_ns: 50 * MS,
            drain_ns: 200 * MS,
            bins: Vec::new(),
            sample_ns: 10_000,
            trace_records: 0,
            trace_slower_than_ns: None,
            keep_samples: false,
        };
        ClusterConfig { warm_up_ns: cluster.steady_warm_up_ns(), ..cluster }
    }

    /// Returns the cluster of the kernel paper (ATC 2021): 40 hosts at one switch, 25 Gbit/s, MTU 3000, and
    /// echo RPCs with all packets that the deployed protocol sends for them. `load` includes headers and both
    /// messages of an RPC.
    ///
    /// Software takes a constant time per packet. Queues in hosts, which cause the published tails, are not
    /// modelled.
    ///
    /// The delays are from the performance notes of the kernel module, "Best-case short-message timelines
    /// (xl170 cluster)" of January 2021, Linux 5.4.80:
    ///
    /// - Sending takes 1,710 ns from the call to the card at a client, and 1,475 ns at a server. Receiving
    ///   takes 3,220 ns from the card to the application at a server, and 3,080 ns at a client. Here each
    ///   host is both client and server, and each packet takes the mean: 1,592 and 3,150 ns.
    /// - From card to card a packet takes 2,805 ns in each direction; a short packet occupies the two links
    ///   for about 70 ns of that. Only the sum is published. Its parts here are guesses: 1,000 ns for each
    ///   link with its cards and 700 ns for the switch.
    /// - The sum of both directions is the published round trip of 15,100 ns, which excludes the server's
    ///   turn-around.
    /// - The 40 nodes and the MTU of 3000 are those of "Small-message latencies" in the same notes.
    pub fn atc21(workload: Workload, load: f64, seed: u64) -> ClusterConfig {
        let base = ClusterConfig::sigcomm18(workload, load, seed);
        let cluster = ClusterConfig {
            hosts: 40,
            topology: Topology::Switch { delay_ns: 700 },
            link: LinkConfig { rate_bps: 25_000_000_000, propagation_ns: 1_000, ..base.link },
            send_delay_ns: 1_592,
            receive_delay_ns: 3_150,
            exchange: Exchange::Echo,
            framing: Framing { payload: MTU_3000 - DATA_HEADER_LEN as u32, ..base.framing },
            ..base
        };
        ClusterConfig { warm_up_ns: cluster.steady_warm_up_ns(), ..cluster }
    }

    /// Returns the messages, or RPCs, that start per second at all hosts together; `None`: the traffic has no
    /// load.
    pub fn starts_per_sec(&self) -> Option<f64> {
        match self.traffic {
            Traffic::Uniform { load } => {
                Some(super::traffic::messages_per_sec(self, load) * self.hosts as f64)
            }
            Traffic::Incast { .. } | Traffic::Closed { .. } => None,
        }
    }

    /// Returns RTTbytes: the bytes that a link carries in the time that a full packet and the grant in
    /// response take. A sender may have this many bytes in flight without waiting.
    pub fn rtt_bytes(&self) -> u32 {
        let ideal = super::ideal::Ideal::new(self);
        let round_ns = ideal.compute_far(self.framing.payload) + ideal.compute_far(1);
        (round_ns as f64 * self.link.rate_bps as f64 / 8e9) as u32
    }
}

impl HomaConfig {
    /// Returns Homa's settings as in the SIGCOMM 2018 paper, for this network and workload. RTTbytes are the
    /// unscheduled bytes and the window of each message, each packet has its own grant, and no share is
    /// reserved for the oldest message. Priorities are divided in proportion to the workload's unscheduled
    /// and scheduled bytes, with cutoffs that give each level the same number of unscheduled bytes.
    pub fn sigcomm18(cluster: &ClusterConfig) -> HomaConfig {
        let rtt_bytes = cluster.rtt_bytes();
        let levels = PRIORITIES as u8;
        let plan = PriorityPlan::new(&cluster.workload, rtt_bytes, levels);
        let scheduled = levels - plan.unscheduled_levels;
        let base = Config::default();
        HomaConfig {
            protocol: Config {
                unsched_bytes: rtt_bytes,
                unsched_from_rtt: false,
                max_unsched_bytes: rtt_bytes.max(base.max_unsched_bytes),
                window: rtt_bytes,
                max_overcommit: u32::from(scheduled),
                // Only the windows limit grants, not their sum.
                max_incoming: 64 * rtt_bytes,
                min_grant_increment: 1,
                grant_fifo_fraction: 0,
                pacer_fifo_fraction: 0,
                num_priorities: levels,
                max_sched_prio: scheduled - 1,
                unsched_cutoffs: plan.cutoffs,
                cutoff_interval_ns: 0,
                // The endpoint sends only when the card has room, so there is no queue for a pacer to limit.
                link_mbps: None,
                max_packet: cluster.framing.payload + cluster.framing.header,
                link_overhead: RAW_OVERHEAD,
                max_message: i32::MAX as u32,
                max_incoming_bytes: u64::MAX >> 1,
                max_outgoing_bytes: u64::MAX >> 1,
                reserve_rpcs: 16,
                ..base
            },
        }
    }
}

/// A message's window in eighths of RTTbytes, if priorities are divided as in the paper.
///
/// Under load, a grant returns later than in an empty network, because the message's packets and the grant
/// itself are queued on the way. A window of one round trip then leaves the downlink idle. But with a wider
/// window, long messages delay the last bytes of messages just above RTTbytes. In W4 at 80 % load, 9 eighths
/// reduce the median of all sizes above 40 kB by 3 to 7 %, and increase no P99 by more than 2 %. With 10
/// eighths the median falls by 5 to 11 %, and P99 of 50 kB rises by 1 to 8 %, depending on the seed. With 12,
/// P99 of the longest messages rises by 7 %, too.
const TUNED_WINDOW_EIGHTHS: u32 = 9;
/// Maximum bytes in flight to a host over all messages, as a multiple of RTTbytes. This is the maximum of a
/// deployed host at 10 Gbit/s.
///
/// An incast may send half of these bytes unscheduled. A value above a port's buffer would control nothing:
/// with 64 round trips instead of 16, 100 senders of 10 KB take twelve times as long into a port of 200 KB.
/// Under the loads of W1 to W5 the value makes no difference.
const TUNED_INCOMING: u32 = 16;

impl HomaConfig {
    /// Returns the best settings in sweeps of our additions to the paper's protocol
    /// (docs/perf/2026-11-27-steady-state.md), which are the default of `homa sim`. They are
    /// [`HomaConfig::sigcomm18`] with either more levels for unscheduled bytes or wider windows, and with
    /// unscheduled quotas for the senders of an incast, which require the link's rate.
    ///
    /// More levels and wider windows together would delay messages just above RTTbytes too much: in W3, P99
    /// of 6 to 11 kB would be 11 % higher than with the paper's settings. As in the paper, the number of
    /// granted messages equals the number of scheduled levels.
    ///
    /// Unscheduled bytes are not set by the measured round trip: with all hosts at about the same distance
    /// this makes no difference.
    pub fn tuned(cluster: &ClusterConfig) -> HomaConfig {
        let paper = HomaConfig::sigcomm18(cluster).protocol;
        let levels = PRIORITIES as u8;
        let plan = PriorityPlan::tuned(&cluster.workload, paper.unsched_bytes, levels);
        let scheduled = levels - plan.unscheduled_levels;
        let is_divided_as_in_the_paper = plan.cutoffs == paper.unsched_cutoffs;
        let eighths = if is_divided_as_in_the_paper { TUNED_WINDOW_EIGHTHS } else { 8 };
        HomaConfig {
            protocol: Config {
                window: (u64::from(paper.unsched_bytes) * u64::from(eighths) / 8) as u32,
                max_overcommit: u32::from(scheduled),
                max_incoming: paper.unsched_bytes.saturating_mul(TUNED_INCOMING),
                max_sched_prio: scheduled - 1,
                unsched_cutoffs: plan.cutoffs,
                link_mbps: u32::try_from(cluster.link.rate_bps / 1_000_000).ok(),
                // The endpoint sends only when the card has room: pacing is off.
                link_margin: 0,
                max_nic_backlog_ns: u64::MAX >> 1,
                ..paper
            },
        }
    }

    /// Returns Homa settings under which the steering cost model was fitted: priority levels split by the
    /// share of unscheduled messages, and windows of 1.5 RTTbytes. They stay the same when other defaults
    /// change.
    pub(crate) fn for_steering(cluster: &ClusterConfig) -> HomaConfig {
        let paper = HomaConfig::sigcomm18(cluster).protocol;
        let levels = PRIORITIES as u8;
        let plan = PriorityPlan::by_messages(&cluster.workload, paper.unsched_bytes, levels);
        HomaConfig {
            protocol: Config {
                window: paper.unsched_bytes.saturating_mul(3) / 2,
                max_overcommit: paper.max_overcommit,
                max_sched_prio: levels - plan.unscheduled_levels - 1,
                unsched_cutoffs: plan.cutoffs,
                ..HomaConfig::tuned(cluster).protocol
            },
        }
    }

    /// Returns the mean link time of a message's grants, in bytes.
    pub(crate) fn mean_grant_bytes(&self, cluster: &ClusterConfig) -> f64 {
        let payload = cluster.framing.payload;
        let increment = self.protocol.min_grant_increment.max(payload);
        let grant = f64::from(GRANT_LEN as u32 + cluster.link.overhead_bytes);
        let unscheduled = self.protocol.unsched_bytes.next_multiple_of(payload);
        mean_of(&cluster.workload, |size| {
            f64::from(size.saturating_sub(unscheduled).div_ceil(increment)) * grant
        })
    }
}

/// Division of the priorities between unscheduled and scheduled bytes, and the cutoffs of the unscheduled
/// levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityPlan {
    /// Number of levels for unscheduled bytes, at least 1. If there is more than one level, at least one is
    /// for scheduled bytes.
    pub unscheduled_levels: u8,
    /// Cutoffs, as in [`Config::unsched_cutoffs`].
    pub cutoffs: [u32; PRIORITIES],
}

impl PriorityPlan {
    /// Makes the paper's plan for `levels` priorities (1 to 8), messages of this workload and `unsched_bytes`
    /// unscheduled bytes of each message. A single level serves both kinds of bytes.
    pub fn new(workload: &Workload, unsched_bytes: u32, levels: u8) -> PriorityPlan {
        PriorityPlan::by_bytes(&sizes_of(workload), unsched_bytes, levels)
    }

    /// Makes the plan of [`HomaConfig::tuned`]. The fraction of levels for unscheduled bytes is raised to the
    /// fraction of messages that need no grant, up to half of the levels. This applies only if the highest
    /// level then ends below RTTbytes.
    ///
    /// If the levels were divided in proportion to bytes, W3 would have two levels for unscheduled bytes, in
    /// which the first bytes of long messages precede short messages. With four, P99 of the shorter half is 6
    /// % lower. In W4 and W5 all levels would end above RTTbytes and separate messages that need grants
    /// anyway: W4's short messages would gain 1 %, and P99 of 40 to 50 kB would rise by about 10 %.
    pub fn tuned(workload: &Workload, unsched_bytes: u32, levels: u8) -> PriorityPlan {
        let (paper, divided) = PriorityPlan::both(workload, unsched_bytes, levels);
        if divided.cutoffs[usize::from(levels) - 1] < unsched_bytes { divided } else { paper }
    }

    /// Like [`PriorityPlan::tuned`], but regardless of where the highest level ends.
    pub(crate) fn by_messages(workload: &Workload, unsched_bytes: u32, levels: u8) -> PriorityPlan {
        PriorityPlan::both(workload, unsched_bytes, levels).1
    }

    /// Makes a plan with `unscheduled_levels` of the levels (1 to `levels`) for unscheduled bytes.
    pub fn with_levels(
        workload: &Workload,
        unsched_bytes: u32,
        levels: u8,
        unscheduled_levels: u8,
    ) -> PriorityPlan {
        PriorityPlan::of_sizes(&sizes_of(workload), unsched_bytes, levels, unscheduled_levels)
    }

    /// Returns the paper's plan and that of [`PriorityPlan::by_messages`].
    fn both(workload: &Workload, unsched_bytes: u32, levels: u8) -> (PriorityPlan, PriorityPlan) {
        let sizes = sizes_of(workload);
        let paper = PriorityPlan::by_bytes(&sizes, unsched_bytes, levels);
        let ungranted = workload.cdf(unsched_bytes) * f64::from(levels);
        let minimum = (ungranted.round() as u8).min(levels / 2).max(1);
        if paper.unscheduled_levels >= minimum {
            return (paper, paper);
        }
        (paper, PriorityPlan::of_sizes(&sizes, unsched_bytes, levels, minimum))
    }

    /// Divides the levels by the share of unscheduled bytes.
    fn by_bytes(sizes: &[u32], unsched_bytes: u32, levels: u8) -> PriorityPlan {
        let total: u64 = sizes.iter().map(|&size| u64::from(size)).sum();
        let unscheduled: u64 = sizes.iter().map(|&size| u64::from(size.min(unsched_bytes))).sum();
        let share = unscheduled as f64 / total.max(1) as f64;
        let unscheduled_levels = ((f64::from(levels) * share).round() as u8).clamp(1, (levels - 1).max(1));
        PriorityPlan::of_sizes(sizes, unsched_bytes, levels, unscheduled_levels)
    }

    fn of_sizes(sizes: &[u32], unsched_bytes: u32, levels: u8, unscheduled_levels: u8) -> PriorityPlan {
        let unasked: u64 = sizes.iter().map(|&size| u64::from(size.min(unsched_bytes))).sum();
        let mut cutoffs = [0; PRIORITIES];
        let (mut level, mut sum) = (levels - 1, 0u64);
        let lowest = levels - unscheduled_levels;
        for &size in sizes {
            sum += u64::from(size.min(unsched_bytes));
            let part = u64::from(levels - level);
            if level > lowest && sum * u64::from(unscheduled_levels) >= unasked * part {
                cutoffs[usize::from(level)] = size;
                level -= 1;
            }
        }
        cutoffs[usize::from(lowest)] = u32::MAX;
        PriorityPlan { unscheduled_levels, cutoffs }
    }
}

/// Returns sizes that represent equal numbers of a workload's messages, in increasing order.
fn sizes_of(workload: &Workload) -> Vec<u32> {
    quantiles(workload).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(name: &str) -> Workload {
        Workload::named(name).expect("a built-in workload")
    }

    #[test]
    fn rtt_bytes_are_those_of_the_paper() {
        let bytes = ClusterConfig::sigcomm18(workload("w4"), 0.8, 1).rtt_bytes();
        assert!((9_500..9_900).contains(&bytes), "{bytes}");
    }

    /// Short messages are entirely unscheduled, long ones hardly at all.
    #[test]
    fn priorities_follow_the_share_of_unscheduled_bytes() {
        let levels = |name| PriorityPlan::new(&workload(name), 9_700, 8).unscheduled_levels;
        assert_eq!(["w1", "w2", "w3", "w4", "w5"].map(levels), [7, 6, 2, 1, 1]);
    }

    /// A round trip of 100 bytes takes the published time of an idle cluster.
    #[test]
    fn a_short_rpc_takes_as_long_as_published() {
        let one_way =
            super::super::ideal::Ideal::new(&ClusterConfig::atc21(workload("w4"), 0.8, 1)).compute_far(100);
        assert!((14_900..15_300).contains(&(2 * one_way)), "{one_way}");
    }

    #[test]
    fn one_level_takes_everything() {
        for plan in [PriorityPlan::new, PriorityPlan::tuned] {
            let plan = plan(&workload("w3"), 9_700, 1);
            assert_eq!((plan.unscheduled_levels, plan.cutoffs), (1, [u32::MAX, 0, 0, 0, 0, 0, 0, 0]));
        }
    }

    #[test]
    fn the_tuned_plan_has_levels_for_messages_without_grants() {
        let levels = |name, of| PriorityPlan::tuned(&workload(name), 9_700, of).unscheduled_levels;
        assert_eq!(["w1", "w2", "w3", "w4", "w5"].map(|name| levels(name, 8)), [7, 6, 4, 1, 1]);
        assert_eq!([2, 4, 6].map(|of| levels("w3", of)), [1, 2, 3]);
    }

    /// More levels and wider windows together delay messages just above RTTbytes.
    #[test]
    fn the_tuned_settings_have_more_levels_or_wider_windows() {
        for name in ["w1", "w2", "w3", "w4", "w5"] {
            let cluster = ClusterConfig::sigcomm18(workload(name), 0.8, 1);
            let (paper, tuned) =
                (HomaConfig::sigcomm18(&cluster).protocol, HomaConfig::tuned(&cluster).protocol);
            let has_more_levels = tuned.max_sched_prio < paper.max_sched_prio;
            assert_ne!(has_more_levels, tuned.window > paper.window, "{name}");
            assert_eq!(tuned.max_overcommit, u32::from(tuned.max_sched_prio) + 1, "{name}");
        }
    }

    #[test]
    fn every_plan_is_a_configuration() {
        for name in ["w1", "w2", "w3", "w4", "w5"] {
            let cluster = ClusterConfig::sigcomm18(workload(name), 0.8, 1);
            for homa in [HomaConfig::sigcomm18(&cluster), HomaConfig::tuned(&cluster)] {
                homa.protocol.validate().unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        }
    }

    #[test]
    fn cutoffs_fall_with_the_level_and_the_lowest_takes_everything() {
        let plan = PriorityPlan::new(&workload("w3"), 9_700, 8);
        let lowest = 8 - usize::from(plan.unscheduled_levels);
        assert!(plan.cutoffs[lowest..].windows(2).all(|pair| pair[0] > pair[1]), "{plan:?}");
        assert_eq!(plan.cutoffs[lowest], u32::MAX);
    }
}
