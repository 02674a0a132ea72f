//! Buffers for a burst of received packets, which may also be in frames lent by a driver.

use std::fmt;
use std::net::SocketAddr;
use std::ptr::NonNull;
use std::sync::Arc;

use homa_steer::batch::BatchCap;

use crate::driver::priority_of;

/// Maximum number of datagrams in a burst. A burst has more packets than this only if datagrams carry
/// several.
///
/// At 32 packets the cost of a system call is well amortized; the gain from 32 to 64 is within the noise. A
/// burst also stays short enough that replies to its first packets are not delayed for long.
pub const BURST_PACKETS: usize = 32;

/// Buffer size for one datagram in bytes. A UDP datagram has at most 65,535 - 8 bytes of payload.
pub const PACKET_BUFFER_BYTES: usize = 65_536;

/// Maximum number of packets that the kernel merges into one datagram (`UDP_GRO_CNT_MAX`).
const SEGMENTS_PER_BUFFER: usize = 64;

const MEMORY_BYTES: usize = BURST_PACKETS * PACKET_BUFFER_BYTES;

/// Memory of a driver in which the kernel places frames: a mapped ring, or a pool.
///
/// [`RxBurst::lend`] lends a frame to one burst. The kernel may write to the frame again after
/// [`release`](FrameSource::release) has been called once for the loan and once for each
/// [`keep`](FrameSource::keep).
///
/// # Safety
/// [`memory`](FrameSource::memory) returns the same readable memory for as long as the source lives. Nothing
/// writes to a frame, or lends it again, before it is free.
pub(crate) unsafe trait FrameSource: fmt::Debug + Send + Sync {
    /// Returns the memory that contains all frames.
    fn memory(&self) -> NonNull<[u8]>;

    /// Keeps a lent frame beyond its burst; it then needs one more release. Returns false if the source has
    /// no spare frames, or if its frames must be returned in order.
    fn keep(&self, frame: u32) -> bool {
        let _ = frame;
        false
    }

    /// Takes back lent or kept frames; may be called on any thread.
    fn release(&self, frames: &[u32]);
}

/// The frame number of slots whose bytes are in the burst's own memory.
const NO_FRAME: u32 = u32::MAX;

/// The priority value of slots that hold a packet of unknown priority.
const NO_PRIORITY: u8 = u8::MAX;

#[derive(Clone, Copy, Debug)]
struct Slot {
    from: SocketAddr,
    /// Offset in the burst's own memory, or in the memory of the frame source.
    start: u32,
    length: u32,
    frame: u32,
    priority: u8,
}

/// Received packets, in memory that is allocated once and reused, or in frames that a driver lends.
///
/// A burst usually has up to [`BURST_PACKETS`] packets, and more if the kernel merges several packets of one
/// sender into one datagram. The 2 MiB of buffers are address space: only pages that packets have touched
/// occupy memory.
///
/// Frames return to their driver when the burst is cleared or dropped. Until then the driver has fewer frames
/// to receive into, so clear a burst as soon as its packets are processed.
#[derive(Debug)]
pub struct RxBurst {
    memory: Box<[u8]>,
    slots: Vec<Slot>,
    /// End of the used part of the memory.
    end: usize,
    /// The source of the frames. It stays set after the frames are returned, so that the next loan from the
    /// same driver does not have to update the reference count.
    source: Option<Arc<dyn FrameSource>>,
    frames: Vec<u32>,
    /// Receive times reported by the driver. Each entry is the exclusive end index of the packets with that
    /// time, and the time.
    times: Vec<(usize, u64)>,
    cap: BatchCap,
    /// See [`RxBurst::note_more`].
    more: bool,
    /// See [`RxBurst::is_handed_over`].
    handed_over: bool,
    /// See [`RxBurst::is_reordered`].
    reordered: bool,
}

/// A packet that outlives its burst, still in its original frame. Dropping it returns the frame to its
/// driver.
#[derive(Debug)]
pub struct KeptFrame {
    source: Arc<dyn FrameSource>,
    frame: u32,
    start: usize,
    length: usize,
}

impl AsRef<[u8]> for KeptFrame {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `lend` checked that the range is within the source's memory, and the frame is kept until
        // `drop`.
        unsafe { part_of(&*self.source, self.start, self.length) }
    }
}

impl Drop for KeptFrame {
    fn drop(&mut self) {
        self.source.release(&[self.frame]);
    }
}

