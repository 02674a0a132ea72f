//! The progress thread: drives the network if no other thread does.
//!
//! It never competes with a waiting thread. While the host is busy, it checks once in a tick ([`tick_ns`])
//! whether another thread drives. If none has for that long, it takes the lead and sleeps on the driver's
//! descriptor. A thread that begins to wait takes the lead from it. The new leader notifies the progress
//! thread of this only when the leader has nothing better to do. If threads of the application have led for
//! [`Progress::WATCH_NS`] without any activity, the progress thread sleeps without a timer, and costs
//! nothing.
//!
//! A tick takes some 20 us from the thread that runs on its core. (Measured: at 1000 per second, the P99 of a
//! polling host's RPCs rose from 22 to 50 us on a busy machine.) Looking less often after a quiet second was
//! tried and given up. The first absence after it went unnoticed for 4 ms, and a peer must not wait longer
//! than one. On a slow link everything is slower: there the tick is the time of some packets. The ticks of
//! eight hosts that share two processors then take 2 % of the processors instead of 12.
//!
//! A bound server's requests are therefore received within about a tick even if no thread is in `recv` and no
//! RPC is open. The same holds for NEED_ACK packets for a client that has gone quiet.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use homa_proto::{Config, MS, Time};

use crate::payload::pages;
use crate::runtime::engine::{Engine, Life};
use crate::runtime::latency::LatencyClaim;
use crate::runtime::shared_engine::SharedEngine;
use crate::runtime::sleep::{self, Interest};
use crate::runtime::wait::{BLIND_SLEEP_NS, Wakeup};
use crate::tenancy::endpoint_group::mailbox::Mailbox;

/// The shortest tick, also used if the link's rate is unknown.
pub(crate) const LEAST_TICK_NS: u64 = MS;

/// The longest tick, for the slowest useful link.
const MOST_TICK_NS: u64 = 10 * MS;

/// Minimum number of full packets that a link carries in a tick: a third of the number after which peers send
/// RESEND ([`Config::on_link`]). The tick is the shortest from 100 Mbit/s on for packets of 1,480 bytes, and
/// from 580 on for those of 9,000.
const PACKETS_A_TICK: u64 = 8;

