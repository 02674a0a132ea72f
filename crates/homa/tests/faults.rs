//! Tests of calls over a network that loses, duplicates, delays and reorders packets: every request is
//! executed once, and every answer is correct.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::thread;

use super::common::{PATIENCE, host_with_faults, message, until_idle};
use homa::error::RecvError;
use homa::kernel_api::Arrival;
use homa::reader::EarlyDelivery;
use homa::{Host, Request, ServerAddr};

fn bad_host(seed: u64) -> Host {
    host_with_faults(seed, 0.05, 1_480)
}

#[test]
fn every_request_runs_once_and_every_answer_is_right() {
    const CALLS: u64 = 400;
    let seed = 7;
    println!("seed {seed}");
    let (server_host, host) = (bad_host(seed), bad_host(seed + 1));
    let server = server_host.server(99).unwrap();
    let to = ServerAddr::new(server_host.local_addr(), 99);
    let ran = Arc::new(Mutex::new(HashSet::new()));
    let echo = thread::spawn({
        let ran = Arc::clone(&ran);
        move || {
            loop {
                match server.recv().wait() {
                    Ok(mut rpc) => {
                        let request = rpc.take_payload();
                        assert!(ran.lock().unwrap().insert(request.clone()), "a request ran twice");
                        let _ = rpc.reply(request);
                    }
                    Err(RecvError::Closed) => return,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    });
    let client = host.client().unwrap();
    let request = |cookie: u64| message(16 + (cookie as usize * 977) % 60_000, cookie);
    for cookie in 0..CALLS {
        client.completions().submit(to, request(cookie), cookie).unwrap();
    }
    for _ in 0..CALLS {
        let done = client.completions().recv().timeout(PATIENCE).wait().expect("every call completes");
        assert!(done.result.unwrap() == request(done.cookie), "{} came back changed", done.cookie);
    }
    assert_eq!(ran.lock().unwrap().len() as u64, CALLS);
    assert!(host.metrics().endpoint.retransmits > 0, "nothing was lost");
    until_idle(&host);
    until_idle(&server_host);
    drop(server_host);
    echo.join().unwrap();
}

#[test]
fn requests_read_while_they_arrive_run_once_and_are_right() {
    const CALLS: u64 = 60;
    let seed = 9;
    println!("seed {seed}");
    let (server_host, host) = (bad_host(seed), bad_host(seed + 1));
    let early = EarlyDelivery::default().min_bytes(20_000).step_bytes(5_000);
    let server = server_host.server(99).unwrap().early(early);
    let to = ServerAddr::new(server_host.local_addr(), 99);
    let echo = thread::spawn(move || {
        let (mut ran, mut parts) = (HashSet::new(), 0);
        loop {
            let mut reader = match server.recv().wait().map(Request::reader) {
                Ok(reader) => reader,
                Err(RecvError::Closed) => return parts,
                Err(error) => panic!("{error}"),
            };
            let mut read = Vec::with_capacity(reader.length() as usize);
            while let Some(part) = reader.next_part().wait().unwrap() {
                read.extend_from_slice(&part);
                parts += 1;
            }
            assert!(ran.insert(read.clone()), "a request ran twice");
            reader.whole().wait().unwrap().reply(read).unwrap();
        }
    });
    let client = host.client().unwrap();
    let request = |cookie: u64| message(16 + (cookie as usize * 9_773) % 300_000, cookie);
    for cookie in 0..CALLS {
        client.completions().submit(to, request(cookie), cookie).unwrap();
    }
    for _ in 0..CALLS {
        let done = client.completions().recv().timeout(PATIENCE).wait().expect("every call completes");
        assert!(done.result.unwrap() == request(done.cookie), "{} came back changed", done.cookie);
    }
    assert!(host.metrics().endpoint.retransmits > 0, "nothing was lost");
    assert!(server_host.metrics().endpoint.requests_taken_early > 0, "none was taken early");
    until_idle(&host);
    until_idle(&server_host);
    drop(server_host);
    assert!(echo.join().unwrap() > CALLS);
}

/// Lost packets are resent from the copy, since the sender has reused its memory by then.
#[test]
fn what_is_lost_of_a_message_that_was_sent_from_where_it_lay_is_sent_again() {
    const CALLS: u64 = 40;
    let seed = 11;
    println!("seed {seed}");
    let (one, other) = (bad_host(seed), bad_host(seed + 1));
    let (client, server) = (one.socket(None).unwrap(), other.socket(Some(99)).unwrap());
    let to = ServerAddr::new(other.local_addr(), 99);
    let length = |tag: u64| 16_000 + (tag as usize * 97_711) % 984_000;
    let pass = |length: usize, tag: u64, send: &mut dyn FnMut(&[&[u8]])| {
        let mut bytes = message(length, tag).to_vec();
        let (first, rest) = bytes.split_at(length / 2);
        send(&[first, rest]);
        bytes.fill(0);
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            while let Ok(Arrival::Request { mut rpc, .. }) = server.recv(Some(PATIENCE)) {
                let (request, mut rpc) = (rpc.take_payload(), Some(rpc));
                let tag = (0..CALLS).find(|tag| request == message(length(*tag), *tag)).unwrap();
                pass(length(tag + 1), tag + 1, &mut |pieces| {
                    server.reply_pieces(rpc.take().unwrap(), pieces, false).unwrap();
                });
            }
        });
        for tag in 0..CALLS {
            pass(length(tag), tag, &mut |pieces| {
                _ = client.start_pieces(to, pieces, tag, false, false).unwrap()
            });
            let Ok(Arrival::Outcome(outcome)) = client.recv(Some(PATIENCE)) else { panic!("it has an end") };
            assert!(outcome.result.unwrap() == message(length(tag + 1), tag + 1), "{tag} came back changed");
        }
        server.close();
    });
    assert!(one.metrics().endpoint.retransmits > 0, "nothing of the requests was lost");
    assert!(other.metrics().endpoint.retransmits > 0, "nothing of the answers was lost");
    until_idle(&one);
    until_idle(&other);
}
