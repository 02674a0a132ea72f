//! Pairings chosen by a seed, and what each of them must keep.

use rand::Rng;

use super::model::Quirks;
use super::pair::{PairPlan, PairReport, run_pair};
use super::speaker::{Kernel, Speaker};
use crate::payload::random_numbers;

/// Bytes of a message: one packet, and two lengths that need grants.
pub const PAIR_SIZES: [u32; 3] = [100, 100_000, 1_000_000];

/// Thousandths of the packets that are lost.
pub const PAIR_LOSSES: [u32; 3] = [0, 20, 100];

/// A message of this length needs no grant anywhere.
const SHORT: u32 = 1_000;

/// One proof of the whole state in so many seeds, since it costs more than the run.
const CHECK_EVERY: u64 = 8;

/// The pairings in which the endpoint has a part, the client first.
pub fn pairings() -> Vec<(Speaker, Speaker)> {
    let all = Speaker::ALL.into_iter().flat_map(|client| Speaker::ALL.map(|server| (client, server)));
    all.filter(|&(client, server)| client == Speaker::Ours || server == Speaker::Ours).collect()
}

/// The pairing of a seed. Consecutive seeds take all pairings, sizes and losses in turn; what else differs is
/// random.
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
            // A server that computes for longer than a RESEND waits, where RESENDs are not counted.
            service_ns: if loss > 0 && rng.random_range(0..4) == 0 { 12_000_000 } else { 0 },
        },
        checks: (seed / 63).is_multiple_of(CHECK_EVERY),
    }
}

/// Runs the pairing of a seed; the problems of the report are everything that must not be.
///
/// # Panics
/// Where [`run_pair`] does.
pub fn pair_swarm(seed: u64) -> (PairPlan, PairReport) {
    let plan = pair_plan(seed);
    let mut report = run_pair(plan);
    let problems = judge(&plan, &report);
    report.problems.extend(problems);
    (plan, report)
}

/// What a pairing must keep beyond its end, its bytes, and at most once.
fn judge(plan: &PairPlan, report: &PairReport) -> Vec<String> {
    let mut problems = Vec::new();
    let ours: Vec<_> = [(plan.client, &report.client), (plan.server, &report.server)]
        .into_iter()
        .filter(|(speaker, _)| *speaker == Speaker::Ours)
        .map(|(_, counts)| counts)
        .collect();
    let resends: u64 = ours.iter().map(|counts| counts.resends).sum();
    // A server of dialect 3 shows itself by asking for the rest of the first long requests. Its interval and that
    // of the client, which waits for a grant, end at the same time.
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
    if asked == 0 && twice > 0 {
        problems.push(format!("{twice} bytes were sent twice, and nobody asked"));
    }
    problems
}
