//! Reports from the network about sent packets: which of them are believed, what they say of peers, and which
//! ones other processes need.

use std::collections::VecDeque;

use super::error_queue::{Cause, NetworkError};
use super::recent::RecentIds;
use crate::carrier::{Carrier, LINUX_UDP_PORT};
use crate::driver::{TxPacket, UnreachableReport, UnreachableTarget};

/// Maximum number of reports in each queue. Beyond it, the oldest reports of unreachable peers are dropped,
/// and the newest shared ones.
const QUEUED_MAX: usize = 64;

/// The network's reports to one socket.
pub(super) struct NetworkReports {
    carrier: Carrier,
    local_port: u16,
    /// IDs of recent RPCs, whose packets a report may quote.
    recent: RecentIds,
    unreachable: VecDeque<UnreachableReport>,
    /// Reports that other processes may also need; `None` unless processes share the socket.
    shared: Option<VecDeque<NetworkError>>,
}

impl NetworkReports {
    /// Reports to a socket that is bound to `local_port`.
    pub(super) fn new(carrier: Carrier, local_port: u16) -> NetworkReports {
        NetworkReports {
            carrier,
            local_port,
            recent: RecentIds::new(),
            unreachable: VecDeque::new(),
            shared: None,
        }
    }

    /// Records sent packets.
    pub(super) fn note_sent(&mut self, packets: &[TxPacket<'_>]) {
        self.recent.note(packets);
    }

    /// Whether the report quotes a packet that was sent recently. Any host can forge a report; but only a
    /// host that has seen one of our packets can quote it.
    pub(super) fn quotes_recent(&self, error: &NetworkError) -> bool {
        error.quoted.port_and_id().1.is_some_and(|id| self.recent.contains(id))
    }

    /// Queues what a report says of the peer, unless the same is queued already.
    pub(super) fn note_unreachable(&mut self, error: &NetworkError) {
        let Some(target) = self.unreachable_target(error) else { return };
        let report = UnreachableReport { peer: error.to, target };
        if self.unreachable.contains(&report) {
            return;
        }
        if self.unreachable.len() == QUEUED_MAX {
            self.unreachable.pop_front();
        }
        self.unreachable.push_back(report);
    }

    /// Returns what cannot be reached, according to a report.
    fn unreachable_target(&self, error: &NetworkError) -> Option<UnreachableTarget> {
        let (port, sender_id) = error.quoted.port_and_id();
        match (self.carrier, error.cause) {
            // WIRE-30: at Linux Homa's UDP port, the report concerns the Homa port that it quotes, whether
            // the peer's host lacks that port or does not support the UDP encapsulation.
            (Carrier::Udp, Cause::PortUnreachable)
                if self.local_port == LINUX_UDP_PORT && error.to.port() == LINUX_UDP_PORT =>
            {
                Some(UnreachableTarget::Port { port: port?, sender_id })
            }
            (Carrier::Udp, Cause::PortUnreachable) => Some(UnreachableTarget::Peer { sender_id }),
            (Carrier::Udp, _) => None,
            // A report that quotes no port is useless.
            (Carrier::Ip, Cause::PortUnreachable) => Some(UnreachableTarget::Port { port: port?, sender_id }),
            (Carrier::Ip, _) => Some(UnreachableTarget::Protocol { sender_id }),
        }
    }

    /// Returns the oldest report of an unreachable peer.
    pub(super) fn poll_unreachable(&mut self) -> Option<UnreachableReport> {
        self.unreachable.pop_front()
    }

    /// From now on, keeps reports for [`NetworkReports::take_shared`].
    pub(super) fn share(&mut self) {
        self.shared.get_or_insert_default();
    }

    /// Whether reports are kept for [`NetworkReports::take_shared`].
    pub(super) fn are_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Keeps a report for other processes, if processes share the socket.
    pub(super) fn keep_shared(&mut self, error: NetworkError) {
        if let Some(shared) = &mut self.shared
            && shared.len() < QUEUED_MAX
        {
            shared.push_back(error);
        }
    }

    /// Returns the oldest shared report that has not been returned yet.
    pub(super) fn take_shared(&mut self) -> Option<NetworkError> {
        self.shared.as_mut()?.pop_front()
    }
}
