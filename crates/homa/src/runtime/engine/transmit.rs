//! Transmitting: bursts of packets from the endpoint to the driver.

use std::iter::once;
use std::net::{Ipv4Addr, SocketAddr};

use homa_driver::TxPacket;
use homa_proto::{Time, Transmit, TransmitRun};

use super::Engine;
use crate::runtime::bundles::{BURST, DatagramEntry};

/// Bursts of at most this many packets use a smaller table.
const SHORT_BURST: usize = 32;

/// Maximum bytes of a burst, unless its only packet is longer. A datagram that the kernel segments has no
/// more, and a short message that comes meanwhile waits for the burst. Large packets gain nothing from longer
/// bursts.
const BURST_BYTES: u32 = 65_400;

/// A burst of this many bytes is full. A packet so large that only a few fit one datagram would not fit any
/// more, and a shorter one can wait for the next burst.
const FULL_BYTES: u32 = 56_000;

/// Maximum bursts sent before packets are received again.
const BURSTS_PER_ROUND: usize = 2;

/// The outcome of sending a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// There was nothing to send, or no room for it.
    Nothing,
    /// All packets were sent, or as many as the driver had room for.
    All,
    /// As much as a burst may hold was sent; there may be more.
    FullBurst,
}

impl Engine {
    /// Sends a bounded number of bursts; returns whether anything was sent. A remainder is due at once.
    pub(crate) fn transmit_round(&mut self, now: Time) -> bool {
        self.backlog = false;
        for burst in 0..BURSTS_PER_ROUND {
            match self.transmit_burst(now) {
                Sent::Nothing => return burst > 0,
                Sent::All => return true,
                Sent::FullBurst => {}
            }
        }
        self.backlog = true;
        true
    }

    /// Whether packets wait for which the driver has no room.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Whether to wake when the driver's descriptor shows that there is room.
    pub(crate) fn awaits_room(&self) -> bool {
        self.is_blocked() && self.driver.shows_room()
    }

    /// Sends one burst.
    fn transmit_burst(&mut self, now: Time) -> Sent {
        if !self.unsent.is_empty() {
            // These packets were left over, and their RPCs may have ended meanwhile.
            let buffers = &self.buffers;
            self.unsent.retain(|run| run.payload().is_none_or(|range| buffers.outgoing(&range).is_some()));
        }
        if self.unsent.is_empty() && !self.endpoint.has_transmit() {
            return Sent::Nothing;
        }
        let mut packets: usize = self.unsent.iter().map(|run| run.packets() as usize).sum();
        let mut bytes: u32 = self.unsent.iter().map(TransmitRun::bytes).sum();
        if let Some(stake) = &self.stake {
            stake.note_uplink(now, &mut self.endpoint);
        }
        while packets < BURST && bytes < FULL_BYTES && self.endpoint.has_transmit() {
            let (most, most_bytes) = ((BURST - packets) as u32, BURST_BYTES - bytes);
            let Some(run) = self.endpoint.poll_transmit_run(now, most, most_bytes) else { break };
            packets += run.packets() as usize;
            bytes += run.bytes();
            if self.buffers.copying.is_some()
                && let Some(range) = run.payload()
            {
                self.buffers.provide(&range);
            }
            self.unsent.push(run);
        }
        if let Some(stake) = &mut self.stake {
            stake.tell_uplink(now, &self.endpoint);
        }
        if self.unsent.is_empty() {
            return Sent::Nothing;
        }
        let full = packets >= BURST || bytes >= FULL_BYTES;
        self.note_burst_out(packets, bytes);
        match self.send_unsent(packets) {
            Ok(taken) => {
                self.note_burst_taken(taken);
                match taken {
                    0 => Sent::Nothing,
                    _ if full && self.unsent.is_empty() => Sent::FullBurst,
                    _ => Sent::All,
                }
            }
            Err(error) => {
                self.unsent.clear();
                self.note_broken("send", &error);
                Sent::Nothing
            }
        }
    }

    /// Gives the unsent runs, `packets` packets in all, to the driver; returns how many packets it took.
    fn send_unsent(&mut self, packets: usize) -> std::io::Result<usize> {
        if let [run] = self.unsent.as_slice()
            && packets == 1
        {
            // The case of a lone RPC, which a table would slow down.
            let payload = run.first.payload.and_then(|range| self.buffers.outgoing(&range));
            let packet = tx_packet(&run.first, &run.first.header, payload.unwrap_or_default());
            let taken = self.driver.send(&[packet])?;
            if taken > 0 {
                self.unsent.clear();
            }
            return Ok(taken);
        }
        let datagrams = self.datagrams.plan(&self.unsent);
        self.datagrams.join(&self.unsent, &self.buffers);
        let taken = if datagrams <= SHORT_BURST {
            self.send_table::<SHORT_BURST>()
        } else {
            self.send_table::<BURST>()
        }?;
        let bundled = self.datagrams.remove_taken(&mut self.unsent, taken);
        self.counts.bundles_sent += bundled.datagrams;
        self.counts.bundled_packets_sent += bundled.packets;
        let left: u32 = self.unsent.iter().map(TransmitRun::packets).sum();
        Ok(packets - left as usize)
    }

    /// Gives the datagrams to the driver, at most `N` of them; returns how many it took.
    fn send_table<const N: usize>(&mut self) -> std::io::Result<usize> {
        self.headers.clear();
        for entry in self.datagrams.entries(&self.unsent) {
            if let DatagramEntry::Run(run) = entry {
                self.headers.extend((1..run.packets()).map(|index| run.header(index)));
            }
        }
        let nowhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let mut table = [TxPacket { to: nowhere, priority: 0, header: &[], payload: &[] }; N];
        let mut places = table.iter_mut();
        let mut headers = &self.headers[..];
        for entry in self.datagrams.entries(&self.unsent) {
            let run = match entry {
                DatagramEntry::Run(run) => run,
                DatagramEntry::Bundle(bundle) => {
                    if let Some(place) = places.next() {
                        *place = bundle;
                    }
                    continue;
                }
            };
            let piece = run.first.payload.map_or(0, |range| range.len as usize);
            let payload = run.payload().and_then(|range| self.buffers.outgoing(&range)).unwrap_or_default();
            let (first, rest) = payload.split_at(piece.min(payload.len()));
            let (others, later) = headers.split_at(run.packets() as usize - 1);
            headers = later;
            let others = others.iter().zip(rest.chunks(piece.max(1)));
            for ((header, payload), place) in once((&run.first.header, first)).chain(others).zip(&mut places)
            {
                *place = tx_packet(&run.first, header, payload);
            }
        }
        let left = places.len();
        self.driver.send(&table[..N - left])
    }
}

fn tx_packet<'a>(first: &Transmit, header: &'a [u8], payload: &'a [u8]) -> TxPacket<'a> {
    TxPacket { to: first.to, priority: first.priority, header, payload }
}
