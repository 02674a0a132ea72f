//! Finds the same packet in the traces of several nodes.
//!
//! A packet is identified by the RPC ID at its sender, its type, its length and its offset. The receiver
//! records the other ID of the pair, `id ^ 1`. A packet that was sent more than once is ignored, because the
//! records do not show which transmission arrived.

use homa_trace::{Dump, EventKind, Record};

/// A packet between two nodes that both recorded it. There may be other nodes in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// Index of the dump of the node that the packet left: the host that sent it, or a switch on its path.
    pub from: u16,
    /// Index of the dump of the node that the packet reached: the host that received it, or a switch.
    pub to: u16,
    /// Index of the packet's record in `from`.
    pub left: u32,
    /// Index of the packet's record in `to`.
    pub came: u32,
}

/// The kind of a record. Kinds are listed in the order in which they happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ObservationKind {
    /// Not a packet: the node's trace contains the RPC from its start.
    Start,
    Sent,
    Entered,
    Left,
    Received,
}

/// A node's record of a packet. Records are sorted by their fields, in declaration order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Observation {
    sender_id: u64,
    word: u32,
    offset: u32,
    kind: ObservationKind,
    node: u16,
    record: u32,
}

/// Returns all unambiguous passages: from the sender to the receiver, from the sender to a switch, and from a
/// switch to the receiver. They are sorted by the packets' IDs.
///
/// A packet is included if exactly one record shows its transmission, and no earlier record of a transmission
/// can have been overwritten. Only the first 65,536 dumps and the first 2^32 records of each are used.
#[must_use]
pub fn passages(dumps: &[Dump]) -> Vec<Passage> {
    let whole: Vec<bool> = dumps.iter().map(is_whole).collect();
    let mut seen = Vec::new();
    for (node, (dump, whole)) in (0..=u16::MAX).zip(dumps.iter().zip(&whole)) {
        for (index, record) in (0..=u32::MAX).zip(&dump.records) {
            seen.extend(observation_of(record, node, index, *whole));
        }
    }
    seen.sort_unstable();
    let mut passages = Vec::new();
    for of_rpc in seen.chunk_by(|a, b| a.sender_id == b.sender_id) {
        let starts = of_rpc.iter().take_while(|seen| seen.kind == ObservationKind::Start).count();
        let (starts, packets) = of_rpc.split_at(starts);
        for of_packet in packets.chunk_by(|a, b| (a.word, a.offset) == (b.word, b.offset)) {
            let known_since = |sent: &Observation| {
                whole[usize::from(sent.node)]
                    || starts.iter().any(|start| start.node == sent.node && start.record < sent.record)
            };
            passages_of(of_packet, known_since, &mut passages);
        }
    }
    passages
}

/// Returns whether the trace is complete from its first to its last event: no record was overwritten, and it
/// was not frozen in between.
fn is_whole(dump: &Dump) -> bool {
    let before_last = dump.records.len().saturating_sub(1);
    dump.overwritten == 0
        && !dump.records[..before_last].iter().any(|record| record.event() == Some(EventKind::Freeze))
}

fn observation_of(record: &Record, node: u16, index: u32, whole: bool) -> Option<Observation> {
    let (kind, sender_id) = match record.event()? {
        EventKind::PacketSent => (ObservationKind::Sent, record.id),
        EventKind::PacketReceived => (ObservationKind::Received, record.id ^ 1),
        EventKind::SwitchEntered => (ObservationKind::Entered, record.id),
        EventKind::SwitchLeft => (ObservationKind::Left, record.id),
        // Sorts before all packets of the RPC: a packet word is never 0, because a packet's type is never 0.
        EventKind::RpcStart if !whole => {
            return Some(Observation {
                sender_id: record.id,
                word: 0,
                offset: 0,
                kind: ObservationKind::Start,
                node,
                record: index,
            });
        }
        _ => return None,
    };
    let (word, offset) = (record.a, record.b);
    (sender_id > 1 && word != 0).then_some(Observation { sender_id, word, offset, kind, node, record: index })
}

