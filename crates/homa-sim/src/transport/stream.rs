//! Packet streams over connections: the code shared by TCP and DCTCP.
//!
//! By default each message has its own connection, which begins with the initial window and ends with the
//! message, as in published simulations. Alternatively, each pair of hosts has lasting connections
//! ([`Connections`]). A message is then queued on the connection with the fewest queued packets, behind all
//! earlier messages, as in an RPC system over TCP. Data that arrives out of order waits for the missing
//! packets. No packet carries data of two messages. The connections of a host take turns at its network card.
//!
//! Every packet is acknowledged immediately. The acknowledgement contains the end of the contiguous data, the
//! contiguous range around the packet, and the packet's send time. A packet counts as lost when three later
//! packets have been acknowledged (RFC 6675). A retransmitted packet counts as lost only by timeout (RFC
//! 6298). There are no tail loss probes, no time-based loss detection, and no handshakes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use homa_egress::Buffer;
use homa_proto::{MS, Time};

use super::interface::{Ctx, Transport};
use super::parts::{ACK_BYTES, Alarms, packets, payload};
use crate::cluster::config::ClusterConfig;
use crate::cluster::ideal::Framing;
use crate::fabric::SwitchConfig;
use crate::link::Discipline;
use crate::packet::{Body, Packet, PacketInfo};
use crate::payload::mix;
use crate::topology::Spread;

/// The assignment of messages to connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Connections {
    /// One connection per message. It exists as soon as the message does, without a handshake, and begins
    /// with the initial window.
    #[default]
    PerMessage,
    /// A fixed number of connections (at least 1) from each host to each other host, which exist from the
    /// start.
    PerPair(u32),
}

/// Settings of TCP and of DCTCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// The assignment of messages to connections.
    pub connections: Connections,
    /// Initial window in packets, at least 1.
    pub initial_window: u32,
    /// Maximum window in packets: the receiver's buffer.
    pub max_window: u32,
    /// Minimum retransmission timeout.
    pub min_timeout_ns: u64,
    /// Whether a connection that was idle for a timeout restarts with the initial window (RFC 5681).
    pub restarts_when_idle: bool,
    /// Size of each port's queue in bytes, including overhead; `None`: the cluster's setting.
    pub port_bytes: Option<u64>,
    /// Length in bytes of the queue of a host's downlink at and above which packets are marked.
    pub mark_bytes: Option<u64>,
}

/// Link rate to which published thresholds refer.
const TEN_GBPS: u64 = 10_000_000_000;
/// Queue of a 10 Gbit/s port in full packets, from the pFabric paper's settings for TCP and DCTCP.
const PORT_PACKETS: u64 = 150;
/// Marking threshold of a 10 Gbit/s port in full packets, from the DCTCP paper.
const MARK_PACKETS: u64 = 65;

impl TcpConfig {
    /// Returns settings for TCP with CUBIC and one connection per message, as in published simulations.
    /// Except for the minimum timeout, the settings are Linux's. Linux's 200 ms would dominate message times
    /// in a datacentre, and experiments since the DCTCP paper use 10 ms.
    ///
    /// With one lasting connection per pair, short messages would wait behind long ones of the same pair even
    /// without congestion.
    ///
    /// The window is at most about 6 MB, Linux's largest receive buffer. If the ports of a cluster have
    /// separate buffers, they hold at most 150 packets at 10 Gbit/s, and a proportional number at other
    /// rates. TCP fills any buffer, so an unlimited buffer would add seconds of queueing delay.
    pub fn for_cluster(cluster: &ClusterConfig) -> TcpConfig {
        let own_buffers = cluster.switch.buffer.is_none();
        let port_bytes = cluster.link.queue_bytes.min(scaled_packets(cluster, PORT_PACKETS));
        TcpConfig {
            connections: Connections::default(),
            initial_window: 10,
            max_window: 4_096,
            min_timeout_ns: 10 * MS,
            restarts_when_idle: true,
            port_bytes: own_buffers.then_some(port_bytes),
            mark_bytes: None,
        }
    }

