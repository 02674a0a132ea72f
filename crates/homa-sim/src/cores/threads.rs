//! Application threads: which ones wait, which ones work, and on what.

use std::collections::VecDeque;

use homa_proto::Time;
use homa_steer::Core;
use homa_steer::wake::{Sleeper, Sleepers, WakeOrder};

use super::config::CoresConfig;

/// A job of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) kind: JobKind,
    /// The caller's ID for the message.
    pub(crate) message: u32,
    /// Bytes of the message.
    pub(crate) bytes: u32,
    /// Flow hash of the packets that carried the message, if any.
    pub(crate) flow_hash: u32,
}

/// Kind of work, which determines the kind of thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobKind {
    /// Sending a request.
    Send,
    /// Receiving a request and sending a response of the same length.
    Request,
    /// Receiving a response.
    Response,
}

impl JobKind {
    const ALL: [JobKind; 3] = [JobKind::Send, JobKind::Request, JobKind::Response];
}

/// State of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The thread sleeps or is being woken.
    Sleeping,
    /// The thread polls for its next message until this time, and then sleeps.
    Polling { until: Time },
    /// The thread works, and needs this much more time.
    Working { left_ns: u64 },
}

#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub(super) kind: JobKind,
    /// Core on which the thread runs or last ran.
    pub(super) core: Core,
    pub(super) state: State,
    pub(super) job: Option<Job>,
    /// The core's total time worked when the thread last ran there.
    pub(super) ran_at_busy_ns: u64,
}

/// The threads of a kind.
#[derive(Debug)]
pub(super) struct Pool {
    /// Threads that wait for a message, polling or asleep.
    pub(super) waiting: Sleepers,
    /// Jobs for which no thread waits.
    pub(super) ready: VecDeque<Job>,
    /// The thread that received the last job.
    pub(super) last: Option<u32>,
}

/// All threads of a host.
#[derive(Debug)]
pub(super) struct Threads {
    pub(super) all: Vec<Thread>,
    pools: [Pool; 3],
}

impl Threads {
    /// Creates all threads asleep, spread over the cores: servers first, then clients, then senders.
    pub(super) fn new(config: &CoresConfig) -> Threads {
        let count = |kind| match kind {
            JobKind::Send => config.sender_threads,
            JobKind::Request => config.server_threads,
            JobKind::Response => config.client_threads,
        };
        let mut all = Vec::new();
        let mut pools = JobKind::ALL.map(|kind| Pool {
            // Senders are woken by a clock, and no message waits for a particular sender.
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
