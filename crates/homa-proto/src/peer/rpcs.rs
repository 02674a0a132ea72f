//! A peer's entries in the tables of this host: its RPCs and its finished ids.

use crate::lists::List;

/// The RPCs of one peer, and the counts kept for them.
#[derive(Debug)]
pub(crate) struct PeerRpcs {
    /// The peer's RPCs, oldest first.
    pub list: List,
    count: u32,
    /// Number of these RPCs for which we are the server.
    servers: u32,
    /// Bytes of the RPCs' requests, as counted in the total of incoming bytes.
    pub request_bytes: u64,
    /// Blocks of finished ids that refer to the peer.
    pub finished_blocks: u32,
    /// Whether the peer is in the reaper's queue of ended epochs.
    pub reaped: bool,
}

impl PeerRpcs {
    /// The entries of a peer without RPCs.
    pub(crate) const NONE: PeerRpcs = PeerRpcs {
        list: List::EMPTY,
        count: 0,
        servers: 0,
        request_bytes: 0,
        finished_blocks: 0,
        reaped: false,
    };

    /// Counts an RPC that was added to the list.
    pub(crate) fn add(&mut self, is_client: bool) {
        self.count += 1;
        self.servers += u32::from(!is_client);
    }

    /// Counts the removal of an RPC from the list. If it was a server RPC, `charged` bytes were charged for
    /// it.
    pub(crate) fn remove(&mut self, is_client: bool, charged: u64) {
        self.count -= 1;
        if !is_client {
            self.servers -= 1;
            self.request_bytes -= charged;
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Returns the number of RPCs for which we are the server.
    pub(crate) fn servers(&self) -> u32 {
        self.servers
    }

    /// Returns whether nothing in the tables of this host belongs to the peer.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0 && !self.reaped && self.finished_blocks == 0
    }
}
