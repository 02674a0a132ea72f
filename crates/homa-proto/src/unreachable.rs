//! ICMP reports of packets that could not be delivered (PROTOCOL.md PEER-4).

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::incarnation_end::IncarnationEnd;

/// Maximum number of reports of ports whose RPCs are being ended. Further reports are dropped and counted. An
/// RPC that a dropped report would have ended sends RESEND later, which causes another report.
const MAX_REFUSED_PORTS: usize = 256;

/// A Homa port without a process, and the progress of ending the client RPCs to that port.
#[derive(Debug)]
pub(crate) struct RefusedPort {
    /// Address of the peer, not its slot: the peer may be forgotten meanwhile and its slot reused.
    pub peer: SocketAddr,
    pub port: u16,
    /// The counter value of the first request after the report. The report does not concern that request: a
    /// server may have been started since.
    until_id: u64,
    /// The RPC at which the scan of the peer's list continues.
    pub cursor: Option<u32>,
}

impl RefusedPort {
    /// Returns whether the report concerns the request that was made at the counter value `count`.
    pub(crate) fn concerns(&self, count: u64) -> bool {
        // Request counters wrap. An older request is behind by less than half of the number range.
        self.until_id.wrapping_sub(count) as i64 > 0
    }
}

/// Reports that are being processed.
#[derive(Debug, Default)]
pub(crate) struct RefusedPorts {
    queue: VecDeque<RefusedPort>,
}

impl RefusedPorts {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Adds a report that concerns requests with counter values before `until_id`. The scan of the peer's
    /// RPCs begins at `cursor`. Returns false if there is no room for the report.
    pub(crate) fn add(&mut self, peer: SocketAddr, port: u16, until_id: u64, cursor: Option<u32>) -> bool {
        // A second report of the same port restarts the scan, since it also concerns RPCs that began after
        // the first report.
        if let Some(same) = self.queue.iter_mut().find(|refused| (refused.peer, refused.port) == (peer, port))
        {
            (same.until_id, same.cursor) = (until_id, cursor);
            return true;
        }
        let has_room = self.queue.len() < MAX_REFUSED_PORTS;
        if has_room {
            self.queue.push_back(RefusedPort { peer, port, until_id, cursor });
        }
        has_room
    }

    /// Returns the report that is being processed.
    pub(crate) fn first_mut(&mut self) -> Option<&mut RefusedPort> {
        self.queue.front_mut()
    }

    /// Removes the report that is being processed.
    pub(crate) fn remove_first(&mut self) {
        self.queue.pop_front();
    }
}

/// The target that a report declares missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingTarget {
    Peer(IncarnationEnd),
    Port(u16),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_report_of_a_port_restarts_its_scan_and_takes_no_room() {
        let mut refused = RefusedPorts::default();
        let peer = |n: u16| SocketAddr::from(([10, 0, 0, 1], n));
        for n in 0..MAX_REFUSED_PORTS as u16 {
            assert!(refused.add(peer(n), 9, 100, Some(1)));
        }
        assert!(!refused.add(peer(0), 10, 100, Some(1)));
        assert!(refused.add(peer(0), 9, u64::MAX, Some(2)));
        let first = refused.first_mut().unwrap();
        assert_eq!((first.peer, first.cursor), (peer(0), Some(2)));
        assert!(first.concerns(u64::MAX - 1) && !first.concerns(1), "the counter has wrapped");
    }
}
