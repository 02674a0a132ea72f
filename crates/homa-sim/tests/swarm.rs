//! A short version of `examples/swarm.rs`: a few seeds with all faults.

use homa_sim::{SwarmOptions, swarm};

#[test]
fn whatever_goes_wrong_every_rpc_ends_and_nothing_is_left() {
    for seed in 0..40 {
        let report = swarm(seed, SwarmOptions { check_every: 50, ..SwarmOptions::default() });
        assert_eq!(report.problems, Vec::<String>::new(), "{report:?}");
        assert!(report.started > 0);
    }
}

/// PEER-16, LIMIT-6: with room for one control packet, two restarted hosts must not challenge each other
/// endlessly.
#[test]
fn a_seed_with_room_for_one_control_packet_comes_to_rest() {
    let report = swarm(2_148, SwarmOptions { check_every: 50, ..SwarmOptions::default() });
    assert_eq!(report.problems, Vec::<String>::new(), "{report:?}");
}

/// SHARE-6, LIMIT-10: with a `window` above `max_incoming`, the claims of one peer must not keep other peers
/// from getting grants.
#[test]
fn a_seed_with_a_window_above_what_may_come_starves_nobody() {
    let report = swarm(7_099, SwarmOptions { check_every: 50, ..SwarmOptions::default() });
    assert_eq!(report.problems, Vec::<String>::new(), "{report:?}");
}

/// AMO-6, SHARE-12: a prefix that has taken its seven eighths of the finished ids leaves the honest hosts what
/// their calls need.
#[test]
fn a_seed_with_a_prefix_that_takes_finished_ids_loses_no_call() {
    let report = swarm(789, SwarmOptions { check_every: 50, ..SwarmOptions::default() });
    assert_eq!(report.problems, Vec::<String>::new(), "{report:?}");
    assert!(report.counters["drop_prefix_share"] > 0, "the prefix met its share: {report:?}");
}

#[test]
fn corrupted_packets_break_no_bound_and_leave_nothing() {
    for seed in 0..10 {
        let options = SwarmOptions { check_every: 50, corruption: true, ..SwarmOptions::default() };
        let report = swarm(seed, options);
        assert_eq!(report.problems, Vec::<String>::new(), "{report:?}");
    }
}

/// SHARE-12: a request evicts the only other request of its own peer, which is forgotten.
#[test]
fn a_seed_in_which_a_request_displaces_its_own_peer_breaks_nothing() {
    let options = SwarmOptions { check_every: 50, corruption: true, ..SwarmOptions::default() };
    let report = swarm(136, options);
    assert_eq!(report.problems, Vec::<String>::new(), "{report:?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| swarm(seed, SwarmOptions { check_every: 0, ..SwarmOptions::default() });
    assert_eq!(run(3), run(3));
    assert_ne!(run(3).packets, run(4).packets);
}
