//! A wrapper that writes all packets to a capture file, which Wireshark can open.
//!
//! The capture shows Homa packets over UDP, or directly over IP if the driver sends them that way. The
//! reconstructed headers contain the driver's addresses and the DSCP. The capture contains the packets that
//! the driver accepted and returned, which can differ from those on the wire. A packet that the kernel
//! refused is included; a packet that the kernel dropped before the driver received it is not. The DSCP of
//! received packets is 0 if the driver cannot provide it.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use homa_pcap::write::{Packet, append, file_header};

use crate::burst::RxBurst;
use crate::driver::{BufferSizes, Driver, DriverStats, SentPacket, TxPacket, UnreachableReport, dscp_byte};
use crate::exchange::Exchange;
use crate::filter::ReceiveFilter;
use crate::socket::source_for;

/// Buffered records are written once they reach this many bytes, and whenever no packet arrives. This is the
/// length of one or two packets of maximum length, so most records share a system call.
const BUFFER_BYTES: usize = 128 * 1024;

/// Maximum number of cached local addresses, which are indexed by peer; when exceeded, all are dropped.
const SOURCES_MAX: usize = 1_024;

/// State of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureReport {
    /// Packets in the file.
    pub packets: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Packets missing from the file: those captured after the capture stopped, and those not written yet.
    pub missed: u64,
    /// Why the capture stopped; `None` while it runs.
    pub stopped: Option<String>,
}

/// Wraps a driver and writes every packet to a capture.
///
/// A capture that cannot be written, for instance because the disk is full, stops with one warning in the
/// log. The file then ends with a complete packet, and traffic continues. Packets are written to the file
/// when [`Driver::receive`] finds nothing, when the driver is dropped, and at [`PcapDriver::flush`].
pub struct PcapDriver<D> {
    inner: D,
    capture: Capture,
    sources: HashMap<IpAddr, IpAddr>,
}

impl<D: std::fmt::Debug> std::fmt::Debug for PcapDriver<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PcapDriver")
            .field("inner", &self.inner)
            .field("report", &self.capture.report)
            .finish_non_exhaustive()
    }
}

impl<D: Driver> PcapDriver<D> {
    /// Captures to a new file; an existing file is overwritten.
    ///
    /// # Errors
    /// The file cannot be created or its header cannot be written; the error names the file.
    pub fn create(inner: D, path: impl AsRef<Path>) -> io::Result<PcapDriver<D>> {
        let path = path.as_ref();
        let begin = || {
            let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
            Capture::begin(Sink::File(file, path.to_owned()))
        };
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot capture to {}: {error}", path.display()))
        };
        Ok(PcapDriver::with(inner, begin().map_err(named)?))
    }

    /// Captures to any writer, for instance a pipe to a viewer. The writer should not block for long, since
    /// packets wait for it.
    ///
    /// # Errors
    /// The file's header cannot be written.
    pub fn new(inner: D, writer: impl Write + Send + 'static) -> io::Result<PcapDriver<D>> {
        let capture = Capture::begin(Sink::Writer(Box::new(writer)))?;
        Ok(PcapDriver::with(inner, capture))
    }

    fn with(mut inner: D, capture: Capture) -> PcapDriver<D> {
        // The kernel's cost for this is small compared with that of capturing. If the driver cannot provide
        // priorities, packets are captured without them.
        inner.tell_priorities();
        PcapDriver { inner, capture, sources: HashMap::new() }
    }

    /// Writes the buffered records. A failure stops the capture and appears in the
    /// [report](PcapDriver::report).
    pub fn flush(&mut self) {
        self.capture.write_out();
    }

    /// Returns the current state of the capture.
    #[must_use]
    pub fn report(&self) -> CaptureReport {
        let mut report = self.capture.report.clone();
        report.missed += self.capture.waiting_packets;
        report
    }

    /// Returns the inner driver.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Returns the source address of packets to this peer: the driver's own address, or the route's source
    /// address if the driver is bound to all addresses.
    fn local_for(&mut self, peer: SocketAddr) -> SocketAddr {
        let local = self.inner.local_addr();
        if !local.ip().is_unspecified() {
            return local;
        }
        if self.sources.len() >= SOURCES_MAX {
            self.sources.clear();
        }
        let ip = *self.sources.entry(peer.ip()).or_insert_with(|| source_for(peer).unwrap_or(local.ip()));
        SocketAddr::new(ip, local.port())
    }
}

/// Returns the wall-clock time in nanoseconds since 1970, or 0 if the clock is set to an earlier time.
fn wall_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

enum Sink {
    File(File, PathBuf),
    Writer(Box<dyn Write + Send>),
}

impl Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Sink::File(file, _) => file.write_all(bytes),
            Sink::Writer(writer) => writer.write_all(bytes).and_then(|()| writer.flush()),
        }
    }

    /// Removes the bytes that a failed write left beyond `length`.
    fn cut(&mut self, length: u64) {
        if let Sink::File(file, _) = self {
            // If this fails too, the file ends with a partial packet: viewers report that and show the rest.
            let _ = file.set_len(length);
        }
    }

    fn name(&self) -> String {
        match self {
            Sink::File(_, path) => path.display().to_string(),
            Sink::Writer(_) => "a writer".to_owned(),
        }
    }
}

