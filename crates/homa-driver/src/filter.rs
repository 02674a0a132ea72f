//! The packets that a process accepts if several processes share a host's address.

/// Offset of the destination port in a Homa packet, two bytes in network order.
pub(crate) const DESTINATION_PORT_AT: usize = 2;

/// The packets that a process accepts.
///
/// Acknowledgements concern all processes, whatever the filter, because they arrive with packets for any port
/// of the host. A driver that filters therefore also passes each process the complete ACK, CUTOFFS and FREEZE
/// packets for all ports. DATA packets for other processes that contain an acknowledgement are truncated to
/// their header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiveFilter {
    /// In ascending order.
    ports: Vec<u16>,
    /// In ascending order.
    others: Option<Vec<u16>>,
}

impl ReceiveFilter {
    /// Creates a filter for the Homa ports of this process, in any order. Of the processes that share an
    /// address, one also answers for ports without a host: it passes the ports of the other processes as
    /// `others`. All other processes pass `None`.
    #[must_use]
    pub fn new(ports: impl IntoIterator<Item = u16>, others: Option<Vec<u16>>) -> ReceiveFilter {
        let sorted = |mut ports: Vec<u16>| {
            ports.sort_unstable();
            ports.dedup();
            ports
        };
        ReceiveFilter { ports: sorted(ports.into_iter().collect()), others: others.map(sorted) }
    }

    /// Returns the filter of a process that does not share its address with other processes. It accepts every
    /// packet.
    #[must_use]
    pub fn accept_all() -> ReceiveFilter {
        ReceiveFilter::new([], Some(Vec::new()))
    }

    /// Returns the ports of this process in ascending order.
    #[must_use]
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Returns the ports of other processes in ascending order, if this process answers for ports without a
    /// host.
    #[must_use]
    pub fn others(&self) -> Option<&[u16]> {
        self.others.as_deref()
    }

    /// Whether a packet, passed from the first byte of its Homa header on, is for this process: for one of
    /// its ports, or for a port without a host if this process answers for those. A packet without a
    /// destination port counts as a packet for a port without a host. Any other packet belongs to another
    /// process. If it is a DATA packet, it may be truncated after its header (56 bytes). Use it only for
    /// fields that concern the whole host.
    #[must_use]
    pub fn accepts(&self, packet: &[u8]) -> bool {
        let port = packet.get(DESTINATION_PORT_AT..DESTINATION_PORT_AT + 2);
        let port = port.map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        let has = |ports: &[u16], port| ports.binary_search(&port).is_ok();
        match (&self.others, port) {
            (_, Some(port)) if has(&self.ports, port) => true,
            (Some(others), Some(port)) => !has(others, port),
            (others, None) => others.is_some(),
            (None, _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_port(port: u16) -> Vec<u8> {
        [&[0x80, 1][..], &port.to_be_bytes(), &[0; 24]].concat()
    }

    #[test]
    fn a_process_takes_its_ports_and_where_it_answers_for_them_nobodys() {
        let mut filter = ReceiveFilter::new([40_000, 99], None);
        let accepts = |filter: &ReceiveFilter| [99, 40_000, 7, 8].map(|port| filter.accepts(&to_port(port)));
        assert_eq!(accepts(&filter), [true, true, false, false]);
        filter = ReceiveFilter::new([40_000, 99], Some(vec![99, 7]));
        assert_eq!(accepts(&filter), [true, true, false, true]);
        assert!(
            filter.accepts(&[1, 2, 3]),
            "what is no packet is counted by whoever answers for nobody's ports"
        );
        assert!(!ReceiveFilter::default().accepts(&[1, 2, 3]));
        assert_eq!(accepts(&ReceiveFilter::accept_all()), [true; 4]);
    }
}
