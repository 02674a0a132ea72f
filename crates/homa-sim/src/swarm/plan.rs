//! The choices of a seed: the network, the hosts' settings, and the faults.

use homa_proto::{Config, FinishedPolicy, MS, SEC, US};
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_pcg::Pcg64;

use super::adversity::{Adversity, Surge};
use super::options::SwarmOptions;
use crate::fault::FaultProfile;
use crate::network::NetworkConfig;
use crate::payload::{PayloadMode, random_numbers};
use crate::topology::Topology;

/// The kinds of faults that a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weather {
    /// No loss, delay, crash, partition or closed port. No peer may give up on another.
    Fair,
    /// A few packets are lost, duplicated or late. RPCs take longer but still succeed.
    Drizzle,
    /// All faults that the seed chooses.
    Storm,
}

/// The resource that a hostile peer exhausts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hostile {
    /// RPCs and memory.
    HalfOpen,
    /// Granted bytes, and the number of messages that have grants.
    Trickle,
    /// IDs of finished RPCs.
    Ids,
    /// Retransmitted bytes.
    Asks,
    /// The resources of a whole prefix of unverified addresses.
    Prefix,
    /// No resource: only unverified peers send requests, as in a run with `Prefix`.
    Unverified,
}

/// Behaviour of the hosts' clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clocks {
    /// They run evenly.
    Steady,
    /// They step back and forth. Forward steps add up to less than the margin by which the memory of finished
    /// IDs outlasts packets in the network.
    Step,
    /// They jump ahead by up to two days, after which no finished ID can still be remembered.
    Leap,
}

/// Maximum time that links and hosts need for the work left by the turmoil. It covers the longest delays of
/// the network, RESENDs sent to slow peers in turn, and messages whose lost bytes occupy nearly all of their
/// window. Such a message advances by a few hundred bytes per round trip, and while other bytes arrive, no
/// RESEND requests the lost ones.
const DRAIN_NS: u64 = 120 * SEC;

/// Everything that the seed determines for a run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) network: NetworkConfig,
    pub(super) weather: Weather,
    pub(super) turmoil_ns: u64,
    pub(super) mean_gap_ns: u64,
    pub(super) max_message: u32,
    pub(super) mean_crash_gap_ns: Option<u64>,
    /// Maximum time between a crash and the restart.
    pub(super) max_outage_ns: u64,
    pub(super) mean_partition_gap_ns: Option<u64>,
    pub(super) mean_stall_gap_ns: Option<u64>,
    /// Mean time between reductions of the packet size on a path; `None`: no reductions.
    pub(super) mean_path_gap_ns: Option<u64>,
    /// Mean time between bursts in which a host starts many calls at once, and the number of calls in a
    /// burst; `None`: there are no bursts.
    pub(super) mean_peak_gap_ns: Option<u64>,
    pub(super) peak_calls: u32,
    pub(super) max_stall_ns: u64,
    pub(super) clocks: Clocks,
    pub(super) mean_clock_gap_ns: Option<u64>,
    /// Whether the wall clock of a restarting host may show any time.
    pub(super) wall_steps: bool,
    /// Initial time of the wall clocks, in milliseconds.
    pub(super) wall_ms: u64,
    /// Whether hosts sometimes receive a report, true or false, that a peer is unreachable.
    pub(super) icmp: bool,
    /// Whether ports are closed and reopened.
    pub(super) closes_ports: bool,
    /// Number of server ports of each host.
    pub(super) server_ports: u16,
    /// Number of client ports of each host.
    pub(super) client_ports: usize,
    /// A host whose server accepts requests and never answers.
    pub(super) mute: Option<usize>,
    /// The attack of the hostile peer. Without other faults, the attack must hardly affect the honest hosts.
    pub(super) hostile: Option<Hostile>,
    pub(super) adversity: Adversity,
}

