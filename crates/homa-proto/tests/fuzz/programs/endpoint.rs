//! Makes calls and delivers packets in any order on two endpoints, with unknown peers that send to them.

use std::collections::VecDeque;
use std::net::SocketAddr;

use homa_proto::wire::PacketType;
use homa_proto::{Config, MS, RpcKey, SEC, Time, US, Unreachable};

use super::host::{Host, Wire};
use super::input::Input;
use super::{forge, settings};

/// Maximum packets in flight; the network drops more.
const MAX_IN_FLIGHT: usize = 256;
/// Maximum number of rounds in which connected hosts must end all RPCs by themselves, and again after all
/// were aborted.
const ROUNDS: usize = 3_000;
/// Maximum number of steps until a host without peers is idle; a few hundred are usual.
const SILENT_STEPS: usize = 200_000;

/// Runs one program; bytes beyond its end are 0.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut world = World::new(&mut input);
    while !input.is_empty() {
        world.step(&mut input);
    }
    world.finish();
}

fn addr(n: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1 + n as u8], 14_600))
}

struct World {
    hosts: [Host; 2],
    in_flight: VecDeque<(usize, Wire)>,
    now: u64,
    steps: u32,
    /// Whether the hosts can still exchange packets at the end.
    ends_connected: bool,
}

impl World {
    fn new(input: &mut Input<'_>) -> World {
        let ends_connected = input.flag();
        let config = settings::config(input);
        let ours = [input.flag(), input.flag()];
        let hosts = [0, 1].map(|n| {
            let incarnation = if ours[n] { 1_000 + n as u64 } else { 0 };
            let seed = config.seed + n as u64;
            let mut host = Host::new(addr(n), Config { seed, incarnation, ..config.clone() });
            host.endpoint.bind(99).expect("a new endpoint has its ports free");
            host.ports.extend(host.endpoint.open_client_port());
            host
        });
        World { hosts, in_flight: VecDeque::new(), now: 0, steps: 0, ends_connected }
    }

    fn time(&self) -> Time {
        Time::from_ns(self.now)
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let op = input.below(24);
        let at = usize::from(op & 1 == 1);
        let now = self.time();
        match op / 2 {
            0 => self.send_request(input, at),
            1 => {
                let host = &mut self.hosts[at];
                let rpc = key(input, &host.in_service, &host.keys);
                if let Some(rpc) = rpc {
                    let length = input.size();
                    host.send_response(now, rpc, length);
                }
            }
            2 => self.rare(input, at),
            3 => {
                let burst = self.forged(input, at);
                self.hosts[at].handle(now, &burst);
            }
            4 => self.deliver(input, at),
            5 => self.pass_time(input),
            6 => self.hosts[at].tell(now).handle_timeout(now),
            7 => {
                let most = input.below(32);
                self.send(at, most);
            }
            8 => self.exchange(1 + input.below(16)),
            9 => self.answer_all(at, input.size()),
            10 => {
                // The network drops, duplicates or reorders a packet.
                let index = input.below(self.in_flight.len());
                match input.below(3) {
                    0 => drop(self.in_flight.remove(index)),
                    1 if !self.in_flight.is_empty() => self.in_flight.swap(0, index),
                    _ => self.in_flight.extend(self.in_flight.get(index).cloned()),
                }
            }
            _ => {
                let from = addr(input.below(4));
                let mut burst = vec![forge::raw(input, from)];
                burst.extend(self.forged(input, at));
                self.hosts[at].handle(now, &burst);
            }
        }
        for host in &mut self.hosts {
            host.poll_events();
        }
        // Not checked after every step: an inconsistent state stays inconsistent, and a check takes as long
        // as several steps.
        self.steps += 1;
        if self.steps.is_multiple_of(4) {
            self.hosts.iter().for_each(|host| host.endpoint.check());
        }
    }

    fn send_request(&mut self, input: &mut Input<'_>, at: usize) {
        let to = addr(if input.below(4) == 0 { input.below(6) } else { 1 - at });
        let step = input.one_of(&[0, 0, 1, 5_000]);
        let length = input.size();
        let host = &mut self.hosts[at];
        let from_port = host.ports[input.below(host.ports.len())];
        host.send_request(Time::from_ns(self.now), (from_port, 99), to, length, step);
    }

