//! Packets in flight.

use std::mem;

/// The contents of a packet of some protocol.
pub trait Body: Clone + Default {
    /// Replaces the contents with a copy of `other`, reusing memory.
    fn copy_from(&mut self, other: &Self);

    /// Returns the packet's bytes, if it has any.
    fn bytes(&self) -> &[u8] {
        &[]
    }

    /// Returns the packet's bytes for faults to modify.
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut []
    }
}

/// A Homa packet: the header, and the payload if it is real.
impl Body for Vec<u8> {
    fn copy_from(&mut self, other: &Self) {
        self.clone_from(other);
    }

    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

/// The fields of a packet that the network uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketInfo {
    /// Index of the sending host.
    pub from: u32,
    /// Index of the destination host.
    pub to: u32,
    /// Bytes of the packet without the link's overhead: header and payload.
    pub wire_len: u32,
    /// Priority, 0 to 7; larger is higher.
    pub priority: u8,
    /// Whether a queue on the path was longer than its threshold (ECN).
    pub marked: bool,
    /// Identifies the flow: the same in all its packets.
    pub flow: u32,
    /// Rank for ports that send the smallest rank first.
    pub rank: u32,
}

/// A packet in flight from one host to another.
#[derive(Clone, Debug, Default)]
pub struct Packet<B> {
    /// The fields that the network uses.
    pub info: PacketInfo,
    /// The contents that the hosts use.
    pub body: B,
}

/// The packets in flight, by index. Buffers are reused, so a long run allocates no more than a short one.
#[derive(Debug)]
pub(crate) struct Packets<B> {
    packets: Vec<Packet<B>>,
    free: Vec<u32>,
}

impl<B> Default for Packets<B> {
    fn default() -> Self {
        Packets { packets: Vec::new(), free: Vec::new() }
    }
}

impl<B: Body> Packets<B> {
    /// Allocates a packet. Its contents are those of an earlier packet.
    pub(crate) fn take(&mut self) -> u32 {
        match self.free.pop() {
            Some(number) => number,
            None => {
                self.packets.push(Packet::default());
                self.packets.len() as u32 - 1
            }
        }
    }

    /// Allocates a copy of another packet.
    pub(crate) fn copy(&mut self, original: u32) -> u32 {
        let copy = self.take();
        let mut packet = mem::take(&mut self.packets[copy as usize]);
        let from = &self.packets[original as usize];
        packet.info = from.info;
        packet.body.copy_from(&from.body);
        self.packets[copy as usize] = packet;
        copy
    }

    pub(crate) fn get(&self, number: u32) -> &Packet<B> {
        &self.packets[number as usize]
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> &mut Packet<B> {
        &mut self.packets[number as usize]
    }

    /// Takes the packet out; it must be returned by [`Packets::give_back`].
    pub(crate) fn lend(&mut self, number: u32) -> Packet<B> {
        mem::take(&mut self.packets[number as usize])
    }

    /// Returns and frees a packet that was taken out.
    pub(crate) fn give_back(&mut self, number: u32, packet: Packet<B>) {
        self.packets[number as usize] = packet;
        self.release(number);
    }

    /// Frees a packet.
    pub(crate) fn release(&mut self, number: u32) {
        self.free.push(number);
    }

    /// Returns the number of packets in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.packets.len() - self.free.len()
    }
}

impl PacketInfo {
    /// Makes a packet of `wire_len` bytes from one host to another.
    pub fn new(from: u32, to: u32, wire_len: u32, priority: u8) -> PacketInfo {
        PacketInfo { from, to, wire_len, priority, flow: from ^ to.rotate_left(16), ..PacketInfo::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_equal_and_numbers_are_used_again() {
        let mut packets = Packets::default();
        let first = packets.take();
        let info = PacketInfo { from: 1, to: 2, wire_len: 30, priority: 7, ..PacketInfo::default() };
        *packets.get_mut(first) = Packet { info, body: vec![1, 2, 3] };
        let second = packets.copy(first);
        assert_eq!(
            (packets.get(second).info, packets.get(second).body.as_slice()),
            (info, [1, 2, 3].as_slice())
        );
        packets.release(first);
        assert_eq!((packets.in_flight(), packets.take()), (1, first));
    }
}
