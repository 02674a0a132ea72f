//! Splits DATA packets that a sender's kernel has merged for segmentation offload and that no device has
//! segmented. If both machines are guests of one host, such packets reach a raw socket unsegmented. Linux
//! Homa lays them out for its device to segment: the header without the segment's offset, then the segments,
//! each consisting of its 4-byte offset and its part of the message (WIRE-20). All parts but the last have
//! equal length.
//!
//! The packet does not contain the length of the parts. A packet no longer than its device's maximum is never
//! examined, whatever its contents, because part of a message may look like an offset.

/// Length of the DATA header before the segment's offset.
const HEADER_BYTES: usize = 52;
/// Length of a segment's offset in its message.
const OFFSET_BYTES: usize = 4;
/// Offset of the packet type, and the type of DATA.
const TYPE: (usize, u8) = (11, 0x10);
/// Offset of `doff`, and its value in DATA whose offset field belongs to the first segment.
const DOFF: (usize, u8) = (12, 0xd0);

/// Packets up to this length fit any device that carries IPv6 and IPv4, and are therefore never examined.
const ORDINARY_BYTES: usize = 1_280 - 40;

/// Layout of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroLayout {
    /// Not merged.
    No,
    /// Segments of this many bytes each, including their offsets, after one header.
    Every(usize),
    /// Merged in an unknown way, or in a way that cannot be determined.
    Unknown,
}

/// Determines the layout of a packet, which is passed without its IP header and comes from a device whose
/// maximum is `max_packet()` bytes.
pub(super) fn layout_of(packet: &[u8], max_packet: impl FnOnce() -> Option<usize>) -> GroLayout {
    let has = |(at, value): (usize, u8)| packet.get(at) == Some(&value);
    if packet.len() <= ORDINARY_BYTES || !has(TYPE) || !has(DOFF) {
        return GroLayout::No;
    }
    let Some(longest) = max_packet().filter(|longest| packet.len() > *longest) else { return GroLayout::No };
    let mut fitting = (OFFSET_BYTES + 1..=longest.saturating_sub(HEADER_BYTES))
        .filter(|segment| is_divided_by(packet, *segment));
    match (fitting.next(), fitting.next()) {
        (Some(segment), None) => GroLayout::Every(segment),
        _ => GroLayout::Unknown,
    }
}

/// Whether the packet has an offset every `segment` bytes, each continuing the previous one.
fn is_divided_by(packet: &[u8], segment: usize) -> bool {
    let offset = |at: usize| {
        let bytes = packet.get(at..at + OFFSET_BYTES)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    };
    let Some(first) = offset(HEADER_BYTES) else { return false };
    let part = (segment - OFFSET_BYTES) as u32;
    let begins = (HEADER_BYTES + segment..packet.len()).step_by(segment);
    let mut expected = first;
    for begin in begins {
        expected = expected.wrapping_add(part);
        // The last segment also has at least one byte of the message.
        if packet.len() <= begin + OFFSET_BYTES || offset(begin) != Some(expected) {
            return false;
        }
    }
    true
}

