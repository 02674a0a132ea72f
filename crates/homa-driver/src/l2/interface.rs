//! Network devices: lookup, addresses, and state.

use std::ffi::{CStr, CString};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use super::error::LinkError;
use super::frame::Mac;

/// A device that carries Ethernet frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) mac: Mac,
    /// Whether this is loopback, whose frames have no Ethernet addresses and which needs no neighbours.
    pub(crate) loopback: bool,
}

/// A device as listed by the kernel.
#[derive(Clone, Debug, Default)]
struct InterfaceEntry {
    name: String,
    /// Index, hardware type and Ethernet address.
    link: Option<(u32, u16, Mac)>,
    addresses: Vec<IpAddr>,
}

/// Finds the device with this name or, if there is no name, with this address. Also returns the source
/// address: if `local` is unspecified, this is the device's first address of the same IP version, preferably
/// a global rather than a link-local one.
pub(crate) fn find(named: Option<&str>, local: IpAddr) -> Result<(Interface, IpAddr), LinkError> {
    let all = list().map_err(|source| LinkError::System {
        name: named.unwrap_or("an interface").to_owned(),
        step: "listing interfaces",
        source,
    })?;
    choose(&all, named, local)
}

fn choose(
    all: &[InterfaceEntry],
    named: Option<&str>,
    local: IpAddr,
) -> Result<(Interface, IpAddr), LinkError> {
    let device = match named {
        Some(name) => all.iter().find(|device| device.name == name).ok_or_else(|| {
            let have = all.iter().map(|device| device.name.clone()).collect();
            LinkError::NoSuchInterface { name: name.to_owned(), have }
        })?,
        None if local.is_unspecified() => return Err(LinkError::NoneNamed),
        None => all.iter().find(|device| has(device, local)).ok_or_else(|| {
            let have = all.iter().flat_map(|device| device.addresses.clone()).collect();
            LinkError::NotLocal { ip: local, have }
        })?,
    };
    let name = &device.name;
    let interface = match device.link {
        Some((index, kind @ (libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK), mac)) => {
            Interface { index, name: name.clone(), mac, loopback: kind == libc::ARPHRD_LOOPBACK }
        }
        _ => return Err(LinkError::NotEthernet { name: name.clone() }),
    };
    if local.is_unspecified() {
        let version = if local.is_ipv4() { "IPv4" } else { "IPv6" };
        let same = device.addresses.iter().filter(|ip| ip.is_ipv4() == local.is_ipv4());
        let first = same.min_by_key(|ip| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local()));
        let first = first.ok_or_else(|| LinkError::NoAddress { name: name.clone(), version })?;
        return Ok((interface, *first));
    }
    if !has(device, local) {
        let have = device.addresses.clone();
        return Err(LinkError::NotOnInterface { name: name.clone(), ip: local, have });
    }
    Ok((interface, local))
}

/// Whether a device has this address. Loopback has all of 127.0.0.0/8, regardless of the addresses it lists.
fn has(device: &InterfaceEntry, ip: IpAddr) -> bool {
    let loopback = matches!(device.link, Some((_, libc::ARPHRD_LOOPBACK, _)));
    device.addresses.contains(&ip) || loopback && ip.is_ipv4() && ip.is_loopback()
}

/// Returns the names of all devices in the calling thread's network namespace.
///
/// # Errors
/// The kernel cannot list them.
pub fn names() -> io::Result<Vec<String>> {
    Ok(list()?.into_iter().map(|device| device.name).collect())
}

/// Returns the name of the first device that lists this address.
pub(crate) fn device_with(ip: IpAddr) -> Option<String> {
    list().ok()?.into_iter().find(|device| device.addresses.contains(&ip)).map(|device| device.name)
}

/// Returns all devices, in the kernel's order.
fn list() -> io::Result<Vec<InterfaceEntry>> {
    let mut head: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the call writes a pointer to a list that is freed below, or fails and writes nothing.
    if unsafe { libc::getifaddrs(&raw mut head) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut all: Vec<InterfaceEntry> = Vec::new();
    let mut next = head;
    while !next.is_null() {
        // SAFETY: not null, so it is an entry of the list, which does not change until it is freed.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        // SAFETY: names in the list end with a zero byte.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        let at = all.iter().position(|device| device.name == name).unwrap_or_else(|| {
            all.push(InterfaceEntry { name, ..InterfaceEntry::default() });
            all.len() - 1
        });
        // SAFETY: `ifa_addr` is null or an address as long as its family requires.
        all[at].addresses.extend(unsafe { ip_of(entry.ifa_addr) });
        // SAFETY: `ifa_addr` is null or an address as long as its family requires.
        if let Some(link) = unsafe { link_of(entry.ifa_addr) } {
            all[at].link = Some(link);
        }
    }
    // SAFETY: the list is from `getifaddrs` and is freed once, and no reference into it remains.
    unsafe { libc::freeifaddrs(head) };
    Ok(all)
}

/// Returns the IP address in a socket address of any family.
///
/// # Safety
/// `address` is null or points to a socket address as long as its family requires.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, and every socket address begins with its family.
    match libc::c_int::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family identifies this structure.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::V4(v4.sin_addr.s_addr.to_ne_bytes().into()))
        }
        libc::AF_INET6 => {
            // SAFETY: the family identifies this structure.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::V6(v6.sin6_addr.s6_addr.into()))
        }
        _ => None,
    }
}

