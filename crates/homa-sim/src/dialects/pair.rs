//! One pairing on virtual time: two speakers, the link between them, and the client's calls.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use homa_proto::Config;
use rand::Rng;
use rand_pcg::Pcg64;

use super::format::{DATA, DATA_BYTES, data_offset, u64_at};
use super::model::{KernelModel, Quirks};
use super::node::{Node, Ours};
use super::sent_ranges::SentRanges;
use super::speaker::{Speaker, TrafficCounts};
use crate::payload::random_numbers;

/// Rate of the link in bytes per microsecond: 10 Gbit/s.
const BYTES_PER_US: u64 = 1_250;
const LINK_OVERHEAD: u64 = 58;
const PROPAGATION_NS: u64 = 5_000;
/// Maximum extra delay of a reordered packet.
const REORDER_NS: u64 = 300_000;
/// Fractions of packets that are duplicated and reordered.
const DUPLICATION: f64 = 0.01;
const REORDERING: f64 = 0.02;
/// Maximum virtual time until all calls have ended, and from then until all state is gone.
const CALL_LIMIT_NS: u64 = 60_000_000_000;
const REST_NS: u64 = 30_000_000_000;

/// Settings of a pairing.
#[derive(Clone, Copy, Debug)]
pub struct PairPlan {
    /// Seed of the losses, duplications and delays.
    pub seed: u64,
    /// The speaker that calls.
    pub client: Speaker,
    /// The speaker that answers.
    pub server: Speaker,
    /// Speaker that replaces the kernel, including all its state, after half of the calls.
    pub then: Option<Speaker>,
    /// Bytes of each request and of each response.
    pub bytes: u32,
    /// Lost packets per thousand.
    pub loss: u32,
    /// Index of the call for which every packet that the client sends for the first time is lost.
    pub lost_request: Option<u64>,
    /// Whether the addresses are IPv6.
    pub ipv6: bool,
    /// Number of calls.
    pub calls: u32,
    /// Maximum number of open calls.
    pub at_once: u32,
    /// Kernel behaviours that the known facts leave open.
    pub quirks: Quirks,
    /// Whether [`homa_proto::Endpoint::check`] is called after each step.
    pub checks: bool,
}

/// Durations of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTimes {
    /// Number of calls.
    pub calls: u64,
    /// Sum of the calls' durations, in nanoseconds.
    pub sum_ns: u64,
    /// Longest duration, in nanoseconds.
    pub longest_ns: u64,
}

impl CallTimes {
    /// Returns the mean duration in nanoseconds; 0 without calls.
    pub fn mean_ns(&self) -> u64 {
        self.sum_ns / self.calls.max(1)
    }

    fn add(&mut self, other: &CallTimes) {
        self.calls += other.calls;
        self.sum_ns += other.sum_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

/// Results of a pairing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PairReport {
    /// Calls that ended with a complete response.
    pub completed: u64,
    /// Calls that ended without a response.
    pub failed: u64,
    /// Counts of the client.
    pub client: TrafficCounts,
    /// Counts of the server.
    pub server: TrafficCounts,
    /// Packets lost.
    pub lost: u64,
    /// Longest duration of a call, in nanoseconds.
    pub longest_ns: u64,
    /// Calls without a lost DATA packet.
    pub undisturbed: CallTimes,
    /// Calls with a lost packet of the request.
    pub request_lost: CallTimes,
    /// Calls that lost only packets of the response.
    pub response_lost: CallTimes,
    /// Duration of the first call after the kernel changed, in nanoseconds.
    pub after_change_ns: u64,
    /// Descriptions of all violations.
    pub problems: Vec<String>,
}

impl PairReport {
    /// Returns the RESENDs per call, summed over both speakers.
    pub fn resends_per_call(&self) -> f64 {
        let calls = (self.completed + self.failed).max(1);
        (self.client.resends + self.server.resends) as f64 / calls as f64
    }

    /// Returns the durations of all calls.
    pub fn times(&self) -> CallTimes {
        let mut all = self.undisturbed;
        [self.request_lost, self.response_lost].iter().for_each(|times| all.add(times));
        all
    }

