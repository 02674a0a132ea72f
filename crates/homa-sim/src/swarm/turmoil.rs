//! The faults that happen to hosts and paths while the load runs.

use std::collections::BTreeMap;

use homa_proto::{MS, SEC, Time};
use rand::Rng;
use rand_pcg::Pcg64;

use super::anything::Anything;
use super::forger::Forger;
use super::hostile::HostilePeer;
use super::plan::{Clocks, Plan, pick};
use crate::fault::PathLimit;
use crate::network::Network;
use crate::payload::random_numbers;

/// Two days: further ahead than the deadline of any timer.
const LEAP_NS: i64 = 2 * 86_400 * SEC as i64;
/// Maximum lead of a clock if finished IDs must be remembered: 30 s minus the longest delay (5 s), stall (4
/// s) and queue.
const MAX_AHEAD_NS: i64 = 10 * SEC as i64;
/// About two years in milliseconds. Half of all incarnations count as later than a given incarnation, and a
/// few such steps stay within that half.
const YEARS_MS: i64 = 1 << 36;

/// Number of faults of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mishaps {
    pub(super) crashes: u64,
    pub(super) stalls: u64,
    pub(super) clock_steps: u64,
    /// Requests that unverified peers sent.
    pub(super) unverified_peers: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mishap {
    Crash,
    Restart(usize),
    Partition,
    Stall,
    ClockStep,
    Path,
    Peak,
    OneWay,
    OneWayEnd(usize, usize),
    DriverQueue,
    DriverQueueEnd(usize, usize),
}

/// Schedules and causes the faults of one run.
struct Turmoil<'a> {
    plan: &'a Plan,
    rng: Pcg64,
    agenda: BTreeMap<(Time, Mishap), ()>,
    /// Total forward step of each host's clock, and its wall clock in milliseconds.
    ahead_ns: Vec<i64>,
    wall_ahead_ms: Vec<i64>,
    counts: Mishaps,
}

/// Runs the load with all faults until the plan's time is over.
pub(super) fn turmoil(network: &mut Network<Anything>, plan: &Plan) -> Mishaps {
    let mut turmoil = Turmoil {
        plan,
        rng: random_numbers(plan.network.seed, 0xc4a5),
        agenda: BTreeMap::new(),
        ahead_ns: vec![0; plan.network.hosts],
        wall_ahead_ms: vec![0; plan.network.hosts],
        counts: Mishaps::default(),
    };
    let kinds = [
        Mishap::Crash,
        Mishap::Partition,
        Mishap::Stall,
        Mishap::ClockStep,
        Mishap::Path,
        Mishap::Peak,
        Mishap::OneWay,
        Mishap::DriverQueue,
    ];
    for mishap in kinds {
        turmoil.schedule(Time::ZERO, mishap);
    }
    let end = Time::from_ns(plan.turmoil_ns);
    let mut attackers = Attackers { hostile: HostilePeer::new(plan), forger: Forger::new(plan) };
    while let Some(((at, mishap), ())) = turmoil.agenda.pop_first() {
        if at >= end {
            break;
        }
        attackers.run_until(network, at);
        turmoil.apply_mishap(network, mishap);
        turmoil.schedule(at, mishap);
    }
    attackers.run_until(network, end);
    turmoil.counts.unverified_peers = attackers.hostile.map_or(0, |hostile| hostile.unverified_peers);
    for host in 0..plan.network.hosts {
        if network.host(host).endpoint().is_none() {
            turmoil.restart(network, host);
        }
    }
    turmoil.counts
}

/// Senders other than the honest hosts.
struct Attackers {
    hostile: Option<HostilePeer>,
    forger: Option<Forger>,
}

impl Attackers {
    /// Runs the network until `until`, with the attackers' packets.
    fn run_until(&mut self, network: &mut Network<Anything>, until: Time) {
        loop {
            let hostile = self.hostile.as_ref().and_then(HostilePeer::next).filter(|&at| at < until);
            let forger = self.forger.as_ref().and_then(Forger::next).filter(|&at| at < until);
            let Some(at) = hostile.into_iter().chain(forger).min() else { break };
            network.run_until(at);
            match &mut self.forger {
                Some(forger) if forger.next() == Some(at) => forger.act(network),
                _ => self.hostile.as_mut().expect("its packets are the next").act(network),
            }
        }
        network.run_until(until);
    }
}

