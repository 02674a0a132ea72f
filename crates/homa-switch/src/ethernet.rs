//! The header fields that the switch reads: addresses, priority, ECN capability.

/// An Ethernet address.
pub type Mac = [u8; 6];

const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;
const TYPE_VLAN: u16 = 0x8100;

/// The two ECN bits. The sender is ECN-capable if either is set; both set is the mark (CE).
const ECN_BITS: u8 = 3;

/// Header fields of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Destination address.
    pub to: Mac,
    /// Source address.
    pub from: Mac,
    /// Upper three bits of the DSCP of an IP packet, 0 to 7, larger is higher; 0 if the frame carries no IP
    /// packet.
    pub priority: u8,
    /// Whether the sender is ECN-capable and the packet is not marked yet.
    pub may_be_marked: bool,
}

impl FrameHeader {
    /// Returns whether the destination is broadcast or multicast.
    #[must_use]
    pub fn is_for_many(&self) -> bool {
        self.to[0] & 1 != 0
    }
}

/// Returns the EtherType and the offset of the IP header, after a VLAN tag if there is one.
fn network_layer(frame: &[u8]) -> Option<(u16, usize)> {
    let word = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    match word(12)? {
        TYPE_VLAN => Some((word(16)?, 18)),
        other => Some((other, 14)),
    }
}

/// Returns the byte that contains DSCP and ECN (IPv4: type of service, IPv6: traffic class).
fn traffic_class(frame: &[u8]) -> Option<u8> {
    let (kind, at) = network_layer(frame)?;
    match kind {
        TYPE_IPV4 => frame.get(at + 1).copied(),
        TYPE_IPV6 => Some((frame.get(at)? & 0x0f) << 4 | frame.get(at + 1)? >> 4),
        _ => None,
    }
}

/// Parses a frame; `None` if it is too short.
#[must_use]
pub fn parse(frame: &[u8]) -> Option<FrameHeader> {
    let (to, rest) = frame.split_first_chunk()?;
    let (from, rest) = rest.split_first_chunk()?;
    if rest.len() < 2 {
        return None;
    }
    let class = traffic_class(frame).unwrap_or(0);
    let ecn = class & ECN_BITS;
    Some(FrameHeader {
        to: *to,
        from: *from,
        priority: class >> 5,
        may_be_marked: ecn != 0 && ecn != ECN_BITS,
    })
}

/// Marks an IP packet as congestion experienced (RFC 3168). Updates the checksum of an IPv4 header (RFC
/// 1624).
pub fn mark_congestion(frame: &mut [u8]) {
    let Some((kind, at)) = network_layer(frame) else { return };
    match kind {
        TYPE_IPV4 if frame.len() >= at + 20 => {
            let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
            let old = word(frame, at);
            frame[at + 1] |= ECN_BITS;
            let new = word(frame, at);
            let sum = u32::from(!word(frame, at + 10)) + u32::from(!old) + u32::from(new);
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = (sum & 0xffff) + (sum >> 16);
            frame[at + 10..at + 12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        }
        TYPE_IPV6 if frame.len() > at + 1 => frame[at + 1] |= ECN_BITS << 4,
        _ => (),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(class: u8) -> Vec<u8> {
        let mut frame = vec![1; 6];
        frame.extend([2; 6]);
        frame.extend([8, 0, 0x45, class, 0, 40, 0x12, 0x34, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0; 20]);
        let sum = checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&(!sum).to_be_bytes());
        frame
    }

    fn v6(class: u8) -> Vec<u8> {
        let mut frame = vec![1; 6];
        frame.extend([2; 6]);
        frame.extend([0x86, 0xdd, 0x60 | class >> 4, class << 4 | 0x0a, 0xbc, 0xde]);
        frame.extend([0; 60]);
        frame
    }

    /// Returns the sum of 16-bit words with end-around carry: 0xffff for a header whose checksum is correct.
    fn checksum(bytes: &[u8]) -> u16 {
        let (words, _) = bytes.as_chunks::<2>();
        let sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
        ((sum & 0xffff) + (sum >> 16)) as u16
    }

    fn tagged(mut frame: Vec<u8>) -> Vec<u8> {
        frame.splice(12..12, [0x81, 0x00, 0xe0, 0x05]);
        frame
    }

    #[test]
    fn the_priority_is_the_upper_half_of_the_dscp_in_both_versions_and_behind_a_tag() {
        for priority in 0..8 {
            for frame in [v4(priority << 5 | 0x0d), v6(priority << 5 | 0x0d)] {
                assert_eq!(parse(&frame).unwrap().priority, priority);
                assert_eq!(parse(&tagged(frame)).unwrap().priority, priority);
            }
        }
        let arp = [&[0xff; 6][..], &[2; 6], &[8, 6], &[0xff; 28]].concat();
        let head = parse(&arp).unwrap();
        assert_eq!((head.priority, head.is_for_many(), head.from), (0, true, [2; 6]));
    }

    #[test]
    fn only_what_can_be_marked_is_and_the_checksum_stays_right() {
        for ecn in 0..4 {
            for frame in [v4(0xa4 | ecn), v6(0xa4 | ecn)] {
                assert_eq!(parse(&frame).unwrap().may_be_marked, ecn == 1 || ecn == 2);
            }
        }
        for class in 0..=255 {
            let mut frame = v4(class);
            mark_congestion(&mut frame);
            assert_eq!((frame[15], checksum(&frame[14..34])), (class | 3, 0xffff), "class {class}");
            let mut frame = tagged(v6(class));
            let plain = frame.clone();
            mark_congestion(&mut frame);
            assert_eq!(traffic_class(&frame), Some(class | 3));
            assert_eq!(frame[20..], plain[20..], "the flow label and what follows stay");
        }
    }

    #[test]
    fn anything_is_read_without_panic() {
        for frame in [v4(0), v6(0), tagged(v4(0))] {
            for length in 0..frame.len() {
                assert_eq!(parse(&frame[..length]).is_some(), length >= 14);
                mark_congestion(&mut frame[..length].to_vec());
            }
        }
    }
}
