//! A receive queue of a device and its socket.

use std::io;

use super::socket::XdpSocket;

/// Most packets that the kernel sends in one call in copy mode, by default (`TX_BATCH_SIZE`).
const KERNEL_BATCH: u32 = 32;

/// What came of having the kernel send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kicked {
    /// It sees all there is.
    Done,
    /// It has no room for the rest now.
    Later,
    /// The device is down.
    Down,
}

/// The queue.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) socket: XdpSocket,
    /// Whether the device reads frames itself, and so need not be called for each.
    zero_copy: bool,
    /// Places of the fill ring whose frame has gone up.
    pub(super) missing: u32,
    /// The frames so far of a packet that takes several.
    pub(super) parts: Vec<libc::xdp_desc>,
    /// The kernel has not seen what the transmit ring holds.
    pub(super) unseen: bool,
    /// System calls that had the kernel look at the fill ring.
    pub(super) receive_kicks: u64,
}

impl Queue {
    /// With an empty fill ring of this size.
    pub(super) fn new(socket: XdpSocket, fill_places: u32) -> Queue {
        let zero_copy = socket.is_zero_copy();
        Queue { socket, zero_copy, missing: fill_places, parts: Vec::new(), unseen: false, receive_kicks: 0 }
    }

    pub(super) fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Has the kernel send what is in the transmit ring; counts the calls.
    ///
    /// # Errors
    /// The device is gone.
    pub(super) fn kick(&mut self, calls: &mut u64) -> io::Result<Kicked> {
        if self.zero_copy && !self.socket.send.needs_wakeup() {
            self.unseen = false;
            return Ok(Kicked::Done);
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
                    return Ok(Kicked::Done);
                }
                Ok(()) => (),
                Err((Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR), _)) => {
                    if left == 0 {
                        self.unseen = false;
                        return Ok(Kicked::Done);
                    }
                    if went < KERNEL_BATCH.min(before) {
                        self.unseen = true;
                        return Ok(Kicked::Later);
                    }
                }
                Err((Some(libc::ENETDOWN), _)) => {
                    self.unseen = true;
                    return Ok(Kicked::Down);
                }
                Err((_, error)) => return Err(error),
            }
        }
    }
}
