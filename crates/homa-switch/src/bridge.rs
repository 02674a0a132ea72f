//! A switch between network devices.

use std::io::{self, Write};
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};

use homa_driver::frames::{Frame, Frames, FramesConfig, FramesError};
use homa_trace::{Node, Trace};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::set_current_timer_slack;
use rustix::time::{ClockId, clock_gettime};

use crate::config::{ConfigError, SwitchConfig};
use crate::ethernet::{mark_congestion, parse};
use crate::packet::Packets;
use crate::stats::Snapshot;
use crate::switch::{Refused, Route, Switch};

/// Frames taken from a port at a time: enough to share the cost of a round, few enough that no other port waits long.
const BURST: usize = 32;

/// Longest sleep, so that who stops the switch is heard.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

/// Longest nap between looks; longer ones are as long as this.
pub const LONGEST_NAP: Duration = LONGEST_SLEEP;

/// How to set up a [`Bridge`].
#[derive(Clone, Debug)]
pub struct BridgeConfig {
    /// The devices, and how frames come from them and go to them.
    pub frames: FramesConfig,
    /// The switch between them.
    pub switch: SwitchConfig,
    /// How long it polls without finding anything before it sleeps: a sleep makes the next frame some 50 us late.
    pub poll: Duration,
    /// How long it rests after each look that found nothing, and leaves its processor to others: a frame is late by up to that and what a
    /// timer takes, some 20 us on a virtual machine. Rates are kept none the less: what left meanwhile is sent at the next look, and what came
    /// counts as come in the middle of the nap, lest links idle which on a wire would not. Zero: never; [`LONGEST_NAP`] at most.
    pub nap: Duration,
    /// How much longer each frame takes than it must: to see what an overloaded switch does.
    pub planted_work: Duration,
    /// Events that its time trace keeps; 0: no trace.
    pub trace_records: usize,
}

/// Why there is no bridge.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BridgeError {
    /// There is no such switch.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A device cannot be had.
    #[error(transparent)]
    Frames(#[from] FramesError),
}

/// What has left by a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Frames.
    pub frames: u64,
    /// Their bytes, without what a link takes besides.
    pub bytes: u64,
}

