//! The largest packet that the path to each peer carries (WIRE-17).

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::option;
use crate::carrier::Carrier;
use crate::l2::netlink::Netlink;

/// Maximum number of cached paths. If there are more, all are dropped and looked up again when used. A lookup
/// costs a few system calls, which does not matter to a host with more peers than this.
const PATHS_MAX: usize = 4_096;

/// Assumed if the kernel has no route: the MTU that every IPv6 link must support (RFC 8200), and that IPv4
/// links support in practice.
const UNKNOWN_MTU_BYTES: usize = 1_280;

/// Minimum MTU accepted for an IPv4 path, as with the kernel's `min_pmtu`: links with a smaller MTU fragment
/// below IP.
const LEAST_V4_MTU_BYTES: usize = 552;

/// Path MTUs, keyed by the peer's IP address. A path MTU is that of the route and its device, or less if
/// routers reported less for packets that this driver sent. The kernel accepts path MTUs from any report that
/// quotes one of its sockets, and such reports are easily forged. The kernel's path MTUs are therefore not
/// used (SEND-17).
#[derive(Debug)]
pub(crate) struct PathMtus {
    carrier: Carrier,
    local: IpAddr,
    mtus: HashMap<IpAddr, usize>,
}

impl PathMtus {
    pub(crate) fn new(carrier: Carrier, local: IpAddr) -> PathMtus {
        PathMtus { carrier, local, mtus: HashMap::new() }
    }

    /// Returns the length in bytes, including the header, of the largest Homa packet that the path to the
    /// peer carries.
    pub(crate) fn max_packet(&mut self, to: SocketAddr) -> usize {
        self.get(to) - self.carrier.overhead_bytes(to.ip())
    }

    /// Returns the path MTU to the peer in bytes, including the IP header.
    fn get(&mut self, to: SocketAddr) -> usize {
        if let Some(&mtu) = self.mtus.get(&to.ip()) {
            return mtu;
        }
        let Some(mtu) = ask_kernel(self.local, to) else { return UNKNOWN_MTU_BYTES };
        self.remember(to.ip(), mtu);
        mtu
    }

    /// Handles a refusal: a packet of `packet_bytes` was too big for the path to this peer, or the network
    /// reported that packets are too big. Queries the kernel again, and lowers the path MTU for the refusal
    /// only if the kernel's MTU does not explain it.
    pub(crate) fn refused(&mut self, to: SocketAddr, packet_bytes: Option<usize>) {
        let known = self.mtus.remove(&to.ip());
        let now = self.get(to);
        let length = packet_bytes.map(|bytes| bytes + self.carrier.overhead_bytes(to.ip()));
        // A packet longer than the known MTU is the caller's mistake and is no evidence about the path.
        if let (Some(known), Some(length)) = (known, length)
            && length <= known
            && length <= now
        {
            self.remember(to.ip(), length - 1);
        }
    }

    /// Queries the kernel again, and lowers the path MTU to the kernel's if that is smaller.
    pub(crate) fn recheck(&mut self, to: SocketAddr) {
        let known = self.mtus.remove(&to.ip());
        let now = self.get(to);
        if let Some(known) = known.filter(|&known| known < now) {
            self.remember(to.ip(), known);
        }
    }

    /// Handles a router's report that a link of the path carries packets of at most `mtu` bytes, including
    /// the IP header. `mtu` is 0 if the router reported no MTU.
    pub(crate) fn narrow(&mut self, to: SocketAddr, mtu: usize) {
        let least = if to.is_ipv4() { LEAST_V4_MTU_BYTES } else { UNKNOWN_MTU_BYTES };
        let mtu = mtu.max(least);
        if mtu < self.get(to) {
            self.remember(to.ip(), mtu);
        }
    }

    /// Returns the peers whose paths are known, without their ports and scopes.
    pub(crate) fn peers(&self) -> impl ExactSizeIterator<Item = SocketAddr> {
        self.mtus.keys().map(|&ip| SocketAddr::new(ip, 0))
    }

    pub(crate) fn forget(&mut self) {
        self.mtus.clear();
    }

    fn remember(&mut self, ip: IpAddr, mtu: usize) {
        if self.mtus.len() >= PATHS_MAX {
            self.mtus.clear();
        }
        self.mtus.insert(ip, mtu);
    }
}

