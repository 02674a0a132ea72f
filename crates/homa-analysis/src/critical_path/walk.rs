//! Walks from the end of an RPC back to its start, following what each step waited for.

use homa_trace::{EventKind, packet_word_parts};

use super::{Explainer, Path, Span};
use crate::cause::Cause;
use crate::link::Load;
use crate::model::{DATA, Direction, GRANT, Message, ModelTime, NO_NODE, NodeId, Packet, Rpc};

/// If a receiver grants within this time after it had a reason to grant, in nanoseconds, the time does not
/// count as a wait. It allows for the processing of a burst.
const GRANTS_AT_ONCE_NS: u64 = 5_000;
/// Maximum number of events examined for a receiver's activity during a wait.
const LOOKED_AT: usize = 64;

/// Walks one RPC. Time only goes backward, at most to the start of the RPC. The recorded causes therefore add
/// up to the duration, whatever the traces contain.
pub(super) struct Walk<'a, 'm> {
    explainer: &'a Explainer<'m>,
    rpc: &'a Rpc,
    path: &'a mut Path,
    /// The time that the walk has reached. All later time has been attributed.
    now: u64,
    /// The start of the current part of the path.
    floor: u64,
    /// The cause to which the network's own time is attributed. While a sender waits for a grant, the round
    /// trip is due to the window.
    round_trip: Option<Cause>,
    packet: Option<u32>,
}

/// A time at which the sender of a message was allowed to send more bytes.
#[derive(Clone, Copy)]
struct Allowance {
    ns: u64,
    /// Maximum offset allowed so far, exclusive.
    end: u32,
    by_resend: bool,
}

/// A message, and the grants and packets on which its transmission depended.
struct OutgoingMessage<'a> {
    direction: Direction,
    message: &'a Message,
    sender: NodeId,
    receiver: NodeId,
    data: &'a [Packet],
    allowed: Vec<Allowance>,
    grants: &'a [Packet],
    /// The arrivals of the message's packets, sorted by time, as indexes into `data`. Built on first use.
    arrivals: Option<Vec<(u64, u32)>>,
}

impl OutgoingMessage<'_> {
    fn arrivals(&mut self) -> &[(u64, u32)] {
        let data = self.data;
        self.arrivals.get_or_insert_with(|| {
            let came = data.iter().zip(0..).filter_map(|(packet, at)| Some((packet.received.ns()?, at)));
            let mut arrivals: Vec<(u64, u32)> = came.collect();
            arrivals.sort_unstable();
            arrivals
        })
    }
}

impl<'a, 'm> Walk<'a, 'm> {
    pub(super) fn new(
        explainer: &'a Explainer<'m>,
        rpc: &'a Rpc,
        path: &'a mut Path,
    ) -> Option<Walk<'a, 'm>> {
        let (start, end) = (rpc.start.ns()?, rpc.end.ns()?);
        path.clear();
        Some(Walk { explainer, rpc, path, now: end.max(start), floor: start, round_trip: None, packet: None })
    }

    pub(super) fn run(mut self) {
        let (rpc, start) = (self.rpc, self.floor);
        let answered = rpc.response.complete.is_some() || rpc.response.first_received.is_some();
        if answered {
            self.delivery(&rpc.response, rpc.client);
            self.message(Direction::ToClient);
            // Time for which the server has no record is attributed to the server's application.
            let submitted = rpc.response.submitted.or(rpc.request.arrived());
            self.to(submitted, Cause::ServerApp, rpc.server, None);
            self.to(rpc.request.arrived(), Cause::ServerApp, rpc.server, None);
        }
        if answered || rpc.request.complete.is_some() {
            self.delivery(&rpc.request, rpc.server);
            self.message(Direction::ToServer);
            self.to(ModelTime::new(start), Cause::Submit, rpc.client, None);
        }
        self.to(ModelTime::new(start), Cause::Unexplained, NO_NODE, None);
        self.path.spans.reverse();
    }

