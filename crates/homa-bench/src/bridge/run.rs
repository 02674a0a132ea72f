//! A running bridge. It has its own thread, and some variants also use the measuring thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use super::batches::Batches;
use super::pair::{BridgeHalf, open_both};
use super::single_thread::SingleThreadBridge;
use super::variants::{ForwardingThreads, Variant};
use crate::switch::PortPath;
use crate::switch::gate::{Gate, GateCount};
use crate::switch::load::{Load, SINK, SOURCE, bulk_frame_from};
use crate::switch::place::Place;

/// Number of frames that the source sends per call.
pub const BURST: usize = 32;

/// Number of frames queued on each side when the gate opens: nearly the capacity.
pub const HEAP: usize = 960;

/// Maximum sleep of the second thread if it shares the first thread's processor.
const NAP: Duration = Duration::from_millis(1);

/// Interval at which the source checks whether the bridge has finished the queued frames.
const LOOK: Duration = Duration::from_micros(50);

/// Upper bound for the time to forward the queued frames on any machine.
const PATIENCE: Duration = Duration::from_secs(2);

/// The environment and the settings of a measurement.
pub struct Bench<'a> {
    pub place: &'a Place,
    pub load: &'a mut Load,
    pub port_path: PortPath,
    pub slice: Duration,
    pub bytes: usize,
}

/// The results of one repetition of a variant.
#[derive(Clone, Copy, Debug, Default)]
pub struct RepetitionResult {
    /// Million frames per second while the source sleeps.
    pub mpps: f64,
    /// Million frames per second while the source sends; `None` if it cannot be measured.
    pub flow_mpps: Option<f64>,
    /// Batches received from the devices while the source sends.
    pub taken: Batches,
    /// Batches handed over between the two threads while the source sends.
    pub handed: Batches,
}

/// The results of a bridge thread.
#[derive(Default)]
struct BridgeResult {
    drained: GateCount,
    taken: Batches,
    handed: Batches,
}

/// A running bridge.
struct RunningBridge {
    gate: Arc<Gate>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<BridgeResult>>,
    /// The half that runs in the measuring thread, for variants that have one.
    half: Option<BridgeHalf>,
}

impl RunningBridge {
    fn start(place: &Place, variant: Variant, port_path: PortPath) -> Result<RunningBridge> {
        let enter = place.switch_entry()?;
        let gate = Arc::new(Gate::free());
        let stop = Arc::new(AtomicBool::new(false));
        let (gated, stopped) = (Arc::clone(&gate), Arc::clone(&stop));
        let (say, ready) = sync_channel(1);
        let work = move || {
            enter()?;
            if variant.work == ForwardingThreads::One {
                let mut bridge = SingleThreadBridge::open(variant, port_path)?;
                let _ = say.send(None);
                let drained = gated.pass(&stopped, || {
                    let busy = bridge.poll_once();
                    (bridge.done(), busy)
                });
                return Ok(BridgeResult { drained, taken: bridge.taken, ..BridgeResult::default() });
            }
            let [mut first, second] = open_both(variant, port_path)?;
            if variant.work == ForwardingThreads::HandOverApart {
                let _ = say.send(Some(second));
                return Ok(BridgeResult {
                    drained: work(&mut first, &gated, &stopped, std::hint::spin_loop),
                    ..of(&first)
                });
            }
            let _ = say.send(None);
            thread::scope(|scope| {
                let helper = scope.spawn(|| {
                    let mut second = second;
                    while !stopped.load(Ordering::Relaxed) {
                        second.poll_once(Some(NAP));
                    }
                    second.handed
                });
                let drained = work(&mut first, &gated, &stopped, thread::yield_now);
                let mut ended = BridgeResult { drained, ..of(&first) };
                ended.handed.merge(&helper.join().map_err(|_| anyhow!("a thread of the bridge panicked"))?);
                Ok(ended)
            })
        };
        let thread = thread::Builder::new().name("bridge".to_owned()).spawn(work);
        let thread = thread.context("cannot start a thread for the bridge")?;
        match ready.recv() {
            Ok(half) => Ok(RunningBridge { gate, stop, thread, half }),
            Err(_) => Err(RunningBridge { gate, stop, thread, half: None }
                .end()
                .err()
                .unwrap_or_else(|| anyhow!("the bridge ended at once"))),
        }
    }

    /// Runs a round of the half that belongs to the measuring thread. Returns whether there was work.
    fn run_own_half(&mut self) -> bool {
        self.half.as_mut().is_some_and(|half| half.poll_once(None))
    }