/// Returns the passages of one packet, from all records of the packet.
fn passages_of(
    seen: &[Observation],
    known_since: impl Fn(&Observation) -> bool,
    passages: &mut Vec<Passage>,
) {
    let [sent, rest @ ..] = seen else { return };
    let sent_once = sent.kind == ObservationKind::Sent
        && rest.first().is_none_or(|next| next.kind != ObservationKind::Sent);
    if !sent_once || rest.is_empty() || !known_since(sent) {
        return;
    }
    let passage = |from: &Observation, to: &Observation| Passage {
        from: from.node,
        to: to.node,
        left: from.record,
        came: to.record,
    };
    // A network may duplicate a packet. The first arrival gives the bound on the clocks.
    let received = rest.iter().find(|seen| seen.kind == ObservationKind::Received);
    if let Some(received) = received.filter(|received| received.node != sent.node) {
        passages.push(passage(sent, received));
    }
    for at_switch in rest.chunk_by(|a, b| (a.kind, a.node) == (b.kind, b.node)) {
        let [only] = at_switch else { continue };
        match (only.kind, received) {
            _ if only.node == sent.node => {}
            (ObservationKind::Entered, _) => passages.push(passage(sent, only)),
            (ObservationKind::Left, Some(received)) if received.node != only.node => {
                passages.push(passage(only, received))
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homa_trace::{Clock, Node, Trace, packet_word};

    const WORD: u32 = packet_word(0x10, 100);

    fn dump(capacity: usize, records: &[(EventKind, u64, u32)]) -> Dump {
        let mut trace = Trace::new(capacity, Clock::Virtual);
        for (kind, id, offset) in records {
            trace.record(*kind, *id, if *kind == RpcStart { 0 } else { WORD }, *offset);
        }
        trace.dump(Node::default())
    }

    use EventKind::{PacketReceived, PacketSent, RpcStart, SwitchEntered, SwitchLeft};

    #[test]
    fn a_packet_is_the_same_for_sender_switch_and_receiver() {
        let dumps = [
            dump(8, &[(PacketSent, 10, 0), (PacketReceived, 10, 7)]),
            dump(8, &[(PacketReceived, 11, 0), (PacketSent, 11, 7)]),
            dump(8, &[(SwitchEntered, 10, 0), (SwitchLeft, 10, 0)]),
        ];
        let passage = |from, left, to, came| Passage { from, to, left, came };
        assert_eq!(
            passages(&dumps),
            [passage(0, 0, 1, 0), passage(0, 0, 2, 0), passage(2, 1, 1, 0), passage(1, 1, 0, 1)]
        );
    }

    #[test]
    fn what_was_sent_twice_is_left_out() {
        let dumps = [
            dump(8, &[(PacketSent, 10, 0), (PacketSent, 10, 0), (PacketSent, 10, 1400)]),
            dump(8, &[(PacketReceived, 11, 0), (PacketReceived, 11, 1400), (PacketReceived, 11, 1400)]),
        ];
        assert_eq!(passages(&dumps), [Passage { from: 0, to: 1, left: 2, came: 1 }]);
    }

    #[test]
    fn what_may_have_been_overwritten_leaves_a_doubt() {
        let receiver = dump(8, &[(PacketReceived, 11, 0)]);
        let sender = |first: EventKind| {
            dump(
                4,
                &[
                    (PacketSent, 10, 0),
                    (first, 10, 9),
                    (PacketSent, 10, 0),
                    (PacketSent, 98, 0),
                    (PacketSent, 98, 9),
                ],
            )
        };
        let dumps = [sender(PacketSent), receiver.clone()];
        assert_eq!(dumps[0].overwritten, 1);
        assert!(passages(&dumps).is_empty());
        assert_eq!(passages(&[sender(RpcStart), receiver]).len(), 1, "the RPC is there from its start");
    }

    #[test]
    fn a_freeze_in_between_leaves_a_doubt() {
        let receiver = dump(8, &[(PacketReceived, 11, 0)]);
        let frozen = dump(8, &[(EventKind::Freeze, 0, 0), (PacketSent, 10, 0)]);
        assert!(passages(&[frozen, receiver]).is_empty());
    }
}
