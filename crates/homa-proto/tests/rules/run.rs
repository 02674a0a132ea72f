//! Runs: sending or receiving several packets at once has the same result as sending or receiving them one by
//! one.

use homa_proto::{CallOptions, Config, RpcKey, RxPacket, Time, Transmit};
use proptest::prelude::*;

use super::kit::{Forger, PORT, Side, addr, ours, pair};

/// Returns a caller's complete view of an endpoint, except times in its traces.
fn seen(side: &mut Side) -> String {
    side.endpoint.check();
    let stats = format!("{:?}", side.stats());
    format!("{stats} {:?} {:?} {:?}", side.endpoint.poll_timeout(), side.events(), side.sink.writes)
}

fn packet_of(transmit: &Transmit) -> String {
    let Transmit { to, priority, bundle, header, payload } = transmit;
    format!("{to} {priority} {bundle:?} {header:?} {payload:?}")
}

/// An operation on both endpoints.
#[derive(Clone, Debug)]
enum Step {
    Call {
        to: u8,
        length: u32,
    },
    Grant {
        call: usize,
        offset: u32,
        priority: u8,
    },
    Resend {
        call: usize,
        offset: u32,
        length: u32,
    },
    /// The peer's response arrives, so that an acknowledgement waits for the next packet to that peer.
    Answer {
        call: usize,
    },
    Pass {
        ns: u64,
    },
    Send {
        packets: u32,
        bytes: u32,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (2u8..4, 1u32..120_000).prop_map(|(to, length)| Step::Call { to, length }),
        3 => (any::<prop::sample::Index>(), 0u32..120_000, 0u8..8)
            .prop_map(|(call, offset, priority)| Step::Grant { call: call.index(64), offset, priority }),
        2 => (any::<prop::sample::Index>(), 0u32..6_000, 1u32..9_000)
            .prop_map(|(call, offset, length)| Step::Resend { call: call.index(64), offset, length }),
        1 => any::<prop::sample::Index>().prop_map(|call| Step::Answer { call: call.index(64) }),
        2 => (0u64..400_000).prop_map(|ns| Step::Pass { ns }),
        2 => (1u32..4).prop_map(|packets| Step::Send { packets, bytes: u32::MAX }),
        6 => (1u32..50, 0u32..80_000).prop_map(|(packets, bytes)| Step::Send { packets, bytes }),
    ];
    prop::collection::vec(step, 1..60)
}

fn config() -> impl Strategy<Value = Config> {
    let link = prop_oneof![Just(None), Just(Some(10_000)), Just(Some(1_000))];
    let fifo = prop_oneof![Just(0), Just(50), Just(400)];
    // Some messages fill their packets exactly, so that no packet is shorter.
    let unscheduled = prop_oneof![Just(1_424), Just(2 * 1_424), Just(3_000), 1_000u32..60_000];
    (link, fifo, unscheduled).prop_map(|(link_mbps, pacer_fifo_fraction, unsched_bytes)| Config {
        link_mbps,
        pacer_fifo_fraction,
        unsched_bytes,
        incarnation: 7,
        ..Config::default()
    })
}

/// A client and its calls.
struct Caller {
    side: Side,
    calls: Vec<(u8, RpcKey)>,
}

impl Caller {
    fn new(config: Config) -> Caller {
        Caller { side: Side::new(1, config), calls: Vec::new() }
    }

    fn apply(&mut self, step: &Step) {
        let call = |calls: &[(u8, RpcKey)], index: usize| calls.get(index % calls.len().max(1)).copied();
        match *step {
            Step::Call { to, length } => self.calls.push((to, self.side.call(addr(to), length))),
            Step::Grant { call: index, offset, priority } => {
                self.hear(call(&self.calls, index), |peer, id| peer.grant(id, offset, priority));
            }
            Step::Resend { call: index, offset, length } => {
                self.hear(call(&self.calls, index), |peer, id| peer.resend(id, offset, Some(length)));
            }
            Step::Answer { call: index } => {
                self.hear(call(&self.calls, index), |peer, id| peer.whole(id, 10));
            }
            Step::Pass { ns } => {
                self.side.now = self.side.now + ns;
                if self.side.endpoint.poll_timeout().is_some_and(|at| at <= self.side.now) {
                    self.side.endpoint.handle_timeout(self.side.now);
                }
            }
            Step::Send { .. } => {}
        }
    }

    fn hear(
        &mut self,
        call: Option<(u8, RpcKey)>,
        packet: impl FnOnce(Forger, u64) -> homa_proto::wire::Packet,
    ) {
        let Some((to, rpc)) = call else { return };
        let Some(id) = self.side.endpoint.rpc_id(rpc) else { return };
        let server = ours(to, 1).server(self.side.client_port);
        self.side.hear(addr(to), &packet(server, id | 1));
    }
}

