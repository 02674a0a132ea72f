//! Server ports.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use crate::api::early::EarlyDelivery;
use crate::api::error::{HostError, RecvError};
use crate::api::request::Request;
use crate::runtime::engine::{Engine, Life};
use crate::runtime::shared_engine::SharedEngine;
use crate::runtime::wait::WaitTarget;
use crate::tenancy::endpoint_group::board::{self, RequestExchange, WaitOutcome};
use crate::tenancy::endpoints::Endpoints;
use crate::tenancy::process_group::PortClaim;

/// A server port of a [`Host`](crate::Host). Clones share the port and its requests. When the last clone and
/// the last [`Request`] are dropped, untaken requests are given up, answers are still delivered, and then the
/// port is free.
#[derive(Clone)]
pub struct Server {
    port: Arc<PortHandle>,
}

pub(crate) struct PortHandle {
    endpoints: Arc<Endpoints>,
    /// The port's index in each endpoint.
    servers: Vec<usize>,
    /// Offers requests to threads that wait at other endpoints, if there are other endpoints.
    board: Option<Arc<RequestExchange>>,
    number: u16,
    homes: WaitSites,
}

/// Assigns threads and tasks that wait for a port open in all endpoints to one endpoint each.
pub(crate) struct WaitSites {
    /// Identifies these sites within the process, so that threads can remember their endpoint.
    id: u64,
    /// Endpoint at which the next new thread or task waits, modulo the number of endpoints.
    next: AtomicUsize,
}

/// Number of [`WaitSites`] for which a thread remembers its endpoint, so that it is not assigned again each
/// time.
const REMEMBERED: usize = 16;

thread_local! {
    /// The sites at which this thread waited, each with its endpoint, indexed by the site's id.
    static HOMES: [Cell<(u64, usize)>; REMEMBERED] = const { [const { Cell::new((0, 0)) }; REMEMBERED] };
}

/// The next id of a [`WaitSites`]; 0 means none.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl WaitSites {
    pub(crate) fn new() -> WaitSites {
        WaitSites { id: NEXT_ID.fetch_add(1, Relaxed), next: AtomicUsize::new(0) }
    }

    /// The endpoint (of `endpoints`) at which the calling thread waits: assigned in turn to new threads, and
    /// kept.
    pub(crate) fn of_thread(&self, endpoints: usize) -> usize {
        if endpoints == 1 {
            return 0;
        }
        let own = HOMES.try_with(|all| {
            let home = &all[self.id as usize % REMEMBERED];
            if home.get().0 != self.id {
                home.set((self.id, self.deal(endpoints)));
            }
            home.get().1
        });
        // A thread that is ending may wait at any endpoint.
        own.unwrap_or(0)
    }

    fn deal(&self, endpoints: usize) -> usize {
        self.next.fetch_add(1, Relaxed) % endpoints
    }
}

impl PortHandle {
    /// The endpoint at which the calling thread waits.
    pub(crate) fn home(&self) -> usize {
        self.homes.of_thread(self.servers.len())
    }

    /// The endpoint at which a new task waits.
    pub(crate) fn deal(&self) -> usize {
        self.homes.deal(self.servers.len())
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// The port's index in this endpoint.
    pub(crate) fn index(&self, endpoint: usize) -> usize {
        self.servers[endpoint]
    }

    /// All endpoints of the host.
    pub(crate) fn members(&self) -> &[Arc<SharedEngine>] {
        &self.endpoints.members
    }

    pub(crate) fn shared(&self, endpoint: usize) -> &Arc<SharedEngine> {
        &self.endpoints.members[endpoint]
    }

    pub(crate) fn on(&self, endpoint: usize) -> WaitTarget {
        WaitTarget::Requests(self.servers[endpoint])
    }

    /// Looks for a request at the endpoint `home`, which is locked, and checks whether other endpoints have
    /// one.
    pub(crate) fn find(self: &Arc<Self>, engine: &mut Engine, home: usize) -> Option<WaitOutcome<Request>> {
        engine
            .find(self.shared(home), (self.on(home), self.board.as_ref()), |engine| take(engine, self, home))
    }

    /// Takes a request that waits at another endpoint than `home`, where no thread waits for it. `more` may
    /// take further requests there, under the same lock.
    pub(crate) fn take_elsewhere(
        self: &Arc<Self>,
        home: usize,
        marked: u64,
        mut more: impl FnMut(&mut Engine, usize),
    ) -> Option<Result<Request, RecvError>> {
        let members = |endpoint| (&**self.shared(endpoint), self.on(endpoint));
        board::take_elsewhere(members, home, marked, |engine, endpoint| {
            let taken = take(engine, self, endpoint);
            if let Some(Ok(_)) = taken {
                more(engine, endpoint);
            }
            taken
        })
    }
}

impl Drop for PortHandle {
    fn drop(&mut self) {
        let _ports = self.endpoints.lock_ports();
        self.endpoints.close_servers(&self.servers);
    }
}

impl Server {
    /// Binds `number` in all endpoints.
    pub(crate) fn open(
        endpoints: Arc<Endpoints>,
        number: u16,
        bound: Option<PortClaim>,
    ) -> Result<Server, HostError> {
        let (servers, board) = endpoints.open_server(number, bound)?;
        Ok(Server::at(endpoints, number, servers, board))
    }