/// Returns part of a source's memory.
///
/// # Safety
/// The range is within the source's memory, and in a frame that is not free while the reference lives.
unsafe fn part_of(source: &dyn FrameSource, start: usize, length: usize) -> &[u8] {
    // SAFETY: the caller guarantees that the range is within the memory, and the source guarantees that the
    // memory is readable. Nothing writes to the frame before it is free.
    unsafe { std::slice::from_raw_parts(source.memory().cast::<u8>().as_ptr().add(start), length) }
}

impl Default for RxBurst {
    fn default() -> RxBurst {
        RxBurst::new()
    }
}

impl RxBurst {
    /// Maximum number of packets in a burst whose datagrams carry several packets each.
    pub const MAX_PACKETS: usize = BURST_PACKETS * SEGMENTS_PER_BUFFER;

    /// Creates an empty burst and allocates its memory.
    #[must_use]
    pub fn new() -> RxBurst {
        RxBurst {
            memory: vec![0; MEMORY_BYTES].into_boxed_slice(),
            slots: Vec::with_capacity(RxBurst::MAX_PACKETS),
            end: 0,
            source: None,
            frames: Vec::with_capacity(BURST_PACKETS),
            times: Vec::new(),
            cap: RxBurst::full_cap(),
            more: false,
            handed_over: false,
            reordered: false,
        }
    }

    /// Sets the maximum number of datagrams that drivers receive into this burst at a time. The default,
    /// [`BURST_PACKETS`], is also the upper limit. Packets received together are processed together, and
    /// replies such as grants are sent afterwards. With a cap of 1, each packet is answered before the next
    /// is read. A run of packets merged by the kernel counts as one.
    pub fn set_cap(&mut self, cap: BatchCap) {
        self.cap = cap;
    }

    /// Returns the cap of a new burst: the maximum that drivers support.
    #[must_use]
    pub fn full_cap() -> BatchCap {
        BatchCap::new(BURST_PACKETS as u32).expect("a cap that there is")
    }

    /// Records that a queue may still hold packets although the driver added none to this burst. A driver
    /// calls this if it read only error reports or frames that are not packets, or if it delays packets
    /// itself.
    pub fn note_more(&mut self) {
        self.more = true;
    }

    /// Whether a queue may still hold packets although the driver added none to this burst.
    #[must_use]
    pub fn may_have_more(&self) -> bool {
        self.more
    }

    /// Returns the cap set by [`RxBurst::set_cap`].
    #[must_use]
    pub fn cap(&self) -> BatchCap {
        self.cap
    }

    /// Records that the packets of the burst came from another process.
    pub(crate) fn note_handed_over(&mut self) {
        self.handed_over = true;
    }

    /// Whether another process received these packets and handed them over to this one
    /// ([`Exchange`](crate::Exchange)). Such packets must not be handed over again.
    #[must_use]
    pub fn is_handed_over(&self) -> bool {
        self.handed_over
    }

    /// Records that the packets may have been overtaken by later ones.
    pub fn note_reordered(&mut self) {
        self.reordered = true;
    }

    /// Whether packets of other senders may have arrived before these and still wait in the driver.
    #[must_use]
    pub fn is_reordered(&self) -> bool {
        self.reordered
    }

    /// Returns the maximum number of datagrams that a driver receives at a time.
    pub(crate) fn max_packets(&self) -> usize {
        self.cap.take(BURST_PACKETS as u32) as usize
    }

