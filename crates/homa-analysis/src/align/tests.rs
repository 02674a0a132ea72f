use super::*;
use homa_trace::{Clock, EventKind, Node, Place, Record, packet_word};
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// The true clock of a node: its time at the start, and by how many parts per million it runs fast.
#[derive(Clone, Copy, Debug)]
struct TrueClock {
    start_ns: i64,
    ppm: f64,
}

impl TrueClock {
    fn own(self, true_ns: i64) -> u64 {
        (self.start_ns + true_ns + (true_ns as f64 * self.ppm / 1e6).round() as i64) as u64
    }
}

/// Network delays in nanoseconds: a minimum, plus a random time with this mean.
#[derive(Clone, Copy, Debug)]
struct Delays {
    least: i64,
    mean: f64,
}

struct World {
    truths: Vec<TrueClock>,
    dumps: Vec<Dump>,
    random: Pcg64Mcg,
    next_id: u64,
}

impl World {
    fn new(truths: &[TrueClock]) -> World {
        let dump = |(index, truth): (usize, &TrueClock)| Dump {
            node: Node::host(format!("h{index}")),
            clock: Clock::Monotonic,
            frequency_hz: 1_000_000_000,
            calibration_span_ns: 0,
            start_time: truth.own(0),
            start_ns: truth.own(0),
            alignment: None,
            overwritten: 0,
            records: Vec::new(),
        };
        let dumps = truths.iter().enumerate().map(dump).collect();
        World { truths: truths.to_vec(), dumps, random: Pcg64Mcg::seed_from_u64(7), next_id: 2 }
    }

    fn record(&mut self, node: usize, true_ns: i64, kind: EventKind, id: u64) {
        let time = self.truths[node].own(true_ns);
        let record =
            Record { time, id, a: packet_word(0x10, 100), b: 0, kind: kind as u16, place: Place::default() };
        self.dumps[node].records.push(record);
    }

    /// Sends a packet and returns its arrival time.
    fn packet(&mut self, from: usize, to: usize, true_ns: i64, delays: Delays) -> i64 {
        let late = -self.random.random::<f64>().max(1e-9).ln() * delays.mean;
        let came = true_ns + delays.least + late as i64;
        let id = self.next_id;
        self.next_id += 2;
        self.record(from, true_ns, EventKind::PacketSent, id);
        self.record(to, came, EventKind::PacketReceived, id ^ 1);
        came
    }

    /// Sends this many packets between random nodes, spread over this time.
    fn traffic(&mut self, packets: usize, span_ns: i64, delays: Delays) {
        for _ in 0..packets {
            let from = self.random.random_range(0..self.truths.len());
            let to = (from + self.random.random_range(1..self.truths.len())) % self.truths.len();
            let at = self.random.random_range(0..span_ns);
            self.packet(from, to, at, delays);
        }
    }

    fn finish(mut self) -> (Vec<Dump>, Vec<TrueClock>) {
        for dump in &mut self.dumps {
            dump.records.sort_by_key(|record| record.time);
        }
        (self.dumps, self.truths)
    }
}

/// Returns the error of a node's aligned clock relative to the reference at this true time, in nanoseconds.
fn error(dumps: &[Dump], truths: &[TrueClock], clocks: &Clocks, node: usize, true_ns: i64) -> i64 {
    let reference = clocks.nodes[node].reference.expect("aligned");
    let mut dump = Dump { records: Vec::new(), ..dumps[node].clone() };
    dump.alignment = clocks.nodes[node].alignment;
    let record = Record { time: truths[node].own(true_ns), ..Record::default() };
    dump.time_ns(&record) as i64 - truths[reference].own(true_ns) as i64
}

const QUICK: Delays = Delays { least: 4_000, mean: 3_000.0 };
const SECOND: i64 = 1_000_000_000;

fn truth(start_ns: i64, ppm: f64) -> TrueClock {
    TrueClock { start_ns, ppm }
}

