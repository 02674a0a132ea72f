//! Chooses which of the application's sleeping threads to wake for the next message.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

use crate::cores::Core;
use crate::error::SteerError;
use crate::load::Loads;

/// The order in which threads are woken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WakeOrder {
    /// The thread that fell asleep last. Its caches are the warmest, and at low load a few threads do all the
    /// work.
    #[default]
    Lifo,
    /// The thread that fell asleep first.
    Fifo,
    /// The thread whose core has been inactive the longest; ties go to the thread that fell asleep last.
    LeastRecent,
}

impl WakeOrder {
    /// All orders, with their names on command lines and in results.
    pub const ALL: [(WakeOrder, &'static str); 3] =
        [(WakeOrder::Lifo, "lifo"), (WakeOrder::Fifo, "fifo"), (WakeOrder::LeastRecent, "least-recent")];

    /// Chooses the sleeper to wake. Each sleeper consists of the caller's ID for the thread and the core on
    /// which the thread would run. The sleepers are in the order in which they fell asleep. Returns `None` if
    /// there are none.
    pub fn choose<T>(
        self,
        mut asleep: impl DoubleEndedIterator<Item = (T, Core)>,
        loads: Loads<'_>,
    ) -> Option<T> {
        let chosen = match self {
            WakeOrder::Lifo => asleep.next_back(),
            WakeOrder::Fifo => asleep.next(),
            WakeOrder::LeastRecent => asleep.rev().min_by_key(|&(_, core)| loads.of(core).active_ns()),
        };
        chosen.map(|(sleeper, _)| sleeper)
    }
}

impl fmt::Display for WakeOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, name) = WakeOrder::ALL[*self as usize];
        f.write_str(name)
    }
}

impl FromStr for WakeOrder {
    type Err = SteerError;

    fn from_str(name: &str) -> Result<WakeOrder, SteerError> {
        let order = WakeOrder::ALL.iter().find(|&&(_, other)| other == name);
        let known = || WakeOrder::ALL.map(|(_, name)| name).join(", ");
        order
            .map(|&(order, _)| order)
            .ok_or_else(|| SteerError::NoSuchOrder { name: name.to_owned(), known: known() })
    }
}

/// A sleeping thread, with the core on which it would run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleeper {
    /// The caller's ID for the thread.
    pub thread: u32,
    /// The core on which the thread last ran.
    pub core: Core,
}

/// The sleeping threads of an application, up to a maximum number.
#[derive(Clone, Debug)]
pub struct Sleepers {
    order: WakeOrder,
    /// The sleeping threads, in the order in which they fell asleep.
    asleep: VecDeque<Sleeper>,
    most: usize,
}

impl Sleepers {
    /// Creates an empty list for at most `most` sleeping threads.
    #[must_use]
    pub fn new(order: WakeOrder, most: usize) -> Sleepers {
        Sleepers { order, asleep: VecDeque::new(), most }
    }

    /// Returns the number of sleeping threads.
    #[must_use]
    pub fn count(&self) -> usize {
        self.asleep.len()
    }

    /// Records that a thread falls asleep. Returns false if the maximum number of threads are already asleep.
    #[must_use]
    pub fn sleep(&mut self, sleeper: Sleeper) -> bool {
        let has_room = self.asleep.len() < self.most;
        if has_room {
            self.asleep.push_back(sleeper);
        }
        has_room
    }

    /// Removes and returns the thread to wake; `None` if no thread sleeps.
    pub fn wake(&mut self, loads: Loads<'_>) -> Option<Sleeper> {
        let asleep = self.asleep.iter().enumerate().map(|(at, sleeper)| (at, sleeper.core));
        let at = self.order.choose(asleep, loads)?;
        self.asleep.remove(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::CoreLoad;

    fn woken(order: WakeOrder, loads: &[CoreLoad]) -> Vec<u32> {
        let mut sleepers = Sleepers::new(order, 4);
        for thread in 0..4 {
            assert!(sleepers.sleep(Sleeper { thread, core: thread as Core }));
        }
        assert!(!sleepers.sleep(Sleeper { thread: 4, core: 0 }), "there are four");
        std::iter::from_fn(|| sleepers.wake(Loads(loads))).map(|sleeper| sleeper.thread).collect()
    }

    #[test]
    fn each_order_wakes_everybody_once_in_its_own_way() {
        assert_eq!(woken(WakeOrder::Lifo, &[]), [3, 2, 1, 0]);
        assert_eq!(woken(WakeOrder::Fifo, &[]), [0, 1, 2, 3]);
        let at = |received_ns, processed_ns, application_ns| CoreLoad {
            received_ns,
            processed_ns,
            application_ns,
            ..CoreLoad::default()
        };
        let loads = [at(9, 0, 0), at(0, 7, 0), at(1, 1, 8), at(7, 3, 3)];
        assert_eq!(woken(WakeOrder::LeastRecent, &loads), [3, 1, 2, 0], "of equals the last to fall asleep");
    }

    #[test]
    fn nobody_is_woken_where_nobody_sleeps() {
        for (order, _) in WakeOrder::ALL {
            let mut sleepers = Sleepers::new(order, 1);
            assert_eq!((sleepers.wake(Loads::default()), sleepers.count()), (None, 0));
        }
    }

    #[test]
    fn orders_are_found_by_their_names() {
        for (i, (order, name)) in WakeOrder::ALL.into_iter().enumerate() {
            assert_eq!((order as usize, order.to_string().as_str(), name.parse()), (i, name, Ok(order)));
        }
        let said = "random".parse::<WakeOrder>().unwrap_err().to_string();
        assert!(said.contains("no order random") && said.contains("least-recent"), "{said}");
    }
}