/// How long no thread drives before the progress thread does.
pub(crate) fn tick_ns(config: &Config) -> u64 {
    let Some(mbps) = config.link_mbps else { return LEAST_TICK_NS };
    let bits = u64::from(config.max_packet + config.link_overhead) * 8;
    (PACKETS_A_TICK * bits * 1_000 / u64::from(mbps)).clamp(LEAST_TICK_NS, MOST_TICK_NS)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgressState {
    /// Not started, or exited.
    Absent,
    /// Sleeps until notified that it may be needed.
    Parked,
    /// Checks once in a tick whether it is needed.
    Watching,
    /// Leads, and sleeps on the driver's descriptor until `until`.
    Driving { until: Time },
}

/// The state of the progress thread that other threads need.
#[derive(Debug)]
pub(crate) struct Progress {
    state: ProgressState,
    /// The tick: see [`tick_ns`].
    pub(crate) tick_ns: u64,
    rung: bool,
    /// When it last did a drive round.
    drove_at: Time,
    /// Times that the progress thread took over.
    pub(crate) takeovers: u64,
    /// The progress thread keeps the processors out of deep sleep.
    pub(crate) low_latency_held: bool,
}

impl Progress {
    pub(crate) fn new(config: &Config) -> Progress {
        Progress {
            state: ProgressState::Absent,
            tick_ns: tick_ns(config),
            rung: false,
            drove_at: Time::ZERO,
            takeovers: 0,
            low_latency_held: false,
        }
    }

    /// For how long after the last packet it keeps watching. Waking it costs the waker some 13 us, which is
    /// rare enough at ten times a second. Its ticks cost about a percent of a core while they last.
    const WATCH_NS: u64 = 100 * MS;

    /// Maximum drive rounds at a time while other threads wait for the lock.
    const ROUNDS: u32 = 8;

    /// Whether it leads, and sleeps until later than `due`.
    pub(crate) fn sleeps_beyond(&self, due: Time) -> bool {
        matches!(self.state, ProgressState::Driving { until } if until > due)
    }
}

impl Engine {
    /// Makes the progress thread check the network a tick from now. If another thread has driven since it
    /// fell asleep on the descriptor, it does not know which timers have become due.
    pub(crate) fn progress_must_watch(&mut self) {
        let outdated =
            matches!(self.progress.state, ProgressState::Driving { .. }) && !self.progress_drives_now();
        if self.progress.state == ProgressState::Parked || outdated {
            self.ring_progress();
        }
    }

    /// Makes the progress thread leave the driver alone, since another thread leads.
    pub(crate) fn progress_must_not_drive(&mut self) {
        if matches!(self.progress.state, ProgressState::Driving { .. }) {
            self.ring_progress();
        }
    }

    /// Whether a thread drives, and so notifies those that do not wait in this engine of new items.
    pub(crate) fn is_attended(&self) -> bool {
        self.waiting.has_leader() || self.progress_drives_now()
    }

    /// Whether the progress thread drives, and no other thread has driven since its last round.
    pub(crate) fn progress_drives_now(&self) -> bool {
        matches!(self.progress.state, ProgressState::Driving { .. })
            && self.last_driven == self.progress.drove_at
    }

    /// Whether the progress thread, if notified, checks the network within a tick.
    pub(crate) fn progress_can_watch(&self) -> bool {
        matches!(self.progress.state, ProgressState::Parked | ProgressState::Watching)
    }

    pub(crate) fn ring_progress(&mut self) {
        if !self.progress.rung && self.progress.state != ProgressState::Absent {
            self.progress.rung = true;
            self.waiting.wakes.push(Wakeup::Progress);
        }
    }

    /// Notes that the progress thread exists; `false` if it already did.
    pub(crate) fn start_progress(&mut self) -> bool {
        let start = self.progress.state == ProgressState::Absent;
        if start {
            self.progress.state = ProgressState::Watching;
        }
        start
    }

    /// Does the work that is due now, and decides how to sleep: until when, and whether on the driver's
    /// descriptor.
    fn progress_round(&mut self, now: Time, descriptor_ready: bool, demanded: bool) -> (Option<Time>, bool) {
        self.progress.rung = false;
        let active = now.since(self.last_activity) < Progress::WATCH_NS;
        let tick_ns = self.progress.tick_ns;
        let neglected = now.since(self.last_driven) >= tick_ns;
        let led = self.waiting.has_leader();
        let cared_for = led || self.async_driver.is_running();
        // If other threads have driven since it slept on the descriptor, their packets must not keep waking
        // it.
        let goes_on = self.progress_drives_now();
        let unserved = self.call_late(now);
        let alone = !cared_for && (neglected || goes_on || demanded);
        if alone && !self.hand_over_late(now) {
            return self.progress_drives(now);
        }
        // A leader sleeps until the time that was due when it fell asleep; an async task may not get to run.
        // And if this thread also slept on the mailbox, it may have been the only one to consume the
        // wake_fd's notification.
        let due = self.next_wake(now).is_some_and(|due| due <= now);
        // Work that lacks room is not due, and this thread may be the only one that can see that there is
        // room.
        let overdue = due || self.has_urgent_mail() || self.is_blocked();
        let asleep = self.waiting.leader_sleeps_until().is_some();
        if (asleep && overdue) || (!led && neglected && (overdue || descriptor_ready)) {
            self.progress.takeovers += 1;
            for _ in 0..Progress::ROUNDS {
                if !self.drive(now) {
                    break;
                }
            }
            self.summon();
        }
        // Mail for other threads would end a sleep on the mailbox at once.
        if active || unserved || !cared_for || self.has_urgent_mail() {
            self.progress.state = ProgressState::Watching;
            // A tick after the last round, and at most eight times in a tick.
            let next = (self.last_driven + tick_ns).max(now + tick_ns / 8);
            return (Some(next), false);
        }
        self.progress.state = ProgressState::Parked;
        let due = self.next_wake(now).map(|due| due.max(now) + tick_ns);
        // No event tells this thread that an async runtime is busy, so the first packet wakes this thread as
        // well.
        (due, !led)
    }

    /// Whether the processors are to be kept out of deep sleep. The progress thread does this, since opening
    /// the device takes longer than an RPC. The first RPCs after a pause may therefore find the processors
    /// asleep.
    fn wants_low_latency(&self, now: Time) -> bool {
        let active = now.since(self.last_activity) < Progress::WATCH_NS || self.endpoint.open_rpcs() > 0;
        self.low_latency && active
    }

    /// Leads for one round.
    fn progress_drives(&mut self, now: Time) -> (Option<Time>, bool) {
        if !matches!(self.progress.state, ProgressState::Driving { .. }) {
            self.progress.takeovers += 1;
        }
        let busy = self.drive(now);
        self.progress.drove_at = now;
        self.summon();
        let until = if busy { now } else { self.next_wake(now).unwrap_or(Time::NEVER) };
        self.progress.state = ProgressState::Driving { until };
        (Some(until), true)
    }
}

/// Like [`run`], but closes the host after a panic, so that its callers get an error. A panic would otherwise
/// leave a host whose requests are not received and whose timers are not processed.
pub(crate) fn run_or_close(shared: &Arc<SharedEngine>) {
    // The half-done state that the panic left is only closed, not used any more.
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

/// The thread's main function, until the host is closed.
fn run(shared: &Arc<SharedEngine>) {
    let mut descriptor_ready = false;
    let mut drives = false;
    let mut latency = LatencyClaim::new();
    let mut due = None;
    let tick_ns = shared.lock().progress.tick_ns;
    loop {
        let woken = shared.now();
        // The lock's holder most likely drives, and may be the thread that this one has just displaced from
        // its processor. Waiting for it would then be waiting for oneself. A tick later is soon enough,
        // unless another thread has requested this one.
        let locked = if drives || shared.is_demanded() { Some(shared.lock()) } else { shared.lock_if_free() };
        let Some(mut engine) = locked else {
            due = None;
            sleep::sleep(&shared.progress_wake, Interest::default(), Some(tick_ns));
            continue;
        };
        if engine.life == Life::Closed {
            return;
        }
        let now = shared.now();
        // This thread's lateness only matters if no other thread drove meanwhile.
        if let Some(due) = due.take().filter(|&due| engine.last_driven <= due) {
            engine.note_not_running(due, woken);
        }
        let (mut until, on_descriptor) = engine.progress_round(now, descriptor_ready, shared.take_demand());
        drives = matches!(engine.progress.state, ProgressState::Driving { .. });
        let looks = engine.async_driver.is_running();
        let (fd, mail) = if on_descriptor { (shared.fd(), shared.mailbox()) } else { (None, None) };
        if on_descriptor && fd.is_none() {
            until = Some(until.unwrap_or(Time::NEVER).min(now + BLIND_SLEEP_NS));
        }
        let room = engine.awaits_room();
        let low_latency = engine.wants_low_latency(now);
        let held_before = engine.progress.low_latency_held;
        if low_latency {
            // No other event wakes this thread to release the latency claim.
            let over = engine.last_activity + Progress::WATCH_NS;
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
                shared.lock().progress.low_latency_held = held;
            }
        }
        let timeout = until.filter(|&until| until != Time::NEVER).map(|until| until.since(now));
        if timeout != Some(0) {
            due = until.filter(|&until| until != Time::NEVER);
            sleep::sleep(&shared.progress_wake, Interest { fd, room, mail }, timeout);
        }
        // After a tick, the descriptor shows whether packets are waiting that a busy runtime does not
        // receive.
        let look = Interest { fd: shared.fd(), ..Interest::default() };
        let mail = shared.mailbox().is_some_and(Mailbox::is_urgent);
        descriptor_ready = looks && (mail || sleep::sleep(&shared.progress_wake, look, Some(0)));
    }
}

#[cfg(test)]
mod tests {
    use homa_proto::{RxPacket, Unreachable};

    use super::*;
    use crate::runtime::wait::{WaitTarget, Waiters};
    use crate::tenancy::endpoint_group::mailbox::MailKind;
    use crate::tenancy::endpoint_group::{EndpointGroup, GroupMember};

    /// Two threads that sleep on a mailbox are both woken, and only one of them may find its wake_fd set.
    #[test]
    fn urgent_mail_is_taken_although_a_leader_sleeps() {
        let mut engine = crate::runtime::drive::tests::engine();
        let siblings = Arc::new(EndpointGroup::new(2).unwrap());
        engine.kin = Some(GroupMember::new(Arc::clone(&siblings), 1));
        engine.waiting = Waiters::with_sleeping_leader(WaitTarget::Drained);
        assert!(engine.start_progress());
        let now = Time::ZERO;
        engine.progress_round(now, false, false);
        let stranger = RxPacket::new("127.0.0.1:1".parse().unwrap(), &[]);
        siblings.mailbox(1).post(true, |mail| {
            mail.push(MailKind::Unreachable(Unreachable::Peer { rpc_id: None }), &stranger)
        });
        assert!(engine.has_urgent_mail());
        engine.progress_round(now, false, false);
        assert!(!engine.has_urgent_mail());
    }

    /// A leader that polls and leaves may have set timers of which a thread that slept all the while is
    /// unaware.
    #[test]
    fn who_sleeps_on_the_descriptor_is_told_when_others_have_driven() {
        for leads_between in [false, true] {
            let mut engine = crate::runtime::drive::tests::engine();
            assert!(engine.start_progress());
            let (slept, left) = (Time::from_ns(10 * MS), Time::from_ns(11 * MS));
            engine.progress_drives(slept);
            assert!(engine.progress_drives_now());
            if leads_between {
                engine.leave(left);
            } else {
                engine.progress_must_watch();
            }
            let rung = engine.waiting.wakes.iter().any(|wake| matches!(wake, Wakeup::Progress));
            assert_eq!(rung, leads_between);
        }
    }

    #[test]
    fn a_tick_is_a_millisecond_but_for_slow_links() {
        let of = |link_mbps| tick_ns(&Config { link_mbps, ..Config::default() });
        assert_eq!([None, Some(25_000), Some(100)].map(of), [MS; 3]);
        // 1,480 bytes and 66 on the wire.
        assert_eq!([Some(20), Some(10), Some(1)].map(of), [4_947_200, 9_894_400, MOST_TICK_NS]);
    }
}
