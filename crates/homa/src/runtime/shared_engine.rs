//! What a host's handles share: the engine behind its one lock, the clock, and the means to sleep.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;
use std::{hint, mem};

use bytes::Bytes;
use homa_proto::Time;
use tokio::sync::Notify;

use crate::runtime::clock::HostClock;
use crate::runtime::engine::Engine;
use crate::runtime::sleep::WakeFd;
use crate::runtime::wait::Wakeup;
use crate::tenancy::endpoint_group::EndpointGroup;
use crate::tenancy::endpoint_group::mailbox::Mailbox;

/// Tries for the lock before a thread sleeps for it. A drive round holds it for some tens of microseconds at most, and waking
/// a thread that slept costs both sides more than that.
const LOCK_TRIES: u32 = 4_000;

/// The same where threads do not poll, since they share their processors with others: who has the lock has often lost its processor, and to
/// wait for it without sleeping keeps it from getting one. (Of four hosts on two processors, a sixth of all they used went there.)
const SLEEPERS_LOCK_TRIES: u32 = 100;

/// How long a thread that polls in rounds lets others have the lock before it competes for it again, in tries.
const GIVE_WAY_TRIES: u32 = 1_000;

/// One per host, behind an `Arc`.
pub(crate) struct SharedEngine {
    engine: Mutex<Engine>,
    /// Threads that want the lock now, so that a thread that polls in rounds lets them in.
    wanted: AtomicU32,
    pub(crate) clock: HostClock,
    /// A duplicate of the driver's descriptor, to sleep on without the lock.
    fd: Option<OwnedFd>,
    /// Ends the sleep of the leader.
    pub(crate) leader_wake: WakeFd,
    /// Ends the sleep of the progress thread.
    pub(crate) progress_wake: WakeFd,
    /// There is an async driver task, or will be. Changes under the lock; who reads it without may be told by the task's end,
    /// which has the progress thread look after the network.
    pub(crate) has_async_driver: AtomicBool,
    /// Ends the sleep of the async driver task.
    pub(crate) async_wake: Arc<Notify>,
    /// What the host's other endpoints have for this one, where there are any.
    siblings: Option<(Arc<EndpointGroup>, usize)>,
    /// How long whoever waits polls before it sleeps, in nanoseconds.
    pub(crate) poll_ns: u64,
    /// RPCs open in this endpoint when its lock was last given back, where there are others to compare it with.
    open_rpcs: AtomicU32,
    /// Somebody drove when the lock was last given back.
    attended: AtomicBool,
    /// Somebody is about to sleep where only the progress thread reaches them.
    demanded: AtomicBool,
}

impl SharedEngine {
    /// The host's time begins when the monotonic clock shows `start_ns`.
    pub(crate) fn new(
        mut engine: Engine,
        start_ns: u64,
        fd: Option<OwnedFd>,
        poll: Duration,
        wake_fds: (WakeFd, WakeFd),
    ) -> SharedEngine {
        let siblings = engine.kin.as_ref().map(|kin| (Arc::clone(&kin.siblings), kin.index));
        let async_wake = siblings.as_ref().map(|(all, me)| Arc::clone(&all.mailbox(*me).task_bell));
        let clock = HostClock::new(start_ns, engine.endpoint.trace().ticks());
        engine.clock = Some(clock);
        SharedEngine {
            engine: Mutex::new(engine),
            wanted: AtomicU32::new(0),
            clock,
            fd,
            leader_wake: wake_fds.0,
            progress_wake: wake_fds.1,
            has_async_driver: AtomicBool::new(false),
            async_wake: async_wake.unwrap_or_default(),
            siblings,
            poll_ns: u64::try_from(poll.as_nanos()).unwrap_or(u64::MAX),
            open_rpcs: AtomicU32::new(0),
            attended: AtomicBool::new(false),
            demanded: AtomicBool::new(false),
        }
    }

    /// Has the progress thread drive at once where nobody else does, for somebody who does not wait here and yet wants to hear of what
    /// comes. Takes neither a lock nor memory, either of which the thread may have in its hands that a signal has interrupted.
    pub(crate) fn attend(&self) {
        if !self.attended.load(Ordering::Relaxed) && !self.demanded.swap(true, Ordering::Relaxed) {
            self.progress_wake.notify();
        }
    }

    /// Whether somebody has asked for the progress thread, and it has not heard of it.
    pub(crate) fn is_demanded(&self) -> bool {
        self.demanded.load(Ordering::Relaxed)
    }

    /// Whether it was asked for [`attend`](Shared::attend) since the last look, which is the progress thread's.
    pub(crate) fn take_demand(&self) -> bool {
        self.demanded.swap(false, Ordering::Relaxed)
    }

