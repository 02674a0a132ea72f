//! Caches the Ethernet addresses to which frames for each peer are sent on a device.
//!
//! The kernel resolves addresses (by ARP and neighbour discovery) and selects routers from its routes; this
//! module caches its answers. An expired answer is queried again when it is next used. As a result, a peer's
//! new Ethernet address is found after the peer moves, and peers without traffic cost nothing.
//!
//! The first packet to a peer waits for the answer, a few milliseconds at most. If the packet were dropped
//! instead, its RPC would wait just as long for a RESEND timeout. But packets may claim to come from unused
//! addresses, so the total wait is limited by a budget.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use homa_bpf::classic::{self, DROP_ALL, Purpose};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recv};
use socket2::{Domain, SockAddr, Socket, Type};

use super::frame::{Headers, Mac};
use super::interface::Interface;
use super::netlink::{Neighbour, Netlink};
use crate::carrier::Carrier;
use crate::socket::set_option;

/// The netlink multicast group for neighbour changes.
const RTNLGRP_NEIGH: libc::c_int = 3;

/// Maximum number of cached peers. If there are more, all are dropped and queried again when used, at a few
/// system calls each.
const PEERS_MAX: usize = 4_096;

/// Time for which an answer is valid. The kernel itself trusts a neighbour for 15 to 45 seconds after last
/// hearing from it.
const HOLDS_MS: u64 = 3_000;

/// Time for which a failure to reach a peer is cached.
const FAILURE_HOLDS_MS: u64 = 50;

/// Maximum wait for one neighbour. On a working Ethernet, resolution takes a small fraction of this.
const WAIT: Duration = Duration::from_millis(4);

/// Maximum total wait when the budget is full: enough for a hundred peers that answer, or several that do
/// not.
const WAIT_BUDGET_US: u64 = 20_000;

/// Microseconds added to the wait budget each millisecond: a fiftieth of the time.
const WAIT_US_PER_MS: u64 = 20;

/// Interval at which a neighbour is checked during a wait, even without a change notification.
const LOOK: Duration = Duration::from_micros(500);

/// A cached peer.
#[derive(Debug)]
struct Peer {
    to: SocketAddr,
    /// The frame headers; `None` if the peer cannot be reached.
    headers: Option<Headers>,
    mac: Mac,
    asked_ms: u64,
}

/// Headers for frames to peers. All sockets belong to the network namespace in which this was created.
#[derive(Debug)]
pub(crate) struct Neighbours {
    carrier: Carrier,
    interface: Interface,
    /// Source address of frames.
    local: SocketAddr,
    netlink: Netlink,
    /// Sends packets that make the kernel resolve a neighbour, for a process that lacks permission to request
    /// resolution directly.
    knocker: Socket,
    /// Subscribed to the kernel's neighbour changes during a wait.
    news: Socket,
    peers: Vec<Peer>,
    places: HashMap<SocketAddr, usize>,
    /// Index of the last requested peer, which is usually also the next one.
    last: usize,
    budget_us: u64,
    budget_ms: u64,
    /// Number of times the kernel was queried for a peer.
    #[cfg(test)]
    asked: u64,
}

