//! Requests that arrive at an endpoint of a host where nobody waits for them, and threads that wait at another one.
//!
//! A server port is open in all endpoints of its host, and a thread in `recv` waits at one of them. The same is so of a socket with a
//! server port, whose outcomes of calls are offered as requests are; its waker is called as well, and counts for nobody who waits. An
//! endpoint that has a request and nobody at hand for it marks itself in `surplus` and calls for help: one of those who wait elsewhere is
//! woken. In the steady state each endpoint has threads of its own, and nothing is written here.
//!
//! Most busy threads are soon back, and a wake-up costs more than they take. So a mark alone calls nobody, as long as experience
//! says so: threads that poll at other endpoints see it at once, and the endpoint's own come back. The call is then made by the
//! endpoint's progress thread, within a tick of it, and for a while at once ([`HandoverBackoff`](crate::runtime::wait::Patience)). With a call
//! for each request that found all threads of its endpoint busy, a loaded server made more than one per RPC, each of
//! which takes the lock of another endpoint.
//!
//! # Why nothing is stranded
//! Let a request lie in the queue of endpoint E, and nobody be on the way who waits there. It was noted ready under E's lock, and
//! whoever gave that lock back woke a thread or task of E, or marked E; whoever takes one of several and leaves some behind marks
//! E, too ([`Engine::pass_on`]). While E has such a request its progress thread does not rest: it looks once a tick, marks E, and calls. So
//! it is enough that a call finds somebody if anybody sleeps:
//! - Who goes to sleep at H announces H in `waiting` and then looks at `surplus`, both under the hold of H's lock in which it enters
//!   H's list of sleepers. A caller looks there under the same lock: before that hold, and then its mark is seen in it; or
//!   after it, and it finds the sleeper. (An announcement stands until a caller finds nobody at H.)
//! - While a call is on its way (`called`) no second one is made. It ends when the one who was woken looks, or when nobody was
//!   found: first `called` is withdrawn, then `surplus` is looked at again, so that a mark made meanwhile is seen.
//!
//! All of these are sequentially consistent. A mark is removed when the queue is empty, under E's lock.

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

/// A thread looks at other endpoints before its own once in so many times, so that requests there do not wait for ever while there
/// are enough here. Seldom, since each look costs the lock of another endpoint.
const LOOK_ELSEWHERE: u32 = 8;

/// One server port's or socket's, for all endpoints of its host. See the [module](self).
pub(crate) struct RequestExchange {
    siblings: Arc<EndpointGroup>,
    /// What is waited for in each endpoint.
    ons: Vec<WaitTarget>,
    /// A bit for each endpoint with requests that nobody there waits for.
    surplus: AtomicU64,
    /// A bit for each endpoint where somebody waits, or waited a moment ago.
    waiting: AtomicU64,
    /// A call for help is on its way.
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
    /// For what is open in all endpoints, and waited for there under these names.
    pub(crate) fn new(siblings: Arc<EndpointGroup>, ons: Vec<WaitTarget>) -> RequestExchange {
        let (surplus, waiting) = (AtomicU64::new(0), AtomicU64::new(0));
        RequestExchange { siblings, ons, surplus, waiting, called: AtomicBool::new(false) }
    }

    /// What somebody does who may wait at `endpoint`, and has its lock: it announces itself, ends the call for help if one was
    /// heard here, and sees which other endpoints have requests for anybody, a bit for each.
    pub(crate) fn look(&self, endpoint: usize, roused: &mut bool) -> u64 {
        if self.waiting.load(SeqCst) & 1 << endpoint == 0 {
            self.waiting.fetch_or(1 << endpoint, SeqCst);
        }
        self.end_call(roused);
        self.surplus.load(SeqCst) & !(1 << endpoint)
    }

    /// Ends the call for help if one was heard here. Whoever does this looks at what there is, or has others called.
    pub(crate) fn end_call(&self, roused: &mut bool) {
        if std::mem::take(roused) {
            self.called.store(false, SeqCst);
        }
    }