    /// The number of this endpoint among those of its host.
    pub(crate) fn index(&self) -> usize {
        self.siblings.as_ref().map_or(0, |(_, index)| *index)
    }

    /// RPCs open in this endpoint a moment ago, without its lock; 0 where it is the host's only one.
    pub(crate) fn open_rpcs(&self) -> u32 {
        self.open_rpcs.load(Ordering::Relaxed)
    }

    /// Nanoseconds since the host was made.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// The moment `wait` from now.
    pub(crate) fn after(&self, wait: Duration) -> Time {
        self.now() + u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)
    }

    /// What the host's other endpoints have for this one, where there are any.
    pub(crate) fn mailbox(&self) -> Option<&Mailbox> {
        self.siblings.as_ref().map(|(siblings, index)| siblings.mailbox(*index))
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// Takes the lock. Whoever panicked with it held left an engine that is sound, if perhaps behind with its work, since its
    /// parts are changed one event at a time; the host goes on.
    pub(crate) fn lock(&self) -> EngineGuard<'_> {
        if let Some(guard) = self.try_lock() {
            return self.locked(guard);
        }
        let since = self.now();
        self.wanted.fetch_add(1, Ordering::Relaxed);
        let mut guard = self.lock_contended();
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        guard.counts.lock_misses += 1;
        guard.counts.lock_wait_ns += self.now().since(since);
        self.locked(guard)
    }

    /// As [`SharedEngine::lock`], for a caller with something to record who [looked](HostClock::look) at the clock a moment ago: where nobody has
    /// the lock, what he records first shares that time.
    pub(crate) fn lock_since(&self, at: u64) -> EngineGuard<'_> {
        let Some(mut locked) = self.lock_if_free() else { return self.lock() };
        locked.endpoint.trace().begin_stage_at(at);
        locked
    }

    /// Whether threads wait for the lock.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) > 0
    }

    /// Takes the lock if nobody has it.
    pub(crate) fn lock_if_free(&self) -> Option<EngineGuard<'_>> {
        self.try_lock().map(|guard| self.locked(guard))
    }

    /// Takes the lock again between two rounds of polling, behind threads that want it, too.
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
        guard.counts.lock_acquisitions += 1;
        guard.heed_freeze();
        guard.just_now = None;
        guard.endpoint.trace().begin_turn();
        EngineGuard { guard: Some(guard), shared: self }
    }
}

/// The engine, locked. When it goes, threads are woken and buffers freed, after the lock is given back: both may run the
/// application's code or take long.
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
        if self.shared.siblings.is_some() {
            // Written only where it changed: others read it.
            let open = engine.endpoint.open_rpcs() as u32;
            if self.shared.open_rpcs() != open {
                self.shared.open_rpcs.store(open, Ordering::Relaxed);
            }
        }
        if engine.waiting.wakes.is_empty() {
            // Most often there is nothing to do, or one short buffer to be freed.
            let Ok(grave) = engine.buffers.exhume_only() else { return self.say_last_words(engine) };
            drop(engine);
            drop(grave);
            return;
        }
        self.say_last_words(engine);
    }
}

impl EngineGuard<'_> {
    /// Looks at the engine and gives the lock back, and leaves to whoever has it next what is to be freed: for a caller who has a lock in
    /// his hands that the application's code may want, too.
    pub(crate) fn glance<T>(mut self, look: impl FnOnce(&Engine) -> T) -> T {
        let seen = look(&self);
        // Whoever wakes somebody does so before he gives the lock back, so that nothing of that is lost.
        self.guard = None;
        seen
    }

    /// Gives the lock back, then wakes and frees.
    #[inline(never)]
    fn say_last_words(&self, mut engine: MutexGuard<'_, Engine>) {
        // Taken out of its cell: what is run below may be the application's code, which may get here again.
        let mut last = LAST_WORDS.try_with(Cell::take).unwrap_or_default();
        mem::swap(&mut last.wakes, &mut engine.waiting.wakes);
        engine.buffers.exhume(&mut last.free);
        drop(engine);
        for wake in last.wakes.drain(..) {
            wake.fire(self.shared);
        }
        last.free.clear();
        // A thread that ends has no use for it.
        let _ = LAST_WORDS.try_with(|cell| cell.set(last));
    }
}

/// What is done after the lock was given back. The memory of the lists is used again.
#[derive(Default)]
struct UnlockActions {
    wakes: Vec<Wakeup>,
    free: Vec<Bytes>,
}

thread_local! {
    static LAST_WORDS: Cell<UnlockActions> = Cell::default();
}
