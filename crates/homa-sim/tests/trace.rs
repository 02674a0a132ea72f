//! Virtual time drives the trace recorder.

mod common;

use common::{call, config, settle};
use homa_proto::SEC;
use homa_trace::{EventKind, Node, read_dump};

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
    // 222 bytes at 25 Gbit/s, 500 ns of wire, 500 ns of host.
    assert_eq!(dump.time_ns(received), 1_000_000 + 72 + 1_000);
    assert!(dump.records.windows(2).all(|pair| pair[0].time <= pair[1].time));
}
