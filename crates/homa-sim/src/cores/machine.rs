//! The simulation of a host's cores.
//!
//! A machine has no clock. Its caller reports events with their times, and performs the [`Action`]s that the
//! machine requests.

use std::collections::VecDeque;

use homa_proto::Time;
use homa_steer::batch::Batch;
use homa_steer::wake::Sleeper;
use homa_steer::{Core, CoreLoad, Loads, Packet, Policy, hash};
use rand::Rng;
use rand_pcg::Pcg64;

use super::config::CoresConfig;
use super::core::{CoreState, Item, Next, Task};
use super::costs::{Costs, for_bytes};
use super::counts::CoreCounts;
use super::threads::{Job, JobKind, State, Thread, Threads};
use crate::payload::random_numbers;

/// An action that a machine requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Call [`Machine::elapsed`] at this time.
    At(Time, Timer),
    /// The protocol has processed this packet on this core.
    Processed { packet: u32, core: Core },
    /// A thread has started to send.
    Begun(Job),
    /// A thread has finished this job.
    Done(Job),
    /// This packet was dropped because a queue was full.
    Dropped { packet: u32 },
}

/// A timer of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// The current work of a core.
    Work { core: Core, turn: u32 },
    /// The wake-up of a core.
    Core(Core),
    /// The wake-up of a thread.
    Thread(u32),
}

/// Random stream for time slices.
const SLICES: u64 = 0x51;

/// The cores of a host.
#[derive(Debug)]
pub(crate) struct Machine {
    config: CoresConfig,
    policy: Box<dyn Policy>,
    /// Cores on which packets arrive.
    arrival_cores: Vec<Core>,
    cores: Vec<CoreState>,
    loads: Vec<CoreLoad>,
    threads: Threads,
    /// Core on which the protocol last processed a packet.
    last_protocol: Option<Core>,
    random: Pcg64,
    actions: VecDeque<Action>,
    counts: CoreCounts,
    counted_since: Time,
}

impl Machine {
    /// Makes a machine at time 0 without work.
    ///
    /// # Panics
    /// If [`CoresConfig::check`] fails.
    pub(crate) fn new(config: &CoresConfig, seed: u64) -> Machine {
        config.check().expect("the settings are checked before");
        let cores = config.policy_cores().expect("checked");
        let policy = config.policy.build(&cores, &config.settings).expect("checked");
        Machine {
            arrival_cores: config.arrival_cores(),
            cores: (0..config.cores).map(|_| CoreState::new()).collect(),
            loads: vec![CoreLoad::default(); config.cores],
            threads: Threads::new(config),
            policy,
            last_protocol: None,
            random: random_numbers(seed, SLICES),
            actions: VecDeque::new(),
            counts: CoreCounts::default(),
            counted_since: Time::ZERO,
            config: config.clone(),
        }
    }

    fn costs(&self) -> &Costs {
        &self.config.costs
    }

    fn core(&mut self, core: Core) -> &mut CoreState {
        &mut self.cores[usize::from(core)]
    }

    /// Returns the core to which the device sends packets with this hash.
    pub(crate) fn arrival_core(&self, device_hash: u32) -> Core {
        self.arrival_cores[hash::place(device_hash, self.arrival_cores.len())]
    }

    /// Returns the next action.
    pub(crate) fn action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Handles the arrival of a packet at its arrival core.
    pub(crate) fn arrive(&mut self, now: Time, number: u32, packet: Packet) {
        let ring_packets = self.costs().receive.ring_packets;
        let core = self.core(packet.arrival);
        if core.ring.len() >= ring_packets {
            self.counts.dropped += 1;
            return self.actions.push_back(Action::Dropped { packet: number });
        }
        core.ring.push_back(Item { number, packet, begins: false });
        if !core.polls_device {
            (core.polls_device, core.interrupted) = (true, true);
            self.packets_wait(now, packet.arrival);
        }
    }

    /// Records that the protocol sent a packet in response to a packet that it processed on `core`. If `core`
    /// is `None`, uses the core that most recently processed a packet.
    pub(crate) fn sent(&mut self, now: Time, core: Option<Core>) {
        let ns = self.costs().protocol.transmit_ns;
        self.add_cost(now, core.or(self.last_protocol).unwrap_or(0), ns);
    }

