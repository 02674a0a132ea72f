//! Namespaces and the wires between them.
//!
//! Neighbours are known from the beginning and for ever. Otherwise the first packets of every run would wait for an answer, and a
//! question that is lost in a full queue would stall a host for a second: an effect of neither protocol, and one that hosts of a rack,
//! which know each other, do not show.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, Result};
use homa_bench::netns::{enter, fresh, ip, tool};

use super::spec::{ETHERNET_HEADER, HOST_DEVICE, ON_THE_WIRE, Spec, SwitchKind, mac, port_name};

/// Time of tokens that a host's link may have left when it sends a full frame: a timer of this kernel is late by some tens of microseconds,
/// and what it missed would be lost rate.
const BURST_NS: u64 = 100_000;

/// Packets that wait in a host for its link, as many as Linux has for a network card.
const QUEUE_PACKETS: u64 = 1_000;

/// The namespaces of a rack. They are gone when this, and whatever runs in them, is.
pub struct Wires {
    /// One for each host.
    pub hosts: Vec<OwnedFd>,
    /// The switch's, with a port for each host.
    pub switch: OwnedFd,
}

impl Wires {
    /// Lays them. This thread ends up in the switch's namespace.
    ///
    /// # Errors
    /// What is missing: a right, or a program of iproute2.
    pub fn lay(spec: &Spec) -> Result<Wires> {
        let switch = fresh()?;
        let hosts = spec.numbers().map(|_| fresh()).collect::<Result<Vec<_>>>()?;
        enter(&switch)?;
        ip("link set lo up")?;
        for (number, host) in spec.numbers().zip(&hosts) {
            cable(spec, number, host)?;
        }
        for (number, host) in spec.numbers().zip(&hosts) {
            enter(host)?;
            furnish(spec, number).with_context(|| format!("host h{number}"))?;
        }
        enter(&switch)?;
        if spec.switch == SwitchKind::LinuxBridge {
            bridge(spec)?;
        }
        Ok(Wires { hosts, switch })
    }
}

/// A wire from the switch, in whose namespace this thread is, to a host.
fn cable(spec: &Spec, number: u16, host: &OwnedFd) -> Result<()> {
    let there = format!("/proc/{}/fd/{}", std::process::id(), host.as_raw_fd());
    let (port, mtu, mac) = (port_name(number), spec.mtu, mac(number));
    ip(&format!(
        "link add {port} mtu {mtu} type veth peer name {HOST_DEVICE} mtu {mtu} address {mac} netns {there}"
    ))?;
    say_nothing(spec, &port)?;
    ip(&format!("link set {port} up"))
}

/// A device that takes no IPv6 address by itself, and so says nothing of its own. Where there is no IPv6 the kernel does not know the word.
fn say_nothing(spec: &Spec, device: &str) -> Result<()> {
    if spec.has_ipv6() {
        ip(&format!("link set {device} addrgenmode none"))?;
    }
    Ok(())
}

/// A host's end, in whose namespace this thread is: whole packets one by one at the link's rate, addresses, neighbours.
fn furnish(spec: &Spec, number: u16) -> Result<()> {
    let device = HOST_DEVICE;
    ip("link set lo up")?;
    homa_driver::put_offloads_off(device).context("cannot put the offloads of a veth off")?;
    // What is left to be cut late is cut before the device.
    ip(&format!("link set {device} gso_max_segs 1"))?;
    say_nothing(spec, device)?;
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

/// A host sends no faster than its link: the switch sees to the other direction.
fn uplink(spec: &Spec) -> Result<()> {
    tool("tc", &uplink_words(spec)).map(drop)
}

/// The words for `tc`. A full frame may leave at once and what [`BURST_NS`] missed, which are no two full frames on a slow link, as there
/// are none on a wire: they would find less room at the switch than one after the other. What is to be cut late is cut to that size, too. Sizes
/// are as the device counts: the kernel adds the overhead to a burst as to each frame.
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
    say_nothing(spec, "bridge0")?;
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
            // What the kernel makes of it, in bytes of the wire.
            let bucket = number("burst") + number("overhead");
            let frame = u64::from(mtu) + 14 + 4 + 8 + 12;
            assert_eq!((number("rate"), bucket - frame), (mbps * 1_000_000, mbps * 100 / 8), "{words}");
            assert_eq!(bucket < 2 * frame, mbps <= 100, "{words}");
        }
    }
}
