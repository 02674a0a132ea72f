//! Wakes threads and tasks for items that became ready, to lead, and for work that is due.

use homa_proto::Time;

use super::Engine;
use crate::observe::stages::{WAKE_FOR_MESSAGE, WAKE_TO_LEAD};
use crate::runtime::wait_target::WaitTarget;
use crate::runtime::waiters::Wakeup;

impl Engine {
    /// Wakes one thread or task for each item that became ready.
    pub(crate) fn wake_waiters(&mut self) {
        if !self.waiting.rooms.is_empty() {
            self.wake_for_room();
        }
        while let Some(on) = self.waiting.ready.pop() {
            // The driving thread may have taken the item already.
            if !self.has_item(on) {
                continue;
            }
            if self.waiting.wake_follower(on, self.driving.last_driven) {
                self.note_wake(on, WAKE_FOR_MESSAGE);
            } else if self.waiting.leader == Some(on) {
                if self.waiting.notify_leader() {
                    self.note_wake(on, WAKE_FOR_MESSAGE);
                } else if self.has_more_than_threads_take(on) {
                    self.wake_task(on);
                }
            } else if !self.wake_task(on) || matches!(on, WaitTarget::Socket(_)) {
                // A socket's waker only reports readiness: the task that it wakes may wait elsewhere.
                self.offer(on);
            }
        }
    }

    /// Wakes the tasks that wait for outgoing messages to release memory, if enough has been released.
    fn wake_for_room(&mut self) {
        let bytes = self.buffers.outgoing_bytes();
        let woken = self.waiting.rooms.extract_if(.., |(below, _)| bytes < *below);
        self.waiting.wakes.extend(woken.map(|(_, waker)| Wakeup::Task(waker)));
    }

    /// Wakes a task that waits for this target; returns whether there was one.
    fn wake_task(&mut self, on: WaitTarget) -> bool {
        let Some(waker) = self.pop_task(on) else { return false };
        self.waiting.wakes.push(Wakeup::Task(waker));
        self.note_wake(on, WAKE_FOR_MESSAGE);
        true
    }

    /// Returns whether there are more items than threads that lead or have been woken to take them.
    fn has_more_than_threads_take(&self, on: WaitTarget) -> bool {
        let threads = self.waiting.leader.iter().chain(&self.waiting.woken_targets);
        self.items(on) > threads.filter(|thread| **thread == on).count()
    }

    /// Wakes one thread or task that waits for this target, so that it checks another endpoint; returns
    /// whether there was one.
    pub(crate) fn wake_one(&mut self, on: WaitTarget) -> bool {
        if self.waiting.wake_follower(on, self.driving.last_driven) {
            return true;
        }
        if self.waiting.leader == Some(on) {
            self.waiting.notify_leader();
            return true;
        }
        if matches!(on, WaitTarget::Socket(_)) {
            // A socket's waker reports items of this endpoint; no task waits on it.
            return false;
        }
        let task = self.pop_task(on);
        let found = task.is_some();
        self.waiting.wakes.extend(task.map(Wakeup::Task));
        found
    }

    /// Ensures that another thread drives now or soon. A thread calls this before it stops driving.
    pub(crate) fn leave(&mut self, now: Time) {
        self.wake_waiters();
        if let Some(on) = self.waiting.taken.take() {
            self.pass_on(on);
        }
        if self.waiting.leader.is_some() {
            self.notify_sleeping_leader(now);
            return;
        }
        self.driving.last_driven = now;
        if !self.waiting.woken_targets.is_empty() {
            return;
        }
        if self.waiting.followers.is_empty() || self.waiting.lead_handover.may_defer(now) {
            self.progress_must_watch();
        } else {
            self.hand_over();
        }
    }

    /// Wakes the first of the followers in the wake order, so that it leads.
    fn hand_over(&mut self) {
        let followers = self.waiting.followers.iter().enumerate();
        let first = self.waiting.wake_by.first(followers.map(|(at, follower)| (at, follower.core)));
        if let Some(at) = first {
            let on = self.waiting.wake(at, self.driving.last_driven);
            self.waiting.counts.handovers += 1;
            self.note_wake(on, WAKE_TO_LEAD);
        }
    }

