//! What a switch tells of itself.

use serde::{Deserialize, Serialize};

use crate::depth::DepthSummary;

/// A queue of a port, since the switch was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueSnapshot {
    /// Frames sent.
    pub frames: u64,
    /// Bytes of frames sent, without what a link takes besides.
    pub bytes: u64,
    /// Frames dropped for want of buffer.
    pub dropped_frames: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Frames marked (ECN).
    pub marked_frames: u64,
    /// Bytes that wait, over time; the frame on the link does not wait.
    pub depth: DepthSummary,
}

/// A port, since the switch was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortSnapshot {
    /// The device.
    pub name: String,
    /// How frames come and go: `xdp-native`, `xdp-generic`, `ring`; empty without a device.
    pub path: String,
    /// Frames that came by it.
    pub received_frames: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames that came by it and that the kernel dropped, since the switch did not take them in time.
    pub receive_drops: u64,
    /// Frames that came by it and were longer than its MTU: the sender's device was to cut them.
    pub too_long: u64,
    /// Frames that were to leave by it and that the device did not take.
    pub refused: u64,
    /// Frames lost on purpose on their way to it.
    pub lost: u64,
    /// Share of the time that its link was sending, 0 to 1; 0 without a rate.
    pub utilisation: f64,
    /// Nanoseconds that its link was sending.
    pub busy_ns: u64,
    /// Bytes that wait in all its queues, over time.
    pub depth: DepthSummary,
    /// Its queues, the lowest priority first.
    pub queues: Vec<QueueSnapshot>,
}

/// The whole switch, since it was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Nanoseconds since the switch was made.
    pub time_ns: u64,
    /// Addresses that are known.
    pub addresses: usize,
    /// Frames that went to all ports: for all, or for an address that is not known.
    pub flooded: u64,
    /// Frames for an address behind the port that they came by.
    pub filtered: u64,
    /// Frames too short to have addresses.
    pub malformed: u64,
    /// Frames dropped since no memory for them was left, whatever the buffer allows.
    pub no_memory: u64,
    /// Looks for work, and those that found some.
    pub rounds: u64,
    /// Rounds in which frames came or left.
    pub busy_rounds: u64,
    /// The ports.
    pub ports: Vec<PortSnapshot>,
}
