//! Compares the programs with the library: in the kernel's virtual machine they must select the same cores as
//! `homa-steer`.

mod costs;
mod racing;

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use homa_bpf::map::{self, MapKind};
use homa_bpf::program::{AttachPoint, load, test_run};
use homa_bpf::{Name, is_no_permission};
use homa_steer::batch::Arrivals;
use homa_steer::hash::{self, Flow};
use homa_steer::load::ObservedLoads;
use homa_steer::{Choice, Cores, HomaPacket, Packet, PacketKind, Policy, PolicyName, Settings};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::config::{Filter, IN_KERNEL, SteerConfig};
use crate::program::{self, test_io};
use crate::state::{self, shared_state, u32_at};

const NAME: Name = Name::new("homa_test");

/// Returns the value, or prints why the test is skipped.
fn allowed<T>(result: std::io::Result<T>) -> Option<T> {
    match result {
        Err(error) if is_no_permission(&error) => {
            homa_testkit::skip(format_args!("loading a program: {error}"));
            None
        }
        result => Some(result.unwrap()),
    }
}

/// The inputs of the program for a packet, in addition to the frame.
#[derive(Clone, Copy, Debug)]
struct PacketContext {
    now_ns: u64,
    /// The coarse clock at the same moment.
    tick_ns: u64,
    device: u32,
    arrival: u16,
    /// The flow's hash; `None`: use the hash of the frame.
    hash: Option<u32>,
}

/// A program that reads its inputs from a map.
struct KernelPolicy {
    program: OwnedFd,
    inputs: OwnedFd,
    /// Lives as long as the program, which only borrows its descriptor.
    _state: OwnedFd,
}

impl KernelPolicy {
    fn new(config: &SteerConfig) -> Option<KernelPolicy> {
        let state = allowed(map::create(MapKind::Array, NAME, shared_state::BYTES, 1))?;
        map::put(state.as_fd(), 0, &state::initial(config)).unwrap();
        let inputs = map::create(MapKind::Array, NAME, test_io::BYTES, 1).unwrap();
        let code = test_io::build(config, state.as_raw_fd(), inputs.as_raw_fd());
        let program = allowed(load(NAME, &code, AttachPoint::Device))?;
        Some(KernelPolicy { program, inputs, _state: state })
    }

    /// Returns the core, the reason and the hash; `None` if the frame is not steered.
    fn choose(&self, given: PacketContext, frame: &[u8]) -> Option<(u32, u32, u32)> {
        let mut bytes = [0; test_io::BYTES];
        bytes[test_io::NOW..][..8].copy_from_slice(&given.now_ns.to_ne_bytes());
        bytes[test_io::TICK..][..8].copy_from_slice(&given.tick_ns.to_ne_bytes());
        bytes[test_io::DEVICE..][..4].copy_from_slice(&given.device.to_ne_bytes());
        bytes[test_io::ARRIVAL..][..4].copy_from_slice(&u32::from(given.arrival).to_ne_bytes());
        bytes[test_io::HASH..][..4].copy_from_slice(&given.hash.unwrap_or(0).to_ne_bytes());
        bytes[test_io::IS_HASH..][..4].copy_from_slice(&u32::from(given.hash.is_some()).to_ne_bytes());
        bytes[test_io::CORE..][..4].copy_from_slice(&u32::MAX.to_ne_bytes());
        map::put(self.inputs.as_fd(), 0, &bytes).unwrap();
        test_run(self.program.as_fd(), frame).unwrap();
        let bytes = map::get(self.inputs.as_fd(), 0).unwrap();
        let [core, reason, hash] =
            [test_io::CORE, test_io::REASON, test_io::HASH].map(|at| u32_at(&bytes, at));
        (core != u32::MAX).then_some((core, reason, hash))
    }
}

/// A program as loaded for a device, with its maps. Its map of cores is empty.
struct LoadedProgram {
    program: OwnedFd,
    state: OwnedFd,
    counters: OwnedFd,
    _cores: OwnedFd,
}

