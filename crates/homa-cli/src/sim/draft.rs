//! A run in preparation: a preset, and the settings that differ from the preset.

use std::path::Path;

use homa_report::number::brief;
use homa_sim::{
    Alpha, Buffer, ClusterConfig, Connections, HomaConfig, LeafSpine, Spread, TcpConfig, Topology, Traffic,
    TransportConfig,
};
use homa_workload::Workload;

use super::homa::{Base, HomaDraft};
use super::preset::Preset;

/// The kind of topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyKind {
    LeafSpine,
    Switch,
}

/// Settings of a run. Settings that depend on others are stored as given until all are known.
#[derive(Clone, Debug)]
pub struct SettingsDraft {
    pub preset: &'static Preset,
    /// The configuration of the cluster, with all settings that do not depend on others.
    pub cluster: ClusterConfig,
    pub homa: HomaDraft,
    pub kind: Option<TopologyKind>,
    pub hosts: Option<usize>,
    pub racks: Option<usize>,
    pub hosts_per_rack: Option<usize>,
    pub spines: Option<usize>,
    pub core_rate_bps: Option<u64>,
    pub core_propagation_ns: Option<u64>,
    pub switch_delay_ns: Option<u64>,
    pub spread: Option<Spread>,
    /// Size of a switch's shared buffer in bytes, and the percentage of its free bytes that a port may
    /// occupy.
    pub shared_buffer: Option<u64>,
    pub buffer_share: Option<u32>,
    pub load: Option<f64>,
    /// Duration of the warm-up; if `None`, as long as the load requires.
    pub warm_up_ns: Option<u64>,
    /// How TCP and DCTCP distribute messages over connections.
    pub connections: Connections,
    /// Minimum number of measured messages.
    pub messages: Option<u64>,
    pub senders: Option<usize>,
    pub incast_interval_ns: Option<u64>,
    /// Number of open messages per host, as an alternative to a load.
    pub outstanding: Option<u32>,
    pub max_message: Option<u32>,
    pub mtu: Option<u32>,
    pub bins: Option<u32>,
}

/// The complete settings of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub preset: &'static str,
    pub base: Base,
    pub messages: Option<u64>,
    pub connections: Connections,
    pub cluster: ClusterConfig,
    pub homa: HomaConfig,
}

/// Default racks for presets with a single switch, if racks are requested.
const RACK: LeafSpine = LeafSpine {
    hosts_per_rack: 16,
    spines: 4,
    core_rate_bps: 0,
    core_propagation_ns: 0,
    delay_ns: 250,
    spread: Spread::Packets,
};
/// Ratio of the rate of a spine link to that of a host's link for presets without spine links.
const CORE_RATIO: u64 = 4;
/// Interval between the rounds of an incast.
const INCAST_INTERVAL_NS: u64 = 1_000_000;
/// Length in bytes of the IPv4 header before a Homa packet.
const IP_HEADER: u32 = 20;

impl SettingsDraft {
    /// Returns the settings of a preset.
    pub fn new(preset: &'static Preset) -> SettingsDraft {
        SettingsDraft {
            preset,
            cluster: (preset.cluster)(),
            homa: HomaDraft::new(preset.homa),
            kind: None,
            hosts: None,
            racks: None,
            hosts_per_rack: None,
            spines: None,
            core_rate_bps: None,
            core_propagation_ns: None,
            switch_delay_ns: None,
            spread: None,
            shared_buffer: None,
            buffer_share: None,
            load: None,
            warm_up_ns: None,
            connections: Connections::default(),
            messages: None,
            senders: None,
            incast_interval_ns: None,
            outstanding: None,
            max_message: None,
            mtu: None,
            bins: None,
        }
    }

