//! Runs of received packets: consecutive packets of one message. The first determines the RPC; the others
//! only add bytes.

use homa_trace::{EventKind, Place, packet_word};

use crate::contract::{Reassembly, RxPacket};
use crate::endpoint::Endpoint;
use crate::peer::peer_number;
use crate::time::Time;
use crate::wire::{self, DATA_HEADER_LEN};

/// Where an accepted DATA packet leaves its message: determines which packet may continue the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunCursor {
    pub slot: u32,
    /// Exclusive end of the packet's bytes, which is the end of all received bytes of the message.
    pub end: u32,
}

/// A run that may continue. The default is no run.
#[derive(Debug, Default)]
pub(crate) struct ReceiveRun<'a> {
    last: Option<(RxPacket<'a>, RunCursor)>,
    /// Whether the run added bytes that `bytes_came` has not handled yet.
    untold: bool,
}

impl<'a> ReceiveRun<'a> {
    /// Records a packet that was handled on its own; `taken` is set if a run may begin with it.
    pub(crate) fn begin(&mut self, packet: RxPacket<'a>, taken: Option<RunCursor>) {
        self.last = taken.map(|taken| (packet, taken));
    }
}

impl Endpoint {
    /// Adds a packet to the run, if it is the next: from the same peer, with the same header, and directly
    /// after all received bytes. It must not complete the message. All other packets are handled on their
    /// own, after [`Endpoint::end_run`].
    ///
    /// At one moment of time such packets only add bytes. Their effects are the same at the end of the run as
    /// after each of them.
    pub(crate) fn continue_run<'a>(
        &mut self,
        run: &mut ReceiveRun<'a>,
        packet: &RxPacket<'a>,
        sink: &mut impl Reassembly,
    ) -> bool {
        let Some((last, taken)) = &mut run.last else { return false };
        if packet.from != last.from || wire::offset_behind(last.bytes, packet.bytes) != Some(taken.end) {
            return false;
        }
        let data = &packet.bytes[DATA_HEADER_LEN..];
        let rpc = &mut self.rpcs[taken.slot as usize];
        let left = (rpc.incoming.length - taken.end) as usize;
        let len = packet.wire_len.saturating_sub(DATA_HEADER_LEN);
        // The last packet of a message ends more than the run. `decode` must reject invalid packets.
        let is_there = data.is_empty() || data.len() == len;
        if len == 0 || len >= left || !is_there {
            return false;
        }
        let len = len as u32;
        let (start, end) = (taken.end, taken.end + len);
        debug_assert_eq!(rpc.incoming.gaps.end(), start);
        rpc.incoming.gaps.append(len);
        rpc.incoming.received += len;
        rpc.incoming.granted = rpc.incoming.granted.max(end);
        self.stats.packets_received += 1;
        self.stats.data_received += 1;
        self.stats.data_bytes_received += u64::from(len);
        let word = packet_word(wire::PacketType::Data as u8, packet.wire_len as u32);
        let (id, length, readable_step) = (rpc.id, rpc.incoming.length, rpc.options.readable_step);
        let (number, priority) = (peer_number(rpc.peer), Place::priority_received(packet.priority));
        self.trace.record_with(EventKind::PacketReceived, id, word, start, number, priority); // TRACE-1
        let slot = taken.slot;
        (taken.end, *last, run.untold) = (end, *packet, true);
        sink.write(self.key(slot), length, start, len, data); // RECV-2
        if readable_step != 0 {
            self.report_readable(slot);
        }
        true
    }

    /// Updates the RPC for the bytes that a run added.
    pub(crate) fn end_run(&mut self, now: Time, run: &mut ReceiveRun<'_>) {
        if let (Some((_, taken)), true) = (run.last.take(), std::mem::take(&mut run.untold)) {
            self.bytes_came(now, taken.slot, false);
        }
    }
}
