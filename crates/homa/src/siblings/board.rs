//! Requests that arrive at an endpoint of a host where nobody waits for them, and threads that wait at another one.
//!
//! A server port is open in all endpoints of its host, and a thread in `recv` waits at one of them. An endpoint that has a request
//! and nobody at hand for it marks itself in `surplus` and calls for help: one of those who wait elsewhere is woken. In the
//! steady state each endpoint has threads of its own, and nothing is written here.
//!
//! # Why nothing is stranded
//! Let a request lie in the queue of endpoint E. It was noted ready under E's lock, and whoever gave that lock back woke a thread
//! or task that waits at E, or marked E here. While E is marked, one of these holds:
//! - A thread or task was woken for it and has not looked yet. Whoever was woken looks here before it waits again.
//! - When E was marked nobody waited. Whoever comes to wait later looks here before it sleeps.
//!
//! Marking and waiting cannot miss each other. Who waits at H announces itself in `waiting` before it looks at `surplus`; who marks
//! does so before it looks at `waiting`; all four are sequentially consistent. An announcement is left standing after the wait,
//! since it would be made anew a moment later, and taken back by whoever calls and finds nobody there, under H's lock. That is why
//! the announcement is made, or found made, under the same hold of H's lock as the look at `surplus` and the entry in H's list of
//! sleepers: who calls comes either before that hold, and then its mark is seen in it, or after it, and finds the sleeper.
//!
//! Whoever was woken may find a request at its own endpoint first, or take one of several. So whoever takes a request, and sees
//! that there are more than those who are on their way will take, passes the word on ([`Core::pass_on`]). A mark is removed when
//! the queue is empty, under E's lock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

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
        Board { siblings, servers: servers.to_vec(), surplus, waiting }
    }

    /// Announces that somebody waits at `endpoint`. The caller has its lock.
    pub(crate) fn announce(&self, endpoint: usize) {
        if self.waiting.load(SeqCst) & 1 << endpoint == 0 {
            self.waiting.fetch_or(1 << endpoint, SeqCst);
        }
    }

    /// Endpoints other than this one that have requests for anybody, a bit for each.
    pub(crate) fn elsewhere(&self, endpoint: usize) -> u64 {
        self.surplus.load(SeqCst) & !(1 << endpoint)
    }

    fn waits_elsewhere(&self, endpoint: usize) -> bool {
        self.waiting.load(SeqCst) & !(1 << endpoint) != 0
    }

    /// Marks an endpoint; whether somebody may wait elsewhere. The caller has its lock.
    fn mark(&self, endpoint: usize) -> bool {
        if self.surplus.load(SeqCst) & 1 << endpoint == 0 {
            self.surplus.fetch_or(1 << endpoint, SeqCst);
        }
        self.waits_elsewhere(endpoint)
    }

    /// Removes the mark of an endpoint whose queue is empty. The caller has its lock.
    pub(crate) fn unmark(&self, endpoint: usize) {
        if self.surplus.load(SeqCst) & 1 << endpoint != 0 {
            self.surplus.fetch_and(!(1 << endpoint), SeqCst);
        }
    }

    /// Wakes one of those who wait at another endpoint than `from`. The caller has no lock.
    pub(crate) fn call_help(&self, from: usize) {
        let servers = &self.servers;
        for turn in 1..servers.len() {
            let endpoint = (from + turn) % servers.len();
            if self.waiting.load(SeqCst) & 1 << endpoint == 0 {
                continue;
            }
            let Some(shared) = self.siblings.member(endpoint) else { continue };
            let mut core = shared.lock();
            if core.rouse(WaitOn::Requests(servers[endpoint])) {
                return;
            }
            self.waiting.fetch_and(!(1 << endpoint), SeqCst);
        }
    }
}

impl Core {
    /// Marks this endpoint as one with requests for anybody, and has help called if there may be any.
    pub(crate) fn offer(&mut self, on: WaitOn) {
        let (WaitOn::Requests(server), Some(kin)) = (on, &self.kin) else { return };
        let Some(board) = self.servers.get(server).and_then(|server| server.board.as_ref()) else { return };
        if board.mark(kin.index) {
            self.waiting.wakes.push(Wake::Help(Arc::clone(board), kin.index));
        }
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
            if board.elsewhere(index) != 0 && board.waits_elsewhere(index) {
                self.waiting.wakes.push(Wake::Help(Arc::clone(board), index));
            }
        } else if !self.waiting.is_expected(on) {
            self.offer(on);
        }
    }
}
