//! The state of an endpoint behind its lock: the endpoint, its packet path, and the queues between them and
//! the application.
//!
//! The methods of [`Engine`] stand in the files of this folder, one for each concept. The parts that the
//! engine consists of stand in `runtime`, `tenancy`, `payload`, `observe` and `kernel_api`. No part knows the
//! engine: a part gets the other parts that it needs as arguments.

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

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::task::Waker;

use foldhash::fast::FixedState;
use homa_driver::{Driver, RxBurst};
use homa_proto::wire::HeaderBuf;
use homa_proto::{Endpoint, RpcKey, Time, TransmitRun};
use homa_trace::Ticks;
use slab::Slab;

use crate::kernel_api::socket::state::{LentReply, SocketState};
use crate::observe::freeze::Freezer;
use crate::observe::metrics::HostCounts;
use crate::observe::times::TimesBySize;
use crate::payload::buffers::Buffers;
use crate::runtime::async_state::AsyncDriver;
use crate::runtime::bundles::Datagrams;
use crate::runtime::calls::{Call, CallOwner, ClientPort};
use crate::runtime::clock::HostClock;
use crate::runtime::progress::Progress;
use crate::runtime::requests::{Reading, ServerPort};
use crate::runtime::timers::Timers;
use crate::runtime::wait_target::WaitTarget;
use crate::runtime::waiters::Waiters;
use crate::tenancy::endpoint_group::GroupMember;
use crate::tenancy::host_lease::HostLease;
use crate::tenancy::processes::Share;

/// The phase of a host's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// In use.
    Open,
    /// Shutting down: answers are still accepted and sent, all else is refused.
    Closing,
    /// Over.
    Closed,
}

/// Limits of the runtime, in addition to those of the protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) completions: usize,
    pub(crate) queued_request_bytes: u64,
}

/// How far memory has been returned since the peak.
#[derive(Debug, Default)]
pub(crate) struct ShrinkState {
    /// RPCs for which the endpoint's tables had room at the last check.
    pub(super) room: usize,
    /// The allocator may return memory to the system.
    pub(super) trims: bool,
}

/// The state of one endpoint: see the [module](self).
pub(crate) struct Engine {
    pub(crate) endpoint: Endpoint,
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) rx: RxBurst,
    pub(crate) unsent: Vec<TransmitRun>,
    /// Memory for the headers of the unsent packets.
    pub(crate) headers: Vec<HeaderBuf>,
    /// The datagrams of the unsent packets, as given to the driver.
    pub(crate) datagrams: Datagrams,
    /// A bundle whose first bytes alone were received into `rx`; empty outside of a drive round.
    pub(crate) bundle_in_place: Vec<u8>,
    /// The last round of sending ended at its bound, and there may be more to send.
    pub(crate) backlog: bool,
    /// Consecutive rounds in which due timers were deferred in favour of received packets.
    pub(crate) put_off: u32,
    /// Times that the driver was polled in vain since packets last came.
    pub(crate) empty_polls: u32,
    pub(crate) buffers: Buffers,
    pub(crate) shrink: ShrinkState,
    pub(crate) calls: Slab<Call>,
    /// Requests that were taken before they were whole, until their end is read.
    pub(crate) readings: Slab<Reading>,
    pub(crate) clients: Slab<ClientPort>,
    pub(crate) servers: Slab<ServerPort>,
    pub(crate) sockets: Slab<SocketState>,
    /// Calls of sockets that have a deadline and are not over, sorted by deadline.
    pub(crate) deadlines: BTreeSet<(Time, usize)>,
    /// The time limits of futures.
    pub(crate) timers: Timers,
    /// Answers whose bytes a socket must get back.
    pub(crate) lent_replies: HashMap<RpcKey, LentReply, FixedState>,
    pub(crate) server_of_port: HashMap<u16, usize, FixedState>,
    pub(crate) waiting: Waiters,
    pub(crate) progress: Progress,
    pub(crate) async_driver: AsyncDriver,
    pub(crate) life: Life,
    pub(crate) limits: Limits,
    pub(crate) counts: HostCounts,
    pub(crate) call_times: Box<TimesBySize>,
    pub(crate) answer_times: Box<TimesBySize>,
    /// `None` if time is simulated, as in tests.
    pub(crate) clock: Option<HostClock>,
    /// When the clock was last read for the trace, unless slow work was done since.
    pub(crate) just_now: Option<Time>,
    pub(crate) freezer: Freezer,
    /// The trace's clock, if the trace records the times at which the kernel received packets.
    pub(crate) device_clock: Option<Ticks>,
    /// This endpoint's part in what processes share; `None` if this host has its address to itself.
    pub(crate) share: Option<Share>,
    /// This endpoint's membership in the group of the host's endpoints; `None` if it is the only one.
    pub(crate) kin: Option<GroupMember>,
    /// This endpoint's lease on host-wide resources; `None` if it is the only one.
    pub(crate) stake: Option<HostLease>,
    /// Processors are kept out of deep sleep while RPCs are in flight.
    pub(crate) low_latency: bool,
    /// Bytes of the requests in all queues.
    pub(crate) queued_bytes: u64,
    /// When a thread or task last did a drive round, or left the lead.
    pub(crate) last_driven: Time,
    /// When packets last came or went.
    pub(crate) last_activity: Time,
    /// Packets travel in IP itself: peers have no ports, and the driver is given a filter for this host's
    /// packets.
    ip_only: bool,
    /// The peer whose largest packet was last reported to the endpoint, and when.
    last_peer: Option<(SocketAddr, Time)>,
    /// Wakers to call once outgoing messages take less memory than this many bytes.
    pub(crate) rooms: Vec<(u64, Waker)>,
}

