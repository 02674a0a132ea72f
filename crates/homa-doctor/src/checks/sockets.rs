//! Checks of socket buffers, privileges, and kernel features used by the packet paths.

use homa_driver::LINUX_UDP_PORT;
use homa_driver::udp::UdpConfig;

use super::finding::{Finding, Severity};
use super::host::{CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN, Host, NOT_MEASURED, PERF_20, PERF_21};

/// Returns the findings about sockets.
pub fn check(host: &Host) -> Vec<Finding> {
    let config = UdpConfig::default();
    vec![
        buffer(
            host,
            "rmem_max",
            config.receive_buffer_bytes,
            PERF_20,
            "the socket of a loaded receiver overflows, and each lost packet delays a message until a RESEND",
        ),
        buffer(
            host,
            "wmem_max",
            config.send_buffer_bytes,
            NOT_MEASURED,
            "the socket becomes full during a burst of packets, and the rest waits for another round",
        ),
        receive_default(host),
        privileges(host),
        locked_memory(host),
        kernel(host),
        linux_udp_port(host),
    ]
}

/// Checks the UDP port of Linux Homa's UDP encapsulation, which is one of the ports that Linux assigns to
/// connecting sockets.
fn linux_udp_port(host: &Host) -> Finding {
    let (hijack, range, reserved) = (
        "proc/sys/net/homa/hijack_udp",
        "proc/sys/net/ipv4/ip_local_port_range",
        "proc/sys/net/ipv4/ip_local_reserved_ports",
    );
    let port = LINUX_UDP_PORT;
    let finding =
        Finding::ok("linux_udp_port", "UDP port 54321 is kept for --driver linux-udp").source(NOT_MEASURED);
    if let Ok(on) = host.root.number(hijack)
        && on != 0
    {
        return finding.read(hijack, &on.to_string()).with_severity(
            Severity::Note,
            "Linux Homa has UDP port 54321: --driver linux-udp cannot begin in this network namespace",
            "sysctl -w net.homa.hijack_udp=0",
        );
    }
    let (given, kept) = match (host.root.read(range), host.root.read(reserved)) {
        (Ok(given), Ok(kept)) => (given, kept),
        (Err(error), _) | (_, Err(error)) => {
            return finding
                .read(range, &error)
                .unknown("whether another program may get it is not known", "");
        }
    };
    let finding = finding.read(range, &given).read(reserved, &kept);
    if !has_port(&given.split_whitespace().collect::<Vec<_>>().join("-"), port) {
        return finding;
    }
    if has_port(&kept, port) {
        return finding;
    }
    let list = if kept.is_empty() { port.to_string() } else { format!("{kept},{port}") };
    finding.with_severity(
        Severity::Note,
        "any program may be given UDP port 54321 for a moment, and --driver linux-udp cannot begin meanwhile",
        &format!("sysctl -w net.ipv4.ip_local_reserved_ports={list}"),
    )
}

/// Returns whether a list of ports and ranges, as in `8080,9000-9100`, contains this port.
fn has_port(list: &str, port: u16) -> bool {
    list.split(',').any(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u16>();
        matches!((number(first), number(last)), (Ok(first), Ok(last)) if (first..=last).contains(&port))
    })
}

fn buffer(host: &Host, which: &str, wanted: usize, source: &'static str, why: &str) -> Finding {
    let path = format!("proc/sys/net/core/{which}");
    let name = if which == "rmem_max" { "receive_buffer" } else { "send_buffer" };
    let finding = Finding::ok(name, "it permits the sizes that our sockets request").source(source);
    let has = match host.root.number(&path) {
        Ok(has) => has,
        Err(error) => return finding.read(&path, &error).unknown("what sockets get is not known", ""),
    };
    let finding = finding.read(&path, &has.to_string());
    if has >= wanted as u64 {
        return finding;
    }
    let command = format!("sysctl -w net.core.{which}={wanted}");
    if host.has_capability(CAP_NET_ADMIN) == Ok(true) {
        let why =
            format!("it does not apply to processes with CAP_NET_ADMIN, like this one; for others {why}");
        return finding.with_severity(Severity::Note, &why, &command);
    }
    finding.with_severity(Severity::Cost, &format!("our sockets request {wanted}: {why}"), &command)
}

fn receive_default(host: &Host) -> Finding {
    let path = "proc/sys/net/core/rmem_default";
    let finding =
        Finding::ok("receive_buffer_default", "our sockets choose their own size").source(NOT_MEASURED);
    match host.root.read(path) {
        Ok(value) => finding.read(path, &value),
        Err(error) => {
            finding.read(path, &error).unknown("it does not matter: our sockets choose their own size", "")
        }
    }
}

