//! Checks of a network device: offloads, interrupt moderation, link rate, MTU, priorities.

use homa_driver::netdev::admin_command;
use homa_driver::{Coalescing, DeviceSettings};

use super::finding::{Finding, Severity};
use super::host::{Host, NOT_MEASURED, NOTES_2020, NOTES_2021, PERF_21};

/// Returns the findings about one device.
pub fn check(host: &Host, device: &str) -> Vec<Finding> {
    let asked = (host.settings)(device);
    let why = asked.as_ref().err().map(ToString::to_string);
    let settings = asked.unwrap_or_default();
    let mut findings = offloads(device, &settings);
    findings.push(interrupts(device, settings.coalescing, why.as_deref()));
    findings.extend([rate(host, device), mtu(host, device), priorities(device)]);
    findings.into_iter().map(|finding| finding.of(device)).collect()
}

fn offloads(device: &str, settings: &DeviceSettings) -> Vec<Finding> {
    let switch = |name: &'static str, source, value: Option<bool>, wanted: bool, severity, why: &str| {
        let letters = if wanted { "on" } else { "off" };
        let finding = Finding::ok(name, &format!("it is {letters}, as it should be")).source(source);
        match value {
            Some(value) => {
                let finding =
                    finding.read(&format!("ethtool -k {device}, {name}"), if value { "on" } else { "off" });
                if value == wanted {
                    finding
                } else {
                    finding.with_severity(severity, why, &format!("ethtool -K {device} {name} {letters}"))
                }
            }
            None => finding.unknown("the device does not report it", &format!("ethtool -k {device}")),
        }
    };
    vec![
        switch(
            "gro",
            PERF_21,
            settings.gro,
            true,
            Severity::Cost,
            "each packet of a large message passes the network stack separately, and short messages wait for that; our UDP sockets accept merged packets",
        ),
        switch(
            "gso",
            NOTES_2021,
            settings.gso,
            true,
            Severity::Cost,
            "large datagrams are divided before the network stack instead of after it; buffers of half the size made the P99 of \
             short messages 10 to 20 % worse",
        ),
        switch(
            "tso",
            PERF_21,
            settings.tso,
            true,
            Severity::Note,
            "it only affects TCP, whose segments the processors divide without it, in competition with Homa",
        ),
        switch(
            "lro",
            NOT_MEASURED,
            settings.lro,
            false,
            Severity::Note,
            "the device delays TCP's packets to merge them, and a forwarding machine cannot divide them again",
        ),
    ]
}

/// Maximum acceptable interrupt delay in microseconds: the time of several short packets on a fast link.
const MAX_WAIT_US: u32 = 10;

fn interrupts(device: &str, coalescing: Option<Coalescing>, error: Option<&str>) -> Finding {
    let finding = Finding::ok("interrupt_moderation", "the device reports packets at once, or nearly so")
        .source(NOTES_2020);
    let Some(Coalescing { receive_us, receive_frames, receive_adaptive, send_us }) = coalescing else {
        let why =
            error.unwrap_or("the device does not report its interrupt settings: virtual devices have none");
        return finding.unknown(why, &format!("ethtool -c {device}"));
    };
    let adaptive = if receive_adaptive { "on" } else { "off" };
    let finding = finding.read(
        &format!("ethtool -c {device}"),
        &format!(
            "adaptive-rx {adaptive}, rx-usecs {receive_us}, rx-frames {receive_frames}, tx-usecs {send_us}"
        ),
    );
    // With a count of one frame the device does not wait, regardless of `rx-usecs`.
    let waits = receive_us > MAX_WAIT_US && receive_frames != 1;
    if !receive_adaptive && !waits {
        return finding;
    }
    let why = if receive_adaptive {
        "under load the device delays interrupts to collect more packets, also those of short messages: of the 25 to 30 us of a short round \
         trip under load (13.5 us without), 5 to 10 us passed between the network card and its interrupt"
    } else {
        "each packet may wait that long for further ones before the device reports it, and a round trip has at least two packets"
    };
    finding.with_severity(
        Severity::Cost,
        why,
        &format!("ethtool -C {device} adaptive-rx off rx-usecs 0 rx-frames 1"),
    )
}

