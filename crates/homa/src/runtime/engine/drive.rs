//! One drive round: receive packets, run timers, send packets, handle events.

use homa_driver::BURST_PACKETS;
use homa_proto::Time;

use super::{Engine, Phase};
use crate::runtime::progress::MIN_TICK_NS;
use crate::runtime::waiters::Wakeup;
use crate::tenancy::host_lease::HostLease;
use crate::tenancy::processes::ProcessMember;

/// Maximum number of packets that are read before late timers are processed.
const LATE_PACKETS: u32 = 32 * BURST_PACKETS as u32;

/// Returns the maximum number of rounds for which due timers may be deferred in favour of received packets.
/// The timers are already late by `late_ns`, and a round receives at most `batch` packets.
fn max_timer_deferrals(late_ns: u64, batch: u32) -> u32 {
    if late_ns >= MIN_TICK_NS { LATE_PACKETS / batch.max(1) } else { 1 }
}

impl Engine {
    /// Does one drive round; returns whether there was anything to do. The caller must call
    /// [`Engine::wake_waiters`] after taking its own items.
    pub(crate) fn drive(&mut self, now: Time) -> bool {
        self.driving.last_driven = now;
        if self.phase == Phase::Closed {
            // This host no longer knows which packets belong to other processes, and must not answer any.
            return false;
        }
        self.counts.host.drive_rounds += 1;
        self.endpoint.trace().begin_stage();
        self.tick_processes(now);
        self.tick_lease(now);
        let (received, now) = self.receive(now);
        self.process_timers(now, received);
        self.publish_lease(now);
        if self.driver.poll_timeout() == Some(0) {
            // The driver was holding back packets that are now due.
            if let Err(error) = self.driver.send(&[]) {
                self.note_broken("send", &error);
            }
        }
        // Peers wait for the responses to received packets, so send these first. The application comes next.
        let sent = self.transmit_round(now);
        let mut had_events = self.dispatch(now);
        if self.expire_calls(now) {
            self.flush(now);
            had_events = true;
        }
        while let Some(waker) = self.waiting.timers.pop_due(now) {
            self.waiting.wakes.push(Wakeup::Task(waker));
        }
        let busy = received || sent || had_events;
        if busy {
            self.driving.last_activity = now;
            if self.driving.avoids_deep_sleep {
                // The progress thread keeps the processors awake.
                self.progress_must_watch();
            }
        }
        busy
    }

    /// Processes due timers of the endpoint. If the round `received` packets, the timers wait for the next
    /// round: the packets may contain a request, whose answer has priority. If the timers are late, no thread
    /// has driven since they were due, for example because the machine is overloaded. In that case, the
    /// packets that arrived in the meantime are read first: sending RESEND for packets that are already
    /// waiting here would waste processor time, which both sides lack. The delay is bounded by
    /// [`max_timer_deferrals`].
    fn process_timers(&mut self, now: Time, received: bool) {
        let Some(due) = self.endpoint.poll_timeout().filter(|&due| due <= now) else {
            self.receiving.timer_deferrals = 0;
            return;
        };
        if received
            && self.receiving.timer_deferrals
                < max_timer_deferrals(now.since(due), self.receiving.burst.cap().take(BURST_PACKETS as u32))
        {
            self.receiving.timer_deferrals += 1;
            return;
        }
        self.receiving.timer_deferrals = 0;
        self.endpoint.handle_timeout(now);
        self.fit_tables();
    }

    /// Does the work that is due before a sleep. It does not receive, since packets that are waiting end the
    /// sleep at once.
    pub(crate) fn finish_up(&mut self, now: Time) {
        self.process_timers(now, false);
        self.flush(now);
    }

    /// Sends everything that may be sent now and handles the resulting events, without receiving.
    pub(crate) fn flush(&mut self, now: Time) {
        self.transmit_round(now);
        self.dispatch(now);
    }

