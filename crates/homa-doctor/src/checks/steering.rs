//! Checks of receive steering and of the network's soft interrupts.

use super::finding::{Finding, Severity};
use super::host::{Host, NOT_MEASURED, NOTES_2020};

/// Returns the findings about the host.
pub fn check(host: &Host) -> Vec<Finding> {
    vec![flows(host), flow_limit(host), backlog(host)]
}

/// Returns the finding about the receive queues of a device.
pub fn check_device(host: &Host, device: &str) -> Finding {
    let directory = format!("sys/class/net/{device}/queues");
    let queues: Vec<String> =
        host.root.list(&directory).into_iter().filter(|name| name.starts_with("rx-")).collect();
    let finding = Finding::ok("rps", "packets reach several processors").of(device).source(NOTES_2020);
    if queues.is_empty() {
        return finding.read(&directory, "no receive queues").unknown("its receive queues are not known", "");
    }
    let mask = |queue: &String| host.root.read(&format!("{directory}/{queue}/rps_cpus")).ok();
    let spread =
        queues.iter().filter_map(mask).filter(|mask| mask.chars().any(|digit| !"0,".contains(digit)));
    let (queues, spread, processors) = (queues.len(), spread.count(), host.processors());
    let finding = finding.read(
        &format!("{directory}/rx-*/rps_cpus"),
        &format!("{queues} receive queues, {spread} of them spread over processors; {processors} processors"),
    );
    if queues > 1 || spread > 0 || processors < 2 {
        return finding;
    }
    finding.with_severity(
        Severity::Note,
        "one processor receives all packets: while it is busy with a long message, short messages and its other threads wait. In Linux Homa, \
         choosing processors by load reduced the P99 of short messages by 20 to 35 %; another processor than the interrupt's costs 2 to \
         3 us in an idle round trip. Several endpoints (--endpoints) and --driver packet or xdp steer by themselves",
        &format!("echo {} > /{directory}/rx-0/rps_cpus", hex_mask(processors)),
    )
}

/// Returns the mask of all processors in the kernel's format: groups of 32 bits separated by commas.
fn hex_mask(processors: usize) -> String {
    let (whole, rest) = (processors / 32, processors % 32);
    let first = (rest > 0).then(|| format!("{:x}", (1u64 << rest) - 1));
    first.into_iter().chain((0..whole).map(|_| "ffffffff".to_owned())).collect::<Vec<_>>().join(",")
}

fn flows(host: &Host) -> Finding {
    let path = "proc/sys/net/core/rps_sock_flow_entries";
    let finding = Finding::ok(
        "rfs",
        "packets do not follow threads: all Homa packets of a pair of hosts are one flow, which has several threads",
    )
    .source(NOT_MEASURED);
    match host.root.number(path) {
        Ok(0) => finding.read(path, "0"),
        Ok(entries) => finding.read(path, &entries.to_string()).with_severity(
            Severity::Note,
            "packets are steered to the processor of their flow's last reader. All Homa packets of a pair of hosts are one flow, which moves \
             between processors with its reading threads",
            "sysctl -w net.core.rps_sock_flow_entries=0",
        ),
        Err(error) => finding.read(path, &error).unknown("the kernel has no such steering, or hides it", ""),
    }
}

fn flow_limit(host: &Host) -> Finding {
    let path = "proc/sys/net/core/flow_limit_cpu_bitmap";
    let finding = Finding::ok("flow_limit", "large flows are not dropped early").source(NOT_MEASURED);
    match host.root.read(path) {
        Ok(mask) if mask.chars().any(|digit| !"0,".contains(digit)) => finding.read(path, &mask).with_severity(
            Severity::Note,
            "a backlog that is half full drops packets of the largest flow: all Homa packets of a pair of hosts are one flow",
            "sysctl -w net.core.flow_limit_cpu_bitmap=0",
        ),
        Ok(mask) => finding.read(path, &mask),
        Err(error) => finding.read(path, &error).unknown("the kernel has no such limit, or hides it", ""),
    }
}

/// Minimum number of packets per soft-interrupt run that ends with work left. A smaller number is reported as
/// a finding.
const PACKETS_PER_SQUEEZE: u64 = 10_000;