    /// Attributes the time since `then` to this cause, except for stalls of the thread.
    fn to(&mut self, then: ModelTime, cause: Cause, node: NodeId, port: Option<u16>) {
        let Some(then) = then.ns() else { return };
        let then = then.max(self.floor);
        if then >= self.now {
            return;
        }
        let stops = matches!(
            cause,
            Cause::Submit
                | Cause::SenderLate
                | Cause::GrantLate
                | Cause::SendBatch
                | Cause::ReadGap
                | Cause::Processing
                | Cause::AppQueue
                | Cause::Wakeup
        );
        while stops && let Some((from, until)) = self.explainer.links.stalls(node).last_within(then, self.now)
        {
            self.note(until, cause, node, port);
            self.note(from, Cause::NotRunning, node, port);
        }
        self.note(then, cause, node, port);
    }

    fn note(&mut self, then: u64, cause: Cause, node: NodeId, port: Option<u16>) {
        if then >= self.now {
            return;
        }
        let cause = match self.round_trip {
            Some(instead) if matches!(cause, Cause::Network | Cause::Transmit) => instead,
            _ => cause,
        };
        self.path.amounts[cause] += self.now - then;
        let (from_ns, to_ns) = (then, self.now);
        self.now = then;
        if let Some(last) = self.path.spans.last_mut()
            && (last.cause, last.node, last.port) == (cause, node, port)
            && last.from_ns == to_ns
            && last.packet == self.packet
        {
            last.from_ns = from_ns;
            return;
        }
        self.path.spans.push(Span { from_ns, to_ns, cause, node, port, packet: self.packet });
    }

    /// Walks from the application's receipt of a message back to the message's completion.
    fn delivery(&mut self, message: &Message, node: NodeId) {
        if message.woken >= message.complete {
            self.to(message.woken, Cause::Wakeup, node, None);
        }
        self.to(message.complete, Cause::AppQueue, node, None);
    }

    /// Walks from the completion of a message back to its submission.
    fn message(&mut self, direction: Direction) {
        let mut sending = self.sending(direction);
        let Some(mut at) = completing(sending.data, self.now) else {
            self.to(sending.message.submitted, Cause::Unexplained, sending.receiver, None);
            return;
        };
        self.walk_transfer(&sending.data[at], Some(sending.message.data.start + at as u32));
        // Each iteration either goes to an earlier packet or ends the loop.
        for _ in 0..2 * sending.data.len() + 2 {
            let packet = &sending.data[at];
            if !packet.sent.is_some() {
                return self.to(sending.message.submitted, Cause::Unexplained, sending.sender, None);
            }
            self.packet = Some(sending.message.data.start + at as u32);
            if let Some(lost) = sent_before(sending.data, at) {
                self.lost(&sending.data[lost], sending.receiver);
                at = lost;
                continue;
            }
            match self.run_before(&mut sending, at) {
                Some(next) => at = next,
                None => break,
            }
        }
        self.packet = None;
    }

