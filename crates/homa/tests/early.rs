//! Tests of requests that are read while they arrive: their bytes, premature ends, and effects on other
//! requests.

use std::collections::HashSet;
use std::thread;
use std::time::Duration;

use super::common::hand::Hand;
use super::common::{PATIENCE, config, eventually, host, message, until_idle};
use homa::error::{CallError, ReadError, RecvError, ReplyError};
use homa::proto::{MS, SEC, wire};
use homa::reader::{EarlyDelivery, RequestReader};
use homa::{Host, HostBuilder, Request, Server, ServerAddr};

const PORT: u16 = 99;
const LENGTH: u32 = 100_000;
const PACKET: u32 = 10_000;
/// Number of bytes that the tests send first.
const FIRST: u32 = 3 * PACKET;

fn delivery() -> EarlyDelivery {
    EarlyDelivery::default().min_bytes(LENGTH).step_bytes(2 * PACKET)
}

/// Configures a host to wait longer than any test runs for clients whose packets the test sends itself.
fn patient() -> HostBuilder {
    config().configure(|config| config.protocol.client_silence_ns = 600 * SEC)
}

fn early(config: HostBuilder) -> (Host, Server) {
    let host = config.bind().unwrap();
    let server = host.server(PORT).unwrap().early(delivery());
    assert_eq!(server.port(), PORT);
    (host, server)
}

/// Sends bytes `[from, to)` of the request with this ID; the content depends on the ID.
fn data(hand: &Hand, id: u64, port: u16, from: u32, to: u32) {
    let all = message(LENGTH as usize, id);
    for offset in (from..to).step_by(PACKET as usize) {
        hand.data(id, port, &all, offset..offset + PACKET);
    }
}

/// Reads at least up to `end`, and checks the bytes.
fn read_to(reader: &mut RequestReader, id: u64, end: u32) {
    let all = message(LENGTH as usize, id);
    while reader.position() < end {
        let at = reader.position() as usize;
        let part = reader.next_part().timeout(PATIENCE).wait().unwrap().unwrap();
        assert!(!part.is_empty() && part == all[at..][..part.len()], "bytes from {at} on");
    }
}

/// Starts a request: sends its first three packets, and reads two or three of them.
fn half_read(hand: &Hand, server: &Server, id: u64) -> RequestReader {
    data(hand, id, PORT, 0, FIRST);
    let mut reader = server.recv().wait().unwrap().reader();
    assert_eq!((reader.length(), reader.port(), reader.position()), (LENGTH, PORT, 0));
    assert_eq!(reader.peer(), hand.socket.local_addr().unwrap());
    read_to(&mut reader, id, FIRST - PACKET);
    reader
}

#[test]
fn the_first_bytes_are_read_before_the_last_were_sent() {
    let (host, server) = early(patient());
    let hand = Hand::new(&host);
    // If the host has two endpoints, each owns one of these IDs.
    for id in [2, 4] {
        let mut reader = half_read(&hand, &server, id);
        assert_eq!(host.metrics().host.open_readings, 1);
        while reader.position() < FIRST {
            // The third packet is smaller than a delivery step, so it may be reported only together with the
            // rest.
            match reader.next_part().timeout(Duration::ZERO).wait() {
                Ok(Some(_)) => {}
                Err(ReadError::TimedOut) => break,
                other => panic!("{other:?}"),
            }
        }
        assert!(reader.position() <= FIRST);
        assert_eq!(reader.next_part().timeout(Duration::ZERO).wait(), Err(ReadError::TimedOut));
        data(&hand, id, PORT, FIRST, LENGTH);
        read_to(&mut reader, id, LENGTH);
        assert_eq!((reader.next_part().wait(), reader.next_part().wait()), (Ok(None), Ok(None)));
        let rpc = reader.whole().wait().unwrap();
        assert!(*rpc.payload() == message(LENGTH as usize, id));
        rpc.reply("whole").unwrap();
        hand.hear(id, |body| matches!(body, wire::Body::Data(_)));
        hand.send(id, PORT, &wire::Body::Ack(wire::AckList::new()), &[]);
    }
    until_idle(&host);
    assert_eq!(host.metrics().host.open_readings, 0);
    assert_eq!(host.metrics().endpoint.requests_taken_early, 2);
}

#[test]
fn what_nobody_took_before_it_was_whole_is_whole_when_it_is_taken() {
    let (host, server) = early(patient());
    let hand = Hand::new(&host);
    data(&hand, 2, PORT, 0, LENGTH);
    eventually("the request is whole", || host.metrics().endpoint.requests_delivered == 1);
    let mut reader = server.recv().wait().unwrap().reader();
    assert!(
        reader.next_part().wait().unwrap().unwrap() == message(LENGTH as usize, 2),
        "in one part, and not a copy"
    );
    assert_eq!(reader.next_part().wait(), Ok(None));
    drop(reader);
    until_idle(&host);
}

