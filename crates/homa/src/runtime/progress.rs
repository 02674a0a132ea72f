//! The progress thread: drives the network while nobody else does.
//!
//! It never competes with a thread that waits. While the host is busy it looks once a tick ([`tick_ns`]) whether somebody
//! drives; if nobody has for that long, it takes the lead and sleeps on the driver's descriptor. A thread that comes to wait
//! takes the lead from it, and tells it so only when it has nothing better to do. When threads of the application have led for
//! [`Progress::WATCH_NS`] without anything happening, the progress thread sleeps without a timer, and costs nothing.
//!
//! A tick takes some 20 us from whatever runs on its core (it was measured: at 1000 a second, the P99 of a polling host's RPCs
//! went from 22 to 50 us on a busy machine). Looking less often after a quiet second was tried and given up: the first
//! absence after it went unnoticed for 4 ms, and a peer must not wait longer than one. On a slow link everything takes its time: there
//! the tick is that of some packets, and the ticks of eight hosts that share two processors take 2 % of these instead of 12.
//!
//! A bound server's requests are therefore taken in within about a tick even if nobody is in `recv` and no RPC is open,
//! and so are NEED_ACK packets for a client that has gone quiet.

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

/// The shortest tick, and that where the link's rate is not known.
pub(crate) const LEAST_TICK_NS: u64 = MS;

/// The longest, that of the slowest link that is of any use.
const MOST_TICK_NS: u64 = 10 * MS;

/// Full packets that a link carries in a tick, at least: a third of those after which peers ask about silence
/// ([`Config::on_link`]). From 100 Mbit/s on a tick is the shortest for packets of 1,480 bytes, and from 580 on for those of 9,000.
const PACKETS_A_TICK: u64 = 8;

