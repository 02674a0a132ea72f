//! Waiting: a waiting thread drives the network. One waiting thread leads, the followers sleep.
//!
//! On the machines where this was measured, waking a thread that sleeps on another core costs the waker 13 us
//! and the sleeper 40. That is ten times a whole RPC between two polling hosts. So the only thread of an RPC
//! waits for its packets itself, and of several threads only as many are woken as have work.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use homa_proto::Time;

use crate::observe::stages::{WAKE_FOR_MESSAGE, WAKE_TO_LEAD};
use crate::runtime::engine::Engine;
use crate::runtime::shared_engine::{EngineGuard, SharedEngine};
use crate::runtime::sleep::{self, Interest};
use crate::runtime::wake_chooser::WakeChooser;
use crate::tenancy::endpoint_group::board::RequestExchange;

/// Longest sleep if the driver has no descriptor to sleep on.
pub(crate) const BLIND_SLEEP_NS: u64 = 50_000;

/// Fruitless rounds between two offers of the processor to other runnable threads.
const ROUNDS_BETWEEN_YIELDS: u32 = 16;

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitTarget {
    /// The end, or the next bytes, of a call.
    Call(usize),
    /// The next bytes, or the end, of a request that is being read.
    Reading(usize),
    /// A completion in the queue of a client port.
    Completions(usize),
    /// A request in the queue of a server port.
    Requests(usize),
    /// A response or a request of a socket.
    Socket(usize),
    /// The end of the last answered RPC, while the host shuts down.
    Drained,
}

