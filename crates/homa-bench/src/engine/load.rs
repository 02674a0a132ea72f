//! Load: threads send messages when they are due and measure the latency of each response.
//!
//! A thread drives one or more client ports: it sends due messages and receives responses in between. Each
//! port has its own Poisson process of arrivals. A message that becomes due while `max_outstanding` RPCs are
//! open has to wait. Latency is measured from the due time, even if the thread itself was late.
//!
//! If the next message is due within 2 ms, the thread polls. Sleeping would be too imprecise: epoll's
//! timeouts are whole milliseconds, and waking up after a timer expires takes longer than a short RPC.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use homa_workload::{Poisson, SizeSampler, Workload};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use crate::engine::inflight::{InFlightRpcs, Rpc};
use crate::engine::link::{Answer, Link};
use crate::engine::pattern::Pattern;
use crate::engine::rtt::RttTable;
use crate::engine::tally::{Sample, Tally};

/// A sleeping thread wakes up at least this long before its next message is due.
const SLEEP_MARGIN: Duration = Duration::from_millis(2);

/// Maximum number of messages that a thread sends before it receives responses again.
const SENDS_PER_TURN: usize = 16;

/// After the load has ended, the remaining open RPCs count as lost once no response has arrived for this
/// long. Homa and TCP both give up on a silent peer, or retransmit to a live one, in less time.
const SILENCE: Duration = Duration::from_secs(5);

/// After the load has ended, all open RPCs count as lost after this time. In an overloaded network the
/// longest messages may need many times the duration of the load, and such latencies are valid results.
pub const DRAIN: Duration = Duration::from_secs(240);

/// How RPCs are started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Poisson arrivals. The load is the total over all client ports.
    Open {
        /// The offered load in Gbit/s of request payload.
        gbps: f64,
        /// Number of open RPCs per client port above which arrivals wait.
        max_outstanding: u32,
    },
    /// A constant number of open RPCs per client port.
    Closed {
        /// Number of open RPCs.
        outstanding: u32,
    },
}

/// The parameters of one slice of load.
#[derive(Clone, Debug)]
pub struct LoadSpec<'a> {
    /// The sizes of the messages.
    pub workload: &'a Workload,
    /// How RPCs are started.
    pub pace: Pace,
    /// Number of client ports of each thread.
    pub ports: &'a [usize],
    /// Number of server ports, over all servers.
    pub servers: usize,
    /// Load before the measurement window.
    pub warmup: Duration,
    /// Length of the measurement window.
    pub measured: Duration,
    /// Seed for arrivals, sizes and the choice of servers.
    pub seed: u64,
    /// Content of the messages.
    pub pattern: &'a Pattern,
    /// Round-trip times without load.
    pub unloaded: &'a RttTable,
    /// When the load begins; `None`: as soon as all threads run.
    pub start: Option<Instant>,
    /// Behaviour of a thread that has nothing to send.
    pub idle: IdleBehaviour,
    /// Whether each latency is kept in addition to the histograms.
    pub keep_samples: bool,
}

/// Behaviour of a generator thread that has nothing to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleBehaviour {
    /// Polls, as described in the module documentation.
    Poll,
    /// Sleeps until its next message is due or a response arrives, as precisely as the link allows. Intended
    /// for more generator threads than processors: polling threads would preempt each other. Each thread must
    /// have one client port.
    Sleep,
}

/// The times of a slice.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// When the load begins.
    pub start: Instant,
    /// When measuring begins.
    pub from: Instant,
    /// When the load and the measuring end.
    pub to: Instant,
}

/// Number of loads started so far. It distinguishes late responses to an earlier load on the same link from
/// those to this load.
static LOADS: AtomicU8 = AtomicU8::new(0);

/// Runs a slice with one thread per link, while `watch` runs in the calling thread.
pub fn run(
    spec: &LoadSpec<'_>,
    links: &mut [Box<dyn Link>],
    watch: impl FnOnce(Window) -> Result<Duration>,
) -> Result<Tally> {
    // All threads will have started by then.
    let start = spec.start.unwrap_or_else(|| Instant::now() + Duration::from_millis(2));
    let from = start + spec.warmup;
    let window = Window { start, from, to: from + spec.measured };
    let load = LOADS.fetch_add(1, Ordering::Relaxed);
    let mut tally = Tally::new(spec.workload);
    thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut first_port = 0;
        for (link, &ports) in links.iter_mut().zip(spec.ports) {
            let mut worker = Worker::new(spec, link.as_mut(), first_port, ports, window, load)?;
            first_port += ports;
            let thread = thread::Builder::new().name("bench-client".to_owned());
            threads.push(thread.spawn_scoped(scope, move || worker.run()).context("cannot start a thread")?);
        }
        let cpu = watch(window);
        for thread in threads {
            let result = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            tally.add(result?)?;
        }
        tally.cpu = cpu?;
        anyhow::Ok(())
    })?;
    tally.measured = spec.measured;
    Ok(tally)
}

