//! One drive round: packets in, timers, packets out, events.

use std::iter::once;
use std::net::{Ipv4Addr, SocketAddr};
use std::ptr;

use homa_driver::{BURST_PACKETS, Refusal, RxBurst, TxPacket, Unreachable};
use homa_proto::wire::{self, Body, Packet};
use homa_proto::{Event, RxPacket, Time, Transmit, TransmitRun};

use crate::api::error::CallError;
use crate::payload::direct_receive::DirectReceive;
use crate::runtime::bundles::DatagramEntry;
use crate::runtime::engine::{CallOwner, Engine};
use crate::runtime::progress::LEAST_TICK_NS;
use crate::runtime::wait::{WaitTarget, Wakeup};
use crate::tenancy::host_lease::HostLease;
use crate::tenancy::processes::Share;

/// Maximum packets given to the driver at a time: as many as fit one datagram that the kernel segments.
pub(crate) const BURST: usize = 64;

/// Bursts of at most this many packets use a smaller table.
const SHORT_BURST: usize = 32;

/// Maximum bytes of a burst, unless its only packet is longer. A datagram that the kernel segments has no
/// more, and a short message that comes meanwhile waits for the burst. Large packets gain nothing from longer
/// bursts.
const BURST_BYTES: u32 = 65_400;

/// A burst of this many bytes is full. A packet so large that only a few fit one datagram would not fit any
/// more, and a shorter one can wait for the next burst.
const FULL_BYTES: u32 = 56_000;

/// Maximum bursts sent before packets are received again.
const BURSTS_PER_ROUND: usize = 2;

/// Maximum packets that are read before late timers are processed.
const LATE_PACKETS: u32 = 32 * BURST_PACKETS as u32;

/// Maximum rounds, each of at most `batch` packets, by which due timers may be deferred in favour of received
/// packets, if they are already late by `late_ns`.
fn most_put_off(late_ns: u64, batch: u32) -> u32 {
    if late_ns >= LEAST_TICK_NS { LATE_PACKETS / batch.max(1) } else { 1 }
}

/// The outcome of sending a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// There was nothing to send, or no room for it.
    Nothing,
    /// All packets were sent, or as many as the driver had room for.
    All,
    /// As much as a burst may hold was sent; there may be more.
    FullBurst,
}

/// The packets of a burst as the endpoint takes them: the packets of a bundle one by one.
pub(crate) fn packets_of(burst: &RxBurst) -> impl Iterator<Item = RxPacket<'_>> + Clone {
    let packets = |(index, (from, datagram))| packets_in(from, datagram, burst.priority(index));
    burst.iter().enumerate().flat_map(packets)
}

/// The packets of one datagram.
fn packets_in(
    from: SocketAddr,
    datagram: &[u8],
    priority: Option<u8>,
) -> impl Iterator<Item = RxPacket<'_>> + Clone {
    wire::packets(datagram).map(move |bytes| RxPacket { priority, ..RxPacket::new(from, bytes) })
}

impl Engine {
    /// Does one round; returns whether there was anything to do. The caller calls [`Engine::summon`] after it
    /// has taken its own items.
    pub(crate) fn drive(&mut self, now: Time) -> bool {
        self.counts.drive_rounds += 1;
        self.last_driven = now;
        self.endpoint.trace().begin_stage();
        self.share_tick(now);
        self.stake_tick(now);
        let (received, now) = self.receive(now);
        self.tend_endpoint(now, received);
        self.stake_after(now);
        if self.driver.poll_timeout() == Some(0) {
            // The driver holds packets back, and their time has come.
            if let Err(error) = self.driver.send(&[]) {
                self.note_broken("send", &error);
            }
        }
        // Peers wait for the answers to received packets; the application comes next.
        let sent = self.transmit_round(now);
        let mut told = self.dispatch(now);
        if self.expire_calls(now) {
            self.flush(now);
            told = true;
        }
        while let Some(waker) = self.timers.pop_due(now) {
            self.waiting.wakes.push(Wakeup::Task(waker));
        }
        let busy = received || sent || told;
        if busy {
            self.last_activity = now;
            if self.low_latency {
                // The progress thread keeps the processors awake.
                self.progress_must_watch();
            }
        }
        busy
    }

