//! The time traces of simulated switches, with the same records as those of `homa-switch`.

use homa_proto::Time;
use homa_proto::wire::{self, Body as Homa};
use homa_trace::{Clock, EventKind, Node, Place, Trace, packet_word};

use crate::packet::{Body, Packet};
use crate::topology::{Routes, Tier};

/// Drop reason of `homa-switch` for a full queue.
const QUEUE_FULL: u16 = 1;

/// A trace for each switch.
#[derive(Debug, Default)]
pub(crate) struct SwitchTraces {
    traces: Vec<Trace>,
    /// Switch and port number of each port of the fabric.
    ports: Vec<Option<(u16, u16)>>,
    /// Names of the ports of each switch.
    names: Vec<Vec<String>>,
}

impl SwitchTraces {
    /// Creates traces that keep `records` records each.
    pub(crate) fn new(routes: &Routes, records: usize) -> SwitchTraces {
        let mut all = SwitchTraces {
            traces: (0..routes.switches()).map(|_| Trace::new(records, Clock::Virtual)).collect(),
            ports: Vec::new(),
            names: vec![Vec::new(); routes.switches() as usize],
        };
        for port in 0..routes.ports() {
            let place = routes.switch(port).and_then(|switch| {
                let names = &mut all.names[switch as usize];
                names.push(name_of(routes, port, names.len()));
                Some((u16::try_from(switch).ok()?, u16::try_from(names.len() - 1).ok()?))
            });
            all.ports.push(place);
        }
        all
    }

    /// Records that a packet was queued at a port.
    pub(crate) fn entered<B: Body>(&mut self, now: Time, port: u32, packet: &Packet<B>) {
        self.record(now, EventKind::SwitchEntered, port, packet, 0);
    }

    /// Records that the last bit of a packet leaves a port at `at`, which may be in the future.
    pub(crate) fn left<B: Body>(&mut self, at: Time, port: u32, packet: &Packet<B>) {
        self.record(at, EventKind::SwitchLeft, port, packet, 0);
    }

    /// Records that a packet did not fit into the queue of a port.
    pub(crate) fn dropped<B: Body>(&mut self, now: Time, port: u32, packet: &Packet<B>) {
        self.record(now, EventKind::SwitchDropped, port, packet, QUEUE_FULL);
    }

    fn record<B: Body>(&mut self, at: Time, kind: EventKind, port: u32, packet: &Packet<B>, why: u16) {
        let Some((switch, port)) = self.ports[port as usize] else { return };
        let (mut id, mut kind_of_packet, mut offset) = (0, 0, 0);
        // The header is enough. A packet that faults have changed may no longer decode.
        if let Ok(homa) = wire::decode(packet.body.bytes(), packet.info.wire_len as usize) {
            (id, kind_of_packet) = (homa.common.sender_id, homa.body.packet_type() as u8);
            offset = if let Homa::Data(data) = &homa.body { data.offset } else { 0 };
        }
        let word = packet_word(kind_of_packet, packet.info.wire_len);
        let place = Place::in_switch(port, packet.info.priority.into(), why);
        self.traces[switch as usize].record_stamped(at.as_ns(), kind, id, word, offset, place);
    }

    /// Stops all traces.
    pub(crate) fn freeze(&mut self, now: Time) {
        for trace in &mut self.traces {
            trace.set_virtual_now(now.as_ns());
            trace.freeze(0, 1);
        }
    }

    /// Returns the dump of each switch in numerical order: leaves first, then spines.
    pub(crate) fn dumps(&self) -> Vec<Vec<u8>> {
        let named = self.traces.iter().zip(&self.names).enumerate();
        named
            .map(|(number, (trace, ports))| {
                trace.dump(Node::switch(format!("switch-{number}"), ports.iter().cloned())).to_bytes()
            })
            .collect()
    }
}

/// Returns the name of the switch port with this number: the name of the device at the other end of its link.
fn name_of(routes: &Routes, port: u32, number: usize) -> String {
    match (routes.host_behind(port), routes.tier(port)) {
        (Some(host), _) => format!("host-{host}"),
        (None, Tier::ToLeaf) => format!("leaf-{number}"),
        (None, _) => format!("up-{number}"),
    }
}
