//! The sockets of a driver that has one socket for each IP version.

use std::borrow::{Borrow, BorrowMut};
use std::io;
use std::net::IpAddr;

use super::linked::LinkedSocket;
use crate::burst::RxBurst;
use crate::driver::TxPacket;

/// Returns the index of the socket that can send to an address of this version. If no socket can, returns the
/// one that counts the failure.
pub(crate) fn socket_for<S: Borrow<LinkedSocket>>(sockets: &[S], to: IpAddr) -> usize {
    let reaches = |socket: &S| socket.borrow().main.local_addr().is_ipv4() == to.is_ipv4();
    sockets.iter().position(reaches).unwrap_or(0)
}

/// Index of the socket that the next call reads first. It rotates, so that packets of one IP version cannot
/// delay those of the other indefinitely.
#[derive(Debug, Default)]
pub(crate) struct ReceiveTurn(usize);

impl ReceiveTurn {
    /// Receives from the first of these sockets that has packets. The sockets take turns at being first.
    pub(crate) fn receive<S: BorrowMut<LinkedSocket>>(
        &mut self,
        sockets: &mut [S],
        burst: &mut RxBurst,
    ) -> io::Result<()> {
        let mut more = false;
        for _ in 0..sockets.len() {
            let socket = self.0;
            self.0 = (socket + 1) % sockets.len();
            if sockets[socket].borrow_mut().main.receive(burst)? > 0 {
                break;
            }
            more |= burst.may_have_more();
        }
        if more {
            burst.note_more();
        }
        Ok(())
    }
}

/// Implements [`Driver::send`](crate::Driver::send): passes each run of packets of one IP version to the
/// socket for that version.
pub(crate) fn send<S: BorrowMut<LinkedSocket>>(
    sockets: &mut [S],
    packets: &[TxPacket<'_>],
) -> io::Result<usize> {
    if let [socket] = sockets {
        return socket.borrow_mut().send(packets);
    }
    if packets.is_empty() {
        // Each socket does the work that is due.
        sockets.iter_mut().try_for_each(|socket| socket.borrow_mut().send(packets).map(|_| ()))?;
    }
    let mut taken = 0;
    while taken < packets.len() {
        let left = &packets[taken..];
        let socket = socket_for(sockets, left[0].to.ip());
        let run = left.iter().take_while(|packet| socket_for(sockets, packet.to.ip()) == socket).count();
        match sockets[socket].borrow_mut().send(&left[..run]) {
            Ok(sent) => {
                taken += sent;
                if sent < run {
                    break;
                }
            }
            // The next call returns the error again; this call must return the number of accepted packets.
            Err(error) if taken == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(taken)
}