    /// Processes due timers of the endpoint. In a round that `received` packets, the timers wait for the next
    /// round: the packets may contain a request, and its answer comes first. If the timers are late, no
    /// thread drove meanwhile, as on an overloaded machine, and the packets that arrived in that time are
    /// read first. Sending RESEND for packets that already wait here would cost both sides more of the
    /// processor time that they lack. The delay is bounded by [`most_put_off`].
    fn tend_endpoint(&mut self, now: Time, received: bool) {
        let Some(due) = self.endpoint.poll_timeout().filter(|&due| due <= now) else {
            self.put_off = 0;
            return;
        };
        if received && self.put_off < most_put_off(now.since(due), self.rx.cap().take(BURST_PACKETS as u32)) {
            self.put_off += 1;
            return;
        }
        self.put_off = 0;
        self.endpoint.handle_timeout(now);
        self.fit_tables();
    }

    /// The work to do before a sleep: everything but receiving, since waiting packets end the sleep.
    pub(crate) fn finish_up(&mut self, now: Time) {
        self.tend_endpoint(now, false);
        self.flush(now);
    }

    /// Sends everything that may be sent now and handles the resulting events, without receiving.
    pub(crate) fn flush(&mut self, now: Time) {
        self.transmit_round(now);
        self.dispatch(now);
    }

    /// Sends a bounded number of bursts; returns whether anything was sent. A remainder is due at once.
    pub(crate) fn transmit_round(&mut self, now: Time) -> bool {
        self.backlog = false;
        for burst in 0..BURSTS_PER_ROUND {
            match self.transmit_burst(now) {
                Sent::Nothing => return burst > 0,
                Sent::All => return true,
                Sent::FullBurst => {}
            }
        }
        self.backlog = true;
        true
    }

    /// Whether packets wait for which the driver has no room.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Whether to wake when the driver's descriptor shows that there is room.
    pub(crate) fn awaits_room(&self) -> bool {
        self.is_blocked() && self.driver.shows_room()
    }

    /// When a drive round is due even if no packet comes.
    pub(crate) fn next_wake(&self, now: Time) -> Option<Time> {
        let driver = self.driver.poll_timeout().map(|wait_ns| now + wait_ns);
        let backlog = (self.backlog && !self.is_blocked()).then_some(now);
        let share = self.share.as_ref().map(Share::next_wake);
        let stake = self.stake.as_ref().map(HostLease::next_wake);
        let earlier = |one: Option<Time>, other: Option<Time>| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        let deadline = self.deadlines.first().map(|(until, _)| *until);
        let timer = self.timers.first();
        [driver, backlog, share, stake, deadline, timer]
            .into_iter()
            .fold(self.endpoint.poll_timeout(), earlier)
    }

    /// Receives packets; returns whether there were any, and the time after the driver returned them.
    pub(crate) fn receive(&mut self, now: Time) -> (bool, Time) {
        self.just_now = None;
        // If packets may belong to others, they are classified before their payload is placed anywhere.
        let alone = self.share.is_none() && self.kin.is_none();
        let expected = if alone { self.buffers.take_expected() } else { None };
        if let Some(share) = &mut self.share {
            share.begin_receive();
        }
        let received = match expected {
            None => self.driver.receive(&mut self.rx),
            Some(in_place) => self.receive_in_place(in_place),
        };
        let count = match received {
            Ok(count) => count,
            Err(error) => {
                self.note_broken("receive", &error);
                return (false, now);
            }
        };
        let handled = self.packets_handled();
        let now = self.note_burst_in(count, now);
        if count > 0 {
            self.note_device_times();
        }
        if let Some(share) = &mut self.share {
            share.note_received(&self.rx);
        }
        if count > 0 && self.share.is_some() {
            let before = self.endpoint.stats().drop_no_port;
            if self.kin.is_some() {
                self.take_steered_burst(now);
            } else {
                self.take_shared_burst(now);
            }
            if self.endpoint.stats().drop_no_port > before {
                self.refuse_burst();
            }
        } else if count > 0 && self.kin.is_some() {
            self.take_steered_burst(now);
        } else if count > 0 {
            self.take_burst(now);
        }
        // SEND-15: the driver knows what the network has reported about the path since.
        while let Some(peer) = self.endpoint.poll_path() {
            let bytes = self.driver.max_packet(peer).min(u32::MAX as usize) as u32;
            self.endpoint.set_peer_max_packet(peer, bytes);
        }
        // Frames of a driver's ring are returned before this thread may sleep: a ring whose last frame is
        // held shows itself readable.
        self.rx.clear();
        if count > 0 {
            self.note_burst_processed(self.packets_handled() - handled);
        }
        self.note_device_sent();
        let mut told = false;
        while let Some(Unreachable { peer, what }) = self.driver.poll_unreachable() {
            let report = match what {
                Refusal::Peer { sender_id } => homa_proto::Unreachable::Peer { rpc_id: sender_id },
                Refusal::Protocol { sender_id } => homa_proto::Unreachable::Protocol { rpc_id: sender_id },
                Refusal::Port { port, sender_id } => {
                    homa_proto::Unreachable::Port { port, rpc_id: sender_id }
                }
            };
            self.endpoint.peer_unreachable(now, peer, report);
            self.tell_unreachable(peer, report);
            told = true;
        }
        (self.take_mail(now) || count > 0 || told, now)
    }