/// Returns the index, hardware type and address of a device, if this is a link-layer address.
///
/// # Safety
/// `address` is null or points to a socket address as long as its family requires.
unsafe fn link_of(address: *const libc::sockaddr) -> Option<(u32, u16, Mac)> {
    // SAFETY: not null when it is read, and every socket address begins with its family.
    if address.is_null() || libc::c_int::from(unsafe { (*address).sa_family }) != libc::AF_PACKET {
        return None;
    }
    // SAFETY: the family identifies this structure.
    let link = unsafe { address.cast::<libc::sockaddr_ll>().read_unaligned() };
    let [a, b, c, d, e, f, ..] = link.sll_addr;
    Some((link.sll_ifindex as u32, link.sll_hatype, [a, b, c, d, e, f]))
}

/// The state of a device that may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceState {
    /// Maximum length of an IP packet.
    pub mtu: usize,
    /// Whether the device is up.
    pub up: bool,
}

/// Returns the current state of the device with this index, queried through any socket of its network
/// namespace.
///
/// # Errors
/// The device is gone (ENODEV), or the kernel cannot answer.
pub(crate) fn state(socket: BorrowedFd<'_>, index: u32) -> io::Result<InterfaceState> {
    // SAFETY: all-zero bytes are a valid value of the structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_ifru.ifru_ifindex = index as libc::c_int;
    device_ioctl(socket, libc::SIOCGIFNAME, &mut request)?;
    device_ioctl(socket, libc::SIOCGIFMTU, &mut request)?;
    // SAFETY: the kernel has just written this field.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    device_ioctl(socket, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the kernel has just written this field.
    let flags = libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags });
    Ok(InterfaceState { mtu: usize::try_from(mtu).unwrap_or(0), up: flags & libc::IFF_UP != 0 })
}

/// A device looked up by name.
#[derive(Clone, Debug)]
pub struct NamedInterface {
    /// The device's index.
    pub index: u32,
    /// The device's name.
    pub name: String,
    /// The device's state when it was looked up.
    pub state: InterfaceState,
}

/// Returns the device of this name in the calling thread's network namespace.
///
/// # Errors
/// There is no such device (ENODEV), or the kernel cannot answer.
pub fn by_name(name: &str) -> io::Result<NamedInterface> {
    let c_name = CString::new(name).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the name ends with a zero byte.
    let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
    if index == 0 {
        return Err(io::Error::last_os_error());
    }
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))
        .or_else(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
    Ok(NamedInterface { index, name: name.to_owned(), state: state(socket.as_fd(), index)? })
}

fn device_ioctl(socket: BorrowedFd<'_>, command: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the descriptor is open while it is borrowed, and these requests read and write only the passed
    // structure.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), command, std::ptr::from_mut(request)) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, index: u32, kind: u16, addresses: &[&str]) -> InterfaceEntry {
        let addresses = addresses.iter().map(|ip| ip.parse().unwrap()).collect();
        InterfaceEntry { name: name.to_owned(), link: Some((index, kind, [index as u8; 6])), addresses }
    }

    fn host() -> Vec<InterfaceEntry> {
        vec![
            device("lo", 1, libc::ARPHRD_LOOPBACK, &["127.0.0.1"]),
            device("eth0", 2, libc::ARPHRD_ETHER, &["10.0.0.1", "fe80::1", "fd00::1"]),
            device("tun0", 3, 65_534, &["10.9.0.1"]),
            device("eth1", 4, libc::ARPHRD_ETHER, &[]),
        ]
    }

    fn chosen(named: Option<&str>, local: &str) -> Result<(String, String), String> {
        match choose(&host(), named, local.parse().unwrap()) {
            Ok((interface, ip)) => Ok((interface.name, ip.to_string())),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_device_is_found_by_its_name_or_by_an_address() {
        let is = |name: &str, ip: &str| Ok((name.to_owned(), ip.to_owned()));
        assert_eq!(chosen(None, "10.0.0.1"), is("eth0", "10.0.0.1"));
        assert_eq!(chosen(Some("eth0"), "0.0.0.0"), is("eth0", "10.0.0.1"));
        assert_eq!(chosen(Some("eth0"), "::"), is("eth0", "fd00::1"));
        assert_eq!(chosen(Some("eth0"), "fe80::1"), is("eth0", "fe80::1"));
        assert_eq!(chosen(Some("lo"), "127.0.0.9"), is("lo", "127.0.0.9"));
        assert_eq!(chosen(None, "127.0.0.9"), is("lo", "127.0.0.9"));
    }

    #[test]
    fn each_error_names_the_culprit_and_what_to_choose() {
        let says = |named, local, parts: &[&str]| {
            let error = chosen(named, local).unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)) && !error.contains('\n'), "{error}");
        };
        says(None, "0.0.0.0", &["name an interface"]);
        says(Some("eth7"), "0.0.0.0", &["no interface eth7", "lo, eth0, tun0, eth1"]);
        says(None, "10.0.0.9", &["10.0.0.9 is not an address", "127.0.0.1, 10.0.0.1"]);
        says(Some("eth0"), "10.9.0.1", &["eth0 does not have the address 10.9.0.1", "10.0.0.1"]);
        says(Some("eth1"), "::", &["eth1 has no IPv6 address", "ip addr add"]);
        says(None, "10.9.0.1", &["tun0 carries no Ethernet", "--driver udp"]);
    }

    #[test]
    fn loopback_is_there_and_tells_its_state() {
        let (lo, ip) = find(None, [127, 0, 0, 1].into()).unwrap();
        assert_eq!((lo.name.as_str(), lo.loopback, lo.mac), ("lo", true, [0; 6]));
        assert_eq!(ip, IpAddr::from([127, 0, 0, 1]));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let state = state(socket.as_fd(), lo.index).unwrap();
        assert!(state.up && state.mtu > 1_000, "{state:?}");
    }

    #[test]
    fn a_device_that_is_not_there_is_told_as_such() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let error = state(socket.as_fd(), 0x7fff_0000).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