    fn sending(&self, direction: Direction) -> OutgoingMessage<'a> {
        let model = self.explainer.model;
        let rpc = self.rpc;
        let message = rpc.message(direction);
        let (sender, receiver) = (rpc.sender(direction), rpc.receiver(direction));
        let mut allowed: Vec<Allowance> = Vec::new();
        for (node, record) in self.explainer.model.events_of(rpc).filter(|_| message.first_grant.is_some()) {
            let (end, by_resend) = match record.event() {
                Some(EventKind::GrantReceived) => (record.a, false),
                Some(EventKind::ResendReceived) if record.a != u32::MAX => {
                    (record.b.saturating_add(record.a), true)
                }
                _ => continue,
            };
            let last = allowed.last().map_or(0, |last| last.end);
            let at_sender = (record.id & 1 == 0) == (direction == Direction::ToServer);
            if node == sender && at_sender && end > last {
                allowed.push(Allowance { ns: record.time, end, by_resend });
            }
        }
        let packets = model.packets_of(rpc);
        let key = |packet: &Packet| (packet.direction, packet.packet_type);
        let first = packets.partition_point(|packet| key(packet) < (direction.back(), GRANT));
        let behind = packets.partition_point(|packet| key(packet) <= (direction.back(), GRANT));
        OutgoingMessage {
            direction,
            message,
            sender,
            receiver,
            data: model.data_of(message),
            allowed,
            grants: packets.get(first..behind).unwrap_or_default(),
            arrivals: None,
        }
    }

    /// Goes back over consecutive packets, up to one that waited for a grant, was a retransmission, or was
    /// the first. Returns the packet to continue with, or `None` after the first packet.
    fn run_before(&mut self, sending: &mut OutgoingMessage<'_>, last: usize) -> Option<usize> {
        let (mut at, mut own) = (last, Load::default());
        loop {
            let packet = &sending.data[at];
            let before = first_packet_before(sending.data, at);
            let before_ns = before.and_then(|before| sending.data[before].sent.ns());
            let since = before_ns.unwrap_or(self.floor);
            let waited = allowed_at(&sending.allowed, packet.offset).filter(|allowed| {
                allowed.ns > since && packet.sent.ns().is_some_and(|sent| allowed.ns <= sent)
            });
            if let Some(allowed) = waited {
                self.in_order(sending, allowed.ns, own, before.is_some());
                if allowed.by_resend {
                    self.to(ModelTime::new(since), Cause::LossWait, sending.receiver, None);
                } else {
                    // While the previous packet was being transmitted, the sender would not have sent
                    // another.
                    let last =
                        before.map_or(Load::default(), |before| Load::packet(sending.data[before].length));
                    let out = self.explainer.links.rate.map_or(0.0, |rate| rate.ns(last));
                    let since_out = since.saturating_add(out as u64).min(allowed.ns);
                    self.granted(sending, allowed, since_out);
                    self.to(ModelTime::new(since), Cause::Transmit, sending.sender, None);
                }
                return before;
            }
            let (Some(before), Some(_)) = (before, before_ns) else {
                let ready = self.has_message(sending);
                self.in_order(sending, ready, own, last != at);
                if before.is_some() {
                    self.to(sending.message.submitted, Cause::Unexplained, sending.sender, None);
                }
                self.to(sending.message.submitted, Cause::Submit, sending.sender, None);
                return None;
            };
            own += Load::packet(sending.data[before].length);
            if sending.data[before].again {
                self.in_order(sending, since, own, true);
                return Some(before);
            }
            at = before;
        }
    }

    /// Returns when the sender's endpoint had the message.
    fn has_message(&self, sending: &OutgoingMessage<'_>) -> u64 {
        let known = sending.message.submitted.ns();
        if sending.direction == Direction::ToClient {
            return known.or(self.rpc.request.arrived().ns()).unwrap_or(self.floor);
        }
        let submitted = known.unwrap_or(self.floor);
        let mut starts = self.explainer.model.events_of(self.rpc).take(LOOKED_AT).filter(|(node, record)| {
            *node == sending.sender && record.event() == Some(EventKind::RpcStart) && record.id & 1 == 0
        });
        starts.next().map_or(submitted, |(_, record)| record.time.max(submitted))
    }

    /// Walks from the transmission of a packet back to the time at which it could have been sent. `sent`:
    /// packets of the same message sent in between. `after_own`: whether the packet is not the first of its
    /// message.
    fn in_order(&mut self, sending: &OutgoingMessage<'_>, ready_ns: u64, sent: Load, after_own: bool) {
        let ready = ready_ns.clamp(self.floor, self.now);
        let (links, node) = (&self.explainer.links, sending.sender);
        let meanwhile = links.uplink(node).between(ready, self.now);
        let all = self.now - ready;
        let alone = meanwhile.packets == 0;
        let (own, others, idle, paced, full);
        match links.rate {
            Some(rate) => {
                let minimum_ns = rate.ns(sent) as u64;
                own = if alone && after_own { meanwhile.busy } else { minimum_ns.min(meanwhile.busy) };
                others = meanwhile.busy - own;
                (paced, full) = (meanwhile.paced, meanwhile.full);
            }
            None if alone => (own, others, paced, full) = (0, 0, meanwhile.paced, meanwhile.full),
            // If the rate is unknown, time between packets counts as transmission.
            None if sent.packets > 0 => (own, others, paced, full) = (all, 0, 0, 0),
            None => (own, others, paced, full) = (0, all, 0, 0),
        }
        let stopped = links.stalls(node).within(ready, self.now);
        idle = all.saturating_sub(own + others + paced + full);
        let stopped = stopped.min(idle);
        let parts = [
            (Cause::NotRunning, stopped),
            (Cause::DriverFull, full),
            (Cause::Pacer, paced),
            (Cause::SenderQueue, others),
            (Cause::Transmit, own),
        ];
        for (cause, ns) in parts {
            let then = self.now.saturating_sub(ns).max(ready);
            self.note(then, cause, node, None);
        }
        let is_response = sending.direction == Direction::ToClient;
        let late = match sending.message.submitted.is_some() || !is_response || sent.packets > 0 {
            true => Cause::SenderLate,
            // No record shows when the application had the message ready.
            false => Cause::ServerApp,
        };
        self.note(ready, late, node, None);
    }

    /// Walks from the retransmission of a packet back to its previous transmission.
    fn lost(&mut self, before: &Packet, receiver: NodeId) {
        let (node, port) = match before.switch {
            NO_NODE => (receiver, None),
            switch => (switch, Some(before.port)),
        };
        self.to(before.sent, Cause::LossWait, node, port);
    }

    /// Walks from the arrival of a grant back to the time at which the sender began to wait for the grant.
    fn granted(&mut self, sending: &mut OutgoingMessage<'_>, allowed: Allowance, since: u64) {
        let (floor, packet) = (self.floor, self.packet);
        self.floor = since.clamp(floor, self.now);
        let instead = self.round_trip_cause(sending);
        self.round_trip = Some(instead);
        self.grants_way(sending, allowed);
        self.packet = packet;
        self.to(ModelTime::new(since), instead, sending.receiver, None);
        (self.floor, self.round_trip) = (floor, None);
    }

    /// Returns whether the receiver's link was idle or busy with other messages while the sender waited.
    fn round_trip_cause(&self, sending: &mut OutgoingMessage<'_>) -> Cause {
        let links = &self.explainer.links;
        let came = links.arrivals.between(sending.receiver, self.floor + 1, self.now + 1);
        let (from, until) = (self.floor, self.now);
        let data = sending.data;
        let arrivals = sending.arrivals();
        let first = arrivals.partition_point(|(ns, _)| *ns <= from);
        let within = arrivals[first..].iter().take_while(|(ns, _)| *ns <= until);
        let mut own = Load::default();
        within.for_each(|(_, at)| own += Load::packet(data[*at as usize].length));
        let others = came.less(own);
        let full = match links.rate {
            Some(rate) => rate.ns(others) > (until - from) as f64 / 2.0,
            None => others.bytes > own.bytes,
        };
        if full { Cause::GrantChoice } else { Cause::GrantWindow }
    }

    fn grants_way(&mut self, sending: &mut OutgoingMessage<'_>, allowed: Allowance) {
        let Some(grant) = received_by(sending.grants, allowed.ns) else { return };
        self.walk_transfer(grant, None);
        let (Some(sent), model) = (grant.sent.ns(), self.explainer.model) else { return };
        let data = sending.data;
        let arrivals = sending.arrivals();
        let Some(last) = arrivals.partition_point(|(ns, _)| *ns <= sent).checked_sub(1) else { return };
        let (came, at) = arrivals[last];
        let waited = sent - came;
        let burst_ends = data[at as usize].processed.ns().unwrap_or(came);
        let cause = if waited <= GRANTS_AT_ONCE_NS || sent <= burst_ends {
            Cause::Processing
        } else {
            let kinds = [EventKind::GrantSent, EventKind::PacketReceived];
            let mut events = model.between(sending.receiver, came, sent, &kinds).take(LOOKED_AT);
            let for_others = events.any(|record| {
                let is_data = packet_word_parts(record.a).0 == DATA;
                record.id & !1 != self.rpc.id && (is_data || record.event() == Some(EventKind::GrantSent))
            });
            if for_others { Cause::GrantChoice } else { Cause::GrantLate }
        };
        self.to(ModelTime::new(came), cause, sending.receiver, None);
        self.walk_transfer(&data[at as usize], Some(sending.message.data.start + at));
    }

    /// Walks from the processing of a packet back to its transmission.
    fn walk_transfer(&mut self, packet: &Packet, number: Option<u32>) {
        self.packet = number;
        let (sender, receiver) = (self.rpc.sender(packet.direction), self.rpc.receiver(packet.direction));
        self.to(packet.received, Cause::Processing, receiver, None);
        self.to(packet.read, Cause::Processing, receiver, None);
        self.to(packet.device_received, Cause::ReadGap, receiver, None);
        let minimum_times = &self.explainer.minimum_times;
        for hop in minimum_times.hops(self.explainer.model, packet).into_iter().flatten() {
            let Some(from) = hop.from.ns() else { continue };
            let from = from.clamp(self.floor, self.now);
            let all = self.now - from;
            let own = minimum_times.ns(&hop).min(all);
            if hop.waits_last {
                self.to(ModelTime::new(from + own), hop.excess, hop.node, hop.port);
                self.note(from, Cause::Network, hop.node, hop.port);
            } else {
                self.note(from + (all - own), Cause::Network, hop.node, hop.port);
                self.to(ModelTime::new(from), hop.excess, hop.node, hop.port);
            }
        }
        self.to(packet.handed, Cause::DeviceOut, sender, None);
        self.to(packet.sent, Cause::SendBatch, sender, None);
    }
}

