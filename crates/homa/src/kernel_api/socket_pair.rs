//! A pair of stream sockets, one end of which is polled. The polled end is readable while a byte waits there,
//! and writable unless bytes that it has sent are unread. An eventfd can only show whether there is something
//! to read.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

/// Number of bytes that make an end with the smallest send buffer (4,608 bytes) unwritable. The limit is a
/// quarter of the buffer, in which the kernel includes its own overhead.
const FILL_BYTES: usize = 2_048;

/// Number of bytes to receive at a time from a readable end, which normally has one byte.
const CLEARED_BYTES: usize = 16;

/// The pair, with its polled end and the other end: see the [module](self).
pub(crate) struct SocketPair {
    /// The polled end, or a duplicate of its descriptor.
    polled: OwnedFd,
    other: OwnedFd,
}

impl SocketPair {
    /// Creates a pair from two ends that have no other readers or writers.
    pub(crate) fn new(polled: OwnedFd, other: OwnedFd) -> io::Result<SocketPair> {
        let least: libc::c_int = 1;
        let length = size_of_val(&least) as libc::socklen_t;
        // SAFETY: the value outlives the call and has the stated length.
        let set = unsafe {
            libc::setsockopt(
                polled.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_SNDBUF,
                ptr::from_ref(&least).cast(),
                length,
            )
        };
        if set < 0 { Err(io::Error::last_os_error()) } else { Ok(SocketPair { polled, other }) }
    }

    /// Makes the polled end readable.
    pub(crate) fn notify(&self) {
        send(&self.other, &[0]);
    }

    /// Triggers a new edge on the polled end, which is already readable.
    pub(crate) fn notify_again(&self) {
        send(&self.other, &[0]);
        receive(&self.polled, &mut [0]);
    }

    /// Makes the polled end unreadable.
    pub(crate) fn clear(&self) {
        while receive(&self.polled, &mut [0; CLEARED_BYTES]) == CLEARED_BYTES {}
    }

    /// Makes the polled end writable or unwritable.
    pub(crate) fn set_writable(&self, has_room: bool) {
        if has_room {
            while receive(&self.other, &mut [0; FILL_BYTES]) > 0 {}
        } else {
            send(&self.polled, &[0; FILL_BYTES]);
        }
    }
}

impl AsFd for SocketPair {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.polled.as_fd()
    }
}

/// Sends with the raw system call, since homa-preload may have replaced libc's function. The only possible
/// error is that the buffer is full. In that case it already contains enough bytes.
fn send(to: &OwnedFd, bytes: &[u8]) {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let (none, length) = (ptr::null::<libc::sockaddr>(), bytes.len());
    // SAFETY: the bytes outlive the call, and no address is passed.
    unsafe { libc::syscall(libc::SYS_sendto, to.as_raw_fd(), bytes.as_ptr(), length, flags, none, 0_usize) };
}

/// Receives in the same way. Returns the number of bytes, which is less than the length of `room` if there
/// are no more.
fn receive(from: &OwnedFd, room: &mut [u8]) -> usize {
    let (flags, length) = (libc::MSG_DONTWAIT, room.len());
    let none = ptr::null_mut::<libc::sockaddr>();
    // SAFETY: the buffer outlives the call, and no address is requested.
    let received = unsafe {
        libc::syscall(libc::SYS_recvfrom, from.as_raw_fd(), room.as_mut_ptr(), length, flags, none, none)
    };
    usize::try_from(received).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn shown(pair: &SocketPair) -> (bool, bool) {
        let mut entry =
            libc::pollfd { fd: pair.as_fd().as_raw_fd(), events: libc::POLLIN | libc::POLLOUT, revents: 0 };
        // SAFETY: the entry outlives the call.
        unsafe { libc::poll(&mut entry, 1, 0) };
        (entry.revents & libc::POLLIN != 0, entry.revents & libc::POLLOUT != 0)
    }

    #[test]
    fn an_end_shows_both_in_all_four_ways() {
        let (polled, other) = UnixStream::pair().unwrap();
        let pair = SocketPair::new(polled.into(), other.into()).unwrap();
        for _ in 0..1_000 {
            assert_eq!(shown(&pair), (false, true));
            pair.notify();
            assert_eq!(shown(&pair), (true, true));
            pair.notify_again();
            pair.set_writable(false);
            assert_eq!(shown(&pair), (true, false));
            pair.clear();
            assert_eq!(shown(&pair), (false, false));
            pair.set_writable(true);
        }
    }
}