struct Capture {
    /// `None` once the capture has stopped.
    sink: Option<Sink>,
    waiting: Vec<u8>,
    waiting_packets: u64,
    report: CaptureReport,
}

impl Capture {
    fn begin(mut sink: Sink) -> io::Result<Capture> {
        let header = file_header();
        sink.write(&header)?;
        Ok(Capture {
            sink: Some(sink),
            // A whole record is appended before the length of the buffer is checked.
            waiting: Vec::with_capacity(2 * BUFFER_BYTES),
            waiting_packets: 0,
            report: CaptureReport { bytes: header.len() as u64, ..CaptureReport::default() },
        })
    }

    fn add(&mut self, packet: &Packet<'_>) {
        if self.sink.is_none() {
            self.report.missed += 1;
            return;
        }
        append(&mut self.waiting, packet);
        self.waiting_packets += 1;
        if self.waiting.len() >= BUFFER_BYTES {
            self.write_out();
        }
    }

    fn write_out(&mut self) {
        let Some(sink) = &mut self.sink else { return };
        if self.waiting.is_empty() {
            return;
        }
        match sink.write(&self.waiting) {
            Ok(()) => {
                self.report.packets += self.waiting_packets;
                self.report.bytes += self.waiting.len() as u64;
            }
            Err(error) => {
                sink.cut(self.report.bytes);
                tracing::warn!("the packet capture to {} stops, traffic goes on: {error}", sink.name());
                self.report.stopped = Some(error.to_string());
                self.report.missed += self.waiting_packets;
                self.sink = None;
            }
        }
        self.waiting.clear();
        self.waiting_packets = 0;
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.write_out();
    }
}

impl<D: Driver> Driver for PcapDriver<D> {
    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn max_packet(&self, to: SocketAddr) -> usize {
        self.inner.max_packet(to)
    }

    fn send(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        let taken = self.inner.send(packets)?;
        let time_ns = wall_ns();
        for packet in &packets[..taken] {
            let from = self.local_for(packet.to);
            let parts = [packet.header, packet.payload];
            let dscp_byte = dscp_byte(packet.priority);
            let udp = from.port() != 0;
            self.capture.add(&Packet { time_ns, from, to: packet.to, dscp_byte, udp, parts });
        }
        Ok(taken)
    }

    fn receive(&mut self, burst: &mut RxBurst) -> io::Result<usize> {
        let count = self.inner.receive(burst)?;
        if count == 0 {
            self.capture.write_out();
            return Ok(0);
        }
        let time_ns = wall_ns();
        for (index, (from, bytes)) in burst.iter().enumerate() {
            let to = self.local_for(from);
            let udp = to.port() != 0;
            let dscp_byte = burst.priority(index).map_or(0, dscp_byte);
            self.capture.add(&Packet { time_ns, from, to, dscp_byte, udp, parts: [bytes, &[]] });
        }
        Ok(count)
    }

    fn stamp_received(&mut self) -> bool {
        self.inner.stamp_received()
    }

    fn tell_priorities(&mut self) -> bool {
        self.inner.tell_priorities()
    }

    fn stamp_sent(&mut self) -> bool {
        self.inner.stamp_sent()
    }

    fn poll_sent(&mut self) -> Option<SentPacket> {
        self.inner.poll_sent()
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.poll_fd()
    }

    fn poll_timeout(&self) -> Option<u64> {
        self.inner.poll_timeout()
    }

    fn shows_room(&self) -> bool {
        self.inner.shows_room()
    }

    fn poll_unreachable(&mut self) -> Option<UnreachableReport> {
        self.inner.poll_unreachable()
    }

    fn set_receive_filter(&mut self, filter: &ReceiveFilter) -> io::Result<()> {
        self.inner.set_receive_filter(filter)
    }

    fn refuse(&mut self, peer: SocketAddr, packet: &[u8]) {
        self.inner.refuse(peer, packet);
    }

    fn peers_port(&self) -> Option<u16> {
        self.inner.peers_port()
    }

    fn exchange(&mut self) -> Option<&mut dyn Exchange> {
        self.inner.exchange()
    }

    fn link_mbps(&self) -> Option<u32> {
        self.inner.link_mbps()
    }

    fn buffer_sizes(&self) -> Option<BufferSizes> {
        self.inner.buffer_sizes()
    }