    /// Number of packets given to the endpoint: its own, and those of others that concern it.
    fn packets_handled(&self) -> u64 {
        let stats = self.endpoint.stats();
        stats.packets_received + stats.foreign_received
    }

    /// Processes the received burst if all of it belongs to this endpoint.
    fn take_burst(&mut self, now: Time) {
        let payload = self.buffers.payload_in_place();
        if payload > 0 {
            let packet = self.rx.get(0).map(|(from, bytes)| RxPacket {
                wire_len: bytes.len() + payload,
                priority: self.rx.priority(0),
                ..RxPacket::new(from, bytes)
            });
            self.endpoint.handle_packets(now, packet, &mut self.buffers);
            self.buffers.give_back_held();
        } else if let Some((from, _)) = self.rx.get(0).filter(|_| !self.bundle_in_place.is_empty()) {
            let packets = packets_in(from, &self.bundle_in_place, self.rx.priority(0));
            self.endpoint.handle_packets(now, packets, &mut self.buffers);
            self.bundle_in_place.clear();
        } else {
            self.endpoint.handle_packets(now, packets_of(&self.rx), &mut self.buffers);
        }
    }

    /// Receives packets. If the first packet is the expected next packet of a message, its payload goes
    /// directly to its place in the buffers, and only its header into the burst. Returns how many packets
    /// came.
    fn receive_in_place(&mut self, mut in_place: DirectReceive) -> std::io::Result<usize> {
        let place = in_place.place();
        let start = place.as_ptr();
        let received = self.driver.receive_in_place(&mut self.rx, place);
        // Only bytes at the expected address prove that they were written there. A driver that breaks its
        // contract loses a packet.
        let is_there = |payload: &&[u8]| ptr::eq(payload.as_ptr(), start.cast());
        let mut payload =
            received.as_ref().ok().filter(|payload| is_there(payload)).map_or(0, |payload| payload.len());
        if let (Some((_, header)), Ok(rest)) = (self.rx.get(0).filter(|_| payload > 0), &received)
            && wire::packet_length(header).is_some()
        {
            self.bundle_in_place.extend_from_slice(header);
            self.bundle_in_place.extend_from_slice(rest);
            payload = 0;
        }
        let failed = received.err();
        match self.rx.get(0).filter(|_| payload > 0) {
            Some((_, header)) => {
                let offset = match wire::decode(header, header.len() + payload) {
                    Ok(Packet { body: Body::Data(data), .. }) => data.offset,
                    // The endpoint drops this packet.
                    _ => 0,
                };
                self.buffers.hold_in_place(in_place, offset, payload);
            }
            None => self.buffers.give_back(in_place),
        }
        failed.map_or(Ok(self.rx.len()), Err)
    }

    /// Reports the clients whose requests in this burst are for ports that no process has (LIMIT-8). The
    /// endpoint's own clients have been reported.
    fn refuse_burst(&mut self) {
        for RxPacket { from, bytes, .. } in packets_of(&self.rx) {
            let Ok(packet) = wire::decode(bytes, bytes.len()) else { continue };
            let common = &packet.common;
            let opens = matches!(packet.body, Body::Data(_) | Body::Start(_));
            let is_request = opens && common.sender_id & 1 == 0;
            let is_ours = !common.incarnation.is_none();
            let foreign = self.share.as_ref().is_some_and(|share| share.is_foreign(bytes));
            if is_request && !is_ours && !foreign && self.endpoint.has_nobody_for(from, common) {
                self.driver.refuse(from, bytes);
            }
        }
    }

