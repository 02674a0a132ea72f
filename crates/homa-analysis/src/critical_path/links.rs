//! What a host's link did meanwhile: what it sent and received, and what held it back.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use homa_trace::{EventKind, NodeKind, Record, packet_word_parts};

use crate::model::{DATA, Model, Node, NodeId};

/// Frames over which a link's rate is measured: enough that a burst out of a buffer does not pass for the link.
const RATE_FRAMES: usize = 32;

/// Packets that a host sent, and what went on between one and the next. Amounts are sums from the beginning on.
#[derive(Default)]
pub(super) struct Uplink {
    times: Vec<u64>,
    /// The link had bytes to send.
    busy: Vec<u64>,
    /// What held packets back while the link had none, where that changes: most packets are held back by nothing.
    held: Vec<Held>,
}

/// Sums up to a packet and from there on.
struct Held {
    /// The packet, by its number in `Uplink::times`.
    from: usize,
    /// The pacer held packets back.
    paced: u64,
    /// The driver took none.
    full: u64,
}

/// What went on at a sender within a time; in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sending {
    pub(super) busy: u64,
    pub(super) paced: u64,
    pub(super) full: u64,
    /// Packets that were sent within, without the ends.
    pub(super) packets: usize,
}

impl Uplink {
    fn of(node: &Node, ns_per_byte: Option<f64>) -> Uplink {
        let sent = node.records.iter().filter(|record| record.event() == Some(EventKind::PacketSent)).count();
        let (times, busy) = (Vec::with_capacity(sent), Vec::with_capacity(sent));
        let mut uplink = Uplink { times, busy, held: Vec::new() };
        let (mut free_at, mut paced_until, mut full) = (0.0_f64, 0_u64, false);
        let mut sums = [0_u64; 3];
        for record in &node.records {
            match record.event() {
                // The pacer waits for the backlog at most. What is later than that is the host's own.
                Some(EventKind::WaitPacer) => paced_until = record.time.saturating_add(u64::from(record.a)),
                Some(EventKind::WaitBuffer) => full = true,
                Some(EventKind::PacketSent) => {
                    if let Some(before) = uplink.times.last() {
                        let gap = record.time - before;
                        let busy = ((free_at - *before as f64).max(0.0) as u64).min(gap);
                        sums[0] += busy;
                        let paced = paced_until.saturating_sub(before + busy).min(gap - busy);
                        sums[1] += paced;
                        sums[2] += if full && paced == 0 { gap - busy } else { 0 };
                    }
                    let bytes = f64::from(packet_word_parts(record.a).1);
                    free_at = free_at.max(record.time as f64) + bytes * ns_per_byte.unwrap_or(0.0);
                    (paced_until, full) = (0, false);
                    if uplink.held.last().map_or([0; 2], |held| [held.paced, held.full]) != sums[1..] {
                        uplink.held.push(Held { from: uplink.times.len(), paced: sums[1], full: sums[2] });
                    }
                    uplink.times.push(record.time);
                    uplink.busy.push(sums[0]);
                }
                _ => {}
            }
        }
        uplink
    }

    /// From one moment to another, at which something was sent.
    pub(super) fn between(&self, from_ns: u64, until_ns: u64) -> Sending {
        let (begin, end) = (self.sums(from_ns), self.sums(until_ns));
        let first = self.times.partition_point(|time| *time <= from_ns);
        let behind = self.times.partition_point(|time| *time < until_ns);
        Sending {
            busy: end[0].saturating_sub(begin[0]),
            paced: end[1].saturating_sub(begin[1]),
            full: end[2].saturating_sub(begin[2]),
            packets: behind.saturating_sub(first),
        }
    }

