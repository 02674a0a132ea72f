//! Handles the endpoint's events, each of which concerns a call or a request.

use homa_proto::{Event, Time};

use super::Engine;
use crate::runtime::calls::CallOwner;
use crate::runtime::wait_target::WaitTarget;
use crate::types::error::CallError;

impl Engine {
    /// Handles the endpoint's events; returns whether there were any.
    pub(super) fn dispatch(&mut self, now: Time) -> bool {
        let mut any = false;
        let mut read_at = None;
        while let Some(event) = self.endpoint.poll_event() {
            any = true;
            match event {
                Event::Request { rpc, peer, port, .. } => self.queue_request(now, rpc, peer, port),
                Event::Response { rpc, cookie, length, .. } => {
                    self.time_call(&mut read_at, cookie as usize, length);
                    let response = self.buffers.take_incoming(rpc);
                    self.buffers.release(rpc);
                    self.check_call_time(read_at.unwrap_or(now), cookie as usize);
                    self.finish_call(cookie as usize, Ok(response));
                }
                Event::Failed { rpc, cookie, error, .. } => {
                    self.buffers.release(rpc);
                    let call = cookie as usize;
                    self.check_call_time(now, call);
                    if let Some(to) = self.calls.open.get(call).map(|call| call.to) {
                        self.finish_call(call, Err(CallError::from_rpc(to, error)));
                    }
                }
                Event::Readable { rpc, end, length } => {
                    let Some(call) = self.buffers.call_of(rpc) else {
                        self.on_request_growth(rpc, end);
                        continue;
                    };
                    if let Some(CallOwner::CallTicket(ticket)) =
                        self.calls.open.get_mut(call).map(|call| &mut call.owner)
                    {
                        ticket.readable_end = end;
                        ticket.length = length;
                        self.waiting.note_ready(WaitTarget::Call(call));
                    }
                }
                Event::Done { rpc, reason } => self.end_request(now, rpc, reason),
                Event::Freeze { .. } => self.accept_freeze(),
            }
        }
        any
    }

    /// Records the duration of a call whose response has arrived completely. The clock is read once for all
    /// responses of a round.
    fn time_call(&mut self, read_at: &mut Option<Time>, call: usize, response_bytes: u32) {
        let Some(clock) = self.tracing.clock else { return };
        let Some(call) = self.calls.open.get(call) else { return };
        let now = read_at.get_or_insert_with(|| self.tracing.just_now.unwrap_or_else(|| clock.now()));
        let bytes = call.request_bytes.max(response_bytes) as usize;
        self.counts.call_times.record(bytes, now.since(call.started));
    }
}
