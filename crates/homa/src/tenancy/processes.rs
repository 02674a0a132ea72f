//! How a host takes part in the address that it shares with other processes, and how the engine uses its
//! [`Segment`].
//!
//! All of this happens in drive rounds, and none of it waits for another process: if the segment's lock is
//! taken, the next tick tries again. Only opening a port waits, before it takes the host's lock.

use std::sync::Arc;

use homa_driver::{Driver, ReceiveFilter, RxBurst};
use homa_proto::wire::Route;
use homa_proto::{Endpoint, MS, RxPacket, Time};

use crate::observe::metrics::HostCounts;
use crate::payload::buffers::Buffers;
use crate::runtime::bundles::packets_of;
use crate::tenancy::end_barrier::EndBarrier;
use crate::tenancy::host_lease::HostLease;
use crate::tenancy::process_group::{
    self, EndpointSlots, FIRST_CLIENT_PORT, LeaseWatch, PacketOwner, Segment,
};
use crate::tenancy::shared_socket::{SharedSocket, port_of};
use crate::types::error::HostError;

/// Interval at which a process checks whether the others are alive and shows that it is. It is a small
/// fraction of the time after which a peer's RPC gives up, and costs an idle host fifty wake-ups per second.
const TICK_NS: u64 = 20 * MS;

/// Owner of a packet that no endpoint of this host should process.
pub(crate) const NOBODY: u32 = u32::MAX;

/// Maximum number of bursts dropped at the start. It far exceeds the capacity of a receive buffer. There is a
/// limit because acknowledgements to all processes may keep arriving.
const MAX_FORGOTTEN_BURSTS: u32 = 1 << 14;

/// This endpoint's membership in the shared address: see the [module](self).
pub(crate) struct ProcessMember {
    segment: Arc<Segment>,
    /// The slots of this host's endpoints.
    slots: Arc<EndpointSlots>,
    /// The index of this endpoint.
    index: usize,
    watch: LeaseWatch,
    /// The monotonic clock at [`Time::ZERO`], in nanoseconds.
    start_ns: u64,
    next_tick: Time,
    /// Closed ports that will be released once their last RPC has been freed.
    closing: Vec<u16>,
    /// The driver's current filter.
    filter: ReceiveFilter,
    /// Tracks which packets have been received since a process last ended.
    end_barrier: EndBarrier,
    /// The UDP socket that processes share; `None` over raw IP, where each process has its own.
    pub(crate) socket: Option<SharedSocket>,
    /// Scratch memory: marks the packets of a burst that belong to other processes.
    foreign: Vec<bool>,
}

impl ProcessMember {
    /// Begins sharing the address. The endpoint, whose index in the host is `index`, leases IDs when it needs
    /// them.
    ///
    /// # Errors
    /// The driver does not accept a filter.
    pub(crate) fn new(
        (slots, index): (Arc<EndpointSlots>, usize),
        start_ns: u64,
        endpoint: &mut Endpoint,
        driver: &mut dyn Driver,
    ) -> Result<ProcessMember, HostError> {
        let filter = ReceiveFilter::new([], None);
        driver
            .set_receive_filter(&filter)
            .map_err(|source| HostError::System { what: "a receive filter", source })?;
        forget_queued(driver);
        endpoint.set_ids(0, 0);
        let segment = Arc::clone(slots.member(index));
        let system = |source| HostError::System { what: "a mailbox for packets", source };
        let socket = SharedSocket::join(&segment, driver).map_err(system)?;
        Ok(ProcessMember {
            segment,
            slots,
            index,
            watch: LeaseWatch::default(),
            start_ns,
            next_tick: Time::ZERO,
            closing: Vec::new(),
            filter,
            end_barrier: EndBarrier::new(driver),
            socket,
            foreign: Vec::new(),
        })
    }

    /// Adds the segment's counts to the metrics.
    pub(crate) fn count(&self, host: &mut HostCounts) {
        let counts = self.segment.counts();
        host.shared_processes = counts.processes;
        host.shared_slot = counts.slot;
        host.shared_leads = counts.is_leader.into();
        host.shared_found_dead = counts.found_dead;
        host.shared_grant_budget_bytes = counts.budget_bytes;
        host.shared_grant_lease_bytes = counts.lease_bytes;
        host.shared_grant_leased_bytes = counts.leased_bytes;
    }