    fn add_cost(&mut self, now: Time, core: Core, ns: u64) {
        self.core(core).debt_ns += ns;
        self.packets_wait(now, core);
    }

    /// Makes a core switch to packet processing.
    fn packets_wait(&mut self, now: Time, core: Core) {
        let state = self.core(core);
        if state.is_at_packets() || state.deferred_until.is_some() && state.task == Task::Application {
            return; // The core itself checks for packets when its task ends.
        }
        self.pause(now, core);
        self.dispatch(now, core);
    }

    /// Interrupts the current work of a core.
    fn pause(&mut self, now: Time, core: Core) {
        let state = &mut self.cores[usize::from(core)];
        state.turn += 1;
        let took_ns = now.since(state.began);
        if state.task == Task::Application {
            let thread = state.runnable[0];
            match &mut self.threads.get(thread).state {
                State::Working { left_ns } => {
                    *left_ns -= took_ns.min(*left_ns);
                    state.busy_ns += took_ns;
                }
                State::Polling { .. } | State::Sleeping => state.poll_ns += took_ns,
            }
            self.loads[usize::from(core)].application_ns = now.as_ns();
            state.began = now;
        }
        state.task = Task::Idle;
    }

    /// Handles the expiry of a timer.
    pub(crate) fn elapsed(&mut self, now: Time, timer: Timer) {
        match timer {
            Timer::Work { core, turn } if self.core(core).turn == turn => self.ends(now, core),
            Timer::Work { .. } => {}
            Timer::Core(core) => {
                let state = self.core(core);
                (state.wake_under_way, state.knows, state.begins) = (false, true, true);
                self.packets_wait(now, core);
            }
            Timer::Thread(thread) => self.thread_is_awake(now, thread),
        }
    }

    /// Starts the next work of an idle core.
    fn dispatch(&mut self, now: Time, core: Core) {
        let scheduler = &self.config.costs.scheduler;
        let (longest_ns, rounds) = (scheduler.softirq_ns, scheduler.softirq_rounds);
        let slice_ns = self.random.random_range(scheduler.timeslice_min_ns..=scheduler.timeslice_max_ns);
        let power = &self.config.costs.power;
        let has_work = self.working(core).is_some();
        let state = &mut self.cores[usize::from(core)];
        let slept =
            state.task == Task::Idle && power.exit_ns > 0 && now.since(state.began) >= power.idle_ns.max(1);
        let exit_ns = if slept { power.exit_ns } else { 0 };
        let (next, defers) = state.next(now, has_work, (longest_ns, rounds), slice_ns);
        self.counts.deferrals += u64::from(defers);
        match next {
            Next::Packets => {
                let task = self.core(core).next_of_packets();
                let takes_ns = self.begin(now, core, task);
                self.work(now, core, task, exit_ns + takes_ns);
            }
            Next::Applications => self.run(now, core, slice_ns, exit_ns),
            Next::Nothing => {
                let state = self.core(core);
                if state.task != Task::Idle {
                    (state.task, state.began) = (Task::Idle, now);
                }
            }
        }
    }

    /// Returns the index of the first of a core's threads that has work other than polling.
    fn working(&self, core: Core) -> Option<usize> {
        let threads = &self.threads.all;
        let works = |&thread: &u32| matches!(threads[thread as usize].state, State::Working { .. });
        self.cores[usize::from(core)].runnable.iter().position(works)
    }

    /// Handles new work for a thread on this core. The new work precedes a polling thread, which yields at
    /// every check (`schedule` in the loop of `homa_wait_for_message`).
    fn has_got_work(&mut self, now: Time, core: Core) {
        let state = &self.cores[usize::from(core)];
        let polls = |thread: u32| matches!(self.threads.all[thread as usize].state, State::Polling { .. });
        if state.task == Task::Application && polls(state.runnable[0]) {
            self.pause(now, core);
        }
        if self.core(core).task == Task::Idle {
            self.dispatch(now, core);
        }
    }

    /// Occupies a core with this work for `ns` from now on.
    fn work(&mut self, now: Time, core: Core, task: Task, ns: u64) {
        let state = self.core(core);
        state.turn += 1;
        (state.task, state.began) = (task, now);
        let turn = state.turn;
        self.actions.push_back(Action::At(now + ns, Timer::Work { core, turn }));
    }