    /// Combines all settings and checks them.
    ///
    /// # Errors
    /// The error names the settings that contradict each other, and values that are possible.
    pub fn build(&self) -> Result<Plan, String> {
        let mut cluster = self.cluster.clone();
        if let Some(bytes) = self.max_message {
            cluster.workload = cluster.workload.truncated(bytes).map_err(|error| error.to_string())?;
        }
        if let Some(mtu) = self.mtu {
            let payload = mtu.checked_sub(IP_HEADER + cluster.framing.header).filter(|&payload| payload >= 1);
            cluster.framing.payload = payload.filter(|_| mtu <= 65_535).ok_or("mtu: must be 77 to 65535")?;
        }
        self.join(&mut cluster)?;
        self.buffers(&mut cluster)?;
        self.traffic(&mut cluster)?;
        if let Some(bins) = self.bins {
            let bin = |bin: u32| cluster.workload.quantile(f64::from(bin) / f64::from(bins));
            let mut edges: Vec<u32> = (1..=bins).map(bin).collect();
            edges.dedup();
            cluster.bins = edges;
        }
        cluster.validate().map_err(|error| error.to_string())?;
        if let Some(messages) = self.messages {
            lengthen(&mut cluster, messages)?;
        }
        self.warm_up(&mut cluster)?;
        let mut homa = self.homa.clone();
        if self.mtu.is_some() {
            let packet = cluster.framing.payload + cluster.framing.header;
            homa.fields.insert(0, ("max_packet".to_owned(), packet.to_string()));
        }
        let homa = homa.build(&cluster)?;
        Ok(Plan {
            preset: self.preset.name,
            base: self.homa.base,
            messages: self.messages,
            connections: self.connections,
            cluster,
            homa,
        })
    }

    /// Sets the warm-up to the requested duration, or else to the one that the load requires.
    fn warm_up(&self, cluster: &mut ClusterConfig) -> Result<(), String> {
        let is_load = matches!(cluster.traffic, Traffic::Uniform { .. });
        let Some(said_ns) = self.warm_up_ns else {
            let has_own = matches!(self.cluster.traffic, Traffic::Incast { .. });
            if is_load || !has_own {
                cluster.warm_up_ns = cluster.steady_warm_up_ns();
            }
            return Ok(());
        };
        cluster.warm_up_ns = said_ns;
        let needs_ns = cluster.steady_warm_up_ns();
        if is_load && said_ns > cluster.duration_ns && said_ns > needs_ns {
            let ms = |ns: u64| brief(ns as f64 / 1e6);
            return Err(format!(
                "warm-up: {} ms is longer than the measured {} ms, and this load needs {} ms: omit warm-up, or \
                 use a longer duration",
                ms(said_ns),
                ms(cluster.duration_ns),
                ms(needs_ns)
            ));
        }
        cluster.validate().map_err(|error| error.to_string())
    }

    fn join(&self, cluster: &mut ClusterConfig) -> Result<(), String> {
        let preset = match cluster.topology {
            Topology::LeafSpine(net) => Some(net),
            Topology::Switch { .. } | Topology::BackToBack => None,
        };
        let kind = self.kind.unwrap_or(if preset.is_some() {
            TopologyKind::LeafSpine
        } else {
            TopologyKind::Switch
        });
        cluster.hosts = self.hosts.unwrap_or(cluster.hosts);
        if kind == TopologyKind::Switch {
            let racks = [
                ("racks", self.racks.is_some()),
                ("hosts-per-rack", self.hosts_per_rack.is_some()),
                ("spines", self.spines.is_some()),
                ("core-rate", self.core_rate_bps.is_some()),
                ("core-propagation", self.core_propagation_ns.is_some()),
                ("spread", self.spread.is_some()),
            ];
            if let Some((name, _)) = racks.iter().find(|(_, is_said)| *is_said) {
                return Err(format!("{name}: a single switch has none: use topology leaf-spine"));
            }
            let preset_ns = match cluster.topology {
                Topology::Switch { delay_ns } => delay_ns,
                Topology::LeafSpine(net) => net.delay_ns,
                Topology::BackToBack => 0,
            };
            let delay_ns = self.switch_delay_ns.unwrap_or(preset_ns);
            cluster.topology = Topology::Switch { delay_ns };
            return Ok(());
        }
        let net = preset.unwrap_or(RACK);
        let ratio = if net.core_rate_bps == 0 {
            CORE_RATIO as f64
        } else {
            net.core_rate_bps as f64 / self.preset_rate_bps() as f64
        };
        let hosts_per_rack = self.racks_of(net.hosts_per_rack, cluster)?;
        cluster.topology = Topology::LeafSpine(LeafSpine {
            hosts_per_rack,
            spines: self.spines.unwrap_or(net.spines),
            core_rate_bps: self.core_rate_bps.unwrap_or((cluster.link.rate_bps as f64 * ratio) as u64),
            core_propagation_ns: self.core_propagation_ns.unwrap_or(net.core_propagation_ns),
            delay_ns: self.switch_delay_ns.unwrap_or(net.delay_ns),
            spread: self.spread.unwrap_or(net.spread),
        });
        Ok(())
    }

