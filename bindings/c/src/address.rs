//! Addresses as values, so that a text is read once and not with each call.

use std::ffi::c_char;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use homa::ServerAddr;

use crate::border::{Failure, answer, give, give_text, object, text};
use crate::result::homa_result;

/// Bytes that the text of any address takes, with its zero byte.
pub const HOMA_ADDRESS_TEXT_BYTES: usize = 80;

/// A socket's own choice of a port is 1 to this; what is above is given to those that choose none.
pub const HOMA_MAX_SERVER_PORT: u16 = 32_767;

/// Where a server or a client is. A value: copy it as you like.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct homa_address {
    /// The IP address in network byte order; one of IPv4 as ::ffff:a.b.c.d.
    pub ip: [u8; 16],
    /// The number of the network device for a link-local IPv6 address, else 0.
    pub scope: u32,
    /// The UDP port of the host; 0 where the host is one of raw IP, which has none.
    pub udp_port: u16,
    /// The Homa port there.
    pub port: u16,
}

impl homa_address {
    pub(crate) fn new(host: SocketAddr, port: u16) -> homa_address {
        let (ip, scope) = match host {
            SocketAddr::V4(host) => (host.ip().to_ipv6_mapped(), 0),
            SocketAddr::V6(host) => (*host.ip(), host.scope_id()),
        };
        homa_address { ip: ip.octets(), scope, udp_port: host.port(), port }
    }

    fn shown(&self) -> ServerAddr {
        let host = match IpAddr::V6(Ipv6Addr::from(self.ip)).to_canonical() {
            IpAddr::V6(ip) => SocketAddrV6::new(ip, self.udp_port, 0, self.scope).into(),
            ip => SocketAddr::new(ip, self.udp_port),
        };
        ServerAddr::new(host, self.port)
    }

    /// What can be called by a host of raw IP (`without_udp`), where a UDP port means nothing, or of another.
    pub(crate) fn server(&self, without_udp: bool) -> Result<ServerAddr, Failure> {
        match self.port {
            0 => Err(Failure::argument("the Homa port 0 is nobody's: choose 1 to 65535")),
            _ if self.udp_port > 0 || without_udp => Ok(self.shown()),
            _ => Err(Failure::argument("the address has no UDP port: give it one")),
        }
    }
}

/// Reads a server's address, "HOST:UDP_PORT/HOMA_PORT", such as "10.0.0.7:14600/99" or "[::1]:14600/99". Both ports may be left out, and
/// are 14600 and 99 then. Host names are not looked up.
///
/// `text` is only read. `address` is written to on success.
///
/// HOMA_ARGUMENT: a pointer is NULL, or the text is no such address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_address_parse(text: *const c_char, address: *mut homa_address) -> homa_result {
    answer(|| {
        // SAFETY: C gives a string, or NULL.
        let text = unsafe { self::text(text, "text") }?;
        let read: ServerAddr = text
            .parse()
            .map_err(|error: homa::error::ParseServerAddrError| Failure::argument(error.to_string()))?;
        // SAFETY: C gives room for one, or NULL.
        unsafe { give(address, "address", homa_address::new(read.host, read.port)) }
    })
}

/// Writes an address as homa_address_parse() reads it, with a zero byte at its end.
///
/// `address` is only read. `text` belongs to the caller and has `room` bytes; HOMA_ADDRESS_TEXT_BYTES are enough for any address. It is
/// written to on success.
///
/// HOMA_ARGUMENT: a pointer is NULL, or the room too small.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_address_format(
    address: *const homa_address,
    text: *mut c_char,
    room: usize,
) -> homa_result {
    answer(|| {
        // SAFETY: C gives one, or NULL.
        let shown = unsafe { object(address, "address") }?.shown().to_string();
        debug_assert!(shown.len() < HOMA_ADDRESS_TEXT_BYTES, "{shown} is what programs have no room for");
        // SAFETY: C gives so many bytes, or NULL.
        unsafe { give_text(text, room, &shown) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_were_written() {
        for text in ["10.0.0.7:14600/99", "[fe80::1%2]:7/65535"] {
            let read: ServerAddr = text.parse().unwrap();
            let address = homa_address::new(read.host, read.port);
            assert!(matches!(address.server(false), Ok(same) if same == read));
        }
    }

    #[test]
    fn only_raw_ip_does_without_a_udp_port() {
        let address = homa_address { ip: [0xff; 16], scope: 0, udp_port: 0, port: 99 };
        assert!(address.server(false).is_err());
        assert!(matches!(address.server(true), Ok(server) if server.host.port() == 0));
        assert!(homa_address { port: 0, ..address }.server(true).is_err());
    }

    #[test]
    fn the_longest_text_has_room() {
        let longest = homa_address { ip: [0xff; 16], scope: u32::MAX, udp_port: u16::MAX, port: u16::MAX };
        assert!(longest.shown().to_string().len() < HOMA_ADDRESS_TEXT_BYTES);
    }
}
