//! Homa packets sent and received directly through a network device with packet sockets (AF_PACKET), in half
//! the time a UDP socket takes.
//!
//! Received frames lie in a ring of memory shared by the kernel and the process. Receiving takes no system
//! call, and the only copy is the one into the message. On the wire, packets are Homa over UDP (WIRE-16) or
//! directly over IP (WIRE-19), the same as with sockets, so the peer may use any driver. The driver requires
//! the capability CAP_NET_RAW and a device with Ethernet frames.
//!
//! The kernel continues to use the device, and also sees all frames. A silent kernel socket reserves the
//! port, so that the kernel neither replies on our behalf nor assigns the port to another process. The kernel
//! provides addresses and routes ([`LinkError`] lists what may be missing). The kernel's packet filter
//! (nftables) sees none of our packets, in either direction.
//!
//! A driver has one device and one address, and therefore one IP version. Peers on the same machine are
//! reachable only on loopback, since a device does not receive the frames that it sends.
//!
//! Frames return to the ring in order, so none may outlive its burst: [`RxBurst::keep`] returns `None`. A
//! frame that the kernel merged is too long for the ring; most come from senders on the same machine that use
//! UDP_SEGMENT. Such a frame arrives through the socket's queue and is segmented here. Kernels before 6.2
//! drop such frames instead: turn off segmentation offload at the sender (`ethtool -K DEVICE
//! tx-udp-segmentation off`).
//!
//! The first packet to a peer may wait for the kernel to resolve the peer's Ethernet address. One wait takes
//! at most 4 ms, and all waits together at most a fiftieth of the time.

mod fanout;
mod offload;
mod program;
pub(crate) mod ring;
mod tx;

use std::cell::Cell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use homa_bpf::classic::{self, DROP_ALL, Purpose};
use socket2::{Domain, Socket, Type};

use crate::burst::RxBurst;
pub use crate::carrier::Carrier;
use crate::driver::{BufferSizes, Driver, DriverStats, SentPacket, TxPacket, UnreachableReport};
use crate::filter::ReceiveFilter;
pub use crate::l2::LinkError;
use crate::l2::clock::coarse_ms;
use crate::l2::device::Device;
use crate::l2::frame::{FramedPacket, ParseError, ParseOptions, parse};
use crate::raw::icmp_report::IcmpReporter;
use crate::socket::{option, watch_all};
use offload::{Offload, VNET_BYTES};
use ring::{Frame, Layout, Ring};
use tx::Tx;

/// Received bytes after which a burst ends. Packets that follow a burst wait until all of it is processed.
const BURST_BYTES: usize = 256 << 10;

/// Buffer size for a merged frame and the kernel's offload header before it.
const MERGED_BYTES: usize = VNET_BYTES + 18 + 65_536;

/// Queue size for merged frames: the same as the ring's default.
const MERGED_QUEUE_BYTES: usize = 8 << 20;

/// How to set up a [`PacketDriver`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketConfig {
    /// Name of the device. With `None` (the default), the device that has the address of `bind` is used.
    pub interface: Option<String>,
    /// Address to receive at and send from; it must be one of the device's addresses. If it is unspecified
    /// (the default), the device's first address of this IP version is used. Port 0 means any free UDP port;
    /// directly over IP the port is ignored.
    pub bind: SocketAddr,
    /// Whether packets are sent over UDP (the default) or directly over IP (protocol 146).
    pub carrier: Carrier,
    /// Memory for received frames in bytes, for each driver of a group. The default is 8 MiB: 4,096 frames at
    /// an MTU of 1500. Unscheduled bytes arrive without a grant. The default holds about 60 KB from each of
    /// 64 peers at once, with half as much again to spare. A ring of 1 MiB, which fits the processor's
    /// caches, shortens round trips by 5 %.
    pub ring_bytes: usize,
    /// Cap on [`Driver::max_packet`] in bytes for any path; none by default.
    pub max_packet_bytes: usize,
    /// Send buffer to request in bytes. For the default and its reason, see
    /// [`UdpConfig`](crate::udp::UdpConfig::send_buffer_bytes).
    pub send_buffer_bytes: usize,
    /// Whether to bypass the device's queueing discipline (PACKET_QDISC_BYPASS). False by default: the
    /// queueing discipline may be what enforces priorities, and on devices without one there is nothing to
    /// gain.
    pub bypass_qdisc: bool,
    /// Whether the kernel segments runs of UDP packets to one peer, as with
    /// [`UdpConfig::segmentation`](crate::udp::UdpConfig::segmentation). True by default: if the kernel does
    /// not support such frames (before 6.2), the driver continues without them. Set it to false if a peer at
    /// the other end of a veth receives by XDP in generic mode, which cannot recognize such frames.
    pub segmentation: bool,
}

