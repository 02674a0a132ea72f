//! Passes requests to threads that wait at other endpoints of the host.

use std::sync::Arc;

use homa_proto::Time;

use super::{Engine, Phase};
use crate::runtime::wait_target::WaitTarget;
use crate::runtime::waiters::Wakeup;
use crate::tenancy::endpoint_group::exchange::{ExchangeOffer, RequestExchange, WaitOutcome};
use crate::types::error::RecvError;

/// One in this many times, a thread checks other endpoints before its own, so that their requests do not wait
/// forever while its own endpoint is busy. The number is not smaller because each such check takes the lock
/// of another endpoint.
const LOOK_ELSEWHERE: u32 = 8;

impl Engine {
    fn offers(&self, on: WaitTarget) -> Option<&ExchangeOffer> {
        match on {
            WaitTarget::Requests(server) => Some(&self.requests.ports.get(server)?.offers),
            WaitTarget::Socket(socket) => Some(&self.sockets.open.get(socket)?.offers),
            _ => None,
        }
    }

    fn offers_mut(&mut self, on: WaitTarget) -> Option<&mut ExchangeOffer> {
        match on {
            WaitTarget::Requests(server) => Some(&mut self.requests.ports.get_mut(server)?.offers),
            WaitTarget::Socket(socket) => Some(&mut self.sockets.open.get_mut(socket)?.offers),
            _ => None,
        }
    }

    fn exchange(&self, on: WaitTarget) -> Option<&Arc<RequestExchange>> {
        self.offers(on)?.exchange.as_ref()
    }

    /// Offers items at this endpoint to other endpoints: the items that are already here, and all that arrive
    /// later.
    pub(crate) fn set_exchange(&mut self, on: WaitTarget, exchange: Arc<RequestExchange>) {
        let Some(offers) = self.offers_mut(on) else { return };
        offers.exchange = Some(exchange);
        if self.has_item(on) {
            self.offer(on);
        }
    }

    /// Looks for an item at this endpoint, which is the caller's own, by calling `take`. Also checks whether
    /// other endpoints have items.
    pub(crate) fn find<T>(
        &mut self,
        (on, exchange): (WaitTarget, Option<&Arc<RequestExchange>>),
        take: impl FnOnce(&mut Engine) -> Option<Result<T, RecvError>>,
    ) -> Option<WaitOutcome<T>> {
        let Some(exchange) = exchange else { return take(self).map(WaitOutcome::Here) };
        if self.phase != Phase::Open {
            return Some(WaitOutcome::Here(Err(RecvError::Closed)));
        }
        let index = self.tenancy.group.as_ref().map_or(0, |member| member.index);
        let offers = self.offers_mut(on)?;
        let marked = exchange.announce_waiter(index, &mut offers.woken_for_help);
        offers.takes = offers.takes.wrapping_add(u32::from(marked != 0));
        if marked != 0 && offers.takes.is_multiple_of(LOOK_ELSEWHERE) {
            // The caller may have been woken for an item at this endpoint.
            self.waiting.taken = Some(on);
            return Some(WaitOutcome::Elsewhere(marked));
        }
        if let Some(taken) = take(self) {
            if self.waiting.help_handover.is_deferred()
                && let Some(clock) = self.tracing.clock
            {
                self.waiting.help_handover.ended(clock.now());
            }
            self.waiting.taken = Some(on);
            return Some(WaitOutcome::Here(taken));
        }
        (marked != 0).then_some(WaitOutcome::Elsewhere(marked))
    }

    /// Answers another endpoint's call for help by waking one thread or task that waits for this target here.
    /// Returns whether there was one.
    pub(crate) fn answer_call(&mut self, on: WaitTarget) -> bool {
        let found = self.wake_one(on);
        if let Some(offers) = self.offers_mut(on).filter(|_| found) {
            offers.woken_for_help = true;
        }
        found
    }

    /// Ends the call for help that woke a waiter here, if any, because the woken waiter will not check for
    /// items.
    pub(crate) fn end_call(&mut self, on: WaitTarget) {
        let Some(ExchangeOffer { exchange: Some(exchange), woken_for_help, .. }) = self.offers_mut(on) else {
            return;
        };
        exchange.end_call(woken_for_help);
    }

    /// Marks this endpoint as having requests for any waiter, and calls for help if a waiter may exist.
    pub(crate) fn offer(&mut self, on: WaitTarget) {
        let (Some(exchange), Some(member)) = (self.exchange(on), &self.tenancy.group) else { return };
        let (exchange, index) = (Arc::clone(exchange), member.index);
        exchange.mark(index);
        self.call_when_due(exchange, index);
    }

    /// Calls for help now, or later if no thread has arrived by then.
    fn call_when_due(&mut self, exchange: Arc<RequestExchange>, index: usize) {
        if !exchange.needs_help() {
            return;
        }
        if self.progress_can_watch() && self.waiting.help_handover.may_defer(self.driving.last_driven) {
            self.progress_must_watch();
            return;
        }
        self.counts.host.help_calls += 1;
        self.waiting.wakes.push(Wakeup::Help(exchange, index));
    }

    /// Calls for help for requests that no thread has taken; returns whether there are any. The progress
    /// thread calls this once per tick.
    pub(crate) fn call_late(&mut self, now: Time) -> bool {
        let Some(member) = &self.tenancy.group else { return false };
        let index = member.index;
        let mut any = false;
        let servers =
            self.requests.ports.iter().map(|(server, port)| (WaitTarget::Requests(server), &port.offers));
        let sockets =
            self.sockets.open.iter().map(|(socket, state)| (WaitTarget::Socket(socket), &state.offers));
        for (on, offers) in servers.chain(sockets) {
            let Some(exchange) = &offers.exchange else { continue };
            if !self.has_item(on) || self.waiting.is_expected(on) {
                continue;
            }
            any = true;
            exchange.mark(index);
            if exchange.needs_help() {
                // A thread that takes the request from now on is late.
                self.waiting.help_handover.ended(now);
                self.counts.host.help_calls += 1;
                self.waiting.wakes.push(Wakeup::Help(Arc::clone(exchange), index));
            }
        }
        any
    }

    /// Wakes another thread if other endpoints have pending requests, or if this endpoint has more requests
    /// than the threads that are already woken will take. Called after a request was taken.
    pub(crate) fn pass_on(&mut self, on: WaitTarget) {
        let (Some(member), Some(exchange)) = (&self.tenancy.group, self.exchange(on).cloned()) else {
            return;
        };
        let index = member.index;
        if !self.has_item(on) {
            exchange.unmark(index);
        } else if !self.waiting.is_expected(on) {
            exchange.mark(index);
        }
        self.call_when_due(exchange, index);
    }
}