    fn monotonic_ns(&self, now: Time) -> u64 {
        self.start_ns + now.as_ns()
    }

    /// Returns when a drive round is due for the shared address.
    pub(crate) fn next_wake(&self) -> Time {
        self.next_tick
    }

    /// Returns the owner of a packet. The segment decides, not the filter: the segment is never older than
    /// the packet.
    fn owner_of(&self, packet: &[u8]) -> PacketOwner {
        // A packet too short to have a port counts as a packet for port 0, which no process has.
        match self.slots.owner_of(port_of(packet).unwrap_or(0), self.receives()) {
            // HOST-10: the filter lags behind. This packet may have arrived while the process that had the
            // port was alive, so that process may have executed the request. The packet cannot be
            // distinguished from a later one, and the answer that no process has the port would imply that
            // the request was not executed. The client resends, and the answer to the resent packet is
            // correct.
            PacketOwner::Unowned { orphan: true }
                if !self.end_barrier.has_passed(self.segment.orphanings()) =>
            {
                PacketOwner::Foreign
            }
            owner_of => owner_of,
        }
    }

    /// Begins a poll for packets.
    pub(crate) fn begin_receive(&mut self) {
        self.end_barrier.begin(self.segment.orphanings());
    }

    /// Records the result of the poll.
    pub(crate) fn note_received(&mut self, burst: &RxBurst) {
        // Handed-over packets do not show how far the receive queues have been drained, nor do packets that
        // later ones have overtaken.
        if !burst.is_handed_over() && !burst.is_reordered() {
            self.end_barrier.note(burst);
        }
    }

    /// Returns whether this process receives from the UDP socket that processes share; `None` over raw IP.
    fn receives(&self) -> Option<bool> {
        self.socket.as_ref().map(|socket| socket.receives)
    }

    /// Returns the endpoints of this host that a packet concerns, given the route that its IDs imply. A
    /// packet of another process concerns no endpoint of this host.
    pub(crate) fn route(&self, packet: &[u8], route: Route) -> Route {
        match self.owner_of(packet) {
            PacketOwner::Foreign => Route { owner: NOBODY, others: route.others | 1 << route.owner },
            PacketOwner::Own | PacketOwner::Unowned { .. } => route,
        }
    }

    /// HOST-10: before this endpoint processes a packet, records whether the packet's server has ended.
    pub(crate) fn note_owner_of(&self, packet: &[u8], endpoint: &mut Endpoint) {
        let Some(port) = port_of(packet) else { return };
        // A packet that was routed here is processed even if this endpoint's `end_barrier` has not been
        // passed.
        if let PacketOwner::Unowned { orphan } = self.slots.owner_of(port, self.receives()) {
            endpoint.note_lost_owner(port, if orphan { Time::NEVER } else { Time::ZERO });
        }
    }

    /// Returns whether a packet belongs to another process, or to a port that is being opened.
    pub(crate) fn is_foreign(&self, packet: &[u8], endpoint: &Endpoint) -> bool {
        self.owner_of(packet) == PacketOwner::Foreign || self.is_opening(packet, endpoint)
    }

    /// Returns whether this process has acquired the server port of a packet, but this endpoint has not opened
    /// it yet. HOST-10: until then the endpoint does not know whether the port's last owner may have run the
    /// request, so the packet must not be answered. The client resends.
    pub(crate) fn is_opening(&self, packet: &[u8], endpoint: &Endpoint) -> bool {
        // A client's port is opened in one endpoint, and the others answer queries about its host.
        let Some(port) = port_of(packet).filter(|&port| port < FIRST_CLIENT_PORT) else { return false };
        !endpoint.is_port_open(port)
            && self.slots.owner_of(port, self.receives()) == PacketOwner::Own
            && !self.slots.has_opened(self.index, port)
    }

    /// HOST-3: ensures that there is an ID for the next request.
    pub(crate) fn lease_ids(&self, endpoint: &mut Endpoint) {
        if endpoint.ids_left() == 0 {
            endpoint.set_ids(self.segment.lease_ids(), process_group::IDS_PER_LEASE);
        }
    }

