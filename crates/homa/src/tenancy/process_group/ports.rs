//! The table that records which process has each port. It is written under the registry's lock and read
//! without a lock.
//!
//! Each port is one byte, so a writer that dies leaves the port in its state before or after the write. Two
//! counts let readers notice changes without reading all ports. `orphanings` is incremented before the first
//! orphan of a process becomes visible, and `generation` after the last change has become visible. A reader
//! that sees an orphan therefore also sees that `orphanings` was incremented, and a reader that sees a new
//! generation also sees the changes in it.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::layout::ORPHAN;
use crate::tenancy::sync::{AtomicU8, AtomicU64};
use crate::types::limits::MAX_PROCESSES;

/// The table of ports: see the [module](self). Server ports have the lower port numbers, and client ports the
/// higher.
pub(super) struct Ports<'a> {
    pub servers: &'a [AtomicU8],
    pub clients: &'a [AtomicU8],
    pub orphanings: &'a AtomicU64,
    pub generation: &'a AtomicU64,
}

impl Ports<'_> {
    fn at(&self, port: u16) -> &AtomicU8 {
        let port = usize::from(port);
        self.servers.get(port).unwrap_or_else(|| &self.clients[port - self.servers.len()])
    }

    /// Returns the slot of the port's owner plus 1; 0 if it has none; or [`ORPHAN`].
    pub(super) fn mark(&self, port: u16) -> u8 {
        // Acquire: a reader that sees an orphan also sees that `orphanings` was incremented.
        self.at(port).load(Acquire)
    }

    /// Returns the slot of the port's owner, if it has one.
    pub(super) fn owner(&self, port: u16) -> Option<usize> {
        usize::from(self.mark(port)).checked_sub(1).filter(|slot| *slot < MAX_PROCESSES)
    }

    /// Sets the value that [`Ports::mark`] returns. The caller holds the registry's lock, and must call
    /// [`Ports::changed`] afterwards.
    pub(super) fn set_mark(&self, port: u16, mark: u8) {
        self.at(port).store(mark, Release);
    }

    /// Frees the ports of a slot. The state of its servers is lost, even if the process ended normally
    /// (HOST-10). The caller holds the registry's lock, and must call [`Ports::changed`] afterwards.
    pub(super) fn orphan(&self, slot: usize) {
        let is_its = |port: &&AtomicU8| port.load(Relaxed) == slot as u8 + 1;
        if self.servers.iter().any(|port| is_its(&port)) {
            // Increment this before storing the marks, whose release stores also publish this count.
            self.orphanings.fetch_add(1, Release);
        }
        self.servers.iter().filter(is_its).for_each(|port| port.store(ORPHAN, Release));
        self.clients.iter().filter(is_its).for_each(|port| port.store(0, Release));
    }

    /// Returns the number of processes that have ended and left orphans.
    pub(super) fn orphanings(&self) -> u64 {
        self.orphanings.load(Acquire)
    }

    /// Publishes a change of ports, slots or the leader.
    pub(super) fn changed(&self) {
        self.generation.fetch_add(1, Release);
    }

    /// A count that increases after ports, slots or the leader have changed.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Acquire)
    }
}
