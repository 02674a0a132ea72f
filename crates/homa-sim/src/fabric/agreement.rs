//! The simulated switch and the software switch (`homa-switch`) treat the same arrivals alike: the same
//! packets are dropped and marked, and the others leave at the same times in the same order.

use homa_egress::{Alpha, Buffer, Forwarding, QUEUE_ALPHA};
use homa_proto::Time;
use homa_switch::{FrameHeader, Packets as FramePackets, Switch};
use proptest::prelude::*;

use super::{Event, Fabric, FabricConfig, SwitchConfig, World};
use crate::fault::FaultProfile;
use crate::link::{Discipline, LinkConfig};
use crate::packet::PacketInfo;
use crate::topology::Topology;

const PORTS: usize = 3;

/// A network of packets without contents.
struct Bare;

impl World for Bare {
    type Body = Vec<u8>;
    type HostEvent = ();
    type Shared = ();
}

/// A packet that arrives at the queue of a port.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    /// Time since the previous arrival.
    gap_ns: u64,
    port: usize,
    bytes: u32,
    priority: u8,
}

/// The configuration that both switches have.
#[derive(Clone, Copy, Debug)]
struct Common {
    rate_bps: u64,
    overhead_bytes: u32,
    buffer: Buffer,
    mark_bytes: Option<u64>,
    priorities: usize,
}

/// The treatment of the packets, each identified by its number.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    dropped: Vec<u32>,
    marked: Vec<u32>,
    /// Time, port and number of each packet that left, in order.
    left: Vec<(u64, usize, u32)>,
}

/// Runs the simulated switch. Its buffer holds all bytes on the link, including `overhead_bytes` per packet.
fn simulated(common: Common, arrivals: &[Arrival]) -> Outcome {
    let config = FabricConfig {
        seed: 1,
        hosts: PORTS,
        topology: Topology::Switch { delay_ns: 0 },
        link: LinkConfig {
            rate_bps: common.rate_bps,
            propagation_ns: 0,
            queue_bytes: 0,
            overhead_bytes: common.overhead_bytes,
        },
        switch: SwitchConfig {
            discipline: Discipline::Strict,
            priorities: common.priorities,
            buffer: Some(common.buffer),
            mark_bytes: common.mark_bytes,
            forwarding: Forwarding::StoreAndForward,
            queue_alpha: Some(QUEUE_ALPHA),
        },
        nic: Discipline::Fifo,
        nic_queue_bytes: 0,
        send_delay_ns: 0,
        receive_delay_ns: 0,
        faults: FaultProfile::default(),
        capture: false,
    };
    let mut fabric: Fabric<Bare> = Fabric::new(&config, ());
    let mut outcome = Outcome::default();
    let run_until = |fabric: &mut Fabric<Bare>, outcome: &mut Outcome, until: Time| {
        while fabric.queue.next_at().is_some_and(|at| at <= until) {
            let Some((at, event)) = fabric.queue.pop() else { break };
            fabric.now = at;
            match event {
                Event::PortFree { port } => fabric.port_free(port),
                Event::Deliver { packet } => {
                    let info = fabric.packets.get(packet).info;
                    outcome.left.push((at.as_ns(), info.to as usize, info.flow));
                    fabric.packets.release(packet);
                }
                Event::Forward { .. } | Event::Host(()) => unreachable!("nothing else is scheduled"),
            }
        }
        fabric.now = until;
    };
    let mut now = Time::ZERO;
    for (number, arrival) in (0..).zip(arrivals) {
        now = now + arrival.gap_ns;
        run_until(&mut fabric, &mut outcome, now);
        let packet = fabric.packets.take();
        fabric.packets.get_mut(packet).info = PacketInfo {
            to: arrival.port as u32,
            wire_len: arrival.bytes,
            priority: arrival.priority,
            flow: number,
            ..PacketInfo::default()
        };
        let dropped = fabric.stats.overflowed;
        fabric.enqueue(packet, (PORTS + arrival.port) as u32);
        if fabric.stats.overflowed > dropped {
            outcome.dropped.push(number);
        } else if fabric.packets.get(packet).info.marked {
            outcome.marked.push(number);
        }
    }
    run_until(&mut fabric, &mut outcome, Time::from_ns(u64::MAX / 2));
    outcome
}