    /// Removes all packets and returns their frames to the driver.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.times.clear();
        self.end = 0;
        self.more = false;
        self.handed_over = false;
        self.reordered = false;
        if let (false, Some(source)) = (self.frames.is_empty(), &self.source) {
            source.release(&self.frames);
            self.frames.clear();
        }
    }

    /// Returns the number of packets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are no packets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the sender and the bytes of the packet at this index, or `None` beyond the last packet.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<(SocketAddr, &[u8])> {
        let slot = self.slots.get(index)?;
        let (start, length) = (slot.start as usize, slot.length as usize);
        let bytes = match &self.source {
            // SAFETY: `lend` checked the range, and the frame is not released before the slot is removed.
            Some(source) if slot.frame != NO_FRAME => unsafe { part_of(&**source, start, length) },
            _ => &self.memory[start..start + length],
        };
        Some((slot.from, bytes))
    }

    /// Returns the time when the device received the packet at this index, or when the kernel took it from
    /// the device, in nanoseconds of the system's real-time clock. `None` if the time is unknown, for example
    /// without [`Driver::stamp_received`](crate::Driver::stamp_received). All packets merged by the kernel
    /// have the time of the first.
    #[must_use]
    pub fn received_at(&self, index: usize) -> Option<u64> {
        if index >= self.slots.len() {
            return None;
        }
        let after = self.times.partition_point(|(end, _)| *end <= index);
        self.times.get(after).map(|(_, time_ns)| *time_ns).filter(|&time_ns| time_ns != 0)
    }

    /// Returns the received priority of the packet at this index, 0 to 7: the class selector in its IP
    /// header, as received from the network. `None` if the driver does not provide it; sockets do so only
    /// after [`Driver::tell_priorities`](crate::Driver::tell_priorities).
    #[must_use]
    pub fn priority(&self, index: usize) -> Option<u8> {
        self.slots.get(index).map(|slot| slot.priority).filter(|&priority| priority != NO_PRIORITY)
    }

    /// Sets the priority of all packets from this index on; `None` if it is unknown.
    pub(crate) fn note_priority(&mut self, first: usize, priority: Option<u8>) {
        for slot in &mut self.slots[first..] {
            slot.priority = priority.unwrap_or(NO_PRIORITY);
        }
    }

    /// Like [`RxBurst::note_priority`], but takes the byte of the IP header that contains the priority.
    pub(crate) fn note_dscp_byte(&mut self, first: usize, byte: u8) {
        self.note_priority(first, Some(priority_of(byte)));
    }

    /// Sets the receive time of the packets added since the last call; 0 if it is unknown.
    pub(crate) fn note_time(&mut self, time_ns: u64) {
        self.times.push((self.slots.len(), time_ns));
    }

    /// Keeps a packet of this burst, or part of one, beyond the burst without a copy. Returns `None` if the
    /// bytes are not in a frame or the driver has no spare frame; the caller must then copy them.
    #[must_use]
    pub fn keep(&self, packet: &[u8]) -> Option<KeptFrame> {
        let source = self.source.as_ref()?;
        let start = packet.as_ptr().addr().checked_sub(source.memory().addr().get())?;
        let holds = |slot: &&Slot| {
            let first = slot.start as usize;
            slot.frame != NO_FRAME && first <= start && start + packet.len() <= first + slot.length as usize
        };
        let frame = self.slots.iter().find(holds)?.frame;
        source.keep(frame).then(|| KeptFrame {
            source: Arc::clone(source),
            frame,
            start,
            length: packet.len(),
        })
    }

    /// Returns the packets in order of arrival.
    #[must_use]
    pub fn iter(&self) -> RxBurstIter<'_> {
        RxBurstIter { burst: self, next: 0 }
    }

    /// Appends a copy of a packet and returns whether there was room for it. An empty burst has room for
    /// [`BURST_PACKETS`] packets of [`PACKET_BUFFER_BYTES`], or [`RxBurst::MAX_PACKETS`] short ones. Used by
    /// drivers that create or delay packets.
    #[must_use]
    pub fn push(&mut self, from: SocketAddr, packet: &[u8]) -> bool {
        let start = self.end;
        if self.slots.len() == RxBurst::MAX_PACKETS || packet.len() > MEMORY_BYTES - start {
            return false;
        }
        self.memory[start..start + packet.len()].copy_from_slice(packet);
        self.note((from, NO_FRAME), start, packet.len());
        self.end = start + packet.len();
        true
    }

    /// Adds the packets in a frame: `length` bytes of the source's memory from `start` on, as packets of
    /// `segment` bytes each; the last may be shorter. The burst holds the frame until it is cleared.
    ///
    /// # Panics
    /// The range is beyond the source's memory, there are more packets than a burst holds, or the burst holds
    /// frames of another source.
    ///
    /// # Safety
    /// The source has given the frame to the caller, and the caller transfers to the burst the right to
    /// release it. The bytes are inside the frame and initialized.
    pub(crate) unsafe fn lend<S: FrameSource + 'static>(
        &mut self,
        source: &Arc<S>,
        frame: u32,
        from: SocketAddr,
        (start, length): (usize, usize),
        segment: usize,
    ) {
        let memory = source.memory();
        assert!(start.checked_add(length).is_some_and(|end| end <= memory.len() && end <= u32::MAX as usize));
        assert_ne!(frame, NO_FRAME);
        if self.source.as_ref().is_none_or(|ours| !std::ptr::addr_eq(Arc::as_ptr(ours), Arc::as_ptr(source)))
        {
            assert!(self.frames.is_empty(), "frames of two sources in one burst");
            self.source = Some(Arc::<S>::clone(source));
        }
        self.frames.push(frame);
        self.note_packets(from, start, length, segment, frame);
    }

    /// Returns the memory, for a driver that receives into it at multiples of [`PACKET_BUFFER_BYTES`].
    pub(crate) fn memory_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// Returns the offset of the first unused byte of the memory.
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    /// Adds a datagram of `length` bytes that a driver has received into the memory at `start`, as packets of
    /// `segment` bytes each; the last may be shorter.
    pub(crate) fn note_datagram(&mut self, from: SocketAddr, start: usize, length: usize, segment: usize) {
        debug_assert!(start + length <= MEMORY_BYTES);
        self.note_packets(from, start, length, segment, NO_FRAME);
        self.end = self.end.max(start + length);
    }

    fn note_packets(&mut self, from: SocketAddr, start: usize, length: usize, segment: usize, frame: u32) {
        if length == 0 {
            self.note((from, frame), start, 0);
        }
        let mut offset = 0;
        while offset < length {
            let packet = segment.max(1).min(length - offset);
            self.note((from, frame), start + offset, packet);
            offset += packet;
        }
    }

    fn note(&mut self, (from, frame): (SocketAddr, u32), start: usize, length: usize) {
        debug_assert!(self.slots.len() < RxBurst::MAX_PACKETS);
        let (start, length) = (start as u32, length as u32);
        self.slots.push(Slot { from, start, length, frame, priority: NO_PRIORITY });
    }
}

