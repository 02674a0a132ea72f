//! Grants: their delays, the hosts that sent and received them, and unused grants.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;
use homa_trace::{EventKind, packet_word_parts};
use serde::Serialize;

use super::incoming::{ReceiverGrants, incoming};
use super::missing_events::MissingEvents;
use super::packet::DATA_HEADER_BYTES;
use super::percentiles::Percentiles;
use super::select::Select;
use crate::arrivals::Arrivals;
use crate::link::LinkRate;
use crate::model::DATA;
use crate::model::{Direction, Model, NO_NODE, NodeId};

/// The grants from one host to another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PairGrants {
    /// The host that granted.
    pub receiver: String,
    /// The host that received the grants.
    pub sender: String,
    /// Number of messages that had grants.
    pub messages: u64,
    /// Number of grants sent.
    pub grants: u64,
    /// Number of bytes granted.
    pub bytes: u64,
    /// Number of grants that arrived while their recipient was waiting for them.
    pub late: u64,
    /// Time that senders waited for a grant, in nanoseconds.
    pub waited_ns: u64,
    /// Bytes that the receiver's link could have carried during these waits but did not; 0 if its rate is
    /// unknown.
    pub wasted_bytes: u64,
    /// Number of grants that the sender left unused for longer than `unused_after_ns`.
    pub unused: u64,
    /// Bytes of the unused grants.
    pub unused_bytes: u64,
}

/// The result of [`grants`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Grants {
    /// The link rate used.
    pub rate: Option<LinkRate>,
    /// Maximum time that a grant may stay unused, in nanoseconds.
    pub unused_after_ns: u64,
    /// Time from sending a grant until the message's sender receives it.
    pub way_ns: Option<Percentiles>,
    /// Times that senders waited for a grant.
    pub waited_ns: Option<Percentiles>,
    /// Time from a grant's arrival until the sender sends the first byte that the grant allows.
    pub used_after_ns: Option<Percentiles>,
    /// Grants by receiver and sender, sorted by bytes in descending order.
    pub pairs: Vec<PairGrants>,
    /// Per receiver, the number of messages that were granted at the same time, and how far grants were
    /// ahead.
    pub receivers: Vec<ReceiverGrants>,
    /// Missing kinds of events.
    pub missing_events: Vec<MissingEvents>,
}

#[derive(Default)]
struct Sum {
    messages: u64,
    grants: u64,
    bytes: u64,
    late: u64,
    waited_ns: u64,
    wasted_bytes: f64,
    unused: u64,
    unused_bytes: u64,
}

/// Evaluates all grants from the records of both ends.
#[must_use]
pub fn grants(model: &Model, select: &Select, rate: Option<LinkRate>, unused_after_ns: u64) -> Grants {
    let arrivals = Arrivals::new(model);
    let mut all = GrantSums::default();
    for rpc in &model.rpcs {
        for direction in [Direction::ToServer, Direction::ToClient] {
            let (sender, receiver) = (rpc.sender(direction), rpc.receiver(direction));
            let message = rpc.message(direction);
            let has = message.first_grant.is_some() || message.first_grant_sent.is_some();
            if !has || !select.pair(sender, receiver) {
                continue;
            }
            let sum = all.pairs.entry((receiver, sender)).or_default();
            sum.messages += 1;
            let mut of = MessageGrants::new(&arrivals, rate, receiver, unused_after_ns);
            for (_, record) in model.events_of(rpc).filter(|(_, record)| select.time(record.time)) {
                let Some(kind) = record.event() else { continue };
                // A sender's records contain the RPC ID of the sender's own side, as do all of its packets.
                let by_client = record.id & 1 == 0;
                let by_sender = by_client == (direction == Direction::ToServer);
                match kind {
                    EventKind::GrantSent if !by_sender => of.sent(record.time, record.a, sum),
                    EventKind::WaitGrant if by_sender => {
                        of.waits_since = Some(record.time);
                        of.granted = of.granted.max(record.a);
                    }
                    EventKind::GrantReceived if by_sender => {
                        of.record_arrival(record.time, record.a, sum, &mut all.way, &mut all.waited);
                    }
                    EventKind::PacketSent if by_sender && packet_word_parts(record.a).0 == DATA => {
                        of.used(record.time, record.b, record.a, sum, &mut all.used);
                    }
                    _ => {}
                }
            }
        }
    }
    all.result(model, select, rate, unused_after_ns)
}

