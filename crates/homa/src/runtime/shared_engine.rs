//! The state that the handles of an endpoint share: the engine behind its lock, the clock, and the
//! descriptors used for sleeping.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError, Weak};
use std::time::Duration;
use std::{hint, mem};

use bytes::Bytes;
use homa_proto::Time;

use crate::runtime::clock::HostClock;
use crate::runtime::engine::Engine;
use crate::runtime::task_wake::TaskWake;
use crate::runtime::waiters::Wakeup;
use crate::runtime::wake_fd::WakeFd;
use crate::tenancy::endpoint_group::EndpointGroup;
use crate::tenancy::endpoint_group::exchange::RequestExchange;
use crate::tenancy::endpoint_group::mailbox::Mailbox;

/// Number of attempts to take the lock before a thread sleeps until the lock is free. A drive round holds the
/// lock for at most tens of microseconds, and waking a sleeping thread costs both sides more than that.
const LOCK_TRIES: u32 = 4_000;

/// Like `LOCK_TRIES`, but for threads that do not poll, since they share their processors with others. The
/// lock's holder has often been descheduled, and spinning keeps it from getting a processor again. (With four
/// hosts on two processors, spinning wasted a sixth of all processor time.)
const SLEEPERS_LOCK_TRIES: u32 = 100;

/// Number of attempts during which a thread that polls in rounds leaves the lock to others before it competes
/// for the lock again.
const GIVE_WAY_TRIES: u32 = 1_000;

/// The shared state of one endpoint of a host, behind an `Arc`.
pub(crate) struct SharedEngine {
    engine: Mutex<Engine>,
    /// Number of threads that currently want the lock, so that a thread that polls in rounds gives way to
    /// them.
    wanted: AtomicU32,
    pub(crate) clock: HostClock,
    /// A duplicate of the driver's descriptor, to sleep on without the lock.
    fd: Option<OwnedFd>,
    /// Wakes the leader.
    pub(crate) leader_wake: WakeFd,
    /// Wakes the progress thread.
    pub(crate) progress_wake: WakeFd,
    /// Whether an async driver task exists or soon will. Changes under the lock. A reader without the lock
    /// may see a stale `true` when the task ends, but the end of the task makes the progress thread check the
    /// network.
    #[cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "there is no such task"))]
    pub(crate) has_async_driver: AtomicBool,
    /// Wakes the async driver task.
    pub(crate) async_wake: Arc<TaskWake>,
    /// The group of the host's endpoints and this endpoint's index in it, if there are several endpoints.
    group: Option<(Arc<EndpointGroup>, usize)>,
    /// All endpoints of the host, in index order, if there are several. Set once, when the host is created.
    members: OnceLock<Vec<Weak<SharedEngine>>>,
    /// How long a waiting thread polls before it sleeps, in nanoseconds.
    pub(crate) poll_ns: u64,
    /// Number of RPCs open in this endpoint when its lock was last released, if the host has other endpoints
    /// to compare with.
    open_rpcs: AtomicU32,
    /// Whether a thread or task was driving when the lock was last released.
    attended: AtomicBool,
    /// Whether a thread is about to sleep in a place where only the progress thread can wake it.
    demanded: AtomicBool,
}

impl SharedEngine {
    /// Creates the state of a host whose time starts when the monotonic clock shows `start_ns`.
    pub(crate) fn new(
        mut engine: Engine,
        start_ns: u64,
        fd: Option<OwnedFd>,
        poll: Duration,
        wake_fds: (WakeFd, WakeFd),
    ) -> SharedEngine {
        let group = engine.tenancy.group.as_ref().map(|member| (Arc::clone(&member.group), member.index));
        let async_wake = group.as_ref().map(|(all, me)| Arc::clone(&all.mailbox(*me).task_wake));
        let clock = HostClock::new(start_ns, engine.endpoint.trace().ticks());
        engine.tracing.clock = Some(clock);
        SharedEngine {
            engine: Mutex::new(engine),
            wanted: AtomicU32::new(0),
            clock,
            fd,
            leader_wake: wake_fds.0,
            progress_wake: wake_fds.1,
            has_async_driver: AtomicBool::new(false),
            async_wake: async_wake.unwrap_or_default(),
            group,
            members: OnceLock::new(),
            poll_ns: u64::try_from(poll.as_nanos()).unwrap_or(u64::MAX),
            open_rpcs: AtomicU32::new(0),
            attended: AtomicBool::new(false),
            demanded: AtomicBool::new(false),
        }
    }

