//! The queue of events.
//!
//! Nearly all events of a network are scheduled within a few microseconds. A binary heap, whose entries move
//! at every push and pop, would maintain an order long before it is needed. Here every nanosecond of the next
//! 65 us has a slot with a list in insertion order, so nothing is compared or sorted. Later events, such as
//! timers of milliseconds, wait in a heap.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use homa_proto::Time;

/// Number of slots of one nanosecond: 65 us in total, more than any delay of a packet that is not queued.
/// With four times as many, only timers would use the additional slots, and each slot would be a cache miss
/// at its turn.
const SLOTS: usize = WORDS * WORD_BITS;
/// Number of words with one bit per slot (`WORDS`), and of words with one bit per word of those (`GROUPS`).
const WORDS: usize = GROUPS * WORD_BITS;
const GROUPS: usize = 16;
const WORD_BITS: usize = u64::BITS as usize;
/// The index that means that there is no node.
const NONE: u32 = u32::MAX;
/// The time of events that never happen.
const NEVER: u64 = Time::NEVER.as_ns();

/// Events in the order of their times, and in insertion order for equal times.
///
/// The order is total, so a run depends only on its seed.
#[derive(Debug)]
pub struct EventQueue<E> {
    /// Last node of each slot's circular list, indexed by time modulo `SLOTS`.
    lasts: Box<[u32; SLOTS]>,
    /// A bit for each slot that has a list, and a bit for each nonzero word of those bits.
    slots: Box<[u64; WORDS]>,
    words: [u64; GROUPS],
    nodes: Vec<Node<E>>,
    free: u32,
    /// Events that were beyond the slots when they were pushed. They precede events of the same time in the
    /// slots, since they were pushed earlier.
    far: BinaryHeap<Far<E>>,
    /// Time of the earliest event in the heap.
    far_at: u64,
    pushed: u64,
    /// Time of the last removed event, at which the range of the slots starts.
    now: u64,
    /// Time of the earliest event.
    next: u64,
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
    /// Orders the earliest event as the greatest, because a heap returns its greatest entry first.
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

/// Returns the position of the first set bit at or after `from`, which must be less than the number of bits.
fn first_bit(word: u64, from: usize) -> Option<usize> {
    let rest = word >> from;
    (rest != 0).then(|| from + rest.trailing_zeros() as usize)
}

/// Creates an array on the heap.
fn boxed<T: Clone, const N: usize>(value: T) -> Box<[T; N]> {
    let made: Result<Box<[T; N]>, _> = vec![value; N].into_boxed_slice().try_into();
    made.unwrap_or_else(|_| unreachable!("it was made with this length"))
}

impl<E: Copy> EventQueue<E> {
    /// Makes an empty queue.
    pub fn new() -> Self {
        Self {
            lasts: boxed(NONE),
            slots: boxed(0),
            words: [0; GROUPS],
            nodes: Vec::new(),
            free: NONE,
            far: BinaryHeap::new(),
            far_at: NEVER,
            pushed: 0,
            now: 0,
            next: NEVER,
            len: 0,
        }
    }

    /// Adds an event. O(1) within 65 us of the last removed event, O(log n) beyond. An event earlier than the
    /// last removed one is moved to the latter's time, and an event at [`Time::NEVER`] is discarded.
    #[inline(always)] // Otherwise events are written to memory in pieces, and read as a whole too early.
    pub fn push(&mut self, at: Time, event: E) {
        let at = at.as_ns().max(self.now);
        self.len += 1;
        self.next = self.next.min(at);
        if at - self.now < SLOTS as u64 {
            self.append(at as usize % SLOTS, event);
        } else {
            self.push_far(at, event);
        }
    }

    #[cold]
    fn push_far(&mut self, at: u64, event: E) {
        self.far.push(Far { at, sequence: self.pushed, event });
        self.far_at = self.far_at.min(at);
        self.pushed += 1;
    }

    #[inline(always)]
    fn append(&mut self, slot: usize, event: E) {
        let mut number = self.free;
        match self.nodes.get_mut(number as usize) {
            Some(place) => {
                self.free = place.next;
                place.event = event;
            }
            None => {
                number = self.nodes.len() as u32;
                self.nodes.push(Node { event, next: NONE });
            }
        }
        let last = std::mem::replace(&mut self.lasts[slot], number);
        let first = if last == NONE {
            let word = slot / WORD_BITS;
            self.slots[word] |= 1 << (slot % WORD_BITS);
            self.words[word / WORD_BITS] |= 1 << (word % WORD_BITS);
            number
        } else {
            std::mem::replace(&mut self.nodes[last as usize].next, number)
        };
        self.nodes[number as usize].next = first;
    }

    /// Removes the earliest event. O(1), or O(log n) if it was in the heap.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<(Time, E)> {
        let at = self.next;
        if at == NEVER {
            return None;
        }
        self.now = at;
        self.len -= 1;
        let event = if self.far_at == at { self.take_far()? } else { self.take_first(at as usize % SLOTS) };
        self.next = self.earliest_near().min(self.far_at);
        Some((Time::from_ns(at), event))
    }

    #[cold]
    fn take_far(&mut self) -> Option<E> {
        let far = self.far.pop()?;
        self.far_at = self.far.peek().map_or(NEVER, |far| far.at);
        Some(far.event)
    }

    #[inline]
    fn take_first(&mut self, slot: usize) -> E {
        let last = self.lasts[slot];
        let first = self.nodes[last as usize].next;
        let node = &mut self.nodes[first as usize];
        let (event, second) = (node.event, std::mem::replace(&mut node.next, self.free));
        self.free = first;
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
        event
    }

    /// Returns the time of the earliest event in the slots.
    #[inline]
    fn earliest_near(&self) -> u64 {
        let start = self.now as usize % SLOTS;
        // It is nearly always in the same word: under load there is an event every one or two nanoseconds.
        let rest = self.slots[start / WORD_BITS] >> (start % WORD_BITS);
        if rest != 0 {
            return self.now + u64::from(rest.trailing_zeros());
        }
        self.earliest_in_words(start)
    }

    #[inline(never)]
    fn earliest_in_words(&self, start: usize) -> u64 {
        let after = (start / WORD_BITS + 1) % WORDS;
        let word = self.first_word(after).or_else(|| self.first_word(0));
        let slot = word.and_then(|word| first_bit(self.slots[word], 0).map(|bit| word * WORD_BITS + bit));
        slot.map_or(NEVER, |slot| self.now + ((slot + SLOTS - start) % SLOTS) as u64)
    }

    /// Returns the first word with a set bit at or after `from`, without wrapping.
    fn first_word(&self, from: usize) -> Option<usize> {
        let within =
            |group: usize, from: usize| first_bit(self.words[group], from).map(|bit| group * WORD_BITS + bit);
        let group = from / WORD_BITS;
        within(group, from % WORD_BITS).or_else(|| (group + 1..GROUPS).find_map(|group| within(group, 0)))
    }

    /// Returns the time of the earliest event.
    #[inline]
    pub fn next_at(&self) -> Option<Time> {
        (self.next != NEVER).then(|| Time::from_ns(self.next))
    }

    /// Returns the number of events in the queue.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no events.
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

    /// Compares with a sorted list: near and far events, equal times, reused slots, and an empty queue.
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
