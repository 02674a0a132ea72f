//! The tasks that wait for requests of one port.

use std::collections::VecDeque;
use std::task::Waker;

use crate::runtime::wake_chooser::WakeChooser;

/// Tasks that wait for the same queue.
#[derive(Debug, Default)]
pub(crate) struct TaskQueue {
    tasks: VecDeque<(u64, Waker)>,
    next_id: u64,
}

impl TaskQueue {
    /// Registers a task's waker, or replaces it. Returns the task's ID, and the waker that was previously
    /// registered under `id`.
    pub(crate) fn register(&mut self, id: Option<u64>, waker: Waker) -> (u64, Option<Waker>) {
        if let Some(id) = id
            && let Some((_, known)) = self.tasks.iter_mut().find(|(known, _)| *known == id)
        {
            return (id, Some(std::mem::replace(known, waker)));
        }
        self.next_id += 1;
        self.tasks.push_back((self.next_id, waker));
        (self.next_id, None)
    }

    /// Removes a task, and returns its waker; `None` if the task has already been woken.
    pub(crate) fn forget(&mut self, id: u64) -> Option<Waker> {
        let at = self.tasks.iter().position(|(known, _)| *known == id)?;
        self.tasks.remove(at).map(|(_, waker)| waker)
    }

    /// Removes the first task in the wake order. For this, tasks have no cores.
    pub(crate) fn pop(&mut self, by: &WakeChooser) -> Option<Waker> {
        let at = by.first(self.tasks.iter().enumerate().map(|(at, _)| (at, 0)))?;
        self.tasks.remove(at).map(|(_, waker)| waker)
    }
}

#[cfg(test)]
mod tests {
    use homa_steer::wake::WakeOrder;

    use super::*;

    #[test]
    fn tasks_are_woken_in_the_configured_order_and_keep_their_place_when_renewed() {
        for order in [WakeOrder::Lifo, WakeOrder::Fifo] {
            let (mut tasks, by) = (TaskQueue::default(), WakeChooser::new(order));
            let (first, _) = tasks.register(None, Waker::noop().clone());
            let (second, _) = tasks.register(None, Waker::noop().clone());
            assert!(tasks.register(Some(first), Waker::noop().clone()).1.is_some());
            assert!(tasks.pop(&by).is_some());
            let (woken, asleep) = if order == WakeOrder::Lifo { (second, first) } else { (first, second) };
            assert!(tasks.forget(woken).is_none());
            assert!(tasks.forget(asleep).is_some());
            assert!(tasks.pop(&by).is_none());
        }
    }
}
