//! RPCs that had packets sent recently, to check the quotes of network reports against.
//!
//! An attacker off the path knows no id of an RPC, so a forged report quotes a packet that was never sent.

use crate::driver::TxPacket;

/// Number of ids remembered: at least about as many as a host sends in the round trip that a report takes. A
/// report that comes too late is ignored, and comes again with the next packet that is too long.
const IDS: usize = 256;

/// The ids, each in the slot of its [`place`].
#[derive(Debug)]
pub(crate) struct RecentIds(Box<[u64; IDS]>);

/// The slot of an id: the ids of a host are at least two apart.
fn place(id: u64) -> usize {
    (id >> 1) as usize % IDS
}

impl RecentIds {
    pub(crate) fn new() -> RecentIds {
        RecentIds(Box::new([0; IDS]))
    }

    /// Notes sent packets.
    pub(crate) fn note(&mut self, packets: &[TxPacket<'_>]) {
        for packet in packets {
            if let Some(&bytes) = packet.header.get(20..).and_then(<[u8]>::first_chunk) {
                let id = u64::from_be_bytes(bytes);
                self.0[place(id)] = id;
            }
        }
    }

    /// Whether a packet with this `sender_id` was sent recently.
    pub(crate) fn contains(&self, id: u64) -> bool {
        id != 0 && self.0[place(id)] == id
    }
}