    /// Returns when a drive round is due even if no packet arrives.
    pub(crate) fn next_wake(&self, now: Time) -> Option<Time> {
        let driver = self.driver.poll_timeout().map(|wait_ns| now + wait_ns);
        let backlog = (self.sending.backlog && !self.is_blocked()).then_some(now);
        let processes = self.tenancy.processes.as_ref().map(ProcessMember::next_wake);
        let lease = self.tenancy.lease.as_ref().map(HostLease::next_wake);
        let earlier = |one: Option<Time>, other: Option<Time>| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        let deadline = self.sockets.deadlines.first().map(|(until, _)| *until);
        let timer = self.waiting.timers.first();
        [driver, backlog, processes, lease, deadline, timer]
            .into_iter()
            .fold(self.endpoint.poll_timeout(), earlier)
    }

    /// Records that the packet path has failed. To callers, this appears as calls that time out.
    pub(super) fn note_broken(&mut self, what: &'static str, error: &std::io::Error) {
        if self.counts.host.driver_failures == 0 {
            tracing::error!(%error, "the packet path failed to {what}: calls will time out");
        }
        self.counts.host.driver_failures += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use bytes::Bytes;
    use homa_proto::wire::{self, Body, Common, Data, Incarnation};
    use homa_proto::{MS, RxPacket, SEC};
    use homa_trace::MonotonicClock;

    use super::*;
    use crate::runtime::calls::{CallOwner, CallTicket};
    use crate::runtime::clock::HostClock;
    use crate::runtime::engine::testing::engine;
    use crate::types::address::ServerAddr;

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

    /// Returns the first bytes of a request with this RPC ID for port 99.
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

    /// The thread used to keep the lock and drive until all old requests were freed, while all other threads
    /// of the host waited for the lock.
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
    fn a_host_that_was_away_reads_waiting_packets_before_it_sends_resend() {
        let (mut client, mut server) = (engine(), engine());
        let to = ServerAddr { host: server.driver.local_addr(), port: 99 };
        let port = client.open_client(Time::ZERO, None).unwrap();
        for _ in 0..20 {
            let owner = CallOwner::CallTicket(CallTicket::default());
            assert!(client.start_call(Time::ZERO, port, to, Bytes::from_static(b"?"), owner, 0).is_ok());
            client.flush(Time::ZERO);
            // No process has the port. The answer that says so serves the test as well as any other.
            assert!(server.drive(Time::ZERO));
        }
        let late = Time::from_ns(20 * MS);
        while client.drive(late) {}
        assert_eq!(client.endpoint.stats().unknowns_received, 20);
        assert_eq!(client.endpoint.stats().resends_sent, 0);
    }

    #[test]
    fn packets_get_the_time_after_the_driver_returned_them() {
        let (mut client, mut server) = (engine(), engine());
        // The clock started before this test. The test's own times are simulated.
        const BEFORE_NS: u64 = 5 * SEC;
        let zero_ns = MonotonicClock::new().now().ns.saturating_sub(BEFORE_NS);
        server.tracing.clock = Some(HostClock::new(zero_ns, None));
        let to = ServerAddr { host: server.driver.local_addr(), port: 99 };
        let port = client.open_client(Time::ZERO, None).unwrap();
        assert!(!server.drive(Time::ZERO));
        assert_eq!(server.driving.last_activity, Time::ZERO);
        let owner = CallOwner::CallTicket(CallTicket::default());
        assert!(client.start_call(Time::ZERO, port, to, Bytes::from_static(b"?"), owner, 0).is_ok());
        client.flush(Time::ZERO);
        assert!(server.drive(Time::ZERO));
        assert!(server.driving.last_activity > Time::ZERO, "{:?}", server.driving.last_activity);
        // A caller whose time is later than the clock's keeps its own time.
        assert_eq!(server.note_burst_in(1, Time::NEVER), Time::NEVER);
    }

    #[test]
    fn due_timers_are_deferred_once_and_more_often_only_if_late() {
        let rounds = |late_ns| max_timer_deferrals(late_ns, BURST_PACKETS as u32);
        assert_eq!([0, MIN_TICK_NS - 1, MIN_TICK_NS].map(rounds), [1, 1, 32]);
        assert_eq!(
            max_timer_deferrals(MIN_TICK_NS, 1),
            LATE_PACKETS,
            "as many packets, whatever a round takes"
        );
    }
}
