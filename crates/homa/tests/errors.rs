//! Tests of calls that fail: each error names its cause, and no state of the call is left.

use std::net::UdpSocket;
use std::time::Duration;

use super::common::{self, Echo, LOOPBACK, PATIENCE, config, eventually, host, until_idle};
use homa::ServerAddr;
use homa::error::{CallError, HostError, RecvError};
use homa_testkit::ClosedPort;

#[test]
fn no_server_on_the_port() {
    let (peer, host) = (host(), host());
    let _other = peer.server(98).unwrap();
    let to = ServerAddr::new(peer.local_addr(), 99);
    let error = host.client().unwrap().call(to, "x").wait().unwrap_err();
    assert_eq!(error, CallError::NoSuchPort { to });
    assert!(error.to_string().contains("port 99"), "{error}");
    until_idle(&host);
}

#[test]
fn nobody_at_the_address() {
    let closed = ClosedPort::udp(LOOPBACK);
    let host = host();
    let to = ServerAddr::new(closed.address(), 99);
    assert_eq!(host.client().unwrap().call(to, "x").wait(), Err(CallError::Unreachable { to }));
    until_idle(&host);
}

#[test]
fn a_link_local_address_without_its_device_is_refused_at_the_call() {
    let host = host();
    let to = ServerAddr::new("[fe80::1]:14600".parse().unwrap(), 99);
    let error = host.client().unwrap().call(to, "x").timeout(PATIENCE).wait().unwrap_err();
    assert!(error.to_string().contains("fe80::1%2"), "it shows how it is written: {error}");
    assert_eq!((error, host.metrics().endpoint.requests_started), (CallError::NoScope { to }, 0));
    until_idle(&host);
}

#[test]
fn a_peer_that_says_nothing_times_out() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut config = config();
    config = config.configure(|config| config.protocol.max_resends = 3);
    let host = config.bind().unwrap();
    let to = ServerAddr::new(silent.local_addr().unwrap(), 99);
    assert_eq!(host.client().unwrap().call(to, "x").wait(), Err(CallError::NoAnswer { to }));
    assert_eq!(host.metrics().endpoint.rpcs_timed_out, 1);
    until_idle(&host);
}

#[test]
fn messages_of_no_length_and_of_too_much() {
    let (echo, host) = (Echo::new(1), host());
    let client = host.client().unwrap();
    assert_eq!(client.call(echo.to, "").wait(), Err(CallError::EmptyMessage));
    let error = client.call(echo.to, vec![0; 1_000_001]).wait().unwrap_err();
    assert_eq!(error, CallError::MessageTooLarge { length: 1_000_001, limit: 1_000_000 });
    assert!(error.to_string().contains("max_message"), "{error}");
    assert_eq!(client.call(echo.to, vec![7; 1_000_000]).wait().unwrap().len(), 1_000_000);
    until_idle(&host);
}

#[test]
fn two_hosts_that_raise_the_limit_exchange_more_than_a_megabyte() {
    let mut config = config();
    config = config.configure(|config| config.protocol.max_message = 5_000_000);
    let echo = Echo::with(config.clone(), 1);
    let host = config.bind().unwrap();
    let request = common::message(5_000_000, 1);
    assert!(host.client().unwrap().call(echo.to, request.clone()).wait().unwrap() == request);
    until_idle(&host);
}

#[test]
fn a_limit_is_named() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = ServerAddr::new(silent.local_addr().unwrap(), 99);
    let mut config = config().max_completions(2);
    config = config.configure(|config| config.protocol.max_rpcs = 3);
    let host = config.bind().unwrap();
    let client = host.client().unwrap();
    client.completions().submit(to, "x", 1).unwrap();
    client.completions().submit(to, "x", 2).unwrap();
    assert_eq!(
        client.completions().submit(to, "x", 3),
        Err(CallError::LimitReached { name: "max_completions" })
    );
    let third = client.call(to, "x").start().unwrap();
    let error = client.call(to, "x").start().map(|_| ()).unwrap_err();
    assert_eq!(error, CallError::LimitReached { name: "max_rpcs" });
    assert!(error.to_string().contains("max_rpcs"), "{error}");
    drop(third);
    drop(client);
    until_idle(&host);
}

#[test]
fn a_deadline_that_passes_ends_the_call() {
    let (peer, host) = (host(), host());
    let server = peer.server(99).unwrap();
    let to = ServerAddr::new(peer.local_addr(), 99);
    let client = host.client().unwrap();
    let deadline = Duration::from_millis(20);
    let late = CallError::TimedOut { to, timeout: deadline };
    assert_eq!(client.call(to, "x").timeout(deadline).wait(), Err(late.clone()));
    assert_eq!(client.call(to, "x").start().unwrap().timeout(deadline).wait(), Err(late));
    until_idle(&host);
    eventually("the server hears of it", || peer.metrics().host.open_rpcs == 0);
    assert_eq!(client.completions().recv().timeout(deadline).wait(), Err(RecvError::TimedOut));
    drop(server);
}

#[test]
fn a_call_that_is_dropped_leaves_nothing() {
    let (peer, host) = (host(), host());
    let _server = peer.server(99).unwrap();
    let to = ServerAddr::new(peer.local_addr(), 99);
    let client = host.client().unwrap();
    for size in [1, 1_000, 1_000_000] {
        drop(client.call(to, vec![1; size]).start().unwrap());
        drop(client.call(to, vec![1; size]).reader().unwrap());
    }
    until_idle(&host);
    until_idle(&peer);
    assert_eq!(host.metrics().endpoint.rpcs_aborted, 6);
}

#[test]
fn a_client_that_is_dropped_takes_its_calls_along() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = ServerAddr::new(silent.local_addr().unwrap(), 99);
    let host = host();
    let client = host.client().unwrap();
    for cookie in 0..200 {
        client.completions().submit(to, "x", cookie).unwrap();
    }
    assert_eq!(host.metrics().host.open_calls, 200);
    drop(client);
    until_idle(&host);
}

#[test]
fn a_host_that_is_shut_down_ends_its_calls() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = ServerAddr::new(silent.local_addr().unwrap(), 99);
    let host = host();
    let client = host.client().unwrap();
    let pending = client.call(to, "x").start().unwrap();
    client.completions().submit(to, "x", 7).unwrap();
    let waiting = client.clone();
    let waiter = std::thread::spawn(move || waiting.call(to, "x").wait());
    eventually("all three are open", || host.metrics().host.open_calls == 3);
    assert!(host.shutdown(PATIENCE));
    assert_eq!(waiter.join().unwrap(), Err(CallError::Closed));
    assert_eq!(pending.wait(), Err(CallError::Closed));
    let completion = client.completions().recv().wait().unwrap();
    assert_eq!((completion.cookie, completion.result), (7, Err(CallError::Closed)));
    assert_eq!(client.completions().recv().wait(), Err(RecvError::Closed));
    assert_eq!(client.call(to, "x").wait(), Err(CallError::Closed));
    assert_eq!(client.completions().submit(to, "x", 8), Err(CallError::Closed));
}

#[test]
fn hosts_that_cannot_be_are_refused() {
    let first = host();
    let error = config().address(first.local_addr()).bind().unwrap_err();
    assert!(error.to_string().contains(&first.local_addr().port().to_string()), "{error}");
    let mut wrong = config();
    wrong = wrong.configure(|config| config.protocol.num_priorities = 0);
    let error = wrong.bind().unwrap_err();
    assert!(matches!(error, HostError::Config(_)));
    assert!(error.to_string().contains("num_priorities"), "{error}");
}
