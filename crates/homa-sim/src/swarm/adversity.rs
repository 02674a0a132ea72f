//! What a seed chooses beside the plan's weather, by numbers of its own: dead directions, drivers' queues, surges, a forger.

use homa_proto::{MS, US};
use rand::Rng;

use super::plan::{Weather, pick};
use crate::driver_queue::Drain;
use crate::payload::random_numbers;

/// What else goes wrong in a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Adversity {
    /// Time between moments at which one direction between two hosts dies for a while.
    pub(super) mean_one_way_gap_ns: Option<u64>,
    /// A direction that stays dead until all calls have ended.
    pub(super) dead: Option<(usize, usize)>,
    /// Time between moments at which a driver's queue for one destination is slow, or stops, for a while.
    pub(super) mean_driver_gap_ns: Option<u64>,
    /// The queue of such a driver.
    pub(super) drain: Drain,
    /// The longest while.
    pub(super) max_while_ns: u64,
    /// Calls of the surge at the end: who calls whom, and how often.
    pub(super) surge: Option<(usize, usize, u32)>,
    /// Whether somebody forges incarnations.
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
