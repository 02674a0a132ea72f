//! A model of a Linux Homa kernel with one peer: what it sends, accepts and drops, according to the known
//! facts of its source. It shares no code with `homa_proto`.
//!
//! | | dialect 1 | dialect 2 | dialect 3 |
//! |---|---|---|---|
//! | a long message begins with | 40,000 bytes | START_MSG | all of it |
//! | the rest comes by | GRANT | GRANT | - |
//! | RESEND has | 37 bytes | 37 bytes | 36 bytes |
//! | START_MSG is | dropped | taken | dropped |
//!
//! [`Quirks`] selects between behaviours that the facts leave open.

use std::collections::{BTreeMap, VecDeque};

use super::format::{
    ACK, BUSY, COMMON_BYTES, CUTOFFS, DATA, DATA_BYTES, GRANT, Head, MINUS_ONE, NEED_ACK, RESEND, START_MSG,
    UNKNOWN, data_offset, least_bytes, packet, put, u16_at, u32_at, u64_at,
};
use super::node::{CLIENT_PORT, Finished, Node, SERVER_PORT, pattern, pattern_holds};
use super::speaker::{Kernel, TrafficCounts};
use crate::payload::mix;

const TICK_NS: u64 = 1_000_000;
/// Ticks without a packet before the first RESEND, and between two RESENDs.
const RESEND_TICKS: u32 = 5;
const TIMEOUT_TICKS: u32 = 100;
/// Ticks between a response and the first NEED_ACK, which is then repeated every tick.
const ACK_TICKS: u32 = 2;
const UNSCHED_BYTES: u32 = 40_000;
const MAX_INCOMING: u32 = 400_000;
const MAX_MESSAGE: u32 = 1_000_000;
const GRANT_STEP: u32 = 10_000;
const CUTOFF_VERSION: u16 = 1;
/// Number of pending acknowledgements at which a client sends a separate packet.
const ACKS: usize = 5;

/// Behaviours that the known facts leave open.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quirks {
    /// Dialect 1 sends the offset in `sequence`, and -1 in `seg.offset`, as it did before July 2026.
    pub offset_in_sequence: bool,
    /// In dialect 2, too, a RESEND beyond the grant acts as a grant.
    pub resend_grants: bool,
    /// Dialect 2 answers a duplicate START_MSG with the last grant.
    pub repeats_grant: bool,
    /// Dialect 2 answers RPC_UNKNOWN with the message's bytes instead of START_MSG.
    pub unknown_sends_data: bool,
    /// Minimum time that the server takes to execute a request.
    pub service_ns: u64,
    /// Maximum additional service time, uniformly distributed.
    pub service_spread_ns: u64,
}

#[derive(Debug, Default)]
struct Out {
    len: u32,
    granted: u32,
    next: u32,
    /// Whether START_MSG opened the message.
    started: bool,
}

#[derive(Debug, Default)]
struct In {
    len: u32,
    granted: u32,
    end: u32,
    gaps: Vec<(u32, u32)>,
    wrong: bool,
}

impl In {
    fn missing(&self) -> u32 {
        self.gaps.iter().map(|(from, to)| to - from).sum()
    }

    fn received(&self) -> u32 {
        self.end - self.missing()
    }

    fn is_whole(&self) -> bool {
        self.received() == self.len
    }

