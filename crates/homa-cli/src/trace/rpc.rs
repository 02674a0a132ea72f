//! `homa trace rpc`: shows one RPC in detail.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use clap::Args;
use homa_analysis::competing::{self, CompetingRpc};
use homa_analysis::model::{Fate, ModelTime, NodeId, Packet, Rpc};
use homa_analysis::selection::{Filter, Selection};
use homa_analysis::tail::Cost;
use homa_analysis::{Cause, Model, Path, Span};
use homa_trace::{EventKind, NodeKind, Record, drop_reason_name, packet_word_parts};
use serde_json::{Value, json};

use super::answer::Answer;
use super::columns::Table;
use super::format::{ends, packet_type, slowdown, time, us};
use super::load::Inputs;
use super::select::BaselineArgs;
use super::tail::amounts;

/// Maximum number of competing flows listed for a packet.
const COMPETING_RPCS: usize = 8;
/// Maximum number of packets whose competing packets are shown.
const PACKETS: usize = 3;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  homa trace rpc 0x3f2a traces/
  homa trace rpc 16170 --events 1000 traces/

The id is the client's or the server's, as `homa trace rpcs` and `tail` list it: they differ by one. The
output has the causes of the RPC's time, from start to end without a gap; the packets around those that waited
longest; and all events of the RPC.")]
pub struct RpcArgs {
    /// The RPC's id, decimal or with 0x
    #[arg(value_name = "ID", value_parser = id)]
    pub id: u64,
    #[command(flatten)]
    pub inputs: Inputs,
    /// Maximum number of events to list: the first ones and the last ones
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub events: usize,
    #[command(flatten)]
    pub against: BaselineArgs,
    #[command(flatten)]
    pub answer: Answer,
}

fn id(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("`{text}` is no id: use a number, or 0x and a number in hex"))
}

/// # Errors
/// A file cannot be read or written, or the RPC does not exist.
pub fn run(args: &RpcArgs) -> Result<()> {
    let outputs = args.answer.outputs()?;
    let model = args.inputs.model()?;
    let Some(rpc) = model.rpc(args.id) else {
        bail!(
            "no event of these traces is of RPC {}: see `homa trace rpcs` for those that are there",
            args.id
        )
    };
    let Selection { explainer, costs, .. } =
        Selection::of(&model, &Filter::default(), args.against.to_baseline())?;
    let cost = costs.costs.iter().find(|cost| model.rpcs[cost.rpc as usize].id == rpc.id);
    let mut path = Path::default();
    explainer.explain(rpc, &mut path);
    let waited = longest(&model, rpc, &path);
    let mut text = heading(&model, rpc, cost);
    if !path.spans.is_empty() {
        text.push_str("\nCauses of its time:\n");
        text.push_str(&spans(&model, rpc, &path).text());
    }
    for packet in &waited {
        text.push_str(&context_of(&model, rpc, packet));
    }
    text.push_str("\nEvents:\n");
    text.push_str(&events(&model, rpc, args.events).text());
    outputs.answer(&text, &to_json(&model, rpc, cost, &path, &waited))
}

fn heading(model: &Model, rpc: &Rpc, cost: Option<&Cost>) -> String {
    let result = match rpc.result {
        Some(0) => "succeeded".to_owned(),
        Some(error) => format!("failed with error {error}"),
        None => "has no end in these traces".to_owned(),
    };
    let took = match cost {
        Some(cost) => format!(
            "; {} from start to end, {} at best, slowdown {}",
            time(cost.duration_ns),
            time(cost.best_ns),
            slowdown(cost.slowdown())
        ),
        None if !rpc.starts_in_trace => "; its start is not in these traces".to_owned(),
        None => String::new(),
    };
    format!(
        "RPC {} ({:#x}), {}: request {} B, response {} B; {result}{took}\n",
        rpc.id,
        rpc.id,
        ends(model, rpc),
        rpc.request.length,
        rpc.response.length
    )
}

/// Formats a time as microseconds since the RPC started.
fn since(rpc: &Rpc, ns: u64) -> String {
    let start = rpc.start.ns().unwrap_or(0);
    format!("{:.2}", (ns as f64 - start as f64) / 1e3)
}

/// Returns the critical path as a table.
pub fn spans(model: &Model, rpc: &Rpc, path: &Path) -> Table {
    let mut table = Table::new(&["at us", "us", "<cause", "<where", "<packet"]);
    for span in &path.spans {
        table.row([
            since(rpc, span.from_ns),
            us(span.to_ns - span.from_ns),
            span.cause.name().to_owned(),
            model.place(span.node, span.port),
            span.packet.map_or(String::new(), |packet| named(&model.packets[packet as usize])),
        ]);
    }
    table
}

fn named(packet: &Packet) -> String {
    let again = if packet.again { " again" } else { "" };
    format!("{} {}{again}", packet_type(packet.packet_type), packet.offset)
}

