//! The rounds of the progress thread, and how other threads control it.

use homa_proto::Time;

use super::Engine;
use crate::runtime::progress::{Progress, ProgressState};
use crate::runtime::waiters::Wakeup;

impl Engine {
    /// Makes the progress thread check the network one tick from now. It is also notified if another thread
    /// has driven while it slept on the descriptor, since it then does not know which timers are due.
    pub(crate) fn progress_must_watch(&mut self) {
        let outdated = matches!(self.driving.progress.state, ProgressState::Driving { .. })
            && !self.progress_drives_now();
        if self.driving.progress.state == ProgressState::Parked || outdated {
            self.notify_progress();
        }
    }

    /// Makes the progress thread leave the driver alone, since another thread leads.
    pub(crate) fn progress_must_not_drive(&mut self) {
        if matches!(self.driving.progress.state, ProgressState::Driving { .. }) {
            self.notify_progress();
        }
    }

    /// Returns whether a thread drives, and therefore notifies waiters outside this engine of new items.
    pub(crate) fn is_attended(&self) -> bool {
        self.waiting.has_leader() || self.progress_drives_now()
    }

    /// Returns whether the progress thread drives, and no other thread has driven since its last round.
    pub(crate) fn progress_drives_now(&self) -> bool {
        matches!(self.driving.progress.state, ProgressState::Driving { .. })
            && self.driving.last_driven == self.driving.progress.drove_at
    }

    /// Returns whether the progress thread would check the network within a tick of being notified.
    pub(crate) fn progress_can_watch(&self) -> bool {
        matches!(self.driving.progress.state, ProgressState::Parked | ProgressState::Watching)
    }

    pub(crate) fn notify_progress(&mut self) {
        if !self.driving.progress.notified && self.driving.progress.state != ProgressState::Absent {
            self.driving.progress.notified = true;
            self.waiting.wakes.push(Wakeup::Progress);
        }
    }

    /// Records that the progress thread exists; `false` if it already did.
    pub(crate) fn start_progress(&mut self) -> bool {
        let start = self.driving.progress.state == ProgressState::Absent;
        if start {
            self.driving.progress.state = ProgressState::Watching;
        }
        start
    }

    /// Does the work that is due now, and decides how to sleep: until when, and whether on the driver's
    /// descriptor.
    pub(crate) fn progress_round(
        &mut self,
        now: Time,
        descriptor_ready: bool,
        demanded: bool,
    ) -> (Option<Time>, bool) {
        self.driving.progress.notified = false;
        let active = now.since(self.driving.last_activity) < Progress::WATCH_NS;
        let tick_ns = self.driving.progress.tick_ns;
        let neglected = now.since(self.driving.last_driven) >= tick_ns;
        let led = self.waiting.has_leader();
        let cared_for = led || self.driving.async_driver.is_running();
        // If other threads have driven since this thread slept on the descriptor, their packets must not keep
        // waking this thread.
        let goes_on = self.progress_drives_now();
        let unserved = self.call_late(now);
        let alone = !cared_for && (neglected || goes_on || demanded);
        if alone && !self.hand_over_late(now) {
            return self.progress_drives(now);
        }
        // A leader sleeps until the time that was due when it fell asleep, and an async task may not get to
        // run. Also, if this thread slept on the mailbox as well, only this thread may have consumed the
        // notification of the `wake_fd`.
        let due = self.next_wake(now).is_some_and(|due| due <= now);
        // Packets that wait for room to be sent are not due, and possibly only this thread can notice when
        // there is room.
        let overdue = due || self.has_urgent_mail() || self.is_blocked();
        let asleep = self.waiting.leader_sleeps_until().is_some();
        if (asleep && overdue) || (!led && neglected && (overdue || descriptor_ready)) {
            self.driving.progress.takeovers += 1;
            for _ in 0..Progress::ROUNDS {
                if !self.drive(now) {
                    break;
                }
            }
            self.wake_waiters();
        }
        // Mail for other threads would immediately end a sleep on the mailbox.
        if active || unserved || !cared_for || self.has_urgent_mail() {
            self.driving.progress.state = ProgressState::Watching;
            // Check one tick after the last round, but at most eight times per tick.
            let next = (self.driving.last_driven + tick_ns).max(now + tick_ns / 8);
            return (Some(next), false);
        }
        self.driving.progress.state = ProgressState::Parked;
        let due = self.next_wake(now).map(|due| due.max(now) + tick_ns);
        // No event tells this thread that an async runtime is busy, so the first packet must wake this
        // thread, too.
        (due, !led)
    }

    /// Returns whether processors should be kept out of deep sleep. The progress thread opens and closes the
    /// device for this, since opening it takes longer than an RPC. The first RPCs after a pause may therefore
    /// find the processors in deep sleep.
    pub(crate) fn wants_low_latency(&self, now: Time) -> bool {
        let active =
            now.since(self.driving.last_activity) < Progress::WATCH_NS || self.endpoint.open_rpcs() > 0;
        self.driving.avoids_deep_sleep && active
    }

    /// Drives the network for one round.
    fn progress_drives(&mut self, now: Time) -> (Option<Time>, bool) {
        if !matches!(self.driving.progress.state, ProgressState::Driving { .. }) {
            self.driving.progress.takeovers += 1;
        }
        let busy = self.drive(now);
        self.driving.progress.drove_at = now;
        self.wake_waiters();
        let until = if busy { now } else { self.next_wake(now).unwrap_or(Time::NEVER) };
        self.driving.progress.state = ProgressState::Driving { until };
        (Some(until), true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use homa_proto::{MS, RxPacket, Unreachable};

    use super::*;
    use crate::runtime::engine::testing::engine;
    use crate::runtime::wait_target::WaitTarget;
    use crate::runtime::waiters::Waiters;
    use crate::tenancy::endpoint_group::mailbox::MailKind;
    use crate::tenancy::endpoint_group::{EndpointGroup, GroupMember};

    /// If two threads sleep on a mailbox, both are woken, but possibly only one of them finds its `wake_fd`
    /// set.
    #[test]
    fn urgent_mail_is_taken_although_a_leader_sleeps() {
        let mut engine = engine();
        let group = Arc::new(EndpointGroup::new(2).unwrap());
        engine.tenancy.group = Some(GroupMember::new(Arc::clone(&group), 1));
        engine.waiting = Waiters::with_sleeping_leader(WaitTarget::Drained);
        assert!(engine.start_progress());
        let now = Time::ZERO;
        engine.progress_round(now, false, false);
        let report = RxPacket::new("127.0.0.1:1".parse().unwrap(), &[]);
        group
            .mailbox(1)
            .post(true, |mail| mail.push(MailKind::Unreachable(Unreachable::Peer { rpc_id: None }), &report));
        assert!(engine.has_urgent_mail());
        engine.progress_round(now, false, false);
        assert!(!engine.has_urgent_mail());
    }

    /// A leader that polls and leaves may set timers that are unknown to a thread that was asleep the whole
    /// time.
    #[test]
    fn a_progress_thread_on_the_descriptor_is_notified_when_others_have_driven() {
        for leads_between in [false, true] {
            let mut engine = engine();
            assert!(engine.start_progress());
            let (slept, left) = (Time::from_ns(10 * MS), Time::from_ns(11 * MS));
            engine.progress_drives(slept);
            assert!(engine.progress_drives_now());
            if leads_between {
                engine.leave(left);
            } else {
                engine.progress_must_watch();
            }
            let notified = engine.waiting.wakes.iter().any(|wake| matches!(wake, Wakeup::Progress));
            assert_eq!(notified, leads_between);
        }
    }
}