/// Splits a merged packet, the first `length` bytes of `memory`, into packets that each begin with the
/// header. Returns the distance from one packet to the next, and the end of the last packet. `None` if there
/// is no room.
pub(super) fn divide(memory: &mut [u8], length: usize, segment: usize) -> Option<(usize, usize)> {
    let count = (length - HEADER_BYTES).div_ceil(segment);
    let end = length + (count - 1) * HEADER_BYTES;
    if end > memory.len() {
        return None;
    }
    // Start with the last segment: each segment moves towards the end, over the old place of segments that
    // have already moved.
    for number in (1..count).rev() {
        let from = HEADER_BYTES + number * segment;
        let to = from + number * HEADER_BYTES;
        memory.copy_within(from..(from + segment).min(length), to);
        memory.copy_within(..HEADER_BYTES, to - HEADER_BYTES);
    }
    Some((HEADER_BYTES + segment, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longest Homa packet of a device with an MTU of 1500, over IPv4.
    const LONGEST: usize = 1_480;

    /// Returns a merged packet with `bytes` bytes of a message from `offset` on, in parts of `part` bytes.
    fn merged(offset: u32, bytes: usize, part: usize) -> Vec<u8> {
        let mut packet = vec![0; HEADER_BYTES];
        (packet[TYPE.0], packet[DOFF.0]) = (TYPE.1, DOFF.1);
        packet[7] = 99;
        for (number, begin) in (0..bytes).step_by(part).enumerate() {
            packet.extend_from_slice(&(offset + (number * part) as u32).to_be_bytes());
            packet.extend((begin..(begin + part).min(bytes)).map(|at| (at % 251) as u8));
        }
        packet
    }

    fn layout(packet: &[u8]) -> GroLayout {
        layout_of(packet, || Some(LONGEST))
    }

    #[test]
    fn a_merged_packet_of_linux_homa_is_divided() {
        // WIRE-20: 13 full segments, the result of max_gso_size = 20000.
        let packet = merged(0, 13 * 1_424, 1_424);
        assert_eq!((packet.len(), layout(&packet)), (18_616, GroLayout::Every(1_428)));
        let mut memory = packet.clone();
        memory.resize(65_536, 0);
        let (step, end) = divide(&mut memory, packet.len(), 1_428).unwrap();
        assert_eq!((step, end), (1_480, 13 * 1_480));
        for (number, one) in memory[..end].chunks(step).enumerate() {
            assert_eq!(one[..HEADER_BYTES], packet[..HEADER_BYTES]);
            assert_eq!(one[HEADER_BYTES..56], ((number * 1_424) as u32).to_be_bytes());
            let expected = (number * 1_424..).map(|at| (at % 251) as u8);
            assert!(one[56..].iter().copied().eq(expected.take(1_424)), "{number}");
        }
    }

    #[test]
    fn the_last_segment_may_be_short() {
        for bytes in [1_425, 2_848, 2_849, 5_000] {
            let packet = merged(40_000, bytes, 1_424);
            assert_eq!(layout(&packet), GroLayout::Every(1_428), "{bytes}");
            let mut memory = packet.clone();
            memory.resize(packet.len() + 3 * HEADER_BYTES, 0);
            let (step, end) = divide(&mut memory, packet.len(), 1_428).unwrap();
            let parts: Vec<&[u8]> = memory[..end].chunks(step).map(|one| &one[56..]).collect();
            assert!(parts.concat().iter().copied().eq((0..bytes).map(|at| (at % 251) as u8)), "{bytes}");
        }
    }

    #[test]
    fn what_may_be_one_packet_is_left_alone() {
        let packet = merged(0, 2_000, 1_000);
        assert_eq!(layout_of(&packet, || Some(packet.len())), GroLayout::No, "the device takes it");
        assert_eq!(layout_of(&packet, || None), GroLayout::No, "the device is gone");
        let short = merged(0, 1_000, 500);
        assert_eq!(layout_of(&short, || unreachable!("it fits any device")), GroLayout::No);
        let mut other = packet.clone();
        other[DOFF.0] = 0xe0;
        assert_eq!(layout(&other), GroLayout::No, "a header with the offset in `sequence`");
        other[TYPE.0] = 0x11;
        assert_eq!(layout(&other), GroLayout::No, "no DATA");
    }

    #[test]
    fn what_cannot_be_divided_is_not_taken_for_one_packet() {
        let mut packet = merged(0, 13 * 1_424, 1_424);
        packet[HEADER_BYTES + 5 * 1_428] ^= 1;
        assert_eq!(layout(&packet), GroLayout::Unknown, "an offset that is wrong");
        let packet = merged(0, 20_000, 9_000);
        assert_eq!(layout(&packet), GroLayout::Unknown, "parts that its device does not take");
        let mut packet = merged(0, 1_424, 1_424);
        packet.extend([0; 5]);
        assert_eq!(layout(&packet), GroLayout::Unknown, "a few bytes too many");
        let whole = merged(0, 13 * 1_424, 1_424);
        assert_eq!(divide(&mut whole.clone(), whole.len(), 1_428), None, "no room for headers");
    }
}
