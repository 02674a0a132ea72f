//! Several endpoints of one host in one process: what they have for each other.
//!
//! Each has a packet path, a lock and threads that drive it, as if it were alone; packets are steered to the endpoint that owns their
//! RPC. This is about the rest: packets that come to the wrong one, and what one hears that concerns others as well. It is handed
//! over through a [`Mailbox`], and never waits for another endpoint's lock. What the host has once is in [`HostLease`](crate::tenancy::host_lease::Stake).
//!
//! - **Acknowledgements, cutoffs and FREEZE** concern the endpoints that [`wire::route`] names. They do not wake anybody: an endpoint
//!   that waits for an acknowledgement has a timer to ask for it, and looks into its mailbox first.
//! - **A restart of a peer** is told to all by the header of the packet that showed it, and so is a **report that a peer is
//!   unreachable**, which the kernel gives to one of the sockets over UDP. Both end RPCs and wake whoever sleeps.
//! - **Narrower paths** each endpoint finds out by itself: the kernel keeps them for all, and refuses the first packet.

pub(crate) mod board;
pub(crate) mod mailbox;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};

use homa_proto::wire::{self, DATA_HEADER_LEN, Route};
use homa_proto::{RxPacket, Time, Unreachable};

use crate::runtime::drive::packets_of;
use crate::runtime::engine::Engine;
use crate::runtime::shared_engine::SharedEngine;
use crate::tenancy::processes::NOBODY;
use mailbox::{MailCounts, MailKind, MailQueue, Mailbox};

/// Offset of the type of a packet, and the type of those whose payload is cut off for endpoints that need the header only.
const TYPE_AT: usize = 11;
const DATA: u8 = wire::PacketType::Data as u8;

/// What the endpoints of a host know of each other.
pub(crate) struct EndpointGroup {
    mailboxes: Vec<Mailbox>,
    members: OnceLock<Vec<Weak<SharedEngine>>>,
}

impl EndpointGroup {
    pub(crate) fn new(endpoints: usize) -> io::Result<EndpointGroup> {
        let mailboxes: Result<Vec<Mailbox>, io::Error> = (0..endpoints).map(|_| Mailbox::new()).collect();
        Ok(EndpointGroup { mailboxes: mailboxes?, members: OnceLock::new() })
    }

    /// Introduces the endpoints to each other, in their order.
    pub(crate) fn introduce(&self, members: &[Arc<SharedEngine>]) {
        // Set once, where the host is made.
        let _ = self.members.set(members.iter().map(Arc::downgrade).collect());
    }

    fn member(&self, endpoint: usize) -> Option<Arc<SharedEngine>> {
        self.members.get()?.get(endpoint)?.upgrade()
    }

    pub(crate) fn mailbox(&self, endpoint: usize) -> &Mailbox {
        &self.mailboxes[endpoint]
    }

    /// Posts the same to all endpoints but one.
    fn post_to_others(&self, but: usize, urgent: bool, fill: impl Fn(&mut MailQueue)) {
        for (_, mailbox) in self.mailboxes.iter().enumerate().filter(|(at, _)| *at != but) {
            mailbox.post(urgent, &fill);
        }
    }
}

/// What an engine knows of its siblings.
pub(crate) struct GroupMember {
    pub(crate) siblings: Arc<EndpointGroup>,
    /// Which of them this one is.
    pub(crate) index: usize,
    /// Mail that is, or was, worked off.
    mail: MailQueue,
    /// Scratch memory: whom the packets of a burst concern.
    routes: Vec<Route>,
}

impl GroupMember {
    pub(crate) fn new(siblings: Arc<EndpointGroup>, index: usize) -> GroupMember {
        GroupMember { siblings, index, mail: MailQueue::default(), routes: Vec::new() }
    }

    pub(crate) fn mail_counts(&self) -> MailCounts {
        self.siblings.mailbox(self.index).counts()
    }
}

/// As much of a packet as an endpoint needs that does not own it.
fn header_of<'a>(packet: &RxPacket<'a>) -> RxPacket<'a> {
    let bytes = packet.bytes;
    let is_data = bytes.get(TYPE_AT) == Some(&DATA);
    let bytes = if is_data { &bytes[..bytes.len().min(DATA_HEADER_LEN)] } else { bytes };
    RxPacket { bytes, wire_len: bytes.len(), ..*packet }
}