/// Returns the packets on the path that waited longest for other packets, in decreasing order of waiting
/// time.
fn longest<'m>(model: &'m Model, rpc: &Rpc, path: &Path) -> Vec<&'m Packet> {
    let waits = |span: &&Span| {
        matches!(
            span.cause,
            Cause::SenderQueue
                | Cause::SwitchQueue
                | Cause::NetworkQueue
                | Cause::ReadGap
                | Cause::Processing
                | Cause::SenderLate
        )
    };
    let mut waited: BTreeMap<u32, u64> = BTreeMap::new();
    for span in path.spans.iter().filter(waits) {
        let Some(packet) = span.packet else { continue };
        *waited.entry(packet).or_default() += span.to_ns - span.from_ns;
    }
    let mut waited: Vec<(u32, u64)> = waited.into_iter().collect();
    waited.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let packets = waited.iter().take(PACKETS).map(|(packet, _)| &model.packets[*packet as usize]);
    packets.filter(|packet| model.rpcs[packet.rpc as usize].id == rpc.id).collect()
}

/// Returns the earliest time at which a packet could have been sent, which is when its message existed and
/// the preceding packet had been sent.
fn ready(model: &Model, rpc: &Rpc, packet: &Packet) -> ModelTime {
    let message = rpc.message(packet.direction);
    let before = model.data_of(message).iter().rev().find(|other| other.offset < packet.offset);
    before.map_or(message.submitted.or(rpc.start), |before| before.sent)
}

fn context_of(model: &Model, rpc: &Rpc, packet: &Packet) -> String {
    let mut out = format!(
        "\nAround {} (sent {} us, received {} us, priority {}{}):\n",
        named(packet),
        packet.sent.ns().map_or("-".to_owned(), |ns| since(rpc, ns)),
        packet.received.ns().map_or("-".to_owned(), |ns| since(rpc, ns)),
        packet.priority,
        match packet.fate {
            Fate::Dropped(reason) => format!(", dropped by a switch for reason {reason}"),
            Fate::Lost => ", lost".to_owned(),
            Fate::Received | Fate::Unknown => String::new(),
        },
    );
    let mut table = Table::new(&["<where", "<RPC", "packets", "bytes", "priority", "inversions"]);
    for (name, crowds) in competing_rpcs(model, rpc, packet) {
        for crowd in crowds.iter().take(COMPETING_RPCS) {
            table.row([
                name.to_owned(),
                if crowd.rpc == 0 { "other traffic".to_owned() } else { crowd.rpc.to_string() },
                crowd.packets.to_string(),
                crowd.bytes.to_string(),
                format!("{}-{}", crowd.priorities.0, crowd.priorities.1),
                crowd.inversions.to_string(),
            ]);
        }
        if crowds.len() > COMPETING_RPCS {
            let rest = &crowds[COMPETING_RPCS..];
            table.row([
                name.to_owned(),
                format!("{} more", rest.len()),
                rest.iter().map(|crowd| crowd.packets).sum::<u32>().to_string(),
                rest.iter().map(|crowd| crowd.bytes).sum::<u64>().to_string(),
                String::new(),
                rest.iter().map(|crowd| crowd.inversions).sum::<u32>().to_string(),
            ]);
        }
    }
    match table.is_empty() {
        true => out.push_str("no packets of other RPCs delayed it\n"),
        false => out.push_str(&table.text()),
    }
    out
}

