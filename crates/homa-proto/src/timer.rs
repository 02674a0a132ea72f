//! A hierarchical timing wheel: arming, disarming and expiring are O(1) for any number of timers.
//!
//! There is one timer per RPC and one per peer. Packets do not touch timers. When a timer expires, the state
//! of the RPC or peer determines whether anything is due, and the timer is rearmed for the remaining time. A
//! request that the application is processing has no timer.
//!
//! Most timers never expire: the RPC ends long before, and a later RPC soon reuses the slot. A disarmed timer
//! therefore keeps its place in the wheel, and so does a timer that is rearmed for a later deadline. When the
//! place becomes due, the wheel removes the timer or moves it to its deadline. This is done once per place,
//! instead of once per RPC.

use crate::lists::{Links, List};
use crate::time::Time;

/// A tick is 2^17 ns (131 us): an eighth of the shortest interval in the protocol's defaults (1 ms).
const TICK_SHIFT: u32 = 17;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// Eight levels of 64 slots cover every tick that 64 bits of nanoseconds can represent, so no deadline is
/// ever shortened.
const LEVELS: usize = 8;
const LAST_TICK: u64 = u64::MAX >> TICK_SHIFT;
const _: () = assert!(SLOT_BITS * LEVELS as u32 + TICK_SHIFT >= u64::BITS);

/// No tick: the timer is not armed, or not in the wheel.
const NO_TICK: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Timer {
    /// The tick for which the timer is armed; `NO_TICK`: the timer is not armed.
    deadline: u64,
    /// The tick that determined the timer's place in the wheel, at most `deadline`; `NO_TICK`: the timer has
    /// no place.
    placed: u64,
}

impl Timer {
    const UNUSED: Timer = Timer { deadline: NO_TICK, placed: NO_TICK };
}

/// Timers of slots (of RPCs or of peers). Each slot is armed at most once.
#[derive(Debug)]
pub(crate) struct TimerWheel {
    links: Links,
    lists: Vec<List>,
    bits: [u64; LEVELS],
    timers: Vec<Timer>,
    /// The current tick: no timer is armed for an earlier one.
    current: u64,
    armed: usize,
    /// The earliest slot in use. Cached, since every packet reads it and it changes much less often.
    first: Option<Slot>,
}

/// A slot of the wheel, ordered by tick. Among slots with equal ticks, the coarsest comes first, since its
/// timers must be distributed over the finer levels before any timer there expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Slot {
    /// First tick of the slot.
    tick: u64,
    fineness: usize,
    index: usize,
}

impl Slot {
    fn level(self) -> usize {
        LEVELS - self.fineness
    }

    fn list(self) -> usize {
        self.level() * SLOTS + self.index
    }
}

impl TimerWheel {
    pub(crate) fn with_capacity(timers: usize) -> TimerWheel {
        TimerWheel {
            links: Links::with_capacity(timers),
            lists: vec![List::EMPTY; LEVELS * SLOTS],
            bits: [0; LEVELS],
            timers: Vec::with_capacity(timers),
            current: 0,
            armed: 0,
            first: None,
        }
    }

    /// Sets the number of valid indices to `slots`. Timers with higher indices must not be armed.
    pub(crate) fn resize(&mut self, slots: usize) {
        let shrinks = slots < self.timers.len();
        for slot in slots..self.timers.len() {
            self.unlink(slot as u32);
        }
        self.links.resize(slots);
        self.timers.resize(slots, Timer::UNUSED);
        if shrinks {
            self.timers.shrink_to_fit();
        }
    }

    /// Makes `slot` a valid index.
    pub(crate) fn ensure(&mut self, slot: u32) {
        if slot as usize >= self.timers.len() {
            self.resize(slot as usize + 1);
        }
    }

    pub(crate) fn armed(&self) -> usize {
        self.armed
    }

    pub(crate) fn is_armed(&self, slot: u32) -> bool {
        self.timers.get(slot as usize).is_some_and(|timer| timer.deadline != NO_TICK)
    }

