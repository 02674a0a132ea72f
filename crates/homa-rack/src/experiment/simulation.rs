//! The experiment in the simulator: the same hosts, rate, buffer, load, seeds and settings, but processors
//! are not simulated. Rack and simulator model the same network, and the comparison shows how much they
//! differ.
//!
//! A seed produces different messages here than in the rack, but both are samples of the same distribution.

use std::ops::ControlFlow;

use anyhow::{Result, ensure};
use homa_bench::engine::rtt::{self, RttTable};
use homa_bench::protocol::Protocol;
use homa_bench::tcp::Congestion;
use homa_proto::{MS, SEC};
use homa_report::findings::{Section, Table};
use homa_report::number::short_number;
use homa_sim::{
    ClusterConfig, ClusterReport, Connections, Discipline, Exchange, Framing, HomaConfig, LinkConfig,
    QUEUE_ALPHA, SwitchConfig, TcpConfig, Topology, Traffic, TransportConfig,
};
use homa_workload::{BinSummary, ShortSummary, SlowdownRecorder, Workload};
use serde::Serialize;

use super::agent_protocol::Setup;
use super::options::{CommonOptions, MessageOptions, SimulationMode};
use super::setup::switch_of;
use super::vs_tcp::ContenderRuns;
use super::{agent, by_size, framing};
use crate::spec::{Spec, SwitchKind};

/// Bytes that Ethernet (with preamble and gap), IPv4 and UDP add to a packet.
const ETHERNET: u32 = 14 + 4 + 8 + 12;
const IP: u32 = 20;
const UDP: u32 = 8;

/// Bytes of a TCP header with timestamps.
const TCP_HEADER: u32 = 32;

/// Minimum retransmission timeout of Linux TCP.
const LINUX_TIMEOUT_NS: u64 = 200 * MS;

/// Time after the measurement window in which the remaining RPCs may complete.
const DRAIN_NS: u64 = 5 * SEC;

/// Load at which messages of one size hardly ever overlap, and the number of messages for a median.
const ALONE: f64 = 0.002;
const ALONE_MESSAGES: f64 = 15.0;

/// A simulation of at most this many full packets runs without being requested. It takes about ten seconds.
const CHEAP_PACKETS: f64 = 3e6;

/// The results of the simulation.
#[derive(Debug, Serialize)]
pub struct SimulationResults {
    /// Delay of a host's software per packet and direction. To compute it, the time on the links is
    /// subtracted from the duration of the shortest RPC in the unloaded rack; the delay is a quarter of the
    /// remainder.
    pub host_delay_ns: u64,
    /// Unloaded round trips in the simulator divided by those in the rack, for the shortest and for the
    /// longest message.
    pub unloaded_ratio: [f64; 2],
    /// One run for each protocol.
    pub runs: Vec<SimulatedRun>,
}

/// The simulated run of a protocol.
#[derive(Debug, Serialize)]
pub struct SimulatedRun {
    /// The protocol.
    pub protocol: Protocol,
    /// TCP congestion control algorithm; `None` for Homa.
    pub congestion: Option<Congestion>,
    /// Round trips of the short messages.
    pub short: ShortSummary,
    /// Mean slowdown of all messages, relative to unloaded Homa in the simulator.
    pub slowdown_mean: f64,
    /// Statistics by size.
    pub bins: Vec<BinSummary>,
    /// Number of RPCs that did not complete in time.
    pub unfinished: u64,
    /// Share of the packets that the switch dropped.
    pub dropped: f64,
    /// Difference from the measurement; `None` if there is no measurement.
    pub distance: Option<Distance>,
}

/// Simulated slowdowns divided by measured slowdowns, over all bins.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Distance {
    /// Ratios of the medians.
    pub p50: BinRatios,
    /// Ratios of the 99th percentiles.
    pub p99: BinRatios,
}

/// Ratios over all bins.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BinRatios {
    /// The median ratio.
    pub median: f64,
    /// The ratio that differs most from 1, in either direction.
    pub farthest: f64,
    /// Maximum size of the bin with this ratio.
    pub farthest_bytes: u32,
}

impl SimulatedRun {
    /// Returns whether this run simulates the contender of a measured run.
    fn is_of(&self, ran: &ContenderRuns) -> bool {
        (self.protocol, self.congestion) == (ran.contender.protocol, ran.congestion)
    }
}

