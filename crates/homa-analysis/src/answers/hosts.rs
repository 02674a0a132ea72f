//! How hosts spend their time: polling, waiting for the pacer, and using cores.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::FixedState;
use homa_trace::{EventKind, NodeKind, packet_word_parts};
use serde::Serialize;

use super::missing_events::MissingEvents;
use super::percentiles::Percentiles;
use super::select::Select;
use crate::model::DATA;
use crate::model::{Model, NO_NODE, Node, NodeId};

/// Minimum share of empty polls and sleeps for a host to count as idle.
const IDLE: f64 = 0.5;

/// Numbers of a host's polls that found packets and that found none.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostPolls {
    /// Name of the host.
    pub node: String,
    /// Number of RPCs for which the host is the client.
    pub as_client: u64,
    /// Number of RPCs for which the host is the server.
    pub as_server: u64,
    /// Number of polls that found packets.
    pub full: u64,
    /// Number of polls that found none.
    pub empty: u64,
    /// Share of empty polls.
    pub empty_share: f64,
    /// Share of time that the host spent processing bursts.
    pub busy_share: f64,
    /// Number of sleeps.
    pub sleeps: u64,
}

/// The side that limits the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// Most polls of clients find packets, but those of servers do not.
    Clients,
    /// Most polls of servers find packets, but those of clients do not.
    Servers,
    /// Clients and servers are both busy.
    Both,
    /// Most polls of both are empty: either the network is the bottleneck, or no more load is offered.
    Neither,
    /// One side has no polls in any trace.
    Unknown,
}

/// The result of [`polls`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Polls {
    /// All hosts that poll.
    pub nodes: Vec<HostPolls>,
    /// Empty polls and sleeps as a share of all polls and sleeps, for those hosts that are clients more often
    /// than servers.
    pub clients_idle_share: Option<f64>,
    /// The same share for the other hosts.
    pub servers_idle_share: Option<f64>,
    /// The conclusion from these shares.
    pub bottleneck: Bottleneck,
}

/// Returns the selected hosts.
fn hosts<'a>(model: &'a Model, select: &'a Select) -> impl Iterator<Item = (NodeId, &'a Node)> {
    let numbered = model.nodes.iter().enumerate().map(|(number, node)| (number as NodeId, node));
    numbered.filter(|(number, node)| node.kind == NodeKind::Host && select.node(*number))
}

/// Returns the time from the first to the last selected event of a node, at least 1 ns.
fn span_ns(node: &Node, select: &Select) -> u64 {
    let mut times = node.records.iter().map(|record| record.time).filter(|ns| select.time(*ns));
    let first = times.next().unwrap_or(0);
    times.next_back().unwrap_or(first).saturating_sub(first).max(1)
}

/// Returns the share of empty polls of each host, and whether clients or servers are the bottleneck. A host
/// without empty polls has no spare time.
#[must_use]
pub fn polls(model: &Model, select: &Select) -> Polls {
    let mut roles = vec![(0_u64, 0_u64); model.nodes.len()];
    for rpc in model.rpcs.iter().filter(|rpc| select.at(rpc.start)) {
        if rpc.client != NO_NODE {
            roles[usize::from(rpc.client)].0 += 1;
        }
        if rpc.server != NO_NODE {
            roles[usize::from(rpc.server)].1 += 1;
        }
    }
    let of = |(number, node): (NodeId, &Node)| {
        let (mut full, mut empty, mut busy_ns, mut sleeps) = (0_u64, 0_u64, 0_u64, 0_u64);
        let mut read = [None::<u64>; 256];
        for record in node.records.iter().filter(|record| select.time(record.time)) {
            let endpoint = usize::from(record.place.endpoint());
            match record.event() {
                Some(EventKind::BurstIn) => {
                    full += 1;
                    empty += u64::from(record.b);
                    read[endpoint] = Some(record.time);
                }
                Some(EventKind::BurstProcessed) => {
                    busy_ns += read[endpoint].take().map_or(0, |read| record.time.saturating_sub(read));
                }
                Some(EventKind::Asleep) => sleeps += 1,
                _ => {}
            }
        }
        let (as_client, as_server) = roles[usize::from(number)];
        (full > 0).then(|| HostPolls {
            node: node.name.clone(),
            as_client,
            as_server,
            full,
            empty,
            empty_share: empty as f64 / (full + empty) as f64,
            busy_share: busy_ns as f64 / span_ns(node, select) as f64,
            sleeps,
        })
    };
    let nodes: Vec<HostPolls> = hosts(model, select).filter_map(of).collect();
    let share = |clients: bool| {
        let of = nodes.iter().filter(|node| (node.as_client > node.as_server) == clients);
        // A host that sleeps has nothing to do either.
        let (full, empty) =
            of.fold((0, 0), |sum, node| (sum.0 + node.full, sum.1 + node.empty + node.sleeps));
        (full > 0).then(|| empty as f64 / (full + empty) as f64)
    };
    let (clients, servers) = (share(true), share(false));
    let bottleneck = match (clients.map(|share| share >= IDLE), servers.map(|share| share >= IDLE)) {
        (Some(true), Some(true)) => Bottleneck::Neither,
        (Some(true), Some(false)) => Bottleneck::Servers,
        (Some(false), Some(true)) => Bottleneck::Clients,
        (Some(false), Some(false)) => Bottleneck::Both,
        _ => Bottleneck::Unknown,
    };
    Polls { nodes, clients_idle_share: clients, servers_idle_share: servers, bottleneck }
}

