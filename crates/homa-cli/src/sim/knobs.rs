//! All settings of a run, in one table that defines options, keys of a sweep, and names in results.

use std::fmt::Write;

use clap::{Arg, ArgMatches, Command};
use homa_report::units::{bytes, bytes_u32, duration_ns, number, rate_bps, word};
use homa_sim::{
    Buffer, Connections, Discipline, Exchange, Forwarding, LoadBasis, Spread, TcpConfig, Topology, Traffic,
};
use serde_json::{Map, Value, json};

use super::draft::{self, Plan, SettingsDraft, TopologyKind};
use super::homa::{Base, Cutoffs};

/// A setting.
pub struct Knob {
    /// Name of the option. In a sweep and in results, `_` replaces `-`.
    pub name: &'static str,
    /// Placeholder for the value in the help text.
    value: &'static str,
    /// The help text.
    help: &'static str,
    /// The transports to which the setting applies; if empty, it applies to all.
    transports: &'static [&'static str],
    set: fn(&mut SettingsDraft, &str) -> Result<(), String>,
    /// Returns the final value of the setting.
    show: fn(&Plan) -> Value,
}

/// The transports that have their own settings.
const HOMA: &str = "homa";
const HOMAS: &[&str] = &[HOMA];
const TCPS: &[&str] = &["tcp", DCTCP];
const DCTCP: &str = "dctcp";
const DCTCPS: &[&str] = &[DCTCP];

/// Names of the base configurations for Homa's settings.
const BASES: &[(&str, Base)] =
    &[("tuned", Base::Tuned), ("paper", Base::Paper), ("deployed", Base::Deployed)];

/// Names for the kinds of bytes that count as load.
const LOAD_BASES: &[(&str, LoadBasis)] = &[("data", LoadBasis::Data), ("grants", LoadBasis::DataAndGrants)];

/// Defines a setting of the network or the load.
const fn network_knob(
    name: &'static str,
    value: &'static str,
    help: &'static str,
    set: fn(&mut SettingsDraft, &str) -> Result<(), String>,
    show: fn(&Plan) -> Value,
) -> Knob {
    Knob { name, value, help, transports: &[], set, show }
}

/// Defines a setting of Homa.
const fn homa_knob(
    name: &'static str,
    value: &'static str,
    help: &'static str,
    set: fn(&mut SettingsDraft, &str) -> Result<(), String>,
    show: fn(&Plan) -> Value,
) -> Knob {
    Knob { name, value, help, transports: HOMAS, set, show }
}

/// Stores a parsed value.
macro_rules! set {
    ($($place:ident).+ = $parse:expr) => {
        |draft, text| {
            draft.$($place).+ = $parse(text)?.into();
            Ok(())
        }
    };
}