    /// Adds bytes as the kernel does: a packet that partly overlaps a gap or received bytes is dropped
    /// entirely.
    fn take(&mut self, from: u32, to: u32) -> bool {
        if from >= self.end {
            if from > self.end {
                self.gaps.push((self.end, from));
            }
            self.end = to;
            self.gaps.sort_unstable();
            return true;
        }
        let Some(index) = self.gaps.iter().position(|&(start, end)| start <= from && to <= end) else {
            return false;
        };
        let (start, end) = self.gaps.remove(index);
        self.gaps.extend([(start, from), (to, end)].into_iter().filter(|(start, end)| start < end));
        self.gaps.sort_unstable();
        true
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Sending,
    Receiving,
    Serving,
}

#[derive(Debug)]
struct Rpc {
    stage: Stage,
    out: Out,
    inc: Option<In>,
    silent: u32,
    done_ticks: u32,
    token: u64,
    serve_at: u64,
}

/// A simulated kernel.
pub(super) struct KernelModel {
    kernel: Kernel,
    quirks: Quirks,
    segment: u32,
    rpcs: BTreeMap<u64, Rpc>,
    next_id: u64,
    sent: VecDeque<Vec<u8>>,
    acks: VecDeque<u64>,
    peer_cutoffs: u16,
    finished: Vec<Finished>,
    executed: BTreeMap<u64, u32>,
    next_tick: u64,
    counts: TrafficCounts,
}

fn is_client(id: u64) -> bool {
    id & 1 == 0
}

impl KernelModel {
    /// Makes a kernel whose packets carry `segment` bytes of a message.
    pub(super) fn new(kernel: Kernel, quirks: Quirks, segment: u32, first_id: u64) -> KernelModel {
        KernelModel {
            kernel,
            quirks,
            segment,
            rpcs: BTreeMap::new(),
            next_id: first_id & !1,
            sent: VecDeque::new(),
            acks: VecDeque::new(),
            peer_cutoffs: 0,
            finished: Vec::new(),
            executed: BTreeMap::new(),
            next_tick: TICK_NS,
            counts: TrafficCounts::default(),
        }
    }

    fn head(&self, id: u64, kind: u8) -> Head {
        let (sport, dport) =
            if is_client(id) { (CLIENT_PORT, SERVER_PORT) } else { (SERVER_PORT, CLIENT_PORT) };
        Head { sport, dport, kind, id, marked: self.kernel != Kernel::Three }
    }

    fn send_plain(&mut self, id: u64, kind: u8) {
        let bytes = packet(&self.head(id, kind), COMMON_BYTES);
        self.sent.push_back(bytes);
    }

    fn send_start(&mut self, id: u64) {
        let mut bytes = packet(&self.head(id, START_MSG), 32);
        put(&mut bytes, 28, &self.rpcs[&id].out.len.to_be_bytes());
        self.sent.push_back(bytes);
    }

    fn send_resend(&mut self, id: u64, offset: u32, length: u32) {
        self.counts.resends += 1;
        let len = if self.kernel == Kernel::Three { 36 } else { 37 };
        let mut bytes = packet(&self.head(id, RESEND), len);
        put(&mut bytes, 28, &offset.to_be_bytes());
        put(&mut bytes, 32, &length.to_be_bytes());
        if len == 37 {
            bytes[36] = 7;
        }
        self.sent.push_back(bytes);
    }

    fn send_grant(&mut self, id: u64, offset: u32) {
        let mut bytes = packet(&self.head(id, GRANT), 33);
        put(&mut bytes, 28, &offset.to_be_bytes());
        bytes[32] = 3;
        self.sent.push_back(bytes);
    }

    fn send_ack(&mut self, id: u64) {
        let mut bytes = packet(&self.head(id, ACK), 80);
        let mut count = 0;
        while count < ACKS
            && let Some(acked) = self.acks.pop_front()
        {
            put(&mut bytes, 30 + 10 * count, &acked.to_be_bytes());
            put(&mut bytes, 38 + 10 * count, &SERVER_PORT.to_be_bytes());
            count += 1;
        }
        put(&mut bytes, 28, &(count as u16).to_be_bytes());
        self.sent.push_back(bytes);
    }

