//! The address table: the port behind which each address was last seen.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::ethernet::Mac;

/// Maximum number of addresses, needed because anyone can invent new ones. Beyond it no address is learned,
/// and frames for unknown addresses are flooded.
const MOST: usize = 8_192;

/// Ageing time of an address, as IEEE 802.1D recommends.
const FORGET_NS: u64 = 300_000_000_000;

#[derive(Clone, Copy, Debug)]
struct Entry {
    port: u16,
    seen_ns: u64,
}

/// The address table.
#[derive(Debug)]
pub(crate) struct Table {
    entries: HashMap<Mac, Entry, FixedState>,
    /// Time of the last ageing scan.
    swept_ns: u64,
    /// Cache of the last lookup: consecutive frames often have the same destination.
    last: Option<(Mac, u16)>,
}

impl Table {
    /// Creates an empty table. The seed randomizes the hash, since others choose the addresses.
    pub(crate) fn new(seed: u64) -> Table {
        Table { entries: HashMap::with_hasher(FixedState::with_seed(seed)), swept_ns: 0, last: None }
    }

    /// Learns that this address is behind this port.
    pub(crate) fn learn(&mut self, now_ns: u64, address: Mac, port: u16) {
        // A multicast address is not a valid source.
        if address[0] & 1 != 0 {
            return;
        }
        if let Some(entry) = self.entries.get_mut(&address) {
            if entry.port != port {
                self.last = None;
            }
            *entry = Entry { port, seen_ns: now_ns };
            return;
        }
        if self.entries.len() >= MOST {
            self.sweep(now_ns);
        }
        if self.entries.len() < MOST {
            self.entries.insert(address, Entry { port, seen_ns: now_ns });
        }
    }

    /// Removes aged addresses, at most once per second.
    fn sweep(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.swept_ns) >= 1_000_000_000 {
            self.swept_ns = now_ns;
            self.last = None;
            self.entries.retain(|_, entry| now_ns.saturating_sub(entry.seen_ns) < FORGET_NS);
        }
    }

    /// Returns the port behind which an address was last seen.
    pub(crate) fn find(&mut self, address: &Mac) -> Option<u16> {
        if let Some((last, port)) = self.last
            && last == *address
        {
            return Some(port);
        }
        let port = self.entries.get(address)?.port;
        self.last = Some((*address, port));
        Some(port)
    }

    /// Returns the number of known addresses.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(number: u32) -> Mac {
        let [a, b, c, d] = number.to_be_bytes();
        [2, 0, a, b, c, d]
    }

    #[test]
    fn an_address_is_where_it_was_last_seen() {
        let mut table = Table::new(1);
        assert_eq!(table.find(&mac(1)), None);
        table.learn(0, mac(1), 3);
        assert_eq!((table.find(&mac(1)), table.find(&mac(2))), (Some(3), None));
        table.learn(1, mac(1), 4);
        assert_eq!((table.find(&mac(1)), table.len()), (Some(4), 1));
        table.learn(2, [0xff; 6], 4);
        assert_eq!(table.len(), 1, "all are nobody's address");
    }

    #[test]
    fn it_is_bounded_and_makes_room_of_those_long_silent() {
        let mut table = Table::new(1);
        for number in 0..20_000 {
            table.learn(0, mac(number), 1);
        }
        assert_eq!((table.len(), table.find(&mac(0)), table.find(&mac(19_999))), (MOST, Some(1), None));
        table.learn(FORGET_NS - 1, mac(0), 2);
        table.learn(FORGET_NS, mac(30_000), 2);
        assert_eq!((table.len(), table.find(&mac(0)), table.find(&mac(1))), (2, Some(2), None));
    }
}