fn rate(host: &Host, device: &str) -> Finding {
    let path = format!("sys/class/net/{device}/speed");
    let finding = Finding::ok("link_rate", "the link is as fast as it should be").source(PERF_21);
    let speed = host.root.read(&path).and_then(|text| match text.parse::<i64>() {
        Ok(mbps) if mbps > 0 => Ok(mbps.unsigned_abs()),
        _ => Err(format!("{text}: the device reports none, like virtual devices")),
    });
    let mbps = match speed {
        Ok(mbps) => mbps,
        Err(error) => {
            return finding.read(&path, &error).with_severity(
                Severity::Cost,
                "packets are not paced, and unscheduled bytes do not follow the round-trip time, unless the rate is configured \
                 (HostConfig: link_mbps)",
                &format!("homa serve --link-mbps {}", host.link_mbps.map_or("N".to_owned(), |mbps| mbps.to_string())),
            );
        }
    };
    let finding = finding.read(&path, &format!("{mbps} Mbit/s"));
    let duplex = host.root.read(&format!("sys/class/net/{device}/duplex"));
    if duplex == Ok("half".to_owned()) {
        let finding = finding.read(&format!("sys/class/net/{device}/duplex"), "half");
        let command = format!("ethtool -s {device} autoneg on");
        return finding.with_severity(
            Severity::Cost,
            "the link sends in one direction at a time: check the cable and the switch's port",
            &command,
        );
    }
    match host.link_mbps {
        Some(wanted) if u64::from(wanted) != mbps => finding.with_severity(
            Severity::Cost,
            &format!("it should be {wanted} Mbit/s: a cable, a transceiver or the switch's port causes another rate"),
            &format!("ethtool -s {device} speed {wanted} duplex full"),
        ),
        Some(_) => finding,
        None => Finding { why: "use --link-mbps to compare it with the expected rate".to_owned(), ..finding },
    }
}

/// The MTU of Ethernet with standard frames.
const STANDARD_MTU: u64 = 1_500;
/// From this MTU on, the cost per packet matters little.
const LARGE_MTU: u64 = 3_000;

fn mtu(host: &Host, device: &str) -> Finding {
    let path = format!("sys/class/net/{device}/mtu");
    let finding = Finding::ok("mtu", "packets are large").source(PERF_21);
    let mtu = match host.root.number(&path) {
        Ok(mtu) => mtu,
        Err(error) => return finding.read(&path, &error).unknown("it is unknown", ""),
    };
    let finding = finding.read(&path, &mtu.to_string());
    let command = format!("ip link set dev {device} mtu 9000");
    match mtu {
        LARGE_MTU.. => finding,
        STANDARD_MTU.. => finding.with_severity(
            Severity::Note,
            "large messages need more processor time with small packets: over a veth, messages of 1 MB reached 0.90 of TCP's rate with an MTU \
             of 1500, and 1.10 with 9000; Linux Homa was measured with 3000. Every host and switch of the network must support it",
            &command,
        ),
        _ => finding.with_severity(
            Severity::Note,
            "it is less than Ethernet's, as in tunnels and overlays: messages need more packets, and larger packets are fragmented or lost \
             on the way",
            &format!("ip link set dev {device} mtu {STANDARD_MTU}"),
        ),
    }
}

fn priorities(device: &str) -> Finding {
    let words = format!("app show dev {device}");
    // Devices without such queues and systems without the tool produce no finding.
    let told = run_dcb(&words).filter(|told| !told.trim().is_empty());
    let read = told.as_deref().map_or("the device does not report it", str::trim);
    Finding::ok("dscp", "").read(&format!("dcb {words}"), read).unknown(
        "a packet's priority is in the upper bits of its DSCP. No file shows whether the queues of devices and switches respect it, but a \
         probe between hosts does: `homa doctor listen` on one, `homa doctor probe` on others. Without priorities, only senders and \
         receivers order messages",
        "homa doctor listen --help",
    )
}

