//! Checks the protocol rules packet by packet, from outside the endpoint. The endpoint's grants, data,
//! acknowledgements and retransmissions are compared with the received packets and with the application's
//! state.
//!
//! [`homa_proto::Endpoint::check`] proves only that a state is consistent, but a wrong decision may leave a
//! consistent state.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use homa_proto::wire::{self, Body, Data, Grant, Packet, Resend};
use homa_proto::{Endpoint, PayloadRange, RpcKey, Stats, Time, Transmit};

use crate::fabric::address_index;
use crate::precedence::Precedence;
use crate::repeats::Repeats;
use crate::store::Store;

/// Maximum message length for a host that shows no incarnation (SEND-13).
const KERNEL_MAX_MESSAGE: u32 = 1_000_000;

/// The oracle's state for one RPC.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    /// Exclusive end of the unscheduled bytes, according to the first packet.
    unscheduled: Option<u32>,
    /// Exclusive end of the bytes that the peer has granted, by GRANT or RESEND.
    granted: u32,
    /// Exclusive end of the sent bytes.
    sent: u32,
    /// Owed bytes: requested by the peer's RESENDs, and not retransmitted yet.
    owed: Vec<Range<u32>>,
    /// Whether the request may have been restarted. If so, its owed bytes are not known from outside the
    /// endpoint.
    restarted: bool,
    /// Whether a RESEND may have been dropped. If so, the owed bytes are not known either.
    unsure: bool,
    /// The step in which a RESEND arrived while no bytes were owed.
    asked_in: Option<u64>,
}

impl Promises {
    /// Returns whether it is certain that no bytes are owed.
    pub(crate) fn is_nothing_owed(&self) -> bool {
        self.owed.is_empty() && !self.restarted && !self.unsure
    }

    /// Returns whether bytes of a message of `length` bytes may be sent for the first time, with no
    /// retransmission owed.
    pub(crate) fn may_send(&self, length: u32) -> bool {
        let may = self.unscheduled.map_or(length, |unscheduled| unscheduled.max(self.granted));
        self.sent < may.min(length) && self.is_nothing_owed()
    }

    /// Returns the number of unsent bytes of a message of `length` bytes.
    pub(crate) fn left(&self, length: u32) -> u32 {
        length.saturating_sub(self.sent)
    }
}

/// Counters before a step, for comparison with those after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    grants: u64,
    fifo_grants: u64,
    /// Packets that were dropped, or were answered with RPC_UNKNOWN.
    refused: u64,
}

/// Checks one host.
#[derive(Debug)]
pub(crate) struct Oracle {
    on: bool,
    /// For each host, whether it shows no incarnation.
    kernels: Rc<[bool]>,
    /// Whether queued packets may be sent for an ended RPC whose ID its client has reused.
    pub(crate) held_over: bool,
    /// RPCs that owe retransmissions.
    owing: BTreeSet<RpcKey>,
    repeats: Repeats,
    precedence: Precedence,
    /// Number of steps so far. Each step handles packets or timeouts.
    step: u64,
    /// The step in which the endpoint last checked the path to a peer.
    looked: BTreeMap<u32, u64>,
}

fn refused(stats: &Stats) -> u64 {
    stats.unknowns_sent
        + stats.drop_stale_incarnation
        + stats.drop_unproven_incarnation
        + stats.drop_unknown_rpc
        + stats.drop_wrong_peer
        + stats.drop_invalid
        + stats.drop_nonsense
        + stats.drop_retransmit_limit
        + stats.resends_over_budget
}

impl Oracle {
    pub(crate) fn new(on: bool, kernels: Rc<[bool]>) -> Oracle {
        Oracle {
            on,
            kernels,
            held_over: false,
            owing: BTreeSet::new(),
            repeats: Repeats::default(),
            precedence: Precedence::default(),
            step: 0,
            looked: BTreeMap::new(),
        }
    }

    /// Clears all state, as a crash does.
    pub(crate) fn reset(&mut self) {
        self.owing.clear();
        self.repeats.reset();
        self.precedence = Precedence::default();
        self.looked.clear();
    }

    /// Records that the endpoint checked the path to `peer`.
    pub(crate) fn record_path_check(&mut self, peer: u32) {
        self.looked.insert(peer, self.step);
    }

    /// Records the counters before packets or timeouts are handled.
    pub(crate) fn snapshot_before(&mut self, endpoint: &Endpoint) -> Option<Before> {
        self.step += 1;
        let stats = endpoint.stats();
        self.on.then(|| Before {
            grants: stats.grants_sent,
            fifo_grants: stats.fifo_grants,
            refused: refused(stats),
        })
    }