    /// Starts a piece of packet processing. Returns its duration.
    fn begin(&mut self, now: Time, core: Core, task: Task) -> u64 {
        let costs = &self.config.costs;
        let state = &mut self.cores[usize::from(core)];
        let is_displaced = |since_ns: u64, state: &CoreState| {
            costs.cache.warm_ns > 0 && state.busy_ns - since_ns > costs.cache.warm_ns
        };
        match task {
            Task::Overhead => std::mem::take(&mut state.debt_ns),
            Task::Interrupt => {
                state.interrupted = false;
                costs.receive.interrupt_ns
            }
            Task::Receive => {
                let count = state.take_batch(self.config.receive_batch.packets());
                let is_cold = is_displaced(state.received_at_busy_ns, state);
                let bytes =
                    state.batch.iter().map(|item| for_bytes(costs.receive.byte_ns, item.packet.bytes));
                let bytes_ns: u64 = bytes.sum();
                let ns = costs.receive.poll_ns + u64::from(count) * costs.receive.packet_ns;
                self.loads[usize::from(core)].received_ns = now.as_ns();
                costs.stage_ns(ns, is_cold) + bytes_ns
            }
            Task::Protocol => {
                let Some(item) = state.backlog.front().copied() else { return 0 };
                let wake_ns = if std::mem::take(&mut state.begins) { costs.handoff.wake_ns } else { 0 };
                let is_elsewhere =
                    costs.cache.warm_ns > 0 && self.last_protocol.is_some_and(|last| last != core);
                let is_cold = is_elsewhere || is_displaced(state.processed_at_busy_ns, state);
                self.counts.cold_packets += u64::from(is_cold);
                self.last_protocol = Some(core);
                let misses = state.load_flow(item.packet.flow_hash, costs.cache.flows);
                let burst_ns = if item.begins { costs.protocol.burst_ns } else { 0 };
                wake_ns
                    + costs.stage_ns(burst_ns + costs.protocol.packet_ns, is_cold)
                    + for_bytes(costs.protocol.byte_ns, item.packet.bytes)
                    + if misses { costs.cache.flow_ns } else { 0 }
            }
            Task::Idle | Task::Application => 0,
        }
    }

    /// Handles the end of a core's current work.
    fn ends(&mut self, now: Time, core: Core) {
        let state = &mut self.cores[usize::from(core)];
        match state.task {
            Task::Application => {
                self.pause(now, core);
                self.thread_stops(now, core);
            }
            Task::Receive => {
                state.busy_ns += now.since(state.began);
                state.received_at_busy_ns = state.busy_ns;
                self.received(now, core);
                let state = self.core(core);
                // If the ring is empty, the next packet raises an interrupt again.
                state.polls_device = !state.ring.is_empty();
            }
            Task::Protocol => {
                state.busy_ns += now.since(state.began);
                state.processed_at_busy_ns = state.busy_ns;
                if let Some(item) = state.backlog.pop_front() {
                    state.knows = !state.backlog.is_empty();
                    self.loads[usize::from(core)].done_packets += 1;
                    self.actions.push_back(Action::Processed { packet: item.number, core });
                }
            }
            Task::Interrupt | Task::Overhead | Task::Idle => state.busy_ns += now.since(state.began),
        }
        self.dispatch(now, core);
    }

    /// Handles a batch from the device: each packet goes to the core that the policy selects.
    fn received(&mut self, now: Time, core: Core) {
        self.update_loads(now);
        let mut batch = std::mem::take(&mut self.core(core).batch);
        let size = batch.len() as u32;
        self.counts.packets += u64::from(size);
        self.counts.batches += 1;
        let each_ns = self.costs().protocol.packet_ns;
        // Bit mask of the cores that have received a packet of the batch.
        let mut got = 0_u64;
        for (position, mut item) in (0..).zip(batch.drain(..)) {
            item.packet.now_ns = now.as_ns();
            item.packet.batch = Batch { position, size };
            let target = self.policy.choose(&item.packet, Loads(&self.loads)).core;
            let bit = 1 << target;
            item.begins = got & bit == 0;
            got |= bit;
            let load = &mut self.loads[usize::from(target)];
            (load.processed_ns, load.idle) = (now.as_ns(), false);
            load.waiting_packets += 1;
            load.backlog_ns += each_ns;
            self.hand_over(now, core, target, item);
        }
        self.core(core).batch = batch;
    }