/// The description of a simulation.
pub struct Simulation<'a> {
    /// The rack.
    pub spec: &'a Spec,
    /// The rack's options.
    pub common: &'a CommonOptions,
    /// The messages.
    pub workload: &'a Workload,
    /// The setup of a Homa host.
    pub setup: &'a Setup,
    /// Load as a share of the link rate.
    pub load: f64,
    /// Unloaded round trips in the rack.
    pub unloaded: &'a RttTable,
}

/// Returns whether to run the simulation: if it was requested, or if it is short.
///
/// # Errors
/// The simulation was requested, but the simulator does not support it.
pub fn is_wanted(
    when: SimulationMode,
    spec: &Spec,
    common: &CommonOptions,
    messages: &MessageOptions,
) -> Result<bool> {
    let why_not = if messages.one_way {
        Some("simulated answers are as long as the requests: leave --one-way out")
    } else if spec.switch != SwitchKind::Homa {
        Some("the simulator has no Linux bridge: leave --switch out")
    } else {
        None
    };
    let seconds = (common.duration + common.warmup) * f64::from(common.repetitions);
    let packets = spec.rate_bps as f64 / 8.0 / f64::from(spec.mtu) * f64::from(spec.hosts) * seconds;
    match (when, why_not) {
        (SimulationMode::Never, _) => Ok(false),
        (SimulationMode::Auto, why_not) => Ok(why_not.is_none() && packets <= CHEAP_PACKETS),
        (SimulationMode::Always, why_not) => {
            ensure!(why_not.is_none(), "no simulation: {}", why_not.unwrap_or_default());
            Ok(true)
        }
    }
}

impl Simulation<'_> {
    /// Returns the simulated network, with Homa's packets.
    fn cluster(&self, host_delay_ns: u64) -> Result<ClusterConfig> {
        let spec = self.spec;
        let header = homa_proto::wire::DATA_HEADER_LEN as u32;
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        let switch = switch_of(self.common.program, spec)?;
        let base = ClusterConfig::sigcomm18(self.workload.clone(), self.load, self.common.seed);
        let config = ClusterConfig {
            hosts: spec.hosts.into(),
            topology: Topology::Switch { delay_ns: switch.delay_ns },
            link: LinkConfig {
                rate_bps: spec.rate_bps,
                propagation_ns: 0,
                queue_bytes: 1 << 30,
                overhead_bytes: ETHERNET + IP + UDP,
            },
            switch: simulated_switch(&switch),
            // The queue of a host's link has no priorities, but a pacer keeps it short.
            nic: Discipline::Fifo,
            nic_queue_bytes: 1 << 30,
            send_delay_ns: host_delay_ns,
            receive_delay_ns: host_delay_ns,
            loss: switch.loss,
            exchange: Exchange::Echo,
            framing: Framing { payload: spec.mtu - IP - UDP - header, header },
            acquaint: true,
            warm_up_ns: ns(self.common.warmup),
            duration_ns: ns(self.common.duration),
            drain_ns: DRAIN_NS,
            sample_ns: MS,
            keep_samples: true,
            ..base
        };
        config.validate()?;
        Ok(config)
    }

    /// Returns the configuration of Homa, with the settings of a host of the rack.
    fn homa(&self) -> Result<TransportConfig> {
        let bind = std::net::SocketAddr::new(self.setup.address, self.setup.udp_port);
        let protocol = agent::homa_config(self.setup, bind, self.workload.max_bytes())?.protocol;
        Ok(TransportConfig::Homa(HomaConfig { protocol }))
    }

    /// Returns the network for the same number of messages, with TCP's packets.
    fn of_tcp(&self, homa: &ClusterConfig) -> (ClusterConfig, TcpConfig) {
        let header = TCP_HEADER;
        let mut cluster = ClusterConfig {
            framing: Framing { payload: self.spec.mtu - IP - header, header },
            link: LinkConfig { overhead_bytes: ETHERNET + IP, ..homa.link },
            // Connections take turns, because Linux limits the bytes of each connection in the queue.
            nic_queue_bytes: 0,
            acquaint: false,
            ..homa.clone()
        };
        if let (Some(asked), Some(gets)) = (homa.starts_per_sec(), cluster.starts_per_sec()) {
            cluster.traffic = Traffic::Uniform { load: self.load * asked / gets };
        }
        let tcp = TcpConfig {
            connections: Connections::PerPair(self.common.connections.into()),
            min_timeout_ns: LINUX_TIMEOUT_NS,
            port_bytes: None,
            ..TcpConfig::for_cluster(&cluster)
        };
        (cluster, tcp)
    }

    /// Returns the delay of a host's software per packet, derived from the shortest round trip in the rack.
    fn host_delay_ns(&self) -> u64 {
        let Some(&(bytes, rtt_ns)) = self.unloaded.points().first() else { return 0 };
        let link_ns = framing::wire_bytes(bytes, self.spec.mtu) * 8_000_000_000 / self.spec.rate_bps;
        rtt_ns.saturating_sub(4 * link_ns) / 4
    }

    /// Measures Homa's unloaded round trips.
    fn unloaded_round_trips(&self, cluster: &ClusterConfig, homa: &TransportConfig) -> Result<RttTable> {
        let point = |bytes: u32| {
            let mut cluster = ClusterConfig {
                hosts: 2,
                workload: Workload::fixed(bytes)?,
                traffic: Traffic::Uniform { load: ALONE },
                warm_up_ns: 0,
                ..cluster.clone()
            };
            let per_sec = cluster.starts_per_sec().unwrap_or(1.0);
            cluster.duration_ns = (ALONE_MESSAGES / per_sec * 1e9) as u64;
            cluster.sample_ns = cluster.duration_ns.max(1);
            let mut times: Vec<u64> = to_end(homa, &cluster).samples.into_iter().map(|(_, ns)| ns).collect();
            times.sort_unstable();
            Ok((bytes, times.get(times.len() / 2).copied().unwrap_or(1)))
        };
        Ok(RttTable::new(rtt::sizes(self.workload).into_iter().map(point).collect::<Result<_>>()?))
    }

    /// Simulates a protocol, over all repetitions.
    fn run(
        &self,
        (protocol, congestion): (Protocol, Option<Congestion>),
        transport: &TransportConfig,
        cluster: &ClusterConfig,
        alone: &RttTable,
    ) -> SimulatedRun {
        let mut recorder = SlowdownRecorder::new(self.workload);
        let (mut unfinished, mut dropped, mut hops) = (0, 0, 0);
        for repetition in 1..=self.common.repetitions {
            let seed = self.common.seed.wrapping_add(u64::from(repetition) << 32);
            let report = to_end(transport, &ClusterConfig { seed, ..cluster.clone() });
            for &(bytes, ns) in &report.samples {
                recorder.record(bytes, ns, alone.rtt_ns(bytes));
            }
            unfinished += report.unfinished;
            dropped += report.dropped;
            hops += report.hops;
        }
        SimulatedRun {
            protocol,
            congestion,
            short: recorder.short(),
            slowdown_mean: recorder.slowdown_mean(),
            bins: recorder.bins(),
            unfinished,
            dropped: dropped as f64 / hops.max(1) as f64,
            distance: None,
        }
    }
}

