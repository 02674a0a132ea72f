//! Namespaces and the wires between them.
//!
//! Neighbours are known from the beginning and for ever. Otherwise the first packets of every run would wait for an answer, and a
//! question that is lost in a full queue would stall a host for a second: an effect of neither protocol, and one that hosts of a rack,
//! which know each other, do not show.

use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, Result};

use super::spec::{ETHERNET, HOST_DEVICE, Spec, SwitchKind, ipv4, ipv6, mac, port_name};
use crate::netns::{enter, fresh, ip, tool};

/// Time of tokens that a host's link may have left when it sends a full frame: a timer of this kernel is late by some tens of microseconds,
/// and what it missed would be lost rate.
const BURST_NS: u64 = 100_000;

/// Packets that wait in a host for its link, as many as Linux has for a network card.
const QUEUE_PACKETS: u64 = 1_000;

/// Bytes of a frame on a wire that no device counts: check sequence, preamble and gap.
const ON_THE_WIRE: u64 = 24;

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
    // A port says nothing of its own.
    ip(&format!("link set {port} addrgenmode none"))?;
    ip(&format!("link set {port} up"))
}

/// A host's end, in whose namespace this thread is: whole packets one by one at the link's rate, addresses, neighbours.
fn furnish(spec: &Spec, number: u16) -> Result<()> {
    let device = HOST_DEVICE;
    ip("link set lo up")?;
    homa_driver::put_offloads_off(device).context("cannot put the offloads of a veth off")?;
    // What is left to be cut late is cut before the device.
    ip(&format!("link set {device} gso_max_segs 1 addrgenmode none"))?;
    ip(&format!("addr add {}/24 dev {device}", ipv4(number)))?;
    ip(&format!("-6 addr add {}/64 dev {device} nodad", ipv6(number)))?;
    ip(&format!("link set {device} up"))?;
    if spec.switch == SwitchKind::Homa {
        uplink(spec)?;
    }
    for other in spec.numbers().filter(|&other| other != number) {
        for address in [ipv4(other), ipv6(other)] {
            ip(&format!("neigh replace {address} lladdr {} dev {device} nud permanent", mac(other)))?;
        }
    }
    Ok(())
}

/// Bytes that may leave at once for a link of this rate. On a slow one these are no two full frames, as there are none on a wire: they would
/// find less room at the switch than one after the other. What is to be cut late is cut to that size, too.
fn burst(rate_bps: u64, frame: u64) -> u64 {
    frame + ON_THE_WIRE + (rate_bps / 8).saturating_mul(BURST_NS) / 1_000_000_000
}

/// A host sends no faster than its link: the switch sees to the other direction.
fn uplink(spec: &Spec) -> Result<()> {
    let frame = u64::from(spec.mtu) + ETHERNET;
    let (burst, limit, rate) = (burst(spec.rate_bps, frame), QUEUE_PACKETS * frame, spec.rate_bps);
    tool(
        "tc",
        &format!(
            "qdisc replace dev {HOST_DEVICE} root tbf rate {rate}bit burst {burst} limit {limit} overhead {ON_THE_WIRE}"
        ),
    )
    .map(drop)
}

fn bridge(spec: &Spec) -> Result<()> {
    ip("link add bridge0 type bridge mcast_snooping 0")?;
    ip("link set bridge0 addrgenmode none")?;
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
        for (rate_bps, frame) in
            [(10_000_000, 1_294), (20_000_000, 1_514), (100_000_000, 1_514), (100_000_000, 9_014)]
        {
            let burst = burst(rate_bps, frame);
            assert!((frame + ON_THE_WIRE..2 * frame).contains(&burst), "{rate_bps}: {burst}");
            assert!(
                (burst - frame - ON_THE_WIRE) * 8_000_000_000 >= rate_bps * 50_000,
                "{rate_bps}: {burst}"
            );
        }
        assert_eq!(burst(5_000_000_000, 1_514), 1_538 + 62_500);
    }
}