/// How long nobody drives before the progress thread does.
pub(crate) fn tick_ns(config: &Config) -> u64 {
    let Some(mbps) = config.link_mbps else { return LEAST_TICK_NS };
    let bits = u64::from(config.max_packet + config.link_overhead) * 8;
    (PACKETS_A_TICK * bits * 1_000 / u64::from(mbps)).clamp(LEAST_TICK_NS, MOST_TICK_NS)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgressState {
    /// Not started, or exited.
    Absent,
    /// Sleeps until it is told that it may be needed.
    Parked,
    /// Looks once a tick whether it is needed.
    Watching,
    /// Leads, and sleeps on the driver's descriptor until then.
    Driving { until: Time },
}

/// What the others need to know of the progress thread.
#[derive(Debug)]
pub(crate) struct Progress {
    state: ProgressState,
    /// See [`tick_ns`].
    pub(crate) tick_ns: u64,
    rung: bool,
    /// When it last did a drive round.
    drove_at: Time,
    /// Times that it took over.
    pub(crate) takeovers: u64,
    /// It keeps the processors out of deep sleep.
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

    /// For how long after the last packet it goes on looking. Waking it costs the waker some 13 us: rare enough at ten times
    /// a second; and its ticks cost about a percent of a core while they last.
    const WATCH_NS: u64 = 100 * MS;

    /// Most drive rounds at a time while others wait for the lock.
    const ROUNDS: u32 = 8;

    /// Whether it leads, and sleeps until later than `due`.
    pub(crate) fn sleeps_beyond(&self, due: Time) -> bool {
        matches!(self.state, ProgressState::Driving { until } if until > due)
    }
}

impl Engine {
    /// Has the progress thread look after the network a tick from now. Where somebody has driven since it fell asleep on the descriptor, it
    /// does not know what has become due.
    pub(crate) fn progress_must_watch(&mut self) {
        let outdated =
            matches!(self.progress.state, ProgressState::Driving { .. }) && !self.progress_drives_now();
        if self.progress.state == ProgressState::Parked || outdated {
            self.ring_progress();
        }
    }

    /// Has the progress thread leave the driver alone, since somebody leads.
    pub(crate) fn progress_must_not_drive(&mut self) {
        if matches!(self.progress.state, ProgressState::Driving { .. }) {
            self.ring_progress();
        }
    }

    /// Whether somebody drives from whom those hear of what comes who do not wait here.
    pub(crate) fn is_attended(&self) -> bool {
        self.waiting.has_leader() || self.progress_drives_now()
    }

    /// Whether the progress thread drives, and nobody else has since it last did.
    pub(crate) fn progress_drives_now(&self) -> bool {
        matches!(self.progress.state, ProgressState::Driving { .. })
            && self.last_driven == self.progress.drove_at
    }

    /// Whether the progress thread looks after the network within a tick, if it is told to.
    pub(crate) fn progress_can_watch(&self) -> bool {
        matches!(self.progress.state, ProgressState::Parked | ProgressState::Watching)
    }

    pub(crate) fn ring_progress(&mut self) {
        if !self.progress.rung && self.progress.state != ProgressState::Absent {
            self.progress.rung = true;
            self.waiting.wakes.push(Wakeup::Progress);
        }
    }

    /// Notes that the thread is there; `false` if it was already.
    pub(crate) fn start_progress(&mut self) -> bool {
        let start = self.progress.state == ProgressState::Absent;
        if start {
            self.progress.state = ProgressState::Watching;
        }
        start
    }

    /// Does what is to be done now, and decides how to sleep: until when, and whether on the driver's descriptor.
    fn progress_round(&mut self, now: Time, descriptor_ready: bool, demanded: bool) -> (Option<Time>, bool) {
        self.progress.rung = false;
        let active = now.since(self.last_activity) < Progress::WATCH_NS;
        let tick_ns = self.progress.tick_ns;
        let neglected = now.since(self.last_driven) >= tick_ns;
        let led = self.waiting.has_leader();
        let cared_for = led || self.async_driver.is_running();
        // When others have driven since it slept on the descriptor, their packets shall not go on waking it.
        let goes_on = self.progress_drives_now();
        let unserved = self.call_late(now);
        let alone = !cared_for && (neglected || goes_on || demanded);
        if alone && !self.hand_over_late(now) {
            return self.progress_drives(now);
        }
        // A leader sleeps until what was due when it fell asleep; an async task may not get to run. And while this thread still slept on
        // the mailbox as well, it may have been the only one that heard the wake_fd.
        let due = self.next_wake(now).is_some_and(|due| due <= now);
        // Nothing is due that has no room, and this thread may be the only one that can see that there is some.
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
        // Mail that others are to take would end a sleep on the mailbox at once.
        if active || unserved || !cared_for || self.has_urgent_mail() {
            self.progress.state = ProgressState::Watching;
            // A tick after the last round, and no more often than eight times a tick.
            let next = (self.last_driven + tick_ns).max(now + tick_ns / 8);
            return (Some(next), false);
        }
        self.progress.state = ProgressState::Parked;
        let due = self.next_wake(now).map(|due| due.max(now) + tick_ns);
        // Nothing tells this thread that a runtime is busy, so the first packet wakes it as well.
        (due, !led)
    }

    /// Whether the processors are to be kept out of deep sleep. That is the progress thread's business, since opening the device
    /// takes longer than an RPC; so the first RPCs after a pause may find them asleep.
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

/// As [`run`]. A panic in it would leave a host whose requests nobody takes in and whose timers nobody looks at: the host is closed, so that
/// its callers are told.
pub(crate) fn run_or_close(shared: &Arc<SharedEngine>) {
    // What the panic left half done is not looked at any more, but to be ended.
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

/// The thread's life, until the host is closed.
fn run(shared: &Arc<SharedEngine>) {
    let mut descriptor_ready = false;
    let mut drives = false;
    let mut latency = LatencyClaim::new();
    let mut due = None;
    let tick_ns = shared.lock().progress.tick_ns;
    loop {
        let woken = shared.now();
        // Whoever has the lock drives, most likely, and may be the thread that this one has just displaced from its
        // processor: to wait for it would be to wait for oneself. A tick later is soon enough, but for who has asked for this thread.
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
        // Only where nobody drove meanwhile is it of any matter that this thread came late.
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
            // Nothing else wakes this thread for it.
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
        // After a tick, the descriptor says whether packets lie there that a busy runtime does not take.
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

    /// Two threads that sleep on a mailbox are both woken, and only one of them may find its wake_fd ringing.
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

    /// What a leader that polls and leaves has begun, nobody knows of who slept all the while.
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