    /// Adds the results of another run of the same pairing.
    pub fn add(&mut self, other: &PairReport) {
        self.completed += other.completed;
        self.failed += other.failed;
        for (sum, of) in [(&mut self.client, &other.client), (&mut self.server, &other.server)] {
            sum.executed += of.executed;
            sum.executed_again += of.executed_again;
            sum.resends += of.resends;
            sum.bytes += of.bytes;
            sum.bytes_twice += of.bytes_twice;
            sum.bytes_lost += of.bytes_lost;
            sum.dropped += of.dropped;
            sum.wrong += of.wrong;
        }
        self.lost += other.lost;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.undisturbed.add(&other.undisturbed);
        self.request_lost.add(&other.request_lost);
        self.response_lost.add(&other.response_lost);
        self.after_change_ns = self.after_change_ns.max(other.after_change_ns);
        self.problems.extend(other.problems.iter().cloned());
    }
}

/// A call that has not ended.
#[derive(Clone, Copy)]
struct OpenCall {
    id: u64,
    began: u64,
    /// Whether DATA of the request, and of the response, was lost.
    lost: [bool; 2],
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

struct Pair {
    plan: PairPlan,
    rng: Pcg64,
    now: u64,
    nodes: [Box<dyn Node>; 2],
    /// Packets in flight: (arrival, sequence number) -> (receiver, bytes).
    flying: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    sent: u64,
    /// Time at which each sender's link becomes free.
    free_at: [u64; 2],
    report: PairReport,
    /// Open calls by their index.
    open: BTreeMap<u64, OpenCall>,
    /// Indices of the open calls by the client's RPC ID.
    by_id: BTreeMap<u64, u64>,
    /// Ranges of each message that its sender has sent, by sender and RPC ID.
    sent_ranges: BTreeMap<(usize, u64), SentRanges>,
    started: u64,
}

/// Returns the number of message bytes that a packet carries; `None`: the packet is not DATA.
fn payload_bytes(packet: &[u8]) -> Option<u32> {
    (packet[11] == DATA).then(|| (packet.len() - DATA_BYTES) as u32)
}

fn addresses(ipv6: bool) -> [SocketAddr; 2] {
    [1, 2].map(|host: u8| {
        let ip = match ipv6 {
            false => IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)),
            true => IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host.into())),
        };
        SocketAddr::new(ip, 0) // Over raw IP a peer has no port.
    })
}

fn node(plan: &PairPlan, side: usize, speaker: Speaker, life: u64) -> Box<dyn Node> {
    let segment = if plan.ipv6 { 1_404 } else { 1_424 };
    match speaker {
        Speaker::Kernel(kernel) => {
            // A restarted kernel assigns IDs from 2 on. Here, the IDs after the restart are offset, because
            // the server still remembers the finished IDs of the earlier kernel.
            Box::new(KernelModel::new(kernel, plan.quirks, segment, 2 + 100_000 * life))
        }
        Speaker::Ours => {
            let config = Config {
                seed: plan.seed.wrapping_add(side as u64),
                incarnation: 1_700_000_000_000 + side as u64,
                link_mbps: Some(10_000),
                max_packet: segment + 56,
                ..Config::default()
            };
            Box::new(Ours::new(config, addresses(plan.ipv6)[1 - side], plan.checks))
        }
    }
}

/// Runs a pairing to its end.
///
/// # Panics
/// The endpoint's state is inconsistent, or the endpoint refuses a call.
pub fn run_pair(plan: PairPlan) -> PairReport {
    let nodes = [node(&plan, CLIENT, plan.client, 0), node(&plan, SERVER, plan.server, 0)];
    let mut pair = Pair {
        plan,
        rng: random_numbers(plan.seed, 0xd1a),
        now: 1,
        nodes,
        flying: BTreeMap::new(),
        sent: 0,
        free_at: [0; 2],
        report: PairReport::default(),
        open: BTreeMap::new(),
        by_id: BTreeMap::new(),
        sent_ranges: BTreeMap::new(),
        started: 0,
    };
    match plan.then {
        None => pair.calls(plan.calls.into()),
        Some(speaker) => {
            pair.calls(u64::from(plan.calls) / 2);
            pair.change(speaker);
            pair.calls(u64::from(plan.calls) / 2);
        }
    }
    pair.end()
}

impl Pair {
    /// Makes this many calls and waits until they have ended.
    fn calls(&mut self, calls: u64) {
        let until = self.started + calls;
        let limit = self.now + CALL_LIMIT_NS;
        loop {
            while self.started < until && self.open.len() < self.plan.at_once.max(1) as usize {
                let id = self.nodes[CLIENT].call(self.now, self.started, self.plan.bytes);
                self.open.insert(self.started, OpenCall { id, began: self.now, lost: [false; 2] });
                self.by_id.insert(id, self.started);
                self.started += 1;
            }
            self.transmit();
            if self.open.is_empty() || !self.step(limit) {
                break;
            }
        }
        let stuck: Vec<u64> = std::mem::take(&mut self.open).into_keys().collect();
        for call in stuck {
            self.report.problems.push(format!("call {call} does not end"));
        }
    }

    /// Restarts the kernel with another dialect while no call is open.
    fn change(&mut self, speaker: Speaker) {
        let limit = self.now + REST_NS;
        while self.step(limit) {}
        self.now = limit;
        self.flying.clear();
        let side = if self.plan.client == Speaker::Ours { SERVER } else { CLIENT };
        let counts = self.nodes[side].counts();
        let mut before = PairReport::default();
        (if side == SERVER { &mut before.server } else { &mut before.client }).clone_from(&counts);
        self.report.add(&before);
        self.nodes[side] = node(&self.plan, side, speaker, 1);
        let longest = std::mem::take(&mut self.report.longest_ns);
        self.calls(1);
        self.report.after_change_ns = self.report.longest_ns;
        self.report.longest_ns = longest.max(self.report.longest_ns);
    }