/// All settings.
pub const KNOBS: &[Knob] = &[
    network_knob(
        "workload",
        "NAME|FILE",
        "Message sizes: w1 to w8, short-long, one-medium, starve, a number of bytes, or a CSV file of size,cumulative_fraction lines",
        set!(cluster.workload = draft::workload),
        |plan| json!(plan.cluster.workload.name()),
    ),
    network_knob(
        "max-message",
        "BYTES",
        "Longer messages are shortened to this",
        set!(max_message = bytes_u32),
        |plan| json!(plan.cluster.workload.max_bytes()),
    ),
    network_knob(
        "load",
        "FRACTION",
        "Offered load as a share of the hosts' links: above 0, at most 1. See --load-counts",
        set!(load = number::<f64>),
        |plan| json!(plan.load()),
    ),
    network_knob(
        "load-counts",
        "WHAT",
        "Packets that --load counts: data (data packets with all headers) or grants (also a grant for each packet beyond RTTbytes, \
         as published loads do) [default: data]",
        |draft, text| {
            draft.cluster.load_basis = word(text, LOAD_BASES)?;
            Ok(())
        },
        |plan| {
            let basis = LOAD_BASES.iter().find(|(_, basis)| *basis == plan.cluster.load_basis);
            json!(basis.map(|(name, _)| name))
        },
    ),
    network_knob(
        "exchange",
        "KIND",
        "one-way (a message ends when it is complete at its receiver) or echo (RPCs with a response as long as the request; slowdown \
         is the RPC's, and load counts both messages. Homa runs as deployed; other transports send two messages)",
        |draft, text| {
            let words = [("one-way", Exchange::OneWay), ("echo", Exchange::Echo)];
            draft.cluster.exchange = word(text, &words)?;
            Ok(())
        },
        |plan| match plan.cluster.exchange {
            Exchange::OneWay => json!("one-way"),
            Exchange::Echo => json!("echo"),
        },
    ),
    network_knob(
        "senders",
        "N",
        "An incast instead of a load: this many messages at once, all to one host",
        set!(senders = number::<usize>),
        |plan| match plan.cluster.traffic {
            Traffic::Incast { senders, .. } => json!(senders),
            Traffic::Uniform { .. } | Traffic::Closed { .. } => Value::Null,
        },
    ),
    network_knob(
        "outstanding",
        "N",
        "Closed loop instead of a load: every host always has this many open messages (with echo: RPCs). See `throughput` in the results",
        set!(outstanding = number::<u32>),
        |plan| match plan.cluster.traffic {
            Traffic::Closed { outstanding } => json!(outstanding),
            Traffic::Incast { .. } | Traffic::Uniform { .. } => Value::Null,
        },
    ),
    network_knob(
        "incast-interval",
        "TIME",
        "Interval between rounds of an incast",
        set!(incast_interval_ns = duration_ns),
        |plan| match plan.cluster.traffic {
            Traffic::Incast { interval_ns, .. } => json!(interval_ns),
            Traffic::Uniform { .. } | Traffic::Closed { .. } => Value::Null,
        },
    ),
    network_knob(
        "seed",
        "N",
        "Seed of arrivals, sizes, destinations and all other random choices",
        set!(cluster.seed = number::<u64>),
        |plan| json!(plan.cluster.seed),
    ),
    network_knob(
        "duration",
        "TIME",
        "Time in which measured messages start",
        set!(cluster.duration_ns = duration_ns),
        |plan| json!(plan.cluster.duration_ns),
    ),
    network_knob(
        "messages",
        "N",
        "Measure longer than --duration if necessary for about this many messages",
        set!(messages = at_least_one),
        |plan| json!(plan.messages),
    ),
    network_knob(
        "warm-up",
        "TIME",
        "Time of load before the measured time [default: until the load is in steady state, 2 ms to 2 s]",
        set!(warm_up_ns = duration_ns),
        |plan| json!(plan.cluster.warm_up_ns),
    ),
    network_knob(
        "drain",
        "TIME",
        "Maximum additional time for measured messages to arrive; the load continues",
        set!(cluster.drain_ns = duration_ns),
        |plan| json!(plan.cluster.drain_ns),
    ),
    network_knob("hosts", "N", "Hosts, at least 2", set!(hosts = number::<usize>), |plan| {
        json!(plan.cluster.hosts)
    }),
    network_knob(
        "topology",
        "KIND",
        "leaf-spine (racks of hosts under spine switches) or switch (all hosts at one)",
        |draft, text| {
            let kind =
                word(text, &[("leaf-spine", TopologyKind::LeafSpine), ("switch", TopologyKind::Switch)])?;
            draft.kind = Some(kind);
            Ok(())
        },
        |plan| match plan.cluster.topology {
            Topology::LeafSpine(_) => json!("leaf-spine"),
            Topology::Switch { .. } => json!("switch"),
            Topology::BackToBack => json!("back-to-back"),
        },
    ),
    network_knob("racks", "N", "Racks, each with a leaf switch", set!(racks = number::<usize>), |plan| {
        match plan.cluster.topology {
            Topology::LeafSpine(net) => json!(plan.cluster.hosts.div_ceil(net.hosts_per_rack)),
            _ => Value::Null,
        }
    }),
    network_knob("hosts-per-rack", "N", "Hosts of a rack", set!(hosts_per_rack = number::<usize>), |plan| {
        match plan.cluster.topology {
            Topology::LeafSpine(net) => json!(net.hosts_per_rack),
            _ => Value::Null,
        }
    }),
    network_knob(
        "spines",
        "N",
        "Spine switches, each joined to every leaf",
        set!(spines = number::<usize>),
        |plan| match plan.cluster.topology {
            Topology::LeafSpine(net) => json!(net.spines),
            _ => Value::Null,
        },
    ),
    network_knob(
        "rate",
        "RATE",
        "Rate of the hosts' links, as in 25gbit",
        set!(cluster.link.rate_bps = rate_bps),
        |plan| json!(plan.cluster.link.rate_bps),
    ),
    network_knob(
        "core-rate",
        "RATE",
        "Rate of each link between a leaf and a spine [default: the same multiple of --rate as in the preset]",
        set!(core_rate_bps = rate_bps),
        |plan| match plan.cluster.topology {
            Topology::LeafSpine(net) => json!(net.core_rate_bps),
            _ => Value::Null,
        },
    ),
    network_knob(
        "propagation",
        "TIME",
        "Propagation delay of a host's link",
        set!(cluster.link.propagation_ns = duration_ns),
        |plan| json!(plan.cluster.link.propagation_ns),
    ),
    network_knob(
        "core-propagation",
        "TIME",
        "The same for links between switches",
        set!(core_propagation_ns = duration_ns),
        |plan| match plan.cluster.topology {
            Topology::LeafSpine(net) => json!(net.core_propagation_ns),
            _ => Value::Null,
        },
    ),
    network_knob(
        "switch-delay",
        "TIME",
        "Delay from a packet's arrival at a switch to its entry into a queue",
        set!(switch_delay_ns = duration_ns),
        |plan| match plan.cluster.topology {
            Topology::LeafSpine(net) => json!(net.delay_ns),
            Topology::Switch { delay_ns } => json!(delay_ns),
            Topology::BackToBack => Value::Null,
        },
    ),
    network_knob(
        "send-delay",
        "TIME",
        "Delay of a sender's software and card for each packet",
        set!(cluster.send_delay_ns = duration_ns),
        |plan| json!(plan.cluster.send_delay_ns),
    ),
    network_knob(
        "receive-delay",
        "TIME",
        "Delay of a receiver's card and software for each packet",
        set!(cluster.receive_delay_ns = duration_ns),
        |plan| json!(plan.cluster.receive_delay_ns),
    ),
    network_knob(
        "spread",
        "HOW",
        "Spreading over the spines: packets (each randomly) or flows (all packets between two hosts on one path)",
        |draft, text| {
            draft.spread = Some(word(text, &[("packets", Spread::Packets), ("flows", Spread::Flows)])?);
            Ok(())
        },
        |plan| match plan.cluster.topology {
            Topology::LeafSpine(net) if net.spread == Spread::Packets => json!("packets"),
            Topology::LeafSpine(_) => json!("flows"),
            _ => Value::Null,
        },
    ),
    network_knob(
        "forwarding",
        "HOW",
        "store (a switch forwards a packet once it has arrived completely) or cut-through",
        |draft, text| {
            let words = [("store", Forwarding::StoreAndForward), ("cut-through", Forwarding::CutThrough)];
            draft.cluster.switch.forwarding = word(text, &words)?;
            Ok(())
        },
        |plan| match plan.cluster.switch.forwarding {
            Forwarding::StoreAndForward => json!("store"),
            Forwarding::CutThrough => json!("cut-through"),
        },
    ),
    network_knob(
        "queueing",
        "HOW",
        "Order in switches, unless the transport requires its own: strict (by priority) or fifo",
        |draft, text| {
            draft.cluster.switch.discipline = discipline(text)?;
            Ok(())
        },
        |plan| json!(discipline_name(plan.cluster.switch.discipline)),
    ),
    network_knob(
        "switch-priorities",
        "N",
        "Queues of a port with strict queueing, 1 to 8; with fewer than 8, the lowest priorities share one",
        set!(cluster.switch.priorities = number::<usize>),
        |plan| json!(plan.cluster.switch.priorities),
    ),
    network_knob(
        "nic",
        "HOW",
        "Order in the hosts' cards: strict or fifo",
        |draft, text| {
            draft.cluster.nic = discipline(text)?;
            Ok(())
        },
        |plan| json!(discipline_name(plan.cluster.nic)),
    ),
    network_knob(
        "nic-queue",
        "BYTES",
        "Bytes in a card's queue at which the card accepts no more packets",
        set!(cluster.nic_queue_bytes = bytes),
        |plan| json!(plan.cluster.nic_queue_bytes),
    ),
    network_knob(
        "port-buffer",
        "BYTES|none",
        "Buffer of each port of a switch, beyond which packets are dropped. none: unlimited",
        |draft, text| {
            draft.cluster.switch.buffer = none_or(text, bytes)?.map(|bytes| Buffer::PerPort { bytes });
            Ok(())
        },
        |plan| match plan.cluster.switch.buffer {
            Some(Buffer::PerPort { bytes }) => json!(bytes),
            _ => Value::Null,
        },
    ),
    network_knob(
        "shared-buffer",
        "BYTES",
        "Buffer of each switch, shared by its ports",
        set!(shared_buffer = bytes),
        |plan| match plan.cluster.switch.buffer {
            Some(Buffer::Shared { bytes, .. }) => json!(bytes),
            _ => Value::Null,
        },
    ),
    network_knob(
        "buffer-share",
        "PERCENT",
        "Maximum share of the free part of a shared buffer that a queue may use",
        |draft, text| {
            draft.buffer_share = Some(between(text, 1..=100)?);
            Ok(())
        },
        |plan| match plan.cluster.switch.buffer {
            Some(Buffer::Shared { alpha, .. }) => json!(alpha.percent()),
            _ => Value::Null,
        },
    ),
    Knob {
        transports: TCPS,
        ..network_knob(
            "connections",
            "N|message",
            "TCP and DCTCP: message (one for each message, starting with the initial window) or this many lasting ones from each host \
             to each other host [default: message]",
            set!(connections = connections),
            |plan| match plan.connections {
                Connections::PerMessage => json!("message"),
                Connections::PerPair(count) => json!(count.to_string()),
            },
        )
    },
    Knob {
        transports: DCTCPS,
        ..network_knob(
            "ecn",
            "BYTES",
            "DCTCP: queue length at a host's link from which on packets are marked; scaled to the rate of core links [default: 65 full \
             packets at 10 Gbit/s, in proportion at other rates]",
            set!(cluster.switch.mark_bytes = bytes),
            |plan| json!(TcpConfig::dctcp(&plan.cluster).mark_bytes),
        )
    },
    network_knob(
        "loss",
        "FRACTION",
        "Probability that a packet is lost in the network, as by link errors",
        set!(cluster.loss = number::<f64>),
        |plan| json!(plan.cluster.loss),
    ),
    network_knob("mtu", "BYTES", "Largest IP packet", set!(mtu = number::<u32>), |plan| {
        json!(plan.cluster.framing.payload + plan.cluster.framing.header + 20)
    }),
    network_knob(
        "bins",
        "N",
        "Rows of the slowdown table, with equal numbers of messages [default: 20]",
        |draft, text| {
            draft.bins = Some(between(text, 1..=1_000)?);
            Ok(())
        },
        |plan| if plan.cluster.bins.is_empty() { json!(20) } else { json!(plan.cluster.bins.len()) },
    ),
    network_knob(
        "acquaint",
        "yes|no",
        "Every host first sends a byte to every other host, so that first contacts are not measured",
        |draft, text| {
            draft.cluster.acquaint = word(text, &[("yes", true), ("no", false)])?;
            Ok(())
        },
        |plan| json!(plan.cluster.acquaint),
    ),
    network_knob(
        "sample",
        "TIME",
        "Interval between samples of the queues",
        set!(cluster.sample_ns = duration_ns),
        |plan| json!(plan.cluster.sample_ns),
    ),
    homa_knob(
        "homa",
        "BASE",
        "Base of Homa's settings: tuned (for this network and workload, the best of sweeps), paper (those of the SIGCOMM 2018 paper) \
         or deployed (a host's defaults)",
        |draft, text| {
            draft.homa.base = word(text, BASES)?;
            Ok(())
        },
        |plan| json!(BASES.iter().find(|(_, base)| *base == plan.base).map(|(name, _)| name)),
    ),
    homa_knob(
        "unsched-bytes",
        "BYTES",
        "Unscheduled bytes of a message [default: those of a round trip]",
        set!(homa.unsched_bytes = bytes_u32),
        |plan| json!(plan.homa.protocol.unsched_bytes),
    ),
    homa_knob(
        "window",
        "BYTES",
        "Bytes granted to a message beyond those received; 0: divided among the messages that get grants",
        set!(homa.window = bytes_u32),
        |plan| json!(plan.homa.protocol.window),
    ),
    homa_knob(
        "overcommit",
        "N",
        "Maximum number of messages that get grants at the same time",
        set!(homa.overcommit = number::<u32>),
        |plan| json!(plan.homa.protocol.max_overcommit),
    ),
    homa_knob("priorities", "N", "Priority levels, 1 to 8", set!(homa.priorities = number::<u8>), |plan| {
        json!(plan.homa.protocol.num_priorities)
    }),
    homa_knob(
        "scheduled-levels",
        "N",
        "Number of levels for scheduled bytes [default: by the workload]",
        set!(homa.scheduled_levels = number::<u8>),
        |plan| json!(plan.homa.protocol.max_sched_prio + 1),
    ),
    homa_knob(
        "cutoffs",
        "POLICY",
        "Unscheduled priorities: plan (for the workload), traffic (computed by each host from received messages), kernel (Linux \
         Homa's), or increasing sizes as in 200,2800,15000",
        |draft, text| {
            draft.homa.cutoffs = Some(cutoffs(text)?);
            Ok(())
        },
        |plan| json!(plan.homa.protocol.unsched_cutoffs),
    ),
    homa_knob(
        "fifo-fraction",
        "THOUSANDTHS",
        "Share of grants and of the uplink for the oldest message, below 500",
        set!(homa.fifo_fraction = number::<u32>),
        |plan| json!(plan.homa.protocol.grant_fifo_fraction),
    ),
];

