//! The oracle: an ideal schedule with immediate knowledge of every message, which needs no packets.
//!
//! Messages are modelled as a fluid. At every moment they are considered in the order of their remaining link
//! time, shortest first. A message is served at the full rate of the hosts' links if neither its sender's
//! uplink nor its receiver's downlink is serving an earlier message. A message may be interrupted anywhere.
//! Links between switches are never a bottleneck, nothing is lost, and there are no acknowledgements. A
//! message takes its minimum time plus the time during which it is not served.
//!
//! Bounds:
//!
//! - With [`OracleConfig::uplinks`] off, the downlinks are independent, and each uses the order with the
//!   smallest possible mean time on a single link (SRPT). No transport has a smaller mean time over the
//!   messages to any host, except for the nanoseconds by which messages of different lengths and distances
//!   differ on their way to that link. The bound may be far below what is possible, because a host may send
//!   to many others at the same time.
//! - With [`OracleConfig::uplinks`] on, which is the default, the schedule would be possible if packets could
//!   be divided. It is the ideal of published comparisons. No message is ever delayed by a longer one, so a
//!   transport can beat the oracle for one size only by preferring that size to shorter messages. For the
//!   mean over all messages it is not a strict bound, since the best choice of pairs is not always the greedy
//!   one.

use std::collections::BTreeSet;

/// Settings of the oracle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OracleConfig {
    /// Whether a host sends only one message at a time. Otherwise only receiving is limited.
    pub uplinks: bool,
}

impl Default for OracleConfig {
    fn default() -> OracleConfig {
        OracleConfig { uplinks: true }
    }
}

/// A host's end of a link.
#[derive(Debug, Default)]
struct End {
    serves: Option<u32>,
    /// If the end is idle, the time at which it became idle.
    free_ps: u64,
    /// Waiting messages by key.
    waiting: BTreeSet<(u64, u64, u32)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Fluid {
    from: u32,
    to: u32,
    arrived_ps: u64,
    /// Order among messages with the same remaining link time.
    sequence: u64,
    /// Remaining link time; if the message is being served, as of `served_ps`.
    needs_ps: u64,
    served_ps: u64,
}

/// The current schedule. Times are in picoseconds and never decrease.
#[derive(Debug)]
pub(crate) struct Schedule {
    hosts: usize,
    config: OracleConfig,
    /// All downlinks, followed by all uplinks.
    ends: Vec<End>,
    /// State of each message.
    fluids: Vec<Fluid>,
    sequence: u64,
    /// Ends whose message ended or was interrupted, to be reassigned.
    vacant: Vec<usize>,
    /// Messages whose service has started since the last query.
    begun: Vec<u32>,
}

impl Schedule {
    pub(crate) fn new(config: OracleConfig, hosts: usize) -> Schedule {
        Schedule {
            hosts,
            config,
            ends: (0..2 * hosts).map(|_| End::default()).collect(),
            fluids: Vec::new(),
            sequence: 0,
            vacant: Vec::new(),
            begun: Vec::new(),
        }
    }

    /// Starts a message that needs `needs_ps` of link time.
    pub(crate) fn start(&mut self, now_ps: u64, message: u32, from: u32, to: u32, needs_ps: u64) {
        if self.fluids.len() <= message as usize {
            self.fluids.resize(message as usize + 1, Fluid::default());
        }
        self.sequence += 1;
        self.fluids[message as usize] =
            Fluid { from, to, arrived_ps: now_ps, sequence: self.sequence, needs_ps, served_ps: 0 };
        self.wait(message);
        if self.has_precedence(message, now_ps) {
            self.serve(message, now_ps);
        }
        self.assign_vacant_ends(now_ps);
    }

    /// Returns the message that has ended at a host by now, if any, and the time of its end.
    pub(crate) fn end(&mut self, now_ps: u64, to: u32) -> Option<(u32, u64)> {
        let message = self.ends[to as usize].serves?;
        let ended_ps = self.ends_ps(message);
        if ended_ps > now_ps {
            return None;
        }
        self.vacate(message, ended_ps);
        self.assign_vacant_ends(now_ps);
        Some((message, ended_ps))
    }

    /// Returns a message whose service has started since the last query, and when it will end if it is not
    /// interrupted.
    pub(crate) fn take_started(&mut self) -> Option<(u32, u64)> {
        while let Some(message) = self.begun.pop() {
            if self.is_served(message) {
                return Some((message, self.ends_ps(message)));
            }
        }
        None
    }

    /// Returns whether a host is receiving nothing, and whether a message for it is waiting.
    pub(crate) fn state(&self, host: usize) -> (bool, bool) {
        (self.ends[host].serves.is_none(), !self.ends[host].waiting.is_empty())
    }

    fn ends_of(&self, message: u32) -> impl Iterator<Item = usize> + use<> {
        let fluid = &self.fluids[message as usize];
        let uplink = self.config.uplinks.then_some(self.hosts + fluid.from as usize);
        std::iter::once(fluid.to as usize).chain(uplink)
    }

    fn is_served(&self, message: u32) -> bool {
        self.ends[self.fluids[message as usize].to as usize].serves == Some(message)
    }

    fn ends_ps(&self, message: u32) -> u64 {
        let fluid = &self.fluids[message as usize];
        fluid.served_ps + fluid.needs_ps
    }

    fn key(&self, message: u32, now_ps: u64) -> (u64, u64, u32) {
        let fluid = &self.fluids[message as usize];
        let done_ps = if self.is_served(message) { now_ps.saturating_sub(fluid.served_ps) } else { 0 };
        (fluid.needs_ps.saturating_sub(done_ps), fluid.sequence, message)
    }

