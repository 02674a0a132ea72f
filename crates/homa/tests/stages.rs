//! Tests of the stages of an RPC in a host's time trace: all of them are present, in order, with peers, cores
//! and packets.

use std::collections::BTreeSet;
use std::time::Duration;

use super::common::{self, Echo, PATIENCE, config, eventually, message};
use homa::trace::{Dump, EventKind, Record, packet_word_parts};
use homa::{HostBuilder, ServerAddr};

fn traced() -> HostBuilder {
    config().trace_records(1 << 14)
}

/// Returns the first record of this kind, at or after the time `from`, that concerns this RPC or no
/// particular RPC.
fn first(dump: &Dump, kind: EventKind, id: u64, from: u64) -> Record {
    let of_rpc = |record: &&Record| record.id == id || record.id == 0;
    let fits = |record: &&Record| record.event() == Some(kind) && record.time >= from;
    let found = dump.records.iter().filter(of_rpc).find(fits);
    *found.unwrap_or_else(|| panic!("no {kind} of {id} at {from} or later: {:?}", dump.records))
}

fn in_order(dump: &Dump, id: u64, kinds: &[EventKind]) -> Vec<Record> {
    let mut time = 0;
    kinds
        .iter()
        .map(|&kind| {
            let record = first(dump, kind, id, time);
            time = record.time;
            record
        })
        .collect()
}

/// Returns the ID of the first RPC.
fn rpc_id(dump: &Dump) -> u64 {
    let start = dump.records.iter().find(|record| record.event() == Some(EventKind::RpcStart));
    start.expect("an RPC").id
}

#[test]
fn every_stage_of_a_call_is_there_and_in_its_order() {
    let echo = Echo::with(traced(), 1);
    let host = traced().bind().unwrap();
    host.client().unwrap().call(echo.to, message(300, 1)).timeout(PATIENCE).wait().unwrap();
    let dump = host.trace_dump();
    let id = rpc_id(&dump);
    let records = in_order(
        &dump,
        id,
        &[
            EventKind::AppSend,
            EventKind::RpcStart,
            EventKind::PacketSent,
            EventKind::BurstOut,
            EventKind::BurstTaken,
            EventKind::BurstIn,
            EventKind::PacketReceived,
            EventKind::MessageComplete,
            EventKind::RpcEnd,
            EventKind::BurstProcessed,
            EventKind::AppReceive,
        ],
    );
    assert_eq!((records[0].a, records[0].b), (0, 300));
    assert_eq!((records[3].a, records[4].a), (1, 1), "one packet in the burst");
    assert!(records[3].b >= 300 && records[5].a >= 1);
    assert_eq!((records[10].a, records[10].b), (1, 300));
    let number = records[2].place.peer().expect("a peer");
    assert_eq!(dump.node.others[&number], echo.to.host.to_string());
    assert_eq!(dump.node.name, host.local_addr().to_string());
    assert!(records[2].place.priority() > 0, "a short message goes before others");
    let cores = std::thread::available_parallelism().map_or(1, usize::from).max(1_024);
    assert!(dump.records.iter().all(|record| usize::from(record.place.core().expect("a core")) < cores));

    let server = echo.host.as_ref().unwrap().trace_dump();
    in_order(
        &server,
        id ^ 1,
        &[
            EventKind::BurstIn,
            EventKind::PacketReceived,
            EventKind::MessageComplete,
            EventKind::BurstProcessed,
            EventKind::AppReceive,
            EventKind::AppSend,
            EventKind::PacketSent,
            EventKind::BurstOut,
            EventKind::BurstTaken,
        ],
    );
}

