//! Tests of successful calls: sizes, threads, and many calls at a time. No state of the calls may be left
//! afterwards.

use std::thread;

use super::common::{Echo, PATIENCE, config, host, message, until_idle};
use homa::error::{CallError, RecvError};
use homa::{Bytes, HostBuilder, Request, ServerAddr};

const SIZES: [usize; 8] = [1, 8, 100, 1_400, 1_425, 40_001, 100_000, 1_000_000];

fn echo_of_all_sizes(config: HostBuilder) {
    let echo = Echo::with(config.clone(), 1);
    let host = config.bind().unwrap();
    let client = host.client().unwrap();
    for (tag, size) in SIZES.into_iter().enumerate() {
        let request = message(size, tag as u64);
        let response = client.call(echo.to, request.clone()).wait().unwrap();
        assert!(response == request, "{size} bytes came back changed");
    }
    until_idle(&host);
    until_idle(echo.host.as_ref().unwrap());
}

#[test]
fn every_size_comes_back_to_the_byte() {
    echo_of_all_sizes(config());
}

#[test]
fn every_size_comes_back_where_waiting_is_sleeping() {
    echo_of_all_sizes(config().poll(std::time::Duration::ZERO));
}

#[test]
fn every_size_comes_back_in_packets_of_an_ethernet() {
    let mut config = config();
    config = config.configure(|config| config.udp.max_packet_bytes = 1_480);
    echo_of_all_sizes(config);
}

#[test]
fn request_and_response_differ_in_size() {
    let (server_host, host) = (host(), host());
    let server = server_host.server(7).unwrap();
    let to = ServerAddr::new(server_host.local_addr(), 7);
    let shapes = [(1, 1_000_000), (1_000_000, 1), (100_000, 300_000)];
    let answers = thread::spawn(move || {
        for (request, response) in shapes {
            let rpc = server.recv().wait().unwrap();
            assert!(*rpc.payload() == message(request, 1));
            assert_eq!(rpc.port(), 7);
            rpc.reply(message(response, 2)).unwrap();
        }
        server_host
    });
    let client = host.client().unwrap();
    for (request, response) in shapes {
        assert!(client.call(to, message(request, 1)).wait().unwrap() == message(response, 2));
    }
    until_idle(&answers.join().unwrap());
}

#[test]
fn eight_threads_share_a_client() {
    const CALLS: u64 = 300;
    let echo = Echo::new(2);
    let host = host();
    let client = host.client().unwrap();
    thread::scope(|scope| {
        for thread in 0..8 {
            let (client, to) = (client.clone(), echo.to);
            scope.spawn(move || {
                for call in 0..CALLS {
                    let tag = thread * CALLS + call;
                    let request = message(1 + (tag as usize * 37) % 5_000, tag);
                    assert!(client.call(to, request.clone()).wait().unwrap() == request, "call {tag}");
                }
            });
        }
    });
    let metrics = host.metrics();
    assert_eq!(metrics.endpoint.responses_delivered, 8 * CALLS);
    assert_eq!(metrics.endpoint.rpcs_failed, 0);
    assert_eq!(echo.metrics().endpoint.requests_delivered, 8 * CALLS);
    until_idle(&host);
    until_idle(echo.host.as_ref().unwrap());
}

#[test]
fn many_calls_are_in_flight_from_one_thread() {
    const CALLS: u64 = 1_000;
    let echo = Echo::new(1);
    let host = host();
    let client = host.client().unwrap();
    let size = |cookie: u64| 1 + (cookie as usize * 61) % 3_000;
    for cookie in 0..CALLS {
        client.completions().submit(echo.to, message(size(cookie), cookie), cookie).unwrap();
    }
    let mut seen = vec![false; CALLS as usize];
    for _ in 0..CALLS {
        let done = client.completions().recv().timeout(PATIENCE).wait().expect("every call completes");
        assert!(!std::mem::replace(&mut seen[done.cookie as usize], true), "{} twice", done.cookie);
        assert!(done.result.unwrap() == message(size(done.cookie), done.cookie));
    }
    let left = client.completions().recv().timeout(std::time::Duration::ZERO).wait();
    assert_eq!(left, Err(RecvError::TimedOut));
    until_idle(&host);
}

#[test]
fn one_thread_submits_while_another_takes_the_completions() {
    const CALLS: u64 = 2_000;
    let echo = Echo::new(1);
    let host = host();
    let client = host.client().unwrap();
    thread::scope(|scope| {
        let taker = client.clone();
        scope.spawn(move || {
            let mut sum = 0;
            for _ in 0..CALLS {
                let done = taker.completions().recv().timeout(PATIENCE).wait().expect("every call completes");
                assert_eq!(done.result.unwrap(), done.cookie.to_string());
                sum += done.cookie;
            }
            assert_eq!(sum, CALLS * (CALLS - 1) / 2);
        });
        for cookie in 0..CALLS {
            client.completions().submit(echo.to, cookie.to_string(), cookie).unwrap();
        }
    });
    until_idle(&host);
}

