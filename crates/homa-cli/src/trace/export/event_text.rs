//! Formats the arguments of an event as text.

use std::fmt;

use homa_analysis::model::{DATA, Node};
use homa_trace::{EventKind, NodeKind, Record, drop_reason_name, packet_word_parts};

use crate::trace::format::packet_type;

/// The arguments and the place of an event. The text is empty if the event has neither.
pub struct EventText<'a> {
    pub node: &'a Node,
    pub record: &'a Record,
}

impl fmt::Display for EventText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record { a, b, place, .. } = *self.record;
        match self.record.event() {
            None => write!(f, "a={a} b={b}"),
            Some(kind) => arguments(f, kind, a, b),
        }?;
        if self.node.kind == NodeKind::Switch {
            write!(f, " port {} queue {}", Port(self.node, place.port()), place.queue())?;
            return if place.reason() == 0 { Ok(()) } else { write!(f, " reason {}", place.reason()) };
        }
        if let Some(peer) = place.peer() {
            write!(f, " peer {}", Port(self.node, peer))?;
        }
        match (self.record.event(), place.received_priority()) {
            (Some(EventKind::PacketReceived | EventKind::DeviceReceived), Some(priority)) => {
                write!(f, " priority {priority}")
            }
            (Some(EventKind::PacketReceived | EventKind::DeviceReceived), None) => Ok(()),
            _ if place.peer().is_some() => write!(f, " priority {}", place.priority()),
            _ => Ok(()),
        }
    }
}

/// A port of a switch or a peer of a host, shown by its name if it has one.
struct Port<'a>(&'a Node, u16);

impl fmt::Display for Port<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.others.get(&self.1) {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.1),
        }
    }
}

fn arguments(f: &mut fmt::Formatter<'_>, kind: EventKind, a: u32, b: u32) -> fmt::Result {
    use EventKind as Kind;
    let message = if a == 0 { "request" } else { "response" };
    match kind {
        Kind::PacketSent
        | Kind::PacketReceived
        | Kind::DeviceSent
        | Kind::DeviceReceived
        | Kind::SwitchEntered
        | Kind::SwitchLeft
        | Kind::SwitchDropped => {
            let (code, length) = packet_word_parts(a);
            write!(f, "{} of {length} bytes", packet_type(code))?;
            if code == DATA { write!(f, " at {b}") } else { Ok(()) }
        }
        Kind::PacketDropped => {
            let (code, length) = packet_word_parts(a);
            write!(f, "{} of {length} bytes", packet_type(code))?;
            drop_reason_name(b).map_or(Ok(()), |why| write!(f, ", {why}"))
        }
        Kind::GrantSent | Kind::GrantReceived => write!(f, "up to {a} at priority {b}"),
        Kind::WaitGrant => write!(f, "{a} of {b} bytes granted"),
        Kind::WaitPacer => write!(f, "backlog {a} ns, {b} bytes to send"),
        Kind::WaitBuffer => write!(f, "{a} bytes wanted, {b} free"),
        Kind::RpcStart => write!(f, "as {}, {b} bytes", if a == 0 { "client" } else { "server" }),
        Kind::MessageComplete | Kind::AppSend | Kind::AppReceive => write!(f, "{message} of {b} bytes"),
        Kind::RpcEnd => {
            let side = if b == 0 { "client" } else { "server" };
            if a == 0 { write!(f, "as {side}") } else { write!(f, "as {side}, error {a}") }
        }
        Kind::ResendSent | Kind::ResendReceived if a == u32::MAX => write!(f, "all from {b}"),
        Kind::ResendSent | Kind::ResendReceived => write!(f, "{b} to {}", u64::from(a) + u64::from(b)),
        Kind::TimerFired => {
            let what = match b {
                1 => "bytes are missing",
                2 => "an acknowledgement is missing",
                3 => "the RPC is given up",
                4 => "a client is silent",
                _ => "timer",
            };
            write!(f, "{what}, {a} ns late")
        }
        Kind::PeerTimeout => write!(f, "silent for {a} ms, {b} RPCs"),
        Kind::Freeze => f.write_str(if a == 0 { "by this host" } else { "by a peer" }),
        Kind::BurstOut => write!(f, "{a} packets of {b} bytes"),
        Kind::BurstIn => write!(f, "{a} packets after {b} polls in vain"),
        Kind::BurstTaken | Kind::BurstProcessed => write!(f, "{a} packets"),
        Kind::WakeSent => f.write_str(if a == 0 { "for its message" } else { "to take the lead" }),
        Kind::Woken => {
            write!(f, "by {}, slept {b} us", if a == 0 { "a thread" } else { "packets or a timer" })
        }
        Kind::NotRunning => write!(f, "for {a} ns"),
        _ => Ok(()),
    }
}
