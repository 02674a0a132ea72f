//! Driving the endpoint: receiving and sending bursts, waiting, sleeping, waking, and the progress thread.
//!
//! # Threads
//!
//! The endpoint is single-threaded and has no locks inside. In `homa` it lives in an `Engine`, behind the
//! lock of its `Host`. A host of several endpoints has one such lock for each. Every lock counts how often it
//! was taken, how often it was not free, and how long threads waited for it.
//!
//! - **A waiting thread drives.** A thread in `call`, `recv` does the drive rounds
//!   itself, so that a lone RPC costs no hand-off between threads. It polls for a bounded time, then sleeps
//!   in the kernel (`wait`, `sleep`).
//! - **One of several waiting threads leads.** The followers sleep. Only as many are woken as have an item to
//!   take, by default the last to fall asleep first, since its caches are the warmest.
//! - **A sender sends.** A thread that starts a call or replies sends its packets itself, even if another
//!   thread leads.
//! - **A future** is driven by a task of the application's own tokio runtime (`async_driver`), and by
//!   the progress thread where there is none. Its time limit is a timer of the endpoint (`timers`).
//! - **The progress thread** (`progress_thread`) drives if no other thread has driven for a tick, which
//!   `tick_ns` there makes longer on slow links. Peers see BUSY while an application computes, not silence.
//!   Otherwise it sleeps. While the leader sleeps, the progress thread handles timers due in more than a
//!   tick: a timer of the leader's own would cost every sleep several microseconds. It also holds the
//!   processors out of deep sleep if `low_latency` is set (`latency`).
//! - **Time is read, not waited for.** The pacer and grants read the clock in each drive round, and neither
//!   has a timer. The clock is the machine's (CLOCK_MONOTONIC), since other processes share the uplink. It is
//!   read from the time-stamp counter (`homa-trace/monotonic`). Each thread reads both side by side once a
//!   millisecond. In between, one read of the counter serves the protocol and the time trace
//!   (`homa/runtime/clock`), for half of what the kernel's own clock takes. The clocks of two threads may
//!   differ by some 100 ns; the endpoint replaces an earlier time by the last one. The counter is used only
//!   if the kernel itself uses it, having compared it between processors.
//! - **Packets carry the time at which they were read** (`note_burst_in`), not the time at which the driver
//!   was called. A packet that arrived in between would otherwise look older than it is, by a tenth of a
//!   short round trip.
//! - **Batches are explicit, not guessed.** `submit_all`, `wait_batch` and `reply_all` send together what the
//!   application declares to belong together. Holding an answer back for a possible next one was rejected: a
//!   handler that once takes a millisecond would delay the earlier answers by that time.
//!
//! - **Four threads of the command serve the metrics** (`homa-metrics/exporter`); they sleep in accept.
//!   Requests, answers and their times are bounded, and 20 ms pass from one text to the next. A scraper thus
//!   costs a host its lock for some microseconds, whatever the scraper does. This library writes the text
//!   (`homa/observe/prometheus`) and serves nothing: a service has a port of its own for that.
//! - **The time of a call is taken when its response is handed out** (`homa/observe/times`), by one read of
//!   the clock for all responses of a round. A server's part is the time from the whole request until its
//!   answer is handed over; it uses clock reads that are made anyway. The buckets are fixed, of five classes
//!   of sizes, so that two moments can be subtracted and endpoints added.
//!
//! Wakers are called and buffers are freed after the lock is released: both may run code of the application
//! or take long (`shared_engine`).
//!
//! # Layers
//!
//! | layer | files |
//! |---|---|
//! | parts: types, tables, decisions | `calls`, `requests`, `receiving`, `sending`, `waiters`, `driving`, ... |
//! | `Engine`: the state behind the lock | `engine`: one file of methods for each concept |
//! | what takes the lock | `shared_engine`, `wait`, `progress_thread`, `async_driver`, `copy_and_send` |
//!
//! A part gets the other parts that it needs as arguments. Nothing in a lower layer names anything in a
//! higher one.

#[cfg(feature = "tokio")]
pub(crate) mod async_driver;
#[cfg(not(feature = "tokio"))]
#[path = "no_async_driver.rs"]
pub(crate) mod async_driver;
#[cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "there is no such task"))]
pub(crate) mod async_state;
pub(crate) mod bundles;
pub(crate) mod calls;
pub(crate) mod clock;
#[cfg(feature = "kernel-api")]
pub(crate) mod copy_and_send;
pub(crate) mod driving;
pub(crate) mod engine;
pub(crate) mod handover;
pub(crate) mod latency;
pub(crate) mod progress;
pub(crate) mod progress_thread;
pub(crate) mod receiving;
pub(crate) mod requests;
pub(crate) mod sending;
pub(crate) mod shared_engine;
pub(crate) mod sleep;
#[cfg_attr(
    not(feature = "kernel-api"),
    allow(dead_code, reason = "the engine keeps the tables of sockets, which only the feature opens")
)]
pub(crate) mod socket_outcome;
#[cfg_attr(
    not(feature = "kernel-api"),
    allow(dead_code, reason = "the engine keeps the tables of sockets, which only the feature opens")
)]
pub(crate) mod sockets;
pub(crate) mod task_queue;
pub(crate) mod task_wake;
pub(crate) mod timers;
pub(crate) mod wait;
pub(crate) mod wait_target;
pub(crate) mod waiters;
pub(crate) mod wake_chooser;
pub(crate) mod wake_fd;