/// How often and for how long a host's pacer held packets back.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostPacer {
    /// Name of the host.
    pub node: String,
    /// Number of times that a message had to wait.
    pub waits: u64,
    /// Time from the start of a wait until the host sent DATA again.
    pub waited_ns: Option<Percentiles>,
    /// The backlog of the link that caused the wait.
    pub backlog_ns: Option<Percentiles>,
    /// Granted bytes of the message that were not sent yet.
    pub held_bytes: Option<Percentiles>,
    /// Share of time during which a message waited.
    pub share: f64,
}

/// Returns the pacer's effect at each host where the pacer held packets back.
#[must_use]
pub fn pacer(model: &Model, select: &Select) -> Vec<HostPacer> {
    let of = |(_, node): (NodeId, &Node)| {
        let (mut backlog, mut held, mut waited) = (Vec::new(), Vec::new(), Vec::new());
        let mut since = None::<u64>;
        for record in node.records.iter().filter(|record| select.time(record.time)) {
            match record.event() {
                Some(EventKind::WaitPacer) => {
                    backlog.push(i64::from(record.a));
                    held.push(i64::from(record.b));
                    since.get_or_insert(record.time);
                }
                Some(EventKind::PacketSent) if packet_word_parts(record.a).0 == DATA => {
                    waited.extend(since.take().map(|since| (record.time - since) as i64));
                }
                _ => {}
            }
        }
        (!backlog.is_empty()).then(|| HostPacer {
            node: node.name.clone(),
            waits: backlog.len() as u64,
            share: waited.iter().map(|ns| *ns as f64).sum::<f64>() / span_ns(node, select) as f64,
            waited_ns: Percentiles::of(&mut waited),
            backlog_ns: Percentiles::of(&mut backlog),
            held_bytes: Percentiles::of(&mut held),
        })
    };
    hosts(model, select).filter_map(of).collect()
}

/// Activity on one core.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CoreUse {
    /// Name of the host.
    pub node: String,
    /// Number of the core.
    pub core: u16,
    /// Events recorded on the core.
    pub events: u64,
    /// Share of the host's events.
    pub share: f64,
    /// Packets sent.
    pub packets_out: u64,
    /// Packets received.
    pub packets_in: u64,
    /// Number of RPCs started on the core.
    pub rpcs: u64,
    /// Number of threads that woke on the core after a sleep.
    pub wakes: u64,
    /// Number of bursts read on the core by an endpoint that read its previous burst on another core.
    pub migrations: u64,
    /// Number of times that the driving thread noticed that it had not run.
    pub not_running: u64,
    /// Total time that the driving thread had not run, in nanoseconds.
    pub not_running_ns: u64,
    /// Number of endpoints that read bursts on the core.
    pub endpoints: u64,
}

/// The result of [`cores`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cores {
    /// All cores of all hosts, the busiest first.
    pub cores: Vec<CoreUse>,
    /// Cores on which several endpoints are driven, over all hosts: endpoints on one machine compete for
    /// cores.
    pub shared: Vec<SharedCore>,
    /// Missing kinds of events.
    pub missing_events: Vec<MissingEvents>,
}

/// A core on which several endpoints are driven.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SharedCore {
    /// Number of the core.
    pub core: u16,
    /// The hosts of these endpoints.
    pub nodes: Vec<String>,
    /// Number of these endpoints.
    pub endpoints: u64,
    /// Number of times that one of these endpoints detected an interval in which it had not run.
    pub not_running: u64,
    /// Total length of these intervals, in nanoseconds.
    pub not_running_ns: u64,
}