/// The machine's clock that nobody adjusts, which time traces have, too. A rate that follows it is exact to the crystal.
fn raw_ns() -> u64 {
    let now = clock_gettime(ClockId::MonotonicRaw);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// When a frame came that was found at `now_ns`: after a nap since `since_ns` in its middle, which is right on average, and no more than
/// half a nap ago, since a switch that was kept from its processor longer than that must not make up for it by a burst.
fn come_during_nap(now_ns: u64, since_ns: Option<u64>, nap: Duration) -> u64 {
    let slept_ns = now_ns.saturating_sub(since_ns.unwrap_or(now_ns));
    let most_ns = nap.as_nanos().min(u128::from(u64::MAX)) as u64;
    now_ns - slept_ns.min(most_ns) / 2
}

/// The switch and its devices.
#[derive(Debug)]
pub struct Bridge {
    frames: Frames,
    switch: Switch<Frame>,
    names: Vec<String>,
    /// Where its time begins, as [`raw_ns`] has it.
    start_ns: u64,
    poll: Duration,
    nap: Duration,
    /// When the last look was, if a nap has followed it.
    napped_since_ns: Option<u64>,
    planted_work: Duration,
    /// Frames of a burst.
    burst: Vec<Frame>,
    malformed: u64,
    no_memory: u64,
    refused: Vec<u64>,
    left: Vec<Left>,
    rounds: u64,
    busy_rounds: u64,
}

impl Bridge {
    /// Opens the devices.
    ///
    /// # Errors
    /// There is no such switch, or a device cannot be had.
    pub fn open(config: &BridgeConfig) -> Result<Bridge, BridgeError> {
        config.switch.check()?;
        let frames = Frames::open(&config.frames)?;
        let devices = frames.devices();
        let start_ns = raw_ns();
        let mut switch = Switch::new(config.switch, devices, 0)?;
        if config.trace_records > 0 {
            switch.set_trace(Trace::since(config.trace_records, start_ns));
        }
        Ok(Bridge {
            frames,
            switch,
            names: config.frames.devices.clone(),
            start_ns,
            poll: config.poll,
            nap: config.nap.min(LONGEST_NAP),
            napped_since_ns: None,
            planted_work: config.planted_work,
            burst: Vec::with_capacity(BURST),
            malformed: 0,
            no_memory: 0,
            refused: vec![0; devices],
            left: vec![Left::default(); devices],
            rounds: 0,
            busy_rounds: 0,
        })
    }

    fn now_ns(&self) -> u64 {
        raw_ns() - self.start_ns
    }

    /// One look at every port: what has come is queued, what is due is sent. Whether there was anything.
    pub fn round(&mut self) -> bool {
        let mut came_ns = None;
        for port in 0..self.names.len() {
            came_ns = self.take(port).or(came_ns);
        }
        let mut busy = came_ns.is_some();
        let now_ns = came_ns.unwrap_or_else(|| self.now_ns());
        for port in 0..self.names.len() {
            busy |= self.give(now_ns, port);
        }
        self.napped_since_ns = None;
        self.rounds += 1;
        self.busy_rounds += u64::from(busy);
        busy
    }

    /// Forwards until `stop` says so, which is asked some fifty times a second at least.
    pub fn run(&mut self, mut stop: impl FnMut(&mut Bridge) -> bool) {
        if !self.nap.is_zero() {
            // The kernel adds 50 us to a sleep by default. Where it refuses, that much is what a nap takes longer.
            let _ = set_current_timer_slack(NonZeroU64::new(1));
        }
        let mut quiet_since = Instant::now();
        let mut asked = quiet_since;
        loop {
            let busy = self.round();
            if busy {
                quiet_since = Instant::now();
                // Whoever is asked may have work to do, such as to say how it is going.
                if quiet_since.duration_since(asked) < LONGEST_SLEEP {
                    continue;
                }
            }
            let now = Instant::now();
            if now.duration_since(asked) >= LONGEST_SLEEP {
                asked = now;
                if stop(self) {
                    return;
                }
            }
            if now.duration_since(quiet_since) >= self.poll && self.switch.poll_timeout().is_none() {
                self.sleep();
                quiet_since = Instant::now();
            } else if !busy && !self.nap.is_zero() {
                self.napped_since_ns = Some(self.now_ns());
                thread::sleep(self.nap);
            }
        }
    }

    /// Sleeps until a frame comes.
    fn sleep(&self) {
        let fds: Vec<BorrowedFd<'_>> = self.frames.fds().collect();
        let mut fds: Vec<PollFd<'_>> =
            fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let timeout = Timespec { tv_sec: 0, tv_nsec: LONGEST_SLEEP.as_nanos() as _ };
        // An error is a signal, or is met again by whoever reads the device.
        let _ = poll(&mut fds, Some(&timeout));
    }

    /// Queues what has come by a port; when, if anything has. The time is read after the look at the device: what came while others were
    /// looked at must not seem to have come before it was sent.
    fn take(&mut self, port: usize) -> Option<u64> {
        let mut burst = std::mem::take(&mut self.burst);
        if self.frames.receive(port, BURST, &mut burst) == 0 {
            self.burst = burst;
            return None;
        }
        let now_ns = self.now_ns();
        // A time trace has what was seen: no frame may come before it was sent.
        let napped_since_ns = self.napped_since_ns.filter(|_| !self.switch.is_traced());
        let came_ns = come_during_nap(now_ns, napped_since_ns, self.nap);
        for frame in burst.drain(..) {
            self.work();
            self.forward(now_ns, came_ns, port, frame);
        }
        self.burst = burst;
        Some(now_ns)
    }

    fn forward(&mut self, now_ns: u64, came_ns: u64, from: usize, frame: Frame) {
        let Some(head) = parse(self.frames.bytes(&frame)) else {
            self.malformed += 1;
            return self.frames.drop_frame(frame);
        };
        let bytes = frame.length();
        let packets = self.packets(&frame);
        let queue = |bridge: &mut Bridge, to, mut frame| match bridge
            .switch
            .admit(now_ns, to, &head, bytes, &packets)
        {
            Ok(admitted) => {
                if admitted.mark {
                    mark_congestion(bridge.frames.bytes_mut(&mut frame));
                }
                bridge.switch.push(now_ns, came_ns, admitted, frame);
            }
            Err(_) => bridge.frames.drop_frame(frame),
        };
        match self.switch.route(now_ns, from, &head, bytes) {
            Route::Nowhere => self.frames.drop_frame(frame),
            Route::Port(to) => queue(self, to, frame),
            Route::All => {
                for to in (0..self.names.len()).filter(|&to| to != from) {
                    match self.frames.copy(&frame) {
                        Some(copy) => queue(self, to, copy),
                        None => self.no_memory += 1,
                    }
                }
                self.frames.drop_frame(frame);
            }
        }
    }

    /// Sends what has left by a port; whether anything has.
    fn give(&mut self, now_ns: u64, port: usize) -> bool {
        let mut any = false;
        while let Some(frame) = self.switch.poll(now_ns, port) {
            any = true;
            let left = &mut self.left[port];
            left.frames += 1;
            left.bytes += frame.length() as u64;
            if let Err(frame) = self.frames.send(port, frame) {
                self.refused[port] += 1;
                if self.switch.is_traced()
                    && let Some(head) = parse(self.frames.bytes(&frame))
                {
                    self.switch.dropped(now_ns, port, &head, &self.packets(&frame), Refused::Device);
                }
                self.frames.drop_frame(frame);
            }
        }
        self.frames.flush(port);
        any
    }

    /// What a frame holds, where somebody wants to know.
    fn packets(&self, frame: &Frame) -> Packets {
        if self.switch.is_traced() { Packets::of(self.frames.bytes(frame)) } else { Packets::default() }
    }

    /// Writes the time trace so far as a dump, in the order of times. Makes small writes: give it a buffered writer.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_trace(&self, out: &mut impl Write) -> io::Result<()> {
        let mut dump = self.switch.trace().dump(Node::switch("switch", self.names.iter().cloned()));
        dump.records.sort_by_key(|record| record.time);
        dump.write(out)
    }

    fn work(&self) {
        if !self.planted_work.is_zero() {
            let until = Instant::now() + self.planted_work;
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        }
    }

    /// What has left by a port up to the last round: to be asked between rounds, at less cost than [`snapshot`](Bridge::snapshot).
    #[must_use]
    pub fn left(&self, port: usize) -> Left {
        self.left[port]
    }

    /// Bytes that wait at a port, without those that its link is busy with.
    #[must_use]
    pub fn waiting_bytes_at(&self, port: usize) -> u64 {
        self.switch.waiting_bytes_at(port)
    }

    /// Everything that is counted.
    #[must_use]
    pub fn snapshot(&mut self) -> Snapshot {
        let mut snapshot = self.switch.snapshot(self.now_ns());
        for (index, port) in snapshot.ports.iter_mut().enumerate() {
            let stats = self.frames.stats(index);
            port.name = self.names[index].clone();
            port.path = self.frames.path(index).to_owned();
            port.receive_drops = stats.receive_drops;
            port.too_long = stats.too_long;
            port.refused = self.refused[index] + stats.refused;
        }
        snapshot.malformed = self.malformed;
        snapshot.no_memory = self.no_memory;
        snapshot.rounds = self.rounds;
        snapshot.busy_rounds = self.busy_rounds;
        snapshot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_after_a_nap_came_in_its_middle() {
        let nap = Duration::from_nanos(1_000);
        let came = |since_ns| come_during_nap(10_000, since_ns, nap);
        assert_eq!([None, Some(10_000), Some(9_200)].map(came), [10_000, 10_000, 9_600]);
        assert_eq!(came(Some(9_000)), 9_500);
        assert_eq!(came(Some(2_000)), 9_500, "the rest of the time the switch was not napping");
        assert_eq!(came(Some(11_000)), 10_000, "clocks that two processors read");
    }
}
