//! A descriptor that shows whether a [`Socket`] has messages to receive.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Wake;

use crate::kernel_api::socket::handle::Socket;
use crate::kernel_api::socket_pair::SocketPair;
use crate::runtime::wake_fd::WakeFd;

/// A descriptor for poll, epoll and similar calls. If it is an eventfd, it is readable exactly while a
/// [`Socket`] has something to receive. If it is one end of a [pair of
/// sockets](ReadinessFd::from_socket_pair), it is also writable, except while the caller reports that there
/// is no room to send.
///
/// If a thread waits for a message in [`Socket::recv`], nothing is written to the descriptor for that
/// message, so a program that never polls makes no system calls for it. A thread that is about to sleep on
/// this descriptor alone must call [`Socket::attend`] first.
///
/// A thread that drives the network itself and polls nothing else need not read the descriptor either: see
/// [`defer`](ReadinessFd::defer).
pub struct ReadinessFd {
    fd: PolledFd,
    state: Mutex<ReadinessState>,
    /// Whether the eventfd is readable, or a thread is checking whether it should be. The flag is set before
    /// the check, so that a thread that takes a message after the check sees the flag: both threads take the
    /// socket's lock in between.
    up: AtomicBool,
    /// Whether the descriptor must be readable regardless of the socket.
    forced: AtomicBool,
    /// Whether the socket's messages must not make the descriptor readable.
    muted: AtomicBool,
    /// Whether the descriptor becomes readable again with each arrival, even if it already was.
    edges: AtomicBool,
    /// Number of threads that have [deferred](ReadinessFd::defer) changes to readable.
    deferring: AtomicUsize,
    /// Whether the descriptor should be readable but is not, because that was deferred. Changes under the
    /// lock.
    owed: AtomicBool,
}

/// While it exists, a [`ReadinessFd`] does not become readable: see [`ReadinessFd::defer`].
#[derive(Debug)]
#[must_use]
pub struct Deferral<'a>(&'a ReadinessFd);

impl Drop for Deferral<'_> {
    fn drop(&mut self) {
        self.0.deferring.fetch_sub(1, SeqCst);
    }
}

/// The descriptor that is polled.
enum PolledFd {
    Eventfd(WakeFd),
    SocketPair(SocketPair),
}

#[derive(Default)]
struct ReadinessState {
    socket: Weak<Socket>,
    /// Whether the descriptor is readable.
    shown: bool,
    /// Whether there is no room to send, so that the descriptor is not writable.
    full: bool,
}

impl PolledFd {
    fn set_readable(&self, ready: bool) {
        // Neither call blocks, whatever the descriptor's flags are: the eventfd's counter is 0 before the
        // write and 1 before the read.
        match (self, ready) {
            (PolledFd::Eventfd(eventfd), true) => eventfd.notify(),
            (PolledFd::Eventfd(eventfd), false) => eventfd.clear(),
            (PolledFd::SocketPair(pair), true) => pair.notify(),
            (PolledFd::SocketPair(pair), false) => pair.clear(),
        }
    }

    /// Triggers a new edge on a descriptor that is already readable.
    fn renew(&self) {
        match self {
            // Too few messages arrive to overflow the eventfd's counter, which is cleared all at once.
            PolledFd::Eventfd(eventfd) => eventfd.notify(),
            PolledFd::SocketPair(pair) => pair.notify_again(),
        }
    }
}

impl ReadinessFd {
    /// Creates an eventfd that follows no socket yet.
    ///
    /// # Errors
    /// The system has no more descriptors.
    pub fn from_eventfd() -> io::Result<Arc<ReadinessFd>> {
        WakeFd::new().map(|eventfd| ReadinessFd::with(PolledFd::Eventfd(eventfd)))
    }

