//! Sending and receiving.

use std::ffi::{c_int, c_uint, c_void};
use std::time::{Duration, Instant};

use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec};

use super::descriptors::is_stale;
use super::on_socket;
use crate::border::{Refusal, answer_int};
use crate::memory;
use crate::real;
use crate::table::{World, is_homa};

/// Most messages of one sendmmsg or recvmmsg.
const MOST_AT_ONCE: c_uint = 1024;

/// # Safety
/// As in libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if !is_homa(fd) {
        // SAFETY: the caller's.
        return unsafe { real::sendmsg(fd, message, flags) };
    }
    on_socket(fd, |socket| socket.send(message, flags))
}

/// # Safety
/// As in libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    if !is_homa(fd) {
        // SAFETY: the caller's.
        return unsafe { real::recvmsg(fd, message, flags) };
    }
    on_socket(fd, |socket| socket.receive(message, flags))
}

/// Does something with each of several messages; an error counts only where it is the first.
fn each(
    messages: *mut mmsghdr,
    count: c_uint,
    mut body: impl FnMut(*mut msghdr, bool) -> Result<isize, Refusal>,
) -> Result<i32, Refusal> {
    let mut done = 0;
    for at in 0..count.min(MOST_AT_ONCE) as usize {
        let message = messages.wrapping_add(at);
        // The header is the structure's first field.
        let length = match body(message.cast(), done > 0) {
            Ok(length) => length as c_uint,
            Err(refusal) if done == 0 => return Err(refusal),
            Err(_) => break,
        };
        // SAFETY: only the address of a field is computed.
        memory::write(unsafe { &raw mut (*message).msg_len }, length)?;
        done += 1;
    }
    Ok(done)
}

/// # Safety
/// As in libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    if !is_homa(fd) {
        // SAFETY: the caller's.
        return unsafe { real::sendmmsg(fd, messages, count, flags) };
    }
    answer_int(|| {
        let socket = World::get().socket(fd)?;
        each(messages, count, |message, _| socket.noting(socket.send(message, flags)))
    })
}

/// # Safety
/// As in libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    if !is_homa(fd) {
        // SAFETY: the caller's.
        return unsafe { real::recvmmsg(fd, messages, count, flags, timeout) };
    }
    answer_int(|| {
        let socket = World::get().socket(fd)?;
        let longest = if timeout.is_null() { None } else { Some(time(memory::read(timeout)?)?) };
        let since = Instant::now();
        let done = each(messages, count, |message, some| {
            // As the kernel has it, the time is looked at between messages, and a wait for one goes on beyond it.
            if some && longest.is_some_and(|longest| since.elapsed() >= longest) {
                return Err(Refusal::plain(libc::EAGAIN));
            }
            let dontwait = if some && flags & libc::MSG_WAITFORONE != 0 { libc::MSG_DONTWAIT } else { 0 };
            socket.noting(socket.receive(message, flags | dontwait))
        })?;
        if let Some(longest) = longest.filter(|_| done > 0) {
            let left = longest.saturating_sub(since.elapsed());
            let (seconds, nanos) = (left.as_secs() as i64, left.subsec_nanos().into());
            memory::write(timeout, timespec { tv_sec: seconds, tv_nsec: nanos })?;
        }
        Ok(done)
    })
}

fn time(time: timespec) -> Result<Duration, Refusal> {
    let nanos = u32::try_from(time.tv_nsec).ok().filter(|nanos| *nanos < 1_000_000_000);
    match (u64::try_from(time.tv_sec), nanos) {
        (Ok(seconds), Some(nanos)) => Ok(Duration::new(seconds, nanos)),
        _ => Err(Refusal::plain(libc::EINVAL)),
    }
}

/// What all calls are that have no place for Homa's arguments.
fn no_place(fd: c_int) -> ssize_t {
    on_socket(fd, |_| Err(Refusal::new(libc::EINVAL, "Homa's messages go by sendmsg and recvmsg alone")))
}

/// Defines functions of libc that are EINVAL on a Homa socket.
macro_rules! no_place {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {
        $(
            /// # Safety
            /// As in libc.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name(fd: c_int, $($arg: $ty),*) -> ssize_t {
                if !is_homa(fd) || is_stale(fd) {
                    // SAFETY: the caller's.
                    return unsafe { real::$name(fd, $($arg),*) };
                }
                no_place(fd)
            }
        )*
    };
}

no_place! {
    send(data: *const c_void, length: size_t, flags: c_int);
    sendto(data: *const c_void, length: size_t, flags: c_int, to: *const sockaddr, to_length: socklen_t);
    recv(data: *mut c_void, length: size_t, flags: c_int);
    recvfrom(data: *mut c_void, length: size_t, flags: c_int, from: *mut sockaddr, from_length: *mut socklen_t);
    __recv_chk(data: *mut c_void, length: size_t, room: size_t, flags: c_int);
    __recvfrom_chk(data: *mut c_void, length: size_t, room: size_t, flags: c_int, from: *mut sockaddr, from_length: *mut socklen_t);
    read(data: *mut c_void, length: size_t);
    __read_chk(data: *mut c_void, length: size_t, room: size_t);
    readv(pieces: *const iovec, count: c_int);
    write(data: *const c_void, length: size_t);
    writev(pieces: *const iovec, count: c_int);
}