    /// Checks the results after packets or timeouts were handled, before anything is sent.
    pub(crate) fn after<'a>(
        &mut self,
        before: Option<Before>,
        endpoint: &Endpoint,
        store: &mut Store,
        packets: impl Iterator<Item = (u32, &'a [u8], u32)>,
    ) {
        let Some(before) = before else { return };
        check_budget(before, endpoint, store);
        // A dropped packet needs no answer, and it is not known from outside which packet of a burst was
        // dropped.
        let all_taken = refused(endpoint.stats()) == before.refused;
        for (from, bytes, wire_len) in packets {
            if let Ok(packet) = wire::decode(bytes, wire_len as usize) {
                self.received(endpoint, store, from, &packet, all_taken);
            }
        }
    }

    fn received(&mut self, endpoint: &Endpoint, store: &mut Store, from: u32, packet: &Packet, taken: bool) {
        let id = packet.common.sender_id;
        let Some(key) = find(endpoint, store, from, id & !1, id & 1 == 1) else { return };
        let Some(entry) = store.get(key) else { return };
        let promises = &mut entry.promises;
        match packet.body {
            Body::Grant(Grant { offset, .. }) => promises.granted = promises.granted.max(offset),
            Body::RpcUnknown(_) => {
                promises.restarted = true;
                promises.owed.clear();
            }
            Body::Resend(Resend { offset, length, .. }) => {
                let end = length.map_or(promises.sent, |length| offset.saturating_add(length));
                promises.granted = promises.granted.max(end);
                let asked = offset..end.min(promises.sent);
                let begun = if entry.is_client { entry.incoming == 0 } else { entry.outgoing > 0 };
                if taken && begun && !promises.restarted && !asked.is_empty() {
                    if promises.is_nothing_owed() {
                        promises.asked_in = Some(self.step);
                    }
                    promises.owed.push(asked);
                    self.owing.insert(key);
                } else {
                    promises.unsure = true;
                }
            }
            _ => {}
        }
    }

    /// Checks a packet that the endpoint sends.
    pub(crate) fn sends(&mut self, now: Time, endpoint: &Endpoint, store: &mut Store, transmit: &Transmit) {
        if !self.on {
            return;
        }
        // The RPCs of a lost peer end in small groups. Here, all of them count as ended from the start.
        let ending = endpoint.poll_timeout().is_some_and(|at| at <= now);
        let wire_len = transmit.header.len() + transmit.payload.map_or(0, |range| range.len as usize);
        let Ok(packet) = wire::decode(&transmit.header, wire_len) else {
            return store.violation("sends what is no packet".to_owned());
        };
        let levels = endpoint.config().num_priorities;
        if transmit.priority >= levels || transmit.payload.is_none() && transmit.priority + 1 != levels {
            store.violation(format!("sends {packet:?} with priority {} of {levels}", transmit.priority));
        }
        let to = address_index(transmit.to);
        match packet.body {
            Body::Data(data) => {
                if let Some(ack) = data.ack.filter(|_| !ending) {
                    check_ack(endpoint, store, to, ack.client_id);
                }
                if let Some(range) = transmit.payload {
                    self.repeats(now, endpoint, store, to, (range, &data));
                    self.sends_again(endpoint, store, to, range, data.retransmit);
                    let to_kernel = self.kernels.get(to as usize).is_some_and(|kernel| *kernel);
                    sends_bytes(store, range, &data, to_kernel);
                }
            }
            Body::Ack(acks) if !ending => {
                let header = (packet.common.sender_id & 1 == 0).then_some(packet.common.sender_id);
                for id in acks.iter().map(|ack| ack.client_id).chain(header) {
                    check_ack(endpoint, store, to, id);
                }
            }
            Body::Grant(grant) if !self.held_over => check_window(endpoint, store, to, &packet, grant),
            _ => {}
        }
    }

    /// SHARE-4: checks the retransmitted bytes against the peer's budget.
    fn repeats(
        &mut self,
        now: Time,
        endpoint: &Endpoint,
        store: &mut Store,
        to: u32,
        (range, data): (PayloadRange, &Data),
    ) {
        let Some(entry) = store.get(range.rpc) else { return };
        let promises = &mut entry.promises;
        if promises.unscheduled.is_none() || promises.restarted && range.offset == 0 {
            self.repeats.begins(now, to, data.message_length);
        }
        // If the request was restarted, its data was not requested by a RESEND.
        if data.retransmit
            && !promises.restarted
            && let Err(violation) = self.repeats.sends(now, to, range.len, endpoint)
        {
            store.violation(violation);
        }
    }

    /// SHARE-5, SEND-15: checks that retransmissions do not precede too many bytes of shorter messages, and
    /// that the path was checked before.
    fn sends_again(
        &mut self,
        endpoint: &Endpoint,
        store: &mut Store,
        to: u32,
        range: PayloadRange,
        again: bool,
    ) {
        if let Err(violation) = self.precedence.sends(endpoint, store, range, again) {
            store.violation(violation);
        }
        let Some(entry) = store.get(range.rpc).filter(|entry| again && !entry.promises.restarted) else {
            return;
        };
        let looked = self.looked.get(&to).copied();
        if entry.promises.asked_in.is_some_and(|asked| looked.is_none_or(|looked| looked < asked)) {
            let rpc = range.rpc;
            store
                .violation(format!("SEND-15: {rpc:?} sends again to host {to}, whose path nobody looked at"));
        }
    }