#[test]
fn a_client_that_gives_up_half_way_ends_the_reader() {
    let (host, server) = early(patient());
    let hand = Hand::new(&host);
    let mut reader = half_read(&hand, &server, 2);
    hand.send(2, PORT, &wire::Body::Ack(wire::AckList::new()), &[]);
    let gone = ReadError::ClientGaveUp { peer: hand.socket.local_addr().unwrap() };
    let error = loop {
        // The third packet may be reported before the error.
        if let Err(error) = reader.next_part().wait() {
            break error;
        }
    };
    assert_eq!(error, gone);
    assert_eq!(reader.next_part().wait(), Err(gone), "again and again");
    until_idle(&host);
    // The request is not executed again, however late its packets arrive.
    data(&hand, 2, PORT, 0, LENGTH);
    data(&hand, 6, PORT, 0, LENGTH);
    let next = server.recv().wait().unwrap().reader().whole().wait().unwrap();
    assert!(*next.payload() == message(LENGTH as usize, 6));
    assert_eq!(server.recv().timeout(Duration::ZERO).wait().map(|_| ()), Err(RecvError::TimedOut));
    assert_eq!(host.metrics().endpoint.drop_finished, u64::from(LENGTH / PACKET));
    assert_eq!(reader.whole().wait().map(|_| ()), Err(gone));
}

#[test]
fn a_client_that_restarts_half_way_ends_the_reader() {
    let (host, server) = early(patient());
    let mut hand = Hand::new(&host);
    let reader = half_read(&hand, &server, 2);
    hand.incarnation += 1;
    // Use an ID of the same endpoint: another endpoint would not know this client, and so would not notice
    // the restart.
    data(&hand, 6, PORT, 0, PACKET);
    hand.prove();
    let peer = hand.socket.local_addr().unwrap();
    assert_eq!(reader.whole().wait().map(|_| ()), Err(ReadError::ClientRestarted { peer }));
    data(&hand, 2, PORT, 0, FIRST);
    assert_eq!(
        server.recv().wait().unwrap().reader().length(),
        LENGTH,
        "the new life's request of the same id"
    );
}

#[test]
fn a_client_that_falls_silent_half_way_ends_the_reader() {
    let mut config = config();
    // This is longer than a busy machine may delay this thread: if the client fell silent too early, its
    // request would be removed from the queue.
    config = config.configure(|config| config.protocol.client_silence_ns = 1_000 * MS);
    config = config.configure(|config| config.protocol.resend_interval_ns = 100 * MS);
    config = config.configure(|config| config.protocol.resend_interval_max_ns = 100 * MS);
    let (host, server) = early(config);
    let hand = Hand::new(&host);
    data(&hand, 2, PORT, 0, FIRST);
    let error = server.recv().wait().unwrap().reader().whole().wait().map(|_| ()).unwrap_err();
    assert_eq!(error, ReadError::ClientSilent { peer: hand.socket.local_addr().unwrap() });
    until_idle(&host);
}

#[test]
fn a_reader_that_is_dropped_half_way_leaves_nothing_and_tells_its_client() {
    let (host, server) = early(patient());
    let hand = Hand::new(&host);
    drop(half_read(&hand, &server, 2));
    until_idle(&host);
    assert_eq!(host.metrics().host.open_readings, 0);
    data(&hand, 2, PORT, FIRST, LENGTH);
    hand.send(2, PORT, &wire::Body::Resend(wire::Resend { offset: 0, length: None, priority: 5 }), &[]);
    hand.hear(2, |body| *body == wire::Body::RpcUnknown(wire::UnknownReason::Finished));
    assert_eq!(server.recv().timeout(Duration::ZERO).wait().map(|_| ()), Err(RecvError::TimedOut));
    // The same holds for a request that is still in the queue.
    data(&hand, 6, PORT, 0, FIRST);
    eventually("it is in the queue", || host.metrics().host.queued_requests == 1);
    assert_eq!(host.metrics().host.queued_request_bytes, u64::from(LENGTH));
    hand.send(6, PORT, &wire::Body::Ack(wire::AckList::new()), &[]);
    until_idle(&host);
    assert_eq!(server.recv().timeout(Duration::ZERO).wait().map(|_| ()), Err(RecvError::TimedOut));
}

#[test]
fn a_call_whose_reader_is_dropped_fails() {
    let (server_host, server) = early(config());
    let host = host();
    let to = ServerAddr::new(server_host.local_addr(), PORT);
    // The port stays open: otherwise the client would get an error about the port.
    let dropper = thread::spawn({
        let server = server.clone();
        move || drop(server.recv().wait().unwrap())
    });
    assert_eq!(
        host.client().unwrap().call(to, vec![1; 1_000_000]).wait(),
        Err(CallError::ResponseLost { to })
    );
    dropper.join().unwrap();
    until_idle(&host);
    until_idle(&server_host);
}