#[test]
fn packets_in_bursts_are_as_many_as_those_recorded() {
    let echo = Echo::with(traced(), 1);
    let host = traced().bind().unwrap();
    let client = host.client().unwrap();
    for tag in 0..3 {
        let request = message(100_000, tag);
        assert!(client.call(echo.to, request.clone()).timeout(PATIENCE).wait().unwrap() == request);
    }
    let dump = host.trace_dump();
    assert_eq!(dump.overwritten, 0);
    let of = |kind| dump.records.iter().filter(move |record| record.event() == Some(kind));
    let sum = |kind| of(kind).map(|record| u64::from(record.a)).sum::<u64>();
    assert_eq!(sum(EventKind::BurstProcessed), of(EventKind::PacketReceived).count() as u64);
    // Some of the packets shared a datagram.
    assert!((1..=sum(EventKind::BurstProcessed)).contains(&sum(EventKind::BurstIn)));
    // Packets for which the driver had no room are offered to it again.
    assert!(sum(EventKind::BurstOut) >= sum(EventKind::BurstTaken));
    assert_eq!(sum(EventKind::BurstTaken), of(EventKind::PacketSent).count() as u64);
    let offsets: BTreeSet<(u64, u32)> = of(EventKind::PacketSent)
        .filter(|record| packet_word_parts(record.a).0 == 0x10)
        .map(|record| (record.id, record.b))
        .collect();
    assert!(offsets.len() > 3, "{offsets:?}");
}

