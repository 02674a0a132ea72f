//! The ids of our requests: one counter for all peers, shifted by a different secret for each peer (ID-4).
//!
//! The counter makes ids unique, even across the processes of a host, each of which uses ranges of counter
//! values (HOST-3). Because of the shift, the ids that one server receives reveal nothing about the ids that
//! others receive. The shift does not change the endpoint to which an id steers, and is reversible.

use std::net::SocketAddr;

use crate::config::Config;
use crate::keys::Keys;
use crate::wire::owner_of;

/// Difference between the ids sent to one peer and the counter values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IdOffset {
    high: u32,
    /// Less than `whole_turns`, and a multiple of a turn.
    low: u32,
}

/// Returns the length of a turn: a range of numbers in which each endpoint has one even number.
fn turn(endpoints: u32) -> u64 {
    2 * u64::from(endpoints)
}

/// Returns the end of the whole turns in the lower half of an id. Values above it are not shifted.
fn whole_turns(endpoints: u32) -> u64 {
    (1 << 32) / turn(endpoints) * turn(endpoints)
}

impl IdOffset {
    /// Returns the offset derived from `random`.
    pub(crate) fn new(random: u64, endpoints: u32) -> IdOffset {
        let low = u64::from(random as u32) % whole_turns(endpoints);
        IdOffset { high: (random >> 32) as u32, low: (low - low % turn(endpoints)) as u32 }
    }

    /// Returns the peer's id for counter value `count`.
    pub(crate) fn id(self, count: u64, endpoints: u32) -> u64 {
        self.shift(count, endpoints, self.high, u64::from(self.low))
    }

    /// Returns the counter value of an id sent to the peer.
    pub(crate) fn count(self, id: u64, endpoints: u32) -> u64 {
        let low = whole_turns(endpoints) - u64::from(self.low);
        self.shift(id, endpoints, self.high.wrapping_neg(), low)
    }

    /// Shifts the two halves separately. If whole turns do not fill the lower half, a carry would assign some
    /// ids twice.
    fn shift(self, id: u64, endpoints: u32, high: u32, low: u64) -> u64 {
        let high = u64::from(((id >> 32) as u32).wrapping_add(high)) << 32;
        // Whole turns fill the lower half.
        if endpoints.is_power_of_two() {
            return high | u64::from((id as u32).wrapping_add(low as u32));
        }
        let (whole, from) = (whole_turns(endpoints), u64::from(id as u32));
        let low = if from < whole { (from + low) % whole } else { from };
        high | low
    }
}

/// Returns the first counter value, from `count` (even) on, that this endpoint may use: not 0, and steering
/// packets to this endpoint (ID-4).
pub(crate) fn own_count_from(count: u64, config: &Config) -> u64 {
    let mut count = count;
    if config.endpoints == 1 && count != 0 {
        return count;
    }
    loop {
        let owner = owner_of(count, config.endpoints);
        if owner == config.endpoint && count != 0 {
            return count;
        }
        // If the lower half wraps, the sequence of owners is interrupted, and a second round is needed.
        let ahead = (config.endpoint + config.endpoints - owner) % config.endpoints;
        count = count.wrapping_add(2 * u64::from(ahead.max(1)));
    }
}

/// The source of this endpoint's ids: the counter, and the secrets that make ids unpredictable.
pub(crate) struct IdSource {
    /// Secrets that never appear in a packet.
    keys: Keys,
    /// Counter value for the next request. The id is derived from this value and from the peer.
    next: u64,
    /// Number of counter values from `next` on that may be used.
    left: u64,
    /// Number of challenges made for peers; each challenge gets a different number.
    challenges: u64,
}

impl IdSource {
    pub(crate) fn new(keys: Keys, config: &Config) -> IdSource {
        IdSource { keys, next: own_count_from(keys.first_id & !1, config), left: u64::MAX, challenges: 0 }
    }