/// The messages of a client port: their sizes and, in an open loop, their due times.
pub struct Arrivals {
    sizes: SizeSampler,
    /// Gaps between arrivals; `None` in a closed loop.
    gaps: Option<Poisson>,
}

impl Arrivals {
    /// Generates the messages of the client port with this index among the `ports` client ports of a load.
    ///
    /// # Errors
    /// The load is not positive.
    pub fn new(workload: &Workload, pace: Pace, ports: usize, index: usize, seed: u64) -> Result<Arrivals> {
        let seed = seed.wrapping_add((index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let gaps = match pace {
            Pace::Closed { .. } => None,
            Pace::Open { gbps, .. } => {
                Some(Poisson::for_gbps(gbps / ports as f64, workload.mean_bytes(), seed)?)
            }
        };
        Ok(Arrivals { sizes: workload.sampler(seed), gaps })
    }

    /// Draws the gap before the next message and the message's size in bytes.
    pub fn draw(&mut self) -> (Duration, u32) {
        let gap_ns = self.gaps.as_mut().and_then(Iterator::next).unwrap_or(0);
        (Duration::from_nanos(gap_ns), self.sizes.next().unwrap_or(1))
    }
}

/// Returns the random number generator with which a thread chooses the server of each message.
pub fn server_choice(seed: u64, first_port: usize) -> Pcg64 {
    Pcg64::seed_from_u64(seed ^ (first_port as u64) << 32)
}

/// A client port.
struct Port {
    arrivals: Arrivals,
    /// Whether messages have due times.
    is_open_loop: bool,
    /// The next message's due time and size.
    due: Instant,
    size: u32,
    open: u32,
    limit: u32,
    /// Whether the next message has already been counted as delayed by the limit on open RPCs.
    held: bool,
}

impl Port {
    fn new(spec: &LoadSpec<'_>, index: usize, start: Instant) -> Result<Port> {
        let arrivals = Arrivals::new(spec.workload, spec.pace, spec.ports.iter().sum(), index, spec.seed)?;
        let (is_open_loop, limit) = match spec.pace {
            Pace::Closed { outstanding } => (false, outstanding),
            Pace::Open { max_outstanding, .. } => (true, max_outstanding),
        };
        let mut port = Port { arrivals, is_open_loop, due: start, size: 0, open: 0, limit, held: false };
        port.draw();
        Ok(port)
    }

    /// Draws the next message.
    fn draw(&mut self) {
        let (gap, size) = self.arrivals.draw();
        self.due += gap;
        self.size = size;
        self.held = false;
    }

    fn full(&self) -> bool {
        self.open >= self.limit
    }
}

/// A thread of the generator.
struct Worker<'a> {
    spec: &'a LoadSpec<'a>,
    link: &'a mut dyn Link,
    window: Window,
    ports: Vec<Port>,
    in_flight: InFlightRpcs,
    choice: Pcg64,
    tally: Tally,
}

impl<'a> Worker<'a> {
    fn new(
        spec: &'a LoadSpec<'a>,
        link: &'a mut dyn Link,
        first_port: usize,
        ports: usize,
        window: Window,
        load: u8,
    ) -> Result<Worker<'a>> {
        let choice = server_choice(spec.seed, first_port);
        let ports = (first_port..first_port + ports)
            .map(|index| Port::new(spec, index, window.start))
            .collect::<Result<Vec<_>>>()?;
        let tally = Tally::new(spec.workload);
        Ok(Worker { spec, link, window, ports, in_flight: InFlightRpcs::new(load), choice, tally })
    }

    fn run(&mut self) -> Result<Tally> {
        let mut answers = Vec::new();
        loop {
            let now = Instant::now();
            if now >= self.window.to {
                break;
            }
            let sent = self.send_due(now);
            if sent {
                self.link.flush()?;
            }
            let wait = if sent { Duration::ZERO } else { self.idle_time(now) };
            self.link.receive(wait, &mut answers)?;
            if !sent && wait.is_zero() && answers.is_empty() {
                // With more threads than processors, a polling thread must not keep the server from running.
                thread::yield_now();
            }
            self.take(&mut answers);
        }
        self.finish(&mut answers)?;
        Ok(std::mem::replace(&mut self.tally, Tally::new(self.spec.workload)))
    }

