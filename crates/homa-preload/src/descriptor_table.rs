//! Which descriptors of this process are Homa sockets.

use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, TryLockError, Weak};

use crate::ffi_border::Refusal;
use crate::hosts::Hosts;
use crate::own_descriptors;
use crate::settings::Settings;
use crate::socket::Socket;

/// Descriptors that can be Homa sockets: the kernel's own limit for a process, unless somebody has raised it.
pub(crate) const MOST: usize = 1 << 20;

/// A bit for each descriptor that is a Homa socket, this process's or one that its parent had when it forked.
static MARKS: [AtomicU64; MOST / 64] = [const { AtomicU64::new(0) }; MOST / 64];

/// Descriptors marked.
static MARKED: AtomicUsize = AtomicUsize::new(0);

/// What this process has. A child begins with nothing: its parent's threads are not there, and its locks may be held for ever.
static PROCESS_STATE: AtomicPtr<ProcessState> = AtomicPtr::new(ptr::null_mut());

/// See [`PROCESS_STATE`].
pub(crate) struct ProcessState {
    pub(crate) hosts: Hosts,
    process: u32,
    sockets: RwLock<Vec<Option<Arc<Socket>>>>,
    /// Sockets without a descriptor: a thread that is in a call of one may still have messages put in its buffers.
    closed: Mutex<Vec<Weak<Socket>>>,
}

impl ProcessState {
    /// This process's, made at the first call.
    pub(crate) fn get() -> &'static ProcessState {
        // SAFETY: what is stored there is never freed.
        if let Some(world) = unsafe { PROCESS_STATE.load(Acquire).as_ref() } {
            return world;
        }
        let new = Box::into_raw(Box::new(ProcessState {
            hosts: Hosts::new(Settings::from_environment()),
            process: std::process::id(),
            sockets: RwLock::default(),
            closed: Mutex::default(),
        }));
        // Before somebody who finds it can fork; of several who are here at once each says so, which does no harm.
        // SAFETY: the function touches atomics alone, which is good in any child.
        unsafe { libc::pthread_atfork(None, None, Some(forget_parent)) };
        match PROCESS_STATE.compare_exchange(ptr::null_mut(), new, AcqRel, Acquire) {
            // SAFETY: it was just made, and is never freed.
            Ok(_) => unsafe { &*new },
            Err(other) => {
                // SAFETY: nobody else has seen it.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: as above: never freed.
                unsafe { &*other }
            }
        }
    }

    /// This process's, if it has had a use for one.
    pub(crate) fn existing() -> Option<&'static ProcessState> {
        // SAFETY: as in `get`.
        unsafe { PROCESS_STATE.load(Acquire).as_ref() }
    }

    /// Makes `fd` a Homa socket.
    pub(crate) fn insert(&self, fd: RawFd, socket: Arc<Socket>) -> Result<(), Refusal> {
        let at = fd as usize;
        if at >= MOST {
            return Err(Refusal::plain(libc::EMFILE));
        }
        let before;
        {
            let mut sockets = self.sockets.write().unwrap_or_else(PoisonError::into_inner);
            if sockets.len() <= at {
                sockets.resize(at + 1, None);
            }
            before = sockets[at].replace(socket);
            if MARKS[at / 64].fetch_or(1 << (at % 64), Release) & 1 << (at % 64) == 0 {
                MARKED.fetch_add(1, Relaxed);
            }
        }
        // One that was closed behind this library's back.
        drop(before);
        Ok(())
    }

    /// Makes `fd` an ordinary descriptor again. What it was is for the caller to drop.
    pub(crate) fn remove(&self, fd: RawFd) -> Option<Arc<Socket>> {
        self.remove_and(fd, || ())
    }

    /// Like [`remove`](ProcessState::remove), and runs `close` before a call of another thread finds no Homa socket any more: that call
    /// would otherwise be made on the descriptor beneath the socket.
    pub(crate) fn remove_and(&self, fd: RawFd, close: impl FnOnce()) -> Option<Arc<Socket>> {
        let at = fd as usize;
        let removed;
        let is_last;
        {
            let mut sockets = self.sockets.write().unwrap_or_else(PoisonError::into_inner);
            close();
            if MARKS[at / 64].fetch_and(!(1 << (at % 64)), Release) & 1 << (at % 64) != 0 {
                MARKED.fetch_sub(1, Relaxed);
            }
            removed = sockets.get_mut(at)?.take()?;
            is_last = !sockets.iter().flatten().any(|other| Arc::ptr_eq(other, &removed));
            if is_last {
                let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
                closed.retain(|socket| socket.strong_count() > 0);
                closed.push(Arc::downgrade(&removed));
            }
        }
        // A thread that is in a call of it may keep it for long.
        if is_last {
            removed.close();
        }
        Some(removed)
    }

    /// Whether the calling process is the one that made it, and no child that shares its memory for a moment (vfork).
    pub(crate) fn is_mine(&self) -> bool {
        self.process == std::process::id()
    }

    /// The Homa socket that `fd` is; an error where it is the parent's, or where another thread has closed it since the caller saw its
    /// mark.
    pub(crate) fn socket(&self, fd: RawFd) -> Result<Arc<Socket>, Refusal> {
        let sockets = self.sockets.read().unwrap_or_else(PoisonError::into_inner);
        let socket = sockets.get(fd as usize).and_then(Option::as_ref).map(Arc::clone);
        socket.ok_or(Refusal::plain(if is_homa(fd) { libc::ENOTCONN } else { libc::EBADF }))
    }

    /// Does something with the Homa socket that `fd` is, if the table can be read at this moment: for a signal handler, whose thread may
    /// be changing it. No handle is made, which could turn out to be the last.
    pub(crate) fn glance_at(&self, fd: RawFd, body: impl Fn(&Socket)) {
        if let Some(sockets) = self.glance()
            && let Some(socket) = sockets.get(fd as usize).and_then(Option::as_deref)
        {
            body(socket);
        }
    }

    /// The same with each Homa socket.
    pub(crate) fn glance_at_each(&self, body: impl Fn(&Socket)) {
        if let Some(sockets) = self.glance() {
            sockets.iter().flatten().for_each(|socket| body(socket));
        }
    }

    fn glance(&self) -> Option<RwLockReadGuard<'_, Vec<Option<Arc<Socket>>>>> {
        match self.sockets.try_read() {
            Ok(sockets) => Some(sockets),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Every Homa socket.
    pub(crate) fn all(&self) -> Vec<Arc<Socket>> {
        let sockets = self.sockets.read().unwrap_or_else(PoisonError::into_inner);
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.iter().flatten().map(Arc::clone).chain(closed.iter().filter_map(Weak::upgrade)).collect()
    }
}