    /// Processes a received burst, part of which may belong to other processes.
    pub(crate) fn take_burst(
        &mut self,
        now: Time,
        rx: &RxBurst,
        (endpoint, buffers): (&mut Endpoint, &mut Buffers),
    ) {
        // Classify each packet only once: ports may change hands in the meantime, and no packet may be
        // processed by two processes.
        let mut foreign = std::mem::take(&mut self.foreign);
        foreign.clear();
        for RxPacket { bytes, .. } in packets_of(rx) {
            let owner_of = self.owner_of(bytes);
            if let (PacketOwner::Unowned { orphan }, Some(port)) = (owner_of, port_of(bytes)) {
                let until = if orphan { Time::NEVER } else { Time::ZERO };
                endpoint.note_lost_owner(port, until); // HOST-10: its requests may have run.
            }
            foreign.push(owner_of == PacketOwner::Foreign || self.is_opening(bytes, endpoint));
        }
        let packets = || packets_of(rx).zip(&foreign);
        let own = packets().filter_map(|(packet, foreign)| (!foreign).then_some(packet));
        endpoint.handle_packets(now, own, buffers);
        for (packet, _) in packets().filter(|(_, foreign)| **foreign) {
            endpoint.handle_foreign(now, &packet);
        }
        self.foreign = foreign;
    }

    /// Records that a port was closed.
    pub(crate) fn port_closed(&mut self, now: Time, port: u16) {
        self.closing.push(port);
        self.next_tick = self.next_tick.min(now + MS);
    }

    /// Records that a port was opened. It may have been closed just before and not have been released yet.
    pub(crate) fn port_opened(&mut self, port: u16) {
        self.closing.retain(|closing| *closing != port);
        self.slots.port_opened(self.index, port);
    }

    /// Releases ports whose last RPC has been freed.
    fn release_ports(&mut self, now: Time, endpoint: &Endpoint) {
        let (open, free): (Vec<u16>, Vec<u16>) =
            self.closing.drain(..).partition(|&port| endpoint.is_port_open(port));
        self.closing = open;
        if !self.slots.try_release(self.index, &free) {
            self.closing.extend(free);
        }
        if !self.closing.is_empty() {
            self.next_tick = self.next_tick.min(now + MS);
        }
    }

    /// Updates the driver's filter.
    ///
    /// # Errors
    /// The driver accepts neither this filter nor an empty one.
    pub(crate) fn refilter(&mut self, driver: &mut dyn Driver) -> std::io::Result<()> {
        let (ports, others) = self.slots.ports();
        // HOST-8: one process answers packets to ports that no process has: the leader, or the process that
        // receives for all.
        let answers = self.receives().unwrap_or_else(|| self.slots.leads());
        let filter = ReceiveFilter::new(ports, answers.then_some(others));
        if filter == self.filter {
            return Ok(());
        }
        if let Err(error) = driver.set_receive_filter(&filter) {
            // Without a filter, the packets of all processes arrive here, and `is_foreign` separates them.
            tracing::warn!(%error, "the packet path takes no filter: this process sees the packets of all");
            driver.set_receive_filter(&ReceiveFilter::accept_all())?;
        }
        self.filter = filter;
        Ok(())
    }

    /// Determines whether this process should receive from the shared UDP socket; returns whether that
    /// changed.
    pub(crate) fn choose_receiver(&mut self, now: Time) -> bool {
        let now_ns = self.monotonic_ns(now);
        self.socket.as_mut().is_some_and(|socket| socket.choose_receiver(&self.slots, now_ns))
    }

    /// Hands received packets and reports over to the processes that they belong to, if the processes share
    /// this process's socket.
    pub(crate) fn hand_over(&self, driver: &mut dyn Driver, burst: &RxBurst) {
        if let Some(socket) = &self.socket {
            socket.hand_over(&self.slots, driver, burst);
        }
    }

    /// Does the work that is due every few tens of milliseconds.
    pub(crate) fn tick(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        driver: &mut dyn Driver,
        lease: Option<&mut HostLease>,
    ) {
        if now < self.next_tick {
            return;
        }
        self.next_tick = now + TICK_NS;
        self.release_ports(now, endpoint);
        let changed = self.segment.tick(self.monotonic_ns(now), &mut self.watch) | self.choose_receiver(now);
        if changed && let Err(error) = self.refilter(driver) {
            tracing::error!(%error, "the packet path takes no filter: new ports may get no packets");
        }
        if let Some(lease) = lease {
            lease.set_leader(endpoint, self.segment.is_leader());
        }
    }
}

