//! Each model holds for the unchanged code, and the models of an ordering fail if it is weakened.

use homa_models::{Fault, check, mailbox_models as mailbox, process_group_models as process_group};

macro_rules! holds {
    ($($preemptions:expr, $module:ident::$model:ident;)*) => {
        $(
            #[test]
            fn $model() {
                println!("{} runs", check($preemptions, None, $module::$model));
            }
        )*
    };
}

// For each model, the maximum number of preemptions with which it takes a few seconds.
holds! {
    None, mailbox::urgent_mail_ends_a_sleep;
    None, mailbox::hurry_ends_a_sleep_beside_mail_that_is_not_urgent;
    Some(3), mailbox::mail_posted_while_the_host_closes_is_urgent;
    None, mailbox::two_threads_that_go_to_sleep_are_both_told;
    None, mailbox::a_sleep_that_ends_hides_no_other;
    None, mailbox::urgent_mail_ends_the_sleep_of_the_task;
    Some(3), mailbox::mail_comes_out_once_and_in_order;
    None, process_group::two_leases_stay_within_the_budget;
    Some(3), process_group::three_leases_stay_within_the_budget;
    None, process_group::a_lease_that_shrinks_is_not_taken_twice;
    None, process_group::cutoffs_are_read_whole;
    None, process_group::the_uplink_forgets_no_packet;
    None, process_group::an_orphan_is_counted_before_it_is_seen;
    None, process_group::a_change_of_ports_is_there_with_its_generation;
}

/// Fails unless the model fails with this fault planted.
fn finds(fault: Fault, model: fn()) {
    let found = std::panic::catch_unwind(|| check(Some(3), Some(fault), model)).is_err();
    assert!(found, "the model holds with {fault:?} weakened, so it does not check that");
}

#[test]
fn sequential_consistency_is_needed_where_it_stands() {
    finds(Fault::SeqCst, mailbox::urgent_mail_ends_a_sleep);
    finds(Fault::SeqCst, mailbox::urgent_mail_ends_the_sleep_of_the_task);
    finds(Fault::SeqCst, process_group::two_leases_stay_within_the_budget);
}

#[test]
fn releases_are_needed_where_they_stand() {
    finds(Fault::Release, process_group::cutoffs_are_read_whole);
    finds(Fault::Release, process_group::an_orphan_is_counted_before_it_is_seen);
    finds(Fault::Release, process_group::a_change_of_ports_is_there_with_its_generation);
}

#[test]
fn acquires_are_needed_where_they_stand() {
    finds(Fault::Acquire, process_group::cutoffs_are_read_whole);
    finds(Fault::Acquire, process_group::an_orphan_is_counted_before_it_is_seen);
    finds(Fault::Acquire, process_group::a_change_of_ports_is_there_with_its_generation);
}

#[test]
fn fences_are_needed_where_they_stand() {
    finds(Fault::Fences, process_group::cutoffs_are_read_whole);
}
