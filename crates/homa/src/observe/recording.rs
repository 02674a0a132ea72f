//! Access to the time trace of a host.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use homa_trace::{Dump, Node, Snapshot};

use crate::api::host::Host;
use crate::observe::freeze::Cause;
use crate::runtime::shared_engine::SharedEngine;

/// Number of records copied while the lock is held, which takes about ten microseconds.
const PART: usize = 4_096;

impl Host {
    /// Returns the time trace so far. It is empty if
    /// [`HostConfig::trace_records`](crate::HostConfig::trace_records) is 0. The dump contains the events of
    /// all endpoints, sorted by time; each endpoint keeps that number of events. During the copy, packets
    /// have to wait for about ten microseconds at a time. The dump is named after the host's address. A
    /// caller that has a better name can change it ([`Dump::node`]).
    #[must_use]
    pub fn trace_dump(&self) -> Dump {
        let name = self.local_addr().to_string();
        let mut all = dump_of(self.endpoints.first(), &name);
        for shared in &self.endpoints.members[1..] {
            all.merge(&dump_of(shared, &name));
        }
        all
    }

    /// Freezes the time trace of all endpoints: its content does not change until
    /// [`unfreeze_trace`](Host::unfreeze_trace). Returns `false` if it was already frozen, or if the host has
    /// no trace. If [`HostConfig::trace_freeze_peers`](crate::HostConfig::trace_freeze_peers) is set, a
    /// FREEZE packet to each peer freezes the peer's trace, too.
    pub fn freeze_trace(&self) -> bool {
        let first = self.endpoints.first();
        let frozen = first.lock().freeze_trace(0, Cause::Own);
        if frozen {
            self.send_now();
        }
        frozen
    }

    /// Resumes recording. New events follow those that are already in the trace.
    pub fn unfreeze_trace(&self) {
        self.endpoints.first().lock().unfreeze_trace();
    }

    /// Returns whether the trace is frozen: by the application, by a slow call, or by a FREEZE packet.
    #[must_use]
    pub fn trace_is_frozen(&self) -> bool {
        self.freezing.is_frozen()
    }

    /// Sends a FREEZE packet to peers, to request that they freeze their traces now. Returns the number of
    /// packets sent. The recipients are the last [`MAX_FREEZE_PEERS`](homa_proto::MAX_FREEZE_PEERS) peers
    /// from which each endpoint received packets. Packets can be lost, and peers need not obey. This host's
    /// own trace is not frozen.
    pub fn freeze_peers(&self) -> usize {
        let peers = self.endpoints.members.iter().map(|shared| shared.lock().endpoint.freeze_peers()).sum();
        self.send_now();
        peers
    }

    /// Makes each endpoint send its waiting packets.
    fn send_now(&self) {
        for shared in &self.endpoints.members {
            let now = shared.now();
            let mut engine = shared.lock();
            engine.flush(now);
            engine.after_work(now);
        }
    }
}

fn dump_of(shared: &SharedEngine, name: &str) -> Dump {
    let (mut snapshot, known) = {
        let mut engine = shared.lock();
        (Snapshot::new(engine.endpoint.trace()), engine.endpoint.known_peers())
    };
    snapshot.make_room();
    while !snapshot.copy_part(shared.lock().endpoint.trace(), PART) {}
    let mut peers: Vec<(u16, SocketAddr)> = Vec::with_capacity(known);
    peers.extend(shared.lock().endpoint.peer_numbers());
    let mut dump = snapshot.dump(Node::host(name));
    let seen: BTreeSet<u16> = dump.records.iter().filter_map(|record| record.place.peer()).collect();
    let named = peers.into_iter().filter(|(number, _)| seen.contains(number));
    dump.node.others = named.map(|(number, peer)| (number, peer.to_string())).collect();
    dump
}
