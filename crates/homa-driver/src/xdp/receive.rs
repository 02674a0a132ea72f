//! Moves received packets from receive rings into bursts, and frames back to the fill rings.

use std::sync::Arc;

use super::queue::Queue;
use super::sole_or_shared::SoleOrShared;
use super::umem::Umem;
use crate::burst::RxBurst;
use crate::driver::DriverStats;
use crate::l2::frame::{ETHERNET_BYTES, FramedPacket, ParseOptions, checksums_fit, parse};

/// Minimum length of packets that are lent to the burst in place. Copying a shorter packet costs less than
/// the atomic operations that lend a frame and return it.
const LEND_MIN_BYTES: usize = 512;

/// Number of fill ring entries that are filled together, so that the ring's index, which another core reads,
/// changes less often.
const REFILL: u32 = 16;

/// A VLAN tag, which a device may leave in a frame.
const VLAN_BYTES: usize = 4;

/// Moves packets from frames to bursts.
#[derive(Debug)]
pub(super) struct Receiver {
    umem: Arc<Umem>,
    /// Frames whose packets were copied. There are never more of them than missing fill ring entries in the
    /// queues, so no driver of a group hoards frames that another one lacks.
    free: Vec<u32>,
    /// All other frames that are held neither by the kernel nor by a burst or user.
    spare: SoleOrShared<Vec<u32>>,
    parser: ReceiveContext,
    /// Index of the queue that the next call reads first.
    next: usize,
    /// Bytes of a packet that spans several frames.
    joined: Vec<u8>,
}

/// The context in which frames are parsed.
#[derive(Debug)]
struct ReceiveContext {
    /// The parse options; the length is replaced for each frame.
    view: ParseOptions,
    /// Maximum length of a frame, from the device's MTU.
    longest: usize,
    /// Whether a warning about frames that are too long has been logged.
    said: bool,
}

impl Receiver {
    pub(super) fn new(
        umem: &Arc<Umem>,
        spare: SoleOrShared<Vec<u32>>,
        view: ParseOptions,
        mtu: usize,
    ) -> Receiver {
        let longest = longest(mtu);
        Receiver {
            umem: Arc::clone(umem),
            free: Vec::new(),
            spare,
            parser: ReceiveContext { view, longest, said: false },
            next: 0,
            joined: Vec::with_capacity(longest),
        }
    }

    /// Adapts to a new MTU of the device.
    pub(super) fn set_mtu(&mut self, mtu: usize) {
        self.parser.longest = longest(mtu);
    }

    /// Fills the burst from all queues, starting with the next queue.
    pub(super) fn receive(&mut self, queues: &mut [Queue], burst: &mut RxBurst, stats: &mut DriverStats) {
        for _ in 0..queues.len() {
            // The next call starts with the queues that this call did not read.
            if burst.len() >= burst.max_packets() {
                break;
            }
            self.take_from(&mut queues[self.next], burst, stats);
            self.next = (self.next + 1) % queues.len();
        }
        self.refill(queues, REFILL);
    }

    fn take_from(&mut self, queue: &mut Queue, burst: &mut RxBurst, stats: &mut DriverStats) {
        let before = queue.missing;
        while burst.len() < burst.max_packets() {
            let Some(part) = queue.socket.receive.pop() else { break };
            queue.missing += 1;
            let is_last = part.options & libc::XDP_PKT_CONTD == 0;
            if is_last && queue.parts.is_empty() {
                self.take_one(&part, burst, stats);
                continue;
            }
            queue.parts.push(part);
            if is_last {
                self.take_joined(&mut queue.parts, burst, stats);
            }
        }
        if queue.missing != before {
            queue.socket.receive.release();
        }
    }

