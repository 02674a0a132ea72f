//! Links that go down and up while an experiment runs.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::enter;
use crate::spec::{SWITCH, Spec, host_name, port_name};

/// Maximum number of events kept, so that a link that flaps for hours does not exhaust memory.
const MOST: usize = 10_000;

/// Watches all links of a rack at the switch's end, through a process in the switch's namespace.
pub struct Cables {
    process: Child,
    seen: Arc<Mutex<Vec<Change>>>,
}

/// A link that went down or up.
#[derive(Clone, Debug, PartialEq)]
struct Change {
    at: Instant,
    host: String,
    up: bool,
}

/// A change of a link during a load, in the form used in results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkEvent {
    /// Name of the load.
    pub load: String,
    /// The host at the end of the link.
    pub host: String,
    /// Seconds since the start of the load, including its warm-up.
    pub at_s: f64,
    /// Whether the link has a carrier after the change.
    pub up: bool,
}

impl Cables {
    /// Starts watching. All links are assumed to be up.
    ///
    /// # Errors
    /// The watching process cannot be started.
    pub fn watch(spec: &Spec) -> Result<Cables> {
        let mut command = enter::command_in(&spec.name, SWITCH)?;
        command.args(["ip", "-o", "monitor", "link"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().context("cannot watch the links")?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        if let Some(out) = process.stdout.take() {
            let (seen, ports) = (Arc::clone(&seen), ports(spec));
            thread::spawn(move || listen(BufReader::new(out), &ports, &seen));
        }
        Ok(Cables { process, seen })
    }

    /// Returns the changes since the last call, except changes before `begin`.
    pub fn take(&self, load: &str, begin: Instant) -> Vec<LinkEvent> {
        let seen = std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        let during = seen.into_iter().filter(|change| change.at >= begin);
        during
            .map(|Change { at, host, up }| {
                let at_s = at.duration_since(begin).as_secs_f64();
                LinkEvent { load: load.to_owned(), host, at_s, up }
            })
            .collect()
    }
}

impl Drop for Cables {
    fn drop(&mut self) {
        // The process may have ended with the rack.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the names of the hosts, keyed by the names of the switch's ports.
fn ports(spec: &Spec) -> BTreeMap<String, String> {
    spec.numbers().map(|number| (port_name(number), host_name(number))).collect()
}

fn listen(out: impl BufRead, ports: &BTreeMap<String, String>, seen: &Mutex<Vec<Change>>) {
    let mut plugged = BTreeMap::new();
    for line in out.lines().map_while(Result::ok) {
        let Some((host, up)) = change(&line, ports) else { continue };
        // The kernel reports one change in several lines.
        let was_up = plugged.insert(host.to_owned(), up).unwrap_or(true);
        if up == was_up {
            continue;
        }
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() < MOST {
            seen.push(Change { at: Instant::now(), host: host.to_owned(), up });
        }
    }
}

/// Returns the host named in a line of `ip -o monitor link`, and whether the host's link has a carrier.
fn change<'a>(line: &str, ports: &'a BTreeMap<String, String>) -> Option<(&'a str, bool)> {
    let mut words = line.split_ascii_whitespace();
    let name = words.nth(1)?.trim_end_matches(':').split('@').next()?;
    let host = ports.get(name)?;
    words.find(|&word| word == "state")?;
    Some((host, words.next()? == "UP"))
}

/// Describes the events in one line per load and host.
pub fn event_lines(events: &[LinkEvent]) -> Vec<String> {
    let mut lines: BTreeMap<(&str, &str), String> = BTreeMap::new();
    for LinkEvent { load, host, at_s, up } in events {
        let line = lines.entry((load, host)).or_insert_with(|| format!("{load}: the link of {host} went"));
        let comma = if line.ends_with("went") { "" } else { "," };
        line.push_str(&format!("{comma} {} at {at_s:.1} s", if *up { "up" } else { "down" }));
    }
    lines.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_ports() -> BTreeMap<String, String> {
        [(port_name(1), host_name(1)), (port_name(2), host_name(2))].into()
    }

    #[test]
    fn a_change_told_in_several_lines_counts_once() {
        let tail = "group default \\    link/ether e6:54:7e:4a:49:69 brd ff:ff:ff:ff:ff:ff";
        let lines = [
            format!("3: p2@if2: <BROADCAST,MULTICAST> mtu 1500 qdisc noqueue state DOWN {tail}"),
            format!("2: eth0@p2: <NO-CARRIER,UP,M-DOWN> mtu 1500 qdisc noqueue state LOWERLAYERDOWN {tail}"),
            format!("3: p2@if2: <NO-CARRIER,UP,LOWER_UP> mtu 1500 qdisc noqueue state LOWERLAYERDOWN {tail}"),
            format!("3: p2@if2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP {tail}"),
            format!("3: p2@if2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP {tail}"),
            "nonsense".to_owned(),
        ];
        let seen = Mutex::new(Vec::new());
        listen(lines.join("\n").as_bytes(), &two_ports(), &seen);
        let seen = seen.into_inner().expect("nobody panicked");
        let seen: Vec<_> = seen.iter().map(|change| (change.host.as_str(), change.up)).collect();
        assert_eq!(seen, [("h2", false), ("h2", true)]);
    }

    #[test]
    fn a_line_says_when_each_link_went_down_and_up() {
        let event =
            |host: &str, at_s, up| LinkEvent { load: "TCP".to_owned(), host: host.to_owned(), at_s, up };
        let events = [event("h2", 1.04, false), event("h1", 2.0, false), event("h2", 2.96, true)];
        let lines = event_lines(&events);
        assert_eq!(lines[0], "TCP: the link of h1 went down at 2.0 s");
        assert_eq!(lines[1], "TCP: the link of h2 went down at 1.0 s, up at 3.0 s");
    }
}