    /// Busy, paced and full up to this moment.
    fn sums(&self, ns: u64) -> [u64; 3] {
        let Some(index) = self.times.partition_point(|time| *time <= ns).checked_sub(1) else {
            return [0; 3];
        };
        let mut sums = self.sums_at(index);
        // In a gap the link is busy first, and the rest of the gap has one reason.
        let mut rest = ns - self.times[index];
        let next = if index + 1 < self.times.len() { self.sums_at(index + 1) } else { sums };
        for (sum, next) in sums.iter_mut().zip(next) {
            let in_gap = (next - *sum).min(rest);
            *sum += in_gap;
            rest -= in_gap;
        }
        sums
    }

    /// Up to the packet of this number.
    fn sums_at(&self, index: usize) -> [u64; 3] {
        let behind = self.held.partition_point(|held| held.from <= index);
        let held = behind.checked_sub(1).map(|place| &self.held[place]);
        [self.busy[index], held.map_or(0, |held| held.paced), held.map_or(0, |held| held.full)]
    }
}

/// Payload and headers that a host received in DATA packets.
#[derive(Default)]
pub(super) struct Downlink {
    times: Vec<u64>,
    bytes: Vec<u64>,
}

impl Downlink {
    fn of(node: &Node) -> Downlink {
        let came =
            node.records.iter().filter(|record| record.event() == Some(EventKind::PacketReceived)).count();
        let mut downlink = Downlink { times: Vec::with_capacity(came), bytes: Vec::with_capacity(came) };
        let mut sum = 0;
        for record in &node.records {
            let (packet_type, length) = packet_word_parts(record.a);
            if record.event() == Some(EventKind::PacketReceived) && packet_type == DATA {
                sum += u64::from(length);
                downlink.times.push(record.time);
                downlink.bytes.push(sum);
            }
        }
        downlink
    }

    /// Bytes received after `from_ns`, up to and with `until_ns`.
    pub(super) fn between(&self, from_ns: u64, until_ns: u64) -> u64 {
        let sum = |ns| {
            let behind = self.times.partition_point(|time| *time <= ns);
            behind.checked_sub(1).map_or(0, |index| self.bytes[index])
        };
        sum(until_ns).saturating_sub(sum(from_ns))
    }
}

/// Times in which a host's driving thread did not run.
#[derive(Default)]
pub(super) struct Stalls(Vec<(u64, u64)>);

impl Stalls {
    fn of(node: &Node) -> Stalls {
        let mut stalls: Vec<(u64, u64)> = Vec::new();
        for record in node.records.iter().filter(|record| record.event() == Some(EventKind::NotRunning)) {
            let from = record.time.saturating_sub(u64::from(record.a));
            // Another thread of the host may have noticed the same.
            match stalls.last_mut() {
                Some(last) if from <= last.1 => *last = (last.0.min(from), record.time),
                _ => stalls.push((from, record.time)),
            }
        }
        Stalls(stalls)
    }

    /// The last one that overlaps this time, cut to it.
    pub(super) fn last_within(&self, from_ns: u64, until_ns: u64) -> Option<(u64, u64)> {
        let behind = self.0.partition_point(|stall| stall.0 < until_ns);
        let (from, until) = *self.0.get(behind.checked_sub(1)?)?;
        let (from, until) = (from.max(from_ns), until.min(until_ns));
        (from < until).then_some((from, until))
    }

    /// How much of this time they are, in nanoseconds.
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
pub(super) struct Links {
    uplinks: Vec<Uplink>,
    downlinks: Vec<Downlink>,
    stalls: Vec<Stalls>,
    nothing: (Uplink, Downlink, Stalls),
    pub(super) ns_per_byte: Option<f64>,
}

impl Links {
    pub(super) fn of(model: &Model, rate_bps: Option<u64>) -> Links {
        let ns_per_byte = match rate_bps.filter(|rate| *rate > 0) {
            Some(rate) => Some(8e9 / rate as f64),
            None => measured_rate(model),
        };
        let uplink = |node: &Node| match node.kind {
            NodeKind::Host => Uplink::of(node, ns_per_byte),
            NodeKind::Switch => Uplink::default(),
        };
        Links {
            uplinks: model.nodes.iter().map(uplink).collect(),
            downlinks: model.nodes.iter().map(Downlink::of).collect(),
            stalls: model.nodes.iter().map(Stalls::of).collect(),
            nothing: Default::default(),
            ns_per_byte,
        }
    }