    /// Returns settings for DCTCP: those of [`TcpConfig::for_cluster`] with the cluster's marking threshold.
    /// If the cluster has none, the threshold is 65 full packets at 10 Gbit/s, and proportional at other
    /// rates.
    pub fn dctcp(cluster: &ClusterConfig) -> TcpConfig {
        let default = scaled_packets(cluster, MARK_PACKETS);
        let mark_bytes = Some(cluster.switch.mark_bytes.unwrap_or(default));
        TcpConfig { mark_bytes, ..TcpConfig::for_cluster(cluster) }
    }
}

/// Returns the bytes of `packets` full packets at 10 Gbit/s, scaled to the rate of the hosts' links.
fn scaled_packets(cluster: &ClusterConfig, packets: u64) -> u64 {
    let packet = cluster.framing.payload + cluster.framing.header + cluster.link.overhead_bytes;
    let bytes = u128::from(packets * u64::from(packet)) * u128::from(cluster.link.rate_bps);
    (bytes / u128::from(TEN_GBPS)) as u64
}

/// The contents of an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// Current time.
    pub now: Time,
    /// Number of newly acknowledged packets.
    pub packets: u32,
    /// Whether the acknowledged packet was marked.
    pub is_marked: bool,
    /// Whether the window limited the sender and there was no recent loss. Otherwise the window must not
    /// grow.
    pub may_grow: bool,
    /// The first packet of the stream that is not acknowledged.
    pub first: u64,
    /// The first packet of the stream that has not been sent.
    pub next: u64,
    /// Smoothed round-trip time in nanoseconds.
    pub round_ns: u64,
}

/// Congestion control: the window of a connection.
pub trait Congestion: Sized {
    /// Name of the transport.
    const NAME: &'static str;

    /// Makes a window of `window` packets that doubles every round trip.
    fn new(window: f64) -> Self;

    /// Returns the window in packets.
    fn window(&self) -> f64;

    /// Returns whether the connection is in slow start.
    fn is_doubling(&self) -> bool;

    /// Handles an acknowledgement.
    fn acknowledged(&mut self, acked: &Acked);

    /// Handles the first loss in a window.
    fn lost(&mut self, now: Time);

    /// Handles a timeout.
    fn on_timeout(&mut self, now: Time);

    /// Limits the window to `window` packets after an idle timeout.
    fn on_idle_timeout(&mut self, window: f64);
}

/// The contents of a packet of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamBody {
    is_ack: bool,
    /// Index of the sender's connection to the receiver.
    connection: u32,
    /// The message that owns the connection, and the message's start; `None` for a lasting connection.
    owner: Option<(u32, Time)>,
    /// Index of the packet; in an acknowledgement, the exclusive end of the contiguous data.
    sequence: u64,
    /// Contiguous range around the acknowledged packet.
    block: (u64, u64),
    /// The message that ends with this packet.
    ends: Option<u32>,
    sent_at: Time,
    is_marked: bool,
}

impl Body for StreamBody {
    fn copy_from(&mut self, other: &Self) {
        *self = *other;
    }
}

/// State of a packet at or after the first unacknowledged one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Sent,
    SentAgain,
    Arrived,
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct QueuedMessage {
    message: u32,
    length: u32,
    first: u64,
}

#[derive(Debug)]
struct Sender<C> {
    to: u32,
    connection: u32,
    congestion: C,
    queue: VecDeque<QueuedMessage>,
    /// The first unacknowledged packet, the next packet to be sent for the first time, and the end of the
    /// queued data.
    first: u64,
    next: u64,
    end: u64,
    /// States of the packets from `first` to `next`.
    states: VecDeque<State>,
    lost: BTreeSet<u64>,
    under_way: u32,
    /// Packets before this one have been checked for losses.
    judged: u64,
    /// A loss before this packet belongs to the most recently detected loss event.
    recovers_until: u64,
    is_recovering: bool,
    round_ns: u64,
    deviation_ns: u64,
    backoff: u32,
    last_sent: Time,
    alarm: Time,
    is_ready: bool,
    /// The message that owns the connection, and the message's start; `None` for a lasting connection.
    owner: Option<(u32, Time)>,
    /// Whether the message arrived while the connection was still queued for its turn.
    is_closed: bool,
}

/// A packet counts as lost when this many later packets have been acknowledged.
const DUPLICATES: u64 = 3;
/// Maximum number of times the timeout doubles.
const MAX_BACKOFF: u32 = 6;