impl Drop for RxBurst {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<'a> IntoIterator for &'a RxBurst {
    type Item = (SocketAddr, &'a [u8]);
    type IntoIter = RxBurstIter<'a>;

    fn into_iter(self) -> RxBurstIter<'a> {
        self.iter()
    }
}

/// Iterator over the packets of an [`RxBurst`]: the sender and the bytes of each.
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
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;

    fn sender(port: u16) -> SocketAddr {
        SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)
    }

    #[test]
    fn times_are_those_of_the_packets_they_were_noted_for() {
        let mut burst = RxBurst::new();
        assert!(burst.push(sender(1), &[1]));
        burst.note_time(10);
        assert!(burst.push(sender(1), &[2]) && burst.push(sender(1), &[3]));
        burst.note_time(20);
        assert!(burst.push(sender(1), &[4]));
        burst.note_time(0);
        assert!(burst.push(sender(1), &[5]));
        let times: Vec<_> = (0..6).map(|index| burst.received_at(index)).collect();
        assert_eq!(times, [Some(10), Some(20), Some(20), None, None, None]);
        burst.clear();
        assert_eq!(burst.received_at(0), None);
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
    fn packets_have_the_priority_that_was_noted_and_others_none() {
        let mut burst = RxBurst::new();
        assert!(burst.push(sender(1), b"unknown"));
        burst.note_datagram(sender(1), PACKET_BUFFER_BYTES, 4, 2);
        // Class selector 5, with ECN bits set by the network.
        burst.note_dscp_byte(1, 0b1010_0011);
        assert_eq!([0, 1, 2, 3].map(|index| burst.priority(index)), [None, Some(5), Some(5), None]);
        burst.note_priority(2, None);
        assert_eq!(burst.priority(2), None);
        burst.clear();
        assert!(burst.push(sender(1), b"another"));
        assert_eq!(burst.priority(0), None);
    }

    /// Four-byte frames, each with a use count.
    #[derive(Debug)]
    struct Pool {
        memory: Box<[u8]>,
        uses: Vec<AtomicU32>,
        spare: AtomicBool,
    }

    impl Pool {
        fn new() -> Arc<Pool> {
            Arc::new(Pool {
                memory: (0..40).collect(),
                uses: (0..10).map(|_| AtomicU32::new(0)).collect(),
                spare: AtomicBool::new(true),
            })
        }

        fn lend(self: &Arc<Pool>, burst: &mut RxBurst, frame: u32, length: usize, segment: usize) {
            self.uses[frame as usize].store(1, Ordering::Relaxed);
            // SAFETY: nothing ever writes to the memory, and the frame's only use passes to the burst.
            unsafe { burst.lend(self, frame, sender(1), (4 * frame as usize, length), segment) };
        }

        fn in_use(&self) -> Vec<u32> {
            self.uses.iter().map(|uses| uses.load(Ordering::Relaxed)).collect()
        }
    }

    // SAFETY: the memory is one box that is never moved or written.
    unsafe impl FrameSource for Pool {
        fn memory(&self) -> NonNull<[u8]> {
            NonNull::from(&*self.memory)
        }

        fn keep(&self, frame: u32) -> bool {
            let spare = self.spare.load(Ordering::Relaxed);
            self.uses[frame as usize].fetch_add(spare.into(), Ordering::Relaxed);
            spare
        }

        fn release(&self, frames: &[u32]) {
            for &frame in frames {
                assert_ne!(self.uses[frame as usize].fetch_sub(1, Ordering::Relaxed), 0, "released twice");
            }
        }
    }

    #[test]
    fn lent_frames_are_read_in_place_and_go_back_with_the_burst() {
        let pool = Pool::new();
        let mut burst = RxBurst::new();
        pool.lend(&mut burst, 3, 4, 4);
        assert!(burst.push(sender(2), b"copied"));
        pool.lend(&mut burst, 0, 3, 2);
        let packets: Vec<_> = burst.iter().map(|(from, packet)| (from.port(), packet)).collect();
        assert_eq!(packets, [(1, &[12, 13, 14, 15][..]), (2, b"copied"), (1, &[0, 1]), (1, &[2])]);
        assert_eq!(packets[0].1.as_ptr(), &raw const pool.memory[12], "not copied");
        assert_eq!(pool.in_use(), [1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        burst.clear();
        assert_eq!((burst.len(), pool.in_use()), (0, vec![0; 10]));
        burst.clear();
        pool.lend(&mut burst, 9, 4, 4);
        drop(burst);
        assert_eq!((pool.in_use(), Arc::strong_count(&pool)), (vec![0; 10], 1));
    }

    #[test]
    fn a_driver_that_is_gone_leaves_a_burst_its_frames() {
        let pool = Pool::new();
        let mut burst = RxBurst::new();
        pool.lend(&mut burst, 1, 4, 4);
        drop(pool);
        assert_eq!(burst.get(0).unwrap().1, [4, 5, 6, 7]);
        let other = Pool::new();
        burst.clear();
        other.lend(&mut burst, 2, 4, 4);
        assert_eq!(burst.get(0).unwrap().1, [8, 9, 10, 11]);
    }

    #[test]
    fn a_kept_frame_outlives_its_burst_and_goes_back_once() {
        let pool = Pool::new();
        let mut burst = RxBurst::new();
        pool.lend(&mut burst, 2, 4, 4);
        assert!(burst.push(sender(2), b"copied"));
        let packet = burst.get(0).unwrap().1;
        let (first, part) = (burst.keep(packet).unwrap(), burst.keep(&packet[1..3]).unwrap());
        assert!(burst.keep(burst.get(1).unwrap().1).is_none(), "what lies in no frame");
        assert!(burst.keep(b"elsewhere").is_none());
        assert!(burst.keep(&pool.memory[6..10]).is_none(), "more than the packet");
        pool.spare.store(false, Ordering::Relaxed);
        assert!(burst.keep(packet).is_none(), "no frame to spare");
        drop(burst);
        assert_eq!(pool.in_use()[2], 2);
        drop(first);
        assert_eq!((part.as_ref(), pool.in_use()[2]), (&[9, 10][..], 1));
        drop(part);
        assert_eq!(pool.in_use()[2], 0);
    }

    #[test]
    #[should_panic(expected = "two sources")]
    fn frames_of_two_drivers_do_not_mix() {
        let mut burst = RxBurst::new();
        Pool::new().lend(&mut burst, 1, 4, 4);
        Pool::new().lend(&mut burst, 1, 4, 4);
    }

    #[test]
    fn a_cleared_burst_shows_nothing_of_the_last() {
        let mut burst = RxBurst::new();
        assert!(burst.push(sender(1), b"old"));
        burst.clear();
        assert!(burst.is_empty() && burst.get(0).is_none() && burst.iter().next().is_none());
    }
}
