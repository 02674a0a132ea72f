//! Runs of packets: the next packets of one message, chosen and encoded together.

use homa_trace::{EventKind, packet_word};

use super::state::Endpoint;
use super::transmit::PlannedData;
use crate::contract::TransmitRun;
use crate::peer::peer_number;
use crate::time::Time;
use crate::wire::{self, DATA_HEADER_LEN};

impl Endpoint {
    /// Returns the next packets to send now, if any: at most `max_packets`, and together at most `max_bytes`
    /// including headers. A single packet may exceed `max_bytes`. All returned packets count as sent.
    ///
    /// The packets and the resulting state are the same as for the same number of consecutive calls of
    /// [`Endpoint::poll_transmit`]. Several packets are returned only if they belong to one message and
    /// differ only in their offsets.
    pub fn poll_transmit_run(&mut self, now: Time, max_packets: u32, max_bytes: u32) -> Option<TransmitRun> {
        let now = self.advance(now);
        self.sending.ready.waits_for_pacer = false;
        if let Some(first) = self.next_control(now) {
            return Some(TransmitRun { first, more: 0 });
        }
        let part = self.next_part(now)?;
        let peer = self.rpcs[part.slot as usize].peer;
        // ACK-2: a header with an acknowledgement differs from all others, and the next packet may carry one
        // too.
        let has_ack = !self.peers[peer].acks.is_empty();
        let first = self.data_packet(now, &part);
        let goes_on = self.rpcs[part.slot as usize].outgoing.is_ready();
        let more = if !goes_on || part.retransmit || has_ack {
            0
        } else {
            let packet = part.len + DATA_HEADER_LEN as u32;
            self.extend_run(now, &part, max_packets.min(max_bytes / packet).saturating_sub(1))
        };
        Some(TransmitRun { first, more })
    }

    /// Counts up to `most` packets after `part` as sent, and returns their payload bytes.
    fn extend_run(&mut self, now: Time, part: &PlannedData, most: u32) -> u32 {
        let outgoing = &self.rpcs[part.slot as usize].outgoing;
        let is_next = self.sending.ready.choose(self.config.max_packet) == Some(part.slot);
        if most == 0 || !is_next {
            return 0;
        }
        // The priority changes where the unscheduled bytes end, so the run ends there too.
        let unscheduled = part.offset < outgoing.unscheduled;
        let left = if unscheduled { outgoing.unscheduled } else { outgoing.granted } - outgoing.next;
        let packets = self.admitted(now, most.min(left.div_ceil(part.len)), part.len, left);
        if packets == 0 {
            return 0;
        }
        let bytes = left.min(packets * part.len);
        self.advance_message(now, part.slot, bytes);
        self.stats.packets_sent += u64::from(packets);
        self.stats.data_sent += u64::from(packets);
        self.stats.data_bytes_sent += u64::from(bytes);
        if self.trace.is_recording() {
            self.note_run(part, bytes);
        }
        bytes
    }

    /// Records the packets of a run after its first packet. They were made in one step, and so have the same
    /// timestamp.
    #[inline(never)]
    fn note_run(&mut self, part: &PlannedData, bytes: u32) {
        let rpc = &self.rpcs[part.slot as usize];
        let place =
            self.trace.place(peer_number(rpc.peer), part.priority.min(self.config.num_priorities - 1));
        let id = rpc.id;
        for sent in (0..bytes).step_by(part.len as usize) {
            let packet = part.len.min(bytes - sent) + DATA_HEADER_LEN as u32;
            let word = packet_word(wire::PacketType::Data as u8, packet);
            self.trace.record_again(EventKind::PacketSent, id, word, part.offset + part.len + sent, place);
        }
    }

    /// Returns how many of the next `packets` the pacer admits while it is still their message's turn. The
    /// pacer and the queue count them as sent. Each packet carries `len` of the `left` bytes; the last may
    /// carry fewer.
    fn admitted(&mut self, now: Time, packets: u32, len: u32, left: u32) -> u32 {
        let (full, share) = (self.config.max_packet, self.config.pacer_fifo_fraction);
        if self.sending.pacer.is_off() {
            // The last packet may be shorter, and must not count as a full packet for the oldest message's
            // share.
            let whole = packets.min(left / len);
            let admitted = self.sending.ready.account_run(whole, len, full, share);
            let rest = if admitted == whole && packets > whole {
                self.sending.ready.account_run(1, left % len, full, share)
            } else {
                0
            };
            return admitted + rest;
        }
        for admitted in 0..packets {
            let payload = len.min(left - admitted * len);
            let bytes = payload + DATA_HEADER_LEN as u32;
            let may_send = self.sending.pacer.admits(now, bytes); // SEND-6, SEND-7
            if !may_send || self.sending.ready.account_run(1, payload, full, share) == 0 {
                return admitted;
            }
            self.sending.pacer.sent(now, bytes);
        }
        packets
    }
}
