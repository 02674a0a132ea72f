//! The protocol that carries Homa packets: UDP, or IP directly.

use std::net::IpAddr;

/// IP protocol number of Homa.
pub const PROTOCOL_HOMA: u8 = 146;

/// UDP port of Linux Homa's UDP encapsulation, at both ends (WIRE-27).
pub const LINUX_UDP_PORT: u16 = 54_321;

/// The protocol that carries Homa packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// UDP datagrams. A peer is an address and a UDP port.
    #[default]
    Udp,
    /// IP directly (protocol 146), as in Linux Homa. A peer is an address.
    Ip,
}

impl Carrier {
    /// Returns the total length of the IP and UDP headers before a Homa packet.
    pub(crate) fn overhead_bytes(self, ip: IpAddr) -> usize {
        let udp_bytes = match self {
            Carrier::Udp => 8,
            Carrier::Ip => 0,
        };
        udp_bytes + if ip.is_ipv4() { 20 } else { 40 }
    }
}
