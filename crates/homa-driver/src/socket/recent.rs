//! RPCs that recently sent packets, used to validate the quotes in network reports.
//!
//! An off-path attacker does not know the ID of any RPC, so a forged report quotes a packet that was never
//! sent.

use crate::driver::TxPacket;

/// Number of IDs remembered: at least about as many as a host sends during the round trip that a report
/// takes. A report that arrives too late is ignored; the next packet that is too long causes another one.
const IDS: usize = 256;

/// The IDs, each at the index given by [`place`].
#[derive(Debug)]
pub(crate) struct RecentIds(Box<[u64; IDS]>);

/// Returns the index for an ID. The IDs of a host are at least two apart.
fn place(id: u64) -> usize {
    (id >> 1) as usize % IDS
}

impl RecentIds {
    pub(crate) fn new() -> RecentIds {
        RecentIds(Box::new([0; IDS]))
    }

    /// Records sent packets.
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