impl LoadedProgram {
    fn new(config: &SteerConfig) -> Option<LoadedProgram> {
        let state = allowed(map::create(MapKind::Array, NAME, shared_state::BYTES, 1))?;
        let make = |kind, bytes, entries| map::create(kind, NAME, bytes, entries).unwrap();
        let counters = make(MapKind::ArrayPerCore, state::counter::BYTES, 1);
        let cores = make(MapKind::Cores, 8, 64);
        map::put(state.as_fd(), 0, &state::initial(config)).unwrap();
        let maps = program::Maps {
            state: state.as_raw_fd(),
            counters: counters.as_raw_fd(),
            cores: cores.as_raw_fd(),
        };
        let program = load(NAME, &program::build(config, maps), AttachPoint::Device).unwrap();
        Some(LoadedProgram { program, state, counters, _cores: cores })
    }
}

/// The library, given only the information that a program on a device has.
struct LibraryPolicy {
    policy: Box<dyn Policy>,
    arrivals: Arrivals,
    observed: ObservedLoads,
    has_batches: bool,
    /// Number of packets for which the exact time was read.
    asked: usize,
}

impl LibraryPolicy {
    fn new(config: &SteerConfig) -> LibraryPolicy {
        LibraryPolicy {
            policy: config.policy.build(&config.cores, &config.settings).unwrap(),
            arrivals: Arrivals::new(config.batching),
            observed: ObservedLoads::default(),
            has_batches: config.policy == PolicyName::Gen2,
            asked: 0,
        }
    }

    fn choose(&mut self, given: PacketContext, packet: Packet) -> Choice {
        let PacketContext { now_ns, tick_ns, device, arrival, hash } = given;
        let (batch, seen_ns) = self.arrivals.arrive(arrival, tick_ns, || {
            self.asked += 1;
            now_ns
        });
        // Only policies that detect batches use both clocks.
        let now_ns = if self.has_batches { seen_ns } else { now_ns };
        self.observed.note_arrival(arrival, now_ns);
        let flow_hash = hash.unwrap_or(packet.flow_hash);
        let packet = Packet { now_ns, device, arrival, flow_hash, batch, ..packet };
        let choice = self.policy.choose(&packet, self.observed.loads());
        self.observed.note_assignment(choice.core, now_ns);
        choice
    }
}

/// A frame, and the result of parsing it with the library.
#[derive(Clone, Debug)]
struct Frame {
    bytes: Vec<u8>,
    packet: Packet,
    /// Its protocol if the packet is complete and not fragmented, and whether it is Homa over UDP.
    protocol: u8,
    is_homa: bool,
}

const SEED: u32 = 0x1234_5678;
const HOMA_PORT: u16 = 4_000;

/// Generates Ethernet addresses, and the tags of up to two VLANs.
fn any_head(rng: &mut Pcg64Mcg) -> Vec<u8> {
    const TAGS: [&[u16]; 6] = [&[], &[], &[0x8100], &[0x88a8], &[0x88a8, 0x8100], &[0x8100, 0x8100]];
    let mut bytes = vec![2; 12];
    for kind in TAGS[rng.random_range(0..TAGS.len())] {
        bytes.extend(kind.to_be_bytes());
        bytes.extend(rng.random::<[u8; 2]>());
    }
    bytes
}