    fn preset_rate_bps(&self) -> u64 {
        (self.preset.cluster)().link.rate_bps
    }

    /// Returns the number of hosts in a rack. Unless the number of hosts was given, it is derived from the
    /// number of racks.
    fn racks_of(&self, preset: usize, cluster: &mut ClusterConfig) -> Result<usize, String> {
        let Some(racks) = self.racks else { return Ok(self.hosts_per_rack.unwrap_or(preset)) };
        if racks == 0 {
            return Err("racks: must be at least 1".to_owned());
        }
        match (self.hosts, self.hosts_per_rack) {
            (None, per_rack) => {
                let per_rack = per_rack.unwrap_or(preset);
                cluster.hosts = racks.saturating_mul(per_rack);
                Ok(per_rack)
            }
            (Some(hosts), None) if hosts % racks == 0 => Ok(hosts / racks),
            (Some(hosts), None) => Err(format!(
                "racks: {hosts} hosts do not fill {racks} racks evenly: use a multiple of {racks}, or hosts-per-rack instead of racks"
            )),
            (Some(hosts), Some(per_rack)) if hosts.div_ceil(per_rack.max(1)) == racks => Ok(per_rack),
            (Some(hosts), Some(per_rack)) => Err(format!(
                "racks: {hosts} hosts, {per_rack} a rack, are not {racks} racks: omit one of the three"
            )),
        }
    }

    fn buffers(&self, cluster: &mut ClusterConfig) -> Result<(), String> {
        match (self.shared_buffer, self.buffer_share) {
            (Some(bytes), share) => {
                let alpha = Alpha::from_percent(share.unwrap_or(100));
                cluster.switch.buffer = Some(Buffer::Shared { bytes, alpha });
            }
            (None, Some(_)) => {
                return Err("buffer-share: has no effect without shared-buffer".to_owned());
            }
            (None, None) => {}
        }
        Ok(())
    }

    fn traffic(&self, cluster: &mut ClusterConfig) -> Result<(), String> {
        let preset = match cluster.traffic {
            Traffic::Incast { senders, interval_ns } => Some((senders, interval_ns)),
            Traffic::Uniform { .. } | Traffic::Closed { .. } => None,
        };
        if let Some(outstanding) = self.outstanding {
            if self.load.is_some() || self.senders.is_some() || self.incast_interval_ns.is_some() {
                return Err(
                    "outstanding: cannot be combined with load, senders or incast-interval".to_owned()
                );
            }
            cluster.traffic = Traffic::Closed { outstanding };
            return Ok(());
        }
        let senders = self.senders.or(preset.map(|(senders, _)| senders));
        match (senders, self.load) {
            (Some(_), Some(_)) => {
                return Err("load: an incast has no load: use senders and incast-interval".to_owned());
            }
            (Some(senders), None) => {
                let interval_ns = preset.map_or(INCAST_INTERVAL_NS, |(_, interval_ns)| interval_ns);
                let interval_ns = self.incast_interval_ns.unwrap_or(interval_ns);
                cluster.traffic = Traffic::Incast { senders, interval_ns };
            }
            (None, _) if self.incast_interval_ns.is_some() => {
                return Err("incast-interval: has no effect without senders".to_owned());
            }
            (None, Some(load)) => cluster.traffic = Traffic::Uniform { load },
            (None, None) => {}
        }
        Ok(())
    }
}

