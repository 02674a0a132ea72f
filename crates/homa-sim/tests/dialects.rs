//! This project's endpoint with model kernels of each dialect, in both roles.

use std::collections::BTreeMap;

use homa_sim::dialects::{
    Kernel, PAIR_LOSSES, PAIR_SIZES, PairPlan, PairReport, Quirks, Speaker, pair_plan, pair_swarm, pairings,
    run_pair,
};

const KERNELS: [Kernel; 3] = [Kernel::One, Kernel::Two, Kernel::Three];

// DIALECT-4 to DIALECT-10
#[test]
fn every_pairing_completes_and_asks_for_nothing_that_was_not_lost() {
    let rows = pairings().len() * PAIR_SIZES.len() * PAIR_LOSSES.len();
    let mut sums: BTreeMap<(Speaker, Speaker, u32, u32), PairReport> = BTreeMap::new();
    for seed in 0..4 * rows as u64 {
        let (plan, report) = pair_swarm(seed);
        assert!(report.problems.is_empty(), "{plan:#?}: {report:#?}");
        sums.entry((plan.client, plan.server, plan.bytes, plan.loss)).or_default().add(&report);
    }
    assert_eq!(sums.len(), rows);
    for ((client, server, bytes, loss), sum) in sums {
        let (client, server) = (client.name(), server.name());
        println!(
            "{client} -> {server}, {bytes} bytes, {loss} lost of 1000: {} of {}",
            sum.completed, sum.failed
        );
        let sent = sum.client.bytes + sum.server.bytes;
        let twice = (sum.client.bytes_twice + sum.server.bytes_twice) as f64 / sent as f64;
        // RESENDs are for ranges, not for whole messages.
        let bound = 3.0 * f64::from(loss) / 1e3 + 0.1;
        assert!(bytes < 10_000 || twice < bound, "{client} -> {server}: {twice} of {bytes} bytes sent twice");
    }
}

// DIALECT-3, DIALECT-5
#[test]
fn a_change_of_kernel_loses_no_call_and_costs_about_one_interval() {
    // One RESEND interval of our endpoint, one of the kernel's, and the exchange itself.
    const MOST_NS: u64 = 12_000_000;
    for (before, after) in KERNELS.into_iter().flat_map(|one| KERNELS.map(|other| (one, other))) {
        for is_server in [true, false] {
            let (ours, kernel) = (Speaker::Ours, Speaker::Kernel(before));
            let (client, server) = if is_server { (ours, kernel) } else { (kernel, ours) };
            for seed in 0..8 {
                let then = Some(Speaker::Kernel(after));
                let plan = pair_plan(seed);
                let plan = PairPlan { client, server, then, bytes: 100_000, loss: 0, checks: true, ..plan };
                let report = run_pair(plan);
                assert!(report.problems.is_empty() && report.failed == 0, "{plan:#?}: {report:#?}");
                assert!(report.after_change_ns < MOST_NS, "{} ns: {plan:#?}", report.after_change_ns);
            }
        }
    }
}

/// Makes single-packet calls to a kernel whose server takes 1 to 10 ms.
fn calls_to_slow(kernel: Kernel, at_once: u32, loss: u32) -> PairReport {
    let quirks = Quirks { service_ns: 1_000_000, service_spread_ns: 9_000_000, ..Quirks::default() };
    let (client, server) = (Speaker::Ours, Speaker::Kernel(kernel));
    let plan = PairPlan { client, server, then: None, bytes: 100, loss, quirks, ..pair_plan(5) };
    let report = run_pair(PairPlan { calls: 2_000, at_once, checks: false, ..plan });
    assert!(report.problems.is_empty() && report.failed == 0, "{plan:#?}: {report:#?}");
    report
}

// RESEND-23
#[test]
fn a_slow_kernel_is_asked_about_one_call_in_200_at_most_if_nothing_is_lost() {
    for (kernel, at_once) in KERNELS.into_iter().flat_map(|kernel| [(kernel, 1), (kernel, 8)]) {
        let report = calls_to_slow(kernel, at_once, 0);
        let resends = report.client.resends;
        assert!(200 * resends <= report.completed, "{kernel:?}, {at_once} at once: {resends} RESENDs");
    }
}

// RESEND-24
#[test]
fn lost_requests_to_a_slow_kernel_are_found_after_the_interval_while_losses_go_on() {
    for kernel in KERNELS {
        let report = calls_to_slow(kernel, 1, 20);
        let (lost, undisturbed) = (report.request_lost, report.undisturbed);
        assert!(lost.calls > 20, "{report:#?}");
        // The interval of 5 ms, plus ticks and one more lost packet. The first loss is detected later.
        let found_ns = lost.mean_ns() - undisturbed.mean_ns();
        assert!(found_ns < 7_000_000, "{kernel:?}: {found_ns} ns");
    }
}
