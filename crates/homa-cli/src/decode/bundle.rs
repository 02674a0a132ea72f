//! Splits a datagram into its packets (PROTOCOL.md WIRE-21, WIRE-22), even if the capture has truncated it.
//!
//! `wire::packets` splits only complete datagrams. In a capture, the length of a packet on the wire may
//! exceed the number of captured bytes.

use homa_pcap::frame::{CapturedBytes, Datagram};
use homa_proto::wire::{COMMON_LEN, packet_length, stated_length};

/// One packet of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    pub packet: CapturedBytes<'a>,
    /// The position in the bundle; `None` if the datagram is not a bundle.
    pub place: Option<Place>,
    /// The value of packet_length, if it is invalid. `packet` is then the whole rest of the datagram.
    pub bad_length: Option<usize>,
}

/// The position of a packet in its bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the packet in the bundle, starting at 1.
    pub number: u32,
    /// Offset of the packet in the datagram.
    pub offset: usize,
    /// The bytes after the bundle's last packet.
    pub padding: Option<Padding>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padding {
    pub length: usize,
    /// Whether the captured bytes are zero, as they must be.
    pub is_zero: bool,
}

/// Returns the packets of a datagram, in order. Only UDP datagrams can be bundles.
pub fn parts<'a>(datagram: &Datagram<'a>) -> Parts<'a> {
    Parts {
        rest: Some(datagram.payload),
        next: Place { number: 1, offset: 0, padding: None },
        udp: datagram.udp,
    }
}

pub struct Parts<'a> {
    rest: Option<CapturedBytes<'a>>,
    next: Place,
    udp: bool,
}

impl<'a> Iterator for Parts<'a> {
    type Item = Part<'a>;

    fn next(&mut self) -> Option<Part<'a>> {
        let rest = self.rest.take()?;
        let length = if self.udp { packet_length(rest.bytes) } else { None };
        let Some(length) = length else {
            // After the first packet of a bundle, this happens if the capture truncates the header, or if the
            // header lacks our mark (WIRE-22).
            let place = (self.next.number > 1).then_some(self.next);
            let bad_length = place.map(|_| stated_length(rest.bytes)).filter(|&length| length != 0);
            return Some(Part { packet: rest, place, bad_length });
        };
        let mut place = self.next;
        if !(COMMON_LEN..=rest.wire_len).contains(&length) {
            return Some(Part { packet: rest, place: Some(place), bad_length: Some(length) });
        }
        let (bytes, rest_bytes) = rest.bytes.split_at(length.min(rest.bytes.len()));
        let after = CapturedBytes { bytes: rest_bytes, wire_len: rest.wire_len - length };
        place.padding = padding(after);
        self.rest = (after.wire_len > 0 && place.padding.is_none()).then_some(after);
        self.next = Place { number: place.number + 1, offset: place.offset + length, padding: None };
        Some(Part { packet: CapturedBytes { bytes, wire_len: length }, place: Some(place), bad_length: None })
    }
}

/// Returns the padding after a packet, or `None` if another packet follows or the capture is too short to
/// determine this.
fn padding(after: CapturedBytes<'_>) -> Option<Padding> {
    let is_cut = after.bytes.len() < COMMON_LEN && after.wire_len >= COMMON_LEN;
    let is_padding = after.wire_len > 0 && !is_cut && stated_length(after.bytes) == 0;
    is_padding.then(|| Padding { length: after.wire_len, is_zero: after.bytes.iter().all(|&byte| byte == 0) })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use homa_proto::wire::{self, Body, Common, Incarnation};

    /// Builds a bundle of three BUSY packets and five bytes of padding.
    fn bundle() -> Vec<u8> {
        let common = Common {
            source_port: 99,
            dest_port: 40_000,
            sender_id: 245,
            incarnation: Incarnation::new(7),
            bundle_endpoints: 0,
        };
        let mut datagram = Vec::new();
        for _ in 0..3 {
            wire::append_packet(&mut datagram, &wire::encode(&common, &Body::Busy), &[]);
        }
        datagram.resize(datagram.len() + 5, 0);
        datagram
    }

    fn divide(bytes: &[u8], wire_len: usize, udp: bool) -> Vec<Part<'_>> {
        let nobody = SocketAddr::from(([10, 0, 0, 1], 1));
        let payload = CapturedBytes { bytes, wire_len };
        parts(&Datagram { from: nobody, to: nobody, dscp_byte: 0, udp, payload }).collect()
    }

    #[test]
    fn a_whole_datagram_is_divided_as_the_protocol_divides_it() {
        let bundle = bundle();
        let mut broken = bundle.clone();
        broken[COMMON_LEN + 8..][..2].copy_from_slice(&[0xff, 0xff]);
        let mut unmarked = bundle.clone();
        unmarked[COMMON_LEN + 18..][..2].fill(0);
        let odd: [&[u8]; 3] = [&[0; 40], &[1; 5], &[]];
        for datagram in [&bundle[..], &bundle[..2 * COMMON_LEN], &broken, &unmarked].into_iter().chain(odd) {
            let own: Vec<&[u8]> = divide(datagram, datagram.len(), true)
                .iter()
                .map(|part| if part.bad_length.is_some() { &[] } else { part.packet.bytes })
                .collect();
            assert_eq!(own, wire::packets(datagram).collect::<Vec<_>>(), "{datagram:?}");
        }
        let last = divide(&bundle, bundle.len(), true)[2].place.unwrap();
        let padding = Some(Padding { length: 5, is_zero: true });
        assert_eq!(last, Place { number: 3, offset: 2 * COMMON_LEN, padding });
        assert_eq!(divide(&bundle, bundle.len(), false).len(), 1, "IP carries one packet");
    }

    #[test]
    fn a_cut_datagram_is_divided_as_far_as_it_is_there() {
        let bundle = bundle();
        for there in 0..bundle.len() {
            let parts = divide(&bundle[..there], bundle.len(), true);
            let captured: usize = parts.iter().map(|part| part.packet.bytes.len()).sum();
            assert_eq!(captured, there.min(3 * COMMON_LEN), "{there} bytes");
            let on_wire: usize = parts.iter().map(|part| part.packet.wire_len).sum();
            let last = parts.last().unwrap();
            let padding = last.place.and_then(|place| place.padding).map_or(0, |padding| padding.length);
            assert_eq!(on_wire + padding, bundle.len(), "{there} bytes");
        }
    }
}
