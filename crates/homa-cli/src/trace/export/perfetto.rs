//! Chrome's trace event format, which Perfetto can also open.
//!
//! Events are written one by one, without sorting, because the viewer sorts them. The file of a trace with a
//! million events is a few hundred megabytes long, none of which is kept in memory.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::io::{self, Write};

use homa_analysis::Model;
use homa_analysis::model::{Message, ModelTime, NO_NODE, Node, NodeId, Packet, Rpc};
use homa_trace::{EventKind, NodeKind, Record, packet_word_parts};

use super::Filter;
use super::digits::{push_escaped, push_number, push_us};
use super::event_text::EventText;
use crate::trace::format::packet_type;

/// Writes the complete document.
pub fn write(model: &Model, filter: &Filter, out: &mut impl Write) -> io::Result<()> {
    out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")?;
    let mut list = List { out, empty: true, line: String::new() };
    let mut event_text = String::new();
    for (id, node) in (0..NO_NODE).zip(&model.nodes).filter(|(id, _)| filter.has_node(*id)) {
        threads(&mut list, id, node)?;
        for record in node.records.iter().filter(|record| filter.has(record)) {
            instant(&mut list, id, node, record, &mut event_text)?;
        }
        if node.kind == NodeKind::Switch {
            queues(&mut list, id, node, filter)?;
        }
    }
    for rpc in model.rpcs.iter().filter(|rpc| filter.has_rpc(rpc)) {
        slices(&mut list, model, rpc, filter)?;
    }
    arrows(&mut list, model, filter)?;
    out.write_all(b"\n]}\n")
}

/// Writes the events of the document, separated by commas.
struct List<'a, W> {
    out: &'a mut W,
    empty: bool,
    /// Buffer for one line, reused for all lines.
    line: String,
}

impl<W: Write> List<'_, W> {
    /// Writes an event of this phase. `rest` contains its other members, each preceded by a comma.
    fn event(
        &mut self,
        phase: char,
        node: NodeId,
        thread: u32,
        ns: u64,
        rest: impl Display,
    ) -> io::Result<()> {
        self.begin(phase, node, thread, ns);
        // Writing to a string cannot fail.
        let _ = write!(self.line, "{rest}");
        self.end()
    }

    /// Writes the first members of an event.
    fn begin(&mut self, phase: char, node: NodeId, thread: u32, ns: u64) {
        self.line.clear();
        self.line.push_str(if std::mem::take(&mut self.empty) { "" } else { ",\n" });
        self.line.push_str("{\"ph\":\"");
        self.line.push(phase);
        self.line.push_str("\",\"pid\":");
        push_number(&mut self.line, u64::from(node) + 1);
        self.line.push_str(",\"tid\":");
        push_number(&mut self.line, thread.into());
        self.line.push_str(",\"ts\":");
        push_us(&mut self.line, ns, 0);
    }

    fn end(&mut self) -> io::Result<()> {
        self.line.push('}');
        self.out.write_all(self.line.as_bytes())
    }
}

/// Formats a JSON string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns the number of the thread in which an event is shown: one more than the host's core or the switch's
/// port, or 0 if the core is unknown.
fn thread(node: &Node, record: &Record) -> u32 {
    match node.kind {
        NodeKind::Host => record.place.core().map_or(0, |core| u32::from(core) + 1),
        NodeKind::Switch => u32::from(record.place.port()) + 1,
    }
}

