//! The descriptor that the program has for a socket: an eventfd that is readable exactly while a message can be received.
//!
//! Nothing is written to it for a message that a thread waits for in recvmsg, so that a program that never polls makes no system call for it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Wake;

use homa::Socket;

use crate::real;

pub(crate) struct Signal {
    /// A second descriptor of the eventfd: the program may close its own at any time.
    fd: OwnedFd,
    state: Mutex<State>,
    /// The eventfd is readable, or somebody is looking whether it should be. Set before the look, so that who takes a message behind that look
    /// sees it: both have the socket's lock in between.
    up: AtomicBool,
    /// It is to be readable whatever the socket has: it was shut down, or a message waits here that has room now.
    forced: AtomicBool,
}

#[derive(Default)]
struct State {
    socket: Weak<Socket>,
    /// The eventfd is readable.
    shown: bool,
}

impl Signal {
    /// Makes the eventfd; returns it and the program's descriptor.
    pub(crate) fn new(nonblocking: bool, close_on_exec: bool) -> io::Result<(Arc<Signal>, RawFd)> {
        let flags = if nonblocking { libc::EFD_NONBLOCK } else { 0 };
        let close_on_exec = if close_on_exec { libc::EFD_CLOEXEC } else { 0 };
        // SAFETY: eventfd takes two numbers.
        let program = unsafe { libc::eventfd(0, flags | close_on_exec) };
        if program < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is open; the command takes a number.
        let own = unsafe { libc::fcntl(program, libc::F_DUPFD_CLOEXEC, 0) };
        if own < 0 {
            let error = io::Error::last_os_error();
            // SAFETY: nobody else has it yet.
            unsafe { libc::close(program) };
            return Err(error);
        }
        // SAFETY: the descriptor is new and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(own) };
        let (up, forced) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok((Arc::new(Signal { fd, state: Mutex::default(), up, forced }), program))
    }

    /// Shows what comes to this socket from now on.
    pub(crate) fn follow(self: &Arc<Self>, socket: &Arc<Socket>) {
        self.lock().socket = Arc::downgrade(socket);
        socket.set_waker(Some(Arc::clone(self).into()));
        self.refresh();
    }

    /// Has the descriptor readable from now on, or as the socket has it.
    pub(crate) fn force(&self, forced: bool) {
        if self.forced.swap(forced, Relaxed) != forced {
            self.refresh();
        }
    }

    /// A message was taken: the descriptor may have been readable for it.
    pub(crate) fn taken(&self) {
        if self.up.load(Relaxed) {
            self.refresh();
        }
    }

    /// Makes the descriptor show how things are. Whoever changes them calls it afterwards, so that whoever is the last to have the lock sees them all.
    fn refresh(&self) {
        let mut state = self.lock();
        let socket = state.socket.upgrade();
        self.up.store(true, Relaxed);
        let ready = self.forced.load(Relaxed) || socket.as_ref().is_some_and(|socket| socket.has_arrival());
        if ready != state.shown {
            self.show(ready);
            state.shown = ready;
        }
        // Who took a message since the look found this set, and waits for the lock to look again.
        self.up.store(ready, Relaxed);
        drop(state);
        // Perhaps the last handle, which calls this again.
        drop(socket);
    }

    fn show(&self, ready: bool) {
        let mut count = 1_u64;
        let (fd, size) = (self.fd.as_raw_fd(), size_of::<u64>());
        // SAFETY: eight bytes are read or written, from or to `count`. Neither blocks: the eventfd is 0 before the one and 1 before the other.
        let _ = unsafe {
            match ready {
                true => real::write(fd, (&raw const count).cast(), size),
                false => real::read(fd, (&raw mut count).cast(), size),
            }
        };
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.refresh();
    }
}
