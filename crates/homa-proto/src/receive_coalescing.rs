//! Runs of received packets: consecutive packets of one message. The first determines the RPC; the others
//! only add bytes.

use crate::contract::RxPacket;
use crate::wire::{self, DATA_HEADER_LEN};

/// The position in the message after an accepted DATA packet. Determines which packet may continue the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunCursor {
    pub slot: u32,
    /// Exclusive end of the packet's bytes, which is also the end of all received bytes of the message.
    pub end: u32,
}

/// A run that may continue. The default is no run.
#[derive(Debug, Default)]
pub(crate) struct ReceiveRun<'a> {
    last: Option<(RxPacket<'a>, RunCursor)>,
    /// Whether the run added bytes that `bytes_arrived` has not handled yet.
    has_new_bytes: bool,
}

impl<'a> ReceiveRun<'a> {
    /// Records a packet that was handled on its own. `cursor` is set if a run may begin with the packet.
    pub(crate) fn begin(&mut self, packet: RxPacket<'a>, cursor: Option<RunCursor>) {
        self.last = cursor.map(|cursor| (packet, cursor));
    }

    /// Returns the run's position in its message, if `packet` may continue the run: it comes from the same
    /// peer, has the same header, and directly follows all received bytes.
    #[inline]
    pub(crate) fn cursor_before(&self, packet: &RxPacket<'_>) -> Option<RunCursor> {
        let (last, cursor) = self.last.as_ref()?;
        let follows =
            packet.from == last.from && wire::offset_behind(last.bytes, packet.bytes) == Some(cursor.end);
        follows.then_some(*cursor)
    }

    /// Adds a packet; its bytes end at `end`.
    #[inline]
    pub(crate) fn extend(&mut self, packet: RxPacket<'a>, end: u32) {
        if let Some((last, cursor)) = &mut self.last {
            (cursor.end, *last, self.has_new_bytes) = (end, packet, true);
        }
    }

    /// Ends the run. Returns the slot of its message, if it added bytes that `bytes_arrived` has not handled
    /// yet.
    #[inline]
    pub(crate) fn end(&mut self) -> Option<u32> {
        let last = self.last.take();
        let adds = std::mem::take(&mut self.has_new_bytes);
        last.filter(|_| adds).map(|(_, cursor)| cursor.slot)
    }
}

impl RunCursor {
    /// Returns the payload bytes of the next packet of a message of `length` bytes. `None` if the packet must
    /// be handled on its own, because it may complete the message or because `decode` may have to reject it.
    #[inline]
    pub(crate) fn next_len(self, packet: &RxPacket<'_>, length: u32) -> Option<u32> {
        let data = &packet.bytes[DATA_HEADER_LEN..];
        let len = packet.wire_len.saturating_sub(DATA_HEADER_LEN);
        let is_there = data.is_empty() || data.len() == len;
        (len > 0 && len < (length - self.end) as usize && is_there).then_some(len as u32)
    }
}
