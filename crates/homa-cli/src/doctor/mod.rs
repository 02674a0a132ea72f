//! `homa doctor`: what in this host's settings costs tail latency, and what changes it; and whether the network keeps priorities. It
//! changes nothing itself.

pub mod args;
mod device;
mod finding;
mod host;
mod memory;
mod probe;
mod processor;
mod sockets;
mod steering;

use anyhow::Result;
use homa_report::outputs::Outputs;
use serde_json::json;

use crate::machine::Root;
use args::{DoctorArgs, DoctorCommand};
use finding::Finding;
use host::Host;

/// Looks at everything, or probes.
///
/// # Errors
/// There is no such device, a file cannot be written, or a probe has no other end.
pub fn run(args: &DoctorArgs) -> Result<()> {
    match &args.command {
        Some(DoctorCommand::Listen(args)) => return probe::listen(args),
        Some(DoctorCommand::Probe(args)) => return probe::probe(args),
        None => {}
    }
    let outputs = Outputs::json_only(args.json.as_deref())?;
    let root = Root::here();
    let devices = host::devices(&root, &args.devices)?;
    let host = Host { root: &root, settings: &homa_driver::device_settings, link_mbps: args.link_mbps };
    let findings = check(&host, &devices);
    let looked =
        if devices.is_empty() { "no network device has a route".to_owned() } else { devices.join(", ") };
    let text = format!(
        "\nWhat costs tail latency on this host ({looked})\n\n{}",
        finding::text(&findings, args.all)
    );
    outputs.answer(&text, &json!({ "devices": devices, "findings": findings }))
}

fn check(host: &Host, devices: &[String]) -> Vec<Finding> {
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
    use crate::machine::planted::Planted;

    #[test]
    fn a_machine_that_tells_nothing_has_no_finding_that_claims_to_know() {
        let planted = Planted::new(&[]);
        let root = planted.root();
        let host = Host { root: &root, settings: &|_| Err(io::ErrorKind::NotFound.into()), link_mbps: None };
        let findings = check(&host, &["eth0".to_owned()]);
        let names: Vec<&str> = findings.iter().map(|finding| finding.name).collect();
        let known = |finding: &&Finding| matches!(finding.severity, Severity::Cost | Severity::Note);
        // A link without a rate is one that nothing is paced on, whatever the reason.
        assert_eq!(
            findings.iter().filter(known).map(|finding| finding.name).collect::<Vec<_>>(),
            ["link_rate"]
        );
        assert!(names.iter().enumerate().all(|(index, name)| !names[..index].contains(name)), "{names:?}");
    }

    #[test]
    fn whatever_costs_or_may_has_its_source_and_a_command() {
        let planted = Planted::new(&[
            ("proc/sys/net/core/rmem_max", "1"),
            ("proc/sys/net/core/wmem_max", "1"),
            ("proc/self/status", "CapEff: 0"),
            ("proc/sys/kernel/osrelease", "4.9"),
            ("proc/net/softnet_stat", "1 1 1"),
            ("proc/swaps", "head\n/swap file 1 0 0"),
            ("sys/devices/system/cpu/isolated", ""),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave"),
        ]);
        let root = planted.root();
        let off = |_: &str| {
            Ok(homa_driver::DeviceSettings { gro: Some(false), gso: Some(false), ..Default::default() })
        };
        let host = Host { root: &root, settings: &off, link_mbps: Some(100) };
        let findings = check(&host, &["eth0".to_owned()]);
        let bad = findings.iter().filter(|finding| finding.severity <= Severity::Note);
        assert!(bad.clone().count() >= 10);
        for finding in bad {
            let complete = finding.source.is_some() && finding.command.is_some() && !finding.read.is_empty();
            assert!(complete, "{finding:?}");
        }
    }
}
