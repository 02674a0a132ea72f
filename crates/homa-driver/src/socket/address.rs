//! Socket addresses in the kernel's format.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// The IP versions that a socket can send to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressFamily {
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
    /// An IPv6 socket that reaches IPv4 peers through mapped addresses.
    Dual,
}

/// Space for a `sockaddr_in` or a `sockaddr_in6`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union RawAddress {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl RawAddress {
    pub(crate) const BYTES: libc::socklen_t = size_of::<RawAddress>() as libc::socklen_t;

    pub(crate) fn empty() -> RawAddress {
        // SAFETY: all-zero bytes are a valid value of every field of the union, which contains only integers.
        unsafe { std::mem::zeroed() }
    }

    /// Writes a peer's address and returns its length, or `None` if a socket of this family cannot send to
    /// it.
    pub(crate) fn set(&mut self, to: SocketAddr, family: AddressFamily) -> Option<libc::socklen_t> {
        match (to, family) {
            (SocketAddr::V4(to), AddressFamily::V4) => {
                self.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: to.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(to.ip().octets()) },
                    sin_zero: [0; 8],
                };
                Some(size_of::<libc::sockaddr_in>() as libc::socklen_t)
            }
            (SocketAddr::V4(to), AddressFamily::Dual) => {
                Some(self.set_v6(to.ip().to_ipv6_mapped(), to.port(), 0))
            }
            (SocketAddr::V6(to), AddressFamily::V6 | AddressFamily::Dual) => {
                Some(self.set_v6(*to.ip(), to.port(), to.scope_id()))
            }
            (SocketAddr::V4(_), AddressFamily::V6) | (SocketAddr::V6(_), AddressFamily::V4) => None,
        }
    }

    fn set_v6(&mut self, ip: Ipv6Addr, port: u16, scope_id: u32) -> libc::socklen_t {
        self.v6 = libc::sockaddr_in6 {
            sin6_family: libc::AF_INET6 as libc::sa_family_t,
            sin6_port: port.to_be(),
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: ip.octets() },
            sin6_scope_id: scope_id,
        };
        size_of::<libc::sockaddr_in6>() as libc::socklen_t
    }

    /// Returns the address that the kernel wrote, of `length` bytes; a mapped IPv4 address is returned as
    /// IPv4. `None` if it has another address family, or is shorter than its family requires.
    pub(crate) fn get(&self, length: libc::socklen_t) -> Option<SocketAddr> {
        let length = length as usize;
        if length < size_of::<libc::sa_family_t>() {
            return None;
        }
        // SAFETY: every field of the union begins with the family, and any bytes are valid for it.
        let family = libc::c_int::from(unsafe { self.family });
        if family == libc::AF_INET && length >= size_of::<libc::sockaddr_in>() {
            // SAFETY: the family shows that this field was written, and any bytes are valid for it.
            let v4 = unsafe { self.v4 };
            let ip = v4.sin_addr.s_addr.to_ne_bytes().into();
            return Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into());
        }
        if family == libc::AF_INET6 && length >= size_of::<libc::sockaddr_in6>() {
            // SAFETY: the family shows that this field was written, and any bytes are valid for it.
            let v6 = unsafe { self.v6 };
            let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
            return Some(match ip.to_ipv4_mapped() {
                Some(ip) => SocketAddrV4::new(ip, port).into(),
                // The flow label does not identify the peer; if it were kept, one peer would appear as two.
                None => SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into(),
            });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(address: &str, family: AddressFamily) -> Option<SocketAddr> {
        let mut raw = RawAddress::empty();
        let length = raw.set(address.parse().unwrap(), family)?;
        raw.get(length)
    }

    #[test]
    fn addresses_come_back_as_they_went_in() {
        for (address, family) in [
            ("10.1.2.3:4", AddressFamily::V4),
            ("10.1.2.3:4", AddressFamily::Dual),
            ("[2001:db8::1]:65535", AddressFamily::V6),
            ("[2001:db8::1]:65535", AddressFamily::Dual),
            ("[fe80::1%7]:80", AddressFamily::V6),
        ] {
            assert_eq!(through(address, family), Some(address.parse().unwrap()), "{family:?}");
        }
    }

    #[test]
    fn a_family_that_the_socket_cannot_reach_is_refused() {
        assert_eq!(through("10.1.2.3:4", AddressFamily::V6), None);
        assert_eq!(through("[::1]:4", AddressFamily::V4), None);
    }

    #[test]
    fn what_the_kernel_did_not_fill_is_no_address() {
        let mut raw = RawAddress::empty();
        assert_eq!(raw.get(RawAddress::BYTES), None);
        let length = raw.set("1.2.3.4:5".parse().unwrap(), AddressFamily::V4).unwrap();
        assert_eq!(raw.get(length - 1), None);
        assert_eq!(raw.get(0), None);
    }
}