/// Returns the output of iproute2's `dcb` with these arguments, or `None` if it fails or is missing.
fn run_dcb(words: &str) -> Option<String> {
    let output = admin_command("dcb").args(words.split(' ')).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fake_root::FakeRoot;

    const GOOD: DeviceSettings = DeviceSettings {
        gro: Some(true),
        lro: Some(false),
        gso: Some(true),
        tso: Some(true),
        coalescing: Some(Coalescing {
            receive_us: 0,
            receive_frames: 1,
            receive_adaptive: false,
            send_us: 0,
        }),
    };

    fn severity(
        files: &[(&str, &str)],
        settings: DeviceSettings,
        link_mbps: Option<u32>,
        name: &str,
    ) -> Severity {
        let fake_root = FakeRoot::new(files);
        let root = fake_root.root();
        let host = Host { root: &root, settings: &|_| Ok(settings), link_mbps };
        let findings = check(&host, "eth0");
        assert!(findings.iter().all(|finding| finding.device.as_deref() == Some("eth0")));
        findings.into_iter().find(|finding| finding.name == name).expect("a finding").severity
    }

    #[test]
    fn offloads_that_are_off_cost() {
        for name in ["gro", "gso", "tso", "lro"] {
            assert_eq!(severity(&[], GOOD, None, name), Severity::Fine, "{name}");
            assert_eq!(severity(&[], DeviceSettings::default(), None, name), Severity::Unknown, "{name}");
        }
        let bad =
            DeviceSettings { gro: Some(false), lro: Some(true), gso: Some(false), tso: Some(false), ..GOOD };
        assert_eq!(["gro", "gso"].map(|name| severity(&[], bad, None, name)), [Severity::Cost; 2]);
        assert_eq!(["tso", "lro"].map(|name| severity(&[], bad, None, name)), [Severity::Note; 2]);
    }

    #[test]
    fn a_device_that_waits_before_it_interrupts_costs() {
        let with = |receive_us, receive_frames, receive_adaptive| {
            let coalescing = Some(Coalescing { receive_us, receive_frames, receive_adaptive, send_us: 0 });
            severity(&[], DeviceSettings { coalescing, ..GOOD }, None, "interrupt_moderation")
        };
        assert_eq!([with(0, 1, false), with(8, 32, false), with(50, 1, false)], [Severity::Fine; 3]);
        assert_eq!([with(50, 32, false), with(50, 0, false), with(0, 1, true)], [Severity::Cost; 3]);
        let none = DeviceSettings { coalescing: None, ..GOOD };
        assert_eq!(severity(&[], none, None, "interrupt_moderation"), Severity::Unknown);
    }

    #[test]
    fn a_wrong_rate_and_none_cost() {
        let speed = "sys/class/net/eth0/speed";
        let of = |text, mbps| severity(&[(speed, text)], GOOD, mbps, "link_rate");
        assert_eq!([of("25000", None), of("25000", Some(25_000))], [Severity::Fine; 2]);
        assert_eq!([of("10000", Some(25_000)), of("-1", None)], [Severity::Cost; 2]);
        let half = [(speed, "100"), ("sys/class/net/eth0/duplex", "half")];
        assert_eq!(severity(&half, GOOD, None, "link_rate"), Severity::Cost);
    }

    #[test]
    fn small_packets_may_cost() {
        let of = |text| severity(&[("sys/class/net/eth0/mtu", text)], GOOD, None, "mtu");
        assert_eq!(
            [of("9000"), of("1500"), of("1400"), of("x")],
            [Severity::Fine, Severity::Note, Severity::Note, Severity::Unknown]
        );
        assert_eq!(severity(&[], GOOD, None, "dscp"), Severity::Unknown);
    }
}
