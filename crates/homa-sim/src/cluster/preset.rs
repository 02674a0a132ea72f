//! The set-ups of published experiments.

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

/// Ethernet header, check sequence, preamble and gap, and an IPv4 header: what a packet of protocol 146 costs beyond itself.
const RAW_OVERHEAD: u32 = 14 + 4 + 8 + 12 + 20;
/// A Homa packet over IPv4 in a frame of MTU 1500.
const PACKET: u32 = 1_480;
/// The same for an MTU of 3000.
const MTU_3000: u32 = 2_980;

impl ClusterConfig {
    /// The simulations of the SIGCOMM 2018 paper, figures 12 to 18: 144 hosts in 9 racks, 10 Gbit/s edge, 40 Gbit/s core, 0.5 us
    /// for the host's software and 0.5 us for its card at each end, 0.25 us a switch, no wire delay, packets spread one by one.
    /// `load` counts headers.
    ///
    /// A full packet across the core and a grant back take 7.75 us there, which is the paper's RTTbytes of about 9.7 KB.
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
                // Never full: the paper's switches had room for everything.
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

    /// The cluster of the kernel paper (ATC 2021): 40 hosts at one switch, 25 Gbit/s, MTU 3000, echo RPCs with everything that the
    /// deployed protocol sends for them. `load` counts headers, and both messages of an RPC.
    ///
    /// Where its times come from (performance notes of the kernel module, "Best-case short-message timelines (xl170 cluster)" of
    /// January 2021, Linux 5.4.80):
    ///
    /// - Sending takes a client 1,710 ns from the call to the card, and a server 1,475; receiving takes a server 3,220 ns from the
    ///   card to the application, and a client 3,080. A host here is both, and each packet takes the mean: 1,592 and 3,150 ns.
    /// - From card to card it has 2,805 ns each way, of which a short packet occupies the two links for about 70. Only that sum is
    ///   published; its parts here are guesses: 1,000 ns for each link with its cards and 700 ns for the switch.
    /// - The sum, there and back, is the published 15,100 ns of a round trip; the server's turn-around is not part of it.
    /// - 40 nodes and an MTU of 3000 are those of the "Small-message latencies" in the same place.
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

    /// Messages, or RPCs, that start in a second at all hosts together; `None` where a load is not what is asked for.
    pub fn starts_per_sec(&self) -> Option<f64> {
        match self.traffic {
            Traffic::Uniform { load } => {
                Some(super::traffic::messages_per_sec(self, load) * self.hosts as f64)
            }
            Traffic::Incast { .. } | Traffic::Closed { .. } => None,
        }
    }

    /// Bytes that a full packet and the grant that answers it let through: what a sender may have on its way without waiting.
    pub fn rtt_bytes(&self) -> u32 {
        let ideal = super::ideal::Ideal::new(self);
        let round_ns = ideal.compute_far(self.framing.payload) + ideal.compute_far(1);
        (round_ns as f64 * self.link.rate_bps as f64 / 8e9) as u32
    }
}

