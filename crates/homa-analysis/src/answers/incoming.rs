//! Outstanding grants: bytes that receivers have granted but not yet received.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use homa_trace::{EventKind, NodeKind, Record, packet_word_parts};
use serde::Serialize;

use super::packet::DATA_HEADER_BYTES;
use super::percentiles::Percentiles;
use super::select::Select;
use crate::link::{LinkRate, Load};
use crate::model::DATA;
use crate::model::{Model, NodeId};

/// The distribution of a value over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct OverTime {
    /// Mean of the value.
    pub mean: f64,
    /// Value that is not exceeded for 50 % of the time.
    pub p50: u64,
    /// Value that is not exceeded for 99 % of the time.
    pub p99: u64,
    /// Maximum of the value.
    pub max: u64,
}

impl OverTime {
    /// Summarizes pairs of a value and its duration. Sorts the pairs.
    pub(super) fn of(steps: &mut [(u64, u64)]) -> OverTime {
        steps.sort_unstable();
        let whole: u128 = steps.iter().map(|(_, ns)| u128::from(*ns)).sum();
        let sum: u128 = steps.iter().map(|(value, ns)| u128::from(*value) * u128::from(*ns)).sum();
        let at = |percent: u128| {
            let mut before = 0;
            let behind = steps.iter().find(|(_, ns)| {
                before += u128::from(*ns);
                before * 100 >= whole * percent
            });
            behind.map_or(0, |(value, _)| *value)
        };
        OverTime {
            mean: if whole == 0 { 0.0 } else { sum as f64 / whole as f64 },
            p50: at(50),
            p99: at(99),
            max: steps.iter().filter(|(_, ns)| *ns > 0).map(|(value, _)| *value).max().unwrap_or(0),
        }
    }
}

/// Outstanding grants of one receiver.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReceiverGrants {
    /// Name of the host.
    pub node: String,
    /// Number of grants that the host sent.
    pub grants: u64,
    /// Bytes granted but not yet received, over all messages that had a grant.
    pub bytes: OverTime,
    /// Number of messages with outstanding bytes.
    pub messages: OverTime,
    /// Outstanding bytes of a message immediately after a grant to it.
    pub ahead_bytes: Option<Percentiles>,
    /// Share of the time during which bytes were outstanding.
    pub share: f64,
    /// Utilization of the host's link during that time, 0 to 1; `None` if the rate is unknown.
    pub link_use: Option<f64>,
    /// Utilization of the host's link over the whole time.
    pub link_use_all: Option<f64>,
}

/// The result of [`incoming`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct IncomingGrants {
    /// The link rate used.
    pub rate: Option<LinkRate>,
    /// Each host that sent grants.
    pub receivers: Vec<ReceiverGrants>,
}

/// Returns the outstanding grants of each receiver over time, and the utilization of the receiver's link
/// during that time.
#[must_use]
pub fn incoming(model: &Model, select: &Select, rate: Option<LinkRate>) -> IncomingGrants {
    let hosts = model
        .nodes
        .iter()
        .enumerate()
        .filter(|(number, node)| node.kind == NodeKind::Host && select.node(*number as NodeId));
    let receivers = hosts.filter_map(|(_, node)| {
        let mut scan = Scan::default();
        for record in &node.records {
            scan.step(record, select);
        }
        scan.result(&node.name, rate)
    });
    IncomingGrants { rate, receivers: receivers.collect() }
}

/// An incoming message.
#[derive(Clone, Copy, Default)]
struct IncomingMessage {
    granted: u64,
    received: u64,
}

impl IncomingMessage {
    const fn ahead(self) -> u64 {
        self.granted.saturating_sub(self.received)
    }
}

#[derive(Default)]
struct Scan {
    arriving: HashMap<u64, IncomingMessage, FixedState>,
    bytes: u64,
    messages: u64,
    since_ns: Option<u64>,
    steps: Vec<(u64, u64)>,
    message_steps: Vec<(u64, u64)>,
    ahead: Vec<i64>,
    /// Bytes and packets that arrived while grants were outstanding, and their totals over all time.
    meanwhile: (u64, u64),
    all: (u64, u64),
}

