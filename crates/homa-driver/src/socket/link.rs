//! The speed of the link behind a local address.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use crate::l2::interface;

const SYSFS: &str = "/sys/class/net";

/// Returns the speed in Mbit/s of the device that has this address, or of the default route's device if the
/// address is unspecified. `None` if there is no such device, or it reports no meaningful speed.
pub(crate) fn link_mbps(local: IpAddr) -> Option<u32> {
    let device = if local.is_unspecified() {
        default_device(&fs::read_to_string("/proc/net/route").ok()?)?
    } else {
        interface::device_with(local)?
    };
    device_mbps(Path::new(SYSFS), &device)
}

/// Returns the reported speed of a device if it is hardware, or a VLAN or bond on top of hardware. Other
/// devices (loopback, veth, bridges, tunnels) report no speed, or a meaningless number: veth always reports
/// 10,000.
fn device_mbps(sysfs: &Path, device: &str) -> Option<u32> {
    let directory = sysfs.join(device);
    let kind = fs::read_to_string(directory.join("uevent")).unwrap_or_default();
    let stacked = kind.lines().any(|line| line == "DEVTYPE=vlan" || line == "DEVTYPE=bond");
    if !stacked && !directory.join("device").exists() {
        return None;
    }
    // While the link is down, and on many virtual machines, the file contains -1 or cannot be read.
    let speed: i64 = fs::read_to_string(directory.join("speed")).ok()?.trim().parse().ok()?;
    u32::try_from(speed).ok().filter(|&speed| speed > 0)
}

/// Returns the device of the IPv4 default route with the lowest metric, from the text of `/proc/net/route`.
fn default_device(routes: &str) -> Option<String> {
    let mut best: Option<(u32, &str)> = None;
    for line in routes.lines().skip(1) {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [device, destination, _, _, _, _, metric, mask, ..] = fields[..] else { continue };
        let Ok(metric) = metric.parse() else { continue };
        if destination == "00000000" && mask == "00000000" && best.is_none_or(|(least, _)| metric < least) {
            best = Some((metric, device));
        }
    }
    best.map(|(_, device)| device.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a directory for one device, as in sysfs, and returns the speed read from it.
    fn device(name: &str, speed: &str, hardware: bool, uevent: &str) -> Option<u32> {
        let root = std::env::temp_dir().join(format!("homa-driver-link-{}-{name}", std::process::id()));
        let directory = root.join(name);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("speed"), speed).unwrap();
        fs::write(directory.join("uevent"), uevent).unwrap();
        if hardware {
            fs::create_dir(directory.join("device")).unwrap();
        }
        let result = device_mbps(&root, name);
        fs::remove_dir_all(&root).unwrap();
        result
    }

    #[test]
    fn only_devices_whose_speed_means_something_tell_it() {
        assert_eq!(device("eth0", "25000\n", true, "INTERFACE=eth0\n"), Some(25_000));
        assert_eq!(device("eth1", "-1\n", true, "INTERFACE=eth1\n"), None);
        assert_eq!(device("eth2", "0\n", true, ""), None);
        assert_eq!(device("veth0", "10000\n", false, "INTERFACE=veth0\n"), None);
        assert_eq!(device("eth3.7", "10000\n", false, "DEVTYPE=vlan\nINTERFACE=eth3.7\n"), Some(10_000));
        assert_eq!(device_mbps(Path::new("/nonexistent"), "eth0"), None);
    }

    #[test]
    fn the_default_route_with_the_lowest_metric_wins() {
        let text = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
                    wlan0 00000000 0100000A 0003 0 0 600 00000000 0 0 0\n\
                    eth0 00000000 0100000A 0003 0 0 100 00000000 0 0 0\n\
                    eth1 0000000A 00000000 0001 0 0 0 00FFFFFF 0 0 0\n\
                    short line\n";
        assert_eq!(default_device(text).as_deref(), Some("eth0"));
        assert_eq!(default_device("Iface Destination\n"), None);
    }

    #[test]
    fn loopback_is_found_and_has_no_speed() {
        assert_eq!(interface::device_with(IpAddr::from([127, 0, 0, 1])).as_deref(), Some("lo"));
        assert_eq!(link_mbps(IpAddr::from([127, 0, 0, 1])), None);
        assert_eq!(interface::device_with(IpAddr::from([203, 0, 113, 77])), None);
    }
}
