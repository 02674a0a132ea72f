//! The network of the switch's measurements: a network namespace for the switch and another for source and
//! sink, joined by two veth pairs. The namespaces are unnamed.

use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, Result};

use crate::compare::CpuSplit;
use crate::netns::{current, enter, fresh, ip};

/// The devices of source and sink.
pub const HOST_DEVICES: [&str; 2] = ["h0", "h1"];

/// The devices of the switch, in the same order.
pub const SWITCH_DEVICES: [&str; 2] = ["s0", "s1"];

/// The namespaces and devices of a measurement. They disappear when this is dropped.
pub struct Place {
    outside: OwnedFd,
    hosts: OwnedFd,
    switch: OwnedFd,
    /// `None` if there is only one processor.
    placement: Option<CpuSplit>,
}

impl Place {
    /// Creates the namespaces and devices, and moves this thread to the namespace of source and sink.
    ///
    /// # Errors
    /// A privilege or the program `ip` is missing.
    pub fn set_up() -> Result<Place> {
        let namespace = || fresh().context("run as root");
        let place = Place {
            outside: current()?,
            hosts: namespace()?,
            switch: namespace()?,
            placement: CpuSplit::split_cpus()?,
        };
        enter(&place.switch)?;
        let there = format!("/proc/{}/fd/{}", std::process::id(), place.hosts.as_raw_fd());
        for (ours, theirs) in SWITCH_DEVICES.iter().zip(HOST_DEVICES) {
            ip(&format!("link add {ours} type veth peer name {theirs} netns {there}"))?;
        }
        SWITCH_DEVICES.iter().try_for_each(|device| up(device))?;
        enter(&place.hosts)?;
        HOST_DEVICES.iter().try_for_each(|device| up(device))?;
        place.placement.as_ref().map_or(Ok(()), CpuSplit::enter_clients)?;
        Ok(place)
    }

    /// Returns whether source and sink share the switch's processor.
    pub fn is_crowded(&self) -> bool {
        self.placement.is_none()
    }

    /// Runs `ip` with these arguments in the switch's namespace.
    ///
    /// # Errors
    /// `ip` failed.
    pub fn ip_at_switch(&self, words: &str) -> Result<()> {
        self.at_switch(|| ip(words))
    }

    /// Disables packet filtering of bridged frames in the switch's namespace. Without the module
    /// `br_netfilter` there is nothing to do.
    ///
    /// # Errors
    /// The setting cannot be written.
    pub fn keep_packet_filter_out(&self) -> Result<()> {
        self.at_switch(|| {
            for tables in ["iptables", "ip6tables", "arptables"] {
                let setting = format!("/proc/sys/net/bridge/bridge-nf-call-{tables}");
                match std::fs::write(&setting, "0") {
                    Err(error) if error.kind() != ErrorKind::NotFound => {
                        return Err(error).with_context(|| format!("cannot write {setting}"));
                    }
                    _ => (),
                }
            }
            Ok(())
        })
    }

    fn at_switch(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        enter(&self.switch)?;
        let result = work();
        enter(&self.hosts)?;
        result
    }

    /// Returns a function that moves its thread to the switch's namespace and processors.
    pub fn switch_entry(&self) -> Result<impl FnOnce() -> Result<()> + Send + 'static> {
        let namespace =
            self.switch.try_clone().context("cannot duplicate a network namespace's descriptor")?;
        let placement = self.placement.clone();
        Ok(move || {
            enter(&namespace)?;
            placement.as_ref().map_or(Ok(()), CpuSplit::enter_servers)
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Entering fails only if this thread was never permitted to move.
        let _ = enter(&self.outside);
    }
}

/// Returns the number of frames that a device of this thread's network namespace has received since it was
/// created, whether or not a socket received them.
///
/// # Errors
/// The kernel's list of devices cannot be read, or has no such device.
pub fn received_frames(device: &str) -> Result<u64> {
    let list = "/proc/thread-self/net/dev";
    let text = std::fs::read_to_string(list).with_context(|| format!("cannot read {list}"))?;
    parse_received_frames(&text, device).with_context(|| format!("{list} has no {device}"))
}

fn parse_received_frames(text: &str, device: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (name, counts) = line.split_once(':')?;
        // The byte count precedes the frame count.
        (name.trim() == device).then(|| counts.split_whitespace().nth(1)?.parse().ok()).flatten()
    })
}

fn up(device: &str) -> Result<()> {
    homa_driver::put_offloads_off(device).context("cannot switch the offloads of a veth off")?;
    ip(&format!("link set {device} gso_max_segs 1 addrgenmode none"))?;
    ip(&format!("link set {device} up"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_came_are_the_second_count_of_their_device() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes    packets errs |bytes    packets errs\n    \
                    h0:  1300      13    0     600       6    0\n   h10:70 7 0 80 8 0\n";
        assert_eq!(
            ["h0", "h10", "h1"].map(|name| parse_received_frames(text, name)),
            [Some(13), Some(7), None]
        );
        assert!(received_frames("lo").is_ok() && received_frames("no device").is_err());
    }
}