#[test]
fn a_slow_reader_holds_up_nobody() {
    let (server_host, server) = early(patient());
    let hand = Hand::new(&server_host);
    let slow: Vec<_> = [2, 4, 6, 8].into_iter().map(|id| (id, half_read(&hand, &server, id))).collect();
    let host = host();
    let client = host.client().unwrap();
    let to = ServerAddr::new(server_host.local_addr(), PORT);
    let echo = thread::spawn({
        let server = server.clone();
        move || {
            while let Ok(reader) = server.recv().wait().map(Request::reader) {
                let rpc = reader.whole().wait().unwrap();
                let answer = rpc.payload().clone();
                rpc.reply(answer).unwrap();
            }
        }
    });
    for (tag, size) in [1, 1_000, 50_000, 900_000].into_iter().enumerate() {
        let request = message(size, tag as u64);
        assert!(client.call(to, request.clone()).wait().unwrap() == request);
    }
    for (id, mut reader) in slow {
        data(&hand, id, PORT, FIRST, LENGTH);
        read_to(&mut reader, id, LENGTH);
    }
    drop(server_host);
    echo.join().unwrap();
}

#[test]
fn requests_that_are_short_or_for_other_servers_are_handed_out_whole() {
    let (host, server) = early(patient());
    let plain = host.server(PORT + 1).unwrap();
    let longer = delivery().min_bytes(LENGTH + 1);
    let longer = host.server(PORT + 2).unwrap().early(longer);
    let hand = Hand::new(&host);
    data(&hand, 2, PORT + 1, 0, FIRST);
    data(&hand, 6, PORT + 2, 0, FIRST);
    data(&hand, 10, PORT, 0, FIRST);
    // All these requests belong to the same endpoint, so once the last has arrived, the others have, too.
    let reader = server.recv().wait().unwrap().reader();
    assert_eq!(plain.recv().timeout(Duration::ZERO).wait().map(|_| ()), Err(RecvError::TimedOut));
    assert_eq!(longer.recv().timeout(Duration::ZERO).wait().map(|_| ()), Err(RecvError::TimedOut));
    data(&hand, 2, PORT + 1, FIRST, LENGTH);
    data(&hand, 6, PORT + 2, FIRST, LENGTH);
    assert!(*plain.recv().wait().unwrap().payload() == message(LENGTH as usize, 2));
    assert!(
        *longer.recv().wait().unwrap().reader().whole().wait().unwrap().payload()
            == message(LENGTH as usize, 6)
    );
    drop(reader);
    until_idle(&host);
}

#[test]
fn the_limit_of_queued_bytes_holds_for_what_is_queued_early() {
    let (host, server) = early(patient().max_queued_request_bytes(u64::from(LENGTH)));
    let hand = Hand::new(&host);
    data(&hand, 2, PORT, 0, FIRST);
    eventually("the first is queued", || host.metrics().host.queued_requests == 1);
    data(&hand, 6, PORT, 0, FIRST);
    eventually("the other has come", || host.metrics().endpoint.data_received == 6);
    assert_eq!(host.metrics().host.queued_requests, 1);
    data(&hand, 6, PORT, FIRST, LENGTH);
    eventually("the other is refused", || host.metrics().host.requests_refused == 1);
    let mut reader = server.recv().wait().unwrap().reader();
    read_to(&mut reader, 2, FIRST - PACKET);
    drop(reader);
    until_idle(&host);
}

#[test]
fn a_host_that_is_shut_down_ends_its_readers() {
    let (host, server) = early(patient());
    let hand = Hand::new(&host);
    let mut waits = half_read(&hand, &server, 2);
    let mut later = half_read(&hand, &server, 4);
    let thread = thread::spawn(move || {
        loop {
            if let Err(error) = waits.next_part().wait() {
                return error;
            }
        }
    });
    assert!(!host.shutdown(Duration::ZERO), "two requests are in hand");
    assert_eq!(thread.join().unwrap(), ReadError::Closed);
    assert_eq!(later.next_part().wait(), Err(ReadError::Closed));
}

#[test]
fn a_host_that_shuts_down_lets_its_readers_read_on() {
    let (host, server) = early(patient());
    let hand = Hand::new(&host);
    let reader = half_read(&hand, &server, 2);
    let closing = thread::spawn(move || host.shutdown(PATIENCE));
    while server.recv().timeout(Duration::ZERO).wait().map(|_| ()) != Err(RecvError::Closed) {
        thread::yield_now();
    }
    data(&hand, 2, PORT, FIRST, LENGTH);
    reader.whole().wait().unwrap().reply("whole").unwrap();
    hand.hear(2, |body| matches!(body, wire::Body::Data(_)));
    hand.send(2, PORT, &wire::Body::Ack(wire::AckList::new()), &[]);
    assert!(closing.join().unwrap());
}