impl Plan {
    /// Returns whether these settings and clocks allow a request to run twice in one incarnation of a server.
    pub(super) fn may_run_again(&self) -> bool {
        let forgets = |config: &Config| config.finished_policy == FinishedPolicy::ForgetOldest;
        let hosts = &self.network.host_protocols;
        hosts.iter().any(forgets) || forgets(&self.network.protocol) || self.clocks == Clocks::Leap
    }

    /// Returns the maximum time between the last fault or new call and the end of every call; `None`: a call
    /// may take as long as its server does.
    pub(super) fn call_bound_ns(&self) -> Option<u64> {
        let config = &self.network.protocol;
        // A clock may step forward at the end of the longest stall, and the turmoil's queues drain within
        // `DRAIN_NS`.
        (self.weather == Weather::Storm).then_some(2 * config.max_stall_ns + DRAIN_NS)
    }

    /// Returns the maximum time that any host remembers finished IDs.
    pub(super) fn lifetime_ns(&self) -> u64 {
        self.network.protocol.max_packet_lifetime_ns
    }
}

pub(super) fn pick<T: Copy>(rng: &mut Pcg64, values: &[T]) -> T {
    *values.choose(rng).expect("there are values")
}

/// Returns `None` or one of the two times; always `None` without a storm.
fn sometimes(rng: &mut Pcg64, weather: Weather, values: [u64; 2]) -> Option<u64> {
    let chosen = pick(rng, &[None, None, Some(values[0]), Some(values[1])]);
    chosen.filter(|_| weather == Weather::Storm)
}

/// Number of unverified peers that send a request in a run with requests from many addresses.
pub(super) const UNVERIFIED_PEERS: u32 = 40;

/// One of this number of parts of a table is out of reach of a single peer and of a single prefix (SHARE-2).
const FREE_PART: u32 = 8;

/// Returns an upper bound on the blocks of finished IDs that a host needs for all others. Each of these starts
/// `calls` calls on average.
fn honest_blocks(hosts: usize, calls: u32, surge: Option<Surge>) -> u32 {
    let surge_calls = surge.map_or(0, |(_, _, calls)| calls);
    // A quarter is added because calls start at random intervals.
    let of_hosts = hosts as u32 * blocks_of(calls * 5 / 4) + blocks_of(surge_calls);
    // An unverified peer sends one request.
    of_hosts + UNVERIFIED_PEERS
}

/// Returns the maximum number of blocks that the IDs of successive calls take. A block has the IDs of 32 calls.
fn blocks_of(calls: u32) -> u32 {
    calls.div_ceil(32) + 1
}

