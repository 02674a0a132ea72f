//! The packets that are waiting to be sent.

use std::iter::once;
use std::net::{Ipv4Addr, SocketAddr};

use homa_driver::{Driver, TxPacket};
use homa_proto::wire::HeaderBuf;
use homa_proto::{Time, Transmit, TransmitRun};

use crate::observe::metrics::HostCounts;
use crate::payload::buffers::Buffers;
use crate::runtime::bundles::{BURST, DatagramEntry, Datagrams};

/// Maximum number of packets in a burst that uses the smaller table.
const SHORT_BURST: usize = 32;

/// The packets that the endpoint has handed out but the driver has not taken.
#[derive(Default)]
pub(crate) struct Sending {
    pub(super) unsent: Vec<TransmitRun>,
    /// Memory for the headers of the unsent packets.
    headers: Vec<HeaderBuf>,
    /// The datagrams of the unsent packets, as given to the driver.
    datagrams: Datagrams,
    /// Whether the last round of sending reached its limit, so that there may be more to send.
    pub(super) backlog: bool,
    /// The port of all peers, if peers are identified by address only: see [`Driver::peers_port`].
    pub(super) peers_port: Option<u16>,
    /// The peer whose maximum packet size was last reported to the endpoint, and the time of that report.
    pub(super) last_peer: Option<(SocketAddr, Time)>,
}

impl Sending {
    pub(crate) fn new(peers_port: Option<u16>) -> Sending {
        Sending { peers_port, ..Sending::default() }
    }

    /// Gives the unsent runs, `packets` packets in total, to the driver. Returns how many packets the driver
    /// took.
    pub(super) fn send_unsent(
        &mut self,
        packets: usize,
        (driver, buffers): (&mut dyn Driver, &Buffers),
        counts: &mut HostCounts,
    ) -> std::io::Result<usize> {
        if let [run] = self.unsent.as_slice()
            && packets == 1
        {
            // This is a lone RPC, which a table would slow down.
            let payload = run.first.payload.and_then(|range| buffers.outgoing(&range));
            let packet = tx_packet(&run.first, &run.first.header, payload.unwrap_or_default());
            let taken = driver.send(&[packet])?;
            if taken > 0 {
                self.unsent.clear();
            }
            return Ok(taken);
        }
        let datagrams = self.datagrams.plan(&self.unsent);
        self.datagrams.join(&self.unsent, buffers);
        let taken = if datagrams <= SHORT_BURST {
            self.send_table::<SHORT_BURST>(driver, buffers)
        } else {
            self.send_table::<BURST>(driver, buffers)
        }?;
        let bundled = self.datagrams.remove_taken(&mut self.unsent, taken);
        counts.bundles_sent += bundled.datagrams;
        counts.bundled_packets_sent += bundled.packets;
        let left: u32 = self.unsent.iter().map(TransmitRun::packets).sum();
        Ok(packets - left as usize)
    }

    /// Gives at most `N` of the datagrams to the driver. Returns how many the driver took.
    fn send_table<const N: usize>(
        &mut self,
        driver: &mut dyn Driver,
        buffers: &Buffers,
    ) -> std::io::Result<usize> {
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
            let payload = run.payload().and_then(|range| buffers.outgoing(&range)).unwrap_or_default();
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
        driver.send(&table[..N - left])
    }
}

fn tx_packet<'a>(first: &Transmit, header: &'a [u8], payload: &'a [u8]) -> TxPacket<'a> {
    TxPacket { to: first.to, priority: first.priority, header, payload }
}
