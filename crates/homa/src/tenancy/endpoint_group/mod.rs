//! Several endpoints of one host in one process, and the data that they exchange.
//!
//! Each endpoint has a packet path, a lock and threads that drive it, as if it were alone. Packets are
//! steered to the endpoint that owns their RPC. This module handles the rest: packets that arrive at the
//! wrong endpoint, and information that concerns other endpoints as well. Both are handed over through a
//! [`Mailbox`], without waiting for another endpoint's lock. Host-wide resources are in
//! [`HostLease`](crate::tenancy::host_lease::HostLease).
//!
//! - **Acknowledgements, cutoffs and FREEZE** concern the endpoints that [`wire::route`] names. They wake no
//!   thread: an endpoint that waits for an acknowledgement has a timer to request it, and checks its mailbox
//!   first.
//! - **A restart of a peer** is passed to all endpoints through the header of the packet that revealed it. So
//!   is a **report that a peer is unreachable**, which over UDP the kernel gives to only one of the sockets.
//!   Both end RPCs and wake sleeping threads.
//! - **Narrower paths** are discovered by each endpoint separately: the kernel remembers them for all, and
//!   refuses the first packet.
//!
//! # Several endpoints, one host
//!
//! By default a host has one endpoint, and therefore one lock. `HostConfig::endpoints` gives it several
//! endpoints (`homa/api/endpoints`), each with a packet path, a lock, a progress thread and the threads that
//! happen to wait at it. To its peers it is still one host.
//!
//! - **An RPC belongs to one endpoint, by its ID** (`wire/route`: half of the lower 32 bits, modulo the
//!   number of endpoints). The IDs of the two directions of an RPC differ only in bit 0. Client and server
//!   therefore steer in the same way, and neither needs to know how many endpoints the other has. Each
//!   endpoint gives its clients IDs that it owns, so a finished ID is always looked up in the endpoint that
//!   keeps it. The full ID was not used, since classic BPF computes with 32 bits. A hash of addresses, the
//!   kernel's default, was not used either: all RPCs between two hosts have the same hash, and would share
//!   one endpoint.
//! - **The kernel steers** (`homa-driver/socket/steer`): sockets at one address with SO_REUSEPORT and a
//!   classic BPF program, which needs no privilege. The first socket is bound without the option, so that a
//!   host does not join another process's sockets by accident, and a host with one endpoint never sets it.
//!   `HostBuilder::bind_on` accepts any packet paths that steer.
//! - **Packet rings are steered like sockets** (`packet/fanout`, PACKET_FANOUT_CBPF). The program runs on
//!   every frame of the device and reads only the ID; afterwards each ring's filter decides whether the frame
//!   belongs to the host. The kernel chooses the group's number, so that no other process's group is joined.
//!   Until all rings have joined, no ring accepts frames, since each ring would get all of them.
//! - **Each queue of a device has a socket for every endpoint** (`xdp/open`), and the XDP program chooses by
//!   queue and ID. The sockets of a queue share one fill ring and one completion ring, behind locks
//!   (`xdp/maybe_shared`) that a lone driver does not have. A lock is taken once for each burst sent, and
//!   once for sixteen frames received. The alternative is to divide the queues among the endpoints. That
//!   takes no locks, but RPCs are not bound to queues. With two endpoints, half of all packets would be
//!   copied into a mailbox and wake a thread, and on a device with one queue only one endpoint would receive.
//!   The alternative is used in generic mode before Linux 6.15, where the kernel's lock for a fill ring
//!   belongs to one socket. Receive frames belong to all endpoints, and no endpoint keeps more than it is
//!   about to refill. Send frames are divided; an endpoint that finds another's frame in a completion ring
//!   sets it aside.
//! - **Over raw IP the filter steers** (`raw/program`): the kernel offers every packet to every socket at the
//!   address, and each socket takes the RPCs of its own endpoint. To processes that share the address, each
//!   endpoint counts as one more process, with its own slot and IDs; the first endpoint holds the ports for
//!   all (`process_group/endpoint_slots`). IDs are leased in ranges, and an endpoint uses only those IDs of a
//!   range that steer to it.
//! - **Packets at the wrong endpoint are handed over** (`endpoint_group`). The kernel reads only the first
//!   packet of a merged run, and a client of one endpoint sends runs for all of the server's endpoints.
//!   Mailboxes are bounded in bytes; packets beyond the bound are lost and counted, as if a receive buffer
//!   were full. No endpoint ever waits for another's lock to pass a packet on.
//! - **Information for other endpoints** is passed in the same way, as headers: acknowledgements that
//!   piggyback on packets of other RPCs, cutoffs, FREEZE, a peer's restart, and reports that a peer is
//!   unreachable. Over raw IP the kernel gives these reports to all sockets. Of all mail, only whole packets
//!   and the last two of these wake a thread: an endpoint that waits for an acknowledgement has a timer, and
//!   checks its mailbox first.
//! - **Host-wide resources** are in `host_lease`, for endpoints of a process and for processes alike. To
//!   lease grant budget, an endpoint first announces its lease and then counts all leases. The uplink is
//!   represented by a single point in time, and the shortest message goes first. A single leader computes the
//!   cutoffs and the limit of unscheduled bytes. Only the memory differs: it is a segment in a file, or
//!   belongs to the process. Each endpoint sees only its share of the messages, so it estimates incast with
//!   its share of the link and of `max_incoming`. The resulting limit is that of the whole host. If all
//!   traffic is in one endpoint, that endpoint limits itself more than necessary.
//! - **An RPC stays in the endpoint where it began, which a policy can choose** (`placement`,
//!   `HostConfig::endpoint_policy`). The policies are those of `homa-steer`, with endpoints in the place of
//!   cores. A client then has a port in each endpoint, and each call for which a thread or task waits uses
//!   the chosen endpoint. The choice depends on the RPCs open in each endpoint, on client and server, or on
//!   the client's own endpoint. Submitted calls stay in the client's own endpoint, since their completions
//!   come out of one queue. Packets are not placed by a policy: an RPC's state (gaps, grants, finished IDs)
//!   is behind its endpoint's lock and cannot move, so a packet placed elsewhere would only be handed over.
//!   Servers do not choose either: the ID decides, and the client chooses the ID. The client's choice
//!   therefore spreads RPCs over the server's endpoints in the same way as over its own.
//! - **Which sleeping thread is woken**, among threads at one endpoint that could do the same work, is also
//!   decided by an order of `homa-steer` (`wake_by`, `HostConfig::wake_order`). An order that depends on
//!   cores uses the host's own observations: where threads received packets, were woken, and fell asleep.
//! - **How much a thread takes at a time** is the batch cap of `homa-steer` (`HostConfig::batch_cap`). The
//!   cap is set on the burst (`RxBurst::set_cap`) that every driver fills, so no driver needs its own
//!   setting.
//! - **Clients otherwise belong to one endpoint**, assigned in turn; a call never checks another endpoint.
//!   **Server ports are open in all endpoints**; a thread in `recv` waits at one endpoint, and takes requests
//!   from another endpoint if no thread waits for them there. `endpoint_group/exchange` argues why no request
//!   is stranded, and the tests run with fewer threads than endpoints. **A socket with a server port is in
//!   all endpoints, too** (`homa/kernel_api/socket`): a thread calls at the endpoint where it waits. An
//!   outcome arrives at the endpoint where its call was made, and is offered like a request.
//! - **Other limits apply to each endpoint separately**: RPCs, peers, bytes, and the number of messages that
//!   are granted at a time. If they were divided among the endpoints, a host with a single busy endpoint
//!   would not get what it was configured for.