#[test]
fn planted_offsets_and_drifts_are_found_within_a_microsecond_and_a_part_per_million() {
    let truths = [
        truth(5_000 * SECOND, 0.0),
        truth(5_000 * SECOND + 123_456, 80.0),
        truth(90 * SECOND, -150.0),
        truth(400 * 86_400 * SECOND, 12.5),
        truth(5_000 * SECOND - 2_000_000, -0.7),
    ];
    let mut world = World::new(&truths);
    world.traffic(20_000, SECOND, QUICK);
    let (dumps, truths) = world.finish();
    let clocks = align(&dumps, AlignOptions::default());
    for (node, found) in clocks.nodes.iter().enumerate() {
        assert_eq!(found.reference, Some(0));
        for at in [0, SECOND / 2, SECOND] {
            let error = error(&dumps, &truths, &clocks, node, at);
            assert!(error.abs() < 100, "node {node} at {at}: {error} ns, {found:?}");
        }
        let ppm = truths[0].ppm - truths[node].ppm;
        assert!((found.drift_ppm - ppm).abs() < 0.2, "{found:?}");
        assert!(node == 0 || (found.bound_ns > 3_900.0 && found.bound_ns < 4_600.0), "{found:?}");
        assert!(found.likely_ns < 500.0 && (node == 0) == (found.likely_ns == 0.0), "{found:?}");
    }
    for pair in &clocks.pairs {
        let shortest = pair.shortest_ns.expect("both ways");
        assert!(shortest.iter().all(|ns| (3_800.0..4_500.0).contains(ns)), "{pair:?}");
    }
}

#[test]
fn nodes_that_never_met_are_aligned_by_those_between_them() {
    let truths: Vec<TrueClock> =
        (0..6).map(|node| truth(node * 77_777 + SECOND, 10.0 * node as f64)).collect();
    let mut world = World::new(&truths);
    for round in 0..2_000 {
        for node in 0..5 {
            let came = world.packet(node, node + 1, round * 500_000, QUICK);
            world.packet(node + 1, node, came + 1_000, QUICK);
        }
    }
    let (dumps, truths) = world.finish();
    let clocks = align(&dumps, AlignOptions { reference: Some(5), same_clock: false });
    for node in 0..6 {
        assert_eq!(clocks.nodes[node].reference, Some(5));
        let error = error(&dumps, &truths, &clocks, node, SECOND / 2);
        assert!(error.abs() < 200, "node {node}: {error} ns");
    }
    assert!(clocks.nodes[0].bound_ns > 4.0 * clocks.nodes[4].bound_ns, "uncertainty adds up");
}

#[test]
fn an_unequal_way_back_shifts_by_half_of_it_and_no_more_than_the_bound() {
    let truths = [truth(SECOND, 0.0), truth(3 * SECOND, 0.0)];
    let mut world = World::new(&truths);
    for round in 0..5_000 {
        world.packet(0, 1, round * 100_000, QUICK);
        world.packet(1, 0, round * 100_000, Delays { least: 24_000, mean: 3_000.0 });
    }
    let (dumps, truths) = world.finish();
    let clocks = align(&dumps, AlignOptions::default());
    let error = error(&dumps, &truths, &clocks, 1, SECOND / 4);
    assert!((9_900..10_100).contains(&error.abs()), "{error}");
    assert!((error.abs() as f64) < clocks.nodes[1].bound_ns, "{clocks:?}");
}

#[test]
fn a_switch_is_placed_between_the_hosts_and_does_not_move_them() {
    let truths = [truth(SECOND, 0.0), truth(3 * SECOND, 40.0), truth(2 * SECOND, -20.0)];
    let mut world = World::new(&truths);
    world.dumps[2].node = Node::switch("tor", ["a".into(), "b".into()]);
    // Packets of the first host take long to reach the switch, and those of the second host take long after
    // it. If these times were assumed equal, the two hosts' clocks would be moved apart.
    for round in 0..10_000 {
        for (from, to, entered, left) in [(0, 1, 3_000, 3_500), (1, 0, 500, 1_000)] {
            let at = round * 100_000 + i64::from(from as u8) * 50_000;
            let came = world.packet(from, to, at, QUICK);
            let id = world.next_id - 2;
            world.record(2, at + entered, EventKind::SwitchEntered, id);
            world.record(2, (at + left).min(came), EventKind::SwitchLeft, id);
        }
    }
    let (dumps, truths) = world.finish();
    let clocks = align(&dumps, AlignOptions::default());
    assert!(error(&dumps, &truths, &clocks, 1, SECOND / 2).abs() < 50);
    let switch = &clocks.nodes[2];
    assert!(
        error(&dumps, &truths, &clocks, 2, SECOND / 2).abs() as f64 <= switch.likely_ns + 1.0,
        "{switch:?}"
    );
    assert!((switch.drift_ppm - 20.0).abs() < 0.2, "{switch:?}");
    for pair in &clocks.pairs {
        let shortest = pair.shortest_ns.expect("both ways");
        assert!(shortest.iter().all(|ns| *ns >= -1.0), "{pair:?}");
    }
}

