//! Where something happened.

use std::fmt;

/// Priorities are 0 to 7.
const PRIORITY_BITS: u8 = 7;

/// Of a packet received the priority is known.
const PRIORITY_KNOWN: u8 = 8;

/// Where something happened: in a switch by port and queue, at a host by peer, priority and core. Which of the two it is, the
/// trace's [`NodeKind`](crate::NodeKind) says.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Place([u16; 3]);

impl Place {
    /// In a switch: the port that the frame was to leave by, from 0 on; its queue there, of which the larger goes first; and why
    /// the frame was dropped, as the switch numbers its reasons, 0 for one that was not.
    #[inline]
    #[must_use]
    pub const fn in_switch(port: u16, queue: u16, reason: u16) -> Place {
        Place([port, queue, reason])
    }

    /// At a host: the number of the peer, 0 for none; the priority of the packet, 0 to 7, or of a packet received what
    /// [`Place::priority_received`] makes of it; the endpoint; and the core on which it was recorded plus one, 0 where that is not known.
    #[inline]
    #[must_use]
    pub const fn at_host(peer: u16, priority: u8, endpoint: u8, core_plus_one: u16) -> Place {
        Place([peer, priority as u16 | (endpoint as u16) << 8, core_plus_one])
    }

    /// The port of a switch.
    #[must_use]
    pub const fn port(self) -> u16 {
        self.0[0]
    }

    /// The queue of a switch's port.
    #[must_use]
    pub const fn queue(self) -> u16 {
        self.0[1]
    }

    /// Why a switch dropped a frame; 0: it did not.
    #[must_use]
    pub const fn reason(self) -> u16 {
        self.0[2]
    }

    /// The peer of a host by its number in the dump's [`Node::others`](crate::Node::others); `None` for events that belong to no
    /// peer.
    #[must_use]
    pub const fn peer(self) -> Option<u16> {
        if self.0[0] == 0 { None } else { Some(self.0[0]) }
    }

    /// The priority of a packet received, as [`Place::at_host`] takes it; `None`: the driver does not say.
    #[inline]
    #[must_use]
    pub const fn priority_received(priority: Option<u8>) -> u8 {
        match priority {
            Some(priority) => PRIORITY_KNOWN | priority & PRIORITY_BITS,
            None => 0,
        }
    }

    /// The priority of a host's packet, 0 where it was received and is not known.
    #[must_use]
    pub const fn priority(self) -> u8 {
        self.0[1] as u8 & PRIORITY_BITS
    }

    /// The priority that a packet came with, for [`EventKind::PacketReceived`](crate::EventKind::PacketReceived) and
    /// [`EventKind::DeviceReceived`](crate::EventKind::DeviceReceived); `None`: it is not known, as in traces written before there was
    /// such a thing.
    #[must_use]
    pub const fn received_priority(self) -> Option<u8> {
        if self.0[1] as u8 & PRIORITY_KNOWN == 0 { None } else { Some(self.priority()) }
    }

    /// The host's endpoint that recorded this, from 0 on.
    #[must_use]
    pub const fn endpoint(self) -> u8 {
        (self.0[1] >> 8) as u8
    }

    /// The core on which a host recorded this; `None`: not known.
    #[must_use]
    pub const fn core(self) -> Option<u16> {
        self.0[2].checked_sub(1)
    }

    /// The same at a host, but about another peer.
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
