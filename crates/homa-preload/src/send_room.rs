//! The bound on the memory of sent messages. As in the kernel, a message may start while the messages in
//! flight total fewer bytes than the bound. The descriptor is writable exactly while this holds.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use homa::kernel_api::ReadinessFd;

/// The bound of the [module](self).
pub(crate) struct Room {
    socket: Weak<homa::kernel_api::Socket>,
    signal: Arc<ReadinessFd>,
    /// A message may start while the messages in flight total fewer bytes than this.
    bound: u64,
    full: AtomicBool,
}

impl Room {
    pub(crate) fn new(
        socket: &Arc<homa::kernel_api::Socket>,
        signal: &Arc<ReadinessFd>,
        bound: u64,
    ) -> Arc<Room> {
        let (socket, signal) = (Arc::downgrade(socket), Arc::clone(signal));
        Arc::new(Room { socket, signal, bound, full: AtomicBool::new(false) })
    }

    /// Makes the descriptor show whether a new socket has room.
    pub(crate) fn show(self: &Arc<Self>) {
        self.look();
    }

    /// Returns whether no message may start now.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(SeqCst)
    }

    /// Records that a message was started.
    pub(crate) fn note_sent(self: &Arc<Self>) {
        let bytes = self.socket.upgrade().map_or(0, |socket| socket.outgoing_bytes());
        if bytes >= self.bound && !self.is_full() {
            self.look();
        }
    }

    /// Makes the descriptor show whether there is room. If there is none, registers for a wake-up when there
    /// may be room.
    fn look(self: &Arc<Self>) {
        // This may become the last reference, which must be dropped while no lock is held.
        let socket = self.socket.upgrade();
        let waker = Waker::from(Arc::clone(self));
        self.signal.update_writable(|| {
            let has_room = socket.as_ref().is_none_or(|socket| socket.has_room_or_wakes(self.bound, &waker));
            self.full.store(!has_room, SeqCst);
            has_room
        });
    }
}

impl Wake for Room {
    fn wake(self: Arc<Self>) {
        self.look();
    }
}