#[test]
fn who_has_no_packets_or_only_one_way_keeps_its_own_time() {
    let mut world =
        World::new(&[truth(SECOND, 0.0), truth(SECOND, 0.0), truth(SECOND, 0.0), truth(SECOND, 0.0)]);
    for round in 0..100 {
        world.packet(1, 2, round * 1_000, QUICK);
        world.packet(2, 1, round * 1_000, QUICK);
        world.packet(1, 3, round * 1_000, QUICK);
    }
    let (dumps, _) = world.finish();
    let clocks = align(&dumps, AlignOptions::default());
    let references: Vec<Option<usize>> = clocks.nodes.iter().map(|node| node.reference).collect();
    assert_eq!(references, [None, Some(1), Some(1), None]);
    assert_eq!(clocks.nodes[3].packets, 100);
    assert_eq!(clocks.pairs.iter().filter(|pair| pair.shortest_ns.is_none()).count(), 1);
    let clocks = align(&dumps, AlignOptions { reference: Some(0), same_clock: false });
    assert_eq!((clocks.nodes[0].reference, clocks.nodes[2].reference), (Some(0), Some(1)));
}

#[test]
fn a_clock_that_was_set_shows_as_packets_from_the_future() {
    let mut world = World::new(&[truth(SECOND, 0.0), truth(SECOND, 0.0)]);
    world.traffic(1_000, SECOND, QUICK);
    let (mut dumps, _) = world.finish();
    let half = dumps[1].records.len() / 2;
    dumps[1].records[half..].iter_mut().for_each(|record| record.time += 1_000_000);
    let clocks = align(&dumps, AlignOptions::default());
    let shortest = clocks.pairs[0].shortest_ns.expect("both ways");
    assert!(shortest.iter().any(|ns| *ns < -10_000.0), "{shortest:?}");
}

#[test]
fn the_machines_clock_is_taken_as_it_is_when_asked_for() {
    let mut world = World::new(&[truth(SECOND, 0.0), truth(SECOND + 9_000, 0.0)]);
    world.traffic(1_000, SECOND, QUICK);
    let (mut dumps, _) = world.finish();
    let clocks = align(&dumps, AlignOptions { reference: None, same_clock: true });
    assert!(clocks.nodes.iter().all(|node| node.alignment.is_some_and(|alignment| alignment.offset_ns == 0)));
    let shortest = clocks.pairs[0].shortest_ns.expect("both ways");
    assert!(shortest[0] > 12_000.0 && shortest[1] < 0.0, "the planted offset shows: {shortest:?}");
    apply(&clocks, &mut dumps);
    assert_eq!(dumps[0].time_ns(&dumps[0].records[0]), dumps[0].own_time_ns(&dumps[0].records[0]));
}

fn any_record() -> impl Strategy<Value = Record> {
    let times = prop_oneof![0..50_u64, any::<u64>()];
    let kinds = prop_oneof![Just(1_u16), Just(2), Just(9), Just(18), Just(21), Just(22), any::<u16>()];
    (times, 0..12_u64, 0..3_u32, kinds).prop_map(|(time, id, b, kind)| Record {
        time,
        id,
        a: packet_word(0x10, 1),
        b,
        kind,
        place: Place::default(),
    })
}

fn any_dump() -> impl Strategy<Value = Dump> {
    let clocks = prop_oneof![Just(Clock::Tsc), Just(Clock::Monotonic), Just(Clock::Virtual)];
    let moments = prop_oneof![0..5_u64, any::<u64>()];
    let starts = (moments.clone(), moments, prop_oneof![Just(1_000_000_000), any::<u64>()]);
    (clocks, starts, any::<bool>(), 0..2_u64, prop::collection::vec(any_record(), 0..40)).prop_map(
        |(clock, (start_time, start_ns, frequency_hz), switch, overwritten, records)| Dump {
            node: if switch { Node::switch("s", []) } else { Node::host("h") },
            clock,
            frequency_hz,
            calibration_span_ns: start_ns,
            start_time,
            start_ns,
            alignment: None,
            overwritten,
            records,
        },
    )
}

proptest! {
    #[test]
    fn no_dumps_make_it_panic(dumps in prop::collection::vec(any_dump(), 0..5), same_clock: bool, reference in 0..5_usize) {
        let reference = Some(reference).filter(|reference| *reference < dumps.len());
        let clocks = align(&dumps, AlignOptions { reference, same_clock });
        let mut dumps = dumps;
        apply(&clocks, &mut dumps);
        for dump in &dumps {
            dump.records.iter().for_each(|record| {
 let _ = dump.time_ns(record); });
        }
    }
}