fn privileges(host: &Host) -> Finding {
    let finding = Finding::ok("capabilities", "every packet path can be opened").source(PERF_21);
    let has_capability = |capability| host.has_capability(capability);
    let (raw, admin) = match (has_capability(CAP_NET_RAW), has_capability(CAP_NET_ADMIN)) {
        (Ok(raw), Ok(admin)) => (raw, admin),
        (Err(error), _) | (_, Err(error)) => return finding.unknown(&error, ""),
    };
    let bpf = has_capability(CAP_BPF) == Ok(true) || has_capability(CAP_SYS_ADMIN) == Ok(true);
    let missing: Vec<&str> = [("CAP_NET_RAW", raw), ("CAP_NET_ADMIN", admin), ("CAP_BPF", bpf)]
        .into_iter()
        .filter_map(|(name, has)| (!has).then_some(name))
        .collect();
    let words = if missing.is_empty() {
        "all required ones".to_owned()
    } else {
        format!("without {}", missing.join(", "))
    };
    let finding = finding.read("CapEff in /proc/self/status", &words);
    if missing.is_empty() {
        return finding;
    }
    let lacks = if raw { "--driver xdp" } else { "--driver raw, packet and xdp" };
    finding.with_severity(
        Severity::Note,
        &format!(
            "{lacks} cannot be used: a polling round trip by --driver packet takes about two thirds of one over a UDP \
             socket"
        ),
        "setcap cap_net_raw,cap_net_admin,cap_bpf+ep target/release/homa",
    )
}

/// From this version on, Linux charges BPF maps to the memory control group rather than to this limit.
const CHARGED_ELSEWHERE: (u32, u32) = (5, 11);

fn locked_memory(host: &Host) -> Finding {
    let path = "proc/self/limits";
    let finding = Finding::ok("locked_memory", "it does not limit our packet paths").source(NOT_MEASURED);
    let text = match host.root.read(path) {
        Ok(text) => text,
        Err(error) => return finding.read(path, &error).unknown("the limit is not known", "ulimit -l"),
    };
    let line = text.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let limit = line.and_then(|line| line.split_ascii_whitespace().next()).unwrap_or("not there");
    let finding = finding.read("Max locked memory in /proc/self/limits", limit);
    let old = release(host).is_ok_and(|release| release < CHARGED_ELSEWHERE);
    match limit.parse::<u64>() {
        Ok(limit) if old && limit < (64 << 20) => finding.with_severity(
            Severity::Note,
            "kernels before Linux 5.11 apply it to the maps and rings of AF_XDP: --driver xdp cannot be opened",
            "ulimit -l unlimited",
        ),
        _ => finding,
    }
}

/// Returns the kernel's version.
fn release(host: &Host) -> Result<(u32, u32), String> {
    let text = host.root.read("proc/sys/kernel/osrelease")?;
    let mut numbers = text.split(['.', '-']).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => Err(format!("/proc/sys/kernel/osrelease has `{text}`, which is no version")),
    }
}

/// Features by the kernel version that introduced them, newest first.
const CAME_WITH: [((u32, u32), &str); 3] = [
    ((5, 11), "--driver xdp by capabilities alone (CAP_BPF, no bound of locked memory)"),
    ((5, 0), "merged runs of received packets over UDP (UDP_GRO)"),
    ((4, 18), "runs of packets that are cut late over UDP (UDP_SEGMENT), and AF_XDP"),
];

