//! Runs with random faults: the seed determines the network, the hosts, their settings, the faults and the
//! calls.

mod adversity;
mod aftermath;
mod anything;
mod forger;
mod hostile;
mod options;
mod plan;
mod turmoil;

use std::collections::BTreeMap;

use homa_proto::{MS, SEC};

use self::anything::Anything;
pub use self::options::SwarmOptions;
use self::plan::{Hostile, Plan, Weather, plan};
use self::turmoil::{Mishaps, turmoil};
use crate::fault::FaultProfile;
use crate::network::Network;

/// The result of a run of the swarm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwarmReport {
    /// The seed.
    pub seed: u64,
    /// RPCs started.
    pub started: u64,
    /// RPCs answered.
    pub answered: u64,
    /// RPCs failed, by error.
    pub failed: BTreeMap<String, u64>,
    /// RPCs whose client crashed before they ended.
    pub vanished: u64,
    /// Requests that servers executed.
    pub executed: u64,
    /// Packets sent.
    pub packets: u64,
    /// Crashes.
    pub crashes: u64,
    /// Number of stalls.
    pub stalls: u64,
    /// Number of clock steps.
    pub clock_steps: u64,
    /// Number of calls made after the turmoil: one from each host to each other host.
    pub probes: u64,
    /// The endpoints' nonzero counters, summed over the last incarnation of each host.
    pub counters: BTreeMap<&'static str, u64>,
    /// A description of what the seed determined.
    pub plan: String,
    /// Descriptions of all violations; empty after a correct run.
    pub problems: Vec<String>,
}

/// Time without faults after which the swarm aborts the calls that are still open.
const PEACE_NS: u64 = 3 * SEC;
/// Maximum time until all state is gone: far more than the sum of all intervals.
const IDLE_LIMIT_NS: u64 = 120 * SEC;
/// Maximum time of a call without faults: a hundred times its usual duration.
const PROBE_LIMIT_NS: u64 = 10 * SEC;

/// Number of packets printed for a call that failed.
const SHOWN_PACKETS: usize = 12;

/// Runs the turmoil, then runs the network without faults and checks what is left.
///
/// # Panics
/// If [`homa_proto::Endpoint::check`] panics, because the state of a host is inconsistent.
pub fn swarm(seed: u64, options: SwarmOptions) -> SwarmReport {
    let plan = plan(seed, options);
    let mut network = Network::new(plan.network.clone(), |host| Anything::new(&plan, host));
    let mishaps = turmoil(&mut network, &plan);
    let starved = starved(&network, &plan);
    end_turmoil(&mut network, &plan);
    network.run_for(PEACE_NS);
    // Narrow paths stay narrow, and one direction may stay dead. Calls over these paths must still end.
    let mut problems = await_call_ends(&mut network, &plan);
    if let Some((from, to)) = plan.adversity.dead {
        network.set_blocked(from, to, false);
    }
    settle(&mut network);
    problems.extend(leftovers(&network));
    if problems.is_empty() && !options.corruption {
        problems = aftermath::check_narrow_path(&mut network, &plan);
    }
    let hosts = plan.network.hosts;
    for from in 0..hosts {
        (0..hosts).for_each(|to| network.set_path_limit(from, to, None));
    }
    let mut probes = 0;
    if problems.is_empty() && !options.corruption {
        (probes, problems) = probe_all(&mut network, &plan);
    }
    if problems.is_empty() {
        problems = aftermath::check_idle_after_surge(&mut network, &plan);
    }
    let mut report = report(&network, &plan, options, mishaps);
    report.probes = probes;
    report.problems.extend(starved);
    report.problems.extend(check_unverified_served(&network, &plan, mishaps));
    report.problems.extend(problems);
    report
}

/// Ends the turmoil: there are no more losses and no new calls. One direction may stay dead.
fn end_turmoil(network: &mut Network<Anything>, plan: &Plan) {
    network.set_faults(FaultProfile::default());
    let hosts = plan.network.hosts;
    for from in 0..hosts {
        for to in 0..hosts {
            network.set_blocked(from, to, plan.adversity.dead == Some((from, to)));
            network.set_driver_queue(from, to, None);
        }
        network.host_mut(from).app_mut().end_turmoil();
    }
}

