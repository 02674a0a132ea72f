//! Reports the status of a rack, changes its links, and ends racks.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use homa_bench::netns::{ip, tool};
use rustix::process::Signal;
use serde::Serialize;
use serde_json::Value;
use strum::{EnumMessage, EnumString, IntoStaticStr, VariantArray};

use super::spec::{SWITCH, Spec, SwitchKind, port_name};
use super::state::{self, Directory, State};
use super::{enter, leftovers, switch};

/// Time that a namespace daemon has to end its rack.
const PATIENCE: Duration = Duration::from_secs(10);

/// Description and status of a rack.
#[derive(Serialize)]
pub struct Status {
    schema: u32,
    #[serde(flatten)]
    spec: Spec,
    /// The process ID of the namespace daemon.
    #[serde(rename = "keeper")]
    daemon: u32,
    hosts_up: Vec<Host>,
    switch_runs: bool,
    /// How the switch last exited; `None` if it never exited.
    switch_ended: Option<String>,
    /// Number of times that the switch has exited. It is restarted a limited number of times.
    switch_ends: u32,
    /// Whether the switch has exited too often or cannot be started, and is no longer restarted.
    switch_given_up: bool,
    /// Process ID of the switch.
    switch_pid: Option<u32>,
    /// Counters of the switch, in the format of `homa switch stats --json`.
    switch_stats: Option<Value>,
    /// Process IDs of all processes in the rack, including the switch.
    processes: Vec<u32>,
}

#[derive(Serialize)]
struct Host {
    name: String,
    addresses: Vec<std::net::IpAddr>,
    link_up: bool,
    /// Path by which other programs can enter the host: `nsenter --net=PATH`.
    namespace: String,
}

/// Returns the status of a rack. Moves this process, which must be single-threaded, to the switch's
/// namespace.
///
/// # Errors
/// There is no such rack, or it belongs to another user.
pub fn of(rack: &str) -> Result<Status> {
    let directory = Directory::of(rack);
    let state = directory.up()?;
    let processes = leftovers::of(&state);
    enter::move_to(&state, SWITCH)?;
    Ok(Status {
        schema: 1,
        spec: state.spec.clone(),
        daemon: state.daemon,
        hosts_up: hosts(&state)?,
        switch_runs: runs(&state),
        switch_ended: state.switch_ended.clone(),
        switch_ends: state.switch_ends,
        switch_given_up: state.switch_given_up,
        switch_pid: state.switch_pid,
        switch_stats: switch_stats(&state, &directory),
        processes,
    })
}

fn runs(state: &State) -> bool {
    state.spec.switch == SwitchKind::LinuxBridge || state.switch_pid.is_some()
}

fn hosts(state: &State) -> Result<Vec<Host>> {
    let links: Value =
        serde_json::from_str(&tool("ip", "-json link show")?).context("`ip -json link` printed no JSON")?;
    let carrier = |port: &str| {
        let mut links = links.as_array().into_iter().flatten();
        let link = links.find(|link| link["ifname"] == port);
        link.and_then(|link| link["flags"].as_array()).is_some_and(|flags| flags.contains(&"LOWER_UP".into()))
    };
    let hosts = state.spec.numbers().zip(&state.hosts).map(|(number, place)| Host {
        name: place.name.clone(),
        addresses: place.addresses.clone(),
        link_up: carrier(&port_name(number)),
        namespace: format!("/proc/{}/fd/{}", state.daemon, place.descriptor),
    });
    Ok(hosts.collect())
}

/// Returns the counters of the switch, or `None` if it does not respond.
pub(crate) fn switch_stats(state: &State, directory: &Directory) -> Option<Value> {
    state.switch_pid?;
    let snapshot = homa_switch::ask(&switch::control(directory)).ok()?;
    serde_json::to_value(snapshot).ok()
}

impl fmt::Display for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Status { spec, .. } = self;
        let switch = match (spec.switch, &self.switch_ended) {
            (SwitchKind::LinuxBridge, _) => "the kernel's bridge: no rates, no priorities".to_owned(),
            (SwitchKind::Homa, None) => format!("runs, buffer {}", spec.buffer),
            (SwitchKind::Homa, Some(how)) if self.switch_runs => {
                format!(
                    "runs, buffer {}; it ended {} times ({how}) and was restarted",
                    spec.buffer, self.switch_ends
                )
            }
            (SwitchKind::Homa, Some(how)) => format!("ENDED ({how}): no packets are forwarded"),
        };
        writeln!(
            out,
            "rack {}: {} hosts at {} Mbit/s, MTU {}, daemon {}",
            spec.name,
            spec.hosts,
            spec.rate_mbps(),
            spec.mtu,
            self.daemon
        )?;
        writeln!(out, "switch: {switch}")?;
        for host in &self.hosts_up {
            let addresses: Vec<String> = host.addresses.iter().map(ToString::to_string).collect();
            let link = if host.link_up { "up" } else { "DOWN" };
            writeln!(out, "{:<5} {:<28} link {link:<5} {}", host.name, addresses.join(" "), host.namespace)?;
        }
        writeln!(out, "{} processes in it", self.processes.len())
    }
}

/// The state of a host's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumMessage, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum LinkState {
    /// Unplugged.
    Down,
    /// Plugged in.
    Up,
}

/// Unplugs a host's link at the switch's end, or plugs it in again. The host keeps its addresses and sees a
/// link without carrier. Moves this process, which must be single-threaded, to the switch's namespace.
///
/// # Errors
/// There is no such rack or host.
pub fn set_link(rack: &str, host: &str, to: LinkState) -> Result<()> {
    let state = Directory::of(rack).up()?;
    let number = state.spec.number(host);
    let Some(number) = number else {
        return state.place(host).and_then(|_| bail!("the switch has no link of its own: name a host"));
    };
    enter::move_to(&state, SWITCH)?;
    let to: &str = to.into();
    ip(&format!("link set {} {to}", port_name(number)))
}

/// Ends all racks of this user.
///
/// # Errors
/// A rack cannot be ended.
pub fn end_all() -> Result<()> {
    state::names().iter().try_for_each(|name| end(name))
}

/// Ends the rack with this name, or cleans up after a rack that crashed.
///
/// # Errors
/// There is no such rack.
pub fn end(name: &str) -> Result<()> {
    let directory = Directory::of(name);
    let state = directory.read()?;
    ensure!(
        state.is_some() || directory.is_held() || directory.file("lock").exists(),
        "there is no rack `{name}`"
    );
    let Some(state) = state else { return directory.remove() };
    if directory.is_held() {
        leftovers::send(state.daemon, Signal::TERM);
        let begin = Instant::now();
        while directory.is_held() && begin.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        if directory.is_held() {
            leftovers::send(state.daemon, Signal::KILL);
        }
    }
    leftovers::end(&state);
    directory.remove()
}
