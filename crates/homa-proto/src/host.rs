//! What an endpoint has in common with others: the processes that share a host's address are one host to its peers
//! (PROTOCOL.md HOST).
//!
//! An endpoint that has its address to itself needs none of this. One that has not is given its part of what there is only
//! once: RPC ids, grant budget, uplink, cutoffs, ports. The caller finds out what that part is, and with what means.

use homa_trace::{EventKind, Place, packet_word};

use crate::contract::{PortError, RxPacket};
use crate::endpoint::Endpoint;
use crate::incast;
use crate::peer::peer_number;
use crate::srpt::bucket_of;
use crate::time::Time;
use crate::transmit::SUB;
use crate::wire::{self, Body, Common, DATA_HEADER_LEN, PRIORITIES};

/// Most endpoints behind one address: more than one per core gains nothing, and so many fit one word of flags.
pub const MAX_ENDPOINTS: u32 = 64;

impl Endpoint {
    /// Opens a port that was chosen elsewhere, client or server. A server's, 1 to 32767, accepts requests, and a client's
    /// [none yet](Endpoint::accept_requests).
    ///
    /// # Errors
    /// The port is 0, or open.
    pub fn open_port(&mut self, port: u16) -> Result<(), PortError> {
        self.ports.open(port)
    }

    /// Whether a port is open; one that was closed is, until the last of its RPCs has been freed.
    pub fn is_port_open(&self, port: u16) -> bool {
        self.ports.is_open(port)
    }

    /// The process that had this server port is gone, and with it the memory of which requests ran. Until `until` a client
    /// that asks for an RPC of the port which is not known here is told so, and does not send its request again (HOST-10). A
    /// moment that has passed withdraws it.
    pub fn note_lost_owner(&mut self, port: u16, until: Time) {
        if until > self.now {
            self.lost_owners.insert(port, until);
        } else {
            self.lost_owners.remove(&port);
        }
    }

    /// Whether a client's packet is about an RPC that may have been with a process that is gone.
    pub(crate) fn lost_its_owner(&self, now: Time, heard: &Common) -> bool {
        let from_client = heard.sender_id & 1 == 0;
        from_client && self.lost_owners.get(&heard.dest_port).is_some_and(|until| now < *until)
    }

    /// Bytes that could be granted and not received, were there no bound for them: those that are so already, the windows
    /// of the messages that would be granted to, and what may come unasked.
    pub fn grant_demand(&self) -> u64 {
        let granted = self.granted_bytes() + self.grant_windows();
        granted
            + incast::reserved(
                self.now,
                u64::from(self.config.max_incoming),
                &self.unscheduled_quota,
                &self.incast_estimator,
            )
    }

    /// From now on grants raise [`granted_bytes`](Endpoint::granted_bytes) to `bytes` at most, in place of `max_incoming` (HOST-5).
    /// Grants that this allows are given at once.
    pub fn set_grant_budget(&mut self, now: Time, bytes: u64) {
        let now = self.advance(now);
        if self.grants.set_budget(bytes) {
            self.send_grants(now);
        }
    }

    /// Nanoseconds that the uplink needs, or needed, for all that this endpoint has sent; 0 where its rate is unknown.
    pub fn uplink_sent_ns(&self) -> u64 {
        self.pacer.sent_ns()
    }

    /// The uplink needs `backlog_ns` nanoseconds at least for what it was given, by whomever (HOST-6).
    pub fn set_uplink_backlog(&mut self, now: Time, backlog_ns: u64) {
        let now = self.advance(now);
        let others_ns = self.pacer.raise_backlog(now, backlog_ns);
        if self.ready.gives_way && others_ns > 0 {
            // SEND-5 holds for a host: otherwise short messages of others could keep the oldest one here waiting for ever.
            let packet = self.config.max_packet;
            let share = self.config.pacer_fifo_fraction;
            // So many bytes earn a packet; more are not counted.
            let enough = packet.saturating_mul(1000 / share.max(1) + 1);
            self.ready.earn(self.pacer.bytes_in(others_ns, enough), packet, share);
        }
    }