    /// Sends one burst.
    fn transmit_burst(&mut self, now: Time) -> Sent {
        if !self.unsent.is_empty() {
            // These packets were left over, and their RPCs may have ended meanwhile.
            let buffers = &self.buffers;
            self.unsent.retain(|run| run.payload().is_none_or(|range| buffers.outgoing(&range).is_some()));
        }
        if self.unsent.is_empty() && !self.endpoint.has_transmit() {
            return Sent::Nothing;
        }
        let mut packets: usize = self.unsent.iter().map(|run| run.packets() as usize).sum();
        let mut bytes: u32 = self.unsent.iter().map(TransmitRun::bytes).sum();
        if let Some(stake) = &self.stake {
            stake.note_uplink(now, &mut self.endpoint);
        }
        while packets < BURST && bytes < FULL_BYTES && self.endpoint.has_transmit() {
            let (most, most_bytes) = ((BURST - packets) as u32, BURST_BYTES - bytes);
            let Some(run) = self.endpoint.poll_transmit_run(now, most, most_bytes) else { break };
            packets += run.packets() as usize;
            bytes += run.bytes();
            if self.buffers.copying.is_some()
                && let Some(range) = run.payload()
            {
                self.buffers.provide(&range);
            }
            self.unsent.push(run);
        }
        if let Some(stake) = &mut self.stake {
            stake.tell_uplink(now, &self.endpoint);
        }
        if self.unsent.is_empty() {
            return Sent::Nothing;
        }
        let full = packets >= BURST || bytes >= FULL_BYTES;
        self.note_burst_out(packets, bytes);
        match self.send_unsent(packets) {
            Ok(taken) => {
                self.note_burst_taken(taken);
                match taken {
                    0 => Sent::Nothing,
                    _ if full && self.unsent.is_empty() => Sent::FullBurst,
                    _ => Sent::All,
                }
            }
            Err(error) => {
                self.unsent.clear();
                self.note_broken("send", &error);
                Sent::Nothing
            }
        }
    }

    /// Gives the unsent runs, `packets` packets in all, to the driver; returns how many packets it took.
    fn send_unsent(&mut self, packets: usize) -> std::io::Result<usize> {
        if let [run] = self.unsent.as_slice()
            && packets == 1
        {
            // The case of a lone RPC, which a table would slow down.
            let payload = run.first.payload.and_then(|range| self.buffers.outgoing(&range));
            let packet = tx_packet(&run.first, &run.first.header, payload.unwrap_or_default());
            let taken = self.driver.send(&[packet])?;
            if taken > 0 {
                self.unsent.clear();
            }
            return Ok(taken);
        }
        let datagrams = self.datagrams.plan(&self.unsent);
        self.datagrams.join(&self.unsent, &self.buffers);
        let taken = if datagrams <= SHORT_BURST {
            self.send_table::<SHORT_BURST>()
        } else {
            self.send_table::<BURST>()
        }?;
        let bundled = self.datagrams.remove_taken(&mut self.unsent, taken);
        self.counts.bundles_sent += bundled.datagrams;
        self.counts.bundled_packets_sent += bundled.packets;
        let left: u32 = self.unsent.iter().map(TransmitRun::packets).sum();
        Ok(packets - left as usize)
    }

    /// Gives the datagrams to the driver, at most `N` of them; returns how many it took.
    fn send_table<const N: usize>(&mut self) -> std::io::Result<usize> {
        self.headers.clear();
        for entry in self.datagrams.entries(&self.unsent) {
            if let DatagramEntry::Run(run) = entry {
                self.headers.extend((1..run.packets()).map(|index| run.header(index)));
            }
        }
        let nowhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let mut table = [TxPacket { to: nowhere, priority: 0, header: &[], payload: &[] }; N];
        let mut places = table.iter_mut();
        let mut headers = &self.headers[..];
        for entry in self.datagrams.entries(&self.unsent) {
            let run = match entry {
                DatagramEntry::Run(run) => run,
                DatagramEntry::Bundle(bundle) => {
                    if let Some(place) = places.next() {
                        *place = bundle;
                    }
                    continue;
                }
            };
            let piece = run.first.payload.map_or(0, |range| range.len as usize);
            let payload = run.payload().and_then(|range| self.buffers.outgoing(&range)).unwrap_or_default();
            let (first, rest) = payload.split_at(piece.min(payload.len()));
            let (others, later) = headers.split_at(run.packets() as usize - 1);
            headers = later;
            let others = others.iter().zip(rest.chunks(piece.max(1)));
            for ((header, payload), place) in once((&run.first.header, first)).chain(others).zip(&mut places)
            {
                *place = tx_packet(&run.first, header, payload);
            }
        }
        let left = places.len();
        self.driver.send(&table[..N - left])
    }