/// Returns the packet that completed a message: the last packet to arrive, where only the first arrival of
/// each offset counts.
fn completing(data: &[Packet], until_ns: u64) -> Option<usize> {
    let mut last: Option<(u64, usize)> = None;
    let mut at = 0;
    for same in data.chunk_by(|a, b| a.offset == b.offset) {
        let copies = same.iter().enumerate();
        let came = copies.filter_map(|(copy, packet)| Some((packet.received.ns()?, at + copy))).min();
        last = last.max(came.filter(|(ns, _)| *ns <= until_ns));
        at += same.len();
    }
    // Without the receiver's trace, use the last packet in any trace.
    let seen = || {
        let seen = data.iter().enumerate().filter_map(|(at, packet)| Some((packet.first_seen().ns()?, at)));
        seen.filter(|(ns, _)| *ns <= until_ns).max()
    };
    last.or_else(seen).map(|(_, at)| at)
}

/// Returns the previous transmission of the same bytes, or `None` if this is the first.
fn sent_before(data: &[Packet], at: usize) -> Option<usize> {
    let packet = &data[at];
    let before = at.checked_sub(1)?;
    (packet.again && data[before].offset == packet.offset && data[before].sent < packet.sent)
        .then_some(before)
}

/// Returns the index of the first packet at the offset that precedes this packet's offset.
fn first_packet_before(data: &[Packet], at: usize) -> Option<usize> {
    let offset = data[..at].iter().rev().find(|packet| packet.offset != data[at].offset)?.offset;
    let behind = data[..at].partition_point(|packet| packet.offset < offset);
    Some(behind)
}

/// Returns the first grant or RESEND that allowed this byte, or `None` if it needed none.
fn allowed_at(allowed: &[Allowance], offset: u32) -> Option<Allowance> {
    allowed.get(allowed.partition_point(|allowed| allowed.end <= offset)).copied()
}

/// Returns the last of these packets that had arrived by this time.
fn received_by(packets: &[Packet], ns: u64) -> Option<&Packet> {
    let behind = packets.partition_point(|packet| packet.first_seen().ns().is_some_and(|sent| sent <= ns));
    packets[..behind].iter().rev().find(|packet| packet.received.ns().is_some_and(|received| received <= ns))
}