/// ID-14: a private response goes only to the caller that names the RPC.
#[test]
fn the_response_of_a_pending_call_is_no_completion() {
    let echo = Echo::new(1);
    let host = host();
    let client = host.client().unwrap();
    let pending = client.call(echo.to, "mine").start().unwrap();
    client.completions().submit(echo.to, "anybody's", 7).unwrap();
    let done = client.completions().recv().timeout(PATIENCE).wait().expect("what was submitted");
    assert_eq!((done.cookie, &done.result.unwrap()[..]), (7, &b"anybody's"[..]));
    // The pending call ends too, at the latest when a later call ends.
    client.call(echo.to, "later").wait().unwrap();
    let left = client.completions().recv().timeout(std::time::Duration::ZERO).wait();
    assert_eq!(left, Err(RecvError::TimedOut));
    assert_eq!(&pending.wait().unwrap()[..], b"mine");
    until_idle(&host);
}

#[test]
fn pending_calls_are_waited_for_in_any_order() {
    let echo = Echo::new(1);
    let host = host();
    let client = host.client().unwrap();
    let mut pending: Vec<_> =
        (0..50).map(|tag| (tag, client.call(echo.to, message(200, tag)).start().unwrap())).collect();
    let ids: std::collections::HashSet<_> = pending.iter().map(|(_, pending)| pending.id()).collect();
    assert_eq!(ids.len(), 50);
    pending.reverse();
    for (tag, mut call) in pending {
        let response = if tag % 2 == 0 {
            call.wait()
        } else {
            loop {
                if let Some(result) = call.try_wait() {
                    assert!(call.try_wait().is_none());
                    break result;
                }
            }
        };
        assert!(response.unwrap() == message(200, tag));
    }
    until_idle(&host);
}

#[test]
fn a_large_response_is_read_while_it_arrives() {
    let (server_host, host) = (host(), host());
    let server = server_host.server(7).unwrap();
    let to = ServerAddr::new(server_host.local_addr(), 7);
    let client = host.client().unwrap();
    let answer = thread::spawn(move || server.recv().wait().unwrap().reply(message(1_000_000, 3)).unwrap());
    let mut reader = client.call(to, "all of it").reader().unwrap();
    let (mut read, mut parts) = (Vec::new(), 0);
    while let Some(part) = reader.next_part().wait().unwrap() {
        assert!(!part.is_empty());
        read.extend_from_slice(&part);
        assert_eq!(reader.position() as usize, read.len());
        parts += 1;
    }
    assert!(read == message(1_000_000, 3));
    assert!(parts > 1, "it came in one part");
    assert_eq!(reader.next_part().wait(), Ok(None));
    drop(reader);
    answer.join().unwrap();
    until_idle(&host);
}

#[test]
fn a_host_calls_its_own_server() {
    let host = host();
    let server = host.server(5).unwrap();
    let to = ServerAddr::new(host.local_addr(), 5);
    let answer = thread::spawn(move || server.recv().wait().unwrap().reply("self").unwrap());
    assert_eq!(host.client().unwrap().call(to, "who?").wait(), Ok(Bytes::from("self")));
    answer.join().unwrap();
}

#[test]
fn calls_and_answers_in_batches_are_each_answered_once_and_right() {
    const CALLS: u64 = 5_000;
    let server_host = host();
    let (one, other) = (server_host.server(99).unwrap(), server_host.server(98).unwrap());
    let to = [99, 98].map(|port| ServerAddr::new(server_host.local_addr(), port));
    let servers = [one, other].map(|server| {
        thread::spawn(move || {
            let (mut requests, mut replies, mut batches) = (Vec::new(), Vec::new(), 0_u64);
            while server.recv().wait_batch(20, &mut requests).is_ok() {
                assert!((1..=20).contains(&requests.len()));
                batches += 1;
                replies.extend(requests.drain(..).map(|mut rpc| {
                    let request = rpc.take_payload();
                    (rpc, request)
                }));
                Request::reply_all(&mut replies, |error| panic!("{error}"));
                assert!(replies.is_empty());
            }
            batches
        })
    });
    let client_host = host();
    let client = client_host.client().unwrap();
    let (mut calls, mut completions, mut next, mut seen) =
        (Vec::new(), Vec::new(), 0, vec![0; CALLS as usize]);
    let mut open = 0;
    while next < CALLS || open > 0 {
        while next < CALLS && open < 64 {
            // Some lengths are equal, and some messages have several packets.
            let length = if next % 50 == 7 { 100_000 } else { 100 + (next % 3) as usize };
            calls.push((to[(next % 2) as usize], message(length, next), next));
            (next, open) = (next + 1, open + 1);
        }
        client.completions().submit_all(&mut calls, |cookie, error| panic!("{cookie}: {error}"));
        let count = client.completions().recv().timeout(PATIENCE).wait_batch(100, &mut completions).unwrap();
        assert!(count > 0 && count == completions.len());
        for completion in completions.drain(..) {
            let response = completion.result.unwrap();
            assert_eq!(response, message(response.len(), completion.cookie));
            seen[completion.cookie as usize] += 1;
            open -= 1;
        }
    }
    assert!(seen.iter().all(|&times| times == 1));
    drop(server_host);
    let batches: u64 = servers.into_iter().map(|server| server.join().unwrap()).sum();
    assert!((CALLS / 20..CALLS).contains(&batches), "{batches} batches");
}

