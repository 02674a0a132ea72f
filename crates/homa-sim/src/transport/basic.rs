//! RAMCloud's BasicTransport: receivers send grants, and there are no priorities.
//!
//! A sender sends the bytes of one round trip without a grant. A receiver keeps one round trip of packets
//! granted for every message that it receives, without a limit on the number of messages. When fewer granted
//! packets are outstanding, it grants a round trip plus a few packets, which saves grants. After a timeout a
//! receiver requests missing packets, and a sender that got no reply sends its first packet again.

use std::collections::{BTreeSet, VecDeque};

use homa_proto::{MS, Time};

use super::interface::{Ctx, Transport};
use super::parts::{ACK_BYTES, Alarms, PacketSet, Ranks, Slots, packets, payload};
use crate::cluster::config::ClusterConfig;
use crate::cluster::ideal::Framing;
use crate::packet::{Body, Packet, PacketInfo};

/// Order in which a sender of BasicTransport sends messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderOrder {
    /// The message with the fewest remaining bytes first.
    Srpt,
    /// The oldest message first.
    Fifo,
}

/// Settings of BasicTransport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BasicConfig {
    /// Packets per round trip, at least 1: the number sent without a grant, and the minimum number of granted
    /// packets.
    pub round_trip: u32,
    /// Number of packets that a grant adds to the round trip.
    pub increment: u32,
    /// Order in which a sender sends messages.
    pub order: SenderOrder,
    /// Time without packets after which a RESEND is sent.
    pub resend_ns: u64,
}

