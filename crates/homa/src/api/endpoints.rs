//! The endpoints of a host, as used by the host's handles.

use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::runtime::engine::Phase;
use crate::runtime::shared_engine::SharedEngine;
use crate::runtime::wait_target::WaitTarget;
use crate::tenancy::endpoint_group::exchange::RequestExchange;
use crate::tenancy::placement::Placement;
use crate::tenancy::process_group::PortClaim;
use crate::types::error::HostError;

/// A client port in one endpoint.
pub(crate) struct PortAt {
    pub(crate) shared: Arc<SharedEngine>,
    /// Index of the port in that endpoint's engine.
    pub(crate) client: usize,
    pub(crate) number: u16,
}

impl Drop for PortAt {
    fn drop(&mut self) {
        let now = self.shared.now();
        let mut engine = self.shared.lock();
        if engine.phase != Phase::Closed {
            engine.close_client(now, self.client);
            engine.after_work(now);
        }
    }
}

/// The ports of a client, the index of the client's own port, and the policy that chooses the port for each
/// call.
pub(crate) type ClientPorts = (Vec<PortAt>, usize, Option<Arc<Placement>>);

/// The endpoints of a host, and the state needed to open ports in them: see the [module](self).
pub(crate) struct Endpoints {
    pub(crate) members: Vec<Arc<SharedEngine>>,
    /// Held while a port is opened or closed in all endpoints. A thread must not hold an engine's lock while
    /// it waits for this lock.
    ports: Mutex<()>,
    /// The endpoint in which the next client port opens, modulo the number of endpoints.
    next_client: AtomicUsize,
    /// Chooses the endpoints of calls. If it is `None`, each call uses its client's endpoint.
    placement: Option<Arc<Placement>>,
}

impl Endpoints {
    pub(crate) fn new(members: Vec<Arc<SharedEngine>>, placement: Option<Placement>) -> Endpoints {
        if members.len() > 1 {
            members.iter().for_each(|shared| shared.set_members(&members));
        }
        let (ports, next_client) = (Mutex::new(()), AtomicUsize::new(0));
        Endpoints { members, ports, next_client, placement: placement.map(Arc::new) }
    }

    /// Returns the first endpoint.
    pub(crate) fn first(&self) -> &Arc<SharedEngine> {
        &self.members[0]
    }

    pub(crate) fn lock_ports(&self) -> MutexGuard<'_, ()> {
        // The lock orders events and guards no data.
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the endpoint for the next port that belongs to a single endpoint: such ports are assigned in
    /// turn.
    pub(crate) fn next_client_endpoint(&self) -> &Arc<SharedEngine> {
        &self.members[self.next_client.fetch_add(1, Relaxed) % self.members.len()]
    }

    /// Opens a client port. Without a policy, the port opens in one endpoint, and clients are assigned to
    /// endpoints in turn. If a policy places calls, the port opens in all endpoints, and the policy chooses
    /// the client's own endpoint. `choose` returns a port that the processes of the host have agreed on.
    pub(crate) fn open_client(
        &self,
        choose: impl Fn() -> Result<Option<u16>, HostError>,
        to: SocketAddr,
    ) -> Result<ClientPorts, HostError> {
        let open = |shared: &Arc<SharedEngine>| {
            let chosen = choose()?;
            let mut engine = shared.lock();
            let client = engine.open_client(shared.now(), chosen)?;
            let number = engine.calls.clients[client].port;
            drop(engine);
            Ok(PortAt { shared: Arc::clone(shared), client, number })
        };
        let Some(placement) = &self.placement else {
            return Ok((vec![open(self.next_client_endpoint())?], 0, None));
        };
        let turn = self.next_client.fetch_add(1, Relaxed);
        let ports = self.members.iter().map(open).collect::<Result<Vec<_>, HostError>>()?;
        let rpcs = self.members.iter().map(|shared| shared.open_rpcs());
        // No server is known yet, so the client alone identifies the flow.
        let home =
            placement.place(self.first().now(), (turn % self.members.len(), turn as u16), (to, 0), rpcs);
        Ok((ports, home, Some(Arc::clone(placement))))
    }

    /// Opens a server port in all endpoints, or in none. Returns the port's index in each endpoint, and the
    /// exchange for its requests.
    pub(crate) fn open_server(
        &self,
        port: u16,
        bound: Option<PortClaim>,
    ) -> Result<(Vec<usize>, Option<Arc<RequestExchange>>), HostError> {
        let _ports = self.lock_ports();
        let mut servers = Vec::with_capacity(self.members.len());
        for shared in &self.members {
            let opened = loop {
                let now = shared.now();
                let mut engine = shared.lock();
                let opened = engine.open_server(now, port, bound);
                if let Ok(Some(server)) = opened {
                    engine.read_early(server, None);
                }
                engine.leave(now);
                match opened {
                    Ok(Some(server)) => break Ok(server),
                    Ok(None) => {}
                    Err(error) => break Err(error),
                }
                // Old requests of the port are still being cleaned up: let other threads of this host take
                // the lock in the meantime.
                drop(engine);
                std::thread::yield_now();
            };
            match opened {
                Ok(server) => servers.push(server),
                Err(error) => {
                    self.close_servers(&servers);
                    return Err(error);
                }
            }
        }
        let exchange = self.set_exchange(servers.iter().copied().map(WaitTarget::Requests).collect());
        Ok((servers, exchange))
    }

    /// Makes each endpoint offer its items to all other endpoints, if there are any. `ons` are the wait
    /// targets of the port in the endpoints.
    pub(crate) fn set_exchange(&self, ons: Vec<WaitTarget>) -> Option<Arc<RequestExchange>> {
        if self.members.len() == 1 {
            return None;
        }
        let exchange = Arc::new(RequestExchange::new(ons.clone()));
        for (shared, on) in self.members.iter().zip(ons) {
            shared.lock().set_exchange(on, Arc::clone(&exchange));
        }
        Some(exchange)
    }

    /// Records in each endpoint that the last handle of a server port was dropped. The caller holds `ports`.
    pub(crate) fn close_servers(&self, servers: &[usize]) {
        for (shared, &server) in self.members.iter().zip(servers) {
            let now = shared.now();
            let mut engine = shared.lock();
            if engine.phase != Phase::Closed {
                engine.close_server(now, server);
                engine.after_work(now);
            }
        }
    }
}
