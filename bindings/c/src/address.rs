//! Addresses as values, so that a program parses a text once and not for each call.

use std::ffi::c_char;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use homa::ServerAddr;

use crate::border::{Failure, answer, object, text, write_out, write_text};
use crate::result::homa_result;

/// Bytes of the longest text of an address, with its terminating zero byte.
pub const HOMA_ADDRESS_TEXT_BYTES: usize = 80;

/// Highest Homa port that a socket can choose. Higher ports are assigned to sockets that choose none.
pub const HOMA_MAX_SERVER_PORT: u16 = 32_767;

/// The address of a server or client. It is a value: copy it freely.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct homa_address {
    /// The IP address in network byte order; an IPv4 address as ::ffff:a.b.c.d.
    pub ip: [u8; 16],
    /// The number of the network device for a link-local IPv6 address, else 0.
    pub scope: u32,
    /// The UDP port of the host; 0 if the host uses raw IP, which has no UDP ports.
    pub udp_port: u16,
    /// The Homa port.
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

    /// Returns the address as a call target. `without_udp`: the calling host uses raw IP, where UDP ports do
    /// not exist, or Linux Homa's UDP encapsulation, where all UDP ports are the same.
    pub(crate) fn server(&self, without_udp: bool) -> Result<ServerAddr, Failure> {
        match self.port {
            0 => Err(Failure::argument("the Homa port 0 is invalid: choose 1 to 65535")),
            _ if self.udp_port > 0 || without_udp => Ok(self.shown()),
            _ => Err(Failure::argument("the address has no UDP port: give it one")),
        }
    }
}

/// Parses a server's address, "HOST:UDP_PORT/HOMA_PORT", such as "10.0.0.7:14600/99" or "[::1]:14600/99". The
/// UDP port defaults to 14600, the Homa port to 99. Host names are not resolved.
///
/// `text` is only read. `address` is written to on success.
///
/// HOMA_ARGUMENT: a pointer is NULL, or the text is no such address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_address_parse(text: *const c_char, address: *mut homa_address) -> homa_result {
    answer(|| {
        // SAFETY: homa.h requires that `text` is NULL or a zero-terminated string.
        let text = unsafe { self::text(text, "text") }?;
        let read: ServerAddr = text
            .parse()
            .map_err(|error: homa::error::ParseServerAddrError| Failure::argument(error.to_string()))?;
        // SAFETY: homa.h requires that `address` is NULL or has room for one address.
        unsafe { write_out(address, "address", homa_address::new(read.host, read.port)) }
    })
}

/// Writes an address in the format of homa_address_parse(), with a terminating zero byte.
///
/// `address` is only read. `text` belongs to the caller and has `room` bytes; HOMA_ADDRESS_TEXT_BYTES suffice
/// for any address. `text` is written on success.
///
/// HOMA_ARGUMENT: a pointer is NULL, or the room is too small.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_address_format(
    address: *const homa_address,
    text: *mut c_char,
    room: usize,
) -> homa_result {
    answer(|| {
        // SAFETY: homa.h requires that `address` is NULL or points to an address.
        let shown = unsafe { object(address, "address") }?.shown().to_string();
        debug_assert!(shown.len() < HOMA_ADDRESS_TEXT_BYTES, "{shown} is what programs have no room for");
        // SAFETY: homa.h requires that `text` is NULL or has `room` writable bytes.
        unsafe { write_text(text, room, &shown) }
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
