//! The state of the endpoint.

use std::collections::{BTreeMap, HashMap, VecDeque};

use foldhash::fast::FixedState;
use homa_trace::Trace;

use crate::ack::MAX_PUT_OFF;
use crate::config::{Config, ConfigError};
use crate::contract::{Event, Transmit};
use crate::finished::FinishedIds;
use crate::grant::Grants;
use crate::ids::own_count_from;
use crate::incast::{IncastEstimator, UnscheduledQuota};
use crate::keys::Keys;
use crate::lists::Links;
use crate::pacer::Pacer;
use crate::peer::Peers;
use crate::port_rpcs::PortRpcs;
use crate::ports::Ports;
use crate::priority::Cutoffs;
use crate::ready::Ready;
use crate::reap::Reaper;
use crate::retransmit::Retransmits;
use crate::rpc_table::RpcTable;
use crate::stats::Stats;
use crate::time::Time;
use crate::timer::TimerWheel;
use crate::unproven::UnprovenRpcs;
use crate::unreachable::RefusedPorts;
use crate::unscheduled_loss::LossAccounting;
use crate::wire::Incarnation;

/// Number of RPCs for which tables always have room; from no room at all they would grow in small steps.
fn least_room(config: &Config) -> usize {
    config.reserve_rpcs.min(config.max_rpcs).max(64) as usize
}

/// The protocol state of one host.
///
/// # The drive contract
/// - Each call passes the time, which never goes back: an earlier time counts as the last one.
/// - After `send_request`, `send_response`, `abort`, `close_port`, `handle_packets`, `handle_timeout` and
///   `peer_unreachable`: call `poll_event` until it returns nothing. Then call `poll_transmit` until it
///   returns nothing or the driver accepts no more. A returned packet counts as sent: keep it until the
///   driver accepts it. `poll_transmit_run` returns the same packets, several per call if they belong to one
///   message.
/// - When the time of `poll_timeout` has come: call `handle_timeout`, then poll again. Call `poll_timeout`
///   again after every call. Received packets may be handled first; a timer that is already due then waits
///   for at most one drive call.
/// - Payload stays with the caller. It keeps outgoing messages from `send_*` until the event that ends the
///   RPC, and incoming ones from the first [`Reassembly::write`](crate::Reassembly::write) on.
pub struct Endpoint {
    pub(super) config: Config,
    pub(super) incarnation: Incarnation,
    /// The number of endpoints announced to peers for bundles (WIRE-23).
    pub(super) bundle_endpoints: u8,
    pub(super) stats: Stats,
    /// TRACE-3: the endpoint only writes it, and only the caller reads it.
    pub(super) trace: Trace,
    pub(super) now: Time,
    pub(super) rpcs: RpcTable,
    pub(super) client_ids: HashMap<u64, u32, FixedState>,
    pub(super) server_ids: HashMap<(u32, u64), u32, FixedState>,
    pub(super) peers: Peers,
    /// Links of RPC slots in their peer's list.
    pub(super) peer_rpcs: Links,
    pub(super) ports: Ports,
    pub(super) port_rpcs: PortRpcs,
    /// Server ports whose last owner died and lost its memory, each with the time until which that matters.
    pub(super) lost_owners: BTreeMap<u16, Time>,
    /// Secrets that never appear in a packet.
    pub(super) keys: Keys,
    /// Number of challenges made for peers; each challenge gets a different number.
    pub(super) challenges: u64,
    /// Counter value for the next request. Its id is derived from this value and from the peer.
    pub(super) next_id: u64,
    /// Number of counter values from `next_id` on that may be used.
    pub(super) ids_left: u64,
    pub(super) grants: Grants,
    pub(super) unscheduled_quota: UnscheduledQuota,
    pub(super) incast_estimator: IncastEstimator,
    pub(super) unscheduled_loss: LossAccounting,
    /// Scratch memory for choosing grants.
    pub(super) active: Vec<u32>,
    pub(super) ready: Ready,
    pub(super) retransmits: Retransmits,
    pub(super) control: VecDeque<Transmit>,
    pub(super) pacer: Pacer,
    pub(super) cutoffs: Cutoffs,
    /// Timers of the RPCs that wait for their peer.
    pub(super) timers: TimerWheel,
    /// Timers of peers: for the next RESEND to the peer, or for its silence.
    pub(super) peer_timers: TimerWheel,
    /// Links of RPC slots in their peer's queue for RESENDs.
    pub(super) resend_links: Links,
    pub(super) finished: FinishedIds,
    pub(super) unproven: UnprovenRpcs,
    pub(super) events: VecDeque<Event>,
    pub(super) reaper: Reaper,
    /// Acknowledgements that arrived in DATA packets and are not handled yet: the peer, and the client's id.
    pub(super) acked: Vec<(u32, u64)>,
    /// Peers with five or more waiting acknowledgements, each with the deadline to send them; in order of
    /// time.
    pub(super) acks_due: VecDeque<(Time, u32)>,
    pub(super) refused_ports: RefusedPorts,
    pub(super) outgoing_bytes: u64,
    pub(super) incoming_bytes: u64,
    /// Peers whose paths the caller must check.
    pub(super) paths_in_question: VecDeque<u32>,
    /// When a packet was last returned for sending.
    pub(super) last_sent: Time,
    /// When tables that a peak has left large are checked for shrinking.
    pub(super) shrink_at: Option<Time>,
    /// Number of RPCs for which the tables keep room.
    pub(super) least_room: usize,
}

