//! The bytes that a host sends again to each peer, compared with that peer's budget by the settings
//! (SHARE-4).

use std::collections::BTreeMap;

use homa_proto::wire::DATA_HEADER_LEN;
use homa_proto::{Endpoint, Time};

/// Full packets of the smallest budget.
const LEAST_BURST_PACKETS: u64 = 64;

/// What was sent to one peer.
#[derive(Clone, Copy, Debug)]
struct Sent {
    since: Time,
    again: u64,
    /// Upper bound of what its deliveries have added to the budget.
    earned: u64,
}

/// Bytes sent again, by peer.
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

    /// A message of `length` bytes begins, or begins anew. Each of its bytes may count as delivered twice at
    /// most: with a grant, and with the acknowledgement.
    pub(crate) fn begins(&mut self, now: Time, peer: u32, length: u32) {
        self.of(now, peer).earned += 2 * u64::from(length);
    }

    /// Counts `bytes` that go out again. The error says that the budget cannot have had so many.
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
        // A peer that was forgotten begins with a full budget.
        let bursts = 1 + stats.peers_evicted + stats.strangers_displaced;
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
