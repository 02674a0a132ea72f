//! A message that is arriving: its bytes, and its memory while a packet is received into that memory.

use std::mem::MaybeUninit;

use bytes::Bytes;
use homa_proto::RpcKey;

use crate::payload::memory::Memory;

#[derive(Debug, Default)]
pub(crate) enum Incoming {
    #[default]
    None,
    /// A message that consists of one packet, copied once.
    Single(Bytes),
    /// Memory with room for the `length` bytes of the whole message.
    Partial { memory: Memory, length: usize },
}

impl Incoming {
    pub(super) fn len(&self) -> usize {
        match self {
            Incoming::None => 0,
            Incoming::Single(bytes) => bytes.len(),
            Incoming::Partial { length, .. } => *length,
        }
    }
}

/// A message's memory, taken out of the table while its next packet may be received into it.
#[derive(Debug)]
pub(crate) struct DirectReceive {
    pub(super) rpc: RpcKey,
    pub(super) memory: Memory,
    /// Length of the whole message.
    pub(super) length: usize,
    /// The packet that was received after the end of `memory`: its offset in its own message, which may be a
    /// different message, and its length in bytes.
    pub(super) packet: Option<(u32, usize)>,
}

impl DirectReceive {
    /// Returns the memory for the next expected packet.
    pub(crate) fn place(&mut self) -> &mut [MaybeUninit<u8>] {
        let left = self.length - self.memory.len();
        let spare = self.memory.spare();
        let end = spare.len().min(left);
        &mut spare[..end]
    }
}
