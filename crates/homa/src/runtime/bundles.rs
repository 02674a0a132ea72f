//! The datagrams of a burst. Packets to one endpoint of a peer share a datagram if the peer can split bundles
//! (PROTOCOL.md WIRE-21 to WIRE-24).
//!
//! For a short message, the path through the kernel costs more than the protocol. Packets of equal length can
//! share that cost as segments of one super-packet, but messages of mixed sizes cannot. Only packets of one
//! burst are bundled, so no packet waits for another.

use std::net::SocketAddr;

use homa_driver::{RxBurst, TxPacket};
use homa_proto::wire::{self, append_packet};
use homa_proto::{Bundle, RxPacket, TransmitRun};

use crate::payload::buffers::Buffers;

/// Maximum number of packets given to the driver at a time: as many as fit in one datagram that the kernel
/// segments.
pub(crate) const BURST: usize = 64;

/// A path whose maximum packet size exceeds this stays within one machine, since no device has so large an
/// MTU (jumbo frames are up to 9,000 bytes long). Such a path has no queues with priorities (WIRE-24).
const WITHIN_A_MACHINE_BYTES: u32 = 16_384;

/// On all other paths, the maximum difference between the priority levels of packets in one datagram.
const LEVELS_APART: u8 = 1;

/// Packets are added only to this many of the most recent datagrams of a burst. Most bursts go to fewer
/// peers.
const OPEN_DATAGRAMS: usize = 16;

/// Minimum length for padding a bundle, in quarters of the longest neighbouring bundle's length. A bundle at
/// least this long is padded to the length of that neighbour, so that the kernel takes all of them as
/// segments of one super-packet. Padding shorter bundles would waste link bandwidth.
const PADDED_QUARTERS: u32 = 3;

/// Ends a chain of runs.
const NO_RUN: u16 = u16::MAX;

/// Returns the packets of a burst, with bundles split into packets as the endpoint expects them.
pub(crate) fn packets_of(burst: &RxBurst) -> impl Iterator<Item = RxPacket<'_>> + Clone {
    let packets = |(index, (from, datagram))| packets_in(from, datagram, burst.priority(index));
    burst.iter().enumerate().flat_map(packets)
}

/// Returns the packets of one datagram.
pub(crate) fn packets_in(
    from: SocketAddr,
    datagram: &[u8],
    priority: Option<u8>,
) -> impl Iterator<Item = RxPacket<'_>> + Clone {
    wire::packets(datagram).map(move |bytes| RxPacket { priority, ..RxPacket::new(from, bytes) })
}

/// One datagram, or all datagrams of a single run of packets.
#[derive(Clone, Copy, Debug)]
struct Datagram {
    to: SocketAddr,
    /// The lowest and the highest priority of the packets.
    priority: (u8, u8),
    bundle: Option<Bundle>,
    /// Indexes of the first and last runs in the burst; the runs between are chained in [`Datagrams::next`].
    first: u16,
    last: u16,
    /// Number of runs. Each run of a bundle has one packet: a datagram with more packets than runs is not a
    /// bundle.
    runs: u16,
    packets: u16,
    /// Bytes of headers and payload.
    bytes: u32,
    /// Length in bytes including padding; 0 if there is no padding.
    padded: u32,
    /// Start and end of the bytes in [`Datagrams::bytes`], if this is a bundle.
    start: usize,
    end: usize,
}

impl Datagram {
    fn of(index: u16, run: &TransmitRun) -> Datagram {
        let priority = run.first.priority;
        Datagram {
            to: run.first.to,
            priority: (priority, priority),
            bundle: run.first.bundle.filter(|_| run.more == 0),
            first: index,
            last: index,
            runs: 1,
            packets: run.packets() as u16,
            bytes: run.bytes(),
            padded: 0,
            start: 0,
            end: 0,
        }
    }

    fn is_bundle(&self) -> bool {
        self.runs > 1 || self.padded > 0
    }

