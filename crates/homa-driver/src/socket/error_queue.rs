//! Network reports about packets that were not delivered, and send times.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::address::RawAddress;
use super::control::{Control, software_time_ns};

/// Control message of the kernel's reports about packets that a packet socket sent (`linux/if_packet.h`).
const PACKET_TX_TIMESTAMP: libc::c_int = 16;

/// One report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// A packet was not delivered.
    Error(NetworkError),
    TxTimestamp(TxTimestamp),
}

/// The kernel passed a datagram to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TxTimestamp {
    /// Number of the datagram, by the kernel's count.
    pub(crate) number: u32,
    /// Time of the real-time clock in nanoseconds.
    pub(crate) at_ns: u64,
}

/// A report that a packet was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NetworkError {
    /// Destination of the packet.
    pub(crate) to: SocketAddr,
    pub(crate) cause: Cause,
    /// The part of the packet that is quoted in the report, from the Homa header on.
    pub(crate) quoted: QuotedHeader,
    /// Whether this host itself reports a packet that it could not send. The send call for the packet failed
    /// as well.
    pub(crate) local: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// No socket has the port; reported by the destination itself.
    PortUnreachable,
    /// The destination does not support the protocol.
    ProtocolUnreachable,
    /// The packet is too big for a link on the path, possibly the first one.
    TooBig {
        /// Maximum packet length of that link in bytes, including the IP header; 0 if it is not reported.
        mtu: usize,
    },
    /// Any other cause: no route, filtered, hop limit.
    Other,
}

/// The start of a refused packet, as far as the report quotes it. RFC 792 requires 8 bytes; Linux quotes more
/// than a common header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QuotedHeader {
    bytes: [u8; 28],
    length: usize,
}

impl QuotedHeader {
    /// Returns the quoted bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length.min(self.bytes.len())]
    }

    /// Quotes the start of a packet.
    pub(crate) fn of(packet: &[u8]) -> QuotedHeader {
        let mut quoted = QuotedHeader::default();
        quoted.length = packet.len().min(quoted.bytes.len());
        quoted.bytes[..quoted.length].copy_from_slice(&packet[..quoted.length]);
        quoted
    }

    /// Returns the source port of the Homa packet: the port of the process that sent it.
    pub(crate) fn source_port(&self) -> Option<u16> {
        self.bytes().get(..2).map(|b| u16::from_be_bytes([b[0], b[1]]))
    }

    /// Returns the destination port and `sender_id` of the Homa packet.
    pub(crate) fn port_and_id(&self) -> (Option<u16>, Option<u64>) {
        let bytes = self.bytes();
        let port = bytes.get(2..4).map(|b| u16::from_be_bytes([b[0], b[1]]));
        let id = bytes.get(20..28).and_then(|b| <[u8; 8]>::try_from(b).ok()).map(u64::from_be_bytes);
        (port, id)
    }
}

/// Removes and returns the oldest report of the socket, or `None` if there are no more.
///
/// Reports without an address or an ICMP origin are useless and are skipped.
pub(crate) fn take(fd: BorrowedFd<'_>) -> Option<Report> {
    loop {
        let mut address = RawAddress::empty();
        // Large enough for SO_RXQ_OVFL and either the report (16 bytes) with the address of the router that
        // sent it, or the times of a sent packet.
        let mut control = Control::<256>::empty();
        let mut quoted = QuotedHeader::default();
        let mut part =
            libc::iovec { iov_base: quoted.bytes.as_mut_ptr().cast(), iov_len: quoted.bytes.len() };
        // SAFETY: all-zero bytes are a valid value of the structure: null pointers and zero lengths.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = (&raw mut address).cast();
        message.msg_namelen = RawAddress::BYTES;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.bytes.as_mut_ptr().cast();
        message.msg_controllen = control.bytes.len() as _;
        // SAFETY: the descriptor is open while it is borrowed. Name, control and the single part are passed
        // with their correct lengths and outlive the call. Quoted bytes beyond the part are truncated.
        let result = unsafe {
            libc::recvmsg(fd.as_raw_fd(), &raw mut message, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
        };
        if result < 0 {
            return None;
        }
        quoted.length = result as usize;
        #[allow(clippy::unnecessary_cast, reason = "the field's type differs between C libraries")]
        let control_bytes = message.msg_controllen as usize;
        let error = control.messages(control_bytes).find_map(|(level, kind, data)| match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_RECVERR)
            | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
            | (libc::SOL_PACKET, PACKET_TX_TIMESTAMP) => extended_error(data),
            _ => None,
        });
        if let Some(error) = error.filter(|error| error.ee_origin == libc::SO_EE_ORIGIN_TIMESTAMPING) {
            let time = control
                .messages(control_bytes)
                .find(|&(level, kind, _)| (level, kind) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING));
            let at_ns = time.map_or(0, |(_, _, data)| software_time_ns(data));
            return Some(Report::TxTimestamp(TxTimestamp { number: error.ee_data, at_ns }));
        }
        let cause = error.and_then(cause_of);
        if let (Some(to), Some((cause, local))) = (address.get(message.msg_namelen), cause) {
            return Some(Report::Error(NetworkError { to, cause, quoted, local }));
        }
    }
}

/// Parses the report in the data of a control message.
fn extended_error(data: &[u8]) -> Option<libc::sock_extended_err> {
    if data.len() < size_of::<libc::sock_extended_err>() {
        return None;
    }
    // SAFETY: there are as many bytes as the structure has, it contains only integers, and the read may be
    // unaligned.
    Some(unsafe { data.as_ptr().cast::<libc::sock_extended_err>().read_unaligned() })
}

/// Returns the cause of an error, and whether it originated on this host. `None` if the error comes from
/// neither ICMP nor this host.
fn cause_of(error: libc::sock_extended_err) -> Option<(Cause, bool)> {
    let icmp = matches!(error.ee_origin, libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6);
    if !icmp && error.ee_origin != libc::SO_EE_ORIGIN_LOCAL {
        return None;
    }
    // Types and codes are from RFC 792 and RFC 4443. In the latter, an unknown protocol is reported as an
    // unrecognized next header.
    let cause = match (error.ee_origin, error.ee_type, error.ee_code) {
        (libc::SO_EE_ORIGIN_ICMP, 3, 3) | (libc::SO_EE_ORIGIN_ICMP6, 1, 4) => Cause::PortUnreachable,
        (libc::SO_EE_ORIGIN_ICMP, 3, 2) | (libc::SO_EE_ORIGIN_ICMP6, 4, 1) => Cause::ProtocolUnreachable,
        _ if error.ee_errno as libc::c_int == libc::EMSGSIZE => Cause::TooBig { mtu: error.ee_info as usize },
        _ => Cause::Other,
    };
    Some((cause, !icmp))
}
