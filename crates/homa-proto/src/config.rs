//! Every setting of the protocol, with the reason for its default and the link it was tuned for.
//!
//! A setting that the kernel module also has (`net.homa.*`) keeps its name. "kernel" below is the module's
//! default, which is tuned for a 25 Gbit/s network.

use crate::dialect::Dialect;
use crate::time::{MS, SEC, US};
use crate::wire::{DATA_HEADER_LEN, PRIORITIES};

/// Maximum number of endpoints behind one address. More than one per core gains nothing, and 64 flags fit in
/// one word.
pub const MAX_ENDPOINTS: u32 = 64;

/// Rate of the link for which the defaults in bytes were tuned, in Mbit/s.
const TUNED_FOR_MBPS: u64 = 25_000;

/// What to do with a new request when the table of finished ids is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishedPolicy {
    /// Drop new requests until ids expire. No request ever runs twice.
    Refuse,
    /// Forget the oldest ids. New requests are still accepted, but a duplicate of a request whose id was
    /// forgotten may run a second time.
    ForgetOldest,
}

/// Maximum of every interval setting: a year. 64 bits of nanoseconds hold 584 years, so sums and small
/// multiples of such intervals cannot wrap.
const LONGEST_INTERVAL_NS: u64 = 365 * 86_400 * SEC;

/// RPCs count their unanswered packets in one byte.
const MAX_TRIES: u32 = u8::MAX as u32;