fn at_least_one(text: &str) -> Result<u64, String> {
    number(text).and_then(|count| if count > 0 { Ok(count) } else { Err("must be at least 1".to_owned()) })
}

fn connections(text: &str) -> Result<Connections, String> {
    if text == "message" {
        return Ok(Connections::PerMessage);
    }
    match number(text)? {
        0 => Err("must be at least 1, or message".to_owned()),
        count => Ok(Connections::PerPair(count)),
    }
}

fn between(text: &str, range: std::ops::RangeInclusive<u32>) -> Result<u32, String> {
    let value = number(text)?;
    let refusal = || format!("must be {} to {}", range.start(), range.end());
    if range.contains(&value) { Ok(value) } else { Err(refusal()) }
}

fn none_or<T>(text: &str, parse: fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if text == "none" { Ok(None) } else { parse(text).map(Some) }
}

fn discipline(text: &str) -> Result<Discipline, String> {
    word(text, &[("strict", Discipline::Strict), ("fifo", Discipline::Fifo)])
}

fn discipline_name(discipline: Discipline) -> &'static str {
    match discipline {
        Discipline::Strict => "strict",
        Discipline::Fifo => "fifo",
        Discipline::Rank => "rank",
    }
}

fn cutoffs(text: &str) -> Result<Cutoffs, String> {
    match text {
        "plan" => Ok(Cutoffs::Plan),
        "traffic" => Ok(Cutoffs::Traffic),
        "kernel" => Ok(Cutoffs::Kernel),
        sizes => {
            let sizes: Result<Vec<u32>, String> = sizes.split(',').map(bytes_u32).collect();
            let wrong =
                |_| format!("`{text}` is unknown: use plan, traffic, kernel, or sizes as in 200,2800,15000");
            sizes.map(Cutoffs::Sizes).map_err(wrong)
        }
    }
}

