//! poll, select and epoll. The kernel handles a Homa socket's descriptor itself. The hooks only start the
//! progress thread's driving when the program goes to sleep, instead of a tick later.
//!
//! A signal handler may poll at any moment: no code here waits for a lock or allocates, since the interrupted
//! thread may hold the lock or the allocator's. While another thread changes the table of sockets, driving
//! starts a tick later.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

use crate::descriptor_table::{ProcessState, any, is_homa};
use crate::ffi_border::answer;
use crate::memory;
use crate::real;
use crate::socket::Socket;

/// Whether the program has had a Homa socket in an epoll set.
static IN_EPOLL: AtomicBool = AtomicBool::new(false);

/// Drives the Homa sockets among these descriptors. If there are other descriptors, also drives the sockets
/// in any epoll set, since they may be epoll sets.
fn attend_to(fds: impl Iterator<Item = c_int>) {
    answer(|| {
        let mut others = false;
        for fd in fds {
            if !is_homa(fd) {
                others = true;
            } else if let Some(state) = ProcessState::existing() {
                state.glance_at(fd, Socket::attend);
            }
        }
        if others {
            attend_in_epoll();
        }
        Ok(0)
    });
}

/// Drives the sockets in any epoll set.
fn attend_to_epoll() {
    answer(|| {
        attend_in_epoll();
        Ok(0)
    });
}

fn attend_in_epoll() {
    if IN_EPOLL.load(Relaxed)
        && let Some(state) = ProcessState::existing()
    {
        state.glance_at_each(|socket| {
            if socket.in_epoll.load(Relaxed) {
                socket.attend();
            }
        });
    }
}

fn polled(fds: *const pollfd, count: nfds_t) -> impl Iterator<Item = c_int> {
    // The kernel reports an error for unreadable entries.
    (0..count as usize).map_while(move |at| memory::read(fds.wrapping_add(at)).ok()).map(|entry| entry.fd)
}

fn selected(count: c_int, read: *const fd_set) -> impl Iterator<Item = c_int> {
    let set = if read.is_null() { None } else { memory::read(read).ok() };
    let count = count.clamp(0, libc::FD_SETSIZE as c_int);
    // SAFETY: `fd` is below the size of the set, and `set` is a local copy.
    (0..count).filter(move |fd| set.as_ref().is_some_and(|set| unsafe { libc::FD_ISSET(*fd, set) }))
}

/// # Safety
/// The requirements of the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    if any() {
        attend_to(polled(fds, count));
    }
    // SAFETY: the caller meets the requirements of the libc function.
    unsafe { real::poll(fds, count, timeout) }
}

/// # Safety
/// The requirements of the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    if any() {
        attend_to(polled(fds, count));
    }
    // SAFETY: the caller meets the requirements of the libc function.
    unsafe { real::ppoll(fds, count, timeout, mask) }
}

/// # Safety
/// The requirements of the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    if any() {
        attend_to(selected(count, read));
    }
    // SAFETY: the caller meets the requirements of the libc function.
    unsafe { real::select(count, read, write, except, timeout) }
}

/// # Safety
/// The requirements of the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    if any() {
        attend_to(selected(count, read));
    }
    // SAFETY: the caller meets the requirements of the libc function.
    unsafe { real::pselect(count, read, write, except, timeout, mask) }
}

/// # Safety
/// The requirements of the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn epoll_ctl(
    epoll: c_int,
    what: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    if what != libc::EPOLL_CTL_DEL && is_homa(fd) {
        answer(|| {
            note_in_epoll(fd, memory::read(event).ok());
            Ok(0)
        });
    }
    // SAFETY: the caller meets the requirements of the libc function.
    unsafe { real::epoll_ctl(epoll, what, fd, event) }
}

/// Records that the program adds or modifies a Homa socket in an epoll set.
fn note_in_epoll(fd: c_int, event: Option<epoll_event>) {
    if let Some(event) = event
        && let Ok(socket) = ProcessState::get().socket(fd)
    {
        socket.in_epoll.store(true, Relaxed);
        IN_EPOLL.store(true, Relaxed);
        if event.events & libc::EPOLLET as u32 != 0 {
            socket.signal.notify_each_arrival();
        }
    }
}

/// Drives the network while the program waits at an epoll set.
fn attend_before_wait() {
    if any() {
        attend_to_epoll();
    }
}

/// # Safety
/// The requirements of the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
) -> c_int {
    attend_before_wait();
    // SAFETY: the caller meets the requirements of the libc function.
    unsafe { real::epoll_wait(epoll, events, room, timeout) }
}

/// # Safety
/// The requirements of the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    attend_before_wait();
    // SAFETY: the caller meets the requirements of the libc function.
    unsafe { real::epoll_pwait(epoll, events, room, timeout, mask) }
}

/// # Safety
/// The requirements of the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    attend_before_wait();
    // SAFETY: the caller meets the requirements of the libc function.
    unsafe { real::epoll_pwait2(epoll, events, room, timeout, mask) }
}
