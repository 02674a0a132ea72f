//! Chooses which of several sleeping threads is woken, using an order of `homa-steer` and the host's own
//! observations of the cores.

use homa_proto::Time;
use homa_steer::load::ObservedLoads;
use homa_steer::wake::WakeOrder;
use homa_steer::{Core, Loads};

/// A wake order, and the activity of the cores if the order uses it. Other orders record no activity.
#[derive(Debug, Default)]
pub(crate) struct WakeChooser {
    order: WakeOrder,
    observed: Option<Box<ObservedLoads>>,
}

impl WakeChooser {
    pub(crate) fn new(order: WakeOrder) -> WakeChooser {
        WakeChooser { order, observed: (order == WakeOrder::LeastRecent).then(Box::default) }
    }

    /// Returns the core of the calling thread, or 0 if the order does not use cores.
    pub(crate) fn this_core(&self) -> Core {
        if self.observed.is_some() { this_core() } else { 0 }
    }

    /// Records that an application thread ran on this core until now and is falling asleep.
    pub(crate) fn ran(&mut self, core: Core, now: Time) {
        if let Some(observed) = &mut self.observed {
            observed.note_run(core, now.as_ns());
        }
    }

    /// Records that the calling thread has received packets.
    pub(crate) fn received(&mut self, now: Time) {
        if let Some(observed) = &mut self.observed {
            observed.note_arrival(this_core(), now.as_ns());
        }
    }

    /// Records that a thread that sleeps on this core is woken.
    pub(crate) fn woke(&mut self, core: Core, now: Time) {
        if let Some(observed) = &mut self.observed {
            observed.note_assignment(core, now.as_ns());
        }
    }

    /// Returns the sleeping thread to wake first. `asleep` lists the threads and their cores in the order in
    /// which they fell asleep.
    pub(crate) fn first<T>(&self, asleep: impl DoubleEndedIterator<Item = (T, Core)>) -> Option<T> {
        let loads = self.observed.as_deref().map_or(Loads::default(), ObservedLoads::loads);
        self.order.choose(asleep, loads)
    }
}

/// Returns the core on which the calling thread runs.
fn this_core() -> Core {
    // SAFETY: the call has no arguments and touches none of this program's memory.
    let core = unsafe { libc::sched_getcpu() };
    Core::try_from(core).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activity_is_kept_for_the_order_that_asks_and_for_no_other() {
        let at = Time::from_ns;
        for (order, _) in WakeOrder::ALL {
            let mut by = WakeChooser::new(order);
            for (core, ns) in [(4, 10), (5, 20), (6, 30)] {
                by.ran(core, at(ns));
            }
            by.woke(4, at(40));
            let asleep = [("first", 4), ("second", 5), ("third", 6)];
            let expected = match order {
                WakeOrder::Lifo => "third",
                WakeOrder::Fifo => "first",
                WakeOrder::LeastRecent => "second",
            };
            assert_eq!(by.first(asleep.into_iter()), Some(expected), "{order}");
            assert_eq!(by.observed.is_some(), order == WakeOrder::LeastRecent);
        }
    }

    #[test]
    fn the_core_that_runs_a_thread_that_receives_is_active() {
        let mut by = WakeChooser::new(WakeOrder::LeastRecent);
        // The thread may move to another core between the two calls. In that case the other core is the
        // active one.
        let before = by.this_core();
        by.received(Time::from_ns(7));
        let observed = by.observed.as_ref().expect("the order asks for it");
        assert!(observed.loads().of(before).received_ns == 7 || this_core() != before);
    }
}
