//! What happens to a program's map when two cores run the program concurrently, compared with runs one after
//! the other.

use std::os::fd::AsFd;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use homa_bpf::map;
use homa_bpf::program::test_run;
use homa_steer::{CORE_NUMBERS, PolicyName};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::{Frame, LoadedProgram, any_frame, config};
use crate::config::SteerConfig;
use crate::state::{self, core_state, counter, shared_state, slot, u32_at, u64_at};

/// Whether two cores run concurrently or one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunOrder {
    InTurn,
    AtOnce,
}

/// Pins the calling thread to one core. Returns whether this succeeded.
fn stay_on(core: usize) -> bool {
    // SAFETY: the set consists of bits, for which zero bytes are valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the core's number is less than the number of bits of the set.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: the length is that of `set`, which outlives the call.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) == 0 }
}

/// Returns for each core the number of packets that it sent to each core since the counters were created.
fn given(at: &LoadedProgram) -> [Vec<u64>; 2] {
    let all = map::get(at.counters.as_fd(), 0).unwrap();
    let mut by_core = all.chunks_exact(counter::BYTES).map(|values| {
        let of = |core: usize| {
            u64_at(values, counter::KEPT + 8 * core) + u64_at(values, counter::HANDED + 8 * core)
        };
        (0..CORE_NUMBERS).map(of).collect::<Vec<_>>()
    });
    [by_core.next().unwrap(), by_core.next().unwrap()]
}

/// The result of a trial: for each core the number of packets that it sent to each core, and the final map.
struct Trial {
    given: [Vec<u64>; 2],
    state: Vec<u8>,
}

/// Waits until a counter has reached a value. No other process should run on the two cores, so this usually
/// spins.
fn await_count(counter: &AtomicUsize, count: usize) {
    let mut tries = 0_u32;
    while counter.load(SeqCst) < count {
        tries += 1;
        if tries.is_multiple_of(10_000) {
            thread::yield_now();
        }
        std::hint::spin_loop();
    }
}

/// Runs this many trials of a program with a fresh map: `frames[n]` on core `n`, the given number of times.
/// Calls `seen` with each trial.
fn trials(
    config: &SteerConfig,
    (frames, runs): ([&Frame; 2], u32),
    (count, order): (usize, RunOrder),
    mut seen: impl FnMut(Trial) + Send,
) -> Option<()> {
    let program = LoadedProgram::new(config)?;
    let fresh = state::initial(config);
    // The number of trials that the first core has prepared, that the second core has joined, and that both
    // have finished.
    let [made, come, done] = [const { AtomicUsize::new(0) }; 3];
    let run = |frame: &Frame| {
        // Separate test runs: the kernel waits for milliseconds before it repeats a test run on its own, so
        // the cores would never overlap.
        (0..runs).for_each(|_| assert!(test_run(program.program.as_fd(), &frame.bytes).is_ok()));
        done.fetch_add(1, SeqCst);
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(stay_on(1), "a thread can be kept on core 1");
            for trial in 1..=count {
                come.store(trial, SeqCst);
                await_count(&made, trial);
                if order == RunOrder::InTurn {
                    await_count(&done, 2 * trial - 1);
                }
                run(frames[1]);
            }
        });
        scope.spawn(|| {
            assert!(stay_on(0), "a thread can be kept on core 0");
            let mut before = given(&program);
            for trial in 1..=count {
                map::put(program.state.as_fd(), 0, &fresh).unwrap();
                await_count(&come, trial);
                made.store(trial, SeqCst);
                run(frames[0]);
                await_count(&done, 2 * trial);
                let after = given(&program);
                let since = |n: usize| {
                    let (after, before): (&Vec<u64>, &Vec<u64>) = (&after[n], &before[n]);
                    after.iter().zip(before).map(|(after, before)| after - before).collect()
                };
                let state = map::get(program.state.as_fd(), 0).unwrap();
                seen(Trial { given: [since(0), since(1)], state });
                before = after;
            }
        });
    });
    Some(())
}

/// Makes frames of two flows whose hashes select different cores, out of two.
fn two_flows() -> [Frame; 2] {
    let mut rng = Pcg64Mcg::seed_from_u64(11);
    let mut plain = |upper: bool| loop {
        let frame = any_frame(&mut rng);
        if frame.packet.homa.is_none() && (frame.packet.flow_hash >> 31 == 1) == upper {
            return frame;
        }
    };
    [plain(false), plain(true)]
}