/// Returns the MTU of the route to this peer, or `None` if there is no route.
fn ask_kernel(local: IpAddr, to: SocketAddr) -> Option<usize> {
    // Netlink sockets may be unavailable in containers.
    let Ok(mut netlink) = Netlink::open() else { return ask_socket(local, to) };
    let from = Some(local).filter(|local| !local.is_unspecified() && local.is_ipv4() == to.is_ipv4());
    let scope = match to {
        SocketAddr::V6(to) if to.scope_id() != 0 => Some(to.scope_id()),
        _ => None,
    };
    // The route may depend on the source address. If there is no route from this source, the route for any
    // source is the best estimate.
    let mtu = netlink.mtu_to(to.ip(), from, scope).or_else(|_| netlink.mtu_to(to.ip(), None, scope)).ok()?;
    let longest = if to.is_ipv4() { usize::from(u16::MAX) } else { mtu };
    Some(mtu.min(longest)).filter(|&mtu| mtu > Carrier::Udp.overhead_bytes(to.ip()))
}

/// Like [`ask_kernel`], but queries a UDP socket that is connected to the peer; connecting sends nothing. The
/// answer includes path MTUs that the kernel has accepted from reports.
fn ask_socket(local: IpAddr, to: SocketAddr) -> Option<usize> {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM.cloexec(), Some(Protocol::UDP)).ok()?;
    if !local.is_unspecified() && local.is_ipv4() == to.is_ipv4() {
        // The route may depend on the source address. If the bind fails, the route for any source is the best
        // estimate.
        let _ = socket.bind(&SockAddr::from(SocketAddr::new(local, 0)));
    }
    socket.connect(&SockAddr::from(to)).ok()?;
    let (level, name) =
        if to.is_ipv4() { (libc::IPPROTO_IP, libc::IP_MTU) } else { (libc::IPPROTO_IPV6, libc::IPV6_MTU) };
    let mtu = option::get(socket.as_fd(), level, name).ok()?;
    usize::try_from(mtu).ok().filter(|&mtu| mtu > Carrier::Udp.overhead_bytes(to.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn peer(port: u16) -> SocketAddr {
        SocketAddr::new(LOCAL, port)
    }

    #[test]
    fn loopback_tells_its_devices_mtu() {
        let device: usize = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap().trim().parse().unwrap();
        let mut paths = PathMtus::new(Carrier::Udp, LOCAL);
        // The kernel reports at most the maximum of the IPv4 length field.
        assert_eq!(paths.get(peer(9)), device.min(65_535));
        assert_eq!(paths.mtus.len(), 1);
    }

    #[test]
    fn a_refusal_of_what_should_fit_narrows_the_path() {
        let mut paths = PathMtus::new(Carrier::Udp, LOCAL);
        paths.get(peer(9));
        paths.refused(peer(9), Some(1_000));
        assert_eq!(paths.get(peer(10)), 1_000 + 28 - 1);
        assert_eq!(paths.max_packet(peer(10)), 999);
        let mut paths = PathMtus::new(Carrier::Ip, LOCAL);
        paths.get(peer(0));
        paths.refused(peer(0), Some(1_000));
        assert_eq!(paths.get(peer(0)), 1_000 + 20 - 1);
        assert_eq!(paths.max_packet(peer(0)), 999);
    }

    #[test]
    fn a_refusal_of_what_could_not_fit_changes_nothing() {
        let mut paths = PathMtus::new(Carrier::Udp, LOCAL);
        let before = paths.get(peer(9));
        paths.refused(peer(9), Some(before));
        paths.refused(peer(9), None);
        assert_eq!(paths.get(peer(9)), before);
    }

    #[test]
    fn a_second_look_never_raises_the_mtu() {
        let mut paths = PathMtus::new(Carrier::Udp, LOCAL);
        let device = paths.get(peer(9));
        paths.narrow(peer(9), 1_000);
        paths.recheck(peer(9));
        assert_eq!(paths.get(peer(9)), 1_000);
        paths.remember(LOCAL, device + 1);
        paths.recheck(peer(9));
        assert_eq!(paths.get(peer(9)), device);
    }

    #[test]
    fn memory_is_bounded_whatever_the_number_of_peers() {
        let mut paths = PathMtus::new(Carrier::Udp, LOCAL);
        for i in 0..3 * PATHS_MAX as u32 {
            paths.remember(IpAddr::V4(i.into()), 1_500);
            assert!(paths.mtus.len() <= PATHS_MAX);
        }
    }

    #[test]
    fn no_route_is_answered_with_what_every_link_carries() {
        // The kernel does not connect a socket to a broadcast address unless the socket may broadcast.
        let mut paths = PathMtus::new(Carrier::Udp, LOCAL);
        assert_eq!(paths.get("255.255.255.255:9".parse().unwrap()), UNKNOWN_MTU_BYTES);
        assert!(paths.mtus.is_empty(), "a route may come later");
    }
}
