//! The table of this process's descriptors that are Homa sockets.

use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, TryLockError, Weak};

use crate::ffi_border::Refusal;
use crate::hosts::Hosts;
use crate::own_descriptors;
use crate::process::{self, MAX_DESCRIPTORS, StateOwner};
use crate::settings::Settings;
use crate::socket::Socket;

/// A bit for each descriptor that is a Homa socket, whether opened by this process or inherited from its
/// parent.
static MARKS: [AtomicU64; MAX_DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; MAX_DESCRIPTORS / 64];

/// Number of marked descriptors.
static MARKED: AtomicUsize = AtomicUsize::new(0);

/// The sockets and hosts of this process. A child starts without them: the parent's threads do not exist in
/// the child, and the parent's locks may be held there forever.
static PROCESS_STATE: AtomicPtr<ProcessState> = AtomicPtr::new(ptr::null_mut());

/// The state at [`PROCESS_STATE`].
pub(crate) struct ProcessState {
    pub(crate) hosts: Hosts,
    sockets: RwLock<Vec<Option<Arc<Socket>>>>,
    /// Sockets whose last descriptor was closed. If a thread is still in a call on such a socket, messages
    /// may still be written to the socket's buffers.
    closed: Mutex<Vec<Weak<Socket>>>,
}

impl ProcessState {
    /// Returns the state of this process, which the first call creates.
    pub(crate) fn get() -> &'static ProcessState {
        // SAFETY: the pointer is null or came from `Box::into_raw`, and the state is never freed.
        if let Some(state) = unsafe { PROCESS_STATE.load(Acquire).as_ref() } {
            return state;
        }
        let new = Box::into_raw(Box::new(ProcessState {
            hosts: Hosts::new(Settings::from_environment()),
            sockets: RwLock::default(),
            closed: Mutex::default(),
        }));
        // Registered before any thread can find the state and fork. Several threads may register it at once,
        // which is harmless. SAFETY: the function accesses only atomics, which is permitted in any child.
        unsafe { libc::pthread_atfork(None, None, Some(forget_parent)) };
        process::own_state();
        match PROCESS_STATE.compare_exchange(ptr::null_mut(), new, AcqRel, Acquire) {
            // SAFETY: `new` came from `Box::into_raw` above, and is never freed.
            Ok(_) => unsafe { &*new },
            Err(other) => {
                // SAFETY: `new` came from `Box::into_raw` above and was not published.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: `other` was published by another thread and is never freed.
                unsafe { &*other }
            }
        }
    }

    /// Returns the state of this process, if it was created.
    pub(crate) fn existing() -> Option<&'static ProcessState> {
        // SAFETY: the pointer is null or came from `Box::into_raw`, and the state is never freed.
        unsafe { PROCESS_STATE.load(Acquire).as_ref() }
    }

    /// Registers `fd` as a Homa socket.
    pub(crate) fn insert(&self, fd: RawFd, socket: Arc<Socket>) -> Result<(), Refusal> {
        let at = fd as usize;
        if at >= MAX_DESCRIPTORS {
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
        // If this descriptor number belonged to a socket, the socket was closed without this library's
        // knowledge.
        drop(before);
        Ok(())
    }

    /// Makes `fd` an ordinary descriptor again. The caller drops the returned socket.
    pub(crate) fn remove(&self, fd: RawFd) -> Option<Arc<Socket>> {
        self.remove_and(fd, || ())
    }

    /// Like [`remove`](ProcessState::remove), but first runs `close`, before any other thread can find that
    /// `fd` is no longer a Homa socket. Otherwise such a thread would make its call on the underlying plain
    /// descriptor.
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
        // Closed here rather than on drop: a thread in a call on this socket may hold a reference for a long
        // time.
        if is_last {
            removed.close();
        }
        Some(removed)
    }

    /// Returns whether the calling process created this state: false in a child of vfork, which shares its
    /// parent's memory for a while.
    pub(crate) fn is_mine(&self) -> bool {
        process::state_owner() == StateOwner::ThisProcess
    }

    /// Returns the Homa socket of `fd`. Fails if the socket belongs to the parent process, or if another
    /// thread has closed it since the caller read its mark.
    pub(crate) fn socket(&self, fd: RawFd) -> Result<Arc<Socket>, Refusal> {
        let sockets = self.sockets.read().unwrap_or_else(PoisonError::into_inner);
        let socket = sockets.get(fd as usize).and_then(Option::as_ref).map(Arc::clone);
        socket.ok_or(Refusal::plain(if is_homa(fd) { libc::ENOTCONN } else { libc::EBADF }))
    }

    /// Calls `body` with the Homa socket of `fd`, if the table can be read without waiting. For signal
    /// handlers, which may have interrupted a change of the table. Creates no `Arc`, which could become the
    /// last reference.
    pub(crate) fn glance_at(&self, fd: RawFd, body: impl Fn(&Socket)) {
        if let Some(sockets) = self.glance()
            && let Some(socket) = sockets.get(fd as usize).and_then(Option::as_deref)
        {
            body(socket);
        }
    }

    /// Like [`glance_at`](ProcessState::glance_at), for every Homa socket.
    pub(crate) fn glance_at_each(&self, body: impl Fn(&Socket)) {
        if let Some(sockets) = self.glance() {
            sockets.iter().flatten().for_each(|socket| body(socket));
        }
    }

    /// Returns the Homa sockets that the program has in epoll sets.
    pub(crate) fn all_in_epoll(&self) -> Vec<Arc<Socket>> {
        let sockets = self.sockets.read().unwrap_or_else(PoisonError::into_inner);
        sockets.iter().flatten().filter(|socket| socket.in_epoll.load(Relaxed)).map(Arc::clone).collect()
    }

    fn glance(&self) -> Option<RwLockReadGuard<'_, Vec<Option<Arc<Socket>>>>> {
        match self.sockets.try_read() {
            Ok(sockets) => Some(sockets),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns all Homa sockets, including closed ones that are still in use.
    pub(crate) fn all(&self) -> Vec<Arc<Socket>> {
        let sockets = self.sockets.read().unwrap_or_else(PoisonError::into_inner);
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.iter().flatten().map(Arc::clone).chain(closed.iter().filter_map(Weak::upgrade)).collect()
    }
}

