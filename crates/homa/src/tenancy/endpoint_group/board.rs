//! Matches requests that arrive at an endpoint where no thread waits with threads that wait at other
//! endpoints of the host.
//!
//! A server port is open in all endpoints of its host, and a thread in `recv` waits at one of them. The same
//! holds for a socket with a server port, whose outcomes of calls are offered like requests. The socket's
//! waker is called as well, but does not count as a waiter. An endpoint with a request and no thread
//! available for it marks itself in `surplus` and calls for help: one thread that waits at another endpoint
//! is woken. In the steady state each endpoint has threads of its own, and nothing is written here.
//!
//! Most busy threads return soon, and a wake-up costs more than the time that they take. So a mark alone
//! makes no call while the recent history supports this: threads that poll at other endpoints see the mark at
//! once, and the endpoint's own threads return. The endpoint's progress thread then makes the call, within a
//! tick. If that proves wrong, calls are made at once for a while
//! ([`HandoverBackoff`](crate::runtime::wait::Patience)). When a call was made for each request that found
//! all threads of its endpoint busy, a loaded server made more than one call for each RPC. Each call takes
//! the lock of another endpoint.
//!
//! # Why nothing is stranded
//! Assume that a request is in the queue of endpoint E, and no thread that waits there is on its way. The
//! request was noted ready under E's lock. The thread that released that lock woke a thread or task of E, or
//! marked E. A thread that takes one of several requests and leaves others also marks E
//! ([`Engine::pass_on`]). While E has such a request its progress thread does not rest: it checks once in a
//! tick, marks E, and calls. So it is sufficient that a call finds a thread if any thread sleeps:
//! - A thread that goes to sleep at H announces H in `waiting` and then checks `surplus`, both while it holds
//!   H's lock to enter H's list of sleepers. A caller checks that list under the same lock. If it does so
//!   before the sleeper's hold, the sleeper sees the caller's mark; if after, the caller finds the sleeper.
//!   (An announcement stands until a caller finds no waiter at H.)
//! - While a call is in progress (`called`) no second one is made. It ends when the woken thread checks, or
//!   when no waiter was found: first `called` is withdrawn, then `surplus` is checked again, so that a mark
//!   made meanwhile is seen.
//!
//! All of these accesses are sequentially consistent. A mark is removed when the queue is empty, under E's
//! lock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};

use homa_proto::Time;

use crate::api::error::RecvError;
use crate::runtime::engine::{Engine, Life};
use crate::runtime::shared_engine::SharedEngine;
use crate::runtime::wait::{WaitTarget, Wakeup};
use crate::tenancy::endpoint_group::EndpointGroup;

/// A thread checks other endpoints before its own once in this many times, so that requests there do not wait
/// for ever while there are enough here. It does so rarely, since each check takes the lock of another
/// endpoint.
const LOOK_ELSEWHERE: u32 = 8;

/// The exchange of one server port or socket, for all endpoints of its host. See the [module](self).
pub(crate) struct RequestExchange {
    siblings: Arc<EndpointGroup>,
    /// The wait target in each endpoint.
    ons: Vec<WaitTarget>,
    /// A bit for each endpoint with requests for which no thread waits there.
    surplus: AtomicU64,
    /// A bit for each endpoint where a thread or task waits, or waited a moment ago.
    waiting: AtomicU64,
    /// A call for help is in progress.
    called: AtomicBool,
}

impl fmt::Debug for RequestExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board")
            .field("surplus", &self.surplus)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

impl RequestExchange {
    /// Creates the exchange of a port that is open in all endpoints; `ons` are its wait targets there.
    pub(crate) fn new(siblings: Arc<EndpointGroup>, ons: Vec<WaitTarget>) -> RequestExchange {
        let (surplus, waiting) = (AtomicU64::new(0), AtomicU64::new(0));
        RequestExchange { siblings, ons, surplus, waiting, called: AtomicBool::new(false) }
    }

    /// Called by a thread or task that may wait at `endpoint`, with the endpoint's lock held. It announces
    /// itself, and ends the call for help if it was woken by one. Returns the endpoints that have requests
    /// for any thread, a bit for each.
    pub(crate) fn look(&self, endpoint: usize, roused: &mut bool) -> u64 {
        if self.waiting.load(SeqCst) & 1 << endpoint == 0 {
            self.waiting.fetch_or(1 << endpoint, SeqCst);
        }
        self.end_call(roused);
        self.surplus.load(SeqCst) & !(1 << endpoint)
    }

