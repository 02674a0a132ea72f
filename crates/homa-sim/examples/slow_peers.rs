//! Calls to model kernels whose server takes milliseconds: RESENDs per RPC, and the duration of a call that
//! has lost a packet.
//!
//! `cargo run --release -p homa-sim --example slow_peers`
//!
//! The last column is the duration of a single call whose request is lost, made after half of all calls, when
//! no other packet is lost.

use std::process::ExitCode;

use homa_sim::dialects::{CallTimes, Kernel, PairPlan, PairReport, Quirks, Speaker, pair_plan, run_pair};

const US: u64 = 1_000;
const MS: f64 = 1e6;
/// Bytes of a request and of a response: one packet each, so that a lost packet is a lost message.
const BYTES: u32 = 100;
const SEEDS: u64 = 16;
const CALLS: u32 = 1_000;

/// Name, and minimum and spread of the service time in microseconds.
const SERVERS: [(&str, u64, u64); 6] = [
    ("at once", 0, 0),
    ("3 ms", 3_000, 0),
    ("1 to 10 ms", 1_000, 9_000),
    ("8 ms", 8_000, 0),
    ("10 ms", 10_000, 0),
    ("20 to 40 ms", 20_000, 20_000),
];
const AT_ONCE: [u32; 2] = [1, 8];
/// Fractions of packets that are lost, in thousandths.
const LOSSES: [u32; 4] = [0, 2, 20, 100];

fn plan(seed: u64, kernel: Kernel, (service, spread): (u64, u64), at_once: u32) -> PairPlan {
    PairPlan {
        seed,
        client: Speaker::Ours,
        server: Speaker::Kernel(kernel),
        then: None,
        bytes: BYTES,
        loss: 0,
        calls: CALLS,
        at_once,
        quirks: Quirks { service_ns: service * US, service_spread_ns: spread * US, ..Quirks::default() },
        checks: false,
        ..pair_plan(seed)
    }
}

/// Returns the combined report of all seeds and kernels.
fn total(server: (u64, u64), at_once: u32, change: impl Fn(&mut PairPlan)) -> PairReport {
    let mut sum = PairReport::default();
    for kernel in [Kernel::One, Kernel::Two, Kernel::Three] {
        for seed in 0..SEEDS {
            let mut plan = plan(seed, kernel, server, at_once);
            change(&mut plan);
            sum.add(&run_pair(plan));
        }
    }
    sum
}

fn milliseconds(times: &CallTimes) -> String {
    if times.calls == 0 {
        return format!("{:>6}", "-");
    }
    format!("{:6.2}", times.mean_ns() as f64 / MS)
}

fn main() -> ExitCode {
    println!("                          RESENDs      mean duration of a call in ms, by what it lost:");
    println!("service     open loss     per RPC    nothing, request, response; the only one, its longest");
    let mut problems = Vec::new();
    for (name, service, spread) in SERVERS {
        for at_once in AT_ONCE {
            let lone =
                total((service, spread), at_once, |plan| plan.lost_request = Some(u64::from(CALLS) / 2));
            for loss in LOSSES {
                let sum = total((service, spread), at_once, |plan| plan.loss = loss);
                println!(
                    "{name:12} {at_once:3} {:4.1} %  {:9.5}    {} {} {}    {} {:6.2}",
                    f64::from(loss) / 10.0,
                    sum.client.resends as f64 / (sum.completed + sum.failed).max(1) as f64,
                    milliseconds(&sum.undisturbed),
                    milliseconds(&sum.request_lost),
                    milliseconds(&sum.response_lost),
                    milliseconds(&lone.request_lost),
                    lone.request_lost.longest_ns as f64 / MS,
                );
                problems.extend(sum.problems);
            }
            problems.extend(lone.problems);
        }
    }
    problems.iter().for_each(|problem| println!("{problem}"));
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
