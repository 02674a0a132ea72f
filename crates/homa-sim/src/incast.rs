//! Incast: many hosts send to one host at the same time, through a switch port whose buffer cannot hold all
//! of the data.

use std::fmt;

use homa_proto::{CallOptions, Config, MS, RpcError, RpcKey, SEC, Time};

use crate::app::{App, HostCtx, Reply};
use crate::link::LinkConfig;
use crate::network::{Network, NetworkConfig};
use crate::payload::PayloadMode;
use crate::topology::Topology;

/// Server port of every host.
const PORT: u16 = 99;
/// Bytes of the message in the opposite direction.
const SHORT: u32 = 100;
/// The host that receives all messages.
const SINK: usize = 0;

/// Direction of the many messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncastKind {
    /// Many clients send a request to one server.
    Requests,
    /// One client calls many servers, which all answer at the same time.
    Responses,
}

/// An experiment: rounds in which each sender starts one message at the same moment.
#[derive(Clone, Debug)]
pub struct Incast {
    /// Seed of the hosts.
    pub seed: u64,
    /// Direction of the large messages.
    pub kind: IncastKind,
    /// Number of sending hosts, at least 1.
    pub senders: usize,
    /// Length of each message in bytes.
    pub bytes: u32,
    /// Buffer of the switch's port to the receiver.
    pub buffer_bytes: u64,
    /// Rate of every link in Mbit/s.
    pub link_mbps: u32,
    /// Number of rounds. In the first round, no host knows its peers yet.
    pub rounds: usize,
    /// Whether the senders behave like Linux Homa: they neither mark their packets as this implementation's
    /// nor read extensions that only this implementation sends.
    pub kernel_senders: bool,
    /// Protocol configuration of the hosts.
    pub protocol: Config,
}

impl Incast {
    /// Returns an incast of 100 senders, each with a message of 40 KB, into a buffer of 200 KB at 10 Gbit/s,
    /// with the protocol's settings for that link.
    pub fn new(seed: u64, kind: IncastKind) -> Incast {
        let link_mbps = 10_000;
        Incast {
            seed,
            kind,
            senders: 100,
            bytes: 40_000,
            buffer_bytes: 200_000,
            link_mbps,
            rounds: 10,
            kernel_senders: false,
            protocol: Config { incarnation: 1, ..Config::for_link(link_mbps) },
        }
    }

    /// Returns the time that one round's messages take on the receiver's link, including their headers.
    pub fn ideal_ns(&self) -> u64 {
        let link = self.link();
        let payload = self.protocol.max_packet - homa_proto::wire::DATA_HEADER_LEN as u32;
        let wire = |payload: u32| {
            if payload == 0 {
                0
            } else {
                link.serialisation_ps(payload + homa_proto::wire::DATA_HEADER_LEN as u32)
            }
        };
        let message = u64::from(self.bytes / payload) * wire(payload) + wire(self.bytes % payload);
        message * self.senders as u64 / 1_000
    }

    fn link(&self) -> LinkConfig {
        let rate_bps = u64::from(self.link_mbps) * 1_000_000;
        LinkConfig { queue_bytes: self.buffer_bytes, ..LinkConfig::with_rate(rate_bps) }
    }

    /// Runs all rounds, with pauses of 20 ms.
    ///
    /// # Panics
    /// If the protocol's settings are inconsistent.
    pub fn run(&self) -> IncastReport {
        let mut config = NetworkConfig::new(self.seed, self.senders + 1);
        config.topology = Topology::Switch { delay_ns: 250 };
        config.link = self.link();
        config.payload = PayloadMode::LengthOnly;
        config.protocol = self.protocol.clone();
        if self.kernel_senders {
            let kernel = Config { incarnation: 0, ..self.protocol.clone() };
            config.host_protocols = vec![kernel; self.senders + 1];
            config.host_protocols[SINK] = self.protocol.clone();
        }
        let mut network =
            Network::new(config, |_| Peer { kind: self.kind, bytes: self.bytes, ..Peer::default() });
        let mut report = IncastReport { ideal_ns: self.ideal_ns(), ..IncastReport::default() };
        for _ in 0..self.rounds {
            report.rounds.push(self.round(&mut network));
        }
        network.run_for(60 * SEC);
        report.leftovers = network.hosts().iter().flat_map(|host| host.leftovers()).collect();
        report
    }