pub(crate) mod exchange;
pub(crate) mod mailbox;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use homa_driver::RxBurst;
use homa_proto::wire::{self, DATA_HEADER_LEN, Route};
use homa_proto::{Endpoint, RxPacket, Time, Unreachable};

use crate::payload::buffers::Buffers;
use crate::runtime::bundles::packets_of;
use crate::tenancy::processes::{NOBODY, ProcessMember};
use mailbox::{MailCounts, MailKind, MailQueue, Mailbox};

/// Offset of the type in a packet, and the type of packets whose payload is cut off for endpoints that need
/// only the header.
const TYPE_AT: usize = 11;
const DATA: u8 = wire::PacketType::Data as u8;

/// The mailboxes of the endpoints of a host.
pub(crate) struct EndpointGroup {
    mailboxes: Vec<Mailbox>,
}

impl EndpointGroup {
    pub(crate) fn new(endpoints: usize) -> io::Result<EndpointGroup> {
        let mailboxes: Result<Vec<Mailbox>, io::Error> = (0..endpoints).map(|_| Mailbox::new()).collect();
        Ok(EndpointGroup { mailboxes: mailboxes? })
    }

    pub(crate) fn mailbox(&self, endpoint: usize) -> &Mailbox {
        &self.mailboxes[endpoint]
    }