/// For how long the same peer's largest packet is not reported to the endpoint again.
const PEER_REFRESH_NS: u64 = 10_000_000;

impl Engine {
    pub(crate) fn new(mut endpoint: Endpoint, driver: Box<dyn Driver>, limits: Limits) -> Engine {
        let ip_only = driver.local_addr().port() == 0;
        if ip_only {
            endpoint.refuse_bundles(); // WIRE-21: they are datagrams of UDP.
        }
        Engine {
            rooms: Vec::new(),
            progress: Progress::new(endpoint.config()),
            endpoint,
            ip_only,
            driver,
            rx: RxBurst::new(),
            unsent: Vec::new(),
            headers: Vec::new(),
            datagrams: Datagrams::default(),
            bundle_in_place: Vec::new(),
            backlog: false,
            put_off: 0,
            empty_polls: 0,
            buffers: Buffers::default(),
            shrink: ShrinkState::default(),
            calls: Slab::new(),
            readings: Slab::new(),
            clients: Slab::new(),
            servers: Slab::new(),
            sockets: Slab::new(),
            deadlines: BTreeSet::new(),
            timers: Timers::default(),
            lent_replies: HashMap::default(),
            server_of_port: HashMap::default(),
            waiting: Waiters::default(),
            async_driver: AsyncDriver::default(),
            life: Life::Open,
            limits,
            counts: HostCounts::default(),
            call_times: Box::default(),
            answer_times: Box::default(),
            clock: None,
            just_now: None,
            freezer: Freezer::default(),
            device_clock: None,
            share: None,
            kin: None,
            stake: None,
            low_latency: false,
            queued_bytes: 0,
            last_driven: Time::ZERO,
            last_activity: Time::ZERO,
            last_peer: None,
        }
    }

    /// Reports to the endpoint how large a packet can be sent to `peer`. The size belongs to the path, and
    /// paths change.
    pub(crate) fn note_peer(&mut self, now: Time, peer: SocketAddr) {
        if self.last_peer.is_some_and(|(last, at)| last == peer && now.since(at) < PEER_REFRESH_NS) {
            return;
        }
        self.last_peer = Some((peer, now));
        let bytes = self.driver.max_packet(peer).min(u32::MAX as usize) as u32;
        self.endpoint.set_peer_max_packet(peer, bytes);
    }

    /// Whether there is an item for a thread that waits on this.
    pub(crate) fn has_item(&self, on: WaitTarget) -> bool {
        self.items(on) > 0
    }

    /// Number of threads waiting on this that could each take an item.
    pub(crate) fn items(&self, on: WaitTarget) -> usize {
        match on {
            WaitTarget::Call(_) | WaitTarget::Reading(_) | WaitTarget::Drained => 1,
            WaitTarget::Completions(client) => {
                self.clients.get(client).map_or(0, |client| client.completions.len())
            }
            // Requests for a socket are taken through the socket.
            WaitTarget::Requests(server) => self
                .servers
                .get(server)
                .filter(|server| server.socket.is_none())
                .map_or(0, ServerPort::queue_len),
            WaitTarget::Socket(socket) => self.arrivals(socket),
        }
    }

    /// The task to wake for an item for which no thread waits.
    pub(crate) fn pop_task(&mut self, on: WaitTarget) -> Option<Waker> {
        match on {
            WaitTarget::Requests(server) => self.servers.get_mut(server)?.tasks.pop(&self.waiting.wake_by),
            WaitTarget::Call(call) => match &mut self.calls.get_mut(call)?.owner {
                CallOwner::CallTicket(ticket) => ticket.waker.take(),
                _ => None,
            },
            WaitTarget::Reading(index) => self.readings.get_mut(index)?.waker.take(),
            WaitTarget::Socket(socket) => self.sockets.get(socket)?.waker.clone(),
            WaitTarget::Completions(_) | WaitTarget::Drained => None,
        }
    }
}
