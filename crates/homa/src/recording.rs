//! The time trace of a host, for whoever holds the host.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use homa_trace::{Dump, Node, Snapshot};

use crate::host::Host;
use crate::shared::Shared;

/// Records copied while the lock is held: some ten microseconds.
const PART: usize = 4_096;

impl Host {
    /// The time trace so far; without events where [`HostConfig::trace_records`](crate::HostConfig::trace_records) is 0. Of several endpoints, each of which
    /// keeps so many events, all are there in the order of their times. Packets wait for some ten microseconds at a time while it copies. It is
    /// named after the host's address, which whoever knows a better name changes ([`Dump::node`]).
    #[must_use]
    pub fn trace_dump(&self) -> Dump {
        let name = self.local_addr().to_string();
        let mut all = dump_of(self.endpoints.first(), &name);
        for shared in &self.endpoints.members[1..] {
            all.merge(&dump_of(shared, &name));
        }
        all
    }
}

fn dump_of(shared: &Shared, name: &str) -> Dump {
    let (mut snapshot, known) = {
        let mut core = shared.lock();
        (Snapshot::new(core.endpoint.trace()), core.endpoint.known_peers())
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
