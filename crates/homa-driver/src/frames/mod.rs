//! Receives and sends any Ethernet frames on several network devices that share one memory, as a switch
//! needs.
//!
//! A received frame stays in a slot of the memory until it is returned or any of the devices sends it. Frames
//! are therefore not copied between devices in user space. [`FramePath`] selects how frames are received and
//! sent.
//!
//! With AF_XDP, a device that is in use here no longer serves the kernel. With packet sockets it still does,
//! and the kernel also receives every frame. Assign no addresses to the devices.
//!
//! Frames arrive in the form in which the sender passed them to its device. The other end of a veth must
//! therefore not leave segmentation or checksums to the device (`ethtool -K DEVICE tso off gso off tx off`).
//! Frames longer than the MTU are dropped and counted. VLAN tags that the receiving device has removed are
//! lost.

mod error;
mod promiscuous;
mod ring;
mod slots;

use std::os::fd::BorrowedFd;

pub use error::FramesError;
pub use slots::Frame;

use crate::l2::interface;
use crate::xdp::XdpMode;
use crate::xdp::frames::XdpPort;
use promiscuous::Promiscuous;
use ring::RingPort;
pub(crate) use slots::{HEADER_BYTES, Slots};

/// How frames are received and sent on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FramePath {
    /// AF_XDP if the kernel and the devices' MTU allow it, or else packet sockets.
    #[default]
    Auto,
    /// AF_XDP. Requires CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, and frames that fit into one slot, which
    /// limits the MTU to 3,506.
    Xdp(XdpMode),
    /// Packet sockets (AF_PACKET) with a receive ring. Requires CAP_NET_RAW. Receiving needs one more copy.
    Ring,
}

/// How to set up [`Frames`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FramesConfig {
    /// The devices, by name. Methods identify a device by its index in this list.
    pub devices: Vec<String>,
    /// How frames are received and sent.
    pub path: FramePath,
    /// Maximum number of received frames per queue of a device that have not been taken yet; rounded up to a
    /// power of two.
    pub receive_frames: u32,
    /// Additional frames that may be held at a time.
    pub held_frames: u32,
}

impl FramesConfig {
    /// Returns a configuration for these devices with 1,024 frames to receive into (12 ms of full frames at 1
    /// Gbit/s) and 8,192 frames that may be held.
    #[must_use]
    pub fn new(devices: Vec<String>) -> FramesConfig {
        FramesConfig { devices, path: FramePath::Auto, receive_frames: 1_024, held_frames: 8_192 }
    }
}

/// Counters of a device's frames since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameStats {
    /// Frames received.
    pub received: u64,
    /// Frames dropped for lack of room, because earlier frames were not taken in time.
    pub receive_drops: u64,
    /// Frames dropped because they exceed the device's MTU: the sender left their segmentation to its device.
    pub too_long: u64,
    /// Frames sent.
    pub sent: u64,
    /// Frames that the kernel refused to send, for instance while the device is down.
    pub refused: u64,
    /// System calls for sending.
    pub send_calls: u64,
}

#[derive(Debug)]
enum Port {
    Xdp(XdpPort),
    Ring(RingPort),
}

/// Several devices and the memory for their frames, as described in the [module](self).
#[derive(Debug)]
pub struct Frames {
    // Dropped before the memory, which the kernel uses while the devices are open.
    ports: Vec<Port>,
    slots: Slots,
    _promiscuous: Vec<Promiscuous>,
}

impl Frames {
    /// Opens the devices.
    ///
    /// # Errors
    /// A device does not exist or cannot be opened. Devices opened so far are closed again.
    pub fn open(config: &FramesConfig) -> Result<Frames, FramesError> {
        let mut longest = 0;
        let mut devices = Vec::new();
        let mut promiscuous = Vec::new();
        for (at, name) in config.devices.iter().enumerate() {
            if config.devices[..at].contains(name) {
                return Err(FramesError::Twice { name: name.clone() });
            }
            let device = interface::by_name(name)
                .map_err(|source| FramesError::NoDevice { name: name.clone(), source })?;
            promiscuous.push(Promiscuous::enable(&device)?);
            longest = longest.max(device.state.mtu);
            devices.push(device);
        }
        let opened = |path| match path {
            FramePath::Ring => open_rings(config, &devices, longest),
            FramePath::Xdp(mode) => open_xdp(config, &devices, longest, mode),
            FramePath::Auto => unreachable!("it was resolved"),
        };
        let (ports, slots) = match config.path {
            FramePath::Auto => match opened(FramePath::Xdp(XdpMode::Auto)) {
                Err(error) if error.is_without_xdp() => {
                    tracing::warn!("frames go by packet sockets: {error}");
                    opened(FramePath::Ring)
                }
                result => result,
            },
            path => opened(path),
        }?;
        Ok(Frames { ports, slots, _promiscuous: promiscuous })
    }

    /// Returns the number of devices.
    #[must_use]
    pub fn devices(&self) -> usize {
        self.ports.len()
    }