fn backlog(host: &Host) -> Finding {
    let path = "proc/net/softnet_stat";
    let finding =
        Finding::ok("softirq_budget", "network soft interrupts finish their work").source(NOTES_2020);
    let text = match host.root.read(path) {
        Ok(text) => text,
        Err(error) => {
            return finding.read(path, &error).unknown("what soft interrupts left is not known", "");
        }
    };
    let column = |column: usize| -> u64 {
        let value = |line: &str| u64::from_str_radix(line.split_ascii_whitespace().nth(column)?, 16).ok();
        text.lines().filter_map(value).sum()
    };
    let (processed, dropped, squeezed) = (column(0), column(1), column(2));
    let mut finding = finding.read(
        path,
        &format!("{processed} packets, {dropped} dropped, time_squeeze {squeezed} since the start"),
    );
    for setting in ["netdev_budget", "netdev_budget_usecs", "netdev_max_backlog"] {
        let path = format!("proc/sys/net/core/{setting}");
        if let Ok(value) = host.root.read(&path) {
            finding = finding.read(&path, &value);
        }
    }
    let doubled = |setting: &str| {
        let value = host.root.number(&format!("proc/sys/net/core/{setting}")).unwrap_or(1_000);
        format!("net.core.{setting}={}", value.saturating_mul(2))
    };
    if dropped > 0 {
        return finding.with_severity(
            Severity::Cost,
            "packets were dropped because the backlog of a processor was full: each delays a message until a RESEND",
            &format!("sysctl -w {}", doubled("netdev_max_backlog")),
        );
    }
    if squeezed.saturating_mul(PACKETS_PER_SQUEEZE) > processed {
        return finding.with_severity(
            Severity::Cost,
            "soft interrupts exhaust their budget and leave the rest to ksoftirqd, which may wait for a time slice like any other thread: this \
             caused a P99.9 of 5 ms and more for Linux Homa's short messages",
            &format!("sysctl -w {} {}", doubled("netdev_budget"), doubled("netdev_budget_usecs")),
        );
    }
    finding
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::machine::fake_root::FakeRoot;

    fn all(files: &[(&str, &str)]) -> Vec<Finding> {
        let fake_root = FakeRoot::new(files);
        let root = fake_root.root();
        let host = Host { root: &root, settings: &|_| Err(io::ErrorKind::NotFound.into()), link_mbps: None };
        let mut findings = check(&host);
        findings.push(check_device(&host, "eth0"));
        findings
    }

    fn severity(files: &[(&str, &str)], name: &str) -> Severity {
        all(files).into_iter().find(|finding| finding.name == name).expect("a finding").severity
    }

    const ONLINE: (&str, &str) = ("sys/devices/system/cpu/online", "0-3");
    const FIRST: &str = "sys/class/net/eth0/queues/rx-0/rps_cpus";

    #[test]
    fn one_queue_of_many_processors_may_cost() {
        assert_eq!(severity(&[ONLINE, (FIRST, "0")], "rps"), Severity::Note);
        assert_eq!(severity(&[ONLINE, (FIRST, "00000000,0000000f")], "rps"), Severity::Fine);
        let second = ("sys/class/net/eth0/queues/rx-1/rps_cpus", "0");
        assert_eq!(severity(&[ONLINE, (FIRST, "0"), second], "rps"), Severity::Fine);
        assert_eq!(severity(&[("sys/devices/system/cpu/online", "0"), (FIRST, "0")], "rps"), Severity::Fine);
        assert_eq!(severity(&[ONLINE], "rps"), Severity::Unknown);
        assert_eq!([2, 32, 36, 64].map(hex_mask), ["3", "ffffffff", "f,ffffffff", "ffffffff,ffffffff"]);
    }

    #[test]
    fn steering_by_flow_may_cost() {
        let rfs = "proc/sys/net/core/rps_sock_flow_entries";
        assert_eq!(severity(&[(rfs, "0")], "rfs"), Severity::Fine);
        assert_eq!(severity(&[(rfs, "32768")], "rfs"), Severity::Note);
        let limit = "proc/sys/net/core/flow_limit_cpu_bitmap";
        assert_eq!(severity(&[(limit, "0")], "flow_limit"), Severity::Fine);
        assert_eq!(severity(&[(limit, "3")], "flow_limit"), Severity::Note);
    }

    #[test]
    fn work_left_and_packets_dropped_cost() {
        let path = "proc/net/softnet_stat";
        assert_eq!(severity(&[(path, "000f4240 00000000 00000001 0\n")], "softirq_budget"), Severity::Fine);
        assert_eq!(severity(&[(path, "000f4240 00000000 00000100 0\n")], "softirq_budget"), Severity::Cost);
        assert_eq!(severity(&[(path, "000f4240 0 0\n000f4240 1 0")], "softirq_budget"), Severity::Cost);
        assert_eq!(severity(&[], "softirq_budget"), Severity::Unknown);
        let findings = all(&[
            (path, "10 0 5"),
            ("proc/sys/net/core/netdev_budget", "300"),
            ("proc/sys/net/core/netdev_budget_usecs", "2000"),
        ]);
        let command =
            findings.into_iter().find_map(|finding| finding.command.filter(|text| text.contains("budget")));
        assert_eq!(
            command.as_deref(),
            Some("sysctl -w net.core.netdev_budget=600 net.core.netdev_budget_usecs=4000")
        );
    }
}
