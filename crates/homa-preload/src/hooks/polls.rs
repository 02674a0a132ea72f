//! poll, select and epoll. They work on a Homa socket's descriptor by themselves; all that is done here is to have the network driven while the program
//! sleeps in them, from the moment at which it does and not only a tick later.
//!
//! A signal handler may poll, whatever its thread was doing: nothing here waits for a lock or asks for memory that the thread may have in
//! its hands. Where somebody changes the table of sockets at this moment, the network is driven a tick later. In a program that has asked an epoll set
//! for EPOLLRDNORM or EPOLLWRNORM on a Homa socket, epoll waits for a lock that is held with signals blocked (`asked`).

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use libc::{c_short, epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

use crate::asked;
use crate::border::{Refusal, answer, answer_int, errno, set_errno};
use crate::memory;
use crate::own::Working;
use crate::real;
use crate::socket::Socket;
use crate::table::{World, any, is_homa};

/// The program has had a Homa socket in some epoll set.
static IN_EPOLL: AtomicBool = AtomicBool::new(false);

/// Sees to the Homa sockets among these descriptors, and where there are others to those in any epoll set: they may be sets.
fn attend_to(fds: impl Iterator<Item = c_int>) {
    answer(|| {
        let mut others = false;
        for fd in fds {
            if !is_homa(fd) {
                others = true;
            } else if let Some(world) = World::existing() {
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
        && let Some(world) = World::existing()
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

/// Entries that are asked about in other words without memory from the kernel: more than most programs poll.
const FEW: usize = 128;

/// Memory for entries that the program's are translated to: the stack's, or pages of the kernel's, since a signal handler's thread may be
/// allocating.
struct Translated {
    few: [pollfd; FEW],
    many: *mut pollfd,
    bytes: usize,
}

impl Translated {
    fn new(count: usize) -> Option<Translated> {
        let few = [pollfd { fd: -1, events: 0, revents: 0 }; FEW];
        if count <= FEW {
            return Some(Translated { few, many: ptr::null_mut(), bytes: 0 });
        }
        let bytes = count.checked_mul(size_of::<pollfd>())?;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory, wherever the kernel has room for it.
        let many = unsafe { libc::mmap(ptr::null_mut(), bytes, access, kind, -1, 0) };
        (many != libc::MAP_FAILED).then_some(Translated { few, many: many.cast(), bytes })
    }

    fn start(&mut self) -> *mut pollfd {
        if self.bytes == 0 { self.few.as_mut_ptr() } else { self.many }
    }
}

impl Drop for Translated {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: it was mapped by `new`, and nobody has it any more.
            unsafe { real::munmap(self.many.cast(), self.bytes) };
        }
    }
}

/// Polls where a Homa socket is asked for in words that its descriptor does not know: by `poll` of descriptors that were asked in others.
fn poll_in_other_words(fds: *mut pollfd, count: nfds_t, poll: impl FnOnce(*mut pollfd) -> c_int) -> c_int {
    let count = count as usize;
    let entry = |at| memory::read(fds.wrapping_add(at)).ok();
    let is_meant = |of: pollfd| asked::has_names(of.events) && is_homa(of.fd);
    // What cannot be read is the kernel's to refuse.
    let meant = (0..count).map_while(entry).any(is_meant) && (0..count).all(|at| entry(at).is_some());
    if !meant {
        return poll(fds);
    }
    let Some(mut translated) = Translated::new(count) else { return poll(fds) };
    // SAFETY: it has room for so many, and pages of the kernel's are zeros, which are good entries.
    let others = unsafe { std::slice::from_raw_parts_mut(translated.start(), count) };
    for (at, other) in others.iter_mut().enumerate() {
        *other = entry(at).unwrap_or(pollfd { fd: -1, events: 0, revents: 0 });
        if is_homa(other.fd) {
            other.events = asked::as_an_eventfd_knows(other.events);
        }
    }
    let result = poll(others.as_mut_ptr());
    let mut ready = 0;
    for (at, other) in others.iter().enumerate() {
        let mut told = other.revents;
        if is_homa(other.fd) {
            told = asked::in_words_of(entry(at).map_or(0, |entry| entry.events), told);
        }
        ready += c_int::from(told != 0);
        // SAFETY: only the address of a field is computed.
        let place = unsafe { &raw mut (*fds.wrapping_add(at)).revents };
        if memory::write(place, told).is_err() {
            set_errno(libc::EFAULT);
            return -1;
        }
    }
    if result < 0 { result } else { ready }
}

/// # Safety
/// As in libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    if any() {
        attend_to(polled(fds, count));
        // SAFETY: the caller's.
        return poll_in_other_words(fds, count, |fds| unsafe { real::poll(fds, count, timeout) });
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
        // SAFETY: the caller's.
        return poll_in_other_words(fds, count, |fds| unsafe { real::ppoll(fds, count, timeout, mask) });
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
    let _working = Working::begin();
    let concerns = what != libc::EPOLL_CTL_DEL && (is_homa(fd) || asked::any());
    let given = if concerns { memory::read(event).ok() } else { None };
    let mut is_named = false;
    if is_homa(fd)
        && let Some(given) = given
        && let Ok(socket) = World::get().socket(fd)
    {
        socket.in_epoll.store(true, Relaxed);
        IN_EPOLL.store(true, Relaxed);
        if given.events & libc::EPOLLET as u32 != 0 {
            socket.signal.tell_each();
        }
        is_named = asked::has_names(given.events as c_short);
    }
    let Some(world) = World::existing().filter(|_| is_named || asked::any()) else {
        // SAFETY: the caller's.
        return unsafe { real::epoll_ctl(epoll, what, fd, event) };
    };
    let change = || match given {
        Some(mut event) if is_named => {
            event.events |= u32::from(asked::as_an_eventfd_knows(event.events as c_short) as u16);
            // SAFETY: the caller's, but for the event, which is a copy of his.
            unsafe { real::epoll_ctl(epoll, what, fd, &mut event) }
        }
        // SAFETY: the caller's.
        _ => unsafe { real::epoll_ctl(epoll, what, fd, event) },
    };
    answer_int(|| match world.asked.change((epoll, fd), given, change) {
        0 => Ok(0),
        _ => Err(Refusal::plain(errno())),
    })
}

/// Waits at a set by `wait`: the network is driven meanwhile, and events are put in the words in which they were asked for.
fn wait_at(epoll: c_int, events: *mut epoll_event, wait: impl FnOnce() -> c_int) -> c_int {
    if any() {
        attend_to_epoll();
    }
    let count = wait();
    if count > 0
        && asked::any()
        && let Some(world) = World::existing()
    {
        answer(|| {
            world.asked.tell(epoll, events, count as usize);
            Ok(0)
        });
    }
    count
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
    // SAFETY: the caller's.
    wait_at(epoll, events, || unsafe { real::epoll_wait(epoll, events, room, timeout) })
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
    // SAFETY: the caller's.
    wait_at(epoll, events, || unsafe { real::epoll_pwait(epoll, events, room, timeout, mask) })
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
    // SAFETY: the caller's.
    wait_at(epoll, events, || unsafe { real::epoll_pwait2(epoll, events, room, timeout, mask) })
}
