//! Tests that no answer panics, whatever a dump contains.

use homa_trace::{Clock, Dump, EventKind, Node, Place, Trace, packet_word};
use proptest::prelude::*;

use super::*;
use crate::link::LinkRate;
use crate::model::Model;

fn event() -> impl Strategy<Value = (u64, u64, usize, u8, u32, u32, (u16, u16, u16))> {
    let time = prop_oneof![4 => 0..100_000_u64, 1 => any::<u64>()];
    let number = || prop_oneof![3 => 0..4_000_u32, 1 => any::<u32>()];
    let place = (0..3_u16, 0..2_000_u16, 0..3_u16);
    (time, 0..8_u64, 0..EventKind::ALL.len(), 0x0f..0x1a_u8, number(), number(), place)
}

fn dumps() -> impl Strategy<Value = Vec<Dump>> {
    let node = (prop::bool::ANY, prop::collection::vec(event(), 0..60));
    prop::collection::vec(node, 1..4).prop_map(|nodes| nodes.into_iter().map(dump).collect())
}

type Event = (u64, u64, usize, u8, u32, u32, (u16, u16, u16));

fn dump((is_switch, events): (bool, Vec<Event>)) -> Dump {
    let mut trace = Trace::new(64, Clock::Virtual);
    for (time, id, kind, packet_type, a, b, (x, y, z)) in events {
        trace.set_virtual_now(time);
        let a = if a < 4_000 { packet_word(packet_type, a) } else { a };
        let place = match is_switch {
            true => Place::in_switch(x, y, z),
            false => Place::at_host(x, y as u8, (y >> 8) as u8, z),
        };
        trace.record_at(EventKind::ALL[kind], id, a, b, place);
    }
    trace.dump(if is_switch { Node::switch("s", []) } else { Node::host("h") })
}

proptest! {
    #[test]
    fn no_answer_panics(dumps in dumps(), from_ns in any::<u64>(), until_ns in any::<Option<u64>>(), all in any::<bool>()) {
        let Ok(model) = Model::new(dumps) else { return Ok(()) };
        let select = if all { Select::default() } else { Select { nodes: vec![0], from_ns, until_ns } };
        let rate = LinkRate::of(&model, None, None);
        let given = LinkRate::of(&model, Some(1_000_000_000), None).expect("given");
        let found = decompose(&model, &select, rate.unwrap_or(given), 5);
        prop_assert!(found.is_none_or(|found| found.unequal == 0));
        let _ = (delays(&model, &select, true), throughput(&model, &select, 1_000), lost(&model, &select));
        let _ = (priorities(&model, &select), incoming(&model, &select, rate));
        let _ = (grants(&model, &select, Some(given), 1_000), polls(&model, &select), pacer(&model, &select));
        let _ = (cores(&model, &select), copy(&model, &select), first_grant(&model, &select));
        let _ = rtt_bytes(&model, &select, given);
    }
}
