//! The engine's records in the time trace: see [`stages`](crate::observe::stages).

use homa_proto::{RpcKey, Time};
use homa_trace::{EventKind, Place};

use super::Engine;
use crate::observe::stages::{Message, NOT_RUNNING_NS, TraceKey, WAKE_FOR_MESSAGE, described_packets};
use crate::runtime::wait_target::WaitTarget;

impl Engine {
    /// Returns the trace identity of an open RPC.
    pub(crate) fn traced(&self, rpc: RpcKey) -> TraceKey {
        let (id, peer) = self.endpoint.traced(rpc).unwrap_or_default();
        TraceKey { id, peer }
    }

    /// Records that the application started a call with a request of `length` bytes at time `at`.
    pub(crate) fn note_call(&mut self, at: u64, call: usize, length: usize) {
        let TraceKey { id, peer } = self.calls.open[call].traced;
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let trace = self.endpoint.trace();
        let place = trace.place(peer, 0);
        trace.record_stamped(at, EventKind::AppSend, id, Message::Request as u32, length, place);
    }

    /// Records that the application answered with `length` bytes at time `at`.
    pub(crate) fn note_answer(&mut self, at: u64, rpc: RpcKey, length: usize) {
        if !self.endpoint.trace().is_recording() {
            return;
        }
        let TraceKey { id, peer } = self.traced(rpc);
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let trace = self.endpoint.trace();
        let place = trace.place(peer, 0);
        trace.record_stamped(at, EventKind::AppSend, id, Message::Response as u32, length, place);
    }

    /// Records that the application takes a message.
    pub(crate) fn note_app_receive(&mut self, traced: TraceKey, message: Message, length: usize) {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let trace = self.endpoint.trace();
        trace.record_with(EventKind::AppReceive, traced.id, message as u32, length, traced.peer, 0);
    }

    /// Records that a burst is about to be given to the driver.
    pub(crate) fn note_burst_out(&mut self, packets: usize, bytes: u32) {
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        self.endpoint.trace().record(EventKind::BurstOut, 0, packets, bytes);
    }

    /// Records that the driver took `taken` packets of the burst. If the driver has no more room, the message
    /// at the head of the rest waits for room.
    pub(crate) fn note_burst_taken(&mut self, taken: usize) {
        if !self.endpoint.trace().is_recording() {
            return;
        }
        self.tracing.just_now = self.read_clock();
        self.endpoint.trace().record(EventKind::BurstTaken, 0, u32::try_from(taken).unwrap_or(u32::MAX), 0);
        if let Some(run) = self.sending.unsent.first() {
            let traced = run.first.payload.map_or(TraceKey::default(), |range| self.traced(range.rpc));
            let priority = run.first.priority;
            let wanted = self.sending.unsent.iter().map(homa_proto::TransmitRun::bytes).sum();
            let trace = self.endpoint.trace();
            let place = trace.place(traced.peer, priority);
            trace.record_again(EventKind::WaitBuffer, traced.id, wanted, 0, place);
        }
        // The next burst is handed over after this time. This time therefore separates the two bursts.
        self.endpoint.trace().begin_stage();
    }

    /// Records that the driver was polled at `now`, and returned `datagrams` datagrams. Returns the time
    /// afterwards: packets may have arrived during the poll, and for them `now` would be wrong by a tenth of
    /// a short round trip.
    pub(crate) fn note_burst_in(&mut self, datagrams: usize, now: Time) -> Time {
        if datagrams == 0 {
            self.receiving.empty_polls = self.receiving.empty_polls.saturating_add(1);
            return now;
        }
        let empty = std::mem::take(&mut self.receiving.empty_polls);
        let since = self.read_clock().unwrap_or(now);
        self.endpoint.trace().record(EventKind::BurstIn, 0, datagrams as u32, empty);
        since.max(now)
    }

    /// Records that the packets of the received burst have been processed.
    pub(crate) fn note_burst_processed(&mut self, packets: u64) {
        if self.endpoint.trace().is_recording() {
            self.tracing.just_now = self.read_clock();
            self.endpoint.trace().record(EventKind::BurstProcessed, 0, packets as u32, 0);
        }
    }

    /// Reads the clock and begins a stage of the trace; `None` if time is simulated.
    fn read_clock(&mut self) -> Option<Time> {
        let (at, now) = self.tracing.clock?.read_both();
        self.endpoint.trace().begin_stage_at(at);
        Some(now)
    }

