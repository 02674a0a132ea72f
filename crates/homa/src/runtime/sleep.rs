//! Sleeps in the kernel until a packet arrives, a timer is due, or another thread notifies this one.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;

use crate::runtime::wake_fd::WakeFd;
use crate::tenancy::endpoint_group::mailbox::Mailbox;

/// The events that end a thread's sleep, in addition to its `wake_fd`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Interest<'a> {
    /// A driver's descriptor; the sleep ends if it is readable or has an error.
    pub fd: Option<BorrowedFd<'a>>,
    /// Whether the sleep also ends when that descriptor becomes writable.
    pub room: bool,
    /// The mailbox for messages from other endpoints.
    pub mail: Option<&'a Mailbox>,
}

/// Sleeps until `wake_fd` is notified, an event in `interest` occurs, or `timeout_ns` nanoseconds have passed
/// (`None`: no limit). May return early, for example on a signal. Clears `wake_fd`. Returns whether the
/// driver's descriptor is ready.
pub(crate) fn sleep(wake_fd: &WakeFd, interest: Interest<'_>, timeout_ns: Option<u64>) -> bool {
    let Some(mailbox) = interest.mail else { return poll(wake_fd, interest, timeout_ns) };
    if !mailbox.begin_sleep() {
        return false;
    }
    let ready = poll(wake_fd, interest, timeout_ns);
    mailbox.end_sleep();
    ready
}

fn poll(wake_fd: &WakeFd, interest: Interest<'_>, timeout_ns: Option<u64>) -> bool {
    let entry = |fd: RawFd, events| libc::pollfd { fd, events, revents: 0 };
    let events = libc::POLLIN | if interest.room { libc::POLLOUT } else { 0 };
    // `ppoll` ignores a negative descriptor.
    let fd = interest.fd.map_or(-1, |fd| fd.as_raw_fd());
    let mail = interest.mail.map_or(-1, |mailbox| mailbox.wake_fd.0.as_raw_fd());
    let mut fds = [entry(wake_fd.0.as_raw_fd(), libc::POLLIN), entry(fd, events), entry(mail, libc::POLLIN)];
    let used = if interest.mail.is_some() { fds.len() } else { fds.len() - 1 };
    let mut timeout = timeout_ns.map(|ns| libc::timespec {
        tv_sec: libc::time_t::try_from(ns / 1_000_000_000).unwrap_or(libc::time_t::MAX),
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    });
    let timeout = timeout.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    let no_mask = ptr::null::<libc::sigset_t>();
    // Use the raw system call, since homa-preload may have replaced libc's function. The replacement would
    // treat this as a sleep of the program, and in the meantime make threads drive the network, including
    // this thread. SAFETY: `fds` and the target of `timeout` outlive the call, which may write to both. The
    // length is at most that of `fds`, and a null signal mask leaves the mask unchanged, whatever its size.
    let ready = unsafe { libc::syscall(libc::SYS_ppoll, fds.as_mut_ptr(), used, timeout, no_mask, 0_usize) };
    if ready > 0 && fds[0].revents != 0 {
        wake_fd.clear();
    }
    if let Some(mailbox) = interest.mail
        && ready > 0
        && fds[2].revents != 0
    {
        mailbox.wake_fd.clear();
    }
    ready > 0 && fds[1].revents != 0
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_notification_ends_one_sleep_however_often_it_is_repeated() {
        let wake_fd = WakeFd::new().unwrap();
        wake_fd.notify();
        wake_fd.notify();
        assert!(!sleep(&wake_fd, Interest::default(), None));
        assert_eq!((&wake_fd.0).read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(!sleep(&wake_fd, Interest::default(), Some(1)));
    }

    #[test]
    fn a_packet_ends_sleep() {
        let wake_fd = WakeFd::new().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(!sleep(&wake_fd, Interest { fd: Some(socket.as_fd()), room: false, mail: None }, Some(0)));
        assert!(sleep(&wake_fd, Interest { fd: Some(socket.as_fd()), room: true, mail: None }, None));
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        assert!(sleep(&wake_fd, Interest { fd: Some(socket.as_fd()), room: false, mail: None }, None));
    }
}