impl<C: Congestion> Sender<C> {
    fn new(config: &TcpConfig, to: u32, connection: u32) -> Sender<C> {
        Sender {
            to,
            connection,
            congestion: C::new(f64::from(config.initial_window.max(1))),
            queue: VecDeque::new(),
            first: 0,
            next: 0,
            end: 0,
            states: VecDeque::new(),
            lost: BTreeSet::new(),
            under_way: 0,
            judged: 0,
            recovers_until: 0,
            is_recovering: false,
            round_ns: 0,
            deviation_ns: 0,
            backoff: 0,
            last_sent: Time::ZERO,
            alarm: Time::NEVER,
            is_ready: false,
            owner: None,
            is_closed: false,
        }
    }

    fn timeout_ns(&self, config: &TcpConfig) -> u64 {
        (self.round_ns + 4 * self.deviation_ns).max(config.min_timeout_ns) << self.backoff
    }

    fn window(&self, config: &TcpConfig) -> f64 {
        self.congestion.window().min(f64::from(config.max_window)).max(1.0)
    }

    fn can_send(&self, config: &TcpConfig) -> bool {
        let has_something = !self.lost.is_empty() || self.next < self.end;
        has_something && f64::from(self.under_way) + 1.0 <= self.window(config)
    }

    /// Returns the next packet to send, and whether it is a retransmission.
    fn take(&mut self) -> (u64, bool) {
        self.under_way += 1;
        if let Some(lost) = self.lost.pop_first() {
            self.states[(lost - self.first) as usize] = State::SentAgain;
            return (lost, true);
        }
        self.states.push_back(State::Sent);
        self.next += 1;
        (self.next - 1, false)
    }

    /// Returns the message of a packet, and the packet's index in it.
    fn locate(&self, sequence: u64) -> (QueuedMessage, u32) {
        let after = self.queue.partition_point(|queued| queued.first <= sequence);
        let queued = self.queue[after - 1];
        (queued, (sequence - queued.first) as u32)
    }

    /// Records that a packet has arrived. Returns whether it is new.
    fn record_arrival(&mut self, sequence: u64) -> bool {
        let state = &mut self.states[(sequence - self.first) as usize];
        match std::mem::replace(state, State::Arrived) {
            State::Arrived => return false,
            State::Lost => {
                self.lost.remove(&sequence);
            }
            State::Sent | State::SentAgain => self.under_way -= 1,
        }
        true
    }

    /// Records an acknowledgement. Returns the number of newly acknowledged packets.
    fn acknowledged(&mut self, body: &StreamBody) -> u32 {
        let whole = body.sequence.clamp(self.first, self.next);
        let (from, to) = (body.block.0.clamp(whole, self.next), body.block.1.clamp(whole, self.next));
        let mut packets = 0;
        for sequence in (self.first..whole).chain(from..to) {
            packets += u32::from(self.record_arrival(sequence));
        }
        self.states.drain(..(whole - self.first) as usize);
        self.first = whole;
        while self.queue.get(1).is_some_and(|second| second.first <= whole) || self.is_sent_whole() {
            self.queue.pop_front();
        }
        self.mark_lost(to.max(whole));
        packets
    }

    /// Returns whether all queued data is acknowledged.
    fn is_sent_whole(&self) -> bool {
        !self.queue.is_empty() && self.first == self.end
    }

    /// Marks packets as lost if enough later packets are acknowledged, the last of them before `passed`.
    fn mark_lost(&mut self, passed: u64) {
        let from = self.judged.max(self.first);
        for sequence in from..passed.saturating_sub(DUPLICATES) {
            let state = &mut self.states[(sequence - self.first) as usize];
            if *state == State::Sent {
                *state = State::Lost;
                self.lost.insert(sequence);
                self.under_way -= 1;
            }
            self.judged = sequence + 1;
        }
    }

    fn on_timeout(&mut self, now: Time) {
        for (index, state) in self.states.iter_mut().enumerate() {
            if *state != State::Arrived {
                *state = State::Lost;
                self.lost.insert(self.first + index as u64);
            }
        }
        self.under_way = 0;
        self.backoff = (self.backoff + 1).min(MAX_BACKOFF);
        self.recovers_until = self.next;
        self.is_recovering = false;
        self.congestion.on_timeout(now);
    }