#[derive(Default)]
struct GrantSums {
    pairs: BTreeMap<(NodeId, NodeId), Sum>,
    way: Vec<i64>,
    waited: Vec<i64>,
    used: Vec<i64>,
}

impl GrantSums {
    fn result(
        mut self,
        model: &Model,
        select: &Select,
        rate: Option<LinkRate>,
        unused_after_ns: u64,
    ) -> Grants {
        let mut pairs: Vec<PairGrants> = self
            .pairs
            .iter()
            .map(|((receiver, sender), sum)| PairGrants {
                receiver: model.name(*receiver).to_owned(),
                sender: model.name(*sender).to_owned(),
                messages: sum.messages,
                grants: sum.grants,
                bytes: sum.bytes,
                late: sum.late,
                waited_ns: sum.waited_ns,
                wasted_bytes: sum.wasted_bytes as u64,
                unused: sum.unused,
                unused_bytes: sum.unused_bytes,
            })
            .collect();
        pairs.sort_by_key(|pair| std::cmp::Reverse(pair.bytes));
        let mut missing_events = Vec::new();
        if pairs.is_empty() {
            missing_events.push(MissingEvents::Grants);
        }
        if self.way.is_empty() && !pairs.is_empty() {
            missing_events.push(MissingEvents::BothEnds);
        }
        Grants {
            rate,
            unused_after_ns,
            way_ns: Percentiles::of(&mut self.way),
            waited_ns: Percentiles::of(&mut self.waited),
            used_after_ns: Percentiles::of(&mut self.used),
            pairs,
            receivers: incoming(model, select, rate).receivers,
            missing_events,
        }
    }
}

/// Returns the bytes that a host's link could have carried between the two times but did not.
fn idle_bytes(
    arrivals: &Arrivals<'_>,
    node: NodeId,
    from_ns: u64,
    until_ns: u64,
    rate: Option<LinkRate>,
) -> f64 {
    let Some(rate) = rate.filter(|_| node != NO_NODE) else { return 0.0 };
    let came = arrivals.between(node, from_ns.saturating_add(1), until_ns.saturating_add(1));
    (until_ns.saturating_sub(from_ns) as f64 - rate.ns(came)).max(0.0) * rate.bps / 8e9
}

/// The grants of one message so far.
struct MessageGrants<'a> {
    unused_after_ns: u64,
    rate: Option<LinkRate>,
    arrivals: &'a Arrivals<'a>,
    receiver: NodeId,
    /// Grants in transit: the time at which each was sent, keyed by the granted offset.
    on_way: HashMap<u32, u64, FixedState>,
    /// The offset up to which the sender knows that it may send, and the offset up to which the receiver has
    /// granted.
    granted: u32,
    granted_by_receiver: u32,
    waits_since: Option<u64>,
    /// The oldest unused grant: its time, its first offset, and its bytes.
    unused: Option<(u64, u32, u32)>,
    sent_until: u32,
}

