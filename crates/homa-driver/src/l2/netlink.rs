//! Queries to the kernel about routes and neighbours (rtnetlink). One query is outstanding at a time, and the
//! kernel answers immediately.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::net::{RecvFlags, recv};
use socket2::{Domain, Socket, Type};

use super::frame::Mac;

const HEADER_BYTES: usize = 16;
const ROUTE_BYTES: usize = 12;
const NEIGHBOUR_BYTES: usize = 12;
/// Longer than any answer. Answers about a device are the longest: one to three kilobytes.
const ANSWER_BYTES: usize = 16_384;
/// Timeout. The kernel answers before the send call returns, so the timeout only guards against a kernel that
/// does not.
const PATIENCE: Duration = Duration::from_millis(50);

/// Flag of a route query that requests the configured route. Without it, the answer would include path
/// information that the kernel has learnt (such as a path MTU).
const RTM_F_FIB_MATCH: u32 = 0x2000;
const RTA_METRICS: u16 = 8;
const RTAX_MTU: u16 = 2;

const LINK_BYTES: usize = 16;
const IFLA_MTU: u16 = 4;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_INET6_CONF: u16 = 2;
/// Index of the device's IPv6 MTU among its IPv6 settings, four bytes each.
const DEVCONF_MTU6: usize = 2;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_FD: u16 = 1;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_FLAGS: u16 = 3;
const IFLA_XDP_PROG_ID: u16 = 4;
/// Value of `IFLA_XDP_ATTACHED` for a program in the device's driver.
const XDP_ATTACHED_NATIVE: u8 = 1;
/// Attach only if there is no program yet.
const XDP_FLAGS_UPDATE_IF_NOEXIST: u32 = 1;
/// Flag of an attribute that contains others.
const NESTED: u16 = 1 << 15;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
/// Requests neighbour resolution for immediate use.
const NTF_USE: u8 = 1;

/// The first hop of packets to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// Index of the device.
    pub(super) interface: u32,
    /// The router, if the peer is on another network.
    pub(super) gateway: Option<IpAddr>,
}

/// An XDP program attached to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpProgram {
    /// The program's ID.
    pub id: u32,
    /// Whether it runs in the device's driver (native mode).
    pub native: bool,
}

/// What the kernel knows about a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Neighbour {
    /// No entry: resolution has not been requested yet.
    Unknown,
    /// Resolution is in progress.
    Sought,
    /// The neighbour does not answer.
    Failed,
    /// The neighbour has this address. If `stale` is set, the address has not been confirmed recently, and
    /// the kernel checks it again only on request.
    At { mac: Mac, stale: bool },
}

