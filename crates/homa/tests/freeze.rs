//! Tests of freezing time traces: by the application, by a slow call, and on peers.

use std::time::Duration;

use super::common::{Echo, PATIENCE, config, eventually, message};
use homa::trace::{Dump, EventKind, Record};
use homa::{Host, HostBuilder};

/// Configures a host whose trace is frozen by each call.
fn impatient() -> HostBuilder {
    config().trace_freeze_slower_than(Some(Duration::ZERO))
}

fn call(host: &Host, echo: &Echo) {
    host.client().unwrap().call(echo.to, message(100, 1)).timeout(PATIENCE).wait().unwrap();
}

fn freezes(dump: &Dump) -> Vec<Record> {
    dump.records.iter().filter(|record| record.event() == Some(EventKind::Freeze)).copied().collect()
}

#[test]
fn a_frozen_trace_stays_as_it_is_until_it_is_unfrozen() {
    let echo = Echo::new(1);
    let host = config().bind().unwrap();
    call(&host, &echo);
    assert!(!host.trace_is_frozen());
    assert!(host.freeze_trace());
    assert!(!host.freeze_trace(), "it is frozen");
    assert!(host.trace_is_frozen());
    let before = host.trace_dump().records;
    assert_eq!(freezes(&host.trace_dump()).iter().map(|record| record.a).collect::<Vec<_>>(), [0]);
    call(&host, &echo);
    assert_eq!(host.trace_dump().records, before);
    host.unfreeze_trace();
    call(&host, &echo);
    assert!(host.trace_dump().records.len() > before.len() + 10);
    assert_eq!(host.metrics().host.trace_freezes, 1);
    assert!(!echo.host.as_ref().unwrap().trace_is_frozen());
}

#[test]
fn a_call_that_is_too_slow_freezes_the_trace_at_its_end_and_for_good() {
    let echo = Echo::new(1);
    let host = impatient().endpoints(2).bind().unwrap();
    call(&host, &echo);
    let dump = host.trace_dump();
    // The other endpoint's trace freezes when the endpoint's lock is next taken, which happens for the dump.
    let both = freezes(&dump);
    assert_eq!(both.len(), 2, "an endpoint goes on");
    assert_eq!(both[0].id, both[1].id);
    assert_eq!(host.metrics().host.trace_freezes, 1);
    let freeze = both[0];
    let of_call = |kind| dump.records.iter().find(|r| r.event() == Some(kind) && r.id == freeze.id);
    let end = of_call(EventKind::RpcEnd).expect("the end of the call");
    assert!(freeze.time >= end.time && freeze.a == 0);
    assert!(of_call(EventKind::AppSend).is_some());
    assert!(of_call(EventKind::AppReceive).is_none(), "it was frozen before");
}

#[test]
fn a_call_within_the_bound_freezes_nothing() {
    let echo = Echo::new(1);
    let bound = Some(PATIENCE);
    let host = config().trace_freeze_slower_than(bound).bind().unwrap();
    call(&host, &echo);
    assert!(!host.trace_is_frozen());
}

#[test]
fn a_failed_call_counts_as_slow_when_it_took_long() {
    let echo = Echo::new(1);
    let host = impatient().bind().unwrap();
    let nobody = homa::ServerAddr::new(echo.to.host, 1_234);
    host.client().unwrap().call(nobody, message(100, 1)).timeout(PATIENCE).wait().unwrap_err();
    assert!(host.trace_is_frozen());
}

#[test]
fn peers_freeze_with_a_host_that_says_so() {
    let echo = Echo::new(1);
    let host = impatient().trace_freeze_peers(true).bind().unwrap();
    call(&host, &echo);
    assert!(host.trace_is_frozen());
    let server = echo.host.as_ref().unwrap();
    eventually("the peer is frozen", || server.trace_is_frozen());
    let freeze = freezes(&server.trace_dump());
    assert!(freeze.iter().all(|record| record.a == 1) && !freeze.is_empty());
    assert!(server.metrics().endpoint.freezes_received > 0);
    assert_eq!(server.metrics().endpoint.freezes_sent, 0, "FREEZE-2");
    let sent = host.trace_dump().records.iter().filter(|r| r.event() == Some(EventKind::FreezeSent)).count();
    assert_eq!(sent as u64, host.metrics().endpoint.freezes_sent);
}

#[test]
fn a_host_that_does_not_obey_counts_and_goes_on() {
    let echo = Echo::with(config().trace_obey_freeze(false), 1);
    let host = config().bind().unwrap();
    assert_eq!(host.freeze_peers(), 0, "nobody is known");
    call(&host, &echo);
    assert!(host.freeze_peers() > 0);
    assert!(!host.trace_is_frozen());
    let server = echo.host.as_ref().unwrap();
    eventually("the packet is counted", || server.metrics().endpoint.freezes_received > 0);
    assert!(!server.trace_is_frozen());
    assert_eq!(server.metrics().host.trace_freezes, 0);
}

#[test]
fn a_host_without_a_trace_has_nothing_to_freeze() {
    let host = impatient().trace_records(0).bind().unwrap();
    let echo = Echo::new(1);
    call(&host, &echo);
    assert!(!host.freeze_trace() && !host.trace_is_frozen());
}
