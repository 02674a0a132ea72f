//! Handling runs of received packets.

use homa_trace::{EventKind, Place, packet_word};

use super::state::Endpoint;
use crate::contract::{Reassembly, RxPacket};
use crate::peer::peer_number;
use crate::receive_coalescing::ReceiveRun;
use crate::time::Time;
use crate::wire::{self, DATA_HEADER_LEN};

impl Endpoint {
    /// Adds a packet to the run if it continues the run: from the same peer, with the same header, directly
    /// after all received bytes, and not completing the message. All other packets are handled one by one,
    /// after [`Endpoint::end_run`].
    ///
    /// Packets of a run have the same arrival time and only add bytes. Updating the RPC once, at the end of
    /// the run, has the same effect as an update after each packet.
    pub(super) fn continue_run<'a>(
        &mut self,
        run: &mut ReceiveRun<'a>,
        packet: &RxPacket<'a>,
        sink: &mut impl Reassembly,
    ) -> bool {
        let Some(cursor) = run.cursor_before(packet) else { return false };
        let rpc = &mut self.rpcs[cursor.slot as usize];
        let Some(len) = cursor.next_len(packet, rpc.incoming.length) else { return false };
        let (start, end) = (cursor.end, cursor.end + len);
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
        run.extend(*packet, end);
        sink.write(self.key(cursor.slot), length, start, len, &packet.bytes[DATA_HEADER_LEN..]); // RECV-2
        if readable_step != 0 {
            self.report_readable(cursor.slot);
        }
        true
    }

    /// Updates the RPC for the bytes that a run added.
    pub(super) fn end_run(&mut self, now: Time, run: &mut ReceiveRun<'_>) {
        if let Some(slot) = run.end() {
            self.bytes_arrived(now, slot, false);
        }
    }
}