    /// Adds a packet contained in one frame to the burst.
    fn take_one(&mut self, part: &libc::xdp_desc, burst: &mut RxBurst, stats: &mut DriverStats) {
        let frame = self.umem.frame_at(part.addr);
        // SAFETY: the receive ring has just returned these bytes, so the kernel has written them and passed
        // the frame to this process. The kernel gets the frame back only through a fill ring, and this
        // reference is not used after the frame is lent or freed.
        let bytes = unsafe { self.umem.received(part.addr, part.len) };
        if let Some(found) = self.parser.parse(bytes, stats) {
            let packet = &bytes[found.start..found.start + found.length];
            let first = burst.len();
            if packet.len() >= LEND_MIN_BYTES && self.umem.lend(frame) {
                let start = part.addr as usize + found.start;
                // SAFETY: the frame's only use passes to the burst, and the bytes are within the frame, which
                // the kernel has received into.
                unsafe { burst.lend(&self.umem, frame, found.from, (start, packet.len()), packet.len()) };
                burst.note_dscp_byte(first, found.dscp_byte);
                return;
            }
            copy(found, packet, burst);
        }
        self.free.push(frame);
    }

    /// Adds a packet that spans several frames to the burst, by copying.
    fn take_joined(&mut self, parts: &mut Vec<libc::xdp_desc>, burst: &mut RxBurst, stats: &mut DriverStats) {
        let mut joined = std::mem::take(&mut self.joined);
        joined.clear();
        for part in parts.drain(..) {
            // SAFETY: the receive ring has returned these bytes, and the frame is not put into a fill ring
            // before this reference ends.
            joined.extend_from_slice(unsafe { self.umem.received(part.addr, part.len) });
            self.free.push(self.umem.frame_at(part.addr));
        }
        if let Some(found) = self.parser.parse(&joined, stats) {
            copy(found, &joined[found.start..found.start + found.length], burst);
        }
        self.joined = joined;
    }

    /// Fills the empty entries of each fill ring that has at least `least` of them. There are enough frames
    /// unless another thread is still returning one.
    pub(super) fn refill(&mut self, queues: &mut [Queue], least: u32) {
        if queues.iter().all(|queue| queue.missing < least.max(1)) {
            return;
        }
        let (umem, free) = (&*self.umem, &mut self.free);
        let missing: usize = queues.iter().map(|queue| queue.missing as usize).sum();
        if free.len() < missing {
            self.spare.with(|spare| {
                umem.take_returned(spare);
                let more = (missing - free.len()).min(spare.len());
                free.extend(spare.drain(spare.len() - more..));
            });
        }
        for queue in queues {
            let wanted = queue.missing.min(free.len() as u32);
            let (count, sleeps) = queue.fill.with(|fill| {
                // The kernel reports a frame as consumed only after it has reported the packet received into
                // the frame.
                let count = fill.room(wanted).min(wanted);
                if count > 0 {
                    for frame in free.drain(free.len() - count as usize..).rev() {
                        fill.push(umem.address(frame));
                    }
                    fill.publish();
                }
                (count, fill.needs_wakeup())
            });
            queue.missing -= count;
            if count > 0 && sleeps {
                // If the device is down, it reads the ring when it is up again.
                let _ = queue.socket.kick_receive();
                queue.receive_kicks += 1;
            }
        }
    }
}

impl ReceiveContext {
    /// Finds the packet in a complete frame, and counts the result.
    fn parse(&mut self, bytes: &[u8], stats: &mut DriverStats) -> Option<FramedPacket> {
        if bytes.len() > self.longest {
            stats.truncated += 1;
            if !self.said {
                self.said = true;
                tracing::warn!(
                    "a frame of {} bytes came, more than the MTU: where the other end of a veth leaves it to the device to \
                     cut datagrams, turn that off there (ethtool -K DEVICE tx-udp-segmentation off)",
                    bytes.len()
                );
            }
            return None;
        }
        // The program has already checked the frame, so a packet that is invalid here is damaged.
        let found = parse(bytes, &ParseOptions { wire_length: bytes.len(), ..self.view });
        let found = found.ok().filter(|found| checksums_fit(self.view.carrier, bytes, found));
        let Some(found) = found else {
            stats.damaged += 1;
            return None;
        };
        stats.packets_in += 1;
        stats.bytes_in += found.length as u64;
        Some(found)
    }
}

fn longest(mtu: usize) -> usize {
    mtu + ETHERNET_BYTES + VLAN_BYTES
}

fn copy(found: FramedPacket, packet: &[u8], burst: &mut RxBurst) {
    let first = burst.len();
    let taken = burst.push(found.from, packet);
    assert!(taken, "a burst has room for its number of packets of any length");
    burst.note_dscp_byte(first, found.dscp_byte);
}