/// Checks that every call ends by itself within the bound that follows from the settings (PEER-15).
fn await_call_ends(network: &mut Network<Anything>, plan: &Plan) -> Vec<String> {
    let Some(bound_ns) = plan.call_bound_ns() else { return Vec::new() };
    let limit = network.now() + bound_ns;
    let open = |network: &Network<Anything>| network.hosts().iter().any(|host| !host.app().open.is_empty());
    while open(network) && network.now() < limit {
        network.run_for(100 * MS);
    }
    let stuck = network.hosts().iter().enumerate().flat_map(|(index, host)| {
        host.app()
            .open
            .iter()
            .map(move |(cookie, call)| format!("host {index}: RPC {cookie} does not end: {call:?}"))
    });
    stuck.take(SHOWN_PACKETS).collect()
}

/// Despite a hostile peer, at least one honest call in this many must be answered, or at least one in this
/// many of the calls that are answered without the hostile peer. The check needs a minimum number of calls.
const STARVED_PART: u64 = 4;
const ENOUGH_CALLS: u64 = 40;

/// SHARE-2: checks that, without other faults, a single hostile peer does not starve any client's calls.
fn starved(network: &Network<Anything>, plan: &Plan) -> Option<String> {
    let hostile = plan.hostile.filter(|_| plan.weather == Weather::Fair)?;
    let sum = |of: fn(&Anything) -> u64| network.hosts().iter().map(|host| of(host.app())).sum::<u64>();
    let (started, answered) = (sum(|app| app.started), sum(|app| app.answered));
    if started < ENOUGH_CALLS || answered >= started / STARVED_PART {
        return None;
    }
    // Settings with few grants per round trip may be the cause, so the same calls are also run without the
    // hostile peer.
    let mut alone = Plan { hostile: None, ..plan.clone() };
    alone.adversity.forges = false;
    let mut quiet = Network::new(alone.network.clone(), |host| Anything::new(&alone, host));
    turmoil(&mut quiet, &alone);
    let without: u64 = quiet.hosts().iter().map(|host| host.app().answered).sum();
    let starved = answered < without / STARVED_PART;
    starved.then(|| {
        format!(
            "{answered} of {started} calls answered beside a hostile peer, {without} without: {hostile:?}"
        )
    })
}

/// SHARE-12: checks that, without other faults, a flood from one prefix does not prevent service to an
/// unverified peer in another prefix.
fn check_unverified_served(network: &Network<Anything>, plan: &Plan, mishaps: Mishaps) -> Option<String> {
    plan.hostile.filter(|&hostile| hostile == Hostile::Prefix && plan.weather == Weather::Fair)?;
    let served = |network: &Network<Anything>| -> u64 {
        network.hosts().iter().map(|host| host.app().unverified_peers).sum()
    };
    let (sent, beside) = (mishaps.unverified_peers, served(network));
    if beside == sent {
        return None;
    }
    // The honest hosts may have used all resources, so compare with a run without the flood.
    let alone = Plan { hostile: Some(Hostile::Unverified), ..plan.clone() };
    let mut quiet = Network::new(alone.network.clone(), |host| Anything::new(&alone, host));
    turmoil(&mut quiet, &alone);
    quiet.run_for(PEACE_NS);
    let without = served(&quiet);
    let refused = beside < without - without / STARVED_PART;
    refused.then(|| {
        format!("{beside} of {sent} unverified peers served during a flood of one prefix, {without} without")
    })
}

/// Aborts open calls until nothing is left, or until the time limit.
fn settle(network: &mut Network<Anything>) {
    let limit = network.now() + IDLE_LIMIT_NS;
    loop {
        // Requests that arrive late from the network are aborted as well.
        for host in 0..network.hosts().len() {
            network.act(host, |app, host| app.give_up(host));
        }
        if network.is_idle() || network.now() >= limit {
            return;
        }
        network.run_until((network.now() + 100 * MS).min(limit));
    }
}