/// Returns the setting with this name, written with `-` or `_`.
pub fn find_knob(name: &str) -> Option<&'static Knob> {
    KNOBS.iter().find(|knob| knob.key() == name.replace('-', "_"))
}

impl Knob {
    /// Returns the name used in a sweep and in results.
    pub fn key(&self) -> String {
        self.name.replace('-', "_")
    }

    /// Sets this setting.
    ///
    /// # Errors
    /// The error names the setting and says what is wrong with the value.
    pub fn set(&self, draft: &mut SettingsDraft, text: &str) -> Result<(), String> {
        (self.set)(draft, text.trim()).map_err(|error| format!("{}: {error}", self.name))
    }
}

/// Sets a setting by its name in a sweep: either a name in [`KNOBS`], or `homa.` followed by a field of the
/// protocol's settings.
///
/// # Errors
/// The error names the setting and says what is wrong.
pub fn set(draft: &mut SettingsDraft, name: &str, text: &str) -> Result<(), String> {
    if let Some(field) = name.strip_prefix("homa.") {
        draft.homa.fields.push((field.to_owned(), text.to_owned()));
        return Ok(());
    }
    match find_knob(name) {
        Some(knob) => knob.set(draft, text),
        None => {
            Err(format!("unknown setting `{name}`: use {}, or homa. and a setting of the protocol", names()))
        }
    }
}

