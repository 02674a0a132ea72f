//! Checks after the turmoil: a call gets through over a path that is still narrow, and a surge leaves no
//! state behind.

use homa_proto::{MS, SEC};

use super::anything::Anything;
use super::plan::Plan;
use super::{PROBE_LIMIT_NS, await_call_ends, leftovers, settle};
use crate::network::Network;

/// The smallest path MTU that senders can find, in bytes of a Homa packet (SEND-16).
const NARROWEST: u32 = 528;
/// Number of calls, at least one of which must get through. Each may time out before packets to its peer are
/// small enough.
const CALLS_OVER_NARROW_PATH: usize = 8;
/// Length of a request that fills at least one packet on any path.
const LONG_REQUEST: u32 = 40_000;
/// Maximum time without RPCs until tables have shrunk and timers have run out. Endpoints check their tables
/// every five seconds, and a clock that stepped back takes as long as the step to catch up.
const REST_LIMIT_NS: u64 = 120 * SEC;
/// Maximum capacity of a table, as a multiple of the RPCs that the settings reserve.
const MAX_ROOM_TIMES: usize = 2;
/// Minimum of that limit, in RPCs, regardless of the settings.
const LEAST_ROOM: u32 = 64;

/// SEND-16: checks that a call gets through on a path that drops long packets without a report.
pub(super) fn check_narrow_path(network: &mut Network<Anything>, plan: &Plan) -> Vec<String> {
    let Some((from, to)) = narrow_path(network, plan.network.hosts) else { return Vec::new() };
    network.run_for(2 * plan.lifetime_ns());
    network.act(to, |app, host| app.serve(host));
    for _ in 0..CALLS_OVER_NARROW_PATH {
        let answered = network.host(from).app().answered;
        network.act(from, |app, host| app.probe_with(host, to, LONG_REQUEST));
        let limit = network.now() + PROBE_LIMIT_NS;
        while !network.host(from).app().open.is_empty() && network.now() < limit {
            network.run_for(MS);
        }
        if network.host(from).app().answered > answered {
            return Vec::new();
        }
        settle(network);
    }
    let limits = [network.path_limit(from, to), network.path_limit(to, from)];
    vec![format!("no call crosses the narrow path from host {from} to host {to}: {limits:?}")]
}

/// Finds a path that silently drops long packets in one direction, but carries the smallest size that senders
/// try in both directions.
fn narrow_path(network: &Network<Anything>, hosts: usize) -> Option<(usize, usize)> {
    let takes = |from, to| network.path_limit(from, to).is_none_or(|limit| limit.bytes >= NARROWEST);
    let is_silent = |from, to| network.path_limit(from, to).is_some_and(|limit| !limit.told);
    let mut ways = (0..hosts).flat_map(|from| (0..hosts).map(move |to| (from, to)));
    ways.find(|&(from, to)| from != to && is_silent(from, to) && takes(from, to) && takes(to, from))
}

/// Makes the plan's surge of calls and then no more calls. No RPC, port, timer or large table may be left.
pub(super) fn check_idle_after_surge(network: &mut Network<Anything>, plan: &Plan) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some((from, to, calls)) = plan.adversity.surge {
        network.act(to, |app, host| app.serve(host));
        network.act(from, |app, host| app.surge(host, to, calls));
        network.run_for(SEC);
        problems = await_call_ends(network, plan);
        settle(network);
    }
    problems.extend(leftovers(network));
    let limit = network.now() + REST_LIMIT_NS;
    while !idle_violations(network).is_empty() && network.now() < limit {
        network.run_for(SEC);
    }
    problems.extend(idle_violations(network));
    for host in 0..plan.network.hosts {
        network.act(host, |app, host| app.close_all(host));
        let open = network.host(host).endpoint().map_or(0, homa_proto::Endpoint::open_ports);
        problems.extend((open > 0).then(|| format!("host {host}: {open} ports are open without an owner")));
    }
    problems
}

/// LIMIT-11, ABORT-7: describes large tables and armed timers of hosts that have no RPCs.
fn idle_violations(network: &Network<Anything>) -> Vec<String> {
    let mut problems = Vec::new();
    for (index, host) in network.hosts().iter().enumerate() {
        let Some(endpoint) = host.endpoint() else { continue };
        let config = endpoint.config();
        let reserved = config.reserve_rpcs.min(config.max_rpcs).max(LEAST_ROOM) as usize;
        if endpoint.room() > MAX_ROOM_TIMES * reserved {
            problems.push(format!("host {index}: room for {} RPCs, and there are none", endpoint.room()));
        }
        if let Some(at) = endpoint.poll_timeout() {
            problems.push(format!("host {index}: a timer for {at:?} at {:?}", network.now()));
        }
    }
    problems
}
