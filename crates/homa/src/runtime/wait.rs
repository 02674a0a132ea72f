//! Waiting for items: the waiting threads drive the network. One of them leads, and the followers sleep.
//!
//! On the machines where this was measured, waking a thread that sleeps on another core costs the waker 13 us
//! and the sleeper 40 us, ten times as much as a whole RPC between two polling hosts. Therefore a lone thread
//! waits for its packets itself. If there are several threads, only those that have work are woken.

use std::sync::Arc;
use std::thread;

use homa_proto::Time;

use crate::runtime::engine::Engine;
use crate::runtime::shared_engine::{EngineGuard, SharedEngine};
use crate::runtime::sleep::{self, Interest};
use crate::runtime::wait_target::WaitTarget;
use crate::runtime::waiters::{Follower, Parker};
use crate::types::error::RecvError;

/// Maximum sleep if the driver has no descriptor to sleep on.
pub(crate) const BLIND_SLEEP_NS: u64 = 50_000;

/// Number of rounds without work after which a thread yields its processor to other runnable threads.
const ROUNDS_BETWEEN_YIELDS: u32 = 16;

thread_local! {
    static MY_PARKER: Arc<Parker> = Arc::default();
}

/// Waits until `take` returns an item, driving the network if no other thread does. Returns `None` if
/// `deadline` passes first.
///
/// `take` may be called any number of times, even after another thread has taken the item for which this
/// thread was woken.
pub(crate) fn wait<'a, T>(
    shared: &'a SharedEngine,
    mut engine: EngineGuard<'a>,
    on: WaitTarget,
    deadline: Option<Time>,
    mut take: impl FnMut(&mut Engine) -> Option<T>,
) -> Option<T> {
    loop {
        let taken = take(&mut engine);
        let just_now = engine.tracing.just_now.take();
        let now = if taken.is_some() { Time::ZERO } else { just_now.unwrap_or_else(|| shared.now()) };
        if taken.is_some() || deadline.is_some_and(|deadline| deadline <= now) {
            // `last_driven` is precise enough: a leader has just driven, and followers tolerate a stale time.
            let now = engine.driving.last_driven;
            engine.leave(now);
            return taken;
        }
        engine = if engine.waiting.leader.is_none() {
            engine.waiting.leader = Some(on);
            let (mut engine, taken) = lead(shared, engine, (now, deadline), &mut take);
            engine.waiting.leader = None;
            if taken.is_some() {
                let now = engine.driving.last_driven;
                engine.leave(now);
                return taken;
            }
            engine
        } else {
            follow(shared, engine, on, deadline)
        };
    }
}

/// Sleeps until another thread wakes this one, either to take an item or to lead.
fn follow<'a>(
    shared: &'a SharedEngine,
    mut engine: EngineGuard<'a>,
    on: WaitTarget,
    deadline: Option<Time>,
) -> EngineGuard<'a> {
    // An exiting thread may run application code after its thread-local parker has been destroyed.
    let sleeper = &MY_PARKER.try_with(Arc::clone).unwrap_or_default();
    let (at, now) = (engine.waiting.wake_by.this_core(), engine.driving.last_driven);
    engine.waiting.wake_by.ran(at, now);
    engine.waiting.followers.push(Follower { on, sleeper: Arc::clone(sleeper), core: at });
    engine.note_asleep();
    drop(engine);
    let since = shared.now();
    sleeper.sleep(deadline.map(|deadline| deadline.since(since)));
    let (at, now) = shared.clock.read_both();
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
    engine.waiting.lead_handover.ended(now);
    if shared.poll_ns == 0 {
        // Do not poll the driver before sleeping: for a thread that does not poll, that would add a useless
        // system call to every RPC. If packets are waiting, the kernel ends the sleep at once.
        engine.finish_up(now);
        let taken = take(&mut engine);
        if taken.is_some() {
            return (engine, taken);
        }
        engine.wake_waiters();
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
        engine.wake_waiters();
        if busy && (shared.poll_ns > 0 || shared.fd().is_none()) {
            quiet_since = now;
            fruitless = 0;
        } else if now.since(quiet_since) >= shared.poll_ns {
            // A thread that does not poll does not check once more before it sleeps, either: if packets are
            // waiting, the sleep ends at once.
            engine = leader_sleep(shared, engine, now, deadline);
            now = shared.now();
            last_round = (now, None);
            continue;
        }
        last_round = (now, busy.then(|| engine.endpoint.trace().last_time()));
        fruitless += 1;
        drop(engine);
        engine = lock_again(shared, fruitless);
        now = shared.now();
    }
}