    /// Arms `slot` for `at` unless it is already armed for an earlier time.
    pub(crate) fn arm_by(&mut self, slot: u32, at: Time) {
        // `NO_TICK`, the deadline of an unarmed timer, is later than every tick.
        if at.as_ns().div_ceil(1 << TICK_SHIFT) < self.timers[slot as usize].deadline {
            self.arm(slot, at);
        }
    }

    /// Arms `slot` for `at`, or moves its timer there. It expires at the first tick not before `at`.
    pub(crate) fn arm(&mut self, slot: u32, at: Time) {
        let tick = at.as_ns().div_ceil(1 << TICK_SHIFT).clamp(self.current, LAST_TICK);
        let timer = &mut self.timers[slot as usize];
        self.armed += usize::from(timer.deadline == NO_TICK);
        timer.deadline = tick;
        if tick < timer.placed {
            self.unlink(slot);
            self.place(slot, tick);
        }
    }

    pub(crate) fn disarm(&mut self, slot: u32) {
        let timer = &mut self.timers[slot as usize];
        self.armed -= usize::from(timer.deadline != NO_TICK);
        timer.deadline = NO_TICK;
    }

    /// Returns the earliest time at which `pop_due` may have work, never later than the tick of the first
    /// deadline. [`Time::NEVER`] if no timer is armed.
    pub(crate) fn next(&self) -> Time {
        let first = self.first.filter(|_| self.armed > 0);
        first.map_or(Time::NEVER, |slot| Time::from_ns(slot.tick << TICK_SHIFT))
    }

    /// Disarms and returns one timer that is due at `now`. Each step uses one unit of `budget`, even if it
    /// only moves a timer to its deadline, or removes a timer that is not armed. When `budget` is 0, the
    /// remaining timers wait for the next call.
    pub(crate) fn pop_due(&mut self, now: Time, budget: &mut u32) -> Option<u32> {
        let now_tick = now.as_ns() >> TICK_SHIFT;
        while *budget > 0 {
            let first = self.first.filter(|first| first.tick <= now_tick)?;
            *budget -= 1;
            self.current = self.current.max(first.tick);
            let slot = self.lists[first.list()].head()?;
            self.unlink(slot);
            let deadline = self.timers[slot as usize].deadline;
            if deadline == NO_TICK {
                continue;
            }
            if first.level() == 0 && deadline <= self.current {
                self.disarm(slot);
                return Some(slot);
            }
            self.place(slot, deadline);
        }
        None
    }

    fn slot_at(&self, level: usize, index: usize) -> Slot {
        let shift = SLOT_BITS * level as u32;
        let block = self.current >> (shift + SLOT_BITS) << (shift + SLOT_BITS);
        Slot { tick: block | (index as u64) << shift, fineness: LEVELS - level, index }
    }

    /// Computes the earliest slot in use.
    fn earliest(&self) -> Option<Slot> {
        let levels = self.bits.iter().enumerate().filter(|(_, bits)| **bits != 0);
        levels.map(|(level, bits)| self.slot_at(level, bits.trailing_zeros() as usize)).min()
    }

    /// Links a timer at the level of the highest slot-sized digit in which its deadline differs from the
    /// current tick.
    fn place(&mut self, slot: u32, tick: u64) {
        let differing = (tick ^ self.current) | 1;
        let level = ((63 - differing.leading_zeros()) / SLOT_BITS) as usize;
        let index = (tick >> (SLOT_BITS * level as u32)) as usize % SLOTS;
        let list = level * SLOTS + index;
        self.timers[slot as usize].placed = tick;
        self.links.push_back(&mut self.lists[list], list as u32, slot);
        self.bits[level] |= 1 << index;
        let placed = self.slot_at(level, index);
        if self.first.is_none_or(|first| placed < first) {
            self.first = Some(placed);
        }
    }

    fn unlink(&mut self, slot: u32) {
        let Some(list) = self.links.list_of(slot) else { return };
        self.timers[slot as usize].placed = NO_TICK;
        self.links.remove(&mut self.lists[list as usize], slot);
        if self.lists[list as usize].is_empty() {
            self.bits[list as usize / SLOTS] &= !(1 << (list as usize % SLOTS));
            if self.first.is_some_and(|first| first.list() == list as usize) {
                self.first = self.earliest();
            }
        }
    }

