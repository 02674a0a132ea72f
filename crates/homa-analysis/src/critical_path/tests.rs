use homa_trace::{Clock, Dump, EventKind, Node, Place, Trace, packet_word};

use super::*;
use crate::model::DATA;

const CLIENT: usize = 0;
const SERVER: usize = 1;
const SWITCH: usize = 2;
const ID: u64 = 40;
/// 1 ns per byte.
const RATE: LinkRate = LinkRate { bps: 8e9, source: crate::link::RateSource::Given, overhead_bytes: 0 };
const KB: u32 = packet_word(DATA, 1_000);
const GRANT: u32 = packet_word(0x11, 40);

/// Dumps of two hosts and a switch, written event by event, in any order.
struct Writer(Vec<(usize, u64, EventKind, u64, u32, u32, Place)>);

impl Writer {
    fn at(&mut self, node: usize, ns: u64, kind: EventKind, a: u32, b: u32) -> &mut Writer {
        self.of(ID, node, ns, kind, a, b)
    }

    fn of(&mut self, id: u64, node: usize, ns: u64, kind: EventKind, a: u32, b: u32) -> &mut Writer {
        let place = if node == SWITCH { Place::in_switch(4, 3, 0) } else { Place::at_host(1, 3, 0, 3) };
        self.0.push((node, ns, kind, id + u64::from(node == SERVER), a, b, place));
        self
    }

    /// Writes a packet from the client. It takes 100 ns to the switch, 100 ns plus `queued` in it, and 100 ns
    /// to the server.
    fn there(&mut self, word: u32, offset: u32, sent: u64, queued: u64) -> &mut Writer {
        self.at(CLIENT, sent, EventKind::PacketSent, word, offset);
        self.at(SWITCH, sent + 100, EventKind::SwitchEntered, word, offset);
        self.at(SWITCH, sent + 200 + queued, EventKind::SwitchLeft, word, offset);
        self.at(SERVER, sent + 300 + queued, EventKind::PacketReceived, word, offset)
    }

    /// Writes a packet from the server, which takes 300 ns.
    fn back(&mut self, word: u32, offset: u32, sent: u64) -> &mut Writer {
        self.at(SERVER, sent, EventKind::PacketSent, word, offset);
        self.at(CLIENT, sent + 300, EventKind::PacketReceived, word, offset)
    }

    /// Writes a request of one packet, answered immediately by a response of one packet.
    fn answered(&mut self, complete: u64) -> &mut Writer {
        self.at(SERVER, complete, EventKind::MessageComplete, 0, 940);
        self.at(SERVER, complete, EventKind::AppReceive, 0, 940);
        self.at(SERVER, complete + 50, EventKind::AppSend, 1, 940);
        self.back(KB, 0, complete + 60);
        self.at(CLIENT, complete + 370, EventKind::MessageComplete, 1, 940);
        self.at(CLIENT, complete + 370, EventKind::RpcEnd, 0, 0)
    }

    fn dumps(&self) -> Vec<Dump> {
        let nodes = [Node::host("c"), Node::host("s"), Node::switch("tor", [])];
        let mut events = self.0.clone();
        events.sort_by_key(|event| event.1);
        let dump = |(number, node): (usize, Node)| {
            let mut trace = Trace::new(256, Clock::Virtual);
            for (_, ns, kind, id, a, b, place) in events.iter().filter(|event| event.0 == number) {
                trace.set_virtual_now(*ns);
                trace.record_at(*kind, *id, *a, *b, *place);
            }
            trace.dump(node)
        };
        nodes.into_iter().enumerate().map(dump).collect()
    }