impl Engine {
    /// Takes the burst that has come, where some of it may be other endpoints', and beyond them other processes' business.
    pub(crate) fn take_steered_burst(&mut self, now: Time) {
        let Some(kin) = &mut self.kin else { return };
        if let Some(stake) = &mut self.stake {
            stake.adopt_cutoffs(&mut self.endpoint);
        }
        let (me, endpoints) = (kin.index as u32, kin.siblings.mailboxes.len() as u32);
        let mut routes = std::mem::take(&mut kin.routes);
        routes.clear();
        for RxPacket { bytes, .. } in packets_of(&self.rx) {
            let mut route = wire::route(bytes, endpoints);
            if let Some(share) = &self.share {
                route = share.route(bytes, route);
                if route.owner == me {
                    share.note_owner_of(bytes, &mut self.endpoint);
                }
            }
            routes.push(route);
        }
        let restarts = self.endpoint.stats().peer_restarts;
        let own = packets_of(&self.rx).zip(&routes).filter(|(_, route)| route.owner == me);
        let own = own.map(|(packet, _)| packet);
        self.endpoint.handle_packets(now, own, &mut self.buffers);
        let mut addressees = 0;
        for (packet, route) in packets_of(&self.rx).zip(&routes) {
            addressees |= route.others | if route.owner == NOBODY { 0 } else { 1 << route.owner };
            if route.others & 1 << me != 0 {
                self.endpoint.handle_foreign(now, &header_of(&packet));
            }
        }
        addressees &= !(1 << me);
        if addressees != 0 {
            self.hand_over_burst(&routes, addressees);
        }
        if self.endpoint.stats().peer_restarts != restarts {
            self.tell_restarts(packets_of(&self.rx));
        }
        if let Some(kin) = &mut self.kin {
            kin.routes = routes;
        }
    }

    /// Posts the packets of the burst to the endpoints whose bits are set.
    fn hand_over_burst(&self, routes: &[Route], addressees: u64) {
        let Some(kin) = &self.kin else { return };
        for (endpoint, mailbox) in kin.siblings.mailboxes.iter().enumerate() {
            if addressees & 1 << endpoint == 0 {
                continue;
            }
            let urgent = routes.iter().any(|route| route.owner as usize == endpoint);
            mailbox.post(urgent, |mail| {
                for (packet, route) in packets_of(&self.rx).zip(routes) {
                    if route.owner as usize == endpoint {
                        mail.push(MailKind::Own, &packet);
                    } else if route.others & 1 << endpoint != 0 {
                        mail.push(MailKind::Foreign, &header_of(&packet));
                    }
                }
            });
        }
    }

    /// Shows the others by what packets this endpoint has seen a peer restart.
    fn tell_restarts<'a>(&self, packets: impl Iterator<Item = RxPacket<'a>> + Clone) {
        let Some(kin) = &self.kin else { return };
        kin.siblings.post_to_others(kin.index, true, |mail| {
            let mut last = None;
            for packet in packets.clone() {
                // Mostly runs of packets of one peer. Who knows of the restart learns nothing from the others.
                if last.replace(packet.from) != Some(packet.from) && self.endpoint.has_proven(&packet) {
                    mail.push(MailKind::Restart, &header_of(&packet));
                }
            }
        });
    }

    /// Tells the others what the network says of a peer. Over IP itself the kernel has told each of them.
    pub(crate) fn tell_unreachable(&self, peer: SocketAddr, report: Unreachable) {
        if let Some(kin) = self.kin.as_ref().filter(|_| self.share.is_none()) {
            let report = MailKind::Unreachable(report);
            kin.siblings.post_to_others(kin.index, true, |mail| mail.push(report, &RxPacket::new(peer, &[])));
        }
    }

    /// Whether other endpoints have something for this one that must not wait.
    pub(crate) fn has_urgent_mail(&self) -> bool {
        self.kin.as_ref().is_some_and(|kin| kin.siblings.mailbox(kin.index).is_urgent())
    }

    /// Takes what other endpoints have for this one; whether there was anything.
    pub(crate) fn take_mail(&mut self, now: Time) -> bool {
        let Some(kin) = &mut self.kin else { return false };
        if !kin.siblings.mailbox(kin.index).take(&mut kin.mail) {
            return false;
        }
        let mail = std::mem::take(&mut kin.mail);
        let restarts = self.endpoint.stats().peer_restarts;
        let own = || mail.iter().filter(|(kind, _)| *kind == MailKind::Own).map(|(_, packet)| packet);
        if let Some(share) = &self.share {
            own().for_each(|packet| share.note_owner_of(packet.bytes, &mut self.endpoint));
        }
        self.endpoint.handle_packets(now, own(), &mut self.buffers);
        if self.endpoint.stats().peer_restarts != restarts {
            self.tell_restarts(own());
        }
        for (kind, packet) in mail.iter() {
            match kind {
                MailKind::Own => {}
                MailKind::Foreign => self.endpoint.handle_foreign(now, &packet),
                MailKind::Restart => self.endpoint.handle_proven_foreign(now, &packet),
                MailKind::Unreachable(report) => self.endpoint.peer_unreachable(now, packet.from, report),
            }
        }
        if let Some(kin) = &mut self.kin {
            kin.mail = mail;
        }
        true
    }
}
