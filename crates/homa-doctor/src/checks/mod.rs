//! Checks the host's settings for causes of tail latency. Each finding has the reason and the command that
//! changes the setting. The checks change nothing.

mod device;
mod finding;
mod host;
mod memory;
mod processor;
mod sockets;
mod steering;

use anyhow::Result;
use serde::Serialize;

use crate::machine::Root;
pub use finding::{Finding, Reading, Severity};
use host::Host;

/// Options of the checks.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Network devices. If empty, those with a default route, or else those with any route.
    pub devices: Vec<String>,
    /// The rate that the links of these devices should have, in Mbit/s, at least 1; `None`: rates are not
    /// compared.
    pub link_mbps: Option<u32>,
}

/// The findings about a host.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The network devices that were checked.
    pub devices: Vec<String>,
    /// All findings, including those that require no action.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Formats the report for a terminal, with the worst findings first. Settings without a problem are only
    /// counted, unless `all` is set.
    #[must_use]
    pub fn text(&self, all: bool) -> String {
        let devices = if self.devices.is_empty() {
            "no network device has a route".to_owned()
        } else {
            self.devices.join(", ")
        };
        let findings = finding::text(&self.findings, all);
        format!("\nWhat costs tail latency on this host ({devices})\n\n{findings}")
    }
}

/// Checks this host.
///
/// # Errors
/// A device of `options` does not exist.
pub fn check(options: &Options) -> Result<Report> {
    let root = Root::here();
    let devices = host::devices(&root, &options.devices)?;
    let host = Host { root: &root, settings: &homa_driver::device_settings, link_mbps: options.link_mbps };
    Ok(Report { findings: check_all(&host, &devices), devices })
}

fn check_all(host: &Host, devices: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for device in devices {
        findings.extend(device::check(host, device));
        findings.push(steering::check_device(host, device));
    }
    findings.extend(sockets::check(host));
    findings.extend(steering::check(host));
    findings.extend(processor::check(host));
    findings.extend(memory::check(host));
    findings
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::finding::Severity;
    use super::*;
    use crate::machine::fake_root::FakeRoot;

    #[test]
    fn unreadable_settings_give_no_certain_finding() {
        let fake_root = FakeRoot::new(&[]);
        let root = fake_root.root();
        let host = Host { root: &root, settings: &|_| Err(io::ErrorKind::NotFound.into()), link_mbps: None };
        let findings = check_all(&host, &["eth0".to_owned()]);
        let names: Vec<&str> = findings.iter().map(|finding| finding.name).collect();
        let known = |finding: &&Finding| matches!(finding.severity, Severity::Cost | Severity::Note);
        // On a link of unknown rate nothing is paced, so this finding is true on any machine.
        assert_eq!(
            findings.iter().filter(known).map(|finding| finding.name).collect::<Vec<_>>(),
            ["link_rate"]
        );
        assert!(names.iter().enumerate().all(|(index, name)| !names[..index].contains(name)), "{names:?}");
    }

    #[test]
    fn whatever_costs_or_may_has_its_source_and_a_command() {
        let fake_root = FakeRoot::new(&[
            ("proc/sys/net/core/rmem_max", "1"),
            ("proc/sys/net/core/wmem_max", "1"),
            ("proc/self/status", "CapEff: 0"),
            ("proc/sys/kernel/osrelease", "4.9"),
            ("proc/net/softnet_stat", "1 1 1"),
            ("proc/swaps", "head\n/swap file 1 0 0"),
            ("sys/devices/system/cpu/isolated", ""),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave"),
        ]);
        let root = fake_root.root();
        let off = |_: &str| {
            Ok(homa_driver::DeviceSettings { gro: Some(false), gso: Some(false), ..Default::default() })
        };
        let host = Host { root: &root, settings: &off, link_mbps: Some(100) };
        let findings = check_all(&host, &["eth0".to_owned()]);
        let bad = findings.iter().filter(|finding| finding.severity <= Severity::Note);
        assert!(bad.clone().count() >= 10);
        for finding in bad {
            let complete = finding.source.is_some() && finding.command.is_some() && !finding.read.is_empty();
            assert!(complete, "{finding:?}");
        }
    }
}