/// The settings of one endpoint. Times are in nanoseconds, at most a year each. Sizes are in bytes.
#[derive(Clone, Debug)]
pub struct Config {
    /// Seed of all secrets: RPC ids, hash tables, challenges to peers. It is the endpoint's only source of
    /// randomness, and must be kept secret.
    pub seed: u64,
    /// Replaces `seed` for the part of RPC ids that depends on the peer. All processes of a host take ids
    /// from one sequence, and so must use the same value. 0: the value is derived from `seed`.
    pub id_seed: u64,
    /// Wall-clock time in milliseconds at the start of this host, by which peers detect a restart. 0: not
    /// announced.
    pub incarnation: u64,
    /// Number of endpoints behind this host's address, 1 to [`MAX_ENDPOINTS`](crate::MAX_ENDPOINTS). Packets
    /// are steered to them by RPC id ([`owner_of`](crate::wire::owner_of)). The limit of unscheduled bytes
    /// (INCAST) is divided by this number, since each endpoint receives only a part of the traffic. The other
    /// limits apply to each endpoint separately.
    pub endpoints: u32,
    /// Index of this endpoint among the endpoints of its host, less than `endpoints`.
    pub endpoint: u32,
    /// The dialect assumed of every peer: for tests, and for networks whose kernels are known. `Unknown`: the
    /// dialect of each peer is detected from its packets.
    pub wire_dialect: Dialect,
    /// Bytes of a message that may be sent before any grant (kernel: 40000, about one round trip at 25
    /// Gbit/s).
    pub unsched_bytes: u32,
    /// Whether the number of unscheduled bytes for a peer is computed from its measured round-trip time, if
    /// the link rate is known. Otherwise `unsched_bytes` applies to all peers.
    pub unsched_from_rtt: bool,
    /// Minimum unscheduled bytes of a message, regardless of the number of active senders (the Homa paper: a
    /// few hundred).
    pub min_unsched_bytes: u32,
    /// Maximum unscheduled bytes of a message, regardless of the round-trip time.
    pub max_unsched_bytes: u32,
    /// Full packets sent without a grant in addition to one round trip's worth, so that a late grant leaves
    /// no gap. (RAMCloud's notes: 6 of 14 us at 10 Gbit/s, about five packets.)
    pub rtt_slack_packets: u32,
    /// Length of a measurement window: a round-trip time sample is discarded after one to two windows.
    pub rtt_window_ns: u64,
    /// How long senders stay limited after an incast: one to two times this interval.
    pub incast_memory_ns: u64,
    /// Time without a packet after which unscheduled bytes beyond `max_incoming` count as lost. While a queue
    /// drains, packets arrive at shorter intervals, and the kernel's delays are shorter too (kernel notes: up
    /// to 100 us for a handler to start).
    pub incast_quiet_ns: u64,
    /// Window of each message, in bytes. 0: the active messages share `window_total`.
    pub window: u32,
    /// Bytes that the active messages' windows share: each gets `window_total / (active + 1)`. 0:
    /// `max_incoming`, as in the kernel. The rest of `max_incoming` can be granted to other senders while
    /// senders with grants are sending to other hosts.
    pub window_total: u32,
    /// Maximum bytes granted and not yet received, summed over all messages of this host (kernel: 400000).
    pub max_incoming: u32,
    /// Maximum number of messages that receive grants at the same time, each of a different peer (kernel: 8).
    pub max_overcommit: u32,
    /// Minimum bytes by which a grant extends the previous one, unless it reaches the end of the message.
    /// This saves GRANT packets.
    pub min_grant_increment: u32,
    /// Bytes of an extra grant to the oldest message (kernel: 50000).
    pub fifo_grant_increment: u32,
    /// Part of the granted bytes that goes to the oldest message, in thousandths; less than 500 (kernel: 50).
    pub grant_fifo_fraction: u32,
    /// Part of the scheduled bytes sent that goes to the oldest message, in thousandths; less than 500
    /// (kernel: 50).
    pub pacer_fifo_fraction: u32,
    /// Priority levels in use, 1 to 8 (kernel: 8).
    pub num_priorities: u8,
    /// Highest priority of scheduled packets, less than `num_priorities` (kernel: 3). Unscheduled packets use
    /// the priorities above it.
    pub max_sched_prio: u8,
    /// Cutoffs used until traffic has been observed: level i takes the unscheduled bytes of messages up to
    /// `unsched_cutoffs[i]` bytes long (the defaults are the kernel's).
    pub unsched_cutoffs: [u32; PRIORITIES],
    /// Version of the first cutoffs; 0 counts as 1. Drivers choose it at random, because a peer that sends
    /// this version proves that it has received a packet of ours (SHARE-3). All endpoints of a host use the
    /// same version.
    pub first_cutoff_version: u16,
    /// Interval at which cutoffs are recomputed from the traffic; 0: never.
    pub cutoff_interval_ns: u64,
    /// Bytes that must have been observed before cutoffs are computed.
    pub cutoff_min_bytes: u64,
    /// Rate of the uplink. `None`: the rate is unknown, and the pacer is off.
    pub link_mbps: Option<u32>,
    /// Margin by which the pacer assumes the link to be slower than its nominal rate, in thousandths. (Kernel
    /// notes: 10; 50 slowed large messages by up to a factor of two.)
    pub link_margin: u32,
    /// Estimated NIC backlog above which further packets wait. (Kernel: 5 us. Without a bound, the P99
    /// latency of short messages is 5 to 10 times higher.)
    pub max_nic_backlog_ns: u64,
    /// Packets below this size overtake packets that wait for the pacer (kernel: defer_min_bytes 1000; values
    /// from 100 to 2000 made no difference). They may do so until the NIC's backlog is twice
    /// `max_nic_backlog_ns`. If two full packets take longer than `max_nic_backlog_ns`, the limit is
    /// `max_nic_backlog_ns` plus the time of these packets.
    pub defer_min_bytes: u32,
    /// Bytes on the link per packet, in addition to the Homa packet: UDP 8, IPv4 20, Ethernet 14 + 4 + 8 +
    /// 12.
    pub link_overhead: u32,
    /// Silence before the first RESEND (kernel: 5 ticks of 1 ms).
    pub resend_interval_ns: u64,
    /// Maximum interval between RESENDs. The interval doubles with each RESEND.
    pub resend_interval_max_ns: u64,
    /// Number of unanswered RESENDs after which an RPC fails, at most 255. This bounds the cost of a lost
    /// peer.
    pub max_resends: u32,
    /// Average time between two rounds of RESENDs to one peer. This bounds their rate for any number of
    /// waiting RPCs (kernel: one RPC of a peer per 5 ms). For a peer that is slow without losing packets,
    /// this time doubles up to `resend_spacing_max_ns`. NEED_ACKs have the same spacing.
    pub resend_spacing_ns: u64,
    /// Maximum to which `resend_spacing_ns` doubles, unless `resend_spacing_ns` itself is longer. With this
    /// spacing, many RPCs that wait for a slow peer add little to its load, and lost packets of any of them
    /// are still repaired soon.
    pub resend_spacing_max_ns: u64,
    /// How long an RPC stays open without progress, even if its peer is known to be alive. An hour leaves
    /// time for long computations in servers. On the server, an RPC has no time limit while the application
    /// processes the request.
    pub max_stall_ns: u64,
    /// How long a server keeps the unanswered or unacknowledged RPCs of a client that sends no packet at all.
    pub client_silence_ns: u64,
    /// Time from the end of sending a response to the first NEED_ACK for it (kernel: 2 ticks).
    pub need_ack_interval_ns: u64,
    /// Maximum interval between NEED_ACKs. The interval doubles with each NEED_ACK.
    pub need_ack_interval_max_ns: u64,
    /// Number of unanswered NEED_ACKs after which the server frees the RPC, at most 255.
    pub max_need_acks: u32,
    /// Maximum delay of a packet in the network. Finished ids are kept this long.
    pub max_packet_lifetime_ns: u64,
    /// Maximum number of blocks in the table of finished ids, over all peers. A block has 64 adjacent ids and
    /// takes about 40 bytes.
    pub max_finished_blocks: u32,
    /// Policy for when the table of finished ids is full.
    pub finished_policy: FinishedPolicy,
    /// Largest message accepted from the caller or a peer. (The kernel's limit is 1,000,000; longer messages
    /// work only between peers of this implementation.)
    pub max_message: u32,
    /// Maximum number of open RPCs, as client and as server together.
    pub max_rpcs: u32,
    /// Number of further contiguous bytes after which an incoming request is reported again. 0: a request is
    /// reported only when it is complete.
    pub request_readable_step: u32,
    /// Number of RPCs for which memory is reserved at the start, so that no packet waits while a table grows
    /// (moving a million RPCs takes tens of milliseconds).
    pub reserve_rpcs: u32,
    /// Maximum payload bytes of all outgoing messages at a time.
    pub max_outgoing_bytes: u64,
    /// Maximum payload bytes of all incoming messages under reassembly, counted by their full lengths.
    /// Requests may use three quarters of this maximum.
    pub max_incoming_bytes: u64,
    /// Maximum number of known peers.
    pub max_peers: u32,
    /// Maximum number of acknowledgements for one peer that wait for a packet to carry them.
    pub max_acks_per_peer: u32,
    /// Maximum number of gaps in one incoming message. A packet that would cause more gaps is dropped and
    /// must be retransmitted.
    pub max_gaps: u32,
    /// Maximum number of queued retransmissions, over all peers.
    pub max_retransmits: u32,
    /// Maximum number of RPCs that are freed, time out or fail per drive call. This bounds the time that the
    /// next packet waits.
    pub reap_limit: u32,
    /// Maximum number of control packets waiting to be sent. Further control packets are dropped and counted,
    /// as if lost in the network.
    pub max_control_packets: u32,
    /// Largest Homa packet, header included (1424 + 56 over IPv4 and MTU 1500).
    pub max_packet: u32,
}

