//! RPCs of which packets were sent lately: what a report of the network quotes can be held against them.
//!
//! Whoever is not on the path knows no id of an RPC, and forges reports of packets that were never sent.

use crate::driver::TxPacket;

/// Ids remembered: more than a host sends in the round trip that a report takes, or nearly so. A report that comes too late is passed over,
/// and comes again with the next packet that is too long.
const IDS: usize = 256;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct RecentIds(Box<[u64; IDS]>);

/// Where an id stands: those of a host are two apart, or more.
fn place(id: u64) -> usize {
    (id >> 1) as usize % IDS
}

impl RecentIds {
    pub(crate) fn new() -> RecentIds {
        RecentIds(Box::new([0; IDS]))
    }

    /// These packets were sent.
    pub(crate) fn note(&mut self, packets: &[TxPacket<'_>]) {
        for packet in packets {
            if let Some(&bytes) = packet.header.get(20..).and_then(<[u8]>::first_chunk) {
                let id = u64::from_be_bytes(bytes);
                self.0[place(id)] = id;
            }
        }
    }

    /// Whether a packet with this `sender_id` was sent lately.
    pub(crate) fn contains(&self, id: u64) -> bool {
        id != 0 && self.0[place(id)] == id
    }
}
