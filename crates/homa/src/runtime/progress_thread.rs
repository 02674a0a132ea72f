//! The main function of the progress thread: see [`progress`](crate::runtime::progress).

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use homa_proto::Time;

use crate::payload::pages;
use crate::runtime::engine::Phase;
use crate::runtime::latency::LatencyClaim;
use crate::runtime::progress::{Progress, ProgressState};
use crate::runtime::shared_engine::SharedEngine;
use crate::runtime::sleep::{self, Interest};
use crate::runtime::wait::BLIND_SLEEP_NS;
use crate::tenancy::endpoint_group::mailbox::Mailbox;

/// Like [`run`], but closes the host after a panic, so that the host's callers get an error. Without this, a
/// panic would leave a host that receives no requests and processes no timers.
pub(crate) fn run_and_close_on_panic(shared: &Arc<SharedEngine>) {
    // The panic may leave inconsistent state, but that state is only closed and no longer used.
    if panic::catch_unwind(AssertUnwindSafe(|| run(shared))).is_ok() {
        return;
    }
    tracing::error!("the progress thread of a Homa host panicked, and the host is closed");
    let close = || {
        let now = shared.now();
        shared.lock().begin_close(now);
    };
    if panic::catch_unwind(AssertUnwindSafe(close)).is_err() {
        eprintln!(
            "homa: the progress thread of a host panicked, and the host cannot be closed: the process is aborted"
        );
        std::process::abort();
    }
}

/// The main function of the thread; returns when the host is closed.
fn run(shared: &Arc<SharedEngine>) {
    let mut descriptor_ready = false;
    let mut drives = false;
    let mut latency = LatencyClaim::new();
    let mut due = None;
    let tick_ns = shared.lock().driving.progress.tick_ns;
    loop {
        let woken = shared.now();
        // The lock's holder most likely drives, and this thread may have just preempted it. This thread would
        // then wait for a thread that cannot run because of it. Trying again one tick later is soon enough,
        // unless another thread has requested the progress thread.
        let locked = if drives || shared.is_demanded() { Some(shared.lock()) } else { shared.lock_if_free() };
        let Some(mut engine) = locked else {
            due = None;
            sleep::sleep(&shared.progress_wake, Interest::default(), Some(tick_ns));
            continue;
        };
        if engine.phase == Phase::Closed {
            return;
        }
        let now = shared.now();
        // It matters that this thread is late only if no other thread has driven in the meantime.
        if let Some(due) = due.take().filter(|&due| engine.driving.last_driven <= due) {
            engine.note_not_running(due, woken);
        }
        let (mut until, on_descriptor) = engine.progress_round(now, descriptor_ready, shared.take_demand());
        drives = matches!(engine.driving.progress.state, ProgressState::Driving { .. });
        let looks = engine.driving.async_driver.is_running();
        let (fd, mail) = if on_descriptor { (shared.fd(), shared.mailbox()) } else { (None, None) };
        if on_descriptor && fd.is_none() {
            until = Some(until.unwrap_or(Time::NEVER).min(now + BLIND_SLEEP_NS));
        }
        let room = engine.awaits_room();
        let low_latency = engine.wants_low_latency(now);
        let held_before = engine.driving.progress.low_latency_held;
        if low_latency {
            // Wake up at this time, since no other event makes this thread release the low-latency request.
            let over = engine.driving.last_activity + Progress::WATCH_NS;
            let look = if over > now { over } else { now + Progress::WATCH_NS };
            until = Some(until.unwrap_or(Time::NEVER).min(look));
        }
        let trims = engine.take_trim();
        drop(engine);
        if trims {
            pages::trim_heap();
        }
        if low_latency != held_before {
            let held = latency.hold(low_latency);
            if held != held_before {
                shared.lock().driving.progress.low_latency_held = held;
            }
        }
        let timeout = until.filter(|&until| until != Time::NEVER).map(|until| until.since(now));
        if timeout != Some(0) {
            due = until.filter(|&until| until != Time::NEVER);
            sleep::sleep(&shared.progress_wake, Interest { fd, room, mail }, timeout);
        }
        // After a tick, the descriptor shows whether packets are waiting that a busy async runtime has not
        // received.
        let look = Interest { fd: shared.fd(), ..Interest::default() };
        let mail = shared.mailbox().is_some_and(Mailbox::is_urgent);
        descriptor_ready = looks && (mail || sleep::sleep(&shared.progress_wake, look, Some(0)));
    }
}
