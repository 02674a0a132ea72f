//! A writer of traces for tests, event by event.

use crate::model::DATA;
use homa_trace::{Clock, Dump, EventKind, Node, Place, Trace, packet_word};

use crate::model::Model;

/// The ID of the RPC to which most events belong.
pub(crate) const ID: u64 = 40;
/// A DATA packet of 1,000 bytes.
pub(crate) const WORD: u32 = packet_word(DATA, 1_000);

pub(crate) const CLIENT: usize = 0;
pub(crate) const SWITCH: usize = 1;
pub(crate) const SERVER: usize = 2;

/// Dumps of a client "c", a switch "tor" with two ports, and a server "s". The zero of a model is one
/// nanosecond before its first event.
pub(crate) struct Writer(Vec<(Node, Trace)>, u8, u16);

impl Writer {
    pub(crate) fn new() -> Writer {
        let nodes = [Node::host("c"), Node::switch("tor", ["p0".into(), "p1".into()]), Node::host("s")];
        Writer(nodes.into_iter().map(|node| (node, Trace::new(4_096, Clock::Virtual))).collect(), 3, 1)
    }

    /// Sets the priority of the following events.
    pub(crate) fn priority(&mut self, priority: u8) -> &mut Writer {
        self.1 = priority;
        self
    }

    /// Sets the port of the switch for the following events.
    pub(crate) fn by_port(&mut self, port: u16) -> &mut Writer {
        self.2 = port;
        self
    }

    /// Writes an event of the RPC whose ID is `ID` plus `rpc`, an even number.
    pub(crate) fn of(
        &mut self,
        rpc: u64,
        node: usize,
        ns: u64,
        kind: EventKind,
        a: u32,
        b: u32,
    ) -> &mut Writer {
        let place = match node {
            SWITCH => Place::in_switch(self.2, self.1.into(), u16::from(kind == EventKind::SwitchDropped)),
            _ => Place::at_host(1, self.1, 0, 1 + node as u16),
        };
        let trace = &mut self.0[node].1;
        trace.set_virtual_now(ns);
        trace.record_at(kind, ID + rpc + u64::from(node == SERVER), a, b, place);
        self
    }

    pub(crate) fn at(&mut self, node: usize, ns: u64, kind: EventKind, a: u32, b: u32) -> &mut Writer {
        self.of(0, node, ns, kind, a, b)
    }

    /// Writes an event without RPC.
    pub(crate) fn burst(&mut self, node: usize, ns: u64, kind: EventKind, a: u32, b: u32) -> &mut Writer {
        let trace = &mut self.0[node].1;
        trace.set_virtual_now(ns);
        trace.record_at(kind, 0, a, b, Place::at_host(0, 0, 0, 1 + node as u16));
        self
    }

    /// Writes the events of a DATA packet of the request at both hosts.
    pub(crate) fn data(&mut self, offset: u32, sent: u64, received: u64) -> &mut Writer {
        self.at(CLIENT, sent, EventKind::PacketSent, WORD, offset);
        self.at(SERVER, received, EventKind::PacketReceived, WORD, offset)
    }

    /// Writes the events of the same packet in the switch.
    pub(crate) fn switch(&mut self, offset: u32, entered: u64, left: u64) -> &mut Writer {
        self.at(SWITCH, entered, EventKind::SwitchEntered, WORD, offset);
        self.at(SWITCH, left, EventKind::SwitchLeft, WORD, offset)
    }

    pub(crate) fn dumps(&self) -> Vec<Dump> {
        self.0.iter().map(|(node, trace)| trace.dump(node.clone())).collect()
    }

    pub(crate) fn model(&self) -> Model {
        Model::new(self.dumps()).expect("events")
    }
}
