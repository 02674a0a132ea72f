//! Activity of a host's link: sent and received packets, and the causes that held packets back.

use homa_trace::{EventKind, Record, packet_word_parts};

use crate::arrivals::Arrivals;
use crate::link::{LinkRate, Load};
use crate::model::{Model, Node, NodeId};
use crate::replay::{Replay, State};

/// The state of a host's transmit side, and totals since the start of the trace.
#[derive(Clone)]
struct Sender {
    rate: Option<LinkRate>,
    /// Number of packets sent, and the time at which the last one was sent.
    packets: u32,
    last_ns: u64,
    /// When the link will have transmitted all of these packets.
    free_at: f64,
    /// Time until which the pacer holds packets back, and whether the driver is full. Both are reset by each
    /// packet.
    paced_until: u64,
    full: bool,
    /// Nanoseconds, up to the last packet, for which the link was busy, the pacer held packets back, and the
    /// driver was full.
    sums: [u64; 3],
}

impl State for Sender {
    fn add(&mut self, record: &Record) {
        match record.event() {
            // The pacer waits at most for the backlog. Any further delay is due to the host.
            Some(EventKind::WaitPacer) => {
                self.paced_until = record.time.saturating_add(u64::from(record.a));
            }
            Some(EventKind::WaitBuffer) => self.full = true,
            Some(EventKind::PacketSent) => {
                if self.packets > 0 {
                    let gap = record.time - self.last_ns;
                    let busy = ((self.free_at - self.last_ns as f64).max(0.0) as u64).min(gap);
                    let paced = self.paced_until.saturating_sub(self.last_ns + busy).min(gap - busy);
                    self.sums[0] += busy;
                    self.sums[1] += paced;
                    self.sums[2] += if self.full && paced == 0 { gap - busy } else { 0 };
                }
                let packet = Load::packet(packet_word_parts(record.a).1);
                let takes = self.rate.map_or(0.0, |rate| rate.ns(packet));
                self.free_at = self.free_at.max(record.time as f64) + takes;
                (self.paced_until, self.full) = (0, false);
                (self.packets, self.last_ns) = (self.packets + 1, record.time);
            }
            _ => {}
        }
    }
}

/// Maximum number of events that are searched for the next packet. If there are more, the sender had nothing
/// to send.
const LOOKED_AT: usize = 4_096;

/// The packets that a host sent, and the causes of the gaps between them.
pub(super) struct Uplink<'m>(Replay<'m, Sender>);

/// Activity of a sender within a range of time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SenderActivity {
    pub(super) busy: u64,
    pub(super) paced: u64,
    pub(super) full: u64,
    /// Number of packets sent within the range, excluding its ends.
    pub(super) packets: u32,
}

impl<'m> Uplink<'m> {
    fn new(records: &'m [Record], rate: Option<LinkRate>) -> Uplink<'m> {
        let (paced_until, full, sums) = (0, false, [0; 3]);
        let state = Sender { rate, packets: 0, last_ns: 0, free_at: 0.0, paced_until, full, sums };
        Uplink(Replay::new(records, state))
    }

    /// Returns the activity between two times at each of which a packet was sent.
    pub(super) fn between(&self, from_ns: u64, until_ns: u64) -> SenderActivity {
        let (first, [busy, paced, full]) = self.until(from_ns);
        let (_, sums) = self.until(until_ns);
        let behind = self.0.behind(self.0.index(until_ns)).packets;
        SenderActivity {
            busy: sums[0].saturating_sub(busy),
            paced: sums[1].saturating_sub(paced),
            full: sums[2].saturating_sub(full),
            packets: behind.saturating_sub(first),
        }
    }

    /// Returns the number of packets up to and including this time, and the totals of [`Sender`] up to this
    /// time.
    fn until(&self, ns: u64) -> (u32, [u64; 3]) {
        let behind = self.0.index(ns.saturating_add(1));
        let mut state = self.0.behind(behind);
        let (packets, mut sums) = (state.packets, state.sums);
        // In a gap, the link is busy first. The rest of the gap has one cause, shown by the records before
        // the next packet.
        let mut rest = ns.saturating_sub(state.last_ns);
        if packets == 0 || rest == 0 {
            return (packets, sums);
        }
        for record in self.0.records()[behind..].iter().take(LOOKED_AT) {
            state.add(record);
            if state.packets > packets {
                break;
            }
        }
        for (sum, next) in sums.iter_mut().zip(state.sums) {
            let in_gap = (next - *sum).min(rest);
            *sum += in_gap;
            rest -= in_gap;
        }
        (packets, sums)
    }
}

/// Times at which a host's driving thread did not run.
#[derive(Default)]
pub(super) struct Stalls(Vec<(u64, u64)>);

impl Stalls {
    fn of(node: &Node) -> Stalls {
        let mut stalls: Vec<(u64, u64)> = Vec::new();
        for record in node.records.iter().filter(|record| record.event() == Some(EventKind::NotRunning)) {
            let from = record.time.saturating_sub(u64::from(record.a));
            // Another thread of the host may have recorded the same stall.
            match stalls.last_mut() {
                Some(last) if from <= last.1 => *last = (last.0.min(from), record.time),
                _ => stalls.push((from, record.time)),
            }
        }
        Stalls(stalls)
    }

