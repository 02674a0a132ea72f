//! The rate of the links.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use homa_trace::{EventKind, NodeKind, packet_word_parts};
use serde::Serialize;

use crate::model::Model;

/// What UDP, IPv4 and Ethernet add to a packet of Homa on a link, in bytes: headers, check sequence, preamble and gap.
pub const OVERHEAD_BYTES: u32 = 8 + 20 + 14 + 4 + 8 + 12;

/// Packets of a window whose time is taken.
const WINDOW: usize = 16;
/// The windows shorter than this percentile of all are taken for those of a busy link whose times are squeezed.
const PERCENTILE: f64 = 1.0;

/// Where a rate is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RateSource {
    /// It was given.
    Given,
    /// What left the ports of switches one behind the other.
    Switch,
    /// What came to devices one behind the other.
    Device,
    /// What came to hosts one behind the other.
    Arrivals,
}

/// A link's rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LinkRate {
    /// Bits per second.
    pub bps: f64,
    /// How it is known.
    pub source: RateSource,
    /// What the link adds to each packet, in bytes.
    pub overhead_bytes: u32,
}

impl LinkRate {
    /// Nanoseconds that a packet of this length takes, or several of them.
    #[must_use]
    pub fn ns(&self, packets: u64, bytes: u64) -> f64 {
        (bytes + packets * u64::from(self.overhead_bytes)) as f64 * 8e9 / self.bps
    }
}

/// The rate as given in bits per second, or else as the densest arrivals show it: at switches where there are any, else at devices,
/// else at hosts, whose times are later and squeezed. `None` where there are too few packets.
#[must_use]
pub fn link_rate(model: &Model, given_bps: Option<u64>, overhead_bytes: u32) -> Option<LinkRate> {
    if let Some(bps) = given_bps.filter(|bps| *bps > 0) {
        return Some(LinkRate { bps: bps as f64, source: RateSource::Given, overhead_bytes });
    }
    let sources = [
        (RateSource::Switch, EventKind::SwitchLeft, NodeKind::Switch),
        (RateSource::Device, EventKind::DeviceReceived, NodeKind::Host),
        (RateSource::Arrivals, EventKind::PacketReceived, NodeKind::Host),
    ];
    sources.into_iter().find_map(|(source, kind, of)| {
        let bps = densest(model, kind, of, overhead_bytes)?;
        Some(LinkRate { bps, source, overhead_bytes })
    })
}

/// Bits per second of the densest windows.
fn densest(model: &Model, kind: EventKind, of: NodeKind, overhead: u32) -> Option<f64> {
    let mut windows = Vec::new();
    let mut ports: HashMap<u16, (u64, u64, usize), FixedState> = HashMap::default();
    for node in model.nodes.iter().filter(|node| node.kind == of) {
        ports.clear();
        for record in node.records.iter().filter(|record| record.event() == Some(kind)) {
            let port = if of == NodeKind::Switch { record.place.port() } else { 0 };
            let (began, bytes, count) = ports.entry(port).or_default();
            if *count > 0 {
                *bytes += u64::from(packet_word_parts(record.a).1) + u64::from(overhead);
            }
            *count += 1;
            if *count == 1 {
                *began = record.time;
            } else if *count > WINDOW {
                let took = record.time.saturating_sub(*began);
                if took > 0 {
                    windows.push(*bytes as f64 * 8e9 / took as f64);
                }
                (*bytes, *count) = (0, 1);
                *began = record.time;
            }
        }
    }
    windows.sort_by(|a, b| b.total_cmp(a));
    windows.get((windows.len() as f64 * PERCENTILE / 100.0) as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::super::testing::Writer;
    use super::*;

    #[test]
    fn the_densest_packets_show_the_rate() {
        let mut writer = Writer::new();
        // 1,066 bytes in 1,066 ns each: 8 Gbit/s; then slower ones.
        for index in 0..40_u32 {
            let received = 10_000 + u64::from(index) * 1_066 * if index < 20 { 1 } else { 3 };
            writer.data(index * 944, u64::from(index) * 10, received);
        }
        let model = writer.model();
        let rate = link_rate(&model, None, OVERHEAD_BYTES).expect("enough packets");
        assert_eq!((rate.bps.round(), rate.source), (8e9, RateSource::Arrivals));
        assert_eq!(rate.ns(1, 1_000), 1_066.0);
        let given = link_rate(&model, Some(1_000_000_000), 0).expect("given");
        assert_eq!((given.source, given.ns(2, 100)), (RateSource::Given, 800.0));
    }
}