    /// Panics unless lists, bits and count agree, and every armed timer has a place no later than its
    /// deadline.
    pub(crate) fn check(&self) {
        let mut placed = 0;
        for (list, ends) in self.lists.iter().enumerate() {
            placed += self.links.check(ends, list as u32);
            assert_eq!(
                self.bits[list / SLOTS] >> (list % SLOTS) & 1 == 1,
                !ends.is_empty(),
                "bit of slot {list}"
            );
        }
        let has_place = |timer: &&Timer| timer.placed != NO_TICK;
        assert_eq!(placed, self.timers.iter().filter(has_place).count(), "timers in the wheel");
        let is_armed = |timer: &&Timer| timer.deadline != NO_TICK;
        assert_eq!(self.armed, self.timers.iter().filter(is_armed).count(), "armed timers");
        assert!(self.timers.iter().filter(is_armed).all(|timer| timer.placed <= timer.deadline), "places");
        assert_eq!(self.first, self.earliest(), "the earliest slot");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tick(n: u64) -> Time {
        Time::from_ns(n << TICK_SHIFT)
    }

    #[test]
    fn a_budget_bounds_the_work_of_one_call() {
        let mut wheel = TimerWheel::with_capacity(0);
        for slot in 0..1000 {
            wheel.ensure(slot);
            wheel.arm(slot, tick(70));
        }
        let mut budget = 10;
        while wheel.pop_due(tick(100), &mut budget).is_some() {}
        assert_eq!(budget, 0);
        assert!(wheel.armed() >= 990);
        assert!(wheel.next() <= tick(100));
    }

    /// An earlier wheel of limited range put all later deadlines on its last tick. After 39 hours, all timers
    /// were permanently due.
    #[test]
    fn timers_of_a_host_that_runs_for_years_are_not_due_at_once() {
        let mut wheel = TimerWheel::with_capacity(0);
        wheel.ensure(0);
        for now in [(1 << 30) - 1, (1 << 33) + 5, 1 << 38, (1 << 42) + 77] {
            for delay in [1, 50, 1 << 31] {
                wheel.arm(0, tick(now + delay));
                let mut budget = 100;
                assert_eq!(wheel.pop_due(tick(now), &mut budget), None, "{delay} ticks too early");
                assert_eq!(wheel.pop_due(tick(now + delay), &mut budget), Some(0));
                wheel.check();
            }
        }
        wheel.arm(0, Time::NEVER);
        assert!(wheel.next() > tick(1 << 46) && wheel.next() != Time::NEVER);
    }

    proptest! {
        #[test]
        fn timers_expire_in_order_never_early_and_never_lost(
            ops in prop::collection::vec((0u32..16, 0u64..5_000_000, 0u8..4), 1..120),
        ) {
            let mut wheel = TimerWheel::with_capacity(16);
            wheel.ensure(15);
            let mut model: [Option<u64>; 16] = [None; 16];
            let mut now = 0u64;
            for (slot, delay, op) in ops {
                match op {
                    0 | 1 => {
                        wheel.arm(slot, tick(now + delay));
                        model[slot as usize] = Some(now + delay);
                    }
                    2 => {
                        wheel.disarm(slot);
                        model[slot as usize] = None;
                    }
                    _ => {
                        now += delay;
                        let mut budget = 1_000;
                        while let Some(due) = wheel.pop_due(tick(now), &mut budget) {
                            let deadline = model[due as usize].take();
                            prop_assert!(deadline.is_some_and(|at| at <= now), "{due} expired early or twice");
                        }
                        prop_assert!(budget > 0);
                        prop_assert!(model.iter().flatten().all(|at| *at > now), "one was not found");
                    }
                }
                wheel.check();
                let first = model.iter().flatten().min().copied();
                prop_assert_eq!(first.is_some(), wheel.next() != Time::NEVER);
                if let Some(first) = first {
                    prop_assert!(wheel.next() <= tick(first));
                }
            }
        }
    }
}