fn to_end(transport: &TransportConfig, cluster: &ClusterConfig) -> ClusterReport {
    transport.run(cluster.clone(), &mut |_| ControlFlow::Continue(()))
}

/// Returns the configuration of `homa switch` for the simulator. In the simulator a packet occupies buffer
/// space for all its bytes on the link, which is 2 % more for a full packet.
fn simulated_switch(switch: &homa_switch::SwitchConfig) -> SwitchConfig {
    SwitchConfig {
        priorities: switch.priorities,
        buffer: Some(switch.buffer),
        mark_bytes: switch.mark_bytes,
        forwarding: switch.forwarding,
        queue_alpha: Some(QUEUE_ALPHA),
        ..SwitchConfig::default()
    }
}

/// Runs the simulation, and compares it with the measurements.
///
/// # Errors
/// The settings are invalid for a network.
pub fn simulate(ask: &Simulation<'_>, measured: &[ContenderRuns]) -> Result<SimulationResults> {
    let host_delay_ns = ask.host_delay_ns();
    let cluster = ask.cluster(host_delay_ns)?;
    let homa = ask.homa()?;
    let alone = ask.unloaded_round_trips(&cluster, &homa)?;
    let ratio = |point: Option<&(u32, u64)>| {
        point.map_or(1.0, |&(bytes, ns)| alone.rtt_ns(bytes) as f64 / ns.max(1) as f64)
    };
    let points = ask.unloaded.points();
    let unloaded_ratio = [ratio(points.first()), ratio(points.last())];
    let mut runs = vec![ask.run((Protocol::Homa, None), &homa, &cluster, &alone)];
    let (tcp_cluster, tcp) = ask.of_tcp(&cluster);
    for &way in &ask.common.cc {
        let tcp = match way {
            Congestion::Cubic => TransportConfig::Tcp(tcp),
            Congestion::Dctcp => {
                TransportConfig::Dctcp(TcpConfig { mark_bytes: cluster.switch.mark_bytes, ..tcp })
            }
            Congestion::Bbr | Congestion::Reno => continue,
        };
        runs.push(ask.run((Protocol::Tcp, Some(way)), &tcp, &tcp_cluster, &alone));
    }
    for run in &mut runs {
        let measured = measured.iter().find(|measured| run.is_of(measured));
        run.distance = measured.and_then(|measured| distance(&run.bins, &measured.run.bins));
    }
    Ok(SimulationResults { host_delay_ns, unloaded_ratio, runs })
}

