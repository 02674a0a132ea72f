//! Moves packets to transmit rings, and reclaims frames from the completion rings.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use super::queue::{KickOutcome, Queue};
use super::umem::Umem;
use crate::driver::{DriverStats, TxPacket};
use crate::l2::clock::coarse_ms;
use crate::l2::device::Device;
use crate::l2::frame::{HEADERS_MAX, Headers};

#[derive(Debug)]
pub(super) struct Sender {
    umem: Arc<Umem>,
    /// Index of this driver among those that share the frames.
    driver: u32,
    /// Frames currently owned by this driver, not the kernel.
    free: Vec<u32>,
    /// Maximum number of frames per packet.
    frames_max: usize,
}

impl Sender {
    /// Creates a sender whose frames are all free.
    pub(super) fn new(umem: &Arc<Umem>, driver: u32, several: bool) -> Sender {
        let frames_max = if several { (usize::from(u16::MAX) + 1) / umem.frame_bytes() } else { 1 };
        let free = umem.frames_of_sender(driver).collect();
        Sender { umem: Arc::clone(umem), driver, free, frames_max }
    }

    /// Returns the maximum length in bytes of a packet on any path.
    pub(super) fn max_packet(&self) -> usize {
        self.frames_max * self.umem.frame_bytes() - HEADERS_MAX
    }

    /// Whether a ring contains packets for which the kernel must be called.
    pub(super) fn is_behind(&self, device: &Device, queues: &[Queue]) -> bool {
        queues.iter().any(|queue| queue.unseen) && device.is_up()
    }

    /// Implements [`Driver::send`](crate::Driver::send).
    pub(super) fn send(
        &mut self,
        device: &mut Device,
        queues: &mut [Queue],
        packets: &[TxPacket<'_>],
        stats: &mut DriverStats,
        now_ms: u64,
    ) -> io::Result<usize> {
        self.reap(queues);
        let mut taken = 0;
        for packet in packets {
            match device.headers(packet, now_ms) {
                Err(why) => why.count(&mut stats.send_errors),
                // The device's MTU has grown since its frames were laid out.
                Ok(_) if packet.len() > self.max_packet() => stats.send_errors.too_big += 1,
                Ok(headers) => {
                    let queue = &mut queues[queue_of(packet.to.ip(), self.driver, queues.len())];
                    if !self.put(queue, headers, packet) {
                        stats.would_block += 1;
                        break;
                    }
                    stats.packets_out += 1;
                    stats.bytes_out += packet.len() as u64;
                }
            }
            taken += 1;
        }
        for queue in queues.iter_mut().filter(|queue| queue.unseen) {
            // Publish once for all packets: after each change of the index, the kernel's core has to fetch
            // its cache line.
            queue.socket.send.publish();
        }
        match self.kick(device, queues, stats) {
            Err(error) if taken == 0 => Err(error),
            // The next call returns the error again; this call must return the number of accepted packets.
            _ => Ok(taken),
        }
    }

    /// Reclaims frames that were sent.
    fn reap(&mut self, queues: &mut [Queue]) {
        let (umem, driver, free) = (&*self.umem, self.driver, &mut self.free);
        for queue in queues {
            queue.completions.with(|completions| completions.take(umem, driver, free));
        }
        debug_assert!(self.free.len() <= self.umem.frames_of_sender(self.driver).len());
    }

    /// Makes the kernel send packets that it has not seen yet.
    pub(super) fn kick(
        &mut self,
        device: &mut Device,
        queues: &mut [Queue],
        stats: &mut DriverStats,
    ) -> io::Result<()> {
        for queue in queues.iter_mut().filter(|queue| queue.unseen) {
            match queue.kick(&mut stats.send_calls) {
                Ok(KickOutcome::Down) => device.refresh(coarse_ms(), true)?,
                Ok(_) => (),
                Err(error) => {
                    device.refresh(coarse_ms(), true)?;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Writes a packet into frames and puts the frames into the ring; publishing them to the kernel is left
    /// to the caller. Returns whether there was room.
    fn put(&mut self, queue: &mut Queue, headers: &Headers, packet: &TxPacket<'_>) -> bool {
        // The headers may be shorter than HEADERS_MAX. Even so, a packet that just fits into one frame does
        // not use a second one.
        let frames = (HEADERS_MAX + packet.len()).div_ceil(self.umem.frame_bytes());
        if self.free.len() < frames || queue.socket.send.room(frames as u32) < frames as u32 {
            return false;
        }
        let (mut header, mut payload) = (packet.header, packet.payload);
        for i in 0..frames {
            let frame = self.free.pop().expect("they were counted");
            // SAFETY: the frame is for sending and was free, so neither the kernel nor any other code in this
            // process uses it.
            let bytes = unsafe { self.umem.for_sending(frame) };
            let mut at = match i {
                0 => headers.write(packet, bytes.first_chunk_mut().expect("a frame is longer than headers")),
                _ => 0,
            };
            for part in [&mut header, &mut payload] {
                let (now, later) = part.split_at(part.len().min(bytes.len() - at));
                bytes[at..at + now.len()].copy_from_slice(now);
                (*part, at) = (later, at + now.len());
            }
            let is_last = header.is_empty() && payload.is_empty();
            let options = if is_last { 0 } else { libc::XDP_PKT_CONTD };
            let address = self.umem.address(frame);
            queue.socket.send.push(libc::xdp_desc { addr: address, len: at as u32, options });
            if is_last {
                break;
            }
        }
        queue.unseen = true;
        true
    }
}

/// Returns the queue for a peer's packets. It never changes for a given driver, so packets keep their order.
/// The next driver uses another queue, so drivers do not wait for each other.
fn queue_of(ip: IpAddr, driver: u32, queues: usize) -> usize {
    let last = match ip {
        IpAddr::V4(ip) => ip.octets()[3],
        IpAddr::V6(ip) => ip.octets()[15],
    };
    (usize::from(last) + driver as usize) % queues
}
