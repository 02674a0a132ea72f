//! The endpoints of one host, as members of the processes that share its address. Each endpoint has its own
//! slot, as a process with a single endpoint has, so other processes see each endpoint as a separate process.
//! The first endpoint holds the ports for all of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::presence::Presence;
use super::receiver::ReceiverWatch;
use super::registry::PortClaim;
use super::segment::{PacketOwner, Segment};
use crate::types::segment_error::SegmentError;

/// The slots of a host's endpoints: see the [module](self).
#[derive(Debug)]
pub(crate) struct EndpointSlots {
    members: Vec<Arc<Segment>>,
    /// One bit for the slot of each endpoint.
    slots: u64,
    users: Mutex<HashMap<u16, PortUsers>>,
    /// Announces this host to other hosts of its network namespace.
    _presence: Option<Presence>,
}

/// The endpoints that use a port of this process: one bit each.
#[derive(Clone, Copy, Debug, Default)]
struct PortUsers {
    /// Those that have opened the port since the process acquired it.
    opened: u64,
    /// Those of them that have the port open or still have RPCs of the port.
    using: u64,
}

impl EndpointSlots {
    /// Creates a group of these members (at least one).
    pub(crate) fn new(members: Vec<Segment>) -> EndpointSlots {
        let slots = members.iter().fold(0, |slots, member| slots | 1 << member.slot);
        let members = members.into_iter().map(Arc::new).collect();
        EndpointSlots { members, slots, users: Mutex::default(), _presence: None }
    }

    /// Attaches the announcement of this host, which lasts for as long as this value exists.
    pub(crate) fn shown_by(self, presence: Presence) -> EndpointSlots {
        EndpointSlots { _presence: Some(presence), ..self }
    }

    pub(crate) fn member(&self, endpoint: usize) -> &Arc<Segment> {
        &self.members[endpoint]
    }

    fn first(&self) -> &Segment {
        &self.members[0]
    }

    fn users(&self) -> MutexGuard<'_, HashMap<u16, PortUsers>> {
        // Each change is a single operation of the map, so a panic leaves the map consistent.
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acquires a server port.
    pub(crate) fn bind(&self, port: u16) -> Result<PortClaim, SegmentError> {
        self.first().bind(port)
    }

    /// Acquires any client port.
    pub(crate) fn open_client(&self) -> Result<u16, SegmentError> {
        self.first().open_client()
    }

    /// Records that an endpoint has opened a port.
    pub(crate) fn port_opened(&self, endpoint: usize, port: u16) {
        let mut users = self.users();
        let port = users.entry(port).or_default();
        port.opened |= 1 << endpoint;
        port.using |= 1 << endpoint;
    }

    /// Returns whether an endpoint has opened a port since this process acquired the port.
    pub(crate) fn has_opened(&self, endpoint: usize, port: u16) -> bool {
        self.users().get(&port).is_some_and(|users| users.opened & 1 << endpoint != 0)
    }

    /// Records that an endpoint no longer uses these ports. Ports that no other endpoint uses are released.
    /// Returns `false` if that must be retried later.
    pub(crate) fn try_release(&self, endpoint: usize, ports: &[u16]) -> bool {
        let mut users = self.users();
        let mut unused = Vec::new();
        for &port in ports {
            let left = users.entry(port).or_default();
            left.using &= !(1 << endpoint);
            if left.using == 0 {
                users.remove(&port);
                unused.push(port);
            }
        }
        self.first().try_release(&unused)
    }

    /// See [`Segment::owner_for`]. `receives` tells whether these endpoints receive from a shared UDP socket.
    /// It is `None` over raw IP, where the leader answers for ports that no process has.
    pub(crate) fn owner_of(&self, port: u16, receives: Option<bool>) -> PacketOwner {
        self.first().owner_for(port, self.slots, receives)
    }

    /// Returns the bit for the slot of another process that has the port and shares the UDP socket `path`; 0
    /// if there is none.
    pub(crate) fn sharer(&self, port: u16, path: u64) -> u64 {
        self.first().sharer(port, path) & !self.slots
    }

    /// Returns one bit for the slot of each other process that shares the UDP socket `path`.
    pub(crate) fn sharers(&self, path: u64) -> u64 {
        self.first().sharers(path) & !self.slots
    }

    /// Returns whether no other process has ever shared the address.
    pub(crate) fn is_alone(&self) -> bool {
        self.first().slots_used() == self.members.len()
    }

    /// Returns whether these endpoints receive from the UDP socket `path`: see [`Segment::receives`].
    pub(crate) fn receives(&self, path: u64, now_ns: u64, watch: &mut ReceiverWatch) -> bool {
        self.first().receives(self.slots, path, now_ns, watch)
    }

    /// Returns the ports of these endpoints, and those of other processes, in ascending order.
    pub(crate) fn ports(&self) -> (Vec<u16>, Vec<u16>) {
        self.first().ports_of(self.slots)
    }

    /// Returns whether one of these endpoints leads, and therefore answers for ports that no process has.
    pub(crate) fn leads(&self) -> bool {
        self.first().is_led_by(self.slots)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Dir;
    use super::*;

    fn slots(dir: &Dir, endpoints: usize) -> EndpointSlots {
        EndpointSlots::new((0..endpoints).map(|_| dir.open()).collect())
    }

    #[test]
    fn a_port_is_the_business_of_all_endpoints_and_of_no_other_process() {
        let dir = Dir::new();
        let (ours, others) = (slots(&dir, 3), slots(&dir, 2));
        ours.bind(99).unwrap();
        others.bind(100).unwrap();
        assert_eq!(
            [99, 100, 101].map(|port| ours.owner_of(port, None)),
            [PacketOwner::Own, PacketOwner::Foreign, PacketOwner::Unowned { orphan: false }]
        );
        assert_eq!(
            [99, 100, 101].map(|port| others.owner_of(port, None)),
            [PacketOwner::Foreign, PacketOwner::Own, PacketOwner::Foreign]
        );
        assert_eq!((ours.ports(), others.ports()), ((vec![99], vec![100]), (vec![100], vec![99])));
        assert!(ours.leads() && !others.leads());
    }

    #[test]
    fn a_port_is_given_up_with_its_last_endpoint() {
        let dir = Dir::new();
        let (ours, other) = (slots(&dir, 2), dir.open());
        ours.bind(99).unwrap();
        (0..2).for_each(|endpoint| ours.port_opened(endpoint, 99));
        assert!(ours.try_release(0, &[99]));
        assert!(other.bind(99).is_err() && ours.owner_of(99, None) == PacketOwner::Own);
        assert!(ours.try_release(1, &[99]));
        assert_eq!(other.bind(99).unwrap(), PortClaim { inherited: false });
    }

    #[test]
    fn endpoints_that_end_free_their_slots() {
        let dir = Dir::new();
        let other = dir.open();
        let ours = slots(&dir, 3);
        assert_eq!(other.counts().processes, 4);
        drop(ours);
        assert_eq!(other.counts().processes, 1);
    }
}
