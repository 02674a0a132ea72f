//! Virtual time drives the trace recorder.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;

use super::common::{self, call, config, settle};
use homa_proto::{MS, SEC};
use homa_sim::{ClusterConfig, ClusterReport, Exchange, Topology, TransportConfig};
use homa_trace::{Dump, EventKind, Node, NodeKind, Record, packet_word_parts, read_dump};
use homa_workload::Workload;

#[test]
fn an_rpc_shows_in_its_hosts_traces_at_virtual_times() {
    let mut config = config(1, 2);
    config.trace_records = 1_024;
    let mut network = common::network(config);
    network.run_for(1_000_000);
    call(&mut network, 0, 1, 1, 100);
    settle(&mut network, SEC);
    let mut bytes = Vec::new();
    network.host_mut(1).endpoint_mut().unwrap().trace().write_dump(Node::default(), &mut bytes).unwrap();
    let dump = read_dump(&bytes).unwrap();
    let received =
        dump.records.iter().find(|record| record.event() == Some(EventKind::PacketReceived)).unwrap();
    // 222 bytes at 25 Gbit/s, 500 ns on the wire, and 500 ns in the host.
    assert_eq!(dump.time_ns(received), 1_000_000 + 72 + 1_000);
    assert!(dump.records.windows(2).all(|pair| pair[0].time <= pair[1].time));
}

/// Runs two racks of two hosts with a spine, with traces of `records` records.
fn racks(records: usize) -> ClusterReport {
    let workload = Workload::named("w2").unwrap().truncated(20_000).unwrap();
    let mut cluster = ClusterConfig::sigcomm18(workload, 0.5, 7);
    cluster.hosts = 4;
    if let Topology::LeafSpine(net) = &mut cluster.topology {
        (net.hosts_per_rack, net.spines) = (2, 1);
    }
    (cluster.warm_up_ns, cluster.duration_ns, cluster.exchange) = (0, MS / 2, Exchange::Echo);
    cluster.trace_records = records;
    let homa = TransportConfig::named("homa", &cluster).unwrap();
    homa.run(cluster, &mut |_| ControlFlow::Continue(()))
}

#[test]
fn switches_record_each_packet_on_its_way_and_change_nothing() {
    let report = racks(1 << 20);
    assert_eq!(report.switch_traces.len(), 3);
    let dumps: Vec<Dump> = report.switch_traces.iter().map(|bytes| read_dump(bytes).unwrap()).collect();
    let (mut hops, mut queued) = (0, 0);
    for dump in &dumps {
        assert_eq!((dump.node.kind, dump.overwritten), (NodeKind::Switch, 0));
        let of = |kind| dump.records.iter().filter(move |record| record.event() == Some(kind));
        let key = |record: &Record| (record.id, record.a, record.b, record.place.port());
        let mut entered: HashMap<_, VecDeque<u64>> = HashMap::new();
        for record in of(EventKind::SwitchEntered) {
            entered.entry(key(record)).or_default().push_back(record.time);
        }
        for left in of(EventKind::SwitchLeft) {
            hops += 1;
            assert!(dump.node.others.contains_key(&left.place.port()));
            // If there are several equal packets, such as grants, take the first: they share a queue.
            let came = entered.get_mut(&key(left)).and_then(VecDeque::pop_front).expect("it entered");
            // 10 Gbit/s to hosts, 40 Gbit/s between switches.
            let name = &dump.node.others[&left.place.port()];
            let rate = if name.starts_with("host-") { 10 } else { 40 };
            let takes = u64::from(packet_word_parts(left.a).1 + 58) * 8 / rate;
            assert!(left.time >= came + takes, "{name}: {left:?}");
        }
        queued += entered.values().map(VecDeque::len).sum::<usize>();
    }
    assert!(queued < hops as usize / 50, "{queued} of {hops} were in a queue at the end");
    let mut plain = racks(0);
    assert!(plain.switch_traces.is_empty() && plain.traces.is_empty());
    // Packets on links between switches.
    assert!(hops > 1_000 && hops < plain.hops, "{hops} of {}", plain.hops);
    (plain.traces, plain.switch_traces) = (report.traces.clone(), report.switch_traces.clone());
    assert_eq!(plain, report);
}

#[test]
fn applications_and_peers_are_in_the_traces_of_simulated_hosts() {
    let report = racks(1 << 20);
    let dumps: Vec<Dump> = report.traces.iter().map(|bytes| read_dump(bytes).unwrap()).collect();
    let count = |kind, a| {
        let of = |dump: &Dump| dump.records.iter().filter(|r| r.event() == Some(kind) && r.a == a).count();
        dumps.iter().map(of).sum::<usize>() as u64
    };
    assert_eq!(count(EventKind::AppSend, 0), count(EventKind::RpcStart, 0));
    assert_eq!(count(EventKind::AppReceive, 0), count(EventKind::MessageComplete, 0));
    assert_eq!(count(EventKind::AppSend, 1), count(EventKind::AppReceive, 0));
    assert_eq!(count(EventKind::AppReceive, 1), count(EventKind::MessageComplete, 1));
    // The load continues after the measured time, and the report covers only the measured time.
    assert!(report.started > 1_000 && count(EventKind::AppSend, 0) >= report.started);
    assert!(report.delivered > 1_000 && count(EventKind::AppReceive, 1) >= report.delivered);
    for dump in &dumps {
        let peers = dump.records.iter().filter_map(|record| record.place.peer());
        assert!(peers.into_iter().all(|peer| dump.node.others[&peer].starts_with("host-")));
    }
}