/// A socket for these queries, in the network namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Netlink> {
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW.cloexec(), None)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Returns the route to a peer from a local address. `scope` is the device if the peer is link-local.
    ///
    /// # Errors
    /// There is no route, or the route does not lead to a single peer on this or another machine.
    pub(super) fn route(&mut self, to: IpAddr, from: IpAddr, scope: Option<u32>) -> io::Result<Route> {
        let answer = self.request(libc::RTM_GETROUTE, 0, &route_request(to, Some(from), scope))?;
        parse_route(&answer).ok_or_else(|| io::Error::from_raw_os_error(libc::EHOSTUNREACH))
    }

    /// Returns the index of the device through which packets to an address leave. Without `from`, the route
    /// selects the source address.
    ///
    /// # Errors
    /// The errors of [`Netlink::route`].
    pub(crate) fn device_to(&mut self, to: IpAddr, from: Option<IpAddr>) -> io::Result<u32> {
        let answer = self.request(libc::RTM_GETROUTE, 0, &route_request(to, from, None))?;
        let route = parse_route(&answer).ok_or_else(|| io::Error::from_raw_os_error(libc::EHOSTUNREACH))?;
        Ok(route.interface)
    }

    /// Returns the length of the longest IP packet that the route to an address carries, as configured for
    /// the route and its device. Path information that the kernel has learnt from ICMP is ignored (SEND-17).
    ///
    /// # Errors
    /// The errors of [`Netlink::route`].
    pub(crate) fn mtu_to(
        &mut self,
        to: IpAddr,
        from: Option<IpAddr>,
        scope: Option<u32>,
    ) -> io::Result<usize> {
        let unknown = || io::Error::from_raw_os_error(libc::EHOSTUNREACH);
        let mut body = route_request(to, from, scope);
        let route = parse_route(&self.request(libc::RTM_GETROUTE, 0, &body)?).ok_or_else(unknown)?;
        let device = self.request(libc::RTM_GETLINK, 0, &link_request(route.interface))?;
        let device = parse_device_mtu(&device, to.is_ipv6()).ok_or_else(unknown)?;
        body[ROUTE_BYTES - 4..ROUTE_BYTES].copy_from_slice(&RTM_F_FIB_MATCH.to_ne_bytes());
        // Most routes have no MTU configured.
        let configured =
            self.request(libc::RTM_GETROUTE, 0, &body).ok().and_then(|answer| parse_route_mtu(&answer));
        Ok(configured.map_or(device, |mtu| mtu.min(device)) as usize)
    }

    /// Returns the kernel's state of the neighbour with this address on a device.
    pub(super) fn neighbour(&mut self, interface: u32, ip: IpAddr) -> io::Result<Neighbour> {
        match self.request(libc::RTM_GETNEIGH, 0, &neighbour_request(interface, ip, 0)) {
            Ok(answer) => Ok(parse_neighbour(&answer)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(Neighbour::Unknown),
            Err(error) => Err(error),
        }
    }

    /// Makes the kernel resolve a neighbour, or verify it if it is stale.
    ///
    /// # Errors
    /// The error of the kernel; requires the capability CAP_NET_ADMIN.
    pub(super) fn probe(&mut self, interface: u32, ip: IpAddr) -> io::Result<()> {
        let flags = (libc::NLM_F_ACK | libc::NLM_F_CREATE) as u16;
        self.request(libc::RTM_NEWNEIGH, flags, &neighbour_request(interface, ip, NTF_USE)).map(|_| ())
    }

    /// Returns the XDP program that is attached to a device, if any.
    pub(crate) fn xdp_program(&mut self, interface: u32) -> io::Result<Option<XdpProgram>> {
        Ok(parse_xdp_program(&self.request(libc::RTM_GETLINK, 0, &link_request(interface))?))
    }

    /// Attaches an XDP program to a device that has none yet; with `None`, detaches the program. The device
    /// keeps the program until it is detached. `place_flag` selects where the program runs.
    ///
    /// # Errors
    /// The error of the kernel: EBUSY or EEXIST if the device already has a program.
    pub(crate) fn set_xdp_program(
        &mut self,
        interface: u32,
        program: Option<BorrowedFd<'_>>,
        place_flag: u32,
    ) -> io::Result<()> {
        let descriptor = program.map_or(-1, |program| program.as_raw_fd());
        let condition = if program.is_some() { XDP_FLAGS_UPDATE_IF_NOEXIST } else { 0 };
        let mut xdp = Vec::new();
        attribute(&mut xdp, IFLA_XDP_FD, &descriptor.to_ne_bytes());
        attribute(&mut xdp, IFLA_XDP_FLAGS, &(place_flag | condition).to_ne_bytes());
        let mut request = link_request(interface);
        attribute(&mut request, IFLA_XDP | NESTED, &xdp);
        self.request(libc::RTM_SETLINK, libc::NLM_F_ACK as u16, &request).map(|_| ())
    }

    /// Sends a request and returns the answer without its header. An acknowledgement yields an empty answer.
    fn request(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<u8>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = Vec::with_capacity(HEADER_BYTES + body.len());
        request.extend_from_slice(&((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
        request.extend_from_slice(&kind.to_ne_bytes());
        request.extend_from_slice(&(flags | libc::NLM_F_REQUEST as u16).to_ne_bytes());
        request.extend_from_slice(&self.sequence.to_ne_bytes());
        request.extend_from_slice(&[0; 4]);
        request.extend_from_slice(body);
        self.socket.send(&request)?;
        let mut answer = vec![0; ANSWER_BYTES];
        loop {
            let (length, _) = recv(&self.socket, answer.as_mut_slice(), RecvFlags::empty())?;
            // Skip a late answer to an earlier query.
            if let Some(result) = parse_answer(&answer[..length], self.sequence) {
                return result;
            }
        }
    }
}

/// Returns the body of the first message if it answers the query with this sequence number, or the error that
/// it reports.
fn parse_answer(bytes: &[u8], sequence: u32) -> Option<io::Result<Vec<u8>>> {
    let length = u32_at(bytes, 0)? as usize;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let body = bytes.get(HEADER_BYTES..length)?;
    if u32_at(bytes, 8)? != sequence {
        return None;
    }
    if libc::c_int::from(kind) != libc::NLMSG_ERROR {
        return Some(Ok(body.to_vec()));
    }
    Some(match u32_at(body, 0)? as i32 {
        0 => Ok(Vec::new()),
        errno => Err(io::Error::from_raw_os_error(errno.wrapping_neg())),
    })
}

fn parse_xdp_program(body: &[u8]) -> Option<XdpProgram> {
    let find = |bytes, kind| attributes(bytes).into_iter().find(|(k, _)| *k == kind).map(|(_, data)| data);
    let xdp = find(body.get(LINK_BYTES..)?, IFLA_XDP)?;
    let native = find(xdp, IFLA_XDP_ATTACHED) == Some(&[XDP_ATTACHED_NATIVE]);
    Some(XdpProgram { id: u32_at(find(xdp, IFLA_XDP_PROG_ID)?, 0)?, native })
}

/// Parses a route; `None` if the route leads nowhere or to many peers.
fn parse_route(body: &[u8]) -> Option<Route> {
    let header: &[u8; ROUTE_BYTES] = body.first_chunk()?;
    if !matches!(header[7], libc::RTN_UNICAST | libc::RTN_LOCAL) {
        return None;
    }
    let (mut interface, mut gateway) = (None, None);
    for (kind, data) in attributes(&body[ROUTE_BYTES..]) {
        match kind {
            libc::RTA_OIF => interface = u32_at(data, 0),
            libc::RTA_GATEWAY => gateway = ip(data),
            // If an IPv4 peer is behind an IPv6 router, the address family precedes the address.
            libc::RTA_VIA => gateway = data.get(2..).and_then(ip),
            _ => (),
        }
    }
    Some(Route { interface: interface?, gateway })
}

/// Returns the MTU that is configured for a route. `None` if the route uses its device's MTU.
fn parse_route_mtu(body: &[u8]) -> Option<u32> {
    let metrics = nested(body.get(ROUTE_BYTES..)?, RTA_METRICS)?;
    u32_at(nested(metrics, RTAX_MTU)?, 0).filter(|&mtu| mtu > 0)
}

/// Returns the MTU of a device. For IPv6, returns the MTU in its IPv6 settings if that is smaller.
fn parse_device_mtu(body: &[u8], ipv6: bool) -> Option<u32> {
    let attributes = body.get(LINK_BYTES..)?;
    let mtu = u32_at(nested(attributes, IFLA_MTU)?, 0)?;
    let of_ipv6 = || {
        let family = nested(nested(attributes, IFLA_AF_SPEC)?, libc::AF_INET6 as u16)?;
        u32_at(nested(family, IFLA_INET6_CONF)?, 4 * DEVCONF_MTU6).filter(|&mtu| mtu > 0)
    };
    Some(if ipv6 { of_ipv6().map_or(mtu, |of_ipv6| of_ipv6.min(mtu)) } else { mtu })
}

fn parse_neighbour(body: &[u8]) -> Neighbour {
    let Some(state) = body.get(8..10).map(|two| u16::from_ne_bytes([two[0], two[1]])) else {
        return Neighbour::Unknown;
    };
    let addresses = attributes(body.get(NEIGHBOUR_BYTES..).unwrap_or_default());
    let mac = addresses.into_iter().find(|(kind, _)| *kind == NDA_LLADDR);
    let mac = mac.and_then(|(_, data)| Mac::try_from(data).ok());
    match (state, mac) {
        (libc::NUD_INCOMPLETE, _) => Neighbour::Sought,
        (libc::NUD_FAILED, _) => Neighbour::Failed,
        (_, Some(mac)) => Neighbour::At { mac, stale: state == libc::NUD_STALE },
        (_, None) => Neighbour::Unknown,
    }
}

fn route_request(to: IpAddr, from: Option<IpAddr>, scope: Option<u32>) -> Vec<u8> {
    let bits = if to.is_ipv4() { 32 } else { 128 };
    let from_bits = if from.is_some() { bits } else { 0 };
    let mut request = vec![family(to), bits, from_bits, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    attribute(&mut request, libc::RTA_DST, &octets(to));
    if let Some(from) = from {
        attribute(&mut request, libc::RTA_SRC, &octets(from));
    }
    if let Some(scope) = scope {
        attribute(&mut request, libc::RTA_OIF, &scope.to_ne_bytes());
    }
    request
}

fn link_request(interface: u32) -> Vec<u8> {
    let mut request = vec![0; LINK_BYTES];
    request[4..8].copy_from_slice(&interface.to_ne_bytes());
    request
}

fn neighbour_request(interface: u32, ip: IpAddr, flags: u8) -> Vec<u8> {
    let mut request = vec![family(ip), 0, 0, 0];
    request.extend_from_slice(&interface.to_ne_bytes());
    request.extend_from_slice(&[0, 0, flags, 0]);
    attribute(&mut request, NDA_DST, &octets(ip));
    request
}

fn attribute(out: &mut Vec<u8>, kind: u16, data: &[u8]) {
    out.extend_from_slice(&(4 + data.len() as u16).to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(data);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Returns the data of the first attribute of this type.
fn nested(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).into_iter().find(|(k, _)| k & !NESTED == kind).map(|(_, data)| data)
}

/// Returns the type and data of each attribute, up to the first attribute that does not fit.
fn attributes(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut all = Vec::new();
    while let Some(&[a, b, c, d]) = bytes.first_chunk() {
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let Some(data) = bytes.get(4..length) else { break };
        all.push((u16::from_ne_bytes([c, d]), data));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    all
}

fn family(ip: IpAddr) -> u8 {
    (if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn ip(data: &[u8]) -> Option<IpAddr> {
    match data.len() {
        4 => <[u8; 4]>::try_from(data).ok().map(|octets| Ipv4Addr::from(octets).into()),
        16 => <[u8; 16]>::try_from(data).ok().map(|octets| Ipv6Addr::from(octets).into()),
        _ => None,
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn the_way_to_oneself_is_loopback_and_broadcast_has_none() {
        let mut netlink = Netlink::open().unwrap();
        assert_eq!(netlink.route(LOCAL, LOCAL, None).unwrap(), Route { interface: 1, gateway: None });
        assert!(netlink.route([255; 4].into(), LOCAL, None).is_err());
        assert_eq!(netlink.neighbour(1, [203, 0, 113, 9].into()).unwrap(), Neighbour::Unknown);
        // Later answers must belong to later queries.
        assert_eq!(netlink.route(LOCAL, LOCAL, None).unwrap().interface, 1);
    }

    #[test]
    fn an_answer_to_another_question_is_none_and_an_error_is_one() {
        let message = |kind: u16, sequence: u32, body: &[u8]| {
            let mut bytes = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
            bytes.extend_from_slice(&kind.to_ne_bytes());
            bytes.extend_from_slice(&[0; 2]);
            bytes.extend_from_slice(&sequence.to_ne_bytes());
            bytes.extend_from_slice(&[0; 4]);
            [&bytes[..], body].concat()
        };
        let error = libc::NLMSG_ERROR as u16;
        assert!(parse_answer(&message(24, 5, b"body"), 6).is_none());
        assert_eq!(parse_answer(&message(24, 6, b"body"), 6).unwrap().unwrap(), b"body");
        assert!(parse_answer(&message(error, 6, &[0; 20]), 6).unwrap().unwrap().is_empty());
        let refused = message(error, 6, &(-libc::ENETUNREACH).to_ne_bytes());
        let refused = parse_answer(&refused, 6).unwrap().unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENETUNREACH));
        let whole = message(24, 6, b"body");
        for length in 0..whole.len() {
            assert!(parse_answer(&whole[..length], 6).is_none());
        }
    }

    #[test]
    fn the_mtu_of_a_route_is_its_own_or_that_of_its_device() {
        let mut netlink = Netlink::open().unwrap();
        let device: usize = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap().trim().parse().unwrap();
        assert_eq!(netlink.mtu_to(LOCAL, Some(LOCAL), None).unwrap(), device);
        assert!(netlink.mtu_to([255; 4].into(), None, None).is_err());
        let mut route = vec![0; ROUTE_BYTES];
        assert_eq!(parse_route_mtu(&route), None);
        let mut metrics = Vec::new();
        attribute(&mut metrics, RTAX_MTU, &1_400_u32.to_ne_bytes());
        attribute(&mut route, RTA_METRICS, &metrics);
        assert_eq!(parse_route_mtu(&route), Some(1_400));
        let mut link = vec![0; LINK_BYTES];
        assert_eq!(parse_device_mtu(&link, false), None);
        attribute(&mut link, IFLA_MTU, &9_000_u32.to_ne_bytes());
        assert_eq!([false, true].map(|ipv6| parse_device_mtu(&link, ipv6)), [Some(9_000); 2]);
        let (mut settings, mut family) = (Vec::new(), Vec::new());
        attribute(&mut settings, IFLA_INET6_CONF, &[0, 0, 1_500_u32].map(u32::to_ne_bytes).concat());
        attribute(&mut family, libc::AF_INET6 as u16, &settings);
        attribute(&mut link, IFLA_AF_SPEC | NESTED, &family);
        assert_eq!([false, true].map(|ipv6| parse_device_mtu(&link, ipv6)), [Some(9_000), Some(1_500)]);
    }

    #[test]
    fn routes_and_neighbours_are_read_from_their_attributes() {
        let mut route = vec![libc::AF_INET as u8, 32, 0, 0, 254, 0, 0, libc::RTN_UNICAST, 0, 0, 0, 0];
        attribute(&mut route, libc::RTA_DST, &[10, 0, 0, 2]);
        attribute(&mut route, libc::RTA_OIF, &3_u32.to_ne_bytes());
        assert_eq!(parse_route(&route), Some(Route { interface: 3, gateway: None }));
        let mut via = route.clone();
        attribute(&mut via, libc::RTA_VIA, &[[10, 0].as_slice(), &[0xfe; 16]].concat());
        attribute(&mut route, libc::RTA_GATEWAY, &[10, 0, 0, 1]);
        assert_eq!(parse_route(&route).unwrap().gateway, Some([10, 0, 0, 1].into()));
        assert_eq!(parse_route(&via).unwrap().gateway, Some([0xfe; 16].into()));
        route[7] = libc::RTN_BROADCAST;
        assert_eq!(parse_route(&route), None);
        let mac = [2, 3, 4, 5, 6, 7];
        let of = |state: u16, with_mac: bool| {
            let mut body = vec![0; NEIGHBOUR_BYTES];
            body[8..10].copy_from_slice(&state.to_ne_bytes());
            if with_mac {
                attribute(&mut body, NDA_LLADDR, &mac);
            }
            parse_neighbour(&body)
        };
        assert_eq!(of(libc::NUD_REACHABLE, true), Neighbour::At { mac, stale: false });
        assert_eq!(of(libc::NUD_STALE, true), Neighbour::At { mac, stale: true });
        assert_eq!(of(libc::NUD_FAILED, true), Neighbour::Failed);
        assert_eq!(of(libc::NUD_INCOMPLETE, false), Neighbour::Sought);
        assert_eq!(parse_neighbour(&[]), Neighbour::Unknown);
    }
}
