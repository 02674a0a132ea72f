//! The queue of what is to happen.
//!
//! Nearly everything that a network schedules happens within some microseconds, and so a binary heap, whose entries move at every
//! push and pop, pays for an order that nobody asks for yet. Here every nanosecond of the next quarter of a millisecond has a slot with a
//! list in the order of coming: nothing is ever compared or sorted. What lies beyond, as timers of milliseconds do, waits in a heap.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use homa_proto::Time;

/// Slots of a nanosecond each, the square of a word's bits times those bits: together 262 us, beyond every delay of a packet that does not
/// wait.
const SLOTS: usize = WORD_BITS * WORD_BITS * WORD_BITS;
const WORD_BITS: usize = u64::BITS as usize;
/// No node.
const NONE: u32 = u32::MAX;

/// Events in the order of their times; events of the same time come out in the order in which they went in.
///
/// The order is total, so that a run depends on nothing but its seed.
#[derive(Debug)]
pub struct EventQueue<E> {
    /// Last node of each slot's list, whose next one is the first; by time modulo `SLOTS`.
    lasts: Box<[u32]>,
    /// A bit for each slot with a list, and a bit for each word of those that has one.
    slots: Box<[u64]>,
    words: [u64; WORD_BITS],
    nodes: Vec<Node<E>>,
    free: u32,
    /// Events beyond the slots when they were pushed. Of events of the same time these went in first: the slots had not come so far.
    far: BinaryHeap<Far<E>>,
    pushed: u64,
    /// Time of the last event taken out; the slots begin there.
    now: u64,
    /// Time of the earliest event.
    next: Option<u64>,
    len: usize,
}

#[derive(Debug)]
struct Node<E> {
    event: E,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Far<E> {
    at: u64,
    sequence: u64,
    event: E,
}

impl<E> Ord for Far<E> {
    /// A heap gives its greatest entry first: the earliest event is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl<E> PartialOrd for Far<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Far<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Far<E> {}

impl<E: Copy> Default for EventQueue<E> {
    fn default() -> Self {
        Self::new()
    }
}

/// Place of the first bit at or after `from` in a word.
fn first_bit(word: u64, from: usize) -> Option<usize> {
    let rest = if from < WORD_BITS { word & (u64::MAX << from) } else { 0 };
    (rest != 0).then(|| rest.trailing_zeros() as usize)
}

impl<E: Copy> EventQueue<E> {
    /// An empty queue.
    pub fn new() -> Self {
        Self {
            lasts: vec![NONE; SLOTS].into(),
            slots: vec![0; SLOTS / WORD_BITS].into(),
            words: [0; WORD_BITS],
            nodes: Vec::new(),
            free: NONE,
            far: BinaryHeap::new(),
            pushed: 0,
            now: 0,
            next: None,
            len: 0,
        }
    }

    /// Adds an event. O(1) within 262 us of the last one taken out, O(log n) beyond. What is to happen before that one happens at its time.
    pub fn push(&mut self, at: Time, event: E) {
        let at = at.as_ns().max(self.now);
        if at - self.now < SLOTS as u64 {
            self.append(at as usize % SLOTS, event);
        } else {
            self.far.push(Far { at, sequence: self.pushed, event });
            self.pushed += 1;
        }
        self.len += 1;
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    fn append(&mut self, slot: usize, event: E) {
        let number = if self.free == NONE {
            self.nodes.push(Node { event, next: NONE });
            self.nodes.len() as u32 - 1
        } else {
            let number = self.free;
            let place = &mut self.nodes[number as usize];
            self.free = place.next;
            place.event = event;
            number
        };
        let first = match self.lasts[slot] {
            NONE => {
                let word = slot / WORD_BITS;
                self.slots[word] |= 1 << (slot % WORD_BITS);
                self.words[word / WORD_BITS] |= 1 << (word % WORD_BITS);
                number
            }
            last => std::mem::replace(&mut self.nodes[last as usize].next, number),
        };
        self.nodes[number as usize].next = first;
        self.lasts[slot] = number;
    }

    /// Takes out the earliest event. O(1), and O(log n) for one that was far away when it went in.
    pub fn pop(&mut self) -> Option<(Time, E)> {
        let at = self.next?;
        self.now = at;
        let event = match self.far.peek() {
            Some(far) if far.at == at => self.far.pop()?.event,
            _ => self.take_first(at as usize % SLOTS),
        };
        self.len -= 1;
        self.next = self.earliest();
        Some((Time::from_ns(at), event))
    }

    fn take_first(&mut self, slot: usize) -> E {
        let last = self.lasts[slot];
        let first = self.nodes[last as usize].next;
        let (event, second) = (self.nodes[first as usize].event, self.nodes[first as usize].next);
        if first == last {
            self.lasts[slot] = NONE;
            let word = slot / WORD_BITS;
            self.slots[word] &= !(1 << (slot % WORD_BITS));
            if self.slots[word] == 0 {
                self.words[word / WORD_BITS] &= !(1 << (word % WORD_BITS));
            }
        } else {
            self.nodes[last as usize].next = second;
        }
        self.nodes[first as usize].next = self.free;
        self.free = first;
        event
    }

    fn earliest(&self) -> Option<u64> {
        let start = self.now as usize % SLOTS;
        let near = self.first_slot(start).or_else(|| self.first_slot(0));
        let near = near.map(|slot| self.now + ((slot + SLOTS - start) % SLOTS) as u64);
        let far = self.far.peek().map(|far| far.at);
        near.into_iter().chain(far).min()
    }

    /// The first slot at or after `from` that has a list, not going around.
    fn first_slot(&self, from: usize) -> Option<usize> {
        let word = from / WORD_BITS;
        if let Some(bit) = first_bit(self.slots[word], from % WORD_BITS) {
            return Some(word * WORD_BITS + bit);
        }
        let (group, after) = ((word + 1) / WORD_BITS, (word + 1) % WORD_BITS);
        let within = |group: usize, from: usize| {
            first_bit(*self.words.get(group)?, from).map(|bit| group * WORD_BITS + bit)
        };
        let word =
            within(group, after).or_else(|| (group + 1..WORD_BITS).find_map(|group| within(group, 0)))?;
        first_bit(self.slots[word], 0).map(|bit| word * WORD_BITS + bit)
    }

    /// Time of the earliest event.
    pub fn next_at(&self) -> Option<Time> {
        self.next.map(Time::from_ns)
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
