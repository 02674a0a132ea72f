//! Two hosts and a router between them, in namespaces that disappear when no process holds them open.

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use homa_bench::netns::{self, enter, fresh, ip};
use homa_driver::netdev::admin_command;
use homa_steer::{Core, Cores, PolicyName};
use homa_steer_xdp::{AttachLifetime, SteerConfig, Steering};

use crate::experiment::options::Policy;

/// Addresses of the first host, which is connected to the router's device `left`, and of the second, which is
/// connected to `right`.
pub const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 147, 1, 2), Ipv4Addr::new(10, 147, 2, 2)];
const GATEWAYS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 147, 1, 1), Ipv4Addr::new(10, 147, 2, 1)];
const ROUTER_DEVICES: [&str; 2] = ["left", "right"];
const HOST_DEVICE: &str = "eth0";

/// Two hosts and a router between them.
pub struct Net {
    /// The hosts' namespaces.
    pub hosts: [OwnedFd; 2],
    router: OwnedFd,
    /// The program with which address translation was set up at the router; `None` if the router only routes.
    pub nat: Option<&'static str>,
}

impl Net {
    /// Creates the network. With `nat`, the router translates addresses, if a program to set this up is
    /// installed.
    ///
    /// # Errors
    /// A privilege or iproute2 is missing.
    pub fn create(mtu: u32, nat: bool) -> Result<Net> {
        let (hosts, router) = ([fresh()?, fresh()?], fresh()?);
        for (side, host) in hosts.iter().enumerate() {
            run_in_namespace(&router, || cable(side, host, mtu))??;
            run_in_namespace(host, || configure_device(side))??;
        }
        let nat = run_in_namespace(&router, || forward(nat))??;
        Ok(Net { hosts, router, nat })
    }

    /// Distributes the received packets of each device over the processors of this mask, while the returned
    /// values exist.
    ///
    /// # Errors
    /// The kernel lacks RPS or rejects the program, a privilege is missing, or /sys cannot be mounted.
    pub fn steer(&self, policy: Policy, mask: &str) -> Result<Vec<Steering>> {
        self.by_kernel(if policy == Policy::Rps { mask } else { "0" })?;
        let policy = match policy {
            Policy::None | Policy::Rps => return Ok(Vec::new()),
            Policy::RssHash => PolicyName::RssHash,
            Policy::Sparse => PolicyName::Sparse,
        };
        let config = SteerConfig { policy, cores: cores_of(mask)?, ..SteerConfig::default() };
        let [first, second] = &self.hosts;
        let attach = |namespace, devices: &[&str]| {
            let devices: Vec<String> = devices.iter().map(|&device| device.to_owned()).collect();
            run_in_namespace(namespace, || {
                homa_steer_xdp::attach(&devices, &config, AttachLifetime::Process)
            })?
            .with_context(|| format!("cannot measure {policy}"))
        };
        // The router's devices share one state, as all devices of a machine do in the patch that introduced
        // `sparse`.
        Ok(vec![
            attach(&self.router, &ROUTER_DEVICES)?,
            attach(first, &[HOST_DEVICE])?,
            attach(second, &[HOST_DEVICE])?,
        ])
    }

    /// Sets the kernel's own steering (RPS); mask `0` disables it.
    fn by_kernel(&self, mask: &str) -> Result<()> {
        let [left, right] = ROUTER_DEVICES;
        let [first, second] = &self.hosts;
        for (namespace, devices) in
            [(&self.router, &[left, right][..]), (first, &[HOST_DEVICE]), (second, &[HOST_DEVICE])]
        {
            run_in_namespace(namespace, || {
                netns::remount_sys()?;
                devices.iter().try_for_each(|device| steer_device(device, mask))
            })??;
        }
        Ok(())
    }
}

/// Runs `work` in a namespace, on a thread of its own. Sockets that `work` creates stay in the namespace.
///
/// # Errors
/// The privilege to enter the namespace is missing.
pub fn run_in_namespace<T: Send>(namespace: &OwnedFd, work: impl FnOnce() -> T + Send) -> Result<T> {
    thread::scope(|scope| {
        let thread = scope.spawn(|| enter(namespace).map(|()| work()));
        thread.join().map_err(|_| anyhow!("a thread in a network namespace panicked"))?
    })
}

/// Creates a link from the router, whose namespace this thread is in, to a host.
fn cable(side: usize, host: &OwnedFd, mtu: u32) -> Result<()> {
    let there = format!("/proc/{}/fd/{}", std::process::id(), host.as_raw_fd());
    let (device, gateway) = (ROUTER_DEVICES[side], GATEWAYS[side]);
    ip(&format!("link add {device} mtu {mtu} type veth peer name {HOST_DEVICE} mtu {mtu} netns {there}"))?;
    ip(&format!("addr add {gateway}/24 dev {device}"))?;
    // With offloads, the router would receive segments of 64 KB instead of packets.
    homa_driver::put_offloads_off(device).context("cannot switch the offloads of a veth off")?;
    ip(&format!("link set {device} up"))
}

