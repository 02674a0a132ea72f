//! Formats a packet as one line, in the style of tcpdump.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::bundle::{Padding, Place};
use super::item::{CaptureItem, CapturedPacket, DecodeResult, ItemContent};

/// An item formatted as one line.
pub struct Line<'a> {
    pub item: &'a CaptureItem<'a>,
    /// Whether to print the time of day in UTC instead of seconds since the start of the capture.
    pub absolute: bool,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let item = self.item;
        if self.absolute {
            f.write_str(&time_of_day(item.time_ns, item.nanoseconds))?;
        } else {
            // Records are not necessarily in chronological order.
            let sign = if item.time_ns < item.start_ns { "-" } else { "" };
            let ns = item.time_ns.abs_diff(item.start_ns);
            write!(f, "{sign}{}.{}", ns / 1_000_000_000, fraction(ns, item.nanoseconds))?;
        }
        match &item.what {
            ItemContent::Packet(captured) => write!(f, " {}", PacketSummary(captured)),
            ItemContent::Icmp { from, to, kind, code, about } => {
                let what = icmp(from, *kind, *code);
                write!(f, " {from} > {to} ICMP {what}: {}", PacketSummary(about))
            }
            ItemContent::Fragment { from, to } => {
                write!(f, " {from} > {to} bad packet: an IP fragment, and Homa packets are never fragmented")
            }
        }
    }
}

/// Source, destination, priority and content of a packet.
struct PacketSummary<'a>(&'a CapturedPacket<'a>);

impl fmt::Display for PacketSummary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let captured = self.0;
        let datagram = &captured.datagram;
        let source = Host { addr: datagram.from, udp: datagram.udp, port: captured.common("source_port") };
        let dest = Host { addr: datagram.to, udp: datagram.udp, port: captured.common("dest_port") };
        write!(f, "{source} > {dest} prio {} ", datagram.dscp_byte >> 5)?;
        let (there, wire_len) = (datagram.payload.bytes.len(), datagram.payload.wire_len);
        match &captured.decoded {
            DecodeResult::Valid(packet) => write!(f, "{}", packet.without_ports())?,
            DecodeResult::Cut => {
                if let Some(kind) = captured.packet_type() {
                    write!(f, "{kind} ")?;
                }
                if let Some(id) = captured.common("sender_id") {
                    write!(f, "id {id} ")?;
                }
                write!(f, "cut: {there} of {wire_len} bytes are there")?;
            }
            DecodeResult::Bad(_) | DecodeResult::BadLength(_) => {
                let error = captured.error().map(|(text, _)| text).unwrap_or_default();
                write!(f, "bad packet of {wire_len} bytes: {error}")?;
            }
        }
        captured.place.map_or(Ok(()), |place| bundled(f, &place))
    }
}

/// Writes the position of a packet in its bundle, and the padding after the last packet.
fn bundled(f: &mut fmt::Formatter<'_>, place: &Place) -> fmt::Result {
    write!(f, " (packet {} of a bundle", place.number)?;
    if let Some(Padding { length, is_zero }) = place.padding {
        let wrong = if is_zero { "" } else { ", not all of it zero" };
        write!(f, ", then {length} bytes of padding{wrong}")?;
    }
    f.write_str(")")
}

/// A host and a Homa port in the format of server addresses: `10.0.0.7/99` over raw IP, `10.0.0.7:14600/99`
/// over UDP.
struct Host {
    addr: SocketAddr,
    udp: bool,
    port: Option<u64>,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.udp, self.addr.ip()) {
            (true, _) => write!(f, "{}", self.addr)?,
            (false, IpAddr::V4(ip)) => write!(f, "{ip}")?,
            (false, IpAddr::V6(ip)) => write!(f, "[{ip}]")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, "/{port}"))
    }
}

/// Describes the type and code of an ICMP error, whose meaning depends on the IP version.
pub fn icmp(from: &IpAddr, kind: u8, code: u8) -> String {
    let text = match (from, kind, code) {
        (IpAddr::V4(_), 3, 0) => "network unreachable",
        (IpAddr::V4(_), 3, 1) => "host unreachable",
        (IpAddr::V4(_), 3, 2) => "protocol unreachable",
        (IpAddr::V4(_), 3, 3) | (IpAddr::V6(_), 1, 4) => "port unreachable",
        (IpAddr::V4(_), 3, 4) | (IpAddr::V6(_), 2, _) => "packet too big",
        (IpAddr::V4(_), 3, 9 | 10 | 13) | (IpAddr::V6(_), 1, 1) => "prohibited",
        (IpAddr::V4(_), 11, _) | (IpAddr::V6(_), 3, _) => "time exceeded",
        (IpAddr::V6(_), 1, 0) => "no route",
        (IpAddr::V6(_), 1, 3) => "address unreachable",
        (IpAddr::V6(_), 4, 1) => "protocol unreachable",
        _ => return format!("type {kind} code {code}"),
    };
    text.to_owned()
}

/// Formats a time as UTC in the format of RFC 3339.
pub fn time_of_day(time_ns: u64, nanoseconds: bool) -> String {
    let seconds = time_ns / 1_000_000_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{}Z",
        second / 3_600,
        second / 60 % 60,
        second % 60,
        fraction(time_ns, nanoseconds)
    )
}

fn fraction(ns: u64, nanoseconds: bool) -> String {
    let ns = ns % 1_000_000_000;
    if nanoseconds { format!("{ns:09}") } else { format!("{:06}", ns / 1_000) }
}

/// Converts a number of days since 1970-01-01 to year, month and day of the Gregorian calendar.
fn date(days: u64) -> (u64, u64, u64) {
    let mut year = 1970;
    let mut left = days;
    // Remove whole cycles of 400 years first, because a corrupted time may be centuries away.
    const CYCLE_DAYS: u64 = 146_097;
    year += left / CYCLE_DAYS * 400;
    left %= CYCLE_DAYS;
    let is_leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(date(19_782), (2024, 2, 29));
        assert_eq!(date(20_453), (2025, 12, 31));
        assert_eq!(date(47_540), (2100, 2, 28));
        assert_eq!(date(47_541), (2100, 3, 1));
        assert_eq!(date(u64::MAX / 1_000_000_000 / 86_400), (2554, 7, 21));
    }

    #[test]
    fn a_time_has_as_many_digits_as_the_capture() {
        let time_ns = 1_784_572_491_478_683_001;
        assert_eq!(time_of_day(time_ns, false), "2026-07-20T18:34:51.478683Z");
        assert_eq!(time_of_day(time_ns, true), "2026-07-20T18:34:51.478683001Z");
    }
}
