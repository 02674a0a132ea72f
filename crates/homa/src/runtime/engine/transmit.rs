//! Transmits bursts of packets: passes them from the endpoint to the driver.

use homa_proto::{Time, TransmitRun};

use super::Engine;
use crate::runtime::bundles::BURST;

/// Maximum bytes of a burst, unless its only packet is longer. A datagram that the kernel segments holds no
/// more than this, and a short message that arrives in the meantime has to wait for the burst. Large packets
/// gain nothing from longer bursts.
const BURST_BYTES: u32 = 65_400;

/// A burst of this many bytes counts as full. If packets are so large that only a few fit in one datagram, no
/// further packet would fit, and a shorter packet can wait for the next burst.
const FULL_BYTES: u32 = 56_000;

/// Maximum number of bursts sent before packets are received again.
const BURSTS_PER_ROUND: usize = 2;

/// The outcome of sending a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// There was nothing to send, or no room for it.
    Nothing,
    /// All packets were sent, or as many as the driver had room for.
    All,
    /// A full burst was sent; there may be more to send.
    FullBurst,
}

impl Engine {
    /// Sends a bounded number of bursts; returns whether anything was sent. If there is more to send, the
    /// next round is due at once.
    pub(crate) fn transmit_round(&mut self, now: Time) -> bool {
        self.sending.backlog = false;
        for burst in 0..BURSTS_PER_ROUND {
            match self.transmit_burst(now) {
                Sent::Nothing => return burst > 0,
                Sent::All => return true,
                Sent::FullBurst => {}
            }
        }
        self.sending.backlog = true;
        true
    }

    /// Returns whether to wake when the driver's descriptor becomes writable.
    pub(crate) fn awaits_room(&self) -> bool {
        self.is_blocked() && self.driver.shows_room()
    }

    /// Sends one burst.
    fn transmit_burst(&mut self, now: Time) -> Sent {
        if !self.sending.unsent.is_empty() {
            // These packets are left over from an earlier burst, and their RPCs may have ended in the
            // meantime.
            let buffers = &self.buffers;
            self.sending
                .unsent
                .retain(|run| run.payload().is_none_or(|range| buffers.outgoing(&range).is_some()));
        }
        if self.sending.unsent.is_empty() && !self.endpoint.has_transmit() {
            return Sent::Nothing;
        }
        let mut packets: usize = self.sending.unsent.iter().map(|run| run.packets() as usize).sum();
        let mut bytes: u32 = self.sending.unsent.iter().map(TransmitRun::bytes).sum();
        if let Some(lease) = &self.tenancy.lease {
            lease.note_uplink(now, &mut self.endpoint);
        }
        while packets < BURST && bytes < FULL_BYTES && self.endpoint.has_transmit() {
            let (max_packets, max_bytes) = ((BURST - packets) as u32, BURST_BYTES - bytes);
            let Some(run) = self.endpoint.poll_transmit_run(now, max_packets, max_bytes) else { break };
            packets += run.packets() as usize;
            bytes += run.bytes();
            if self.buffers.copying.is_some()
                && let Some(range) = run.payload()
            {
                self.buffers.provide(&range);
            }
            self.sending.unsent.push(run);
        }
        if let Some(lease) = &mut self.tenancy.lease {
            lease.publish_uplink(now, &self.endpoint);
        }
        if self.sending.unsent.is_empty() {
            return Sent::Nothing;
        }
        let full = packets >= BURST || bytes >= FULL_BYTES;
        self.note_burst_out(packets, bytes);
        match self.sending.send_unsent(packets, (&mut *self.driver, &self.buffers), &mut self.counts.host) {
            Ok(taken) => {
                self.note_burst_taken(taken);
                match taken {
                    0 => Sent::Nothing,
                    _ if full && self.sending.unsent.is_empty() => Sent::FullBurst,
                    _ => Sent::All,
                }
            }
            Err(error) => {
                self.sending.unsent.clear();
                self.note_broken("send", &error);
                Sent::Nothing
            }
        }
    }

    /// Returns whether packets are waiting because the driver has no room for them.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.sending.unsent.is_empty()
    }
}