    /// Marks an endpoint. The caller has its lock.
    fn mark(&self, endpoint: usize) {
        if self.surplus.load(SeqCst) & 1 << endpoint == 0 {
            self.surplus.fetch_or(1 << endpoint, SeqCst);
        }
    }

    /// Removes the mark of an endpoint whose queue is empty. The caller has its lock.
    fn unmark(&self, endpoint: usize) {
        if self.surplus.load(SeqCst) & 1 << endpoint != 0 {
            self.surplus.fetch_and(!(1 << endpoint), SeqCst);
        }
    }

    /// Whether to call for help: there is something for it, somebody may hear it, and no other call is on its way.
    fn must_call(&self) -> bool {
        self.surplus.load(SeqCst) != 0 && !self.called.load(SeqCst) && self.waiting.load(SeqCst) != 0
    }

    /// Wakes one of those who wait, at another endpoint than `from` if there is one. The caller has no lock.
    pub(crate) fn call_help(&self, from: usize) {
        while self.must_call() && !self.called.swap(true, SeqCst) {
            if (1..=self.ons.len()).any(|turn| self.call_at((from + turn) % self.ons.len())) {
                return;
            }
            self.called.store(false, SeqCst);
        }
    }

    /// Wakes one of those who wait at this endpoint, if any does.
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

/// What a server port or a socket offers threads that wait at other endpoints.
#[derive(Debug, Default)]
pub(crate) struct ExchangeOffer {
    /// `None`: there are no others.
    board: Option<Arc<RequestExchange>>,
    /// Somebody who waits here was woken by another endpoint's call for help, and nobody has looked since.
    roused: bool,
    /// Times that something was taken, or sought in vain.
    takes: u32,
}

/// What somebody who waits at an endpoint finds.
pub(crate) enum WaitOutcome<T> {
    Here(Result<T, RecvError>),
    /// Other endpoints have something for anybody, a bit for each.
    Elsewhere(u64),
}

/// Takes what lies at another endpoint than `home` and that nobody there waits for. `members` has the endpoints and what is waited for
/// there.
pub(crate) fn take_elsewhere<'a, T>(
    members: impl Fn(usize) -> (&'a SharedEngine, WaitTarget),
    home: usize,
    mut marked: u64,
    mut take: impl FnMut(&mut Engine, usize) -> Option<Result<T, RecvError>>,
) -> Option<Result<T, RecvError>> {
    while marked != 0 {
        // The next one behind `home`, so that not all look at the same.
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

    /// Has what comes here offered to other endpoints from now on, and what came meanwhile at once.
    pub(crate) fn set_board(&mut self, on: WaitTarget, board: Arc<RequestExchange>) {
        let Some(offers) = self.offers_mut(on) else { return };
        offers.board = Some(board);
        if self.has_item(on) {
            self.offer(on);
        }
    }

    /// Looks here, at the endpoint that is `home` to the caller, by `take`, and whether others have something.
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
            // The caller may have been woken for what lies here.
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

    /// Ends the call for help that was heard here, if one was, by somebody who will not look.
    pub(crate) fn end_call(&mut self, on: WaitTarget) {
        let Some(ExchangeOffer { board: Some(board), roused, .. }) = self.offers_mut(on) else { return };
        board.end_call(roused);
    }

    /// Marks this endpoint as one with requests for anybody, and has help called if there may be any.
    pub(crate) fn offer(&mut self, on: WaitTarget) {
        let (Some(board), Some(kin)) = (self.board(on), &self.kin) else { return };
        let (board, index) = (Arc::clone(board), kin.index);
        board.mark(index);
        self.call_when_due(board, index);
    }

    /// Has help called now, or later if nobody comes.
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

    /// Calls help for requests that nobody came for; whether there are any. For the progress thread, once a tick.
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
                // Whoever comes for it now comes late.
                self.waiting.help.over(now);
                self.counts.help_calls += 1;
                self.waiting.wakes.push(Wakeup::Help(Arc::clone(board), index));
            }
        }
        any
    }

    /// What is done after a request was taken: if more lie here than those who are on their way will take, or some lie at other
    /// endpoints, others are told.
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