/// Wakes one sleeping thread. `thread::park` is not used, since the application may use its token for itself.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Parker {
    fn wake(&self) {
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    /// Sleeps until woken, or for `timeout_ns`.
    fn sleep(&self, timeout_ns: Option<u64>) {
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

thread_local! {
    static MY_SLEEPER: Arc<Parker> = Arc::default();
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
    /// A thread or task at another endpoint, to help with the item at the endpoint with this number.
    Help(Arc<RequestExchange>, usize),
}

impl Wakeup {
    pub(crate) fn fire(self, shared: &SharedEngine) {
        match self {
            Wakeup::Thread(sleeper) => sleeper.wake(),
            Wakeup::Task(waker) => waker.wake(),
            Wakeup::Leader => shared.leader_wake.notify(),
            Wakeup::Progress => shared.progress_wake.notify(),
            Wakeup::AsyncDriver => shared.async_wake.notify_one(),
            Wakeup::Help(board, endpoint) => board.call_help(endpoint),
        }
    }
}

#[derive(Debug)]
struct Follower {
    on: WaitTarget,
    sleeper: Arc<Parker>,
    /// The core where it ran last, if the wake order uses cores.
    core: homa_steer::Core,
}

/// Tasks that wait for the same queue.
#[derive(Debug, Default)]
pub(crate) struct TaskQueue {
    tasks: VecDeque<(u64, Waker)>,
    next_id: u64,
}

impl TaskQueue {
    /// Registers a task's waker, or replaces it. Returns the task's number, and the waker that was registered
    /// before as `id`.
    pub(crate) fn register(&mut self, id: Option<u64>, waker: Waker) -> (u64, Option<Waker>) {
        if let Some(id) = id
            && let Some((_, known)) = self.tasks.iter_mut().find(|(known, _)| *known == id)
        {
            return (id, Some(std::mem::replace(known, waker)));
        }
        self.next_id += 1;
        self.tasks.push_back((self.next_id, waker));
        (self.next_id, None)
    }

    /// Forgets a task; `None` if it has been woken.
    pub(crate) fn forget(&mut self, id: u64) -> Option<Waker> {
        let at = self.tasks.iter().position(|(known, _)| *known == id)?;
        self.tasks.remove(at).map(|(_, waker)| waker)
    }

    /// Removes the first task by the wake order. Tasks are not assigned to cores.
    pub(crate) fn pop(&mut self, by: &WakeChooser) -> Option<Waker> {
        let at = by.first(self.tasks.iter().enumerate().map(|(at, _)| (at, 0)))?;
        self.tasks.remove(at).map(|(_, waker)| waker)
    }
}

/// Decides whether to wake a sleeping thread for work that a busy thread may soon take.
///
/// A thread that stops leading could wake another to lead. That costs some 13 us, and is wasted if the thread
/// soon returns, as threads of servers with short handlers do. The lead therefore stays empty if recent
/// history shows that a thread returns sooner than a wake-up takes. If that proves wrong, the progress thread
/// finds the lead empty within a tick. The lead is then handed over for a while: each time twice as long.
/// Requests at an endpoint whose threads are all busy ([`RequestExchange`]) are decided in the same way.
#[derive(Debug)]
pub(crate) struct HandoverBackoff {
    /// When the lead was left empty although there are followers.
    empty_since: Option<Time>,
    /// Remaining times that the lead is handed over without trying to leave it empty.
    hand_over: u32,
    /// Times that the lead is handed over after the next attempt that fails.
    penalty: u32,
    /// Consecutive attempts in which a thread returned in time.
    streak: u32,
}

impl Default for HandoverBackoff {
    fn default() -> HandoverBackoff {
        HandoverBackoff {
            empty_since: None,
            hand_over: 0,
            penalty: HandoverBackoff::LEAST_PENALTY,
            streak: 0,
        }
    }
}

impl HandoverBackoff {
    /// The cost of a wake-up to waker and sleeper together, and so the maximum time for which an empty lead
    /// pays.
    const WORTH_NS: u64 = 50_000;
    const LEAST_PENALTY: u32 = 64;
    const MOST_PENALTY: u32 = 1 << 20;
    /// Consecutive successful attempts that halve the next penalty.
    const GOOD_STREAK: u32 = 1_000;

    /// Whether the lead may be left empty now.
    pub(crate) fn try_it(&mut self, now: Time) -> bool {
        if self.hand_over > 0 {
            self.hand_over -= 1;
            return false;
        }
        self.empty_since.get_or_insert(now);
        true
    }

    /// Whether the lead is being left empty now.
    pub(crate) fn is_tried(&self) -> bool {
        self.empty_since.is_some()
    }

    /// A thread leads again.
    pub(crate) fn over(&mut self, now: Time) {
        let Some(since) = self.empty_since.take() else { return };
        if now.since(since) > HandoverBackoff::WORTH_NS {
            self.streak = 0;
            self.hand_over = self.penalty;
            self.penalty = (self.penalty * 2).min(HandoverBackoff::MOST_PENALTY);
            return;
        }
        self.streak += 1;
        if self.streak == HandoverBackoff::GOOD_STREAK {
            self.streak = 0;
            self.penalty = (self.penalty / 2).max(HandoverBackoff::LEAST_PENALTY);
        }
    }
}

/// The waiting threads and tasks of an engine, and its leader.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// The target that the leader waits for.
    leader: Option<WaitTarget>,
    /// Until when the leader sleeps in the kernel, if it does.
    leader_sleeps_until: Option<Time>,
    leader_rung: bool,
    /// In the order in which they fell asleep.
    followers: Vec<Follower>,
    /// The order in which followers are woken.
    pub(crate) wake_by: WakeChooser,
    /// Targets of followers that were woken and do not have the lock yet.
    summoned: Vec<WaitTarget>,
    /// An item of this target was taken, and there may be more here or at other endpoints.
    pub(crate) taken: Option<WaitTarget>,
    patience: HandoverBackoff,
    /// The same decision for requests for which no thread waits at this endpoint.
    pub(crate) help: HandoverBackoff,
    /// Targets that became ready since the last call of [`Engine::summon`], once for each item.
    ready: Vec<WaitTarget>,
    /// Threads and tasks to wake after the lock is released.
    pub(crate) wakes: Vec<Wakeup>,
    /// Times that a leader handed the lead to another thread.
    pub(crate) handovers: u64,
    /// Times that a leader slept in the kernel.
    pub(crate) leader_sleeps: u64,
    /// Times that a leader's sleep was ended by another thread.
    pub(crate) leader_rings: u64,
}

impl Waiters {
    /// Waiters with a leader that sleeps until it is notified.
    #[cfg(test)]
    pub(crate) fn with_sleeping_leader(on: WaitTarget) -> Waiters {
        Waiters { leader: Some(on), leader_sleeps_until: Some(Time::NEVER), ..Waiters::default() }
    }

    pub(crate) fn has_leader(&self) -> bool {
        self.leader.is_some()
    }

    /// Whether no thread waits, so that the lock may be held for longer than a drive round takes.
    #[cfg_attr(not(feature = "kernel-api"), allow(dead_code, reason = "only sockets copy while they send"))]
    pub(crate) fn is_idle(&self) -> bool {
        self.leader.is_none() && self.followers.is_empty() && self.summoned.is_empty()
    }

    pub(crate) fn leader_sleeps_until(&self) -> Option<Time> {
        self.leader_sleeps_until
    }

    /// Notes that one more item is available.
    pub(crate) fn note_ready(&mut self, on: WaitTarget) {
        self.ready.push(on);
    }

    /// Notifies the leader, if it sleeps and has not been notified; returns whether it did so.
    pub(crate) fn ring_leader(&mut self) -> bool {
        let asleep = self.leader_sleeps_until.is_some() && !self.leader_rung;
        if asleep {
            self.leader_rung = true;
            self.leader_rings += 1;
            self.wakes.push(Wakeup::Leader);
        }
        asleep
    }

    /// Wakes the first of the followers that wait for `on`; whether there is one.
    fn wake_follower(&mut self, on: WaitTarget, now: Time) -> bool {
        let followers = self.followers.iter().enumerate().filter(|(_, follower)| follower.on == on);
        let first = self.wake_by.first(followers.map(|(at, follower)| (at, follower.core)));
        first.map(|at| self.wake(at, now)).is_some()
    }

    /// Wakes the follower at this place of the list, and returns what it waits for.
    fn wake(&mut self, at: usize, now: Time) -> WaitTarget {
        let Follower { on, sleeper, core } = self.followers.remove(at);
        self.wake_by.woke(core, now);
        self.summoned.push(on);
        self.wakes.push(Wakeup::Thread(sleeper));
        on
    }

    /// Removes the calling thread from the list; `false` if its waker already did so.
    fn forget_follower(&mut self, sleeper: &Arc<Parker>) -> bool {
        match self.followers.iter().rposition(|follower| Arc::ptr_eq(&follower.sleeper, sleeper)) {
            Some(at) => {
                self.followers.remove(at);
                true
            }
            None => false,
        }
    }

    /// A follower that was woken has acquired the lock.
    fn arrived(&mut self, on: WaitTarget) {
        if let Some(at) = self.summoned.iter().position(|summoned| *summoned == on) {
            self.summoned.swap_remove(at);
        }
    }

    /// Whether a thread is awake, or now being woken, that will take the items of this target. A sleeping
    /// leader is notified.
    pub(crate) fn is_expected(&mut self, on: WaitTarget) -> bool {
        if self.leader == Some(on) {
            self.ring_leader();
            return true;
        }
        self.summoned.contains(&on)
    }

    /// Wakes every thread that waits for this target, which is over: its index may be used again.
    pub(crate) fn wake_all_on(&mut self, on: WaitTarget) {
        let woken = self.followers.extract_if(.., |follower| follower.on == on);
        for follower in woken {
            self.summoned.push(follower.on);
            self.wakes.push(Wakeup::Thread(follower.sleeper));
        }
        if self.leader == Some(on) {
            self.ring_leader();
        }
    }

    /// Wakes every thread that waits.
    pub(crate) fn wake_all(&mut self) {
        for follower in self.followers.drain(..) {
            self.summoned.push(follower.on);
            self.wakes.push(Wakeup::Thread(follower.sleeper));
        }
        self.ring_leader();
    }
}

impl Engine {
    /// Wakes one thread or task for each item that became ready.
    pub(crate) fn summon(&mut self) {
        if !self.rooms.is_empty() {
            self.tell_room();
        }
        while let Some(on) = self.waiting.ready.pop() {
            // The driving thread may have taken the item already.
            if !self.has_item(on) {
                continue;
            }
            if self.waiting.wake_follower(on, self.last_driven) {
                self.note_wake(on, WAKE_FOR_MESSAGE);
            } else if self.waiting.leader == Some(on) {
                if self.waiting.ring_leader() {
                    self.note_wake(on, WAKE_FOR_MESSAGE);
                } else if self.has_more_than_threads_take(on) {
                    self.wake_task(on);
                }
            } else if !self.wake_task(on) || matches!(on, WaitTarget::Socket(_)) {
                // A socket's waker only reports readiness: the task it wakes need not wait here.
                self.offer(on);
            }
        }
    }

    /// Wakes the tasks that wait for memory of outgoing messages, if enough is free.
    fn tell_room(&mut self) {
        let bytes = self.buffers.outgoing_bytes();
        let woken = self.rooms.extract_if(.., |(below, _)| bytes < *below);
        self.waiting.wakes.extend(woken.map(|(_, waker)| Wakeup::Task(waker)));
    }

    /// Wakes a task that waits for this; returns whether there is one.
    fn wake_task(&mut self, on: WaitTarget) -> bool {
        let Some(waker) = self.pop_task(on) else { return false };
        self.waiting.wakes.push(Wakeup::Task(waker));
        self.note_wake(on, WAKE_FOR_MESSAGE);
        true
    }

    /// Whether there are more items than threads that lead, or were woken, to take them.
    fn has_more_than_threads_take(&self, on: WaitTarget) -> bool {
        let threads = self.waiting.leader.iter().chain(&self.waiting.summoned);
        self.items(on) > threads.filter(|thread| **thread == on).count()
    }

    /// Wakes one thread or task that waits for this, so that it looks at another endpoint; returns whether
    /// there is one.
    pub(crate) fn rouse(&mut self, on: WaitTarget) -> bool {
        if self.waiting.wake_follower(on, self.last_driven) {
            return true;
        }
        if self.waiting.leader == Some(on) {
            self.waiting.ring_leader();
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

    /// Called by a thread before it stops driving: ensures that another thread drives, or will.
    pub(crate) fn leave(&mut self, now: Time) {
        self.summon();
        if let Some(on) = self.waiting.taken.take() {
            self.pass_on(on);
        }
        if self.waiting.leader.is_some() {
            self.tell_sleeping_leader(now);
            return;
        }
        self.last_driven = now;
        if !self.waiting.summoned.is_empty() {
            return;
        }
        if self.waiting.followers.is_empty() || self.waiting.patience.try_it(now) {
            self.progress_must_watch();
        } else {
            self.hand_over();
        }
    }

    /// Wakes the first of the followers, which then leads.
    fn hand_over(&mut self) {
        let followers = self.waiting.followers.iter().enumerate();
        let first = self.waiting.wake_by.first(followers.map(|(at, follower)| (at, follower.core)));
        if let Some(at) = first {
            let on = self.waiting.wake(at, self.last_driven);
            self.waiting.handovers += 1;
            self.note_wake(on, WAKE_TO_LEAD);
        }
    }

    /// Hands over the lead if it was left empty and no thread returned in time. Returns whether a thread is
    /// on its way to lead.
    pub(crate) fn hand_over_late(&mut self, now: Time) -> bool {
        if self.waiting.summoned.is_empty() && !self.waiting.followers.is_empty() {
            self.waiting.patience.over(now);
            self.hand_over();
        }
        !self.waiting.summoned.is_empty()
    }

    /// Called by a thread that has sent packets without waiting. Wakes sleeping threads if they would now
    /// sleep too long, or if packets lack room to be sent and the sleepers do not watch for it.
    pub(crate) fn after_work(&mut self, now: Time) {
        self.last_activity = now;
        self.summon();
        if self.waiting.leader_sleeps_until.is_none() && self.waiting.leader.is_some() {
            // The leader is awake and drives.
            return;
        }
        if self.tell_sleeping_leader(now) {
            return;
        }
        let due = self.next_wake(now);
        if let Some(until) = self.async_driver.sleeps_until()
            && (self.is_blocked() || due.is_some_and(|due| due < until))
        {
            self.async_driver.notify();
            self.waiting.wakes.push(Wakeup::AsyncDriver);
        }
        if self.waiting.summoned.is_empty() {
            self.progress_must_watch();
            if self.is_blocked() || due.is_some_and(|due| self.progress.sleeps_beyond(due)) {
                self.ring_progress();
            }
        }
    }

    /// Ensures that a sleeping leader does not sleep too long; returns whether there is a sleeping leader.
    fn tell_sleeping_leader(&mut self, now: Time) -> bool {
        let Some(until) = self.waiting.leader_sleeps_until else { return false };
        let due = self.next_wake(now);
        if self.is_blocked() || due.is_some_and(|due| due < until && due < now + self.progress.tick_ns) {
            if self.waiting.ring_leader() {
                self.note_wake(WaitTarget::Drained, WAKE_TO_LEAD);
            }
        } else if due.is_some_and(|due| due < until) {
            // Not worth a wake-up: the progress thread looks once in a tick.
            self.progress_must_watch();
        }
        true
    }
}

/// Waits until `take` returns an item, and drives the network if no other thread does. `None` if `deadline`
/// passed first.
///
/// `take` may be called any number of times, even after another thread has taken the item for which this one
/// was woken.
pub(crate) fn wait<'a, T>(
    shared: &'a SharedEngine,
    mut engine: EngineGuard<'a>,
    on: WaitTarget,
    deadline: Option<Time>,
    mut take: impl FnMut(&mut Engine) -> Option<T>,
) -> Option<T> {
    loop {
        let taken = take(&mut engine);
        let just_now = engine.just_now.take();
        let now = if taken.is_some() { Time::ZERO } else { just_now.unwrap_or_else(|| shared.now()) };
        if taken.is_some() || deadline.is_some_and(|deadline| deadline <= now) {
            // `last_driven` is precise enough: a leader has just driven, and followers tolerate a stale time.
            let now = engine.last_driven;
            engine.leave(now);
            return taken;
        }
        engine = if engine.waiting.leader.is_none() {
            engine.waiting.leader = Some(on);
            let (mut engine, taken) = lead(shared, engine, (now, deadline), &mut take);
            engine.waiting.leader = None;
            if taken.is_some() {
                let now = engine.last_driven;
                engine.leave(now);
                return taken;
            }
            engine
        } else {
            follow(shared, engine, on, deadline)
        };
    }
}

/// Sleeps until another thread wakes this one, to take its item or to lead.
fn follow<'a>(
    shared: &'a SharedEngine,
    mut engine: EngineGuard<'a>,
    on: WaitTarget,
    deadline: Option<Time>,
) -> EngineGuard<'a> {
    // A thread that is ending may run code of the application; its thread-local parker is already gone then.
    let sleeper = &MY_SLEEPER.try_with(Arc::clone).unwrap_or_default();
    let (at, now) = (engine.waiting.wake_by.this_core(), engine.last_driven);
    engine.waiting.wake_by.ran(at, now);
    engine.waiting.followers.push(Follower { on, sleeper: Arc::clone(sleeper), core: at });
    engine.note_asleep();
    drop(engine);
    let since = shared.now();
    sleeper.sleep(deadline.map(|deadline| deadline.since(since)));
    let (at, now) = shared.clock.look();
    let mut engine = shared.lock();
    let called = !engine.waiting.forget_follower(sleeper);
    if called {
        engine.waiting.arrived(on);
    }
    engine.note_woken(at, (since, now), called);
    engine
}