/// Returns the difference over the bins that have messages in both, or `None` if there is no such bin.
fn distance(simulated: &[BinSummary], measured: &[BinSummary]) -> Option<Distance> {
    let apart = |value: fn(&BinSummary) -> f64| {
        let pairs = simulated.iter().zip(measured).filter(|(sim, real)| sim.count > 0 && real.count > 0);
        let mut ratios: Vec<(f64, u32)> =
            pairs.map(|(sim, real)| (value(sim) / value(real).max(1e-9), sim.max_bytes)).collect();
        ratios.sort_unstable_by(|left, right| left.0.total_cmp(&right.0));
        let far = |ratio: f64| ratio.ln().abs();
        let ends = [*ratios.first()?, *ratios.last()?];
        let farthest = if far(ends[0].0) > far(ends[1].0) { ends[0] } else { ends[1] };
        Some(BinRatios {
            median: ratios[ratios.len() / 2].0,
            farthest: farthest.0,
            farthest_bytes: farthest.1,
        })
    };
    Some(Distance { p50: apart(|bin| bin.slowdown_p50)?, p99: apart(|bin| bin.slowdown_p99)? })
}

impl SimulationResults {
    /// Returns the curves and figures of the simulation and the measurement.
    pub fn sections(&self, measured: &[ContenderRuns], workload: &Workload) -> Vec<Section> {
        let pairs: Vec<(&ContenderRuns, &SimulatedRun)> = measured
            .iter()
            .filter_map(|real| Some((real, self.runs.iter().find(|run| run.is_of(real))?)))
            .collect();
        let lines = || {
            pairs.iter().flat_map(|(real, run)| {
                let line = |label, is_reference, bins| by_size::Line {
                    label,
                    class: real.contender.class.to_owned(),
                    is_reference,
                    bins,
                    has_largest: real.run.largest_row,
                };
                let title = &real.contender.title;
                [
                    line(title.clone(), false, &real.run.bins[..]),
                    line(format!("{title}, simulated"), true, &run.bins[..]),
                ]
            })
        };
        let lines: Vec<_> = lines().collect();
        let charts = vec![
            by_size::chart(&lines, workload, "99th percentile of slowdown", |bin| bin.slowdown_p99),
            by_size::chart(&lines, workload, "Median slowdown", |bin| bin.slowdown_p50),
        ];
        let text = format!(
            "The same load in `homa sim`. Its hosts take {:.0} us for each packet and no processor time, so that the shortest RPC without load \
             takes as long as in the rack. The longest RPC without load takes {:.2} times its time in the rack",
            self.host_delay_ns as f64 / 1e3,
            self.unloaded_ratio[1]
        );
        vec![
            Section {
                heading: "Comparison with the simulator".to_owned(),
                text,
                table: by_size_table(&pairs),
                charts,
            },
            Section {
                heading: "Differences".to_owned(),
                text: "Simulated slowdown divided by measured slowdown, over all bins: 1 means equal"
                    .to_owned(),
                table: distance_table(&pairs),
                charts: Vec::new(),
            },
        ]
    }
}

fn by_size_table(pairs: &[(&ContenderRuns, &SimulatedRun)]) -> Table {
    let mut table = Table::new(&["bytes up to"]);
    for (real, _) in pairs {
        let title = &real.contender.title;
        table.head.extend(["P50", "simulated", "P99", "simulated"].map(|name| format!("{title} {name}")));
    }
    for row in 0..pairs.first().map_or(0, |(real, _)| real.run.bins.len()) {
        let first = &pairs[0].0.run;
        let is_largest = first.largest_row && row + 1 == first.bins.len();
        let mut cells =
            vec![if is_largest { "largest 1 %".to_owned() } else { first.bins[row].max_bytes.to_string() }];
        for (real, run) in pairs {
            let (real, run) = (&real.run.bins[row], run.bins.get(row));
            let of =
                |value: fn(&BinSummary) -> f64| run.map_or("-".to_owned(), |bin| short_number(value(bin)));
            cells.extend([
                short_number(real.slowdown_p50),
                of(|bin| bin.slowdown_p50),
                short_number(real.slowdown_p99),
                of(|bin| bin.slowdown_p99),
            ]);
        }
        table.rows.push(cells);
    }
    table
}