/// Returns the names of all settings in a sweep.
pub fn names() -> String {
    KNOBS.iter().map(Knob::key).collect::<Vec<_>>().join(", ")
}

/// Returns whether a setting affects a run of this transport.
pub fn concerns(name: &str, transport: &str) -> bool {
    let only = transports_of(name);
    only.is_empty() || only.contains(&transport)
}

/// Returns the transports to which a setting applies; an empty list means all.
fn transports_of(name: &str) -> &'static [&'static str] {
    if name.starts_with("homa.") { HOMAS } else { find_knob(name).map_or(&[], |knob| knob.transports) }
}

/// Checks that a setting affects a run of at least one of these transports.
///
/// # Errors
/// The error names the setting and the transport that it needs.
pub fn check_concerns(name: &str, transports: &[String]) -> Result<(), String> {
    if transports.iter().any(|transport| concerns(name, transport)) {
        return Ok(());
    }
    let only = transports_of(name).join(" or ");
    Err(format!("{name}: it changes nothing without transport {only}: add that, or leave {name} out"))
}

/// Returns the final values of all settings by name. A transport's settings are included only if the
/// transport runs.
pub fn setup(plan: &Plan, transports: &[String]) -> Map<String, Value> {
    let runs = |name: &str| transports.iter().any(|transport| transport == name);
    let mut map = Map::new();
    map.insert("preset".to_owned(), json!(plan.preset));
    let counts = |knob: &&Knob| knob.transports.is_empty() || knob.transports.iter().any(|name| runs(name));
    for knob in KNOBS.iter().filter(counts) {
        // The setting `homa` selects the base. The protocol's settings are listed separately.
        let key = if knob.name == "homa" { "homa_base".to_owned() } else { knob.key() };
        map.insert(key, (knob.show)(plan));
    }
    map.insert("mean_bytes".to_owned(), json!(plan.cluster.workload.mean_bytes()));
    map.insert("rtt_bytes".to_owned(), json!(plan.cluster.rtt_bytes()));
    if runs(HOMA) {
        map.insert("homa".to_owned(), Value::Object(homa_settings::fields(&plan.homa.protocol)));
    }
    map
}