/// Checks whether each host reaches every other host as in a new network. State learned during the turmoil
/// must not prevent this.
fn probe_all(network: &mut Network<Anything>, plan: &Plan) -> (u64, Vec<String>) {
    let hosts = plan.network.hosts;
    let (mut probes, mut problems) = (0, Vec::new());
    for (from, to) in (0..hosts).flat_map(|from| (0..hosts).map(move |to| (from, to))) {
        if from == to {
            continue;
        }
        // Maximum time that a host remembers a peer's finished IDs, and which of two incarnations is later.
        network.run_for(2 * plan.lifetime_ns());
        network.act(to, |app, host| app.serve(host));
        network.set_capture(true);
        let answered = network.host(from).app().answered;
        let taken = network.act(from, |app, host| app.probe(host, to)) == Some(true);
        let limit = network.now() + PROBE_LIMIT_NS;
        while network.host(from).app().answered == answered && network.now() < limit && taken {
            network.run_for(MS);
        }
        probes += 1;
        if network.host(from).app().answered == answered {
            let what = if taken { "is not answered" } else { "is refused by its own endpoint" };
            let failed = &network.host(from).app().failed;
            problems
                .push(format!("a call from host {from} to host {to} after the turmoil {what}: {failed:?}"));
            problems.extend(network.captured().iter().take(SHOWN_PACKETS).map(|seen| format!("{seen:?}")));
        }
        settle(network);
        problems.extend(leftovers(network));
        if !problems.is_empty() {
            break;
        }
    }
    (probes, problems)
}

/// Describes all state that is left where there should be none.
fn leftovers(network: &Network<Anything>) -> Vec<String> {
    let mut problems = Vec::new();
    for host in network.hosts().iter().filter(|host| !host.is_idle()) {
        let open = host.endpoint().map_or(0, homa_proto::Endpoint::open_rpcs);
        problems.push(format!("not idle at {:?}: {open} RPCs, {:?}", network.now(), host.leftovers()));
    }
    if network.packets_under_way() > 0 {
        problems.push(format!("{} packets still under way", network.packets_under_way()));
    }
    problems
}

fn report(network: &Network<Anything>, plan: &Plan, options: SwarmOptions, mishaps: Mishaps) -> SwarmReport {
    let mut report = SwarmReport {
        seed: plan.network.seed,
        crashes: mishaps.crashes,
        stalls: mishaps.stalls,
        clock_steps: mishaps.clock_steps,
        packets: network.stats().sent,
        plan: format!("{plan:?}"),
        ..SwarmReport::default()
    };
    let mut problems = Vec::new();
    let (mut given_up, mut unheard) = (0, 0);
    for host in network.hosts() {
        let (app, counts) = (host.app(), host.counts());
        report.started += app.started;
        report.answered += app.answered;
        report.vanished += app.vanished;
        report.executed += counts.executed;
        given_up += app.given_up;
        unheard += app.unheard;
        let entries = host.endpoint().map_or_else(Vec::new, |endpoint| endpoint.stats().entries());
        for (name, value, _) in entries.into_iter().filter(|entry| entry.1 > 0) {
            *report.counters.entry(name).or_default() += value;
        }
        app.failed
            .iter()
            .for_each(|(error, count)| *report.failed.entry(error.clone()).or_default() += count);
        problems.extend(app.open.keys().map(|cookie| format!("RPC {cookie} never ended")));
        if options.corruption {
            continue;
        }
        problems.extend_from_slice(&app.problems);
        problems.extend_from_slice(host.violations());
        if counts.executed_again > 0 && !plan.may_run_again() {
            problems.push(format!("{} requests run again", counts.executed_again));
        }
        if counts.lengths_wrong + host.bytes_wrong() > 0 {
            problems.push(format!("{} lengths and {} bytes wrong", counts.lengths_wrong, host.bytes_wrong()));
        }
    }
    let failed: u64 = report.failed.values().sum();
    if report.started != report.answered + failed + report.vanished {
        problems.push("RPCs started are not those that ended".to_owned());
    }
    // Our clients are notified immediately when a server aborts their request. Other clients may time out
    // instead.
    let lost = report.failed.get("ResponseLost").copied().unwrap_or_default() + unheard;
    if plan.weather != Weather::Storm && lost > given_up {
        problems
            .push(format!("{lost} calls without answer, though servers gave up only {given_up} requests"));
    }
    report.problems = problems;
    report
}
