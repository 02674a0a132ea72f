//! The queue of what is to happen.
//!
//! Nearly everything that a network schedules happens within some microseconds, and so a binary heap, whose entries move at every
//! push and pop, pays for an order that nobody asks for yet. Here time is cut into slots: an event goes to the end of its slot's list,
//! and only the slot that has come is put in order. What lies beyond the slots, as timers of milliseconds do, waits in a heap.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use homa_proto::Time;

/// Width of a slot, as a power of two of nanoseconds: at 100 hosts of 10 Gbit/s a slot holds about ten events.
const SLOT_BITS: u32 = 4;
/// Slots, a power of two: together 262 us, beyond every delay of a packet that does not wait.
const SLOTS: usize = 1 << 14;
const WORD_BITS: usize = u64::BITS as usize;
/// No node.
const NONE: u32 = u32::MAX;

/// Events in the order of their times; events of the same time come out in the order in which they went in.
///
/// The order is total, so that a run depends on nothing but its seed.
#[derive(Debug)]
pub struct EventQueue<E> {
    /// Events of slot `turn` that were there when its turn came, the earliest last.
    current: Vec<Entry<E>>,
    /// Events up to the end of that slot that came later.
    late: BinaryHeap<Entry<E>>,
    /// The slot whose turn it is, counted from time 0.
    turn: u64,
    /// First node of each slot's list; slots after `turn` and less than `SLOTS` from it, by number modulo `SLOTS`.
    heads: Box<[u32]>,
    /// A bit for each slot with a list.
    occupied: Box<[u64]>,
    nodes: Vec<Node<E>>,
    free: u32,
    /// Events beyond the slots when they were pushed.
    far: BinaryHeap<Entry<E>>,
    pushed: u64,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    at: Time,
    sequence: u64,
    event: E,
}

#[derive(Debug)]
struct Node<E> {
    entry: Entry<E>,
    next: u32,
}

impl<E> Ord for Entry<E> {
    /// A heap gives its greatest entry first: the earliest event is the greatest.
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

impl<E: Copy> Default for EventQueue<E> {
    fn default() -> Self {
        Self::new()
    }
}

fn slot_of(at: Time) -> u64 {
    at.as_ns() >> SLOT_BITS
}

impl<E: Copy> EventQueue<E> {
    /// An empty queue.
    pub fn new() -> Self {
        Self {
            current: Vec::new(),
            late: BinaryHeap::new(),
            turn: 0,
            heads: vec![NONE; SLOTS].into(),
            occupied: vec![0; SLOTS / WORD_BITS].into(),
            nodes: Vec::new(),
            free: NONE,
            far: BinaryHeap::new(),
            pushed: 0,
            len: 0,
        }
    }

    /// Adds an event. O(1) within some 200 us of the earliest one, O(log n) beyond.
    pub fn push(&mut self, at: Time, event: E) {
        let entry = Entry { at, sequence: self.pushed, event };
        self.pushed += 1;
        self.len += 1;
        let slot = slot_of(at);
        if slot <= self.turn {
            self.late.push(entry);
        } else if slot - self.turn < SLOTS as u64 {
            self.push_to_slot(slot as usize % SLOTS, entry);
        } else {
            self.far.push(entry);
        }
        if self.current.is_empty() && self.late.is_empty() {
            self.take_turn();
        }
    }

    fn push_to_slot(&mut self, slot: usize, entry: Entry<E>) {
        let node = Node { entry, next: self.heads[slot] };
        let number = if self.free == NONE {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        } else {
            let number = self.free;
            let place = &mut self.nodes[number as usize];
            self.free = place.next;
            *place = node;
            number
        };
        self.heads[slot] = number;
        self.occupied[slot / WORD_BITS] |= 1 << (slot % WORD_BITS);
    }

    /// Takes out the earliest event. O(log n) of the events of its slot.
    pub fn pop(&mut self) -> Option<(Time, E)> {
        let entry = match (self.current.last(), self.late.peek()) {
            // The earlier one is the greater one.
            (Some(first), Some(late)) if late > first => self.late.pop(),
            (Some(_), _) => self.current.pop(),
            (None, _) => self.late.pop(),
        }?;
        self.len -= 1;
        if self.current.is_empty() && self.late.is_empty() {
            self.take_turn();
        }
        Some((entry.at, entry.event))
    }

    /// Puts the events of the next slot that has any in order.
    fn take_turn(&mut self) {
        let near = self.next_slot();
        let far = self.far.peek().map(|entry| slot_of(entry.at));
        let Some(turn) = near.into_iter().chain(far).min() else { return };
        self.turn = turn;
        if near == Some(turn) {
            let slot = turn as usize % SLOTS;
            self.occupied[slot / WORD_BITS] &= !(1 << (slot % WORD_BITS));
            let mut number = std::mem::replace(&mut self.heads[slot], NONE);
            while number != NONE {
                let node = &mut self.nodes[number as usize];
                self.current.push(node.entry);
                let next = std::mem::replace(&mut node.next, self.free);
                self.free = number;
                number = next;
            }
        }
        while self.far.peek().is_some_and(|entry| slot_of(entry.at) <= turn) {
            self.current.extend(self.far.pop());
        }
        self.current.sort_unstable();
    }

    /// The next slot after `turn` that has a list.
    fn next_slot(&self) -> Option<u64> {
        let start = (self.turn as usize + 1) % SLOTS;
        let words = self.occupied.len();
        let found = |word: usize, bits: u64| word * WORD_BITS + bits.trailing_zeros() as usize;
        let first = self.occupied[start / WORD_BITS] & (u64::MAX << (start % WORD_BITS));
        let slot = if first != 0 {
            found(start / WORD_BITS, first)
        } else {
            // Once around: the first word again, for its lower bits.
            (1..=words).find_map(|step| {
                let word = (start / WORD_BITS + step) % words;
                (self.occupied[word] != 0).then(|| found(word, self.occupied[word]))
            })?
        };
        let ahead = (slot + SLOTS - start) % SLOTS;
        Some(self.turn + 1 + ahead as u64)
    }

    /// Time of the earliest event.
    pub fn next_at(&self) -> Option<Time> {
        let late = self.late.peek().map(|entry| entry.at);
        let first = self.current.last().map(|entry| entry.at);
        first.into_iter().chain(late).min()
    }

    /// Events in the queue.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is to happen.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::mix;

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

    /// A sorted list is the specification: near and far, ties, slots that come around again, and a queue that runs empty.
    #[test]
    fn any_mixture_of_pushes_and_pops_gives_what_a_sorted_list_gives() {
        let mut queue = EventQueue::new();
        let mut sorted = std::collections::BTreeMap::new();
        let mut now = 0;
        for step in 0..200_000u64 {
            let random = mix(step);
            let is_filling = (step / 1_000).is_multiple_of(2);
            if random % 4 < if is_filling { 3 } else { 1 } {
                let spread = [1, 100, 5_000, 300_000, 20_000_000][(random >> 8) as usize % 5];
                let at = now + (random >> 16) % spread;
                queue.push(Time::from_ns(at), step);
                sorted.insert((at, step), ());
            } else {
                assert_eq!(queue.next_at().map(|at| at.as_ns()), sorted.keys().next().map(|&(at, _)| at));
                let expected = sorted.pop_first().map(|(key, ())| key);
                assert_eq!(queue.pop().map(|(at, event)| (at.as_ns(), event)), expected);
                now = expected.map_or(now, |(at, _)| at);
            }
            assert_eq!(queue.len(), sorted.len());
        }
    }
}