    /// A handle for a port that is open in all endpoints, with these indices.
    pub(crate) fn at(
        endpoints: Arc<Endpoints>,
        number: u16,
        servers: Vec<usize>,
        board: Option<Arc<RequestExchange>>,
    ) -> Server {
        Server { port: Arc::new(PortHandle { endpoints, servers, board, number, homes: WaitSites::new() }) }
    }

    pub(crate) fn handle(&self) -> &Arc<PortHandle> {
        &self.port
    }

    /// The Homa port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// Delivers large requests before they are whole, from now on and to all handles of this port: a
    /// [`Recv`](crate::Recv) ends when the first part of such a request is there, and its
    /// [`reader`](Request::reader) reads it while it arrives. This suits servers that can use the first bytes
    /// early, for example to write them to a disk.
    ///
    /// ```
    /// use homa::Host;
    /// use homa::reader::EarlyDelivery;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let host = homa::Host::builder().address("127.0.0.1:0".parse()?).bind()?;
    /// let server = host.server(99)?.early(EarlyDelivery::default());
    /// # let to = homa::ServerAddr { host: host.local_addr(), port: 99 };
    /// # let one_call = std::thread::spawn(move || {
    /// #     let host = Host::builder().bind().unwrap();
    /// #     host.client().unwrap().call(to, vec![1; 900_000]).wait()
    /// # });
    /// let mut reader = server.recv().wait()?.reader();
    /// let mut sum = 0_u64;
    /// while let Some(part) = reader.next_part().wait()? {
    ///     sum += part.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    /// }
    /// reader.whole().wait()?.reply(sum.to_string())?;
    /// # assert_eq!(one_call.join().unwrap()?, "900000");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "it is the server"]
    pub fn early(self, early: EarlyDelivery) -> Server {
        for (shared, &server) in self.port.endpoints.members.iter().zip(&self.port.servers) {
            shared.lock().read_early(server, Some(early));
        }
        self
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("port", &self.port.number).finish_non_exhaustive()
    }
}

/// Takes a request that waits at this endpoint, whose lock the caller holds; an error if the host is closed.
pub(crate) fn take(
    engine: &mut Engine,
    port: &Arc<PortHandle>,
    endpoint: usize,
) -> Option<Result<Request, RecvError>> {
    if engine.life != Life::Open {
        return Some(Err(RecvError::Closed));
    }
    let (queued, request, arriving) = engine.take_request(port.servers[endpoint])?;
    Some(Ok(Request::new(Arc::clone(port), endpoint, (queued.rpc, queued.peer), request, arriving)))
}

/// What sockets need.
impl Server {
    /// The port's index in each endpoint.
    #[cfg(feature = "kernel-api")]
    pub(crate) fn indices(&self) -> &[usize] {
        &self.port.servers
    }

    /// The endpoint at which the calling thread waits.
    #[cfg(feature = "kernel-api")]
    pub(crate) fn home(&self) -> usize {
        self.port.home()
    }

    /// Takes a request that waits at this endpoint, whose lock the caller holds.
    pub(crate) fn take(&self, engine: &mut Engine, endpoint: usize) -> Option<Request> {
        take(engine, &self.port, endpoint)?.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_endpoint_of_each_thing_it_waits_for() {
        // The test uses its own ids: other tests may take some of the common ones meanwhile.
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
