//! Frames directly from the receive queues of a network device (AF_XDP): the shortest path between a process
//! and a network in Linux.
//!
//! The device runs a program on each frame. The program passes frames for this driver's address and port to a
//! socket of the frame's receive queue. All other frames continue into the kernel, so the kernel can use the
//! device as before. The program stays attached while the driver lives, and is detached when the process
//! ends, however it ends. Frames are in memory shared by the kernel and the process. If the device supports
//! it, the device itself reads and writes them there.
//!
//! Opening a driver requires the capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, and Linux 5.11. A
//! device can have only one such program, so only one process can use it.

pub(crate) mod frames;
mod open;
mod program;
mod queue;
mod queues;
mod receive;
mod ring;
mod send;
mod socket;
mod sole_or_shared;
pub(crate) mod umem;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use homa_bpf::attach::Attachment;
pub use homa_bpf::attach::XdpMode;
use homa_bpf::link::Place;

use crate::burst::RxBurst;
pub use crate::carrier::Carrier;
use crate::driver::{BufferSizes, Driver, DriverStats, TxPacket, UnreachableReport};
pub use crate::l2::LinkError;
use crate::l2::clock::coarse_ms;
use crate::l2::device::Device;
use crate::l2::frame::ParseOptions;
use crate::raw::icmp_report::IcmpReporter;
use crate::socket::watch_all;
use open::{OpenRequest, OpenedDevice};
use program::LocalAddresses;
use queue::Queue;
use receive::Receiver;
use send::Sender;
use sole_or_shared::SoleOrShared;
use umem::Umem;

/// Time until the kernel is called again if it had no room for the packets in a transmit ring.
const RETRY_NS: u64 = 20_000;

/// How to set up an [`XdpDriver`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpConfig {
    /// Name of the device. With `None` (the default), the device that has the address of `bind` is used.
    pub interface: Option<String>,
    /// Address to receive at and send from; it must be one of the device's addresses. If it is unspecified
    /// (the default), the device's first address of this IP version is used. Port 0 means any free UDP port;
    /// directly over IP the port is ignored.
    pub bind: SocketAddr,
    /// Whether packets are sent over UDP (the default) or directly over IP (protocol 146).
    pub carrier: Carrier,
    /// Receive queues to take packets from; `None` (the default) means all. Packets of an omitted queue are
    /// lost, so the device must be configured to steer them elsewhere (`ethtool -X`, `ethtool -N`).
    pub queues: Option<Vec<u32>>,
    /// Where the program runs. On a veth, a round trip in generic mode takes three quarters of the time it
    /// takes in native mode, and generic mode carries a third more packets. However, a datagram that the
    /// other end of a veth left to the device to segment (UDP_SEGMENT) is segmented only in native mode. In
    /// generic mode it arrives unsegmented, cannot be recognized, and is dropped and counted
    /// ([`DriverStats::truncated`]).
    pub mode: XdpMode,
    /// Whether the device itself reads and writes the frames: `Some(true)` requires it, `Some(false)` forbids
    /// it, and `None`, the default, uses it if possible.
    pub zero_copy: Option<bool>,
    /// Frames per queue for the kernel to receive into; rounded up to a power of two. 2,048 by default, since
    /// unscheduled bytes arrive without a grant: this number holds about 45 KB from each of 64 peers at once
    /// at an MTU of 1500. All frames are used in turn, so the more frames there are, the less of each is
    /// still in the caches: a round trip with 4,096 frames was 10 % longer than with 64.
    pub receive_frames: u32,
    /// Number of additional frames that users may keep, for all drivers of a group together; packets beyond
    /// this number are copied. 2,048 by default.
    pub kept_frames: u32,
    /// Cap on [`Driver::max_packet`] in bytes for any path; none by default.
    pub max_packet_bytes: usize,
}

impl Default for XdpConfig {
    fn default() -> XdpConfig {
        XdpConfig {
            interface: None,
            bind: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
            carrier: Carrier::Udp,
            queues: None,
            mode: XdpMode::Auto,
            zero_copy: None,
            receive_frames: 2_048,
            kept_frames: 2_048,
            max_packet_bytes: usize::MAX,
        }
    }
}

impl XdpConfig {
    /// Returns the configured number of frames, adjusted to what the kernel accepts.
    fn receive_frames(&self) -> u32 {
        self.receive_frames.clamp(64, 1 << 20).next_power_of_two()
    }
}

/// Homa over the frames of a device, as described in the [module](self).
pub struct XdpDriver {
    /// The program stays attached while any driver of the group holds this. It is dropped first, so that
    /// frames arriving during the shutdown go to the kernel.
    _attachment: Arc<Attachment>,
    queues: Vec<Queue>,
    /// An epoll descriptor for all queues and network reports.
    poll: OwnedFd,
    receiver: Receiver,
    sender: Sender,
    /// Declared after the sockets so that it outlives them.
    umem: Arc<Umem>,
    device: Device,
    refuser: IcmpReporter,
    place: Place,
    stats: DriverStats,
}