/// Returns the activity on each core.
#[must_use]
pub fn cores(model: &Model, select: &Select) -> Cores {
    let mut found = Cores::default();
    let mut drivers: BTreeMap<u16, BTreeSet<(NodeId, u8)>> = BTreeMap::new();
    // For driving threads: number and total length of the intervals in which they did not run, by core and
    // host.
    let mut stopped: HashMap<(u16, NodeId), (u64, u64), FixedState> = HashMap::default();
    for (number, node) in hosts(model, select) {
        let mut cores: BTreeMap<u16, (CoreUse, BTreeSet<u8>)> = BTreeMap::new();
        let mut last = [None::<u16>; 256];
        let mut events = 0_u64;
        for record in node.records.iter().filter(|record| select.time(record.time)) {
            let Some(core) = record.place.core() else { continue };
            let endpoint = record.place.endpoint();
            let (used, endpoints) = cores.entry(core).or_default();
            events += 1;
            used.events += 1;
            match record.event() {
                Some(EventKind::PacketSent) => used.packets_out += 1,
                Some(EventKind::PacketReceived) => used.packets_in += 1,
                Some(EventKind::RpcStart) => used.rpcs += 1,
                Some(EventKind::Woken) => used.wakes += 1,
                Some(EventKind::NotRunning) => {
                    used.not_running += 1;
                    used.not_running_ns += u64::from(record.a);
                }
                Some(EventKind::BurstIn) => {
                    let before = last[usize::from(endpoint)].replace(core);
                    used.migrations += u64::from(before.is_some_and(|before| before != core));
                    endpoints.insert(endpoint);
                    drivers.entry(core).or_default().insert((number, endpoint));
                }
                _ => {}
            }
        }
        stopped.extend(
            cores.iter().map(|(core, (used, _))| ((*core, number), (used.not_running, used.not_running_ns))),
        );
        found.cores.extend(cores.into_iter().map(|(core, (used, endpoints))| CoreUse {
            node: node.name.clone(),
            core,
            share: used.events as f64 / events as f64,
            endpoints: endpoints.len() as u64,
            ..used
        }));
    }
    for (core, by) in drivers.into_iter().filter(|(_, by)| by.len() > 1) {
        let nodes: BTreeSet<NodeId> = by.iter().map(|(node, _)| *node).collect();
        let of = nodes.iter().filter_map(|node| stopped.get(&(core, *node)));
        let (not_running, not_running_ns) = of.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        found.shared.push(SharedCore {
            core,
            nodes: nodes.iter().map(|node| model.name(*node).to_owned()).collect(),
            endpoints: by.len() as u64,
            not_running,
            not_running_ns,
        });
    }
    found.cores.sort_by_key(|used| std::cmp::Reverse(used.events));
    if found.cores.is_empty() {
        found.missing_events.push(MissingEvents::Cores);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::testing::{CLIENT, ID, SERVER, WORD, Writer};
    use super::*;
    use EventKind::{BurstIn, BurstProcessed, NotRunning, RpcStart, WaitPacer};

    #[test]
    fn who_never_looks_in_vain_is_the_bottleneck() {
        let mut writer = Writer::new();
        writer.at(CLIENT, 1, RpcStart, 0, 100).at(SERVER, 5, RpcStart, 1, 100);
        writer.burst(CLIENT, 100, BurstIn, 1, 9).burst(CLIENT, 110, BurstProcessed, 1, 0);
        writer.burst(SERVER, 100, BurstIn, 1, 0).burst(SERVER, 201, BurstProcessed, 1, 0);
        let found = polls(&writer.model(), &Select::default());
        assert_eq!((found.clients_idle_share, found.servers_idle_share), (Some(0.9), Some(0.0)));
        assert_eq!(found.bottleneck, Bottleneck::Servers);
        assert_eq!((found.nodes[0].as_client, found.nodes[1].as_server), (1, 1));
        assert!((found.nodes[1].busy_share - 101.0 / 196.0).abs() < 1e-9, "{}", found.nodes[1].busy_share);
        // A server that sleeps between its bursts has spare time.
        writer.burst(SERVER, 300, EventKind::Asleep, 0, 0).burst(SERVER, 400, EventKind::Asleep, 0, 0);
        let found = polls(&writer.model(), &Select::default());
        assert_eq!((found.servers_idle_share, found.bottleneck), (Some(2.0 / 3.0), Bottleneck::Neither));
    }

    #[test]
    fn a_wait_for_the_pacer_lasts_until_data_goes_out() {
        let mut writer = Writer::new();
        writer.at(CLIENT, 1_000, WaitPacer, 300, 5_000).at(CLIENT, 1_100, WaitPacer, 200, 4_000);
        writer.at(CLIENT, 1_400, EventKind::PacketSent, WORD, 0).at(CLIENT, 2_000, EventKind::BusySent, 0, 0);
        let found = pacer(&writer.model(), &Select::default());
        let [client] = &found[..] else { panic!("{found:?}") };
        assert_eq!((client.waits, client.share), (2, 0.4));
        assert_eq!(client.waited_ns.map(|found| (found.count, found.p100)), Some((1, 400)));
        assert_eq!(client.backlog_ns.map(|found| found.p100), Some(300));
    }

    #[test]
    fn cores_have_what_ran_on_them_and_several_drivers_are_said() {
        let mut writer = Writer::new();
        writer.burst(CLIENT, 100, BurstIn, 1, 9).of(0, CLIENT, 110, EventKind::PacketReceived, WORD, 0);
        writer.burst(CLIENT, 120, NotRunning, 50, 0).burst(SERVER, 100, BurstIn, 1, 9);
        let found = cores(&writer.model(), &Select::default());
        assert_eq!((found.cores.len(), found.shared.len()), (2, 0));
        let client = &found.cores[0];
        assert_eq!((client.node.as_str(), client.core, client.events, client.packets_in), ("c", 0, 3, 1));
        assert_eq!((client.not_running, client.not_running_ns, client.endpoints), (1, 50, 1));
        let mut dumps = writer.dumps();
        let core = dumps[CLIENT].records[0].place;
        dumps[2].records[0].place = core;
        let shared = cores(&Model::new(dumps).expect("events"), &Select::default()).shared;
        assert_eq!((shared[0].endpoints, shared[0].not_running_ns, ID), (2, 50, ID));
    }
}
