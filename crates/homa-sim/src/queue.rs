//! The queue of what is to happen.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use homa_proto::Time;

/// Events in the order of their times; events of the same time come out in the order in which they went in.
///
/// The order is total, so that a run depends on nothing but its seed.
#[derive(Debug)]
pub struct EventQueue<E> {
    heap: BinaryHeap<Entry<E>>,
    pushed: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: Time,
    sequence: u64,
    event: E,
}

impl<E> Ord for Entry<E> {
    /// The heap gives its greatest entry first: the earliest event is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> EventQueue<E> {
    /// An empty queue.
    pub const fn new() -> Self {
        Self { heap: BinaryHeap::new(), pushed: 0 }
    }

    /// Adds an event. O(log n).
    pub fn push(&mut self, at: Time, event: E) {
        self.heap.push(Entry { at, sequence: self.pushed, event });
        self.pushed += 1;
    }

    /// Takes out the earliest event. O(log n).
    pub fn pop(&mut self) -> Option<(Time, E)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }

    /// Time of the earliest event.
    pub fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// Events in the queue.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing is to happen.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_out_by_time_and_ties_in_the_order_of_their_coming() {
        let mut queue = EventQueue::new();
        for (at, name) in [(5, 'c'), (1, 'a'), (5, 'd'), (9, 'f'), (5, 'e'), (1, 'b')] {
            queue.push(Time::from_ns(at), name);
        }
        assert_eq!(queue.next_at(), Some(Time::from_ns(1)));
        let mut order = String::new();
        while let Some((_, name)) = queue.pop() {
            order.push(name);
        }
        assert_eq!(order, "abcdef");
        assert!(queue.is_empty());
    }
}
