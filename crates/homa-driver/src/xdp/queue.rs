//! A receive queue of a device and a socket of it.

use std::io;

use super::maybe_shared::MaybeShared;
use super::ring::{ConsumerRing, ProducerRing};
use super::socket::XdpSocket;
use super::umem::Umem;

/// Most packets that the kernel sends in one call in copy mode, by default (`TX_BATCH_SIZE`).
const KERNEL_BATCH: u32 = 32;

/// What came of having the kernel send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KickOutcome {
    /// It sees all there is.
    Done,
    /// It has no room for the rest now.
    Later,
    /// The device is down.
    Down,
}

/// The frames of a queue that the kernel has sent.
#[derive(Debug)]
pub(super) struct Completions {
    ring: ConsumerRing<u64>,
    /// For each driver its frames that another one has found here.
    found: Vec<Vec<u32>>,
}

impl Completions {
    /// Of so many drivers with so many frames for sending each.
    pub(super) fn new(ring: ConsumerRing<u64>, drivers: u32, frames: u32) -> Completions {
        // A driver alone finds none of another's.
        let room = if drivers > 1 { frames as usize } else { 0 };
        Completions { ring, found: (0..drivers).map(|_| Vec::with_capacity(room)).collect() }
    }

    /// Appends the frames of this driver that were sent.
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

/// The queue, as one driver has it.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) socket: XdpSocket,
    pub(super) fill: MaybeShared<ProducerRing<u64>>,
    pub(super) completions: MaybeShared<Completions>,
    /// Whether the device reads frames itself, and so need not be called for each.
    zero_copy: bool,
    /// Places of the fill ring whose frame has come to this driver.
    pub(super) missing: u32,
    /// The frames so far of a packet that takes several.
    pub(super) parts: Vec<libc::xdp_desc>,
    /// The kernel has not seen what the transmit ring holds.
    pub(super) unseen: bool,
    /// System calls that had the kernel look at the fill ring.
    pub(super) receive_kicks: u64,
}

impl Queue {
    /// With so many places of the fill ring that this driver is to fill.
    pub(super) fn new(
        socket: XdpSocket,
        fill: MaybeShared<ProducerRing<u64>>,
        completions: MaybeShared<Completions>,
        missing: u32,
    ) -> Queue {
        let (zero_copy, parts) = (socket.is_zero_copy(), Vec::new());
        Queue { socket, fill, completions, zero_copy, missing, parts, unseen: false, receive_kicks: 0 }
    }

    pub(super) fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Has the kernel send what is in the transmit ring; counts the calls.
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
                // It may have sent its share and say nothing of the rest.
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