    /// Ends the call for help if a waiter was woken by one. The caller then checks for requests, or makes
    /// another call.
    pub(crate) fn end_call(&self, roused: &mut bool) {
        if std::mem::take(roused) {
            self.called.store(false, SeqCst);
        }
    }

    /// Marks an endpoint. The caller holds its lock.
    fn mark(&self, endpoint: usize) {
        if self.surplus.load(SeqCst) & 1 << endpoint == 0 {
            self.surplus.fetch_or(1 << endpoint, SeqCst);
        }
    }

    /// Removes the mark of an endpoint whose queue is empty. The caller holds its lock.
    fn unmark(&self, endpoint: usize) {
        if self.surplus.load(SeqCst) & 1 << endpoint != 0 {
            self.surplus.fetch_and(!(1 << endpoint), SeqCst);
        }
    }

    /// Whether to call for help: there are requests for it, a thread may be waiting, and no other call is in
    /// progress.
    fn must_call(&self) -> bool {
        self.surplus.load(SeqCst) != 0 && !self.called.load(SeqCst) && self.waiting.load(SeqCst) != 0
    }

    /// Wakes one waiter, if possible at another endpoint than `from`. The caller holds no lock.
    pub(crate) fn call_help(&self, from: usize) {
        while self.must_call() && !self.called.swap(true, SeqCst) {
            if (1..=self.ons.len()).any(|turn| self.call_at((from + turn) % self.ons.len())) {
                return;
            }
            self.called.store(false, SeqCst);
        }
    }

    /// Wakes one waiter at this endpoint; returns whether there was one.
    fn call_at(&self, endpoint: usize) -> bool {
        if self.waiting.load(SeqCst) & 1 << endpoint == 0 {
            return false;
        }
        let Some(shared) = self.siblings.member(endpoint) else { return false };
        let mut engine = shared.lock();
        let found = engine.rouse(self.ons[endpoint]);
        if let Some(offers) = engine.offers_mut(self.ons[endpoint]).filter(|_| found) {
            offers.roused = true;
        }
        if !found {
            self.waiting.fetch_and(!(1 << endpoint), SeqCst);
        }
        found
    }
}

/// What a server port or socket offers to threads that wait at other endpoints.
#[derive(Debug, Default)]
pub(crate) struct ExchangeOffer {
    /// `None` if there are no other endpoints.
    board: Option<Arc<RequestExchange>>,
    /// A waiter here was woken by another endpoint's call for help, and no thread has checked since.
    roused: bool,
    /// Times that an item was taken, or sought in vain.
    takes: u32,
}

/// What a waiter at an endpoint finds.
pub(crate) enum WaitOutcome<T> {
    Here(Result<T, RecvError>),
    /// Other endpoints have items for any waiter, a bit for each endpoint.
    Elsewhere(u64),
}

/// Takes an item at another endpoint than `home`, where no thread waits for it. `members` returns an endpoint
/// and its wait target.
pub(crate) fn take_elsewhere<'a, T>(
    members: impl Fn(usize) -> (&'a SharedEngine, WaitTarget),
    home: usize,
    mut marked: u64,
    mut take: impl FnMut(&mut Engine, usize) -> Option<Result<T, RecvError>>,
) -> Option<Result<T, RecvError>> {
    while marked != 0 {
        // Begins with the next endpoint after `home`, so that not all threads check the same one.
        let turn = marked.rotate_right(home as u32).trailing_zeros();
        let endpoint = (home + turn as usize) % u64::BITS as usize;
        marked &= !(1 << endpoint);
        let (shared, on) = members(endpoint);
        let mut engine = shared.lock();
        let taken = take(&mut engine, endpoint);
        engine.counts.taken_elsewhere += u64::from(matches!(taken, Some(Ok(_))));
        if engine.waiting.help.is_tried() {
            engine.waiting.help.over(shared.now());
        }
        engine.pass_on(on);
        if taken.is_some() {
            return taken;
        }
    }
    None
}

impl Engine {
    fn offers(&self, on: WaitTarget) -> Option<&ExchangeOffer> {
        match on {
            WaitTarget::Requests(server) => Some(&self.servers.get(server)?.offers),
            WaitTarget::Socket(socket) => Some(&self.sockets.get(socket)?.offers),
            _ => None,
        }
    }

    fn offers_mut(&mut self, on: WaitTarget) -> Option<&mut ExchangeOffer> {
        match on {
            WaitTarget::Requests(server) => Some(&mut self.servers.get_mut(server)?.offers),
            WaitTarget::Socket(socket) => Some(&mut self.sockets.get_mut(socket)?.offers),
            _ => None,
        }
    }