/// Drives the network until `take` returns an item or `deadline` passes.
fn lead<'a, T>(
    shared: &'a SharedEngine,
    mut engine: EngineGuard<'a>,
    (mut now, deadline): (Time, Option<Time>),
    take: &mut impl FnMut(&mut Engine) -> Option<T>,
) -> (EngineGuard<'a>, Option<T>) {
    let mut quiet_since = now;
    let mut fruitless = 0_u32;
    engine.waiting.patience.over(now);
    if shared.poll_ns == 0 {
        // Calling the driver before the kernel would cost every RPC of a thread that does not poll a useless
        // system call. If packets are waiting, the kernel ends the sleep at once.
        engine.finish_up(now);
        let taken = take(&mut engine);
        if taken.is_some() {
            return (engine, taken);
        }
        engine.summon();
        engine = leader_sleep(shared, engine, now, deadline);
        now = shared.now();
    }
    let mut last_round = (now, None);
    loop {
        engine.note_not_running_since(last_round, now);
        let busy = engine.drive(now);
        if busy {
            engine.waiting.wake_by.received(now);
        }
        let taken = take(&mut engine);
        if taken.is_some() || deadline.is_some_and(|deadline| deadline <= now) {
            return (engine, taken);
        }
        engine.summon();
        if busy && (shared.poll_ns > 0 || shared.fd().is_none()) {
            quiet_since = now;
            fruitless = 0;
        } else if now.since(quiet_since) >= shared.poll_ns {
            // A thread that does not poll makes no last check, either: packets that are waiting end the sleep
            // before it begins.
            engine = leader_sleep(shared, engine, now, deadline);
            now = shared.now();
            last_round = (now, None);
            continue;
        }
        last_round = (now, busy.then(|| engine.endpoint.trace().last_time()));
        fruitless += 1;
        drop(engine);
        if fruitless.is_multiple_of(ROUNDS_BETWEEN_YIELDS) {
            thread::yield_now();
        }
        engine = shared.lock_giving_way();
        now = shared.now();
    }
}