/// A setting that is invalid, by itself or in combination with another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {rule}")]
pub struct ConfigError {
    /// The field of [`Config`].
    pub field: &'static str,
    /// The rule that the field's value breaks.
    pub rule: &'static str,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            seed: 0,
            id_seed: 0,
            incarnation: 0,
            endpoints: 1,
            endpoint: 0,
            wire_dialect: Dialect::Unknown,
            unsched_bytes: 40_000,
            unsched_from_rtt: true,
            min_unsched_bytes: 500,
            max_unsched_bytes: 100_000,
            rtt_slack_packets: 4,
            rtt_window_ns: 10 * SEC,
            incast_memory_ns: 10 * SEC,
            incast_quiet_ns: 200 * US,
            window: 0,
            window_total: 0,
            max_incoming: 400_000,
            max_overcommit: 8,
            min_grant_increment: 10_000,
            fifo_grant_increment: 50_000,
            grant_fifo_fraction: 50,
            pacer_fifo_fraction: 50,
            num_priorities: 8,
            max_sched_prio: 3,
            unsched_cutoffs: [0, 0, 0, 0, 1_000_000, 15_000, 2_800, 200],
            first_cutoff_version: 1,
            cutoff_interval_ns: 100 * MS,
            cutoff_min_bytes: 1_000_000,
            link_mbps: None,
            link_margin: 10,
            max_nic_backlog_ns: 5 * US,
            defer_min_bytes: 1_000,
            link_overhead: 8 + 20 + 14 + 4 + 8 + 12,
            resend_interval_ns: 5 * MS,
            resend_interval_max_ns: 50 * MS,
            max_resends: 12,
            resend_spacing_ns: 200 * US,
            resend_spacing_max_ns: 6_400 * US,
            max_stall_ns: 3_600 * SEC,
            client_silence_ns: 2 * SEC,
            need_ack_interval_ns: 2 * MS,
            need_ack_interval_max_ns: 100 * MS,
            max_need_acks: 12,
            max_packet_lifetime_ns: 10 * SEC,
            max_finished_blocks: 1 << 20,
            finished_policy: FinishedPolicy::Refuse,
            max_message: 1_000_000,
            max_rpcs: 1 << 21,
            request_readable_step: 0,
            reserve_rpcs: 1 << 12,
            max_outgoing_bytes: 1 << 32,
            max_incoming_bytes: 1 << 30,
            max_peers: 1 << 16,
            max_acks_per_peer: 256,
            max_gaps: 1_024,
            max_retransmits: 4_096,
            reap_limit: 16,
            max_control_packets: 1 << 16,
            max_packet: 1_480,
        }
    }
}