/// The table of settings as command-line options.
#[derive(Clone, Debug, Default)]
pub struct KnobArgs {
    /// The values given, in the order of the table.
    pub values: Vec<(&'static str, String)>,
}

impl KnobArgs {
    /// Applies the given values.
    ///
    /// # Errors
    /// The error names the setting and says what is wrong.
    pub fn apply(&self, draft: &mut SettingsDraft) -> Result<(), String> {
        self.values.iter().try_for_each(|(name, text)| set(draft, name, text))
    }
}

impl clap::FromArgMatches for KnobArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<KnobArgs, clap::Error> {
        let said =
            |knob: &'static Knob| matches.get_one::<String>(knob.name).map(|text| (knob.name, text.clone()));
        Ok(KnobArgs { values: KNOBS.iter().filter_map(said).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = KnobArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for KnobArgs {
    fn augment_args(command: Command) -> Command {
        KNOBS.iter().fold(command, |command, knob| {
            let heading = if knob.transports == HOMAS {
                "Homa"
            } else {
                "Network and load (default: as in the preset)"
            };
            command.arg(
                Arg::new(knob.name)
                    .long(knob.name)
                    .value_name(knob.value)
                    .help(knob.help)
                    .help_heading(heading)
                    // A negative number is rejected by the setting's own check.
                    .allow_hyphen_values(true),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        KnobArgs::augment_args(command)
    }
}

/// Returns a value as compact text.
pub fn short(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => {
            let mut out = String::new();
            for (index, value) in values.iter().enumerate() {
                let comma = if index == 0 { "" } else { "," };
                // Writing to a string cannot fail.
                let _ = write!(out, "{comma}{}", short(value));
            }
            out
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
