//! The state behind an endpoint's lock: the endpoint, its packet path, and the queues between these and the
//! application.
//!
//! The methods of [`Engine`] are in the files of this folder, one file per concept. The parts of the engine
//! are in `runtime`, `tenancy`, `payload`, `observe` and `kernel_api`. No part depends on the engine: the
//! other parts that a part needs are passed as arguments.

mod calls;
mod close;
#[cfg_attr(not(feature = "kernel-api"), allow(dead_code, reason = "only sockets copy while they send"))]
mod copying;
mod drive;
mod events;
mod exchange;
mod freeze;
mod group;
mod metrics;
mod processes;
mod progress;
mod readings;
mod receive;
mod requests;
mod shrink;
#[cfg_attr(
    not(feature = "kernel-api"),
    allow(dead_code, reason = "the engine keeps the tables of sockets, which only the feature opens")
)]
mod sockets;
#[cfg(test)]
pub(crate) mod testing;
mod trace;
mod transmit;
mod wake;

use std::net::SocketAddr;
use std::task::Waker;

use homa_driver::Driver;
use homa_proto::{Endpoint, Time};

use crate::observe::metrics::Counters;
use crate::observe::stages::Tracing;
use crate::payload::buffers::Buffers;
use crate::runtime::calls::{CallOwner, Calls};
use crate::runtime::driving::Driving;
use crate::runtime::receiving::Receiving;
use crate::runtime::requests::{Requests, ServerPort};
use crate::runtime::sending::Sending;
use crate::runtime::sockets::Sockets;
use crate::runtime::wait_target::WaitTarget;
use crate::runtime::waiters::Waiters;
use crate::tenancy::Tenancy;

/// The phase of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// In use.
    Open,
    /// Shutting down: answers are still accepted and sent, but everything else is refused.
    Closing,
    /// Shut down.
    Closed,
}

/// Limits of the runtime, in addition to those of the protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) completions: usize,
    pub(crate) queued_request_bytes: u64,
}

/// The state of returning memory after a peak in the number of RPCs.
#[derive(Debug, Default)]
pub(crate) struct ShrinkState {
    /// Number of RPCs for which the endpoint's tables had room at the last check.
    room: usize,
    /// Whether the allocator may return memory to the system.
    trims: bool,
}

/// The state of one endpoint: see the [module](self).
pub(crate) struct Engine {
    pub(crate) endpoint: Endpoint,
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) receiving: Receiving,
    pub(crate) sending: Sending,
    pub(crate) buffers: Buffers,
    pub(crate) calls: Calls,
    pub(crate) requests: Requests,
    pub(crate) sockets: Sockets,
    pub(crate) waiting: Waiters,
    pub(crate) driving: Driving,
    pub(crate) tenancy: Tenancy,
    pub(crate) counts: Counters,
    pub(crate) tracing: Tracing,
    pub(crate) phase: Phase,
    pub(crate) shrink: ShrinkState,
}

/// Minimum interval between reports of the same peer's maximum packet size to the endpoint.
const PEER_REFRESH_NS: u64 = 10_000_000;

impl Engine {
    pub(crate) fn new(mut endpoint: Endpoint, driver: Box<dyn Driver>, limits: Limits) -> Engine {
        let peers_port = driver.peers_port();
        if peers_port.is_some() {
            endpoint.refuse_bundles(); // WIRE-21: bundles exist only in this project's own UDP format.
        }
        Engine {
            driving: Driving::new(endpoint.config()),
            endpoint,
            driver,
            receiving: Receiving::new(),
            sending: Sending::new(peers_port),
            buffers: Buffers::default(),
            calls: Calls::new(limits.completions),
            requests: Requests::new(limits.queued_request_bytes),
            sockets: Sockets::default(),
            waiting: Waiters::default(),
            tenancy: Tenancy::default(),
            counts: Counters::default(),
            tracing: Tracing::default(),
            phase: Phase::Open,
            shrink: ShrinkState::default(),
        }
    }

    /// Reports to the endpoint how large a packet can be sent to `peer`. The size is a property of the path,
    /// and paths change.
    pub(crate) fn note_peer(&mut self, now: Time, peer: SocketAddr) {
        if self.sending.last_peer.is_some_and(|(last, at)| last == peer && now.since(at) < PEER_REFRESH_NS) {
            return;
        }
        self.sending.last_peer = Some((peer, now));
        let bytes = self.driver.max_packet(peer).min(u32::MAX as usize) as u32;
        self.endpoint.set_peer_max_packet(peer, bytes);
    }

    /// Returns whether there is an item for a thread that waits on this target.
    pub(crate) fn has_item(&self, on: WaitTarget) -> bool {
        self.items(on) > 0
    }

    /// Returns the number of threads waiting on this target that could take an item each.
    pub(crate) fn items(&self, on: WaitTarget) -> usize {
        match on {
            WaitTarget::Call(_) | WaitTarget::Reading(_) | WaitTarget::Drained => 1,
            WaitTarget::Completions(client) => {
                self.calls.clients.get(client).map_or(0, |client| client.completions.len())
            }
            // Requests for a socket are taken through that socket.
            WaitTarget::Requests(server) => self
                .requests
                .ports
                .get(server)
                .filter(|server| server.socket.is_none())
                .map_or(0, ServerPort::queue_len),
            WaitTarget::Socket(socket) => self.arrivals(socket),
            WaitTarget::Descriptor => 0,
        }
    }

    /// Removes the task to wake for an item for which no thread waits.
    pub(crate) fn pop_task(&mut self, on: WaitTarget) -> Option<Waker> {
        match on {
            WaitTarget::Requests(server) => {
                self.requests.ports.get_mut(server)?.tasks.pop(&self.waiting.wake_by)
            }
            WaitTarget::Call(call) => match &mut self.calls.open.get_mut(call)?.owner {
                CallOwner::CallTicket(ticket) => ticket.waker.take(),
                _ => None,
            },
            WaitTarget::Reading(index) => self.requests.readings.get_mut(index)?.waker.take(),
            WaitTarget::Socket(socket) => self.sockets.open.get(socket)?.waker.clone(),
            WaitTarget::Completions(_) | WaitTarget::Drained | WaitTarget::Descriptor => None,
        }
    }
}