impl std::fmt::Debug for XdpDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XdpDriver")
            .field("device", &self.device)
            .field("queues", &self.queues.len())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl XdpDriver {
    /// Attaches to a device.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn open(config: &XdpConfig) -> Result<XdpDriver, LinkError> {
        Ok(XdpDriver::open_group(config, 1)?.remove(0))
    }

    /// Like [`XdpDriver::open`], for `count` drivers (at least 1) at one address and port, each with a socket
    /// on every queue. A frame goes to the driver numbered (lower 32 bits of the RPC ID / 2) modulo `count`.
    /// In generic mode this requires Linux 6.15; on older kernels, all packets of a queue go to one driver,
    /// and those of the next queue to the next driver.
    ///
    /// The drivers share their frames and belong together: if one driver is dropped, the others lose the
    /// frames in its rings.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn open_group(config: &XdpConfig, count: u32) -> Result<Vec<XdpDriver>, LinkError> {
        let count = count.max(1);
        let named = config.interface.as_deref();
        let mut devices = vec![Device::open(config.carrier, config.bind, named, config.max_packet_bytes)?];
        for _ in 1..count {
            devices.push(devices[0].duplicate()?);
        }
        let first = &devices[0];
        let queues = choose_queues(config, first)?;
        let opened =
            OpenRequest { config, device: first, ours: LocalAddresses::of(first, count) }.open(&queues)?;
        let OpenedDevice { attachment, place, queues, umem, layout } = opened;
        let (attachment, interface) = (Arc::new(attachment), first.interface().clone());
        let view =
            ParseOptions { carrier: config.carrier, wire_length: 0, verify: false, scope: interface.index };
        let spare = SoleOrShared::for_drivers(count, umem.frames_for_receiving().collect());
        let mut group = Vec::with_capacity(count as usize);
        for ((device, mut queues), spare) in devices.into_iter().zip(queues).zip(spare) {
            let mut fds: Vec<_> = queues.iter().map(|queue| queue.socket.fd()).collect();
            fds.push(device.reports_fd());
            let poll = watch_all(&fds).map_err(|source| LinkError::System {
                name: interface.name.clone(),
                step: "watching its queues as one",
                source,
            })?;
            let mut receiver = Receiver::new(&umem, spare, view, device.mtu());
            receiver.refill(&mut queues, 1);
            group.push(XdpDriver {
                _attachment: Arc::clone(&attachment),
                poll,
                sender: Sender::new(&umem, group.len() as u32, layout.several),
                receiver,
                queues,
                umem: Arc::clone(&umem),
                refuser: IcmpReporter::new(Carrier::Ip, device.local().ip()),
                device,
                place,
                stats: DriverStats::default(),
            });
        }
        Ok(group)
    }

    /// Returns whether packets are sent over UDP or directly over IP.
    #[must_use]
    pub fn carrier(&self) -> Carrier {
        self.device.carrier()
    }

    /// Returns the name that the device had when it was opened.
    #[must_use]
    pub fn interface(&self) -> &str {
        &self.device.interface().name
    }

    /// Whether the program runs in the device's driver.
    #[must_use]
    pub fn is_native(&self) -> bool {
        self.place == Place::Native
    }

    /// Whether the device itself reads and writes frames.
    #[must_use]
    pub fn is_zero_copy(&self) -> bool {
        self.queues.iter().all(Queue::is_zero_copy)
    }

    /// Returns the number of receive queues that packets are taken from.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.queues.len()
    }

    /// Returns the number of frames that bursts and users currently hold, over all drivers of a group.
    #[must_use]
    pub fn held_frames(&self) -> u32 {
        self.umem.held()
    }
}

impl Driver for XdpDriver {
    fn local_addr(&self) -> SocketAddr {
        self.device.local()
    }

    fn max_packet(&self, to: SocketAddr) -> usize {
        self.device.max_packet(to).min(self.sender.max_packet())
    }

    fn send(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        let now_ms = coarse_ms();
        self.device.refresh(now_ms, false)?;
        self.device.note_sent(packets);
        self.sender.send(&mut self.device, &mut self.queues, packets, &mut self.stats, now_ms)
    }

    fn tell_priorities(&mut self) -> bool {
        true
    }

    fn receive(&mut self, burst: &mut RxBurst) -> io::Result<usize> {
        burst.clear();
        self.receiver.receive(&mut self.queues, burst, &mut self.stats);
        if burst.is_empty() {
            self.device.refresh(coarse_ms(), false)?;
            self.receiver.set_mtu(self.device.mtu());
        }
        if self.sender.is_behind(&self.device, &self.queues) {
            self.sender.kick(&mut self.device, &mut self.queues, &mut self.stats)?;
        }
        Ok(burst.len())
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poll.as_fd())
    }

    fn poll_timeout(&self) -> Option<u64> {
        self.sender.is_behind(&self.device, &self.queues).then_some(RETRY_NS)
    }

    fn poll_unreachable(&mut self) -> Option<UnreachableReport> {
        self.device.poll_unreachable()
    }

    fn refuse(&mut self, peer: SocketAddr, packet: &[u8]) {
        if self.device.carrier() == Carrier::Ip {
            self.refuser.refuse(peer, packet);
        }
    }

    fn link_mbps(&self) -> Option<u32> {
        self.device.link_mbps()
    }

    fn buffer_sizes(&self) -> Option<BufferSizes> {
        None
    }

    fn stats(&self) -> DriverStats {
        let mut stats = DriverStats { network_errors: self.device.network_errors(), ..self.stats };
        for queue in &self.queues {
            stats.queue_drops += queue.socket.drops();
            stats.receive_calls += queue.receive_kicks;
        }
        stats
    }
}

/// Returns the configured queues in ascending order, or all queues if none are configured.
fn choose_queues(config: &XdpConfig, device: &Device) -> Result<Vec<u32>, LinkError> {
    let count = queues::receive_queues(device.reports_fd(), &device.interface().name);
    let mut queues = config.queues.clone().filter(|queues| !queues.is_empty());
    let queues = queues.get_or_insert_with(|| (0..count).collect());
    queues.sort_unstable();
    queues.dedup();
    match queues.last() {
        Some(&queue) if queue >= count => {
            Err(LinkError::NoSuchQueue { name: device.interface().name.clone(), queue, last: count - 1 })
        }
        _ => Ok(std::mem::take(queues)),
    }
}
