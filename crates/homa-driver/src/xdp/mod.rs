//! Frames straight from the receive queues of a network device (AF_XDP): the shortest way to and from a network that Linux has.
//!
//! A program that the device runs on each frame gives what is for this driver's address and port to a socket of the queue that
//! the frame came by; everything else goes on into the kernel, so that the device serves it as before. The program is there for
//! as long as the driver is, and goes with the process, however that ends. Frames lie in memory that kernel and process share,
//! and where the device can do it, it reads and writes them there itself.
//!
//! It takes the capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, and Linux 5.11. Only one program of its kind can be
//! attached to a device, so that one process has it.

mod assembler;
mod bpf;
mod device;
mod open;
mod program;
mod queue;
mod receive;
mod ring;
mod send;
mod socket;
mod umem;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::burst::RxBurst;
use crate::driver::{BufferSizes, Driver, DriverStats, TxPacket, Unreachable};
pub use crate::link::LinkError;
use crate::link::clock::coarse_ms;
use crate::link::frame::View;
use crate::link::interface::{self, Interface};
use crate::link::neighbour::Neighbours;
use crate::link::reserve::Reservation;
use crate::socket::Carrier;
use bpf::Place;
use open::{Opened, Opening};
use program::Ours;
use queue::Queue;
use receive::Receiver;
use send::Sender;
use umem::Umem;

/// How often, in calls that found nothing, it is looked at the clock whether to look after the device.
const IDLE_CALLS: u32 = 16;

/// How often the device is looked after.
const LOOK_MS: u64 = 200;

/// How soon the kernel is called again that had no room for what a transmit ring holds.
const RETRY_NS: u64 = 20_000;

/// Where the program runs that takes the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum XdpMode {
    /// In the device's driver where it takes one, else generic.
    #[default]
    Auto,
    /// In the device's driver, or not at all.
    Native,
    /// In the kernel's receive path: any device and any MTU. The kernel has made a packet of its own of each frame by then.
    Generic,
}

/// How to set up an [`XdpDriver`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpConfig {
    /// The device; `None`, the default: the one that has the address of `bind`.
    pub interface: Option<String>,
    /// Address to receive at and send from, one of the device's. Unspecified, as it is by default, it is the first of this IP
    /// version that the device has. Port 0 takes any free UDP port; over IP itself the port means nothing.
    pub bind: SocketAddr,
    /// Whether packets travel in UDP, as by default, or in IP itself (protocol 146).
    pub carrier: Carrier,
    /// Receive queues to take packets from; `None`, the default: all. Of a queue that is left out the packets are lost: the
    /// device must be told to steer them elsewhere (`ethtool -X`, `ethtool -N`).
    pub queues: Option<Vec<u32>>,
    /// Where the program runs.
    pub mode: XdpMode,
    /// Whether the device itself must read and write the frames (`Some(true)`), must not, or, by default, does where it can.
    pub zero_copy: Option<bool>,
    /// Frames of each queue for the kernel to receive into; rounded up to a power of two. 2,048 by default: unscheduled bytes
    /// come without a grant, and this takes some 45 KB from each of 64 peers at once at an MTU of 1500. All frames are used in
    /// turn, so that more of them are colder: 4,096 made a round trip 10 % longer than 64 do.
    pub receive_frames: u32,
    /// Frames beside these that may be kept by who receives: beyond it packets are copied. 2,048 by default.
    pub kept_frames: u32,
    /// Cap on [`Driver::max_packet`] in bytes, whatever the path takes; none by default.
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
    /// As the kernel takes it.
    fn receive_frames(&self) -> u32 {
        self.receive_frames.clamp(64, 1 << 20).next_power_of_two()
    }
}

/// Homa over the frames of a device. See the [module](self).
pub struct XdpDriver {
    /// The program stays attached while this is open. It goes first, so that the kernel has the frames of the last moments.
    _attachment: OwnedFd,
    queues: Vec<Queue>,
    /// Shows all queues of several.
    poll: Option<OwnedFd>,
    receiver: Receiver,
    sender: Sender,
    /// For longer than the sockets.
    umem: Arc<Umem>,
    reservation: Reservation,
    interface: Interface,
    local: SocketAddr,
    place: Place,
    mtu: usize,
    max_packet_bytes: usize,
    stats: DriverStats,
    /// Calls that found nothing since the clock was looked at.
    idle: u32,
    looked_ms: u64,
}

