//! A closed loop of messages of one size on one link. It measures round trips and processor time.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::cpu;
use crate::engine::inflight::{InFlightRpcs, Rpc};
use crate::engine::link::{Answer, Link};
use crate::engine::pattern::Pattern;

/// After the measurement window, the remaining open RPCs count as lost once no response has arrived for this
/// long.
const SILENCE: Duration = Duration::from_secs(2);

/// Minimum timeout when waiting for responses.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// The settings of a closed loop.
#[derive(Clone, Copy, Debug)]
pub struct Spec<'a> {
    /// Size of each request in bytes.
    pub size: u32,
    /// Number of RPCs that are open at all times.
    pub outstanding: usize,
    /// The warm-up before the measurement window.
    pub warmup: Duration,
    /// Length of the measurement window.
    pub measured: Duration,
    /// Content of the messages.
    pub pattern: &'a Pattern,
    /// Process ID of the server.
    pub server: u32,
}

/// The results of a closed loop.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Round trips in nanoseconds of all RPCs that ended within the measurement window.
    pub rtts_ns: Vec<u64>,
    /// Actual length of the measurement window.
    pub elapsed: Duration,
    /// Processor time of this process and of the server's process.
    pub cpu: Duration,
    /// Number of packets in both directions; `None` if the link does not count them.
    pub packets: Option<u64>,
    /// Number of RPCs that failed, had a wrong response, or were lost.
    pub errors: u64,
    /// The first error.
    pub first_error: Option<String>,
}

impl Sample {
    /// Returns a percentile of the round trips in microseconds, or `None` if there are no round trips.
    /// `fraction` is 0.5 for the median.
    pub fn rtt_us(&mut self, fraction: f64) -> Option<f64> {
        let last = self.rtts_ns.len().checked_sub(1)?;
        let index = ((last as f64) * fraction).round() as usize;
        Some(*self.rtts_ns.select_nth_unstable(index).1 as f64 / 1e3)
    }

