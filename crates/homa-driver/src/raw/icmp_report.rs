//! Sends ICMP port unreachable for packets to Homa ports without a host. Linux Homa sends these reports, and
//! its clients end an RPC when they receive one, instead of waiting for its timeout.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use homa_bpf::classic::{self, DROP_ALL, Purpose};
use homa_pcap::ip::{IpAddresses, fold, sum};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::carrier::{Carrier, LINUX_UDP_PORT, PROTOCOL_HOMA};
use crate::socket::source_for;

/// Maximum number of reports per second. A client whose report is suppressed by this limit waits for its
/// timeout. Linux itself sends one host at most one report per second after the first six. When a server
/// restarts, requests to a wrong port come from many clients at once, one from each.
const REPORTS_PER_SECOND: u32 = 100;

/// Maximum number of reports in a burst.
const REPORTS_AT_ONCE: u32 = 20;

const PROTOCOL_UDP: u8 = 17;

/// Bytes of a UDP header.
const UDP_BYTES: usize = 8;

/// Bytes of the refused packet that a report quotes: its common header, which has the ports and the RPC's ID.
const QUOTED_BYTES: usize = 28;

/// Sends the reports of one driver.
#[derive(Debug)]
pub(crate) struct IcmpReporter {
    carrier: Carrier,
    local: IpAddr,
    sockets: [Option<Socket>; 2],
    /// Number of reports that may be sent now, and the time since which more accrue.
    left: u32,
    since: Instant,
}

impl IcmpReporter {
    pub(crate) fn new(carrier: Carrier, local: IpAddr) -> IcmpReporter {
        IcmpReporter { carrier, local, sockets: [None, None], left: REPORTS_AT_ONCE, since: Instant::now() }
    }

    /// Reports to `peer` that its packet's port has no host. Reports that cannot be sent are dropped
    /// silently.
    pub(crate) fn refuse(&mut self, peer: SocketAddr, packet: &[u8]) {
        if !self.may_send(Instant::now()) {
            return;
        }
        let quoted = &packet[..packet.len().min(QUOTED_BYTES)];
        // The report quotes the packet as the peer sent it, to our address as the peer knows it. If bound to
        // all addresses, ours is most likely the source address of packets to the peer.
        let local = match self.local {
            local if local.is_unspecified() => source_for(peer),
            local => Some(local),
        };
        let (ip, socket) = match (peer.ip(), local) {
            (IpAddr::V4(from), Some(IpAddr::V4(to))) => (IpAddresses::V4(from, to), 0),
            (IpAddr::V6(from), Some(IpAddr::V6(to))) => (IpAddresses::V6(from, to), 1),
            _ => return,
        };
        if self.sockets[socket].is_none() {
            self.sockets[socket] = open(peer, self.local).ok();
        }
        if let Some(socket) = &self.sockets[socket] {
            let ports = (self.carrier == Carrier::Udp).then_some([peer.port(), LINUX_UDP_PORT]);
            let report = report(ip, ports, packet.len(), quoted);
            let mut peer = peer;
            peer.set_port(0);
            let _ = socket.send_to(&report, &SockAddr::from(peer));
        }
    }

    /// Uses up one of the reports that may be sent now, and returns whether there was one.
    fn may_send(&mut self, now: Instant) -> bool {
        let each = Duration::from_secs(1) / REPORTS_PER_SECOND;
        let more = now.saturating_duration_since(self.since).as_nanos() / each.as_nanos();
        if more > 0 {
            self.left =
                self.left.saturating_add(more.min(u128::from(REPORTS_AT_ONCE)) as u32).min(REPORTS_AT_ONCE);
            self.since = now;
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

/// Opens a socket for sending ICMP to this peer, which receives nothing.
fn open(peer: SocketAddr, local: IpAddr) -> std::io::Result<Socket> {
    let protocol = if peer.is_ipv4() { Protocol::ICMPV4 } else { Protocol::ICMPV6 };
    let kind = Type::RAW.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(peer), kind, Some(protocol))?;
    classic::attach(&socket, Purpose::Filter, &DROP_ALL)?;
    if !local.is_unspecified() && local.is_ipv4() == peer.is_ipv4() {
        // A link-local address has the same scope as the peer's address.
        let mut bind = peer;
        bind.set_ip(local);
        bind.set_port(0);
        socket.bind(&SockAddr::from(bind))?;
    }
    Ok(socket)
}

/// Builds a destination unreachable, port unreachable report (RFC 792, RFC 4443) for a packet of `length`
/// bytes that begins with `quoted`. `ports` are the ports in the UDP header before the packet, if there is
/// one.
fn report(ip: IpAddresses, ports: Option<[u16; 2]>, length: usize, quoted: &[u8]) -> Vec<u8> {
    let [kind, code] = match ip {
        IpAddresses::V4(..) => [3, 3],
        IpAddresses::V6(..) => [1, 4],
    };
    let mut report = vec![kind, code, 0, 0, 0, 0, 0, 0];
    match ports {
        None => ip.append_header(&mut report, 0, PROTOCOL_HOMA, length),
        Some(ports) => {
            let length = length + UDP_BYTES;
            ip.append_header(&mut report, 0, PROTOCOL_UDP, length);
            // The checksum of the whole packet is unknown, but nobody verifies it in a quoted packet.
            report.extend([ports[0], ports[1], length as u16, 0].into_iter().flat_map(u16::to_be_bytes));
        }
    }
    report.extend_from_slice(quoted);
    // The kernel computes the checksum of ICMPv6, which covers addresses that only the kernel knows.
    if let IpAddresses::V4(..) = ip {
        let checksum = fold(sum(0, &report));
        report[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_have_a_rate_and_a_burst() {
        let begin = Instant::now();
        let mut refuser = IcmpReporter::new(Carrier::Ip, [127, 0, 0, 1].into());
        refuser.since = begin;
        let at =
            |refuser: &mut IcmpReporter, after_ms| refuser.may_send(begin + Duration::from_millis(after_ms));
        let at_once = (0..100).filter(|_| at(&mut refuser, 0)).count();
        assert_eq!(at_once as u32, REPORTS_AT_ONCE);
        assert!(at(&mut refuser, 10) && !at(&mut refuser, 10), "one more for each hundredth of a second");
        let later = (0..100).filter(|_| at(&mut refuser, 3_600_000)).count();
        assert_eq!(later as u32, REPORTS_AT_ONCE, "an hour saves up no more than a burst");
    }

    #[test]
    fn both_checksums_of_an_ipv4_report_are_right() {
        let ip = IpAddresses::V4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let report = report(ip, None, 1_480, &[7; 28]);
        assert_eq!(report.len(), 8 + 20 + 28);
        assert_eq!(
            (fold(sum(0, &report)), fold(sum(0, &report[8..28]))),
            (0, 0),
            "with its checksum, all sums to zero"
        );
        assert_eq!(report[..2], [3, 3]);
        assert_eq!(report[8 + 2..8 + 4], 1_500_u16.to_be_bytes());
    }
}