impl Turmoil<'_> {
    /// Schedules the next fault of a kind, if the plan includes that kind.
    fn schedule(&mut self, now: Time, mishap: Mishap) {
        let mean_ns = match mishap {
            Mishap::Crash => self.plan.mean_crash_gap_ns,
            Mishap::Partition => self.plan.mean_partition_gap_ns,
            Mishap::Stall => self.plan.mean_stall_gap_ns,
            Mishap::ClockStep => self.plan.mean_clock_gap_ns,
            Mishap::Path => self.plan.mean_path_gap_ns,
            Mishap::Peak => self.plan.mean_peak_gap_ns,
            Mishap::OneWay => self.plan.adversity.mean_one_way_gap_ns,
            Mishap::DriverQueue => self.plan.adversity.mean_driver_gap_ns,
            Mishap::Restart(_) | Mishap::OneWayEnd(..) | Mishap::DriverQueueEnd(..) => None,
        };
        if let Some(mean_ns) = mean_ns {
            self.agenda.insert((now + self.rng.random_range(0..=2 * mean_ns), mishap), ());
        }
    }

    fn apply_mishap(&mut self, network: &mut Network<Anything>, mishap: Mishap) {
        let hosts = self.plan.network.hosts;
        let host = self.rng.random_range(0..hosts);
        match mishap {
            Mishap::Crash if network.host(host).endpoint().is_some() => {
                network.crash(host);
                self.counts.crashes += 1;
                let back = network.now() + self.rng.random_range(0..self.plan.max_outage_ns);
                self.agenda.insert((back, Mishap::Restart(host)), ());
            }
            Mishap::Crash => {}
            Mishap::Restart(host) => self.restart(network, host),
            Mishap::Partition => {
                let to = self.rng.random_range(0..hosts);
                network.set_blocked(host, to, self.rng.random());
            }
            Mishap::Stall => {
                self.counts.stalls += 1;
                let ns = self.rng.random_range(MS..=self.plan.max_stall_ns);
                network.stall(host, ns, self.rng.random());
            }
            Mishap::ClockStep => self.step_clock(network, host),
            Mishap::Path => {
                let to = self.rng.random_range(0..hosts);
                let bytes = pick(&mut self.rng, &[200, 576, 1_280, 1_500]);
                let limit = PathLimit { bytes, told: self.rng.random() };
                network.set_path_limit(host, to, self.rng.random::<bool>().then_some(limit));
            }
            Mishap::Peak => {
                let calls = self.plan.peak_calls;
                network.act(host, |app, host| app.peak(host, calls));
            }
            Mishap::OneWay => {
                let to = self.other(host);
                network.set_blocked(host, to, true);
                network.set_blocked(to, host, false);
                self.end_later(network.now(), Mishap::OneWayEnd(host, to));
            }
            Mishap::OneWayEnd(from, to) => network.set_blocked(from, to, false),
            Mishap::DriverQueue => {
                let to = self.other(host);
                network.set_driver_queue(host, to, Some(self.plan.adversity.drain));
                self.end_later(network.now(), Mishap::DriverQueueEnd(host, to));
            }
            Mishap::DriverQueueEnd(from, to) => network.set_driver_queue(from, to, None),
        }
    }

    /// Returns a random host other than this one.
    fn other(&mut self, host: usize) -> usize {
        let hosts = self.plan.network.hosts;
        (host + self.rng.random_range(1..hosts)) % hosts
    }

    fn end_later(&mut self, now: Time, end: Mishap) {
        let ns = self.rng.random_range(0..=self.plan.adversity.max_while_ns);
        self.agenda.insert((now + ns, end), ());
    }

    fn step_clock(&mut self, network: &mut Network<Anything>, host: usize) {
        let sizes_ns = [1, MS as i64, 100 * MS as i64, 3 * SEC as i64];
        let step = match self.plan.clocks {
            Clocks::Steady => return,
            Clocks::Leap if self.rng.random() => self.rng.random_range(SEC as i64..=LEAP_NS),
            Clocks::Step | Clocks::Leap => {
                let most = pick(&mut self.rng, &sizes_ns);
                let size = self.rng.random_range(0..=most);
                if self.rng.random() { size } else { -size }
            }
        };
        // An endpoint ignores a backward step, so only forward steps add up.
        let ahead = &mut self.ahead_ns[host];
        if self.plan.clocks == Clocks::Step && *ahead + step.max(0) > MAX_AHEAD_NS {
            return;
        }
        *ahead += step.max(0);
        self.counts.clock_steps += 1;
        network.step_clock(host, step);
    }

    /// Restarts a host with an incarnation from its wall clock.
    fn restart(&mut self, network: &mut Network<Anything>, host: usize) {
        let steps_ms = [0, 0, 1, -1, 10_000, -10_000, YEARS_MS, -YEARS_MS];
        if self.plan.wall_steps {
            self.wall_ahead_ms[host] += pick(&mut self.rng, &steps_ms);
        }
        let wall_ms = self.plan.wall_ms + network.now().as_ns() / MS;
        let incarnation = wall_ms.wrapping_add_signed(self.wall_ahead_ms[host]) % (1 << 40);
        network.restart_as(host, incarnation.max(1));
    }
}
