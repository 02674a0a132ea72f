//! Requests that arrive at an endpoint of a host where nobody waits for them, and threads that wait at another one.
//!
//! A server port is open in all endpoints of its host, and a thread in `recv` waits at one of them. An endpoint that has a request
//! and nobody at hand for it marks itself in `surplus` and calls for help: one of those who wait elsewhere is woken. In the
//! steady state each endpoint has threads of its own, and nothing is written here.
//!
//! Most busy threads are soon back, and a wake-up costs more than they take. So a mark alone calls nobody, as long as experience
//! says so: threads that poll at other endpoints see it at once, and the endpoint's own come back. The call is then made by the
//! endpoint's progress thread, within a millisecond, and for a while at once ([`Patience`](crate::wait::Patience)). With a call
//! for each request that found all threads of its endpoint busy, a loaded server made more than one per RPC, each of
//! which takes the lock of another endpoint.
//!
//! # Why nothing is stranded
//! Let a request lie in the queue of endpoint E, and nobody be on the way who waits there. It was noted ready under E's lock, and
//! whoever gave that lock back woke a thread or task of E, or marked E; whoever takes one of several and leaves some behind marks
//! E, too ([`Core::pass_on`]). While E has such a request its progress thread does not rest: it looks once a tick, marks E, and calls. So
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

use crate::core::Core;
use crate::siblings::Siblings;
use crate::wait::{WaitOn, Wake};

/// One server port's, for all endpoints of its host. See the [module](self).
pub(crate) struct Board {
    siblings: Arc<Siblings>,
    /// The port's index in each endpoint.
    servers: Vec<usize>,
    /// A bit for each endpoint with requests that nobody there waits for.
    surplus: AtomicU64,
    /// A bit for each endpoint where somebody waits, or waited a moment ago.
    waiting: AtomicU64,
    /// A call for help is on its way.
    called: AtomicBool,
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board")
            .field("surplus", &self.surplus)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

impl Board {
    /// For a port that is open in all endpoints, under these indices.
    pub(crate) fn new(siblings: Arc<Siblings>, servers: &[usize]) -> Board {
        let (surplus, waiting) = (AtomicU64::new(0), AtomicU64::new(0));
        Board { siblings, servers: servers.to_vec(), surplus, waiting, called: AtomicBool::new(false) }
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
            if (1..=self.servers.len()).any(|turn| self.call_at((from + turn) % self.servers.len())) {
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
        let mut core = shared.lock();
        let server = self.servers[endpoint];
        let found = core.rouse(WaitOn::Requests(server));
        if let Some(port) = core.servers.get_mut(server).filter(|_| found) {
            port.roused = true;
        }
        if !found {
            self.waiting.fetch_and(!(1 << endpoint), SeqCst);
        }
        found
    }
}

impl Core {
    /// Marks this endpoint as one with requests for anybody, and has help called if there may be any.
    pub(crate) fn offer(&mut self, on: WaitOn) {
        let (WaitOn::Requests(server), Some(kin)) = (on, &self.kin) else { return };
        let Some(board) = self.servers.get(server).and_then(|server| server.board.as_ref()) else { return };
        let (board, index) = (Arc::clone(board), kin.index);
        board.mark(index);
        self.call_when_due(board, index);
    }

    /// Has help called now, or later if nobody comes.
    fn call_when_due(&mut self, board: Arc<Board>, index: usize) {
        if !board.must_call() {
            return;
        }
        if self.progress_can_watch() && self.waiting.help.try_it(self.last_driven) {
            self.progress_must_watch();
            return;
        }
        self.counts.help_calls += 1;
        self.waiting.wakes.push(Wake::Help(board, index));
    }

    /// Calls help for requests that nobody came for; whether there are any. For the progress thread, once a tick.
    pub(crate) fn call_late(&mut self, now: Time) -> bool {
        let Some(kin) = &self.kin else { return false };
        let index = kin.index;
        let mut any = false;
        for (server, port) in &self.servers {
            let on = WaitOn::Requests(server);
            let Some(board) = &port.board else { continue };
            if Core::queue_len(port) == 0 || self.waiting.is_expected(on) {
                continue;
            }
            any = true;
            board.mark(index);
            if board.must_call() {
                // Whoever comes for it now comes late.
                self.waiting.help.over(now);
                self.counts.help_calls += 1;
                self.waiting.wakes.push(Wake::Help(Arc::clone(board), index));
            }
        }
        any
    }

    /// What is done after a request was taken: if more lie here than those who are on their way will take, or some lie at other
    /// endpoints, others are told.
    pub(crate) fn pass_on(&mut self, server: usize) {
        let on = WaitOn::Requests(server);
        let (Some(kin), Some(port)) = (&self.kin, self.servers.get(server)) else { return };
        let Some(board) = &port.board else { return };
        let index = kin.index;
        if !self.has_item(on) {
            board.unmark(index);
        } else if !self.waiting.is_expected(on) {
            board.mark(index);
        }
        let board = Arc::clone(board);
        self.call_when_due(board, index);
    }
}
