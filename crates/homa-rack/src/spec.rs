//! The description of a rack: its parameters, and the names and addresses derived from them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::time::Duration;

use homa_report::units;
use serde::{Deserialize, Serialize};
use strum::{EnumMessage, EnumString, IntoStaticStr, VariantArray};

/// Maximum number of hosts in a rack, limited by the last byte of an IPv4 address.
pub const MAX_HOSTS: u16 = 250;

/// Name of the device in each host.
pub const HOST_DEVICE: &str = "eth0";

/// Permitted MTUs in bytes. IPv4 requires every host to accept 576 (RFC 791, 3.1). Devices accept more than
/// 9000, but switches rarely do.
pub const MTUS: RangeInclusive<i64> = 576..=9_000;

/// Minimum MTU in bytes for IPv6 on a link (RFC 8200, 5).
const LEAST_IPV6_MTU: u32 = 1_280;

/// Name of the switch's namespace in commands that take a host.
pub const SWITCH: &str = "switch";

/// Length of the Ethernet header in bytes, which devices include in their byte counters.
pub const ETHERNET_HEADER: u64 = 14;

/// Bytes around a frame on a wire, which devices do not count: check sequence, preamble and gap.
pub const ON_THE_WIRE: u64 = 4 + 8 + 12;

/// Number of bytes that Ethernet adds to a packet on a wire.
pub const ETHERNET: u64 = ETHERNET_HEADER + ON_THE_WIRE;

/// Minimum and maximum sleep of a switch that shares its processor. On a virtual machine, a timer wakes about
/// 20 us late. Sleeping for a quarter of a frame's transmission time halved the switch's share of two
/// processors. It reduced the mean slowdown of W3 and W4 by a quarter to a half. This was measured with 4
/// hosts at 100 Mbit/s, and with 8 hosts at 40 and 50 Mbit/s (docs/perf/2026-11-22-rack-switch-naps.md).
/// Longer sleeps were not measured.
pub const NAPS: RangeInclusive<Duration> = Duration::from_micros(20)..=Duration::from_micros(100);

/// The kind of a rack's switch.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    EnumMessage,
    EnumString,
    IntoStaticStr,
    VariantArray,
    Serialize,
    Deserialize,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum SwitchKind {
    /// `homa switch`: port rates, priority queues, a bounded buffer
    Homa,
    /// The kernel's bridge: no port rates, no priorities and no buffer of its own; for comparison
    LinuxBridge,
}

/// The description of a rack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Name of the rack on this machine.
    pub name: String,
    /// Number of hosts.
    pub hosts: u16,
    /// Rate of each host's link in each direction, in bits per second.
    pub rate_bps: u64,
    /// Maximum size of an IP packet in bytes.
    pub mtu: u32,
    /// The kind of switch.
    pub switch: SwitchKind,
    /// Buffer of the switch, in the syntax of `homa switch`: a time at the rate of one port, or a number of
    /// bytes.
    pub buffer: String,
    /// Additional arguments for `homa switch run`.
    pub switch_options: Vec<String>,
}

impl Spec {
    /// Returns the numbers of the hosts, which start at 1 as in the hosts' names.
    pub fn numbers(&self) -> impl Iterator<Item = u16> + use<> {
        1..=self.hosts
    }

    /// Returns the number of the host with this name, or `None` if there is none.
    pub fn number(&self, host: &str) -> Option<u16> {
        self.numbers().find(|&number| host_name(number) == host)
    }

    /// Returns whether links of this MTU have IPv6.
    pub fn has_ipv6(&self) -> bool {
        self.mtu >= LEAST_IPV6_MTU
    }

    /// Returns the addresses of a host: IPv4, and IPv6 if the links have it.
    pub fn addresses(&self, number: u16) -> Vec<IpAddr> {
        let ipv6 = self.has_ipv6().then(|| ipv6(number));
        [ipv4(number)].into_iter().chain(ipv6).collect()
    }

    /// Returns how long the switch sleeps between polls on a machine with this many processors. If there are
    /// too few processors for each host and the switch to have one, the sleep is a quarter of the
    /// transmission time of a full frame, within [`NAPS`]. It is zero if the result is too short for a timer,
    /// or if there are enough processors.
    pub fn poll_sleep(&self, processors: usize) -> Duration {
        let nap = Duration::from_nanos((self.packet_us() * 250.0) as u64);
        // In a time trace, the sleep would appear as an unexplained network delay. The sleep hid the effect
        // of windows that were too small in 9 of 9 runs.
        let is_traced =
            self.switch_options.iter().any(|word| word == "--trace" || word.starts_with("--trace="));
        if is_traced || processors > usize::from(self.hosts) || nap < *NAPS.start() {
            return Duration::ZERO;
        }
        nap.min(*NAPS.end())
    }

    /// Returns the transmission time of the longest packet on a link, in microseconds.
    pub fn packet_us(&self) -> f64 {
        (u64::from(self.mtu) + ETHERNET) as f64 * 8e6 / self.rate_bps as f64
    }

    /// Returns the rate of the link in Mbit/s, at least 1.
    pub fn rate_mbps(&self) -> u32 {
        u32::try_from(self.rate_bps / 1_000_000).unwrap_or(u32::MAX).max(1)
    }
}

/// Returns the name of a host.
pub fn host_name(number: u16) -> String {
    format!("h{number}")
}

/// Returns the name of the switch's port to a host.
pub fn port_name(number: u16) -> String {
    format!("p{number}")
}

/// Returns the IPv4 address of a host, in a /24 network.
pub fn ipv4(number: u16) -> IpAddr {
    Ipv4Addr::new(10, 146, 0, number as u8).into()
}