impl Default for PacketConfig {
    fn default() -> PacketConfig {
        PacketConfig {
            interface: None,
            bind: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
            carrier: Carrier::Udp,
            ring_bytes: 8 << 20,
            max_packet_bytes: usize::MAX,
            send_buffer_bytes: crate::udp::UdpConfig::default().send_buffer_bytes,
            bypass_qdisc: false,
            segmentation: true,
        }
    }
}

/// Homa over packet sockets, as the [module](self) describes.
pub struct PacketDriver {
    device: Device,
    /// Whether receive times of packets are enabled.
    timed: bool,
    /// The receiving socket. Its ring stays mapped while any burst holds frames of it.
    socket: Socket,
    ring: Ring,
    tx: Tx,
    refuser: IcmpReporter,
    /// An epoll descriptor for received frames and network reports.
    poll: OwnedFd,
    buffers: BufferSizes,
    /// When the receiving socket's error was last read.
    asked_ms: u64,
    stats: DriverStats,
    /// Frames dropped for lack of room. Accumulated here because reading the kernel's count resets it.
    queue_drops: Cell<u64>,
}

impl std::fmt::Debug for PacketDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PacketDriver")
            .field("device", &self.device)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl PacketDriver {
    /// Reserves the port and opens the sockets on the device.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn open(config: &PacketConfig) -> Result<PacketDriver, LinkError> {
        let device =
            Device::open(config.carrier, config.bind, config.interface.as_deref(), config.max_packet_bytes)?;
        let socket = open_socket(&device)?;
        attach(&socket, &device, None).map_err(failed(&device, "setting its filter"))?;
        PacketDriver::with(config, device, socket)
    }

    /// Like [`PacketDriver::open`], for `count` drivers (at least 1) at one address and port, each with its
    /// own ring. The kernel puts a frame into the ring numbered (lower 32 bits of the RPC ID / 2) modulo
    /// `count`. Requires Linux 4.13.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn open_group(config: &PacketConfig, count: u32) -> Result<Vec<PacketDriver>, LinkError> {
        if count <= 1 {
            return Ok(vec![PacketDriver::open(config)?]);
        }
        let first =
            Device::open(config.carrier, config.bind, config.interface.as_deref(), config.max_packet_bytes)?;
        let others: Vec<Device> = (1..count).map(|_| first.duplicate()).collect::<Result<_, _>>()?;
        let mut group = Vec::with_capacity(count as usize);
        for device in std::iter::once(first).chain(others) {
            let socket = open_socket(&device)?;
            // Until the kernel distributes frames among the sockets, each would receive every frame.
            classic::attach(&socket, Purpose::Filter, &DROP_ALL)
                .map_err(failed(&device, "setting its filter"))?;
            group.push(PacketDriver::with(config, device, socket)?);
        }
        fanout::join(&group)?;
        for driver in &group {
            attach(&driver.socket, &driver.device, None)
                .map_err(failed(&driver.device, "setting its filter"))?;
        }
        Ok(group)
    }

    /// Creates a driver that receives through this socket, which is not bound yet.
    fn with(config: &PacketConfig, device: Device, socket: Socket) -> Result<PacketDriver, LinkError> {
        let fail = |step| failed(&device, step);
        let layout = Layout::new(device.mtu(), config.ring_bytes);
        set_up(&socket).map_err(fail("setting its options"))?;
        let ring = Ring::new(socket.as_fd(), layout).map_err(|source| match source.raw_os_error() {
            Some(libc::ENOMEM) => LinkError::NoMemory {
                name: device.interface().name.clone(),
                bytes: layout.bytes(),
                setting: "ring_bytes",
            },
            _ => fail("making its ring")(source),
        })?;
        bind(&socket, device.interface().index, libc::ETH_P_ALL).map_err(fail("bind"))?;
        let sending = open_socket(&device)?;
        let send_bytes = set_up_sending(&sending, config).map_err(fail("setting its options"))?;
        bind(&sending, device.interface().index, 0).map_err(fail("bind"))?;
        let poll = watch_all(&[socket.as_fd(), device.reports_fd()]).map_err(fail("watching its sockets"))?;
        let buffers = BufferSizes {
            send_bytes,
            send_wanted_bytes: config.send_buffer_bytes,
            receive_bytes: ring.bytes(),
            // The requested size, rounded to whole blocks.
            receive_wanted_bytes: ring.bytes(),
        };
        Ok(PacketDriver {
            timed: false,
            refuser: IcmpReporter::new(Carrier::Ip, device.local().ip()),
            tx: Tx::new(sending, config.segmentation),
            device,
            socket,
            ring,
            poll,
            buffers,
            asked_ms: 0,
            stats: DriverStats::default(),
            queue_drops: Cell::new(0),
        })
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

    /// Returns the options for parsing a frame that has `wire_length` bytes on the wire and `there` bytes in
    /// memory.
    fn view(&self, wire_length: usize, there: usize, verify: bool) -> ParseOptions {
        ParseOptions {
            carrier: self.device.carrier(),
            wire_length,
            verify: verify && wire_length == there,
            scope: self.device.interface().index,
        }
    }

    /// Adds the packets of a frame in the ring to the burst, and returns their total length in bytes.
    fn take_frame(&mut self, frame: Frame, burst: &mut RxBurst) -> usize {
        if frame.wire_length > frame.length && frame.full {
            self.ring.give_back(frame);
            if frame.status & libc::TP_STATUS_COPY != 0 {
                return self.take_merged(burst, frame.time_ns);
            }
            self.stats.truncated += 1;
            return 0;
        }
        // The kernel has verified the checksum, or has not computed it yet (as between the ends of a veth).
        let verify = frame.status & (libc::TP_STATUS_CSUM_VALID | libc::TP_STATUS_CSUMNOTREADY) == 0;
        let view = self.view(frame.wire_length, frame.length, verify);
        match parse(self.ring.bytes_of(&frame), &view) {
            Ok(FramedPacket { from, start, length, dscp_byte, .. }) => {
                let first = burst.len();
                let segment = self.ring.offload_of(&frame).segment.unwrap_or(length);
                self.ring.lend(frame, burst, from, (start, length), segment);
                burst.note_dscp_byte(first, dscp_byte);
                if self.timed {
                    burst.note_time(frame.time_ns);
                }
                length
            }
            Err(why) => {
                self.count_no_packet(why);
                self.ring.give_back(frame);
                0
            }
        }
    }

    /// Adds the packets of a frame that was too long for the ring to the burst. Returns their total length in
    /// bytes.
    fn take_merged(&mut self, burst: &mut RxBurst, time_ns: u64) -> usize {
        let first = burst.end();
        let room = &mut burst.memory_mut()[first..];
        let mut receive = || {
            self.stats.receive_calls += 1;
            // SAFETY: the descriptor is open, and the kernel writes at most as many bytes as the buffer has.
            let length = unsafe {
                libc::recv(
                    self.socket.as_raw_fd(),
                    room.as_mut_ptr().cast(),
                    room.len().min(MERGED_BYTES),
                    libc::MSG_DONTWAIT | libc::MSG_TRUNC,
                )
            };
            usize::try_from(length).ok()
        };
        // The first call may return a pending error of the device instead. Then try again: if this frame
        // stays in the queue, the next read returns it in place of its own frame.
        let Some(length) = receive().or_else(&mut receive) else {
            self.stats.truncated += 1;
            return 0;
        };
        let (Some(header), true) =
            (room.first_chunk().filter(|_| length >= VNET_BYTES), length <= room.len())
        else {
            self.stats.truncated += 1;
            return 0;
        };
        let offload = Offload::read(header);
        let frame_length = length - VNET_BYTES;
        let view =
            self.view(frame_length, frame_length, offload.segment.is_none() && offload.partial.is_none());
        let room = &burst.memory_mut()[first..];
        match parse(&room[VNET_BYTES..length], &view) {
            Ok(FramedPacket { from, start, length, dscp_byte, .. }) => {
                let (at, segment) = (first + VNET_BYTES + start, offload.segment.unwrap_or(length));
                let packets = burst.len();
                burst.note_datagram(from, at, length, segment);
                burst.note_dscp_byte(packets, dscp_byte);
                if self.timed {
                    // The ring records this time even though it had no room for the frame.
                    burst.note_time(time_ns);
                }
                length
            }
            Err(why) => {
                self.count_no_packet(why);
                0
            }
        }
    }

    fn count_no_packet(&mut self, why: ParseError) {
        match why {
            // The filter drops such frames, but it may be changing together with the address.
            ParseError::Foreign => (),
            ParseError::Damaged => self.stats.damaged += 1,
        }
    }

    /// If the socket has a pending error, checks whether the device is down or gone. Without this check the
    /// socket would stay readable forever.
    fn look_for_errors(&mut self, now_ms: u64) -> io::Result<()> {
        if now_ms == self.asked_ms {
            return Ok(());
        }
        self.asked_ms = now_ms;
        let error = option::get(self.socket.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR)?;
        // The sending socket has the same errors pending. If they were not read here, sending its next packet
        // would return them.
        let _ = option::get(self.tx.fd(), libc::SOL_SOCKET, libc::SO_ERROR);
        self.device.refresh(now_ms, error != 0)
    }
}

