//! Server ports.

use std::fmt;
use std::sync::Arc;

use crate::api::endpoints::Endpoints;
use crate::api::port_handle::{PortHandle, WaitSites};
use crate::api::request::Request;
use crate::runtime::engine::{Engine, Phase};
use crate::runtime::wait;
use crate::tenancy::endpoint_group::exchange::{RequestExchange, WaitOutcome};
use crate::tenancy::process_group::PortClaim;
use crate::types::early::EarlyDelivery;
use crate::types::error::{HostError, RecvError};

/// A server port of a [`Host`](crate::Host). Clones share the port and its requests. When the last clone and
/// the last [`Request`] have been dropped, requests not yet received are given up. Answers are still
/// delivered, after which the port is free.
#[derive(Clone)]
pub struct Server {
    port: Arc<PortHandle>,
}

impl PortHandle {
    /// Looks for a request at the endpoint `home`, which is locked, and checks whether other endpoints have
    /// requests.
    pub(crate) fn find(self: &Arc<Self>, engine: &mut Engine, home: usize) -> Option<WaitOutcome<Request>> {
        engine.find((self.wait_target(home), self.exchange.as_ref()), |engine| take(engine, self, home))
    }

    /// Takes a request from an endpoint other than `home` where no thread waits for the request. `more` may
    /// take further requests there under the same lock.
    pub(crate) fn take_elsewhere(
        self: &Arc<Self>,
        home: usize,
        marked: u64,
        mut more: impl FnMut(&mut Engine, usize),
    ) -> Option<Result<Request, RecvError>> {
        let members = |endpoint| (&**self.shared(endpoint), self.wait_target(endpoint));
        wait::take_elsewhere(members, home, marked, |engine, endpoint| {
            let taken = take(engine, self, endpoint);
            if let Some(Ok(_)) = taken {
                more(engine, endpoint);
            }
            taken
        })
    }
}

impl Server {
    /// Binds `number` in all endpoints.
    pub(crate) fn open(
        endpoints: Arc<Endpoints>,
        number: u16,
        bound: Option<PortClaim>,
    ) -> Result<Server, HostError> {
        let (servers, exchange) = endpoints.open_server(number, bound)?;
        Ok(Server::at(endpoints, number, servers, exchange))
    }

    /// Creates a handle for a port that is open in all endpoints and has these indexes there.
    pub(crate) fn at(
        endpoints: Arc<Endpoints>,
        number: u16,
        servers: Vec<usize>,
        exchange: Option<Arc<RequestExchange>>,
    ) -> Server {
        Server {
            port: Arc::new(PortHandle { endpoints, servers, exchange, number, homes: WaitSites::new() }),
        }
    }

    pub(crate) fn handle(&self) -> &Arc<PortHandle> {
        &self.port
    }

    /// Returns the Homa port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// Delivers large requests while they are still arriving, from now on and to all handles of this port. A
    /// [`Recv`](crate::Recv) then ends when the first part of such a request has arrived, and the request's
    /// [`reader`](Request::reader) reads the rest as it arrives. This suits servers that can use the first
    /// bytes early, for example to write them to disk.
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

/// Takes a request that waits at this endpoint, whose lock the caller holds. Fails if the host is closed.
pub(crate) fn take(
    engine: &mut Engine,
    port: &Arc<PortHandle>,
    endpoint: usize,
) -> Option<Result<Request, RecvError>> {
    if engine.phase != Phase::Open {
        return Some(Err(RecvError::Closed));
    }
    let (queued, request, arriving) = engine.take_request(port.servers[endpoint])?;
    Some(Ok(Request::new(Arc::clone(port), endpoint, (queued.rpc, queued.peer), request, arriving)))
}

/// Methods for sockets.
impl Server {
    /// Returns the port's index in each endpoint.
    #[cfg(feature = "kernel-api")]
    pub(crate) fn indices(&self) -> &[usize] {
        &self.port.servers
    }

    /// Returns the endpoint at which the calling thread waits.
    #[cfg(feature = "kernel-api")]
    pub(crate) fn home(&self) -> usize {
        self.port.home()
    }

    /// Takes a request that waits at this endpoint, whose lock the caller holds.
    #[cfg(feature = "kernel-api")]
    pub(crate) fn take(&self, engine: &mut Engine, endpoint: usize) -> Option<Request> {
        take(engine, &self.port, endpoint)?.ok()
    }
}
