//! Driving the endpoint: receiving and sending bursts, waiting, sleeping, waking, and the progress thread.
//!
//! # Threads
//!
//! The endpoint is single-threaded and has no locks inside. In `homa` it lives in an `Engine`, behind the one lock
//! of its `Host`, or one of its locks where it has several endpoints. Every lock counts how often it was
//! taken, how often it was not free, and how long that took.
//!
//! - **Whoever waits drives.** A thread in `call`, `recv` or `recv_completion` does the drive rounds itself,
//!   so that a lone RPC costs no hand-off between threads. It polls for a bounded time, then sleeps in the
//!   kernel (`wait`, `sleep`).
//! - **Of several waiting threads one leads.** The others sleep. Only as many are woken as have something to
//!   take, by default the last to fall asleep first, since its caches are the warmest.
//! - **A sender sends.** A thread that starts a call or replies sends its packets itself, whoever leads.
//! - **A future** is driven by a task of the application's own tokio runtime (`async_driver`).
//! - **The progress thread** (`progress`) drives when nobody else has for a tick, which `tick_ns` there makes
//!   longer on slow links. Peers see BUSY while an application computes, not silence. It sleeps otherwise.
//!   What is due in more than a tick is its business while the leader sleeps: a timer of the leader's own
//!   would cost every sleep several microseconds. It also holds the processors out of deep sleep where
//!   `low_latency` asks for that (`latency`).
//! - **Time is asked for, not waited for.** The pacer and grants look at the clock in each drive round, and
//!   none has a timer. The clock is the machine's (CLOCK_MONOTONIC), since the uplink of other processes is
//!   the same, and is read from the time-stamp counter (`homa-trace/monotonic`): each thread looks at both
//!   side by side once a millisecond, and one look at the counter in between serves the protocol and the time
//!   trace (`homa/runtime/clock`), for half of what the kernel's own takes. Two threads may be apart by some
//!   100 ns; the endpoint takes an earlier time as the last one. Only where the kernel itself counts so: it
//!   has compared the counter between processors.
//! - **Packets have the time at which they were read** (`note_burst_in`), not that at which the driver was
//!   asked: what came in between would be older than it is, by a tenth of a short round trip.
//! - **Batches are said, not guessed.** `submit_all`, `recv_all` and `reply_all` send together what the
//!   application says belongs together. Holding an answer back for a next one that may come was rejected: a
//!   handler that takes a millisecond for once would delay the answers before it by that.
//!
//! - **Metrics are served by four threads of the command** (`homa-metrics/exporter`), which sleep in accept.
//!   Requests, answers and their times are bounded, and from one text to the next 20 ms pass: a scraper costs
//!   a host its lock for some microseconds, whatever it does. This library writes the text
//!   (`homa/observe/prometheus`) and serves nothing: a service has a port of its own for that.
//! - **A call's time is taken when its response is handed out** (`homa/observe/times`), by one look at the
//!   clock for all that a round brought; a server's part, from when the request is whole until its answer is
//!   handed over, by looks that are taken anyway. The buckets are fixed, of five classes of sizes, so that
//!   two moments can be subtracted and endpoints added.
//!
//! Wakers are called and buffers are freed after the lock is given back: both may run code of the application
//! or take long (`shared`).

pub(crate) mod async_driver;
pub(crate) mod bundles;
pub(crate) mod clock;
pub(crate) mod drive;
pub(crate) mod engine;
pub(crate) mod latency;
pub(crate) mod progress;
pub(crate) mod shared_engine;
pub(crate) mod shrink;
pub(crate) mod sleep;
pub(crate) mod wait;
pub(crate) mod wake_chooser;
