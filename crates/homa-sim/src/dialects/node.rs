//! A Homa implementation in a pairing: this project's endpoint, or a model kernel.

use std::collections::HashMap;
use std::net::SocketAddr;

use homa_proto::{CallOptions, Config, Endpoint, Event, Reassembly, RpcKey, RxPacket, Time};
use homa_trace::Trace;

use super::speaker::TrafficCounts;

pub(super) const CLIENT_PORT: u16 = 40_000;
pub(super) const SERVER_PORT: u16 = 99;

/// A call that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finished {
    pub(super) token: u64,
    /// Bytes of the response; `None`: the call failed.
    pub(super) answer: Option<u32>,
}

/// The interface of a speaker in a pairing. Times are in nanoseconds.
pub(super) trait Node {
    /// Calls the peer's server with a request of `length` bytes. Returns the client's RPC ID.
    fn call(&mut self, now: u64, token: u64, length: u32) -> u64;
    fn receive(&mut self, now: u64, bytes: &[u8]);
    fn next_timer(&self) -> Option<u64>;
    fn timer(&mut self, now: u64);
    /// Returns the next packet to send.
    fn poll(&mut self, now: u64) -> Option<Vec<u8>>;
    /// Returns the calls that have ended since this method was last called.
    fn finished(&mut self) -> Vec<Finished>;
    fn counts(&self) -> TrafficCounts;
    /// Describes the defects of the speaker's state after all calls have ended.
    fn problems(&self) -> Vec<String>;
}

/// Returns the byte at `offset` of the message whose packets carry the ID `sender_id`.
pub(super) fn pattern(sender_id: u64, offset: u32) -> u8 {
    (sender_id.wrapping_mul(0x9e37) ^ u64::from(offset).wrapping_mul(0x85eb_ca6b) >> 7) as u8
}

pub(super) fn pattern_holds(sender_id: u64, offset: u32, bytes: &[u8]) -> bool {
    (offset..).zip(bytes).all(|(at, &byte)| byte == pattern(sender_id, at))
}

/// Bytes that have arrived, for each RPC.
#[derive(Default)]
struct Arrived(HashMap<RpcKey, Vec<u8>>);

impl Reassembly for Arrived {
    fn write(&mut self, rpc: RpcKey, length: u32, offset: u32, _: u32, bytes: &[u8]) {
        let message = self.0.entry(rpc).or_default();
        message.resize(length as usize, 0);
        message[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

/// This project's endpoint over raw IP, with a server that echoes requests.
pub(super) struct Ours {
    endpoint: Endpoint,
    peer: SocketAddr,
    client_port: u16,
    arrived: Arrived,
    /// RPC IDs of the open calls.
    calls: HashMap<RpcKey, u64>,
    finished: Vec<Finished>,
    executed: HashMap<u64, u32>,
    counts: TrafficCounts,
    checks: bool,
}

impl Ours {
    pub(super) fn new(config: Config, peer: SocketAddr, checks: bool) -> Ours {
        let mut endpoint = match Endpoint::new(config, Trace::off()) {
            Ok(endpoint) => endpoint,
            Err(error) => panic!("the configuration is wrong: {error}"),
        };
        let opened = endpoint.bind(SERVER_PORT).and_then(|()| endpoint.open_client_port());
        let Ok(client_port) = opened else { panic!("the ports of a new endpoint are free") };
        Ours {
            endpoint,
            peer,
            client_port,
            arrived: Arrived::default(),
            calls: HashMap::new(),
            finished: Vec::new(),
            executed: HashMap::new(),
            counts: TrafficCounts::default(),
            checks,
        }
    }

    fn take_events(&mut self, now: Time) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Request { rpc, length, .. } => {
                    let id = self.endpoint.rpc_id(rpc).unwrap_or_default();
                    self.check_message(rpc, id & !1);
                    *self.executed.entry(id).or_insert(0) += 1;
                    if let Err(error) = self.endpoint.send_response(now, rpc, length) {
                        panic!("a response of {length} bytes is refused: {error}");
                    }
                }
                Event::Response { rpc, cookie, length, .. } => {
                    let id = self.calls.remove(&rpc).unwrap_or_default();
                    self.check_message(rpc, id | 1);
                    self.finished.push(Finished { token: cookie, answer: Some(length) });
                }
                Event::Failed { rpc, cookie, .. } => {
                    self.calls.remove(&rpc);
                    self.arrived.0.remove(&rpc);
                    self.finished.push(Finished { token: cookie, answer: None });
                }
                Event::Done { rpc, .. } => drop(self.arrived.0.remove(&rpc)),
                _ => {}
            }
        }
        if self.checks {
            self.endpoint.check();
        }
    }

    /// Checks that a message has the bytes that its sender sent.
    fn check_message(&mut self, rpc: RpcKey, sender_id: u64) {
        let bytes = self.arrived.0.remove(&rpc).unwrap_or_default();
        self.counts.wrong += u64::from(!pattern_holds(sender_id, 0, &bytes));
    }
}

impl Node for Ours {
    fn call(&mut self, now: u64, token: u64, length: u32) -> u64 {
        let now = Time::from_ns(now);
        let options = CallOptions { cookie: token, ..CallOptions::default() };
        match self.endpoint.send_request(now, self.client_port, self.peer, SERVER_PORT, length, options) {
            Ok(rpc) => {
                let id = self.endpoint.rpc_id(rpc).unwrap_or_default();
                self.calls.insert(rpc, id);
                id
            }
            Err(error) => panic!("a call of {length} bytes is refused: {error}"),
        }
    }

    fn receive(&mut self, now: u64, bytes: &[u8]) {
        let now = Time::from_ns(now);
        self.endpoint.handle_packets(now, [RxPacket::new(self.peer, bytes)], &mut self.arrived);
        self.take_events(now);
    }

    fn next_timer(&self) -> Option<u64> {
        self.endpoint.poll_timeout().map(Time::as_ns)
    }

    fn timer(&mut self, now: u64) {
        let now = Time::from_ns(now);
        self.endpoint.handle_timeout(now);
        self.take_events(now);
    }

    fn poll(&mut self, now: u64) -> Option<Vec<u8>> {
        let transmit = self.endpoint.poll_transmit(Time::from_ns(now))?;
        let mut bytes = transmit.header.to_vec();
        if let Some(range) = transmit.payload {
            let id = self.endpoint.rpc_id(range.rpc).unwrap_or_default();
            bytes.extend((range.offset..range.offset + range.len).map(|at| pattern(id, at)));
        }
        Some(bytes)
    }

    fn finished(&mut self) -> Vec<Finished> {
        std::mem::take(&mut self.finished)
    }

    fn counts(&self) -> TrafficCounts {
        let stats = self.endpoint.stats();
        let again = self.executed.values().map(|&times| u64::from(times) - 1).sum();
        TrafficCounts {
            executed: self.executed.len() as u64,
            executed_again: again,
            resends: stats.resends_sent,
            dropped: stats.drop_invalid + stats.drop_mixed_forms,
            ..self.counts.clone()
        }
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !self.endpoint.is_idle() {
            problems.push(format!("the endpoint is not idle: {} RPCs are open", self.endpoint.open_rpcs()));
        }
        if self.counts().executed_again > 0 {
            problems.push(format!("{} requests ran twice", self.counts().executed_again));
        }
        problems
    }
}