    fn hand_over(&mut self, now: Time, from: Core, to: Core, item: Item) {
        let handoff = &self.config.costs.handoff;
        let state = &mut self.cores[usize::from(to)];
        if state.backlog.len() >= handoff.backlog_packets {
            self.counts.dropped += 1;
            return self.actions.push_back(Action::Dropped { packet: item.number });
        }
        state.backlog.push_back(item);
        self.counts.handed_off += u64::from(from != to);
        if state.knows || state.wake_under_way {
            return; // The core gets to the packet without another notification.
        }
        if from == to {
            (state.knows, state.begins) = (true, true);
        } else {
            state.wake_under_way = true;
            self.counts.core_wakes += 1;
            self.actions.push_back(Action::At(now + handoff.other_core_ns, Timer::Core(to)));
        }
    }

    /// Updates the loads that policies observe.
    fn update_loads(&mut self, now: Time) {
        let costs = &self.config.costs;
        for (state, load) in self.cores.iter().zip(&mut self.loads) {
            let threads =
                state.runnable.iter().map(|&thread| match self.threads.all[thread as usize].state {
                    State::Working { left_ns } => left_ns,
                    State::Polling { .. } | State::Sleeping => 0,
                });
            if state.task == Task::Application {
                load.application_ns = now.as_ns();
            }
            load.idle = state.task == Task::Idle && state.backlog.is_empty() && state.ring.is_empty();
            load.waiting_packets = state.backlog.len() as u32;
            load.backlog_ns = state.ring.len() as u64 * costs.receive.packet_ns
                + state.backlog.len() as u64 * costs.protocol.packet_ns
                + state.debt_ns
                + threads.sum::<u64>();
        }
    }

    /// Gives a thread a job: a message that is complete on this core, or one that is due to be sent.
    pub(crate) fn submit(&mut self, now: Time, job: Job, by: Option<Core>) {
        self.update_loads(now);
        let pool = self.threads.pool(job.kind);
        match pool.waiting.wake(Loads(&self.loads)) {
            Some(sleeper) => self.assign(now, sleeper.thread, job, by),
            None => pool.ready.push_back(job),
        }
    }

    /// Gives a waiting thread a job.
    fn assign(&mut self, now: Time, thread: u32, job: Job, by: Option<Core>) {
        let wake_ns = self.config.costs.application.poll_wake_ns;
        let polls = matches!(self.threads.get(thread).state, State::Polling { .. });
        self.threads.get(thread).job = Some(job);
        if polls {
            let core = self.threads.get(thread).core;
            if self.core(core).task == Task::Application && self.core(core).runnable[0] == thread {
                self.pause(now, core);
            }
            self.start_job(thread, wake_ns);
            return self.has_got_work(now, core);
        }
        let after_ns = match by {
            Some(by) => {
                self.counts.thread_wakes += 1;
                let waker_ns = self.costs().application.waker_ns;
                self.add_cost(now, by, waker_ns);
                self.costs().application.sleep_wake_ns
            }
            // A sender polls the clock itself.
            None => 0,
        };
        let core = self.place(thread);
        self.core(core).expected += 1;
        self.actions.push_back(Action::At(now + after_ns, Timer::Thread(thread)));
    }

    /// Returns the core on which a sleeping thread continues: its previous core, or the next core that runs
    /// no thread, as found by the kernel's scheduler (`select_idle_sibling`). The search treats a core that
    /// processes packets as idle.
    fn place(&mut self, thread: u32) -> Core {
        let own = self.threads.get(thread).core;
        let is_free = |state: &CoreState| state.runnable.is_empty() && state.expected == 0;
        let count = self.cores.len();
        let places = (0..count).map(|step| (usize::from(own) + step) % count);
        let core =
            places.into_iter().find(|&core| is_free(&self.cores[core])).unwrap_or(usize::from(own)) as Core;
        self.counts.moved_threads += u64::from(core != own);
        self.threads.get(thread).core = core;
        core
    }

    fn thread_is_awake(&mut self, now: Time, thread: u32) {
        let core = self.threads.get(thread).core;
        self.start_job(thread, 0);
        let state = self.core(core);
        state.expected -= 1;
        state.runnable.push_back(thread);
        self.has_got_work(now, core);
    }

