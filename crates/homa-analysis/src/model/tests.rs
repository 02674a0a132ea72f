use homa_trace::{Clock, Dump, EventKind, Node, Place, Trace, packet_word};

use super::*;

const ID: u64 = 40;
const DATA: u8 = 0x10;

/// Dumps of a client, a switch and a server, written event by event.
struct Writer(Vec<(Node, Trace)>);

const CLIENT: usize = 0;
const SWITCH: usize = 1;
const SERVER: usize = 2;

impl Writer {
    fn new() -> Writer {
        let nodes = [Node::host("c"), Node::switch("tor", ["p0".into(), "p1".into()]), Node::host("s")];
        Writer(nodes.into_iter().map(|node| (node, Trace::new(256, Clock::Virtual))).collect())
    }

    fn at(&mut self, node: usize, ns: u64, kind: EventKind, a: u32, b: u32) -> &mut Writer {
        let place = match node {
            SWITCH => Place::in_switch(1, 3, u16::from(kind == EventKind::SwitchDropped)),
            _ => Place::at_host(1, 3, 0, 1),
        };
        // A switch records a packet with the sender's ID. Here the client is the sender.
        let id = ID + u64::from(node == SERVER);
        let trace = &mut self.0[node].1;
        trace.set_virtual_now(ns);
        trace.record_at(kind, id, a, b, place);
        self
    }

    /// Writes a DATA packet of this offset, first recorded at `sent`. If a time is `None`, the packet does
    /// not get that far.
    fn data(&mut self, offset: u32, sent: u64, left: Option<u64>, received: Option<u64>) -> &mut Writer {
        let word = packet_word(DATA, 1_000);
        self.at(CLIENT, sent, EventKind::PacketSent, word, offset);
        self.at(SWITCH, sent + 10, EventKind::SwitchEntered, word, offset);
        if let Some(left) = left {
            self.at(SWITCH, left, EventKind::SwitchLeft, word, offset);
        }
        if let Some(received) = received {
            self.at(SERVER, received, EventKind::PacketReceived, word, offset);
        }
        self
    }

    fn model(&self) -> Model {
        Model::new(self.dumps()).expect("events")
    }

    fn dumps(&self) -> Vec<Dump> {
        self.0.iter().map(|(node, trace)| trace.dump(node.clone())).collect()
    }
}

#[test]
fn an_rpc_is_put_together_from_all_nodes() {
    let mut writer = Writer::new();
    writer.at(CLIENT, 1_000, EventKind::RpcStart, 0, 1_900);
    writer.data(0, 1_010, Some(1_100), Some(1_200)).data(940, 1_020, Some(1_300), Some(1_400));
    writer.at(SERVER, 1_201, EventKind::RpcStart, 1, 1_900);
    writer.at(SERVER, 1_401, EventKind::MessageComplete, 0, 1_900);
    writer.at(SERVER, 1_420, EventKind::AppReceive, 0, 1_900);
    writer.at(CLIENT, 2_000, EventKind::MessageComplete, 1, 77);
    writer.at(CLIENT, 2_001, EventKind::RpcEnd, 0, 0);
    writer.at(CLIENT, 2_050, EventKind::AppReceive, 1, 77);
    let model = writer.model();
    let rpc = model.rpc(ID + 1).expect("by either id");
    assert_eq!((model.name(rpc.client), model.name(rpc.server)), ("c", "s"));
    assert_eq!((rpc.request.length, rpc.response.length, rpc.result), (1_900, 77, Some(0)));
    assert_eq!(rpc.duration_ns(), Some(1_050));
    assert_eq!(rpc.request.arrived().since(rpc.start), Some(420));
    let data = model.data_of(&rpc.request);
    assert_eq!(data.iter().map(|packet| packet.offset).collect::<Vec<_>>(), [0, 940]);
    let second = &data[1];
    assert_eq!(second.received.since(second.sent), Some(380));
    assert_eq!((second.left.since(second.entered), second.port, second.priority), (Some(270), 1, 3));
    assert_eq!((second.fate, second.again), (Fate::Received, false));
    assert!(model.events_of(rpc).map(|(_, record)| record.time).is_sorted());
}

