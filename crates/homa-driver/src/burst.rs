//! Buffers for a burst of received packets.

use std::net::SocketAddr;

/// Most datagrams in a burst, and most packets unless a datagram carries several.
///
/// The cost of a system call is shared by enough packets at 32 (the gain from there to 64 is lost in noise), and a burst stays
/// short enough that what it answers does not wait for it.
pub const BURST_PACKETS: usize = 32;

/// Room for one datagram in bytes. None over UDP has more payload than 65,535 - 8 bytes.
pub const PACKET_BUFFER_BYTES: usize = 65_536;

/// Most packets that the kernel merges into one datagram (`UDP_GRO_CNT_MAX`).
const SEGMENTS_PER_BUFFER: usize = 64;

const MEMORY_BYTES: usize = BURST_PACKETS * PACKET_BUFFER_BYTES;

#[derive(Clone, Copy, Debug)]
struct Slot {
    from: SocketAddr,
    start: u32,
    length: u32,
}

/// Received packets in memory that is allocated once and used again.
///
/// Usually up to [`BURST_PACKETS`] packets; more where the kernel hands several packets of one sender over as one datagram.
/// The 2 MiB of buffers are address space: only the pages that packets have touched are memory.
#[derive(Debug)]
pub struct RxBurst {
    memory: Box<[u8]>,
    slots: Vec<Slot>,
    /// End of the memory in use.
    end: usize,
}

impl Default for RxBurst {
    fn default() -> RxBurst {
        RxBurst::new()
    }
}

impl RxBurst {
    /// Most packets in a burst of several packets a datagram.
    pub const MAX_PACKETS: usize = BURST_PACKETS * SEGMENTS_PER_BUFFER;

    /// An empty burst with its memory.
    #[must_use]
    pub fn new() -> RxBurst {
        RxBurst {
            memory: vec![0; MEMORY_BYTES].into_boxed_slice(),
            slots: Vec::with_capacity(RxBurst::MAX_PACKETS),
            end: 0,
        }
    }

    /// Forgets all packets.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.end = 0;
    }

    /// Number of packets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are no packets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Sender and bytes of the packet at this index, or `None` beyond the last.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<(SocketAddr, &[u8])> {
        let slot = self.slots.get(index)?;
        let start = slot.start as usize;
        Some((slot.from, &self.memory[start..start + slot.length as usize]))
    }

    /// The packets in the order of their arrival.
    #[must_use]
    pub fn iter(&self) -> RxBurstIter<'_> {
        RxBurstIter { burst: self, next: 0 }
    }

    /// Copies a packet behind the others and returns whether there was room for it. An empty burst has room for
    /// [`BURST_PACKETS`] packets of [`PACKET_BUFFER_BYTES`], or [`RxBurst::MAX_PACKETS`] short ones. For drivers that make
    /// packets or hold them.
    #[must_use]
    pub fn push(&mut self, from: SocketAddr, packet: &[u8]) -> bool {
        let start = self.end;
        if self.slots.len() == RxBurst::MAX_PACKETS || packet.len() > MEMORY_BYTES - start {
            return false;
        }
        self.memory[start..start + packet.len()].copy_from_slice(packet);
        self.note(from, start, packet.len());
        true
    }

    /// The memory, for a driver that receives into it at multiples of [`PACKET_BUFFER_BYTES`].
    pub(crate) fn memory_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// Takes `length` bytes of the memory at `start`, where a driver has received them, as packets of `segment` bytes each; the
    /// last may be shorter.
    pub(crate) fn note_datagram(&mut self, from: SocketAddr, start: usize, length: usize, segment: usize) {
        if length == 0 {
            self.note(from, start, 0);
        }
        let mut offset = 0;
        while offset < length {
            let packet = segment.max(1).min(length - offset);
            self.note(from, start + offset, packet);
            offset += packet;
        }
    }

    fn note(&mut self, from: SocketAddr, start: usize, length: usize) {
        debug_assert!(start + length <= MEMORY_BYTES);
        self.slots.push(Slot { from, start: start as u32, length: length as u32 });
        self.end = self.end.max(start + length);
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
    use std::net::Ipv4Addr;

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
        assert_eq!(burst.iter().len(), BURST_PACKETS);
        for (i, (from, packet)) in burst.iter().enumerate() {
            assert_eq!(from, sender(i as u16));
            assert_eq!(packet, vec![i as u8; i * 100]);
        }
    }

    #[test]
    fn an_empty_burst_holds_what_it_promises_and_no_more() {
        let mut burst = RxBurst::new();
        let packet = vec![7; PACKET_BUFFER_BYTES];
        for _ in 0..BURST_PACKETS {
            assert!(burst.push(sender(1), &packet));
        }
        assert!(!burst.push(sender(1), b"x"));
        burst.clear();
        for _ in 0..RxBurst::MAX_PACKETS {
            assert!(burst.push(sender(1), b"x"));
        }
        assert!(!burst.push(sender(1), b"x"));
    }

    #[test]
    fn a_merged_datagram_is_cut_into_its_packets() {
        let mut burst = RxBurst::new();
        burst.memory_mut()[PACKET_BUFFER_BYTES..PACKET_BUFFER_BYTES + 7].copy_from_slice(b"aabbccd");
        burst.note_datagram(sender(1), PACKET_BUFFER_BYTES, 7, 2);
        burst.note_datagram(sender(2), 0, 0, 0);
        let packets: Vec<_> = burst.iter().map(|(from, packet)| (from.port(), packet)).collect();
        assert_eq!(packets, [(1, &b"aa"[..]), (1, b"bb"), (1, b"cc"), (1, b"d"), (2, b"")]);
        assert!(burst.push(sender(3), b"behind"));
        assert_eq!(burst.get(4).unwrap().1, b"");
        assert_eq!(burst.get(0).unwrap().1, b"aa");
    }

    #[test]
    fn a_cleared_burst_shows_nothing_of_the_last() {
        let mut burst = RxBurst::new();
        assert!(burst.push(sender(1), b"old"));
        burst.clear();
        assert!(burst.is_empty() && burst.get(0).is_none() && burst.iter().next().is_none());
    }
}