/// Minimum time between rounds of RESENDs to one peer, as a number of full packets that the link carries in
/// that time ([`Config::on_link`]). RESENDs must stay a small part of a peer's work, especially if the peer
/// is slow because it is overloaded.
const PACKETS_PER_RESEND: u64 = 8;

/// Minimum silence of an RPC before RESEND is sent, as a number of full packets that the link carries in that
/// time ([`Config::on_link`]). That many packets may be queued in a switch ahead of the expected one, or the
/// peer may be sending that many packets of shorter messages first. Swept in the simulator from 4 to 64 (8
/// hosts at 10 to 50 Mbit/s, 80 % load, port queues of 1.6 to 16 packets):
///
/// - With 4 (5 ms at 10 Mbit/s), half of the RESENDs request bytes that are not lost. W2's mean slowdown is
///   then 11 instead of 4.5.
/// - With 32 and more, lost bytes arrive later than necessary if port queues hold four packets.
const PACKETS_BEFORE_RESEND: u64 = 24;

/// Minimum time before NEED_ACK is sent, as a number of full packets that the link carries in that time
/// ([`Config::on_link`]). A client's further requests to the server carry the acknowledgement at no cost, and
/// until then the missing acknowledgement costs the server only memory. (Eight hosts, W2 at 20 Mbit/s, 220
/// requests per second to each server: with 24 packets, which are 15 ms, a fifteenth of all packets were
/// NEED_ACKs and their answers.)
const PACKETS_BEFORE_NEED_ACK: u64 = 72;

/// Maximum number of doublings of the interval between RESENDs of one message on a slow link
/// ([`Config::on_link`]), if the result exceeds the general maximum. On saturated links, long messages wait
/// their turn for seconds, and their senders answer each RESEND with BUSY. In the simulator (8 hosts at 50
/// Mbit/s, port queues of four packets, 32 RPCs always open), 15 RESENDs and 14 BUSYs were sent per 100 DATA
/// packets. A maximum of 200 ms instead of 50 ms halved these numbers; at 80 % load the slowdowns of W2 to W5
/// are the same.
const MOST_DOUBLED_INTERVAL: u32 = 5;

/// Maximum number of doublings of the time between rounds of RESENDs to one peer on a slow link
/// ([`Config::on_link`]), if the result exceeds the general maximum. Simulated with 8 hosts, W2 at 20 Mbit/s,
/// port queues of 1.6 packets, 80 % load and 2 seeds:
///
/// | doublings | P99 of the largest 1 %, two seeds |
/// |---|---|
/// | 2 | 30 and 32 |
/// | 5 | 47 and 85 |
///
/// With 5, messages that lost packets queue for RESEND for seconds behind messages that only wait their turn.
/// The results for W3 at 40, W4 at 50 and W2 at 10 Mbit/s are the same with 0 to 5.
const MOST_DOUBLED_SPACING: u32 = 2;

/// Minimum number of RESENDs before a server gives up on a silent client, regardless of the link's rate
/// ([`Config::on_link`]).
const LEAST_ASKED_A_SILENCE: u64 = 8;

/// Minimum number of packets assumed to cover a round trip, on any link ([`Config::on_link`]).
const LEAST_PACKETS_A_TRIP: u32 = 8;

/// Minimum limit on packets granted and not yet received, on any link, if the queue of the host's switch port
/// has room for them ([`Config::through_port`]). They cover two round trips, since the packets of one round
/// trip may be waiting at senders that have other packets to send first.
const LEAST_PACKETS_GRANTED: u32 = 2 * LEAST_PACKETS_A_TRIP;

/// Length of a port's queue, in packets, beyond which a longer queue does not raise the host's grant limit
/// ([`Config::through_port`]).
const MOST_PACKETS_QUEUED: u64 = 128;

/// Minimum silence before RESEND, in multiples of the time that the full queue of the host's switch port
/// takes to drain ([`Config::through_port`]).
const QUEUES_BEFORE_RESEND: u64 = 3;

/// Minimum packets of a grant on any link ([`Config::on_link`]).
const LEAST_PACKETS_A_GRANT: u32 = 2;

fn saturated(bytes: u64) -> u32 {
    bytes.min(u64::from(u32::MAX / 2)) as u32
}

impl Config {
    /// Returns the defaults for a link of `mbps` Mbit/s: see [`on_link`](Config::on_link).
    pub fn for_link(mbps: u32) -> Config {
        Config::default().on_link(mbps)
    }