#[test]
fn who_sleeps_and_who_wakes_is_recorded() {
    let sleepy = traced().poll(Duration::ZERO).endpoints(1);
    let echo = Echo::with(sleepy.clone(), 1);
    let host = sleepy.bind().unwrap();
    let client = host.client().unwrap();
    let has = |dump: &Dump, kind, a| dump.records.iter().any(|r| r.event() == Some(kind) && r.a == a);
    // Packets wake a leader that sleeps.
    eventually("a sleep that packets end", || {
        client.call(echo.to, message(100, 1)).timeout(PATIENCE).wait().unwrap();
        let dump = host.trace_dump();
        has(&dump, EventKind::Asleep, 0) && has(&dump, EventKind::Woken, 1)
    });
    // Of two waiting threads, one wakes the other, either to take its message or to lead.
    std::thread::scope(|scope| {
        let threads = [0, 1].map(|_| {
            scope.spawn(|| {
                eventually("a thread that another one wakes", || {
                    client.call(echo.to, message(100, 1)).timeout(PATIENCE).wait().unwrap();
                    has(&host.trace_dump(), EventKind::Woken, 0)
                });
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let dump = host.trace_dump();
    let wakes = dump.records.iter().filter(|record| record.event() == Some(EventKind::WakeSent));
    assert!(wakes.clone().count() > 0);
    assert!(wakes.filter(|record| record.a == 0).all(|record| record.id != 0), "woken for a message");
}

#[test]
fn completions_and_batches_are_stamped_as_calls_are() {
    let echo = Echo::with(traced(), 1);
    let host = traced().bind().unwrap();
    let client = host.client().unwrap();
    let mut calls: Vec<_> = (0..5).map(|n| (echo.to, message(200, n), n)).collect();
    client.completions().submit_all(&mut calls, |_, error| panic!("{error}"));
    client.completions().submit(echo.to, message(200, 9), 9).unwrap();
    let mut left = 6;
    while left > 0 {
        left -= client.completions().recv().timeout(PATIENCE).wait_batch(4, &mut Vec::new()).unwrap();
    }
    let dump = host.trace_dump();
    let ids = |kind, a| -> BTreeSet<u64> {
        let of = dump.records.iter().filter(|record| record.event() == Some(kind) && record.a == a);
        of.map(|record| record.id).collect()
    };
    let sent = ids(EventKind::AppSend, 0);
    assert_eq!(sent.len(), 6);
    assert!(!sent.contains(&0));
    assert_eq!(ids(EventKind::AppReceive, 1), sent);
}

#[test]
fn a_host_without_a_trace_has_an_empty_dump() {
    let echo = Echo::with(traced(), 1);
    let host = config().trace_records(0).bind().unwrap();
    host.client().unwrap().call(echo.to, message(300, 1)).timeout(PATIENCE).wait().unwrap();
    let dump = host.trace_dump();
    assert_eq!((dump.records.len(), dump.overwritten, dump.node.others.len()), (0, 0, 0));
}

#[test]
fn every_packet_has_the_kernels_time_where_that_is_wanted() {
    let echo = Echo::with(traced(), 1);
    let with_times = traced().trace_device_times(true);
    // The kernel starts timestamping packets some time after the first socket on the machine requests
    // timestamps.
    let first = with_times.clone().bind().unwrap();
    eventually("a packet with a time", || {
        first.client().unwrap().call(echo.to, message(10, 1)).timeout(PATIENCE).wait().unwrap();
        let dump = first.trace_dump();
        dump.records.iter().any(|record| record.event() == Some(EventKind::DeviceReceived))
    });
    let host = with_times.bind().unwrap();
    let client = host.client().unwrap();
    // Messages of one packet each, including one long enough to be received in place.
    for length in [100, 1_000, 60_000] {
        client.call(echo.to, message(length, 1)).timeout(PATIENCE).wait().unwrap();
    }
    let dump = host.trace_dump();
    let of = |kind| dump.records.iter().filter(move |record| record.event() == Some(kind));
    let key = |record: &Record| (record.id, record.a, record.b);
    let mut seen = 0;
    for device in of(EventKind::DeviceReceived) {
        let received = of(EventKind::PacketReceived).find(|record| key(record) == key(device));
        let received = received.unwrap_or_else(|| panic!("no such packet: {device:?}"));
        // The order is not certain, since threads may be interrupted, but times from different clocks would
        // differ by hours.
        let apart_ns = dump.time_ns(device).abs_diff(dump.time_ns(received));
        assert!(apart_ns < 10_000_000_000, "{device:?} {received:?}");
        seen += 1;
    }
    assert_eq!(seen, of(EventKind::PacketReceived).count());
    common::all_data_sent_has_a_time(&dump);
    assert!(seen >= 3);
    let without = echo.host.as_ref().unwrap().trace_dump();
    assert!(without.records.iter().all(|record| record.event() != Some(EventKind::DeviceReceived)));
}

/// Maximum number of clock reads for the trace at one end of an RPC with one packet each way. These reads are
/// most of the cost of a trace. One is for the application's call or answer and its packet, one for the
/// driver taking that packet, one for the burst that contains the received packet, and one for the end of
/// that burst and the delivery to the application.
const CLOCK_READS: usize = 4;

#[test]
fn a_short_rpc_reads_the_clock_no_more_often_than_it_has_stages() {
    let (client, server) = (traced().bind().unwrap(), traced().bind().unwrap());
    let (caller, port) = (client.client().unwrap(), server.server(99).unwrap());
    let to = ServerAddr::new(server.local_addr(), 99);
    const RPCS: usize = 100;
    // All calls are made in one thread, so that no thread sleeps or waits for a lock.
    for tag in 0..RPCS as u64 {
        let call = caller.call(to, message(100, tag)).start().unwrap();
        let mut rpc = port.recv().timeout(PATIENCE).wait().unwrap();
        let request = rpc.take_payload();
        rpc.reply(request).unwrap();
        call.wait().unwrap();
    }
    for (host, begins) in [(client, EventKind::AppSend), (server, EventKind::AppReceive)] {
        let dump = host.trace_dump();
        let mut times = BTreeSet::new();
        // Whether the record has its own time, or shares the time of an earlier record.
        let records: Vec<(&Record, bool)> =
            dump.records.iter().map(|record| (record, times.insert(record.time))).collect();
        // Each chunk extends from the beginning of one RPC to the beginning of the next.
        let each = records
            .chunk_by(|_, (next, _)| next.event() != Some(begins))
            .filter(|one| one[0].0.event() == Some(begins));
        let windows: Vec<(usize, usize)> =
            each.map(|one| (one.iter().filter(|(_, read)| *read).count(), one.len())).collect();
        assert_eq!(windows.len(), RPCS);
        // A timer or a descheduled thread can add records to an RPC but not remove any. The RPC with the
        // fewest reads therefore shows the cost of an RPC, however busy the machine is.
        let (reads, records) = *windows.iter().min().expect("an RPC");
        assert!(reads <= CLOCK_READS && records > 2 * reads, "{windows:?}");
    }
}
