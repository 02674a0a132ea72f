//! Detects two hosts at one address that do not share a segment. This happens if the containers of a pod
//! share one network namespace but have separate file systems. Each host would then treat the other's packets
//! as packets for ports that no process has.
//!
//! Each host listens on a socket in the abstract name space, which, like the address, belongs to the network
//! namespace. The name states the address and the segment's file. The socket serves no requests: the
//! existence of the name is the message. The name disappears with its process.

use std::fs::{self, File};
use std::io;
use std::mem;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::types::segment_error::SegmentError;

const PREFIX: &str = "homa-host/";

/// The name of this host, which exists for as long as this value does.
#[derive(Debug)]
pub(crate) struct Presence {
    listener: UnixListener,
}

impl Drop for Presence {
    fn drop(&mut self) {
        // A child process has a copy of the descriptor until it executes another program. Until then the name
        // still exists, but without a listener. SAFETY: the descriptor is open, and the call takes only
        // numbers.
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
    }
}

/// Number of names that this process has announced.
static ANNOUNCED: AtomicU64 = AtomicU64::new(0);

/// The content of a name.
#[derive(Debug, PartialEq, Eq)]
struct Name<'a> {
    address: IpAddr,
    /// Device and inode of the segment.
    segment: &'a str,
}

fn parse(name: &str) -> Option<Name<'_>> {
    let mut parts = name.strip_prefix(PREFIX)?.splitn(3, '/');
    let (address, segment) = (parts.next()?.parse().ok()?, parts.next()?);
    Some(Name { address, segment })
}

/// Returns whether a packet could match both addresses. An IPv6 wildcard may include both IP versions.
fn overlap(one: IpAddr, other: IpAddr) -> bool {
    let covers = |all: IpAddr, of: IpAddr| all.is_unspecified() && (all.is_ipv6() || of.is_ipv4());
    one == other || covers(one, other) || covers(other, one)
}

impl Presence {
    /// Announces that the host at `address` shares the segment in `file`.
    ///
    /// # Errors
    /// Another host of this network namespace has the address but a different segment, or the system refuses
    /// an operation.
    pub(super) fn announce(address: IpAddr, file: &File, path: &Path) -> Result<Presence, SegmentError> {
        let system =
            |source| SegmentError::System { what: "announce the host of", path: path.to_owned(), source };
        let meta = file.metadata().map_err(system)?;
        let segment = format!("{:x}-{:x}", meta.dev(), meta.ino());
        // A process may have several hosts, one after another or at the same time.
        let number = ANNOUNCED.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{address}/{segment}/{}-{number}", std::process::id());
        let socket = SocketAddr::from_abstract_name(&name).map_err(system)?;
        let listener = UnixListener::bind_addr(&socket).map_err(system)?;
        // HOST-11. Read the names only after this host's own name exists: of two hosts that start at the same
        // time, at least one then sees the other.
        let names = fs::read_to_string("/proc/thread-self/net/unix").map_err(system)?;
        for other in names.lines().filter_map(|line| line.split_whitespace().last()?.strip_prefix('@')) {
            let Some(announced) = parse(other) else { continue };
            if announced.segment != segment
                && overlap(announced.address, address)
                && let Some(pid) = trusted_listener(other)
            {
                return Err(SegmentError::Divided { path: path.to_owned(), address, pid });
            }
        }
        Ok(Presence { listener })
    }
}

/// Returns the process that listens at an abstract name, if it runs as this user or as root. Any user can
/// take a name, so other users' processes are not trusted.
fn trusted_listener(name: &str) -> Option<i32> {
    let credentials = credentials_of(name).ok()?;
    // SAFETY: the call only returns a number.
    let me = unsafe { libc::geteuid() };
    (credentials.uid == me || credentials.uid == 0).then_some(credentials.pid)
}

fn credentials_of(name: &str) -> io::Result<libc::ucred> {
    let check = |result: libc::c_int| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) };
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes only numbers.
    let fd = check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
    // SAFETY: the descriptor was created here and has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the structure consists of numbers, for which zero is a valid value.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // The first byte of an abstract name is zero.
    let path = address.sun_path.get_mut(1..=name.len()).ok_or(io::ErrorKind::InvalidInput)?;
    for (to, from) in path.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let length = mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    // SAFETY: the address is as long as stated and outlives the call.
    check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), length as libc::socklen_t) })?;
    // SAFETY: the structure consists of numbers, for which zero is a valid value.
    let mut credentials: libc::ucred = unsafe { mem::zeroed() };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: the option writes at most `length` bytes to the structure, which outlives the call.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, option, (&raw mut credentials).cast(), &raw mut length)
    })?;
    Ok(credentials)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenancy::process_group::tests::Dir;

    /// HOST-11: hosts at one address must share a segment.
    #[test]
    fn a_second_segment_at_the_same_address_is_refused_and_names_the_process() {
        let (one, other) = (Dir::new(), Dir::new());
        let (first, second, divided) = (one.open(), one.open(), other.open());
        let address: IpAddr = "203.0.113.77".parse().unwrap();
        let announced = [&first, &second].map(|segment| segment.announce(address).unwrap());
        let elsewhere = divided.announce("203.0.113.78".parse().unwrap()).unwrap();
        let error = divided.announce(address).unwrap_err();
        assert!(
            matches!(error, SegmentError::Divided { pid, .. } if pid == std::process::id() as i32),
            "{error}"
        );
        assert_eq!(error.to_string().lines().count(), 1);
        // A copy of the descriptor, such as a child process has before it executes another program.
        let copy = announced[0].listener.try_clone().unwrap();
        drop((announced, elsewhere));
        let presence = divided.announce(address).unwrap();
        drop((presence, divided.announce(address).unwrap()));
        first.announce(address).unwrap();
        drop(copy);
    }

    #[test]
    fn addresses_overlap_where_some_packets_are_for_both() {
        let of = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|text| text.parse().unwrap());
            assert_eq!(overlap(one, other), overlap(other, one));
            overlap(one, other)
        };
        assert!(
            of("10.0.0.1", "10.0.0.1")
                && of("10.0.0.1", "0.0.0.0")
                && of("::", "10.0.0.1")
                && of("::", "::1")
        );
        assert!(!of("10.0.0.1", "10.0.0.2") && !of("0.0.0.0", "::1") && !of("::1", "10.0.0.1"));
    }

    #[test]
    fn names_of_others_are_passed_over() {
        let name = Name { address: IpAddr::from([10, 0, 0, 1]), segment: "1-2f" };
        assert_eq!(parse("homa-host/10.0.0.1/1-2f/0-77"), Some(name));
        for other in ["", "homa-host/", "homa-host/x/1-2/3", "homa-host/10.0.0.1", "systemd"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
