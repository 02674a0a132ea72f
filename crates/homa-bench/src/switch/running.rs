//! A switch in a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use homa_driver::frames::Frames;
use homa_switch::{Bridge, BridgeConfig, ETHERNET_OVERHEAD_BYTES, Snapshot};

use super::gate::{Drained, Gate};
use super::load::SINK;
use super::place::Place;
use super::windows::Course;

/// How a switch runs.
#[derive(Clone, Debug)]
pub enum Mode {
    /// As ever.
    Plain,
    /// It reads the clock, which counts from here, whenever something has left for the sink.
    Followed(Instant),
    /// As a gate lets it.
    Gated(Arc<Gate>),
    /// The same without a switch: frames from each device go to the other.
    Bare(Arc<Gate>),
}

/// A switch that forwards until it is ended.
pub struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Ended>>,
}

/// What a switch leaves.
#[derive(Default)]
pub struct Ended {
    /// Its counters.
    pub snapshot: Snapshot,
    /// What left for the sink, and when, if it was followed.
    pub course: Course,
    /// What went through its gate, if it had one.
    pub drained: Drained,
}

impl Running {
    /// Starts one.
    ///
    /// # Errors
    /// There is no such switch, or its devices cannot be had.
    pub fn start(place: &Place, config: BridgeConfig, mode: Mode) -> Result<Running> {
        let path = place.way_to_switch()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (say, ready) = sync_channel(1);
        let work = move || {
            path()?;
            // Whoever started it waits for this.
            let opened = || {
                let _ = say.send(());
            };
            if let Mode::Bare(gate) = mode {
                let frames = Frames::open(&config.frames)?;
                opened();
                return Ok(Ended { drained: bare(frames, &gate, &stopped), ..Ended::default() });
            }
            let mut bridge = Bridge::open(&config)?;
            opened();
            let mut ended = Ended::default();
            match mode {
                Mode::Gated(gate) => {
                    ended.drained = gate.pass(&stopped, || {
                        let busy = bridge.round();
                        (bridge.left(SINK).frames, busy)
                    });
                }
                Mode::Followed(epoch) => ended.course = follow(&mut bridge, epoch, &stopped),
                _ => bridge.run(|_| stopped.load(Ordering::Relaxed)),
            }
            ended.snapshot = bridge.snapshot();
            Ok(ended)
        };
        let thread = thread::Builder::new()
            .name("switch".to_owned())
            .spawn(work)
            .context("cannot start a thread for the switch")?;
        let running = Running { stop, thread };
        match ready.recv() {
            Ok(()) => Ok(running),
            // It has ended without a word: it says why.
            Err(_) => Err(running.end().err().unwrap_or_else(|| anyhow!("the switch ended at once"))),
        }
    }

    /// Ends it.
    ///
    /// # Errors
    /// It did not run.
    pub fn end(self) -> Result<Ended> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the switch panicked"))?
    }
}

/// What a round takes at most where the thread runs: several times what it does here.
const ROUND: Duration = Duration::from_micros(40);

/// What each frame that leaves in a round takes at most besides: twice what it does here, and less than a full frame is on a link of 5
/// Gbit/s. With more, whoever had not run for a millisecond, and sends all at once what was due meanwhile, would seem to have run.
const EACH_FRAME: Duration = Duration::from_nanos(1_600);

/// What it takes to read the clock, at most: a hundred times what it takes here.
const READING: Duration = Duration::from_micros(5);

fn follow(bridge: &mut Bridge, epoch: Instant, stop: &AtomicBool) -> Course {
    let mut course = Course::new();
    let mut frames = 0;
    let mut before = epoch.elapsed();
    let mut was_late = false;
    while !stop.load(Ordering::Relaxed) {
        bridge.round();
        let left = bridge.left(SINK);
        let now = epoch.elapsed();
        // Longer than its work: the thread was not run, or its processor was given to somebody else. What was due meanwhile leaves with
        // the next round, if this one had read the clock before.
        let is_late = now - before > ROUND + EACH_FRAME * (left.frames - frames) as u32;
        if is_late || was_late {
            course.gaps.add(before, now);
        }
        was_late = is_late;
        if bridge.waiting_bytes_at(SINK) == 0 {
            course.dry.add(before, now);
        }
        before = now;
        if left.frames != frames {
            frames = left.frames;
            course.note(now, left.bytes + frames * u64::from(ETHERNET_OVERHEAD_BYTES));
        }
    }
    course
}

/// What is taken from a thread at the switch's place that only reads the clock for so long.
///
/// # Errors
/// There is no such thread.
pub fn idle_course(place: &Place, length: Duration) -> Result<(Course, Duration)> {
    let path = place.way_to_switch()?;
    let work = move || -> Result<_> {
        path()?;
        let mut course = Course::new();
        let began = Instant::now();
        let mut before = Duration::ZERO;
        while before < length {
            let now = began.elapsed();
            if now - before > READING {
                course.gaps.add(before, now);
            }
            before = now;
        }
        Ok((course, before))
    };
    let thread = thread::Builder::new().name("clock".to_owned()).spawn(work);
    thread.context("cannot start a thread")?.join().map_err(|_| anyhow!("the clock's reader panicked"))?
}

/// What any switch does at least, in bursts as the switch has them.
fn bare(mut frames: Frames, gate: &Gate, stop: &AtomicBool) -> Drained {
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
