//! Drives the network from an async runtime: a task of the application's own runtime leads, so that packets
//! are not passed between threads.
//!
//! A waiting future registers its waker with the engine and ensures that the task exists. If the future does
//! not run on a tokio runtime, or that runtime has no I/O or time driver, the progress thread does the work
//! of the task instead and wakes the futures.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use homa_proto::{Time, US};
use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::runtime::Handle;
use tokio::task::yield_now;
use tokio::time::{Duration, sleep};

use crate::runtime::async_state::{SleepSpan, TaskState};
use crate::runtime::engine::{Engine, Phase};
use crate::runtime::shared_engine::SharedEngine;

/// Maximum wait for which the task yields to other tasks and checks again instead of sleeping, since the
/// runtime's timers round up to a millisecond.
const SHORT_SLEEP_NS: u64 = 100 * US;

/// Number of drive rounds before other tasks of the runtime get their turn.
const ROUNDS_PER_TURN: usize = 8;

/// Ensures that a task drives while futures wait. Must be called from within a future's poll, without holding
/// the lock.
pub(crate) fn ensure_driver(shared: &Arc<SharedEngine>) {
    if shared.has_async_driver.load(Relaxed) {
        return;
    }
    let Ok(runtime) = Handle::try_current() else { return };
    {
        let mut engine = shared.lock();
        if engine.driving.async_driver.state != TaskState::Absent
            || shared.fd().is_none()
            || engine.phase == Phase::Closed
        {
            return;
        }
        engine.driving.async_driver.state = TaskState::Starting;
        shared.has_async_driver.store(true, Relaxed);
    }
    runtime.spawn(run(DriverTask(Arc::clone(shared))));
}

/// The task's handle to the host. When the task is dropped, perhaps together with its runtime, other threads
/// must drive.
struct DriverTask(Arc<SharedEngine>);

impl Drop for DriverTask {
    fn drop(&mut self) {
        let now = self.0.now();
        let mut engine = self.0.lock();
        self.0.has_async_driver.store(false, Relaxed);
        engine.driving.async_driver.state = match engine.driving.async_driver.state {
            TaskState::Starting => TaskState::Unusable,
            // The runtime has no timer.
            _ if std::thread::panicking() => TaskState::Unusable,
            _ => TaskState::Absent,
        };
        engine.leave(now);
    }
}

/// The next step of the task.
enum NextStep {
    /// Check again at once.
    Again,
    /// Yield to other tasks, then check again.
    Yield,
    /// Sleep until the descriptor is ready, a `wake_fd` is notified, or this time has passed.
    Sleep(Option<u64>),
    Exit,
}

async fn run(task: DriverTask) {
    let shared = &*task.0;
    let Some(fd) = shared.fd().and_then(|fd| fd.try_clone_to_owned().ok()) else { return };
    #[allow(
        deprecated,
        reason = "its successor exists since tokio 1.54 only and is unsafe, for the sake of types other than OwnedFd"
    )]
    // This panics on a runtime without an I/O driver. `Drop` above then records the panic.
    let registered = AsyncFd::with_interest(fd, Interest::READABLE);
    let Ok(fd) = registered else { return };
    shared.lock().driving.async_driver.state = TaskState::Running;
    let mut quiet_since = shared.now();
    let mut guard: Option<AsyncFdReadyGuard<'_, _>> = None;
    loop {
        match turn(shared, &mut quiet_since) {
            NextStep::Again | NextStep::Yield => yield_now().await,
            NextStep::Exit => return,
            NextStep::Sleep(timeout_ns) => {
                // The previous round found nothing to receive, so only a later packet makes the descriptor
                // ready again.
                if let Some(mut guard) = guard.take() {
                    guard.clear_ready();
                }
                let woken = shared.async_wake.notified();
                let timer = sleep(Duration::from_nanos(timeout_ns.unwrap_or(u64::from(u32::MAX) * 1_000)));
                tokio::select! {
                    ready = fd.readable() => match ready {
                        Ok(ready) => guard = Some(ready),
                        Err(_) => return,
                    },
                    () = woken => {}
                    () = timer, if timeout_ns.is_some() => {}
                }
            }
        }
    }
}

/// Runs one turn of the task.
fn turn(shared: &SharedEngine, quiet_since: &mut Time) -> NextStep {
    let (at, begin) = shared.clock.read_both();
    let mut engine = shared.lock();
    if engine.phase == Phase::Closed {
        return NextStep::Exit;
    }
    engine.driving.async_driver.state = TaskState::Running;
    let asleep = mem::take(&mut engine.driving.async_driver.sleep);
    if let Some(since) = asleep.since {
        engine.note_woken(at, (since, begin), asleep.notified);
    }
    engine.progress_must_not_drive();
    let mut busy = false;
    for _ in 0..ROUNDS_PER_TURN {
        let round = engine.drive(shared.now());
        busy |= round;
        if !round {
            break;
        }
    }
    engine.wake_waiters();
    let now = shared.now();
    engine.progress_must_watch();
    if busy {
        *quiet_since = now;
        return NextStep::Again;
    }
    if now.since(*quiet_since) < shared.poll_ns {
        return NextStep::Yield;
    }
    match prepare_sleep(&mut engine, now) {
        // The mailbox now knows that the task sleeps; check it once more for mail that arrived before.
        NextStep::Sleep(_) if shared.mailbox().is_some_and(|mailbox| !mailbox.begin_task_sleep()) => {
            NextStep::Again
        }
        next => next,
    }
}

/// Decides how the task sleeps if it has nothing to do now.
fn prepare_sleep(engine: &mut Engine, now: Time) -> NextStep {
    let until = engine.next_wake(now).unwrap_or(Time::NEVER);
    let timeout_ns = until.since(now);
    if timeout_ns < SHORT_SLEEP_NS || engine.is_blocked() {
        return NextStep::Yield;
    }
    engine.driving.async_driver.state = TaskState::Sleeping { until };
    engine.driving.async_driver.sleep = SleepSpan { since: Some(now), notified: false };
    engine.note_asleep();
    NextStep::Sleep((until != Time::NEVER).then_some(timeout_ns))
}