#[test]
fn tasks_read_what_arrives() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (host, server) = early(patient());
        let hand = Hand::new(&host);
        for id in [2, 4] {
            data(&hand, id, PORT, 0, FIRST);
            let mut reader = server.recv().await.unwrap().reader();
            let first = reader.next_part().await.unwrap().unwrap();
            assert!(first.len() < LENGTH as usize && first == message(LENGTH as usize, id)[..first.len()]);
            // Dropping the future loses no bytes.
            let nothing = tokio::time::timeout(Duration::from_millis(1), reader.next_part());
            let more = nothing.await.map_or(0, |part| part.unwrap().unwrap().len());
            data(&hand, id, PORT, FIRST, LENGTH);
            let mut read = first.len() + more;
            while let Some(part) = reader.next_part().await.unwrap() {
                assert!(part == message(LENGTH as usize, id)[read..][..part.len()]);
                read += part.len();
            }
            assert_eq!(read, LENGTH as usize);
            reader.whole().await.unwrap().reply("whole").unwrap();
            hand.hear(id, |body| matches!(body, wire::Body::Data(_)));
            hand.send(id, PORT, &wire::Body::Ack(wire::AckList::new()), &[]);
        }
        until_idle(&host);
    });
}

#[test]
fn many_clients_send_and_several_threads_read() {
    const CALLS: u64 = 40;
    let (server_host, server) = early(config());
    let to = ServerAddr::new(server_host.local_addr(), PORT);
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let server = server.clone();
            thread::spawn(move || {
                let mut seen = Vec::new();
                while let Ok(mut reader) = server.recv().wait().map(Request::reader) {
                    let mut read = Vec::new();
                    while let Some(part) = reader.next_part().wait().unwrap() {
                        read.extend_from_slice(&part);
                        assert_eq!(reader.position() as usize, read.len());
                    }
                    let rpc = reader.whole().wait().unwrap();
                    assert!(*rpc.payload() == read[..]);
                    seen.push(read[..8].to_vec());
                    rpc.reply(read).unwrap();
                }
                seen
            })
        })
        .collect();
    let host = host();
    let client = host.client().unwrap();
    let request = |cookie: u64| message(1_000 + (cookie as usize * 61_007) % 900_000, cookie);
    for cookie in 0..CALLS {
        client.completions().submit(to, request(cookie), cookie).unwrap();
    }
    for _ in 0..CALLS {
        let done = client.completions().recv().timeout(PATIENCE).wait().expect("every call completes");
        assert!(done.result.unwrap() == request(done.cookie), "{} came back changed", done.cookie);
    }
    until_idle(&host);
    until_idle(&server_host);
    drop(server_host);
    let seen: Vec<Vec<u8>> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    assert_eq!(seen.len() as u64, CALLS);
    assert_eq!(seen.into_iter().collect::<HashSet<_>>().len() as u64, CALLS, "a request ran twice");
}

#[test]
fn a_request_that_is_not_whole_cannot_be_answered() {
    let (host, server) = early(patient());
    let hand = Hand::new(&host);
    let peer = hand.socket.local_addr().unwrap();
    let part = |id| {
        data(&hand, id, PORT, 0, FIRST);
        let request = server.recv().wait().unwrap();
        assert!(!request.is_whole() && request.payload().is_empty());
        request
    };
    let refused = Err(ReplyError::StillArriving { peer });
    assert_eq!(part(2).reply("too early"), refused);
    let (mut replies, mut errors) = (vec![(part(4), "too early".into())], Vec::new());
    Request::reply_all(&mut replies, |error| errors.push(Err(error)));
    assert_eq!((replies.len(), errors), (0, vec![refused]));
    // Both requests were given up, and none of their state is left.
    until_idle(&host);
    assert_eq!(host.metrics().endpoint.responses_started, 0);
}

#[test]
fn a_time_limit_ends_the_futures_of_a_reader() {
    let (host, server) = early(patient());
    let hand = Hand::new(&host);
    let timeout = Duration::from_millis(2);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut reader = half_read(&hand, &server, 2);
        while reader.position() < FIRST {
            match reader.next_part().timeout(timeout).await {
                Ok(Some(_)) => {}
                Err(ReadError::TimedOut) => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(reader.next_part().timeout(timeout).await, Err(ReadError::TimedOut));
        assert_eq!(reader.whole().timeout(timeout).await.map(|_| ()), Err(ReadError::TimedOut));
    });
    // The request was given up.
    until_idle(&host);
}
