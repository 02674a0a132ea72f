//! Outgoing packets: control packets first, then the shortest message. Within a message, requested
//! retransmissions go first (PROTOCOL.md SEND).

use std::net::SocketAddr;
use std::ops::Range;

use homa_trace::{EventKind, packet_word};

use crate::contract::{PayloadRange, Transmit};
use crate::dialect::Dialect;
use crate::endpoint::Endpoint;
use crate::lists::{Links, List};
use crate::peer::peer_number;
use crate::priority;
use crate::rpc::RpcState;
use crate::srpt::SrptQueue;
use crate::time::Time;
use crate::wire::{self, Body, Common, DATA_HEADER_LEN, Data, UnknownReason};

/// Precision of the sender's order: one part in 64 (SEND-4).
pub(crate) const SUB: u32 = 6;

/// Minimum time between two CUTOFFS to one peer: the first answers cross with DATA that was sent before they
/// arrived.
const CUTOFFS_SPACING_NS: u64 = 1_000_000;

/// The messages that have bytes to send and may send them.
#[derive(Debug)]
pub(crate) struct Ready {
    links: Links,
    shortest: SrptQueue<SUB>,
    fifo_links: Links,
    fifo: List,
    /// Credit of the oldest message in thousandths of bytes (SEND-5).
    fifo_credit: u64,
    /// The last poll found only packets that the pacer holds back.
    pub waits_for_pacer: bool,
    /// Other endpoints of this host have shorter messages and go first.
    pub gives_way: bool,
}

impl Ready {
    pub(crate) fn with_capacity(rpcs: usize) -> Ready {
        Ready {
            links: Links::with_capacity(rpcs),
            shortest: SrptQueue::new(),
            fifo_links: Links::with_capacity(rpcs),
            fifo: List::EMPTY,
            fifo_credit: 0,
            waits_for_pacer: false,
            gives_way: false,
        }
    }

    /// Makes `slot` a valid index.
    pub(crate) fn fit(&mut self, slots: usize) {
        self.links.fit(slots);
        self.fifo_links.fit(slots);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shortest.is_empty()
    }

    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.links.list_of(slot).is_some()
    }

    /// Inserts the message at the place of its remaining bytes, or moves it there.
    fn place(&mut self, slot: u32, remaining: u32) {
        if self.links.list_of(slot).is_some() {
            self.shortest.update(&mut self.links, slot, remaining);
        } else {
            self.shortest.insert(&mut self.links, slot, remaining);
            self.fifo_links.push_back(&mut self.fifo, 0, slot);
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) {
        if self.contains(slot) {
            self.remove_ready(slot);
        }
    }

    fn remove_ready(&mut self, slot: u32) {
        self.shortest.remove(&mut self.links, slot);
        self.fifo_links.remove(&mut self.fifo, slot);
    }

    /// The message whose turn it is (SEND-3): the shortest, or the oldest if its credit covers a packet of
    /// `packet` bytes.
    pub(crate) fn choose(&self, packet: u32) -> Option<u32> {
        let earned = self.fifo_credit >= u64::from(packet) * 1000;
        if earned { self.fifo.head() } else { self.shortest.first() }
    }

    /// Accounts `bytes` sent of the message chosen for a packet of at most `packet` bytes. The oldest message
    /// is credited with `share` thousandths of them.
    fn account(&mut self, bytes: u32, packet: u32, share: u32) {
        if self.fifo_credit >= u64::from(packet) * 1000 {
            // On a path wider than `max_packet`, one packet may cost more than the credit.
            self.fifo_credit = self.fifo_credit.saturating_sub(u64::from(bytes) * 1000);
        }
        if self.shortest.len() > 1 {
            self.fifo_credit += u64::from(bytes) * u64::from(share);
        }
    }

    /// The shortest message, if messages wait for the pacer.
    pub(crate) fn shortest_waiting(&self) -> Option<u32> {
        if self.waits_for_pacer { self.shortest.first() } else { None }
    }

    /// The shortest message, unless it is the oldest one's turn to send a packet of `packet` bytes.
    pub(crate) fn shortest_in_turn(&self, packet: u32) -> Option<u32> {
        let earned = self.fifo_credit >= u64::from(packet) * 1000;
        if earned { None } else { self.shortest.first() }
    }

    /// Other endpoints have sent `bytes` while they went first. The oldest message here is credited with its
    /// share of them, up to a packet of `packet` bytes.
    pub(crate) fn earn(&mut self, bytes: u32, packet: u32, share: u32) {
        let most = self.fifo_credit.max(u64::from(packet) * 1000);
        self.fifo_credit = (self.fifo_credit + u64::from(bytes) * u64::from(share)).min(most);
    }

    /// Like [`Ready::account`], for the next packets of the chosen message while it is the shortest message's
    /// turn. Returns how many of `packets`, each of `bytes`, were accounted.
    pub(crate) fn account_run(&mut self, packets: u32, bytes: u32, packet: u32, share: u32) -> u32 {
        if self.shortest.len() <= 1 || share == 0 {
            return if self.fifo_credit >= u64::from(packet) * 1000 { 0 } else { packets };
        }
        for accounted in 0..packets {
            if self.fifo_credit >= u64::from(packet) * 1000 {
                return accounted;
            }
            self.account(bytes, packet, share);
        }
        packets
    }

    /// Panics unless both orders hold the same messages; returns them.
    pub(crate) fn check(&self) -> Vec<u32> {
        let slots = self.shortest.check(&self.links);
        assert_eq!(self.fifo_links.check(&self.fifo, 0), slots.len(), "ready messages by age");
        slots
    }
}

