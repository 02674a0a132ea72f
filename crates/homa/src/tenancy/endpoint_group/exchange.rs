//! Matches requests that arrive at an endpoint where no thread waits with threads that wait at other
//! endpoints of the host.
//!
//! A server port is open in all endpoints of its host, and a thread in `recv` waits at one of them. The same
//! holds for a socket with a server port, whose call outcomes are offered like requests. The socket's waker
//! is also called, but does not count as a waiter. An endpoint with a request but no available thread marks
//! itself in `surplus` and calls for help: one thread that waits at another endpoint is woken. In the steady
//! state each endpoint has its own threads, and nothing is written here.
//!
//! Most busy threads return soon, and a wake-up costs more than the time until they return. Therefore, as
//! long as recent history supports it, an endpoint only marks itself and makes no call: threads that poll at
//! other endpoints see the mark at once, and the endpoint's own threads return. If no thread takes the
//! request in time, the endpoint's progress thread makes the call within a tick. For a while after that,
//! calls are made at once ([`HandoverBackoff`](crate::runtime::handover::HandoverBackoff)). In an earlier
//! version, a call was made for each request that found all threads of its endpoint busy. A loaded server
//! then made more than one call per RPC, and each call takes the lock of another endpoint.
//!
//! # Why no request is stranded
//! Assume that a request is in the queue of endpoint E, and no thread that waits at E is on its way. The
//! request was recorded as ready under E's lock. The thread that released that lock woke a thread or task of
//! E, or marked E. A thread that takes one of several requests and leaves others also marks E (`pass_on` of
//! the engine). While E has such a request, E's progress thread does not rest: once per tick it checks, marks
//! E, and calls. It is therefore sufficient to show that a call finds a thread if any thread sleeps:
//! - A thread that goes to sleep at H announces H in `waiting` and then checks `surplus`, both while it holds
//!   H's lock to enter H's list of sleepers. A caller checks that list under the same lock. If the caller
//!   checks before the sleeper takes the lock, the sleeper sees the caller's mark. If the caller checks
//!   later, it finds the sleeper. (An announcement stands until a caller finds no waiter at H.)
//! - While a call is in progress (`called`), no second call is made. A call ends when the woken thread
//!   checks, or when no waiter was found. To end it, first `called` is cleared and then `surplus` is checked
//!   again, so that a mark made in the meantime is seen.
//!
//! All of these accesses are sequentially consistent. A mark is removed under E's lock when the queue is
//! empty.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::runtime::wait_target::WaitTarget;
use crate::types::error::RecvError;

/// The exchange of one server port or socket, for all endpoints of its host. See the [module](self).
pub(crate) struct RequestExchange {
    /// The port's wait target in each endpoint.
    ons: Vec<WaitTarget>,
    /// One bit for each endpoint that has requests but no waiting thread.
    surplus: AtomicU64,
    /// One bit for each endpoint where a thread or task waits, or waited recently.
    waiting: AtomicU64,
    /// Whether a call for help is in progress.
    called: AtomicBool,
}

impl fmt::Debug for RequestExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestExchange")
            .field("surplus", &self.surplus)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

impl RequestExchange {
    /// Creates the exchange of a port that is open in all endpoints; `ons` are its wait targets there.
    pub(crate) fn new(ons: Vec<WaitTarget>) -> RequestExchange {
        let (surplus, waiting) = (AtomicU64::new(0), AtomicU64::new(0));
        RequestExchange { ons, surplus, waiting, called: AtomicBool::new(false) }
    }

    /// Announces a thread or task that may wait at `endpoint`, and ends the call for help if such a call woke
    /// it. The caller holds the endpoint's lock. Returns the endpoints that have requests for any thread, as
    /// one bit per endpoint.
    pub(crate) fn announce_waiter(&self, endpoint: usize, woken_for_help: &mut bool) -> u64 {
        if self.waiting.load(SeqCst) & 1 << endpoint == 0 {
            self.waiting.fetch_or(1 << endpoint, SeqCst);
        }
        self.end_call(woken_for_help);
        self.surplus.load(SeqCst) & !(1 << endpoint)
    }

    /// Ends the call for help, if such a call woke the waiter. The caller must then check for requests, or
    /// make another call.
    pub(crate) fn end_call(&self, woken_for_help: &mut bool) {
        if std::mem::take(woken_for_help) {
            self.called.store(false, SeqCst);
        }
    }

    /// Marks an endpoint. The caller holds its lock.
    pub(crate) fn mark(&self, endpoint: usize) {
        if self.surplus.load(SeqCst) & 1 << endpoint == 0 {
            self.surplus.fetch_or(1 << endpoint, SeqCst);
        }
    }

    /// Removes the mark of an endpoint whose queue is empty. The caller holds its lock.
    pub(crate) fn unmark(&self, endpoint: usize) {
        if self.surplus.load(SeqCst) & 1 << endpoint != 0 {
            self.surplus.fetch_and(!(1 << endpoint), SeqCst);
        }
    }

    /// Returns whether to call for help: some endpoint needs help, a thread may be waiting, and no other call
    /// is in progress.
    pub(crate) fn needs_help(&self) -> bool {
        self.surplus.load(SeqCst) != 0 && !self.called.load(SeqCst) && self.waiting.load(SeqCst) != 0
    }

    /// Wakes one waiter, preferably at an endpoint other than `from`. The caller holds no lock. `wake` wakes
    /// a waiter on the target at an endpoint, and returns whether there was one. If there was none, `wake`
    /// [withdraws](RequestExchange::withdraw_waiter) the endpoint's announcement under that endpoint's lock.
    pub(crate) fn call_help(&self, from: usize, wake: impl Fn(usize, WaitTarget) -> bool) {
        let count = self.ons.len();
        while self.needs_help() && !self.called.swap(true, SeqCst) {
            let mut endpoints = (1..=count).map(|turn| (from + turn) % count);
            let announced = |endpoint: &usize| self.waiting.load(SeqCst) & 1 << endpoint != 0;
            if endpoints.any(|endpoint| announced(&endpoint) && wake(endpoint, self.ons[endpoint])) {
                return;
            }
            self.called.store(false, SeqCst);
        }
    }

    /// Withdraws the announcement of an endpoint, because no thread or task waits there. The caller holds the
    /// endpoint's lock.
    pub(crate) fn withdraw_waiter(&self, endpoint: usize) {
        self.waiting.fetch_and(!(1 << endpoint), SeqCst);
    }
}

/// The items that a server port or socket offers to threads that wait at other endpoints.
#[derive(Debug, Default)]
pub(crate) struct ExchangeOffer {
    /// `None` if there are no other endpoints.
    pub(crate) exchange: Option<Arc<RequestExchange>>,
    /// Whether another endpoint's call for help woke a waiter here, and no thread has checked since.
    pub(crate) woken_for_help: bool,
    /// Number of attempts to take an item while other endpoints had items.
    pub(crate) takes: u32,
}

/// The result of a waiter's check at an endpoint.
pub(crate) enum WaitOutcome<T> {
    Here(Result<T, RecvError>),
    /// Other endpoints have items for any waiter. The value has one bit per endpoint.
    Elsewhere(u64),
}