impl Driver for PacketDriver {
    fn local_addr(&self) -> SocketAddr {
        self.device.local()
    }

    fn max_packet(&self, to: SocketAddr) -> usize {
        self.device.max_packet(to)
    }

    fn send(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        let now_ms = coarse_ms();
        self.device.refresh(now_ms, false)?;
        self.device.note_sent(packets);
        self.tx.send(&mut self.device, packets, &mut self.stats, now_ms)
    }

    fn receive(&mut self, burst: &mut RxBurst) -> io::Result<usize> {
        burst.clear();
        let (mut bytes, mut is_drained) = (0, false);
        for _ in 0..burst.max_packets() {
            let Some(frame) = self.ring.take() else {
                is_drained = true;
                break;
            };
            bytes += self.take_frame(frame, burst);
            if bytes >= BURST_BYTES {
                break;
            }
        }
        self.stats.packets_in += burst.len() as u64;
        self.stats.bytes_in += bytes as u64;
        if burst.is_empty() {
            if !is_drained {
                // The frames that were read were for other receivers.
                burst.note_more();
            }
            self.look_for_errors(coarse_ms())?;
        }
        Ok(burst.len())
    }

    fn tell_priorities(&mut self) -> bool {
        true
    }

    fn stamp_received(&mut self) -> bool {
        // The ring contains the times in any case.
        self.timed = true;
        true
    }

