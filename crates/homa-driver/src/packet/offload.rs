//! The header before a frame (`virtio_net_hdr`), which describes the work left to do on the frame, and the
//! datagrams into which to segment it.

/// Bytes of the header.
pub(super) const VNET_BYTES: usize = 10;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`
const NEEDS_CHECKSUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_UDP_L4`
const UDP_DATAGRAMS: u8 = 5;
/// Mask of the GSO type, without the ECN flag.
const KIND_BITS: u8 = 0x7f;
const UDP_BYTES: usize = 8;
/// Offset of the checksum in a UDP header.
const CHECKSUM_AT: u16 = 6;

/// Work left to a device, or left undone because the frame passed through no device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offload {
    /// Bytes of payload in each datagram, if the frame represents several UDP datagrams.
    pub(super) segment: Option<usize>,
    /// The length of all headers up to and including the UDP header, if the checksum is still to be computed.
    pub(super) partial: Option<usize>,
}

impl Offload {
    /// Parses the bytes, in this machine's byte order.
    pub(super) fn read(bytes: &[u8; VNET_BYTES]) -> Offload {
        let field = |at| usize::from(u16::from_ne_bytes([bytes[at], bytes[at + 1]]));
        let (kind, size) = (bytes[1] & KIND_BITS, field(4));
        Offload {
            segment: (kind == UDP_DATAGRAMS && size > 0).then_some(size),
            partial: (bytes[0] & NEEDS_CHECKSUM != 0).then_some(field(6) + UDP_BYTES),
        }
    }

    /// Returns the header in the kernel's format. Segments require a checksum that is still to be computed.
    pub(super) fn bytes(&self) -> [u8; VNET_BYTES] {
        let mut bytes = [0; VNET_BYTES];
        let mut set = |at: usize, value: u16| bytes[at..at + 2].copy_from_slice(&value.to_ne_bytes());
        if let Some(headers) = self.partial {
            set(2, headers as u16);
            set(6, (headers - UDP_BYTES) as u16);
            set(8, CHECKSUM_AT);
        }
        if let Some(segment) = self.segment {
            set(4, segment as u16);
            bytes[1] = UDP_DATAGRAMS;
        }
        bytes[0] = if self.partial.is_some() { NEEDS_CHECKSUM } else { 0 };
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_merged_udp_is_cut() {
        let header = |kind, size: u16| {
            let [a, b] = size.to_ne_bytes();
            Offload::read(&[1, kind, 0, 0, a, b, 0, 0, 0, 0]).segment
        };
        assert_eq!(header(5, 1_400), Some(1_400));
        assert_eq!(header(0x85, 1_400), Some(1_400), "with ECN");
        assert_eq!((header(0, 0), header(1, 1_400), header(5, 0)), (None, None, None));
    }

    #[test]
    fn what_is_written_is_read() {
        for segment in [None, Some(1_400)] {
            let offload = Offload { segment, partial: Some(14 + 20 + 8) };
            assert_eq!(Offload::read(&offload.bytes()), offload);
        }
        assert_eq!(Offload { segment: None, partial: None }.bytes(), [0; VNET_BYTES]);
    }
}