impl Neighbours {
    pub(crate) fn new(carrier: Carrier, interface: Interface, local: SocketAddr) -> io::Result<Neighbours> {
        let knocker = Socket::new(Domain::for_address(local), Type::DGRAM.nonblocking().cloexec(), None)?;
        let mut any_port = local;
        any_port.set_port(0);
        knocker.bind(&SockAddr::from(any_port))?;
        classic::attach(&knocker, Purpose::Filter, &DROP_ALL)?;
        Ok(Neighbours {
            carrier,
            interface,
            local,
            netlink: Netlink::open()?,
            knocker,
            news: Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW.nonblocking().cloexec(), None)?,
            peers: Vec::new(),
            places: HashMap::new(),
            last: 0,
            budget_us: WAIT_BUDGET_US,
            budget_ms: 0,
            #[cfg(test)]
            asked: 0,
        })
    }

    /// Returns the headers of frames to this peer, or `None` while it cannot be reached on this device.
    /// `now_ms` is the time by [`coarse_ms`](super::clock::coarse_ms).
    pub(crate) fn headers(&mut self, to: SocketAddr, now_ms: u64) -> Option<&Headers> {
        if self.peers.get(self.last).is_none_or(|peer| peer.to != to) {
            // An index beyond the last peer means that there is none.
            self.last = self.places.get(&to).copied().unwrap_or(usize::MAX);
        }
        let old = self.peers.get(self.last);
        let fresh = old.is_some_and(|peer| {
            let holds = if peer.headers.is_some() { HOLDS_MS } else { FAILURE_HOLDS_MS };
            now_ms.saturating_sub(peer.asked_ms) < holds
        });
        if !fresh {
            let first = old.is_none();
            let old_mac = old.filter(|peer| peer.headers.is_some()).map(|peer| peer.mac);
            let mac = self.resolve(to, old_mac, first, now_ms);
            self.remember(to, mac, now_ms);
        }
        self.peers.get(self.last)?.headers.as_ref()
    }

    /// Drops all cached answers, because routes or the device have changed.
    pub(crate) fn forget(&mut self) {
        self.peers.clear();
        self.places.clear();
    }

    /// Stores an answer and makes its peer the last requested one.
    fn remember(&mut self, to: SocketAddr, mac: Option<Mac>, now_ms: u64) {
        let from = (self.interface.mac, self.local);
        let headers = mac.and_then(|mac| Headers::new(self.carrier, from, (mac, to)));
        let peer = Peer { to, headers, mac: mac.unwrap_or_default(), asked_ms: now_ms };
        if let Some(&place) = self.places.get(&to) {
            self.last = place;
            self.peers[place] = peer;
            return;
        }
        if self.peers.len() >= PEERS_MAX {
            self.forget();
        }
        self.last = self.peers.len();
        self.places.insert(to, self.last);
        self.peers.push(peer);
    }

    /// Resolves the Ethernet address for a peer. `old` is its last address; `first` is set if the peer was
    /// unknown.
    fn resolve(&mut self, to: SocketAddr, old: Option<Mac>, first: bool, now_ms: u64) -> Option<Mac> {
        #[cfg(test)]
        {
            self.asked += 1;
        }
        let scope = match to {
            SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => Some(self.interface.index),
            _ => None,
        };
        if to.is_ipv4() != self.local.is_ipv4() {
            return None;
        }
        let route = self.netlink.route(to.ip(), self.local.ip(), scope).ok()?;
        if route.interface != self.interface.index {
            return None;
        }
        if self.interface.loopback {
            return Some(Mac::default());
        }
        let hop = route.gateway.unwrap_or(to.ip());
        match self.netlink.neighbour(route.interface, hop).ok()? {
            Neighbour::At { mac, stale } => {
                if stale {
                    self.probe(hop);
                }
                Some(mac)
            }
            Neighbour::Unknown => {
                self.probe(hop);
                // Until the kernel has resolved the address, the old one is better than none.
                old.or_else(|| self.wait_for(hop, now_ms))
            }
            Neighbour::Sought | Neighbour::Failed if first => {
                self.probe(hop);
                self.wait_for(hop, now_ms)
            }
            Neighbour::Sought => old,
            Neighbour::Failed => {
                self.probe(hop);
                None
            }
        }
    }

    /// Makes the kernel resolve a neighbour.
    fn probe(&mut self, hop: IpAddr) {
        // To resolve on such a request, the IPv6 kernel code needs a link-local address of the device that
        // has been verified as unique, which takes seconds after the device comes up. To send a packet, it
        // uses the packet's source address instead.
        if hop.is_ipv4() && self.netlink.probe(self.interface.index, hop).is_ok() {
            return;
        }
        // Send to the discard port, so that the neighbour drops the packet. Only the attempt to send matters,
        // not the content.
        let mut discard = SocketAddr::new(hop, 9);
        if let SocketAddr::V6(discard) = &mut discard
            && discard.ip().is_unicast_link_local()
        {
            discard.set_scope_id(self.interface.index);
        }
        let _ = self.knocker.send_to(&[], &SockAddr::from(discard));
    }

    /// Waits for a neighbour that the kernel is resolving, as long as the budget allows.
    fn wait_for(&mut self, hop: IpAddr, now_ms: u64) -> Option<Mac> {
        let earned = now_ms.saturating_sub(self.budget_ms).saturating_mul(WAIT_US_PER_MS);
        self.budget_us = self.budget_us.saturating_add(earned).min(WAIT_BUDGET_US);
        self.budget_ms = now_ms;
        let most = WAIT.min(Duration::from_micros(self.budget_us));
        let begin = Instant::now();
        subscribe(&self.news, true);
        let found = loop {
            let neighbour = self.netlink.neighbour(self.interface.index, hop);
            match neighbour {
                Ok(Neighbour::At { mac, .. }) => break Some(mac),
                Ok(Neighbour::Sought | Neighbour::Unknown) => (),
                Ok(Neighbour::Failed) | Err(_) => break None,
            }
            let spent = begin.elapsed();
            if spent >= most {
                break None;
            }
            wait_readable(self.news.as_fd(), LOOK.min(most - spent));
        };
        subscribe(&self.news, false);
        self.budget_us = self.budget_us.saturating_sub(begin.elapsed().as_micros() as u64);
        found
    }
}

