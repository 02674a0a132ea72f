//! poll, select and epoll. They work on a Homa socket's descriptor by themselves; all that is done here is to have the network driven while the program
//! sleeps in them, from the moment at which it does and not only a tick later.
//!
//! A signal handler may poll, whatever its thread was doing: nothing here waits for a lock or asks for memory that the thread may have in
//! its hands. Where somebody changes the table of sockets at this moment, the network is driven a tick later.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

use crate::descriptor_table::{ProcessState, any, is_homa};
use crate::ffi_border::answer;
use crate::memory;
use crate::real;
use crate::socket::Socket;

/// The program has had a Homa socket in some epoll set.
static IN_EPOLL: AtomicBool = AtomicBool::new(false);

/// Sees to the Homa sockets among these descriptors, and where there are others to those in any epoll set: they may be sets.
fn attend_to(fds: impl Iterator<Item = c_int>) {
    answer(|| {
        let mut others = false;
        for fd in fds {
            if !is_homa(fd) {
                others = true;
            } else if let Some(world) = ProcessState::existing() {
                world.glance_at(fd, Socket::attend);
            }
        }
        if others {
            attend_in_epoll();
        }
        Ok(0)
    });
}

/// Sees to those in any epoll set.
fn attend_to_epoll() {
    answer(|| {
        attend_in_epoll();
        Ok(0)
    });
}

fn attend_in_epoll() {
    if IN_EPOLL.load(Relaxed)
        && let Some(world) = ProcessState::existing()
    {
        world.glance_at_each(|socket| {
            if socket.in_epoll.load(Relaxed) {
                socket.attend();
            }
        });
    }
}

fn polled(fds: *const pollfd, count: nfds_t) -> impl Iterator<Item = c_int> {
    // What cannot be read is the kernel's to refuse.
    (0..count as usize).map_while(move |at| memory::read(fds.wrapping_add(at)).ok()).map(|entry| entry.fd)
}

fn selected(count: c_int, read: *const fd_set) -> impl Iterator<Item = c_int> {
    let set = if read.is_null() { None } else { memory::read(read).ok() };
    let count = count.clamp(0, libc::FD_SETSIZE as c_int);
    // SAFETY: the number is below the set's size, and the set is a copy.
    (0..count).filter(move |fd| set.as_ref().is_some_and(|set| unsafe { libc::FD_ISSET(*fd, set) }))
}

/// # Safety
/// As in libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    if any() {
        attend_to(polled(fds, count));
    }
    // SAFETY: the caller's.
    unsafe { real::poll(fds, count, timeout) }
}

/// # Safety
/// As in libc.
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
    // SAFETY: the caller's.
    unsafe { real::ppoll(fds, count, timeout, mask) }
}

/// # Safety
/// As in libc.
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
    // SAFETY: the caller's.
    unsafe { real::select(count, read, write, except, timeout) }
}

/// # Safety
/// As in libc.
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
    // SAFETY: the caller's.
    unsafe { real::pselect(count, read, write, except, timeout, mask) }
}

/// # Safety
/// As in libc.
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
    // SAFETY: the caller's.
    unsafe { real::epoll_ctl(epoll, what, fd, event) }
}

/// The program puts a Homa socket in a set, or asks the set something else of it.
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

/// Has the network driven while the program waits at a set.
fn attend_before_wait() {
    if any() {
        attend_to_epoll();
    }
}

/// # Safety
/// As in libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
) -> c_int {
    attend_before_wait();
    // SAFETY: the caller's.
    unsafe { real::epoll_wait(epoll, events, room, timeout) }
}

/// # Safety
/// As in libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    attend_before_wait();
    // SAFETY: the caller's.
    unsafe { real::epoll_pwait(epoll, events, room, timeout, mask) }
}

/// # Safety
/// As in libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    attend_before_wait();
    // SAFETY: the caller's.
    unsafe { real::epoll_pwait2(epoll, events, room, timeout, mask) }
}
