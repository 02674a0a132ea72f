//! Drives the endpoint: receiving and sending bursts, waiting, sleeping, waking, and the progress thread.
//!
//! # Threads
//!
//! The endpoint is single-threaded and has no internal locks. In `homa` it is part of an `Engine`, behind the
//! lock of its `Host`. A host with several endpoints has one such lock for each. For every lock, counters
//! show how many times it was taken, how many times it was not free, and how long threads waited for it.
//!
//! - **A waiting thread drives.** A thread in `call` or `recv` does the drive rounds itself, so that a lone
//!   RPC costs no hand-off between threads. The thread polls for a bounded time, then sleeps in the kernel
//!   (`wait`, `sleep`).
//! - **One of several waiting threads leads.** The followers sleep. A follower is woken only if there is an
//!   item for it to take. By default, the follower that fell asleep last is woken first, since its caches are
//!   the warmest.
//! - **A sender sends.** A thread that starts a call or replies sends its packets itself, even if another
//!   thread leads.
//! - **A future** is driven by a task of the application's own tokio runtime (`async_driver`), or by the
//!   progress thread if there is none. A future's time limit is a timer of the endpoint (`timers`).
//! - **The progress thread** (`progress_thread`) drives if no other thread has driven for a tick, whose
//!   length `tick_ns` increases on slow links. Peers then see BUSY, not silence, while an application
//!   computes. Otherwise the progress thread sleeps. While the leader sleeps, the progress thread handles
//!   timers that are due in more than a tick: a timer of its own would cost the leader several microseconds
//!   for every sleep. The progress thread also keeps the processors out of deep sleep if `low_latency` is set
//!   (`latency`).
//! - **Time is read, not waited for.** The pacer and grants read the clock in each drive round, and neither
//!   has a timer. The clock is the machine's monotonic clock (CLOCK_MONOTONIC), since other processes share
//!   the uplink. Its time is derived from the time-stamp counter (`homa-trace/monotonic`). Once a millisecond
//!   each thread reads the kernel's clock and the counter side by side. In between, one read of the counter
//!   serves the protocol and the time trace (`homa/runtime/clock`), at half the cost of the kernel's clock.
//!   The clocks of two threads may differ by about 100 ns; the endpoint replaces a time that is earlier than
//!   its last one by that one. The counter is used only if the kernel itself uses it after comparing it
//!   between processors.
//! - **Packets carry the time at which they were read** (`note_burst_in`), not the time at which the driver
//!   was called. Otherwise a packet that arrived in between would look older than it is, by a tenth of a
//!   short round trip.
//! - **Batches are explicit, not guessed.** `submit_all`, `wait_batch` and `reply_all` send together what the
//!   application declares to belong together. Holding an answer back in case another one follows was
//!   rejected: a handler that occasionally takes a millisecond would delay the earlier answers by that time.
//!
//! - **Four threads of the command serve the metrics** (`homa-metrics/exporter`); they sleep in accept. The
//!   sizes and times of requests and answers are bounded, and texts are produced at least 20 ms apart. A
//!   scraper therefore takes a host's lock for only a few microseconds, whatever the scraper does. This
//!   library writes the text (`homa/observe/prometheus`) but does not serve it: a service has its own port
//!   for that.
//! - **The time of a call is taken when its response is handed over** (`homa/observe/times`), with one clock
//!   read for all responses of a round. A server's part is the time from the arrival of the whole request
//!   until its answer is handed over. It uses clock reads that are made anyway. The buckets are fixed, in
//!   five size classes, so that snapshots can be subtracted and endpoints can be added.
//!
//! Wakers are called and buffers are freed after the lock is released: both may run application code or take
//! long (`shared_engine`).
//!
//! # Layers
//!
//! | layer | files |
//! |---|---|
//! | parts: types, tables, decisions | `calls`, `requests`, `receiving`, `sending`, `waiters`, `driving`, ... |
//! | `Engine`: the state behind the lock | `engine`: one file of methods for each concept |
//! | code that takes the lock | `shared_engine`, `wait`, `progress_thread`, `async_driver`, `copy_and_send` |
//!
//! A part gets the other parts that it needs as arguments. A lower layer never refers to a higher layer.

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