/// Returns the IPv6 address of a host, in a /64 network.
fn ipv6(number: u16) -> IpAddr {
    Ipv6Addr::new(0xfd00, 0x146, 0, 0, 0, 0, 0, number).into()
}

/// Returns the locally administered MAC address of a host.
pub fn mac(number: u16) -> String {
    format!("02:00:00:01:46:{:02x}", number as u8)
}

/// The description of a rack without its name.
#[derive(Clone, Debug, PartialEq)]
pub struct BuildOptions {
    /// Number of hosts.
    pub hosts: u16,
    /// Rate of each host's link in each direction, in bits per second: see [`rate`].
    pub rate: u64,
    /// MTU of the links in bytes, within [`MTUS`]. Below 1280, hosts have no IPv6 addresses.
    pub mtu: u32,
    /// Buffer of each port of the switch: see [`buffer`].
    pub buffer: String,
    /// The kind of switch.
    pub switch: SwitchKind,
    /// Additional arguments for `homa switch run`.
    pub switch_option: Vec<String>,
}

impl Default for BuildOptions {
    fn default() -> BuildOptions {
        BuildOptions {
            hosts: 8,
            rate: 100_000_000,
            mtu: 1_500,
            buffer: "1ms".to_owned(),
            switch: SwitchKind::Homa,
            switch_option: Vec::new(),
        }
    }
}

impl BuildOptions {
    /// Returns the description of the rack with this name.
    pub fn spec(&self, name: &str) -> Spec {
        Spec {
            name: name.to_owned(),
            hosts: self.hosts,
            rate_bps: self.rate,
            mtu: self.mtu,
            switch: self.switch,
            buffer: self.buffer.clone(),
            switch_options: self.switch_option.clone(),
        }
    }
}

/// Rates that the switch can pace, in bits per second.
const RATES_BPS: RangeInclusive<u64> = 10_000_000..=5_000_000_000;

/// Parses the rate of a link, in bits per second.
///
/// # Errors
/// The text is not a rate, or the switch cannot pace the rate.
pub fn rate(text: &str) -> Result<u64, String> {
    let bps = units::rate_bps(text)?;
    if RATES_BPS.contains(&bps) { Ok(bps) } else { Err("a link has 10mbit to 5gbit".to_owned()) }
}

/// Checks the buffer of a port, in the syntax of `homa switch`.
///
/// # Errors
/// The text is neither a time nor a number of bytes, or its value is zero.
pub fn buffer(text: &str) -> Result<String, String> {
    let given = units::duration_ns(text).or_else(|_| units::bytes(text));
    match given {
        Ok(1..) => Ok(text.to_owned()),
        Ok(0) => Err("a switch without a buffer forwards nothing".to_owned()),
        Err(_) => Err("use a time, as in 1ms, or a number of bytes, as in 64kB".to_owned()),
    }
}

/// Checks the name of a rack, which is also the name of its directory.
///
/// # Errors
/// Describes the rule for names.
pub fn name(text: &str) -> Result<String, String> {
    let fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=32).contains(&text.len()) && text.bytes().all(fine) && !text.starts_with('-') {
        Ok(text.to_owned())
    } else {
        Err("a name has 1 to 32 of a-z, 0-9 and -".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_names_and_addresses_that_differ() {
        let spec = Spec {
            name: "a".to_owned(),
            hosts: MAX_HOSTS,
            rate_bps: 10_000_000,
            mtu: 1_500,
            switch: SwitchKind::LinuxBridge,
            buffer: "1ms".to_owned(),
            switch_options: Vec::new(),
        };
        let mut seen = std::collections::HashSet::new();
        for number in spec.numbers() {
            assert_eq!(spec.number(&host_name(number)), Some(number));
            assert!(seen.insert((spec.addresses(number), mac(number))));
            assert_eq!(spec.addresses(number), [ipv4(number), ipv6(number)]);
            assert_eq!(Spec { mtu: 1_279, ..spec.clone() }.addresses(number), [ipv4(number)]);
        }
        assert_eq!((spec.number("h0"), spec.number("h251"), spec.number("h1 ")), (None, None, None));
        assert_eq!((seen.len(), spec.rate_mbps()), (250, 10));
    }

    #[test]
    fn a_switch_that_shares_processors_naps_for_a_quarter_of_a_frame() {
        let spec = |hosts, rate_bps| Spec {
            name: "a".to_owned(),
            hosts,
            rate_bps,
            mtu: 1_500,
            switch: SwitchKind::Homa,
            buffer: "1ms".to_owned(),
            switch_options: Vec::new(),
        };
        let nap_us = |hosts, mbps: u64, processors| {
            spec(hosts, mbps * 1_000_000).poll_sleep(processors).as_nanos() as f64 / 1e3
        };
        assert_eq!(nap_us(8, 40, 2), 76.9);
        assert_eq!(nap_us(4, 100, 4), 30.76);
        assert_eq!(
            [nap_us(8, 10, 2), nap_us(8, 1_000, 2)],
            [100.0, 0.0],
            "neither longer nor shorter is worth it"
        );
        assert_eq!([nap_us(8, 40, 9), nap_us(2, 40, 3)], [0.0, 0.0], "a processor for each");
        let traced =
            Spec { switch_options: vec!["--trace".to_owned(), "file".to_owned()], ..spec(8, 40_000_000) };
        assert_eq!(traced.poll_sleep(2), Duration::ZERO);
    }

    #[test]
    fn a_name_is_no_path() {
        for bad in ["", "..", "a/b", "A", "-a", "a b", "012345678901234567890123456789012"] {
            assert!(name(bad).is_err(), "{bad}");
        }
        assert_eq!(name("run-17").as_deref(), Ok("run-17"));
    }
}
