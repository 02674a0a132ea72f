//! Namespaces and the links between them.
//!
//! Neighbour entries are permanent. Otherwise, the first packets of each run would wait for an ARP reply, and
//! if a request were lost in a full queue, a host would stall for a second. Hosts of a real rack already know
//! each other and show no such delays, and neither protocol causes them.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, Result};
use homa_bench::netns::{enter, fresh, ip, tool};

use super::spec::{ETHERNET_HEADER, HOST_DEVICE, ON_THE_WIRE, Spec, SwitchKind, mac, port_name};

/// Time for which a host's link may accumulate tokens in addition to a full frame. The kernel's timers are
/// late by tens of microseconds. Without the additional tokens, the link would lose that time.
const BURST_NS: u64 = 100_000;

/// Queue length of a host's link in packets, the same as Linux's default for a network card.
const QUEUE_PACKETS: u64 = 1_000;

/// The namespaces of a rack. They disappear once this is dropped and no process runs in them.
pub struct RackNamespaces {
    /// The namespaces of the hosts.
    pub hosts: Vec<OwnedFd>,
    /// The namespace of the switch, with one port per host.
    pub switch: OwnedFd,
}

impl RackNamespaces {
    /// Creates the namespaces and links. Afterwards, this thread is in the switch's namespace.
    ///
    /// # Errors
    /// A privilege or a program of iproute2 is missing.
    pub fn create(spec: &Spec) -> Result<RackNamespaces> {
        let switch = fresh()?;
        let hosts = spec.numbers().map(|_| fresh()).collect::<Result<Vec<_>>>()?;
        enter(&switch)?;
        ip("link set lo up")?;
        for (number, host) in spec.numbers().zip(&hosts) {
            cable(spec, number, host)?;
        }
        for (number, host) in spec.numbers().zip(&hosts) {
            enter(host)?;
            configure_device(spec, number).with_context(|| format!("host h{number}"))?;
        }
        enter(&switch)?;
        if spec.switch == SwitchKind::LinuxBridge {
            bridge(spec)?;
        }
        Ok(RackNamespaces { hosts, switch })
    }
}

/// Creates a link from the switch, whose namespace this thread is in, to a host.
fn cable(spec: &Spec, number: u16, host: &OwnedFd) -> Result<()> {
    let there = format!("/proc/{}/fd/{}", std::process::id(), host.as_raw_fd());
    let (port, mtu, mac) = (port_name(number), spec.mtu, mac(number));
    ip(&format!(
        "link add {port} mtu {mtu} type veth peer name {HOST_DEVICE} mtu {mtu} address {mac} netns {there}"
    ))?;
    disable_ipv6(spec, &port)?;
    ip(&format!("link set {port} up"))
}

/// Prevents a device from configuring an IPv6 address and sending packets on its own. A kernel without IPv6
/// does not know this option.
fn disable_ipv6(spec: &Spec, device: &str) -> Result<()> {
    if spec.has_ipv6() {
        ip(&format!("link set {device} addrgenmode none"))?;
    }
    Ok(())
}

/// Configures a host's device in this thread's namespace: single packets at the link's rate, addresses,
/// neighbours.
fn configure_device(spec: &Spec, number: u16) -> Result<()> {
    let device = HOST_DEVICE;
    ip("link set lo up")?;
    homa_driver::put_offloads_off(device).context("cannot switch the offloads of a veth off")?;
    // Large segments are split before they reach the device.
    ip(&format!("link set {device} gso_max_segs 1"))?;
    disable_ipv6(spec, device)?;
    for address in spec.addresses(number) {
        ip(&match address {
            IpAddr::V4(_) => format!("addr add {address}/24 dev {device}"),
            IpAddr::V6(_) => format!("-6 addr add {address}/64 dev {device} nodad"),
        })?;
    }
    ip(&format!("link set {device} up"))?;
    if spec.switch == SwitchKind::Homa {
        uplink(spec)?;
    }
    for other in spec.numbers().filter(|&other| other != number) {
        for address in spec.addresses(other) {
            ip(&format!("neigh replace {address} lladdr {} dev {device} nud permanent", mac(other)))?;
        }
    }
    Ok(())
}

/// Limits packets from a host to the link's rate. The switch limits the other direction.
fn uplink(spec: &Spec) -> Result<()> {
    tool("tc", &uplink_words(spec)).map(drop)
}

/// Returns the arguments for `tc`. A burst may hold a full frame plus the bytes sent in [`BURST_NS`], which
/// on a slow link is less than two full frames. On a wire, two frames never arrive at the same time, and a
/// burst of two would find less room at the switch than two consecutive frames. Large segments are also split
/// to the burst size. Sizes exclude bytes that the device does not count: the kernel adds the overhead to a
/// burst as it does to each frame.
fn uplink_words(spec: &Spec) -> String {
    let (rate, frame) = (spec.rate_bps, u64::from(spec.mtu) + ETHERNET_HEADER);
    let burst = frame + (rate / 8).saturating_mul(BURST_NS) / 1_000_000_000;
    let limit = QUEUE_PACKETS * frame;
    format!(
        "qdisc replace dev {HOST_DEVICE} root tbf rate {rate}bit burst {burst} limit {limit} overhead {ON_THE_WIRE}"
    )
}

fn bridge(spec: &Spec) -> Result<()> {
    ip(&format!("link add bridge0 mtu {} type bridge mcast_snooping 0", spec.mtu))?;
    disable_ipv6(spec, "bridge0")?;
    for number in spec.numbers() {
        ip(&format!("link set {} master bridge0", port_name(number)))?;
    }
    ip("link set bridge0 up")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_frames_leave_a_slow_link_one_by_one_and_late_timers_cost_no_rate() {
        for (mbps, mtu) in [(10, 576), (10, 1_280), (20, 1_500), (100, 1_500), (100, 9_000), (5_000, 1_500)] {
            let spec = Spec {
                name: "a".to_owned(),
                hosts: 2,
                rate_bps: mbps * 1_000_000,
                mtu,
                switch: SwitchKind::Homa,
                buffer: "1ms".to_owned(),
                switch_options: Vec::new(),
            };
            let words = uplink_words(&spec);
            let number = |name: &str| -> u64 {
                let mut words = words.split_whitespace().skip_while(|word| *word != name);
                words.nth(1).and_then(|word| word.trim_end_matches("bit").parse().ok()).expect(name)
            };
            // The kernel's limits in bytes on the wire.
            let bucket = number("burst") + number("overhead");
            let frame = u64::from(mtu) + 14 + 4 + 8 + 12;
            assert_eq!((number("rate"), bucket - frame), (mbps * 1_000_000, mbps * 100 / 8), "{words}");
            assert_eq!(bucket < 2 * frame, mbps <= 100, "{words}");
        }
    }
}
