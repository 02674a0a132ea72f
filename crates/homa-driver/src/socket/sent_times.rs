//! Times at which the kernel passed packets to the device. The kernel reports them on the error queue of the
//! sending socket.
//!
//! The kernel identifies a datagram by its own counter, and the counter is certain to have been incremented
//! only if the call succeeded. The counter is therefore restarted after each failed call, and outstanding
//! times are abandoned.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use super::error_queue::{self, Report, TxTimestamp};
use super::option;
use crate::driver::{SentPacket, TxPacket};

/// Maximum number of datagrams with outstanding times. Bounds the memory if the kernel reports no times
/// because the device does not support them.
const AWAITED_MAX: usize = 1_024;

/// Sent packets for which the socket will report times.
#[derive(Debug, Default)]
pub(crate) struct SentTimes {
    /// Other SO_TIMESTAMPING flags set on the socket; `None` if send times are off.
    others: Option<libc::c_uint>,
    /// Whether the kernel's counter is unknown.
    stale: bool,
    /// The kernel's number of the first outstanding datagram.
    first: u32,
    /// The packets of each outstanding datagram; empty if its time was already reported.
    awaited: VecDeque<Vec<SentPacket>>,
    reported: VecDeque<SentPacket>,
}

impl SentTimes {
    /// Enables send times on the socket for subsequent packets, in addition to the SO_TIMESTAMPING flags
    /// `others`.
    pub(crate) fn enable(&mut self, fd: BorrowedFd<'_>, others: libc::c_uint) -> io::Result<()> {
        // The kernel restarts its counter when the option changes from unset to set.
        set(fd, others)?;
        let sent = libc::SOF_TIMESTAMPING_TX_SOFTWARE
            | libc::SOF_TIMESTAMPING_SOFTWARE
            | libc::SOF_TIMESTAMPING_OPT_ID
            | libc::SOF_TIMESTAMPING_OPT_TSONLY;
        set(fd, others | sent)?;
        *self = SentTimes {
            others: Some(others),
            reported: std::mem::take(&mut self.reported),
            ..SentTimes::default()
        };
        Ok(())
    }

    /// Prepares for a send call; must be called before each one.
    pub(crate) fn before_send(&mut self, fd: BorrowedFd<'_>) {
        if let (Some(others), true) = (self.others, self.stale) {
            // If the socket refuses, there are no send times, but nothing else is lost.
            self.others = self.enable(fd, others).ok().and(Some(others));
        }
    }

    /// Records that the call sent datagrams; `datagrams` has the number of packets in each.
    pub(crate) fn sent(&mut self, mut packets: &[TxPacket<'_>], datagrams: &[u8]) {
        if self.others.is_none() {
            return;
        }
        for &count in datagrams {
            let (of_one, rest) = packets.split_at(usize::from(count).min(packets.len()));
            packets = rest;
            self.awaited.push_back(of_one.iter().map(SentPacket::of).collect());
            if self.awaited.len() > AWAITED_MAX {
                self.awaited.pop_front();
                self.first = self.first.wrapping_add(1);
            }
        }
    }

    /// Records that the call failed, or did not send a datagram for lack of room.
    pub(crate) fn failed(&mut self) {
        self.stale = true;
    }

    /// Handles the kernel's report of a datagram's time.
    pub(crate) fn note_reported(&mut self, TxTimestamp { number, at_ns }: TxTimestamp) {
        let Some(packets) = self.awaited.get_mut(number.wrapping_sub(self.first) as usize) else { return };
        self.reported
            .extend(std::mem::take(packets).into_iter().map(|packet| SentPacket { at_ns, ..packet }));
        while self.awaited.front().is_some_and(Vec::is_empty) {
            self.awaited.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }

    /// Whether to read the error queue: all times read so far were returned, and more are outstanding.
    pub(crate) fn wants_more(&self) -> bool {
        self.reported.is_empty() && !self.awaited.is_empty()
    }

    /// Reads the kernel's reports if times are outstanding. For a socket that gets no other reports.
    pub(crate) fn read_reports_if_due(&mut self, fd: BorrowedFd<'_>) {
        while self.wants_more() {
            match error_queue::take(fd) {
                None => break,
                Some(Report::TxTimestamp(sent)) => self.note_reported(sent),
                Some(Report::Error(_)) => {}
            }
        }
    }

    pub(crate) fn next(&mut self) -> Option<SentPacket> {
        self.reported.pop_front()
    }
}

fn set(fd: BorrowedFd<'_>, flags: libc::c_uint) -> io::Result<()> {
    option::set(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags as libc::c_int)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn times_are_those_of_their_datagrams_in_whatever_order_they_are_told() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut times = SentTimes::default();
        let packet = |priority| TxPacket {
            to: ([127, 0, 0, 1], 9).into(),
            priority,
            header: b"head",
            payload: b"and body",
        };
        let packets: Vec<_> = (0..4).map(packet).collect();
        times.sent(&packets, &[4]);
        assert!(!times.wants_more(), "not asked for");
        times.enable(socket.as_fd(), 0).unwrap();
        times.sent(&packets, &[1, 2, 1]);
        assert!(times.wants_more());
        times.note_reported(TxTimestamp { number: 1, at_ns: 70 });
        times.note_reported(TxTimestamp { number: 0, at_ns: 60 });
        times.note_reported(TxTimestamp { number: 0, at_ns: 61 });
        let mut all = Vec::new();
        while let Some(sent) = times.next() {
            assert_eq!((&sent.header[..], sent.len), (&b"head"[..], 12));
            all.push((sent.priority, sent.at_ns));
        }
        assert_eq!(all, [(1, 70), (2, 70), (0, 60)]);
        // After a failure, ignore reports that may be about another datagram.
        times.failed();
        times.before_send(socket.as_fd());
        times.note_reported(TxTimestamp { number: 2, at_ns: 80 });
        assert!(times.next().is_none() && !times.wants_more());
        for _ in 0..=AWAITED_MAX {
            times.sent(&packets, &[1]);
        }
        times.note_reported(TxTimestamp { number: 0, at_ns: 90 });
        assert!(times.next().is_none(), "given up");
        times.note_reported(TxTimestamp { number: 1, at_ns: 90 });
        assert_eq!(times.next().map(|sent| sent.at_ns), Some(90));
    }
}