    /// Returns the causes of the RPC's time, with a link of 1 byte per nanosecond.
    fn causes(&self) -> Vec<(Cause, u64)> {
        let model = Model::new(self.dumps()).expect("events");
        let explainer = Explainer::new(&model, Some(RATE));
        let rpc = model.rpc(ID).expect("it is there");
        let mut path = Path::default();
        assert!(explainer.explain(rpc, &mut path));
        assert_eq!(Some(path.amounts.total()), rpc.duration_ns());
        assert!(path.spans.windows(2).all(|pair| pair[0].to_ns == pair[1].from_ns));
        Cause::ALL.iter().map(|c| (*c, path.amounts[*c])).filter(|(_, ns)| *ns > 0).collect()
    }
}

fn begun() -> Writer {
    let mut writer = Writer(Vec::new());
    writer.at(CLIENT, 1_000, EventKind::RpcStart, 0, 940);
    // An undisturbed RPC, from which the minimum times are known. It keeps the link busy for 10 ns of the
    // following RPC.
    for (node, ns, kind) in [
        (CLIENT, 10, EventKind::PacketSent),
        (SWITCH, 110, EventKind::SwitchEntered),
        (SWITCH, 210, EventKind::SwitchLeft),
        (SERVER, 310, EventKind::PacketReceived),
    ] {
        writer.of(20, node, ns, kind, KB, 0);
    }
    writer
}

#[test]
fn a_queue_in_a_switch_is_what_is_more_than_the_least() {
    let mut writer = begun();
    writer.there(KB, 0, 1_010, 5_000).answered(6_310);
    assert_eq!(
        writer.causes(),
        [
            (Cause::SenderQueue, 10),
            (Cause::SenderLate, 10),
            (Cause::Network, 600),
            (Cause::SwitchQueue, 5_000),
            (Cause::Processing, 10),
            (Cause::ServerApp, 50)
        ]
    );
}

#[test]
fn an_rpc_whose_server_has_stopped_recording_is_not_explained() {
    let mut writer = begun();
    writer.there(KB, 0, 1_010, 0).answered(1_310);
    let explained = |until_ns: u64| {
        let mut dumps = writer.dumps();
        dumps[SERVER].records.retain(|record| record.time <= until_ns);
        let model = Model::new(dumps).expect("events");
        let rpc = model.rpc(ID).expect("it is there");
        Explainer::new(&model, None).explain(rpc, &mut Path::default())
    };
    assert!(explained(u64::MAX), "the last that the server did was to send its response");
    assert!(!explained(1_320), "it took the request, and then its trace ends");
}

#[test]
fn a_loss_lasts_until_the_bytes_are_sent_again() {
    let mut writer = begun();
    writer.at(CLIENT, 1_000, EventKind::PacketSent, KB, 0);
    writer.there(KB, 0, 50_000, 0).answered(50_300);
    let causes = writer.causes();
    assert!(causes.contains(&(Cause::LossWait, 49_000)), "{causes:?}");
}

#[test]
fn what_was_sent_in_between_and_the_pacer_are_told_apart() {
    let mut writer = begun();
    writer.of(60, CLIENT, 1_000, EventKind::PacketSent, KB, 0);
    writer.of(60, CLIENT, 2_000, EventKind::PacketSent, KB, 940);
    writer.at(CLIENT, 2_100, EventKind::WaitPacer, 5_000, 940);
    writer.there(KB, 0, 7_000, 0).answered(7_300);
    let causes = writer.causes();
    assert!(causes.contains(&(Cause::SenderQueue, 2_010)), "{causes:?}");
    assert!(causes.contains(&(Cause::Pacer, 3_990)), "{causes:?}");
}

#[test]
fn a_window_that_is_too_small_costs_what_is_left_of_a_round_trip() {
    let mut writer = begun();
    writer.there(KB, 0, 1_000, 0);
    // The grant is sent as soon as the packet arrives. Each direction takes 300 ns, and the link is busy only
    // for the packet.
    writer.at(SERVER, 1_300, EventKind::GrantSent, 1_880, 0).back(GRANT, 0, 3_300);
    writer.at(CLIENT, 3_600, EventKind::GrantReceived, 1_880, 0);
    writer.there(KB, 940, 3_600, 0).answered(3_900);
    let causes = writer.causes();
    assert!(causes.contains(&(Cause::GrantWindow, 300)), "{causes:?}");
    assert!(causes.contains(&(Cause::Transmit, 1_000)), "{causes:?}");
}