/// Subscribes this socket to the kernel's neighbour changes, or unsubscribes it.
fn subscribe(socket: &Socket, on: bool) {
    let option = if on { libc::NETLINK_ADD_MEMBERSHIP } else { libc::NETLINK_DROP_MEMBERSHIP };
    // Without the subscription, the wait polls at intervals.
    let _ = set_option(socket.as_fd(), libc::SOL_NETLINK, option, RTNLGRP_NEIGH);
}

/// Waits until the socket is readable, and discards the messages it received.
fn wait_readable(fd: BorrowedFd<'_>, most: Duration) {
    let most = Timespec { tv_sec: 0, tv_nsec: most.subsec_nanos().into() };
    if poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&most)).is_ok_and(|ready| ready > 0) {
        let mut news = [0_u8; 512];
        // The remainder of a longer message is discarded.
        while recv(fd, &mut news, RecvFlags::DONTWAIT).is_ok_and(|(length, _)| length > 0) {}
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::frame::HEADERS_MAX;
    use super::super::interface;
    use super::*;
    use crate::driver::TxPacket;

    const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4_000);

    fn loopback() -> Neighbours {
        let (interface, _) = interface::find(None, LOCAL.ip()).unwrap();
        Neighbours::new(Carrier::Udp, interface, LOCAL).unwrap()
    }

    fn peer(port: u16) -> SocketAddr {
        SocketAddr::new(LOCAL.ip(), port)
    }

    #[test]
    fn an_answer_holds_for_some_seconds_and_then_is_asked_for_again() {
        let mut neighbours = loopback();
        assert!(neighbours.headers(peer(1), 10_000).is_some());
        assert!(neighbours.headers(peer(1), 10_000 + HOLDS_MS - 1).is_some());
        assert_eq!(neighbours.asked, 1);
        assert!(neighbours.headers(peer(1), 10_000 + HOLDS_MS).is_some());
        assert_eq!(neighbours.asked, 2);
        neighbours.forget();
        assert!(neighbours.headers(peer(1), 10_000 + HOLDS_MS).is_some());
        assert_eq!(neighbours.asked, 3);
    }

    #[test]
    fn who_is_on_no_route_of_the_device_cannot_be_reached_and_is_not_asked_for_each_time() {
        let mut neighbours = loopback();
        for to in ["255.255.255.255:1", "[::1]:1"] {
            let asked = neighbours.asked;
            let to = to.parse().unwrap();
            assert!(neighbours.headers(to, 10_000).is_none());
            assert!(neighbours.headers(to, 10_000 + FAILURE_HOLDS_MS - 1).is_none());
            assert_eq!(neighbours.asked, asked + 1);
        }
    }

    #[test]
    fn each_peer_has_its_own_headers() {
        let mut neighbours = loopback();
        let port = |neighbours: &mut Neighbours, port| {
            let headers = neighbours.headers(peer(port), 10_000).unwrap();
            let packet = TxPacket { to: peer(port), priority: 0, header: &[1; 28], payload: &[] };
            let mut out = [0; HEADERS_MAX];
            let length = headers.write(&packet, &mut out);
            u16::from_be_bytes([out[length - 6], out[length - 5]])
        };
        for expected in [5, 6, 5, 5, 7, 6, 6, 7] {
            assert_eq!(port(&mut neighbours, expected), expected);
        }
        assert_eq!(neighbours.asked, 3);
    }

    #[test]
    fn memory_is_bounded_whatever_the_number_of_peers() {
        let mut neighbours = loopback();
        for port in 1..=10_000 {
            neighbours.remember(peer(port), Some([1; 6]), 10_000);
            assert!(neighbours.peers.len() <= PEERS_MAX && neighbours.peers.len() == neighbours.places.len());
        }
    }
}
