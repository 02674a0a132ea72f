//! The standard application: echo servers, and clients that load them.

use std::collections::BTreeMap;
use std::ops::Range;

use homa_proto::{CallOptions, RpcError, RpcKey, SendError, Time};
use homa_workload::{Poisson, SizeSampler, Workload};
use rand::Rng;
use rand_pcg::Pcg64;

use crate::app::{App, HostCtx, Reply};
use crate::payload::{mix, random_numbers};

/// The times at which a client starts RPCs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Closed loop: each client keeps this many RPCs open, and starts the next when one ends.
    Closed {
        /// RPCs open per client, at least 1.
        outstanding: u32,
    },
    /// Each client starts RPCs as a Poisson process, independent of the completion of earlier RPCs.
    Open {
        /// Rate of request payload per client, in Gbit/s.
        gbps: f64,
    },
}

/// Length of responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseSize {
    /// As long as the request.
    Echo,
    /// A fixed number of bytes, at least 1.
    Fixed(u32),
}

/// The standard load.
#[derive(Clone, Debug)]
pub struct Load {
    /// Sizes of the requests.
    pub workload: Workload,
    /// Sizes of the responses.
    pub response: ResponseSize,
    /// Start times of the RPCs.
    pub arrivals: Arrivals,
    /// Total number of RPCs, divided evenly among the clients; `u64::MAX`: unlimited until `stop_at`.
    pub rpcs: u64,
    /// Time after which no RPC starts.
    pub stop_at: Time,
    /// The hosts that are clients. A host may be both client and server.
    pub clients: Range<usize>,
    /// The hosts that are servers. Each RPC goes to a uniformly random server other than its client.
    pub servers: Range<usize>,
    /// Time that a server takes to compute an answer.
    pub server_delay_ns: u64,
    /// Length of the intervals in which goodput is counted; 0: not counted.
    pub goodput_interval_ns: u64,
    /// Whether the time of each RPC is stored in [`LoadCounts::rtts_ns`].
    pub record_rtts: bool,
}

impl Load {
    /// Returns a load in which host 0 keeps `outstanding` RPCs open to host 1, which echoes them; 1,000 RPCs
    /// in total.
    pub fn closed(workload: Workload, outstanding: u32) -> Load {
        Load {
            workload,
            response: ResponseSize::Echo,
            arrivals: Arrivals::Closed { outstanding },
            rpcs: 1_000,
            stop_at: Time::NEVER,
            clients: 0..1,
            servers: 1..2,
            server_delay_ns: 0,
            goodput_interval_ns: 0,
            record_rtts: false,
        }
    }

    /// Returns a load in which host 0 sends requests to host 1 at `gbps` until `stop_at`.
    pub fn open(workload: Workload, gbps: f64, stop_at: Time) -> Load {
        Load { arrivals: Arrivals::Open { gbps }, rpcs: u64::MAX, stop_at, ..Load::closed(workload, 1) }
    }

    fn share(&self, host: usize) -> u64 {
        if !self.clients.contains(&host) {
            return 0;
        }
        if self.rpcs == u64::MAX {
            return u64::MAX;
        }
        let (clients, index) = (self.clients.len() as u64, (host - self.clients.start) as u64);
        self.rpcs / clients + u64::from(index < self.rpcs % clients)
    }
}

/// Counts of one client of the load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadCounts {
    /// RPCs started.
    pub started: u64,
    /// RPCs answered.
    pub answered: u64,
    /// RPCs failed, by error.
    pub failed: BTreeMap<String, u64>,
    /// RPCs refused by the endpoint, by error.
    pub refused: BTreeMap<String, u64>,
    /// Responses with a wrong length.
    pub lengths_wrong: u64,
    /// RPCs that were open when the host crashed, so that their end was never reported.
    pub vanished: u64,
    /// Reported ends of RPCs that were not open: RPCs that ended twice or never started.
    pub unexpected: u64,
    /// Bytes of complete requests and responses that this host received, by interval.
    pub goodput_bytes: Vec<u64>,
    /// Request length in bytes, and nanoseconds until the response, of each RPC in order of completion.
    pub rtts_ns: Vec<(u32, u64)>,
}

/// One host of the standard load: a client, an echo server, or both.
pub struct RpcLoad {
    load: Load,
    to_start: u64,
    sizes: SizeSampler,
    gaps: Option<Poisson>,
    next_start: Time,
    rng: Pcg64,
    next_cookie: u64,
    /// Request length and start of each open RPC, by cookie.
    open: BTreeMap<u64, (u32, Time)>,
    /// The client's counts.
    pub counts: LoadCounts,
}

/// Homa port of every server of the load.
const SERVER_PORT: u16 = 99;
/// Random stream for the choice of servers.
const STREAM: u64 = 0x10ad;
/// Time that a closed-loop client waits before it retries a refused RPC.
const RETRY_NS: u64 = homa_proto::MS;

const TOKEN_ARRIVAL: u64 = 0;
const TOKEN_RETRY: u64 = 1;

impl RpcLoad {
    /// Makes the application of host `host`.
    ///
    /// # Panics
    /// If the load's rate is out of the range of [`Poisson::for_gbps`], or a client has no server but itself.
    pub fn new(load: &Load, seed: u64, host: usize) -> RpcLoad {
        let is_client = load.clients.contains(&host);
        let only_itself = load.servers.is_empty() || load.servers == (host..host + 1);
        assert!(!is_client || !only_itself, "client {host} has no server but itself");
        let own_seed = mix(mix(seed) ^ host as u64);
        let gaps = match load.arrivals {
            Arrivals::Open { gbps } => match Poisson::for_gbps(gbps, load.workload.mean_bytes(), own_seed) {
                Ok(gaps) => Some(gaps),
                Err(error) => panic!("the load of {gbps} Gbit/s is impossible: {error}"),
            },
            Arrivals::Closed { .. } => None,
        };
        RpcLoad {
            to_start: load.share(host),
            sizes: load.workload.sampler(own_seed),
            gaps,
            next_start: Time::ZERO,
            rng: random_numbers(own_seed, STREAM),
            next_cookie: 0,
            open: BTreeMap::new(),
            counts: LoadCounts::default(),
            load: load.clone(),
        }
    }