    /// Returns the last stall that overlaps this range, clipped to the range.
    pub(super) fn last_within(&self, from_ns: u64, until_ns: u64) -> Option<(u64, u64)> {
        let behind = self.0.partition_point(|stall| stall.0 < until_ns);
        let (from, until) = *self.0.get(behind.checked_sub(1)?)?;
        let (from, until) = (from.max(from_ns), until.min(until_ns));
        (from < until).then_some((from, until))
    }

    /// Returns the total time of stalls within this range, in nanoseconds.
    pub(super) fn within(&self, from_ns: u64, mut until_ns: u64) -> u64 {
        let mut sum = 0;
        while let Some((from, until)) = self.last_within(from_ns, until_ns) {
            sum += until - from;
            until_ns = from;
        }
        sum
    }
}

/// The links of all nodes.
pub(super) struct Links<'m> {
    uplinks: Vec<Uplink<'m>>,
    stalls: Vec<Stalls>,
    nothing: (Uplink<'m>, Stalls),
    pub(super) arrivals: Arrivals<'m>,
    pub(super) rate: Option<LinkRate>,
}

impl<'m> Links<'m> {
    pub(super) fn new(model: &'m Model, rate: Option<LinkRate>) -> Links<'m> {
        Links {
            uplinks: model.nodes.iter().map(|node| Uplink::new(node.host_records(), rate)).collect(),
            stalls: model.nodes.iter().map(Stalls::of).collect(),
            nothing: (Uplink::new(&[], rate), Stalls::default()),
            arrivals: Arrivals::new(model),
            rate,
        }
    }

    pub(super) fn uplink(&self, node: NodeId) -> &Uplink<'m> {
        self.uplinks.get(usize::from(node)).unwrap_or(&self.nothing.0)
    }

    pub(super) fn stalls(&self, node: NodeId) -> &Stalls {
        self.stalls.get(usize::from(node)).unwrap_or(&self.nothing.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::RateSource;
    use crate::model::DATA;
    use homa_trace::{Clock, Node as Name, Trace, packet_word};

    fn node(events: &[(u64, EventKind, u32)]) -> Node {
        let mut trace = Trace::new(64, Clock::Virtual);
        for (ns, kind, a) in events {
            trace.set_virtual_now(*ns);
            trace.record(*kind, 2, *a, 0);
        }
        Model::new(vec![trace.dump(Name::host("h"))]).expect("events").nodes.remove(0)
    }

    /// 1 ns per byte.
    const RATE: LinkRate = LinkRate { bps: 8e9, source: RateSource::Given, overhead_bytes: 0 };
    const KB: u32 = packet_word(DATA, 1_000);

    #[test]
    fn a_gap_is_the_links_and_then_the_pacers() {
        use EventKind::{PacketSent, WaitPacer};
        let node = node(&[
            (1, PacketSent, KB),
            (2, WaitPacer, 4_000),
            (3_001, PacketSent, KB),
            (7_001, PacketSent, KB),
        ]);
        let uplink = Uplink::new(&node.records, Some(RATE));
        let of = |from: u64, until: u64| {
            let sending = uplink.between(from, until);
            (sending.busy, sending.paced, sending.packets)
        };
        assert_eq!(of(1, 3_001), (1_000, 2_000, 0));
        assert_eq!(of(501, 1_501), (500, 500, 0));
        assert_eq!(of(1, 7_001), (2_000, 2_000, 1), "3 us of the second gap are nobody's");
        assert_eq!(of(0, 1), (0, 0, 0));
    }

    #[test]
    fn the_pacer_is_not_to_blame_for_more_than_the_backlog() {
        use EventKind::{PacketSent, WaitPacer};
        let node = node(&[(1, PacketSent, KB), (501, WaitPacer, 700), (90_001, PacketSent, KB)]);
        let sending = Uplink::new(&node.records, Some(RATE)).between(1, 90_001);
        assert_eq!((sending.busy, sending.paced), (1_000, 200));
    }

    #[test]
    fn stalls_are_cut_and_summed() {
        let node = node(&[
            (1, EventKind::PacketSent, KB),
            (5_000, EventKind::NotRunning, 1_000),
            (5_100, EventKind::NotRunning, 500),
            (9_000, EventKind::NotRunning, 1_000),
        ]);
        let stalls = Stalls::of(&node);
        assert_eq!(stalls.within(0, 20_000), 2_100);
        assert_eq!(stalls.within(4_500, 8_500), 600 + 500);
        assert_eq!(stalls.last_within(0, 4_000), None);
    }
}