/// Sleeps in the kernel until a packet comes, a timer is due, or another thread notifies this one.
fn leader_sleep<'a>(
    shared: &'a SharedEngine,
    mut engine: EngineGuard<'a>,
    now: Time,
    deadline: Option<Time>,
) -> EngineGuard<'a> {
    // This thread's packets need not wake the progress thread. Informing it has a cost, which is best paid
    // now.
    engine.progress_must_not_drive();
    let mut due = engine.next_wake(now);
    if due.is_some_and(|due| due >= now + engine.progress.tick_ns) {
        // A timer of its own would cost every sleep several microseconds. The progress thread looks once in
        // that time anyway.
        engine.progress_must_watch();
        due = None;
    }
    let mut until = [due, deadline].into_iter().flatten().min();
    if shared.fd().is_none() {
        until = Some(until.unwrap_or(Time::NEVER).min(now + BLIND_SLEEP_NS));
    }
    if until.is_some_and(|until| until <= now) {
        return engine;
    }
    engine.waiting.leader_sleeps_until = Some(until.unwrap_or(Time::NEVER));
    engine.waiting.leader_sleeps += 1;
    let room = engine.awaits_room();
    engine.note_asleep();
    drop(engine);
    sleep::sleep(
        &shared.leader_wake,
        Interest { fd: shared.fd(), room, mail: shared.mailbox() },
        until.map(|until| until.since(now)),
    );
    let (at, woken) = shared.clock.look();
    let mut engine = shared.lock();
    engine.waiting.leader_sleeps_until = None;
    let called = std::mem::take(&mut engine.waiting.leader_rung);
    engine.note_woken(at, (now, woken), called);
    if let Some(until) = until {
        engine.note_not_running(until, woken);
    }
    engine
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use homa_steer::wake::WakeOrder;

    use super::*;
    use crate::api::address::ServerAddr;
    use crate::runtime::drive::tests::engine;
    use crate::runtime::engine::{CallOwner, CallTicket};

    /// A leader takes one of the requests that come while it sleeps, or before it has looked.
    #[test]
    fn a_task_beside_the_leader_is_woken_for_what_the_leader_does_not_take() {
        for (requests, tasks_woken) in [(1, 0), (2, 1), (3, 2)] {
            let (mut client, mut engine) = (engine(), engine());
            let server = engine.open_server(Time::ZERO, 99, None).unwrap().unwrap();
            let on = WaitTarget::Requests(server);
            engine.waiting = Waiters::with_sleeping_leader(on);
            for _ in 0..3 {
                engine.servers[server].tasks.register(None, Waker::noop().clone());
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
            engine.summon();
            let woken = |is: fn(&Wakeup) -> bool| engine.waiting.wakes.iter().filter(|wake| is(wake)).count();
            let leader = woken(|wake| matches!(wake, Wakeup::Leader));
            let tasks = woken(|wake| matches!(wake, Wakeup::Task(_)));
            assert_eq!((leader, tasks), (1, tasks_woken), "{requests} requests");
        }
    }

    fn empty_for(patience: &mut HandoverBackoff, ns: u64) -> bool {
        let start = Time::from_ns(1_000_000);
        let tried = patience.try_it(start);
        if tried {
            patience.over(start + ns);
        }
        tried
    }

    #[test]
    fn a_lead_stays_empty_while_somebody_soon_comes_back() {
        let mut patience = HandoverBackoff::default();
        assert!((0..10_000).all(|_| empty_for(&mut patience, 5_000)));
    }

    #[test]
    fn disappointments_become_rarer() {
        let mut patience = HandoverBackoff::default();
        let tries = |patience: &mut HandoverBackoff, times| {
            (0..times).filter(|_| empty_for(patience, 1_000_000)).count()
        };
        assert_eq!(tries(&mut patience, 1), 1);
        assert_eq!(tries(&mut patience, HandoverBackoff::LEAST_PENALTY), 0);
        assert_eq!(tries(&mut patience, 1 + 2 * HandoverBackoff::LEAST_PENALTY), 1);
        assert!(tries(&mut patience, 1_000_000) < 15);
    }

    #[test]
    fn tasks_are_woken_in_the_order_that_is_asked_for_and_renewal_keeps_their_place() {
        for order in [WakeOrder::Lifo, WakeOrder::Fifo] {
            let (mut tasks, by) = (TaskQueue::default(), WakeChooser::new(order));
            let (first, _) = tasks.register(None, Waker::noop().clone());
            let (second, _) = tasks.register(None, Waker::noop().clone());
            assert!(tasks.register(Some(first), Waker::noop().clone()).1.is_some());
            assert!(tasks.pop(&by).is_some());
            let (woken, asleep) = if order == WakeOrder::Lifo { (second, first) } else { (first, second) };
            assert!(tasks.forget(woken).is_none());
            assert!(tasks.forget(asleep).is_some());
            assert!(tasks.pop(&by).is_none());
        }
    }

    /// The cores of the threads woken for `on`, in the order of waking. The threads fell asleep on cores 0,
    /// 1, 2 and so on, one nanosecond after the other, waiting for `asleep`.
    fn woken(order: WakeOrder, asleep: &[WaitTarget], on: WaitTarget) -> Vec<homa_steer::Core> {
        let mut waiting = Waiters { wake_by: WakeChooser::new(order), ..Waiters::default() };
        for (core, &on) in (0..).zip(asleep) {
            waiting.wake_by.ran(core, Time::from_ns(1 + u64::from(core)));
            waiting.followers.push(Follower { on, sleeper: Arc::default(), core });
        }
        // The core that slept first has received packets since.
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
    fn of_those_who_wait_for_the_same_one_is_woken_in_the_order_that_is_asked_for() {
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
