//! Buffers for a burst of received packets.

use std::net::{Ipv4Addr, SocketAddr};

/// Most packets in a burst.
///
/// The cost of a system call is shared by enough packets at 32 (the gain from there to 64 is lost in noise), and a burst stays
/// short enough that what it answers does not wait for it.
pub const BURST_PACKETS: usize = 32;

/// Room for one packet in bytes. No UDP datagram has more payload than 65,535 - 8 bytes.
pub const PACKET_BUFFER_BYTES: usize = 65_536;

#[derive(Clone, Copy, Debug)]
struct Slot {
    from: SocketAddr,
    length: usize,
}

/// Up to [`BURST_PACKETS`] received packets in buffers that are allocated once and used again.
///
/// The 2 MiB of buffers are address space: only the pages that packets have touched are memory.
#[derive(Debug)]
pub struct RxBurst {
    memory: Box<[u8]>,
    slots: [Slot; BURST_PACKETS],
    length: usize,
}

impl Default for RxBurst {
    fn default() -> RxBurst {
        RxBurst::new()
    }
}

impl RxBurst {
    /// An empty burst with its buffers.
    #[must_use]
    pub fn new() -> RxBurst {
        let nobody = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        RxBurst {
            memory: vec![0; BURST_PACKETS * PACKET_BUFFER_BYTES].into_boxed_slice(),
            slots: [Slot { from: nobody, length: 0 }; BURST_PACKETS],
            length: 0,
        }
    }

    /// Forgets all packets.
    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// Number of packets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no packets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether no packet more goes in.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.length == BURST_PACKETS
    }

    /// Sender and bytes of the packet at this index, or `None` beyond the last.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<(SocketAddr, &[u8])> {
        let slot = self.slots[..self.length].get(index)?;
        let start = index * PACKET_BUFFER_BYTES;
        Some((slot.from, &self.memory[start..start + slot.length]))
    }

    /// The packets in the order of their arrival.
    #[must_use]
    pub fn iter(&self) -> RxBurstIter<'_> {
        RxBurstIter { burst: self, next: 0 }
    }

    /// Copies a packet into the next buffer and returns whether it went in: not when the burst is full or the packet is
    /// longer than [`PACKET_BUFFER_BYTES`]. For drivers that make packets or keep them.
    #[must_use]
    pub fn push(&mut self, from: SocketAddr, packet: &[u8]) -> bool {
        if self.is_full() || packet.len() > PACKET_BUFFER_BYTES {
            return false;
        }
        let start = self.length * PACKET_BUFFER_BYTES;
        self.memory[start..start + packet.len()].copy_from_slice(packet);
        self.slots[self.length] = Slot { from, length: packet.len() };
        self.length += 1;
        true
    }
}

impl<'a> IntoIterator for &'a RxBurst {
    type Item = (SocketAddr, &'a [u8]);
    type IntoIter = RxBurstIter<'a>;

    fn into_iter(self) -> RxBurstIter<'a> {
        self.iter()
    }
}

/// The packets of a [`RxBurst`]: sender and bytes of each.
#[derive(Clone, Debug)]
pub struct RxBurstIter<'a> {
    burst: &'a RxBurst,
    next: usize,
}

impl<'a> Iterator for RxBurstIter<'a> {
    type Item = (SocketAddr, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.burst.get(self.next)?;
        self.next += 1;
        Some(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.burst.len() - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for RxBurstIter<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(port: u16) -> SocketAddr {
        SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)
    }

    #[test]
    fn packets_come_out_in_order_and_whole() {
        let mut burst = RxBurst::new();
        for i in 0..BURST_PACKETS {
            assert!(burst.push(sender(i as u16), &vec![i as u8; i * 100]));
        }
        assert!(burst.is_full());
        assert!(!burst.push(sender(1), b"one too many"));
        assert_eq!(burst.iter().len(), BURST_PACKETS);
        for (i, (from, packet)) in burst.iter().enumerate() {
            assert_eq!(from, sender(i as u16));
            assert_eq!(packet, vec![i as u8; i * 100]);
        }
    }

    #[test]
    fn a_packet_beyond_the_buffer_is_refused() {
        let mut burst = RxBurst::new();
        assert!(!burst.push(sender(1), &vec![0; PACKET_BUFFER_BYTES + 1]));
        assert!(burst.push(sender(1), &vec![7; PACKET_BUFFER_BYTES]));
        assert_eq!(burst.get(0).unwrap().1.len(), PACKET_BUFFER_BYTES);
        assert!(burst.get(1).is_none());
    }

    #[test]
    fn a_cleared_burst_shows_nothing_of_the_last() {
        let mut burst = RxBurst::new();
        assert!(burst.push(sender(1), b"old"));
        burst.clear();
        assert!(burst.is_empty() && burst.get(0).is_none() && burst.iter().next().is_none());
    }
}
