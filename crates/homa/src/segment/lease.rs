//! The grant budget, leased by the processes without a lock.
//!
//! Each process writes only its own slot. Who wants more announces it first and counts then: it stores what it would have,
//! reads what all have, and gives back what is too much. Stores and loads are sequentially consistent, so of two processes
//! that announce at a time the later one sees the other's announcement. Take the leases that are confirmed at any moment, and
//! among the announcements that made them the last one: its process has seen all the others, none of which has grown since. So
//! their sum was within the budget when it was confirmed, and has been since. Two that announce at a time may both give back
//! what one of them could have had; they ask again.
//!
//! A process that dies leaves its slot as it is, which counts until another finds it dead: too little is granted for that long,
//! never too much.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::layout::Slot;

/// The lease changes in steps of this part of the budget, so that it need not follow every packet.
const STEPS: u64 = 16;

/// One process's view of the budget.
pub(super) struct Leases<'a> {
    /// Those in use.
    pub slots: &'a [Slot],
    pub mine: usize,
    pub budget: u64,
}

impl Leases<'_> {
    /// Brings the lease to what is due to a process that could use `demand` bytes and has `outstanding` bytes granted, or come
    /// unasked, and not received. Returns the lease.
    pub(super) fn adjust(&self, demand: u64, outstanding: u64) -> u64 {
        let mine = &self.slots[self.mine];
        let held = mine.lease.load(Relaxed);
        let step = (self.budget / STEPS).max(1);
        let demand = demand.min(self.budget).next_multiple_of(step).min(self.budget);
        if mine.wants.load(Relaxed) != demand {
            mine.wants.store(demand, Relaxed);
        }
        if (demand, outstanding, held) == (0, 0, 0) {
            return 0;
        }
        let (target, crowded) = self.target(demand);
        if held < target {
            return self.raise(held, target.max(outstanding), outstanding);
        }
        // A little too much is kept, unless others want theirs or this process is idle. What came unasked counts whether there is room for it or not.
        let keep = if crowded || demand == 0 { target } else { target.max(held.min(target + step)) };
        let lease = keep.max(outstanding);
        if lease != held {
            mine.lease.store(lease, SeqCst);
        }
        lease
    }

    /// How much of `demand` is this process's part, and whether others want theirs.
    fn target(&self, demand: u64) -> (u64, bool) {
        let others = || self.slots.iter().enumerate().filter(|(slot, _)| *slot != self.mine);
        let hungry = others().filter(|(_, slot)| slot.wants.load(Relaxed) > 0).count() as u64;
        let fair = self.budget / (hungry + 1);
        // What the others have, and what they could have without asking for more than their part.
        let reserved = others().map(|(_, slot)| {
            let wants = slot.wants.load(Relaxed).min(fair);
            slot.lease.load(SeqCst).max(wants)
        });
        let rest = self.budget.saturating_sub(reserved.fold(0, u64::saturating_add));
        (demand.min(rest.max(fair)), hungry > 0)
    }

    /// Announces `target`, counts, and keeps what there is room for, but no less than `held` or `floor`.
    fn raise(&self, held: u64, target: u64, floor: u64) -> u64 {
        let mine = &self.slots[self.mine];
        mine.lease.store(target, SeqCst);
        let excess = self.total().saturating_sub(self.budget);
        let lease = target.saturating_sub(excess).max(held).max(floor);
        if lease != target {
            mine.lease.store(lease, SeqCst);
        }
        lease
    }

    /// Bytes leased by all.
    pub(super) fn total(&self) -> u64 {
        self.slots.iter().map(|slot| slot.lease.load(SeqCst)).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

    use super::*;

    fn slots(count: usize) -> Vec<Slot> {
        let slot = || Slot {
            pid: AtomicU32::new(1),
            beat: AtomicU32::new(0),
            lease: AtomicU64::new(0),
            wants: AtomicU64::new(0),
        };
        (0..count).map(|_| slot()).collect()
    }

    fn of(slots: &[Slot], mine: usize) -> Leases<'_> {
        Leases { slots, mine, budget: 1_600 }
    }

    #[test]
    fn a_lone_process_gets_what_it_wants_and_gives_it_back() {
        let slots = slots(2);
        assert_eq!(of(&slots, 0).adjust(450, 0), 500, "in steps");
        assert_eq!(of(&slots, 0).adjust(450, 500), 500);
        assert_eq!(of(&slots, 0).adjust(5_000, 500), 1_600);
        assert_eq!(of(&slots, 0).adjust(1_500, 500), 1_600, "one step is kept");
        assert_eq!(of(&slots, 0).adjust(0, 100), 100);
        assert_eq!(of(&slots, 0).adjust(0, 0), 0);
    }

    #[test]
    fn a_late_comer_gets_its_part_as_soon_as_bytes_have_come() {
        let slots = slots(3);
        assert_eq!(of(&slots, 0).adjust(1_600, 1_600), 1_600);
        assert_eq!(of(&slots, 1).adjust(1_600, 0), 0, "all is out");
        assert_eq!(of(&slots, 0).adjust(1_600, 1_000), 1_000, "makes room as its bytes come");
        assert_eq!(of(&slots, 1).adjust(1_600, 0), 600);
        assert_eq!(of(&slots, 0).adjust(1_600, 700), 800, "half is its own");
        assert_eq!(of(&slots, 1).adjust(1_600, 0), 800);
        assert_eq!(of(&slots, 2).adjust(300, 0), 0);
        assert_eq!((of(&slots, 0).adjust(1_600, 0), of(&slots, 1).adjust(1_600, 0)), (533, 767));
        assert_eq!(of(&slots, 2).adjust(300, 0), 300);
        assert_eq!(of(&slots, 0).total(), 1_600);
    }

    #[test]
    fn bytes_that_came_unasked_count_and_leave_no_room_for_others() {
        let slots = slots(2);
        assert_eq!(of(&slots, 0).adjust(2_000, 2_000), 2_000, "they are there already");
        assert_eq!(of(&slots, 1).adjust(100, 0), 0);
    }

    /// Every order in which three processes can announce, read and give back, step by step: what is confirmed is never more
    /// than the budget. The machine is `raise`, one memory access a step.
    #[test]
    fn no_interleaving_confirms_more_than_the_budget() {
        #[derive(Clone, Copy)]
        struct Process {
            step: usize,
            total: u64,
            confirmed: u64,
        }
        const WANT: [u64; 3] = [7, 5, 9];
        const BUDGET: u64 = 12;
        fn step(shared: &mut [u64; 3], processes: &mut [Process; 3], at: usize) {
            let me = &mut processes[at];
            match me.step {
                0 => shared[at] = WANT[at],
                read @ 1..=3 => me.total += shared[read - 1],
                _ => {
                    let lease = WANT[at].saturating_sub(me.total.saturating_sub(BUDGET));
                    shared[at] = lease;
                    me.confirmed = lease;
                }
            }
            me.step += 1;
        }
        fn explore(shared: [u64; 3], processes: [Process; 3], ends: &mut u32) {
            let confirmed: u64 = processes.iter().map(|process| process.confirmed).sum();
            assert!(confirmed <= BUDGET, "{confirmed} confirmed");
            let runnable: Vec<usize> = (0..3).filter(|&at| processes[at].step < 5).collect();
            *ends += u32::from(runnable.is_empty());
            for at in runnable {
                let (mut shared, mut processes) = (shared, processes);
                step(&mut shared, &mut processes, at);
                explore(shared, processes, ends);
            }
        }
        let mut ends = 0;
        explore([0; 3], [Process { step: 0, total: 0, confirmed: 0 }; 3], &mut ends);
        assert_eq!(ends, 756_756, "15! / 5!^3 orders");
    }

    #[test]
    fn threads_that_lease_at_a_time_stay_within_the_budget() {
        let slots = slots(4);
        let confirmed: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for mine in 0..4 {
                let (slots, confirmed, over) = (&slots, &confirmed, &over);
                scope.spawn(move || {
                    for round in 0..20_000_u64 {
                        let want = (round * 7 + mine as u64 * 13) % 1_600;
                        // A lease that shrinks is told before it does, one that grows afterwards.
                        let leases = of(slots, mine);
                        let may_have = leases.slots[mine].lease.load(SeqCst).min(want);
                        confirmed[mine].store(may_have, SeqCst);
                        let lease = leases.adjust(want, 0);
                        confirmed[mine].store(lease, SeqCst);
                        let sum: u64 = confirmed.iter().map(|bytes| bytes.load(SeqCst)).sum();
                        let now = leases.total();
                        // The sum is not of one moment: a second look must agree before it counts.
                        let again: u64 = confirmed.iter().map(|bytes| bytes.load(SeqCst)).sum();
                        if sum > 1_600 && now > 1_600 && again == sum && again == leases.total() {
                            over.store(true, SeqCst);
                        }
                    }
                });
            }
        });
        assert!(!over.into_inner());
    }
}