    /// Starts the job of a thread after `wake_ns`.
    fn start_job(&mut self, thread: u32, wake_ns: u64) {
        let Thread { job: Some(job), core, ran_at_busy_ns, .. } = *self.threads.get(thread) else { return };
        let costs = &self.config.costs;
        let busy_ns = self.cores[usize::from(core)].busy_ns;
        let last = self.threads.pool(job.kind).last.replace(thread);
        // The thread is cold if another thread has since used the data that they share, or if its core has
        // done much other work.
        let is_cold = last != Some(thread) || busy_ns.saturating_sub(ran_at_busy_ns) > costs.cache.warm_ns;
        let is_cold = is_cold && costs.cache.warm_ns > 0;
        let work_ns = match job.kind {
            JobKind::Send => costs.send_ns(job.bytes),
            JobKind::Request => costs.take_ns(job.bytes, is_cold) + costs.send_ns(job.bytes),
            JobKind::Response => costs.take_ns(job.bytes, is_cold),
        };
        if job.kind == JobKind::Send {
            self.actions.push_back(Action::Begun(job));
        } else {
            self.counts.messages += 1;
            self.counts.cold_messages += u64::from(is_cold);
            self.policy.consumed(job.flow_hash, core);
        }
        self.threads.get(thread).state = State::Working { left_ns: wake_ns + work_ns };
    }

    /// Runs the first of a core's threads that has work until it is done or its time slice ends. If none has
    /// work, the first thread polls.
    fn run(&mut self, now: Time, core: Core, slice_ns: u64, exit_ns: u64) {
        let working = self.working(core);
        let state = &mut self.cores[usize::from(core)];
        state.runnable.rotate_left(working.unwrap_or(0));
        let thread = state.runnable[0];
        if state.slice_ends <= now {
            state.slice_ends = now + slice_ns;
        }
        let until = match &mut self.threads.get(thread).state {
            State::Working { left_ns } => {
                *left_ns += exit_ns;
                now + *left_ns
            }
            State::Polling { until } => (*until).max(now),
            State::Sleeping => now,
        };
        let ends = until.min(state.slice_ends);
        self.work(now, core, Task::Application, ends.since(now));
    }

    /// Handles a thread that stopped: it is done, has polled long enough, or has used up its time slice.
    fn thread_stops(&mut self, now: Time, core: Core) {
        let thread = self.core(core).runnable[0];
        match self.threads.get(thread).state {
            State::Working { left_ns: 0 } => self.job_is_done(now, thread, core),
            State::Polling { until } if until <= now => self.sleeps(thread, core),
            State::Working { .. } | State::Polling { .. } | State::Sleeping => {
                let state = self.core(core);
                state.runnable.rotate_left(1);
                state.slice_ends = now;
            }
        }
    }

    fn job_is_done(&mut self, now: Time, thread: u32, core: Core) {
        let busy_ns = self.core(core).busy_ns;
        let state = self.threads.get(thread);
        state.ran_at_busy_ns = busy_ns;
        let kind = state.kind;
        if let Some(job) = state.job.take() {
            self.actions.push_back(Action::Done(job));
        }
        let pool = self.threads.pool(kind);
        if let Some(next) = pool.ready.pop_front() {
            self.threads.get(thread).job = Some(next);
            return self.start_job(thread, 0);
        }
        let _ = pool.waiting.sleep(Sleeper { thread, core });
        if self.config.poll_ns > 0 && kind != JobKind::Send {
            self.threads.get(thread).state = State::Polling { until: now + self.config.poll_ns };
        } else {
            self.sleeps(thread, core);
        }
    }

    /// Puts a thread to sleep.
    fn sleeps(&mut self, thread: u32, core: Core) {
        self.threads.get(thread).state = State::Sleeping;
        let state = self.core(core);
        state.runnable.pop_front();
        state.slice_ends = Time::ZERO;
    }

    /// Starts counting at `now`.
    pub(crate) fn count_from(&mut self, now: Time) {
        self.counts = CoreCounts::default();
        self.counted_since = now;
        for state in &mut self.cores {
            state.counted_from = (state.busy_ns, state.poll_ns);
        }
    }