proptest! {
    #[test]
    fn a_run_is_what_as_many_calls_for_one_packet_give(config in config(), steps in steps()) {
        let (mut by_run, mut by_packet) = (Caller::new(config.clone()), Caller::new(config));
        for step in &steps {
            by_run.apply(step);
            by_packet.apply(step);
            let Step::Send { packets, bytes } = *step else { continue };
            let now = by_run.side.now;
            let Some(run) = by_run.side.endpoint.poll_transmit_run(now, packets, bytes) else {
                let single = by_packet.side.endpoint.poll_transmit(now);
                prop_assert!(single.is_none(), "{:?}", single);
                prop_assert_eq!(seen(&mut by_run.side), seen(&mut by_packet.side));
                continue;
            };
            prop_assert!(run.packets() == 1 || run.packets() <= packets && run.bytes() <= bytes);
            for index in 0..run.packets() {
                let single = by_packet.side.endpoint.poll_transmit(now);
                let (of_run, single) = (run.packet(index).as_ref().map(packet_of), single.as_ref().map(packet_of));
                prop_assert_eq!(of_run, single, "packet {} of {}", index, run.packets());
            }
            prop_assert!(run.packet(run.packets()).is_none());
            prop_assert_eq!(seen(&mut by_run.side), seen(&mut by_packet.side));
        }
    }

    /// One side also receives invalid packets in between, which end every run.
    #[test]
    fn packets_of_a_run_that_come_together_do_what_they_do_alone(
        length in 5_000u32..60_000,
        readable_step in prop_oneof![Just(0u32), Just(3_000)],
        order in prop::collection::vec((0usize..40, 1usize..30), 1..12),
        unscheduled in 1_000u32..60_000,
    ) {
        let config = Config { incarnation: 3, request_readable_step: readable_step, ..Config::default() };
        let (mut together, mut alone) = (Side::new(2, config.clone()), Side::new(2, config));
        let client = ours(1, 9);
        let packets: Vec<Vec<u8>> = (0..length)
            .step_by(1_424)
            .map(|at| {
                let len = 1_424.min(length - at);
                let data = client.data(1_000, length, unscheduled, (at, len));
                let header = homa_proto::wire::encode(&data.common, &data.body);
                [&header[..], &vec![at as u8; len as usize]].concat()
            })
            .collect();
        for (first, count) in order {
            let burst: Vec<_> = packets.iter().cycle().skip(first).take(count).collect();
            let packet = |bytes| RxPacket::new(client.addr, bytes);
            let (now, sink) = (together.now, &mut together.sink);
            together.endpoint.handle_packets(now, burst.iter().map(|bytes| packet(bytes)), sink);
            let apart = burst.iter().flat_map(|bytes| [packet(bytes), packet(&[])]);
            alone.endpoint.handle_packets(now, apart, &mut alone.sink);
            let invalid = alone.stats().drop_invalid;
            prop_assert_eq!(invalid, alone.stats().packets_received - together.stats().packets_received);
            let said = |side: &mut Side| format!("{:?}", side.take());
            prop_assert_eq!(said(&mut together), said(&mut alone));
            prop_assert_eq!(format!("{:?}", together.events()), format!("{:?}", alone.events()));
            prop_assert_eq!(&together.sink.writes, &alone.sink.writes);
            let left = |side: &Side| {
                let stats = side.stats();
                let counts = (stats.data_received, stats.data_bytes_received, stats.drop_duplicate, stats.grants_sent);
                (counts, side.endpoint.poll_timeout(), side.endpoint.granted_bytes())
            };
            prop_assert_eq!(left(&together), left(&alone));
            together.endpoint.check();
            alone.endpoint.check();
            together.now = together.now + 10_000;
            alone.now = together.now;
        }
    }
}

#[test]
fn a_large_message_goes_in_runs_of_as_many_packets_as_are_asked_for() {
    let mut client = Side::new(1, Config { unsched_bytes: 50_000, ..Config::default() });
    client.call(addr(2), 100_000);
    let mut run = |packets, bytes| {
        let now = client.now;
        let run = client.endpoint.poll_transmit_run(now, packets, bytes).expect("something to send");
        (run.packets(), run.payload().expect("DATA").offset, run.bytes() - 56 * run.packets())
    };
    assert_eq!(run(10, u32::MAX), (10, 0, 14_240));
    assert_eq!(run(10, 3 * 1_480 + 1), (3, 14_240, 4_272), "no more than the bytes allow");
    assert_eq!(run(10, 0), (1, 18_512, 1_424), "but always one");
    assert_eq!(
        run(u32::MAX, u32::MAX),
        (22, 19_936, 30_064),
        "the last is shorter, where the unscheduled bytes end"
    );
}

#[test]
fn what_a_driver_did_not_take_of_a_run_is_a_run() {
    let (mut client, _) = pair(Config { unsched_bytes: 10_000, ..Config::default() });
    let options = CallOptions::default();
    client
        .endpoint
        .send_request(Time::ZERO, client.client_port, addr(2), PORT, 10_000, options)
        .expect("room");
    let run = client.endpoint.poll_transmit_run(client.now, 64, 1 << 16).expect("something to send");
    assert_eq!(run.packets(), 8);
    for taken in 0..8 {
        let left = run.skip(taken).expect("some are left");
        assert_eq!(left.packets(), 8 - taken);
        for index in 0..left.packets() {
            let (packet, same) =
                (left.packet(index).expect("there"), run.packet(taken + index).expect("there"));
            assert_eq!(packet_of(&packet), packet_of(&same));
        }
    }
    assert!(run.skip(8).is_none());
}