    /// Scales the settings that assume a 25 Gbit/s link to a link of `mbps` Mbit/s, so that the bytes that
    /// may be in flight take the same time on every link. 0 counts as 1.
    ///
    /// On a slow link, a round trip consists almost entirely of serialization delays: to the switch, from the
    /// switch, behind the preceding packet, and as many again until the grant arrives. A message may
    /// therefore send eight packets without a grant. Sixteen may be granted, because a sender with grants
    /// from several hosts sends to one of them at a time. If the host's switch port is known, also call
    /// [`through_port`](Config::through_port).
    ///
    /// The NIC's backlog may be as long as one packet's serialization delay, so that the NIC does not run dry
    /// while the next packet is on its way to it. A grant covers at least two packets, so that not every
    /// packet causes a GRANT. RESEND is sent no sooner than 24 packets could have arrived. NEED_ACK is sent
    /// no sooner than 72 packets could have arrived, since the next request to the same server carries the
    /// acknowledgement at no cost.
    ///
    /// (Without this scaling, at 100 Mbit/s, 400,000 granted bytes made a switch with 12.5 KB per port drop a
    /// twentieth of all packets. At 20 Mbit/s two of five packets of W2 were NEED_ACKs and their answers.)
    #[must_use]
    pub fn on_link(self, mbps: u32) -> Config {
        let mbps = mbps.max(1);
        let packet = self.packet_payload();
        let scaled = |bytes: u32, least: u32| {
            let bytes = u64::from(bytes) * u64::from(mbps) / TUNED_FOR_MBPS;
            bytes.clamp(u64::from(least), u64::from(u32::MAX / 2)) as u32
        };
        let trip = LEAST_PACKETS_A_TRIP * packet;
        let packet_ns = u64::from(self.max_packet + self.link_overhead) * 8_000 / u64::from(mbps);
        let most_patience_ns = self.client_silence_ns / LEAST_ASKED_A_SILENCE;
        let patience_ns = (PACKETS_BEFORE_RESEND * packet_ns).min(most_patience_ns);
        let ack_patience_ns = (PACKETS_BEFORE_NEED_ACK * packet_ns).min(most_patience_ns);
        let resend_interval_ns = self.resend_interval_ns.max(patience_ns);
        let longest_ns = (patience_ns << MOST_DOUBLED_INTERVAL).min(most_patience_ns).max(resend_interval_ns);
        let resend_spacing_ns = self.resend_spacing_ns.max(PACKETS_PER_RESEND * packet_ns);
        Config {
            link_mbps: Some(mbps),
            unsched_bytes: scaled(self.unsched_bytes, trip / 2),
            max_unsched_bytes: scaled(self.max_unsched_bytes, trip),
            max_incoming: scaled(self.max_incoming, LEAST_PACKETS_GRANTED * packet),
            min_grant_increment: scaled(self.min_grant_increment, LEAST_PACKETS_A_GRANT * packet),
            fifo_grant_increment: scaled(self.fifo_grant_increment, packet),
            max_nic_backlog_ns: self.max_nic_backlog_ns.max(packet_ns),
            resend_spacing_ns,
            resend_spacing_max_ns: self
                .resend_spacing_max_ns
                .max(resend_spacing_ns.saturating_mul(1 << MOST_DOUBLED_SPACING)),
            resend_interval_ns,
            resend_interval_max_ns: self.resend_interval_max_ns.max(longest_ns),
            need_ack_interval_ns: self.need_ack_interval_ns.max(ack_patience_ns),
            need_ack_interval_max_ns: self.need_ack_interval_max_ns.max(ack_patience_ns),
            ..self
        }
    }