impl HomaConfig {
    /// Homa as the SIGCOMM 2018 paper has it, for this network and workload: RTTbytes unscheduled and as the window of each message, a
    /// grant for each packet, no share for the oldest message, and the priorities divided between unscheduled and scheduled bytes as
    /// the workload's are, with cutoffs that give each level the same unscheduled bytes.
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
                // Windows limit what is granted, and not their sum.
                max_incoming: 64 * rtt_bytes,
                min_grant_increment: 1,
                grant_fifo_fraction: 0,
                pacer_fifo_fraction: 0,
                num_priorities: levels,
                max_sched_prio: scheduled - 1,
                unsched_cutoffs: plan.cutoffs,
                cutoff_interval_ns: 0,
                // The card is asked to send when it has room: the queue that a pacer keeps short does not exist.
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

/// RTTbytes that a message's window has, in eighths, where the priorities are divided as in the paper.
///
/// A grant comes back later than in an empty network, because its message's packets and the grant itself wait on the
/// way; a window of one round trip then leaves the downlink idle. But what a wider window lets long messages send
/// delays the last bytes of those just above RTTbytes. In W4 at 80 % load, 9 eighths take 3 to 7 % off the median of
/// all sizes above 40 kB, and no P99 rises by more than 2 %. With 10 eighths the median falls by 5 to 11 %, and P99 of
/// 50 kB rises by 1 to 8 %, by seed; with 12 that of the longest rises by 7 %, too.
const TUNED_WINDOW_EIGHTHS: u32 = 9;
/// RTTbytes that may be on their way to a host, all messages together: as many as a deployed host lets come at 10 Gbit/s.
///
/// Half of it is what an incast may send unasked. More than a port's buffer is no control: with 64 round trips instead of 16, 100
/// senders of 10 KB take a dozen times as long into a port of 200 KB. Under a load of W1 to W5 it makes no difference.
const TUNED_INCOMING: u32 = 16;

impl HomaConfig {
    /// What came out best of sweeps of what we added to the paper's protocol, and of how it is set
    /// (docs/perf/2026-11-27-steady-state.md): the default of `homa sim`. [`HomaConfig::sigcomm18`] with either more
    /// levels for unscheduled bytes or wider windows, and senders that are told what they may send unasked in an
    /// incast (which needs the rate of the link).
    ///
    /// Both at once delay messages just above RTTbytes too much: in W3 P99 of 6 to 11 kB would be 11 % more than with
    /// the paper's settings. As in the paper, so many messages are granted as there are scheduled levels.
    ///
    /// Unscheduled bytes by the measured round trip are left out: where all hosts are about equally far they are the same.
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
                // The card is asked to send when it has room: nothing is to be paced.
                link_margin: 0,
                max_nic_backlog_ns: u64::MAX >> 1,
                ..paper
            },
        }
    }

    /// The settings with which the findings about steering were made, and their costs fitted: levels by the share of
    /// messages without grants and windows of 1.5 RTTbytes, whatever the defaults of other runs became since.
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

    /// Bytes of link time of the grants for a mean message.
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

/// How the priorities are divided, and where the unscheduled ones meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityPlan {
    /// Levels for unscheduled bytes, at least 1, and fewer than all where there is more than one.
    pub unscheduled_levels: u8,
    /// As [`Config::unsched_cutoffs`].
    pub cutoffs: [u32; PRIORITIES],
}

impl PriorityPlan {
    /// For `levels` priorities (1 to 8), messages of this workload and so many unscheduled bytes of each. A single level serves
    /// both kinds of bytes.
    pub fn new(workload: &Workload, unsched_bytes: u32, levels: u8) -> PriorityPlan {
        PriorityPlan::by_bytes(&sizes_of(workload), unsched_bytes, levels)
    }

    /// The same with at least as many levels for unscheduled bytes as the messages' share that are sent without a grant, to half of
    /// the levels, where the highest then ends below RTTbytes: what [`HomaConfig::tuned`] has.
    ///
    /// By their share of the bytes W3 has two, in which the first bytes of long messages are before short ones. With four, P99 of the
    /// shorter half is 6 % less. The levels of W4 and W5 would all end above RTTbytes and tell messages apart that need
    /// grants anyway: W4's short messages would gain 1 %, and P99 of 40 to 50 kB would be about 10 % more.
    pub fn tuned(workload: &Workload, unsched_bytes: u32, levels: u8) -> PriorityPlan {
        let (paper, divided) = PriorityPlan::both(workload, unsched_bytes, levels);
        if divided.cutoffs[usize::from(levels) - 1] < unsched_bytes { divided } else { paper }
    }

    /// The same wherever the highest level ends.
    pub(crate) fn by_messages(workload: &Workload, unsched_bytes: u32, levels: u8) -> PriorityPlan {
        PriorityPlan::both(workload, unsched_bytes, levels).1
    }

    /// The same with so many of the levels (1 to `levels`) for unscheduled bytes.
    pub fn with_levels(
        workload: &Workload,
        unsched_bytes: u32,
        levels: u8,
        unscheduled_levels: u8,
    ) -> PriorityPlan {
        PriorityPlan::of_sizes(&sizes_of(workload), unsched_bytes, levels, unscheduled_levels)
    }

    /// The paper's plan, and [`PriorityPlan::by_messages`].
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

/// Sizes that represent equal numbers of a workload's messages, in increasing order.
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

    /// Short messages are all unscheduled, long ones hardly at all.
    #[test]
    fn priorities_follow_the_share_of_unscheduled_bytes() {
        let levels = |name| PriorityPlan::new(&workload(name), 9_700, 8).unscheduled_levels;
        assert_eq!(["w1", "w2", "w3", "w4", "w5"].map(levels), [7, 6, 2, 1, 1]);
    }

    /// 100 bytes there and back: what the notes have for an idle cluster.
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

    /// Both together delay messages just above RTTbytes.
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
