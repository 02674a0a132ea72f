//! What the network reported of packets that did not arrive.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::address::RawAddress;
use super::control::Control;

/// One report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NetworkError {
    /// Where the packet was bound for.
    pub(super) to: SocketAddr,
    pub(super) cause: Cause,
    /// This host's own report, of a packet that it did not send: the call that was to send it has failed as well.
    pub(super) local: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Nobody has the port there: the host itself says so.
    PortUnreachable,
    /// Too big for some link on the way, or for the first one.
    TooBig,
    /// Any other: no route, filtered, hop limit.
    Other,
}

/// Takes the oldest report from the socket, or `None` when there is none left.
///
/// Reports that are of no use, because they lack an address or an ICMP origin, are passed over.
pub(super) fn take(fd: BorrowedFd<'_>) -> Option<NetworkError> {
    loop {
        let mut address = RawAddress::empty();
        // The report (16 bytes) with the address of the router that sent it, and SO_RXQ_OVFL beside it.
        let mut control = Control::<256>::empty();
        // SAFETY: all-zero bytes are a value of the structure: null pointers and zero lengths.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = (&raw mut address).cast();
        message.msg_namelen = RawAddress::BYTES;
        message.msg_control = control.bytes.as_mut_ptr().cast();
        message.msg_controllen = control.bytes.len() as _;
        // SAFETY: the descriptor is open while it is borrowed; name and control point to as many bytes as they say, which live
        // through the call; there are no data buffers, so the head of the failed packet that comes along is cut off.
        let result = unsafe {
            libc::recvmsg(fd.as_raw_fd(), &raw mut message, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
        };
        if result < 0 {
            return None;
        }
        #[allow(clippy::unnecessary_cast, reason = "the field's type differs between C libraries")]
        let control_bytes = message.msg_controllen as usize;
        let cause = control.messages(control_bytes).find_map(|(level, kind, data)| match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => cause_of(data),
            _ => None,
        });
        if let (Some(to), Some((cause, local))) = (address.get(message.msg_namelen), cause) {
            return Some(NetworkError { to, cause, local });
        }
    }
}

/// The cause in the bytes of a `sock_extended_err`, and whether this host is the origin; or `None` when it comes from neither ICMP nor this host.
fn cause_of(data: &[u8]) -> Option<(Cause, bool)> {
    if data.len() < size_of::<libc::sock_extended_err>() {
        return None;
    }
    // SAFETY: as many bytes as the structure has are there, it holds only integers, and the read may be unaligned.
    let error = unsafe { data.as_ptr().cast::<libc::sock_extended_err>().read_unaligned() };
    let icmp = matches!(error.ee_origin, libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6);
    if !icmp && error.ee_origin != libc::SO_EE_ORIGIN_LOCAL {
        return None;
    }
    let cause = match error.ee_errno as libc::c_int {
        libc::ECONNREFUSED if icmp => Cause::PortUnreachable,
        libc::EMSGSIZE => Cause::TooBig,
        _ => Cause::Other,
    };
    Some((cause, !icmp))
}
