//! A bridge with two threads, one per device. Each thread hands the packets that it receives to the peer
//! thread, which sends them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use homa_driver::frames::{Frame, Frames};
use homa_switch::Switch;

use super::batches::Batches;
use super::line::{LineReceiver, LineSender, Packet, line};
use super::single_thread::{fill, is_for_other_device, open, send, table};
use super::variants::{Lock, Variant};
use crate::switch::PortPath;
use crate::switch::place::SWITCH_DEVICES;

/// Number of packets that both halves have received, and number that they have finished with.
#[derive(Debug, Default)]
struct PacketCounts {
    came: AtomicU64,
    done: AtomicU64,
}

/// One thread of the bridge.
pub struct BridgeHalf {
    /// The device of this half.
    frames: Frames,
    /// Index of this half and of its device: 0 or 1.
    number: usize,
    own_table: Switch<()>,
    common_table: Arc<Mutex<Switch<()>>>,
    variant: Variant,
    to_other: LineSender,
    from_other: LineReceiver,
    /// Returns the buffers of packets that came from the peer half.
    give_back: LineSender,
    /// Receives this half's own buffers back from the peer half.
    get_back: LineReceiver,
    pool: Vec<Packet>,
    /// Empty batches for reuse.
    empty: Vec<Vec<Packet>>,
    burst: Vec<Frame>,
    count: Arc<PacketCounts>,
    /// Sizes of the batches received from the device.
    pub taken: Batches,
    /// Sizes of the batches received from the peer half.
    pub handed: Batches,
}

/// Opens both halves on the devices of this thread's network namespace.
pub fn open_both(variant: Variant, port_path: PortPath) -> Result<[BridgeHalf; 2]> {
    let common_table = Arc::new(Mutex::new(table()?));
    let count = Arc::new(PacketCounts::default());
    let [there, back, there_free, back_free] = std::array::from_fn(|_| line(variant.lock));
    let half = |number: usize, (to_other, from_other), (give_back, get_back)| {
        let half = BridgeHalf {
            frames: open(&SWITCH_DEVICES[number..=number], port_path)?,
            number,
            own_table: table()?,
            common_table: Arc::clone(&common_table),
            variant,
            to_other,
            from_other,
            give_back,
            get_back,
            pool: Vec::new(),
            empty: Vec::new(),
            burst: Vec::with_capacity(variant.burst),
            count: Arc::clone(&count),
            taken: Batches::default(),
            handed: Batches::default(),
        };
        anyhow::Ok(half)
    };
    // In each direction, a separate line returns the buffers.
    let first = half(0, (there.0, back.1), (back_free.0, there_free.1))?;
    let second = half(1, (back.0, there.1), (there_free.0, back_free.1))?;
    Ok([first, second])
}

impl BridgeHalf {
    /// Returns the number of packets that both halves have finished with.
    pub fn done(&self) -> u64 {
        self.count.done.load(Ordering::Acquire)
    }

    /// Returns whether packets are in transit from one half to the other.
    pub fn is_waiting(&self) -> bool {
        self.count.came.load(Ordering::Acquire) > self.done()
    }

    /// Polls the device and the line once. Returns whether either had packets. If neither had any, sleeps at
    /// the line for at most `wait`.
    pub fn poll_once(&mut self, wait: Option<Duration>) -> bool {
        let took = self.take();
        let gave = self.send_line_packets(wait.filter(|_| !took));
        took || gave
    }

    fn take(&mut self) -> bool {
        let mut batch = self.empty.pop().unwrap_or_default();
        self.get_back.take(usize::MAX, &mut batch);
        self.pool.append(&mut batch);
        self.frames.receive(0, self.variant.burst, &mut self.burst);
        let count = self.burst.len();
        self.taken.add(count);
        self.count.came.fetch_add(count as u64, Ordering::AcqRel);
        for frame in self.burst.drain(..) {
            batch.push(fill(self.pool.pop(), self.frames.bytes(&frame)));
            self.frames.drop_frame(frame);
        }
        let number = self.number;
        let lock = || self.common_table.lock().unwrap_or_else(PoisonError::into_inner);
        match self.variant.lock {
            Lock::None => batch.retain(|packet| is_for_other_device(&mut self.own_table, number, packet)),
            Lock::Packet => batch.retain(|packet| is_for_other_device(&mut lock(), number, packet)),
            Lock::Burst => {
                let mut table = lock();
                batch.retain(|packet| is_for_other_device(&mut table, number, packet));
            }
        }
        let kept = batch.len();
        let refused = if kept > 0 { self.to_other.put(&mut batch) } else { 0 };
        if kept == 0 {
            self.empty.push(batch);
        }
        self.count.done.fetch_add((count - kept + refused) as u64, Ordering::AcqRel);
        count > 0
    }

    fn send_line_packets(&mut self, wait: Option<Duration>) -> bool {
        let mut batch = self.empty.pop().unwrap_or_default();
        match wait {
            Some(longest) => self.from_other.wait(self.variant.burst, longest, &mut batch),
            None => self.from_other.take(self.variant.burst, &mut batch),
        }
        let count = batch.len();
        self.handed.add(count);
        for packet in &batch {
            send(&mut self.frames, 0, packet);
        }
        self.frames.flush(0);
        if count == 0 {
            self.empty.push(batch);
        } else {
            // Buffers that do not fit in the line are freed.
            self.give_back.put(&mut batch);
            self.count.done.fetch_add(count as u64, Ordering::AcqRel);
        }
        count > 0
    }
}