    fn board(&self, on: WaitTarget) -> Option<&Arc<RequestExchange>> {
        self.offers(on)?.board.as_ref()
    }

    /// Offers items that arrive here to other endpoints from now on, and those that arrived before at once.
    pub(crate) fn set_board(&mut self, on: WaitTarget, board: Arc<RequestExchange>) {
        let Some(offers) = self.offers_mut(on) else { return };
        offers.board = Some(board);
        if self.has_item(on) {
            self.offer(on);
        }
    }

    /// Looks for an item with `take` at this endpoint, the caller's own, and checks whether other endpoints
    /// have items.
    pub(crate) fn find<T>(
        &mut self,
        shared: &SharedEngine,
        (on, board): (WaitTarget, Option<&Arc<RequestExchange>>),
        take: impl FnOnce(&mut Engine) -> Option<Result<T, RecvError>>,
    ) -> Option<WaitOutcome<T>> {
        let Some(board) = board else { return take(self).map(WaitOutcome::Here) };
        if self.life != Life::Open {
            return Some(WaitOutcome::Here(Err(RecvError::Closed)));
        }
        let offers = self.offers_mut(on)?;
        let marked = board.look(shared.index(), &mut offers.roused);
        offers.takes = offers.takes.wrapping_add(u32::from(marked != 0));
        if marked != 0 && offers.takes.is_multiple_of(LOOK_ELSEWHERE) {
            // The caller may have been woken for an item here.
            self.waiting.taken = Some(on);
            return Some(WaitOutcome::Elsewhere(marked));
        }
        if let Some(taken) = take(self) {
            if self.waiting.help.is_tried() {
                self.waiting.help.over(shared.now());
            }
            self.waiting.taken = Some(on);
            return Some(WaitOutcome::Here(taken));
        }
        (marked != 0).then_some(WaitOutcome::Elsewhere(marked))
    }

    /// Ends the call for help, if one woke a waiter here, on behalf of a waiter that will not check.
    pub(crate) fn end_call(&mut self, on: WaitTarget) {
        let Some(ExchangeOffer { board: Some(board), roused, .. }) = self.offers_mut(on) else { return };
        board.end_call(roused);
    }

    /// Marks this endpoint as one with requests for any waiter, and calls for help if there may be any.
    pub(crate) fn offer(&mut self, on: WaitTarget) {
        let (Some(board), Some(kin)) = (self.board(on), &self.kin) else { return };
        let (board, index) = (Arc::clone(board), kin.index);
        board.mark(index);
        self.call_when_due(board, index);
    }

    /// Calls for help now, or later if no thread comes.
    fn call_when_due(&mut self, board: Arc<RequestExchange>, index: usize) {
        if !board.must_call() {
            return;
        }
        if self.progress_can_watch() && self.waiting.help.try_it(self.last_driven) {
            self.progress_must_watch();
            return;
        }
        self.counts.help_calls += 1;
        self.waiting.wakes.push(Wakeup::Help(board, index));
    }

    /// Calls for help for requests for which no thread came; returns whether there are any. For the progress
    /// thread, once in a tick.
    pub(crate) fn call_late(&mut self, now: Time) -> bool {
        let Some(kin) = &self.kin else { return false };
        let index = kin.index;
        let mut any = false;
        let servers = self.servers.iter().map(|(server, port)| (WaitTarget::Requests(server), &port.offers));
        let sockets = self.sockets.iter().map(|(socket, state)| (WaitTarget::Socket(socket), &state.offers));
        for (on, offers) in servers.chain(sockets) {
            let Some(board) = &offers.board else { continue };
            if !self.has_item(on) || self.waiting.is_expected(on) {
                continue;
            }
            any = true;
            board.mark(index);
            if board.must_call() {
                // A thread that comes for the request now comes late.
                self.waiting.help.over(now);
                self.counts.help_calls += 1;
                self.waiting.wakes.push(Wakeup::Help(Arc::clone(board), index));
            }
        }
        any
    }

    /// Called after a request was taken. If more requests are here than the threads on their way will take,
    /// or other endpoints have some, calls for help.
    pub(crate) fn pass_on(&mut self, on: WaitTarget) {
        let (Some(kin), Some(board)) = (&self.kin, self.board(on).cloned()) else { return };
        let index = kin.index;
        if !self.has_item(on) {
            board.unmark(index);
        } else if !self.waiting.is_expected(on) {
            board.mark(index);
        }
        self.call_when_due(board, index);
    }
}