    /// Records when the kernel received the packets of the burst from the device, if it reports this.
    pub(crate) fn note_device_times(&mut self) {
        let Some(clock) = self.tracing.device_clock.filter(|_| self.endpoint.trace().is_recording()) else {
            return;
        };
        let real_time = clock.beside_real_time();
        let in_place = self.buffers.payload_in_place();
        for (index, (_, bytes)) in self.receiving.burst.iter().enumerate() {
            let Some(at) = self.receiving.burst.received_at(index) else { continue };
            let priority = Place::priority_received(self.receiving.burst.priority(index));
            let trace = self.endpoint.trace();
            let (at, place) = (real_time.ticks(at), trace.place(0, priority));
            for (sender_id, word, offset) in described_packets(bytes, bytes.len() + in_place) {
                trace.record_stamped(at, EventKind::DeviceReceived, sender_id ^ 1, word, offset, place);
            }
        }
    }

    /// Records when the kernel handed packets to the device, as far as it has reported this.
    pub(crate) fn note_device_sent(&mut self) {
        let Some(clock) = self.tracing.device_clock else { return };
        let mut real_time = None;
        while let Some(sent) = self.driver.poll_sent() {
            let real_time = real_time.get_or_insert_with(|| clock.beside_real_time());
            let trace = self.endpoint.trace();
            let (at, place) = (real_time.ticks(sent.at_ns), trace.place(0, sent.priority));
            for (id, word, offset) in described_packets(&sent.header, sent.len) {
                trace.record_stamped(at, EventKind::DeviceSent, id, word, offset, place);
            }
        }
    }

    /// Records that a thread or task is woken for this target.
    pub(crate) fn note_wake(&mut self, on: WaitTarget, why: u32) {
        if !self.endpoint.trace().is_recording() {
            return;
        }
        let TraceKey { id, peer } =
            if why == WAKE_FOR_MESSAGE { self.traced_item(on) } else { TraceKey::default() };
        self.endpoint.trace().record_with(EventKind::WakeSent, id, why, 0, peer, 0);
    }

    /// Returns the trace identity of the message for which a waiter on this target is woken.
    fn traced_item(&self, on: WaitTarget) -> TraceKey {
        let found = match on {
            WaitTarget::Call(call) => self.calls.open.get(call).map(|call| call.traced),
            WaitTarget::Reading(index) => {
                self.requests.readings.get(index).map(|reading| self.traced(reading.rpc))
            }
            WaitTarget::Completions(client) => self
                .calls
                .clients
                .get(client)
                .and_then(|client| client.completions.back())
                .map(|done| done.traced),
            WaitTarget::Requests(server) => {
                let queue = self.requests.ports.get(server).map(|server| &server.queue);
                queue.and_then(|queue| queue.back()).map(|queued| self.traced(queued.rpc))
            }
            WaitTarget::Socket(_) | WaitTarget::Drained | WaitTarget::Descriptor => None,
        };
        found.unwrap_or_default()
    }

    /// Records that the calling thread goes to sleep.
    pub(crate) fn note_asleep(&mut self) {
        self.endpoint.trace().begin_stage();
        self.endpoint.trace().record(EventKind::Asleep, 0, 0, 0);
    }

    /// Records that the calling thread, asleep since `since`, ran again at `now`, which is `at` on the
    /// trace's clock. `called` means that another thread woke it.
    pub(crate) fn note_woken(&mut self, at: u64, (since, now): (Time, Time), called: bool) {
        let asleep_us = u32::try_from(now.since(since) / 1_000).unwrap_or(u32::MAX);
        let trace = self.endpoint.trace();
        let place = trace.place(0, 0);
        trace.record_stamped(at, EventKind::Woken, 0, u32::from(!called), asleep_us, place);
    }

    /// Records that the calling thread should have run at `due` but ran at `now`. A delay within the bound is
    /// not recorded.
    pub(crate) fn note_not_running(&mut self, due: Time, now: Time) {
        let away = now.since(due);
        if away >= NOT_RUNNING_NS {
            let away = u32::try_from(away).unwrap_or(u32::MAX);
            self.endpoint.trace().record(EventKind::NotRunning, 0, away, 0);
        }
    }

    /// Like [`Engine::note_not_running`], for a thread whose last round began at `began`. If that round did
    /// work, which may itself take long, the last record of the round is at `worked_until` on the trace's
    /// clock. Every round calls this function, so it normally reads no clock.
    #[inline]
    pub(crate) fn note_not_running_since(&mut self, (began, worked_until): (Time, Option<u64>), now: Time) {
        let mut away = now.since(began);
        if away < NOT_RUNNING_NS {
            return;
        }
        if let (Some(until), Some(ticks)) = (worked_until, self.endpoint.trace().ticks()) {
            away = away.min(ticks.rate_so_far().ns(ticks.now().saturating_sub(until)));
        }
        self.note_not_running(Time::from_ns(now.as_ns() - away), now);
    }
}