    fn measure(&mut self, round_ns: u64) {
        if self.round_ns == 0 {
            (self.round_ns, self.deviation_ns) = (round_ns, round_ns / 2);
        } else {
            self.deviation_ns = (3 * self.deviation_ns + self.round_ns.abs_diff(round_ns)) / 4;
            self.round_ns = (7 * self.round_ns + round_ns) / 8;
        }
    }
}

/// The receiving end of a connection.
#[derive(Debug, Default)]
struct Receiver {
    /// Exclusive end of the contiguous data.
    whole: u64,
    /// Contiguous ranges beyond `whole`: their first packets and their exclusive ends.
    beyond: BTreeMap<u64, u64>,
    /// Messages, indexed by the packet that ends them.
    ends: BTreeMap<u64, u32>,
}

impl Receiver {
    /// Records a packet. Returns the range around the packet if that range is beyond the contiguous data.
    fn take(&mut self, sequence: u64) -> (u64, u64) {
        if sequence < self.whole {
            return (0, 0);
        }
        let (mut from, mut to) = (sequence, sequence + 1);
        let before = self.beyond.range(..=sequence).next_back();
        if let Some((&start, &end)) = before.filter(|before| *before.1 >= sequence) {
            (from, to) = (start, end.max(to));
        }
        if let Some(end) = self.beyond.remove(&to) {
            to = end;
        }
        self.beyond.insert(from, to);
        if from == self.whole {
            self.beyond.remove(&from);
            self.whole = to;
            return (0, 0);
        }
        (from, to)
    }
}

/// A host's end of a stream transport.
#[derive(Debug)]
pub struct Stream<C> {
    config: TcpConfig,
    framing: Framing,
    /// Slots, by peer host and connection.
    senders: BTreeMap<(u32, u32), u32>,
    receivers: BTreeMap<(u32, u32), Receiver>,
    connections: Vec<Sender<C>>,
    /// Slots of closed connections.
    free: Vec<u32>,
    /// Number of connections opened so far.
    opened: u32,
    ready: VecDeque<u32>,
    alarms: Alarms,
    acks: VecDeque<(u32, StreamBody)>,
    timeouts: u64,
    resent: u64,
    recoveries: u64,
}

impl<C: Congestion> Stream<C> {
    /// Returns the connection for a message to a host.
    fn choose(&mut self, to: u32, message: u32, started: Time) -> u32 {
        match self.config.connections {
            Connections::PerMessage => {
                let slot = self.open(to, self.opened);
                self.connections[slot as usize].owner = Some((message, started));
                slot
            }
            Connections::PerPair(count) => self.choose_lasting(to, count.max(1)),
        }
    }

    /// Returns the connection to a host with the fewest packets to send.
    fn choose_lasting(&mut self, to: u32, count: u32) -> u32 {
        let waits = |slot: u32| {
            let sender = &self.connections[slot as usize];
            sender.end - sender.first
        };
        let all = (0..count).map(|connection| {
            let slot = self.senders.get(&(to, connection)).copied();
            (slot.map_or(0, waits), connection, slot)
        });
        let Some((_, connection, slot)) = all.min_by_key(|&(waits, connection, _)| (waits, connection))
        else {
            unreachable!("there is at least one connection")
        };
        slot.unwrap_or_else(|| self.open(to, connection))
    }

    fn open(&mut self, to: u32, connection: u32) -> u32 {
        self.opened = self.opened.wrapping_add(1);
        let sender = Sender::new(&self.config, to, connection);
        let slot = match self.free.pop() {
            Some(slot) => {
                self.connections[slot as usize] = sender;
                slot
            }
            None => {
                self.connections.push(sender);
                self.connections.len() as u32 - 1
            }
        };
        self.senders.insert((to, connection), slot);
        slot
    }

    /// Closes the connection of a message that is completely acknowledged.
    fn close(&mut self, slot: u32) {
        let sender = &mut self.connections[slot as usize];
        self.senders.remove(&(sender.to, sender.connection));
        self.alarms.set(slot, &mut sender.alarm, Time::NEVER);
        sender.is_closed = true;
        // If the connection is still queued for its turn, its slot becomes free at that turn.
        if !sender.is_ready {
            self.free.push(slot);
        }
    }

