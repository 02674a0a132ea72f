//! One socket for the UDP port, shared by all processes at an address (WIRE-28).
//!
//! The first process opens the socket. Each holder offers it to later processes, which get a descriptor of
//! the same socket (SCM_RIGHTS). The port therefore stays open, and its received packets stay queued, until
//! the last holder ends. The offer is served by a thread, because a host without ports drives nothing.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, iter};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use socket2::Socket;

use super::names;
use crate::socket::{BindError, PacketSocket, SocketConfig};

/// Maximum number of processes that offer one socket.
const NAMES: u32 = 64;

/// Time to wait for an offer while the port is taken. An exiting process that has just forked a child keeps
/// the port for a few more milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

fn prefix(address: SocketAddr) -> String {
    format!("homa-udp-port/{address}")
}

/// The offer of a socket to other processes, until dropped.
#[derive(Debug)]
pub(super) struct PortOffer {
    listener: Socket,
    thread: Option<JoinHandle<()>>,
}

impl PortOffer {
    fn new(socket: &PacketSocket) -> io::Result<PortOffer> {
        let listener = names::listen(&prefix(socket.local_addr()), NAMES)?;
        let (heard, offered) = (listener.try_clone()?, socket.fd().try_clone_to_owned()?);
        let thread = thread::Builder::new().name("homa-udp-port".to_owned());
        let thread = thread.spawn(move || serve(&heard, offered.as_fd()))?;
        Ok(PortOffer { listener, thread: Some(thread) })
    }
}

impl Drop for PortOffer {
    fn drop(&mut self) {
        // Wake the thread. From now on, connections to copies of the descriptor in forked children are
        // refused.
        let _ = self.listener.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // The thread returns only after the shutdown, and does not panic.
            let _ = thread.join();
        }
    }
}

/// Passes the socket to each trusted process that connects.
fn serve(listener: &Socket, offered: BorrowedFd<'_>) {
    loop {
        match listener.accept() {
            Ok((peer, _)) if names::is_trusted(&peer) => give(&peer, offered),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut wait = [PollFd::new(listener, PollFlags::IN)];
                let _ = poll(&mut wait, None);
                if wait[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            // Descriptors or memory are temporarily exhausted, or the peer has ended.
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// Passes the descriptor to a peer. The peer sees a failure as a closed connection.
fn give(peer: &Socket, offered: BorrowedFd<'_>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [offered];
    if control.push(SendAncillaryMessage::ScmRights(&fds)) {
        let _ = sendmsg(peer, &[IoSlice::new(&[1])], &mut control, SendFlags::NOSIGNAL);
    }
}

/// Receives the descriptor in a message, if the message has one.
fn take(peer: &Socket) -> Result<Option<OwnedFd>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(peer, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok(fds.flatten().next())
}

/// Gets the socket at this address from the first holder that answers before `until`. Returns `None` if no
/// holder is left.
fn ask(address: SocketAddr, until: Instant) -> Option<OwnedFd> {
    let mut holders = names::connect_all(&prefix(address), NAMES);
    while !holders.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        let wait = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut entries: Vec<_> = holders.iter().map(|holder| PollFd::new(holder, PollFlags::IN)).collect();
        let _ = poll(&mut entries, Some(&wait));
        let ready: Vec<bool> = entries.iter().map(|entry| !entry.revents().is_empty()).collect();
        drop(entries);
        for (holder, _) in iter::zip(&holders, &ready).filter(|(_, ready)| **ready) {
            if let Ok(Some(fd)) = take(holder) {
                return Some(fd);
            }
        }
        // A holder that sends no descriptor has ended.
        let mut ready = ready.into_iter();
        holders.retain(|_| !ready.next().unwrap_or(true));
    }
    None
}

/// Opens the socket at the port, or gets it from a process that has it. Returns `None` if processes of this
/// user have the port at all addresses: their sockets then serve this address, too.
pub(super) fn open(config: &SocketConfig) -> Result<Option<(PacketSocket, PortOffer)>, BindError> {
    let until = Instant::now() + PATIENCE;
    let address = config.bind;
    let socket = loop {
        match PacketSocket::open(config) {
            Err(BindError::InUse(_)) => {}
            opened => break opened?,
        }
        if let Some(fd) = ask(address, until) {
            let socket = PacketSocket::adopt(config, fd)?;
            if socket.local_addr() == address {
                break socket;
            }
        } else if !address.ip().is_unspecified() && all_are_offered(address.port()) {
            return Ok(None);
        } else if Instant::now() < until {
            thread::sleep(PAUSE);
        } else {
            return Err(BindError::LinuxUdpTaken(address));
        }
    };
    let offer = PortOffer::new(&socket).map_err(|source| BindError::Socket {
        address,
        step: "offering it to other processes",
        source,
    })?;
    Ok(Some((socket, offer)))
}

/// Whether a process of this user offers the port at all addresses. Without IPv6, it may be offered for IPv4
/// alone, but it is never offered for IPv6 alone.
fn all_are_offered(port: u16) -> bool {
    let all = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
    names::connect_first(&prefix(all), NAMES).is_some()
}