    /// Makes the progress thread drive at once if no other thread does. This is for a caller that does not
    /// wait here but must be woken for new items. Takes no lock and allocates no memory, because the caller
    /// may be a signal handler that interrupted a thread while it held the lock or was in the allocator.
    #[cfg(feature = "kernel-api")]
    pub(crate) fn attend(&self) {
        if !self.attended.load(Ordering::Relaxed) && !self.demanded.swap(true, Ordering::Relaxed) {
            self.progress_wake.notify();
        }
    }

    /// Returns whether the progress thread was requested and has not yet noticed.
    pub(crate) fn is_demanded(&self) -> bool {
        self.demanded.load(Ordering::Relaxed)
    }

    /// Returns whether [`attend`](SharedEngine::attend) was called since the last call of this function. Only
    /// the progress thread calls it.
    pub(crate) fn take_demand(&self) -> bool {
        self.demanded.swap(false, Ordering::Relaxed)
    }

    /// Gives this endpoint references to all endpoints of its host.
    pub(crate) fn set_members(&self, members: &[Arc<SharedEngine>]) {
        let _ = self.members.set(members.iter().map(Arc::downgrade).collect());
    }

    /// Wakes a thread or task. The caller holds no lock.
    fn fire(&self, wakeup: Wakeup) {
        match wakeup {
            Wakeup::Thread(sleeper) => sleeper.wake(),
            Wakeup::Task(waker) => waker.wake(),
            Wakeup::Leader => self.leader_wake.notify(),
            Wakeup::Progress => self.progress_wake.notify(),
            Wakeup::AsyncDriver => self.async_wake.notify_one(),
            Wakeup::Help(exchange, from) => self.call_help(&exchange, from),
        }
    }

    /// Wakes one waiter for the requests in the exchange, preferably at an endpoint other than `from`.
    fn call_help(&self, exchange: &RequestExchange, from: usize) {
        exchange.call_help(from, |endpoint, on| {
            let Some(shared) = self.members.get().and_then(|members| members[endpoint].upgrade()) else {
                return false;
            };
            let mut engine = shared.lock();
            let found = engine.answer_call(on);
            if !found {
                exchange.withdraw_waiter(endpoint);
            }
            found
        });
    }

    /// Returns the index of this endpoint among those of its host.
    pub(crate) fn index(&self) -> usize {
        self.group.as_ref().map_or(0, |(_, index)| *index)
    }

    /// Returns the number of RPCs open in this endpoint when its lock was last released, read without the
    /// lock; 0 if it is the host's only endpoint.
    pub(crate) fn open_rpcs(&self) -> u32 {
        self.open_rpcs.load(Ordering::Relaxed)
    }

    /// Returns the time since the host was created.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Returns the time `wait` from now.
    pub(crate) fn after(&self, wait: Duration) -> Time {
        self.now() + u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the mailbox for messages from the host's other endpoints, if there are several endpoints.
    pub(crate) fn mailbox(&self) -> Option<&Mailbox> {
        self.group.as_ref().map(|(group, index)| group.mailbox(*index))
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// Takes the lock. If a thread panicked while holding the lock, the engine is still consistent, since its
    /// parts change one event at a time, although some work may be left undone. The host keeps running.
    pub(crate) fn lock(&self) -> EngineGuard<'_> {
        if let Some(guard) = self.try_lock() {
            return self.locked(guard);
        }
        let since = self.now();
        self.wanted.fetch_add(1, Ordering::Relaxed);
        let mut guard = self.lock_contended();
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        guard.counts.host.lock_misses += 1;
        guard.counts.host.lock_wait_ns += self.now().since(since);
        self.locked(guard)
    }

    /// Like [`SharedEngine::lock`], for a caller that has an event to record and has just
    /// [read](HostClock::look) the clock. If the lock is free, the caller's first record uses that timestamp.
    pub(crate) fn lock_since(&self, at: u64) -> EngineGuard<'_> {
        let Some(mut locked) = self.lock_if_free() else { return self.lock() };
        locked.endpoint.trace().begin_stage_at(at);
        locked
    }