fn competing_rpcs(model: &Model, rpc: &Rpc, packet: &Packet) -> [(&'static str, Vec<CompetingRpc>); 3] {
    [
        ("before it at the sender", competing::at_sender(model, packet, ready(model, rpc, packet))),
        ("before it in the switch", competing::in_switch(model, packet)),
        ("while it was at the receiver", competing::at_receiver(model, packet)),
    ]
}

fn events(model: &Model, rpc: &Rpc, most: usize) -> Table {
    let mut table = Table::new(&["at us", "+us", "<node", "core", "<event", "<what"]);
    let all = model.events_of(rpc).len();
    let mut last = None;
    for (index, (node, record)) in model.events_of(rpc).enumerate() {
        if index >= most.div_ceil(2) && index + most / 2 < all {
            if index == most.div_ceil(2) {
                let left_out = all - most;
                table.row(
                    ["...", "", "", "", "", &format!("{left_out} events, see --events")].map(str::to_owned),
                );
            }
            continue;
        }
        let kind = model.nodes[usize::from(node)].kind;
        table.row([
            since(rpc, record.time),
            us(record.time - last.unwrap_or(record.time)),
            model.name(node).to_owned(),
            match kind {
                NodeKind::Host => record.place.core().map_or(String::new(), |core| core.to_string()),
                NodeKind::Switch => String::new(),
            },
            record.event().map_or_else(|| format!("kind {}", record.kind), |event| event.name().to_owned()),
            event_arguments(model, node, record),
        ]);
        last = Some(record.time);
    }
    table
}

/// Formats the arguments of an event as text.
fn event_arguments(model: &Model, node: NodeId, record: &Record) -> String {
    use EventKind as Kind;
    let (a, b) = (record.a, record.b);
    let Some(kind) = record.event() else { return format!("{a} {b}") };
    let (of_type, length) = packet_word_parts(a);
    let packet = || format!("{} {b}, {length} B", packet_type(of_type));
    let message = || if a == 0 { format!("request, {b} B") } else { format!("response, {b} B") };
    match kind {
        Kind::PacketSent => format!("{}, priority {}", packet(), record.place.priority()),
        Kind::PacketReceived | Kind::DeviceSent | Kind::DeviceReceived => packet(),
        Kind::PacketDropped => {
            let why = drop_reason_name(b).unwrap_or("for a reason that is not known");
            format!("{}, {length} B: {why}", packet_type(of_type))
        }
        Kind::SwitchEntered | Kind::SwitchLeft | Kind::SwitchDropped => {
            let at = model.place(node, Some(record.place.port()));
            let reason = match record.place.reason() {
                0 => String::new(),
                reason => format!(", reason {reason}"),
            };
            format!("{}, {at}, queue {}{reason}", packet(), record.place.queue())
        }
        Kind::GrantSent | Kind::GrantReceived => format!("up to {a}, priority {b}"),
        Kind::WaitGrant => format!("{a} of {b} B are granted and sent"),
        Kind::WaitPacer => format!("backlog {}, {b} B to send", time(u64::from(a))),
        Kind::WaitBuffer => format!("{a} B wanted, {b} B free"),
        Kind::RpcStart | Kind::RpcEnd => {
            let side = if record.id & 1 == 0 { "client" } else { "server" };
            if kind == Kind::RpcStart {
                format!("as its {side}, request {b} B")
            } else {
                format!("as its {side}, result {a}")
            }
        }
        Kind::MessageComplete | Kind::AppSend | Kind::AppReceive => message(),
        Kind::ResendSent | Kind::ResendReceived if a == u32::MAX => format!("from {b} on"),
        Kind::ResendSent | Kind::ResendReceived => format!("{b} to {}", u64::from(a) + u64::from(b)),
        Kind::TimerFired => format!("{} late, timer {b}", time(u64::from(a))),
        Kind::Woken => format!("asleep for {b} us"),
        Kind::NotRunning => format!("for {}", time(u64::from(a))),
        _ => String::new(),
    }
}

fn to_json(model: &Model, rpc: &Rpc, cost: Option<&Cost>, path: &Path, waited: &[&Packet]) -> Value {
    let span = |span: &Span| {
        json!({
            "from_ns": span.from_ns, "to_ns": span.to_ns, "cause": span.cause.name(), "node": model.name(span.node),
            "where": model.place(span.node, span.port), "packet": span.packet.map(|p| named(&model.packets[p as usize])),
        })
    };
    let event = |(node, record): (NodeId, &Record)| {
        json!({
            "ns": record.time, "node": model.name(node), "event": record.event().map(EventKind::name), "a": record.a,
            "b": record.b, "what": event_arguments(model, node, record),
            "core": (model.nodes[usize::from(node)].kind == NodeKind::Host).then(|| record.place.core()).flatten(),
        })
    };
    let crowd = |crowd: &CompetingRpc| {
        json!({
            "rpc": crowd.rpc, "packets": crowd.packets, "bytes": crowd.bytes,
            "lowest_priority": crowd.priorities.0, "highest_priority": crowd.priorities.1, "inversions": crowd.inversions,
        })
    };
    let around = |packet: &&Packet| {
        let [sender, switch, receiver] = competing_rpcs(model, rpc, packet)
            .map(|(_, crowds)| crowds.iter().map(crowd).collect::<Vec<_>>());
        json!({
            "packet": named(packet), "sent_ns": packet.sent.ns(), "received_ns": packet.received.ns(),
            "priority": packet.priority, "before_at_sender": sender, "before_in_switch": switch, "at_receiver": receiver,
        })
    };
    json!({
        "id": rpc.id, "client": model.name(rpc.client), "server": model.name(rpc.server), "result": rpc.result,
        "request_bytes": rpc.request.length, "response_bytes": rpc.response.length, "start_ns": rpc.start.ns(),
        "duration_ns": cost.map(|cost| cost.duration_ns), "best_ns": cost.map(|cost| cost.best_ns),
        "slowdown": cost.map(Cost::slowdown), "causes_ns": amounts(&path.amounts),
        "path": path.spans.iter().map(span).collect::<Vec<_>>(), "around": waited.iter().map(around).collect::<Vec<_>>(),
        "events": model.events_of(rpc).map(event).collect::<Vec<_>>(),
    })
}