    /// Checks the state when the endpoint has nothing more to send, either now or after a delay.
    pub(crate) fn has_sent_all(&mut self, endpoint: &Endpoint, store: &mut Store) {
        for key in std::mem::take(&mut self.owing) {
            let Some(entry) = store.get(key).filter(|_| endpoint.rpc_id(key).is_some()) else { continue };
            let answered = entry.is_client && entry.incoming > 0;
            let owed = std::mem::take(&mut entry.promises.owed);
            if !answered && !owed.is_empty() {
                store.violation(format!("RESEND-8: {key:?} was asked for {owed:?} and does not send it"));
            }
        }
    }
}

/// Finds the open RPC with this host and this even ID.
fn find(endpoint: &Endpoint, store: &Store, peer: u32, id: u64, is_client: bool) -> Option<RpcKey> {
    let names = |entry: &&crate::store::Entry| {
        entry.id == id && entry.peer == peer && entry.is_client == is_client && id != 0
    };
    store.iter().filter(names).map(|entry| entry.key).find(|&key| endpoint.rpc_id(key).is_some())
}

/// GRANT-5: checks that no grant raises the granted but not yet received bytes above the budget.
fn check_budget(before: Before, endpoint: &Endpoint, store: &mut Store) {
    let (stats, config) = (endpoint.stats(), endpoint.config());
    let fifo = stats.fifo_grants - before.fifo_grants;
    let others = stats.grants_sent - before.grants - fifo;
    let most = u64::from(config.max_incoming) + fifo * u64::from(config.fifo_grant_increment);
    let granted = endpoint.counted_bytes();
    if others > 0 && granted > most {
        store.violation(format!("GRANT-5: {granted} bytes are granted and not received, above {most}"));
    }
}

/// GRANT-4: checks that a grant extends at most one window beyond the received bytes. Bytes received since
/// the grant was chosen only increase the limit.
fn check_window(endpoint: &Endpoint, store: &mut Store, to: u32, packet: &Packet, grant: Grant) {
    let config = endpoint.config();
    // A FIFO grant is recognised by its priority, if no other grant has that priority.
    let fifo = config.num_priorities.saturating_sub(2).max(config.max_sched_prio);
    let shares = config.grant_fifo_fraction > 0 && config.fifo_grant_increment > 0;
    let id = packet.common.sender_id;
    let Some(key) = find(endpoint, store, to, id & !1, id & 1 == 0) else { return };
    let Some(entry) = store.get(key) else { return };
    let (received, length) = (entry.received(), entry.incoming);
    let window = if config.window != 0 { config.window } else { (config.windows() / 2).max(1) };
    let reaches_too_far =
        grant.offset > received.saturating_add(window) && !(shares && grant.priority == fifo);
    if reaches_too_far || grant.offset > length {
        store.violation(format!(
            "GRANT-4: {key:?} grants to {} of {length} bytes with {received} there, the window is {window}",
            grant.offset
        ));
    }
}

/// ACK-6: checks that an acknowledged RPC has ended.
fn check_ack(endpoint: &Endpoint, store: &mut Store, to: u32, id: u64) {
    if let Some(key) = find(endpoint, store, to, id, true) {
        store.violation(format!("ACK-6: acknowledges RPC {id}, {key:?}, for whose response it waits"));
    }
}

/// SEND-1, SEND-13: checks that the bytes may be sent, and removes them from the owed bytes.
fn sends_bytes(store: &mut Store, range: PayloadRange, data: &Data, to_kernel: bool) {
    let Some(entry) = store.get(range.rpc) else { return };
    let (promises, is_client, length) = (&mut entry.promises, entry.is_client, data.message_length);
    let end = range.offset.saturating_add(range.len);
    let mut unscheduled = *promises.unscheduled.get_or_insert(data.incoming);
    if promises.restarted && range.offset == 0 {
        // A restarted message has as many unscheduled bytes as the receiver now accepts.
        unscheduled = unscheduled.max(data.incoming);
        promises.unscheduled = Some(unscheduled);
    }
    let may = promises.granted.max(unscheduled);
    promises.sent = promises.sent.max(end);
    let rest = |owed: &Range<u32>| [owed.start..owed.end.min(range.offset), owed.start.max(end)..owed.end];
    promises.owed = promises.owed.iter().flat_map(rest).filter(|part| !part.is_empty()).collect();
    if end > may {
        store.violation(format!("SEND-1: {:?} sends to {end} of {length} bytes and may to {may}", range.rpc));
    }
    // A request may be the first packet to an unknown host.
    if length > KERNEL_MAX_MESSAGE && to_kernel && !is_client {
        store.violation(format!("SEND-13: {:?} answers with {length} bytes", range.rpc));
    }
}