/// Creates a random IP frame of one of these protocols, with and without VLAN tags, options, fragments and
/// missing ends.
fn any_frame(rng: &mut Pcg64Mcg) -> Frame {
    let protocol = [6, 17, 146, 1, 47][rng.random_range(0..5)];
    let is_v4 = rng.random_bool(0.6);
    let port = |rng: &mut Pcg64Mcg| {
        if rng.random_bool(0.3) { HOMA_PORT } else { rng.random_range(1..5_000) }
    };
    let (ports, homa_ports) = ([port(rng), port(rng)], [rng.random(), rng.random()]);
    let rpc_id: u64 = if rng.random() { rng.random() } else { rng.random_range(0..200) };
    let (options, fragment) = (is_v4 && rng.random_bool(0.1), is_v4 && rng.random_bool(0.1));
    let mut bytes = any_head(rng);
    let (source, destination): (IpAddr, IpAddr) = if is_v4 {
        let (from, to): ([u8; 4], [u8; 4]) = (rng.random(), rng.random());
        let offset = if fragment { [0x20, 0x00] } else { [0x40, 0x00] };
        bytes.extend([8, 0, if options { 0x46 } else { 0x45 }, 0, 0, 0, 0, 0, offset[0], offset[1], 64]);
        bytes.extend([protocol, 0, 0]);
        bytes.extend(from.iter().chain(&to));
        bytes.extend(vec![1; if options { 4 } else { 0 }]);
        (from.into(), to.into())
    } else {
        let (from, to): ([u8; 16], [u8; 16]) = (rng.random(), rng.random());
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 40, protocol, 64]);
        bytes.extend(from.iter().chain(&to));
        (from.into(), to.into())
    };
    let behind_ip = bytes.len();
    if protocol != 146 {
        ports.iter().for_each(|port| bytes.extend(port.to_be_bytes()));
        bytes.extend([0; 4]);
    }
    let homa_at = bytes.len();
    homa_ports.iter().for_each(|port: &u16| bytes.extend(port.to_be_bytes()));
    bytes.extend([0; 16]);
    bytes.extend(rpc_id.to_be_bytes());
    if rng.random_bool(0.1) {
        bytes.truncate(rng.random_range(behind_ip..bytes.len()));
    }
    let is_plain = !options && !fragment;
    let has_ports = is_plain && matches!(protocol, 6 | 17) && bytes.len() >= behind_ip + 4;
    let over_udp = protocol == 17 && has_ports && ports.contains(&HOMA_PORT);
    let has_rpc = is_plain && (protocol == 146 || over_udp) && bytes.len() >= homa_at + 28;
    let flow = Flow { source, destination, protocol, ports: if has_ports { ports } else { [0; 2] } };
    let homa = has_rpc.then_some(HomaPacket { rpc_id, kind: PacketKind::Data, message_bytes: 0 });
    let ports = if has_rpc { homa_ports } else { flow.ports };
    let packet = Packet { flow_hash: flow.hash(SEED), source, ports, homa, ..Packet::default() };
    Frame { bytes, packet, protocol, is_homa: protocol == 146 || over_udp }
}

fn config(policy: PolicyName, cores: &str, levels: u32) -> SteerConfig {
    let settings = Settings { levels, hash_seed: SEED, ..Settings::default() };
    let cores: Cores = cores.parse().unwrap();
    SteerConfig { policy, cores, settings, homa_port: Some(HOMA_PORT), ..SteerConfig::default() }
}

/// Advances the time by plausible and implausible steps: bursts, pauses of microseconds and of a second, and
/// occasional steps back.
fn pass(now_ns: &mut u64, rng: &mut Pcg64Mcg) {
    let step = match rng.random_range(0..1_000) {
        0..600 => rng.random_range(0..1_500),
        600..900 => rng.random_range(0..20_000),
        900..985 => rng.random_range(0..3_000_000),
        985..990 => rng.random_range(0..1_200_000_000),
        990..992 => 1_000_000_000,
        992..994 => 1_000_000_001,
        994 => 5_000,
        _ => {
            *now_ns = now_ns.saturating_sub(rng.random_range(0..30_000));
            return;
        }
    };
    *now_ns += step;
}

/// Compares `packets` packets for each policy, divided among several core maps.
fn compare(packets: usize) {
    const CORES: [(&str, u32); 6] =
        [("0-1", 4), ("0", 4), ("2,4,7", 5), ("0-3", 1), ("0-15", 2), ("0-63", 5)];
    for policy in IN_KERNEL {
        let (mut compared, mut asked) = (0, 0);
        for (round, (cores, levels)) in CORES.into_iter().enumerate() {
            let config = config(policy, cores, levels);
            let (mut rng, mut now_ns) = (Pcg64Mcg::seed_from_u64(round as u64), 0);
            let Some(kernel) = KernelPolicy::new(&config) else { return };
            let mut library = LibraryPolicy::new(&config);
            let flows = config.cores.len() as u32 * levels;
            let plain = any_frame(&mut Pcg64Mcg::seed_from_u64(1));
            let mut arrival = 0;
            for i in 0..packets.div_ceil(CORES.len()) {
                pass(&mut now_ns, &mut rng);
                // Few flows at first, later more than there are slots.
                let most = if i / 1_000 % 2 == 0 { flows.div_ceil(2) } else { 2 * flows };
                let hash = rng.random_range(0..most).wrapping_mul(0x9e37_79b1);
                // Several packets arrive on one core before one arrives on another.
                if rng.random_bool(0.2) {
                    arrival = rng.random_range(0..config.cores.as_slice().last().unwrap() + 3);
                }
                let own = policy == PolicyName::HomaHash || rng.random_bool(0.05);
                let given = PacketContext {
                    now_ns,
                    // The coarse clock lags by a varying time, as if another core updated it.
                    tick_ns: (now_ns >> 20).saturating_sub(u64::from(rng.random_bool(0.001))),
                    device: rng.random_range(1..3),
                    arrival,
                    hash: (!own).then_some(hash),
                };
                let frame = if own { any_frame(&mut rng) } else { plain.clone() };
                let expected = library.choose(given, frame.packet);
                let expected = Some((u32::from(expected.core), expected.reason as u32));
                let got = kernel.choose(given, &frame.bytes).map(|(core, reason, _)| (core, reason));
                assert_eq!(
                    got, expected,
                    "{policy}, cores {cores}: packet {i} of seed {round}, {given:?} {frame:?}"
                );
                compared += 1;
            }
            asked += library.asked;
        }
        println!(
            "{policy}: {compared} packets, no difference; the exact time of {asked} was asked for, where it matters"
        );
        assert!(asked < compared * 4 / 5, "{policy}: too few of them come without a pause");
    }
}