    /// Creates a readiness descriptor from the caller's pair of connected stream sockets, which must have no
    /// other readers or writers. `polled` shows the readiness. It may be a duplicate of the descriptor that
    /// is polled.
    ///
    /// # Errors
    /// The descriptors are not sockets.
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
            deferring: AtomicUsize::new(0),
            owed: flag(),
        })
    }

    /// Follows this socket's arrivals from now on. This replaces the socket's [waker](Socket::set_waker), of
    /// which there is only one.
    pub fn follow(self: &Arc<Self>, socket: &Arc<Socket>) {
        self.lock().socket = Arc::downgrade(socket);
        socket.set_waker(Some(Arc::clone(self).into()));
        self.refresh(false);
    }

    /// Forces the descriptor to be readable from now on, or lets it follow the socket again. If `renotify` is
    /// true, this triggers another event even if the descriptor is already forced, for a watcher of [each
    /// arrival](ReadinessFd::notify_each_arrival).
    pub fn set_override(&self, forced: bool, renotify: bool) {
        if self.forced.swap(forced, Relaxed) != forced || renotify {
            self.refresh(renotify);
        }
    }

    /// Stages two settings: `forced`, an override, and `muted`, which hides arrivals at the socket from now
    /// on because the caller does not currently receive. The descriptor changes only with the next
    /// [`update`](ReadinessFd::update), which the caller must make if this returns true. This may be called
    /// while holding locks that closing a socket takes; `update` may not.
    #[must_use]
    pub fn stage(&self, forced: bool, muted: bool) -> bool {
        let was_forced = self.forced.swap(forced, Relaxed);
        let was_muted = self.muted.swap(muted, Relaxed);
        (was_forced, was_muted) != (forced, muted)
    }

    /// Applies the [staged](ReadinessFd::stage) state to the descriptor. `renotify` is as for
    /// [`set_override`](ReadinessFd::set_override).
    pub fn update(&self, renotify: bool) {
        self.refresh(renotify);
    }

    /// Triggers a new edge for each arrival from now on, even while the descriptor is readable. This is for
    /// watchers that use EPOLLET. It costs a system call for each arrival for which no thread waits.
    pub fn notify_each_arrival(&self) {
        self.edges.store(true, Relaxed);
    }

    /// Defers changes to readable, which are system calls, while the result exists: for a thread that drives
    /// the network and then asks [`is_ready`](ReadinessFd::is_ready). The descriptor is then not readable
    /// until the next arrival, or until [`settle`](ReadinessFd::settle) is called, even if the messages that
    /// are there are not taken. Whoever looks at the descriptor itself must call `settle` first.
    ///
    /// If another thread is asleep on the descriptor, the caller must call `settle` after the deferral.
    pub fn defer(&self) -> Deferral<'_> {
        self.deferring.fetch_add(1, SeqCst);
        Deferral(self)
    }

    /// Returns whether the descriptor is readable, or would be without [`defer`](ReadinessFd::defer).
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.lock().shown || self.owed.load(SeqCst)
    }

    /// Makes the descriptor readable if that was [deferred](ReadinessFd::defer). Waits for a thread that is
    /// just deferring it.
    pub fn settle(&self) {
        let mut state = self.lock();
        if self.owed.load(SeqCst) {
            self.show(&mut state, true);
        }
    }

    /// Changes the descriptor.
    fn show(&self, state: &mut ReadinessState, ready: bool) {
        self.fd.set_readable(ready);
        state.shown = ready;
        self.owed.store(false, SeqCst);
    }

    /// Must be called each time after a message was taken from the socket: the descriptor may have been
    /// readable because of that message.
    pub fn message_taken(&self) {
        if self.up.load(Relaxed) {
            self.refresh(false);
        }
    }

    /// Makes the descriptor show the current state. Every thread calls this after changing the state, so the
    /// last thread to take the lock sees all changes.
    fn refresh(&self, arrived: bool) {
        let mut state = self.lock();
        let socket = state.socket.upgrade();
        self.up.store(true, Relaxed);
        let has_arrival = || socket.as_ref().is_some_and(|socket| socket.has_arrival());
        let ready = self.forced.load(Relaxed) || !self.muted.load(Relaxed) && has_arrival();
        let edges = self.edges.load(Relaxed);
        // What is owed stays owed if only messages were taken since: who looks at the descriptor settles it.
        let stays_owed = !arrived && self.owed.load(SeqCst);
        if ready && !state.shown && !edges && (stays_owed || self.deferring.load(SeqCst) > 0) {
            self.owed.store(true, SeqCst);
        } else if ready != state.shown {
            self.show(&mut state, ready);
        } else if !ready {
            self.owed.store(false, SeqCst);
        } else if arrived && edges {
            self.fd.renew();
        }
        // If a thread took a message since the check, it found `up` set and waits for the lock to check
        // again.
        self.up.store(ready, Relaxed);
        drop(state);
        // This may be the last handle. Dropping it then calls this function again.
        drop(socket);
    }

    /// Updates whether the descriptor is writable. `has_room` is called with the descriptor's state locked,
    /// so the descriptor always shows the latest result. An eventfd does not show whether there is room.
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

impl fmt::Debug for ReadinessFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadinessFd").field("fd", &self.as_fd()).finish_non_exhaustive()
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