extern "C" fn forget_parent() {
    PROCESS_STATE.store(ptr::null_mut(), Release);
    process::disown_state();
    own_descriptors::forget_all();
}

/// Returns whether `fd` is a Homa socket.
#[inline]
pub(crate) fn is_homa(fd: RawFd) -> bool {
    let at = fd as usize;
    at < MAX_DESCRIPTORS && MARKS[at / 64].load(Acquire) >> (at % 64) & 1 == 1
}

/// Returns whether any descriptor is a Homa socket.
#[inline]
pub(crate) fn any() -> bool {
    MARKED.load(Relaxed) > 0
}

/// Returns the marked descriptors from `first` to `last`.
pub(crate) fn marked(first: usize, last: usize) -> Vec<RawFd> {
    (first..=last.min(MAX_DESCRIPTORS - 1)).filter(|fd| is_homa(*fd as RawFd)).map(|fd| fd as RawFd).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_child_forgets_what_is_the_librarys_own() {
        const OWN: u32 = 900_000;
        let is_own = || own_descriptors::marked(OWN, OWN).next().is_some();
        // Stands in for another thread that has just created the state and opened its first socket.
        own_descriptors::keep(OWN as RawFd);
        PROCESS_STATE.store(ptr::null_mut(), Release);
        ProcessState::get();
        assert!(is_own());
        // SAFETY: the child makes only calls that are permitted after fork in a process with threads.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let forgotten = ProcessState::existing().is_none() && !is_own();
            // SAFETY: `_exit` has no requirements.
            unsafe { libc::_exit(forgotten.into()) };
        }
        let mut status = 0;
        // SAFETY: `status` has room for the status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(libc::WEXITSTATUS(status), 1);
        assert!(is_own());
    }
}