#[test]
fn a_receiver_that_grants_to_others_first_has_chosen() {
    let mut writer = begun();
    writer.there(KB, 0, 1_000, 0);
    writer.of(60, SERVER, 5_000, EventKind::GrantSent, 9_999, 0);
    writer.at(SERVER, 41_300, EventKind::GrantSent, 1_880, 0).back(GRANT, 0, 41_300);
    writer.at(CLIENT, 41_600, EventKind::GrantReceived, 1_880, 0);
    writer.there(KB, 940, 41_600, 0).answered(41_900);
    let causes = writer.causes();
    assert!(causes.iter().any(|(cause, ns)| *cause == Cause::GrantChoice && *ns > 39_000), "{causes:?}");
}

#[test]
fn a_thread_that_does_not_run_is_not_a_thread_that_polls_too_seldom() {
    let mut writer = begun();
    let mut burst = |ns, kind, a| writer.of(0, SERVER, ns, kind, a, 0).0.last_mut().expect("one").3 = 0;
    burst(300, EventKind::BurstIn, 1);
    burst(9_000, EventKind::NotRunning, 7_000);
    burst(9_400, EventKind::BurstIn, 1);
    for (node, ns, kind) in [
        (CLIENT, 1_000, EventKind::PacketSent),
        (SWITCH, 1_100, EventKind::SwitchEntered),
        (SWITCH, 1_200, EventKind::SwitchLeft),
        (SERVER, 9_500, EventKind::PacketReceived),
    ] {
        writer.at(node, ns, kind, KB, 0);
    }
    writer.answered(9_500);
    let causes = writer.causes();
    assert!(causes.contains(&(Cause::NotRunning, 7_000)), "{causes:?}");
    assert!(causes.iter().any(|(cause, ns)| *cause == Cause::ReadGap && *ns > 1_000), "{causes:?}");
}

#[test]
fn the_sum_is_the_duration_whatever_the_traces_hold() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let words = [KB, GRANT, packet_word(0x12, 50), packet_word(DATA, 60), 0, u32::MAX];
    for round in 0..2_000 {
        let mut writer = Writer(Vec::new());
        for _ in 0..random(120) + 1 {
            let kind = EventKind::ALL[random(EventKind::ALL.len() as u64) as usize];
            let argument = |random: &mut dyn FnMut(u64) -> u64| match random(3) {
                0 => words[random(6) as usize],
                1 => random(4) as u32,
                _ => random(5_000) as u32,
            };
            let (a, b) = (argument(&mut random), [0, 940, 1_880, 77][random(4) as usize]);
            let (node, ns) = (random(3) as usize, random(4_000));
            writer.of(2 * random(3), node, ns, kind, a, b);
        }
        let Ok(model) = Model::new(writer.dumps()) else { continue };
        let explainer = Explainer::new(&model, [None, Some(RATE)][round % 2]);
        let mut path = Path::default();
        for rpc in &model.rpcs {
            if explainer.explain(rpc, &mut path) {
                let all = rpc.end.since(rpc.start).unwrap_or(0).max(0) as u64;
                assert_eq!(path.amounts.total(), all, "round {round}");
                let spans: u64 = path.spans.iter().map(|span| span.to_ns - span.from_ns).sum();
                assert_eq!(spans, all, "round {round}");
            }
        }
        let costs = crate::tail::Costs::of(&explainer, None);
        let tail = crate::tail::Tail::of(&explainer, &costs, &costs.costs, 50.0);
        assert!(tail.extra.total() <= tail.amounts.total());
    }
}
