//! The cost of a decision: in consecutive test runs, and for packets of a veth.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;

use homa_bpf::assembler::Assembler;
use homa_bpf::assembler::Register::{R0, R6};
use homa_bpf::link::Place;
use homa_bpf::program::{AttachPoint, enable_statistics, info, load, test_run_times};
use homa_bpf::xdp::XDP_PASS;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::{KernelPolicy, LoadedProgram, NAME, any_frame, config};
use crate::config::{IN_KERNEL, SteerConfig};
use crate::{AttachLifetime, attach, device};

/// Kernel helpers whose cost is measured separately: none, the clock in ticks, the clock in nanoseconds.
const CLOCKS: [(&str, Option<u32>); 3] =
    [("nothing", None), ("a coarse clock", Some(160)), ("a clock", Some(5))];

/// Builds a program that passes every frame after calling only this helper.
fn pass(helper: Option<u32>) -> Vec<homa_bpf::assembler::Instruction> {
    let mut program = Assembler::default();
    if let Some(helper) = helper {
        program.call(helper);
        program.copy(R6, R0);
    }
    program.set(R0, XDP_PASS);
    program.exit();
    program.finish()
}

#[test]
#[ignore = "prints times, which depend on the machine"]
fn what_a_decision_costs() {
    let frame = any_frame(&mut Pcg64Mcg::seed_from_u64(1));
    let time = |program: std::os::fd::BorrowedFd<'_>| {
        // The fastest of several runs is the least disturbed one.
        (0..5).map(|_| test_run_times(program, &frame.bytes, 1_000_000).unwrap().1).min().unwrap()
    };
    for (what, helper) in CLOCKS {
        let Some(program) = super::allowed(load(NAME, &pass(helper), AttachPoint::Device)) else { return };
        println!("{what}: {} ns", time(program.as_fd()));
    }
    for policy in IN_KERNEL {
        for (cores, levels) in [("0-1", 4), ("0-15", 4), ("0-63", 5)] {
            let config = config(policy, cores, levels);
            let Some(given) = KernelPolicy::new(&config) else { return };
            let whole = LoadedProgram::new(&config).expect("maps can be made by now");
            println!(
                "{policy}, cores {cores}, {levels} levels: {} ns to decide, {} ns with clock, counters and the map of cores",
                time(given.program.as_fd()),
                time(whole.program.as_fd())
            );
        }
    }
}

/// Moves this thread into a network namespace with a veth pair, in which `a1` receives packets sent to
/// 10.77.0.2.
fn in_namespace() -> Option<()> {
    // SAFETY: the call takes a number and no pointer.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        homa_testkit::skip(format_args!("a network namespace: {}", std::io::Error::last_os_error()));
        return None;
    }
    for words in [
        "link add a0 type veth peer name a1",
        "addr add 10.77.0.1/24 dev a0",
        "link set a0 up",
        "link set a1 up",
        // No socket receives the packets: the kernel drops them after the program has run.
        "neigh add 10.77.0.2 lladdr 02:00:00:00:00:02 dev a0",
    ] {
        let done = Command::new("ip").args(words.split(' ')).status();
        if !done.is_ok_and(|status| status.success()) {
            homa_testkit::skip(format_args!("ip {words}"));
            return None;
        }
    }
    Some(())
}

/// Sends this many packets of four flows to the veth.
fn send(packets: u32) {
    let sockets: Vec<UdpSocket> =
        (0..4).map(|_| UdpSocket::bind((Ipv4Addr::new(10, 77, 0, 1), 0)).unwrap()).collect();
    for i in 0..packets as usize {
        // A full queue does not matter here.
        let _ = sockets[i % sockets.len()].send_to(&[0; 100], (Ipv4Addr::new(10, 77, 0, 2), 9));
    }
}

/// Returns the mean cost in nanoseconds that the kernel measured while packets arrived (BPF run statistics).
fn measured(packets: u32) -> f64 {
    let ours = device::attached(&device::find("a1").unwrap()).unwrap().expect("it was attached");
    let program = homa_bpf::program::with_id(ours.id).unwrap();
    let _statistics = enable_statistics().unwrap();
    let before = info(program.as_fd()).unwrap();
    send(packets);
    let after = info(program.as_fd()).unwrap();
    (after.run_ns - before.run_ns) as f64 / (after.runs - before.runs).max(1) as f64
}

#[test]
#[ignore = "prints times, which depend on the machine"]
fn what_a_decision_costs_live() {
    const ROUNDS: usize = 9;
    const PACKETS: u32 = 100_000;
    let Some(()) = in_namespace() else { return };
    let mut times: Vec<(String, Vec<f64>)> = Vec::new();
    let mut note =
        |round: usize, what: String, ns: f64| match times.iter_mut().find(|(name, _)| *name == what) {
            Some((_, times)) => times.push(ns),
            None if round == 0 => times.push((what, vec![ns])),
            None => unreachable!("each round has the same"),
        };
    for round in 0..ROUNDS {
        for (what, helper) in CLOCKS {
            let Some(program) = super::allowed(load(NAME, &pass(helper), AttachPoint::Device)) else {
                return;
            };
            let index = device::find("a1").unwrap().index;
            let _link = homa_bpf::link::attach(program.as_fd(), index, Place::Generic).unwrap();
            note(round, what.to_owned(), measured(PACKETS));
        }
        for policy in IN_KERNEL {
            let config = SteerConfig { homa_port: None, ..config(policy, "0-1", 4) };
            let _steering = attach(&["a1".to_owned()], &config, AttachLifetime::Process).unwrap();
            note(round, policy.to_string(), measured(PACKETS));
        }
    }
    for (what, mut times) in times {
        times.sort_by(f64::total_cmp);
        let (first, last) = (times[0], times[times.len() - 1]);
        println!("{what}: {:.0} ns, the median of {ROUNDS}, {first:.0} to {last:.0}", times[ROUNDS / 2]);
    }
}
