//! A descriptor that shows what a [`Socket`] has.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Wake;

use crate::pair::Pair;
use crate::sleep::Bell;
use crate::socket::Socket;

/// An eventfd that is readable exactly while a [`Socket`] has something to be received, for poll, epoll and their like; or one of a
/// [pair of sockets](Signal::of_pair), which is writable as well, but while the caller says that there is no room to send.
///
/// Nothing is written to it for what a thread waits for in [`Socket::recv`], so that a program that never polls makes no system call for it.
/// Whoever sleeps on it and nowhere else calls [`Socket::attend`] before.
pub struct Signal {
    face: Face,
    state: Mutex<State>,
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
enum Face {
    Eventfd(Bell),
    Pair(Pair),
}

#[derive(Default)]
struct State {
    socket: Weak<Socket>,
    /// The descriptor is readable.
    shown: bool,
    /// There is no room to send, and the descriptor is not writable.
    full: bool,
}

impl Face {
    fn show(&self, ready: bool) {
        // Neither blocks, whatever the descriptor's flags: an eventfd is 0 before the one and 1 before the other.
        match (self, ready) {
            (Face::Eventfd(bell), true) => bell.ring(),
            (Face::Eventfd(bell), false) => bell.hush(),
            (Face::Pair(pair), true) => pair.ring(),
            (Face::Pair(pair), false) => pair.hush(),
        }
    }

    /// Has it become readable anew.
    fn show_anew(&self) {
        match self {
            // It counts to far more than can ever arrive, and is hushed at once.
            Face::Eventfd(bell) => bell.ring(),
            Face::Pair(pair) => pair.ring_again(),
        }
    }
}

impl Signal {
    /// Makes an eventfd that follows no socket yet.
    ///
    /// # Errors
    /// The system has no more descriptors.
    pub fn open() -> io::Result<Arc<Signal>> {
        Bell::new().map(|bell| Signal::with(Face::Eventfd(bell)))
    }

    /// The same of a pair of connected stream sockets of the caller's, which nobody else reads or writes: `polled` is shown, and may be
    /// a copy of the descriptor that is polled.
    ///
    /// # Errors
    /// They are no sockets.
    pub fn of_pair(polled: OwnedFd, other: OwnedFd) -> io::Result<Arc<Signal>> {
        Ok(Signal::with(Face::Pair(Pair::new(polled, other)?)))
    }

    fn with(face: Face) -> Arc<Signal> {
        let flag = || AtomicBool::new(false);
        Arc::new(Signal {
            face,
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
    /// who is [told of each](Signal::tell_each) arrival wants to be told as well.
    pub fn force(&self, forced: bool, anew: bool) {
        if self.forced.swap(forced, Relaxed) != forced || anew {
            self.refresh(anew);
        }
    }

    /// The same, and whether what comes to the socket is not shown from now on: for somebody who does not receive for the moment. The
    /// descriptor shows it after the next [`show`](Signal::show), to be called if this says so: this may be called with locks held that the
    /// end of a socket takes, too, and that may not.
    #[must_use]
    pub fn note(&self, forced: bool, muted: bool) -> bool {
        let was_forced = self.forced.swap(forced, Relaxed);
        let was_muted = self.muted.swap(muted, Relaxed);
        (was_forced, was_muted) != (forced, muted)
    }

    /// Makes the descriptor show what was [noted](Signal::note). `anew` as in [`force`](Signal::force).
    pub fn show(&self, anew: bool) {
        self.refresh(anew);
    }

    /// Has the descriptor become readable anew with each arrival from now on, also while it is: for who watches it by EPOLLET. It costs a system call
    /// for each that nobody waits for.
    pub fn tell_each(&self) {
        self.edges.store(true, Relaxed);
    }

    /// Something was taken from the socket, as must be told each time: the descriptor may have been readable for it.
    pub fn taken(&self) {
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
            self.face.show(ready);
            state.shown = ready;
        } else if arrived && ready && self.edges.load(Relaxed) {
            self.face.show_anew();
        }
        // Who took a message since the look found this set, and waits for the lock to look again.
        self.up.store(ready, Relaxed);
        drop(state);
        // Perhaps the last handle, which calls this again.
        drop(socket);
    }

    /// Shows whether there is room to send, which is asked with the signal locked, so that the last answer is shown. An eventfd shows
    /// nothing of it.
    pub fn show_room(&self, has_room: impl FnOnce() -> bool) {
        let mut state = self.lock();
        let full = !has_room();
        if let Face::Pair(pair) = &self.face
            && full != state.full
        {
            pair.show_room(!full);
            state.full = full;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.face {
            Face::Eventfd(bell) => bell.as_fd(),
            Face::Pair(pair) => pair.as_fd(),
        }
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.refresh(true);
    }
}
