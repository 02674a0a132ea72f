//! The queues of a port, one per priority, the highest first.

use std::collections::VecDeque;

use homa_egress::PRIORITIES;

use crate::packet::Packets;

/// A queued frame.
#[derive(Debug)]
pub(crate) struct QueuedFrame<F> {
    pub(crate) frame: F,
    pub(crate) bytes: u32,
    pub(crate) packets: Packets,
    /// Arrival time in picoseconds.
    pub(crate) came_ps: u64,
}

/// The queued frames of a port.
#[derive(Debug)]
pub(crate) struct Queues<F> {
    queues: [VecDeque<QueuedFrame<F>>; PRIORITIES],
    /// Bit mask of the queues that are not empty.
    occupied: u8,
}

impl<F> Queues<F> {
    pub(crate) fn new() -> Queues<F> {
        Queues { queues: std::array::from_fn(|_| VecDeque::new()), occupied: 0 }
    }

    pub(crate) fn push(&mut self, queue: usize, frame: QueuedFrame<F>) {
        self.queues[queue].push_back(frame);
        self.occupied |= 1 << queue;
    }

    /// Returns the arrival time of the first frame in the highest non-empty queue.
    pub(crate) fn next_came_ps(&self) -> Option<u64> {
        let queue = self.occupied.checked_ilog2()?;
        self.queues[queue as usize].front().map(|frame| frame.came_ps)
    }

    /// Removes the first frame of the highest non-empty queue. Returns it with the queue's number.
    pub(crate) fn pop(&mut self) -> Option<(usize, QueuedFrame<F>)> {
        let queue = self.occupied.checked_ilog2()? as usize;
        let frame = self.queues[queue].pop_front()?;
        if self.queues[queue].is_empty() {
            self.occupied &= !(1 << queue);
        }
        Some((queue, frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_goes_first_and_equals_in_order() {
        let mut queues = Queues::new();
        for (name, queue) in [("a", 0), ("b", 7), ("c", 3), ("d", 7), ("e", 0)] {
            queues
                .push(queue, QueuedFrame { frame: name, bytes: 1, packets: Packets::default(), came_ps: 0 });
        }
        let mut order = String::new();
        while let Some((_, queued)) = queues.pop() {
            order.push_str(queued.frame);
        }
        assert!(queues.pop().is_none() && queues.next_came_ps().is_none());
        assert_eq!(order, "bdcae");
    }
}