fn threads<W: Write>(list: &mut List<'_, W>, id: NodeId, node: &Node) -> io::Result<()> {
    let mut seen = vec![false; usize::from(u16::MAX) + 2];
    node.records.iter().for_each(|record| seen[thread(node, record) as usize] = true);
    let name =
        |what: &str, name: &str| format!(",\"name\":\"{what}\",\"args\":{{\"name\":{}}}", quoted(name));
    list.event('M', id, 0, 0, name("process_name", &node.name))?;
    for number in (0..).zip(seen).filter_map(|(number, seen)| seen.then_some(number)) {
        let port = u16::try_from(number).ok().and_then(|number| number.checked_sub(1));
        let text = match (node.kind, port) {
            (NodeKind::Host, None) => "events".to_owned(),
            (NodeKind::Host, Some(core)) => format!("core {core}"),
            (NodeKind::Switch, port) => {
                let port = port.unwrap_or(u16::MAX);
                node.others.get(&port).map_or_else(|| format!("port {port}"), |name| format!("port {name}"))
            }
        };
        list.event('M', id, number, 0, name("thread_name", &text))?;
    }
    Ok(())
}

fn instant<W: Write>(
    list: &mut List<'_, W>,
    id: NodeId,
    node: &Node,
    record: &Record,
    event_text: &mut String,
) -> io::Result<()> {
    // An arrow must start and end at a slice.
    let way = match record.event() {
        Some(EventKind::PacketSent) => Some("sent"),
        Some(EventKind::PacketReceived) => Some("received"),
        _ => None,
    };
    let phase = if way.is_some() { 'X' } else { 'i' };
    list.begin(phase, id, thread(node, record), record.time);
    event_text.clear();
    // Writing to a string cannot fail.
    let _ = write!(event_text, "{}", EventText { node, record });
    let line = &mut list.line;
    match (way, record.event()) {
        (Some(way), _) => {
            line.push_str(",\"dur\":0.001,\"name\":\"");
            line.push_str(packet_type(packet_word_parts(record.a).0));
            line.push(' ');
            line.push_str(way);
        }
        (None, Some(kind)) => {
            line.push_str(",\"s\":\"t\",\"name\":\"");
            line.push_str(kind.name());
        }
        (None, None) => {
            line.push_str(",\"s\":\"t\",\"name\":\"kind_");
            push_number(line, record.kind.into());
        }
    }
    line.push_str("\",\"cat\":\"event\",\"args\":{\"rpc\":\"");
    push_number(line, record.id);
    line.push_str("\",\"what\":\"");
    push_escaped(line, event_text.trim());
    line.push_str("\"}");
    list.end()
}

/// Writes the number of queued bytes for each queue of a switch, as far as the trace shows them. The bytes
/// queued before the first event of the trace are unknown.
fn queues<W: Write>(list: &mut List<'_, W>, id: NodeId, node: &Node, filter: &Filter) -> io::Result<()> {
    let mut bytes: BTreeMap<(u16, u16), u64> = BTreeMap::new();
    for record in &node.records {
        let (port, queue) = (record.place.port(), record.place.queue());
        let length = u64::from(packet_word_parts(record.a).1);
        let waiting = bytes.entry((port, queue)).or_default();
        match record.event() {
            Some(EventKind::SwitchEntered) => *waiting += length,
            Some(EventKind::SwitchLeft) => *waiting = waiting.saturating_sub(length),
            _ => continue,
        }
        if filter.has_time(record.time) {
            let port = node.others.get(&port).map_or_else(|| port.to_string(), Clone::clone);
            let name = quoted(&format!("port {port} queue {queue} bytes"));
            list.event(
                'C',
                id,
                0,
                record.time,
                format_args!(",\"name\":{name},\"args\":{{\"bytes\":{waiting}}}"),
            )?;
        }
    }
    Ok(())
}

/// Writes an RPC at its client and at its server, with its messages nested inside.
fn slices<W: Write>(list: &mut List<'_, W>, model: &Model, rpc: &Rpc, filter: &Filter) -> io::Result<()> {
    let (request, response) = (&rpc.request, &rpc.response);
    let client_end = rpc.end.or(response.arrived()).or(response.complete);
    let title = |at: &str| {
        let lengths = format!("{} B, {} B back", request.length, response.length);
        format!(
            "RPC {} {at} {}: {lengths}",
            rpc.id,
            model.name(if at == "to" { rpc.server } else { rpc.client })
        )
    };
    let side =
        |node, id: u64, title: String, from: ModelTime, to: ModelTime| Slice { node, id, title, from, to };
    let client = side(rpc.client, rpc.id, title("to"), rpc.start, client_end);
    nested(
        list,
        filter,
        &client,
        [("sends request", start_of(request), request.last_sent), received("response", response)],
    )?;
    let server_start = request.first_received;
    let server_end = response.last_sent.or(request.arrived());
    let server = side(rpc.server, rpc.id | 1, title("from"), server_start, server_end);
    nested(
        list,
        filter,
        &server,
        [received("request", request), ("sends response", start_of(response), response.last_sent)],
    )
}