extern "C" fn forget_parent() {
    PROCESS_STATE.store(ptr::null_mut(), Release);
    own_descriptors::forget_all();
}

/// Whether `fd` is a Homa socket.
#[inline]
pub(crate) fn is_homa(fd: RawFd) -> bool {
    let at = fd as usize;
    at < MOST && MARKS[at / 64].load(Acquire) >> (at % 64) & 1 == 1
}

/// Whether any descriptor is.
#[inline]
pub(crate) fn any() -> bool {
    MARKED.load(Relaxed) > 0
}

/// The marked descriptors from `first` to `last`.
pub(crate) fn marked(first: usize, last: usize) -> Vec<RawFd> {
    (first..=last.min(MOST - 1)).filter(|fd| is_homa(*fd as RawFd)).map(|fd| fd as RawFd).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_child_forgets_what_is_the_librarys_own() {
        const OWN: u32 = 900_000;
        let is_own = || own_descriptors::marked(OWN, OWN).next().is_some();
        // Another thread has made the world a moment ago, and opened its first socket.
        own_descriptors::keep(OWN as RawFd);
        PROCESS_STATE.store(ptr::null_mut(), Release);
        ProcessState::get();
        assert!(is_own());
        // SAFETY: the child makes no call but those that any child may make.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let forgotten = ProcessState::existing().is_none() && !is_own();
            // SAFETY: it ends the process.
            unsafe { libc::_exit(forgotten.into()) };
        }
        let mut status = 0;
        // SAFETY: the status is written to.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(libc::WEXITSTATUS(status), 1);
        assert!(is_own());
    }
}