/// Extends the measured time until about `messages` messages start during it.
fn lengthen(cluster: &mut ClusterConfig, messages: u64) -> Result<(), String> {
    let Some(per_sec) = cluster.starts_per_sec() else {
        let why = if matches!(cluster.traffic, Traffic::Closed { .. }) {
            "messages: a closed loop has no known rate of messages: use duration"
        } else {
            "messages: the senders and rounds of an incast determine their number: use duration"
        };
        return Err(why.to_owned());
    };
    let needs_ns = (messages as f64 / per_sec * 1e9).ceil() as u64;
    cluster.duration_ns = cluster.duration_ns.max(needs_ns);
    cluster.validate().map_err(|_| format!("messages: {messages} take longer than an hour to start"))
}

impl Plan {
    /// Returns the transport with this name, with the settings of this run.
    ///
    /// # Errors
    /// The error names the known transports.
    pub fn transport(&self, name: &str) -> Result<TransportConfig, String> {
        check_transport(name)?;
        let transport = TransportConfig::named(name, &self.cluster);
        match transport.ok_or_else(|| unknown_transport(name))? {
            TransportConfig::Homa(_) => Ok(TransportConfig::Homa(self.homa.clone())),
            TransportConfig::Tcp(tcp) => Ok(TransportConfig::Tcp(self.connected(tcp))),
            TransportConfig::Dctcp(tcp) => Ok(TransportConfig::Dctcp(self.connected(tcp))),
            other => Ok(other),
        }
    }

    fn connected(&self, tcp: TcpConfig) -> TcpConfig {
        TcpConfig { connections: self.connections, ..tcp }
    }

    /// Rejects a load that the links cannot carry in addition to a transport's other packets.
    ///
    /// # Errors
    /// The error names the load, its share of the links' rate, and the highest possible load.
    pub fn check_load(&self, transports: &[String]) -> Result<(), String> {
        let Some(load) = self.load() else { return Ok(()) };
        for name in transports {
            let share = self.transport(name)?.link_share(&self.cluster, load);
            if share >= 1.0 {
                let most = (load / share * 100.0 - 1e-6).floor() / 100.0;
                return Err(format!(
                    "load: {load} cannot be sustained: with the grants or acknowledgements of {name} it takes {:.1} % of \
                     the links; use at most {most:.2}",
                    share * 100.0
                ));
            }
        }
        Ok(())
    }

    /// Returns the load, if traffic is uniform.
    pub fn load(&self) -> Option<f64> {
        match self.cluster.traffic {
            Traffic::Uniform { load } => Some(load),
            Traffic::Incast { .. } | Traffic::Closed { .. } => None,
        }
    }
}

/// Checks that a transport exists.
///
/// # Errors
/// The error names the known transports.
pub fn check_transport(name: &str) -> Result<(), String> {
    if TransportConfig::NAMES.contains(&name) { Ok(()) } else { Err(unknown_transport(name)) }
}

/// Checks that transports exist, and that each is listed only once.
///
/// # Errors
/// The error names the unknown transport, and the known ones.
pub fn check_transports(names: &[String]) -> Result<(), String> {
    for (index, name) in names.iter().enumerate() {
        check_transport(name)?;
        if names[..index].contains(name) {
            return Err(format!("transport: {name} is listed twice"));
        }
    }
    Ok(())
}

fn unknown_transport(name: &str) -> String {
    format!("unknown transport `{name}`: use {}", TransportConfig::NAMES.join(", "))
}

/// Returns a workload given by name, by message size, or by a CSV file.
///
/// # Errors
/// The error says what is wrong with the name or the file.
pub fn workload(text: &str) -> Result<Workload, String> {
    let looks_like_a_file = text.contains('/') || text.to_ascii_lowercase().ends_with(".csv");
    let error = match Workload::named(text) {
        Ok(workload) => return Ok(workload),
        Err(error) => error,
    };
    let path = Path::new(text);
    if !looks_like_a_file && !path.is_file() {
        return Err(format!("{error}, or a CSV file of `size,cumulative_fraction` lines"));
    }
    let content = std::fs::read_to_string(path).map_err(|error| format!("{text}: {error}"))?;
    let name = path.file_name().map_or(text.into(), |name| name.to_string_lossy());
    Workload::from_csv(&name, &content).map_err(|error| format!("{text}: {error}"))
}
