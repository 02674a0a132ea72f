//! Resources that an endpoint shares with other endpoints. Processes that share a host's address are one host
//! to its peers (PROTOCOL.md HOST).
//!
//! An endpoint that is alone at its address needs none of this. Otherwise it is given its part of the
//! host-wide resources: RPC ids, grant budget, uplink, cutoffs, ports. The caller decides how large each part
//! is, and how processes agree on it.

use homa_trace::{EventKind, Place, packet_word};

use super::state::Endpoint;
use crate::contract::RxPacket;
use crate::incast;
use crate::peer::peer_number;
use crate::ready::is_clearly_longer;
use crate::time::Time;
use crate::wire::{self, Body, Common, DATA_HEADER_LEN, PRIORITIES};

impl Endpoint {
    /// Announces to peers from now on that datagrams to this host hold one packet each (WIRE-23). Packet
    /// paths need this if they select the endpoint by something other than the RPC id, or if packets are sent
    /// directly over IP.
    pub fn refuse_bundles(&mut self) {
        self.bundle_endpoints = 0;
    }

    /// Records that the process that had this server port is gone, and with it the memory of which requests
    /// ran. Until `until`, a client that sends RESEND or retransmitted DATA for an unknown RPC of the port is
    /// notified of that. It then does not send its request again (HOST-10). A time in the past removes the
    /// record.
    pub fn note_lost_owner(&mut self, port: u16, until: Time) {
        if until > self.now {
            self.tables.lost_owners.insert(port, until);
        } else {
            self.tables.lost_owners.remove(&port);
        }
    }

    /// Whether a client's packet belongs to an RPC that may have been served by a process that is gone.
    pub(super) fn is_owner_lost(&self, now: Time, received: &Common) -> bool {
        let from_client = received.sender_id & 1 == 0;
        from_client && self.tables.lost_owners.get(&received.dest_port).is_some_and(|until| now < *until)
    }

    /// Bytes that would be granted and not received without a limit. They are the bytes granted already, the
    /// windows of the messages that would be granted, and the unscheduled bytes that may arrive.
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

    /// Sets the maximum to which grants raise [`granted_bytes`](Endpoint::granted_bytes), in place of
    /// `max_incoming` (HOST-5). Grants that become possible are sent at once.
    pub fn set_grant_budget(&mut self, now: Time, bytes: u64) {
        let now = self.advance(now);
        if self.receiving.grants.set_budget(bytes) {
            self.send_grants(now);
        }
    }

    /// Nanoseconds of uplink time for all packets that this endpoint has sent; 0 if the rate is unknown.
    pub fn uplink_sent_ns(&self) -> u64 {
        self.sending.pacer.sent_ns()
    }

    /// Reports that the uplink needs at least `backlog_ns` nanoseconds for the packets of all endpoints
    /// (HOST-6).
    pub fn set_uplink_backlog(&mut self, now: Time, backlog_ns: u64) {
        let now = self.advance(now);
        let others_ns = self.sending.pacer.raise_backlog(now, backlog_ns);
        if self.sending.ready.gives_way && others_ns > 0 {
            // SEND-5 applies to a host: otherwise short messages of other endpoints could delay the oldest
            // one here for ever.
            let packet = self.config.max_packet;
            let share = self.config.pacer_fifo_fraction;
            // This many bytes earn a packet; more are not counted.
            let enough = packet.saturating_mul(1000 / share.max(1) + 1);
            self.sending.ready.earn(self.sending.pacer.bytes_in(others_ns, enough), packet, share);
        }
    }

    /// Bytes left of the shortest message that waits for the uplink; `None` if none waits. Call it after
    /// `poll_transmit` has returned all packets, and pass the result to the other endpoints (HOST-6).
    pub fn waiting_for_uplink(&self) -> Option<u32> {
        let slot = self.sending.ready.shortest_waiting()?;
        Some(self.left_to_send(slot))
    }

    /// Sets the remaining bytes of the shortest message with which other endpoints wait for the uplink;
    /// `None`: none waits. If every message here is longer, this endpoint lets the NIC's backlog run out
    /// before it sends, until the next call (HOST-6). Call it before `poll_transmit`.
    pub fn share_uplink(&mut self, shortest: Option<u32>) {
        let gives_way = shortest.is_some_and(|shortest| self.is_longer(shortest));
        if gives_way != self.sending.ready.gives_way {
            self.stats.uplink_left_to_others += u64::from(gives_way);
            self.sending.ready.gives_way = gives_way;
            self.sending.pacer.give_way(gives_way);
        }
    }

    /// Whether the message whose turn it is has more than `bytes` left, by more than the precision of its
    /// order (SEND-4).
    fn is_longer(&self, bytes: u32) -> bool {
        let next = self.sending.ready.shortest_in_turn(self.config.max_packet);
        next.is_some_and(|slot| is_clearly_longer(self.left_to_send(slot), bytes))
    }

    /// Adopts the host's cutoffs and their version, which must not be 0 (HOST-4).
    pub fn set_cutoffs(&mut self, levels: [u32; PRIORITIES], version: u16) {
        self.stats.cutoff_changes += u64::from((levels, version) != self.cutoffs());
        self.receiving.cutoffs.set(levels, version);
    }

    /// Adopts the maximum unscheduled bytes of a message announced to peers (INCAST-2), for an endpoint that
    /// follows. `None`: no limit. Peers receive it with the cutoffs, whose version changes with it.
    pub fn set_unsched_limit(&mut self, limit: Option<u32>) {
        self.stats.incast_limit_changes += u64::from(limit != self.receiving.incast_estimator.limit());
        self.receiving.incast_estimator.set_limit(limit);
    }

    /// Sets whether another endpoint computes the host's cutoffs. This one then collects its observations for
    /// [`take_observed`](Endpoint::take_observed).
    pub fn follow_cutoffs(&mut self, follow: bool) {
        self.receiving.cutoffs.followed = follow;
    }

    /// Passes the unscheduled bytes observed since the last call to `take`, for an endpoint that follows. The
    /// arguments are a bucket of message lengths, below [`CUTOFF_BUCKETS`](crate::CUTOFF_BUCKETS), and a
    /// number of bytes.
    pub fn take_observed(&mut self, take: impl FnMut(usize, u64)) {
        self.receiving.cutoffs.take_observed(take);
    }

    /// Counts bytes that another endpoint of this host observed, for the next cutoffs.
    pub fn add_observed(&mut self, bucket: usize, bytes: u64) {
        self.receiving.cutoffs.add_observed(bucket, bytes);
    }

    /// Handles a packet for a port of another endpoint of this host; at least its header must be present.
    /// Only host-wide information is used: acknowledgements, cutoffs, the peer's incarnation, and that the
    /// peer is alive. Such a packet never creates state and is never answered (HOST-7).
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
        // These results can be ignored: an acknowledgement without an RPC here belongs to another endpoint.
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