/// A DATA packet to be encoded.
pub(crate) struct PlannedData {
    pub slot: u32,
    pub offset: u32,
    pub len: u32,
    pub priority: u8,
    pub retransmit: bool,
}

impl Endpoint {
    /// Whether [`poll_transmit`](Endpoint::poll_transmit) may return a packet; cheaper than polling without
    /// result. Also true if only the pacer holds packets back.
    #[inline]
    #[must_use]
    pub fn has_transmit(&self) -> bool {
        !self.control.is_empty() || !self.ready.is_empty() || self.ready.waits_for_pacer
    }

    /// The next packet to send now, if any. A returned packet counts as sent.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        let now = self.advance(now);
        self.ready.waits_for_pacer = false;
        match self.next_control(now) {
            Some(packet) => Some(packet),
            None => {
                let part = self.next_part(now)?;
                Some(self.data_packet(now, &part))
            }
        }
    }

    /// The next waiting control packet. It counts as sent.
    pub(crate) fn next_control(&mut self, now: Time) -> Option<Transmit> {
        let packet = self.control.pop_front()?;
        let bytes = packet.header.as_slice().len() as u32;
        self.pacer.sent(now, bytes); // SEND-7
        self.last_sent = now;
        self.stats.packets_sent += 1;
        Some(packet)
    }

    /// The part of a message that the next DATA packet carries.
    pub(crate) fn next_part(&mut self, now: Time) -> Option<PlannedData> {
        for _ in 0..self.config.reap_limit {
            let slot = self.ready.choose(self.config.max_packet)?;
            // A planted fault that the swarm must find: retransmissions go before all other bytes.
            #[cfg(homa_canary = "resend_first")]
            let slot = self.retransmits.any().unwrap_or(slot);
            let rpc = &self.rpcs[slot as usize];
            if rpc.life != self.peers[rpc.peer].life {
                self.end_of_life(now, slot);
                continue;
            }
            // SHARE-5, SEND-10
            return match self.retransmits.first(slot) {
                Some((range, priority)) => self.part_again(now, slot, &range, priority),
                None => self.fresh_part(now, slot),
            };
        }
        None
    }

    /// Adds an RPC to the messages to send, if it may send.
    pub(crate) fn make_ready(&mut self, slot: u32) {
        let again = self.retransmits.bytes(slot);
        let outgoing = &self.rpcs[slot as usize].outgoing;
        if again > 0 || outgoing.is_ready() {
            self.ready.place(slot, outgoing.remaining().saturating_add(again));
        }
    }

    /// Bytes of the message not yet sent, plus bytes to be sent again: the sender's SRPT key (SHARE-5).
    pub(crate) fn left_to_send(&self, slot: u32) -> u32 {
        self.rpcs[slot as usize].outgoing.remaining().saturating_add(self.retransmits.bytes(slot))
    }

    pub(crate) fn max_payload(&self, peer: u32) -> u32 {
        self.peers[peer].max_packet - DATA_HEADER_LEN as u32
    }

    /// SEND-6, SEND-7.
    fn pacer_admits(&mut self, now: Time, payload: u32, slot: u32) -> bool {
        let bytes = payload + DATA_HEADER_LEN as u32;
        if self.pacer.admits(now, bytes) {
            return true;
        }
        self.ready.waits_for_pacer = true;
        self.stats.pacer_waits += 1;
        let backlog = self.pacer.backlog_ns(now).min(u64::from(u32::MAX)) as u32;
        let rpc = &self.rpcs[slot as usize];
        self.trace.record_with(EventKind::WaitPacer, rpc.id, backlog, payload, peer_number(rpc.peer), 0);
        false
    }

    /// Plans the first bytes of `range`, which were sent before. They lie within the grant, and the pacer
    /// applies to them as to any other bytes.
    #[cold]
    fn part_again(&mut self, now: Time, slot: u32, range: &Range<u32>, priority: u8) -> Option<PlannedData> {
        let len = self.max_payload(self.rpcs[slot as usize].peer).min(range.end - range.start);
        if !self.pacer_admits(now, len, slot) {
            return None;
        }
        self.ready.account(len, self.config.max_packet, self.config.pacer_fifo_fraction);
        self.retransmits.sent(slot, len);
        self.stats.retransmits += 1;
        if self.retransmits.bytes(slot) > 0 || self.rpcs[slot as usize].outgoing.is_ready() {
            self.ready.place(slot, self.left_to_send(slot));
        } else {
            self.ready.remove(slot);
        }
        Some(PlannedData { slot, offset: range.start, len, priority, retransmit: true })
    }

    fn fresh_part(&mut self, now: Time, slot: u32) -> Option<PlannedData> {
        let rpc = &self.rpcs[slot as usize];
        let peer = &self.peers[rpc.peer];
        let (offset, len) = rpc.outgoing.next_packet(self.max_payload(rpc.peer));
        let priority = if offset < rpc.outgoing.unscheduled {
            let levels = self.config.num_priorities;
            priority::unscheduled(&peer.cutoffs, peer.cutoff_version, rpc.outgoing.length, levels)
        } else {
            rpc.outgoing.sched_priority
        };
        let retransmit = rpc.outgoing.is_sent_again();
        if !self.pacer_admits(now, len, slot) {
            return None;
        }
        self.ready.account(len, self.config.max_packet, self.config.pacer_fifo_fraction);
        self.advance_message(now, slot, len);
        Some(PlannedData { slot, offset, len, priority, retransmit })
    }

    /// `len` more bytes of the message count as sent.
    pub(crate) fn advance_message(&mut self, now: Time, slot: u32, len: u32) {
        let rpc = &mut self.rpcs[slot as usize];
        if !rpc.outgoing.is_sent_again() {
            rpc.progress_at = now;
        }
        rpc.outgoing.next += len;
        rpc.quiet_since = now;
        if rpc.outgoing.is_ready() {
            let remaining = rpc.outgoing.remaining();
            self.ready.place(slot, remaining);
            return;
        }
        self.ready.remove(slot);
        if !rpc.outgoing.all_sent() {
            let (granted, length) = (rpc.outgoing.granted, rpc.outgoing.length);
            self.trace.record_with(EventKind::WaitGrant, rpc.id, granted, length, peer_number(rpc.peer), 0);
        }
        if rpc.state == RpcState::Requesting {
            self.await_peer(now, slot);
        } else if rpc.outgoing.all_sent() {
            (rpc.tries, rpc.backoff) = (0, 0);
            self.watch_within(now, slot, self.config.need_ack_interval_ns); // ACK-9
        }
    }

    pub(crate) fn data_packet(&mut self, now: Time, part: &PlannedData) -> Transmit {
        let rpc = &self.rpcs[part.slot as usize];
        let common = self.common(rpc.port, rpc.peer_port, rpc.id);
        let peer = &mut self.peers[rpc.peer];
        // WIRE-23: a kernel gets zeros in this field, as it sends zeros there.
        let bundle_endpoints = if peer.is_ours() { self.bundle_endpoints } else { 0 };
        let common = Common { bundle_endpoints, ..common };
        // INCAST-1, INCAST-7: for a kernel this field is padding, and must stay zero.
        let tells_limit =
            rpc.state.is_client() && rpc.response_limit != u32::MAX && (peer.is_ours() || !peer.heard);
        let data = Data {
            message_length: rpc.outgoing.length,
            incoming: rpc.outgoing.granted.max(rpc.outgoing.unscheduled),
            ack: peer.acks.pop(),                // ACK-2
            cutoff_version: peer.cutoff_version, // PRIO-5
            retransmit: part.retransmit,
            offset: part.offset,
            response_limit: tells_limit.then_some(rpc.response_limit),
        };
        let needs_grant = rpc.outgoing.unscheduled < rpc.outgoing.length;
        if part.offset == 0
            && !part.retransmit
            && needs_grant
            && rpc.outgoing.unscheduled >= peer.unsched_bytes(&self.config)
        {
            peer.rtt.sent(now, rpc.id); // RTT-1
        }
        let header = wire::encode(&common, &Body::Data(data));
        let bytes = DATA_HEADER_LEN as u32 + part.len;
        self.stats.packets_sent += 1;
        self.stats.data_sent += 1;
        self.stats.data_bytes_sent += u64::from(part.len);
        self.pacer.sent(now, bytes);
        self.last_sent = now;
        let word = packet_word(wire::PacketType::Data as u8, bytes);
        let priority = part.priority.min(self.config.num_priorities - 1); // PRIO-1
        let number = peer_number(rpc.peer);
        self.trace.record_with(EventKind::PacketSent, rpc.id, word, part.offset, number, priority);
        Transmit {
            to: peer.addr,
            priority,
            bundle: peer.bundle(rpc.id),
            header,
            payload: Some(PayloadRange { rpc: self.key(part.slot), offset: part.offset, len: part.len }),
        }
    }

    /// The header of a packet of this host (ID-7).
    pub(crate) fn common(&self, source_port: u16, dest_port: u16, sender_id: u64) -> Common {
        Common { source_port, dest_port, sender_id, incarnation: self.incarnation, bundle_endpoints: 0 }
    }

    /// Queues a control packet of a live RPC.
    pub(crate) fn send_control(&mut self, slot: u32, body: Body) {
        let rpc = &self.rpcs[slot as usize];
        let common = self.common(rpc.port, rpc.peer_port, rpc.id);
        let (peer, is_client) = (rpc.peer, rpc.state.is_client());
        if is_client || self.take_credit(Some(peer), &common, &body) {
            self.queue_control((self.peers[peer].addr, Some(peer)), &common, &body);
        }
    }

    /// Takes the bytes of a control packet from the credit of an unproven peer (SHARE-9). Returns whether the
    /// packet may be sent. An address that is no peer has no credit, and gets answers alone, none of which
    /// has more than three times the bytes of the packet that it answers.
    pub(crate) fn take_credit(&mut self, peer: Option<u32>, common: &Common, body: &Body) -> bool {
        let Some(peer) = peer.filter(|&peer| !self.peers[peer].served) else { return true };
        let may = self.peers[peer].may_have(wire::encode(common, body).as_slice().len());
        self.stats.drop_unproven_limit += u64::from(!may);
        may
    }

    /// Queues a control packet (PRIO-2) to an address, and to the peer there if it is known.
    pub(crate) fn queue_control(
        &mut self,
        (to, peer): (SocketAddr, Option<u32>),
        common: &Common,
        body: &Body,
    ) {
        if self.control.len() >= self.config.max_control_packets as usize {
            self.stats.drop_control_limit += 1; // LIMIT-6
            return;
        }
        let header = wire::encode(common, body);
        let word = packet_word(body.packet_type() as u8, header.as_slice().len() as u32);
        let priority = self.config.num_priorities - 1;
        let number = peer.map_or(0, peer_number);
        self.trace.record_with(EventKind::PacketSent, common.sender_id, word, 0, number, priority);
        let bundle = peer.and_then(|peer| self.peers[peer].bundle(common.sender_id));
        self.control.push_back(Transmit { to, priority, bundle, header, payload: None });
    }

    /// Answers a RESEND for an RPC that does not exist here, or DATA that is refused with a reason
    /// (RESEND-19). The answer swaps the packet's ports and inverts its id.
    pub(crate) fn send_unknown(&mut self, to: SocketAddr, heard: &Common, reason: UnknownReason) {
        let common = self.common(heard.dest_port, heard.source_port, heard.sender_id ^ 1);
        let peer = self.peers.find(&to);
        // INCAST-6: a request of which nothing arrived is sent again, and must not overflow the same queue
        // again.
        // LIMIT-6: if there is room for only one packet, it is the answer.
        let has_room = self.control.len() + 2 <= self.config.max_control_packets as usize;
        if has_room && reason == UnknownReason::Unknown && heard.sender_id & 1 == 0 && !self.knows_limit(&to)
        {
            let cutoffs = self.present_cutoffs();
            if self.take_credit(peer, &common, &cutoffs) {
                self.queue_control((to, None), &common, &cutoffs);
            }
        }
        let answer = Body::RpcUnknown(reason);
        if self.take_credit(peer, &common, &answer) {
            self.stats.unknowns_sent += 1;
            self.queue_control((to, None), &common, &answer);
        }
    }

    /// Whether there is no limit, or the peer's last DATA was already sent under it.
    fn knows_limit(&self, from: &SocketAddr) -> bool {
        let peer = || self.peers.find(from);
        let kept = |peer| self.peers[peer].cutoffs_kept == self.cutoffs.version();
        let reads_none = |peer| self.dialect_of(peer) == Dialect::Three; // DIALECT-11
        self.incast_estimator.limit().is_none() || peer().is_some_and(|peer| kept(peer) || reads_none(peer))
    }

    /// Sends a peer our cutoffs, unless the same version was sent a moment ago.
    pub(crate) fn send_cutoffs(&mut self, now: Time, slot: u32, peer: u32) {
        if self.dialect_of(peer) == Dialect::Three {
            return; // DIALECT-11
        }
        let known = &mut self.peers[peer];
        let version = self.cutoffs.version();
        if known.cutoffs_sent.is_some_and(|(at, told)| told == version && now.since(at) < CUTOFFS_SPACING_NS)
        {
            return;
        }
        known.cutoffs_sent = Some((now, version));
        let cutoffs = self.present_cutoffs();
        self.send_control(slot, cutoffs);
    }

    /// INCAST-6: if the peer was not yet sent the present limit in an answer to its DATA, the limit goes with
    /// the next response.
    pub(crate) fn tell_limit(&mut self, now: Time, slot: u32, peer: u32) {
        let told = self.peers[peer].cutoffs_sent.map(|(_, version)| version);
        if self.incast_estimator.limit().is_some()
            && self.peers[peer].is_ours()
            && told != Some(self.cutoffs.version())
        {
            self.send_cutoffs(now, slot, peer);
        }
    }

    fn present_cutoffs(&mut self) -> Body {
        self.stats.cutoffs_sent += 1;
        Body::Cutoffs(wire::Cutoffs {
            cutoffs: *self.cutoffs.levels(),
            version: self.cutoffs.version(),
            unsched_limit: self.incast_estimator.limit(),
        })
    }
}
