//! pFabric (SIGCOMM 2013): switches with short queues, and simple senders. A switch sends the packet of the
//! shortest remaining message first, and drops the packet of the longest.
//!
//! A sender starts with a window of the network's bandwidth-delay product and detects losses only by a short
//! timeout. A timeout halves the threshold up to which the window doubles, and resets the window to one
//! packet. After several timeouts in a row, the sender probes the path with a packet without payload. Every
//! packet is acknowledged by a packet with the highest rank. The exception is the packet that completes a
//! message: there, the harness notifies the sender, as for every message transport. In W2, where most
//! messages are one packet, those acknowledgements would be a sixth of all bytes.

use std::collections::VecDeque;

use homa_egress::Buffer;
use homa_proto::Time;

use super::interface::{Ctx, Transport};
use super::parts::{ACK_BYTES, Alarms, PacketSet, Ranks, Slots, packets, payload};
use crate::cluster::config::ClusterConfig;
use crate::cluster::ideal::Framing;
use crate::fabric::SwitchConfig;
use crate::link::Discipline;
use crate::packet::{Body, Packet, PacketInfo};

/// Settings of pFabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PfabricConfig {
    /// Size of each port's queue in bytes, with overhead.
    pub port_bytes: u64,
    /// Initial and maximum window of a message in packets, at least 1.
    pub window: u32,
    /// Time without progress after which a message's packets count as lost.
    pub timeout_ns: u64,
    /// Number of timeouts in a row after which a sender only sends probes.
    pub probe_after: u32,
}

