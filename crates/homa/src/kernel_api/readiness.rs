//! A descriptor that shows what a [`Socket`] has.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Wake;

use crate::kernel_api::socket::Socket;
use crate::kernel_api::socket_pair::SocketPair;
use crate::runtime::sleep::WakeFd;

/// An eventfd that is readable exactly while a [`Socket`] has something to be received, for poll, epoll and their like; or one of a
/// [pair of sockets](ReadinessFd::from_socket_pair), which is writable as well, but while the caller says that there is no room to send.
///
/// Nothing is written to it for what a thread waits for in [`Socket::recv`], so that a program that never polls makes no system call for it.
/// Whoever sleeps on it and nowhere else calls [`Socket::attend`] before.
pub struct ReadinessFd {
    fd: PolledFd,
    state: Mutex<ReadinessState>,
    /// The eventfd is readable, or somebody is looking whether it should be. Set before the look, so that who takes a message behind that look
    /// sees it: both have the socket's lock in between.
    up: AtomicBool,
    /// It is to be readable whatever the socket has.
    forced: AtomicBool,
    /// What the socket has is not to be shown.
    muted: AtomicBool,
    /// It becomes readable with each arrival, also where it was.
    edges: AtomicBool,
}

/// What is polled.
enum PolledFd {
    Eventfd(WakeFd),
    SocketPair(SocketPair),
}

#[derive(Default)]
struct ReadinessState {
    socket: Weak<Socket>,
    /// The descriptor is readable.
    shown: bool,
    /// There is no room to send, and the descriptor is not writable.
    full: bool,
}

impl PolledFd {
    fn set_readable(&self, ready: bool) {
        // Neither blocks, whatever the descriptor's flags: an eventfd is 0 before the one and 1 before the other.
        match (self, ready) {
            (PolledFd::Eventfd(eventfd), true) => eventfd.notify(),
            (PolledFd::Eventfd(eventfd), false) => eventfd.clear(),
            (PolledFd::SocketPair(pair), true) => pair.notify(),
            (PolledFd::SocketPair(pair), false) => pair.clear(),
        }
    }

    /// Has it become readable anew.
    fn renew(&self) {
        match self {
            // It counts to far more than can ever arrive, and is hushed at once.
            PolledFd::Eventfd(eventfd) => eventfd.notify(),
            PolledFd::SocketPair(pair) => pair.notify_again(),
        }
    }
}

impl ReadinessFd {
    /// Makes an eventfd that follows no socket yet.
    ///
    /// # Errors
    /// The system has no more descriptors.
    pub fn from_eventfd() -> io::Result<Arc<ReadinessFd>> {
        WakeFd::new().map(|eventfd| ReadinessFd::with(PolledFd::Eventfd(eventfd)))
    }

    /// The same of a pair of connected stream sockets of the caller's, which nobody else reads or writes: `polled` is shown, and may be
    /// a copy of the descriptor that is polled.
    ///
    /// # Errors
    /// They are no sockets.
    pub fn from_socket_pair(polled: OwnedFd, other: OwnedFd) -> io::Result<Arc<ReadinessFd>> {
        Ok(ReadinessFd::with(PolledFd::SocketPair(SocketPair::new(polled, other)?)))
    }

    fn with(fd: PolledFd) -> Arc<ReadinessFd> {
        let flag = || AtomicBool::new(false);
        Arc::new(ReadinessFd {
            fd,
            state: Mutex::default(),
            up: flag(),
            forced: flag(),
            muted: flag(),
            edges: flag(),
        })
    }

    /// Shows what comes to this socket from now on. It is the socket's one [waker](Socket::set_waker).
    pub fn follow(self: &Arc<Self>, socket: &Arc<Socket>) {
        self.lock().socket = Arc::downgrade(socket);
        socket.set_waker(Some(Arc::clone(self).into()));
        self.refresh(false);
    }

    /// Has the descriptor readable from now on, or as the socket has it. `anew`: it is forced for one reason more than before, of which
    /// who is [told of each](ReadinessFd::notify_each_arrival) arrival wants to be told as well.
    pub fn set_override(&self, forced: bool, anew: bool) {
        if self.forced.swap(forced, Relaxed) != forced || anew {
            self.refresh(anew);
        }
    }

    /// The same, and whether what comes to the socket is not shown from now on: for somebody who does not receive for the moment. The
    /// descriptor shows it after the next [`update`](ReadinessFd::update), to be called if this says so: this may be called with locks held that the
    /// end of a socket takes, too, and that may not.
    #[must_use]
    pub fn stage(&self, forced: bool, muted: bool) -> bool {
        let was_forced = self.forced.swap(forced, Relaxed);
        let was_muted = self.muted.swap(muted, Relaxed);
        (was_forced, was_muted) != (forced, muted)
    }

    /// Makes the descriptor show the [staged](ReadinessFd::stage) state. `anew` as in [`set_override`](ReadinessFd::set_override).
    pub fn update(&self, anew: bool) {
        self.refresh(anew);
    }

    /// Has the descriptor become readable anew with each arrival from now on, also while it is: for who watches it by EPOLLET. It costs a system call
    /// for each that nobody waits for.
    pub fn notify_each_arrival(&self) {
        self.edges.store(true, Relaxed);
    }

    /// Something was taken from the socket, as must be told each time: the descriptor may have been readable for it.
    pub fn message_taken(&self) {
        if self.up.load(Relaxed) {
            self.refresh(false);
        }
    }

    /// Makes the descriptor show how things are. Whoever changes them calls it afterwards, so that whoever is the last to have the lock sees them all.
    fn refresh(&self, arrived: bool) {
        let mut state = self.lock();
        let socket = state.socket.upgrade();
        self.up.store(true, Relaxed);
        let has_arrival = || socket.as_ref().is_some_and(|socket| socket.has_arrival());
        let ready = self.forced.load(Relaxed) || !self.muted.load(Relaxed) && has_arrival();
        if ready != state.shown {
            self.fd.set_readable(ready);
            state.shown = ready;
        } else if arrived && ready && self.edges.load(Relaxed) {
            self.fd.renew();
        }
        // Who took a message since the look found this set, and waits for the lock to look again.
        self.up.store(ready, Relaxed);
        drop(state);
        // Perhaps the last handle, which calls this again.
        drop(socket);
    }

    /// Shows whether there is room to send, which is asked with the signal locked, so that the last answer is shown. An eventfd shows
    /// nothing of it.
    pub fn update_writable(&self, has_room: impl FnOnce() -> bool) {
        let mut state = self.lock();
        let full = !has_room();
        if let PolledFd::SocketPair(pair) = &self.fd
            && full != state.full
        {
            pair.set_writable(!full);
            state.full = full;
        }
    }

    fn lock(&self) -> MutexGuard<'_, ReadinessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for ReadinessFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.fd {
            PolledFd::Eventfd(eventfd) => eventfd.as_fd(),
            PolledFd::SocketPair(pair) => pair.as_fd(),
        }
    }
}

impl Wake for ReadinessFd {
    fn wake(self: Arc<Self>) {
        self.refresh(true);
    }
}
