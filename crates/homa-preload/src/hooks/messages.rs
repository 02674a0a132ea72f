//! Sending and receiving messages.

use std::ffi::{c_int, c_uint, c_void};
use std::time::{Duration, Instant};

use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec};

use super::descriptors::is_stale;
use super::on_socket;
use crate::descriptor_table::{ProcessState, is_homa};
use crate::ffi_border::{Refusal, answer_int, errno, set_errno};
use crate::memory;
use crate::real;
use crate::receive::RecvCall;
use crate::send::{PlaceInBatch, Sending};
use crate::socket::Socket;
use crate::turns::{self, SleepingCall};

/// Maximum number of messages in one sendmmsg or recvmmsg.
const MOST_AT_ONCE: c_uint = 1024;

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if !is_homa(fd) {
        // SAFETY: the caller meets the requirements of the libc function.
        return unsafe { real::sendmsg(fd, message, flags) };
    }
    send_in_turns(fd, message, flags, PlaceInBatch::default())
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    if !is_homa(fd) {
        // SAFETY: the caller meets the requirements of the libc function.
        return unsafe { real::recvmsg(fd, message, flags) };
    }
    receive_in_turns(fd, message, flags, false)
}

/// Implements sendmsg on a Homa socket. This is a cancellation point, except while earlier messages of a
/// batch wait for this message.
fn send_in_turns(fd: c_int, message: *const msghdr, flags: c_int, place: PlaceInBatch) -> ssize_t {
    turns::call(!place.follows, |call, interrupted| {
        let mut sending = match call {
            Some(SleepingCall::Sending(sending)) => sending,
            _ => Sending::begin(ProcessState::get().socket(fd)?, place),
        };
        let step = Socket::send(&mut sending, message, flags, interrupted);
        let step = sending.socket.noting(step)?;
        Ok((SleepingCall::Sending(sending), step))
    })
}

/// Implements recvmsg on a Homa socket. This is a cancellation point. `follows` tells that an earlier message
/// of the same recvmmsg was received.
fn receive_in_turns(fd: c_int, message: *mut msghdr, flags: c_int, follows: bool) -> ssize_t {
    turns::call(true, |call, interrupted| {
        let mut receiving = match call {
            Some(SleepingCall::RecvCall(receiving)) => receiving,
            _ => RecvCall::begin(ProcessState::get().socket(fd)?, follows),
        };
        let step = Socket::receive(&mut receiving, message, flags, interrupted);
        let step = receiving.socket.noting(step)?;
        Ok((SleepingCall::RecvCall(receiving), step))
    })
}

/// Calls `body` for each message and returns how many succeeded. Fails only if the first message fails. This
/// frame must have no destructors, since `body` may end the thread.
fn each(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    mut body: impl FnMut(*mut msghdr, PlaceInBatch) -> ssize_t,
) -> c_int {
    if answer_int(|| ProcessState::get().socket(fd).map(|_| 0)) < 0 {
        return -1;
    }
    let before = errno();
    let mut done = 0;
    let most = count.min(MOST_AT_ONCE) as usize;
    for at in 0..most {
        let message = messages.wrapping_add(at);
        let place = PlaceInBatch { follows: at > 0, more: at + 1 < most };
        // The header is the structure's first field.
        let length = body(message.cast(), place);
        if length < 0 {
            break;
        }
        // SAFETY: only the address of a field is computed.
        let place = unsafe { &raw mut (*message).msg_len };
        if answer_int(|| memory::write(place, length as c_uint).map(|()| 0)) < 0 {
            return -1;
        }
        done += 1;
    }
    if done == 0 && count > 0 {
        return -1;
    }
    set_errno(before);
    done
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    if !is_homa(fd) {
        // SAFETY: the caller meets the requirements of the libc function.
        return unsafe { real::sendmmsg(fd, messages, count, flags) };
    }
    let sent = each(fd, messages, count, |message, place| send_in_turns(fd, message, flags, place));
    if sent != count.min(MOST_AT_ONCE) as c_int {
        // Messages before the failed one may still be waiting for it.
        let before = errno();
        answer_int(|| ProcessState::get().socket(fd).map(|socket| socket.side().flush()).map(|()| 0));
        set_errno(before);
    }
    sent
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    if !is_homa(fd) {
        // SAFETY: the caller meets the requirements of the libc function.
        return unsafe { real::recvmmsg(fd, messages, count, flags, timeout) };
    }
    let mut longest = None;
    let read = answer_int(|| {
        ProcessState::get().socket(fd)?;
        longest = if timeout.is_null() { None } else { Some(time(memory::read(timeout)?)?) };
        Ok(0)
    });
    if read < 0 {
        return -1;
    }
    let since = Instant::now();
    let done = each(fd, messages, count, |message, PlaceInBatch { follows: some, .. }| {
        // Like the kernel, checks the timeout only between messages; the wait for a single message may exceed
        // it.
        if some && longest.is_some_and(|longest| since.elapsed() >= longest) {
            return -1;
        }
        let dontwait = if some && flags & libc::MSG_WAITFORONE != 0 { libc::MSG_DONTWAIT } else { 0 };
        receive_in_turns(fd, message, flags | dontwait, some)
    });
    let Some(longest) = longest.filter(|_| done > 0) else { return done };
    let left = longest.saturating_sub(since.elapsed());
    let (seconds, nanos) = (left.as_secs() as i64, left.subsec_nanos().into());
    let written =
        answer_int(|| memory::write(timeout, timespec { tv_sec: seconds, tv_nsec: nanos }).map(|()| 0));
    if written < 0 { -1 } else { done }
}

fn time(time: timespec) -> Result<Duration, Refusal> {
    let nanos = u32::try_from(time.tv_nsec).ok().filter(|nanos| *nanos < 1_000_000_000);
    match (u64::try_from(time.tv_sec), nanos) {
        (Ok(seconds), Some(nanos)) => Ok(Duration::new(seconds, nanos)),
        _ => Err(Refusal::plain(libc::EINVAL)),
    }
}

/// Returns the result of functions that have no way to pass Homa's arguments.
fn no_place(fd: c_int) -> ssize_t {
    on_socket(fd, |_| Err(Refusal::new(libc::EINVAL, "Homa's messages need sendmsg and recvmsg")))
}

/// Defines functions of libc that fail with EINVAL on a Homa socket.
macro_rules! no_place {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {
        $(
            /// # Safety
            /// Same as for the libc function of this name.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C-unwind" fn $name(fd: c_int, $($arg: $ty),*) -> ssize_t {
                if !is_homa(fd) || is_stale(fd) {
                    // SAFETY: the caller meets the requirements of the libc function.
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
