//! When the kernel gave packets to the device, as it tells on the error queue of the socket that sent them.
//!
//! It names a datagram by a number that it counts itself, and that only a call that succeeded is sure to have raised. So after each call
//! that failed the count is begun anew, and what was awaited is given up.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use super::error_queue::{self, Report, TxTimestamp};
use super::option;
use crate::driver::{SentPacket, TxPacket};

/// Most datagrams whose times are awaited. A kernel that tells none, since its device has none, is not remembered for ever.
const AWAITED_MAX: usize = 1_024;

/// The packets whose times a socket is to tell.
#[derive(Debug, Default)]
pub(crate) struct SentTimes {
    /// What else the socket is asked for of SO_TIMESTAMPING; `None` where no times of sent packets are.
    others: Option<libc::c_uint>,
    /// The kernel's count is not known.
    stale: bool,
    /// The kernel's number of the first of those awaited.
    first: u32,
    /// The packets of each datagram; none where they are told already.
    awaited: VecDeque<Vec<SentPacket>>,
    told: VecDeque<SentPacket>,
}

impl SentTimes {
    /// Has the socket tell the times of what it sends from here on, beside `others` of SO_TIMESTAMPING.
    pub(crate) fn turn_on(&mut self, fd: BorrowedFd<'_>, others: libc::c_uint) -> io::Result<()> {
        // The kernel begins to count as the option is set that was not.
        set(fd, others)?;
        let sent = libc::SOF_TIMESTAMPING_TX_SOFTWARE
            | libc::SOF_TIMESTAMPING_SOFTWARE
            | libc::SOF_TIMESTAMPING_OPT_ID
            | libc::SOF_TIMESTAMPING_OPT_TSONLY;
        set(fd, others | sent)?;
        *self =
            SentTimes { others: Some(others), told: std::mem::take(&mut self.told), ..SentTimes::default() };
        Ok(())
    }

    /// A call is about to send.
    pub(crate) fn before_send(&mut self, fd: BorrowedFd<'_>) {
        if let (Some(others), true) = (self.others, self.stale) {
            // Where the socket refuses, there are no times; nothing else is lost.
            self.others = self.turn_on(fd, others).ok().and(Some(others));
        }
    }

    /// The call sent datagrams of so many of the packets each.
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

    /// The call failed, or left a datagram for want of room.
    pub(crate) fn failed(&mut self) {
        self.stale = true;
    }

    /// The kernel tells when it gave a datagram to the device.
    pub(crate) fn told(&mut self, TxTimestamp { number, at_ns }: TxTimestamp) {
        let Some(packets) = self.awaited.get_mut(number.wrapping_sub(self.first) as usize) else { return };
        self.told.extend(std::mem::take(packets).into_iter().map(|packet| SentPacket { at_ns, ..packet }));
        while self.awaited.front().is_some_and(Vec::is_empty) {
            self.awaited.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }

    /// Whether the kernel is worth a look, since nothing that it told is left.
    pub(crate) fn wants_more(&self) -> bool {
        self.told.is_empty() && !self.awaited.is_empty()
    }

    /// Asks the kernel where that is worth it: for a socket that has nothing else reported.
    pub(crate) fn ask(&mut self, fd: BorrowedFd<'_>) {
        while self.wants_more() {
            match error_queue::take(fd) {
                None => break,
                Some(Report::TxTimestamp(sent)) => self.told(sent),
                Some(Report::Error(_)) => {}
            }
        }
    }

    pub(crate) fn next(&mut self) -> Option<SentPacket> {
        self.told.pop_front()
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
        times.turn_on(socket.as_fd(), 0).unwrap();
        times.sent(&packets, &[1, 2, 1]);
        assert!(times.wants_more());
        times.told(TxTimestamp { number: 1, at_ns: 70 });
        times.told(TxTimestamp { number: 0, at_ns: 60 });
        times.told(TxTimestamp { number: 0, at_ns: 61 });
        let mut all = Vec::new();
        while let Some(sent) = times.next() {
            assert_eq!((&sent.header[..], sent.len), (&b"head"[..], 12));
            all.push((sent.priority, sent.at_ns));
        }
        assert_eq!(all, [(1, 70), (2, 70), (0, 60)]);
        // After a failure nothing is told that may be another's.
        times.failed();
        times.before_send(socket.as_fd());
        times.told(TxTimestamp { number: 2, at_ns: 80 });
        assert!(times.next().is_none() && !times.wants_more());
        for _ in 0..=AWAITED_MAX {
            times.sent(&packets, &[1]);
        }
        times.told(TxTimestamp { number: 0, at_ns: 90 });
        assert!(times.next().is_none(), "given up");
        times.told(TxTimestamp { number: 1, at_ns: 90 });
        assert_eq!(times.next().map(|sent| sent.at_ns), Some(90));
    }
}