    /// Makes one of the rarer calls.
    fn rare(&mut self, input: &mut Input<'_>, at: usize) {
        let now = self.time();
        let host = &mut self.hosts[at];
        match input.below(8) {
            0..=2 => {
                if let Some(rpc) = key(input, &host.keys, &[]) {
                    host.tell(now).abort(now, rpc);
                }
            }
            3 => {
                let port = host.ports[input.below(host.ports.len())];
                host.tell(now).close_port(now, port);
            }
            4 => {
                let port = input.one_of(&[99, 98, 0, 32_768]);
                match host.endpoint.bind(port) {
                    Ok(()) => host.ports.push(port),
                    // The port is open, possibly as a client port. Stored inputs have no encoding for this
                    // call.
                    Err(_) => host.endpoint.accept_requests(port, !host.endpoint.accepts_requests(port)),
                }
            }
            5 => host.ports.extend(host.endpoint.open_client_port()),
            6 => {
                let port = host.ports[input.below(host.ports.len())];
                let rpc_id = host.ids.get(input.below(host.ids.len())).copied();
                let ports = Unreachable::Port { port, rpc_id: rpc_id.filter(|_| input.flag()) };
                let report = input.one_of(&[
                    Unreachable::Peer { rpc_id },
                    Unreachable::Protocol { rpc_id: None },
                    ports,
                ]);
                host.tell(now).peer_unreachable(now, addr(input.below(4)), report);
            }
            _ => {
                let least = settings::least_packet(host.endpoint.config());
                let bytes =
                    input.one_of(&[1_480, if least == 57 { 0 } else { least }, least, 9_000, u32::MAX]);
                host.max_packet = host.max_packet.max(bytes.clamp(57, 65_535));
                host.endpoint.set_peer_max_packet(addr(input.below(4)), bytes);
            }
        }
    }

    fn forged(&self, input: &mut Input<'_>, at: usize) -> Vec<Wire> {
        let from = addr(if input.flag() { input.below(6) } else { 1 - at });
        let count = if input.below(4) == 0 { 1 + input.below(8) } else { 1 };
        (0..count).map(|_| forge::packet(input, &self.hosts[at], from)).collect()
    }

    /// Delivers the oldest packets for a host in one burst.
    fn deliver(&mut self, input: &mut Input<'_>, at: usize) {
        let most = 1 + input.below(8);
        let burst = self.take_burst(at, most);
        self.hosts[at].handle(Time::from_ns(self.now), &burst);
    }

    fn take_burst(&mut self, at: usize, most: usize) -> Vec<Wire> {
        let mut burst = Vec::new();
        let mut index = 0;
        while index < self.in_flight.len() && burst.len() < most {
            if self.in_flight[index].0 == at {
                burst.extend(self.in_flight.remove(index).map(|(_, wire)| wire));
            } else {
                index += 1;
            }
        }
        burst
    }

    fn pass_time(&mut self, input: &mut Input<'_>) {
        let steps = [US, 50 * US, 131_072, MS, 5 * MS, 20 * MS, 100 * MS, SEC, 10 * SEC, 1 << 50];
        match input.byte() {
            back @ 240..=255 => self.now = self.now.saturating_sub(steps[usize::from(back) % steps.len()]),
            on => self.now = self.now.saturating_add(steps[usize::from(on) % steps.len()]),
        }
    }

    /// Lets host `at` send up to `most` packets. Packets for unknown peers are lost.
    fn send(&mut self, at: usize, most: usize) -> usize {
        for sent in 0..most {
            let host = &mut self.hosts[at];
            let Some((to, wire)) = host.poll_transmit(Time::from_ns(self.now)) else { return sent };
            let dest = [0, 1].into_iter().find(|&n| addr(n) == to);
            if self.in_flight.len() < MAX_IN_FLIGHT {
                self.in_flight.extend(dest.map(|dest| (dest, wire)));
            }
        }
        most
    }

    /// Lets both hosts exchange packets for `rounds` rounds of 10 microseconds.
    fn exchange(&mut self, rounds: usize) {
        for _ in 0..rounds {
            for at in [0, 1] {
                self.send(at, 16);
                let burst = self.take_burst(at, 16);
                let now = self.time();
                self.hosts[at].handle(now, &burst);
                self.hosts[at].tell(now).handle_timeout(now);
                self.hosts[at].poll_events();
            }
            self.now = self.now.saturating_add(10 * US);
        }
        self.hosts[1].endpoint.check();
    }