/// Number of misrouted flows and packets, in trials with `sparse`.
#[derive(Debug, Default)]
struct Damage {
    trials: u32,
    /// Trials in which a core sent one flow to two cores, or two cores sent the same flow.
    split: u32,
    /// Packets that went to a core other than that of most of their flow's packets.
    astray: u64,
    /// Maximum of `astray` in a trial.
    astray_most: u64,
    /// Trials in which a flow has two slots at the end, or none.
    twice: u32,
    none: u32,
}

impl Damage {
    fn add(&mut self, flows: &[&Frame], trial: &Trial) {
        self.trials += 1;
        let mut astray = 0;
        for flow in flows {
            let of = |n: usize| flows.len() == 1 || flow.packet.flow_hash == flows[n].packet.flow_hash;
            let to: Vec<u64> = (0..CORE_NUMBERS)
                .map(|to| (0..2).filter(|&n| of(n)).map(|n| trial.given[n][to]).sum())
                .collect();
            astray += to.iter().sum::<u64>() - to.iter().max().unwrap();
            let slots = (shared_state::SLOTS..shared_state::CORE).step_by(slot::BYTES);
            let own =
                |&slot_at: &usize| u64_at(&trial.state, slot_at + slot::FLOW) as u32 == flow.packet.flow_hash;
            match slots.filter(own).count() {
                0 => self.none += 1,
                1 => {}
                _ => self.twice += 1,
            }
        }
        self.split += u32::from(astray > 0);
        self.astray += astray;
        self.astray_most = self.astray_most.max(astray);
    }
}

fn sparse_damage(frames: [&Frame; 2], count: usize, order: RunOrder) -> Option<Damage> {
    let config = config(PolicyName::Sparse, "0-1", 4);
    let same = frames[0].packet.flow_hash == frames[1].packet.flow_hash;
    let flows = if same { &frames[..1] } else { &frames[..] };
    let mut damage = Damage::default();
    trials(&config, (frames, 200), (count, order), |trial| damage.add(flows, &trial))?;
    Some(damage)
}

/// Returns the number of `gen2` trials in which each core had a batch at the end, and the number of those in
/// which both batches were on the same third core.
fn gen2_collisions(frames: [&Frame; 2], count: usize, order: RunOrder) -> Option<(usize, usize)> {
    let config = config(PolicyName::Gen2, "0-15", 4);
    let (mut both, mut same) = (0, 0);
    trials(&config, (frames, 16), (count, order), |trial| {
        // The last packet of a thread that lost its processor for a moment arrived alone.
        let [first, second] = [0, 1].map(|n| {
            u32_at(&trial.state, shared_state::CORE + n * core_state::BYTES + core_state::BATCH_CORE)
        });
        both += usize::from(first > 0 && second > 0);
        same += usize::from(first > 0 && first == second);
    })?;
    Some((both, same))
}

fn has_two_cores() -> bool {
    let two = thread::available_parallelism().is_ok_and(|cores| cores.get() >= 2);
    if !two {
        homa_testkit::skip("one core races with nobody");
    }
    two
}

#[test]
fn in_turn_each_flow_has_one_core_and_one_slot_and_two_batches_have_two_cores() {
    let [one, other] = two_flows();
    if !has_two_cores() {
        return;
    }
    for frames in [[&one, &one], [&one, &other]] {
        let Some(damage) = sparse_damage(frames, 20, RunOrder::InTurn) else { return };
        assert_eq!((damage.trials, damage.split, damage.twice, damage.none), (20, 0, 0, 0), "{damage:?}");
    }
    let Some((_, same)) = gen2_collisions([&one, &other], 20, RunOrder::InTurn) else { return };
    assert_eq!(same, 0);
}

#[test]
#[ignore = "prints how often two cores at once differ from two in turn: seconds in a release build"]
fn what_racing_cores_do_to_the_maps() {
    const TRIALS: usize = 20_000;
    let [one, other] = two_flows();
    if !has_two_cores() {
        return;
    }
    for (what, frames) in [("the same flow", [&one, &one]), ("a flow each", [&one, &other])] {
        for order in [RunOrder::InTurn, RunOrder::AtOnce] {
            let Some(damage) = sparse_damage(frames, TRIALS, order) else { return };
            println!("sparse, {what} on two cores, {order:?}: {damage:?}");
            // A core that loses a slot takes another with its next packet. If the core was preempted in
            // between, packets that the winner had already sent count as errors too, but that is rare.
            let most = if order == RunOrder::InTurn { 0 } else { 2 * u64::from(damage.split) };
            assert!(damage.astray <= most, "{damage:?}");
        }
    }
    for order in [RunOrder::InTurn, RunOrder::AtOnce] {
        let Some((both, same)) = gen2_collisions([&one, &other], TRIALS, order) else { return };
        println!("gen2, a batch on each of two cores, {order:?}: {same} of {both} on the same third one");
    }
}