/// Locks the engine for the next round of a thread that polls, after other threads have had a chance to take
/// the lock. `fruitless` is the number of rounds since the last one with work.
#[inline]
fn lock_again(shared: &SharedEngine, fruitless: u32) -> EngineGuard<'_> {
    if fruitless.is_multiple_of(ROUNDS_BETWEEN_YIELDS) {
        thread::yield_now();
    }
    shared.lock_giving_way()
}

/// Drives the network for a thread that is about to sleep in a place where only wakers can wake it. Continues
/// while packets are received or sent, and afterwards for as long as waiting threads poll. Ends earlier if a
/// thread or task is to be woken, at `until`, or when `stop` returns true. `stop` is called under the lock
/// after each round. Returns whether the caller should call this again: false if the network is quiet, or if
/// another thread or task drives.
#[cfg(feature = "kernel-api")]
pub(crate) fn drive_awhile(shared: &SharedEngine, until: Time, mut stop: impl FnMut() -> bool) -> bool {
    let mut engine = shared.lock();
    let mut now = shared.now();
    let mut quiet_since = engine.driving.last_activity;
    if engine.waiting.has_leader()
        || engine.driving.async_driver.is_running()
        || now.since(quiet_since) >= shared.poll_ns
    {
        return false;
    }
    engine.waiting.leader = Some(WaitTarget::Descriptor);
    engine.waiting.lead_handover.ended(now);
    let mut last_round = (now, None);
    let mut fruitless = 0_u32;
    loop {
        engine.note_not_running_since(last_round, now);
        let busy = engine.drive(now);
        if busy {
            engine.waiting.wake_by.received(now);
            quiet_since = now;
            fruitless = 0;
        }
        engine.wake_waiters();
        let quiet = now.since(quiet_since) >= shared.poll_ns;
        if quiet || now >= until || !engine.waiting.wakes.is_empty() || stop() {
            engine.waiting.leader = None;
            engine.leave(now);
            return !quiet;
        }
        last_round = (now, busy.then(|| engine.endpoint.trace().last_time()));
        fruitless += 1;
        drop(engine);
        engine = lock_again(shared, fruitless);
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
    // The progress thread need not wake up for this thread's packets. Notifying it takes time, which is best
    // spent before this thread sleeps.
    engine.progress_must_not_drive();
    let mut due = engine.next_wake(now);
    if due.is_some_and(|due| due >= now + engine.driving.progress.tick_ns) {
        // A timer of its own would cost the leader several microseconds for every sleep, and the progress
        // thread checks within that time anyway.
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
    engine.waiting.counts.leader_sleeps += 1;
    let room = engine.awaits_room();
    engine.note_asleep();
    drop(engine);
    sleep::sleep(
        &shared.leader_wake,
        Interest { fd: shared.fd(), room, mail: shared.mailbox() },
        until.map(|until| until.since(now)),
    );
    let (at, woken) = shared.clock.read_both();
    let mut engine = shared.lock();
    engine.waiting.leader_sleeps_until = None;
    let called = std::mem::take(&mut engine.waiting.leader_notified);
    engine.note_woken(at, (now, woken), called);
    if let Some(until) = until {
        engine.note_not_running(until, woken);
    }
    engine
}

/// Takes an item from an endpoint other than `home`, where no thread waits for it. `members` returns an
/// endpoint and its wait target.
pub(crate) fn take_elsewhere<'a, T>(
    members: impl Fn(usize) -> (&'a SharedEngine, WaitTarget),
    home: usize,
    mut marked: u64,
    mut take: impl FnMut(&mut Engine, usize) -> Option<Result<T, RecvError>>,
) -> Option<Result<T, RecvError>> {
    while marked != 0 {
        // Begin with the endpoint after `home`, so that not all threads check the same endpoint first.
        let turn = marked.rotate_right(home as u32).trailing_zeros();
        let endpoint = (home + turn as usize) % u64::BITS as usize;
        marked &= !(1 << endpoint);
        let (shared, on) = members(endpoint);
        let mut engine = shared.lock();
        let taken = take(&mut engine, endpoint);
        engine.counts.host.taken_elsewhere += u64::from(matches!(taken, Some(Ok(_))));
        if engine.waiting.help_handover.is_deferred() {
            engine.waiting.help_handover.ended(shared.now());
        }
        engine.pass_on(on);
        if taken.is_some() {
            return taken;
        }
    }
    None
}
