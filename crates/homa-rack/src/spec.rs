//! What a rack is made of: the numbers that were asked for, and the names and addresses that follow from them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::time::Duration;

use homa_report::units;
use serde::{Deserialize, Serialize};
use strum::{EnumMessage, EnumString, IntoStaticStr, VariantArray};

/// Hosts of one rack: what an address of four bytes counts in its last.
pub const MAX_HOSTS: u16 = 250;

/// The device of a host, under the same name in each.
pub const HOST_DEVICE: &str = "eth0";

/// MTUs a rack can have, bytes. IPv4 has every host take 576 (RFC 791, 3.1); devices take more than 9000, switches seldom do.
pub const MTUS: RangeInclusive<i64> = 576..=9_000;

/// Below this MTU, in bytes, a link has no IPv6 (RFC 8200, 5).
const LEAST_IPV6_MTU: u32 = 1_280;

/// What stands for a host where the switch's namespace is meant.
pub const SWITCH: &str = "switch";

/// Bytes of Ethernet before a packet, which devices count.
pub const ETHERNET_HEADER: u64 = 14;

/// Bytes of a frame on a wire that no device counts: check sequence, preamble and gap.
pub const ON_THE_WIRE: u64 = 4 + 8 + 12;

/// Bytes of Ethernet around a packet.
pub const ETHERNET: u64 = ETHERNET_HEADER + ON_THE_WIRE;

/// Shortest and longest nap of a switch that shares its processor. A timer wakes some 20 us late on a virtual machine; with 4 hosts of 100
/// Mbit/s, and 8 of 40 and 50, naps of a quarter of a frame halved the switch's share of two processors and took a quarter to a half off
/// the mean slowdown of W3 and W4 (docs/perf/2026-11-22-rack-switch-naps.md); longer ones were not measured.
pub const NAPS: RangeInclusive<Duration> = Duration::from_micros(20)..=Duration::from_micros(100);

/// What forwards between the hosts.
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
    /// A bridge of the kernel: no port rates, no priorities and no buffer of its own; to compare with
    LinuxBridge,
}

/// A rack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Its name on this machine.
    pub name: String,
    /// Number of hosts.
    pub hosts: u16,
    /// Bits per second of every host's link, each way.
    pub rate_bps: u64,
    /// Most bytes of an IP packet.
    pub mtu: u32,
    /// What forwards.
    pub switch: SwitchKind,
    /// The switch's buffer, as `homa switch` takes it: a time of one port's rate or a number of bytes.
    pub buffer: String,
    /// Further words for `homa switch run`.
    pub switch_options: Vec<String>,
}

impl Spec {
    /// The hosts, counted from 1 as in their names.
    pub fn numbers(&self) -> impl Iterator<Item = u16> + use<> {
        1..=self.hosts
    }

    /// The number of the host with this name; `None`: there is none.
    pub fn number(&self, host: &str) -> Option<u16> {
        self.numbers().find(|&number| host_name(number) == host)
    }

    /// Whether links of this MTU have IPv6.
    pub fn has_ipv6(&self) -> bool {
        self.mtu >= LEAST_IPV6_MTU
    }

    /// A host's addresses: by IPv4, and by IPv6 where links have it.
    pub fn addresses(&self, number: u16) -> Vec<IpAddr> {
        let ipv6 = self.has_ipv6().then(|| ipv6(number));
        [ipv4(number)].into_iter().chain(ipv6).collect()
    }

    /// How long the switch rests between looks on a machine with so many processors: where each host cannot have one beside the switch's, a
    /// quarter of the time that a full frame takes, within [`NAPS`]; nothing where that is too short to be worth a timer, or where there are
    /// processors for all.
    pub fn nap(&self, processors: usize) -> Duration {
        let nap = Duration::from_nanos((self.packet_us() * 250.0) as u64);
        // To a time trace a nap is a delay of the network that nobody accounts for: it hid windows that were too small in 9 runs of 9.
        let is_traced =
            self.switch_options.iter().any(|word| word == "--trace" || word.starts_with("--trace="));
        if is_traced || processors > usize::from(self.hosts) || nap < *NAPS.start() {
            return Duration::ZERO;
        }
        nap.min(*NAPS.end())
    }

    /// What the longest packet takes on a link, in microseconds.
    pub fn packet_us(&self) -> f64 {
        (u64::from(self.mtu) + ETHERNET) as f64 * 8e6 / self.rate_bps as f64
    }

    /// The link's rate in Mbit/s, at least 1.
    pub fn rate_mbps(&self) -> u32 {
        u32::try_from(self.rate_bps / 1_000_000).unwrap_or(u32::MAX).max(1)
    }
}

/// A host's name.
pub fn host_name(number: u16) -> String {
    format!("h{number}")
}

/// The switch's port to a host.
pub fn port_name(number: u16) -> String {
    format!("p{number}")
}

/// A host's IPv4 address; the network has 24 bits.
pub fn ipv4(number: u16) -> IpAddr {
    Ipv4Addr::new(10, 146, 0, number as u8).into()
}

/// A host's IPv6 address; the network has 64 bits.
fn ipv6(number: u16) -> IpAddr {
    Ipv6Addr::new(0xfd00, 0x146, 0, 0, 0, 0, 0, number).into()
}

/// A host's link address, locally administered.
pub fn mac(number: u16) -> String {
    format!("02:00:00:01:46:{:02x}", number as u8)
}

/// What a rack is built of, without its name.
#[derive(Clone, Debug, PartialEq)]
pub struct BuildOptions {
    /// Number of hosts.
    pub hosts: u16,
    /// Rate of each host's link, each way, bits per second: see [`rate`].
    pub rate: u64,
    /// MTU of the links, bytes: one of [`MTUS`]. Below 1280 hosts have no IPv6 addresses.
    pub mtu: u32,
    /// Buffer of a port of the switch: see [`buffer`].
    pub buffer: String,
    /// What forwards between the hosts.
    pub switch: SwitchKind,
    /// Further options for `homa switch run`.
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
    /// The rack, under this name.
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

/// The rates that the switch paces.
const RATES_BPS: RangeInclusive<u64> = 10_000_000..=5_000_000_000;

/// The rate of a link, bits per second.
///
/// # Errors
/// It is none, or none that the switch paces.
pub fn rate(text: &str) -> Result<u64, String> {
    let bps = units::rate_bps(text)?;
    if RATES_BPS.contains(&bps) { Ok(bps) } else { Err("a link has 10mbit to 5gbit".to_owned()) }
}

/// What a port may queue, as `homa switch` takes it.
///
/// # Errors
/// It is neither a time nor a number of bytes, or nothing.
pub fn buffer(text: &str) -> Result<String, String> {
    let given = units::duration_ns(text).or_else(|_| units::bytes(text));
    match given {
        Ok(1..) => Ok(text.to_owned()),
        Ok(0) => Err("a switch without a buffer forwards nothing".to_owned()),
        Err(_) => Err("use a time, as in 1ms, or a number of bytes, as in 64kB".to_owned()),
    }
}

/// Whether this can be a rack's name: it becomes a directory's.
///
/// # Errors
/// The rule, in words.
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
            spec(hosts, mbps * 1_000_000).nap(processors).as_nanos() as f64 / 1e3
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
        assert_eq!(traced.nap(2), Duration::ZERO);
    }

    #[test]
    fn a_name_is_no_path() {
        for bad in ["", "..", "a/b", "A", "-a", "a b", "012345678901234567890123456789012"] {
            assert!(name(bad).is_err(), "{bad}");
        }
        assert_eq!(name("run-17").as_deref(), Ok("run-17"));
    }
}
