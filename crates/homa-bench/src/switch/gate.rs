//! Holds frames back from a switch until many are queued, so that the speed of the switch is measured rather
//! than that of the source.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

const FREE: u8 = 0;
const SHUT: u8 = 1;
const OPEN: u8 = 2;

/// A gate between the source and the switch.
#[derive(Debug)]
pub struct Gate(AtomicU8);

/// Number of frames that passed while the gate was open, and the time that they took.
#[derive(Clone, Copy, Debug, Default)]
pub struct GateCount {
    pub frames: u64,
    pub time: Duration,
}

impl Gate {
    /// Creates a gate that is always open.
    pub fn free() -> Gate {
        Gate(AtomicU8::new(FREE))
    }

    /// Closes the gate until [`Gate::open`].
    pub fn shut(&self) {
        self.0.store(SHUT, Ordering::Release);
    }

    /// Lets the queued frames pass; the gate then closes itself.
    pub fn open(&self) {
        self.0.store(OPEN, Ordering::Release);
    }

    /// Returns whether the gate is closed.
    pub fn is_shut(&self) -> bool {
        self.0.load(Ordering::Acquire) == SHUT
    }

    /// Runs rounds of the switch, as the gate permits, until `stop`. A round returns the total number of
    /// frames sent so far and whether it had work.
    pub fn pass(&self, stop: &AtomicBool, mut round: impl FnMut() -> (u64, bool)) -> GateCount {
        let mut drained = GateCount::default();
        let mut left = 0;
        while !stop.load(Ordering::Relaxed) {
            match self.0.load(Ordering::Acquire) {
                FREE => left = round().0,
                OPEN => {
                    let (before, began) = (left, Instant::now());
                    let mut busy = true;
                    while busy {
                        (left, busy) = round();
                    }
                    drained.time += began.elapsed();
                    drained.frames += left - before;
                    self.shut();
                }
                _ => std::hint::spin_loop(),
            }
        }
        drained
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn what_waits_goes_through_once_it_is_open_and_is_counted() {
        let (gate, stop, left) = (Gate::free(), AtomicBool::new(false), AtomicU64::new(0));
        gate.shut();
        let drained = std::thread::scope(|scope| {
            let switch = scope.spawn(|| {
                let mut waiting = 0;
                gate.pass(&stop, || {
                    // One opening takes four rounds: three with frames and an empty one.
                    waiting = if waiting == 0 { 3 } else { waiting - 1 };
                    let busy = waiting > 0;
                    (left.fetch_add(10 * u64::from(busy), Ordering::Relaxed) + 10 * u64::from(busy), busy)
                })
            });
            for _ in 0..2 {
                gate.open();
                while !gate.is_shut() {
                    std::thread::yield_now();
                }
            }
            stop.store(true, Ordering::Relaxed);
            switch.join().expect("no panic")
        });
        assert_eq!(drained.frames, 60);
        assert!(drained.time > Duration::ZERO);
    }
}
