//! What an endpoint has in common with others: the processes that share a host's address are one host to its peers
//! (PROTOCOL.md HOST).
//!
//! An endpoint that has its address to itself needs none of this. One that has not is given its part of what there is only
//! once: RPC ids, grant budget, uplink, cutoffs, ports. The caller finds out what that part is, and with what means.

use homa_trace::{EventKind, Place, packet_word};

use crate::config::Config;
use crate::contract::{PortError, RxPacket};
use crate::endpoint::Endpoint;
use crate::incast;
use crate::peer::peer_number;
use crate::srpt::bucket_of;
use crate::time::Time;
use crate::transmit::SUB;
use crate::wire::{self, Body, Common, DATA_HEADER_LEN, PRIORITIES, owner_of};

/// Most endpoints behind one address: more than one per core gains nothing, and so many fit one word of flags.
pub const MAX_ENDPOINTS: u32 = 64;

/// The first id from `id` on, which is even, that this endpoint may give a request: not 0, and one that steers its packets here
/// (ID-4).
pub(crate) fn own_id_from(id: u64, config: &Config) -> u64 {
    let mut id = id;
    if config.endpoints == 1 && id != 0 {
        return id;
    }
    loop {
        let owner = owner_of(id, config.endpoints);
        if owner == config.endpoint && id != 0 {
            return id;
        }
        // Where the lower half of the id wraps, the owners' turns do not go on as before, and this takes a second round.
        let ahead = (config.endpoint + config.endpoints - owner) % config.endpoints;
        id = id.wrapping_add(2 * u64::from(ahead.max(1)));
    }
}

impl Endpoint {
    /// The next requests take of the `count` ids from `first` on, two apart, those that are this endpoint's (ID-4); `first` is even.
    /// After them none is sent until there are more ids (HOST-3). Without a call there is no end to the ids.
    ///
    /// # Panics
    /// `first` is odd.
    pub fn set_ids(&mut self, first: u64, count: u64) {
        assert!(first.is_multiple_of(2), "a client's ids are even (ID-1)");
        let own = own_id_from(first, &self.config);
        let (endpoints, skipped) = (u64::from(self.config.endpoints), own.wrapping_sub(first) / 2);
        // Where the lower half wraps, the owners' turns begin anew: what is behind is left out.
        let before_wrap = (1 << 31) - u64::from(first as u32 >> 1);
        let count = if endpoints > 1 { count.min(before_wrap) } else { count };
        self.next_id = own;
        self.ids_left = count.saturating_sub(skipped).div_ceil(endpoints);
    }

    /// Requests for which there are ids.
    pub fn ids_left(&self) -> u64 {
        self.ids_left
    }

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
            + incast::reserved(self.now, u64::from(self.config.max_incoming), &self.promises, &self.demand)
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
        Some(self.rpcs[slot as usize].outgoing.remaining())
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
        next.is_some_and(|slot| {
            bucket_of(self.rpcs[slot as usize].outgoing.remaining(), SUB) > bucket_of(bytes, SUB)
        })
    }

    /// Takes over the host's cutoffs and their version, which is not 0 (HOST-4).
    pub fn set_cutoffs(&mut self, levels: [u32; PRIORITIES], version: u16) {
        self.stats.cutoff_changes += u64::from((levels, version) != self.cutoffs());
        self.cutoffs.set(levels, version);
    }

    /// Takes over the most bytes of a message that peers are told to send unasked (INCAST-2), for an endpoint that follows;
    /// `None`: they are told nothing. Peers learn it with the cutoffs, whose version has changed with it.
    pub fn set_unsched_limit(&mut self, limit: Option<u32>) {
        self.stats.incast_limit_changes += u64::from(limit != self.demand.limit());
        self.demand.set_limit(limit);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_stay_their_endpoints_own_where_the_lower_half_or_the_whole_wraps() {
        for endpoints in [1, 2, 3, 5, 64] {
            for around in [0, 1 << 32, 1 << 33] {
                let mut taken = Vec::new();
                for endpoint in 0..endpoints {
                    let config = Config { endpoints, endpoint, ..Config::default() };
                    let mut id = own_id_from(u64::wrapping_sub(around, 1_000), &config);
                    for _ in 0..1_000 {
                        assert!(id & 1 == 0 && id != 0 && owner_of(id, endpoints) == endpoint, "{id:x}");
                        taken.push(id.wrapping_sub(around) as i64);
                        id = own_id_from(id.wrapping_add(2), &config);
                    }
                }
                let mut sorted = taken.clone();
                sorted.sort_unstable();
                sorted.dedup();
                assert_eq!(sorted.len(), taken.len(), "no id is given twice");
                assert!(taken.chunks(1_000).all(|ids| ids.is_sorted()), "ids rise");
            }
        }
    }
}