impl<'a> MessageGrants<'a> {
    fn new(
        arrivals: &'a Arrivals<'a>,
        rate: Option<LinkRate>,
        receiver: NodeId,
        unused_after_ns: u64,
    ) -> MessageGrants<'a> {
        MessageGrants {
            unused_after_ns,
            rate,
            arrivals,
            receiver,
            on_way: HashMap::default(),
            granted: 0,
            granted_by_receiver: 0,
            waits_since: None,
            unused: None,
            sent_until: 0,
        }
    }

    fn sent(&mut self, ns: u64, offset: u32, sum: &mut Sum) {
        // Unscheduled bytes need no grant.
        let before = self.granted_by_receiver.max(self.granted).max(self.sent_until);
        sum.grants += 1;
        sum.bytes += u64::from(offset.saturating_sub(before));
        self.granted_by_receiver = self.granted_by_receiver.max(offset);
        self.on_way.insert(offset, ns);
    }

    fn record_arrival(
        &mut self,
        ns: u64,
        offset: u32,
        sum: &mut Sum,
        way: &mut Vec<i64>,
        waited: &mut Vec<i64>,
    ) {
        match self.on_way.remove(&offset) {
            Some(sent) => way.push(ns.saturating_sub(sent) as i64),
            // If the receiver's trace is missing, count the grant here.
            None if self.granted_by_receiver == 0 => {
                sum.grants += 1;
                sum.bytes += u64::from(offset.saturating_sub(self.granted.max(self.sent_until)));
            }
            None => {}
        }
        if let Some(since) = self.waits_since.take() {
            sum.late += 1;
            sum.waited_ns += ns.saturating_sub(since);
            waited.push(ns.saturating_sub(since) as i64);
            sum.wasted_bytes += idle_bytes(self.arrivals, self.receiver, since, ns, self.rate);
        }
        let before = self.granted.max(self.sent_until);
        if offset > before {
            self.unused.get_or_insert((ns, before, offset - before));
        }
        self.granted = self.granted.max(offset);
    }

    fn used(&mut self, ns: u64, offset: u32, word: u32, sum: &mut Sum, used: &mut Vec<i64>) {
        let payload = packet_word_parts(word).1.saturating_sub(DATA_HEADER_BYTES);
        self.sent_until = self.sent_until.max(offset.saturating_add(payload));
        if let Some((since, _, bytes)) = self.unused.filter(|(_, from, _)| offset >= *from) {
            let after = ns.saturating_sub(since);
            used.push(after as i64);
            if after > self.unused_after_ns {
                sum.unused += 1;
                sum.unused_bytes += u64::from(bytes);
            }
            self.unused = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{CLIENT, SERVER, Writer};
    use super::*;
    use crate::link::RateSource;

    #[test]
    fn a_late_grant_wastes_what_the_link_could_have_brought() {
        let mut writer = Writer::new();
        writer.data(0, 1_000, 2_000);
        writer.at(CLIENT, 1_100, EventKind::WaitGrant, 944, 9_440);
        writer.at(SERVER, 2_000, EventKind::GrantSent, 2_832, 3);
        writer.at(CLIENT, 3_100, EventKind::GrantReceived, 2_832, 3);
        writer.data(944, 3_600, 9_000);
        let rate = LinkRate { bps: 8e9, source: RateSource::Given, overhead_bytes: 0 };
        let found = grants(&writer.model(), &Select::default(), Some(rate), 400);
        let [pair] = &found.pairs[..] else { panic!("{found:?}") };
        assert_eq!(
            (pair.receiver.as_str(), pair.sender.as_str(), pair.grants, pair.bytes),
            ("s", "c", 1, 1_888)
        );
        assert_eq!((pair.late, pair.waited_ns), (1, 2_000));
        // 1,000 of the 2,000 bytes arrived.
        assert_eq!(pair.wasted_bytes, 1_000);
        assert_eq!((pair.unused, pair.unused_bytes), (1, 1_888));
        assert_eq!(found.way_ns.map(|found| found.p50), Some(1_100));
        assert_eq!(found.used_after_ns.map(|found| found.p50), Some(500));
        let patient = grants(&writer.model(), &Select::default(), Some(rate), 500);
        assert_eq!(patient.pairs[0].unused, 0);
    }
}