impl std::fmt::Debug for XdpDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XdpDriver")
            .field("interface", &self.interface.name)
            .field("local", &self.local)
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
        let (interface, ip) = interface::find(config.interface.as_deref(), config.bind.ip())?;
        let port = if config.carrier == Carrier::Udp { config.bind.port() } else { 0 };
        let reservation = Reservation::open(config.carrier, with_scope(ip, port, &interface))?;
        let mut local = reservation.local_addr();
        if config.carrier == Carrier::Ip {
            // The kernel tells the protocol in its place.
            local.set_port(0);
        }
        let fail = |step| {
            let name = interface.name.clone();
            move |source| LinkError::System { name, step, source }
        };
        let mtu =
            interface::state(reservation.as_fd(), interface.index).map_err(fail("reading its MTU"))?.mtu;
        let neighbours = Neighbours::new(config.carrier, interface.clone(), local);
        let neighbours = neighbours.map_err(fail("opening a netlink socket"))?;
        let queues = choose_queues(config, reservation.as_fd(), &interface)?;
        let udp_port = (config.carrier == Carrier::Udp).then_some(local.port());
        let ours = Ours { udp_port, ips: vec![ip] };
        let opened = Opening { config, interface: &interface, mtu, ours }.open(&queues)?;
        let Opened { attachment, place, sockets, umem, layout } = opened;
        let poll = match &sockets[..] {
            [_] => None,
            _ => {
                let fds: Vec<_> = sockets.iter().map(|socket| socket.fd()).collect();
                Some(crate::socket::watch_all(&fds).map_err(fail("watching its queues as one"))?)
            }
        };
        let places = config.receive_frames();
        let mut queues: Vec<Queue> = sockets.into_iter().map(|socket| Queue::new(socket, places)).collect();
        let view = View { carrier: config.carrier, wire_length: 0, verify: false, scope: interface.index };
        let mut receiver = Receiver::new(&umem, view, mtu);
        receiver.refill(&mut queues, 1);
        Ok(XdpDriver {
            _attachment: attachment,
            poll,
            sender: Sender::new(&umem, neighbours, layout.several),
            receiver,
            queues,
            umem,
            reservation,
            interface,
            local,
            place,
            mtu,
            max_packet_bytes: config.max_packet_bytes,
            stats: DriverStats::default(),
            idle: 0,
            looked_ms: coarse_ms(),
        })
    }

    /// Whether the program runs in the device's driver.
    #[must_use]
    pub fn is_native(&self) -> bool {
        self.place == Place::Native
    }

    /// Whether the device reads and writes frames itself.
    #[must_use]
    pub fn is_zero_copy(&self) -> bool {
        self.queues.iter().all(Queue::is_zero_copy)
    }

    /// Number of receive queues that packets are taken from.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.queues.len()
    }

    /// Frames that bursts and their receivers hold now.
    #[must_use]
    pub fn held_frames(&self) -> u32 {
        self.umem.held()
    }

    /// Sees from time to time whether the device is still there and as it was.
    fn look_after(&mut self) -> io::Result<()> {
        self.idle = 0;
        let now = coarse_ms();
        if now - self.looked_ms < LOOK_MS {
            return Ok(());
        }
        self.looked_ms = now;
        for queue in &self.queues {
            queue.socket.take_error()?;
        }
        let state = interface::state(self.reservation.as_fd(), self.interface.index)?;
        if state.mtu != self.mtu {
            self.mtu = state.mtu;
            self.receiver.set_mtu(state.mtu);
            self.reservation.forget_paths();
            self.sender.forget_paths();
        }
        Ok(())
    }
}

impl Driver for XdpDriver {
    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn max_packet(&self, to: SocketAddr) -> usize {
        self.reservation.max_packet(to).min(self.sender.max_packet()).min(self.max_packet_bytes)
    }

    fn send(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        let most = self.sender.max_packet().min(self.max_packet_bytes);
        let max_packet = |to| self.reservation.max_packet(to).min(most);
        self.sender.send(&mut self.queues, packets, max_packet, &mut self.stats)
    }

    fn receive(&mut self, burst: &mut RxBurst) -> io::Result<usize> {
        burst.clear();
        self.receiver.receive(&mut self.queues, burst, &mut self.stats);
        if burst.is_empty() {
            self.idle += 1;
            if self.idle >= IDLE_CALLS {
                self.look_after()?;
            }
        }
        if self.sender.is_behind(&self.queues) {
            self.sender.kick(&mut self.queues, &mut self.stats)?;
        }
        Ok(burst.len())
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poll.as_ref().map_or_else(|| self.queues[0].socket.fd(), OwnedFd::as_fd))
    }

    fn poll_timeout(&self) -> Option<u64> {
        self.sender.is_behind(&self.queues).then_some(RETRY_NS)
    }

    fn poll_unreachable(&mut self) -> Option<Unreachable> {
        self.reservation.poll_unreachable()
    }

    fn link_mbps(&self) -> Option<u32> {
        self.reservation.link_mbps()
    }

    fn buffer_sizes(&self) -> Option<BufferSizes> {
        None
    }

    fn stats(&self) -> DriverStats {
        let mut stats = self.stats;
        stats.network_errors = self.reservation.network_errors();
        for queue in &self.queues {
            stats.queue_drops += queue.socket.drops();
            stats.receive_calls += queue.receive_kicks;
        }
        stats
    }
}

/// An address with the scope that a link-local one needs.
fn with_scope(ip: IpAddr, port: u16, interface: &Interface) -> SocketAddr {
    match ip {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => {
            SocketAddrV6::new(ip, port, 0, interface.index).into()
        }
        ip => SocketAddr::new(ip, port),
    }
}

/// The queues that the configuration names, ascending, or all.
fn choose_queues(
    config: &XdpConfig,
    socket: BorrowedFd<'_>,
    interface: &Interface,
) -> Result<Vec<u32>, LinkError> {
    let count = device::receive_queues(socket, interface);
    let mut queues = config.queues.clone().filter(|queues| !queues.is_empty());
    let queues = queues.get_or_insert_with(|| (0..count).collect());
    queues.sort_unstable();
    queues.dedup();
    match queues.last() {
        Some(&queue) if queue >= count => {
            Err(LinkError::NoSuchQueue { name: interface.name.clone(), queue, last: count - 1 })
        }
        _ => Ok(std::mem::take(queues)),
    }
}
