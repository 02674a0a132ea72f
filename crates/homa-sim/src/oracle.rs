//! What the rules promise packet by packet, seen from outside the endpoint: what it grants, sends, acknowledges and sends
//! again is compared with what came in and with what its application has.
//!
//! [`homa_proto::Endpoint::check`] proves that a state agrees with itself; a wrong decision can leave a state that does.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use homa_proto::wire::{self, Body, Data, Grant, Packet, Resend};
use homa_proto::{Endpoint, PayloadRange, RpcKey, Stats, Time, Transmit};

use crate::fabric::address_index;
use crate::precedence::Precedence;
use crate::repeats::Repeats;
use crate::store::Store;

/// Longest message that a host which shows no incarnation may be sent (SEND-13).
const KERNEL_MAX_MESSAGE: u32 = 1_000_000;

/// What an oracle keeps of one RPC.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    /// Exclusive end of what goes unasked, as the first packet says.
    unscheduled: Option<u32>,
    /// Exclusive end of what the peer has granted, by GRANT or RESEND.
    granted: u32,
    /// Exclusive end of what has been sent.
    sent: u32,
    /// Bytes that the peer asked for again and that have not been sent again yet.
    owed: Vec<Range<u32>>,
    /// The request may have begun anew: what is owed of it cannot be told from outside.
    restarted: bool,
    /// A RESEND may have been dropped or not: what is owed cannot be told from outside, either.
    unsure: bool,
    /// The step in which bytes were asked for again when none were owed.
    asked_in: Option<u64>,
}

impl Promises {
    /// Whether no bytes wait to be sent again, as far as can be told.
    pub(crate) fn owes_nothing(&self) -> bool {
        self.owed.is_empty() && !self.restarted && !self.unsure
    }

    /// Whether bytes of a message of `length` bytes may be sent for the first time, and none are owed.
    pub(crate) fn may_send(&self, length: u32) -> bool {
        let may = self.unscheduled.map_or(length, |unscheduled| unscheduled.max(self.granted));
        self.sent < may.min(length) && self.owes_nothing()
    }

    /// Bytes of a message of `length` bytes that were not sent yet.
    pub(crate) fn left(&self, length: u32) -> u32 {
        length.saturating_sub(self.sent)
    }
}

/// Counters before a step, to tell what it did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    grants: u64,
    fifo_grants: u64,
    /// Packets dropped or answered by RPC_UNKNOWN.
    refused: u64,
}

/// Watches one host.
#[derive(Debug)]
pub(crate) struct Oracle {
    on: bool,
    /// Hosts that show no incarnation.
    kernels: Rc<[bool]>,
    /// Packets may go out that were queued before, for an RPC that is gone and whose id its client has used again.
    pub(crate) held_over: bool,
    /// RPCs that owe bytes.
    owing: BTreeSet<RpcKey>,
    repeats: Repeats,
    precedence: Precedence,
    /// Times that packets or timeouts were handled.
    step: u64,
    /// The step in which the path to a peer was last looked at.
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

    /// Forgets everything, as a crash does.
    pub(crate) fn reset(&mut self) {
        self.owing.clear();
        self.repeats.reset();
        self.precedence = Precedence::default();
        self.looked.clear();
    }

    /// The endpoint has had the path to `peer` looked at.
    pub(crate) fn looks(&mut self, peer: u32) {
        self.looked.insert(peer, self.step);
    }

    /// Before packets or timeouts are handled.
    pub(crate) fn before(&mut self, endpoint: &Endpoint) -> Option<Before> {
        self.step += 1;
        let stats = endpoint.stats();
        self.on.then(|| Before {
            grants: stats.grants_sent,
            fifo_grants: stats.fifo_grants,
            refused: refused(stats),
        })
    }

    /// After packets or timeouts were handled, before anything is sent.
    pub(crate) fn after<'a>(
        &mut self,
        before: Option<Before>,
        endpoint: &Endpoint,
        store: &mut Store,
        packets: impl Iterator<Item = (u32, &'a [u8], u32)>,
    ) {
        let Some(before) = before else { return };
        check_budget(before, endpoint, store);
        // What was dropped is owed no answer; which of a burst it was cannot be told from outside.
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
                    if promises.owes_nothing() {
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

    /// The endpoint gives a packet out.
    pub(crate) fn sends(&mut self, now: Time, endpoint: &Endpoint, store: &mut Store, transmit: &Transmit) {
        if !self.on {
            return;
        }
        // RPCs whose peer is gone end a few at a time, and are over before they have.
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

    /// SHARE-4
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
        // What goes out with a request that begins anew is not asked for by RESEND.
        if data.retransmit
            && !promises.restarted
            && let Err(violation) = self.repeats.sends(now, to, range.len, endpoint)
        {
            store.violation(violation);
        }
    }

    /// SHARE-5, SEND-15
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

    /// The endpoint has nothing more to send, and nothing that only waits for its turn.
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

/// The living RPC with this host, by its even id.
fn find(endpoint: &Endpoint, store: &Store, peer: u32, id: u64, is_client: bool) -> Option<RpcKey> {
    let names = |entry: &&crate::store::Entry| {
        entry.id == id && entry.peer == peer && entry.is_client == is_client && id != 0
    };
    store.iter().filter(names).map(|entry| entry.key).find(|&key| endpoint.rpc_id(key).is_some())
}

/// GRANT-5: no grant raises what is granted and not received above the budget.
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

/// GRANT-4: a grant reaches a window beyond what is there. What came since it was chosen only makes room.
fn check_window(endpoint: &Endpoint, store: &mut Store, to: u32, packet: &Packet, grant: Grant) {
    let config = endpoint.config();
    // A FIFO grant is told by its priority, where no other has that one.
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

/// ACK-6: what is acknowledged is over.
fn check_ack(endpoint: &Endpoint, store: &mut Store, to: u32, id: u64) {
    if let Some(key) = find(endpoint, store, to, id, true) {
        store.violation(format!("ACK-6: acknowledges RPC {id}, {key:?}, for whose response it waits"));
    }
}

/// SEND-1, SEND-13: bytes go out that may, and what is owed becomes less.
fn sends_bytes(store: &mut Store, range: PayloadRange, data: &Data, to_kernel: bool) {
    let Some(entry) = store.get(range.rpc) else { return };
    let (promises, is_client, length) = (&mut entry.promises, entry.is_client, data.message_length);
    let end = range.offset.saturating_add(range.len);
    let mut unscheduled = *promises.unscheduled.get_or_insert(data.incoming);
    if promises.restarted && range.offset == 0 {
        // Sent anew, with as much unasked as the receiver wants by now.
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
    // A request may be the first packet to a host of which nothing is known.
    if length > KERNEL_MAX_MESSAGE && to_kernel && !is_client {
        store.violation(format!("SEND-13: {:?} answers with {length} bytes", range.rpc));
    }
}