    /// Queues a connection for its turn if it can send.
    fn place(&mut self, slot: u32) {
        let sender = &mut self.connections[slot as usize];
        if !sender.is_ready && sender.can_send(&self.config) {
            sender.is_ready = true;
            self.ready.push_back(slot);
        }
    }

    /// Removes and returns the connection whose turn it is.
    fn next_in_turn(&mut self) -> Option<u32> {
        loop {
            let slot = self.ready.pop_front()?;
            let sender = &mut self.connections[slot as usize];
            sender.is_ready = false;
            if sender.is_closed {
                self.free.push(slot);
                continue;
            }
            // A loss may have closed the connection's window in the meantime.
            if sender.can_send(&self.config) {
                return Some(slot);
            }
        }
    }

    fn take_ack(&mut self, now: Time, from: u32, body: &StreamBody) {
        let Some(&slot) = self.senders.get(&(from, body.connection)) else { return };
        let sender = &mut self.connections[slot as usize];
        sender.measure(now.since(body.sent_at));
        let (before, first) = (sender.under_way, sender.first);
        let losses = sender.lost.len();
        let packets = sender.acknowledged(body);
        let is_limited = match sender.congestion.is_doubling() {
            true => 2.0 * f64::from(before) >= sender.congestion.window(),
            false => f64::from(before) + 1.0 > sender.congestion.window(),
        };
        if sender.first >= sender.recovers_until {
            sender.is_recovering = false;
        }
        if sender.lost.len() > losses && sender.first >= sender.recovers_until {
            sender.congestion.lost(now);
            (sender.recovers_until, sender.is_recovering) = (sender.next, true);
            self.recoveries += 1;
        }
        sender.congestion.acknowledged(&Acked {
            now,
            packets,
            is_marked: body.is_marked,
            may_grow: is_limited && !sender.is_recovering,
            first: sender.first,
            next: sender.next,
            round_ns: sender.round_ns,
        });
        if sender.first > first {
            sender.backoff = 0;
            let waits = sender.first < sender.next;
            let at = if waits { now + sender.timeout_ns(&self.config) } else { Time::NEVER };
            self.alarms.set(slot, &mut sender.alarm, at);
        }
        if sender.owner.is_some() && sender.first == sender.end {
            return self.close(slot);
        }
        self.place(slot);
    }

    fn take_data(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<StreamBody>) {
        let body = packet.body;
        if body.owner.is_some_and(|(message, started)| ctx.under_way(message, started).is_none()) {
            // The message has arrived and the receiving end is gone, so everything is acknowledged.
            let answer = StreamBody { is_ack: true, sequence: u64::MAX, block: (0, 0), ends: None, ..body };
            self.acks.push_back((packet.info.from, answer));
            return;
        }
        let receiver = self.receivers.entry((packet.info.from, body.connection)).or_default();
        let is_new = body.sequence >= receiver.whole;
        let block = receiver.take(body.sequence);
        if let Some(message) = body.ends.filter(|_| is_new) {
            receiver.ends.insert(body.sequence, message);
        }
        let mut has_delivered = false;
        while let Some(entry) = receiver.ends.first_entry().filter(|entry| *entry.key() < receiver.whole) {
            ctx.deliver(entry.remove());
            has_delivered = true;
        }
        let answer = StreamBody {
            is_ack: true,
            sequence: receiver.whole,
            block,
            is_marked: packet.info.marked,
            ends: None,
            ..body
        };
        if body.owner.is_some() && has_delivered {
            self.receivers.remove(&(packet.info.from, body.connection));
        }
        self.acks.push_back((packet.info.from, answer));
    }
}

/// Returns a flow label that is the same for all packets of a connection in one direction.
fn flow(from: u32, to: u32, connection: u32) -> u32 {
    mix(mix(u64::from(from) << 32 | u64::from(to)) ^ u64::from(connection)) as u32
}

impl<C: Congestion> Transport for Stream<C> {
    const NAME: &'static str = C::NAME;
    type Body = StreamBody;
    type Config = TcpConfig;

    /// Returns switches with one queue per port, and with one path per connection, since reordered packets
    /// would count as lost.
    fn switch(config: &TcpConfig, cluster: &ClusterConfig) -> SwitchConfig {
        SwitchConfig {
            discipline: Discipline::Fifo,
            buffer: config.port_bytes.map(|bytes| Buffer::PerPort { bytes }).or(cluster.switch.buffer),
            mark_bytes: config.mark_bytes,
            ..cluster.switch
        }
    }

