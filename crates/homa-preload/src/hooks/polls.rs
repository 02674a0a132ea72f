//! poll, select and epoll. The kernel itself handles the descriptor of a Homa socket. In poll and epoll, the
//! thread first drives the network while packets arrive (`polling`). When the thread goes to sleep, these
//! hooks make the progress thread drive at once, rather than a tick later.
//!
//! A signal handler may poll at any moment. No code here waits for a lock or allocates memory, since the
//! interrupted thread may hold that lock or the allocator's. If the table of sockets is being changed,
//! driving starts a tick later.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use crate::descriptor_table::{ProcessState, any, is_homa};
use crate::ffi_border::answer;
use crate::memory;
use crate::polling::{self, Polled, wait_in_turns};
use crate::real;
use crate::socket::Socket;

/// Whether the program has ever added a Homa socket to an epoll set.
static IN_EPOLL: AtomicBool = AtomicBool::new(false);

/// Has the progress thread drive the Homa sockets among these descriptors. If there are other descriptors,
/// includes the sockets in any epoll set, since a descriptor may be an epoll set.
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

/// Has the progress thread drive the sockets in any epoll set.
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
    // If an entry is unreadable, the kernel reports the error.
    (0..count as usize).map_while(move |at| memory::read(fds.wrapping_add(at)).ok()).map(|entry| entry.fd)
}

fn selected(count: c_int, read: *const fd_set) -> impl Iterator<Item = c_int> {
    let set = if read.is_null() { None } else { memory::read(read).ok() };
    let count = count.clamp(0, libc::FD_SETSIZE as c_int);
    // SAFETY: `fd` is below the size of the set, and `set` is a local copy.
    (0..count).filter(move |fd| set.as_ref().is_some_and(|set| unsafe { libc::FD_ISSET(*fd, set) }))
}

/// Converts a time limit in milliseconds; negative means no limit.
fn limit_of_ms(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// Converts a time limit to milliseconds for libc, rounded up: a wait must not end early.
fn ms_of(limit: Option<Duration>) -> c_int {
    let ms = |limit: Duration| limit.as_nanos().div_ceil(1_000_000);
    limit.map_or(-1, |limit| c_int::try_from(ms(limit)).unwrap_or(c_int::MAX))
}

/// Reads the time limit of a call; NULL means no limit. Returns `None` if it is invalid, which the kernel
/// reports.
fn limit_of(timeout: *const timespec) -> Option<Option<Duration>> {
    if timeout.is_null() {
        return Some(None);
    }
    let timespec { tv_sec, tv_nsec } = memory::read(timeout).ok()?;
    let nanos = u32::try_from(tv_nsec).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Some(Duration::new(u64::try_from(tv_sec).ok()?, nanos)))
}

/// Converts a time limit for libc.
fn timespec_of(limit: Duration) -> timespec {
    let tv_sec = libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX);
    timespec { tv_sec, tv_nsec: limit.subsec_nanos().into() }
}

/// Implements poll and ppoll for a program that has Homa sockets.
fn poll_in_turns(fds: *mut pollfd, count: nfds_t, limit: Option<Duration>, mask: *const sigset_t) -> c_int {
    let attend = || attend_to(polled(fds, count));
    wait_in_turns(Polled::Entries(fds, count), limit, mask, attend, |limit, mask| {
        let limit = limit.map(timespec_of);
        let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
        polling::with_settled(polled(fds, count), || {
            // SAFETY: the program meets the requirements of poll, and the limit outlives the call.
            unsafe { real::ppoll(fds, count, limit, mask) }
        })
    })
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    if any() {
        return poll_in_turns(fds, count, limit_of_ms(timeout), ptr::null());
    }
    // SAFETY: the caller meets the requirements of the libc function.
    unsafe { real::poll(fds, count, timeout) }
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    if any()
        && let Some(limit) = limit_of(timeout)
    {
        return poll_in_turns(fds, count, limit, mask);
    }
    // SAFETY: the caller meets the requirements of the libc function.
    unsafe { real::ppoll(fds, count, timeout, mask) }
}

