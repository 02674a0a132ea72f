//! The threads and tasks that wait at an endpoint, and those about to be woken.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use homa_proto::Time;

use crate::runtime::handover::HandoverBackoff;
use crate::runtime::timers::Timers;
use crate::runtime::wait_target::WaitTarget;
use crate::runtime::wake_chooser::WakeChooser;
use crate::tenancy::endpoint_group::exchange::RequestExchange;

/// Sleeps and wakes one thread. `thread::park` is not used, since the application may itself use the token of
/// `park`.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Parker {
    pub(super) fn wake(&self) {
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    /// Sleeps until woken, or for `timeout_ns`.
    pub(super) fn sleep(&self, timeout_ns: Option<u64>) {
        let woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        let asleep = |woken: &mut bool| !*woken;
        let mut woken = match timeout_ns {
            None => self.changed.wait_while(woken, asleep).unwrap_or_else(PoisonError::into_inner),
            Some(ns) => {
                let wait = self.changed.wait_timeout_while(woken, Duration::from_nanos(ns), asleep);
                wait.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        *woken = false;
    }
}

/// A thread or task to wake after the lock is released.
#[derive(Debug)]
pub(crate) enum Wakeup {
    /// A follower.
    Thread(Arc<Parker>),
    /// A task of the application.
    Task(Waker),
    /// The leader, asleep in the kernel.
    Leader,
    /// The progress thread.
    Progress,
    /// The async driver task.
    AsyncDriver,
    /// A thread or task at another endpoint, which is to take the item at the endpoint with this index.
    Help(Arc<RequestExchange>, usize),
}

#[derive(Debug)]
pub(super) struct Follower {
    pub(super) on: WaitTarget,
    pub(super) sleeper: Arc<Parker>,
    /// The core where the thread last ran, if the wake order uses cores.
    pub(super) core: homa_steer::Core,
}

/// The waiting threads and tasks of an engine, and its leader.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// The target that the leader waits for.
    pub(super) leader: Option<WaitTarget>,
    /// The time until which the leader sleeps in the kernel, if it is asleep.
    pub(super) leader_sleeps_until: Option<Time>,
    pub(super) leader_notified: bool,
    /// Followers in the order in which they fell asleep.
    pub(super) followers: Vec<Follower>,
    /// The order in which followers are woken.
    pub(crate) wake_by: WakeChooser,
    /// Targets of followers that were woken but have not yet taken the lock.
    pub(super) woken_targets: Vec<WaitTarget>,
    /// The target whose item was taken. There may be more items for it, here or at other endpoints.
    pub(crate) taken: Option<WaitTarget>,
    pub(super) lead_handover: HandoverBackoff,
    /// Decides about handing over requests for which no thread waits at this endpoint.
    pub(crate) help_handover: HandoverBackoff,
    /// Targets that became ready since the last call of `Engine::wake_waiters`, one entry per item.
    pub(super) ready: Vec<WaitTarget>,
    /// Threads and tasks to wake after the lock is released.
    pub(crate) wakes: Vec<Wakeup>,
    /// The time limits of futures.
    pub(crate) timers: Timers,
    /// Wakers, each with the number of bytes below which the memory of outgoing messages must fall before the
    /// waker is called.
    pub(crate) rooms: Vec<(u64, Waker)>,
    pub(crate) counts: WaitCounts,
}

/// Counters of leaders.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitCounts {
    /// Number of times that a leader handed leadership to another thread.
    pub(crate) handovers: u64,
    /// Number of times that a leader slept in the kernel.
    pub(crate) leader_sleeps: u64,
    /// Number of times that another thread ended a leader's sleep.
    pub(crate) leader_notifications: u64,
}

impl Waiters {
    /// Creates waiters with a leader that sleeps until it is notified.
    #[cfg(test)]
    pub(crate) fn with_sleeping_leader(on: WaitTarget) -> Waiters {
        Waiters { leader: Some(on), leader_sleeps_until: Some(Time::NEVER), ..Waiters::default() }
    }

    pub(crate) fn has_leader(&self) -> bool {
        self.leader.is_some()
    }

    /// Returns whether no thread waits, so that the lock may be held for longer than a drive round takes.
    #[cfg_attr(not(feature = "kernel-api"), allow(dead_code, reason = "only sockets copy while they send"))]
    pub(crate) fn is_idle(&self) -> bool {
        self.leader.is_none() && self.followers.is_empty() && self.woken_targets.is_empty()
    }

    pub(crate) fn leader_sleeps_until(&self) -> Option<Time> {
        self.leader_sleeps_until
    }

    /// Records that one more item is available.
    pub(crate) fn note_ready(&mut self, on: WaitTarget) {
        self.ready.push(on);
    }

