//! Compares the bytes that a host retransmits to each peer with the peer's budget (SHARE-4).

use std::collections::BTreeMap;

use homa_proto::wire::DATA_HEADER_LEN;
use homa_proto::{Endpoint, Time};

/// Minimum budget, in full packets.
const LEAST_BURST_PACKETS: u64 = 64;

/// Counts of the bytes sent to one peer.
#[derive(Clone, Copy, Debug)]
struct Sent {
    since: Time,
    again: u64,
    /// Upper bound of the budget earned by delivered bytes.
    earned: u64,
}

/// Retransmitted bytes of each peer.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    peers: BTreeMap<u32, Sent>,
}

impl Repeats {
    pub(crate) fn reset(&mut self) {
        self.peers.clear();
    }

    fn of(&mut self, now: Time, peer: u32) -> &mut Sent {
        self.peers.entry(peer).or_insert(Sent { since: now, again: 0, earned: 0 })
    }

    /// Records that a message of `length` bytes is started or restarted. Each of its bytes may count as
    /// delivered at most twice: once by a grant and once by the acknowledgement.
    pub(crate) fn begins(&mut self, now: Time, peer: u32, length: u32) {
        self.of(now, peer).earned += 2 * u64::from(length);
    }

    /// Counts `bytes` that are retransmitted. Fails if they exceed the budget.
    pub(crate) fn sends(
        &mut self,
        now: Time,
        peer: u32,
        bytes: u32,
        endpoint: &Endpoint,
    ) -> Result<(), String> {
        let (config, stats) = (endpoint.config(), endpoint.stats());
        let payload = u64::from(config.max_packet) - DATA_HEADER_LEN as u64;
        let burst = (2 * u64::from(config.max_incoming)).max(LEAST_BURST_PACKETS * payload);
        // A peer that was evicted starts over with a full budget.
        let bursts = 1 + stats.peers_evicted + stats.unproven_evicted;
        let sent = self.of(now, peer);
        sent.again += u64::from(bytes);
        let rounds = 1 + now.since(sent.since) / config.resend_spacing_ns.max(1);
        let budget =
            burst.saturating_mul(bursts).saturating_add(rounds.saturating_mul(payload)) + sent.earned;
        if sent.again <= budget {
            return Ok(());
        }
        Err(format!("SHARE-4: {} bytes are sent again to host {peer}, above {budget}", sent.again))
    }
}
