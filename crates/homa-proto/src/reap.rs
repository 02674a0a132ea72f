//! RPCs that must be ended. They are freed in small portions: if many end together, the next packet does not
//! wait until all are freed (ABORT-4).

use std::collections::VecDeque;

/// Queues of RPCs that must be ended.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    /// Peers with RPCs of an earlier epoch.
    pub peers: VecDeque<u32>,
    /// Clients that have been silent for too long, and the RPC at which the scan of their list continues.
    pub silent: VecDeque<u32>,
    pub silent_cursor: Option<u32>,
    /// Ports being closed.
    pub ports: VecDeque<u16>,
}

impl Reaper {
    pub(crate) fn has_work(&self) -> bool {
        !self.peers.is_empty() || !self.silent.is_empty() || !self.ports.is_empty()
    }

    pub(crate) fn end_silent(&mut self, peer: u32) {
        self.silent.push_back(peer);
    }

    pub(crate) fn close_port(&mut self, port: u16) {
        if !self.ports.contains(&port) {
            self.ports.push_back(port);
        }
    }

    /// Returns whether `port` is being closed.
    pub(crate) fn is_closing(&self, port: u16) -> bool {
        self.ports.contains(&port)
    }
}