    /// Adapts the settings to a host whose switch port queues at most `bytes`, including all link overhead,
    /// and drops the rest. Call it after [`on_link`](Config::on_link).
    ///
    /// The grant limit is the allowance for the hosts' delays from [`on_link`](Config::on_link), plus sixteen
    /// packets, plus a quarter of the port's queue. It is at most three and a half times the queue: about a
    /// third of the granted bytes may be in the queue at the same time, while the rest are at the senders or
    /// on the links. It is also at most the queue plus sixteen packets, and at least the eight packets of a
    /// round trip. The windows share three quarters of the limit, because a sender with grants from several
    /// hosts sends to one of them at a time. If the windows took all of the limit, the hosts that wait for
    /// this sender could not grant to any other sender meanwhile.
    ///
    /// RESEND is sent no sooner than the queue could drain three times: packets waiting in the queue are not
    /// lost. (Measured with a rack of 4 hosts at 40 Mbit/s, 10 ms of queue, W4, 32 RPCs always open. Links
    /// that are 94 % busy carry 84.1 and 84.6 % of their own maximum with 7 ms, 87.1 and 88.0 % with 15 ms,
    /// 89.5 and 89.6 % with 30 ms.)
    ///
    /// (Swept in the simulator: 4 and 8 hosts, W2 to W5, 40 Mbit/s to 25 Gbit/s, queues of 1.6 to 813
    /// packets. The load was 80 %, or 32 RPCs always open. With a limit of 16 packets, all shared by the
    /// windows, 1 Gbit/s links with queues of 81 packets are idle for 40 % of the time in which they could be
    /// busy. With 36 packets, of which the windows share 27, they are idle for 6 % of it. With a limit of 24
    /// packets and queues of eight, 1.2 % of packets are dropped at 80 % load if the windows share the whole
    /// limit, and 0.2 % if they share two thirds.)
    #[must_use]
    pub fn through_port(self, bytes: u64) -> Config {
        let packet = u64::from(self.packet_payload());
        let on_link = u64::from(self.max_packet) + u64::from(self.link_overhead);
        let queued = u64::try_from(u128::from(bytes) * u128::from(packet) / u128::from(on_link.max(1)))
            .unwrap_or(u64::MAX);
        let trips = u64::from(LEAST_PACKETS_GRANTED) * packet;
        let delays = u64::from(self.max_incoming).saturating_sub(trips);
        let granted = (trips + queued.min(MOST_PACKETS_QUEUED * packet) / 4 + delays)
            .min(queued.saturating_add(trips))
            .min(queued.saturating_mul(7) / 2)
            .max(u64::from(LEAST_PACKETS_A_TRIP) * packet);
        let granted = granted - granted % packet;
        let drain_ns = self.link_mbps.map_or(0, |mbps| bytes.saturating_mul(8_000) / u64::from(mbps.max(1)));
        let patience_ns =
            drain_ns.saturating_mul(QUEUES_BEFORE_RESEND).min(self.client_silence_ns / LEAST_ASKED_A_SILENCE);
        Config {
            window_total: saturated(granted * 3 / 4),
            max_incoming: saturated(granted),
            resend_interval_ns: self.resend_interval_ns.max(patience_ns),
            resend_interval_max_ns: self.resend_interval_max_ns.max(patience_ns),
            ..self
        }
    }

    /// Returns the bytes that the windows of the active messages share.
    pub fn windows(&self) -> u32 {
        if self.window_total != 0 { self.window_total } else { self.max_incoming }
    }

    /// Returns the payload bytes of a full packet.
    fn packet_payload(&self) -> u32 {
        self.max_packet.saturating_sub(DATA_HEADER_LEN as u32).max(1)
    }

