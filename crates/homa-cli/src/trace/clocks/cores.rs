//! Compares the counters of two processors, which exchange values for this purpose.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};
use std::thread;

use anyhow::Result;
use homa_trace::{Source, Ticks};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The difference between two processors' counters.
pub struct Skew {
    pub cpus: (usize, usize),
    /// Lower and upper bound of the difference, in nanoseconds.
    pub bounds_ns: (f64, f64),
}

/// Number of values exchanged in each direction. Each takes a few hundred nanoseconds if both processors are
/// running the threads.
const ROUNDS: u64 = 20_000;
/// Time limit for the exchange, in nanoseconds. If processors are shared, the threads may have to wait for
/// each other.
const PATIENCE_NS: u64 = 500_000_000;

/// Compares the first processor that this process may use with each of its other processors.
///
/// # Errors
/// The processors cannot be listed or selected.
pub fn skews() -> Result<Vec<Skew>> {
    let allowed = sched_getaffinity(None)?;
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let [first, rest @ ..] = &cpus[..] else { return Ok(Vec::new()) };
    let rate = Ticks::start().rate();
    let mut skews = Vec::new();
    for cpu in rest {
        let Some((least, most)) = exchange(*first, *cpu)? else { continue };
        let ns = |ticks: i64| ticks as f64 * 1e9 / rate.hz() as f64;
        skews.push(Skew { cpus: (*first, *cpu), bounds_ns: (ns(least), ns(most)) });
    }
    Ok(skews)
}

/// Returns bounds on how far the second processor's counter is ahead, in ticks. A counter that is read after
/// receiving a value cannot be earlier than that value. This holds in both directions.
fn exchange(first: usize, second: usize) -> Result<Option<(i64, i64)>> {
    let there = AtomicU64::new(0);
    let back = AtomicU64::new(0);
    thread::scope(|scope| {
        let other = scope.spawn(|| -> Result<i64> {
            pin(second)?;
            let mut most = i64::MAX;
            let begin = Source::MonotonicRaw.now();
            for _ in 0..ROUNDS {
                let Some(sent) = take(&there, begin) else { break };
                most = most.min(Source::Tsc.now().wrapping_sub(sent) as i64);
                back.store(Source::Tsc.now().max(1), Release);
            }
            Ok(most)
        });
        let one = scope.spawn(|| -> Result<i64> {
            pin(first)?;
            let mut least = i64::MIN;
            let begin = Source::MonotonicRaw.now();
            for _ in 0..ROUNDS {
                there.store(Source::Tsc.now().max(1), Release);
                let Some(sent) = take(&back, begin) else { break };
                least = least.max(sent.wrapping_sub(Source::Tsc.now()) as i64);
            }
            Ok(least)
        });
        let least = one.join().expect("it does not panic")?;
        let most = other.join().expect("it does not panic")?;
        Ok((least != i64::MIN && most != i64::MAX).then_some((least, most)))
    })
}

/// Takes the value that the other thread stored.
fn take(from: &AtomicU64, begin: u64) -> Option<u64> {
    let mut looks = 0_u64;
    loop {
        let value = from.load(Acquire);
        if value != 0 {
            from.store(0, Release);
            return Some(value);
        }
        looks += 1;
        if looks.is_multiple_of(1_024) && Source::MonotonicRaw.now() - begin > PATIENCE_NS {
            return None;
        }
        std::hint::spin_loop();
    }
}

fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}