    pub(super) fn uplink(&self, node: NodeId) -> &Uplink {
        self.uplinks.get(usize::from(node)).unwrap_or(&self.nothing.0)
    }

    pub(super) fn downlink(&self, node: NodeId) -> &Downlink {
        self.downlinks.get(usize::from(node)).unwrap_or(&self.nothing.1)
    }

    pub(super) fn stalls(&self, node: NodeId) -> &Stalls {
        self.stalls.get(usize::from(node)).unwrap_or(&self.nothing.2)
    }
}

/// Nanoseconds per byte of Homa packets on the fastest link to a host, by what came over it; `None` where nothing tells.
fn measured_rate(model: &Model) -> Option<f64> {
    let mut to_hosts: HashMap<(NodeId, u16), (), FixedState> = HashMap::with_hasher(FixedState::default());
    to_hosts.extend(model.packets.iter().filter(|p| p.left.is_some()).map(|p| ((p.switch, p.port), ())));
    let mut least = f64::INFINITY;
    for (number, node) in model.nodes.iter().enumerate() {
        let of_kind = |kind| node.records.iter().filter(move |record| record.event() == Some(kind));
        match node.kind {
            NodeKind::Switch => {
                let mut ports: HashMap<u16, Window, FixedState> = HashMap::with_hasher(FixedState::default());
                for record in of_kind(EventKind::SwitchLeft) {
                    let port = record.place.port();
                    if to_hosts.contains_key(&(number as NodeId, port)) {
                        ports.entry(port).or_default().add(record, &mut least);
                    }
                }
            }
            // A host that reads bursts sees them faster than they came.
            NodeKind::Host if to_hosts.is_empty() && of_kind(EventKind::BurstIn).next().is_none() => {
                let mut window = Window::default();
                of_kind(EventKind::PacketReceived).for_each(|record| window.add(record, &mut least));
            }
            NodeKind::Host => {}
        }
    }
    least.is_finite().then_some(least).filter(|least| *least > 0.0)
}

/// The last frames of a link.
#[derive(Default)]
struct Window {
    frames: std::collections::VecDeque<(u64, u64)>,
    sent: u64,
}

impl Window {
    fn add(&mut self, record: &Record, least: &mut f64) {
        self.sent += u64::from(packet_word_parts(record.a).1);
        self.frames.push_back((record.time, self.sent));
        if self.frames.len() > RATE_FRAMES
            && let Some((time, sent)) = self.frames.pop_front()
            && record.time > time
            && self.sent > sent
        {
            *least = least.min((record.time - time) as f64 / (self.sent - sent) as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homa_trace::{Clock, Node as Name, Trace, packet_word};

    fn node(events: &[(u64, EventKind, u32)]) -> Node {
        let mut trace = Trace::new(64, Clock::Virtual);
        for (ns, kind, a) in events {
            trace.set_virtual_now(*ns);
            trace.record(*kind, 2, *a, 0);
        }
        Model::new(vec![trace.dump(Name::host("h"))]).expect("events").nodes.remove(0)
    }

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
        let uplink = Uplink::of(&node, Some(1.0));
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
        let sending = Uplink::of(&node, Some(1.0)).between(1, 90_001);
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

    #[test]
    fn bytes_received_are_those_within() {
        let node = node(&[(1, EventKind::PacketReceived, KB), (10, EventKind::PacketReceived, KB)]);
        let downlink = Downlink::of(&node);
        assert_eq!(
            [downlink.between(0, 10), downlink.between(1, 10), downlink.between(10, 99)],
            [2_000, 1_000, 0]
        );
    }
}