#[test]
fn programs_choose_what_the_library_does() {
    compare(50_000);
}

#[test]
#[ignore = "the same for a million packets of each policy: a minute in a release build"]
fn programs_choose_what_the_library_does_a_million_times() {
    compare(1_000_000);
}

#[test]
fn hashes_of_frames_are_those_of_the_library() {
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    for policy in [PolicyName::RssHash, PolicyName::HomaHash] {
        let Some(kernel) = KernelPolicy::new(&config(policy, "0-63", 4)) else { return };
        for _ in 0..5_000 {
            let frame = any_frame(&mut rng);
            let given = PacketContext { now_ns: 1, tick_ns: 1, device: 1, arrival: 0, hash: None };
            let (_, _, got) = kernel.choose(given, &frame.bytes).expect("all of IP is steered");
            let expected = match frame.packet.homa.filter(|_| policy == PolicyName::HomaHash) {
                Some(homa) => hash::rpc_hash(SEED, frame.packet.ports, homa.rpc_id),
                None => frame.packet.flow_hash,
            };
            assert_eq!(got, expected, "{policy}: {frame:?}");
        }
    }
}

#[test]
fn a_filter_admits_what_it_names_and_nothing_else() {
    let mut rng = Pcg64Mcg::seed_from_u64(8);
    for (policy, bits) in IN_KERNEL.into_iter().flat_map(|policy| (1..16).map(move |bits| (policy, bits))) {
        let filter = Filter::of_bits(bits);
        let Some(kernel) = KernelPolicy::new(&SteerConfig { filter, ..config(policy, "0-1", 4) }) else {
            return;
        };
        for _ in 0..200 {
            let frame = any_frame(&mut rng);
            let admitted = filter.all
                || filter.homa && frame.is_homa
                || filter.tcp && frame.protocol == 6
                || filter.udp && frame.protocol == 17;
            let given = PacketContext { now_ns: 1, tick_ns: 1, device: 1, arrival: 0, hash: None };
            let got = kernel.choose(given, &frame.bytes).is_some();
            assert_eq!(got, admitted, "{policy} {filter:?}: {frame:?}");
        }
    }
}

#[test]
fn what_is_not_of_ip_is_not_steered() {
    let Some(kernel) = KernelPolicy::new(&config(PolicyName::RssHash, "0-1", 4)) else { return };
    let given = PacketContext { now_ns: 1, tick_ns: 1, device: 1, arrival: 0, hash: None };
    let ipv4 = [&[8, 0, 0x45][..], &[0; 8], &[6], &[1; 10], &[2; 20]].concat();
    let tag = [0x81, 0, 0, 7];
    for tags in 0..4 {
        let head = [&[2; 12], &tag.repeat(tags)[..]].concat();
        let frame = [&head[..], &ipv4].concat();
        // Headers after a third tag are not parsed.
        assert_eq!(kernel.choose(given, &frame).is_some(), tags < 3, "{tags}");
        for (at, byte) in [(0, 0x82), (1, 0x06), (2, 0x75)] {
            let mut other = frame.clone();
            other[head.len() + at] = byte;
            assert!(kernel.choose(given, &other).is_none(), "{tags} {at}");
        }
        for length in 14..head.len() + 22 {
            assert!(kernel.choose(given, &frame[..length]).is_none(), "{tags} {length}");
        }
    }
}
