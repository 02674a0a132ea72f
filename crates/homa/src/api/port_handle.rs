//! The handle of a server port, shared by its [`Server`](crate::Server)s and its unanswered requests.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use crate::api::endpoints::Endpoints;
use crate::runtime::shared_engine::SharedEngine;
use crate::runtime::wait_target::WaitTarget;
use crate::tenancy::endpoint_group::exchange::RequestExchange;

pub(crate) struct PortHandle {
    pub(super) endpoints: Arc<Endpoints>,
    /// The port's index in each endpoint.
    pub(super) servers: Vec<usize>,
    /// Offers requests to threads that wait at other endpoints, if there are any.
    pub(super) exchange: Option<Arc<RequestExchange>>,
    pub(super) number: u16,
    pub(super) homes: WaitSites,
}

/// For a port that is open in all endpoints, assigns each waiting thread and task to one endpoint.
pub(crate) struct WaitSites {
    /// Identifies this value within the process, so that threads can remember their endpoint.
    id: u64,
    /// Endpoint at which the next new thread or task waits, modulo the number of endpoints.
    next: AtomicUsize,
}

/// Number of [`WaitSites`] for which a thread remembers its endpoint, to avoid a new assignment each time.
const REMEMBERED: usize = 16;

thread_local! {
    /// The [`WaitSites`] for which this thread has waited: the ID of each and the thread's endpoint, indexed
    /// by the ID.
    static HOMES: [Cell<(u64, usize)>; REMEMBERED] = const { [const { Cell::new((0, 0)) }; REMEMBERED] };
}

/// The ID of the next [`WaitSites`]; 0 means none.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl WaitSites {
    pub(crate) fn new() -> WaitSites {
        WaitSites { id: NEXT_ID.fetch_add(1, Relaxed), next: AtomicUsize::new(0) }
    }

    /// Returns the endpoint (less than `endpoints`) at which the calling thread waits. New threads are
    /// assigned to endpoints in turn, and keep their endpoints.
    pub(crate) fn of_thread(&self, endpoints: usize) -> usize {
        if endpoints == 1 {
            return 0;
        }
        let own = HOMES.try_with(|all| {
            let home = &all[self.id as usize % REMEMBERED];
            if home.get().0 != self.id {
                home.set((self.id, self.next_endpoint(endpoints)));
            }
            home.get().1
        });
        // A thread that is exiting may wait at any endpoint.
        own.unwrap_or(0)
    }

    fn next_endpoint(&self, endpoints: usize) -> usize {
        self.next.fetch_add(1, Relaxed) % endpoints
    }
}

impl PortHandle {
    /// Returns the endpoint at which the calling thread waits.
    pub(crate) fn home(&self) -> usize {
        self.homes.of_thread(self.servers.len())
    }

    /// Returns the endpoint at which a new task waits.
    pub(crate) fn next_endpoint(&self) -> usize {
        self.homes.next_endpoint(self.servers.len())
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Returns the port's index in this endpoint.
    pub(crate) fn index(&self, endpoint: usize) -> usize {
        self.servers[endpoint]
    }

    /// Returns all endpoints of the host.
    pub(crate) fn members(&self) -> &[Arc<SharedEngine>] {
        &self.endpoints.members
    }

    pub(crate) fn shared(&self, endpoint: usize) -> &Arc<SharedEngine> {
        &self.endpoints.members[endpoint]
    }

    pub(crate) fn wait_target(&self, endpoint: usize) -> WaitTarget {
        WaitTarget::Requests(self.servers[endpoint])
    }
}

impl Drop for PortHandle {
    fn drop(&mut self) {
        let _ports = self.endpoints.lock_ports();
        self.endpoints.close_servers(&self.servers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_endpoint_of_each_thing_it_waits_for() {
        // The test uses its own IDs, since other tests may take some of the global IDs in the meantime.
        let all: Vec<WaitSites> = (0..REMEMBERED as u64)
            .map(|id| WaitSites { id: u64::MAX / 2 + id, ..WaitSites::new() })
            .collect();
        let endpoints = || all.iter().map(|homes| homes.of_thread(4)).collect::<Vec<_>>();
        let own = endpoints();
        assert!((0..5).all(|_| endpoints() == own));
        let others: Vec<_> = std::thread::scope(|scope| scope.spawn(endpoints).join().unwrap());
        assert!(own.iter().zip(others).all(|(own, other)| (own + 1) % 4 == other));
    }
}