    /// Notes that the packet path has failed. Its callers see this as calls that time out.
    fn note_broken(&mut self, what: &'static str, error: &std::io::Error) {
        if self.counts.driver_failures == 0 {
            tracing::error!(%error, "the packet path failed to {what}: calls will time out");
        }
        self.counts.driver_failures += 1;
    }

    /// Handles the endpoint's events; returns whether there were any.
    fn dispatch(&mut self, now: Time) -> bool {
        let mut any = false;
        let mut told_at = None;
        while let Some(event) = self.endpoint.poll_event() {
            any = true;
            match event {
                Event::Request { rpc, peer, port, .. } => self.queue_request(now, rpc, peer, port),
                Event::Response { rpc, cookie, length, .. } => {
                    self.time_call(&mut told_at, cookie as usize, length);
                    let response = self.buffers.take_incoming(rpc);
                    self.buffers.release(rpc);
                    self.judge_call(told_at.unwrap_or(now), cookie as usize);
                    self.finish_call(cookie as usize, Ok(response));
                }
                Event::Failed { rpc, cookie, error, .. } => {
                    self.buffers.release(rpc);
                    let call = cookie as usize;
                    self.judge_call(now, call);
                    if let Some(to) = self.calls.get(call).map(|call| call.to) {
                        self.finish_call(call, Err(CallError::from_rpc(to, error)));
                    }
                }
                Event::Readable { rpc, end, length } => {
                    let Some(call) = self.buffers.call_of(rpc) else {
                        self.request_grew(rpc, end);
                        continue;
                    };
                    if let Some(CallOwner::CallTicket(ticket)) =
                        self.calls.get_mut(call).map(|call| &mut call.owner)
                    {
                        ticket.readable_end = end;
                        ticket.length = length;
                        self.waiting.note_ready(WaitTarget::Call(call));
                    }
                }
                Event::Done { rpc, reason } => self.end_request(now, rpc, reason),
                Event::Freeze { .. } => self.obey_freeze(),
            }
        }
        any
    }

    /// Records the duration of a call whose response is whole. The clock is read once for all responses of a
    /// round.
    fn time_call(&mut self, told_at: &mut Option<Time>, call: usize, response_bytes: u32) {
        let Some(clock) = self.clock else { return };
        let Some(call) = self.calls.get(call) else { return };
        let now = told_at.get_or_insert_with(|| self.just_now.unwrap_or_else(|| clock.now()));
        let bytes = call.request_bytes.max(response_bytes) as usize;
        self.call_times.record(bytes, now.since(call.started));
    }
}

fn tx_packet<'a>(first: &Transmit, header: &'a [u8], payload: &'a [u8]) -> TxPacket<'a> {
    TxPacket { to: first.to, priority: first.priority, header, payload }
}

#[cfg(test)]
pub(crate) mod tests {
    use bytes::Bytes;
    use homa_driver::udp::{UdpConfig, UdpDriver};
    use homa_proto::wire::{Common, Data, Incarnation};
    use homa_proto::{Config, Endpoint, MS, SEC};
    use homa_trace::{MonotonicClock, Trace};

    use super::*;
    use crate::api::address::ServerAddr;
    use crate::runtime::clock::HostClock;
    use crate::runtime::engine::{CallTicket, Limits};

    /// An endpoint over loopback whose time the test controls.
    pub(crate) fn engine() -> Engine {
        let bind = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let driver = UdpDriver::bind(&UdpConfig { bind, ..UdpConfig::default() }).unwrap();
        let config = Config { incarnation: 1, ..Config::default() };
        let endpoint = Endpoint::new(config, Trace::off()).unwrap();
        Engine::new(endpoint, Box::new(driver), Limits { completions: 100, queued_request_bytes: 100 })
    }

    #[test]
    fn a_server_port_that_was_closed_a_moment_ago_is_opened_again() {
        let mut engine = engine();
        for _ in 0..2 {
            let server = engine.open_server(Time::ZERO, 99, None).unwrap().unwrap();
            assert!(engine.endpoint.accepts_requests(99));
            engine.close_server(Time::ZERO, server);
            assert!(!engine.endpoint.accepts_requests(99));
        }
    }

