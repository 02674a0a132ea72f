//! The host that is checked.

use std::io;

use anyhow::{Result, bail};
use homa_driver::DeviceSettings;

use crate::machine::Root;

/// Sources cited by several checks.
pub const NOTES_2020: &str = "notes of Linux Homa, July 2020";
pub const NOTES_2021: &str = "notes of Linux Homa, January 2021";
pub const NOTES_RAMCLOUD: &str = "notes of RAMCloud's Homa";
pub const PERF_20: &str = "docs/perf/2026-11-20-first-figures.md";
pub const PERF_21: &str = "docs/perf/2026-11-21-speed.md";
pub const NOT_MEASURED: &str = "as Linux documents it; not measured here";

/// The host that is checked, or a directory of files that stands for one.
pub struct Host<'a> {
    /// The directory that contains `/proc` and `/sys`.
    pub root: &'a Root,
    /// Reads the settings of a device.
    pub settings: &'a dyn Fn(&str) -> io::Result<DeviceSettings>,
    /// The rate that links should have, in Mbit/s; `None`: rates are not compared.
    pub link_mbps: Option<u32>,
}

/// Capability numbers from linux/capability.h.
pub const CAP_NET_ADMIN: u32 = 12;
pub const CAP_NET_RAW: u32 = 13;
pub const CAP_SYS_ADMIN: u32 = 21;
pub const CAP_BPF: u32 = 39;

impl Host<'_> {
    /// Returns whether this process has a capability, or a sentence that explains why this is unknown.
    pub fn has_capability(&self, capability: u32) -> Result<bool, String> {
        let text = self.root.read("proc/self/status")?;
        let set = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        set.map(|set| set >> capability & 1 == 1).ok_or_else(|| "/proc/self/status has no CapEff".to_owned())
    }

    /// Returns the number of online processors.
    pub fn processors(&self) -> usize {
        self.root
            .read("sys/devices/system/cpu/online")
            .map_or(0, |text| crate::machine::cpu_list(&text).len())
    }
}

/// Returns the devices to check: the named ones. If none is named, returns those with a default route or, if
/// there are none, those with any route.
///
/// # Errors
/// A named device does not exist.
pub fn devices(root: &Root, named: &[String]) -> Result<Vec<String>> {
    let there = root.list("sys/class/net");
    if let Some(name) = named.iter().find(|name| !there.contains(name)) {
        bail!("--dev: there is no network device `{name}`; there are {}", there.join(", "));
    }
    if !named.is_empty() {
        return Ok(named.to_vec());
    }
    let mut routes = routes(&root.read("proc/net/route").unwrap_or_default());
    routes.extend(routes_6(&root.read("proc/net/ipv6_route").unwrap_or_default()));
    let default_only = routes.iter().any(|(_, is_default)| *is_default);
    let mut devices: Vec<String> = routes
        .into_iter()
        .filter(|(device, is_default)| device != "lo" && (*is_default || !default_only))
        .map(|(device, _)| device)
        .collect();
    devices.sort();
    devices.dedup();
    Ok(devices)
}

/// Returns the devices of IPv4 routes, each with a flag that tells whether the route is a default route.
fn routes(text: &str) -> Vec<(String, bool)> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_default = *words.get(1)? == "00000000" && *words.get(7)? == "00000000";
        Some(((*words.first()?).to_owned(), is_default))
    };
    text.lines().skip(1).filter_map(line).collect()
}

/// Returns the devices of IPv6 routes in the same way, without link-local and multicast routes.
fn routes_6(text: &str) -> Vec<(String, bool)> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (to, length, device) = (words.first()?, words.get(1)?, words.get(9)?);
        let is_default = *length == "00" && to.bytes().all(|byte| byte == b'0');
        let is_global = !to.starts_with("fe80") && !to.starts_with("ff");
        (*device != "lo" && is_global).then(|| ((*device).to_owned(), is_default))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fake_root::FakeRoot;

    const HEAD: &str = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n";

    #[test]
    fn the_default_route_says_which_device() {
        let routes = format!(
            "{HEAD}eth1 0000000A 0 1 0 0 0 00FFFFFF 0 0 0\neth0 00000000 0102 3 0 0 0 00000000 0 0 0\n"
        );
        let fake_root = FakeRoot::new(&[
            ("proc/net/route", &routes),
            ("sys/class/net/eth0/mtu", "1500"),
            ("sys/class/net/eth1/mtu", "1500"),
        ]);
        assert_eq!(devices(&fake_root.root(), &[]).expect("devices"), ["eth0"]);
        assert_eq!(devices(&fake_root.root(), &["eth1".to_owned()]).expect("devices"), ["eth1"]);
        let error = devices(&fake_root.root(), &["eth9".to_owned()]).expect_err("not there").to_string();
        assert!(error.contains("`eth9`; there are eth0, eth1"), "{error}");
        fake_root.write("proc/net/route", &routes.replace("eth0 00000000", "eth0 0000000B"));
        assert_eq!(devices(&fake_root.root(), &[]).expect("devices"), ["eth0", "eth1"]);
    }

    #[test]
    fn a_default_route_of_ipv6_counts() {
        let zero = "00000000000000000000000000000000";
        let text = format!(
            "fe80{} 40 {zero} 00 {zero} 0100 1 0 1 eth7\n{zero} 00 {zero} 00 {zero} 0400 1 0 3 eth2\n\
             {zero} 00 {zero} 00 {zero} ffffffff 1 0 200200 lo\n",
            &zero[4..]
        );
        let fake_root = FakeRoot::new(&[("proc/net/ipv6_route", &text)]);
        assert_eq!(devices(&fake_root.root(), &[]).expect("devices"), ["eth2"]);
        assert!(devices(&FakeRoot::new(&[]).root(), &[]).expect("none").is_empty());
    }

    #[test]
    fn capabilities_are_bits() {
        let fake_root = FakeRoot::new(&[("proc/self/status", "Name:\thoma\nCapEff:\t0000000000002000\n")]);
        let root = fake_root.root();
        let host = Host { root: &root, settings: &|_| Err(io::ErrorKind::NotFound.into()), link_mbps: None };
        assert_eq!(
            (host.has_capability(CAP_NET_RAW), host.has_capability(CAP_NET_ADMIN)),
            (Ok(true), Ok(false))
        );
    }
}

#[cfg(test)]
pub mod fake_root {
    //! A host that consists of planted files.

    use std::io;

    use super::Host;
    use crate::checks::finding::Finding;
    use crate::machine::fake_root::FakeRoot;

    /// Returns the finding with this name for a host that has only these files.
    pub fn found(check: fn(&Host) -> Vec<Finding>, files: &[(&str, &str)], name: &str) -> Finding {
        let fake_root = FakeRoot::new(files);
        let root = fake_root.root();
        let host = Host { root: &root, settings: &|_| Err(io::ErrorKind::NotFound.into()), link_mbps: None };
        check(&host).into_iter().find(|finding| finding.name == name).expect("a finding")
    }
}
