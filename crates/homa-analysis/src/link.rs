//! The rate of the hosts' links, and their overhead per packet.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use foldhash::fast::FixedState;
use homa_trace::{EventKind, NodeKind, packet_word_parts};
use serde::Serialize;

use crate::model::{Model, Node, NodeId, Packet};

/// Ethernet overhead of a packet on a link, in bytes: header, check sequence, preamble and gap.
const ETHERNET_BYTES: u32 = 14 + 4 + 8 + 12;
/// Header bytes of IPv4 and IPv6 without options, and of UDP.
const IPV4_BYTES: u32 = 20;
const IPV6_BYTES: u32 = 40;
const UDP_BYTES: u32 = 8;

/// Number of packets over which a rate is measured. It is large enough to make the rounding of times to
/// nanoseconds negligible, and small enough that packets are back to back even in a lightly loaded network.
const WINDOW: u64 = 16;
/// Percentage of the densest windows to ignore if packets appear closer together than they were on the link.
const SQUEEZED_PERCENT: usize = 1;

/// The source of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RateSource {
    /// An option set by the user.
    Given,
    /// Back-to-back departures from those switch ports that lead to hosts.
    Switch,
    /// Back-to-back arrivals at devices.
    Device,
    /// Back-to-back arrivals at hosts.
    Arrivals,
}

/// A link's rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LinkRate {
    /// Bits per second.
    pub bps: f64,
    /// The source of the rate.
    pub source: RateSource,
    /// Bytes that the link adds to each packet.
    pub overhead_bytes: u32,
}

impl LinkRate {
    /// Returns the given rate in bits per second, or else the rate of the densest packets. The packets are
    /// those at switches if there are any, else those at devices, else those at hosts. The times that hosts
    /// record are later and closer together. Returns `None` if there are too few packets.
    ///
    /// `overhead_bytes`: bytes that a link adds to each packet, if known more precisely than by [`overhead`].
    #[must_use]
    pub fn of(model: &Model, given_bps: Option<u64>, overhead_bytes: Option<u32>) -> Option<LinkRate> {
        let overhead_bytes = overhead_bytes.unwrap_or_else(|| overhead(model));
        if let Some(bps) = given_bps.filter(|bps| *bps > 0) {
            return Some(LinkRate { bps: bps as f64, source: RateSource::Given, overhead_bytes });
        }
        [RateSource::Switch, RateSource::Device, RateSource::Arrivals].into_iter().find_map(|source| {
            let bps = measured(model, source, overhead_bytes)?;
            Some(LinkRate { bps, source, overhead_bytes })
        })
    }

    /// Returns the transmission time of these packets, in nanoseconds.
    #[must_use]
    pub fn ns(&self, load: Load) -> f64 {
        (load.bytes + load.packets * u64::from(self.overhead_bytes)) as f64 * 8e9 / self.bps
    }
}

/// A number of packets and their bytes, without the link's overhead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Number of packets.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
}

impl Load {
    /// Returns the load of one packet of this length.
    #[must_use]
    pub const fn packet(length: u32) -> Load {
        Load { packets: 1, bytes: length as u64 }
    }