pub(super) fn plan(seed: u64, options: SwarmOptions) -> Plan {
    let rng = &mut random_numbers(seed, 0x5a);
    let weather = match rng.random_range(0..8) {
        _ if options.corruption => Weather::Storm,
        0 => Weather::Fair,
        1 => Weather::Drizzle,
        _ => Weather::Storm,
    };
    // One run in five is longer, so that packets delayed by seconds reach hosts that are still active.
    let stretch = pick(rng, &[1, 1, 1, 1, 20]);
    // If no peer may give up, the links must not be overloaded for longer than the shortest timeout.
    let stretch = if weather == Weather::Storm { stretch } else { 1 };
    let max_message = pick(rng, &[100, 5_000, 60_000, 400_000, 4_000_000]);
    let mut network = network(rng, seed);
    network.check_every = options.check_every;
    network.faults = faults(rng, weather, options);
    let hosts = network.hosts;
    let wall_ms = pick(rng, &[1, (1 << 40) - 100, 1_700_000_000_000]);
    let settings = settings(rng, &network, weather, max_message, wall_ms % (1 << 40));
    (network.protocol, network.host_protocols) = settings;
    if weather != Weather::Storm {
        network.link.queue_bytes = 1 << 30;
    } else if rng.random_range(0..8) == 0 {
        // If the queue is shorter than about eight packets, not all packets of an answer ever arrive.
        network.receive_queue_packets = pick(rng, &[8, 30, 200]);
    }
    // A refused request is retransmitted as a whole again and again. A few such requests would account for
    // all packets of a run.
    let refuses = |config: &Config| config.max_finished_blocks < 100 || config.max_rpcs < 100;
    let slow = refuses(&network.protocol) || network.host_protocols.iter().any(refuses);
    let gaps = if max_message > 1_000_000 { [4 * MS, 8 * MS, 16 * MS] } else { [500 * US, 2 * MS, 8 * MS] };
    let mean_gap_ns = if slow { 5 * MS } else { pick(rng, &gaps) };
    let clocks = pick(rng, &[Clocks::Steady, Clocks::Steady, Clocks::Step, Clocks::Step, Clocks::Leap]);
    let clocks = if weather == Weather::Storm { clocks } else { Clocks::Steady };
    let stormy = weather == Weather::Storm;
    let mute = (stormy && rng.random_range(0..6) == 0).then(|| rng.random_range(0..hosts));
    // A separate random stream, so that the hostile peer does not change the rest of the run.
    let hostile = hostile(&mut random_numbers(seed, 0x41), weather);
    let adversity = Adversity::new(seed, weather, hosts, options.turmoil_ns * stretch);
    if hostile.is_some() {
        // Limits low enough for the hostile peer to reach them. Without other faults, what it cannot take must
        // suffice for the honest hosts, since then none of their calls may fail.
        let calls = (options.turmoil_ns / mean_gap_ns) as u32;
        let blocks = if stormy { 0 } else { honest_blocks(hosts, calls, adversity.surge) };
        for config in network.host_protocols.iter_mut().chain([&mut network.protocol]) {
            config.max_rpcs = config.max_rpcs.min(512);
            config.max_finished_blocks = config.max_finished_blocks.min((blocks * FREE_PART).max(256));
            // A host remembers the hostile peer for as long as it remembers the peer's IDs. The hostile peer
            // must not take the place of an honest peer.
            config.max_peers = config.max_peers.max(8);
        }
    }
    if adversity.surge.is_some() {
        // The hostile peer opens more RPCs than the tables would otherwise have room for.
        let hosts = network.host_protocols.iter_mut().chain([&mut network.protocol]);
        hosts.for_each(|config| config.reserve_rpcs = 0);
    }
    Plan {
        weather,
        turmoil_ns: options.turmoil_ns * stretch,
        mean_gap_ns: mean_gap_ns * stretch,
        max_message,
        mean_crash_gap_ns: sometimes(rng, weather, [20 * MS * stretch, 80 * MS * stretch]),
        max_outage_ns: pick(rng, &[2 * MS, 30 * MS, 30 * MS, 3 * SEC]),
        mean_partition_gap_ns: sometimes(rng, weather, [20 * MS * stretch, 80 * MS * stretch]),
        mean_stall_gap_ns: sometimes(rng, weather, [20 * MS * stretch, 80 * MS * stretch]),
        mean_path_gap_ns: sometimes(rng, weather, [20 * MS * stretch, 80 * MS * stretch]),
        mean_peak_gap_ns: sometimes(rng, weather, [100 * MS * stretch, 400 * MS * stretch]),
        peak_calls: pick(rng, &[20, 100, 400]),
        max_stall_ns: pick(rng, &[2 * MS, 40 * MS, 4 * SEC]),
        clocks,
        mean_clock_gap_ns: (clocks != Clocks::Steady).then(|| pick(rng, &[30 * MS, 100 * MS]) * stretch),
        wall_steps: rng.random(),
        wall_ms,
        icmp: sometimes(rng, weather, [0, 0]).is_some() && rng.random(),
        closes_ports: sometimes(rng, weather, [0, 0]).is_some() && rng.random(),
        server_ports: rng.random_range(1..=3),
        client_ports: rng.random_range(1..=3),
        mute,
        hostile,
        adversity,
        network,
    }
}