    /// Checks each setting and the relations between settings.
    ///
    /// # Errors
    /// The first field that breaks a rule, and the rule.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_intervals()?;
        let rules: [(bool, &'static str, &'static str); 21] = [
            ((1..=MAX_ENDPOINTS).contains(&self.endpoints), "endpoints", "must be 1 to 64"),
            (self.endpoint < self.endpoints, "endpoint", "must be below endpoints"),
            (self.unsched_bytes >= 1, "unsched_bytes", "must be at least 1"),
            (
                (1..=self.max_unsched_bytes).contains(&self.min_unsched_bytes),
                "min_unsched_bytes",
                "must be at least 1 and not above max_unsched_bytes",
            ),
            (self.max_incoming >= 1, "max_incoming", "must be at least 1"),
            (self.max_overcommit >= 1, "max_overcommit", "must be at least 1"),
            ((1..=PRIORITIES as u8).contains(&self.num_priorities), "num_priorities", "must be 1 to 8"),
            (self.max_sched_prio < self.num_priorities, "max_sched_prio", "must be below num_priorities"),
            (self.grant_fifo_fraction < 500, "grant_fifo_fraction", "must be below 500 thousandths"),
            (self.pacer_fifo_fraction < 500, "pacer_fifo_fraction", "must be below 500 thousandths"),
            (self.link_mbps != Some(0), "link_mbps", "must be positive, or unknown"),
            (self.link_margin < 1000, "link_margin", "must be below 1000 thousandths"),
            (
                self.resend_interval_ns >= 1 && self.resend_interval_max_ns >= self.resend_interval_ns,
                "resend_interval_ns",
                "must be positive and not above resend_interval_max_ns",
            ),
            (self.max_stall_ns >= 1, "max_stall_ns", "must be positive"),
            (
                self.max_resends <= MAX_TRIES,
                "max_resends",
                "must be at most 255, or it would never be reached",
            ),
            (
                self.max_need_acks <= MAX_TRIES,
                "max_need_acks",
                "must be at most 255, or it would never be reached",
            ),
            (
                self.max_message >= 1 && self.max_message <= i32::MAX as u32,
                "max_message",
                "must be 1 to 2^31 - 1",
            ),
            (
                self.max_packet as usize > DATA_HEADER_LEN && self.max_packet <= 65_535,
                "max_packet",
                "must be 57 to 65535",
            ),
            (self.max_acks_per_peer >= 1, "max_acks_per_peer", "must be at least 1"),
            (self.max_gaps >= 1, "max_gaps", "must be at least 1: a message's first packet may leave one"),
            (
                self.reap_limit >= 1 && self.max_rpcs >= 1 && self.max_peers >= 1,
                "max_rpcs",
                "limits must be at least 1",
            ),
        ];
        match rules.iter().find(|(holds, _, _)| !holds) {
            Some(&(_, field, rule)) => Err(ConfigError { field, rule }),
            None => Ok(()),
        }
    }

    /// Checks every interval except `max_nic_backlog_ns`, which is never multiplied, and whose largest values
    /// mean no limit.
    fn validate_intervals(&self) -> Result<(), ConfigError> {
        let intervals = [
            ("rtt_window_ns", self.rtt_window_ns),
            ("incast_memory_ns", self.incast_memory_ns),
            ("incast_quiet_ns", self.incast_quiet_ns),
            ("cutoff_interval_ns", self.cutoff_interval_ns),
            ("resend_interval_ns", self.resend_interval_ns),
            ("resend_interval_max_ns", self.resend_interval_max_ns),
            ("resend_spacing_ns", self.resend_spacing_ns),
            ("resend_spacing_max_ns", self.resend_spacing_max_ns),
            ("max_stall_ns", self.max_stall_ns),
            ("client_silence_ns", self.client_silence_ns),
            ("need_ack_interval_ns", self.need_ack_interval_ns),
            ("need_ack_interval_max_ns", self.need_ack_interval_max_ns),
            ("max_packet_lifetime_ns", self.max_packet_lifetime_ns),
        ];
        match intervals.iter().find(|(_, ns)| *ns > LONGEST_INTERVAL_NS) {
            Some(&(field, _)) => Err(ConfigError { field, rule: "must be at most a year (31536000 s)" }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_on_their_way_scale_with_the_link_down_to_some_packets() {
        let of = |mbps| {
            let config = Config::for_link(mbps);
            config.validate().unwrap();
            (config.unsched_bytes, config.max_incoming, config.max_nic_backlog_ns)
        };
        let base = Config::default();
        let packets = |count| count * base.packet_payload();
        assert_eq!(of(25_000), (base.unsched_bytes, base.max_incoming, base.max_nic_backlog_ns));
        assert_eq!(of(100_000), (4 * base.unsched_bytes, 4 * base.max_incoming, base.max_nic_backlog_ns));
        let packet_ns = u64::from(base.max_packet + base.link_overhead) * 80;
        assert_eq!(of(100), (packets(4), packets(16), packet_ns));
        assert_eq!(Config::for_link(100).min_grant_increment, packets(2));
        let spacing = |mbps| Config::for_link(mbps).resend_spacing_ns;
        assert_eq!([25_000, 100].map(spacing), [base.resend_spacing_ns, PACKETS_PER_RESEND * packet_ns]);
        let longest_spacing = |mbps| Config::for_link(mbps).resend_spacing_max_ns;
        assert_eq!([25_000, 100, 10].map(longest_spacing), [6_400 * US, 6_400 * US, 320 * packet_ns]);
        let interval = |mbps| {
            let config = Config::for_link(mbps);
            (config.resend_interval_ns, config.resend_interval_max_ns)
        };
        let need_ack = |mbps| {
            let config = Config::for_link(mbps);
            (config.need_ack_interval_ns, config.need_ack_interval_max_ns)
        };
        assert_eq!(need_ack(25_000), (base.need_ack_interval_ns, base.need_ack_interval_max_ns));
        assert_eq!(need_ack(100), (72 * packet_ns, base.need_ack_interval_max_ns));
        let longest = base.client_silence_ns / LEAST_ASKED_A_SILENCE;
        assert_eq!(interval(1_000), (base.resend_interval_ns, base.resend_interval_max_ns));
        assert_eq!(interval(100), (base.resend_interval_ns, 24 * 32 * packet_ns));
        assert_eq!(interval(10), (240 * packet_ns, longest));
        assert!(2_400 * packet_ns > longest);
        assert_eq!([interval(1), need_ack(1)], [(longest, longest); 2]);
        assert_eq!(of(0), of(1));
        assert_eq!(Config { max_resends: 7, ..base }.on_link(100).max_resends, 7);
    }

    #[test]
    fn what_is_granted_goes_by_the_port_and_is_a_round_trip_at_least() {
        let base = Config::for_link(100);
        let on_link = u64::from(base.max_packet + base.link_overhead);
        let through = |config: &Config, bytes: u64| {
            let config = config.clone().through_port(bytes);
            config.validate().unwrap();
            let packet = config.packet_payload();
            assert_eq!(config.max_incoming % packet, 0, "whole packets");
            assert_eq!(config.window_total, (u64::from(config.max_incoming) * 3 / 4) as u32);
            config.max_incoming / packet
        };
        let of = [0, 1, 2, 4, 6, 8, 20, 100, 1_000].map(|packets| through(&base, packets * on_link));
        assert_eq!(of, [8, 8, 8, 14, 17, 18, 21, 41, 48]);
        assert_eq!(through(&base, u64::MAX), 48);
        let interval = |mbps, bytes| {
            let config = Config::for_link(mbps).through_port(bytes);
            (config.resend_interval_ns, config.resend_interval_max_ns)
        };
        let without = Config::for_link(40);
        assert_eq!(interval(40, 5_000), (without.resend_interval_ns, without.resend_interval_max_ns));
        assert_eq!(interval(40, 50_000), (30 * MS, without.resend_interval_max_ns), "10 ms, three times");
        assert_eq!(interval(40, u64::MAX), (250 * MS, 250 * MS));
        let fast = Config::for_link(25_000);
        let of = [40, 325, 10_000].map(|packets| through(&fast, packets * on_link));
        assert_eq!(of, [56, 312, 312], "no more than the queue and two trips");
    }

    /// The spacing of RESENDs is multiplied by the size of the burst after a pause. The product wrapped for
    /// settings near 2^60.
    #[test]
    fn intervals_longer_than_a_year_are_refused_by_name() {
        const YEAR_NS: u64 = 365 * 86_400 * SEC;
        type Set = fn(&mut Config, u64);
        let settings: [(&str, Set); 13] = [
            ("rtt_window_ns", |config, ns| config.rtt_window_ns = ns),
            ("incast_memory_ns", |config, ns| config.incast_memory_ns = ns),
            ("incast_quiet_ns", |config, ns| config.incast_quiet_ns = ns),
            ("cutoff_interval_ns", |config, ns| config.cutoff_interval_ns = ns),
            ("resend_interval_ns", |config, ns| config.resend_interval_ns = ns),
            ("resend_interval_max_ns", |config, ns| config.resend_interval_max_ns = ns),
            ("resend_spacing_ns", |config, ns| config.resend_spacing_ns = ns),
            ("resend_spacing_max_ns", |config, ns| config.resend_spacing_max_ns = ns),
            ("max_stall_ns", |config, ns| config.max_stall_ns = ns),
            ("client_silence_ns", |config, ns| config.client_silence_ns = ns),
            ("need_ack_interval_ns", |config, ns| config.need_ack_interval_ns = ns),
            ("need_ack_interval_max_ns", |config, ns| config.need_ack_interval_max_ns = ns),
            ("max_packet_lifetime_ns", |config, ns| config.max_packet_lifetime_ns = ns),
        ];
        for (field, set) in settings {
            for ns in [YEAR_NS + 1, 1 << 60, u64::MAX] {
                let mut config = Config::default();
                set(&mut config, ns);
                assert_eq!(config.validate().map_err(|error| error.field), Err(field), "{ns}");
            }
        }
        let longest = Config {
            resend_interval_ns: YEAR_NS,
            resend_interval_max_ns: YEAR_NS,
            resend_spacing_ns: YEAR_NS,
            client_silence_ns: YEAR_NS,
            ..Config::default()
        };
        assert_eq!(longest.validate(), Ok(()));
        let slow = Config { resend_spacing_ns: 1 << 63, ..Config::default() }.on_link(1);
        assert_eq!(slow.resend_spacing_max_ns, u64::MAX);
    }

    /// RPCs count tries in one byte. A limit above 255 was never reached, so RESENDs to a lost peer never
    /// ended.
    #[test]
    fn a_number_of_tries_that_cannot_be_counted_is_refused() {
        let field = |config: Config| config.validate().map_err(|error| error.field);
        assert_eq!(field(Config { max_resends: 256, ..Config::default() }), Err("max_resends"));
        assert_eq!(field(Config { max_need_acks: 256, ..Config::default() }), Err("max_need_acks"));
        assert_eq!(field(Config { max_resends: 255, max_need_acks: 255, ..Config::default() }), Ok(()));
    }
}
