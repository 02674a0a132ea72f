//! From packets to transmit rings, and frames back from the completion rings.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::queue::{Kicked, Queue};
use super::umem::Umem;
use crate::driver::{DriverStats, TxPacket};
use crate::link::clock::coarse_ms;
use crate::link::frame::{HEADERS_MAX, Headers};
use crate::link::neighbour::Neighbours;

/// Puts packets into frames.
#[derive(Debug)]
pub(super) struct Sender {
    umem: Arc<Umem>,
    /// Frames that are not the kernel's.
    free: Vec<u32>,
    neighbours: Neighbours,
    /// Most frames of a packet.
    frames_max: usize,
    down: bool,
}

impl Sender {
    /// With all frames for sending free.
    pub(super) fn new(umem: &Arc<Umem>, neighbours: Neighbours, several: bool) -> Sender {
        let frames_max = if several { (usize::from(u16::MAX) + 1) / umem.frame_bytes() } else { 1 };
        let free = umem.frames_for_sending().collect();
        Sender { umem: Arc::clone(umem), free, neighbours, frames_max, down: false }
    }

    /// Most bytes of a packet, whatever the path takes.
    pub(super) fn max_packet(&self) -> usize {
        self.frames_max * self.umem.frame_bytes() - HEADERS_MAX
    }

    /// Routes or the device have changed.
    pub(super) fn forget_paths(&mut self) {
        self.neighbours.forget();
    }

    /// Whether something is in a ring that the kernel has to be called for.
    pub(super) fn is_behind(&self, queues: &[Queue]) -> bool {
        !self.down && queues.iter().any(|queue| queue.unseen)
    }

    /// As [`Driver::send`](crate::Driver::send). `max_packet`: for a peer.
    pub(super) fn send(
        &mut self,
        queues: &mut [Queue],
        packets: &[TxPacket<'_>],
        max_packet: impl Fn(SocketAddr) -> usize,
        stats: &mut DriverStats,
    ) -> io::Result<usize> {
        if self.down {
            self.kick(queues, stats)?;
        }
        self.reap(queues);
        let mut taken = 0;
        for run in packets.chunk_by(|a, b| a.to == b.to) {
            let put = self.put_run(queues, run, max_packet(run[0].to), stats);
            taken += put;
            if put < run.len() {
                stats.would_block += 1;
                break;
            }
        }
        match self.kick(queues, stats) {
            Err(error) if taken == 0 => Err(error),
            // The error comes again with the next call; what was taken must be told now.
            _ => Ok(taken),
        }
    }

    /// Puts packets to one peer into frames, as many as there is room for, and returns how many.
    fn put_run(
        &mut self,
        queues: &mut [Queue],
        run: &[TxPacket<'_>],
        max_packet: usize,
        stats: &mut DriverStats,
    ) -> usize {
        let to = run[0].to;
        let headers = if self.down { None } else { self.neighbours.headers(to, coarse_ms()) };
        let Some(headers) = headers else {
            stats.send_errors.unreachable += run.len() as u64;
            return run.len();
        };
        let queue = &mut queues[queue_of(to.ip(), queues.len())];
        let mut put = 0;
        for packet in run {
            if packet.len() > max_packet {
                stats.send_errors.too_big += 1;
                put += 1;
                continue;
            }
            if !write(&self.umem, &mut self.free, queue, headers, packet) {
                break;
            }
            stats.packets_out += 1;
            stats.bytes_out += packet.len() as u64;
            put += 1;
        }
        queue.socket.send.publish();
        put
    }

    /// Takes back the frames that were sent.
    fn reap(&mut self, queues: &mut [Queue]) {
        for queue in queues {
            let before = self.free.len();
            while let Some(address) = queue.socket.completion.pop() {
                self.free.push(self.umem.frame_at(address));
            }
            if self.free.len() > before {
                queue.socket.completion.release();
            }
        }
        debug_assert!(self.free.len() <= self.umem.frames_for_sending().len());
    }

    /// Has the kernel send what it has not seen.
    pub(super) fn kick(&mut self, queues: &mut [Queue], stats: &mut DriverStats) -> io::Result<()> {
        for queue in queues.iter_mut().filter(|queue| queue.unseen) {
            let kicked = queue.kick(&mut stats.send_calls)?;
            self.down = kicked == Kicked::Down;
        }
        Ok(())
    }
}

/// The queue that a peer's packets leave by: always the same, so that they keep their order.
fn queue_of(ip: IpAddr, queues: usize) -> usize {
    let last = match ip {
        IpAddr::V4(ip) => ip.octets()[3],
        IpAddr::V6(ip) => ip.octets()[15],
    };
    usize::from(last) % queues
}

/// Writes a packet into frames and these into the ring; whether there was room.
fn write(
    umem: &Umem,
    free: &mut Vec<u32>,
    queue: &mut Queue,
    headers: &Headers,
    packet: &TxPacket<'_>,
) -> bool {
    // The headers may be shorter; a packet that just fits one frame then gets a second one.
    let frames = (HEADERS_MAX + packet.len()).div_ceil(umem.frame_bytes());
    if free.len() < frames || queue.socket.send.room(frames as u32) < frames as u32 {
        return false;
    }
    let mut header = packet.header;
    let mut payload = packet.payload;
    for i in 0..frames {
        let frame = free.pop().expect("they were counted");
        // SAFETY: the frame is for sending, and was free, so that neither the kernel nor anybody else has it.
        let bytes = unsafe { umem.for_sending(frame) };
        let mut at = match i {
            0 => headers.write(packet, bytes.first_chunk_mut().expect("a frame is longer than headers")),
            _ => 0,
        };
        for part in [&mut header, &mut payload] {
            let (now, later) = part.split_at(part.len().min(bytes.len() - at));
            bytes[at..at + now.len()].copy_from_slice(now);
            (*part, at) = (later, at + now.len());
        }
        let is_last = i + 1 == frames || (header.is_empty() && payload.is_empty());
        let options = if is_last { 0 } else { libc::XDP_PKT_CONTD };
        queue.socket.send.push(libc::xdp_desc { addr: umem.address(frame), len: at as u32, options });
        if is_last {
            break;
        }
    }
    queue.unseen = true;
    true
}