    /// The first bytes of a request with this RPC id for port 99.
    fn half_a_request(id: u64) -> Vec<u8> {
        let common = Common {
            source_port: 40_000,
            dest_port: 99,
            sender_id: id,
            incarnation: Incarnation::NONE,
            bundle_endpoints: 0,
        };
        let data = Data {
            message_length: 1_000,
            incoming: 1_000,
            ack: None,
            cutoff_version: 0,
            retransmit: false,
            offset: 0,
            response_limit: None,
        };
        let mut packet = wire::encode(&common, &Body::Data(data)).as_slice().to_vec();
        packet.push(0);
        packet
    }

    /// This once drove until all were gone, while every other thread of the host waited for the lock.
    #[test]
    fn opening_a_port_with_old_requests_gives_the_lock_back_between_rounds() {
        let mut engine = engine();
        let server = engine.open_server(Time::ZERO, 99, None).unwrap().unwrap();
        let from = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        for id in 1..=100 {
            let packet = half_a_request(2 * id);
            engine.endpoint.handle_packets(Time::ZERO, [RxPacket::new(from, &packet)], &mut engine.buffers);
        }
        engine.close_server(Time::ZERO, server);
        let each = engine.endpoint.config().reap_limit as usize;
        for turn in 1.. {
            let opened = engine.open_server(Time::ZERO, 99, None).unwrap();
            assert!(engine.endpoint.open_rpcs() + turn * each >= 100, "one bounded round a turn");
            if opened.is_some() {
                break;
            }
        }
        assert_eq!(engine.endpoint.open_rpcs(), 0);
        assert!(engine.endpoint.accepts_requests(99));
    }

    #[test]
    fn a_host_that_was_away_reads_what_came_before_it_asks_again() {
        let (mut client, mut server) = (engine(), engine());
        let to = ServerAddr { host: server.driver.local_addr(), port: 99 };
        let port = client.open_client(Time::ZERO, None).unwrap();
        for _ in 0..20 {
            let owner = CallOwner::CallTicket(CallTicket::default());
            assert!(client.start_call(Time::ZERO, port, to, Bytes::from_static(b"?"), owner, 0).is_ok());
            client.flush(Time::ZERO);
            // No process has the port, and that answer serves the test as well as any.
            assert!(server.drive(Time::ZERO));
        }
        let late = Time::from_ns(20 * MS);
        while client.drive(late) {}
        assert_eq!(client.endpoint.stats().unknowns_received, 20);
        assert_eq!(client.endpoint.stats().resends_sent, 0);
    }

    #[test]
    fn what_has_come_is_no_older_than_the_look_that_found_it() {
        let (mut client, mut server) = (engine(), engine());
        // The clock counts from before this test, whose own times are simulated.
        const BEFORE_NS: u64 = 5 * SEC;
        let zero_ns = MonotonicClock::new().now().ns.saturating_sub(BEFORE_NS);
        server.clock = Some(HostClock::new(zero_ns, None));
        let to = ServerAddr { host: server.driver.local_addr(), port: 99 };
        let port = client.open_client(Time::ZERO, None).unwrap();
        assert!(!server.drive(Time::ZERO));
        assert_eq!(server.last_activity, Time::ZERO);
        let owner = CallOwner::CallTicket(CallTicket::default());
        assert!(client.start_call(Time::ZERO, port, to, Bytes::from_static(b"?"), owner, 0).is_ok());
        client.flush(Time::ZERO);
        assert!(server.drive(Time::ZERO));
        assert!(server.last_activity > Time::ZERO, "{:?}", server.last_activity);
        // A caller with a later time than the clock's keeps its own.
        assert_eq!(server.note_burst_in(1, Time::NEVER), Time::NEVER);
    }

    #[test]
    fn what_is_due_waits_for_packets_once_and_longer_only_where_it_is_late() {
        let rounds = |late_ns| most_put_off(late_ns, BURST_PACKETS as u32);
        assert_eq!([0, LEAST_TICK_NS - 1, LEAST_TICK_NS].map(rounds), [1, 1, 32]);
        assert_eq!(most_put_off(LEAST_TICK_NS, 1), LATE_PACKETS, "as many packets, whatever a round takes");
    }
}