    /// Posts the same mail to all endpoints except `but`.
    fn post_to_others(&self, but: usize, urgent: bool, fill: impl Fn(&mut MailQueue)) {
        for (_, mailbox) in self.mailboxes.iter().enumerate().filter(|(at, _)| *at != but) {
            mailbox.post(urgent, &fill);
        }
    }
}

/// An engine's membership in the group of endpoints.
pub(crate) struct GroupMember {
    pub(crate) group: Arc<EndpointGroup>,
    /// The index of this endpoint.
    pub(crate) index: usize,
    /// Mail that is being processed or has been processed.
    mail: MailQueue,
    /// Scratch memory: the routes of the packets of a burst.
    routes: Vec<Route>,
}

impl GroupMember {
    pub(crate) fn new(group: Arc<EndpointGroup>, index: usize) -> GroupMember {
        GroupMember { group, index, mail: MailQueue::default(), routes: Vec::new() }
    }

    pub(crate) fn mail_counts(&self) -> MailCounts {
        self.group.mailbox(self.index).counts()
    }

    /// Processes a received burst, part of which may belong to other endpoints or, with `processes`, to other
    /// processes.
    pub(crate) fn take_burst(
        &mut self,
        now: Time,
        rx: &RxBurst,
        processes: Option<&ProcessMember>,
        (endpoint, buffers): (&mut Endpoint, &mut Buffers),
    ) {
        let (me, endpoints) = (self.index as u32, self.group.mailboxes.len() as u32);
        self.routes.clear();
        for RxPacket { bytes, .. } in packets_of(rx) {
            let mut route = wire::route(bytes, endpoints);
            if let Some(processes) = processes {
                route = processes.route(bytes, route);
                if route.owner == me && processes.is_opening(bytes, endpoint) {
                    route = Route { owner: NOBODY, others: route.others | 1 << me };
                }
                if route.owner == me {
                    processes.note_owner_of(bytes, endpoint);
                }
            }
            self.routes.push(route);
        }
        let restarts = endpoint.stats().peer_restarts;
        let own = packets_of(rx).zip(&self.routes).filter(|(_, route)| route.owner == me);
        let own = own.map(|(packet, _)| packet);
        endpoint.handle_packets(now, own, buffers);
        let mut addressees = 0;
        for (packet, route) in packets_of(rx).zip(&self.routes) {
            addressees |= route.others | if route.owner == NOBODY { 0 } else { 1 << route.owner };
            if route.others & 1 << me != 0 {
                endpoint.handle_foreign(now, &header_of(&packet));
            }
        }
        addressees &= !(1 << me);
        if addressees != 0 {
            self.hand_over_burst(rx, addressees);
        }
        if endpoint.stats().peer_restarts != restarts {
            self.share_restarts(endpoint, packets_of(rx));
        }
    }