    /// Sends one whole segment of a message.
    fn send_data(&mut self, id: u64, offset: u32, again: bool) {
        let out = &self.rpcs[&id].out;
        let (total, end) = (out.len, (offset + self.segment).min(out.len));
        let mut bytes = packet(&self.head(id, DATA), DATA_BYTES);
        put(&mut bytes, 28, &total.to_be_bytes());
        if self.kernel == Kernel::One {
            put(&mut bytes, 32, &total.min(UNSCHED_BYTES).to_be_bytes());
        }
        if is_client(id)
            && let Some(acked) = self.acks.pop_front()
        {
            put(&mut bytes, 36, &acked.to_be_bytes());
            put(&mut bytes, 44, &SERVER_PORT.to_be_bytes());
        }
        if self.kernel != Kernel::Three {
            put(&mut bytes, 46, &self.peer_cutoffs.to_be_bytes());
        }
        bytes[48] = u8::from(again);
        let in_sequence = self.kernel == Kernel::One && self.quirks.offset_in_sequence && !again;
        put(&mut bytes, 52, &(if in_sequence { MINUS_ONE } else { offset }).to_be_bytes());
        if in_sequence || self.kernel == Kernel::Three {
            put(&mut bytes, 4, &offset.to_be_bytes());
        }
        bytes.extend((offset..end).map(|at| pattern(id, at)));
        self.sent.push_back(bytes);
    }

    /// Sends all bytes that may be sent for the first time, in whole segments.
    fn send_new(&mut self, id: u64) {
        while let Some(rpc) = self.rpcs.get(&id)
            && rpc.out.next < rpc.out.granted
        {
            let offset = rpc.out.next;
            self.send_data(id, offset, false);
            let segment = self.segment;
            if let Some(rpc) = self.rpcs.get_mut(&id) {
                rpc.out.next = (offset + segment).min(rpc.out.len);
            }
        }
    }

    /// Retransmits the bytes of the range that have been sent, in whole segments. Returns false if none of
    /// the range has been sent.
    fn send_again(&mut self, id: u64, from: u32, to: u32) -> bool {
        let to = to.min(self.rpcs[&id].out.next);
        let offsets: Vec<u32> =
            (from / self.segment * self.segment..to).step_by(self.segment as usize).collect();
        let any = from < to;
        if any {
            offsets.into_iter().for_each(|offset| self.send_data(id, offset, true));
        }
        any
    }

    /// Starts sending a message of `len` bytes.
    fn open(&mut self, id: u64, len: u32) {
        let is_long = len > UNSCHED_BYTES;
        let (granted, started) = match self.kernel {
            Kernel::One => (len.min(UNSCHED_BYTES), false),
            Kernel::Two if is_long => (0, true),
            Kernel::Two | Kernel::Three => (len, false),
        };
        if let Some(rpc) = self.rpcs.get_mut(&id) {
            rpc.out = Out { len, granted, next: 0, started };
        }
        if started {
            self.send_start(id);
        }
        self.send_new(id);
    }

    fn on_start(&mut self, id: u64, bytes: &[u8]) {
        let len = u32_at(bytes, 28);
        if len == 0 || len > MAX_MESSAGE {
            return;
        }
        let Some(rpc) = self.rpc_for_message(id) else { return };
        rpc.silent = 0;
        if rpc.inc.is_some() {
            let granted = rpc.inc.as_ref().map_or(0, |inc| inc.granted);
            if self.quirks.repeats_grant && granted > 0 {
                self.send_grant(id, granted);
            }
            return;
        }
        rpc.stage = Stage::Receiving;
        rpc.inc = Some(In { len, ..In::default() });
        self.grant(id);
    }

    /// Returns the RPC of a message. A request may open a new RPC.
    fn rpc_for_message(&mut self, id: u64) -> Option<&mut Rpc> {
        if !is_client(id) {
            self.rpcs.entry(id).or_insert_with(|| Rpc {
                stage: Stage::Receiving,
                out: Out::default(),
                inc: None,
                silent: 0,
                done_ticks: 0,
                token: 0,
                serve_at: 0,
            });
        }
        self.rpcs.get_mut(&id)
    }

