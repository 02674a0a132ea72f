//! A bridge with one thread, which receives a burst, looks up the destinations, and sends the packets.

use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use homa_driver::frames::{Frame, Frames, FramesConfig};
use homa_switch::{Route, Switch, SwitchConfig, parse};

use super::batches::Batches;
use super::line::Packet;
use super::variants::{Lock, Memory, Variant};
use crate::switch::PortPath;
use crate::switch::place::SWITCH_DEVICES;

/// Number of header bytes that are copied to a separate array: a cache line, which contains all headers that
/// the lookup reads.
const HEAD_BYTES: usize = 64;

/// A bridge that receives and sends in one thread.
pub struct SingleThreadBridge {
    frames: Frames,
    table: Mutex<Switch<()>>,
    variant: Variant,
    burst: Vec<Frame>,
    packets: Vec<Packet>,
    heads: Vec<[u8; HEAD_BYTES]>,
    pool: Vec<Packet>,
    done: u64,
    /// Sizes of the batches received from the devices.
    pub taken: Batches,
}

/// Creates an empty address table. It is the switch's table; the switch's queues are not used.
pub fn table() -> Result<Switch<()>> {
    Ok(Switch::new(SwitchConfig::default(), SWITCH_DEVICES.len(), 0)?)
}

/// Opens devices of this thread's network namespace.
pub fn open(devices: &[&str], port_path: PortPath) -> Result<Frames> {
    let devices = devices.iter().map(|&name| name.to_owned()).collect();
    Ok(Frames::open(&FramesConfig { path: port_path.path(), ..FramesConfig::new(devices) })?)
}

/// Returns whether a packet received by device `from` must be sent by the other device.
pub fn is_for_other_device(table: &mut Switch<()>, from: usize, packet: &[u8]) -> bool {
    let route = parse(packet).map(|head| table.route(0, from, &head, packet.len()));
    match route {
        Some(Route::Port(to)) => to != from,
        Some(Route::All) => true,
        Some(Route::Nowhere) | None => false,
    }
}

/// Sends a copy of this packet, or drops the packet if there is no room.
pub fn send(frames: &mut Frames, device: usize, packet: &[u8]) {
    if let Some(frame) = frames.frame(packet)
        && let Err(frame) = frames.send(device, frame)
    {
        frames.drop_frame(frame);
    }
}

impl SingleThreadBridge {
    /// Opens both devices.
    pub fn open(variant: Variant, port_path: PortPath) -> Result<SingleThreadBridge> {
        Ok(SingleThreadBridge {
            frames: open(&SWITCH_DEVICES, port_path)?,
            table: Mutex::new(table()?),
            variant,
            burst: Vec::with_capacity(variant.burst),
            packets: Vec::with_capacity(variant.burst),
            heads: Vec::with_capacity(variant.burst),
            pool: Vec::new(),
            done: 0,
            taken: Batches::default(),
        })
    }

    /// Returns the number of packets processed.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Polls each device once. Returns whether any packet was received.
    pub fn poll_once(&mut self) -> bool {
        let before = self.done;
        for from in 0..SWITCH_DEVICES.len() {
            let mut burst = std::mem::take(&mut self.burst);
            self.frames.receive(from, self.variant.burst, &mut burst);
            self.taken.add(burst.len());
            self.done += burst.len() as u64;
            match self.variant.memory {
                Memory::Shared => self.forward(from, &mut burst),
                memory => self.copy(from, memory, &mut burst),
            }
            self.frames.flush(1 - from);
            self.burst = burst;
        }
        self.done > before
    }

    fn forward(&mut self, from: usize, burst: &mut Vec<Frame>) {
        if self.variant.prefetch {
            burst.iter().for_each(|frame| self.frames.prefetch(frame));
        }
        let frames = &mut self.frames;
        let mut one = |table: &mut Switch<()>, frame: Frame| {
            let result = match is_for_other_device(table, from, frames.bytes(&frame)) {
                true => frames.send(1 - from, frame),
                false => Err(frame),
            };
            if let Err(frame) = result {
                frames.drop_frame(frame);
            }
        };
        let lock = || self.table.lock().unwrap_or_else(PoisonError::into_inner);
        match self.variant.lock {
            Lock::Packet => burst.drain(..).for_each(|frame| one(&mut lock(), frame)),
            Lock::Burst => {
                let mut table = lock();
                burst.drain(..).for_each(|frame| one(&mut table, frame));
            }
            Lock::None => {
                let table = self.table.get_mut().unwrap_or_else(PoisonError::into_inner);
                burst.drain(..).for_each(|frame| one(table, frame));
            }
        }
    }

    /// Forwards a burst by copying. Completes each step for the whole burst before the next step.
    fn copy(&mut self, from: usize, memory: Memory, burst: &mut Vec<Frame>) {
        for frame in burst.drain(..) {
            let bytes = self.frames.bytes(&frame);
            self.packets.push(match memory {
                Memory::Allocator => bytes.to_vec(),
                _ => fill(self.pool.pop(), bytes),
            });
            if memory == Memory::Apart {
                let mut head = [0; HEAD_BYTES];
                let length = bytes.len().min(HEAD_BYTES);
                head[..length].copy_from_slice(&bytes[..length]);
                self.heads.push(head);
            }
            self.frames.drop_frame(frame);
        }
        let table = self.table.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (at, packet) in self.packets.drain(..).enumerate() {
            let read = self.heads.get(at).map_or(&packet[..], |head| &head[..]);
            if is_for_other_device(table, from, read) {
                send(&mut self.frames, 1 - from, &packet);
            }
            if memory != Memory::Allocator {
                self.pool.push(packet);
            }
        }
        self.heads.clear();
    }
}

/// Copies bytes into a used buffer, or into a new buffer if `buffer` is `None`.
pub fn fill(buffer: Option<Packet>, bytes: &[u8]) -> Packet {
    let mut packet = buffer.unwrap_or_default();
    packet.clear();
    packet.extend_from_slice(bytes);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::switch::load::{SINK, SMALL, SOURCE, bulk_frame_from};

    #[test]
    fn a_packet_leaves_by_the_other_device_unless_its_receiver_is_behind_its_own() {
        let mut table = table().expect("a table");
        let there = bulk_frame_from(SOURCE, SMALL);
        assert!(is_for_other_device(&mut table, 0, &there), "nobody is known");
        assert!(is_for_other_device(&mut table, 1, &bulk_frame_from(SINK, SMALL)));
        assert!(is_for_other_device(&mut table, 0, &there));
        assert!(!is_for_other_device(&mut table, 1, &there), "it is behind this device");
        assert!(!is_for_other_device(&mut table, 0, &there[..10]));
    }

    #[test]
    fn a_buffer_keeps_nothing_of_its_last_packet() {
        let packet = fill(Some(vec![1; 100]), &[2; 3]);
        assert_eq!(packet, [2; 3]);
        assert!(packet.capacity() >= 100);
    }
}