#[test]
fn a_refused_call_of_a_batch_is_told_and_the_others_go_out() {
    let echo = Echo::new(1);
    let host = config().max_completions(3).bind().unwrap();
    let client = host.client().unwrap();
    let mut calls: Vec<_> = (0..5).map(|cookie| (echo.to, Bytes::from_static(b"x"), cookie)).collect();
    let mut refused = Vec::new();
    client.completions().submit_all(&mut calls, |cookie, error| refused.push((cookie, error)));
    assert_eq!(refused.iter().map(|(cookie, _)| *cookie).collect::<Vec<_>>(), [3, 4]);
    assert!(
        matches!(refused[0].1, CallError::LimitReached { name: "max_completions" }),
        "{:?}",
        refused[0].1
    );
    let mut completions = Vec::new();
    assert_eq!(client.completions().recv().timeout(PATIENCE).wait_batch(0, &mut completions).unwrap(), 0);
    while completions.len() < 3 {
        assert!(client.completions().recv().timeout(PATIENCE).wait_batch(2, &mut completions).unwrap() <= 2);
    }
    assert!(completions.iter().all(|completion| completion.result.is_ok()));
}

#[test]
fn a_call_sends_nothing_before_it_is_started_and_ends_with_its_handle() {
    let (server_host, host) = (host(), host());
    let server = server_host.server(99).unwrap();
    let to = ServerAddr::new(server_host.local_addr(), 99);
    let client = host.client().unwrap();
    let call = client.call(to, "later");
    assert_eq!((call.id(), call.to()), (None, to));
    assert_eq!(host.metrics().endpoint.data_sent, 0);
    drop(client.call(to, "never"));
    assert_eq!(
        format!("{call:?}"),
        format!("Call {{ to: {to:?}, timeout: None, state: \"not started\", .. }}")
    );
    let call = call.start().unwrap();
    assert!(call.id().is_some());
    assert_eq!(host.metrics().endpoint.data_sent, 1);
    server.recv().wait().unwrap().reply("ok").unwrap();
    assert_eq!(call.start().unwrap().wait().unwrap(), "ok");
    until_idle(&host);
    assert_eq!(host.metrics().endpoint.rpcs_aborted, 0);
}

#[test]
fn calls_that_are_started_are_in_flight_together() {
    let (server_host, host) = (host(), host());
    let server = server_host.server(99).unwrap();
    let to = ServerAddr::new(server_host.local_addr(), 99);
    let client = host.client().unwrap();
    let [one, other] = ["one", "other"].map(|text| client.call(to, text).start().unwrap());
    let requests = [(); 2].map(|()| server.recv().timeout(PATIENCE).wait().unwrap());
    for rpc in requests {
        let request = rpc.payload().clone();
        rpc.reply(request).unwrap();
    }
    assert_eq!((other.wait().unwrap(), one.wait().unwrap()), ("other".into(), "one".into()));
}

#[test]
fn a_part_of_a_response_has_a_time_limit_after_which_reading_goes_on() {
    let (server_host, host) = (host(), host());
    let server = server_host.server(99).unwrap();
    let to = ServerAddr::new(server_host.local_addr(), 99);
    let mut reader = host.client().unwrap().call(to, "x").reader().unwrap();
    let timeout = std::time::Duration::from_millis(1);
    assert_eq!(reader.next_part().timeout(timeout).wait(), Err(CallError::TimedOut { to, timeout }));
    server.recv().wait().unwrap().reply("answer").unwrap();
    assert_eq!(reader.next_part().timeout(PATIENCE).wait(), Ok(Some(Bytes::from("answer"))));
    assert_eq!(reader.next_part().wait(), Ok(None));
}