/// Decides whether the run has a hostile peer. One run in four has one. Of the runs without other faults, in
/// which its effect is visible, one in two has one.
fn hostile(rng: &mut Pcg64, weather: Weather) -> Option<Hostile> {
    let has_one = match weather {
        Weather::Fair => rng.random(),
        Weather::Drizzle => false,
        Weather::Storm => rng.random_range(0..4) == 0,
    };
    let kinds =
        [Hostile::HalfOpen, Hostile::Trickle, Hostile::Ids, Hostile::Asks, Hostile::Prefix, Hostile::Prefix];
    let kind = pick(rng, &kinds);
    has_one.then_some(kind)
}

fn network(rng: &mut Pcg64, seed: u64) -> NetworkConfig {
    let hosts = rng.random_range(2..=6);
    let mut network = NetworkConfig::new(seed, hosts);
    network.topology = if hosts == 2 && rng.random() {
        Topology::BackToBack
    } else {
        Topology::Switch { delay_ns: pick(rng, &[0, 250, 10_000]) }
    };
    network.link.rate_bps = pick(rng, &[1, 10, 25, 100]) * 1_000_000_000;
    network.link.propagation_ns = pick(rng, &[0, 500, 20 * US, MS]);
    network.link.queue_bytes = pick(rng, &[20_000, 200_000, 2_000_000]);
    network.nic_priorities = rng.random();
    network.nic_queue_bytes = pick(rng, &[1, 4_500, 1_000_000]).min(network.link.queue_bytes / 2);
    network.receive_delay_ns = pick(rng, &[0, 500, 50 * US]);
    network.burst_ns = pick(rng, &[0, 0, 2 * US, 300 * US]);
    network.payload = PayloadMode::Real;
    network
}

fn faults(rng: &mut Pcg64, weather: Weather, options: SwarmOptions) -> FaultProfile {
    let (rates, delays) = match weather {
        Weather::Fair => return FaultProfile::default(),
        Weather::Drizzle => ([0.0, 0.01, 0.01, 0.03, 0.05], [10 * US, 500 * US, 500 * US, 3 * MS]),
        Weather::Storm => ([0.0, 0.0, 0.01, 0.05, 0.3], [10 * US, 500 * US, 20 * MS, 5 * SEC]),
    };
    FaultProfile {
        loss: pick(rng, &rates),
        duplication: pick(rng, &rates),
        reordering: pick(rng, &rates),
        reordering_delay_ns: (0, pick(rng, &delays)),
        corruption: if options.corruption { pick(rng, &[0.001, 0.05]) } else { 0.0 },
    }
}

/// Chooses one protocol configuration for all hosts, or one for each.
fn settings(
    rng: &mut Pcg64,
    network: &NetworkConfig,
    weather: Weather,
    max_message: u32,
    wall_ms: u64,
) -> (Config, Vec<Config>) {
    let fit = |mut config: Config, rng: &mut Pcg64| {
        // A few hundred packets per message are enough for a test.
        config.max_packet = config.max_packet.max(max_message / 300);
        match weather {
            Weather::Storm => tighten_limits(rng, &mut config),
            Weather::Fair | Weather::Drizzle => config.client_silence_ns = 2 * SEC,
        }
        config
    };
    let common = protocol(rng, network.link.rate_bps, max_message);
    // The lifetime must exceed the longest delay in the network plus the delays of a stalled host and of a
    // fast clock. Otherwise duplicates cannot be recognised. It is the same on all hosts, as in a network
    // under one administration.
    let lifetime_ns = pick(rng, &[30 * SEC, 60 * SEC]);
    let incarnation = pick(rng, &[0, wall_ms, wall_ms, wall_ms]);
    // If no peer may give up on another, clients wait for answers that never come.
    let max_stall_ns = match weather {
        Weather::Storm => pick(rng, &[300 * MS, SEC, 3 * SEC]),
        Weather::Fair | Weather::Drizzle => common.max_stall_ns,
    };
    let common =
        Config { max_packet_lifetime_ns: lifetime_ns, incarnation, max_stall_ns, ..fit(common, rng) };
    let differ = rng.random_range(0..3) == 0;
    let kernels = pick(rng, &[0, 0, 30, 50]);
    let host = |rng: &mut Pcg64| {
        let mut config = common.clone();
        if differ {
            config = fit(protocol(rng, network.link.rate_bps, max_message), rng);
            config.max_packet_lifetime_ns = lifetime_ns;
            config.max_stall_ns = common.max_stall_ns;
            // A waiting client must wait longer than a peer that sends RESENDs.
            (config.incarnation, config.client_silence_ns) = (common.incarnation, common.client_silence_ns);
        }
        if rng.random_range(0..100) < kernels {
            config.incarnation = 0;
        }
        config
    };
    let hosts =
        if differ || kernels > 0 { (0..network.hosts).map(|_| host(rng)).collect() } else { Vec::new() };
    (common, hosts)
}

