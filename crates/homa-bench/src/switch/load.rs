//! The source and the sink of all frames. Both run in one thread, so that sent and received frames are
//! timestamped by the same clock.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use homa_driver::frames::{Frame, FramePath, Frames, FramesConfig};
use homa_driver::xdp::XdpMode;
use homa_switch::Mac;

use super::place::HOST_DEVICES;

/// Index of the source's device.
pub const SOURCE: usize = 0;

/// Index of the sink's device.
pub const SINK: usize = 1;

/// Lengths of a small and of a full frame, excluding the check sequence.
pub const SMALL: usize = 64;
pub const FULL: usize = 1_514;

/// Maximum number of frames received at a time.
const BATCH: usize = 64;

/// Attempts to send a frame through the switch, 20 ms each. A device that has just come up loses frames for
/// up to a second.
const TRIES: u32 = 150;

/// Offset of the mark that identifies a probe. The mark follows the IP header, and the send time follows the
/// mark.
const PROBE_AT: usize = 34;
const PROBE: [u8; 8] = *b"a probe.";

const MACS: [Mac; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

pub struct Load {
    source: Frames,
    /// `None` while the sink is closed.
    sink: Option<Frames>,
    batch: Vec<Frame>,
    epoch: Instant,
    /// Sum of [`sink_drops`](Load::sink_drops) over all sinks closed so far.
    missed_before: u64,
}

/// Opens a device of this thread's network namespace.
fn open(device: usize) -> Result<Frames> {
    let config = |path| FramesConfig {
        path,
        receive_frames: 1_024,
        ..FramesConfig::new(vec![HOST_DEVICES[device].to_owned()])
    };
    Frames::open(&config(FramePath::Xdp(XdpMode::Generic)))
        .or_else(|_| Frames::open(&config(FramePath::Ring)))
        .with_context(|| ["source", "sink"][device])
}

/// Creates a frame of this length and priority from one device to the other. Its IP header is valid, because
/// a packet filter for the kernel's bridge would drop frames with a wrong checksum.
fn frame(from: usize, bytes: usize, priority: u8) -> Vec<u8> {
    let mut frame = [&MACS[1 - from][..], &MACS[from], &[8, 0, 0x45, priority << 5]].concat();
    frame.extend(((bytes - 14) as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 253, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let checksum = header_checksum(&frame[14..]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame.resize(bytes, 0);
    frame
}

/// Computes the checksum of an IPv4 header whose checksum field is zero (RFC 791).
fn header_checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// Returns whether [`frame`] made this frame. A bridge that comes up also sends frames of its own.
fn is_ours(from: usize, bytes: &[u8]) -> bool {
    bytes.get(6..12).is_some_and(|source| source == MACS[from])
}

/// Creates a frame of the lowest priority for the sink.
pub fn bulk_frame(bytes: usize) -> Vec<u8> {
    bulk_frame_from(SOURCE, bytes)
}

/// Creates a frame of the lowest priority from one device to the other.
pub fn bulk_frame_from(from: usize, bytes: usize) -> Vec<u8> {
    frame(from, bytes, 0)
}

impl Load {
    /// Opens both devices of this thread's network namespace.
    ///
    /// # Errors
    /// A device cannot be opened.
    pub fn open() -> Result<Load> {
        let (source, sink) = (open(SOURCE)?, Some(open(SINK)?));
        Ok(Load { source, sink, batch: Vec::with_capacity(BATCH), epoch: Instant::now(), missed_before: 0 })
    }

    /// Closes the sink while `work` runs. The kernel then drops the frames, since no host has their
    /// destination address.
    ///
    /// # Errors
    /// `work` failed, or the sink cannot be opened again.
    pub fn without_sink<T>(&mut self, work: impl FnOnce(&mut Load) -> Result<T>) -> Result<T> {
        self.missed_before = self.sink_drops();
        self.sink = None;
        let result = work(self);
        self.sink = Some(open(SINK)?);
        result
    }

    /// Returns whether the sink is open. It is closed after [`Load::without_sink`] has failed.
    pub fn has_sink(&self) -> bool {
        self.sink.is_some()
    }

    /// Returns the interface through which frames are sent and received.
    pub fn path(&self) -> &'static str {
        self.source.path(0)
    }

    /// Returns the origin of all times.
    pub fn epoch(&self) -> Instant {
        self.epoch
    }

    /// Returns the time since the origin.
    pub fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Waits until frames pass in both directions, which also lets the switch learn the addresses. Calls
    /// `between` while it waits.
    ///
    /// # Errors
    /// No frame passes.
    pub fn await_forwarding(&mut self, mut between: impl FnMut()) -> Result<()> {
        for _ in 0..TRIES {
            let through = [SOURCE, SINK].map(|from| {
                self.send(from, &frame(from, SMALL, 7), 1);
                let until = self.now() + Duration::from_millis(1);
                let mut arrived = 0;
                while arrived == 0 && self.now() < until {
                    between();
                    arrived += self.receive(1 - from, |_| ());
                }
                arrived > 0
            });
            if through == [true, true] {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        ensure!(false, "no frame gets through the switch");
        Ok(())
    }

    fn send(&mut self, from: usize, bytes: &[u8], count: usize) -> usize {
        let Some(frames) = end(&mut self.source, &mut self.sink, from) else { return 0 };
        let sent = (0..count).take_while(|_| put(frames, bytes)).count();
        frames.flush(0);
        sent
    }

    /// Sends a frame `count` times. Returns how many copies fit.
    pub fn offer(&mut self, bytes: &[u8], count: usize) -> usize {
        self.offer_by(SOURCE, bytes, count)
    }

    /// Sends like [`Load::offer`], but from either device.
    pub fn offer_by(&mut self, from: usize, bytes: &[u8], count: usize) -> usize {
        self.send(from, bytes, count)
    }

    /// Queues a frame for the next [`flush`](Load::flush), if there is room.
    pub fn offer_later(&mut self, bytes: &[u8]) {
        put(&mut self.source, bytes);
    }

    /// Sends the queued frames.
    pub fn flush(&mut self) {
        self.source.flush(0);
    }

    /// Sends a probe of the highest priority with the current time.
    pub fn probe(&mut self) {
        let mut bytes = frame(SOURCE, SMALL, 7);
        bytes[PROBE_AT..][..8].copy_from_slice(&PROBE);
        let now_ns = self.now().as_nanos() as u64;
        bytes[PROBE_AT + 8..][..8].copy_from_slice(&now_ns.to_be_bytes());
        self.offer(&bytes, 1);
    }

    /// Receives the source's frames at the sink and passes each to `seen`. Returns the number of frames.
    pub fn drain_sink(&mut self, seen: impl FnMut(&[u8])) -> usize {
        self.receive(SINK, seen)
    }

    /// Receives frames at either device. Returns the number of frames.
    pub fn arrived_at(&mut self, device: usize) -> usize {
        self.receive(device, |_| ())
    }

    fn receive(&mut self, device: usize, mut seen: impl FnMut(&[u8])) -> usize {
        let Some(frames) = end(&mut self.source, &mut self.sink, device) else { return 0 };
        frames.receive(0, BATCH, &mut self.batch);
        let mut count = 0;
        for frame in self.batch.drain(..) {
            let bytes = frames.bytes(&frame);
            if is_ours(1 - device, bytes) {
                seen(bytes);
                count += 1;
            }
            frames.drop_frame(frame);
        }
        count
    }

    /// Returns the number of frames dropped at the sink for lack of room.
    pub fn sink_drops(&self) -> u64 {
        self.missed_before + self.sink.as_ref().map_or(0, |sink| sink.stats(0).receive_drops)
    }
}

fn end<'a>(source: &'a mut Frames, sink: &'a mut Option<Frames>, device: usize) -> Option<&'a mut Frames> {
    if device == SOURCE { Some(source) } else { sink.as_mut() }
}

/// Queues a frame for the next flush. Returns whether there was room.
fn put(frames: &mut Frames, bytes: &[u8]) -> bool {
    let Some(frame) = frames.frame(bytes) else { return false };
    frames.send(0, frame).map_err(|frame| frames.drop_frame(frame)).is_ok()
}

/// Returns the send time of a probe, or `None` if the frame is not a probe.
pub fn probe_sent(bytes: &[u8]) -> Option<Duration> {
    let (word, rest) = bytes.get(PROBE_AT..)?.split_first_chunk()?;
    let (time, _) = rest.split_first_chunk()?;
    (*word == PROBE).then(|| Duration::from_nanos(u64::from_be_bytes(*time)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_what_the_switch_reads() {
        for (bytes, priority) in [(SMALL, 7), (FULL, 0)] {
            let frame = frame(SOURCE, bytes, priority);
            let head = homa_switch::parse(&frame).expect("long enough");
            let sum: u32 =
                frame[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
            assert_eq!(sum % 0xffff, 0, "a whole header adds up to all ones");
            assert!(is_ours(SOURCE, &frame) && !is_ours(SINK, &frame));
            assert_eq!((frame.len(), head.priority, head.to, head.from), (bytes, priority, MACS[1], MACS[0]));
            assert!(probe_sent(&frame).is_none());
        }
        let mut probe = frame(SOURCE, SMALL, 7);
        probe[PROBE_AT..][..8].copy_from_slice(&PROBE);
        probe[PROBE_AT + 15] = 9;
        assert_eq!(probe_sent(&probe), Some(Duration::from_nanos(9)));
        assert!(probe_sent(&probe[..40]).is_none());
    }
}