    /// Merges another datagram's packets into this one if they may share a datagram.
    fn take(&mut self, other: &Datagram) -> bool {
        let Some(bundle) = self.bundle.filter(|_| self.bundle == other.bundle) else { return false };
        let priority = (self.priority.0.min(other.priority.0), self.priority.1.max(other.priority.1));
        let is_local = bundle.max_bytes > WITHIN_A_MACHINE_BYTES;
        let takes = self.to == other.to
            && self.bytes + other.bytes <= bundle.max_bytes
            && (is_local || priority.1 - priority.0 <= LEVELS_APART);
        if takes {
            self.priority = priority;
            self.bytes += other.bytes;
            self.runs += 1;
            self.packets += 1;
        }
        takes
    }
}

/// The datagrams of a burst, in sending order. The memory is reused for the next burst.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    datagrams: Vec<Datagram>,
    /// For each run of the burst, the next run in the same datagram.
    next: Vec<u16>,
    /// The bytes of bundles.
    bytes: Vec<u8>,
}

impl Datagrams {
    /// Divides the runs of a burst into datagrams; returns the number of entries that they need in the
    /// driver's table.
    pub(crate) fn plan(&mut self, runs: &[TransmitRun]) -> usize {
        self.datagrams.clear();
        self.next.clear();
        let mut entries = 0;
        for (index, run) in (0..).zip(runs) {
            self.next.push(NO_RUN);
            let datagram = Datagram::of(index, run);
            let closed = self.datagrams.len().saturating_sub(OPEN_DATAGRAMS);
            let mut open = self.datagrams.iter_mut().skip(closed);
            if datagram.bundle.is_some()
                && let Some(joined) = open.find_map(|open| open.take(&datagram).then_some(open))
            {
                self.next[usize::from(joined.last)] = index;
                joined.last = index;
                continue;
            }
            entries += usize::from(datagram.packets);
            self.datagrams.push(datagram);
        }
        self.pad();
        entries
    }

    /// Pads neighbouring bundles to the same length.
    fn pad(&mut self) {
        let is_padded = |datagram: &Datagram| {
            datagram.bundle.is_some_and(|bundle| bundle.max_bytes <= WITHIN_A_MACHINE_BYTES)
        };
        for neighbours in self.datagrams.chunk_by_mut(|one, other| {
            is_padded(one) && is_padded(other) && (one.to, one.priority.0) == (other.to, other.priority.0)
        }) {
            let longest = neighbours.iter().map(|datagram| datagram.bytes).max().unwrap_or(0);
            let Some((_, all_but_last)) = neighbours.split_last_mut() else { continue };
            for datagram in all_but_last {
                if 4 * datagram.bytes >= PADDED_QUARTERS * longest {
                    datagram.padded = longest;
                }
            }
        }
    }

    /// Copies the bytes of each bundle into contiguous memory.
    pub(crate) fn join(&mut self, runs: &[TransmitRun], buffers: &Buffers) {
        self.bytes.clear();
        for datagram in self.datagrams.iter_mut().filter(|datagram| datagram.is_bundle()) {
            datagram.start = self.bytes.len();
            let mut index = datagram.first;
            while let Some(run) = runs.get(usize::from(index)) {
                let payload = run.first.payload.and_then(|range| buffers.outgoing(&range));
                // A DATA packet without bytes belongs to an RPC that has ended.
                if payload.is_some() || run.first.payload.is_none() {
                    append_packet(&mut self.bytes, &run.first.header, payload.unwrap_or_default());
                }
                index = self.next[usize::from(index)];
            }
            let padded = datagram.start + datagram.padded as usize;
            self.bytes.resize(padded.max(self.bytes.len()), 0);
            datagram.end = self.bytes.len();
        }
    }

    /// Returns the entries of the driver's table, in order. [`Datagrams::join`] must be called first.
    pub(crate) fn entries<'a>(&'a self, runs: &'a [TransmitRun]) -> impl Iterator<Item = DatagramEntry<'a>> {
        self.datagrams.iter().map(|datagram| {
            if !datagram.is_bundle() {
                return DatagramEntry::Run(&runs[usize::from(datagram.first)]);
            }
            let header = &self.bytes[datagram.start..datagram.end];
            DatagramEntry::Bundle(TxPacket {
                to: datagram.to,
                priority: datagram.priority.0,
                header,
                payload: &[],
            })
        })
    }

