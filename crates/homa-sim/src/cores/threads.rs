//! Threads of applications: who waits, who works, and what on.

use std::collections::VecDeque;

use homa_proto::Time;
use homa_steer::Core;
use homa_steer::wake::{Sleeper, Sleepers, WakeOrder};

use super::config::CoresConfig;

/// What a thread is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) kind: JobKind,
    /// The caller's number for the message that it is about.
    pub(crate) message: u32,
    /// Bytes of the message.
    pub(crate) bytes: u32,
    /// Of the packets that brought it, where any did.
    pub(crate) flow_hash: u32,
}

/// Which work, and so which threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobKind {
    /// Send a request.
    Send,
    /// Take a request and send a response that is as long.
    Request,
    /// Take a response.
    Response,
}

impl JobKind {
    const ALL: [JobKind; 3] = [JobKind::Send, JobKind::Request, JobKind::Response];
}

/// What a thread is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It sleeps, or is on its way out of sleep.
    Sleeping,
    /// It looks for its next message, and goes to sleep then.
    Polling { until: Time },
    /// It has so much left to do.
    Working { left_ns: u64 },
}

#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub(super) kind: JobKind,
    /// Where it runs, or ran last.
    pub(super) core: Core,
    pub(super) state: State,
    pub(super) job: Option<Job>,
    /// What all work on its core came to when it last ran there.
    pub(super) ran_at_busy_ns: u64,
}

/// The threads of a kind.
#[derive(Debug)]
pub(super) struct Pool {
    /// Those that wait for a message, be it in a poll or asleep.
    pub(super) waiting: Sleepers,
    /// Messages for which no thread waits.
    pub(super) ready: VecDeque<Job>,
    /// Who took the last one.
    pub(super) last: Option<u32>,
}

/// All threads of a host.
#[derive(Debug)]
pub(super) struct Threads {
    pub(super) all: Vec<Thread>,
    pools: [Pool; 3],
}

impl Threads {
    /// All asleep, spread over the cores: servers first, then clients, then senders.
    pub(super) fn new(config: &CoresConfig) -> Threads {
        let count = |kind| match kind {
            JobKind::Send => config.sender_threads,
            JobKind::Request => config.server_threads,
            JobKind::Response => config.client_threads,
        };
        let mut all = Vec::new();
        let mut pools = JobKind::ALL.map(|kind| Pool {
            // Senders are woken by a clock, and no message waits for one of them in particular.
            waiting: Sleepers::new(
                if kind == JobKind::Send { WakeOrder::Lifo } else { config.wake_order },
                count(kind),
            ),
            ready: VecDeque::new(),
            last: None,
        });
        for kind in [JobKind::Request, JobKind::Response, JobKind::Send] {
            for _ in 0..count(kind) {
                let (thread, core) = (all.len() as u32, (all.len() % config.cores) as Core);
                all.push(Thread { kind, core, state: State::Sleeping, job: None, ran_at_busy_ns: 0 });
                let _ = pools[kind as usize].waiting.sleep(Sleeper { thread, core });
            }
        }
        Threads { all, pools }
    }

    pub(super) fn get(&mut self, thread: u32) -> &mut Thread {
        &mut self.all[thread as usize]
    }

    pub(super) fn pool(&mut self, kind: JobKind) -> &mut Pool {
        &mut self.pools[kind as usize]
    }
}
