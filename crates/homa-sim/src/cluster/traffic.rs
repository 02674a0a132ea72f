//! Senders, receivers and times of messages.

use homa_workload::{Poisson, Workload};
use rand::Rng;
use rand_pcg::Pcg64;

use homa_proto::Time;
use homa_proto::wire::GRANT_LEN;

use super::config::ClusterConfig;
use super::event::HostEvent;
use crate::fabric::Event;
use crate::payload::{mix, random_numbers};
use crate::queue::EventQueue;

/// Senders, receivers and times of messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Traffic {
    /// Poisson arrivals at every host, to all other hosts with equal probability.
    Uniform {
        /// Fraction of the hosts' link capacity, above 0, that the bytes counted by [`LoadBasis`] take. Both
        /// messages of an RPC count.
        load: f64,
    },
    /// Rounds in which `senders` hosts each send one message to host 0 at the same moment.
    Incast {
        /// Number of senders. If it exceeds the number of hosts, some hosts send several messages.
        senders: usize,
        /// Time from the start of one round to the start of the next.
        interval_ns: u64,
    },
    /// Every host always has the same number of open exchanges, each with a uniformly random host: when one
    /// ends, the next starts. This measures the throughput of a network under maximum demand.
    Closed {
        /// Number of open exchanges of each host, at least 1.
        outstanding: u32,
    },
}

/// The bytes that count towards a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadBasis {
    /// Data packets with all headers and the link's overhead. Other packets of a transport are not counted.
    #[default]
    Data,
    /// Data packets as above, plus a grant for each packet beyond the first RTTbytes of a message, as in
    /// published loads. All transports then carry the same messages as Homa.
    DataAndGrants,
}

/// An exchange between two hosts: a single message, or an RPC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exchange {
    /// A single message, as in published simulations. It ends when it is complete at its receiver, and no
    /// packet confirms this.
    #[default]
    OneWay,
    /// An RPC whose response is as long as its request and starts when the request is complete at the server.
    /// It ends when the response is complete at the client. A transport that runs RPCs
    /// ([`Transport::RUNS_RPCS`](crate::Transport::RUNS_RPCS)) handles the whole exchange, including
    /// acknowledgements. Any other transport sends two messages.
    Echo,
}

impl Exchange {
    /// Returns the number of messages of an exchange.
    pub(super) fn messages(self) -> u32 {
        match self {
            Exchange::OneWay => 1,
            Exchange::Echo => 2,
        }
    }
}

/// Random stream for the receivers.
const DESTINATIONS: u64 = 0xde;

pub(super) struct Arrivals {
    traffic: Traffic,
    hosts: Vec<Source>,
    /// Number of open exchanges of each host, including those that are not part of the load.
    open: Vec<u32>,
}

struct Source {
    host: u32,
    gaps: Option<Poisson>,
    sizes: homa_workload::SizeSampler,
    destinations: Pcg64,
}

/// Number of sizes that represent a workload. The mean of these sizes is within 0.6 % of the mean of every
/// built-in workload. The error is largest for W2, where the longest 0.0003 % of the messages have 2 % of the
/// bytes.
const PARTS: u32 = 200_000;

/// Returns message sizes in increasing order, each of which represents an equal share of all messages.
pub(super) fn quantiles(workload: &Workload) -> homa_workload::Quantiles<'_> {
    workload.quantiles(PARTS)
}

/// Returns the mean over all messages of a function of their size.
pub(crate) fn mean_of(workload: &Workload, of: impl Fn(u32) -> f64) -> f64 {
    let [mean] = means_of(workload, |size| [of(size)]);
    mean
}

/// Returns the means over all messages of several functions of their size, computed in one pass through the
/// workload. Each is bit-identical to the result of [`mean_of`].
fn means_of<const N: usize>(workload: &Workload, of: impl Fn(u32) -> [f64; N]) -> [f64; N] {
    let mut sums = [0.0; N];
    // Most workloads have steps, where many parts have the same size. No message is 0 bytes long.
    let (mut size, mut values) = (0, [0.0; N]);
    for next in quantiles(workload) {
        if next != size {
            (size, values) = (next, of(next));
        }
        for (sum, value) in sums.iter_mut().zip(&values) {
            *sum += value;
        }
    }
    sums.map(|sum| sum / f64::from(PARTS))
}

