//! Addresses as programs pass them to Homa sockets: an IP address with its scope, and a Homa port.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

use libc::{sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

use crate::ffi_border::Refusal;
use crate::memory;

/// An address as passed by a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketName {
    pub(crate) ip: IpAddr,
    pub(crate) scope: u32,
    pub(crate) port: u16,
}

impl SocketName {
    /// Reads an address from the program's memory, for a socket of this family.
    pub(crate) fn read(
        family: c_int,
        address: *const sockaddr,
        length: socklen_t,
    ) -> Result<SocketName, Refusal> {
        let short = Err(Refusal::new(libc::EINVAL, "the address is too short for its family"));
        if (length as usize) < size_of::<libc::sa_family_t>() {
            return short;
        }
        if c_int::from(memory::read(address.cast::<libc::sa_family_t>())?) != family {
            return Err(Refusal::new(libc::EAFNOSUPPORT, "the address is not of the socket's family"));
        }
        if family == libc::AF_INET6 {
            if (length as usize) < size_of::<sockaddr_in6>() {
                return short;
            }
            let name = memory::read(address.cast::<sockaddr_in6>())?;
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr).to_canonical();
            return Ok(SocketName { ip, scope: name.sin6_scope_id, port: u16::from_be(name.sin6_port) });
        }
        if (length as usize) < size_of::<sockaddr_in>() {
            return short;
        }
        let name = memory::read(address.cast::<sockaddr_in>())?;
        let ip = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr)).into();
        Ok(SocketName { ip, scope: 0, port: u16::from_be(name.sin_port) })
    }

    /// Returns the address in the format of a socket of this family, and its length.
    pub(crate) fn stored(&self, family: c_int) -> (libc::sockaddr_storage, usize) {
        // SAFETY: the structure consists of numbers, for which zero bytes are valid.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let place = &raw mut storage;
        if family == libc::AF_INET6 {
            let ip = match self.ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            let name = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: self.port.to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: ip.octets() },
                sin6_scope_id: self.scope,
            };
            // SAFETY: the storage is large enough and aligned for any address.
            unsafe { ptr::write(place.cast(), name) };
            return (storage, size_of::<sockaddr_in6>());
        }
        let ip = match self.ip.to_canonical() {
            IpAddr::V4(ip) => ip,
            IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        };
        let name = sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: self.port.to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from(ip).to_be() },
            sin_zero: [0; 8],
        };
        // SAFETY: the storage is large enough and aligned for any address.
        unsafe { ptr::write(place.cast(), name) };
        (storage, size_of::<sockaddr_in>())
    }

    /// Writes the address to the program's memory, truncated to `room` bytes. Returns its full length.
    pub(crate) fn write(&self, family: c_int, to: *mut sockaddr, room: usize) -> Result<usize, Refusal> {
        let (storage, length) = self.stored(family);
        // SAFETY: the storage is at least as long as any address in it.
        let bytes =
            unsafe { std::slice::from_raw_parts((&raw const storage).cast::<u8>(), length.min(room)) };
        memory::copy_out(to.cast(), bytes)?;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_as_they_were_written() {
        for (family, ip, shown) in [
            (libc::AF_INET, "10.0.0.7", "10.0.0.7"),
            (libc::AF_INET6, "fe80::1", "fe80::1"),
            (libc::AF_INET6, "10.0.0.7", "10.0.0.7"),
        ] {
            let name = SocketName { ip: ip.parse().unwrap(), scope: 0, port: 99 };
            let (storage, length) = name.stored(family);
            let address = (&raw const storage).cast();
            let read = SocketName::read(family, address, length as socklen_t).unwrap();
            assert_eq!(read, SocketName { ip: shown.parse().unwrap(), ..name });
            let refused = |family, length| SocketName::read(family, address, length).unwrap_err().errno;
            assert_eq!(refused(family, length as socklen_t - 1), libc::EINVAL);
            assert_eq!(refused(family, 1), libc::EINVAL);
            assert_eq!(refused(libc::AF_UNIX, length as socklen_t), libc::EAFNOSUPPORT);
        }
    }
}
