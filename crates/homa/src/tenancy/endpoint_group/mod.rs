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
//!
//! # Several endpoints, one host
//!
//! A host has one endpoint, and so one lock, by default. `HostConfig::endpoints` makes it several
//! (`homa/tenancy/endpoints`), each with a packet path, a lock, a progress thread and the threads that happen
//! to wait at it. To its peers it is one host all the same.
//!
//! - **An RPC belongs to one endpoint, by its id** (`wire/route`: half of the lower 32 bits, modulo their
//!   number). Both directions of an RPC differ in bit 0 only, so that client and server steer alike, and
//!   neither needs to know how many the other has. Each endpoint gives its clients the ids that are its own.
//!   A finished id is therefore always looked for where it is kept. The full id was not used, since classic
//!   BPF computes with 32 bits; nor a hash of addresses, as the kernel has it by default: all RPCs of two
//!   hosts have the same, and so would meet in one endpoint.
//! - **The kernel steers** (`homa-driver/socket/steer`): sockets at one address with SO_REUSEPORT and a
//!   classic BPF program, which takes no privilege. The first socket is bound without the option, so that a
//!   host does not join another process's sockets unawares, and a host of one endpoint never sets it.
//!   `Host::with_drivers` takes any paths that steer.
//! - **Packet rings are steered like sockets** (`packet/fanout`, PACKET_FANOUT_CBPF). The program runs on
//!   every frame of the device and looks at the id alone: whose frame it is, each ring's filter says
//!   afterwards. The kernel finds the group's number, so that no other process's is joined. Until all have
//!   joined, no ring lets anything in: each would get all.
//! - **Each queue of a device has a socket of every endpoint** (`xdp/open`), and the XDP program chooses by
//!   queue and id. Sockets of one queue have one fill ring and one completion ring, which are behind locks
//!   (`xdp/maybe_shared`) that a driver alone does not have: a lock is taken once for a burst sent, and once
//!   for sixteen frames received. The other way, queues divided among the endpoints, takes no locks, but
//!   nothing about a queue says which RPC comes by it: with two endpoints half of all packets would be copied
//!   into a mailbox and wake a thread, and a device with one queue would have one endpoint that receives. It
//!   is what is left in generic mode before Linux 6.15, where the kernel's lock for a fill ring is one
//!   socket's. Frames for receiving are all endpoints' and none keeps more than it is about to fill in; those
//!   for sending are divided, and who finds another's in a completion ring puts it aside.
//! - **Over raw IP the filter steers** (`raw/program`): the kernel offers every packet to every socket at the
//!   address, and each takes the RPCs that are its turn. To processes that share the address each endpoint is
//!   one more of them, with a slot and ids of its own; ports are the first one's for all
//!   (`process_group/family`). Ids are leased in ranges, of which an endpoint uses those that steer to it.
//! - **What comes to the wrong endpoint is handed over** (`endpoint_group`). The kernel looks at the first
//!   packet of a merged run, and a client of one endpoint sends runs that are for all of the server's.
//!   Mailboxes are bounded in bytes; what is beyond is lost and counted, as with a full receive buffer. No
//!   endpoint ever waits for another's lock to get rid of a packet.
//! - **What concerns the others** goes the same way, as headers: acknowledgements that ride on packets of
//!   other RPCs, cutoffs, FREEZE, a peer's restart, and reports that a peer is unreachable, which over raw IP
//!   the kernel gives to all. Only whole packets and the last two wake anybody: an endpoint that waits for an
//!   acknowledgement has a timer, and looks into its mailbox first.
//! - **What the host has once** is in `stake`, for endpoints of a process and for processes alike: grants are
//!   leased by announcing and counting, the uplink is one moment and its shortest message goes first, one
//!   leads for the cutoffs and the limit of unscheduled bytes. Only the memory differs: a segment of a file,
//!   or of the process. Incast is reckoned by each endpoint with its part of the link and of `max_incoming`,
//!   since each sees its part of the messages: the limit is then that of the whole. Where all traffic is in
//!   one endpoint, that one limits itself more than it need.
//! - **An RPC stays where it began, and where it begins can be a policy's choice** (`placement`,
//!   `HostConfig::endpoint_policy`). The policies are those of `homa-steer`, with endpoints for cores: a
//!   client then has a port in each, and each call that somebody waits for goes through the one chosen, by
//!   the RPCs that are open there, by client and server, or by its client's own endpoint. What was submitted
//!   stays in the client's own, since its completions come out of one queue. Packets are not placed by a
//!   policy: an RPC's state (gaps, grants, finished ids) is behind its endpoint's lock and cannot move, so
//!   that a packet elsewhere would only be handed over. Nor does a server choose: the id does, and so the
//!   client, whose choice spreads over the server's endpoints what it spreads over its own.
//! - **Which sleeping thread is woken** is an order of `homa-steer` as well (`wake_by`,
//!   `HostConfig::wake_order`), of threads at one endpoint that could do the same. What it asks about cores
//!   is what the host sees itself: where threads received, were woken, fell asleep.
//! - **How much a thread takes at a time** is the batch cap of `homa-steer` (`HostConfig::batch_cap`). The
//!   burst has it (`RxBurst::set_cap`), which every driver fills, so that no driver has a setting of its own.
//! - **Clients live in one endpoint** otherwise, dealt out in turn; a call never looks at another. **Server
//!   ports are open in all**; a thread in `recv` waits at one, and takes from another what nobody there waits
//!   for. `endpoint_group/board` has the argument why no request is stranded, and the tests run with fewer
//!   threads than endpoints. **A socket with a server port is in all endpoints, too**
//!   (`homa/kernel_api/socket`): a thread calls where it waits, an outcome comes to where its call was made,
//!   and is offered like a request.
//! - **Other limits are each endpoint's own**: RPCs, peers, bytes, and the messages that are granted to at a
//!   time. To divide them would refuse a host with one busy endpoint what it was promised.

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