    fn stamp_sent(&mut self) -> bool {
        self.tx.stamp_sent()
    }

    fn poll_sent(&mut self) -> Option<SentPacket> {
        self.tx.poll_sent()
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poll.as_fd())
    }

    fn poll_unreachable(&mut self) -> Option<UnreachableReport> {
        self.device.poll_unreachable()
    }

    fn set_receive_filter(&mut self, filter: &ReceiveFilter) -> io::Result<()> {
        match self.device.carrier() {
            // No other process can have the port.
            Carrier::Udp => Ok(()),
            Carrier::Ip => match attach(&self.socket, &self.device, Some(filter)) {
                // The program is longer than net.core.optmem_max allows. Pass every packet instead; the
                // receiver checks the ports itself.
                Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {
                    attach(&self.socket, &self.device, None)
                }
                result => result,
            },
        }
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
        Some(self.buffers)
    }

    fn stats(&self) -> DriverStats {
        self.queue_drops.set(self.queue_drops.get() + new_drops(&self.socket));
        DriverStats {
            queue_drops: self.queue_drops.get(),
            network_errors: self.device.network_errors(),
            ..self.stats
        }
    }
}

/// Returns a closure that creates the error for a step that failed while opening a driver.
fn failed(device: &Device, step: &'static str) -> impl FnOnce(io::Error) -> LinkError + use<> {
    let name = device.interface().name.clone();
    move |source| LinkError::System { name, step, source }
}