/// Chooses settings that may be unreasonable, but obey their rules.
fn protocol(rng: &mut Pcg64, rate_bps: u64, max_message: u32) -> Config {
    let num_priorities = rng.random_range(1..=8);
    let mbps = (rate_bps / 1_000_000) as u32;
    Config {
        unsched_bytes: pick(rng, &[1, 1_000, 10_000, 40_000, 1_000_000]),
        // About a hundred grants per message are enough for a test.
        window: pick(rng, &[0, 0, (max_message / 50).max(3_000), 50_000]),
        max_incoming: pick(rng, &[1, 2_000, 50_000, 400_000]).max(max_message / 50),
        max_overcommit: pick(rng, &[1, 2, 8, 100]),
        min_grant_increment: pick(rng, &[0, 1, 10_000]),
        fifo_grant_increment: pick(rng, &[0, 1_000, 50_000]),
        grant_fifo_fraction: pick(rng, &[0, 50, 499]),
        pacer_fifo_fraction: pick(rng, &[0, 50, 499]),
        num_priorities,
        max_sched_prio: rng.random_range(0..num_priorities),
        cutoff_interval_ns: pick(rng, &[0, MS, 100 * MS]),
        cutoff_min_bytes: pick(rng, &[0, 10_000, 1_000_000]),
        link_mbps: pick(rng, &[None, Some(mbps), Some(mbps * 2), Some(mbps.div_ceil(3))]),
        defer_min_bytes: pick(rng, &[0, 1_000, 100_000]),
        max_message,
        max_packet: pick(rng, &[100, 300, 1_480, 1_480, 9_000]),
        client_silence_ns: pick(rng, &[50 * MS, 2 * SEC]),
        ..Config::default()
    }
}

/// Sometimes tightens limits, usually only one, so that its effect is visible.
fn tighten_limits(rng: &mut Pcg64, config: &mut Config) {
    for _ in 0..pick(rng, &[1, 1, 1, 4]) {
        tighten_one(rng, config);
    }
}

fn tighten_one(rng: &mut Pcg64, config: &mut Config) {
    let max_message = config.max_message;
    match rng.random_range(0..16) {
        0 => config.max_rpcs = pick(rng, &[1, 2, 20]),
        1 => config.max_outgoing_bytes = u64::from(max_message) * 2,
        // Each message counts as at least one kilobyte, and requests may use three quarters of the limit.
        2 => config.max_incoming_bytes = (u64::from(max_message) * 2).max(2_000),
        3 => config.max_peers = pick(rng, &[1, 2]),
        4 => config.max_acks_per_peer = 1,
        5 => config.max_gaps = pick(rng, &[1, 3]),
        6 => config.max_retransmits = 1,
        7 => config.reap_limit = 1,
        8 => config.max_control_packets = pick(rng, &[1, 4]),
        9 => config.max_finished_blocks = pick(rng, &[1, 4]),
        10 => {
            config.max_finished_blocks = pick(rng, &[1, 4]);
            config.finished_policy = FinishedPolicy::ForgetOldest;
        }
        11 => config.window_total = pick(rng, &[(max_message / 50).max(3_000), 50_000, 1_000_000]),
        _ => {}
    }
}
