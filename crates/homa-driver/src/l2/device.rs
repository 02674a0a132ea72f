//! A device in use: its state, the peers that it reaches, and when to check them again.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use super::error::LinkError;
use super::frame::Headers;
use super::interface::{self, Interface, InterfaceState};
use super::neighbour::Neighbours;
use super::reserve::Reservation;
use crate::carrier::Carrier;
use crate::driver::{SendErrors, TxPacket, UnreachableReport};

/// Time for which a device's state is valid. A check costs a few hundred nanoseconds.
const HOLDS_MS: u64 = 100;

/// Why no frame can be built for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FramingError {
    /// The packet is longer than the device allows.
    TooBig,
    /// The peer's address cannot be resolved, or the device is down.
    NoNeighbour,
    /// The peer's address has a different IP version.
    OtherVersion,
}

impl FramingError {
    /// Counts a packet that was accepted but cannot be sent.
    pub(crate) fn count(self, errors: &mut SendErrors) {
        match self {
            FramingError::TooBig => errors.too_big += 1,
            FramingError::NoNeighbour => errors.unreachable += 1,
            FramingError::OtherVersion => errors.other += 1,
        }
    }
}

/// A device, with the address and port that the driver uses on it.
pub(crate) struct Device {
    carrier: Carrier,
    interface: Interface,
    local: SocketAddr,
    /// Maximum bytes of a Homa packet on any path.
    max_packet_bytes: usize,
    neighbours: Neighbours,
    reservation: Reservation,
    state: InterfaceState,
    looked_ms: u64,
    gone: bool,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("interface", &self.interface.name)
            .field("local", &self.local)
            .finish_non_exhaustive()
    }
}

impl Device {
    /// Finds the device by its name or by the address, and binds the port (any free port if it is 0). If
    /// `bind` has no address, the device's address is used.
    pub(crate) fn open(
        carrier: Carrier,
        bind: SocketAddr,
        named: Option<&str>,
        max_packet_bytes: usize,
    ) -> Result<Device, LinkError> {
        let (interface, ip) = interface::find(named, bind.ip())?;
        let mut local = bind;
        local.set_ip(ip);
        if carrier == Carrier::Ip {
            local.set_port(0);
        }
        if let SocketAddr::V6(local) = &mut local
            && local.ip().is_unicast_link_local()
        {
            local.set_scope_id(interface.index);
        }
        let reservation = Reservation::open(carrier, local)?;
        if carrier == Carrier::Udp {
            local = reservation.local_addr();
        }
        Device::with(carrier, interface, local, max_packet_bytes, reservation)
    }

    /// Opens the same device, address and port again, for another path of the same host.
    pub(crate) fn duplicate(&self) -> Result<Device, LinkError> {
        let reservation = self.reservation.duplicate(self.carrier)?;
        Device::with(self.carrier, self.interface.clone(), self.local, self.max_packet_bytes, reservation)
    }

    fn with(
        carrier: Carrier,
        interface: Interface,
        local: SocketAddr,
        max_packet_bytes: usize,
        reservation: Reservation,
    ) -> Result<Device, LinkError> {
        let fail = |step| {
            let name = interface.name.clone();
            move |source| LinkError::System { name, step, source }
        };
        let neighbours = Neighbours::new(carrier, interface.clone(), local);
        let neighbours = neighbours.map_err(fail("opening a netlink socket"))?;
        let state = interface::state(reservation.as_fd(), interface.index);
        let state = state.map_err(fail("reading its state"))?;
        Ok(Device {
            carrier,
            interface,
            local,
            max_packet_bytes,
            neighbours,
            reservation,
            state,
            looked_ms: 0,
            gone: false,
        })
    }

    pub(crate) fn carrier(&self) -> Carrier {
        self.carrier
    }

    pub(crate) fn interface(&self) -> &Interface {
        &self.interface
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    pub(crate) fn is_up(&self) -> bool {
        self.state.up
    }

    /// Returns the maximum length of an IP packet in bytes.
    pub(crate) fn mtu(&self) -> usize {
        self.state.mtu
    }

    /// Implements [`Driver::max_packet`](crate::Driver::max_packet).
    pub(crate) fn max_packet(&self, to: SocketAddr) -> usize {
        let device = self.state.mtu.saturating_sub(self.carrier.overhead_bytes(to.ip()));
        self.reservation.max_packet(to).min(device).min(self.max_packet_bytes)
    }

    /// Checks the device if its state has expired. `doubtful` forces the check: it is set if a call has
    /// failed in a way that suggests a change.
    ///
    /// # Errors
    /// The device is gone for good: a new device with the same name is a different device.
    pub(crate) fn refresh(&mut self, now_ms: u64, doubtful: bool) -> io::Result<()> {
        if self.gone {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        if !doubtful && now_ms.saturating_sub(self.looked_ms) < HOLDS_MS {
            return Ok(());
        }
        self.looked_ms = now_ms;
        match interface::state(self.reservation.as_fd(), self.interface.index) {
            Ok(state) => {
                if state.mtu != self.state.mtu {
                    self.reservation.forget_paths();
                }
                if state.up != self.state.up {
                    // Routes and neighbours are removed with the device, and may be different afterwards.
                    self.neighbours.forget();
                }
                self.state = state;
                Ok(())
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO)) => {
                self.gone = true;
                Err(error)
            }
            // Keep the last known state, which is the best estimate.
            Err(_) => Ok(()),
        }
    }

    /// Returns the headers of the packet's frame.
    pub(crate) fn headers(&mut self, packet: &TxPacket<'_>, now_ms: u64) -> Result<&Headers, FramingError> {
        if packet.to.is_ipv4() != self.local.is_ipv4() {
            return Err(FramingError::OtherVersion);
        }
        if packet.len() + self.carrier.overhead_bytes(packet.to.ip()) > self.state.mtu {
            return Err(FramingError::TooBig);
        }
        if !self.state.up {
            return Err(FramingError::NoNeighbour);
        }
        let mut to = packet.to;
        if self.carrier == Carrier::Ip {
            to.set_port(0);
        }
        self.neighbours.headers(to, now_ms).ok_or(FramingError::NoNeighbour)
    }

    /// Like [`Reservation::note_sent`].
    pub(crate) fn note_sent(&mut self, packets: &[TxPacket<'_>]) {
        self.reservation.note_sent(packets);
    }

    pub(crate) fn poll_unreachable(&mut self) -> Option<UnreachableReport> {
        self.reservation.poll_unreachable()
    }

    /// Returns the counter [`DriverStats::network_errors`](crate::DriverStats::network_errors).
    pub(crate) fn network_errors(&self) -> u64 {
        self.reservation.network_errors()
    }

    pub(crate) fn link_mbps(&self) -> Option<u32> {
        self.reservation.link_mbps()
    }

    /// Returns a descriptor that poll(2) reports in error while network reports are pending.
    pub(crate) fn reports_fd(&self) -> BorrowedFd<'_> {
        self.reservation.as_fd()
    }
}
