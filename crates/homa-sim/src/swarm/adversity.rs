//! Additional faults, chosen from a separate random stream: dead directions, slow driver queues, surges and
//! forged incarnations.

use homa_proto::{MS, US};
use rand::Rng;

use super::plan::{Weather, pick};
use crate::driver_queue::Drain;
use crate::payload::random_numbers;

/// Calls that start at the same time: client, server and number of calls.
pub(super) type Surge = (usize, usize, u32);

/// The additional faults of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Adversity {
    /// Mean time between failures of one direction between two hosts. Each failure is temporary.
    pub(super) mean_one_way_gap_ns: Option<u64>,
    /// A direction (from, to) that delivers nothing until all calls have ended.
    pub(super) dead: Option<(usize, usize)>,
    /// Mean time between slowdowns or stops of a driver queue for one destination. Each is temporary.
    pub(super) mean_driver_gap_ns: Option<u64>,
    /// How a slow queue drains.
    pub(super) drain: Drain,
    /// Maximum duration of a dead direction and of a slow queue.
    pub(super) max_while_ns: u64,
    /// The surge at the end.
    pub(super) surge: Option<Surge>,
    /// Whether packets with forged incarnations arrive.
    pub(super) forges: bool,
}

impl Adversity {
    pub(super) fn new(seed: u64, weather: Weather, hosts: usize, turmoil_ns: u64) -> Adversity {
        let rng = &mut random_numbers(seed, 0x42);
        let stormy = weather == Weather::Storm;
        let gaps = [None, None, Some(turmoil_ns / 10), Some(turmoil_ns / 3)];
        let mut gap = || pick(rng, &gaps).filter(|_| stormy);
        let (mean_one_way_gap_ns, mean_driver_gap_ns) = (gap(), gap());
        let from = rng.random_range(0..hosts);
        let way = (from, (from + rng.random_range(1..hosts)) % hosts);
        let slow = |packet_ns| Drain::Slow { packet_ns };
        let drain = pick(rng, &[Drain::Stopped, slow(20 * US), slow(200 * US), slow(2 * MS)]);
        let forger_in = if stormy { 6 } else { 2 };
        Adversity {
            mean_one_way_gap_ns,
            dead: (stormy && rng.random_range(0..8) == 0).then_some(way),
            mean_driver_gap_ns,
            drain,
            max_while_ns: pick(rng, &[turmoil_ns / 20, turmoil_ns]),
            surge: (rng.random_range(0..5) == 0).then_some((way.0, way.1, pick(rng, &[200, 400]))),
            forges: rng.random_range(0..forger_in) == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storms_have_each_fault_and_fair_weather_has_surges_and_forgers_only() {
        let all = |weather| (0..100).map(move |seed| Adversity::new(seed, weather, 3, 1_000));
        let some = |weather, has: fn(&Adversity) -> bool| all(weather).any(|adversity| has(&adversity));
        let faults: [fn(&Adversity) -> bool; 5] = [
            |adversity| adversity.mean_one_way_gap_ns.is_some(),
            |adversity| adversity.mean_driver_gap_ns.is_some(),
            |adversity| adversity.dead.is_some(),
            |adversity| adversity.surge.is_some(),
            |adversity| adversity.forges,
        ];
        assert_eq!(faults.map(|has| some(Weather::Storm, has)), [true; 5]);
        assert_eq!(faults.map(|has| some(Weather::Fair, has)), [false, false, false, true, true]);
        assert!(all(Weather::Storm).all(|adversity| adversity.dead.is_none_or(|(from, to)| from != to)));
    }
}