    fn on_data(&mut self, now: u64, id: u64, bytes: &[u8]) {
        let (len, incoming, offset) = (u32_at(bytes, 28), u32_at(bytes, 32), data_offset(bytes));
        let (acked, version) = (u64_at(bytes, 36), u16_at(bytes, 46));
        if acked != 0 {
            self.rpcs.remove(&(acked | 1));
        }
        let payload = &bytes[DATA_BYTES..];
        if len == 0 || len > MAX_MESSAGE || offset >= len || payload.is_empty() {
            return;
        }
        let (kernel, was_known) = (self.kernel, self.rpcs.contains_key(&id));
        let Some(rpc) = self.rpc_for_message(id) else { return };
        rpc.silent = 0;
        if kernel != Kernel::Three && version != CUTOFF_VERSION {
            self.send_cutoffs(id);
        }
        let Some(rpc) = self.rpcs.get_mut(&id) else { return };
        if !is_client(id) && rpc.stage != Stage::Receiving || is_client(id) && !was_known {
            return;
        }
        let granted = if kernel == Kernel::One { incoming.min(len) } else { len };
        let inc = rpc.inc.get_or_insert_with(|| In { len, granted, ..In::default() });
        rpc.stage = Stage::Receiving;
        if inc.len != len {
            return;
        }
        let end = offset.saturating_add(payload.len() as u32).min(len);
        if inc.take(offset, end) {
            let at = if is_client(id) { id | 1 } else { id & !1 };
            inc.wrong |= !pattern_holds(at, offset, &payload[..(end - offset) as usize]);
        }
        inc.granted = inc.granted.max(inc.end);
        if inc.is_whole() { self.message_done(now, id) } else { self.grant(id) }
    }

    fn message_done(&mut self, now: u64, id: u64) {
        let Some(rpc) = self.rpcs.get_mut(&id) else { return };
        let inc = rpc.inc.as_ref();
        let wrong = inc.is_some_and(|inc| inc.wrong);
        self.counts.wrong += u64::from(wrong);
        if is_client(id) {
            let (token, len) = (rpc.token, inc.map_or(0, |inc| inc.len));
            self.rpcs.remove(&id);
            self.finished.push(Finished { token, answer: Some(len) });
            self.acks.push_back(id);
            if self.acks.len() >= ACKS
                && let Some(first) = self.acks.pop_front()
            {
                self.send_ack(first);
            }
            return;
        }
        rpc.stage = Stage::Serving;
        let service_ns = self.quirks.service_ns + mix(mix(id)) % (self.quirks.service_spread_ns + 1);
        rpc.serve_at = now + service_ns;
        *self.executed.entry(id).or_insert(0) += 1;
        if service_ns == 0 {
            self.respond(id);
        }
    }

    fn respond(&mut self, id: u64) {
        let Some(rpc) = self.rpcs.get_mut(&id) else { return };
        (rpc.stage, rpc.silent) = (Stage::Sending, 0);
        let len = rpc.inc.as_ref().map_or(1, |inc| inc.len);
        self.open(id, len);
    }

    fn send_cutoffs(&mut self, id: u64) {
        let mut bytes = packet(&self.head(id, CUTOFFS), 62);
        for (level, cutoff) in [0, 0, 0, 0, 1_000_000_u32, 15_000, 2_800, 200].into_iter().enumerate() {
            put(&mut bytes, 28 + 4 * level, &cutoff.to_be_bytes());
        }
        put(&mut bytes, 60, &CUTOFF_VERSION.to_be_bytes());
        self.sent.push_back(bytes);
    }

