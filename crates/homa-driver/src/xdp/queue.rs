//! A receive queue of a device, with one of its sockets.

use std::io;

use super::ring::{ConsumerRing, ProducerRing};
use super::socket::XdpSocket;
use super::sole_or_shared::SoleOrShared;
use super::umem::Umem;

/// Maximum number of packets that the kernel sends per call in copy mode, by default (`TX_BATCH_SIZE`).
const KERNEL_BATCH: u32 = 32;

/// The result of a call that makes the kernel send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KickOutcome {
    /// The kernel has seen all packets in the ring.
    Done,
    /// The kernel currently has no room for the rest.
    Later,
    /// The device is down.
    Down,
}

/// Frames of a queue that the kernel has sent.
#[derive(Debug)]
pub(super) struct Completions {
    ring: ConsumerRing<u64>,
    /// For each driver, its frames that another driver has removed from the ring.
    found: Vec<Vec<u32>>,
}

impl Completions {
    /// Prepares for `drivers` drivers with `frames` frames for sending each.
    pub(super) fn new(ring: ConsumerRing<u64>, drivers: u32, frames: u32) -> Completions {
        // A lone driver finds no frames of other drivers.
        let room = if drivers > 1 { frames as usize } else { 0 };
        Completions { ring, found: (0..drivers).map(|_| Vec::with_capacity(room)).collect() }
    }

    /// Appends this driver's sent frames to `free`.
    pub(super) fn take(&mut self, umem: &Umem, driver: u32, free: &mut Vec<u32>) {
        free.append(&mut self.found[driver as usize]);
        let mut any = false;
        while let Some(address) = self.ring.pop() {
            any = true;
            let frame = umem.frame_at(address);
            match umem.sender_of(frame) {
                owner if owner == driver => free.push(frame),
                owner => self.found[owner as usize].push(frame),
            }
        }
        if any {
            self.ring.release();
        }
    }
}

/// The queue, as seen by one driver.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) socket: XdpSocket,
    pub(super) fill: SoleOrShared<ProducerRing<u64>>,
    pub(super) completions: SoleOrShared<Completions>,
    /// Whether the device itself reads frames, so that no call is needed for each frame.
    zero_copy: bool,
    /// Number of fill ring entries whose frames were received by this driver and not yet replaced.
    pub(super) missing: u32,
    /// The frames received so far of a packet that spans several frames.
    pub(super) parts: Vec<libc::xdp_desc>,
    /// Whether the transmit ring holds packets that the kernel has not seen.
    pub(super) unseen: bool,
    /// Number of system calls that made the kernel process the fill ring.
    pub(super) receive_kicks: u64,
}

impl Queue {
    /// Creates a queue. `missing` is the number of fill ring entries that this driver must fill.
    pub(super) fn new(
        socket: XdpSocket,
        fill: SoleOrShared<ProducerRing<u64>>,
        completions: SoleOrShared<Completions>,
        missing: u32,
    ) -> Queue {
        let (zero_copy, parts) = (socket.is_zero_copy(), Vec::new());
        Queue { socket, fill, completions, zero_copy, missing, parts, unseen: false, receive_kicks: 0 }
    }

    pub(super) fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Makes the kernel send the packets in the transmit ring; counts the calls.
    ///
    /// # Errors
    /// The device is gone.
    pub(super) fn kick(&mut self, calls: &mut u64) -> io::Result<KickOutcome> {
        if self.zero_copy && !self.socket.send.needs_wakeup() {
            self.unseen = false;
            return Ok(KickOutcome::Done);
        }
        let mut waiting = self.socket.send.waiting();
        loop {
            *calls += 1;
            let result = self.socket.kick_send();
            let left = self.socket.send.waiting();
            let (went, before) = (waiting - left, waiting);
            waiting = left;
            match result.map_err(|error| (error.raw_os_error(), error)) {
                // The kernel may have sent its maximum batch without reporting that more packets are left.
                Ok(()) if self.zero_copy || left == 0 || went == 0 => {
                    self.unseen = false;
                    return Ok(KickOutcome::Done);
                }
                Ok(()) => (),
                Err((Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR), _)) => {
                    if left == 0 {
                        self.unseen = false;
                        return Ok(KickOutcome::Done);
                    }
                    if went < KERNEL_BATCH.min(before) {
                        self.unseen = true;
                        return Ok(KickOutcome::Later);
                    }
                }
                Err((Some(libc::ENETDOWN), _)) => {
                    self.unseen = true;
                    return Ok(KickOutcome::Down);
                }
                Err((_, error)) => return Err(error),
            }
        }
    }
}
