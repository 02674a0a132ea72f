//! The state of the endpoint.

use std::collections::{BTreeMap, VecDeque};

use homa_trace::Trace;

use crate::ack::MAX_DEFERRED;
use crate::config::{Config, ConfigError};
use crate::contract::{Event, Transmit};
use crate::finished::FinishedIds;
use crate::grant::Grants;
use crate::ids::IdSource;
use crate::incast::{IncastEstimator, UnscheduledQuota};
use crate::keys::Keys;
use crate::lists::Links;
use crate::pacer::Pacer;
use crate::peers::Peers;
use crate::port_rpcs::PortRpcs;
use crate::ports::Ports;
use crate::priority::Cutoffs;
use crate::ready::Ready;
use crate::reap::Reaper;
use crate::retransmit::Retransmits;
use crate::rpc_ids::RpcIds;
use crate::rpc_table::RpcTable;
use crate::stats::Stats;
use crate::time::Time;
use crate::timer::TimerWheel;
use crate::unproven::UnprovenRpcs;
use crate::unreachable::RefusedPorts;
use crate::unscheduled_loss::LossAccounting;
use crate::wire::Incarnation;

/// Returns the minimum number of RPCs for which tables have room. Empty tables would grow in small steps at
/// first.
fn least_room(config: &Config) -> usize {
    config.reserve_rpcs.min(config.max_rpcs).max(64) as usize
}

/// The protocol state of one host.
///
/// # The drive contract
/// - Each call passes the current time. Time never goes back: a time earlier than the last one counts as the
///   last one.
/// - After `send_request`, `send_response`, `abort`, `close_port`, `handle_packets`, `handle_timeout` and
///   `peer_unreachable`: call `poll_event` until it returns nothing. Then call `poll_transmit` until it
///   returns nothing or the driver accepts no more. A returned packet counts as sent, so the caller must keep
///   it until the driver accepts it. `poll_transmit_run` returns the same packets, several per call if they
///   belong to one message.
/// - At the time that `poll_timeout` returned: call `handle_timeout`, then poll again. That time may change,
///   so call `poll_timeout` again after every call. Received packets may be handled first, but a timer that
///   is already due may wait for only one drive call.
/// - The caller holds the payload: outgoing messages from `send_*` until the event that ends the RPC, and
///   incoming messages from the first [`Reassembly::write`](crate::Reassembly::write) on.
pub struct Endpoint {
    pub(super) config: Config,
    pub(super) incarnation: Incarnation,
    /// The number of endpoints announced to peers for bundles (WIRE-23).
    pub(super) bundle_endpoints: u8,
    pub(super) stats: Stats,
    /// TRACE-3: the endpoint only writes the trace, and only the caller reads it.
    pub(super) trace: Trace,
    pub(super) now: Time,
    pub(super) events: VecDeque<Event>,
    pub(super) rpcs: RpcTable,
    pub(super) peers: Peers,
    pub(super) tables: Tables,
    pub(super) ids: IdSource,
    pub(super) sending: Sending,
    pub(super) receiving: Receiving,
    pub(super) waits: Waits,
    pub(super) lifetimes: Lifetimes,
}

/// How RPCs are found, and their ports.
pub(super) struct Tables {
    pub ids: RpcIds,
    /// Links of the lists that hold each peer's RPC slots.
    pub peer_rpcs: Links,
    pub port_rpcs: PortRpcs,
    pub ports: Ports,
    /// Server ports whose last owner ended and lost its record of finished requests, each with the time until
    /// which clients are notified.
    pub lost_owners: BTreeMap<u16, Time>,
    /// Number of RPCs for which the tables keep room.
    pub least_room: usize,
    /// Time at which to check whether tables that grew during a peak can shrink.
    pub shrink_at: Option<Time>,
}

/// Outgoing messages and packets.
pub(super) struct Sending {
    pub ready: Ready,
    pub retransmits: Retransmits,
    pub control: VecDeque<Transmit>,
    pub pacer: Pacer,
    pub outgoing_bytes: u64,
    /// The last time at which a packet was returned for sending.
    pub last_sent: Time,
    /// Peers whose paths the caller must check.
    pub paths_to_check: VecDeque<u32>,
}

/// Incoming messages, and the grants and limits given to peers.
pub(super) struct Receiving {
    pub grants: Grants,
    /// Scratch memory for choosing grants.
    pub active: Vec<u32>,
    pub unscheduled_quota: UnscheduledQuota,
    pub incast_estimator: IncastEstimator,
    pub unscheduled_loss: LossAccounting,
    pub cutoffs: Cutoffs,
    pub unproven: UnprovenRpcs,
    pub incoming_bytes: u64,
}

