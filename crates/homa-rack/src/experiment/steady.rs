//! Selects quiet times for the start and end of a load's measurement window: times at which the load's
//! messages would leave an ideal network nearly empty.
//!
//! A measurement window of a few seconds contains few of the longest messages. If several of them are in
//! flight at the start or end of the window, no protocol completes the due bytes, and the run seems to have
//! fallen behind. This was tried with 12 draws of W3 (6 s, 4 hosts, 60 to 80 % load; docs/perf). Ideal links
//! completed 0.88 to 1.05 of the due bytes, and Homa and TCP completed the same share within 0.03. Therefore,
//! before the measurement, a simulation of the same messages on ideal links selects the times. All protocols
//! get the same times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use anyhow::Result;
use homa_bench::engine::load::{Arrivals, server_choice};
use homa_workload::Workload;
use rand::Rng;

use super::agent_protocol::Rate;
use super::framing::{ONE_WAY_ANSWER, wire_bytes};
use super::testbed::Load;
use crate::spec::Spec;

/// Maximum shift of the measurement window's start and end, as a share of the window's length.
const SHIFT: f64 = 0.12;

/// Maximum bytes in flight on ideal links at the start and end, as a share of the bytes completed in between,
/// for a load to be accepted.
const LEFT_OVER: f64 = 0.015;

/// Rate of the ideal links as a share of the real rate. No transport uses a link completely, and SRPT
/// finishes the longest messages last. In a test with ideal links of the full rate, Homa still had 3 % of the
/// due bytes in flight when the ideal links were just empty (50 Mbit/s, W3, 70 % load, equal in 9
/// repetitions). The run then seemed to have fallen behind.
const USABLE: f64 = 0.85;

/// Number of seeds to try. In a short measurement window, a few of the longest messages can be in flight at
/// both ends.
const CANDIDATES: u64 = 12;

/// Moves the measurement window of a load within the planned time, so that the window starts and ends when
/// ideal links have few bytes in flight. Uses the next seed that has such times. A closed-loop load is
/// returned unchanged.
///
/// # Errors
/// The load is zero.
pub fn between_quiet_moments(
    load: Load,
    spec: &Spec,
    workload: &Workload,
    connections: u16,
    one_way: bool,
) -> Result<Load> {
    let mut best: Option<(f64, Load)> = None;
    for candidate in 0..CANDIDATES {
        let load = Load { seed: load.seed.wrapping_add(candidate), ..load.clone() };
        let Some(in_flight) = InFlight::of(&load, spec, workload, connections, one_way)? else {
            return Ok(load);
        };
        let (end, shift) = (load.warmup + load.measured, load.measured.mul_f64(SHIFT));
        let (from, before) = in_flight.quietest(load.warmup, load.warmup + shift);
        let (to, after) = in_flight.quietest(end - shift, end);
        let left_over = (before + after) as f64 / in_flight.completed(from, to).max(1) as f64;
        if best.as_ref().is_none_or(|(least, _)| left_over < *least) {
            best = Some((left_over, Load { warmup: from, measured: to - from, ..load }));
        }
        if left_over <= LEFT_OVER {
            break;
        }
    }
    Ok(best.map_or(load, |(_, load)| load))
}

/// Number of request bytes that are due but unanswered on ideal links: the times at which the number changes,
/// and the new number.
struct InFlight(Vec<(u64, i64)>);

/// A message handed to its sender. Messages are ordered by time; the number makes the order total.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Leg {
    at_ns: u64,
    number: usize,
    from: usize,
    to: usize,
    bytes: u32,
    is_request: bool,
}

/// Full-duplex links that carry one message after another at the full rate.
struct Links {
    bits_per_ns: f64,
    mtu: u32,
    up_free_ns: Vec<u64>,
    down_free_ns: Vec<u64>,
}

impl Links {
    /// Returns the arrival time of a message that is handed to its sender at `now_ns`.
    fn arrival_of(&mut self, now_ns: u64, from: usize, to: usize, bytes: u32) -> u64 {
        let time_ns = (wire_bytes(bytes, self.mtu) as f64 * 8.0 / self.bits_per_ns) as u64;
        let start_ns = now_ns.max(self.up_free_ns[from]);
        self.up_free_ns[from] = start_ns + time_ns;
        let end_ns = start_ns.max(self.down_free_ns[to]) + time_ns;
        self.down_free_ns[to] = end_ns;
        end_ns
    }
}

impl InFlight {
    fn of(
        load: &Load,
        spec: &Spec,
        workload: &Workload,
        connections: u16,
        one_way: bool,
    ) -> Result<Option<InFlight>> {
        let end_ns = ns(load.warmup + load.measured);
        let Some(mut legs) = requests(load, end_ns, workload, connections)? else { return Ok(None) };
        let hosts = load.rates.len();
        let mut links = Links {
            bits_per_ns: spec.rate_bps as f64 / 1e9 * USABLE,
            mtu: spec.mtu,
            up_free_ns: vec![0; hosts],
            down_free_ns: vec![0; hosts],
        };
        let mut changes = Vec::with_capacity(2 * legs.len());
        while let Some(Reverse(leg)) = legs.pop() {
            let Leg { at_ns, from, to, bytes, is_request, .. } = leg;
            let answer = if one_way { ONE_WAY_ANSWER } else { bytes };
            let end_ns = links.arrival_of(at_ns, from, to, if is_request { bytes } else { answer });
            if is_request {
                changes.push((at_ns, i64::from(bytes)));
                legs.push(Reverse(Leg { at_ns: end_ns, from: to, to: from, is_request: false, ..leg }));
            } else {
                changes.push((end_ns, -i64::from(bytes)));
            }
        }
        changes.sort_unstable();
        let mut bytes = 0;
        for change in &mut changes {
            bytes += change.1;
            change.1 = bytes;
        }
        Ok(Some(InFlight(changes)))
    }

