//! The endpoints of a host, one or several, as the host's handles use them.

use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::api::error::HostError;
use crate::observe::metrics::Metrics;
use crate::runtime::engine::{Engine, Life};
use crate::runtime::shared_engine::SharedEngine;
use crate::runtime::wait::WaitTarget;
use crate::tenancy::endpoint_group::EndpointGroup;
use crate::tenancy::endpoint_group::board::RequestExchange;
use crate::tenancy::placement::Placement;
use crate::tenancy::process_group::PortClaim;

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
        if engine.life != Life::Closed {
            engine.close_client(now, self.client);
            engine.after_work(now);
        }
    }
}

/// The ports of a client: its ports, the index of its own, and what chooses the port of a call.
pub(crate) type ClientPorts = (Vec<PortAt>, usize, Option<Arc<Placement>>);

/// The endpoints of a host, with what opens ports in them: see the [module](self).
pub(crate) struct Endpoints {
    pub(crate) members: Vec<Arc<SharedEngine>>,
    /// The mailboxes of the endpoints, if there are several.
    siblings: Option<Arc<EndpointGroup>>,
    /// Held while a port opens or closes in all endpoints. A thread that waits for it holds no engine's lock.
    ports: Mutex<()>,
    /// Endpoint in which the next client port opens, modulo the number of endpoints.
    next_client: AtomicUsize,
    /// Chooses the endpoints of calls; `None`: each call uses its client's endpoint.
    placement: Option<Arc<Placement>>,
}

impl Endpoints {
    pub(crate) fn new(
        members: Vec<Arc<SharedEngine>>,
        siblings: Option<Arc<EndpointGroup>>,
        placement: Option<Placement>,
    ) -> Endpoints {
        if let Some(siblings) = &siblings {
            siblings.introduce(&members);
        }
        let (ports, next_client) = (Mutex::new(()), AtomicUsize::new(0));
        Endpoints { members, siblings, ports, next_client, placement: placement.map(Arc::new) }
    }

    /// The first endpoint.
    pub(crate) fn first(&self) -> &Arc<SharedEngine> {
        &self.members[0]
    }

    pub(crate) fn lock_ports(&self) -> MutexGuard<'_, ()> {
        // The lock guards an order of events and no data.
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The endpoint for the next port that lives in one endpoint: ports are dealt out in turn.
    pub(crate) fn deal_client(&self) -> &Arc<SharedEngine> {
        &self.members[self.next_client.fetch_add(1, Relaxed) % self.members.len()]
    }

    /// Opens a client port. Without a policy it opens in the next endpoint, since clients are dealt out in
    /// turn. If a policy places calls, it opens in all, and the policy chooses the client's own endpoint.
    /// `choose` returns a port on which the processes of the host agree.
    pub(crate) fn open_client(
        &self,
        choose: impl Fn() -> Result<Option<u16>, HostError>,
        to: SocketAddr,
    ) -> Result<ClientPorts, HostError> {
        let open = |shared: &Arc<SharedEngine>| {
            let chosen = choose()?;
            let mut engine = shared.lock();
            let client = engine.open_client(shared.now(), chosen)?;
            let number = engine.clients[client].port;
            drop(engine);
            Ok(PortAt { shared: Arc::clone(shared), client, number })
        };
        let Some(placement) = &self.placement else {
            return Ok((vec![open(self.deal_client())?], 0, None));
        };
        let turn = self.next_client.fetch_add(1, Relaxed);
        let ports = self.members.iter().map(open).collect::<Result<Vec<_>, HostError>>()?;
        let rpcs = self.members.iter().map(|shared| shared.open_rpcs());
        // No server is known yet, so the client alone is the flow.
        let home =
            placement.place(self.first().now(), (turn % self.members.len(), turn as u16), (to, 0), rpcs);
        Ok((ports, home, Some(Arc::clone(placement))))
    }

    /// Opens a server port in all endpoints, or in none. Returns its index in each, and the exchange for its
    /// requests.
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
                // Old requests of the port are still being ended: other threads of this host get the lock
                // meanwhile.
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
        let board = self.set_board(servers.iter().copied().map(WaitTarget::Requests).collect());
        Ok((servers, board))
    }

    /// Makes each endpoint offer its items to all other endpoints, if there are any. `ons` are the wait
    /// targets of the port in the endpoints.
    pub(crate) fn set_board(&self, ons: Vec<WaitTarget>) -> Option<Arc<RequestExchange>> {
        let siblings = Arc::clone(self.siblings.as_ref()?);
        let board = Arc::new(RequestExchange::new(siblings, ons.clone()));
        for (shared, on) in self.members.iter().zip(ons) {
            shared.lock().set_board(on, Arc::clone(&board));
        }
        Some(board)
    }

    /// Notes in each endpoint that the last handle of a server port is dropped. The caller holds the lock of
    /// ports.
    pub(crate) fn close_servers(&self, servers: &[usize]) {
        for (shared, &server) in self.members.iter().zip(servers) {
            let now = shared.now();
            let mut engine = shared.lock();
            if engine.life != Life::Closed {
                engine.close_server(now, server);
                engine.after_work(now);
            }
        }
    }
}

impl Engine {
    /// Every counter of this endpoint.
    pub(crate) fn metrics(&mut self) -> Metrics {
        let mut host = self.counts.clone();
        host.endpoints = 1;
        host.granted_bytes = self.endpoint.granted_bytes();
        let trace = self.endpoint.trace();
        host.trace_records = trace.len() as u64;
        host.trace_records_overwritten = trace.overwritten();
        host.open_rpcs = self.endpoint.open_rpcs() as u64;
        host.open_calls = self.calls.len() as u64;
        host.open_readings = self.readings.len() as u64;
        host.queued_requests = self.servers.iter().map(|(_, port)| Engine::queue_len(port) as u64).sum();
        host.queued_request_bytes = self.queued_bytes;
        host.outgoing_bytes = self.buffers.outgoing_bytes();
        host.incoming_bytes = self.buffers.incoming_bytes();
        host.buffers_allocated = self.buffers.allocations();
        host.known_peers = self.endpoint.known_peers() as u64;
        host.link_mbps = self.endpoint.config().link_mbps.unwrap_or(0).into();
        host.unsched_limit_bytes = self.endpoint.unsched_limit().unwrap_or(0).into();
        host.leader_sleeps = self.waiting.leader_sleeps;
        host.leader_rings = self.waiting.leader_rings;
        host.handovers = self.waiting.handovers;
        host.progress_takeovers = self.progress.takeovers;
        host.low_latency_held = self.progress.low_latency_held.into();
        if let Some(kin) = &self.kin {
            let mail = kin.mail_counts();
            (host.misdirected_packets, host.mail_dropped) = (mail.packets, mail.dropped);
            host.mail_lock_acquisitions = mail.lock_acquisitions;
            host.mail_lock_misses = mail.lock_misses;
            host.mail_lock_wait_ns = mail.lock_wait_ns;
        }
        if let Some(share) = &self.share {
            share.count(&mut host);
        }
        if let Some(stake) = &self.stake {
            let (budget, lease, leased) = stake.grant_bytes();
            host.shared_grant_budget_bytes = budget;
            (host.shared_grant_lease_bytes, host.shared_grant_leased_bytes) = (lease, leased);
        }
        Metrics {
            endpoint: self.endpoint.stats().clone(),
            driver: self.driver.stats(),
            host,
            call_times: self.call_times.as_ref().clone(),
            answer_times: self.answer_times.as_ref().clone(),
        }
    }
}
