//! Resources that an endpoint shares with other endpoints. To peers, processes that share an address are one
//! host (PROTOCOL.md HOST).
//!
//! An endpoint that is alone at its address needs none of this. Otherwise the caller assigns it a part of
//! each host-wide resource: RPC ids, grant budget, uplink, cutoffs, ports. The caller decides how large each
//! part is, and how processes agree on it.

use homa_trace::{EventKind, Place, packet_word};

use super::state::Endpoint;
use crate::contract::RxPacket;
use crate::incast;
use crate::peer::peer_number;
use crate::ready::is_clearly_longer;
use crate::time::Time;
use crate::wire::{self, Body, Common, DATA_HEADER_LEN, PRIORITIES};

impl Endpoint {
    /// Announces to peers from now on that datagrams to this host must hold one packet each (WIRE-23). Needed
    /// if the receive path does not select the endpoint by RPC id, or if packets are sent directly over IP.
    pub fn refuse_bundles(&mut self) {
        self.bundle_endpoints = 0;
    }

    /// Records that the process that owned this server port has ended, so that it is no longer known which
    /// requests ran. Until `until`, a client that sends RESEND or retransmitted DATA for an unknown RPC of
    /// the port is notified, and then does not send its request again (HOST-10). A time in the past removes
    /// the record.
    pub fn note_lost_owner(&mut self, port: u16, until: Time) {
        if until > self.now {
            self.tables.lost_owners.insert(port, until);
        } else {
            self.tables.lost_owners.remove(&port);
        }
    }

    /// Returns whether a client's packet belongs to an RPC that may have been served by a process that has
    /// ended.
    pub(super) fn is_owner_lost(&self, now: Time, received: &Common) -> bool {
        let from_client = received.sender_id & 1 == 0;
        from_client && self.tables.lost_owners.get(&received.dest_port).is_some_and(|until| now < *until)
    }

    /// Returns the bytes that would be granted and not yet received if there were no limit: the bytes already
    /// granted, the windows of the messages that would receive grants, and the unscheduled bytes that may
    /// arrive.
    pub fn grant_demand(&self) -> u64 {
        let granted = self.granted_bytes() + self.grant_windows();
        granted
            + incast::reserved(
                self.now,
                u64::from(self.config.max_incoming),
                &self.receiving.unscheduled_quota,
                &self.receiving.incast_estimator,
            )
    }

    /// Sets the maximum to which grants may raise [`granted_bytes`](Endpoint::granted_bytes), in place of
    /// `max_incoming` (HOST-5). Grants that this makes possible are sent immediately.
    pub fn set_grant_budget(&mut self, now: Time, bytes: u64) {
        let now = self.advance(now);
        if self.receiving.grants.set_budget(bytes) {
            self.send_grants(now);
        }
    }

    /// Returns the total serialization delay of all packets that this endpoint has sent, in nanoseconds; 0 if
    /// the uplink's rate is unknown.
    pub fn uplink_sent_ns(&self) -> u64 {
        self.sending.pacer.sent_ns()
    }

    /// Reports that the uplink needs at least `backlog_ns` nanoseconds to send the queued packets of all
    /// endpoints (HOST-6).
    pub fn set_uplink_backlog(&mut self, now: Time, backlog_ns: u64) {
        let now = self.advance(now);
        let others_ns = self.sending.pacer.raise_backlog(now, backlog_ns);
        if self.sending.ready.gives_way && others_ns > 0 {
            // SEND-5 applies to the whole host: otherwise short messages of other endpoints could delay the
            // oldest message here forever.
            let packet = self.config.max_packet;
            let share = self.config.pacer_fifo_fraction;
            // This many bytes earn the credit for one packet; more bytes are not counted.
            let enough = packet.saturating_mul(1000 / share.max(1) + 1);
            self.sending.ready.earn(self.sending.pacer.bytes_in(others_ns, enough), packet, share);
        }
    }

    /// Returns the remaining bytes of the shortest message that waits for the uplink; `None` if none waits.
    /// Call it after `poll_transmit` has returned all packets, and pass the result to the other endpoints
    /// (HOST-6).
    pub fn waiting_for_uplink(&self) -> Option<u32> {
        let slot = self.sending.ready.shortest_waiting()?;
        Some(self.left_to_send(slot))
    }

