//! Packets under way.

use std::mem;

/// A packet on its way from one host to another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packet {
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// Length of the Homa packet, header and payload.
    pub(crate) wire_len: u32,
    pub(crate) priority: u8,
    /// The header, and the payload where it is real.
    pub(crate) bytes: Vec<u8>,
}

/// The packets under way, by number. Buffers are used again, so that a long run allocates no more than a short one.
#[derive(Debug, Default)]
pub(crate) struct Packets {
    packets: Vec<Packet>,
    free: Vec<u32>,
}

impl Packets {
    /// Takes a packet with an empty buffer.
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
        let mut bytes = mem::take(&mut self.packets[copy as usize].bytes);
        let from = &self.packets[original as usize];
        bytes.extend_from_slice(&from.bytes);
        self.packets[copy as usize] = Packet { bytes, ..*from };
        copy
    }

    pub(crate) fn get(&self, number: u32) -> &Packet {
        &self.packets[number as usize]
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> &mut Packet {
        &mut self.packets[number as usize]
    }

    /// Lends the bytes out, to be given back with [`Packets::release`].
    pub(crate) fn lend(&mut self, number: u32) -> Packet {
        mem::take(&mut self.packets[number as usize])
    }

    /// Ends a packet that was lent.
    pub(crate) fn give_back(&mut self, number: u32, packet: Packet) {
        self.packets[number as usize] = packet;
        self.release(number);
    }

    /// Ends a packet.
    pub(crate) fn release(&mut self, number: u32) {
        self.packets[number as usize].bytes.clear();
        self.free.push(number);
    }

    /// Packets under way.
    pub(crate) fn in_flight(&self) -> usize {
        self.packets.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_equal_and_numbers_are_used_again() {
        let mut packets = Packets::default();
        let first = packets.take();
        *packets.get_mut(first) = Packet { from: 1, to: 2, wire_len: 30, priority: 7, bytes: vec![1, 2, 3] };
        let second = packets.copy(first);
        assert_eq!((packets.get(second).to, packets.get(second).bytes.as_slice()), (2, [1, 2, 3].as_slice()));
        packets.release(first);
        assert_eq!((packets.in_flight(), packets.take()), (1, first));
        assert!(packets.get(first).bytes.is_empty());
    }
}