/// Configures a host's device in this thread's namespace.
fn configure_device(side: usize) -> Result<()> {
    let (address, gateway) = (ADDRESSES[side], GATEWAYS[side]);
    ip("link set lo up")?;
    homa_driver::put_offloads_off(HOST_DEVICE).context("cannot switch the offloads of a veth off")?;
    ip(&format!("addr add {address}/24 dev {HOST_DEVICE}"))?;
    ip(&format!("link set {HOST_DEVICE} up"))?;
    ip(&format!("route add default via {gateway}"))
}

/// Makes this thread's namespace a router. Returns the program with which address translation was set up, if
/// `nat` is true and such a program is installed.
fn forward(nat: bool) -> Result<Option<&'static str>> {
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")
        .context("cannot make a router, since /proc/sys cannot be written")?;
    Ok(if nat { translate() } else { None })
}

/// Makes the router in this thread's namespace replace the source address of forwarded packets with its own.
/// Returns the program that set this up.
fn translate() -> Option<&'static str> {
    let iptables: &[&str] = &["-t", "nat", "-A", "POSTROUTING", "-j", "MASQUERADE"];
    let nft: &[&str] = &[
        "add table ip rack; add chain ip rack out { type nat hook postrouting priority 100 ; }; add rule ip rack out masquerade",
    ];
    let works = |(program, words): &(&'static str, &[&str])| {
        admin_command(program).args(*words).output().is_ok_and(|output| output.status.success())
    };
    [("iptables", iptables), ("nft", nft)].into_iter().find(works).map(|(program, _)| program)
}

fn steer_device(device: &str, mask: &str) -> Result<()> {
    let queues = format!("/sys/class/net/{device}/queues");
    let entries = std::fs::read_dir(&queues).with_context(|| format!("cannot read {queues}"))?;
    let mut steered = 0;
    for entry in entries.flatten() {
        let file = entry.path().join("rps_cpus");
        if file.exists() {
            std::fs::write(&file, mask)
                .with_context(|| format!("cannot write {mask} to {}", file.display()))?;
            steered += 1;
        }
    }
    ensure!(steered > 0, "this kernel has no receive packet steering (CONFIG_RPS): use --policies none");
    Ok(())
}

/// Returns the mask of the first `processors` processors in the kernel's notation: words of 32 bits, the most
/// significant first.
pub fn mask_of(processors: usize) -> String {
    let words = processors.div_ceil(32).max(1);
    let word = |index: usize| {
        let bits = processors.saturating_sub(32 * index).min(32);
        ((1_u64 << bits) - 1) as u32
    };
    let first = format!("{:x}", word(words - 1));
    (0..words - 1).rev().fold(first, |mask, index| format!("{mask},{:08x}", word(index)))
}

/// Returns the processors in a mask.
///
/// # Errors
/// The text is not a mask, or the mask has more processors than a policy supports.
fn cores_of(mask: &str) -> Result<Cores> {
    let words = mask.rsplit(',').map(|word| u32::from_str_radix(word, 16));
    let words: Vec<u32> =
        words.collect::<Result<_, _>>().with_context(|| format!("`{mask}` is not a mask"))?;
    let bits = (0..words.len() * 32).filter(|bit| words[bit / 32] >> (bit % 32) & 1 == 1);
    Ok(Cores::new(bits.map(|bit| Core::try_from(bit).unwrap_or(Core::MAX)))?)
}

/// Checks a mask.
///
/// # Errors
/// The mask is empty, or not in the kernel's notation.
pub fn mask(text: &str) -> Result<String> {
    let words = text.split(',').map(|word| u32::from_str_radix(word, 16));
    let words: Vec<u32> = words
        .collect::<Result<_, _>>()
        .with_context(|| format!("`{text}` is not a mask: use hexadecimal digits, as in 3"))?;
    if words.iter().all(|&word| word == 0) {
        bail!("the mask has no processor: use --policies none instead");
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_have_a_bit_for_each_processor() {
        assert_eq!([1, 2, 31, 32].map(mask_of), ["1", "3", "7fffffff", "ffffffff"]);
        assert_eq!([33, 64, 70].map(mask_of), ["1,ffffffff", "ffffffff,ffffffff", "3f,ffffffff,ffffffff"]);
        for processors in [1, 2, 33, 64] {
            assert_eq!(cores_of(&mask_of(processors)).unwrap(), Cores::first(processors).unwrap());
        }
        assert_eq!(cores_of("e").unwrap().to_string(), "1-3");
        assert!(cores_of("0").is_err() && cores_of("x").is_err());
        assert!(mask("e").is_ok() && mask("1,00000000").is_ok());
        assert!(mask("0").is_err() && mask("x").is_err() && mask("").is_err());
    }
}
