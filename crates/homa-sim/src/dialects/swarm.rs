//! Pairings determined by a seed, and checks of their results.

use rand::Rng;

use super::model::Quirks;
use super::pair::{PairPlan, PairReport, run_pair};
use super::speaker::{Kernel, Speaker};
use crate::payload::random_numbers;

/// Message lengths in bytes: one packet, and two lengths that need grants.
pub const PAIR_SIZES: [u32; 3] = [100, 100_000, 1_000_000];

/// Lost packets per thousand.
pub const PAIR_LOSSES: [u32; 3] = [0, 20, 100];

/// Length of a message that needs no grant in any dialect.
const SHORT: u32 = 1_000;

/// One seed in this many checks the complete state after each step, which costs more than the run itself.
const CHECK_EVERY: u64 = 8;

/// Returns all pairings with this project's endpoint on at least one side, as client and server.
pub fn pairings() -> Vec<(Speaker, Speaker)> {
    let all = Speaker::ALL.into_iter().flat_map(|client| Speaker::ALL.map(|server| (client, server)));
    all.filter(|&(client, server)| client == Speaker::Ours || server == Speaker::Ours).collect()
}

/// Returns the pairing of a seed. Consecutive seeds cover all pairings, sizes and losses in turn. Everything
/// else is random.
pub fn pair_plan(seed: u64) -> PairPlan {
    let pairings = pairings();
    let choose = |count: usize, rest: &mut u64| {
        let chosen = *rest % count as u64;
        *rest /= count as u64;
        chosen as usize
    };
    let mut rest = seed;
    let (client, server) = pairings[choose(pairings.len(), &mut rest)];
    let bytes = PAIR_SIZES[choose(PAIR_SIZES.len(), &mut rest)];
    let loss = PAIR_LOSSES[choose(PAIR_LOSSES.len(), &mut rest)];
    let mut rng = random_numbers(seed, 0xd1b);
    let with_kernel = client != server;
    let changes = with_kernel && rng.random_range(0..4) == 0;
    let kernel = [Kernel::One, Kernel::Two, Kernel::Three][rng.random_range(0..3)];
    PairPlan {
        seed,
        client,
        server,
        then: changes.then_some(Speaker::Kernel(kernel)),
        bytes,
        loss,
        ipv6: rng.random(),
        calls: rng.random_range(2..=8),
        at_once: rng.random_range(1..=3),
        quirks: Quirks {
            offset_in_sequence: rng.random(),
            resend_grants: rng.random(),
            repeats_grant: rng.random(),
            unknown_sends_data: rng.random(),
            // A server that computes for longer than the RESEND interval, in runs whose RESENDs are not
            // limited.
            service_ns: if loss > 0 && rng.random_range(0..4) == 0 { 12_000_000 } else { 0 },
            service_spread_ns: 0,
        },
        lost_request: None,
        checks: (seed / 63).is_multiple_of(CHECK_EVERY),
    }
}

/// Runs the pairing of a seed. The report's `problems` lists all violations.
///
/// # Panics
/// If [`run_pair`] panics.
pub fn pair_swarm(seed: u64) -> (PairPlan, PairReport) {
    let plan = pair_plan(seed);
    let mut report = run_pair(plan);
    let problems = check_results(&plan, &report);
    report.problems.extend(problems);
    (plan, report)
}

/// Checks the results beyond what every run checks: calls end, bytes are correct, and requests run at most
/// once.
fn check_results(plan: &PairPlan, report: &PairReport) -> Vec<String> {
    let mut problems = Vec::new();
    let ours: Vec<_> = [(plan.client, &report.client), (plan.server, &report.server)]
        .into_iter()
        .filter(|(speaker, _)| *speaker == Speaker::Ours)
        .map(|(_, counts)| counts)
        .collect();
    let resends: u64 = ours.iter().map(|counts| counts.resends).sum();
    // A server of dialect 3 is recognised when it requests the rest of the first long requests. Its RESEND
    // interval and that of the client, which is waiting for a grant, end at the same time.
    let shows_itself = plan.server == Speaker::Kernel(Kernel::Three) && plan.bytes > SHORT;
    let first_contact = if shows_itself { u64::from(plan.at_once) } else { 0 };
    if plan.loss == 0 && plan.then.is_none() && resends > first_contact {
        problems.push(format!("{resends} RESENDs of the endpoint, and nothing was lost"));
    }
    if plan.loss <= 20 && report.failed > 0 {
        problems.push(format!("{} calls failed", report.failed));
    }
    let twice = report.client.bytes_twice + report.server.bytes_twice;
    let asked = report.client.resends + report.server.resends;
    // A kernel that runs a late duplicate of a request also sends the response again.
    let again = report.client.executed_again + report.server.executed_again;
    if asked == 0 && twice > again * u64::from(plan.bytes) {
        problems.push(format!("{twice} bytes were sent twice, and nobody asked"));
    }
    problems
}