/// Returns whether `count` entries exceed this many bytes. libc's checked functions then end the program.
fn overflows(count: nfds_t, bytes: size_t) -> bool {
    bytes / size_of::<pollfd>() < count as size_t
}

/// # Safety
/// Same as for the libc function of this name, which programs compiled with checks call instead of poll.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    bytes: size_t,
) -> c_int {
    if any() && !overflows(count, bytes) {
        return poll_in_turns(fds, count, limit_of_ms(timeout), ptr::null());
    }
    // SAFETY: the caller meets the requirements of the libc function.
    unsafe { real::__poll_chk(fds, count, timeout, bytes) }
}

/// # Safety
/// Same as for the libc function of this name, which programs compiled with checks call instead of ppoll.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    bytes: size_t,
) -> c_int {
    if any()
        && !overflows(count, bytes)
        && let Some(limit) = limit_of(timeout)
    {
        return poll_in_turns(fds, count, limit, mask);
    }
    // SAFETY: the caller meets the requirements of the libc function.
    unsafe { real::__ppoll_chk(fds, count, timeout, mask, bytes) }
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller meets the requirements of the libc function.
    let select = || unsafe { real::select(count, read, write, except, timeout) };
    if !any() {
        return select();
    }
    attend_to(selected(count, read));
    polling::with_settled(selected(count, read), select)
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller meets the requirements of the libc function.
    let pselect = || unsafe { real::pselect(count, read, write, except, timeout, mask) };
    if !any() {
        return pselect();
    }
    attend_to(selected(count, read));
    polling::with_settled(selected(count, read), pselect)
}

/// # Safety
/// Same as for the libc function of this name.
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

/// Records that the program adds a Homa socket to an epoll set, or modifies its entry.
fn note_in_epoll(fd: c_int, event: Option<epoll_event>) {
    if let Some(event) = event
        && let Ok(socket) = ProcessState::get().socket(fd)
    {
        socket.in_epoll.store(true, SeqCst);
        IN_EPOLL.store(true, Relaxed);
        if event.events & libc::EPOLLET as u32 != 0 {
            socket.signal.notify_each_arrival();
        }
        socket.signal.settle();
    }
}

/// Implements epoll_wait and epoll_pwait for a program that has Homa sockets.
fn epoll_in_turns(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    limit: Option<Duration>,
    mask: *const sigset_t,
) -> c_int {
    wait_in_turns(Polled::Epoll(epoll), limit, mask, attend_to_epoll, |limit, mask| {
        // SAFETY: the program meets the requirements of epoll_pwait, which accepts a null mask.
        unsafe { real::epoll_pwait(epoll, events, room, ms_of(limit), mask) }
    })
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
) -> c_int {
    if any() {
        return epoll_in_turns(epoll, events, room, limit_of_ms(timeout), ptr::null());
    }
    // SAFETY: the caller meets the requirements of the libc function.
    unsafe { real::epoll_wait(epoll, events, room, timeout) }
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    if any() {
        return epoll_in_turns(epoll, events, room, limit_of_ms(timeout), mask);
    }
    // SAFETY: the caller meets the requirements of the libc function.
    unsafe { real::epoll_pwait(epoll, events, room, timeout, mask) }
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    if any()
        && let Some(limit) = limit_of(timeout)
    {
        return wait_in_turns(Polled::Epoll(epoll), limit, mask, attend_to_epoll, |limit, mask| {
            let limit = limit.map(timespec_of);
            let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
            // SAFETY: the caller meets the requirements of the libc function, and the limit outlives the
            // call.
            unsafe { real::epoll_pwait2(epoll, events, room, limit, mask) }
        });
    }
    // SAFETY: the caller meets the requirements of the libc function.
    unsafe { real::epoll_pwait2(epoll, events, room, timeout, mask) }
}