    /// Returns whether threads wait for the lock.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) > 0
    }

    /// Takes the lock if it is free.
    pub(crate) fn lock_if_free(&self) -> Option<EngineGuard<'_>> {
        self.try_lock().map(|guard| self.locked(guard))
    }

    /// Takes the lock again between two rounds of polling, after other threads that are waiting for the lock.
    pub(crate) fn lock_giving_way(&self) -> EngineGuard<'_> {
        for _ in 0..GIVE_WAY_TRIES {
            if !self.is_wanted() {
                break;
            }
            hint::spin_loop();
        }
        self.lock()
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Engine>> {
        match self.engine.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn lock_contended(&self) -> MutexGuard<'_, Engine> {
        let tries = if self.poll_ns == 0 { SLEEPERS_LOCK_TRIES } else { LOCK_TRIES };
        for _ in 0..tries {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            hint::spin_loop();
        }
        self.engine.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn locked<'a>(&'a self, mut guard: MutexGuard<'a, Engine>) -> EngineGuard<'a> {
        guard.counts.host.lock_acquisitions += 1;
        guard.apply_freeze();
        guard.tracing.just_now = None;
        guard.endpoint.trace().begin_turn();
        EngineGuard { guard: Some(guard), shared: self }
    }
}

/// The locked engine. Dropping the guard releases the lock first, then wakes threads and frees buffers: both
/// may run application code or take long.
pub(crate) struct EngineGuard<'a> {
    guard: Option<MutexGuard<'a, Engine>>,
    shared: &'a SharedEngine,
}

impl Deref for EngineGuard<'_> {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        self.guard.as_ref().expect("the guard is there until drop")
    }
}

impl DerefMut for EngineGuard<'_> {
    fn deref_mut(&mut self) -> &mut Engine {
        self.guard.as_mut().expect("the guard is there until drop")
    }
}

impl Drop for EngineGuard<'_> {
    fn drop(&mut self) {
        let Some(mut engine) = self.guard.take() else { return };
        let attended = engine.is_attended();
        if self.shared.attended.load(Ordering::Relaxed) != attended {
            self.shared.attended.store(attended, Ordering::Relaxed);
        }
        if self.shared.group.is_some() {
            // Write only if the value changed: other threads read it.
            let open = engine.endpoint.open_rpcs() as u32;
            if self.shared.open_rpcs() != open {
                self.shared.open_rpcs.store(open, Ordering::Relaxed);
            }
        }
        if engine.waiting.wakes.is_empty() {
            // Usually there is nothing to do, or one short buffer to free.
            let Ok(free) = engine.buffers.take_only_free() else { return self.finish_unlock(engine) };
            drop(engine);
            drop(free);
            return;
        }
        self.finish_unlock(engine);
    }
}

impl EngineGuard<'_> {
    /// Reads the engine and releases the lock, but leaves pending frees to the next holder of the lock. This
    /// is for a caller that holds a lock that application code may want, too.
    pub(crate) fn peek<T>(mut self, look: impl FnOnce(&Engine) -> T) -> T {
        let seen = look(&self);
        // A thread that queues wake-ups takes them off the queue before it releases the lock, so none are
        // lost here.
        self.guard = None;
        seen
    }

    /// Releases the lock, then wakes threads and frees buffers.
    #[inline(never)]
    fn finish_unlock(&self, mut engine: MutexGuard<'_, Engine>) {
        // Take the actions out of their cell: the code below may run application code that reenters this
        // function.
        let mut actions = UNLOCK_ACTIONS.try_with(Cell::take).unwrap_or_default();
        mem::swap(&mut actions.wakes, &mut engine.waiting.wakes);
        engine.buffers.take_frees(&mut actions.free);
        drop(engine);
        for wake in actions.wakes.drain(..) {
            self.shared.fire(wake);
        }
        actions.free.clear();
        // A thread that is exiting cannot store the lists.
        let _ = UNLOCK_ACTIONS.try_with(|cell| cell.set(actions));
    }
}

/// Actions to perform after the lock is released. The memory of the lists is reused.
#[derive(Default)]
struct UnlockActions {
    wakes: Vec<Wakeup>,
    free: Vec<Bytes>,
}

thread_local! {
    static UNLOCK_ACTIONS: Cell<UnlockActions> = Cell::default();
}