    /// Returns whether a waiting message precedes the messages that its two ends are serving.
    fn has_precedence(&self, message: u32, now_ps: u64) -> bool {
        let key = self.key(message, now_ps);
        self.ends_of(message)
            .all(|end| self.ends[end].serves.is_none_or(|other| key < self.key(other, now_ps)))
    }

    fn wait(&mut self, message: u32) {
        let fluid = &self.fluids[message as usize];
        let key = (fluid.needs_ps, fluid.sequence, message);
        for end in self.ends_of(message) {
            self.ends[end].waiting.insert(key);
        }
    }

    /// Serves a waiting message instead of the messages that its two ends are serving.
    fn serve(&mut self, message: u32, now_ps: u64) {
        let fluid = self.fluids[message as usize];
        let mut from_ps = fluid.arrived_ps;
        for end in self.ends_of(message) {
            if let Some(other) = self.ends[end].serves {
                self.fluids[other as usize].needs_ps = self.key(other, now_ps).0;
                self.vacate(other, now_ps);
                self.wait(other);
            }
            self.ends[end].waiting.remove(&(fluid.needs_ps, fluid.sequence, message));
            self.ends[end].serves = Some(message);
            from_ps = from_ps.max(self.ends[end].free_ps);
        }
        self.fluids[message as usize].served_ps = from_ps;
        self.begun.push(message);
    }

    fn vacate(&mut self, message: u32, now_ps: u64) {
        for end in self.ends_of(message) {
            self.ends[end].serves = None;
            self.ends[end].free_ps = now_ps;
            self.vacant.push(end);
        }
    }

    /// Assigns each vacant end the first of its messages that precedes the messages being served, until there
    /// is no such message. All ends agree on the order of any two messages. The function therefore
    /// terminates, and the resulting pairs do not depend on the order of the ends.
    fn assign_vacant_ends(&mut self, now_ps: u64) {
        while let Some(end) = self.vacant.pop() {
            let winner =
                self.ends[end].waiting.iter().find(|key| self.has_precedence(key.2, now_ps)).map(|key| key.2);
            if let Some(message) = winner {
                self.serve(message, now_ps);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::*;
    use crate::payload::random_numbers;

    const HOSTS: usize = 6;

    /// Returns the reference result, computed directly from the definition: all messages are considered in
    /// the order of their remaining link time.
    fn served_by_definition(schedule: &Schedule, open: &[u32], now_ps: u64) -> Vec<u32> {
        let mut keys: Vec<_> = open.iter().map(|&message| schedule.key(message, now_ps)).collect();
        keys.sort_unstable();
        let mut taken = BTreeSet::new();
        let mut served = Vec::new();
        for (.., message) in keys {
            if schedule.ends_of(message).all(|end| !taken.contains(&end)) {
                taken.extend(schedule.ends_of(message));
                served.push(message);
            }
        }
        served.sort_unstable();
        served
    }

    /// Runs random messages, compares the pairs with the definition at every step, and returns the time of
    /// each message.
    fn run(config: OracleConfig, seed: u64) -> Vec<u64> {
        let mut random = random_numbers(seed, 1);
        let mut starts_ps = 0;
        let arrivals: Vec<(u64, u32, u32, u64)> = std::iter::repeat_with(|| {
            starts_ps += random.random_range(0..300);
            let from = random.random_range(0..HOSTS as u32);
            let to = (from + random.random_range(1..HOSTS as u32)) % HOSTS as u32;
            (starts_ps, from, to, random.random_range(1..1_500))
        })
        .take(200)
        .collect();
        let mut schedule = Schedule::new(config, HOSTS);
        let (mut open, mut took) = (Vec::new(), vec![0; arrivals.len()]);
        let mut started = 0;
        while started < arrivals.len() || !open.is_empty() {
            let next_end = open.iter().filter(|&&message| schedule.is_served(message));
            let next_end = next_end.map(|&message| schedule.ends_ps(message)).min().unwrap_or(u64::MAX);
            let next = arrivals.get(started).filter(|next| next.0 < next_end);
            let now_ps = next.map_or(next_end, |next| next.0);
            if let Some(&(_, from, to, needs_ps)) = next {
                schedule.start(now_ps, started as u32, from, to, needs_ps);
                open.push(started as u32);
                started += 1;
            } else {
                let ended: Vec<_> = (0..HOSTS as u32).filter_map(|host| schedule.end(now_ps, host)).collect();
                assert!(!ended.is_empty());
                for (message, at_ps) in ended {
                    took[message as usize] = at_ps - schedule.fluids[message as usize].arrived_ps;
                    open.retain(|&other| other != message);
                }
            }
            let mut served: Vec<u32> =
                open.iter().copied().filter(|&message| schedule.is_served(message)).collect();
            served.sort_unstable();
            assert_eq!(served, served_by_definition(&schedule, &open, now_ps), "seed {seed} at {now_ps}");
        }
        took
    }

    #[test]
    fn the_pairs_are_those_of_the_definition_at_every_step() {
        for seed in 0..50 {
            let both = run(OracleConfig { uplinks: true }, seed);
            let downlinks = run(OracleConfig { uplinks: false }, seed);
            assert!(downlinks.iter().sum::<u64>() <= both.iter().sum(), "seed {seed}");
        }
    }

    #[test]
    fn a_short_message_interrupts_a_long_one_which_ends_later_by_as_much() {
        let mut schedule = Schedule::new(OracleConfig::default(), 3);
        schedule.start(0, 0, 0, 2, 1_000);
        schedule.start(400, 1, 1, 2, 100);
        assert_eq!(schedule.end(499, 2), None);
        assert_eq!(schedule.end(500, 2), Some((1, 500)));
        assert_eq!(schedule.take_started(), Some((0, 1_100)));
        assert_eq!(schedule.end(1_100, 2), Some((0, 1_100)));
    }
}