    /// Sets the remaining bytes of the shortest message that waits for the uplink at any other endpoint;
    /// `None`: none waits. If every message here is longer, this endpoint sends only when the NIC's backlog
    /// has drained, until the next call (HOST-6). Call it before `poll_transmit`.
    pub fn share_uplink(&mut self, shortest: Option<u32>) {
        let gives_way = shortest.is_some_and(|shortest| self.is_longer(shortest));
        if gives_way != self.sending.ready.gives_way {
            self.stats.uplink_left_to_others += u64::from(gives_way);
            self.sending.ready.gives_way = gives_way;
            self.sending.pacer.give_way(gives_way);
        }
    }

    /// Returns whether the message whose turn it is has more than `bytes` left to send, by more than the
    /// precision of the send order (SEND-4).
    fn is_longer(&self, bytes: u32) -> bool {
        let next = self.sending.ready.shortest_in_turn(self.config.max_packet);
        next.is_some_and(|slot| is_clearly_longer(self.left_to_send(slot), bytes))
    }

    /// Adopts the host's cutoffs and their version, which must not be 0 (HOST-4).
    pub fn set_cutoffs(&mut self, levels: [u32; PRIORITIES], version: u16) {
        self.stats.cutoff_changes += u64::from((levels, version) != self.cutoffs());
        self.receiving.cutoffs.set(levels, version);
    }

    /// Adopts the host's limit on the unscheduled bytes of a message (INCAST-2), on an endpoint that
    /// [follows](Endpoint::follow_cutoffs). `None`: no limit. Peers receive the limit together with the
    /// cutoffs, whose version changes with it.
    pub fn set_unsched_limit(&mut self, limit: Option<u32>) {
        self.stats.incast_limit_changes += u64::from(limit != self.receiving.incast_estimator.limit());
        self.receiving.incast_estimator.set_limit(limit);
    }

    /// Sets whether this endpoint is a follower, that is, whether another endpoint computes the host's
    /// cutoffs. A follower collects its observations for [`take_observed`](Endpoint::take_observed).
    pub fn follow_cutoffs(&mut self, follow: bool) {
        self.receiving.cutoffs.followed = follow;
    }

    /// On a follower, passes to `take` the unscheduled bytes observed since the last call of this function.
    /// The arguments of `take` are a bucket of message lengths, less than
    /// [`CUTOFF_BUCKETS`](crate::CUTOFF_BUCKETS), and a number of bytes.
    pub fn take_observed(&mut self, take: impl FnMut(usize, u64)) {
        self.receiving.cutoffs.take_observed(take);
    }

    /// Adds bytes observed by another endpoint of this host to the traffic from which the next cutoffs are
    /// computed.
    pub fn add_observed(&mut self, bucket: usize, bytes: u64) {
        self.receiving.cutoffs.add_observed(bucket, bytes);
    }

    /// Handles a packet for a port of another endpoint of this host; at least its header must be present.
    /// Only host-wide information is used: acknowledgements, cutoffs, the peer's incarnation, and the fact
    /// that the peer is alive. Such a packet never creates state and is never answered (HOST-7).
    pub fn handle_foreign(&mut self, now: Time, packet: &RxPacket<'_>) {
        let now = self.advance(now);
        self.stats.foreign_received += 1;
        // A DATA packet may have been cut after its header; one byte of payload makes it complete for the
        // decoder.
        let wire_len = packet.wire_len.max(DATA_HEADER_LEN + 1);
        let rx = RxPacket { wire_len, ..*packet };
        // The endpoint that owns the port counts invalid packets.
        let Ok(decoded) = wire::decode(rx.bytes, rx.wire_len) else { return };
        let word = packet_word(decoded.body.packet_type() as u8, packet.wire_len as u32);
        let (sender_id, sender) = (decoded.common.sender_id, self.identify_sender(now, &rx, &decoded));
        let number = sender.as_ref().ok().copied().flatten().map_or(0, peer_number);
        let priority = Place::priority_received(packet.priority);
        self.trace.record_with(EventKind::PacketReceived, sender_id ^ 1, word, 0, number, priority);
        let Ok(peer) = sender else { return };
        // The results can be ignored: an acknowledgement of an RPC that is not here belongs to another
        // endpoint.
        match &decoded.body {
            Body::Data(data) => {
                if let (Some(peer), Some(ack)) = (peer, data.ack) {
                    self.acknowledged(now, peer, ack.client_id);
                }
            }
            Body::Ack(acks) => drop(self.handle_ack(now, peer, &decoded.common, acks)),
            Body::Cutoffs(cutoffs) => drop(self.handle_cutoffs(peer, cutoffs)),
            Body::Freeze => self.note_freeze(rx.from),
            _ => {}
        }
    }
}