    /// Returns the RPCs per second.
    pub fn rate(&self) -> f64 {
        self.rtts_ns.len() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Returns the processor time per RPC in nanoseconds, or `None` if no RPC ended.
    pub fn cpu_ns_per_rpc(&self) -> Option<f64> {
        (!self.rtts_ns.is_empty()).then(|| self.cpu.as_nanos() as f64 / self.rtts_ns.len() as f64)
    }

    /// Returns the processor time to send and receive a packet in nanoseconds, or `None` if packets were not
    /// counted.
    pub fn cpu_ns_per_packet(&self) -> Option<f64> {
        let packets = self.packets.filter(|&packets| packets > 0)?;
        Some(self.cpu.as_nanos() as f64 / packets as f64)
    }

    fn error(&mut self, text: String) {
        self.errors += 1;
        self.first_error.get_or_insert(text);
    }
}

/// The counters at the beginning or the end of the measurement window.
struct CounterSnapshot {
    at: Instant,
    cpu: Duration,
    packets: Option<u64>,
}

impl CounterSnapshot {
    fn now(link: &dyn Link, server: u32) -> CounterSnapshot {
        let cpu = cpu::precise_time_of(std::process::id()) + cpu::precise_time_of(server);
        CounterSnapshot { at: Instant::now(), cpu, packets: link.packets() }
    }
}

/// Runs the closed loop in this thread. `number` counts the RPCs of all closed loops on this link.
///
/// # Errors
/// The link is broken, or refuses an RPC.
pub fn run(link: &mut dyn Link, spec: &Spec<'_>, number: &mut u64) -> Result<Sample> {
    let mut sample = Sample::default();
    let mut open = InFlightRpcs::new(0);
    let mut answers = Vec::new();
    let mut begin: Option<CounterSnapshot> = None;
    let from = Instant::now() + spec.warmup;
    loop {
        let now = Instant::now();
        if begin.is_none() && now >= from {
            begin = Some(CounterSnapshot::now(link, spec.server));
        }
        let end = begin.as_ref().map_or(from, |begin| begin.at + spec.measured);
        // On a busy machine the first response may arrive after the measurement window.
        if begin.is_some() && now >= end && (!sample.rtts_ns.is_empty() || now >= end + SILENCE) {
            break;
        }
        while open.len() < spec.outstanding {
            submit(link, spec, &mut open, number)?;
        }
        link.flush()?;
        link.receive(end.saturating_duration_since(now).max(SHORTEST_WAIT), &mut answers)?;
        take(spec, &mut open, &mut answers, &mut sample, begin.is_some());
    }
    if let Some(begin) = begin {
        let end = CounterSnapshot::now(link, spec.server);
        sample.elapsed = end.at - begin.at;
        sample.cpu = end.cpu.saturating_sub(begin.cpu);
        sample.packets = end.packets.zip(begin.packets).map(|(end, begin)| end - begin);
    }
    let mut heard = Instant::now();
    while !open.is_empty() && heard.elapsed() < SILENCE {
        link.receive(Duration::from_millis(10), &mut answers)?;
        if !answers.is_empty() {
            heard = Instant::now();
        }
        take(spec, &mut open, &mut answers, &mut sample, false);
    }
    for _ in 0..open.len() {
        sample.error("an RPC was never answered".to_owned());
    }
    Ok(sample)
}

fn submit(link: &mut dyn Link, spec: &Spec<'_>, open: &mut InFlightRpcs, number: &mut u64) -> Result<()> {
    *number += 1;
    let request = spec.pattern.request(*number, spec.size);
    let rpc = Rpc { due: Instant::now(), size: spec.size, port: 0, number: *number };
    link.submit(0, 0, open.insert(rpc), request).map_err(|error| anyhow!(error))
}

fn take(
    spec: &Spec<'_>,
    open: &mut InFlightRpcs,
    answers: &mut Vec<Answer>,
    sample: &mut Sample,
    measured: bool,
) {
    for answer in answers.drain(..) {
        let Some(rpc) = open.remove(answer.cookie) else {
            sample.error("an RPC was answered twice".to_owned());
            continue;
        };
        match answer.result.and_then(|payload| spec.pattern.check(rpc.number, rpc.size, &payload)) {
            Err(error) => sample.error(error),
            Ok(()) if measured => {
                sample.rtts_ns.push(answer.at.saturating_duration_since(rpc.due).as_nanos() as u64);
            }
            Ok(()) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    /// A link that answers at once; its first response is wrong.
    #[derive(Default)]
    struct Mirror {
        waiting: Vec<(u64, Bytes)>,
        packets: u64,
    }

    impl Link for Mirror {
        fn submit(&mut self, _: usize, _: usize, cookie: u64, request: Bytes) -> Result<(), String> {
            let answer = if self.packets == 0 { request.slice(1..) } else { request };
            self.packets += 2;
            self.waiting.push((cookie, answer));
            Ok(())
        }

        fn receive(&mut self, _: Duration, answers: &mut Vec<Answer>) -> Result<()> {
            let answer = |(cookie, payload)| Answer { cookie, at: Instant::now(), result: Ok(payload) };
            answers.extend(self.waiting.drain(..).map(answer));
            Ok(())
        }

        fn packets(&self) -> Option<u64> {
            Some(self.packets)
        }
    }

    #[test]
    fn every_rpc_counts_and_wrong_answers_are_errors() {
        let pattern = Pattern::new(100, 1, false);
        let milli = Duration::from_millis(1);
        let spec = Spec {
            size: 100,
            outstanding: 3,
            warmup: milli,
            measured: milli,
            pattern: &pattern,
            server: std::process::id(),
        };
        let mut number = 0;
        let mut link = Mirror::default();
        let mut sample = run(&mut link, &spec, &mut number).expect("a link that works");
        assert_eq!((sample.errors, link.packets), (1, 2 * number));
        assert!(sample.elapsed >= milli && sample.rate() > 0.0);
        let rpcs = sample.rtts_ns.len() as u64;
        let packets = sample.packets.expect("counted");
        // An RPC in flight at the start or the end of the measurement window has at most one of its packets
        // counted.
        assert!(packets.abs_diff(2 * rpcs) <= 12, "{packets} packets of {rpcs} RPCs");
        assert!(sample.rtt_us(0.5) <= sample.rtt_us(0.99));
        assert!(Sample::default().rtt_us(0.5).is_none());
    }
}
