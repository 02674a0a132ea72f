//! Tests for costs that an RPC must not have: allocations in the steady state, and more than one lock
//! acquisition to send.
//!
//! Only one test runs at a time, since the tests count the operations of the whole process.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::Echo;
use homa::Bytes;

/// The system's allocator, which also counts allocations.
struct Counted;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is forwarded unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller fulfils the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller fulfils the contract of `dealloc`, which is the same.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller fulfils the contract of `alloc_zeroed`, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller fulfils the contract of `realloc`, which is the same.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// Ensures that only one test runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of allocations of the whole process per run of `rpc` in the steady state, in the
/// stretch of runs with the fewest. Allocations made by each RPC appear in all stretches. Allocations made
/// because a thread was descheduled appear only in some.
fn allocations_per_rpc(mut rpc: impl FnMut()) -> f64 {
    const WARM_UP: u64 = 1_000;
    const STRETCHES: u64 = 10;
    const STRETCH: u64 = 100;
    (0..WARM_UP).for_each(|_| rpc());
    let stretches = (0..STRETCHES).map(|_| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        (0..STRETCH).for_each(|_| rpc());
        ALLOCATIONS.load(Ordering::Relaxed) - before
    });
    stretches.min().expect("a stretch") as f64 / STRETCH as f64
}

/// Maximum allocations per RPC that count as rare events, such as the growth of a table.
const ONCE_IN_A_WHILE: f64 = 0.02;

#[test]
fn a_blocking_rpc_allocates_nothing() {
    let _alone = alone();
    for length in [100, 5_000, 200_000] {
        let echo = Echo::new(1);
        let host = common::host();
        let client = host.client().unwrap();
        let request = Bytes::from(vec![7; length]);
        let each = allocations_per_rpc(|| {
            assert_eq!(client.call(echo.to, request.clone()).wait().unwrap().len(), length);
        });
        assert!(each <= ONCE_IN_A_WHILE, "{each} allocations per RPC of {length} bytes, on both sides");
    }
}

#[test]
fn an_rpc_awaited_allocates_once_at_most() {
    let _alone = alone();
    let echo = Echo::new(1);
    let host = common::host();
    let client = host.client().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let request = Bytes::from_static(&[7; 100]);
    let each = allocations_per_rpc(|| {
        let response = runtime.block_on(client.call(echo.to, request.clone()));
        assert_eq!(response.unwrap().len(), 100);
    });
    assert!(each <= 1.0 + ONCE_IN_A_WHILE, "{each} allocations per RPC, on both sides");
}

#[test]
fn a_request_of_one_packet_takes_one_lock() {
    const REQUESTS: u64 = 1_000;
    let _alone = alone();
    let echo = Echo::new(1);
    let host = common::host();
    let client = host.client().unwrap();
    let request = Bytes::from_static(&[7; 100]);
    const STRETCH: u64 = 100;
    let stretches = (0..REQUESTS / STRETCH).map(|_| {
        let before = host.metrics().host.lock_acquisitions;
        for cookie in 0..STRETCH {
            client.completions().submit(echo.to, request.clone(), cookie).unwrap();
        }
        host.metrics().host.lock_acquisitions - before
    });
    // The progress thread takes the lock once per millisecond for as long as the stretch lasts. Reading the
    // metrics takes the lock, too.
    let taken = stretches.min().expect("a stretch");
    assert!((STRETCH..2 * STRETCH).contains(&taken), "{STRETCH} requests took the lock {taken} times");
    for _ in 0..REQUESTS {
        client.completions().recv().timeout(common::PATIENCE).wait().unwrap().result.unwrap();
    }
}