impl BasicConfig {
    /// Returns settings with a round trip of this network, five more packets, and SRPT.
    ///
    /// The RESEND timeout of 2 ms is the time that a queue of 2.5 MB takes to drain at 10 Gbit/s. A shorter
    /// timeout would treat queued packets as lost.
    pub fn for_cluster(cluster: &ClusterConfig) -> BasicConfig {
        let packet = cluster.framing.payload + cluster.framing.header + cluster.link.overhead_bytes;
        BasicConfig {
            round_trip: cluster.rtt_bytes().div_ceil(packet),
            increment: 5,
            order: SenderOrder::Srpt,
            resend_ns: 2 * MS,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Says {
    /// One packet of the message.
    #[default]
    Data,
    /// All packets before this one may be sent.
    Grant,
    /// This packet is missing, as are those of the 64 packets after it whose bit is set.
    Resend { others: u64 },
}

/// The contents of a packet of BasicTransport.
#[derive(Clone, Copy, Debug, Default)]
pub struct BasicBody {
    says: Says,
    message: u32,
    /// Start of the message, which together with the message's number identifies it.
    started: Time,
    index: u32,
}

impl Body for BasicBody {
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
    /// Number of messages that started before this one.
    sequence: u64,
    granted: u32,
    next: u32,
    again: BTreeSet<u32>,
    alarm: Time,
    /// The message's rank among the messages that can send.
    ready: Option<u64>,
}

impl Outgoing {
    /// Returns the bytes to be sent for the first time or retransmitted, counted as full packets unless the
    /// message has only one packet.
    fn remaining(&self, payload: u32) -> u64 {
        let unsent = u64::from(self.length).saturating_sub(u64::from(self.next) * u64::from(payload));
        unsent + self.again.len() as u64 * u64::from(payload.min(self.length))
    }

    fn can_send(&self) -> bool {
        !self.again.is_empty() || self.next < self.granted
    }
}

#[derive(Debug)]
struct Incoming {
    from: u32,
    message: u32,
    started: Time,
    packets: u32,
    received: PacketSet,
    granted: u32,
    alarm: Time,
}

impl Incoming {
    fn body(&self, says: Says, index: u32) -> BasicBody {
        BasicBody { says, message: self.message, started: self.started, index }
    }

    /// Makes a RESEND for packets that were granted and have not arrived.
    fn missing(&self) -> BasicBody {
        let first = self.received.first_missing();
        let is_missing = |index: u32| index < self.granted && !self.received.contains(index);
        let others = (0..64).filter(|bit| is_missing(first + 1 + bit)).fold(0, |set, bit| set | 1 << bit);
        self.body(Says::Resend { others }, first)
    }
}

/// A host's end of BasicTransport.
#[derive(Debug)]
pub struct Basic {
    config: BasicConfig,
    framing: Framing,
    outgoing: Slots<Outgoing>,
    incoming: Slots<Incoming>,
    ready: Ranks,
    started: u64,
    /// Alarms by slot, of the outgoing and of the incoming messages.
    sender_alarms: Alarms,
    receiver_alarms: Alarms,
    control: VecDeque<(u32, BasicBody)>,
    grants: u64,
    resends: u64,
}

impl Basic {
    fn place(&mut self, slot: u32) {
        let Some(out) = self.outgoing.get_mut(slot) else { return };
        let rank = match self.config.order {
            SenderOrder::Srpt => out.remaining(self.framing.payload),
            SenderOrder::Fifo => out.sequence,
        };
        let place = out.can_send().then_some(rank);
        self.ready.set(slot, &mut out.ready, place);
    }

    fn take_data(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<BasicBody>) {
        let body = packet.body;
        let Some(message) = ctx.under_way(body.message, body.started) else { return };
        let slot = match message.receiver_token {
            Some(slot) => slot as u32,
            None => {
                let packets = packets(&self.framing, message.length);
                let slot = self.incoming.insert(Incoming {
                    from: message.from,
                    message: body.message,
                    started: body.started,
                    packets,
                    received: PacketSet::new(packets),
                    granted: packets.min(self.config.round_trip),
                    alarm: Time::NEVER,
                });
                ctx.set_receiver_token(body.message, u64::from(slot));
                slot
            }
        };
        let Some(incoming) = self.incoming.get_mut(slot) else { return };
        incoming.received.insert(body.index);
        let here = incoming.received.len();
        if here == incoming.packets {
            self.receiver_alarms.set(slot, &mut incoming.alarm, Time::NEVER);
            self.incoming.remove(slot);
            ctx.deliver(body.message);
            return;
        }
        self.receiver_alarms.set(slot, &mut incoming.alarm, ctx.now + self.config.resend_ns);
        if incoming.granted < incoming.packets && incoming.granted - here < self.config.round_trip {
            incoming.granted = (here + self.config.round_trip + self.config.increment).min(incoming.packets);
            self.grants += 1;
            self.control.push_back((incoming.from, incoming.body(Says::Grant, incoming.granted)));
        }
    }

    fn take_control(&mut self, ctx: &mut Ctx<'_>, body: &BasicBody) {
        let Some(message) = ctx.under_way(body.message, body.started) else { return };
        let slot = message.token as u32;
        let Some(out) = self.outgoing.get_mut(slot) else { return };
        match body.says {
            Says::Grant => out.granted = out.granted.max(body.index),
            Says::Resend { others } => {
                let set = (0..64).filter(|bit| others >> bit & 1 == 1).map(|bit| body.index + 1 + bit);
                let asked = std::iter::once(body.index).chain(set);
                // Packets that have not been sent for the first time will be sent anyway.
                let (before, packets) = (out.next, out.packets);
                out.again.extend(asked.filter(|&index| index < before && index < packets));
                // A requested packet has been granted, even if the grant was lost.
                let end = body.index + 1 + (u64::BITS - others.leading_zeros());
                out.granted = out.granted.max(end.min(packets));
            }
            Says::Data => return,
        }
        self.sender_alarms.set(slot, &mut out.alarm, ctx.now + self.config.resend_ns);
        self.place(slot);
    }
}

impl Transport for Basic {
    const NAME: &'static str = "basic";
    type Body = BasicBody;
    type Config = BasicConfig;

    fn new(config: &BasicConfig, _host: u32, cluster: &ClusterConfig) -> Basic {
        Basic {
            config: *config,
            framing: cluster.framing,
            outgoing: Slots::default(),
            incoming: Slots::default(),
            ready: Ranks::default(),
            started: 0,
            sender_alarms: Alarms::default(),
            receiver_alarms: Alarms::default(),
            control: VecDeque::new(),
            grants: 0,
            resends: 0,
        }
    }

    fn send(&mut self, ctx: &mut Ctx<'_>, message: u32) {
        let info = ctx.message(message);
        let packets = packets(&self.framing, info.length);
        self.started += 1;
        let slot = self.outgoing.insert(Outgoing {
            message,
            to: info.to,
            length: info.length,
            started: info.started,
            packets,
            sequence: self.started,
            granted: packets.min(self.config.round_trip),
            next: 0,
            again: BTreeSet::new(),
            alarm: Time::NEVER,
            ready: None,
        });
        ctx.set_token(message, u64::from(slot));
        self.place(slot);
    }

    fn receive(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<BasicBody>) {
        match packet.body.says {
            Says::Data => self.take_data(ctx, packet),
            Says::Grant | Says::Resend { .. } => self.take_control(ctx, &packet.body),
        }
    }

    fn timeout(&mut self, ctx: &mut Ctx<'_>) {
        let later = ctx.now + self.config.resend_ns;
        while let Some(slot) = self.receiver_alarms.due(ctx.now) {
            let Some(incoming) = self.incoming.get_mut(slot) else { return };
            self.resends += 1;
            self.control.push_back((incoming.from, incoming.missing()));
            self.receiver_alarms.set(slot, &mut incoming.alarm, later);
        }
        while let Some(slot) = self.sender_alarms.due(ctx.now) {
            let Some(out) = self.outgoing.get_mut(slot) else { return };
            out.again.insert(0);
            self.sender_alarms.set(slot, &mut out.alarm, Time::NEVER);
            self.place(slot);
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        let alarms = [self.sender_alarms.first(), self.receiver_alarms.first()];
        alarms.into_iter().flatten().min()
    }

    fn transmit(&mut self, ctx: &mut Ctx<'_>, body: &mut BasicBody) -> Option<PacketInfo> {
        if let Some((to, control)) = self.control.pop_front() {
            *body = control;
            return Some(PacketInfo::new(ctx.host, to, ACK_BYTES, 0));
        }
        let slot = self.ready.first()?;
        let out = self.outgoing.get_mut(slot)?;
        let index = out.again.pop_first().unwrap_or_else(|| {
            out.next += 1;
            out.next - 1
        });
        *body = BasicBody { says: Says::Data, message: out.message, started: out.started, index };
        let wire_len = self.framing.header + payload(&self.framing, out.length, index);
        let info = PacketInfo::new(ctx.host, out.to, wire_len, 0);
        let rests = if out.can_send() { Time::NEVER } else { ctx.now + self.config.resend_ns };
        self.sender_alarms.set(slot, &mut out.alarm, rests);
        self.place(slot);
        Some(info)
    }

    fn delivered(&mut self, ctx: &mut Ctx<'_>, message: u32) {
        let slot = ctx.message(message).token as u32;
        if let Some(mut out) = self.outgoing.remove(slot) {
            self.sender_alarms.set(slot, &mut out.alarm, Time::NEVER);
            self.ready.set(slot, &mut out.ready, None);
        }
    }

    fn counters(&self, count: &mut dyn FnMut(&str, u64)) {
        count("grants_sent", self.grants);
        count("resends_sent", self.resends);
    }
}