    /// Returns the offset of the ids sent to the peer at `addr`.
    pub(crate) fn offset(&self, addr: SocketAddr, endpoints: u32) -> IdOffset {
        IdOffset::new(self.keys.of_addr(addr), endpoints)
    }

    /// Takes the next id for a peer. The result may be 0, which is not a valid id, or the id of an open RPC,
    /// since counter values shifted by different offsets can collide. `None` if the ids are used up (HOST-3).
    pub(crate) fn take(&mut self, offset: IdOffset, config: &Config) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let id = offset.id(self.next, config.endpoints);
        self.next = own_count_from(self.next.wrapping_add(2), config);
        Some(id)
    }

    /// Sets the counter values to use: `count` values from `first` (even) on, two apart. Values of other
    /// endpoints are skipped (ID-4).
    pub(crate) fn assign(&mut self, first: u64, count: u64, config: &Config) {
        let own = own_count_from(first, config);
        let (endpoints, skipped) = (u64::from(config.endpoints), own.wrapping_sub(first) / 2);
        // If the lower half wraps, the sequence of owners restarts there. The values after the wrap are not
        // used.
        let before_wrap = (1 << 31) - u64::from(first as u32 >> 1);
        let count = if endpoints > 1 { count.min(before_wrap) } else { count };
        self.next = own;
        self.left = count.saturating_sub(skipped).div_ceil(endpoints);
    }

    /// Returns the counter value of the next request.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Returns the number of requests for which ids are left.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Returns an unpredictable id for a challenge, which steers packets to this endpoint.
    pub(crate) fn challenge(&mut self, config: &Config) -> u64 {
        self.challenges += 1;
        own_count_from(self.keys.challenge(self.challenges) & !1, config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_stay_their_endpoints_own_where_the_lower_half_or_the_whole_wraps() {
        for endpoints in [1, 2, 3, 5, 64] {
            for around in [0, 1 << 32, 1 << 33] {
                let mut taken = Vec::new();
                for endpoint in 0..endpoints {
                    let config = Config { endpoints, endpoint, ..Config::default() };
                    let mut id = own_count_from(u64::wrapping_sub(around, 1_000), &config);
                    for _ in 0..1_000 {
                        assert!(id & 1 == 0 && id != 0 && owner_of(id, endpoints) == endpoint, "{id:x}");
                        taken.push(id.wrapping_sub(around) as i64);
                        id = own_count_from(id.wrapping_add(2), &config);
                    }
                }
                let mut sorted = taken.clone();
                sorted.sort_unstable();
                sorted.dedup();
                assert_eq!(sorted.len(), taken.len(), "no count is given twice");
                assert!(taken.chunks(1_000).all(|ids| ids.is_sorted()), "counts rise");
            }
        }
    }

    #[test]
    fn a_moved_count_keeps_its_owner_and_no_two_meet() {
        let ends = [0, 2, 0xffff_fffe_u64, 1 << 32, (1 << 40) - 6, u64::MAX - 9];
        for endpoints in [1, 2, 3, 5, 63, 64] {
            for random in [0, 1, u64::MAX, 0x1234_5678_ffff_fff7, 0xdead_beef_0000_0081] {
                let offset = IdOffset::new(random, endpoints);
                let mut ids = Vec::new();
                for count in ends
                    .iter()
                    .flat_map(|end| (0..400).map(move |n| (end & !1).wrapping_sub(400).wrapping_add(2 * n)))
                {
                    let id = offset.id(count, endpoints);
                    assert_eq!(owner_of(id, endpoints), owner_of(count, endpoints));
                    assert_eq!((id & 1, offset.count(id, endpoints)), (0, count));
                    ids.push((count, id));
                }
                ids.sort_unstable();
                ids.dedup();
                let given = ids.len();
                ids.dedup_by_key(|(_, id)| *id);
                assert_eq!(ids.len(), given);
            }
        }
    }
}
