//! Packets under way.

use std::mem;

/// What a packet of some protocol carries.
pub trait Body: Clone + Default {
    /// Copies what another has, in the place of what was there; with memory that can be used again.
    fn copy_from(&mut self, other: &Self);

    /// The packet's bytes, where it has any.
    fn bytes(&self) -> &[u8] {
        &[]
    }

    /// The packet's bytes, to be changed by faults.
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut []
    }
}

/// A Homa packet: the header, and the payload where it is real.
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

/// What a network looks at in a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketInfo {
    /// Index of the host that sent it.
    pub from: u32,
    /// Index of the host that it is for.
    pub to: u32,
    /// Bytes of the packet without the link's overhead: header and payload.
    pub wire_len: u32,
    /// 0 to 7, larger is higher.
    pub priority: u8,
    /// Whether a queue on the way was longer than its threshold (ECN).
    pub marked: bool,
    /// Equal in all packets of a flow.
    pub flow: u32,
    /// For ports that send the smallest rank first.
    pub rank: u32,
}

/// A packet on its way from one host to another.
#[derive(Clone, Debug, Default)]
pub struct Packet<B> {
    /// What the network looks at.
    pub info: PacketInfo,
    /// What the hosts look at.
    pub body: B,
}

/// The packets under way, by number. Buffers are used again, so that a long run allocates no more than a short one.
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
    /// Takes a packet; what is in it is an earlier one's.
    pub(crate) fn take(&mut self) -> u32 {
        match self.free.pop() {
            Some(number) => number,
            None => {
                self.packets.push(Packet::default());
                self.packets.len() as u32 - 1
            }
        }
    }

    /// Takes a packet equal to another.
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

    /// Lends the bytes out, to be given back with [`Packets::release`].
    pub(crate) fn lend(&mut self, number: u32) -> Packet<B> {
        mem::take(&mut self.packets[number as usize])
    }

    /// Ends a packet that was lent.
    pub(crate) fn give_back(&mut self, number: u32, packet: Packet<B>) {
        self.packets[number as usize] = packet;
        self.release(number);
    }

    /// Ends a packet.
    pub(crate) fn release(&mut self, number: u32) {
        self.free.push(number);
    }

    /// Packets under way.
    pub(crate) fn in_flight(&self) -> usize {
        self.packets.len() - self.free.len()
    }
}

impl PacketInfo {
    /// A packet of `wire_len` bytes from one host to another.
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