fn start_of(message: &Message) -> ModelTime {
    message.submitted.or(message.first_sent)
}

fn received(what: &'static str, message: &Message) -> (&'static str, ModelTime, ModelTime) {
    let name = if what == "request" { "receives request" } else { "receives response" };
    (name, message.first_received, message.complete)
}

struct Slice {
    node: NodeId,
    id: u64,
    title: String,
    from: ModelTime,
    to: ModelTime,
}

/// Writes a slice and its nested slices on the track of the RPC.
fn nested<W: Write>(
    list: &mut List<'_, W>,
    filter: &Filter,
    outer: &Slice,
    inner: [(&str, ModelTime, ModelTime); 2],
) -> io::Result<()> {
    let (Some(from), Some(to)) = (outer.from.ns(), outer.to.ns()) else { return Ok(()) };
    let in_time = from <= filter.to_ns && to >= filter.from_ns;
    if !filter.has_node(outer.node) || !in_time || to < from {
        return Ok(());
    }
    let mut one = |name: &str, from: u64, to: u64| {
        let rest =
            format!(",\"cat\":\"rpc\",\"id2\":{{\"local\":\"{}\"}},\"name\":{}", outer.id, quoted(name));
        list.event('b', outer.node, 0, from, &rest)?;
        list.event('e', outer.node, 0, to, &rest)
    };
    one(&outer.title, from, to)?;
    for (name, begin, end) in inner {
        if let (Some(begin), Some(end)) = (begin.ns(), end.ns())
            && from <= begin
            && begin <= end
            && end <= to
        {
            one(name, begin, end)?;
        }
    }
    Ok(())
}

/// Writes an arrow for each packet if both of its ends are shown.
fn arrows<W: Write>(list: &mut List<'_, W>, model: &Model, filter: &Filter) -> io::Result<()> {
    for (number, packet) in model.packets.iter().enumerate() {
        let rpc = &model.rpcs[packet.rpc as usize];
        let (from, to) = (rpc.sender(packet.direction), rpc.receiver(packet.direction));
        let (Some(sent), Some(received)) = (packet.sent.ns(), packet.received.ns()) else { continue };
        let shown = filter.has_node(from) && filter.has_node(to) && filter.has_rpc(rpc);
        if !shown || !filter.has_time(sent) || !filter.has_time(received) {
            continue;
        }
        let name = packet_type(packet.packet_type);
        let rest = format!(",\"cat\":\"packet\",\"id\":{number},\"name\":\"{name}\"");
        let ends = [
            ('s', from, sent, EventKind::PacketSent, ""),
            ('f', to, received, EventKind::PacketReceived, ",\"bp\":\"e\""),
        ];
        for (phase, node, ns, kind, binding) in ends {
            let thread = thread_of(model, node, ns, kind, rpc, packet);
            list.event(phase, node, thread, ns, format_args!("{rest}{binding}"))?;
        }
    }
    Ok(())
}

/// Returns the thread in which this end of the packet is shown.
fn thread_of(model: &Model, node: NodeId, ns: u64, kind: EventKind, rpc: &Rpc, packet: &Packet) -> u32 {
    let same = |record: &&Record| record.id & !1 == rpc.id && record.b == packet.offset;
    let found = model.between(node, ns, ns, std::slice::from_ref(&kind)).find(same).copied();
    found.map_or(0, |record| thread(&model.nodes[usize::from(node)], &record))
}