    /// Returns the counters up to now.
    pub(crate) fn counts(&self, now: Time) -> CoreCounts {
        let time_ns = now.since(self.counted_since).max(1) as f64;
        let share = |ns: u64| (ns as f64 / time_ns).min(1.0);
        let busy = self.cores.iter().map(|state| share(state.busy_ns - state.counted_from.0));
        let polled = self.cores.iter().map(|state| share(state.poll_ns - state.counted_from.1));
        let cores = self.cores.len() as f64;
        CoreCounts {
            busiest_core: busy.clone().fold(0.0, f64::max),
            mean_core: busy.sum::<f64>() / cores,
            polling: polled.sum::<f64>() / cores,
            ..self.counts.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use homa_steer::PolicyName;
    use homa_steer::batch::BatchCap;

    use super::*;

    /// A machine and a timestamped log of its actions.
    struct Bench {
        machine: Machine,
        now: Time,
        timers: Vec<(Time, Timer)>,
        done: Vec<(u64, Action)>,
    }

    impl Bench {
        fn new(config: &CoresConfig) -> Bench {
            Bench { machine: Machine::new(config, 1), now: Time::ZERO, timers: Vec::new(), done: Vec::new() }
        }

        fn take(&mut self) {
            while let Some(action) = self.machine.action() {
                match action {
                    Action::At(at, timer) => self.timers.push((at, timer)),
                    other => self.done.push((self.now.as_ns(), other)),
                }
            }
        }

        fn packet(&mut self, number: u32, arrival: Core) {
            self.machine.arrive(self.now, number, Packet { arrival, bytes: 100, ..Packet::default() });
            self.take();
        }

        fn submit(&mut self, message: u32, by: Core) {
            let job = Job { kind: JobKind::Response, message, bytes: 0, flow_hash: 0 };
            self.machine.submit(self.now, job, Some(by));
            self.take();
        }

        fn run(&mut self, until_ns: u64) {
            while let Some(place) = (0..self.timers.len()).min_by_key(|&place| self.timers[place].0)
                && self.timers[place].0.as_ns() <= until_ns
            {
                let (at, timer) = self.timers.remove(place);
                self.now = at;
                self.machine.elapsed(at, timer);
                self.take();
            }
            self.now = Time::from_ns(until_ns);
        }

        fn processed(&self) -> Vec<(u64, u32, Core)> {
            let processed = self.done.iter().filter_map(|&(at, action)| match action {
                Action::Processed { packet, core } => Some((at, packet, core)),
                _ => None,
            });
            processed.collect()
        }

        fn jobs(&self) -> Vec<(u64, u32)> {
            let jobs = self.done.iter().filter_map(|&(at, action)| match action {
                Action::Done(job) => Some((at, job.message)),
                _ => None,
            });
            jobs.collect()
        }
    }

    fn config(policy: PolicyName) -> CoresConfig {
        CoresConfig { server_threads: 1, client_threads: 1, ..CoresConfig::x86(2, policy) }
    }

    /// Total time of the interrupt, the batch, the protocol's wake-up and the protocol's work, by the x86
    /// costs.
    const RECEIVE_NS: u64 = 530 + 267 + 350;
    const PROCESS_NS: u64 = 475 + 320 + 322;

    #[test]
    fn a_packet_takes_its_stages_and_more_where_it_is_handed_over() {
        let mut bench = Bench::new(&config(PolicyName::SameCore));
        bench.packet(7, 1);
        bench.run(100_000);
        assert_eq!(bench.processed(), [(RECEIVE_NS + PROCESS_NS, 7, 1)]);
        // A hash of 0 sends the packet to the first core.
        let mut bench = Bench::new(&config(PolicyName::RssHash));
        bench.packet(7, 1);
        bench.run(100_000);
        assert_eq!(bench.processed(), [(RECEIVE_NS + 1_250 + PROCESS_NS, 7, 0)]);
        let counts = bench.machine.counts(bench.now);
        assert_eq!((counts.packets, counts.handed_off, counts.core_wakes), (1, 1, 1));
    }

    #[test]
    fn what_waits_is_taken_in_batches_up_to_the_cap_and_wakes_a_core_once() {
        let cap = CoresConfig { receive_batch: BatchCap::new(3).unwrap(), ..config(PolicyName::RssHash) };
        let mut bench = Bench::new(&cap);
        (0..4).for_each(|number| bench.packet(number, 1));
        bench.run(100_000);
        let counts = bench.machine.counts(bench.now);
        assert_eq!((counts.packets, counts.batches, counts.core_wakes), (4, 2, 1));
        let first = 530 + 267 + 3 * 350 + 1_250 + PROCESS_NS;
        assert_eq!(bench.processed()[..3], [(first, 0, 0), (first + 322, 1, 0), (first + 644, 2, 0)]);
        assert_eq!(
            bench.processed()[3],
            (first + 644 + 320 + 322, 3, 0),
            "of the second batch, without a wake-up"
        );
    }

    #[test]
    fn a_thread_that_polls_is_faster_than_one_that_sleeps() {
        let mut bench = Bench::new(&config(PolicyName::SameCore));
        bench.submit(1, 0);
        bench.run(1_000_000);
        // The thread is cold for its first message.
        let slept = 2_090 + (435.0_f64 * 2.06).round() as u64 + 360;
        assert_eq!(bench.jobs(), [(slept, 1)]);
        // The thread polls for 50 us and sleeps again. After the next message it is still polling.
        bench.submit(2, 0);
        bench.run(1_010_000);
        bench.submit(3, 0);
        bench.run(2_000_000);
        assert_eq!(bench.jobs()[1..], [(1_000_000 + 2_090 + 435 + 360, 2), (1_010_000 + 90 + 435 + 360, 3)]);
        assert_eq!(bench.machine.counts(bench.now).thread_wakes, 2);
    }

    #[test]
    fn packets_interrupt_an_application_on_their_core_and_no_other() {
        for (arrival, late) in [(1, RECEIVE_NS + PROCESS_NS), (0, 0)] {
            let mut bench = Bench::new(&config(PolicyName::SameCore));
            // The only client thread is the second thread, whose home is the second core.
            bench.submit(1, 0);
            bench.run(2_100);
            bench.packet(1, arrival);
            bench.run(1_000_000);
            assert_eq!(bench.jobs(), [(2_090 + 896 + 360 + late, 1)], "a packet on core {arrival}");
        }
    }

    #[test]
    fn a_thread_that_polls_gives_way_to_one_with_work() {
        // Client and server threads run on one core.
        let base = config(PolicyName::SameCore);
        let mut bench = Bench::new(&CoresConfig { cores: 1, ..base });
        bench.submit(1, 0);
        bench.run(10_000);
        let job = Job { kind: JobKind::Request, message: 2, bytes: 0, flow_hash: 0 };
        bench.machine.submit(bench.now, job, Some(0));
        bench.take();
        bench.run(1_000_000);
        let request_ns = 896 + 360 + 360 + 745 + 488;
        assert_eq!(bench.jobs()[1], (10_000 + 2_090 + request_ns, 2), "while the other one polls");
    }

    #[test]
    fn messages_wait_for_the_only_thread() {
        let mut bench = Bench::new(&config(PolicyName::SameCore));
        (1..4).for_each(|message| bench.submit(message, 0));
        bench.run(1_000_000);
        let first = 2_090 + 896 + 360;
        assert_eq!(bench.jobs(), [(first, 1), (first + 795, 2), (first + 1_590, 3)]);
    }

    #[test]
    fn a_full_ring_and_a_full_backlog_drop() {
        let mut small = config(PolicyName::RssHash);
        (small.costs.receive.ring_packets, small.costs.handoff.backlog_packets) = (5, 2);
        let mut bench = Bench::new(&small);
        (0..6).for_each(|number| bench.packet(number, 1));
        assert_eq!(bench.done, [(0, Action::Dropped { packet: 5 })]);
        bench.run(100_000);
        assert_eq!(bench.processed().len(), 2);
        assert_eq!(bench.machine.counts(bench.now).dropped, 4);
    }

    #[test]
    fn a_core_that_was_idle_for_long_begins_later_where_it_saves_power() {
        let mut saving = config(PolicyName::SameCore);
        (saving.costs.power.idle_ns, saving.costs.power.exit_ns) = (10_000, 5_000);
        let mut bench = Bench::new(&saving);
        bench.packet(0, 1);
        bench.run(20_000);
        bench.packet(1, 1);
        bench.run(100_000);
        let times: Vec<u64> = bench.processed().into_iter().map(|(at, _, _)| at).collect();
        assert_eq!(times, [RECEIVE_NS + PROCESS_NS, 25_000 + RECEIVE_NS + PROCESS_NS]);
    }
}