impl Scan {
    fn step(&mut self, record: &Record, select: &Select) {
        let Some(kind) = record.event() else { return };
        let counts = select.time(record.time);
        if !matches!(
            kind,
            EventKind::GrantSent | EventKind::PacketReceived | EventKind::MessageComplete | EventKind::RpcEnd
        ) {
            return;
        }
        if counts {
            let since = self.since_ns.replace(record.time).unwrap_or(record.time);
            let took = record.time.saturating_sub(since);
            if took > 0 {
                self.steps.push((self.bytes, took));
                self.message_steps.push((self.messages, took));
            }
        }
        let before = self.arriving.get(&record.id).map_or(0, |of| of.ahead());
        match kind {
            EventKind::GrantSent => {
                let of = self.arriving.entry(record.id).or_default();
                of.granted = of.granted.max(record.a.into());
                if counts {
                    self.ahead.push(of.ahead() as i64);
                }
            }
            EventKind::PacketReceived => {
                let (packet_type, length) = packet_word_parts(record.a);
                if counts {
                    for (bytes, packets) in
                        [Some(&mut self.all), (self.bytes > 0).then_some(&mut self.meanwhile)]
                            .into_iter()
                            .flatten()
                    {
                        *bytes += u64::from(length);
                        *packets += 1;
                    }
                }
                if packet_type == DATA && record.id > 1 {
                    let of = self.arriving.entry(record.id).or_default();
                    of.received += u64::from(length.saturating_sub(DATA_HEADER_BYTES));
                }
            }
            _ => {
                self.arriving.remove(&record.id);
            }
        }
        let after = self.arriving.get(&record.id).map_or(0, |of| of.ahead());
        self.bytes = self.bytes.saturating_add(after).saturating_sub(before);
        self.messages = (self.messages + u64::from(after > 0)).saturating_sub(u64::from(before > 0));
    }

    fn result(mut self, name: &str, rate: Option<LinkRate>) -> Option<ReceiverGrants> {
        let grants = self.ahead.len() as u64;
        if grants == 0 {
            return None;
        }
        let sum = |steps: &[(u64, u64)], least: u64| -> f64 {
            steps.iter().filter(|(bytes, _)| *bytes >= least).map(|(_, ns)| *ns as f64).sum()
        };
        let (busy_ns, whole_ns) = (sum(&self.steps, 1), sum(&self.steps, 0));
        let used = |(bytes, packets): (u64, u64), ns: f64| {
            Some(rate?.ns(Load { packets, bytes }) / ns).filter(|_| ns > 0.0)
        };
        Some(ReceiverGrants {
            node: name.to_owned(),
            grants,
            link_use: used(self.meanwhile, busy_ns),
            link_use_all: used(self.all, whole_ns),
            share: if whole_ns > 0.0 { busy_ns / whole_ns } else { 0.0 },
            bytes: OverTime::of(&mut self.steps),
            messages: OverTime::of(&mut self.message_steps),
            ahead_bytes: Percentiles::of(&mut self.ahead),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{SERVER, Writer};
    use super::*;
    use crate::link::RateSource;

    #[test]
    fn granted_bytes_are_there_until_they_come() {
        let mut writer = Writer::new();
        writer.data(0, 500, 1_000);
        writer.at(SERVER, 1_000, EventKind::GrantSent, 2_832, 3);
        writer.data(944, 600, 2_000).data(1_888, 700, 3_000);
        writer.at(SERVER, 5_000, EventKind::MessageComplete, 0, 2_832);
        let rate = LinkRate { bps: 8e9, source: RateSource::Given, overhead_bytes: 0 };
        let found = incoming(&writer.model(), &Select::default(), Some(rate));
        let [server] = &found.receivers[..] else { panic!("{found:?}") };
        // The value is 1,888 for 1 us, 944 for 1 us, and 0 for 2 us.
        assert_eq!((server.bytes.mean, server.bytes.p99, server.bytes.max), (708.0, 1_888, 1_888));
        assert_eq!((server.messages.mean, server.share, server.link_use), (0.5, 0.5, Some(1.0)));
        assert_eq!(server.ahead_bytes.map(|found| found.p50), Some(1_888));
        assert_eq!(server.link_use_all, Some(0.75));
    }
}
