//! A switch that runs in its own thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use homa_driver::frames::Frames;
use homa_switch::{Bridge, BridgeConfig, ETHERNET_OVERHEAD_BYTES, Snapshot};

use super::gate::{Gate, GateCount};
use super::load::SINK;
use super::place::Place;
use super::windows::TransmitHistory;

/// The mode of a switch.
#[derive(Clone, Debug)]
pub enum Mode {
    /// The switch runs normally.
    Plain,
    /// The switch reads the clock whenever frames have left for the sink. Times are relative to this instant.
    Followed(Instant),
    /// A gate controls the switch.
    Gated(Arc<Gate>),
    /// A gate controls a loop that replaces the switch and forwards frames from each device to the other.
    Bare(Arc<Gate>),
}

/// A switch that forwards until [`RunningSwitch::end`].
pub struct RunningSwitch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<SwitchResult>>,
}

/// The results of a switch.
#[derive(Default)]
pub struct SwitchResult {
    /// The counters of the switch.
    pub snapshot: Snapshot,
    /// Bytes and times of the frames that left for the sink, in mode [`Mode::Followed`].
    pub history: TransmitHistory,
    /// The frames that passed the gate, in the gated modes.
    pub drained: GateCount,
}

impl RunningSwitch {
    /// Starts a switch.
    ///
    /// # Errors
    /// The configuration is invalid, or a device cannot be opened.
    pub fn start(place: &Place, config: BridgeConfig, mode: Mode) -> Result<RunningSwitch> {
        let path = place.switch_entry()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (say, ready) = sync_channel(1);
        let work = move || {
            path()?;
            // The thread that starts the switch waits for this message.
            let opened = || {
                let _ = say.send(());
            };
            if let Mode::Bare(gate) = mode {
                let frames = Frames::open(&config.frames)?;
                opened();
                return Ok(SwitchResult {
                    drained: forward_only(frames, &gate, &stopped),
                    ..SwitchResult::default()
                });
            }
            let mut bridge = Bridge::open(&config)?;
            opened();
            let mut ended = SwitchResult::default();
            match mode {
                Mode::Gated(gate) => {
                    ended.drained = gate.pass(&stopped, || {
                        let busy = bridge.round();
                        (bridge.left(SINK).frames, busy)
                    });
                }
                Mode::Followed(epoch) => ended.history = follow(&mut bridge, epoch, &stopped),
                _ => bridge.run(|_| stopped.load(Ordering::Relaxed)),
            }
            ended.snapshot = bridge.snapshot();
            Ok(ended)
        };
        let thread = thread::Builder::new()
            .name("switch".to_owned())
            .spawn(work)
            .context("cannot start a thread for the switch")?;
        let running_switch = RunningSwitch { stop, thread };
        match ready.recv() {
            Ok(()) => Ok(running_switch),
            // The thread ended without sending the message; its result contains the reason.
            Err(_) => Err(running_switch.end().err().unwrap_or_else(|| anyhow!("the switch ended at once"))),
        }
    }

    /// Ends the switch.
    ///
    /// # Errors
    /// The switch failed.
    pub fn end(self) -> Result<SwitchResult> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the switch panicked"))?
    }
}

/// Maximum time of a round without frames, unless the thread was preempted: several times the time measured
/// on our machine.
const ROUND: Duration = Duration::from_micros(40);

/// Maximum additional time per frame sent in a round: twice the time measured on our machine, and less than
/// the serialization delay of a full frame at 5 Gbit/s. With a larger value, a preempted thread would go
/// unnoticed if it sent all frames that had become due within a millisecond at once.
const EACH_FRAME: Duration = Duration::from_nanos(1_600);

/// Maximum time to read the clock: a hundred times the time measured on our machine.
const READING: Duration = Duration::from_micros(5);

fn follow(bridge: &mut Bridge, epoch: Instant, stop: &AtomicBool) -> TransmitHistory {
    let mut history = TransmitHistory::new();
    let mut frames = 0;
    let mut before = epoch.elapsed();
    let mut was_late = false;
    while !stop.load(Ordering::Relaxed) {
        bridge.round();
        let left = bridge.left(SINK);
        let now = epoch.elapsed();
        // The round took longer than its work: the thread or its virtual processor did not run. If the round
        // had read the clock before the pause, the frames that became due in the pause are sent in the next
        // round. That round then counts as a gap too.
        let is_late = now - before > ROUND + EACH_FRAME * (left.frames - frames) as u32;
        if is_late || was_late {
            history.gaps.add(before, now);
        }
        was_late = is_late;
        if bridge.waiting_bytes_at(SINK) == 0 {
            history.dry.add(before, now);
        }
        before = now;
        if left.frames != frames {
            frames = left.frames;
            history.note(now, left.bytes + frames * u64::from(ETHERNET_OVERHEAD_BYTES));
        }
    }
    history
}

/// Records, for `length`, the gaps of a thread that runs in place of the switch and only reads the clock.
///
/// # Errors
/// The thread cannot be started, or cannot move to the switch's place.
pub fn idle_history(place: &Place, length: Duration) -> Result<(TransmitHistory, Duration)> {
    let path = place.switch_entry()?;
    let work = move || -> Result<_> {
        path()?;
        let mut history = TransmitHistory::new();
        let began = Instant::now();
        let mut before = Duration::ZERO;
        while before < length {
            let now = began.elapsed();
            if now - before > READING {
                history.gaps.add(before, now);
            }
            before = now;
        }
        Ok((history, before))
    };
    let thread = thread::Builder::new().name("clock".to_owned()).spawn(work);
    thread.context("cannot start a thread")?.join().map_err(|_| anyhow!("the clock's reader panicked"))?
}

/// Does the minimum work of any switch: forwards frames in bursts of the switch's size.
fn forward_only(mut frames: Frames, gate: &Gate, stop: &AtomicBool) -> GateCount {
    let mut burst = Vec::with_capacity(32);
    let mut left = 0;
    gate.pass(stop, || {
        let mut busy = false;
        for device in [1 - SINK, SINK] {
            busy |= frames.receive(device, 32, &mut burst) > 0;
            for frame in burst.drain(..) {
                left += u64::from(device != SINK);
                if let Err(frame) = frames.send(1 - device, frame) {
                    frames.drop_frame(frame);
                }
            }
            frames.flush(1 - device);
        }
        (left, busy)
    })
}