    /// Returns this load minus `other`.
    #[must_use]
    pub const fn less(self, other: Load) -> Load {
        Load {
            packets: self.packets.saturating_sub(other.packets),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

impl std::ops::AddAssign for Load {
    fn add_assign(&mut self, other: Load) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// Returns the bytes that the hosts' links add to each packet, derived from the addresses of the hosts'
/// peers. A peer with a UDP port is reached over UDP, and a peer without one directly over IP. Simulated
/// hosts have no addresses; for their links, only IP is counted.
#[must_use]
pub fn overhead(model: &Model) -> u32 {
    let hosts = model.nodes.iter().filter(|node| node.kind == NodeKind::Host);
    let peers = hosts.flat_map(|node| node.others.values());
    let address = |name: &String| {
        let with_port = name.parse::<SocketAddr>().ok().map(|address| (address.ip(), address.port()));
        with_port.or_else(|| Some((name.parse::<IpAddr>().ok()?, 0)))
    };
    let (ip, port) = peers.into_iter().find_map(address).map_or((None, 0), |(ip, port)| (Some(ip), port));
    let ip_bytes = if ip.is_some_and(|ip| ip.is_ipv6()) { IPV6_BYTES } else { IPV4_BYTES };
    ETHERNET_BYTES + ip_bytes + if port == 0 { 0 } else { UDP_BYTES }
}

/// The arrivals over one link. Each has its time, and the number of packets and bytes up to then. Arrivals at
/// the same time share an entry.
#[derive(Default)]
struct ArrivalWindow(VecDeque<(u64, u64, u64)>);

impl ArrivalWindow {
    /// Returns whether the last arrival was at this time.
    fn is_last(&self, ns: u64) -> bool {
        self.0.back().is_some_and(|entry| entry.0 == ns)
    }

    /// Adds a packet. Returns the rate of the latest complete window, in bytes per nanosecond.
    fn add(&mut self, ns: u64, bytes: u64) -> Option<f64> {
        let (last, packets, sum) = self.0.back().copied().unwrap_or((0, 0, 0));
        if let Some(entry) = self.0.back_mut().filter(|_| last == ns) {
            (entry.1, entry.2) = (packets + 1, sum + bytes);
            return None;
        }
        let found = self.window();
        self.0.push_back((ns, packets + 1, sum + bytes));
        found
    }

    fn window(&mut self) -> Option<f64> {
        let (last, packets, sum) = *self.0.back()?;
        while self.0.get(1).is_some_and(|second| packets - second.1 >= WINDOW) {
            self.0.pop_front();
        }
        let (first, before, bytes) = *self.0.front()?;
        (packets - before >= WINDOW).then(|| (sum - bytes) as f64 / (last - first) as f64)
    }
}

/// Returns the switch ports that lead to hosts. For each port, the function computes the share of departures
/// that no later switch recorded, and selects ports with at least half of the highest share. One packet is
/// not enough, because the records of similar packets may be confused. Not all packets are required, because
/// hosts overwrite records.
fn ports_to_hosts(model: &Model) -> HashSet<(NodeId, u16), FixedState> {
    let since_ns = model.switches_remember_since_ns();
    // For each port: the number of packets for which it was the last port, and the number of all departures.
    let mut counts: HashMap<(NodeId, u16), (u64, u64), FixedState> = HashMap::default();
    let came = |p: &&Packet| p.received.is_some() && p.entered.ns().is_some_and(|ns| ns >= since_ns);
    for packet in model.packets.iter().filter(came).filter(|p| p.left.is_some()) {
        counts.entry((packet.switch, packet.port)).or_default().0 += 1;
    }
    for (number, node) in model.nodes.iter().enumerate().filter(|(_, node)| node.kind == NodeKind::Switch) {
        for record in node.records.iter().filter(|record| record.event() == Some(EventKind::SwitchLeft)) {
            counts.entry((number as NodeId, record.place.port())).or_default().1 += 1;
        }
    }
    let share = |(last, all): (u64, u64)| last as f64 / all.max(1) as f64;
    let most = counts.values().map(|count| share(*count)).fold(0.0, f64::max);
    let leads = |count: (u64, u64)| count.0 > 0 && 2.0 * share(count) >= most;
    counts.into_iter().filter(|(_, count)| leads(*count)).map(|(port, _)| port).collect()
}

/// Returns the rate of the densest windows, in bits per second.
fn measured(model: &Model, source: RateSource, overhead: u32) -> Option<f64> {
    let (kind, of) = match source {
        RateSource::Given => return None,
        RateSource::Switch => (EventKind::SwitchLeft, NodeKind::Switch),
        RateSource::Device => (EventKind::DeviceReceived, NodeKind::Host),
        RateSource::Arrivals => (EventKind::PacketReceived, NodeKind::Host),
    };
    let to_hosts = if source == RateSource::Switch { ports_to_hosts(model) } else { HashSet::default() };
    let mut densest = DensestWindows::default();
    for (number, node) in model.nodes.iter().enumerate().filter(|(_, node)| node.kind == of) {
        let exact = source == RateSource::Switch || source == RateSource::Arrivals && !reads_bursts(node);
        let mut links: HashMap<u16, ArrivalWindow, FixedState> = HashMap::default();
        let mut read_ns = 0;
        for record in &node.records {
            match record.event() {
                Some(EventKind::BurstIn) => read_ns = record.time,
                Some(event) if event == kind => {
                    let port = if of == NodeKind::Switch { record.place.port() } else { 0 };
                    if of == NodeKind::Switch && !to_hosts.contains(&(number as NodeId, port)) {
                        continue;
                    }
                    // Packets that are read together may have arrived at any time since the previous read.
                    let by_burst = source == RateSource::Arrivals && !exact;
                    let ns = if by_burst { read_ns } else { record.time };
                    let link = links.entry(port).or_default();
                    // Departures from a port at the same time belong to one frame, a bundle.
                    let in_frame = source == RateSource::Switch && link.is_last(ns);
                    let around = if in_frame { 0 } else { u64::from(overhead) };
                    let bytes = u64::from(packet_word_parts(record.a).1) + around;
                    densest.add(link.add(ns, bytes), exact);
                }
                _ => {}
            }
        }
        links.values_mut().for_each(|link| densest.add(link.window(), exact));
    }
    densest.bytes_per_ns().map(|rate| rate * 8e9)
}

/// The densest windows, in bytes per nanosecond.
#[derive(Default)]
struct DensestWindows {
    /// Maximum over windows of exact times. Nothing is denser than the link.
    exact: f64,
    /// All windows of inexact times.
    squeezed: Vec<f64>,
}

impl DensestWindows {
    fn add(&mut self, window: Option<f64>, exact: bool) {
        match window {
            Some(found) if exact => self.exact = self.exact.max(found),
            found => self.squeezed.extend(found),
        }
    }

    fn bytes_per_ns(mut self) -> Option<f64> {
        if self.exact > 0.0 || self.squeezed.is_empty() {
            return Some(self.exact).filter(|rate| *rate > 0.0);
        }
        let left_out = self.squeezed.len() * SQUEEZED_PERCENT / 100;
        let (_, found, _) = self.squeezed.select_nth_unstable_by(left_out, |a, b| b.total_cmp(a));
        Some(*found)
    }
}

fn reads_bursts(node: &Node) -> bool {
    node.records.iter().any(|record| record.event() == Some(EventKind::BurstIn))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::testing::{CLIENT, SERVER, SWITCH, WORD, Writer};
    use homa_trace::packet_word;

    const IP_BYTES: u64 = 58;

    #[test]
    fn the_densest_packets_show_the_rate() {
        let mut writer = Writer::new();
        // Each packet of 1,058 bytes takes 1,058 ns, which is 8 Gbit/s. Slower packets follow.
        for index in 0..40_u32 {
            let received = 10_000 + u64::from(index) * (1_000 + IP_BYTES) * if index < 20 { 1 } else { 3 };
            writer.data(index * 944, u64::from(index) * 10, received);
        }
        let model = writer.model();
        let rate = LinkRate::of(&model, None, None).expect("enough packets");
        assert_eq!((rate.bps.round(), rate.source), (8e9, RateSource::Arrivals));
        assert_eq!(rate.ns(Load::packet(1_000)), 1_058.0);
        let given = LinkRate::of(&model, Some(1_000_000_000), Some(0)).expect("given");
        assert_eq!((given.source, given.ns(Load { packets: 2, bytes: 100 })), (RateSource::Given, 800.0));
    }

    #[test]
    fn small_packets_and_large_ones_show_the_same_rate() {
        for length in [60_u32, 1_500] {
            let mut writer = Writer::new();
            let word = packet_word(crate::model::DATA, length);
            for index in 0..20_u32 {
                writer.at(CLIENT, u64::from(index), EventKind::PacketSent, word, index);
                let left = 1_000 + u64::from(index) * (u64::from(length) + IP_BYTES);
                writer.at(SWITCH, 100 + u64::from(index), EventKind::SwitchEntered, word, index);
                writer.at(SWITCH, left, EventKind::SwitchLeft, word, index);
                writer.at(SERVER, left + 100, EventKind::PacketReceived, word, index);
            }
            let rate = LinkRate::of(&writer.model(), None, None).expect("enough packets");
            assert_eq!((rate.bps.round(), rate.source), (8e9, RateSource::Switch), "{length}");
        }
    }

    #[test]
    fn a_bundle_has_the_overhead_of_one_frame() {
        let mut writer = Writer::new();
        for index in 0..40_u64 {
            let left = 1_000 + index / 2 * (2 * 1_000 + IP_BYTES);
            writer.at(CLIENT, index, EventKind::PacketSent, WORD, index as u32 * 944);
            writer.switch(index as u32 * 944, 100 + index / 2, left);
            writer.at(SERVER, left + 100, EventKind::PacketReceived, WORD, index as u32 * 944);
        }
        let rate = LinkRate::of(&writer.model(), None, None).expect("enough packets");
        assert_eq!((rate.bps.round(), rate.source), (8e9, RateSource::Switch));
    }

    #[test]
    fn a_link_between_switches_is_no_hosts() {
        let mut writer = Writer::new();
        for index in 0..40_u32 {
            let offset = index * 944;
            let left = 10_000 + u64::from(index) * (1_000 + IP_BYTES);
            writer.at(CLIENT, u64::from(index), EventKind::PacketSent, WORD, offset);
            // Packets go four times as fast to the next switch, which is the same switch here.
            let between = 1_000 + u64::from(index) * (1_000 + IP_BYTES) / 4;
            writer.by_port(0).switch(offset, between - 100, between);
            // The last record of one packet is missing.
            if index > 0 {
                writer.by_port(1).switch(offset, between + 100, left);
            }
            writer.at(SERVER, left + 100, EventKind::PacketReceived, WORD, offset);
        }
        let rate = LinkRate::of(&writer.model(), None, None).expect("enough packets");
        assert_eq!((rate.bps.round(), rate.source), (8e9, RateSource::Switch));
    }

    #[test]
    fn what_is_read_at_once_is_not_what_the_link_brings_at_once() {
        let mut writer = Writer::new();
        for burst in 0..10_u64 {
            // Ten packets take 10,580 ns, and are processed within 100 ns.
            let read = 20_000 + burst * 10 * (1_000 + IP_BYTES);
            writer.burst(SERVER, read, EventKind::BurstIn, 10, 0);
            for packet in 0..10 {
                let offset = (burst * 10 + packet) as u32 * 944;
                writer.at(CLIENT, burst * 100 + packet, EventKind::PacketSent, WORD, offset);
                writer.at(SERVER, read + packet * 10, EventKind::PacketReceived, WORD, offset);
            }
        }
        let rate = LinkRate::of(&writer.model(), None, None).expect("enough packets");
        assert_eq!((rate.bps.round(), rate.source), (8e9, RateSource::Arrivals));
    }

    #[test]
    fn the_overhead_is_told_by_the_addresses_of_peers() {
        let overhead_of = |peer: &str| {
            let mut dumps = Writer::new().data(0, 10, 20).dumps();
            dumps[CLIENT].node.others.insert(1, peer.to_owned());
            overhead(&Model::new(dumps).expect("events"))
        };
        let found =
            ["host-1", "10.0.0.1:0", "10.0.0.1:4000", "[fe80::1]:0", "[fe80::1]:4000"].map(overhead_of);
        assert_eq!(found, [58, 58, 66, 78, 86]);
    }
}