    /// Returns how a device's frames are received and sent: `xdp-native`, `xdp-generic` or `ring`.
    #[must_use]
    pub fn path(&self, device: usize) -> &'static str {
        match &self.ports[device] {
            Port::Xdp(port) if port.is_native() => "xdp-native",
            Port::Xdp(_) => "xdp-generic",
            Port::Ring(_) => "ring",
        }
    }

    /// Appends up to `most` received frames of a device and returns their number.
    pub fn receive(&mut self, device: usize, most: usize, into: &mut Vec<Frame>) -> usize {
        match &mut self.ports[device] {
            Port::Xdp(port) => port.receive(&mut self.slots, most, into),
            Port::Ring(port) => port.receive(&mut self.slots, most, into),
        }
    }

    /// Queues a frame on a device, to be sent at the next [`flush`](Frames::flush).
    ///
    /// There is currently no room; the error contains the frame.
    pub fn send(&mut self, device: usize, frame: Frame) -> Result<(), Frame> {
        match &mut self.ports[device] {
            Port::Xdp(port) => port.send(&mut self.slots, frame),
            Port::Ring(port) => port.send(frame),
        }
    }

    /// Makes the kernel send the frames queued on a device since the last call.
    pub fn flush(&mut self, device: usize) {
        match &mut self.ports[device] {
            Port::Xdp(port) => port.flush(&mut self.slots),
            Port::Ring(port) => port.flush(&mut self.slots),
        }
    }

    /// Returns the bytes of a frame, from its Ethernet header on, without the frame check sequence.
    #[must_use]
    pub fn bytes(&self, frame: &Frame) -> &[u8] {
        self.slots.bytes(frame)
    }

    /// Prefetches the first cache line of a frame that will be read soon. Does nothing if the processor has
    /// no such instruction.
    #[inline]
    pub fn prefetch(&self, frame: &Frame) {
        self.slots.prefetch(frame);
    }

    /// Returns the bytes of a frame for modification.
    pub fn bytes_mut(&mut self, frame: &mut Frame) -> &mut [u8] {
        self.slots.bytes_mut(frame)
    }

    /// Creates a new frame with these bytes, to be sent; `None` if no slot is free or the bytes do not fit
    /// into a slot.
    #[inline]
    pub fn frame(&mut self, bytes: &[u8]) -> Option<Frame> {
        (bytes.len() <= self.slots.slot_bytes()).then(|| self.slots.fill(bytes)).flatten()
    }

    /// Creates a second frame with the same bytes; `None` if no slot is free.
    pub fn copy(&mut self, frame: &Frame) -> Option<Frame> {
        self.slots.copy(frame)
    }

    /// Drops a frame and frees its slot.
    pub fn drop_frame(&mut self, frame: Frame) {
        self.slots.give_back(frame);
    }

    /// Returns the number of free slots, not counting those that the kernel holds.
    #[must_use]
    pub fn free_slots(&self) -> usize {
        self.slots.free()
    }

    /// Returns the counters of a device.
    #[must_use]
    pub fn stats(&self, device: usize) -> FrameStats {
        match &self.ports[device] {
            Port::Xdp(port) => port.stats(),
            Port::Ring(port) => port.stats(),
        }
    }

    /// Returns the descriptors that become readable when a device has received frames.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ports.iter().flat_map(|port| match port {
            Port::Xdp(port) => port.fds(),
            Port::Ring(port) => vec![port.fd()],
        })
    }
}

fn open_rings(
    config: &FramesConfig,
    devices: &[interface::NamedInterface],
    longest: usize,
) -> Result<(Vec<Port>, Slots), FramesError> {
    // A frame is copied out of its ring immediately, so only held frames and frames to be sent need slots.
    let count = config.held_frames + devices.len() as u32 * ring::SEND_FRAMES as u32;
    let slots = Slots::new(slots::slot_bytes(longest, 0), count)?;
    let ports = devices.iter().map(|device| RingPort::open(device, config.receive_frames).map(Port::Ring));
    Ok((ports.collect::<Result<_, _>>()?, slots))
}

fn open_xdp(
    config: &FramesConfig,
    devices: &[interface::NamedInterface],
    longest: usize,
    mode: XdpMode,
) -> Result<(Vec<Port>, Slots), FramesError> {
    let receive = config.receive_frames.clamp(64, 1 << 16).next_power_of_two();
    let queues: u32 = devices.iter().map(XdpPort::queues_of).sum();
    let count = config.held_frames + queues * (receive + crate::xdp::frames::SEND_FRAMES);
    let mut slots = Slots::new(slots::slot_bytes(longest, crate::xdp::frames::HEADROOM_BYTES), count)?;
    let mut ports: Vec<XdpPort> = Vec::new();
    for device in devices {
        let port = XdpPort::open(device, &mut slots, ports.first(), receive, mode)?;
        ports.push(port);
    }
    Ok((ports.into_iter().map(Port::Xdp).collect(), slots))
}