    fn round(&self, network: &mut Network<Peer>) -> IncastRound {
        let before = (network.stats().overflowed, sum(network, "resends_sent"), network.now());
        match self.kind {
            IncastKind::Requests => {
                for sender in 1..=self.senders {
                    network.act(sender, |app, host| app.call(host, SINK, self.bytes));
                }
            }
            IncastKind::Responses => {
                network.act(SINK, |app, host| {
                    (1..=self.senders).for_each(|server| app.call(host, server, SHORT));
                });
            }
        }
        let open =
            |network: &Network<Peer>| network.hosts().iter().map(|host| host.app().open).sum::<usize>();
        let mut check = 0;
        network.run_until_done(before.2 + 10 * SEC, |network| {
            check += 1;
            check % 16 == 0 && open(network) == 0
        });
        let round = IncastRound {
            // Time until the receiver has all data, excluding answers and acknowledgements.
            completion_ns: network
                .hosts()
                .iter()
                .map(|host| host.app().last_arrival)
                .max()
                .unwrap_or_default()
                .since(before.2),
            drops: network.stats().overflowed - before.0,
            resends: sum(network, "resends_sent") - before.1,
            max_queued_bytes: network.max_queued_bytes(SINK),
            failed: network.hosts().iter().map(|host| host.app().failed).sum::<usize>() + open(network),
        };
        network.run_for(20 * MS);
        round
    }
}

fn sum(network: &Network<Peer>, counter: &str) -> u64 {
    let entries = network
        .hosts()
        .iter()
        .filter_map(|host| host.endpoint())
        .flat_map(|endpoint| endpoint.stats().entries());
    entries.filter(|(name, _, _)| *name == counter).map(|(_, value, _)| value).sum()
}

/// The result of one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IncastRound {
    /// Time from the start of the round to the last byte at the receiver.
    pub completion_ns: u64,
    /// Packets dropped by the switch.
    pub drops: u64,
    /// RESENDs sent by all hosts.
    pub resends: u64,
    /// Maximum queue length before the receiver's link in this and earlier rounds.
    pub max_queued_bytes: u64,
    /// RPCs that failed or did not end, in this and earlier rounds.
    pub failed: usize,
}

/// Results of an incast.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncastReport {
    /// See [`Incast::ideal_ns`].
    pub ideal_ns: u64,
    /// Results of each round, in order.
    pub rounds: Vec<IncastRound>,
    /// Descriptions of state that is left at the end.
    pub leftovers: Vec<String>,
}

impl IncastReport {
    /// Returns the ratio of a round's completion time to the ideal.
    pub fn ratio(&self, round: usize) -> f64 {
        self.rounds[round].completion_ns as f64 / self.ideal_ns as f64
    }
}

impl fmt::Display for IncastReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "ideal {:.3} ms", self.ideal_ns as f64 / 1e6)?;
        writeln!(
            f,
            "{:>5} {:>9} {:>7} {:>7} {:>8} {:>10} {:>6}",
            "round", "ms", "ideals", "drops", "RESENDs", "max queue", "failed"
        )?;
        for (index, round) in self.rounds.iter().enumerate() {
            writeln!(
                f,
                "{:>5} {:>9.3} {:>7.2} {:>7} {:>8} {:>10} {:>6}",
                index,
                round.completion_ns as f64 / 1e6,
                self.ratio(index),
                round.drops,
                round.resends,
                round.max_queued_bytes,
                round.failed,
            )?;
        }
        Ok(())
    }
}

/// The application of a sender or the receiver.
#[derive(Debug)]
struct Peer {
    kind: IncastKind,
    bytes: u32,
    open: usize,
    failed: usize,
    last_arrival: Time,
}

impl Default for Peer {
    fn default() -> Peer {
        Peer { kind: IncastKind::Requests, bytes: 0, open: 0, failed: 0, last_arrival: Time::ZERO }
    }
}

impl Peer {
    fn call(&mut self, host: &mut HostCtx<'_>, to: usize, length: u32) {
        self.open += 1;
        if host.call(to, PORT, length, CallOptions::default()).is_err() {
            (self.open, self.failed) = (self.open - 1, self.failed + 1);
        }
    }
}

impl App for Peer {
    fn on_start(&mut self, host: &mut HostCtx<'_>) {
        host.bind(PORT).expect("the port of a fresh endpoint is free");
    }

    fn on_request(&mut self, host: &mut HostCtx<'_>, _: RpcKey, _: usize, _: u16, _: u32) -> Reply {
        match self.kind {
            IncastKind::Requests => {
                self.last_arrival = host.now();
                Reply::Now(SHORT)
            }
            IncastKind::Responses => Reply::Now(self.bytes),
        }
    }

    fn on_response(&mut self, host: &mut HostCtx<'_>, _: u64, _: u32) {
        self.open -= 1;
        if self.kind == IncastKind::Responses {
            self.last_arrival = host.now();
        }
    }

    fn on_failed(&mut self, _: &mut HostCtx<'_>, _: u64, _: RpcError) {
        (self.open, self.failed) = (self.open - 1, self.failed + 1);
    }
}