    /// Sends a grant for a message's window.
    fn grant(&mut self, id: u64) {
        if self.kernel == Kernel::Three {
            return;
        }
        let waits = |inc: &In| inc.granted < inc.len;
        let active = self.rpcs.values().filter(|rpc| rpc.inc.as_ref().is_some_and(waits)).count();
        let window = MAX_INCOMING / (active as u32 + 1);
        let Some(inc) = self.rpcs.get_mut(&id).and_then(|rpc| rpc.inc.as_mut()) else { return };
        let wanted = (inc.received() + window).min(inc.len);
        if wanted > inc.granted && (wanted == inc.len || wanted - inc.granted >= GRANT_STEP) {
            inc.granted = wanted;
            self.send_grant(id, wanted);
        }
    }

    fn on_resend(&mut self, id: u64, bytes: &[u8]) {
        let (offset, length) = (u32_at(bytes, 28), u32_at(bytes, 32));
        let Some(rpc) = self.rpcs.get_mut(&id) else { return self.send_plain(id, UNKNOWN) };
        if rpc.out.len == 0 {
            return self.send_plain(id, BUSY);
        }
        if is_client(id) && rpc.stage == Stage::Receiving {
            return; // Older than the response.
        }
        let out = &mut rpc.out;
        let end = if length == MINUS_ONE { out.next } else { offset.saturating_add(length).min(out.len) };
        let acts_as_grant = match self.kernel {
            Kernel::One => true,
            Kernel::Two => self.quirks.resend_grants,
            Kernel::Three => false,
        };
        if acts_as_grant && length != MINUS_ONE {
            out.granted = out.granted.max(end);
        }
        if out.started && out.granted == 0 {
            return self.send_start(id);
        }
        let had_new = out.next < out.granted;
        let again = self.send_again(id, offset, end);
        self.send_new(id);
        if !again && !had_new {
            self.send_plain(id, BUSY);
        }
    }

    fn on_unknown(&mut self, id: u64) {
        let Some(rpc) = self.rpcs.get_mut(&id) else { return };
        if !is_client(id) {
            self.rpcs.remove(&id);
            return;
        }
        if rpc.inc.is_some() {
            return;
        }
        if rpc.out.started && !self.quirks.unknown_sends_data {
            (rpc.out.next, rpc.out.granted) = (0, 0);
            return self.send_start(id);
        }
        let next = rpc.out.next;
        self.send_again(id, 0, next);
    }

    fn on_need_ack(&mut self, id: u64) {
        match self.rpcs.get(&id) {
            None => self.send_ack(id),
            Some(rpc) if self.kernel == Kernel::Three && rpc.inc.is_some() => self.ask(id),
            Some(_) => {}
        }
    }

    fn on_ack(&mut self, id: u64, bytes: &[u8]) {
        self.rpcs.remove(&(id | 1));
        for slot in 0..usize::from(u16_at(bytes, 28)).min(ACKS) {
            self.rpcs.remove(&(u64_at(bytes, 30 + 10 * slot) | 1));
        }
    }

    /// Sends RESENDs for missing bytes: first gaps, then granted bytes beyond them.
    fn ask(&mut self, id: u64) {
        let Some(inc) = self.rpcs.get(&id).and_then(|rpc| rpc.inc.as_ref()) else {
            return self.send_resend(id, 0, MINUS_ONE);
        };
        let mut ranges = inc.gaps.clone();
        if inc.end < inc.granted {
            ranges.push((inc.end, inc.granted));
        }
        for (from, to) in ranges {
            self.send_resend(id, from, to - from);
        }
    }