impl PfabricConfig {
    /// Returns the settings of the pFabric paper: a window of 12 packets, or of the network's bandwidth-delay
    /// product if that is larger; queues of two windows; and timeouts of three times the time of a window,
    /// which are 45 us at 10 Gbit/s.
    ///
    /// 12 packets are 1.5 times the bandwidth-delay product of the network of [`ClusterConfig::sigcomm18`].
    /// With 7 packets there, messages of two to a hundred packets take a tenth longer, because the window
    /// closes whenever a packet is queued.
    pub fn for_cluster(cluster: &ClusterConfig) -> PfabricConfig {
        let packet = cluster.framing.payload + cluster.framing.header + cluster.link.overhead_bytes;
        let window = cluster.rtt_bytes().div_ceil(packet).max(12);
        let window_bytes = u64::from(window) * u64::from(packet);
        PfabricConfig {
            port_bytes: 2 * window_bytes,
            window,
            timeout_ns: 3 * window_bytes * 8_000_000_000 / cluster.link.rate_bps,
            probe_after: 5,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Data,
    /// A probe without payload.
    Probe,
    Ack,
}

/// The contents of a packet of pFabric.
#[derive(Clone, Copy, Debug, Default)]
pub struct PfabricBody {
    kind: Kind,
    message: u32,
    /// Start of the message, which together with the message's number identifies it.
    started: Time,
    /// Index of the packet, or of the acknowledged packet.
    index: u32,
    /// All packets before this one have arrived.
    below: u32,
}

impl Body for PfabricBody {
    fn copy_from(&mut self, other: &Self) {
        *self = *other;
    }
}

#[derive(Debug)]
struct Outgoing {
    message: u32,
    to: u32,
    length: u32,
    started: Time,
    packets: u32,
    acked: PacketSet,
    /// The next packet to be sent, unless it is already acknowledged.
    next: u32,
    /// Number of packets before `next` that are neither acknowledged nor lost.
    under_way: u32,
    window: f64,
    /// Window size at which doubling ends.
    doubles_below: f64,
    /// Number of timeouts since the last acknowledgement.
    timeouts: u32,
    /// Whether a probe is to be sent.
    asks: bool,
    alarm: Time,
    /// The message's rank among the messages that can send.
    ready: Option<u64>,
}

impl Outgoing {
    fn is_probing(&self, config: &PfabricConfig) -> bool {
        self.timeouts >= config.probe_after
    }

    fn can_send(&self, config: &PfabricConfig) -> bool {
        if self.is_probing(config) {
            return self.asks;
        }
        self.next < self.packets && f64::from(self.under_way) + 1.0 <= self.window
    }

    fn rank(&self, framing: &Framing) -> u32 {
        self.length.saturating_sub(self.acked.len().saturating_mul(framing.payload)).max(1)
    }

    fn skip_acked(&mut self) {
        while self.next < self.packets && self.acked.contains(self.next) {
            self.next += 1;
        }
    }

    /// Records an acknowledgement. Returns whether it is new.
    fn acknowledge(&mut self, index: u32) -> bool {
        let is_new = index < self.packets && self.acked.insert(index);
        if is_new && index < self.next {
            self.under_way = self.under_way.saturating_sub(1);
        }
        is_new
    }

    fn on_timeout(&mut self, config: &PfabricConfig) {
        self.timeouts += 1;
        self.doubles_below = (self.window / 2.0).max(1.0);
        self.window = 1.0;
        (self.next, self.under_way) = (self.acked.first_missing(), 0);
        self.asks = self.is_probing(config);
    }
}

/// A host's end of pFabric.
#[derive(Debug)]
pub struct Pfabric {
    config: PfabricConfig,
    framing: Framing,
    outgoing: Slots<Outgoing>,
    incoming: Slots<PacketSet>,
    ready: Ranks,
    alarms: Alarms,
    acks: VecDeque<(u32, PfabricBody)>,
    timeouts: u64,
    probes: u64,
}

impl Pfabric {
    /// Updates the rank of a message among those that can send.
    fn place(&mut self, slot: u32) {
        let Some(out) = self.outgoing.get_mut(slot) else { return };
        let place = out.can_send(&self.config).then(|| u64::from(out.rank(&self.framing)));
        self.ready.set(slot, &mut out.ready, place);
    }

    fn acknowledged(&mut self, now: Time, slot: u32, body: &PfabricBody) {
        let config = self.config;
        let Some(out) = self.outgoing.get_mut(slot) else { return };
        out.timeouts = 0;
        out.asks = false;
        let mut is_new = out.acknowledge(body.index);
        while out.acked.first_missing() < body.below {
            is_new |= out.acknowledge(out.acked.first_missing());
        }
        out.skip_acked();
        if is_new {
            let step = if out.window < out.doubles_below { 1.0 } else { 1.0 / out.window };
            out.window = (out.window + step).min(f64::from(config.window));
            let waits = out.under_way > 0;
            let at = if waits { now + config.timeout_ns } else { Time::NEVER };
            self.alarms.set(slot, &mut out.alarm, at);
        }
        self.place(slot);
    }

    fn take_data(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<PfabricBody>) {
        let body = packet.body;
        let Some(message) = ctx.under_way(body.message, body.started) else { return };
        let slot = match message.receiver_token {
            Some(slot) => slot as u32,
            None => {
                let slot = self.incoming.insert(PacketSet::new(packets(&self.framing, message.length)));
                ctx.set_receiver_token(body.message, u64::from(slot));
                slot
            }
        };
        let Some(incoming) = self.incoming.get_mut(slot) else { return };
        if body.kind == Kind::Data {
            incoming.insert(body.index);
        }
        let below = incoming.first_missing();
        if below == packets(&self.framing, message.length) {
            self.incoming.remove(slot);
            ctx.deliver(body.message);
            return;
        }
        let index = if body.kind == Kind::Data { body.index } else { u32::MAX };
        self.acks.push_back((packet.info.from, PfabricBody { kind: Kind::Ack, index, below, ..body }));
    }
}

impl Transport for Pfabric {
    const NAME: &'static str = "pfabric";
    type Body = PfabricBody;
    type Config = PfabricConfig;

    fn switch(config: &PfabricConfig, cluster: &ClusterConfig) -> SwitchConfig {
        SwitchConfig {
            discipline: Discipline::Rank,
            buffer: Some(Buffer::PerPort { bytes: config.port_bytes }),
            mark_bytes: None,
            ..cluster.switch
        }
    }

    fn new(config: &PfabricConfig, _host: u32, cluster: &ClusterConfig) -> Pfabric {
        Pfabric {
            config: *config,
            framing: cluster.framing,
            outgoing: Slots::default(),
            incoming: Slots::default(),
            ready: Ranks::default(),
            alarms: Alarms::default(),
            acks: VecDeque::new(),
            timeouts: 0,
            probes: 0,
        }
    }

    fn send(&mut self, ctx: &mut Ctx<'_>, message: u32) {
        let info = ctx.message(message);
        let packets = packets(&self.framing, info.length);
        let window = f64::from(self.config.window.max(1));
        let slot = self.outgoing.insert(Outgoing {
            message,
            to: info.to,
            length: info.length,
            started: info.started,
            packets,
            acked: PacketSet::new(packets),
            next: 0,
            under_way: 0,
            window,
            doubles_below: window,
            timeouts: 0,
            asks: false,
            alarm: Time::NEVER,
            ready: None,
        });
        ctx.set_token(message, u64::from(slot));
        self.place(slot);
    }

    fn receive(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<PfabricBody>) {
        match packet.body.kind {
            Kind::Data | Kind::Probe => self.take_data(ctx, packet),
            Kind::Ack => {
                if let Some(message) = ctx.under_way(packet.body.message, packet.body.started) {
                    self.acknowledged(ctx.now, message.token as u32, &packet.body);
                }
            }
        }
    }

    fn timeout(&mut self, ctx: &mut Ctx<'_>) {
        while let Some(slot) = self.alarms.due(ctx.now) {
            let Some(out) = self.outgoing.get_mut(slot) else { return };
            out.on_timeout(&self.config);
            out.skip_acked();
            self.timeouts += 1;
            self.alarms.set(slot, &mut out.alarm, ctx.now + self.config.timeout_ns);
            self.place(slot);
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.alarms.first()
    }

    fn transmit(&mut self, ctx: &mut Ctx<'_>, body: &mut PfabricBody) -> Option<PacketInfo> {
        if let Some((to, ack)) = self.acks.pop_front() {
            *body = ack;
            // A separate flow, so that a switch never sends an acknowledgement in place of queued data.
            let flow = ack.message | 1 << 31;
            return Some(PacketInfo { flow, ..PacketInfo::new(ctx.host, to, ACK_BYTES, 7) });
        }
        let slot = self.ready.first()?;
        let out = self.outgoing.get_mut(slot)?;
        *body = PfabricBody {
            kind: Kind::Probe,
            message: out.message,
            started: out.started,
            ..PfabricBody::default()
        };
        let mut wire_len = self.framing.header;
        if out.is_probing(&self.config) {
            out.asks = false;
            self.probes += 1;
        } else {
            (body.kind, body.index) = (Kind::Data, out.next);
            wire_len += payload(&self.framing, out.length, out.next);
            out.next += 1;
            out.under_way += 1;
            out.skip_acked();
        }
        let rank = out.rank(&self.framing);
        let info = PacketInfo { rank, flow: out.message, ..PacketInfo::new(ctx.host, out.to, wire_len, 0) };
        if out.alarm == Time::NEVER {
            self.alarms.set(slot, &mut out.alarm, ctx.now + self.config.timeout_ns);
        }
        self.place(slot);
        Some(info)
    }

    fn delivered(&mut self, ctx: &mut Ctx<'_>, message: u32) {
        let slot = ctx.message(message).token as u32;
        if let Some(mut out) = self.outgoing.remove(slot) {
            self.alarms.set(slot, &mut out.alarm, Time::NEVER);
            self.ready.set(slot, &mut out.ready, None);
        }
    }

    fn counters(&self, count: &mut dyn FnMut(&str, u64)) {
        count("timeouts", self.timeouts);
        count("probes", self.probes);
    }
}