    /// Removes from `runs` the packets of the first `taken` entries of the driver's table. Returns how many
    /// of these packets were in bundles.
    pub(crate) fn remove_taken(&self, runs: &mut Vec<TransmitRun>, mut taken: usize) -> BundleCounts {
        let mut bundled = BundleCounts::default();
        // No run is empty, so there are at most as many runs as packets.
        let mut is_taken = [false; BURST];
        for datagram in &self.datagrams {
            let entries = if datagram.is_bundle() { 1 } else { usize::from(datagram.packets) };
            if taken < entries {
                let run = &mut runs[usize::from(datagram.first)];
                *run = run.skip(taken as u32).unwrap_or(*run);
                break;
            }
            taken -= entries;
            if datagram.runs > 1 {
                bundled.datagrams += 1;
                bundled.packets += u64::from(datagram.packets);
            }
            let mut index = usize::from(datagram.first);
            while let Some(taken) = is_taken.get_mut(index) {
                *taken = true;
                index = usize::from(self.next[index]);
            }
        }
        let mut is_taken = is_taken.iter();
        runs.retain(|_| !is_taken.next().is_some_and(|&taken| taken));
        bundled
    }
}

/// An entry of the driver's table: see [`Datagrams::entries`].
#[derive(Debug)]
pub(crate) enum DatagramEntry<'a> {
    /// A datagram of several packets, or one with padding.
    Bundle(TxPacket<'a>),
    /// One datagram for each packet.
    Run(&'a TransmitRun),
}

/// Number of packets sent in bundles, and number of datagrams that carried them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BundleCounts {
    pub datagrams: u64,
    pub packets: u64,
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use homa_proto::wire::{Body, Common, DATA_HEADER_LEN, Data, Incarnation};
    use homa_proto::{PayloadRange, RpcKey, Transmit};

    use super::*;
    use crate::payload::deferred_copy::Outgoing;

    /// Returns a packet to host `to` with `payload` bytes of the RPC in the given slot.
    fn packet(
        buffers: &mut Buffers,
        slot: u32,
        (to, payload): (u16, u32),
        priority: u8,
        bundle: Option<Bundle>,
    ) -> TransmitRun {
        let common = Common {
            source_port: 1,
            dest_port: 2,
            sender_id: 4,
            incarnation: Incarnation::new(1),
            bundle_endpoints: 1,
        };
        let data = Data {
            message_length: payload,
            incoming: payload,
            ack: None,
            cutoff_version: 0,
            retransmit: false,
            offset: 0,
            response_limit: None,
        };
        let header = wire::encode(&common, &Body::Data(data));
        let rpc = RpcKey { slot, generation: 1 };
        buffers.open_call(rpc, 0, Outgoing::Whole(vec![slot as u8; payload as usize].into()));
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, to));
        let payload = Some(PayloadRange { rpc, offset: 0, len: payload });
        TransmitRun { first: Transmit { to, priority, bundle, header, payload }, more: 0 }
    }

    const ETHERNET: Option<Bundle> = Some(Bundle { endpoint: 0, max_bytes: 1_472 });
    const LOOPBACK: Option<Bundle> = Some(Bundle { endpoint: 0, max_bytes: 65_000 });

    /// Packs packets of these lengths, headers included, and returns the lengths and priorities of the
    /// datagrams.
    fn datagrams(packets: &[(u16, u32, u8, Option<Bundle>)]) -> Vec<(usize, u8)> {
        let mut buffers = Buffers::default();
        let runs: Vec<_> = (0..)
            .zip(packets)
            .map(|(slot, &(to, bytes, priority, bundle))| {
                packet(&mut buffers, slot, (to, bytes - DATA_HEADER_LEN as u32), priority, bundle)
            })
            .collect();
        let mut datagrams = Datagrams::default();
        let entries = datagrams.plan(&runs);
        datagrams.join(&runs, &buffers);
        let sent: Vec<_> = datagrams
            .entries(&runs)
            .map(|entry| match entry {
                DatagramEntry::Run(run) => (run.bytes() as usize, run.first.priority),
                DatagramEntry::Bundle(bundle) => (bundle.len(), bundle.priority),
            })
            .collect();
        assert_eq!(sent.len(), entries);
        let mut left = runs.clone();
        datagrams.remove_taken(&mut left, entries);
        assert!(left.is_empty());
        sent
    }

    #[test]
    fn a_bundle_has_the_lowest_priority_of_its_packets_which_are_no_more_than_a_level_apart() {
        // WIRE-24: priorities in a bundle.
        let of =
            |priorities: [u8; 3], bundle| datagrams(&priorities.map(|priority| (1, 100, priority, bundle)));
        assert_eq!(of([5, 5, 5], ETHERNET), [(300, 5)]);
        assert_eq!(of([7, 6, 7], ETHERNET), [(300, 6)]);
        assert_eq!(of([7, 5, 6], ETHERNET), [(200, 6), (100, 5)]);
        assert_eq!(of([7, 0, 3], LOOPBACK), [(300, 0)], "nothing is queued by priority there");
    }

    #[test]
    fn packets_share_a_datagram_with_those_to_the_same_endpoint_and_up_to_the_longest() {
        // WIRE-23: the endpoint and the length of a bundle.
        let other = Some(Bundle { endpoint: 1, max_bytes: 65_000 });
        assert_eq!(
            datagrams(&[(1, 100, 5, LOOPBACK), (1, 100, 5, other), (1, 100, 5, LOOPBACK)]),
            [(200, 5), (100, 5)]
        );
        assert_eq!(datagrams(&[(1, 100, 5, None), (1, 100, 5, None)]), [(100, 5), (100, 5)]);
        assert_eq!(
            datagrams(&[(1, 100, 5, LOOPBACK), (2, 101, 5, LOOPBACK), (1, 102, 5, LOOPBACK)]),
            [(202, 5), (101, 5)]
        );
        assert_eq!(datagrams(&[(1, 1_000, 5, ETHERNET), (1, 472, 5, ETHERNET)]), [(1_472, 5)]);
        assert_eq!(datagrams(&[(1, 1_000, 5, ETHERNET), (1, 473, 5, ETHERNET)]), [(1_000, 5), (473, 5)]);
    }

    #[test]
    fn neighbours_that_are_nearly_full_are_brought_to_one_length() {
        // WIRE-21: padding.
        let ethernet = |bytes| (1, bytes, 5, ETHERNET);
        assert_eq!(datagrams(&[ethernet(1_400), ethernet(1_300), ethernet(90)]), [(1_400, 5), (1_390, 5)]);
        assert_eq!(
            datagrams(&[ethernet(1_300), ethernet(1_400), ethernet(900)]),
            [(1_400, 5), (1_400, 5), (900, 5)]
        );
        assert_eq!(
            datagrams(&[ethernet(900), ethernet(1_400)]),
            [(900, 5), (1_400, 5)],
            "half of it would be padding"
        );
        let lower = (1, 1_400, 4, ETHERNET);
        assert_eq!(
            datagrams(&[ethernet(1_300), lower]),
            [(1_300, 5), (1_400, 4)],
            "no super-packet has both"
        );
    }

    #[test]
    fn what_the_driver_does_not_take_stays() {
        let mut buffers = Buffers::default();
        let packets = [(1, 100), (2, 100), (1, 60), (2, 1_400)];
        let runs: Vec<_> =
            (0..).zip(packets).map(|(slot, to)| packet(&mut buffers, slot, to, 5, ETHERNET)).collect();
        let mut datagrams = Datagrams::default();
        assert_eq!(datagrams.plan(&runs), 3);
        let left = |taken| {
            let mut left = runs.clone();
            let bundled = datagrams.remove_taken(&mut left, taken);
            let slots: Vec<_> = left.iter().map(|run| run.first.payload.unwrap().rpc.slot).collect();
            (bundled.datagrams, bundled.packets, slots)
        };
        assert_eq!(left(0), (0, 0, vec![0, 1, 2, 3]));
        assert_eq!(left(1), (1, 2, vec![1, 3]));
        assert_eq!(left(2), (1, 2, vec![3]));
        assert_eq!(left(3), (1, 2, vec![]));
        // A run is only partly taken.
        let mut long = vec![TransmitRun { more: 250, ..runs[0] }];
        assert_eq!(datagrams.plan(&long), 4);
        datagrams.remove_taken(&mut long, 3);
        assert_eq!(
            long[0].first.payload.unwrap(),
            PayloadRange { offset: 300, len: 50, ..runs[0].first.payload.unwrap() }
        );
    }
}