    /// Handles the next event. Returns false if there is none before `limit`.
    fn step(&mut self, limit: u64) -> bool {
        let packet = self.flying.keys().next().map(|&(at, _)| (at, None));
        let timer = |side: usize| self.nodes[side].next_timer().map(|at| (at.max(self.now), Some(side)));
        let first = [packet, timer(CLIENT), timer(SERVER)].into_iter().flatten().min();
        let Some((at, timer)) = first.filter(|&(at, _)| at <= limit) else { return false };
        self.now = self.now.max(at);
        match timer {
            Some(side) => self.nodes[side].timer(self.now),
            None => {
                if let Some((_, (to, bytes))) = self.flying.pop_first() {
                    self.nodes[to].receive(self.now, &bytes);
                }
            }
        }
        for finished in self.nodes[CLIENT].finished() {
            let Some(call) = self.open.remove(&finished.token) else {
                self.report.problems.push(format!("call {} ends twice", finished.token));
                continue;
            };
            self.by_id.remove(&call.id);
            let took_ns = self.now - call.began;
            self.report.longest_ns = self.report.longest_ns.max(took_ns);
            let times = match call.lost {
                [true, _] => &mut self.report.request_lost,
                [false, true] => &mut self.report.response_lost,
                [false, false] => &mut self.report.undisturbed,
            };
            times.add(&CallTimes { calls: 1, sum_ns: took_ns, longest_ns: took_ns });
            match finished.answer {
                Some(length) if length == self.plan.bytes => self.report.completed += 1,
                Some(length) => self.report.problems.push(format!("a response of {length} bytes")),
                None => self.report.failed += 1,
            }
        }
        self.transmit();
        true
    }

    /// Puts the speakers' packets on the link.
    fn transmit(&mut self) {
        for from in [CLIENT, SERVER] {
            while let Some(bytes) = self.nodes[from].poll(self.now) {
                self.count(from, &bytes);
                let wire_ns = (bytes.len() as u64 + LINK_OVERHEAD) * 1_000 / BYTES_PER_US;
                self.free_at[from] = self.free_at[from].max(self.now) + wire_ns;
                let arrival = self.free_at[from] + PROPAGATION_NS;
                let is_lost = self.rng.random_range(0..1_000) < self.plan.loss;
                if is_lost || self.is_chosen(from, &bytes) {
                    self.record_loss(from, &bytes);
                    continue;
                }
                if self.rng.random_bool(DUPLICATION) {
                    let late = self.rng.random_range(0..REORDER_NS);
                    self.deliver_later(arrival + late, 1 - from, bytes.clone());
                }
                let is_late = self.rng.random_bool(REORDERING);
                let late = if is_late { self.rng.random_range(0..REORDER_NS) } else { 0 };
                self.deliver_later(arrival + late, 1 - from, bytes);
            }
        }
    }

    fn traffic(&mut self, of: usize) -> &mut TrafficCounts {
        if of == CLIENT { &mut self.report.client } else { &mut self.report.server }
    }

    /// Counts the payload of a packet that is sent.
    fn count(&mut self, from: usize, bytes: &[u8]) {
        let Some(payload) = payload_bytes(bytes) else { return };
        let (id, offset) = (u64_at(bytes, 20), data_offset(bytes));
        let again = self.sent_ranges.entry((from, id)).or_default().add(offset, offset + payload);
        let counts = self.traffic(from);
        counts.bytes += u64::from(payload);
        counts.bytes_twice += u64::from(again);
    }

    /// Returns whether the plan drops this packet, because it belongs to the request whose packets are to be
    /// lost.
    fn is_chosen(&self, from: usize, bytes: &[u8]) -> bool {
        let is_first_copy = || bytes[11] == DATA && bytes[48] == 0;
        self.plan.lost_request.is_some_and(|chosen| {
            from == CLIENT && is_first_copy() && self.by_id.get(&u64_at(bytes, 20)) == Some(&chosen)
        })
    }

    /// Records that a packet is lost.
    fn record_loss(&mut self, from: usize, bytes: &[u8]) {
        self.report.lost += 1;
        self.traffic(from).bytes_lost += u64::from(payload_bytes(bytes).unwrap_or(0));
        let call = self.by_id.get(&(u64_at(bytes, 20) & !1)).and_then(|call| self.open.get_mut(call));
        if let Some(call) = call.filter(|_| payload_bytes(bytes).is_some()) {
            call.lost[from] = true;
        }
    }

    fn deliver_later(&mut self, at: u64, to: usize, bytes: Vec<u8>) {
        self.sent += 1;
        self.flying.insert((at, self.sent), (to, bytes));
    }

    /// Runs until all state should be gone, and checks what is left.
    fn end(mut self) -> PairReport {
        let limit = self.now + REST_NS;
        while self.step(limit) {}
        let mut report = self.report;
        let ends = PairReport {
            client: self.nodes[CLIENT].counts(),
            server: self.nodes[SERVER].counts(),
            problems: self.nodes.iter().flat_map(|node| node.problems()).collect(),
            ..PairReport::default()
        };
        report.add(&ends);
        if report.client.wrong + report.server.wrong > 0 {
            report.problems.push("a message has other bytes than were sent".into());
        }
        report
    }
}