    fn tick_rpc(&mut self, id: u64) {
        let Some(rpc) = self.rpcs.get_mut(&id) else { return };
        let needs_bytes = rpc.inc.as_ref().is_none_or(|inc| inc.received() < inc.granted);
        match rpc.stage {
            Stage::Serving => return,
            Stage::Sending if !is_client(id) => {
                if rpc.out.next < rpc.out.len {
                    return; // A server never sends RESEND on its own initiative.
                }
                rpc.done_ticks += 1;
                if rpc.done_ticks >= ACK_TICKS {
                    self.send_plain(id, NEED_ACK);
                }
                return;
            }
            Stage::Receiving if !needs_bytes => {
                rpc.silent = 0;
                return;
            }
            Stage::Sending | Stage::Receiving => {}
        }
        rpc.silent += 1;
        if rpc.silent >= TIMEOUT_TICKS {
            let token = rpc.token;
            self.rpcs.remove(&id);
            if is_client(id) {
                self.finished.push(Finished { token, answer: None });
            }
        } else if rpc.silent.is_multiple_of(RESEND_TICKS) {
            let waits_for_grant = rpc.stage == Stage::Sending && rpc.out.started && rpc.out.granted == 0;
            if waits_for_grant { self.send_start(id) } else { self.ask(id) }
        }
    }
}

impl Node for KernelModel {
    fn call(&mut self, _: u64, token: u64, length: u32) -> u64 {
        let id = self.next_id;
        self.next_id += 2;
        let rpc = Rpc {
            stage: Stage::Sending,
            out: Out::default(),
            inc: None,
            silent: 0,
            done_ticks: 0,
            token,
            serve_at: 0,
        };
        self.rpcs.insert(id, rpc);
        self.open(id, length);
        id
    }

    fn receive(&mut self, now: u64, bytes: &[u8]) {
        if bytes.len() < COMMON_BYTES {
            return;
        }
        let (kind, id) = (bytes[11], u64_at(bytes, 20) ^ 1);
        if least_bytes(kind, self.kernel).is_none_or(|least| bytes.len() < least) {
            self.counts.dropped += 1;
            return;
        }
        let resets = match kind {
            BUSY => true,
            GRANT => self.kernel != Kernel::Three,
            _ => false,
        };
        if resets && let Some(rpc) = self.rpcs.get_mut(&id) {
            rpc.silent = 0;
        }
        match kind {
            DATA => self.on_data(now, id, bytes),
            GRANT if self.kernel != Kernel::Three => {
                if let Some(rpc) = self.rpcs.get_mut(&id) {
                    rpc.out.granted = rpc.out.granted.max(u32_at(bytes, 28).min(rpc.out.len));
                }
                self.send_new(id);
            }
            RESEND => self.on_resend(id, bytes),
            UNKNOWN => self.on_unknown(id),
            CUTOFFS if self.kernel != Kernel::Three => self.peer_cutoffs = u16_at(bytes, 60),
            NEED_ACK => self.on_need_ack(id),
            ACK => self.on_ack(id, bytes),
            START_MSG => self.on_start(id, bytes),
            _ => {}
        }
    }

    fn next_timer(&self) -> Option<u64> {
        let served =
            self.rpcs.values().filter(|rpc| rpc.stage == Stage::Serving).map(|rpc| rpc.serve_at).min();
        let tick = (!self.rpcs.is_empty()).then_some(self.next_tick);
        served.into_iter().chain(tick).min()
    }

    fn timer(&mut self, now: u64) {
        let due =
            |(&id, rpc): (&u64, &Rpc)| (rpc.stage == Stage::Serving && rpc.serve_at <= now).then_some(id);
        let served: Vec<u64> = self.rpcs.iter().filter_map(due).collect();
        served.into_iter().for_each(|id| self.respond(id));
        if now < self.next_tick {
            return;
        }
        self.next_tick = now - now % TICK_NS + TICK_NS;
        let ids: Vec<u64> = self.rpcs.keys().copied().collect();
        ids.into_iter().for_each(|id| self.tick_rpc(id));
    }

    fn poll(&mut self, _: u64) -> Option<Vec<u8>> {
        self.sent.pop_front()
    }

    fn finished(&mut self) -> Vec<Finished> {
        std::mem::take(&mut self.finished)
    }

    fn counts(&self) -> TrafficCounts {
        let again = self.executed.values().map(|&times| u64::from(times) - 1).sum();
        TrafficCounts { executed: self.executed.len() as u64, executed_again: again, ..self.counts.clone() }
    }

    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}