    fn end(mut self) -> Result<BridgeResult> {
        self.stop.store(true, Ordering::Relaxed);
        // The thread ends only once the queue is empty.
        while !self.thread.is_finished() {
            self.run_own_half();
        }
        let mut ended = self.thread.join().map_err(|_| anyhow!("the bridge panicked"))??;
        if let Some(half) = self.half {
            ended.taken.merge(&half.taken);
            ended.handed.merge(&half.handed);
        }
        Ok(ended)
    }
}

fn of(half: &BridgeHalf) -> BridgeResult {
    BridgeResult { taken: half.taken, handed: half.handed, ..BridgeResult::default() }
}

/// Runs the first half. While packets are in transit to the second half, the bridge counts as busy and `wait`
/// is called.
fn work(half: &mut BridgeHalf, gate: &Gate, stop: &AtomicBool, wait: fn()) -> GateCount {
    gate.pass(stop, || {
        let mut busy = half.poll_once(None);
        if !busy && half.is_waiting() {
            busy = true;
            wait();
        }
        (half.done(), busy)
    })
}

impl Bench<'_> {
    /// Returns the sides from which the variant receives frames.
    fn sides(variant: Variant) -> &'static [usize] {
        if variant.both { &[SOURCE, SINK] } else { &[SOURCE] }
    }

    /// Measures one repetition of a variant other than the kernel's bridge, for which there is
    /// `measure_kernel`.
    pub fn measure(&mut self, variant: Variant) -> Result<RepetitionResult> {
        let mpps = self.drain(variant)?;
        let mut running = self.start(variant)?;
        let flow_mpps = Some(self.flow(variant, &mut running));
        let ended = running.end()?;
        Ok(RepetitionResult { mpps, flow_mpps, taken: ended.taken, handed: ended.handed })
    }

    fn start(&mut self, variant: Variant) -> Result<RunningBridge> {
        let mut running = RunningBridge::start(self.place, variant, self.port_path)?;
        let settled = self.load.await_forwarding(|| {
            running.run_own_half();
        });
        match settled {
            Ok(()) => Ok(running),
            Err(error) => Err(running.end().err().unwrap_or(error)),
        }
    }

    /// Measures the speed of a bridge that always has frames to forward, in million frames per second.
    fn drain(&mut self, variant: Variant) -> Result<f64> {
        let mut running = self.start(variant)?;
        running.gate.shut();
        let end = self.load.now() + self.slice;
        while self.load.now() < end {
            for &side in Bench::sides(variant) {
                let bytes = bulk_frame_from(side, self.bytes);
                for _ in 0..HEAP / BURST {
                    self.load.offer_by(side, &bytes, BURST);
                }
            }
            running.gate.open();
            while !running.gate.is_shut() && self.load.now() < end + PATIENCE {
                if running.half.is_some() {
                    running.run_own_half();
                } else {
                    thread::sleep(LOOK);
                }
            }
            for &side in Bench::sides(variant) {
                while self.load.arrived_at(1 - side) > 0 {}
            }
        }
        let drained = running.end()?.drained;
        ensure!(drained.frames > 0, "{} forwarded nothing", variant.name);
        Ok(drained.frames as f64 / drained.time.as_secs_f64() / 1e6)
    }

    /// Measures the rate of arriving frames while the source sends at its maximum rate, in million frames per
    /// second.
    fn flow(&mut self, variant: Variant, running: &mut RunningBridge) -> f64 {
        self.flow_with(Bench::sides(variant), || {
            running.run_own_half();
        })
    }

    /// Measures [`Bench::flow`] for any forwarder, and calls `between` after each burst of the source.
    pub fn flow_with(&mut self, sides: &[usize], mut between: impl FnMut()) -> f64 {
        let bytes: Vec<_> = sides.iter().map(|&side| (side, bulk_frame_from(side, self.bytes))).collect();
        let began = self.load.now();
        let (warm, end) = (began + self.slice / 4, began + self.slice / 4 + self.slice);
        let (mut arrived, mut before) = (0, None);
        loop {
            for (side, bytes) in &bytes {
                self.load.offer_by(*side, bytes, BURST);
                between();
                arrived += self.load.arrived_at(1 - side);
            }
            let now = self.load.now();
            let (since, already) = *before.get_or_insert((now, arrived));
            if since < warm && now >= warm {
                before = Some((now, arrived));
            } else if now >= end {
                return (arrived - already) as f64 / (now - since).as_secs_f64() / 1e6;
            }
        }
    }
}