impl Endpoint {
    /// Makes an endpoint without open ports. `trace` records its events, with a clock of its own.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn new(config: Config, mut trace: Trace) -> Result<Endpoint, ConfigError> {
        config.validate()?;
        trace.set_endpoint(u8::try_from(config.endpoint).unwrap_or(u8::MAX));
        let keys = Keys::new(config.seed, config.id_seed);
        let reserve = config.reserve_rpcs.min(config.max_rpcs) as usize;
        let ids = || FixedState::with_seed(keys.tables);
        let least_room = least_room(&config);
        let mut stats = Stats::default();
        let pacer = Pacer::new(&config);
        stats.pacer_off = pacer.is_off().into();
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
            rpcs: RpcTable::with_capacity(reserve),
            client_ids: HashMap::with_capacity_and_hasher(reserve, ids()),
            server_ids: HashMap::with_capacity_and_hasher(reserve, ids()),
            peers: Peers::new(keys.tables),
            peer_rpcs: Links::with_capacity(reserve),
            ports: Ports::new(&config),
            port_rpcs: PortRpcs::with_capacity(reserve),
            lost_owners: BTreeMap::new(),
            keys,
            challenges: 0,
            next_id: own_count_from(keys.first_id & !1, &config),
            ids_left: u64::MAX,
            grants: Grants::with_capacity(reserve, config.max_incoming.into(), config.window.into()),
            unscheduled_quota: UnscheduledQuota::new(&config),
            incast_estimator: IncastEstimator::new(&config),
            unscheduled_loss: LossAccounting::with_capacity(reserve),
            active: Vec::new(),
            ready: Ready::with_capacity(reserve),
            retransmits: Retransmits::new(config.max_retransmits, keys.tables),
            control: VecDeque::new(),
            pacer,
            cutoffs: Cutoffs::new(&config),
            timers: TimerWheel::with_capacity(reserve),
            peer_timers: TimerWheel::with_capacity(0),
            resend_links: Links::with_capacity(reserve),
            finished: FinishedIds::new(
                config.max_packet_lifetime_ns,
                config.max_finished_blocks,
                config.finished_policy,
                keys.tables,
            ),
            unproven: UnprovenRpcs::new(),
            events: VecDeque::new(),
            reaper: Reaper::default(),
            acked: Vec::with_capacity(MAX_PUT_OFF),
            acks_due: VecDeque::new(),
            refused_ports: RefusedPorts::default(),
            outgoing_bytes: 0,
            incoming_bytes: 0,
            paths_in_question: VecDeque::new(),
            last_sent: Time::ZERO,
            shrink_at: None,
            least_room,
            config,
        })
    }

    /// Advances the clock to `now`, unless the last time was later (PEER-13). Returns the result.
    pub(super) fn advance(&mut self, now: Time) -> Time {
        self.now = self.now.max(now);
        self.now
    }
}