    /// Returns whether all RPCs of this client have started and ended.
    pub fn is_done(&self, now: Time) -> bool {
        self.open.is_empty() && (self.to_start == 0 || now >= self.load.stop_at)
    }

    /// Returns the number of open RPCs.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Starts one RPC. Returns false if none is left to start, or the endpoint refused it.
    fn start(&mut self, host: &mut HostCtx<'_>) -> bool {
        if self.to_start == 0 || host.now() >= self.load.stop_at {
            return false;
        }
        let length = self.sizes.next().unwrap_or(1);
        let servers = self.load.servers.clone();
        let to = loop {
            let to = self.rng.random_range(servers.clone());
            if to != host.host() {
                break to;
            }
        };
        let options = CallOptions { cookie: self.next_cookie, ..CallOptions::default() };
        if let Err(error) = host.call(to, SERVER_PORT, length, options) {
            *self.counts.refused.entry(refusal(&error)).or_default() += 1;
            return false;
        }
        self.open.insert(self.next_cookie, (length, host.now()));
        self.next_cookie += 1;
        self.counts.started += 1;
        if self.to_start != u64::MAX {
            self.to_start -= 1;
        }
        true
    }

    fn schedule_arrival(&mut self, host: &mut HostCtx<'_>) {
        if let Some(gap_ns) = self.gaps.as_mut().and_then(Iterator::next) {
            self.next_start = self.next_start + gap_ns;
            if self.to_start > 0 && self.next_start < self.load.stop_at {
                host.set_timer(self.next_start, TOKEN_ARRIVAL);
            }
        }
    }

    /// Starts RPCs until a closed loop has its number of open RPCs.
    fn fill(&mut self, host: &mut HostCtx<'_>) {
        let Arrivals::Closed { outstanding } = self.load.arrivals else { return };
        while self.open.len() < outstanding as usize {
            if !self.start(host) {
                if self.to_start > 0 && host.now() < self.load.stop_at {
                    host.set_timer(host.now() + RETRY_NS, TOKEN_RETRY);
                }
                return;
            }
        }
    }

    fn ended(&mut self, cookie: u64) -> Option<(u32, Time)> {
        let request = self.open.remove(&cookie);
        self.counts.unexpected += u64::from(request.is_none());
        request
    }

    fn count_goodput(&mut self, now: Time, bytes: u32) {
        if let Some(interval) = now.as_ns().checked_div(self.load.goodput_interval_ns) {
            let interval = interval as usize;
            if interval >= self.counts.goodput_bytes.len() {
                self.counts.goodput_bytes.resize(interval + 1, 0);
            }
            self.counts.goodput_bytes[interval] += u64::from(bytes);
        }
    }
}

/// Returns the name of an error without the numbers in it. With the numbers, each error would count as a
/// separate kind.
fn refusal(error: &SendError) -> String {
    match error {
        SendError::LimitReached { name } => format!("LimitReached {name}"),
        SendError::MessageTooLarge { .. } => "MessageTooLarge".to_owned(),
        other => format!("{other:?}"),
    }
}

impl App for RpcLoad {
    fn on_start(&mut self, host: &mut HostCtx<'_>) {
        if self.load.servers.contains(&host.host()) {
            host.bind(SERVER_PORT).expect("the port of a new endpoint is free");
        }
        self.counts.vanished += self.open.len() as u64;
        self.open.clear();
        self.next_start = host.now();
        if self.load.clients.contains(&host.host()) {
            self.schedule_arrival(host);
            self.fill(host);
        }
    }

    fn on_request(&mut self, host: &mut HostCtx<'_>, _: RpcKey, _: usize, _: u16, request: u32) -> Reply {
        self.count_goodput(host.now(), request);
        let length = match self.load.response {
            ResponseSize::Echo => request,
            ResponseSize::Fixed(length) => length,
        };
        match self.load.server_delay_ns {
            0 => Reply::Now(length),
            delay_ns => Reply::After { delay_ns, length },
        }
    }

    fn on_response(&mut self, host: &mut HostCtx<'_>, cookie: u64, length: u32) {
        self.count_goodput(host.now(), length);
        if let Some((request, start)) = self.ended(cookie) {
            self.counts.answered += 1;
            if self.load.record_rtts {
                self.counts.rtts_ns.push((request, host.now().since(start)));
            }
            let expected = match self.load.response {
                ResponseSize::Echo => request,
                ResponseSize::Fixed(length) => length,
            };
            self.counts.lengths_wrong += u64::from(length != expected);
        }
        self.fill(host);
    }

    fn on_failed(&mut self, host: &mut HostCtx<'_>, cookie: u64, error: RpcError) {
        self.ended(cookie);
        *self.counts.failed.entry(format!("{error:?}")).or_default() += 1;
        self.fill(host);
    }

    fn on_timer(&mut self, host: &mut HostCtx<'_>, token: u64) {
        if token == TOKEN_RETRY {
            self.fill(host);
        } else {
            self.start(host);
            self.schedule_arrival(host);
        }
    }
}
