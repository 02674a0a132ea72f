//! Client ports.

use std::fmt;
use std::sync::Arc;

use crate::api::endpoints::PortAt;
use crate::runtime::shared_engine::SharedEngine;
use crate::tenancy::placement::Placement;
use crate::types::address::ServerAddr;

/// A client port of a [`Host`](crate::Host). Clones share the port. When the last clone is dropped, its
/// submitted calls are aborted. A [`Call`](crate::Call) and a [`CompletionQueue`](crate::CompletionQueue)
/// keep the port open.
///
/// A client belongs to one of the host's endpoints. If a policy places calls
/// ([`HostConfig::endpoint_policy`](crate::HostConfig::endpoint_policy)), the client has a port in every
/// endpoint, and a call for which a thread or task waits uses the endpoint that the policy chooses. Submitted
/// calls stay in the client's own endpoint, where all their completions wait.
#[derive(Clone)]
pub struct Client {
    port: Arc<PortHandle>,
}

struct PortHandle {
    /// One port, or one port in each endpoint, in the order of the endpoints.
    ports: Vec<PortAt>,
    /// Index in `ports` of the client's own port.
    home: usize,
    /// Chooses the port of a call, if the client has several.
    placement: Option<Arc<Placement>>,
}

impl Client {
    /// Creates a client with these ports, of which `ports[home]` is its own. `placement` chooses the port of
    /// each call.
    pub(crate) fn new(ports: Vec<PortAt>, home: usize, placement: Option<Arc<Placement>>) -> Client {
        Client { port: Arc::new(PortHandle { ports, home, placement }) }
    }

    /// Returns the client's own port. Submitted calls use it, so that all their completions wait in one
    /// endpoint.
    pub(crate) fn home(&self) -> &PortAt {
        &self.port.ports[self.port.home]
    }

    /// Returns the port with this index, as returned by [`place`](Client::place).
    pub(crate) fn at(&self, place: usize) -> &PortAt {
        &self.port.ports[place]
    }

    /// Returns the endpoint of the client's own port.
    pub(crate) fn shared(&self) -> &Arc<SharedEngine> {
        &self.home().shared
    }

    /// Returns the index of the port for the next call to `to`.
    pub(crate) fn place(&self, to: ServerAddr) -> usize {
        let PortHandle { ports, home, placement } = &*self.port;
        let Some(placement) = placement else { return *home };
        let own = self.home();
        let open = ports.iter().map(|port| port.shared.open_rpcs());
        placement.place(own.shared.now(), (*home, own.number), (to.host, to.port), open)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("port", &self.home().number).finish_non_exhaustive()
    }
}