    /// Notifies the leader if it sleeps and has not been notified; returns whether it did so.
    pub(crate) fn notify_leader(&mut self) -> bool {
        let asleep = self.leader_sleeps_until.is_some() && !self.leader_notified;
        if asleep {
            self.leader_notified = true;
            self.counts.leader_notifications += 1;
            self.wakes.push(Wakeup::Leader);
        }
        asleep
    }

    /// Wakes the follower that is first in the wake order among those that wait for `on`. Returns whether there
    /// was one.
    pub(super) fn wake_follower(&mut self, on: WaitTarget, now: Time) -> bool {
        let followers = self.followers.iter().enumerate().filter(|(_, follower)| follower.on == on);
        let first = self.wake_by.first(followers.map(|(at, follower)| (at, follower.core)));
        first.map(|at| self.wake(at, now)).is_some()
    }

    /// Wakes the follower at this index of the list, and returns its target.
    pub(super) fn wake(&mut self, at: usize, now: Time) -> WaitTarget {
        let Follower { on, sleeper, core } = self.followers.remove(at);
        self.wake_by.woke(core, now);
        self.woken_targets.push(on);
        self.wakes.push(Wakeup::Thread(sleeper));
        on
    }

    /// Removes the calling thread from the list. Returns `false` if the thread that woke it has already done
    /// so.
    pub(super) fn forget_follower(&mut self, sleeper: &Arc<Parker>) -> bool {
        match self.followers.iter().rposition(|follower| Arc::ptr_eq(&follower.sleeper, sleeper)) {
            Some(at) => {
                self.followers.remove(at);
                true
            }
            None => false,
        }
    }

    /// Records that a woken follower has acquired the lock.
    pub(super) fn arrived(&mut self, on: WaitTarget) {
        if let Some(at) = self.woken_targets.iter().position(|target| *target == on) {
            self.woken_targets.swap_remove(at);
        }
    }

    /// Returns whether a thread that is awake or being woken will take the items of this target. Notifies the
    /// leader if it sleeps.
    pub(crate) fn is_expected(&mut self, on: WaitTarget) -> bool {
        if self.leader == Some(on) {
            self.notify_leader();
            return true;
        }
        self.woken_targets.contains(&on)
    }

    /// Wakes every thread that waits for this target. The target has ended, and its index may be reused.
    pub(crate) fn wake_all_on(&mut self, on: WaitTarget) {
        let woken = self.followers.extract_if(.., |follower| follower.on == on);
        for follower in woken {
            self.woken_targets.push(follower.on);
            self.wakes.push(Wakeup::Thread(follower.sleeper));
        }
        if self.leader == Some(on) {
            self.notify_leader();
        }
    }

    /// Wakes every waiting thread.
    pub(crate) fn wake_all(&mut self) {
        for follower in self.followers.drain(..) {
            self.woken_targets.push(follower.on);
            self.wakes.push(Wakeup::Thread(follower.sleeper));
        }
        self.notify_leader();
    }
}

#[cfg(test)]
mod tests {
    use homa_steer::wake::WakeOrder;

    use super::*;

    /// Returns the cores of the threads that are woken for `on`, in the order in which they are woken. The
    /// threads wait for the targets `asleep`, and fell asleep one nanosecond apart on cores 0, 1, 2 and so
    /// on.
    fn woken(order: WakeOrder, asleep: &[WaitTarget], on: WaitTarget) -> Vec<homa_steer::Core> {
        let mut waiting = Waiters { wake_by: WakeChooser::new(order), ..Waiters::default() };
        for (core, &on) in (0..).zip(asleep) {
            waiting.wake_by.ran(core, Time::from_ns(1 + u64::from(core)));
            waiting.followers.push(Follower { on, sleeper: Arc::default(), core });
        }
        // The core whose thread fell asleep first has received packets since.
        if let Some(observed) = order.eq(&WakeOrder::LeastRecent).then_some(&mut waiting.wake_by) {
            observed.woke(0, Time::from_ns(100));
        }
        let mut cores = Vec::new();
        while let Some(before) = Some(waiting.followers.iter().map(|one| one.core).collect::<Vec<_>>()) {
            if !waiting.wake_follower(on, Time::from_ns(200)) {
                break;
            }
            let is_left = |core: &homa_steer::Core| waiting.followers.iter().any(|one| one.core == *core);
            cores.extend(before.into_iter().find(|core| !is_left(core)));
        }
        cores
    }

    #[test]
    fn threads_that_wait_for_the_same_target_are_woken_in_the_configured_order() {
        let (one, other) = (WaitTarget::Requests(0), WaitTarget::Requests(1));
        let asleep = [one, other, one, one];
        for (order, expected) in
            [(WakeOrder::Lifo, [3, 2, 0]), (WakeOrder::Fifo, [0, 2, 3]), (WakeOrder::LeastRecent, [2, 3, 0])]
        {
            assert_eq!(woken(order, &asleep, one), expected, "{order}");
            assert_eq!(woken(order, &asleep, other), [1], "{order}");
            assert!(woken(order, &[], one).is_empty());
        }
    }
}
