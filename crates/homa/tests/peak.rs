//! Tests how much memory remains after a peak of RPCs. The test has its own process, since it measures the
//! whole process (LIMIT-11).

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use homa::{Bytes, Client, Host, Server, ServerAddr};
use homa_testkit::resident_bytes;

/// The system's allocator, which also counts the bytes in use.
struct CountingAllocator;

static IN_USE: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is forwarded unchanged to the system's allocator, with the same `GlobalAlloc` contract.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller passed `layout`, whose size is not zero by the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: `memory` came from `System` with this layout, as all memory of this allocator does.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller passed `layout`, whose size is not zero by the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        IN_USE.fetch_add(size as u64, Ordering::Relaxed);
        IN_USE.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: `memory` came from `System` with this layout, and `size` is not zero by the contract of
        // `realloc`.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Returns the resident bytes and the heap bytes in use.
fn memory() -> (u64, u64) {
    let resident = resident_bytes(std::process::id()).expect("this process is there");
    (resident, IN_USE.load(Ordering::Relaxed))
}

const REQUEST: Bytes = Bytes::from_static(&[7; 100]);

fn echo(client: &Client, to: ServerAddr, calls: usize) {
    for _ in 0..calls {
        client.call(to, REQUEST).wait().expect("answered");
    }
}

/// Number of messages sent before the other side receives them: few enough for any socket's buffer. If
/// messages overflow a buffer on a busy machine, RESENDs recover them, but that takes long with 50,000 open
/// RPCs.
const BATCH: usize = 250;

/// Opens `calls` calls, all of which the server holds at the same time. Returns the memory in use at that
/// time.
fn peak(client: &Client, server: &Server, to: ServerAddr, calls: usize) -> (u64, u64) {
    let mut in_hand = Vec::with_capacity(calls);
    while in_hand.len() < calls {
        for cookie in in_hand.len()..calls.min(in_hand.len() + BATCH) {
            client.completions().submit(to, REQUEST, cookie as u64).expect("taken");
        }
        for _ in in_hand.len()..calls.min(in_hand.len() + BATCH) {
            in_hand.push(server.recv().timeout(Duration::from_secs(20)).wait().expect("a request"));
        }
    }
    let most = memory();
    while !in_hand.is_empty() {
        let answered = in_hand.split_off(in_hand.len().saturating_sub(BATCH));
        let count = answered.len();
        answered.into_iter().for_each(|rpc| rpc.reply(REQUEST).expect("wanted"));
        for _ in 0..count {
            client.completions().recv().timeout(Duration::from_secs(20)).wait().expect("a completion");
        }
    }
    most
}

#[test]
fn the_memory_of_a_peak_goes_back() {
    let host = || {
        let config = Host::builder().address("127.0.0.1:0".parse().expect("valid"));
        config.bind().expect("bound")
    };
    let (at_server, at_client) = (host(), host());
    let server = at_server.server(99).expect("free");
    let client = at_client.client().expect("free");
    let to = ServerAddr { host: at_server.local_addr(), port: 99 };
    let answers = |count: usize| {
        for _ in 0..count {
            let mut rpc = server.recv().wait().expect("a request");
            let bytes = rpc.take_payload();
            rpc.reply(bytes).expect("wanted");
        }
    };
    let both = |calls| {
        thread::scope(|scope| {
            scope.spawn(|| answers(calls));
            echo(&client, to, calls);
        });
    };
    both(3_000);
    let before = memory();
    println!("{before:?} before");
    let most = peak(&client, &server, to, 50_000);
    println!("{most:?} at the peak");
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        thread::sleep(Duration::from_millis(100));
        both(1);
    }
    let after = memory();
    println!("{after:?} ten seconds later");
    assert!(after.1 < before.1 / 2 * 3, "{after:?} resident and used bytes stay, {before:?} before");
    // glibc decides when to return free pages at the end of a thread's heap, depending on what was freed
    // last.
    assert!(after.0 < most.0 / 2, "{after:?} resident and used bytes stay of {most:?}");
}
