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
use crate::switch::{DropReason, Route, Switch};

/// Maximum receive batch of a port in frames: large enough to amortize a round, small enough not to delay the
/// other ports.
const BURST: usize = 32;

/// Maximum sleep. It bounds how late a stop request is noticed.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

/// Maximum nap between polls. Longer settings are clamped to this.
pub const LONGEST_NAP: Duration = LONGEST_SLEEP;

/// Configuration of a [`Bridge`].
#[derive(Clone, Debug)]
pub struct BridgeConfig {
    /// The devices, and how frames are received from and sent to them.
    pub frames: FramesConfig,
    /// The switch that connects them.
    pub switch: SwitchConfig,
    /// How long the bridge polls without receiving a frame before it sleeps. A sleep delays the next frame by
    /// about 50 us.
    pub poll: Duration,
    /// Nap after each poll without frames, which frees the processor. It delays a frame by up to the nap plus
    /// the timer's latency, about 20 us on a virtual machine. Link rates still hold: the next poll sends
    /// everything that was due, and frames received after a nap count as received in the middle of the nap,
    /// so links do not idle more than on a wire. Zero: no naps. The maximum is [`LONGEST_NAP`].
    pub nap: Duration,
    /// Extra processing time per frame, to study an overloaded switch.
    pub planted_work: Duration,
    /// Capacity of the time trace in events; 0: no trace.
    pub trace_records: usize,
}

/// Why a bridge cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BridgeError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A device cannot be opened.
    #[error(transparent)]
    Frames(#[from] FramesError),
}

/// Frames sent by a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortOutput {
    /// Number of frames.
    pub frames: u64,
    /// Bytes of the frames, excluding link overhead.
    pub bytes: u64,
}

/// Reads CLOCK_MONOTONIC_RAW, as time traces do. It is never adjusted, so rates are as exact as the crystal.
fn raw_ns() -> u64 {
    let now = clock_gettime(ClockId::MonotonicRaw);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the arrival time of a frame found at `now_ns`. If there was a nap since `since_ns`, the result is
/// the middle of the nap, which is correct on average. The result is never more than half a nap ago: a switch
/// that lost its processor for longer must not catch up with a burst.
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
    /// Start of the bridge's time, from [`raw_ns`].
    start_ns: u64,
    poll: Duration,
    nap: Duration,
    /// Time of the last poll, if a nap followed that poll.
    napped_since_ns: Option<u64>,
    planted_work: Duration,
    /// Receive buffer for the frames of a burst.
    burst: Vec<Frame>,
    malformed: u64,
    no_memory: u64,
    refused: Vec<u64>,
    left: Vec<PortOutput>,
    rounds: u64,
    busy_rounds: u64,
}

impl Bridge {
    /// Opens the devices.
    ///
    /// # Errors
    /// The configuration is invalid, or a device cannot be opened.
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
            left: vec![PortOutput::default(); devices],
            rounds: 0,
            busy_rounds: 0,
        })
    }

    fn now_ns(&self) -> u64 {
        raw_ns() - self.start_ns
    }

    /// Polls every port once: queues received frames and sends those that are due. Returns whether any frame
    /// was received or sent.
    pub fn round(&mut self) -> bool {
        let mut came_ns = None;
        for port in 0..self.names.len() {
            came_ns = self.take(port).or(came_ns);
        }
        let mut busy = came_ns.is_some();
        let now_ns = came_ns.unwrap_or_else(|| self.now_ns());
        for port in 0..self.names.len() {
            busy |= self.send_departed(now_ns, port);
        }
        self.napped_since_ns = None;
        self.rounds += 1;
        self.busy_rounds += u64::from(busy);
        busy
    }

    /// Forwards until `stop`, which is called at least 50 times per second, returns true.
    pub fn run(&mut self, mut stop: impl FnMut(&mut Bridge) -> bool) {
        if !self.nap.is_zero() {
            // The default timer slack adds 50 us to a sleep. If the kernel refuses a smaller slack, naps take
            // that much longer.
            let _ = set_current_timer_slack(NonZeroU64::new(1));
        }
        let mut quiet_since = Instant::now();
        let mut asked = quiet_since;
        loop {
            let busy = self.round();
            if busy {
                quiet_since = Instant::now();
                // `stop` may do work, such as reporting progress.
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

    /// Sleeps until a frame is received.
    fn sleep(&self) {
        let fds: Vec<BorrowedFd<'_>> = self.frames.fds().collect();
        let mut fds: Vec<PollFd<'_>> =
            fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let timeout = Timespec { tv_sec: 0, tv_nsec: LONGEST_SLEEP.as_nanos() as _ };
        // Errors are ignored: either a signal interrupted the wait, or the next read of the device fails as
        // well.
        let _ = poll(&mut fds, Some(&timeout));
    }

    /// Queues the frames received by a port. Returns the time, if there were any. The clock is read after the
    /// device, so that a frame received while other ports were polled does not appear to arrive before it was
    /// sent.
    fn take(&mut self, port: usize) -> Option<u64> {
        let mut burst = std::mem::take(&mut self.burst);
        if self.frames.receive(port, BURST, &mut burst) == 0 {
            self.burst = burst;
            return None;
        }
        let now_ns = self.now_ns();
        // In a time trace no frame may arrive before it was sent, so the time of the poll is used.
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

    /// Sends the frames that have left a port's link. Returns whether there were any.
    fn send_departed(&mut self, now_ns: u64, port: usize) -> bool {
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
                    self.switch.dropped(now_ns, port, &head, &self.packets(&frame), DropReason::Device);
                }
                self.frames.drop_frame(frame);
            }
        }
        self.frames.flush(port);
        any
    }

    /// Returns the packets of a frame, if the time trace needs them.
    fn packets(&self, frame: &Frame) -> Packets {
        if self.switch.is_traced() { Packets::of(self.frames.bytes(frame)) } else { Packets::default() }
    }

    /// Writes the time trace as a dump, ordered by time. Makes small writes, so pass a buffered writer.
    ///
    /// # Errors
    /// The errors of `out`.
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

    /// Returns the frames sent by a port up to the last round. Cheaper than [`snapshot`](Bridge::snapshot).
    #[must_use]
    pub fn left(&self, port: usize) -> PortOutput {
        self.left[port]
    }

    /// Returns the bytes queued at a port, excluding the frame on its link.
    #[must_use]
    pub fn waiting_bytes_at(&self, port: usize) -> u64 {
        self.switch.waiting_bytes_at(port)
    }

    /// Returns all counters.
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