/// Means over all messages of a cluster, of the link time in bytes and of its powers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LinkMeans {
    /// The mean size of a message, with all overhead.
    pub(super) message: f64,
    /// The mean of the size's square.
    pub(super) square: f64,
    /// The mean of the size's cube.
    pub(super) cube: f64,
    /// Mean link time of the grants of a message: one grant for each packet that starts beyond RTTbytes.
    pub(super) grants: f64,
}

impl LinkMeans {
    pub(super) fn new(config: &ClusterConfig) -> LinkMeans {
        LinkMeans::with_grants(config, grants_of(config))
    }

    /// Computes the same means. The grants are left out if the load does not count them, since a network that
    /// is not validated yet may have no RTTbytes.
    pub(super) fn for_load(config: &ClusterConfig) -> LinkMeans {
        match config.load_basis {
            LoadBasis::Data => LinkMeans::with_grants(config, |_| 0.0),
            LoadBasis::DataAndGrants => LinkMeans::new(config),
        }
    }

    fn with_grants(config: &ClusterConfig, grants: impl Fn(u32) -> f64) -> LinkMeans {
        let [message, square, cube, grants] = means_of(&config.workload, |size| {
            let bytes = config.framing.link_bytes(&config.link, size) as f64;
            [bytes, bytes.powi(2), bytes.powi(3), grants(size)]
        });
        LinkMeans { message, square, cube, grants }
    }

    /// Returns the number of exchanges that start per second at each host at this load.
    ///
    /// Hosts are both clients and servers: in each direction, a host's link carries its own requests and an
    /// equal number of responses to other hosts.
    pub(super) fn exchanges_per_sec(&self, config: &ClusterConfig, load: f64) -> f64 {
        let grants = match config.load_basis {
            LoadBasis::Data => 0.0,
            LoadBasis::DataAndGrants => self.grants,
        };
        let mean = (self.message + grants) * f64::from(config.exchange.messages());
        load * config.link.rate_bps as f64 / (8.0 * mean)
    }

    /// Returns the fraction of the hosts' link capacity in use at this load, with `control_bytes` of control
    /// packets for the mean message.
    pub(super) fn link_share(&self, config: &ClusterConfig, load: f64, control_bytes: f64) -> f64 {
        let messages = self.exchanges_per_sec(config, load) * f64::from(config.exchange.messages());
        messages * (self.message + control_bytes) * 8.0 / config.link.rate_bps as f64
    }
}

/// Returns the number of exchanges that start per second at each host at this load.
pub(crate) fn messages_per_sec(config: &ClusterConfig, load: f64) -> f64 {
    LinkMeans::for_load(config).exchanges_per_sec(config, load)
}

/// Returns the mean link time of a message's grants in bytes: one grant for each packet that starts beyond
/// RTTbytes.
pub(crate) fn mean_grant_bytes(config: &ClusterConfig) -> f64 {
    mean_of(&config.workload, grants_of(config))
}

/// Returns a function that computes the link time of a message's grants, in bytes, from the message's size.
fn grants_of(config: &ClusterConfig) -> impl Fn(u32) -> f64 {
    let payload = config.framing.payload;
    let unscheduled = config.rtt_bytes().div_ceil(payload);
    let grant_bytes = f64::from(GRANT_LEN as u32 + config.link.overhead_bytes);
    move |size| f64::from(size.div_ceil(payload).saturating_sub(unscheduled)) * grant_bytes
}

impl Arrivals {
    /// # Panics
    /// If the load is so small or so large that gaps between messages are meaningless.
    pub(super) fn new(config: &ClusterConfig) -> Arrivals {
        let rate_per_sec = match config.traffic {
            Traffic::Uniform { load } => Some(messages_per_sec(config, load)),
            Traffic::Incast { .. } | Traffic::Closed { .. } => None,
        };
        let source = |host: u32| {
            let seed = mix(mix(config.seed) ^ u64::from(host));
            Source {
                host,
                gaps: rate_per_sec
                    .map(|rate| Poisson::new(rate, seed).expect("a load gives a rate of messages")),
                sizes: config.workload.sampler(seed),
                destinations: random_numbers(seed, DESTINATIONS),
            }
        };
        let hosts: Vec<Source> = (0..config.hosts as u32).map(source).collect();
        Arrivals { traffic: config.traffic, open: vec![0; hosts.len()], hosts }
    }

