//! The place of an event.

use std::fmt;

/// Priorities are 0 to 7.
const PRIORITY_BITS: u8 = 7;

/// Flag that marks the priority of a received packet as known.
const PRIORITY_KNOWN: u8 = 8;

/// The place of an event: in a switch, the port and the queue; at a host, the peer, the priority and the
/// core. The trace's [`NodeKind`](crate::NodeKind) determines which of these it is.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Place([u16; 3]);

impl Place {
    /// Creates a place in a switch. `port` is the output port of the frame, from 0. `queue` is the frame's
    /// queue at that port; larger queues have precedence. `reason` is the number of the reason why the switch
    /// dropped the frame, or 0.
    #[inline]
    #[must_use]
    pub const fn in_switch(port: u16, queue: u16, reason: u16) -> Place {
        Place([port, queue, reason])
    }

    /// Creates a place at a host. `peer` is the number of the peer, or 0 if there is none. `priority` is the
    /// priority of the packet, 0 to 7; for a received packet, it is the result of
    /// [`Place::priority_received`]. `endpoint` is the endpoint. `core_plus_one` is the core of the recording
    /// thread plus one, or 0 if unknown.
    #[inline]
    #[must_use]
    pub const fn at_host(peer: u16, priority: u8, endpoint: u8, core_plus_one: u16) -> Place {
        Place([peer, priority as u16 | (endpoint as u16) << 8, core_plus_one])
    }

    /// Returns the port of a switch.
    #[must_use]
    pub const fn port(self) -> u16 {
        self.0[0]
    }

    /// Returns the queue of a switch's port.
    #[must_use]
    pub const fn queue(self) -> u16 {
        self.0[1]
    }

    /// Returns the reason why a switch dropped a frame, or 0 if the frame was not dropped.
    #[must_use]
    pub const fn reason(self) -> u16 {
        self.0[2]
    }

    /// Returns the number of a host's peer in the dump's [`Node::others`](crate::Node::others), or `None` for
    /// events without a peer.
    #[must_use]
    pub const fn peer(self) -> Option<u16> {
        if self.0[0] == 0 { None } else { Some(self.0[0]) }
    }

    /// Encodes the priority of a received packet for [`Place::at_host`]. Pass `None` if the driver does not
    /// report the priority.
    #[inline]
    #[must_use]
    pub const fn priority_received(priority: Option<u8>) -> u8 {
        match priority {
            Some(priority) => PRIORITY_KNOWN | priority & PRIORITY_BITS,
            None => 0,
        }
    }

    /// Returns the priority of a host's packet, or 0 for a received packet of unknown priority.
    #[must_use]
    pub const fn priority(self) -> u8 {
        self.0[1] as u8 & PRIORITY_BITS
    }

    /// Returns the priority with which a packet arrived, for
    /// [`EventKind::PacketReceived`](crate::EventKind::PacketReceived) and
    /// [`EventKind::DeviceReceived`](crate::EventKind::DeviceReceived). `None` if it is unknown, as in older
    /// traces.
    #[must_use]
    pub const fn received_priority(self) -> Option<u8> {
        if self.0[1] as u8 & PRIORITY_KNOWN == 0 { None } else { Some(self.priority()) }
    }

    /// Returns the endpoint of the host that recorded the event, from 0.
    #[must_use]
    pub const fn endpoint(self) -> u8 {
        (self.0[1] >> 8) as u8
    }

    /// Returns the core on which a host recorded the event, or `None` if unknown.
    #[must_use]
    pub const fn core(self) -> Option<u16> {
        self.0[2].checked_sub(1)
    }

    /// Returns the same place with another peer.
    pub(crate) const fn of_peer(self, peer: u16) -> Place {
        Place([peer, self.0[1], self.0[2]])
    }

    pub(crate) const fn from_raw(raw: [u16; 3]) -> Place {
        Place(raw)
    }

    pub(crate) const fn raw(self) -> [u16; 3] {
        self.0
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_received_is_told_from_none_and_disturbs_no_other_part() {
        for priority in [None, Some(0), Some(5), Some(7)] {
            let place = Place::at_host(9, Place::priority_received(priority), 200, 3);
            assert_eq!(place.received_priority(), priority);
            assert_eq!(place.priority(), priority.unwrap_or(0));
            assert_eq!((place.peer(), place.endpoint(), place.core()), (Some(9), 200, Some(2)));
            assert_eq!(Place::from_raw(place.of_peer(4).raw()).received_priority(), priority);
        }
    }
}