    fn stats(&self) -> DriverStats {
        self.inner.stats()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use homa_pcap::frame::{Content, Datagram, dissect};
    use homa_pcap::read::CaptureReader;

    use super::*;
    use crate::memory::MemoryDriver;

    /// A disk with limited space.
    #[derive(Clone, Default)]
    struct Disk {
        bytes: Arc<Mutex<Vec<u8>>>,
        refused: Arc<Mutex<u32>>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut all = self.bytes.lock().unwrap();
            let count = bytes.len().min(self.room - all.len());
            if count == 0 {
                *self.refused.lock().unwrap() += 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            all.extend_from_slice(&bytes[..count]);
            Ok(count)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const PEER: ([u8; 4], u16) = ([10, 0, 0, 9], 9);

    fn send(driver: &mut impl Driver, count: usize) {
        let packet = TxPacket { to: PEER.into(), priority: 6, header: &[1; 28], payload: &[2; 72] };
        assert_eq!(driver.send(&vec![packet; count]).unwrap(), count);
    }

    /// Returns the source port, destination port, type of service and payload of each record.
    fn records(file: &[u8]) -> Vec<(u16, u16, u8, Vec<u8>)> {
        let mut reader = CaptureReader::new(file).expect("the header comes first");
        let mut all = Vec::new();
        while let Some(record) = reader.next_record().expect("whole records") {
            let content = dissect(record.link, record.bytes, record.wire_len);
            let Content::Datagram(Datagram { from, to, dscp_byte, udp: true, payload }) = content else {
                panic!("{content:?}");
            };
            assert!(from.is_ipv4() && payload.bytes.len() == payload.wire_len);
            all.push((from.port(), to.port(), dscp_byte, payload.bytes.to_vec()));
        }
        all
    }

    #[test]
    fn what_passes_is_in_the_capture_both_ways() {
        let disk = Disk { room: 1 << 20, ..Disk::default() };
        let mut inner = MemoryDriver { room: Some(3), ..MemoryDriver::default() };
        inner.arriving.push_back((PEER.into(), b"answer".to_vec()));
        let mut driver = PcapDriver::new(inner, disk.clone()).unwrap();
        let packet = TxPacket { to: PEER.into(), priority: 6, header: b"he", payload: b"llo" };
        assert_eq!(driver.send(&[packet; 5]).unwrap(), 3, "only what was taken is captured");
        let mut burst = RxBurst::new();
        assert_eq!(driver.receive(&mut burst).unwrap(), 1);
        assert_eq!(burst.get(0).unwrap().1, b"answer");
        assert_eq!(driver.report().missed, 4, "what waits is not in the file yet");
        assert_eq!(driver.receive(&mut burst).unwrap(), 0);
        let sent = (4_000, 9, 0xc0, b"hello".to_vec());
        let got = (9, 4_000, 0, b"answer".to_vec());
        let bytes = disk.bytes.lock().unwrap().clone();
        assert_eq!(records(&bytes), [sent.clone(), sent.clone(), sent, got]);
        let report = driver.report();
        assert_eq!((report.packets, report.bytes, report.missed), (4, bytes.len() as u64, 0));
        assert_eq!(report.stopped, None);
    }

    #[test]
    fn a_full_disk_stops_the_capture_and_not_the_traffic() {
        let disk = Disk { room: 300_000, ..Disk::default() };
        let mut driver = PcapDriver::new(MemoryDriver::default(), disk.clone()).unwrap();
        for _ in 0..50 {
            send(&mut driver, 100);
        }
        assert_eq!(driver.inner.sent.len(), 5_000);
        let report = driver.report();
        assert!(report.stopped.is_some());
        assert_eq!(*disk.refused.lock().unwrap(), 1, "once stopped it tries no more");
        assert!(report.packets > 0 && report.packets + report.missed == 5_000, "{report:?}");
        assert_eq!(
            records(&disk.bytes.lock().unwrap()[..report.bytes as usize]).len() as u64,
            report.packets
        );
        assert!(driver.capture.waiting.capacity() <= 2 * BUFFER_BYTES, "nothing piles up");
    }

    #[test]
    fn a_file_is_whole_when_the_driver_is_dropped_and_after_a_failed_write() {
        let path = std::env::temp_dir().join(format!("homa-driver-capture-{}.pcap", std::process::id()));
        let mut driver = PcapDriver::create(MemoryDriver::default(), &path).unwrap();
        send(&mut driver, 10);
        drop(driver);
        assert_eq!(records(&std::fs::read(&path).unwrap()).len(), 10);

        let file = OpenOptions::new().append(true).open(&path).unwrap();
        let length = file.metadata().unwrap().len();
        let mut sink = Sink::File(file, path.clone());
        sink.write(b"part of a record").unwrap();
        sink.cut(length);
        assert_eq!(records(&std::fs::read(&path).unwrap()).len(), 10);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_created_is_named() {
        let error = PcapDriver::create(MemoryDriver::default(), "/nonexistent/x.pcap").unwrap_err();
        assert!(error.to_string().starts_with("cannot capture to /nonexistent/x.pcap: "), "{error}");
    }

    #[test]
    fn a_driver_bound_to_all_shows_the_routes_address() {
        let disk = Disk { room: 1 << 20, ..Disk::default() };
        let inner = MemoryDriver { local: Some(([0, 0, 0, 0], 4_000).into()), ..MemoryDriver::default() };
        let mut driver = PcapDriver::new(inner, disk.clone()).unwrap();
        let to = ([127, 0, 0, 1], 9).into();
        let sent = driver.send(&[TxPacket { to, priority: 0, header: b"h", payload: b"" }]).unwrap();
        assert_eq!(sent, 1);
        driver.flush();
        assert_eq!(disk.bytes.lock().unwrap()[24 + 16 + 12..][..4], [127, 0, 0, 1]);
    }
}