/// Runs the software switch, whose frames have the overhead of the simulator's links.
fn real(common: Common, arrivals: &[Arrival]) -> Outcome {
    let config = homa_switch::SwitchConfig {
        rate_bps: Some(common.rate_bps),
        overhead_bytes: 0,
        buffer: common.buffer,
        mark_bytes: common.mark_bytes,
        priorities: common.priorities,
        ..homa_switch::SwitchConfig::default()
    };
    let mut switch: Switch<(usize, u32)> = Switch::new(config, PORTS, 0).expect("a valid configuration");
    let mut outcome = Outcome::default();
    let run_until = |switch: &mut Switch<(usize, u32)>, outcome: &mut Outcome, until_ns: u64| {
        while let Some(at) = switch.poll_timeout().filter(|&at| at <= until_ns) {
            for port in 0..PORTS {
                while let Some((port, number)) = switch.poll(at, port) {
                    outcome.left.push((at, port, number));
                }
            }
        }
    };
    let mut now_ns = 0;
    for (number, arrival) in (0..).zip(arrivals) {
        now_ns += arrival.gap_ns;
        run_until(&mut switch, &mut outcome, now_ns);
        let head = FrameHeader { to: [2; 6], from: [4; 6], priority: arrival.priority, may_be_marked: true };
        let bytes = (arrival.bytes + common.overhead_bytes) as usize;
        match switch.admit(now_ns, arrival.port, &head, bytes, &FramePackets::default()) {
            Err(_) => outcome.dropped.push(number),
            Ok(admission) => {
                if admission.mark {
                    outcome.marked.push(number);
                }
                switch.push(now_ns, now_ns, admission, (arrival.port, number));
                // An idle link takes the frame at once.
                assert_eq!(switch.poll(now_ns, arrival.port), None, "no frame crosses the link in no time");
            }
        }
    }
    run_until(&mut switch, &mut outcome, u64::MAX / 2);
    outcome
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    // Mostly bursts, so that queues fill, and a few pauses in which they drain.
    let gap_ns = prop_oneof![4 => 0u64..400, 1 => 0u64..20_000];
    let bytes = prop_oneof![1u32..200, 1_000u32..=1_460, Just(9_000)];
    let arrival = (gap_ns, 0..PORTS, bytes, 0u8..8).prop_map(|(gap_ns, port, bytes, priority)| Arrival {
        gap_ns,
        port,
        bytes,
        priority,
    });
    prop::collection::vec(arrival, 1..300)
}

fn common() -> impl Strategy<Value = Common> {
    let buffer = prop_oneof![
        (1_522u64..60_000).prop_map(|bytes| Buffer::PerPort { bytes }),
        (1_522u64..60_000, 1u32..=800)
            .prop_map(|(bytes, percent)| Buffer::Shared { bytes, alpha: Alpha::from_percent(percent) }),
    ];
    // At these rates a byte takes a whole number of nanoseconds: the simulator rounds the start of a packet
    // that arrives within a nanosecond after its predecessor.
    let rate_bps = prop_oneof![Just(8_000_000_000u64), Just(4_000_000_000), Just(1_000_000_000)];
    (rate_bps, 0u32..=66, buffer, prop::option::of(0u64..30_000), 1usize..=8).prop_map(
        |(rate_bps, overhead_bytes, buffer, mark_bytes, priorities)| Common {
            rate_bps,
            overhead_bytes,
            buffer,
            mark_bytes,
            priorities,
        },
    )
}

proptest! {
    #[test]
    fn both_switches_drop_mark_and_send_the_same(common in common(), arrivals in arrivals()) {
        let (mut simulated, mut real) = (simulated(common, &arrivals), real(common, &arrivals));
        // Ports are independent: of departures at the same moment, only those of one port have an order.
        simulated.left.sort_by_key(|&(at, port, _)| (at, port));
        real.left.sort_by_key(|&(at, port, _)| (at, port));
        prop_assert_eq!(simulated, real);
    }
}
