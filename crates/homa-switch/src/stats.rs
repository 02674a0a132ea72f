//! Counters of a switch.

use serde::{Deserialize, Serialize};

use crate::depth::DepthSummary;

/// Counters of a queue since the switch was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueSnapshot {
    /// Frames sent.
    pub frames: u64,
    /// Bytes of frames sent, excluding link overhead.
    pub bytes: u64,
    /// Frames dropped because the buffer was full.
    pub dropped_frames: u64,
    /// Bytes of the dropped frames.
    pub dropped_bytes: u64,
    /// Frames marked (ECN).
    pub marked_frames: u64,
    /// Queue length over time, excluding the frame on the link.
    pub depth: DepthSummary,
}

/// Counters of a port since the switch was created.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortSnapshot {
    /// The device.
    pub name: String,
    /// Packet path: `xdp-native`, `xdp-generic` or `ring`; empty without a device.
    pub path: String,
    /// Frames received.
    pub received_frames: u64,
    /// Bytes of the received frames.
    pub received_bytes: u64,
    /// Frames that the kernel dropped because the switch did not read them in time.
    pub receive_drops: u64,
    /// Received frames longer than the MTU, which the sender's device should have segmented.
    pub too_long: u64,
    /// Frames that the device refused to send.
    pub refused: u64,
    /// Frames dropped at random (`loss`) before this port.
    pub lost: u64,
    /// Fraction of time that the link was busy, 0 to 1; 0 without a rate.
    pub utilisation: f64,
    /// Time that the link was busy, in nanoseconds.
    pub busy_ns: u64,
    /// Total length of all queues over time.
    pub depth: DepthSummary,
    /// The port's queues, the lowest priority first.
    pub queues: Vec<QueueSnapshot>,
}

/// Counters of the whole switch since it was created.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Nanoseconds since the switch was created.
    pub time_ns: u64,
    /// Number of known addresses.
    pub addresses: usize,
    /// Flooded frames: broadcast, multicast, or unknown destination.
    pub flooded: u64,
    /// Frames whose destination is behind the port that received them.
    pub filtered: u64,
    /// Frames too short for an Ethernet header.
    pub malformed: u64,
    /// Frames dropped because the pool of frame memory was empty.
    pub no_memory: u64,
    /// Number of polling rounds.
    pub rounds: u64,
    /// Rounds in which frames were received or sent.
    pub busy_rounds: u64,
    /// The ports.
    pub ports: Vec<PortSnapshot>,
}
