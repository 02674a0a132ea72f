//! Parts shared by several transports.

use std::collections::BTreeSet;

use homa_proto::Time;

use crate::cluster::ideal::Framing;

/// Bytes of an acknowledgement without data: a TCP header with timestamps. With the link's overhead, this is
/// just above the shortest Ethernet frame.
pub(super) const ACK_BYTES: u32 = 32;

/// Returns the number of packets of a message.
pub(super) fn packets(framing: &Framing, length: u32) -> u32 {
    length.div_ceil(framing.payload).max(1)
}

/// Returns the number of message bytes in the packet with this index.
pub(super) fn payload(framing: &Framing, length: u32, index: u32) -> u32 {
    let before = u64::from(index) * u64::from(framing.payload);
    u64::from(length).saturating_sub(before).min(u64::from(framing.payload)) as u32
}

/// A set of packets of one message.
#[derive(Clone, Debug, Default)]
pub(super) struct PacketSet {
    words: Vec<u64>,
    len: u32,
    /// The first packet that is not in the set.
    first_missing: u32,
}

impl PacketSet {
    pub(super) fn new(packets: u32) -> PacketSet {
        PacketSet { words: vec![0; packets.div_ceil(u64::BITS) as usize], len: 0, first_missing: 0 }
    }

    pub(super) fn contains(&self, index: u32) -> bool {
        self.words[(index / u64::BITS) as usize] >> (index % u64::BITS) & 1 == 1
    }

    /// Adds a packet. Returns whether it is new.
    pub(super) fn insert(&mut self, index: u32) -> bool {
        if self.contains(index) {
            return false;
        }
        self.words[(index / u64::BITS) as usize] |= 1 << (index % u64::BITS);
        self.len += 1;
        while (self.first_missing / u64::BITS) < self.words.len() as u32 && self.contains(self.first_missing)
        {
            self.first_missing += 1;
        }
        true
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn first_missing(&self) -> u32 {
        self.first_missing
    }
}

/// Values indexed by small numbers, which are reused.
#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    pub(super) fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(value);
                slot
            }
            None => {
                self.slots.push(Some(value));
                self.slots.len() as u32 - 1
            }
        }
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<T> {
        let value = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(value)
    }
}

/// Alarms, at most one per ID.
#[derive(Debug, Default)]
pub(super) struct Alarms {
    order: BTreeSet<(Time, u32)>,
}

impl Alarms {
    /// Moves the alarm of `number` from `at` to `to`; [`Time::NEVER`]: no alarm.
    pub(super) fn set(&mut self, number: u32, at: &mut Time, to: Time) {
        if *at != to {
            self.order.remove(&(*at, number));
            if to != Time::NEVER {
                self.order.insert((to, number));
            }
            *at = to;
        }
    }

    pub(super) fn first(&self) -> Option<Time> {
        self.order.first().map(|first| first.0)
    }

    /// Returns the ID of the next due alarm. The alarm remains set until changed.
    pub(super) fn due(&self, now: Time) -> Option<u32> {
        self.order.first().filter(|first| first.0 <= now).map(|first| first.1)
    }
}

/// A set of numbers ordered by rank.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    order: BTreeSet<(u64, u32)>,
}

impl Ranks {
    /// Changes the rank of `number`; `None` removes it from the set.
    pub(super) fn set(&mut self, number: u32, at: &mut Option<u64>, to: Option<u64>) {
        if *at != to {
            if let Some(before) = *at {
                self.order.remove(&(before, number));
            }
            if let Some(after) = to {
                self.order.insert((after, number));
            }
            *at = to;
        }
    }

    /// Returns the number with the lowest rank; ties go to the lower number.
    pub(super) fn first(&self) -> Option<u32> {
        self.order.first().map(|first| first.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_a_message_have_all_its_bytes() {
        let framing = Framing { payload: 1_424, header: 56 };
        for length in [0, 1, 1_424, 1_425, 2_848, 10_000] {
            let parts: Vec<u32> =
                (0..packets(&framing, length)).map(|index| payload(&framing, length, index)).collect();
            assert_eq!(parts.iter().sum::<u32>(), length);
            assert!(parts.iter().rev().skip(1).all(|&part| part == 1_424), "{length}: {parts:?}");
        }
    }

    #[test]
    fn the_first_missing_packet_moves_over_those_that_came_early() {
        let mut set = PacketSet::new(65);
        for index in (1..65).rev() {
            assert!(set.insert(index));
        }
        assert_eq!((set.first_missing(), set.len()), (0, 64));
        assert!(set.insert(0) && !set.insert(0));
        assert_eq!((set.first_missing(), set.len()), (65, 65));
    }

    #[test]
    fn an_alarm_that_is_moved_rings_once() {
        let (mut alarms, mut at) = (Alarms::default(), Time::NEVER);
        alarms.set(7, &mut at, Time::from_ns(5));
        alarms.set(7, &mut at, Time::from_ns(9));
        assert_eq!((alarms.first(), alarms.due(Time::from_ns(8))), (Some(Time::from_ns(9)), None));
        assert_eq!(alarms.due(Time::from_ns(9)), Some(7));
        alarms.set(7, &mut at, Time::NEVER);
        assert_eq!(alarms.first(), None);
    }
}