fn distance_table(pairs: &[(&ContenderRuns, &SimulatedRun)]) -> Table {
    let mut table =
        Table::new(&["", "P50", "P50 farthest", "P99", "P99 farthest", "mean slowdown", "unfinished"]);
    for (real, run) in pairs {
        let Some(distance) = run.distance else { continue };
        let farthest =
            |apart: BinRatios| format!("{:.2} (up to {} bytes)", apart.farthest, apart.farthest_bytes);
        table.rows.push(vec![
            real.contender.title.clone(),
            format!("{:.2}", distance.p50.median),
            farthest(distance.p50),
            format!("{:.2}", distance.p99.median),
            farthest(distance.p99),
            format!("{:.2} to {:.2}", run.slowdown_mean, real.run.slowdown_mean),
            run.unfinished.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use homa_switch::{Alpha, Buffer};

    use super::*;
    use crate::experiment::options::{Program, VsTcpOptions};

    fn bin(max_bytes: u32, count: u64, slowdown: f64) -> BinSummary {
        let (slowdown_p50, slowdown_p99) = (slowdown, 2.0 * slowdown);
        let (slowdown_mean, slowdown_p999) = (slowdown, slowdown);
        let (rtt_p50_us, rtt_p99_us) = (0.0, 0.0);
        BinSummary {
            max_bytes,
            count,
            slowdown_mean,
            slowdown_p50,
            slowdown_p99,
            slowdown_p999,
            rtt_p50_us,
            rtt_p99_us,
        }
    }

    #[test]
    fn the_distance_is_of_bins_that_both_have() {
        let simulated = [bin(1, 5, 1.0), bin(2, 5, 2.0), bin(3, 5, 9.0), bin(4, 0, 90.0)];
        let measured = [bin(1, 5, 4.0), bin(2, 5, 2.0), bin(3, 5, 3.0), bin(4, 5, 1.0)];
        let apart = BinRatios { median: 1.0, farthest: 0.25, farthest_bytes: 1 };
        assert_eq!(distance(&simulated, &measured), Some(Distance { p50: apart, p99: apart }));
        assert_eq!(distance(&simulated[3..], &measured[3..]), None);
    }

    fn is_wanted(change: impl FnOnce(&mut VsTcpOptions)) -> Result<bool> {
        let mut options = VsTcpOptions::new(Program { switch_config: |_| Ok(Default::default()) });
        change(&mut options);
        let VsTcpOptions { common, messages, .. } = &options;
        super::is_wanted(options.sim, &common.build.spec("x"), common, messages)
    }

    fn large(options: &mut VsTcpOptions) {
        options.common.build.hosts = 8;
        options.common.build.rate = 1_000_000_000;
        options.common.duration = 60.0;
    }

    #[test]
    fn what_is_cheap_is_simulated_unless_it_cannot_be() {
        assert!(
            is_wanted(|options| {
                options.common.build.hosts = 4;
                options.common.duration = 8.0;
            })
            .unwrap()
        );
        assert!(!is_wanted(large).unwrap());
        assert!(
            is_wanted(|options| {
                large(options);
                options.sim = SimulationMode::Always;
            })
            .unwrap()
        );
        assert!(!is_wanted(|options| options.sim = SimulationMode::Never).unwrap());
        assert!(!is_wanted(|options| options.messages.one_way = true).unwrap());
        assert!(!is_wanted(|options| options.common.build.switch = SwitchKind::LinuxBridge).unwrap());
        let error = is_wanted(|options| {
            options.messages.one_way = true;
            options.sim = SimulationMode::Always;
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("--one-way"), "{error}");
    }

    #[test]
    fn a_switch_is_the_same_in_the_simulator() {
        let buffer = Buffer::Shared { bytes: 50_000, alpha: Alpha::from_percent(50) };
        let real =
            homa_switch::SwitchConfig { buffer, mark_bytes: Some(9), priorities: 2, ..Default::default() };
        let switch = simulated_switch(&real);
        assert_eq!((switch.buffer, switch.queue_alpha), (Some(buffer), Some(QUEUE_ALPHA)));
        assert_eq!((switch.mark_bytes, switch.forwarding), (Some(9), real.forwarding));
        assert_eq!(switch.priorities, 2);
    }
}
