//! Tests of properties that every policy has for any input.

use homa_steer::batch::Batch;
use homa_steer::{
    CoreLoad, Cores, HomaPacket, Loads, POLICIES, Packet, PacketKind, PolicyName, Reason, Settings,
};
use proptest::prelude::*;

fn packets() -> impl Strategy<Value = Vec<Packet>> {
    let kind = prop_oneof![Just(PacketKind::Data), Just(PacketKind::Grant), Just(PacketKind::Control)];
    let homa = proptest::option::of((0..50_u64, kind, 0..3_000_u32));
    // There are few hashes, so that flows recur, but they spread over the whole range.
    let packet = (0..600_000_000_u64, 0..20_u16, 1..3_u32, 0..40_u32, homa, 0..5_u32, 1..4_u32);
    let packet = packet.prop_map(|(pause_ns, arrival, device, flow, homa, position, more)| Packet {
        now_ns: pause_ns,
        arrival,
        device,
        flow_hash: flow.wrapping_mul(0x9e37_79b1),
        homa: homa.map(|(rpc_id, kind, message_bytes)| HomaPacket { rpc_id, kind, message_bytes }),
        batch: Batch { position, size: position + more },
        ..Packet::default()
    });
    proptest::collection::vec(packet, 1..200).prop_map(|mut packets| {
        let mut now_ns = 0;
        for packet in &mut packets {
            now_ns += packet.now_ns;
            packet.now_ns = now_ns;
        }
        packets
    })
}

fn loads() -> impl Strategy<Value = Vec<CoreLoad>> {
    let load = (any::<u32>(), any::<u32>(), any::<u32>(), any::<bool>(), 0..40_u32, any::<u16>());
    let load = load.prop_map(|(received, processed, application, idle, waiting_packets, done)| CoreLoad {
        received_ns: received.into(),
        processed_ns: processed.into(),
        application_ns: application.into(),
        idle,
        waiting_packets,
        done_packets: done.into(),
        backlog_ns: u64::from(waiting_packets) * 500,
    });
    proptest::collection::vec(load, 0..24)
}

fn cores() -> impl Strategy<Value = Cores> {
    proptest::collection::btree_set(0..24_u16, 1..12).prop_map(|cores| Cores::new(cores).unwrap())
}

proptest! {
    #[test]
    fn a_policy_chooses_one_of_its_cores_or_leaves_the_packet_and_always_the_same(
        packets in packets(), loads in loads(), cores in cores(), levels in 1..=5_u32,
    ) {
        let settings = Settings { levels, rfs_entries: 16, ..Settings::default() };
        for entry in POLICIES {
            let mut policies = [(); 2].map(|()| entry.policy.build(&cores, &settings).unwrap());
            for packet in &packets {
                let [first, second] = policies.each_mut().map(|policy| {
                    policy.consumed(packet.flow_hash ^ 1, packet.arrival);
                    policy.choose(packet, Loads(&loads))
                });
                prop_assert_eq!(first, second, "{}", entry.name);
                let allowed = if first.reason == Reason::Stays {
                    first.core == packet.arrival
                } else {
                    cores.contains(first.core)
                };
                prop_assert!(allowed, "{}: {:?} for {:?} among {}", entry.name, first, packet, cores);
            }
        }
    }

    #[test]
    fn by_hash_a_flow_never_changes_its_core(packets in packets(), loads in loads(), cores in cores()) {
        let mut policy = PolicyName::RssHash.build(&cores, &Settings::default()).unwrap();
        let mut seen = std::collections::BTreeMap::new();
        for packet in &packets {
            let core = policy.choose(packet, Loads(&loads)).core;
            prop_assert_eq!(*seen.entry(packet.flow_hash).or_insert(core), core);
        }
    }

    #[test]
    fn sparse_moves_no_flow_that_keeps_sending(
        packets in packets(), cores in cores(), levels in 1..=5_u32,
    ) {
        let mut policy =
            PolicyName::Sparse.build(&cores, &Settings { levels, ..Settings::default() }).unwrap();
        let mut last = std::collections::BTreeMap::new();
        for packet in &packets {
            let choice = policy.choose(packet, Loads::default());
            let now_ns = packet.now_ns;
            let flow = (packet.device, packet.flow_hash);
            if let Some((seen_ns, before)) = last.insert(flow, (now_ns, choice))
                && before.reason != Reason::FlowHash
                && now_ns - seen_ns <= homa_steer::ACTIVE_NS
            {
                prop_assert_eq!((choice.core, choice.reason), (before.core, Reason::KnownFlow));
            }
        }
    }

    #[test]
    fn sparse_gives_no_core_a_second_flow_before_each_has_one(cores in cores(), levels in 1..=5_u32) {
        let mut policy =
            PolicyName::Sparse.build(&cores, &Settings { levels, ..Settings::default() }).unwrap();
        let mut counts = std::collections::BTreeMap::new();
        for flow in 0..cores.len() as u32 * levels {
            let packet = Packet { flow_hash: flow, ..Packet::default() };
            *counts.entry(policy.choose(&packet, Loads::default()).core).or_insert(0) += 1;
            let most = *counts.values().max().unwrap();
            prop_assert!(most <= flow / cores.len() as u32 + 1, "{:?}", counts);
        }
    }

    #[test]
    fn lists_of_cores_read_what_they_show(cores in cores()) {
        prop_assert_eq!(cores.to_string().parse::<Cores>(), Ok(cores));
    }
}