/// Drops packets that arrived before the driver had a filter. Other processes have answered them, for ports
/// that may soon belong to this process: requests that they refused must not be executed here.
fn forget_queued(driver: &mut dyn Driver) {
    let mut burst = RxBurst::new();
    for _ in 0..MAX_FORGOTTEN_BURSTS {
        // A broken driver will report its error again later.
        if !matches!(driver.receive(&mut burst), Ok(1..)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io;
    use std::net::SocketAddr;
    use std::os::fd::BorrowedFd;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;

    use homa_driver::{BufferSizes, DriverStats, TxPacket, UnreachableReport};
    use homa_proto::wire::{self, Body, UnknownReason};
    use homa_proto::{CallOptions, Config};
    use homa_trace::Trace;

    use super::*;
    use crate::runtime::engine::{Engine, Limits};
    use crate::tenancy::endpoint_group::mailbox::MailKind;
    use crate::tenancy::endpoint_group::{EndpointGroup, GroupMember};
    use crate::tenancy::process_group::tests::Dir;

    const PORT: u16 = 99;

    /// Capacity of the wire in bytes.
    const RECEIVE_BYTES: usize = 10_000;

    /// The packets waiting to be received, and the packets that were sent.
    #[derive(Clone, Default)]
    struct Wire {
        come: Arc<Mutex<VecDeque<Vec<u8>>>>,
        sent: Arc<Mutex<Vec<Vec<u8>>>>,
        /// Whether received packets may have overtaken others.
        reorders: Arc<AtomicBool>,
    }

    impl Wire {
        fn bring(&self, packets: Vec<Vec<u8>>) {
            self.come.lock().unwrap().extend(packets);
        }

        /// Returns the answers sent since the last call, all of which are RPC_UNKNOWN.
        fn reasons(&self) -> Vec<UnknownReason> {
            let sent = std::mem::take(&mut *self.sent.lock().unwrap());
            let reason = |bytes: &Vec<u8>| match wire::decode(bytes, bytes.len()).unwrap().body {
                Body::RpcUnknown(reason) => reason,
                body => panic!("{body:?}"),
            };
            sent.iter().map(reason).collect()
        }
    }

    impl Driver for Wire {
        fn local_addr(&self) -> SocketAddr {
            ([10, 0, 0, 1], 0).into()
        }
        fn max_packet(&self, _: SocketAddr) -> usize {
            1_472
        }
        fn send(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
            let bytes = packets.iter().map(|packet| [packet.header, packet.payload].concat());
            self.sent.lock().unwrap().extend(bytes);
            Ok(packets.len())
        }
        fn receive(&mut self, burst: &mut RxBurst) -> io::Result<usize> {
            burst.clear();
            for bytes in self.come.lock().unwrap().drain(..) {
                assert!(burst.push(([10, 0, 0, 2], 0).into(), &bytes));
            }
            if self.reorders.load(Relaxed) {
                burst.note_reordered();
            }
            Ok(burst.len())
        }
        fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
            None
        }
        fn poll_unreachable(&mut self) -> Option<UnreachableReport> {
            None
        }
        fn link_mbps(&self) -> Option<u32> {
            None
        }
        fn buffer_sizes(&self) -> Option<BufferSizes> {
            let bytes = RECEIVE_BYTES;
            Some(BufferSizes {
                send_bytes: bytes,
                send_wanted_bytes: bytes,
                receive_bytes: bytes,
                receive_wanted_bytes: bytes,
            })
        }
        fn stats(&self) -> DriverStats {
            DriverStats::default()
        }
    }

    fn endpoint(incarnation: u64) -> Endpoint {
        Endpoint::new(Config { incarnation, ..Config::default() }, Trace::off()).unwrap()
    }

    /// Creates the engine of a process that is its host's leader, and its wire.
    fn leader(dir: &Dir) -> (Engine, Wire) {
        let segment = dir.open();
        let _ = segment.tick(0, &mut LeaseWatch::default());
        assert!(segment.is_leader());
        let (wire, mut endpoint) = (Wire::default(), endpoint(7));
        let slots = Arc::new(EndpointSlots::new(vec![segment]));
        let processes = ProcessMember::new((slots, 0), 0, &mut endpoint, &mut wire.clone()).unwrap();
        let limits = Limits { completions: 1, queued_request_bytes: 1 };
        let mut engine = Engine::new(endpoint, Box::new(wire.clone()), limits);
        engine.tenancy.processes = Some(processes);
        (engine, wire)
    }

    /// The time of the first drive round.
    const NOW: Time = Time::from_ns(TICK_NS);

    /// Creates the engine of a leader that knows of another process with the port, its wire, and that process.
    fn leader_beside_server(dir: &Dir) -> (Engine, Wire, Segment) {
        let (mut engine, wire) = leader(dir);
        let other = dir.open();
        other.bind(PORT).unwrap();
        engine.drive(NOW);
        (engine, wire, other)
    }

    fn packets(client: &mut Endpoint, now: Time) -> Vec<Vec<u8>> {
        let packet = |packet: homa_proto::Transmit| {
            let payload = packet.payload.map_or(0, |range| range.len as usize);
            [&packet.header[..], &vec![0; payload]].concat()
        };
        std::iter::from_fn(|| client.poll_transmit(now)).map(packet).collect()
    }

    fn request(client: &mut Endpoint, now: Time) -> Vec<Vec<u8>> {
        let port = client.open_client_port().unwrap();
        client.send_request(now, port, ([10, 0, 0, 1], 0).into(), PORT, 100, CallOptions::default()).unwrap();
        packets(client, now)
    }

    /// Returns the client's next RESENDs, and the time when it sends them.
    fn resends(client: &mut Endpoint) -> (Time, Vec<Vec<u8>>) {
        loop {
            let due = client.poll_timeout().unwrap();
            client.handle_timeout(due);
            let resends = packets(client, due);
            if !resends.is_empty() {
                return (due, resends);
            }
        }
    }

    #[test]
    fn what_may_have_run_in_a_process_that_ended_is_not_told_that_nobody_has_the_port() {
        let dir = Dir::new();
        let (mut engine, wire, other) = leader_beside_server(&dir);
        let (mut client, now) = (endpoint(9), NOW);
        // The packet reached both processes, and the other process has executed the request before the leader
        // reads it.
        wire.bring(request(&mut client, now));
        drop(other);
        engine.drive(now);
        assert_eq!(wire.reasons(), [], "HOST-10");
        let (due, resends) = resends(&mut client);
        engine.drive(due);
        wire.bring(resends);
        engine.drive(due);
        assert_eq!(wire.reasons(), [UnknownReason::OwnerGone], "HOST-10");
        wire.bring(request(&mut client, due));
        engine.drive(due);
        assert_eq!(wire.reasons(), [UnknownReason::NoSuchPort], "one that begins now has not run");
    }

    /// HOST-10: other threads drive between acquiring a port and opening it. `deliver` brings packets to the
    /// engine.
    fn opening_answers_nothing_about_the_last_owner(
        (mut engine, wire, other): (Engine, Wire, Segment),
        deliver: impl Fn(Vec<Vec<u8>>),
    ) {
        let (mut client, now) = (endpoint(9), NOW);
        let sent = request(&mut client, now);
        drop(other);
        engine.drive(now);
        let slots = Arc::clone(&engine.tenancy.processes.as_ref().unwrap().slots);
        let claim = slots.bind(PORT).unwrap();
        deliver(sent);
        engine.drive(now);
        let (due, resends) = resends(&mut client);
        deliver(resends.clone());
        engine.drive(due);
        assert_eq!(wire.reasons(), []);
        engine.open_server(due, PORT, Some(claim)).unwrap();
        deliver(resends);
        engine.drive(due);
        assert_eq!(wire.reasons(), [UnknownReason::OwnerGone]);
    }

    #[test]
    fn a_port_that_is_being_opened_answers_nothing_about_its_last_owner() {
        let dir = Dir::new();
        let (engine, wire, other) = leader_beside_server(&dir);
        let deliver = |packets| wire.bring(packets);
        opening_answers_nothing_about_the_last_owner((engine, wire.clone(), other), deliver);
    }

    #[test]
    fn a_port_that_is_being_opened_answers_no_packets_passed_on_by_other_endpoints() {
        let dir = Dir::new();
        let (mut engine, wire, other) = leader_beside_server(&dir);
        let group = Arc::new(EndpointGroup::new(1).unwrap());
        engine.tenancy.group = Some(GroupMember::new(Arc::clone(&group), 0));
        let deliver = |packets: Vec<Vec<u8>>| {
            group.mailbox(0).post(true, |mail| {
                for bytes in &packets {
                    mail.push(MailKind::Own, &RxPacket::new(([10, 0, 0, 2], 0).into(), bytes));
                }
            });
        };
        opening_answers_nothing_about_the_last_owner((engine, wire, other), deliver);
    }

    #[test]
    fn an_endpoint_answers_for_the_ports_of_other_endpoints_clients() {
        let dir = Dir::new();
        let (engine, _wire) = leader(&dir);
        let processes = engine.tenancy.processes.as_ref().unwrap();
        let [of_client, of_server] = [processes.slots.open_client().unwrap(), PORT];
        processes.slots.bind(of_server).unwrap();
        let is_foreign = |port: u16| {
            let packet = [[0; 2], port.to_be_bytes()].concat();
            processes.is_foreign(&packet, &engine.endpoint)
        };
        assert_eq!([of_client, of_server].map(is_foreign), [false, true]);
    }

    /// A thread that waited in the kernel drives once more before it sees that its host was closed.
    #[test]
    fn a_closed_host_answers_nothing_for_the_other_processes() {
        let dir = Dir::new();
        let (mut engine, wire, _other) = leader_beside_server(&dir);
        let (mut client, now) = (endpoint(9), NOW);
        engine.finish_close(now);
        wire.bring(request(&mut client, now));
        engine.drive(now);
        assert_eq!(wire.reasons(), [], "HOST-8");
    }

    #[test]
    fn clients_that_come_and_go_keep_nobody_from_being_told_that_a_server_has_ended() {
        let dir = Dir::new();
        let (mut engine, wire) = leader(&dir);
        let (other, mut client) = (dir.open(), endpoint(9));
        other.bind(PORT).unwrap();
        drop(other);
        let now = Time::from_ns(TICK_NS);
        engine.drive(now);
        for _ in 0..3 {
            // Now only the ports and the processes change.
            dir.open().open_client().unwrap();
            wire.bring(request(&mut client, now));
            engine.drive(now);
            assert_eq!(wire.reasons(), [UnknownReason::NoSuchPort]);
        }
    }

    #[test]
    fn clients_are_told_that_a_server_has_ended_where_there_is_always_something_to_read() {
        let dir = Dir::new();
        let (mut engine, wire, other) = leader_beside_server(&dir);
        let (mut client, now) = (endpoint(9), NOW);
        drop(other);
        let mut read = 0;
        while wire.reasons().is_empty() {
            let packets = request(&mut client, now);
            read += packets.iter().map(Vec::len).sum::<usize>();
            assert!(read <= 2 * RECEIVE_BYTES, "all that was there has been read");
            wire.bring(packets);
            engine.drive(now);
        }
    }

    /// HOST-10: a packet that was overtaken may still be in the queue, however much has been read since.
    #[test]
    fn what_has_overtaken_other_packets_does_not_show_that_those_were_read() {
        let dir = Dir::new();
        let (mut engine, wire, other) = leader_beside_server(&dir);
        let (mut client, now) = (endpoint(9), NOW);
        drop(other);
        wire.reorders.store(true, Relaxed);
        let mut read = 0;
        while read <= 2 * RECEIVE_BYTES {
            let packets = request(&mut client, now);
            read += packets.iter().map(Vec::len).sum::<usize>();
            wire.bring(packets);
            engine.drive(now);
            assert_eq!(wire.reasons(), []);
        }
        wire.reorders.store(false, Relaxed);
        engine.drive(now);
        wire.bring(request(&mut client, now));
        engine.drive(now);
        assert_eq!(wire.reasons(), [UnknownReason::NoSuchPort], "the queue was found empty");
    }
}