    fn spread() -> Option<Spread> {
        Some(Spread::Flows)
    }

    fn new(config: &TcpConfig, _host: u32, cluster: &ClusterConfig) -> Stream<C> {
        Stream {
            config: *config,
            framing: cluster.framing,
            senders: BTreeMap::new(),
            receivers: BTreeMap::new(),
            connections: Vec::new(),
            free: Vec::new(),
            opened: 0,
            ready: VecDeque::new(),
            alarms: Alarms::default(),
            acks: VecDeque::new(),
            timeouts: 0,
            resent: 0,
            recoveries: 0,
        }
    }

    fn send(&mut self, ctx: &mut Ctx<'_>, message: u32) {
        let info = ctx.message(message);
        let slot = self.choose(info.to, message, info.started);
        let sender = &mut self.connections[slot as usize];
        let idle_ns = ctx.now.since(sender.last_sent);
        let is_idle = sender.first == sender.end && idle_ns > sender.timeout_ns(&self.config);
        if is_idle && self.config.restarts_when_idle {
            sender.congestion.on_idle_timeout(f64::from(self.config.initial_window.max(1)));
        }
        sender.queue.push_back(QueuedMessage { message, length: info.length, first: sender.end });
        sender.end += u64::from(packets(&self.framing, info.length));
        self.place(slot);
    }

    fn receive(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<StreamBody>) {
        if packet.body.is_ack {
            self.take_ack(ctx.now, packet.info.from, &packet.body);
        } else {
            self.take_data(ctx, packet);
        }
    }

    fn timeout(&mut self, ctx: &mut Ctx<'_>) {
        while let Some(slot) = self.alarms.due(ctx.now) {
            let sender = &mut self.connections[slot as usize];
            sender.on_timeout(ctx.now);
            self.timeouts += 1;
            let at = ctx.now + sender.timeout_ns(&self.config);
            self.alarms.set(slot, &mut sender.alarm, at);
            self.place(slot);
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.alarms.first()
    }

    fn transmit(&mut self, ctx: &mut Ctx<'_>, body: &mut StreamBody) -> Option<PacketInfo> {
        if let Some((to, ack)) = self.acks.pop_front() {
            *body = ack;
            let block_bytes = if ack.block == (0, 0) { 0 } else { SACK_BYTES };
            let info = PacketInfo::new(ctx.host, to, ACK_BYTES + block_bytes, 0);
            return Some(PacketInfo { flow: flow(ctx.host, to, ack.connection), ..info });
        }
        let slot = self.next_in_turn()?;
        let sender = &mut self.connections[slot as usize];
        let (sequence, is_again) = sender.take();
        self.resent += u64::from(is_again);
        let (queued, index) = sender.locate(sequence);
        let is_last = index + 1 == packets(&self.framing, queued.length);
        *body = StreamBody {
            connection: sender.connection,
            owner: sender.owner,
            sequence,
            ends: is_last.then_some(queued.message),
            sent_at: ctx.now,
            ..StreamBody::default()
        };
        sender.last_sent = ctx.now;
        if sender.alarm == Time::NEVER {
            let at = ctx.now + sender.timeout_ns(&self.config);
            self.alarms.set(slot, &mut sender.alarm, at);
        }
        let wire_len = self.framing.header + payload(&self.framing, queued.length, index);
        let (to, connection) = (sender.to, sender.connection);
        self.place(slot);
        let info = PacketInfo::new(ctx.host, to, wire_len, 0);
        Some(PacketInfo { flow: flow(ctx.host, to, connection), ..info })
    }

    /// Does nothing: acknowledgements already report delivery to the connection.
    fn delivered(&mut self, _ctx: &mut Ctx<'_>, _message: u32) {}

    fn counters(&self, count: &mut dyn FnMut(&str, u64)) {
        count("connections", u64::from(self.opened));
        count("timeouts", self.timeouts);
        count("retransmits", self.resent);
        count("recoveries", self.recoveries);
    }
}

/// Bytes of a SACK option with one range, padded.
const SACK_BYTES: u32 = 12;