    fn answer_all(&mut self, at: usize, length: u32) {
        let now = self.time();
        for rpc in std::mem::take(&mut self.hosts[at].in_service) {
            self.hosts[at].in_service.push(rpc);
            self.hosts[at].send_response(now, rpc, length);
        }
    }

    fn finish(mut self) {
        if self.ends_connected {
            self.settle_connected();
        }
        for at in [0, 1] {
            settle_silent(&mut self.hosts[at], self.now);
        }
    }

    /// Lets the hosts exchange packets until all RPCs have ended, by themselves or after their callers abort
    /// them.
    fn settle_connected(&mut self) {
        for round in 0..2 * ROUNDS {
            for at in [0, 1] {
                let now = self.time();
                self.answer_all(at, 700);
                for rpc in std::mem::take(&mut self.hosts[at].in_service) {
                    self.hosts[at].tell(now).abort(now, rpc);
                }
                if round >= ROUNDS {
                    for index in 0..self.hosts[at].keys.len() {
                        let rpc = self.hosts[at].keys[index];
                        self.hosts[at].tell(now).abort(now, rpc);
                    }
                    self.hosts[at].keys.clear();
                }
            }
            self.exchange_quickly();
            if self.in_flight.is_empty() && self.hosts.iter().all(|host| host.endpoint.is_idle()) {
                return;
            }
            if self.in_flight.is_empty() {
                let next = self.hosts.iter().filter_map(|host| host.endpoint.poll_timeout()).min();
                self.now = next.map_or(self.now, |next| self.now.max(next.as_ns()));
            }
        }
        for host in &self.hosts {
            println!("{host}");
        }
        panic!("two connected hosts came to no end, with {} packets in flight", self.in_flight.len());
    }

    fn exchange_quickly(&mut self) {
        self.now = self.now.saturating_add(US);
        for at in [0, 1] {
            let now = self.time();
            let burst = self.take_burst(at, MAX_IN_FLIGHT);
            self.hosts[at].handle(now, &burst);
            self.hosts[at].tell(now).handle_timeout(now);
            self.hosts[at].poll_events();
            self.send(at, 64);
        }
    }
}

/// Returns an element of `first` or, if that is empty, of `second`.
fn key(input: &mut Input<'_>, first: &[RpcKey], second: &[RpcKey]) -> Option<RpcKey> {
    let from = if first.is_empty() { second } else { first };
    let back = input.below(from.len());
    from.get(from.len().checked_sub(1 + back)?).copied()
}

/// Checks that, if no peer answers any more, all RPCs end after a bounded number of packets and leave no
/// state.
fn settle_silent(host: &mut Host, from_ns: u64) {
    let config = host.endpoint.config().clone();
    let kinds = [PacketType::Resend, PacketType::NeedAck];
    let before = kinds.map(|kind| host.count(kind));
    let rpcs = host.endpoint.open_rpcs();
    let peers = host.endpoint.known_peers();
    let mut now = Time::from_ns(from_ns);
    let mut standing = 0;
    for step in 0..SILENT_STEPS {
        host.poll_events();
        while host.poll_transmit(now).is_some() {}
        if step % 64 == 0 {
            host.endpoint.check();
        }
        if host.endpoint.is_idle() {
            break;
        }
        let next = host.endpoint.poll_timeout().expect("what is not idle has a timer");
        standing = if next > now { 0 } else { standing + 1 };
        assert!(standing < 2_000, "the same moment again and again");
        now = now.max(next);
        host.tell(now).handle_timeout(now);
    }
    host.poll_events();
    host.assert_over();
    host.endpoint.check();
    // PEER-12: a round has four ranges, in addition to those that waited in the queue.
    let queued = config.max_control_packets as usize;
    let [resends, need_acks] = [0, 1].map(|n| host.count(kinds[n]) - before[n]);
    assert!(resends <= queued + rpcs * 4 * config.max_resends as usize, "{resends} RESENDs for {rpcs} RPCs");
    let asked = queued + rpcs * config.max_need_acks as usize + peers * 16;
    assert!(need_acks <= asked, "{need_acks} NEED_ACKs for {rpcs} RPCs");
}