    /// Returns the time between `from` and `to` at which the fewest bytes are in flight, and the number of
    /// these bytes.
    fn quietest(&self, from: Duration, to: Duration) -> (Duration, i64) {
        let quietest = self.within(from, to).iter().min_by_key(|(_, bytes)| *bytes);
        quietest.map_or((from, 0), |&(at_ns, bytes)| (Duration::from_nanos(at_ns), bytes))
    }

    /// Returns the number of bytes completed between `from` and `to`.
    fn completed(&self, from: Duration, to: Duration) -> i64 {
        self.within(from, to).windows(2).map(|pair| (pair[0].1 - pair[1].1).max(0)).sum()
    }

    /// Returns the changes between `from` and `to`, both inclusive.
    fn within(&self, from: Duration, to: Duration) -> &[(u64, i64)] {
        let first = self.0.partition_point(|(at_ns, _)| *at_ns < ns(from));
        let end = self.0.partition_point(|(at_ns, _)| *at_ns <= ns(to));
        &self.0[first..end.max(first)]
    }
}

/// Returns the requests of all hosts that are due before the end, or `None` in a closed loop.
fn requests(
    load: &Load,
    end_ns: u64,
    workload: &Workload,
    connections: u16,
) -> Result<Option<BinaryHeap<Reverse<Leg>>>> {
    let mut legs = BinaryHeap::new();
    for (host, rate) in load.rates.iter().enumerate() {
        let Some(rate) = *rate else { continue };
        if matches!(rate, Rate::Closed { .. }) {
            return Ok(None);
        }
        let seed = load.seed_of_host(host);
        let mut arrivals = Arrivals::new(workload, rate.into(), 1, 0, seed)?;
        let mut choice = server_choice(seed, 0);
        let peers: Vec<usize> = (0..load.rates.len()).filter(|&peer| peer != host).collect();
        let (gap, mut bytes) = arrivals.draw();
        let mut at_ns = ns(gap);
        while at_ns < end_ns {
            let server = choice.random_range(0..peers.len() * usize::from(connections));
            let to = peers[server / usize::from(connections)];
            legs.push(Reverse(Leg { at_ns, number: legs.len(), from: host, to, bytes, is_request: true }));
            let (gap, next) = arrivals.draw();
            (at_ns, bytes) = (at_ns + ns(gap), next);
        }
    }
    Ok(Some(legs))
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::SwitchKind;

    fn spec() -> Spec {
        Spec {
            name: "a".to_owned(),
            hosts: 4,
            rate_bps: 50_000_000,
            mtu: 1_500,
            switch: SwitchKind::Homa,
            buffer: "1ms".to_owned(),
            switch_options: Vec::new(),
        }
    }

    fn load(gbps: f64, measured_s: u64) -> Load {
        Load {
            rates: vec![Some(Rate::Open { gbps, max_outstanding: 2_000 }); 4],
            warmup: Duration::from_secs(1),
            measured: Duration::from_secs(measured_s),
            seed: 1,
        }
    }

    /// Returns messages truncated to 1 % of the bytes that a link carries in 4 s.
    fn workload() -> Workload {
        Workload::named("w3").unwrap().truncated(250_000).unwrap()
    }

    /// Returns the bytes that ideal links complete in the measurement window, divided by the bytes due in the
    /// window.
    fn fraction(load: &Load) -> f64 {
        let in_flight = InFlight::of(load, &spec(), &workload(), 4, false).unwrap().unwrap();
        let (from, to) = (load.warmup, load.warmup + load.measured);
        let due: i64 = in_flight.within(from, to).windows(2).map(|pair| (pair[1].1 - pair[0].1).max(0)).sum();
        in_flight.completed(from, to) as f64 / due as f64
    }

    #[test]
    fn a_long_time_at_half_load_completes_what_is_due_and_an_overload_does_not() {
        assert!((fraction(&load(0.010, 300)) - 1.0).abs() < 0.01);
        let overload = fraction(&load(0.050, 30));
        assert!((0.2..0.5).contains(&overload), "links carry less than half of it: {overload}");
    }

    #[test]
    fn a_short_time_between_quiet_moments_completes_what_is_due() {
        let (mut planned_error, mut error) = (0.0, 0.0);
        for seed in 0..8 {
            let planned = Load { seed, ..load(0.015, 4) };
            let moved = between_quiet_moments(planned.clone(), &spec(), &workload(), 4, false).unwrap();
            planned_error += (fraction(&planned) - 1.0).abs();
            error += (fraction(&moved) - 1.0).abs();
            let end = moved.warmup + moved.measured;
            assert!(moved.warmup >= planned.warmup && end <= planned.warmup + planned.measured);
            assert!(moved.measured >= planned.measured.mul_f64(1.0 - 2.0 * SHIFT));
        }
        assert!(error < planned_error / 2.5 && error / 8.0 < 0.015, "{error}, as planned {planned_error}");
    }

    #[test]
    fn a_closed_loop_has_no_moments_to_choose() {
        let closed = Load { rates: vec![Some(Rate::Closed { outstanding: 3 }); 4], ..load(0.01, 1) };
        let same = between_quiet_moments(closed.clone(), &spec(), &workload(), 4, false).unwrap();
        assert_eq!((same.warmup, same.measured), (closed.warmup, closed.measured));
    }
}
