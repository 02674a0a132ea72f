//! 100 senders of 40 KB into a 200 KB buffer at 10 Gbit/s: cold, without any knowledge of peers, and warm.

use homa_sim::{Incast, IncastKind, IncastReport};

fn run(incast: &Incast) -> IncastReport {
    let report = incast.run();
    for round in &report.rounds {
        assert_eq!(round.failed, 0, "{report}");
    }
    assert_eq!(report.leftovers, Vec::<String>::new(), "{report}");
    report
}

/// Checks that a cold round takes at most 2 times the ideal, without a storm of RESENDs, and a warm round at
/// most 1.3 times the ideal, without drops.
fn assert_tamed(incast: &Incast) {
    let report = run(incast);
    assert!(report.ratio(0) <= 2.0, "cold:\n{report}");
    // Each missing range of a partly lost message is requested once.
    assert!(report.rounds[0].resends <= 3 * incast.senders as u64, "a storm of RESENDs:\n{report}");
    for (index, round) in report.rounds.iter().enumerate().skip(1) {
        assert_eq!(round.drops, 0, "round {index}:\n{report}");
        assert!(report.ratio(index) <= 1.3, "round {index}:\n{report}");
    }
}

// INCAST-2, INCAST-4, INCAST-5
#[test]
fn many_requests_at_once() {
    assert_tamed(&Incast { rounds: 4, ..Incast::new(1, IncastKind::Requests) });
}

// INCAST-1, INCAST-3
#[test]
fn many_responses_at_once() {
    assert_tamed(&Incast { rounds: 4, ..Incast::new(1, IncastKind::Responses) });
}

// INCAST-6
#[test]
fn short_requests_that_were_all_unscheduled_are_limited_the_next_time() {
    let report = run(&Incast { rounds: 3, bytes: 8_000, ..Incast::new(1, IncastKind::Requests) });
    for index in 1..3 {
        assert_eq!(report.rounds[index].drops, 0, "round {index}:\n{report}");
    }
}

// INCAST-6: there are more senders than the buffer has room for packets, so no packet arrives from some
// senders.
#[test]
fn senders_of_which_nothing_arrived_do_not_fill_the_queue_again() {
    let report = run(&Incast { rounds: 2, senders: 300, ..Incast::new(1, IncastKind::Requests) });
    assert!(report.ratio(0) <= 2.0 && report.ratio(1) <= 1.3, "{report}");
}

// INCAST-4, INCAST-5, INCAST-7, INCAST-8: Linux Homa ignores limits. It is served anyway: lost packets are
// requested again, without filling a queue a second time.
#[test]
fn kernel_senders_are_served_without_a_storm() {
    for kind in [IncastKind::Requests, IncastKind::Responses] {
        let incast = Incast { rounds: 3, kernel_senders: true, ..Incast::new(1, kind) };
        let report = run(&incast);
        for index in 0..3 {
            assert!(report.ratio(index) <= 2.0, "{kind:?}, round {index}:\n{report}");
            assert!(report.rounds[index].resends <= 3 * 100, "{kind:?}, round {index}:\n{report}");
        }
    }
}

/// The same settings without a known link rate: no limit is computed, and lost packets are requested again.
// INCAST-4
#[test]
fn without_a_link_rate_an_incast_still_ends_soon() {
    let mut incast = Incast { rounds: 2, ..Incast::new(1, IncastKind::Requests) };
    incast.protocol.link_mbps = None;
    let report = run(&incast);
    assert!(report.ratio(0) <= 2.0 && report.ratio(1) <= 2.0, "{report}");
}