#[test]
fn what_was_sent_again_is_told_from_what_was_lost() {
    let mut writer = Writer::new();
    writer.at(SERVER, 1, EventKind::BusySent, 0, 0);
    writer.data(0, 1_000, Some(1_100), None).data(0, 9_000, Some(9_100), Some(9_200));
    // The packet is slow but not lost: it is sent again, and both packets arrive.
    writer.data(500, 2_000, Some(9_300), Some(9_400)).data(500, 9_000, Some(9_500), Some(9_600));
    // The server's trace continues for long enough to show that nothing arrived.
    writer.at(SERVER, 1_000_000_000, EventKind::BusySent, 0, 0);
    let model = writer.model();
    let packets = model.packets_of(&model.rpcs[0]);
    let of =
        |offset| packets.iter().filter(move |packet| packet.packet_type == DATA && packet.offset == offset);
    let fates = |offset| of(offset).map(|packet| (packet.fate, packet.again)).collect::<Vec<_>>();
    assert_eq!(fates(0), [(Fate::Lost, false), (Fate::Received, true)]);
    assert_eq!(fates(500), [(Fate::Received, false), (Fate::Received, true)]);
    let ways: Vec<_> = of(500).map(|packet| packet.received.since(packet.sent)).collect();
    assert_eq!(ways, [Some(7_400), Some(600)]);
}

#[test]
fn a_drop_is_the_first_packets_and_the_second_comes_through() {
    let mut writer = Writer::new();
    let word = packet_word(DATA, 1_000);
    writer.at(CLIENT, 1_000, EventKind::PacketSent, word, 0);
    writer.at(SWITCH, 1_010, EventKind::SwitchDropped, word, 0);
    writer.data(0, 5_000, Some(5_100), Some(5_200));
    let model = writer.model();
    let packets = model.packets_of(&model.rpcs[0]);
    assert_eq!(
        packets.iter().map(|packet| packet.fate).collect::<Vec<_>>(),
        [Fate::Dropped(1), Fate::Received]
    );
    assert!(!packets[0].entered.is_some() && packets[1].entered.is_some());
}

#[test]
fn bursts_are_those_around_a_packet() {
    let mut writer = Writer::new();
    let word = packet_word(DATA, 1_000);
    let mut burst = |node: usize, ns, kind| {
        let trace = &mut writer.0[node].1;
        trace.set_virtual_now(ns);
        trace.record_at(kind, 0, 1, 0, Place::at_host(0, 0, 0, 1));
    };
    burst(CLIENT, 900, EventKind::BurstOut);
    burst(CLIENT, 1_005, EventKind::BurstOut);
    burst(CLIENT, 1_015, EventKind::BurstTaken);
    burst(SERVER, 1_190, EventKind::BurstIn);
    burst(SERVER, 1_230, EventKind::BurstProcessed);
    burst(SERVER, 1_300, EventKind::BurstIn);
    writer.at(CLIENT, 1_000, EventKind::PacketSent, word, 0);
    writer.at(SERVER, 1_200, EventKind::PacketReceived, word, 0);
    let model = writer.model();
    let packet = &model.packets[0];
    let after = [packet.handed, packet.taken, packet.read, packet.processed].map(|at| at.since(packet.sent));
    assert_eq!(after, [Some(5), Some(15), Some(190), Some(230)]);
}

#[test]
fn an_rpc_whose_start_is_overwritten_has_no_duration() {
    let mut writer = Writer::new();
    writer.data(0, 1_000, Some(1_100), Some(1_200));
    writer.at(CLIENT, 2_001, EventKind::RpcEnd, 0, 0);
    let model = writer.model();
    assert_eq!(model.rpcs[0].duration_ns(), None);
    assert!(model.rpcs[0].start.is_some() && !model.rpcs[0].starts_in_trace);
}

#[test]
fn no_events_make_no_model() {
    assert_eq!(Model::new(Vec::new()).err(), Some(BuildError::Empty));
    assert_eq!(Model::new(Writer::new().dumps()).err(), Some(BuildError::Empty));
}