    /// Bytes left of the shortest message that waits for the uplink; `None` where none does. To be asked after `poll_transmit` has
    /// given all there is, and told to the others (HOST-6).
    pub fn waiting_for_uplink(&self) -> Option<u32> {
        let slot = self.ready.shortest_waiting()?;
        Some(self.left_to_send(slot))
    }

    /// Others wait for the uplink with a message of which `shortest` bytes are left, as they have said lately; `None`: they do not.
    /// Where that is less than is left of any message here, this endpoint lets the NIC's backlog run out before it sends, until
    /// it is told otherwise (HOST-6). To be told before `poll_transmit`.
    pub fn share_uplink(&mut self, shortest: Option<u32>) {
        let gives_way = shortest.is_some_and(|shortest| self.is_longer(shortest));
        if gives_way != self.ready.gives_way {
            self.stats.uplink_left_to_others += u64::from(gives_way);
            self.ready.gives_way = gives_way;
            self.pacer.give_way(gives_way);
        }
    }

    /// Whether more than `bytes` are left of the message whose turn it is, by more than the precision of its order (SEND-4).
    fn is_longer(&self, bytes: u32) -> bool {
        let next = self.ready.shortest_in_turn(self.config.max_packet);
        next.is_some_and(|slot| bucket_of(self.left_to_send(slot), SUB) > bucket_of(bytes, SUB))
    }

    /// Takes over the host's cutoffs and their version, which is not 0 (HOST-4).
    pub fn set_cutoffs(&mut self, levels: [u32; PRIORITIES], version: u16) {
        self.stats.cutoff_changes += u64::from((levels, version) != self.cutoffs());
        self.cutoffs.set(levels, version);
    }

    /// Takes over the most bytes of a message that peers are told to send unasked (INCAST-2), for an endpoint that follows;
    /// `None`: they are told nothing. Peers learn it with the cutoffs, whose version has changed with it.
    pub fn set_unsched_limit(&mut self, limit: Option<u32>) {
        self.stats.incast_limit_changes += u64::from(limit != self.incast_estimator.limit());
        self.incast_estimator.set_limit(limit);
    }

    /// Whether another endpoint computes the host's cutoffs. Then this one collects what it observes for
    /// [`take_observed`](Endpoint::take_observed).
    pub fn follow_cutoffs(&mut self, follow: bool) {
        self.cutoffs.followed = follow;
    }

    /// Hands out the unscheduled bytes observed since the last call, as a bucket of message lengths, below
    /// [`CUTOFF_BUCKETS`](crate::CUTOFF_BUCKETS), and a number of bytes. For an endpoint that follows.
    pub fn take_observed(&mut self, take: impl FnMut(usize, u64)) {
        self.cutoffs.take_observed(take);
    }

    /// Counts what another endpoint of this host observed, for the next cutoffs.
    pub fn add_observed(&mut self, bucket: usize, bytes: u64) {
        self.cutoffs.add_observed(bucket, bytes);
    }

    /// Takes a packet for a port of another endpoint of this host, of which at least the header is there. What concerns the
    /// host is used: acknowledgements, cutoffs, the peer's incarnation, and that the peer lives. It never makes state and is
    /// never answered (HOST-7).
    pub fn handle_foreign(&mut self, now: Time, packet: &RxPacket<'_>) {
        let now = self.advance(now);
        self.stats.foreign_received += 1;
        // A DATA packet may have been cut behind its header; one byte of payload makes it whole for the decoder.
        let wire_len = packet.wire_len.max(DATA_HEADER_LEN + 1);
        let rx = RxPacket { wire_len, ..*packet };
        // Whoever owns the port counts what is bad.
        let Ok(decoded) = wire::decode(rx.bytes, rx.wire_len) else { return };
        let word = packet_word(decoded.body.packet_type() as u8, packet.wire_len as u32);
        let (sender_id, sighted) = (decoded.common.sender_id, self.sight_peer(now, &rx, &decoded));
        let number = sighted.as_ref().ok().copied().flatten().map_or(0, peer_number);
        let priority = Place::priority_received(packet.priority);
        self.trace.record_with(EventKind::PacketReceived, sender_id ^ 1, word, 0, number, priority);
        let Ok(peer) = sighted else { return };
        // Nothing is lost with these results: an acknowledgement that finds no RPC is another endpoint's.
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