    /// Posts the packets of the burst to the endpoints whose bits are set in `addressees`.
    fn hand_over_burst(&self, rx: &RxBurst, addressees: u64) {
        for (endpoint, mailbox) in self.group.mailboxes.iter().enumerate() {
            if addressees & 1 << endpoint == 0 {
                continue;
            }
            let urgent = self.routes.iter().any(|route| route.owner as usize == endpoint);
            mailbox.post(urgent, |mail| {
                for (packet, route) in packets_of(rx).zip(&self.routes) {
                    if route.owner as usize == endpoint {
                        mail.push(MailKind::Own, &packet);
                    } else if route.others & 1 << endpoint != 0 {
                        mail.push(MailKind::Foreign, &header_of(&packet));
                    }
                }
            });
        }
    }

    /// Passes to the other endpoints the packets that showed this endpoint that a peer restarted.
    fn share_restarts<'a>(&self, endpoint: &Endpoint, packets: impl Iterator<Item = RxPacket<'a>> + Clone) {
        self.group.post_to_others(self.index, true, |mail| {
            let mut last = None;
            for packet in packets.clone() {
                // Most of these packets come in runs from one peer. Once an endpoint knows of the restart,
                // later packets of the run tell it nothing new.
                if last.replace(packet.from) != Some(packet.from) && endpoint.has_proven(&packet) {
                    mail.push(MailKind::Restart, &header_of(&packet));
                }
            }
        });
    }

    /// Passes a network report about a peer to the other endpoints.
    pub(crate) fn share_unreachable(&self, peer: SocketAddr, report: Unreachable) {
        let report = MailKind::Unreachable(report);
        self.group.post_to_others(self.index, true, |mail| mail.push(report, &RxPacket::new(peer, &[])));
    }

    /// Returns whether there is urgent mail from other endpoints.
    pub(crate) fn has_urgent_mail(&self) -> bool {
        self.group.mailbox(self.index).is_urgent()
    }

    /// Takes the mail from other endpoints; returns whether there was any.
    pub(crate) fn take_mail(
        &mut self,
        now: Time,
        processes: Option<&ProcessMember>,
        (endpoint, buffers): (&mut Endpoint, &mut Buffers),
    ) -> bool {
        if !self.group.mailbox(self.index).take(&mut self.mail) {
            return false;
        }
        let restarts = endpoint.stats().peer_restarts;
        if let Some(processes) = processes {
            self.mail.make_foreign(|bytes| processes.is_opening(bytes, endpoint));
        }
        let own = || self.mail.iter().filter(|(kind, _)| *kind == MailKind::Own).map(|(_, packet)| packet);
        if let Some(processes) = processes {
            own().for_each(|packet| processes.note_owner_of(packet.bytes, endpoint));
        }
        endpoint.handle_packets(now, own(), buffers);
        if endpoint.stats().peer_restarts != restarts {
            self.share_restarts(endpoint, own());
        }
        for (kind, packet) in self.mail.iter() {
            match kind {
                MailKind::Own => {}
                MailKind::Foreign => endpoint.handle_foreign(now, &packet),
                MailKind::Restart => endpoint.handle_proven_foreign(now, &packet),
                MailKind::Unreachable(report) => endpoint.peer_unreachable(now, packet.from, report),
            }
        }
        true
    }
}

/// Returns the part of a packet that an endpoint needs if it does not own the packet.
fn header_of<'a>(packet: &RxPacket<'a>) -> RxPacket<'a> {
    let bytes = packet.bytes;
    let is_data = bytes.get(TYPE_AT) == Some(&DATA);
    let bytes = if is_data { &bytes[..bytes.len().min(DATA_HEADER_LEN)] } else { bytes };
    RxPacket { bytes, wire_len: bytes.len(), ..*packet }
}