    pub(super) fn start(&mut self, queue: &mut EventQueue<Event<HostEvent>>) {
        match self.traffic {
            Traffic::Uniform { .. } => {
                for source in &mut self.hosts {
                    let gap = source.gap();
                    queue.push(Time::from_ns(gap), Event::Host(HostEvent::Arrival { host: source.host }));
                }
            }
            Traffic::Incast { .. } => queue.push(Time::ZERO, Event::Host(HostEvent::Round)),
            Traffic::Closed { outstanding } => {
                for host in 0..self.hosts.len() as u32 {
                    for _ in 0..outstanding {
                        queue.push(Time::ZERO, Event::Host(HostEvent::Arrival { host }));
                    }
                }
            }
        }
    }

    /// Returns whether the end of an exchange starts the next one.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.traffic, Traffic::Closed { .. })
    }

    /// Records that an exchange of this host starts.
    pub(super) fn record_start(&mut self, host: u32) {
        self.open[host as usize] += 1;
    }

    /// Records that an exchange of this host has ended. Returns whether the next one starts.
    pub(super) fn ended(&mut self, host: u32) -> bool {
        let open = &mut self.open[host as usize];
        *open -= 1;
        matches!(self.traffic, Traffic::Closed { outstanding } if *open < outstanding)
    }

    /// Returns the receiver and length of the message that starts now at a host, and the time until the
    /// host's next message.
    pub(super) fn next(&mut self, host: u32) -> (u32, u32, u64) {
        let hosts = self.hosts.len() as u32;
        let source = &mut self.hosts[host as usize];
        let other = source.destinations.random_range(0..hosts - 1);
        let to = if other < host { other } else { other + 1 };
        (to, source.length(), source.gap())
    }

    /// Returns the messages of a round of an incast: sender, receiver and length. Schedules the next round.
    pub(super) fn round(
        &mut self,
        queue: &mut EventQueue<Event<HostEvent>>,
        now: Time,
    ) -> Vec<(u32, u32, u32)> {
        let Traffic::Incast { senders, interval_ns } = self.traffic else { return Vec::new() };
        queue.push(now + interval_ns, Event::Host(HostEvent::Round));
        let others = self.hosts.len() - 1;
        (0..senders)
            .map(|sender| {
                let from = 1 + sender % others;
                (from as u32, 0, self.hosts[from].length())
            })
            .collect()
    }
}

impl Source {
    fn gap(&mut self) -> u64 {
        self.gaps.as_mut().and_then(Iterator::next).unwrap_or(u64::MAX / 2)
    }

    fn length(&mut self) -> u32 {
        self.sizes.next().unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs are reproduced from their seed: a mean that differs in its last bit changes every arrival.
    #[test]
    fn means_in_one_walk_are_those_of_a_search_for_each_quantile() {
        for name in ["w1", "w2", "w3", "w4", "w5", "short-long", "9999"] {
            let config = ClusterConfig::sigcomm18(Workload::named(name).unwrap(), 0.8, 1);
            let mean = |of: &dyn Fn(u32) -> f64| {
                let fractions = (0..PARTS).map(|part| (f64::from(part) + 0.5) / f64::from(PARTS));
                let sum: f64 = fractions.map(|fraction| of(config.workload.quantile(fraction))).sum();
                sum / f64::from(PARTS)
            };
            let bytes = |size| config.framing.link_bytes(&config.link, size) as f64;
            let expected = LinkMeans {
                message: mean(&bytes),
                square: mean(&|size| bytes(size).powi(2)),
                cube: mean(&|size| bytes(size).powi(3)),
                grants: mean(&grants_of(&config)),
            };
            assert_eq!(LinkMeans::new(&config), expected, "{name}");
            assert_eq!(mean_of(&config.workload, bytes), expected.message, "{name}");
            assert_eq!(mean_grant_bytes(&config), expected.grants, "{name}");
        }
    }
}