fn kernel(host: &Host) -> Finding {
    let path = "proc/sys/kernel/osrelease";
    let finding = Finding::ok("kernel", "it has all features of our packet paths").source(PERF_21);
    let release = match release(host) {
        Ok(release) => release,
        Err(error) => {
            return finding.read(path, &error).unknown("what the kernel has is not known", "uname -r");
        }
    };
    let finding = finding.read(path, &host.root.read(path).unwrap_or_default());
    let missing: Vec<&str> =
        CAME_WITH.iter().filter(|(since, _)| release < *since).map(|(_, what)| *what).collect();
    // These are the socket families of this kernel.
    let families = host.root.read("proc/net/protocols").unwrap_or_default();
    let no_xdp = !families.is_empty() && !families.lines().any(|line| line.starts_with("XDP"));
    if !missing.is_empty() {
        let severity = if release < CAME_WITH[1].0 { Severity::Cost } else { Severity::Note };
        return finding.with_severity(
            severity,
            &format!("it lacks {}", missing.join("; ")),
            "install a newer kernel",
        );
    }
    if no_xdp {
        return finding.read("proc/net/protocols", "no XDP").with_severity(
            Severity::Note,
            "it was built without AF_XDP sockets: --driver xdp cannot be used",
            "use a kernel with CONFIG_XDP_SOCKETS",
        );
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::host::fake_root::found;

    fn one(files: &[(&str, &str)], name: &str) -> Finding {
        found(check, files, name)
    }

    const RMEM: &str = "proc/sys/net/core/rmem_max";
    const STATUS: &str = "proc/self/status";

    #[test]
    fn a_small_buffer_costs_unless_privileges_pass_it() {
        let small = one(&[(RMEM, "212992"), (STATUS, "CapEff: 0000000000000000")], "receive_buffer");
        assert_eq!(small.severity, Severity::Cost);
        assert_eq!(small.command.as_deref(), Some("sysctl -w net.core.rmem_max=8388608"));
        assert_eq!(small.read[0].path, "/proc/sys/net/core/rmem_max");
        let root = one(&[(RMEM, "212992"), (STATUS, "CapEff: 000001ffffffffff")], "receive_buffer");
        assert_eq!(root.severity, Severity::Note);
        assert_eq!(one(&[(RMEM, "16777216")], "receive_buffer").severity, Severity::Fine);
        assert_eq!(one(&[], "receive_buffer").severity, Severity::Unknown);
        assert_eq!(one(&[("proc/sys/net/core/wmem_max", "212992")], "send_buffer").severity, Severity::Cost);
    }

    #[test]
    fn lacking_capabilities_are_named() {
        let none = one(&[(STATUS, "CapEff: 0000000000002000")], "capabilities");
        assert_eq!(
            (none.severity, none.read[0].value.as_str()),
            (Severity::Note, "without CAP_NET_ADMIN, CAP_BPF")
        );
        assert_eq!(one(&[(STATUS, "CapEff: 000001ffffffffff")], "capabilities").severity, Severity::Fine);
        assert_eq!(one(&[], "capabilities").severity, Severity::Unknown);
    }

    #[test]
    fn the_port_of_the_udp_form_is_to_be_kept() {
        let range = ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999");
        let reserved = "proc/sys/net/ipv4/ip_local_reserved_ports";
        let of = |files: &[(&str, &str)]| one(files, "linux_udp_port");
        for (kept, command) in [("", "54321"), ("8080,9000-9100", "8080,9000-9100,54321")] {
            let found = of(&[range, (reserved, kept)]);
            assert_eq!(found.severity, Severity::Note);
            let command = format!("sysctl -w net.ipv4.ip_local_reserved_ports={command}");
            assert_eq!(found.command, Some(command));
        }
        for kept in ["54321", "8080,54000-54999"] {
            assert_eq!(of(&[range, (reserved, kept)]).severity, Severity::Fine, "{kept}");
        }
        let narrow = ("proc/sys/net/ipv4/ip_local_port_range", "32768\t50000");
        assert_eq!(of(&[narrow, (reserved, "")]).severity, Severity::Fine);
        assert_eq!(of(&[]).severity, Severity::Unknown);
        let kernel = of(&[range, (reserved, "54321"), ("proc/sys/net/homa/hijack_udp", "1")]);
        assert_eq!(kernel.command.as_deref(), Some("sysctl -w net.homa.hijack_udp=0"));
    }

    #[test]
    fn old_kernels_lack_features() {
        let release = "proc/sys/kernel/osrelease";
        let limits =
            ("proc/self/limits", "Limit  Soft  Hard  Units\nMax locked memory  65536  65536  bytes\n");
        for (version, severity) in
            [("4.15.0-20-generic", Severity::Cost), ("5.4.80", Severity::Note), ("6.8.0", Severity::Fine)]
        {
            assert_eq!(one(&[(release, version)], "kernel").severity, severity, "{version}");
            let memory = one(&[(release, version), limits], "locked_memory").severity;
            assert_eq!(memory, if version == "6.8.0" { Severity::Fine } else { Severity::Note }, "{version}");
        }
        let protocols = ("proc/net/protocols", "protocol size\nUDP 1\n");
        assert_eq!(one(&[(release, "6.8.0"), protocols], "kernel").severity, Severity::Note);
        assert_eq!(one(&[(release, "new")], "kernel").severity, Severity::Unknown);
    }
}