    /// Hands over leadership if it was left vacant and no thread returned in time. Returns whether a thread
    /// has been woken to lead.
    pub(crate) fn hand_over_late(&mut self, now: Time) -> bool {
        if self.waiting.woken_targets.is_empty() && !self.waiting.followers.is_empty() {
            self.waiting.lead_handover.ended(now);
            self.hand_over();
        }
        !self.waiting.woken_targets.is_empty()
    }

    /// Sends what may be sent now. If `more` is true, the caller is about to send another message, and this
    /// one may be sent together with it.
    pub(crate) fn send_or_hold(&mut self, now: Time, more: bool) {
        if more {
            self.progress_must_watch();
            return;
        }
        self.flush(now);
        self.after_work(now);
    }

    /// Wakes sleeping threads if they would now sleep too long, or if there is no room to send packets and
    /// the sleeping threads do not watch for room. A thread calls this after sending packets without waiting.
    pub(crate) fn after_work(&mut self, now: Time) {
        self.driving.last_activity = now;
        self.wake_waiters();
        if self.waiting.leader_sleeps_until.is_none() && self.waiting.leader.is_some() {
            // The leader is awake and drives.
            return;
        }
        if self.notify_sleeping_leader(now) {
            return;
        }
        let due = self.next_wake(now);
        if let Some(until) = self.driving.async_driver.sleeps_until()
            && (self.is_blocked() || due.is_some_and(|due| due < until))
        {
            self.driving.async_driver.notify();
            self.waiting.wakes.push(Wakeup::AsyncDriver);
        }
        if self.waiting.woken_targets.is_empty() {
            self.progress_must_watch();
            if self.is_blocked() || due.is_some_and(|due| self.driving.progress.sleeps_beyond(due)) {
                self.notify_progress();
            }
        }
    }

    /// Ensures that a sleeping leader does not sleep too long; returns whether there is a sleeping leader.
    fn notify_sleeping_leader(&mut self, now: Time) -> bool {
        let Some(until) = self.waiting.leader_sleeps_until else { return false };
        let due = self.next_wake(now);
        if self.is_blocked()
            || due.is_some_and(|due| due < until && due < now + self.driving.progress.tick_ns)
        {
            if self.waiting.notify_leader() {
                self.note_wake(WaitTarget::Drained, WAKE_TO_LEAD);
            }
        } else if due.is_some_and(|due| due < until) {
            // This is not worth a wake-up: the progress thread checks once per tick.
            self.progress_must_watch();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use bytes::Bytes;

    use super::*;
    use crate::runtime::calls::{CallOwner, CallTicket};
    use crate::runtime::engine::testing::engine;
    use crate::runtime::waiters::Waiters;
    use crate::types::address::ServerAddr;

    /// The leader takes one of the requests, which arrive while it sleeps or before it checks the queue.
    #[test]
    fn a_task_is_woken_for_each_request_that_the_leader_leaves() {
        for (requests, tasks_woken) in [(1, 0), (2, 1), (3, 2)] {
            let (mut client, mut engine) = (engine(), engine());
            let server = engine.open_server(Time::ZERO, 99, None).unwrap().unwrap();
            let on = WaitTarget::Requests(server);
            engine.waiting = Waiters::with_sleeping_leader(on);
            for _ in 0..3 {
                engine.requests.ports[server].tasks.register(None, Waker::noop().clone());
            }
            let to = ServerAddr { host: engine.driver.local_addr(), port: 99 };
            let port = client.open_client(Time::ZERO, None).unwrap();
            for come in 1..=requests {
                let owner = CallOwner::CallTicket(CallTicket::default());
                client.start_call(Time::ZERO, port, to, Bytes::from_static(b"?"), owner, 0).unwrap();
                client.flush(Time::ZERO);
                while engine.items(on) < come {
                    engine.drive(Time::ZERO);
                }
            }
            engine.wake_waiters();
            let woken = |is: fn(&Wakeup) -> bool| engine.waiting.wakes.iter().filter(|wake| is(wake)).count();
            let leader = woken(|wake| matches!(wake, Wakeup::Leader));
            let tasks = woken(|wake| matches!(wake, Wakeup::Task(_)));
            assert_eq!((leader, tasks), (1, tasks_woken), "{requests} requests");
        }
    }
}
