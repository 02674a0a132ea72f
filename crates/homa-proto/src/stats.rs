//! All counters of an endpoint.

/// Defines [`Stats`] with one documented `u64` per counter, and its list of names and values.
macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Counts of an endpoint since its creation. Each reason to drop a packet has its own counter.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Stats {
            /// Returns every counter's name, value and meaning, in the order of declaration.
            pub fn entries(&self) -> Vec<(&'static str, u64, &'static str)> {
                vec![$((stringify!($name), self.$name, concat!($($doc),+)),)+]
            }

            /// Adds the counts of another endpoint of the same host.
            pub fn add(&mut self, other: &Stats) {
                $(self.$name = self.$name.wrapping_add(other.$name);)+
                self.pacer_off = self.pacer_off.min(1);
            }
        }
    };
}

counters! {
    /// Packets received, of all types, valid or not.
    packets_received,
    /// Packets given out to be sent.
    packets_sent,
    /// Payload bytes of DATA packets received, duplicates included.
    data_bytes_received,
    /// Payload bytes of DATA packets sent, retransmissions included.
    data_bytes_sent,
    /// DATA packets received.
    data_received,
    /// DATA packets sent.
    data_sent,
    /// GRANT packets received.
    grants_received,
    /// GRANT packets sent.
    grants_sent,
    /// Grants to the oldest message.
    fifo_grants,
    /// RESEND packets received.
    resends_received,
    /// RESEND packets sent.
    resends_sent,
    /// Paths for which the packet size was reduced, because long packets did not arrive.
    paths_narrowed,
    /// RPC_UNKNOWN packets received.
    unknowns_received,
    /// RPC_UNKNOWN packets sent.
    unknowns_sent,
    /// BUSY packets received.
    busys_received,
    /// BUSY packets sent.
    busys_sent,
    /// CUTOFFS packets received.
    cutoffs_received,
    /// CUTOFFS packets sent.
    cutoffs_sent,
    /// NEED_ACK packets received.
    need_acks_received,
    /// NEED_ACK packets sent.
    need_acks_sent,
    /// ACK packets received.
    acks_received,
    /// ACK packets sent.
    acks_sent,
    /// START_MSG packets received.
    starts_received,
    /// START_MSG packets received for messages that had already begun.
    starts_repeated,
    /// START_MSG packets sent.
    starts_sent,
    /// FREEZE packets received.
    freezes_received,
    /// FREEZE packets sent.
    freezes_sent,
    /// Packets for ports of other processes of this host. Only their host-wide parts are processed, and no
    /// other counter includes them.
    foreign_received,
    /// DATA packets retransmitted because of a RESEND.
    retransmits,
    /// RESENDs answered only in part, or by BUSY, because the peer's retransmission budget was used up.
    resends_over_budget,
    /// Requests started by our clients.
    requests_started,
    /// Requests delivered to our servers.
    requests_delivered,
    /// Requests delivered to our servers before they were complete. Each is also counted in
    /// `requests_delivered` once it is complete.
    requests_taken_early,
    /// Responses delivered to our clients.
    responses_delivered,
    /// Responses started by our servers.
    responses_started,
    /// Client RPCs that ended in an error.
    rpcs_failed,
    /// Client RPCs that failed because the peer did not answer.
    rpcs_timed_out,
    /// RPCs aborted by their caller.
    rpcs_aborted,
    /// Requests restarted after RPC_UNKNOWN.
    requests_restarted,
    /// Server RPCs freed because their client was silent for too long.
    clients_silent,
    /// Times that a peer's packets showed a different dialect than before.
    dialect_changes,
    /// Restarts of peers.
    peer_restarts,
    /// RESENDs sent to challenge a peer to prove its incarnation.
    challenges_sent,
    /// Peers forgotten to make room for others.
    peers_evicted,
    /// Half-received requests of unproven peers that were evicted to make room for others.
    unproven_evicted,
    /// Times the cutoffs changed.
    cutoff_changes,
    /// Round-trip time samples.
    rtt_samples,
    /// Requests that limit the unscheduled bytes of their response.
    requests_limited,
    /// Changes of the announced limit of unscheduled bytes.
    incast_limit_changes,
    /// Messages whose unscheduled bytes were lost and requested again.
    unscheduled_lost,
    /// Messages that lost their grants and their place among the active messages, because too few of the
    /// granted bytes arrived.
    messages_stalled,
    /// Packets that had to wait for the pacer.
    pacer_waits,
    /// Times that messages of this endpoint began to wait because another endpoint of this host had a shorter
    /// message waiting for the uplink.
    uplink_left_to_others,
    /// 1 if the uplink's rate is unknown and the pacer does not pace.
    pacer_off,
    /// Finished ids forgotten early because the table was full.
    finished_forgotten,
    /// Dropped: not a valid Homa packet.
    drop_invalid,
    /// Dropped: DATA whose bytes had all arrived before.
    drop_duplicate,
    /// Dropped: a request that has finished, or a RESEND for such a request from a peer that ignores the
    /// reason in RPC_UNKNOWN.
    drop_finished,
    /// Dropped: a request while the table of finished ids is full.
    drop_finished_full,
    /// Dropped: for an RPC that does not exist, or no longer exists.
    drop_unknown_rpc,
    /// Dropped: a request for a port with no server.
    drop_no_port,
    /// Dropped: retransmitted packet of a request that may have run in a process that has ended.
    drop_owner_gone,
    /// Dropped: packet for an RPC of a different peer.
    drop_wrong_peer,
    /// Dropped: packet of an earlier incarnation of the peer.
    drop_stale_incarnation,
    /// Dropped: packet of a later incarnation of the peer that is not proven yet.
    drop_unproven_incarnation,
    /// Dropped: message longer than `max_message`.
    drop_too_large,
    /// Dropped: message length differs from the one first announced.
    drop_length_mismatch,
    /// Dropped: START_MSG of length 0.
    drop_start_empty,
    /// Dropped: START_MSG of a message longer than `max_message`.
    drop_start_too_large,
    /// Dropped: START_MSG whose length differs from the known length of the message.
    drop_start_mismatch,
    /// Dropped: START_MSG of a request that has finished.
    drop_start_finished,
    /// Dropped: a packet whose form belongs to no single dialect.
    drop_mixed_forms,
    /// Dropped: `max_rpcs` reached.
    drop_rpc_limit,
    /// Dropped: `max_incoming_bytes` reached.
    drop_buffer_limit,
    /// Dropped: a request of a peer that has used up its share of RPCs, of bytes or of finished ids.
    /// `PeerInfo::refused` counts them per peer.
    drop_peer_share,
    /// Dropped: a request of an unproven peer whose address prefix has used up its share of RPCs, of bytes,
    /// of finished ids or of peers.
    drop_prefix_share,
    /// Dropped: `max_peers` reached and none can be forgotten.
    drop_peer_limit,
    /// Dropped: `max_gaps` reached.
    drop_gap_limit,
    /// Dropped: a control packet of ours, `max_control_packets` reached.
    drop_control_limit,
    /// Dropped: a control packet of ours for an unproven peer to which three times the bytes received from it
    /// were already sent.
    drop_unproven_limit,
    /// Dropped: a RESEND, `max_retransmits` reached.
    drop_retransmit_limit,
    /// Dropped: a packet without meaning in the RPC's state, such as a grant while no message is being sent.
    drop_nonsense,
    /// Reports of unreachable ports that were dropped because too many are being processed. A RESEND will
    /// cause another.
    reports_dropped,
    /// Reports of unreachable peers and ports that quote no request of ours, and end nothing: they may be
    /// forged.
    reports_doubted,
    /// Acknowledgements forgotten because too many waited; the server will send NEED_ACK.
    acks_forgotten,
}

/// Why a packet is dropped (TRACE-2). A reference, so that it adds only one word to every result on the
/// packet path; most results carry no cause.
pub(crate) type DropCause = &'static DropReason;

/// The content of a [`DropCause`].
pub(crate) struct DropReason {
    /// The counter that is incremented.
    pub(crate) counter: fn(&mut Stats) -> &mut u64,
    /// The number of this reason in time traces.
    pub(crate) number: u32,
}

/// A [`DropCause`] by the name of its counter.
macro_rules! drop_as {
    ($counter:ident) => {
        const {
            let number = homa_trace::drop_reason(stringify!($counter));
            assert!(number > 0, "time traces have no number for this reason");
            &$crate::stats::DropReason { counter: |stats| &mut stats.$counter, number }
        }
    };
}
pub(crate) use drop_as;