    /// Sends due messages, at most [`SENDS_PER_TURN`]. Returns whether any message was sent; more may be due.
    fn send_due(&mut self, now: Instant) -> bool {
        let mut sends = 0;
        for index in 0..self.ports.len() {
            while !self.ports[index].is_open_loop || self.ports[index].due <= now {
                if self.ports[index].full() {
                    self.count_held(index);
                    break;
                }
                if sends == SENDS_PER_TURN {
                    return true;
                }
                sends += 1;
                self.send(index);
            }
        }
        sends > 0
    }

    fn count_held(&mut self, index: usize) {
        let port = &mut self.ports[index];
        if port.is_open_loop && !port.held {
            port.held = true;
            self.tally.counted.capped += 1;
        }
    }

    fn send(&mut self, index: usize) {
        let port = &mut self.ports[index];
        let due = if port.is_open_loop { port.due } else { Instant::now() };
        let size = port.size;
        port.draw();
        self.count_offered(due, size);
        let number = self.tally.counted.started;
        self.tally.counted.started += 1;
        let cookie = self.in_flight.insert(Rpc { due, size, port: index, number });
        let server = self.choice.random_range(0..self.spec.servers);
        let request = self.spec.pattern.request(number, size);
        match self.link.submit(index, server, cookie, request) {
            Ok(()) => self.ports[index].open += 1,
            Err(error) => {
                self.in_flight.remove(cookie);
                self.tally.error(|| error);
            }
        }
    }

    fn count_offered(&mut self, due: Instant, size: u32) {
        if (self.window.from..self.window.to).contains(&due) {
            self.tally.counted.offered_bytes += u64::from(size);
        }
    }

    /// Returns for how long the thread may sleep because nothing becomes due earlier. With
    /// [`IdleBehaviour::Poll`], a thread with several ports never sleeps, whatever the protocol, because with
    /// Homa it could sleep on only one port.
    fn idle_time(&self, now: Instant) -> Duration {
        let margin = match self.spec.idle {
            IdleBehaviour::Poll if self.ports.len() > 1 => return Duration::ZERO,
            IdleBehaviour::Poll => SLEEP_MARGIN,
            IdleBehaviour::Sleep => Duration::ZERO,
        };
        let mut until = self.window.to;
        for port in self.ports.iter().filter(|port| port.is_open_loop && !port.full()) {
            until = until.min(port.due);
        }
        until.saturating_duration_since(now).saturating_sub(margin)
    }

    fn take(&mut self, answers: &mut Vec<Answer>) {
        for answer in answers.drain(..) {
            // The earlier load has already counted this RPC as lost.
            if !self.in_flight.is_own(answer.cookie) {
                continue;
            }
            let Some(rpc) = self.in_flight.remove(answer.cookie) else {
                self.tally.counted.duplicated += 1;
                continue;
            };
            self.ports[rpc.port].open -= 1;
            let checked =
                answer.result.and_then(|payload| self.spec.pattern.check(rpc.number, rpc.size, &payload));
            if let Err(error) = checked {
                self.tally.error(|| error);
                continue;
            }
            self.tally.counted.answered += 1;
            if (self.window.from..self.window.to).contains(&answer.at) {
                self.tally.counted.goodput_bytes += u64::from(rpc.size);
            }
            if (self.window.from..self.window.to).contains(&rpc.due) {
                let rtt_ns = answer.at.saturating_duration_since(rpc.due).as_nanos() as u64;
                self.tally.recorder.record(rpc.size, rtt_ns, self.spec.unloaded.rtt_ns(rpc.size));
                if self.spec.keep_samples {
                    self.tally.samples.push(Sample { bytes: rpc.size, rtt_ns });
                }
            }
        }
    }

    /// Waits for the remaining open RPCs, and counts unsent and lost messages.
    fn finish(&mut self, answers: &mut Vec<Answer>) -> Result<()> {
        for index in 0..self.ports.len() {
            while self.ports[index].is_open_loop && self.ports[index].due < self.window.to {
                self.tally.counted.unsent += 1;
                self.count_offered(self.ports[index].due, self.ports[index].size);
                self.ports[index].draw();
            }
        }
        let ended = Instant::now();
        let mut heard = ended;
        while !self.in_flight.is_empty() && heard.elapsed() < SILENCE && ended.elapsed() < DRAIN {
            self.link.receive(Duration::from_millis(10), answers)?;
            if !answers.is_empty() {
                heard = Instant::now();
            }
            self.take(answers);
        }
        self.tally.counted.lost += self.in_flight.len() as u64;
        if self.tally.counted.lost > 0 {
            let lost = self.tally.counted.lost;
            self.tally.counted.first_error.get_or_insert_with(|| format!("{lost} RPCs were never answered"));
        }
        Ok(())
    }
}