/// Timers, and queues that wait for a time.
pub(super) struct Waits {
    /// Timers of the RPCs that wait for their peer.
    pub timers: TimerWheel,
    /// Timers of peers: for the next RESEND to the peer, or for the check of its silence.
    pub peer_timers: TimerWheel,
    /// Links of the peers' RESEND queues, which hold RPC slots.
    pub resend_links: Links,
    /// Acknowledgements that arrived in DATA packets and are not handled yet: the peer, and the client's id.
    pub deferred_acks: Vec<(u32, u64)>,
    /// Peers with five or more waiting acknowledgements, each with the deadline for sending them; ordered by
    /// deadline.
    pub acks_due: VecDeque<(Time, u32)>,
}

/// RPCs that have ended or are to be ended.
pub(super) struct Lifetimes {
    pub finished: FinishedIds,
    pub reaper: Reaper,
    pub refused_ports: RefusedPorts,
}

impl Tables {
    fn new(config: &Config, rpcs: usize, seed: u64) -> Tables {
        Tables {
            ids: RpcIds::with_capacity(rpcs, seed),
            peer_rpcs: Links::with_capacity(rpcs),
            port_rpcs: PortRpcs::with_capacity(rpcs),
            ports: Ports::new(config),
            lost_owners: BTreeMap::new(),
            least_room: least_room(config),
            shrink_at: None,
        }
    }
}

impl Sending {
    fn new(config: &Config, rpcs: usize, seed: u64) -> Sending {
        Sending {
            ready: Ready::with_capacity(rpcs),
            retransmits: Retransmits::new(config.max_retransmits, seed),
            control: VecDeque::new(),
            pacer: Pacer::new(config),
            outgoing_bytes: 0,
            last_sent: Time::ZERO,
            paths_to_check: VecDeque::new(),
        }
    }
}

impl Receiving {
    fn new(config: &Config, rpcs: usize) -> Receiving {
        Receiving {
            grants: Grants::with_capacity(rpcs, config.max_incoming.into(), config.window.into()),
            active: Vec::new(),
            unscheduled_quota: UnscheduledQuota::new(config),
            incast_estimator: IncastEstimator::new(config),
            unscheduled_loss: LossAccounting::with_capacity(rpcs),
            cutoffs: Cutoffs::new(config),
            unproven: UnprovenRpcs::new(),
            incoming_bytes: 0,
        }
    }
}

impl Waits {
    fn with_capacity(rpcs: usize) -> Waits {
        Waits {
            timers: TimerWheel::with_capacity(rpcs),
            peer_timers: TimerWheel::with_capacity(0),
            resend_links: Links::with_capacity(rpcs),
            deferred_acks: Vec::with_capacity(MAX_DEFERRED),
            acks_due: VecDeque::new(),
        }
    }
}

impl Lifetimes {
    fn new(config: &Config, seed: u64) -> Lifetimes {
        let finished = FinishedIds::new(
            config.max_packet_lifetime_ns,
            config.max_finished_blocks,
            config.finished_policy,
            seed,
        );
        Lifetimes { finished, reaper: Reaper::default(), refused_ports: RefusedPorts::default() }
    }
}

impl Endpoint {
    /// Creates an endpoint without open ports. Its events are recorded in `trace`, which has its own clock.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn new(config: Config, mut trace: Trace) -> Result<Endpoint, ConfigError> {
        config.validate()?;
        trace.set_endpoint(u8::try_from(config.endpoint).unwrap_or(u8::MAX));
        let keys = Keys::new(config.seed, config.id_seed);
        let seed = keys.tables;
        let rpcs = config.reserve_rpcs.min(config.max_rpcs) as usize;
        let sending = Sending::new(&config, rpcs, seed);
        let stats = Stats { pacer_off: sending.pacer.is_off().into(), ..Stats::default() };
        let incarnation = match config.incarnation {
            0 => Incarnation::NONE,
            number => Incarnation::new(number),
        };
        Ok(Endpoint {
            incarnation,
            bundle_endpoints: u8::try_from(config.endpoints).unwrap_or(0),
            stats,
            trace,
            now: Time::ZERO,
            events: VecDeque::new(),
            rpcs: RpcTable::with_capacity(rpcs),
            peers: Peers::new(seed),
            tables: Tables::new(&config, rpcs, seed),
            ids: IdSource::new(keys, &config),
            sending,
            receiving: Receiving::new(&config, rpcs),
            waits: Waits::with_capacity(rpcs),
            lifetimes: Lifetimes::new(&config, seed),
            config,
        })
    }

    /// Advances the clock to `now`, unless the last time was later (PEER-13). Returns the resulting time.
    pub(super) fn advance(&mut self, now: Time) -> Time {
        self.now = self.now.max(now);
        self.now
    }
}