fn open_socket(device: &Device) -> Result<Socket, LinkError> {
    let socket = Socket::new(Domain::PACKET, Type::RAW.nonblocking().cloexec(), None);
    socket.map_err(|source| match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => LinkError::no_capability(
            "a packet socket",
            device.interface().name.clone(),
            "capability CAP_NET_RAW",
            "cap_net_raw",
        ),
        _ => failed(device, "opening a packet socket")(source),
    })
}

/// Returns the number of frames that the kernel dropped for lack of room since the last call.
pub(crate) fn new_drops(socket: &Socket) -> u64 {
    let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel writes at most `length` bytes to the structure, which is
    // `length` bytes long.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut stats).cast(),
            &raw mut length,
        )
    };
    if result == 0 { stats.tp_drops.into() } else { 0 }
}

/// Configures the receiving socket, which is not bound yet and receives nothing.
fn set_up(socket: &Socket) -> io::Result<()> {
    let set = |name, value| option::set(socket.as_fd(), libc::SOL_PACKET, name, value);
    set(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as libc::c_int)?;
    // Without the offload header, a frame that contains several datagrams cannot be segmented.
    set(libc::PACKET_VNET_HDR, 1)?;
    // The filter drops outgoing frames anyway, but sending costs less if the kernel does not have to run the
    // filter. Requires Linux 4.20.
    let _ = set(libc::PACKET_IGNORE_OUTGOING, 1);
    // Frames too long for the ring go to the socket's queue.
    set(libc::PACKET_COPY_THRESH, 1)?;
    let queue = MERGED_QUEUE_BYTES as libc::c_int;
    if option::set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, queue).is_err() {
        option::set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, queue)?;
    }
    Ok(())
}

/// Configures the sending socket and returns its buffer size. The socket has no protocol, so it receives
/// nothing.
fn set_up_sending(socket: &Socket, config: &PacketConfig) -> io::Result<usize> {
    let fd = socket.as_fd();
    classic::attach(socket, Purpose::Filter, &DROP_ALL)?;
    option::set(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
    if config.bypass_qdisc {
        option::set(fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
    }
    let wanted = libc::c_int::try_from(config.send_buffer_bytes).unwrap_or(libc::c_int::MAX / 2);
    if option::set(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, wanted).is_err() {
        option::set(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, wanted)?;
    }
    // The kernel doubles the requested size to allow for its own bookkeeping, and reports the doubled value.
    Ok(option::get(fd, libc::SOL_SOCKET, libc::SO_SNDBUF)? as usize / 2)
}

/// Selects which frames the socket receives.
fn attach(socket: &Socket, device: &Device, filter: Option<&ReceiveFilter>) -> io::Result<()> {
    let program = program::build(device.carrier(), device.local(), filter);
    classic::attach(socket, Purpose::Filter, &program)
}

/// Binds a packet socket to a device, to receive frames of this EtherType. ETH_P_ALL selects all types, and 0
/// none.
///
/// Sockets for all types receive a frame before the kernel's IP stack does, and sockets for one type after
/// it. With one type, a frame would arrive later by the time the stack takes, a third of a round trip, and
/// the stack would copy the frame's descriptor.
pub(crate) fn bind(socket: &Socket, interface: u32, ether_type: libc::c_int) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid value of the structure.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::sa_family_t;
    address.sll_protocol = (ether_type as u16).to_be();
    address.sll_ifindex = interface as libc::c_int;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel reads exactly the bytes of the address.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
